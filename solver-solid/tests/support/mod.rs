//! Helpers of all tests: building a solid and taking steps with it.
#![allow(dead_code, unreachable_pub, reason = "each test program uses its own part")]

use amalgam_particles::DVec3;
use amalgam_solver_kit::{Alone, Answer, Report, SectionError, Solver, SolverError, World};
use amalgam_solver_solid::SolidSolver;

pub fn world(gravity: DVec3) -> World {
    World {
        participant: "solid".into(),
        domain: (DVec3::splat(-100.0), DVec3::splat(100.0)),
        gravity,
        seed: 1,
        obstacles: Vec::new(),
        ranks: amalgam_solver_kit::Ranks::alone(),
    }
}

pub fn solid(section: &str, gravity: DVec3) -> SolidSolver {
    SolidSolver::from_section(section, &world(gravity)).expect("the section is right")
}

pub fn faults(section: &str) -> Vec<SectionError> {
    SolidSolver::from_section(section, &world(DVec3::ZERO)).err().expect("the section is faulty")
}

/// The groups of a stage, with the numbers that come with them.
pub use amalgam_solver_kit::AloneGroups as Groups;

pub fn try_integrate(solid: &mut SolidSolver, dt: f64, groups: &Groups) -> Result<Answer, SolverError> {
    integrate_to(solid, dt, 0.0, groups)
}

/// Integrates until this part of the first residual is left, or the solid's own tolerance.
pub fn integrate_to(
    solid: &mut SolidSolver,
    dt: f64,
    forcing: f64,
    groups: &Groups,
) -> Result<Answer, SolverError> {
    let mut alone = Alone::default();
    alone.integrate(solid, (groups, forcing), dt)?;
    Ok(alone.answer)
}

pub fn integrate(solid: &mut SolidSolver, dt: f64, groups: &Groups) -> Answer {
    try_integrate(solid, dt, groups).expect("the solve converges")
}

/// Takes a step without groups.
pub fn step(solid: &mut SolidSolver, dt: f64) -> Report {
    Alone::default().step_free(solid, dt).expect("a step")
}

/// Gives particles other positions and velocities, as a snapshot would.
pub fn set_state(solid: &mut SolidSolver, position: Vec<DVec3>, velocity: Vec<DVec3>) {
    let mut snapshot = solid.save().expect("a snapshot");
    // The time and the length of the last step come last.
    let columns = snapshot.len() - 16 - 3 * 24 * position.len();
    let none = vec![DVec3::ZERO; position.len()];
    let values = [position, velocity, none].into_iter().flatten().flat_map(|v| v.to_array());
    for (value, bytes) in values.zip(snapshot[columns..].chunks_exact_mut(8)) {
        bytes.copy_from_slice(&value.to_le_bytes());
    }
    solid.restore(&snapshot).expect("the same solver");
}

pub fn momentum(solid: &SolidSolver) -> DVec3 {
    let particles = solid.particles();
    particles.velocity.iter().zip(&particles.mass).map(|(v, m)| *v * *m).sum()
}

pub fn angular_momentum(solid: &SolidSolver) -> DVec3 {
    let particles = solid.particles();
    let terms = particles.position.iter().zip(&particles.velocity).zip(&particles.mass);
    terms.map(|((x, v), m)| x.cross(*v) * *m).sum()
}

/// Bits of all positions and velocities.
pub fn bits(solid: &SolidSolver) -> Vec<u64> {
    let particles = solid.particles();
    let values = particles.position.iter().chain(&particles.velocity);
    values.flat_map(|v| v.to_array()).map(f64::to_bits).collect()
}
