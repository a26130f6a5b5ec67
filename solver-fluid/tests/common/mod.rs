//! Drives a fluid as the coordinator does, without a coordinator.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

pub mod ranks;

use amalgam_particles::DVec3;
use amalgam_solver_fluid::FluidProgram;
use amalgam_solver_kit::{Alone, Answer, FieldValues, Report, Solver, SolverProgram, World};

pub fn world(domain: DVec3, gravity: f64) -> World {
    World {
        participant: "water".into(),
        domain: (DVec3::ZERO, domain),
        gravity: DVec3::new(0.0, 0.0, -gravity),
        seed: 1,
        obstacles: Vec::new(),
        ranks: amalgam_solver_kit::Ranks::alone(),
    }
}

pub fn create(section: &str, world: &World) -> Box<dyn Solver> {
    FluidProgram.create(section, world).unwrap_or_else(|faults| panic!("{faults:?}"))
}

pub use amalgam_solver_kit::AloneGroups as Groups;

pub fn integrate(solver: &mut dyn Solver, groups: &Groups, dt: f64) -> Answer {
    let mut alone = Alone::default();
    alone.integrate(solver, (groups, 0.0), dt).expect("a stable step");
    let mut answer = alone.answer;
    if let Some(deferred) = solver.deferred() {
        answer.velocity = deferred.velocity(&Vec::from_iter(0..solver.particles().len() as u32));
    }
    answer
}

/// Takes a whole step; groups end with `v12 + J / M`, members with the group's velocity.
pub fn step(solver: &mut dyn Solver, groups: &Groups, dt: f64) -> Report {
    Alone::default().step(solver, groups, dt).expect("a stable step")
}

/// Runs free for `time`, and calls `each` after every step with the time and the report.
pub fn run(solver: &mut dyn Solver, time: f64, mut each: impl FnMut(&mut dyn Solver, f64, &Report)) {
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

pub fn field(solver: &mut dyn Solver, name: &str) -> Vec<f32> {
    let field = solver.fields().into_iter().find(|field| field.name == name).expect("a field");
    match field.values {
        FieldValues::Scalar(values) => values,
        FieldValues::Vector(_) => panic!("{name} is a vector"),
    }
}
