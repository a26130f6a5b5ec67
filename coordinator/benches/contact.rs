//! Detecting, merging and splitting: a slab of fluid falls on a sheet of solid. `cargo bench -p
//! amalgam-coordinator`.
#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

use std::{hint::black_box, time::Instant};

use amalgam_coordinator::{
    contacts::{Candidates, ContactFinder},
    merging::merge::{Forest, GroupLimit},
    merging::split::SplitSettings,
};
use amalgam_particles::{DVec3, ParticleId, random};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const LIMIT: GroupLimit = GroupLimit { min: 8, max: 64, keep_lone_contacts: true, seed: 1, step: 7 };

/// Storage order of a scene's particles.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    /// Neighbours in space have near ids, as at the start of a run.
    Lattice,
    /// The fluid's ids say nothing of where it is, as after long mixing.
    Mixed,
}

/// About `count` candidates in lattice spacings, a sheet of `side` x `side` solid particles below and fluid
/// above it, with about 1.3 contacts for each solid particle.
fn scene(count: usize, side: usize, order: Order) -> Candidates {
    let layers = (count / (side * side)).saturating_sub(1).max(1);
    let noise = |i: usize, axis: u64| 2.0 * random::uniform_f64(&[i as u64, axis]) - 1.0;
    let jitter = |i: usize| 0.1 * DVec3::new(noise(i, 0), noise(i, 1), noise(i, 2));
    let mut rows: Vec<usize> = (0..layers * side * side).collect();
    if order == Order::Mixed {
        rows.sort_by_key(|&i| random::bits(&[i as u64]));
    }
    let place = |i: usize| DVec3::new((i % side) as f64, (i / side % side) as f64, (i / side / side) as f64);
    let mut candidates = Candidates::default();
    let mut push = |participant: u16, id: usize, position: DVec3, velocity: DVec3, mass: f64| {
        candidates.participant.push(participant);
        candidates.id.push(ParticleId(id as u64));
        candidates.position.push(position);
        candidates.velocity.push(velocity);
        candidates.mass.push(mass);
        candidates.radius.push(0.5);
    };
    for (id, &i) in rows.iter().enumerate() {
        push(
            0,
            id,
            place(i) + jitter(i) + DVec3::new(0.4, 0.2, 0.8),
            DVec3::NEG_Z + jitter(i + 1_000_000),
            1.0,
        );
    }
    for i in 0..side * side {
        push(1, i, place(i) + 0.1 * jitter(i), DVec3::ZERO, if i < side { f64::INFINITY } else { 0.5 });
    }
    candidates
}

struct Rig {
    candidates: Candidates,
    finder: ContactFinder,
    forest: Forest,
    pairs: Vec<(u32, u32)>,
    energy: Vec<f64>,
    split: Vec<DVec3>,
}

impl Rig {
    fn detect(&mut self) {
        let contacts = self.finder.detect(&self.candidates, &[]);
        self.pairs.clone_from(&contacts.active);
    }

    fn merge(&mut self) {
        self.forest.merge(&self.candidates, &self.pairs, &LIMIT);
    }

    fn split(&mut self) {
        self.energy.resize(self.forest.len(), 0.0);
        self.forest.split(self.forest.velocity(), &self.energy, &SplitSettings::default(), &mut self.split);
    }

    /// Prints one line with the best of some repetitions, for reading without criterion's report.
    fn print(&mut self, name: &str) {
        let count = self.candidates.len();
        let mut best = [f64::INFINITY; 4];
        for _ in 0..15 {
            let start = Instant::now();
            self.detect();
            let detected = Instant::now();
            self.merge();
            let merged = Instant::now();
            self.split();
            let parts = [detected - start, merged - detected, merged.elapsed(), start.elapsed()];
            for (best, part) in best.iter_mut().zip(parts) {
                *best = best.min(part.as_secs_f64());
            }
        }
        let ms = best.map(|s| s * 1e3);
        println!(
            "{name}: {count} candidates, {} contacts, {} groups, {} refused; detect {:.2} ms, merge {:.2} ms, \
             split {:.2} ms, total {:.2} ms = {:.1} ns a candidate",
            self.pairs.len(),
            self.forest.len(),
            self.forest.refused().len(),
            ms[0],
            ms[1],
            ms[2],
            ms[3],
            best[3] * 1e9 / count as f64,
        );
    }
}

fn contact(criterion: &mut Criterion) {
    for (name, count, side, order) in [
        ("1e5 candidates, 1e4 contacts", 100_000, 90, Order::Mixed),
        ("1e6 candidates, 1e4 contacts", 1_000_000, 90, Order::Mixed),
        ("1e6 candidates, 1e5 contacts, lattice order", 1_000_000, 280, Order::Lattice),
        ("1e6 candidates, 1e5 contacts", 1_000_000, 280, Order::Mixed),
    ] {
        let mut rig = Rig {
            candidates: scene(count, side, order),
            finder: ContactFinder::new(),
            forest: Forest::new(),
            pairs: Vec::new(),
            energy: Vec::new(),
            split: Vec::new(),
        };
        rig.print(name);
        let mut group = criterion.benchmark_group(name);
        group.sample_size(10).throughput(Throughput::Elements(rig.candidates.len() as u64));
        group.bench_function("detect", |b| b.iter(|| rig.detect()));
        group.bench_function("merge", |b| b.iter(|| rig.merge()));
        group.bench_function("split", |b| b.iter(|| rig.split()));
        group.bench_function("total", |b| {
            b.iter(|| {
                rig.detect();
                rig.merge();
                rig.split();
                black_box(&rig.split);
            });
        });
        group.finish();
    }
}

criterion_group!(benches, contact);
criterion_main!(benches);
