//! Spheres under the contact law alone, and times of its solves: for benchmarks, tests and examples.

pub mod heaps;
pub mod world;

use std::time::Instant;

use crate::law::{Step, WarmStart, gradient::Outcome};
use world::{Spin, World};

/// Solves of a step's contacts, timed.
#[derive(Clone, Debug, Default)]
pub struct Solves {
    /// Contacts in the last step.
    pub contacts: usize,
    /// Time of each solve [s].
    pub seconds: Vec<f64>,
    /// Iterations of all solves.
    pub iterations: u64,
    /// Solves that ended above their tolerance.
    pub unconverged: usize,
}

impl Solves {
    fn solve(&mut self, world: &mut World, step: Step) {
        let start = Instant::now();
        let solve = world.solve(step).solve;
        self.push(start, world, solve);
    }

    fn push(&mut self, start: Instant, world: &World, solve: Outcome) {
        self.seconds.push(start.elapsed().as_secs_f64());
        self.iterations += u64::from(solve.iterations);
        self.unconverged += usize::from(!solve.converged);
        self.contacts = world.contacts.len();
    }
}

const DT: f64 = 1e-3;

/// Solves of one step of balls at rest in stacks, `side` to each side, a little over `3 side^3` contacts: one
/// without a first guess, and `repetitions` that start from the impulses of the one before.
pub fn at_rest(side: usize, spin: Spin, repetitions: usize) -> [Solves; 2] {
    let mut world = heaps::stacks(side, side, 0.3, spin);
    let acceleration = world.accelerate(DT);
    world.find_contacts(DT);
    let step = Step { dt: DT, acceleration, enough: 0.0 };
    let falling = world.bodies.clone();
    let [mut cold, mut warm] = [Solves::default(), Solves::default()];
    cold.solve(&mut world, step);
    for _ in 0..repetitions {
        world.bodies.clone_from(&falling);
        warm.solve(&mut world, step);
    }
    [cold, warm]
}

/// Solves of `iterations` iterations each, of the stacks of [`at_rest`] on a slope, without a first guess.
pub fn iterations(side: usize, spin: Spin, iterations: u32, repetitions: usize) -> Solves {
    let mut world = heaps::stacks(side, side, 0.3, spin);
    let acceleration = world.accelerate(DT);
    world.find_contacts(DT);
    for v in &mut world.bodies.velocity {
        v.x += 2.0 * DT * v.z;
    }
    world.law.settings.guesses_by_tree = false;
    // Errors of zero are not reached: the limit ends each solve.
    world.law.settings.precision.velocity = 0.0;
    world.law.settings.precision.duality_gap = 0.0;
    world.law.settings.precision.iterations_max = iterations;
    let step = Step { dt: DT, acceleration, enough: 0.0 };
    let moving = world.bodies.clone();
    let mut solves = Solves::default();
    for _ in 0..repetitions {
        world.bodies.clone_from(&moving);
        world.warm_start = WarmStart::default();
        solves.solve(&mut world, step);
    }
    solves
}

/// Whole steps of length `dt` [s], with the search for contacts, timed. Returns also the largest overlap after
/// them, over the radius.
pub fn whole_steps(mut world: World, dt: f64, steps: usize) -> (Solves, f64) {
    let mut solves = Solves::default();
    for _ in 0..steps {
        let start = Instant::now();
        let solve = world.step(dt).solve;
        solves.push(start, &world, solve);
    }
    (solves, world.overlap())
}

/// Steps of length `dt` [s] of a heap that collapses. Only solves are timed.
pub fn collapse(mut world: World, dt: f64, steps: usize) -> Solves {
    let mut solves = Solves::default();
    for _ in 0..steps {
        let acceleration = world.accelerate(dt);
        world.find_contacts(dt);
        solves.solve(&mut world, Step { dt, acceleration, enough: 0.0 });
        world.advance(dt);
    }
    solves
}
