//! What the tests share: building a solid and taking steps with it.
#![allow(dead_code, unreachable_pub, reason = "each test program uses its own part")]

use amalgam_particles::{DMat3, DVec3, GroupMap, StepEnd};
use amalgam_solver_kit::{Answer, Report, SectionError, Solver, SolverError, Stage, World};
use amalgam_solver_solid::SolidSolver;

pub fn world(gravity: DVec3) -> World {
    World {
        participant: "solid".into(),
        domain: (DVec3::splat(-100.0), DVec3::splat(100.0)),
        gravity,
        seed: 1,
    }
}

pub fn solid(section: &str, gravity: DVec3) -> SolidSolver {
    SolidSolver::from_section(section, &world(gravity)).expect("the section is right")
}

pub fn faults(section: &str) -> Vec<SectionError> {
    SolidSolver::from_section(section, &world(DVec3::ZERO)).err().expect("the section is faulty")
}

/// The groups of a stage, with what comes with each.
#[derive(Clone, Default)]
pub struct Groups {
    pub map: GroupMap,
    pub inertia: Vec<f64>,
    pub velocity: Vec<DVec3>,
    pub impulse: Vec<DVec3>,
}

impl Groups {
    pub fn none(solid: &SolidSolver) -> Self {
        Self { map: GroupMap::none(solid.particles().len()), ..Self::default() }
    }

    /// A group for every particle, of its own mass and velocity.
    pub fn each(solid: &SolidSolver) -> Self {
        let particles = solid.particles();
        let count = particles.len() as u32;
        let mut map = GroupMap::default();
        map.set(particles.len(), &(0..=count).collect::<Vec<_>>(), &(0..count).collect::<Vec<_>>());
        Self {
            map,
            inertia: particles.mass.clone(),
            velocity: particles.velocity.clone(),
            impulse: vec![DVec3::ZERO; particles.len()],
        }
    }

    /// One group of these members.
    pub fn one(solid: &SolidSolver, members: &[u32], inertia: f64, velocity: DVec3, impulse: DVec3) -> Self {
        let mut map = GroupMap::default();
        map.set(solid.particles().len(), &[0, members.len() as u32], members);
        Self { map, inertia: vec![inertia], velocity: vec![velocity], impulse: vec![impulse] }
    }
}

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
    let stage = Stage {
        step: 0,
        stage: 1,
        repetition: 0,
        dt,
        forcing,
        groups: &groups.map,
        inertia: &groups.inertia,
        velocity: &groups.velocity,
        impulse: &groups.impulse,
        occupied: None,
    };
    let mut answer = Answer {
        momentum: vec![DVec3::ZERO; groups.map.len()],
        slope: vec![DMat3::ZERO; groups.map.len()],
        velocity: vec![DVec3::ZERO; solid.particles().len()],
        bodies: Vec::new(),
    };
    solid.integrate(&stage, &mut answer)?;
    Ok(answer)
}

pub fn integrate(solid: &mut SolidSolver, dt: f64, groups: &Groups) -> Answer {
    try_integrate(solid, dt, groups).expect("the solve converges")
}

/// One step without groups.
pub fn step(solid: &mut SolidSolver, dt: f64) -> Report {
    let groups = Groups::none(solid);
    solid.begin().expect("begin");
    let answer = integrate(solid, dt, &groups);
    let end = StepEnd { dt, groups: &groups.map, group_velocity: &[], member_velocity: &[], group_spin: &[] };
    solid.commit(&end, &answer.velocity).expect("commit")
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
