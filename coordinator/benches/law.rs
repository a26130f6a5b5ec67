//! The contact law: time of an iteration, and of a step at rest. `cargo bench -p amalgam-coordinator --bench
//! law`.
#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

#[path = "../tests/law/column.rs"]
mod column;
#[path = "../tests/law/grains.rs"]
mod grains;

use std::{hint::black_box, time::Instant};

use amalgam_coordinator::law::{Step, WarmStart};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use grains::{Spin, World};

/// Balls on each other in straight stacks beside each other, at rest: `side` x `side` x `tall`, each touching
/// six others.
fn lattice(side: usize, tall: usize, spin: Spin) -> World {
    let mut world = column::box_of_balls(side, tall, 0.3, spin);
    for (k, x) in world.position.iter_mut().enumerate() {
        let (i, j, l) = (k % side, k / side % side, k / side / side);
        *x = 2.0 * amalgam_particles::DVec3::new(i as f64 + 0.5, j as f64 + 0.5, l as f64 + 0.5);
    }
    world
}

const DT: f64 = 1e-3;

/// Accelerates the bodies over one step by gravity alone.
fn fall(world: &mut World) {
    for i in 0..world.position.len() {
        world.bodies.velocity[i] = world.gravity * DT;
    }
}

/// Products with W for a load that no memory knows, per contact and iteration.
fn iterations(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("law iteration");
    group.sample_size(10);
    for (name, spin) in [("without spin", Spin::None), ("with spin", Spin::Ball)] {
        let mut world = lattice(32, 32, spin);
        fall(&mut world);
        world.find_contacts(DT);
        // A slope and no guess: the iteration does not end before its limit.
        for v in &mut world.bodies.velocity {
            v.x += 2.0 * DT * v.z;
        }
        world.law.settings.guesses_by_tree = false;
        world.law.settings.precision.velocity = 0.0;
        world.law.settings.precision.duality_gap = 0.0;
        world.law.settings.precision.iterations_max = 50;
        group.throughput(Throughput::Elements(50 * world.contacts.len() as u64));
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|times| {
                let mut time = std::time::Duration::ZERO;
                for _ in 0..times {
                    let mut bodies = world.bodies.clone();
                    let start = Instant::now();
                    let statistics = world.law.solve(
                        &mut WarmStart::default(),
                        &mut bodies,
                        &world.contacts,
                        Step { dt: DT, acceleration: 1.0, enough: 0.0 },
                    );
                    time += start.elapsed();
                    black_box(statistics);
                }
                time
            });
        });
    }
    group.finish();
}

/// A whole solve of about 10^5 contacts at rest, with the memory of the step before.
fn at_rest(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("law at rest");
    group.sample_size(10);
    for (name, spin) in [("without spin", Spin::None), ("with spin", Spin::Ball)] {
        let mut world = lattice(32, 32, spin);
        fall(&mut world);
        world.find_contacts(DT);
        group.throughput(Throughput::Elements(world.contacts.len() as u64));
        let falling = world.bodies.clone();
        let mut bodies = falling.clone();
        let step = Step { dt: DT, acceleration: 1.0, enough: 0.0 };
        world.law.solve(&mut world.warm_start, &mut bodies, &world.contacts, step);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                bodies.clone_from(&falling);
                world.law.solve(&mut world.warm_start, &mut bodies, &world.contacts, step)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, iterations, at_rest);
criterion_main!(benches);
