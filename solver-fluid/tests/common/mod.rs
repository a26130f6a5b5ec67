//! Drives a fluid as the coordinator does, without a coordinator.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use amalgam_particles::{DMat3, DVec3, GroupMap, StepEnd};
use amalgam_solver_fluid::FluidProgram;
use amalgam_solver_kit::{Answer, FieldValues, Report, Solver, SolverProgram, Stage, World};

pub fn world(domain: DVec3, gravity: f64) -> World {
    World {
        participant: "water".into(),
        domain: (DVec3::ZERO, domain),
        gravity: DVec3::new(0.0, 0.0, -gravity),
        seed: 1,
    }
}

pub fn create(section: &str, world: &World) -> Box<dyn Solver> {
    FluidProgram.create(section, world).unwrap_or_else(|faults| panic!("{faults:?}"))
}

/// Groups with their inertia and velocity.
pub struct Groups {
    pub map: GroupMap,
    pub inertia: Vec<f64>,
    pub velocity: Vec<DVec3>,
}

impl Groups {
    pub fn none(particles: usize) -> Self {
        Self { map: GroupMap::none(particles), inertia: Vec::new(), velocity: Vec::new() }
    }
}

pub fn integrate(solver: &mut dyn Solver, groups: &Groups, dt: f64, stage: u32) -> Answer {
    let count = groups.map.len();
    let mut answer = Answer {
        momentum: vec![DVec3::ZERO; count],
        slope: vec![DMat3::ZERO; count],
        velocity: vec![DVec3::ZERO; solver.particles().len()],
        bodies: Vec::new(),
    };
    let stage = Stage {
        step: 0,
        stage,
        repetition: 0,
        dt,
        forcing: 0.0,
        groups: &groups.map,
        inertia: &groups.inertia,
        velocity: &groups.velocity,
        impulse: &vec![DVec3::ZERO; count],
        occupied: None,
    };
    solver.integrate(&stage, &mut answer).expect("a stable step");
    if let Some(deferred) = solver.deferred() {
        answer.velocity = deferred.velocity(&Vec::from_iter(0..answer.velocity.len() as u32));
    }
    answer
}

/// One whole step; groups end with `v12 + J / M`, members with the group's velocity.
pub fn step(solver: &mut dyn Solver, groups: &Groups, dt: f64) -> Report {
    solver.begin().expect("a good state");
    let answer = integrate(solver, groups, dt, 1);
    let velocity: Vec<DVec3> =
        (0..groups.map.len()).map(|g| groups.velocity[g] + answer.momentum[g] / groups.inertia[g]).collect();
    let members: Vec<DVec3> =
        (0..groups.map.len()).flat_map(|g| vec![velocity[g]; groups.map.members(g).len()]).collect();
    let end = StepEnd {
        dt,
        groups: &groups.map,
        group_velocity: &velocity,
        member_velocity: &members,
        group_spin: &[],
    };
    solver.commit(&end, &answer.velocity).expect("a good state")
}

/// Runs free for `time`, and calls `each` after every step with the time and the report.
pub fn run(solver: &mut dyn Solver, time: f64, mut each: impl FnMut(&dyn Solver, f64, &Report)) {
    let groups = Groups::none(solver.particles().len());
    let (mut now, mut dt) = (0.0, solver.stable_dt());
    while now < time {
        let report = step(solver, &groups, dt);
        now += dt;
        dt = report.stable_dt;
        each(solver, now, &report);
    }
}

pub fn momentum(solver: &dyn Solver) -> DVec3 {
    let particles = solver.particles();
    particles.velocity.iter().zip(&particles.mass).map(|(&v, &m)| m * v).sum()
}

pub fn kinetic_energy(solver: &dyn Solver) -> f64 {
    let particles = solver.particles();
    particles.velocity.iter().zip(&particles.mass).map(|(v, m)| 0.5 * m * v.length_squared()).sum()
}

pub fn field(solver: &dyn Solver, name: &str) -> Vec<f32> {
    let field = solver.fields().into_iter().find(|field| field.name == name).expect("a field");
    match field.values {
        FieldValues::Scalar(values) => values,
        FieldValues::Vector(_) => panic!("{name} is a vector"),
    }
}
