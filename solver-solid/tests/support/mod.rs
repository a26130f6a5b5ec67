//! What the tests share: building a solid and taking steps with it.
#![allow(dead_code, unreachable_pub, reason = "each test program uses its own part")]

use amalgam_particles::{DVec3, GroupMap, StepEnd};
use amalgam_solver_kit::{Answer, Report, SectionError, Solver, SolverError, Stage, World};
use amalgam_solver_solid::MassSpring;

pub fn world(gravity: DVec3) -> World {
    World {
        participant: "solid".into(),
        domain: (DVec3::splat(-100.0), DVec3::splat(100.0)),
        gravity,
        seed: 1,
    }
}

pub fn solid(section: &str, gravity: DVec3) -> MassSpring {
    MassSpring::from_section(section, &world(gravity)).expect("the section is right")
}

pub fn faults(section: &str) -> Vec<SectionError> {
    MassSpring::from_section(section, &world(DVec3::ZERO)).err().expect("the section is faulty")
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
    pub fn none(solid: &MassSpring) -> Self {
        Self { map: GroupMap::none(solid.particles().len()), ..Self::default() }
    }

    /// One group of these members.
    pub fn one(solid: &MassSpring, members: &[u32], inertia: f64, velocity: DVec3, impulse: DVec3) -> Self {
        let mut map = GroupMap::default();
        map.set(solid.particles().len(), &[0, members.len() as u32], members);
        Self { map, inertia: vec![inertia], velocity: vec![velocity], impulse: vec![impulse] }
    }
}

pub fn try_integrate(solid: &mut MassSpring, dt: f64, groups: &Groups) -> Result<Answer, SolverError> {
    let stage = Stage {
        step: 0,
        stage: 1,
        repetition: 0,
        dt,
        groups: &groups.map,
        inertia: &groups.inertia,
        velocity: &groups.velocity,
        impulse: &groups.impulse,
        occupied: None,
    };
    let mut answer = Answer {
        momentum: vec![DVec3::ZERO; groups.map.len()],
        slope: vec![0.0; groups.map.len()],
        velocity: vec![DVec3::ZERO; solid.particles().len()],
    };
    solid.integrate(&stage, &mut answer)?;
    Ok(answer)
}

pub fn integrate(solid: &mut MassSpring, dt: f64, groups: &Groups) -> Answer {
    try_integrate(solid, dt, groups).expect("the solve converges")
}

/// One step without groups.
pub fn step(solid: &mut MassSpring, dt: f64) -> Report {
    let groups = Groups::none(solid);
    solid.begin().expect("begin");
    let answer = integrate(solid, dt, &groups);
    let end = StepEnd { dt, groups: &groups.map, group_velocity: &[], member_velocity: &[] };
    solid.commit(&end, &answer.velocity).expect("commit")
}

pub fn momentum(solid: &MassSpring) -> DVec3 {
    let particles = solid.particles();
    particles.velocity.iter().zip(&particles.mass).map(|(v, m)| *v * *m).sum()
}

pub fn angular_momentum(solid: &MassSpring) -> DVec3 {
    let particles = solid.particles();
    let terms = particles.position.iter().zip(&particles.velocity).zip(&particles.mass);
    terms.map(|((x, v), m)| x.cross(*v) * *m).sum()
}

/// Bits of all positions and velocities.
pub fn bits(solid: &MassSpring) -> Vec<u64> {
    let particles = solid.particles();
    let values = particles.position.iter().chain(&particles.velocity);
    values.flat_map(|v| v.to_array()).map(f64::to_bits).collect()
}
