//! Particles that appear and disappear during a run, and a solver that fails in the middle of taking a step.

mod support;

use amalgam_coordinator::{CoordinatorError, Quantity};
use amalgam_particles::{DVec3, Lattice, ParticleId, Particles, StepEnd};
use amalgam_solver_kit::{
    Answer, Description, Integration, Report, Request, SectionError, Solver, SolverError, SolverProgram,
    World,
};
use support::Scene;
use support::balls::BallsProgram;

/// Three particles at rest, of which the first dies in step [`DEATH`]; in step [`BIRTH`] one appears that
/// flies at the origin. Step [`FAILURE`] cannot be taken.
struct Mortal {
    particles: Particles,
    step: u64,
}

const DEATH: u64 = 3;
const BIRTH: u64 = 5;
const FAILURE: u64 = 40;
const NEWCOMER: ParticleId = ParticleId(7);

impl Solver for Mortal {
    fn particles(&self) -> &Particles {
        &self.particles
    }

    fn integrate(&mut self, request: &Request<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        self.step = request.step;
        answer.velocity.copy_from_slice(&self.particles.velocity);
        Ok(())
    }

    fn commit(&mut self, end: &StepEnd<'_>, integrated: &[DVec3]) -> Result<Report, SolverError> {
        end.advance(&mut self.particles, integrated);
        let mut report = Report { stable_dt: f64::INFINITY, ..Report::default() };
        match self.step {
            DEATH => {
                // The last one takes the place of the first: ids move in memory.
                let Particles { id, position, velocity, mass, radius, immovable } = &mut self.particles;
                report.dead.push(id.swap_remove(0));
                position.swap_remove(0);
                velocity.swap_remove(0);
                mass.swap_remove(0);
                radius.swap_remove(0);
                immovable.swap_remove(0);
            }
            BIRTH => {
                self.particles.push(NEWCOMER, DVec3::X, DVec3::NEG_X * 4.0, 1.0, 0.1, false);
                report.born.push(NEWCOMER);
                report.given = 0.5 * 4.0 * 4.0;
            }
            FAILURE => return Err(SolverError("the sky fell".into())),
            _ => {}
        }
        Ok(report)
    }
}

struct MortalProgram;

impl SolverProgram for MortalProgram {
    fn describe(&self) -> Description {
        Description { name: "mortal", version: "1", integration: Integration::Explicit }
    }

    fn create(&self, _section: &str, _world: &World) -> Result<Box<dyn Solver>, Vec<SectionError>> {
        let mut particles = Particles::default();
        for i in 0..3 {
            particles.push(ParticleId(i), DVec3::new(0.0, 3.0, i as f64), DVec3::ZERO, 1.0, 0.1, false);
        }
        Ok(Box::new(Mortal { particles, step: 0 }))
    }
}

#[test]
fn particles_are_born_collide_and_die_and_a_failed_commit_ends_the_run() {
    let target = "positions = [[0, 0, 0]]\nmass = 1.0\nradius = 0.1\n";
    let mut scene = Scene::new(2.0, 1e-2)
        .with("mortal", MortalProgram, "")
        .with("target", BallsProgram, target)
        .probe("first", Quantity::Displacement { participant: "mortal".into(), point: DVec3::Y * 3.0 })
        .probe("momentum", Quantity::Momentum { participant: None });
    scene.plan.domain.gravity = DVec3::ZERO;
    let mut simulation = scene.connect().unwrap_or_else(|error| panic!("{error}"));
    let (mut merged, mut error) = (0, None);
    for step in 0.. {
        match simulation.step() {
            Ok(record) => merged += record.groups,
            Err(found) => {
                error = Some((step, found));
                break;
            }
        }
        let particles = simulation.participants()[0].particles;
        let expected = match step {
            0..DEATH => 3,
            DEATH..BIRTH => 2,
            _ => 3,
        };
        assert_eq!(particles, expected, "step {step}");
        let displacement = simulation.probes()[0].values[0];
        assert_eq!(displacement.is_nan(), step > DEATH, "step {step}: {displacement}");
        let momentum = simulation.probes()[1].values[0];
        assert_eq!(momentum, if step < BIRTH { 0.0 } else { -4.0 }, "step {step}");
    }
    assert!(merged > 0, "the newcomer never met the target");
    let (step, error) = error.expect("an end");
    assert_eq!(step, FAILURE);
    assert_eq!(error.to_string(), "participant mortal cannot go on, in Commit of step 40: the sky fell");
    let after = simulation.step().expect_err("half a step was taken");
    assert!(matches!(after, CoordinatorError::Lost { .. }), "{after}");
}

/// A solver that wants to know occupied cells.
struct Curious(Particles);

impl Solver for Curious {
    fn particles(&self) -> &Particles {
        &self.0
    }

    fn occupancy_grid(&self) -> Option<Lattice> {
        Some(Lattice { origin: DVec3::ZERO, cell_size: 1.0 })
    }

    fn integrate(&mut self, _request: &Request<'_>, _answer: &mut Answer) -> Result<(), SolverError> {
        Ok(())
    }

    fn commit(&mut self, _end: &StepEnd<'_>, _integrated: &[DVec3]) -> Result<Report, SolverError> {
        Ok(Report { stable_dt: f64::INFINITY, ..Report::default() })
    }
}

struct CuriousProgram;

impl SolverProgram for CuriousProgram {
    fn describe(&self) -> Description {
        Description { name: "curious", ..MortalProgram.describe() }
    }

    fn create(&self, _section: &str, _world: &World) -> Result<Box<dyn Solver>, Vec<SectionError>> {
        let mut particles = Particles::default();
        particles.push(ParticleId(0), DVec3::ZERO, DVec3::ZERO, 1.0, 0.1, false);
        Ok(Box::new(Curious(particles)))
    }
}

#[test]
fn more_grids_than_a_commit_can_ask_for_are_refused_at_the_start() {
    let scene =
        (0..9).fold(Scene::new(1.0, 0.1), |scene, k| scene.with(&format!("c{k}"), CuriousProgram, ""));
    let error = scene.connect().err().expect("one too many").to_string();
    assert_eq!(error, "9 participants want to know occupied cells, but at most 8 can");
}
