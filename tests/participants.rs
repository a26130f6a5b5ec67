//! Solvers that the coordinator has never heard of: another program behind an address, a projection, one that
//! wants to know what is occupied.

mod support;

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use amalgam_coordinator::{CoordinatorError, Quantity};
use amalgam_particles::{CellSet, DVec3, Lattice, NO_GROUP, ParticleId, Particles, Reach, StepEnd};
use amalgam_solver_kit::{
    Answer, Description, Integration, Report, Request, SectionError, Solver, SolverError, SolverProgram,
    World,
};
use amalgam_solver_solid::SolidProgram;
use support::balls::BallsProgram;
use support::process::{Folder, stderr};
use support::{Scene, last};

/// A solver's program, ended with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the example solver as its own program; says where it listens.
fn start_balls() -> (Program, String) {
    let test = std::env::current_exe().expect("a path");
    let path: PathBuf = test.parent().expect("deps").with_file_name("examples").join("balls");
    assert!(
        path.exists(),
        "{} is not there: build it with `cargo build -p amalgam-solver-kit --example balls`, in the profile of this test \
         (`cargo test --workspace` does)",
        path.display()
    );
    let mut command = Command::new(path);
    command
        .args(["--listen", "127.0.0.1:0", "--exit-with-stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut program = Program(command.spawn().expect("it starts"));
    let mut line = String::new();
    let output = program.0.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("reads");
    let address =
        line.trim_end().strip_prefix("listening ").unwrap_or_else(|| panic!("{line:?}")).to_string();
    (program, address)
}

const DROP: &str = r#"
[scene]
name = "swap"
[domain]
min = [-1, -1, -1]
max = [1, 1, 1]
[time]
duration = 0.05
frame_interval = 0.05
dt_max = 0.001
[coupling]
method = "merge-split"
[[participants]]
name = "plate"
solver = "solid"
[participants.settings]
method = "mass-spring"
tolerance = 1e-12
[[participants.settings.bodies]]
type = "points"
positions = [[0, 0, 0]]
mass = 1.0
radius = 0.1
foundation = { stiffness = 1e4, damping = 10.0 }
[[probes]]
name = "momentum"
quantity = "momentum"
participant = "ball"
"#;

/// Another program in place of a solver of ours, by an address in the scene, gives the same drop.
#[test]
fn a_solver_is_swapped_without_compiling() {
    let (_program, address) = start_balls();
    let ball = format!(
        "[[participants]]\nname = \"ball\"\nsolver = \"balls\"\naddress = \"{address}\"\n[participants.settings]\n\
         positions = [[0, 0, 0.19]]\nmass = 0.5\nradius = 0.1\n"
    );
    let grain = "[[participants]]\nname = \"ball\"\nsolver = \"solid\"\n[participants.settings]\n\
                 method = \"mass-spring\"\ntolerance = 1e-12\n[[participants.settings.bodies]]\ntype = \"points\"\n\
                 positions = [[0, 0, 0.19]]\nmass = 0.5\nradius = 0.1\n";
    let momentum = |participant: &str, solver: &str| -> f64 {
        let folder = Folder::new();
        let scene = folder.scene(&format!("{DROP}{participant}"));
        let output = folder.run(&scene, &["--quiet"]);
        assert!(output.status.success(), "{}", stderr(&output));
        let summary = folder.summary();
        assert_eq!(summary["participants"][1]["solver"], solver);
        assert!(summary["contacts"]["groups_mean"].as_f64().expect("a number") > 0.1, "{summary:#}");
        summary["probes"]["momentum"]["momentum_z [kg m/s]"]["last"].as_f64().expect("a number")
    };
    let first = momentum(&ball, "balls");
    // The service waits for the next run.
    assert_eq!(first.to_bits(), momentum(&ball, "balls").to_bits());
    let ours = momentum(grain, "solid");
    assert!((first - ours).abs() < 1e-9 * ours.abs(), "{first} and {ours} kg m/s");
}

#[test]
fn a_scene_that_names_another_solver_is_refused() {
    let (_program, address) = start_balls();
    let folder = Folder::new();
    let text =
        format!("{DROP}[[participants]]\nname = \"ball\"\nsolver = \"cubes\"\naddress = \"{address}\"\n");
    let output = folder.run(&folder.scene(&text), &["--quiet"]);
    assert_eq!(output.status.code(), Some(1));
    let expected = format!(
        "error: participant ball is not what the scene says: the scene wants solver \"cubes\", but {address} serves \
         \"balls\"\n"
    );
    assert_eq!(stderr(&output), expected);
}

#[test]
fn immovable_particles_that_overlap_are_refused() {
    let fixed = |x: f64| {
        format!(
            "method = 'mass-spring'\n[[bodies]]\ntype = 'points'\npositions = [[5, 0, 0], [{x}, 0, 0]]\nmass = 1.0\n\
             radius = 0.1\npinned = [1]\n"
        )
    };
    let scene =
        Scene::new(0.1, 1e-3).with("left", SolidProgram, fixed(0.0)).with("right", SolidProgram, fixed(0.15));
    let error = scene.connect().err().expect("refuses");
    assert!(matches!(error, CoordinatorError::ImmovableOverlap { .. }));
    insta::assert_snapshot!(error.to_string(), @"left 1 and right 1 are immovable particles that overlap at the start (1.500e-1 m apart, radii 1.000e-1 m and 1.000e-1 m); no velocity can part them: move one, make it smaller or make it movable");
    let scene =
        Scene::new(0.1, 1e-3).with("left", SolidProgram, fixed(0.0)).with("right", SolidProgram, fixed(0.25));
    assert!(scene.connect().is_ok(), "they do not touch");
    let both = fixed(5.15).replace("pinned = [1]", "pinned = [0, 1]");
    let error = Scene::new(0.1, 1e-3).with("one", SolidProgram, both).connect().err().expect("refuses");
    insta::assert_snapshot!(error.to_string(), @"participant one cannot go on, in Initialize of step 0: 0 and 1 are immovable particles that overlap at the start; no velocity can part them: move one, make it smaller or make it movable");
}

/// A mass on a damped spring that says that it is a projection: implicit, and it tells nobody its slope.
struct Damper {
    particles: Particles,
    anchor: DVec3,
    stiffness: f64,
    damping: f64,
    gravity: DVec3,
}

impl Damper {
    /// Impulse of spring and damper in a step that ends with velocity `v`, plus weight [kg m/s].
    fn impulse(&self, v: DVec3, dt: f64) -> DVec3 {
        let stretch = self.particles.position[0] + v * dt - self.anchor;
        (self.gravity * self.particles.mass[0] - stretch * self.stiffness - v * self.damping) * dt
    }

    /// Velocity after a step of backward Euler.
    fn solve(&self, inertia: f64, before: DVec3, given: DVec3, dt: f64) -> DVec3 {
        let rest = self.impulse(DVec3::ZERO, dt);
        (before * inertia + given + rest) / (inertia + dt * dt * self.stiffness + dt * self.damping)
    }
}

impl Solver for Damper {
    fn particles(&self) -> &Particles {
        &self.particles
    }

    fn integrate(&mut self, request: &Request<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        if request.groups.group_of()[0] == NO_GROUP {
            let own = self.particles.mass[0];
            answer.velocity[0] = self.solve(own, self.particles.velocity[0], DVec3::ZERO, request.dt);
        } else {
            let v = self.solve(request.inertia[0], request.velocity[0], request.impulse[0], request.dt);
            answer.momentum[0] = self.impulse(v, request.dt);
        }
        Ok(())
    }

    fn commit(&mut self, end: &StepEnd<'_>, integrated: &[DVec3]) -> Result<Report, SolverError> {
        end.advance(&mut self.particles, integrated);
        Ok(Report { stable_dt: f64::INFINITY, ..Report::default() })
    }
}

struct DamperProgram {
    position: DVec3,
    mass: f64,
    stiffness: f64,
    damping: f64,
}

impl SolverProgram for DamperProgram {
    fn describe(&self) -> Description {
        Description { name: "damper", version: "1", integration: Integration::Projection }
    }

    fn create(&self, _section: &str, world: &World) -> Result<Box<dyn Solver>, Vec<SectionError>> {
        let mut particles = Particles::default();
        particles.push(ParticleId(0), self.position, DVec3::ZERO, self.mass, 0.05, false);
        Ok(Box::new(Damper {
            particles,
            anchor: self.position,
            stiffness: self.stiffness,
            damping: self.damping,
            gravity: world.gravity,
        }))
    }
}

/// The projection answers last, against the solid's linearised answer (a Robin condition), and needs no
/// slope.
#[test]
fn a_projection_that_shares_a_group_with_a_spring_agrees_with_one_participant() {
    let body = |z: f64, stiffness: f64| {
        format!(
            "[[bodies]]\ntype = 'points'\npositions = [[0, 0, {z}]]\nmass = 0.5\nradius = 0.05\n\
             foundation = {{ stiffness = {stiffness}, damping = 0.5 }}\n"
        )
    };
    let head = "method = 'mass-spring'\nself_collision = true\ntolerance = 1e-12\n";
    let probe = || Quantity::Displacement { participant: "solid".into(), point: DVec3::ZERO };
    // The softer one lies on the stiffer one.
    for (solid, projection, z) in
        [(1e3, 1e2, 0.099), (1e6, 1e2, 0.099), (1e2, 1e3, -0.099), (1e2, 1e6, -0.099)]
    {
        let one = Scene::new(0.3, 1e-3)
            .with("solid", SolidProgram, format!("{head}{}{}", body(0.0, solid), body(z, projection)))
            .probe("z", probe())
            .run();
        let damper = DamperProgram { position: DVec3::Z * z, mass: 0.5, stiffness: projection, damping: 0.5 };
        let (mut groups, mut repetitions) = (0, 0);
        let two = Scene::new(0.3, 1e-3)
            .with("solid", SolidProgram, format!("{head}{}", body(0.0, solid)))
            .with("damper", damper, "")
            .probe("z", probe())
            .run_with(|_, record| {
                groups += record.groups;
                repetitions += record.repetitions;
            });
        let (one, two) = (last(&one, "z", 2), last(&two, "z", 2));
        assert!(groups > 100 && repetitions > 0, "{groups} groups, {repetitions} repetitions");
        assert!(one.abs() > 1e-7, "nothing moved");
        assert!((one - two).abs() < 1e-3 * one.abs(), "{solid} and {projection} N/m: {one} m and {two} m");
    }
}

/// Cells that a listening solver was told in each step, and its own cells.
type Heard = Arc<Mutex<Vec<(Option<CellSet>, CellSet)>>>;

const GRID: Lattice = Lattice { origin: DVec3::new(0.05, 0.0, -0.02), cell_size: 0.25 };

struct Listener {
    particles: Particles,
    heard: Heard,
}

impl Solver for Listener {
    fn particles(&self) -> &Particles {
        &self.particles
    }

    fn occupancy_grid(&self) -> Option<Lattice> {
        Some(GRID)
    }

    fn integrate(&mut self, request: &Request<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        answer.velocity.copy_from_slice(&self.particles.velocity);
        let own = GRID.occupied(&self.particles.position, &self.particles.radius, Reach::Centre);
        self.heard.lock().expect("a list").push((request.occupied.cloned(), own));
        Ok(())
    }

    fn commit(&mut self, end: &StepEnd<'_>, integrated: &[DVec3]) -> Result<Report, SolverError> {
        end.advance(&mut self.particles, integrated);
        Ok(Report { stable_dt: f64::INFINITY, ..Report::default() })
    }
}

struct ListenerProgram(Heard);

impl SolverProgram for ListenerProgram {
    fn describe(&self) -> Description {
        Description { name: "listener", version: "1", integration: Integration::Explicit }
    }

    fn create(&self, _section: &str, _world: &World) -> Result<Box<dyn Solver>, Vec<SectionError>> {
        let mut particles = Particles::default();
        particles.push(ParticleId(4), DVec3::Y * 5.0, DVec3::X, 1.0, 0.05, false);
        Ok(Box::new(Listener { particles, heard: Arc::clone(&self.0) }))
    }
}

#[test]
fn a_solver_that_wants_to_know_is_told_which_cells_anyone_occupies() {
    let heard = Heard::default();
    // Two participants that fall, and one that is told nothing of grids.
    let near = "positions = [[0, 0, 0], [1, 0, 0]]\nvelocities = [[1, 0, 0], [0, 2, 0]]\nmass = 1.0\nradius = 0.05\n";
    let far = "positions = [[-3, -3, 3]]\nmass = 1.0\nradius = 0.05\n";
    let scene = Scene::new(0.3, 5e-3)
        .with("near", BallsProgram, near)
        .with("listener", ListenerProgram(Arc::clone(&heard)), "")
        .with("far", BallsProgram, far);
    let mut expected = Vec::new();
    let mut simulation = scene.connect().unwrap_or_else(|error| panic!("{error}"));
    while !simulation.is_finished() {
        let frames = simulation.frames().unwrap_or_else(|error| panic!("{error}"));
        let all: Vec<DVec3> = frames.iter().flat_map(|frame| frame.positions.iter().copied()).collect();
        expected.push(GRID.occupied(&all, &vec![0.05; all.len()], Reach::Centre));
        simulation.step().unwrap_or_else(|error| panic!("{error}"));
    }
    let heard = heard.lock().expect("a list");
    assert_eq!(heard.len(), expected.len(), "one stage a step");
    for (step, ((told, own), expected)) in heard.iter().zip(&expected).enumerate() {
        assert_eq!(told.as_ref(), Some(expected), "step {step}");
        assert!(own.iter().all(|cell| expected.contains(cell)), "its own cells are among them");
    }
    let distinct = expected.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(distinct > 3, "cells change as particles move: {distinct} times");
    assert!(expected.iter().all(|cells| cells.len() == 4), "four particles far apart");
}

/// Particles that all move alike, whatever each of them is told: a body that cannot turn.
struct Sled {
    particles: Particles,
    says: bool,
}

impl Solver for Sled {
    fn particles(&self) -> &Particles {
        &self.particles
    }

    fn integrate(&mut self, _: &Request<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        answer.velocity.copy_from_slice(&self.particles.velocity);
        Ok(())
    }

    fn commit(&mut self, end: &StepEnd<'_>, integrated: &[DVec3]) -> Result<Report, SolverError> {
        let before = self.particles.position.clone();
        end.advance(&mut self.particles, integrated);
        let Particles { position, velocity, .. } = &mut self.particles;
        let mean = |all: &[DVec3]| all.iter().sum::<DVec3>() / all.len() as f64;
        let (moved, together) = (mean(position) - mean(&before), mean(velocity));
        position.iter_mut().zip(before).for_each(|(position, before)| *position = before + moved);
        velocity.fill(together);
        Ok(Report { stable_dt: f64::INFINITY, adjusted: self.says, ..Report::default() })
    }
}

struct SledProgram(bool);

impl SolverProgram for SledProgram {
    fn describe(&self) -> Description {
        Description { name: "sled", version: "1", integration: Integration::Explicit }
    }

    fn create(&self, _section: &str, _world: &World) -> Result<Box<dyn Solver>, Vec<SectionError>> {
        let mut particles = Particles::default();
        for i in 0..3 {
            particles.push(ParticleId(i), DVec3::X * i as f64, DVec3::X, 1.0, 0.1, false);
        }
        Ok(Box::new(Sled { particles, says: self.0 }))
    }
}

/// A ball hits one particle of a body that moves as a whole: the body cannot take that particle's velocity as
/// told. All of the kinetic energy that is missing in the end is counted, if the body says so.
#[test]
fn energy_that_a_rigid_participant_cannot_take_is_counted() {
    let ball = "positions = [[2.5, 0, 0]]\nvelocities = [[-2, 0, 0]]\nmass = 2.0\nradius = 0.1\n";
    let lost_and_counted = |says| {
        let mut scene = Scene::new(0.4, 1e-3)
            .with("sled", SledProgram(says), "")
            .with("ball", BallsProgram, ball)
            .probe("energy", Quantity::Energy {});
        scene.plan.domain.gravity = DVec3::ZERO;
        let simulation = scene.run();
        let before = 0.5 * 3.0 + 0.5 * 2.0 * 4.0;
        (before - last(&simulation, "energy", 0), simulation.summary().coupling.energy_dissipated)
    };
    let (lost, counted) = lost_and_counted(true);
    assert!(lost > 0.1, "{lost} J");
    assert!((lost - counted).abs() < 1e-12, "{lost} J lost, {counted} J counted");
    let (lost, counted) = lost_and_counted(false);
    assert!(lost > 0.1 && counted.abs() < 1e-12, "{lost} J lost, {counted} J counted");
}
