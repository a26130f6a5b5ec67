//! The account of energy: it closes to rounding where all is known, and energy that nobody gave ends a run.

mod support;

use amalgam_coordinator::CoordinatorError;
use amalgam_coordinator::settings::ContactMethod;
use amalgam_particles::{DVec3, ParticleId, Particles, StepEnd};
use amalgam_solver_fluid::FluidProgram;
use amalgam_solver_kit::{
    Answer, Description, Integration, Report, Request, SectionError, Solver, SolverError, SolverProgram,
    World,
};
use amalgam_solver_solid::SolidProgram;
use support::{GRAVITY, Scene, positions};

/// Free particles whose velocities grow by a part in each step.
struct Pump {
    particles: Particles,
    growth: f64,
}

impl Solver for Pump {
    fn particles(&self) -> &Particles {
        &self.particles
    }

    fn integrate(&mut self, _request: &Request<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        let grown = self.particles.velocity.iter().map(|velocity| *velocity * (1.0 + self.growth));
        answer.velocity = grown.collect();
        Ok(())
    }

    fn commit(&mut self, end: &StepEnd<'_>, integrated: &[DVec3]) -> Result<Report, SolverError> {
        end.advance(&mut self.particles, integrated);
        Ok(Report { stable_dt: f64::INFINITY, energies: vec![("stored", 0.0)], ..Report::default() })
    }
}

struct PumpProgram {
    growth: f64,
}

impl SolverProgram for PumpProgram {
    fn describe(&self) -> Description {
        Description { name: "pump", version: "1", integration: Integration::Explicit }
    }

    fn create(&self, _section: &str, _world: &World) -> Result<Box<dyn Solver>, Vec<SectionError>> {
        let mut particles = Particles::default();
        for id in 0..4 {
            particles.push(ParticleId(id), DVec3::X * id as f64, DVec3::Y, 1.0, 0.05, false);
        }
        Ok(Box::new(Pump { particles, growth: self.growth }))
    }
}

/// Balls beside it that keep what they have.
const BALLS: &str = "method = 'mass-spring'\n[[bodies]]\ntype = 'points'\npositions = [[0, 5, 0], [1, 5, 0]]\n\
                     velocities = [[0, 0, 1], [0, 0, 1]]\nmass = 2.0\nradius = 0.05\n";

fn weightless(mut scene: Scene) -> Scene {
    scene.plan.domain.gravity = DVec3::ZERO;
    scene
}

#[test]
fn energy_that_nobody_gave_ends_a_run_with_the_name_of_who_has_it() {
    let scene = weightless(Scene::new(1.0, 1e-2));
    let scene = scene.with("balls", SolidProgram, BALLS).with("pump", PumpProgram { growth: 1e-3 }, "");
    let mut simulation = scene.connect().unwrap_or_else(|error| panic!("{error}"));
    let error = loop {
        match simulation.step() {
            Ok(_) => assert!(!simulation.is_finished(), "nobody has noticed"),
            Err(error) => break error,
        }
    };
    // The pump has 2 J, the balls have 2 J, and 0.4 J of these 4 J may come from nowhere. After n steps the
    // pump has 2 (1 + 1e-3)^(2 n) J; the first step is where the account begins.
    let n = (0.5 * ((2.0f64 * (1.001f64).powi(2) + 0.4) / 2.0).ln() / 1.001f64.ln()).ceil();
    match &error {
        CoordinatorError::Energy { participant, step, gained, .. } => {
            assert_eq!((participant.as_str(), *step), ("pump", n as u64 - 1), "{error}");
            assert!((0.4..0.41).contains(gained), "{error}");
        }
        other => panic!("{other}"),
    }
    let text = error.to_string();
    assert!(text.contains("participant pump") && text.contains("write a shorter time.dt_max"), "{text}");
}

#[test]
fn energy_that_grows_by_less_than_a_tenth_is_in_the_balance() {
    let scene = weightless(Scene::new(0.2, 1e-2));
    let simulation = scene.with("pump", PumpProgram { growth: 1e-3 }, "").run();
    let energy = simulation.summary().energy;
    let grown = 2.0 * (1.001f64.powi(40) - 1.001f64.powi(2));
    assert!((energy.unaccounted_max - grown).abs() < 1e-12, "{energy:?}");
    assert!((energy.lost + grown).abs() < 1e-12, "{energy:?}");
}

/// A sheet that is lifted as a whole: all work is that of the script against its weight.
#[test]
fn the_work_of_a_script_is_that_against_weight() {
    let sheet = "method = 'mass-spring'\n[[bodies]]\ntype = 'sheet'\ncorner = [0, 0, 0]\nedge_u = [0.4, 0, 0]\n\
                 edge_v = [0, 0.4, 0]\nspacing = 0.1\narea_density = 5.0\nstructural_stiffness = 100.0\npinned = 'all'\n\
                 pinned_velocity = [0, 0, 0.5]\n";
    let simulation = Scene::new(1.0, 1e-2).with("sheet", SolidProgram, sheet).run();
    let energy = simulation.summary().energy;
    // From the end of the first step on.
    let lifted = 0.8 * GRAVITY * 0.5 * (1.0 - 1e-2);
    assert!((energy.by_scripts_and_sources - lifted).abs() < 1e-9, "{energy:?}");
    assert!((energy.by_gravity + lifted).abs() < 1e-9 && energy.lost.abs() < 1e-9, "{energy:?}");
}

/// A cloth is lifted by two edges with balls on it: what the script gives is what is there and what the cloth
/// damps.
#[test]
fn the_account_of_a_lifted_cloth_with_balls_on_it_closes() {
    let cloth = "method = 'mass-spring'\nintegrator = 'hht-alpha'\n[[bodies]]\ntype = 'sheet'\ncorner = [-0.1, -0.1, 0]\n\
                 edge_u = [0.2, 0, 0]\nedge_v = [0, 0.2, 0]\nspacing = 0.02\narea_density = 2.0\nstructural_stiffness = 300.0\n\
                 scripted = [{ part = 'edge_u0', velocity = [0, 0, 0.5] }, { part = 'edge_u1', velocity = [0, 0, 0.5] }]\n";
    let balls = "method = 'mass-spring'\n[[bodies]]\ntype = 'points'\npositions = [[0, 0, 0.04], [0.04, 0.01, 0.05]]\n\
                 mass = 0.01\nradius = 0.012\n";
    let simulation =
        Scene::new(0.5, 1e-3).with("cloth", SolidProgram, cloth).with("balls", SolidProgram, balls).run();
    let energy = simulation.summary().energy;
    let [cloth, balls] = &energy.participants[..] else { panic!("{energy:?}") };
    assert!(balls.by_contacts > 0.02, "the balls are not carried: {energy:?}");
    assert!(energy.unaccounted_relative_max < 0.01, "{energy:?}");
    // Balls lose nothing: their whole account is gravity and contacts. What contacts take goes to the cloth.
    assert!(balls.lost.abs() < 0.01 * balls.by_contacts, "{energy:?}");
    assert!(cloth.by_scripts_and_sources > balls.by_contacts, "{energy:?}");
}

/// A jet in free fall: all energy is that with which it was emitted and that of gravity.
#[test]
fn what_emitters_bring_is_in_the_account() {
    let water = "method = 'flip'\nspacing = 0.04\ncell_size = 0.08\n[[shapes]]\ntype = 'box'\nmin = [-0.32, -0.32, -0.4]\n\
                 max = [-0.24, -0.24, -0.32]\n[[emitters]]\ncenter = [0, 0, 0.2]\naxis = [0, 0, -1]\nradius = 0.05\n\
                 speed = 2.0\nuntil = 0.1\n";
    let mut scene = Scene::new(0.15, 2e-3).with("water", FluidProgram, water);
    (scene.plan.domain.min, scene.plan.domain.max) = (DVec3::splat(-0.4), DVec3::splat(0.4));
    let energy = scene.run().summary().energy;
    let [water] = &energy.participants[..] else { panic!("{energy:?}") };
    assert!(water.by_scripts_and_sources > 0.0, "{energy:?}");
    // Particles begin off their lattice, and the grid mixes their velocities.
    assert!(energy.unaccounted_relative_max < 0.03, "{energy:?}");
    assert!(energy.lost.abs() < 0.05 * energy.by_scripts_and_sources, "{energy:?}");
}

#[test]
fn two_projections_are_refused() {
    let water =
        "method = 'flip'\nspacing = 0.5\n[[shapes]]\ntype = 'box'\nmin = [-9, -9, -9]\nmax = [-8, -8, -8]\n";
    let scene = Scene::new(0.1, 1e-2).with("oil", FluidProgram, water).with("water", FluidProgram, water);
    let error = scene.connect().err().expect("refused").to_string();
    assert!(error.contains("oil and water are both pressure projections"), "{error}");
    assert!(error.contains("by an explicit method"), "{error}");
}

/// A sheet that is thrown up by a script and let go: what the script gave is what flies.
#[test]
fn the_account_of_a_sheet_that_is_thrown_closes() {
    let sheet = "method = 'mass-spring'\n[[bodies]]\ntype = 'sheet'\ncorner = [0, 0, 0]\nedge_u = [0.4, 0, 0]\n\
                 edge_v = [0, 0.4, 0]\nspacing = 0.1\narea_density = 5.0\nstructural_stiffness = 100.0\npinned = 'all'\n\
                 pinned_velocity = [0, 0, 0.5]\nrelease = 0.3\n";
    let simulation = Scene::new(0.6, 1e-2).with("sheet", SolidProgram, sheet).run();
    let energy = simulation.summary().energy;
    // From the end of the first step on; in free flight symplectic Euler loses m g^2 t dt / 2.
    let lifted = 0.8 * GRAVITY * 0.5 * (0.3 - 1e-2);
    assert!((energy.by_scripts_and_sources - lifted).abs() < 1e-9, "{energy:?}");
    assert!((energy.lost - 0.8 * GRAVITY * GRAVITY * 0.3 * 0.5e-2).abs() < 1e-9, "{energy:?}");
}

/// Balls that are let go above a held sheet land on it: until then no pair of the two was a contact, or near.
#[test]
fn balls_that_are_let_go_land_on_what_is_held() {
    let floor = "method = 'mass-spring'\n[[bodies]]\ntype = 'sheet'\ncorner = [-0.1, -0.1, 0]\nedge_u = [0.2, 0, 0]\n\
                 edge_v = [0, 0.2, 0]\nspacing = 0.02\narea_density = 2.0\nstructural_stiffness = 300.0\npinned = 'all'\n";
    let balls = "method = 'mass-spring'\n[[bodies]]\ntype = 'points'\npositions = [[0.01, 0, 0.03], [0.05, 0.01, 0.2]]\n\
                 mass = 0.01\nradius = 0.012\npinned = [0, 1]\nrelease = [0.05, 0.1]\n";
    for method in [ContactMethod::MergeSplit, ContactMethod::ContactLaw] {
        let scene =
            Scene::new(0.6, 1e-3).with("floor", SolidProgram, floor).with("balls", SolidProgram, balls);
        let scene = scene.coupling(|coupling| {
            coupling.method = Some(method);
            coupling.alpha = Some(0.0);
        });
        let mut simulation = scene.run();
        let heights: Vec<f64> = positions(&mut simulation, "balls").iter().map(|x| x.z).collect();
        // Balls of 0.012 m rest between spheres of 0.015 m, 0.01 m and 0.014 m away.
        for (height, rest) in heights.iter().zip([0.0251, 0.023]) {
            assert!((height - rest).abs() < 0.002, "{method:?}: {heights:?}");
        }
    }
}
