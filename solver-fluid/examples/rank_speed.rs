//! Speed of FLIP steps on two ranks of one thread, against one rank of two threads: a collapsing column of 1.6
//! million particles in 64^3 cells.
//!
//! `cargo run --release -p amalgam-solver-fluid --example rank_speed [EDGE] [STEPS] [ROUNDS]`

use std::time::Instant;

use amalgam_particles::DVec3;
use amalgam_solver_fluid::flip::{Flip, section};
use amalgam_solver_kit::{Alone, Ranks, Solver as _, World};

/// A column of water that falls, and its step.
struct Column {
    ranks: Ranks,
    solver: Flip,
    alone: Alone,
}

impl Column {
    fn new(edge: f64, ranks: Ranks) -> Self {
        let world = World {
            participant: "water".into(),
            domain: (DVec3::ZERO, DVec3::splat(edge)),
            gravity: DVec3::NEG_Z * 9.81,
            seed: 1,
        };
        let text = format!(
            "method = 'flip'\nspacing = 0.5\n[[shapes]]\ntype = 'box'\nmin = [0, 0, 0]\nmax = [{}, {edge}, {edge}]\n",
            (0.76 * edge).round()
        );
        let (parameters, particles) =
            section::read(&text, &world).unwrap_or_else(|faults| panic!("{faults:?}"));
        let mut solver = Flip::new(parameters, particles);
        if !ranks.is_alone() {
            solver.share(&ranks).unwrap_or_else(|error| panic!("{error}"));
        }
        Self { ranks, solver, alone: Alone::default() }
    }

    /// Takes steps; the iterations of all.
    fn run(&mut self, steps: u64) -> u64 {
        let mut iterations = 0;
        for _ in 0..steps {
            let dt = self.solver.stable_dt().min(0.1);
            self.alone.step_free(&mut self.solver, dt).unwrap_or_else(|error| panic!("{error}"));
            self.solver.migrate();
            iterations += u64::from(self.solver.iterations());
        }
        iterations
    }
}

fn pool(threads: usize) -> rayon::ThreadPool {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.unwrap_or_else(|error| panic!("{error}"))
}

fn main() {
    let number = |at: usize, other: usize| {
        std::env::args()
            .nth(at)
            .map_or(other, |text| text.parse().unwrap_or_else(|_| panic!("a number: {text}")))
    };
    let (edge, steps, rounds) = (number(1, 64) as f64, number(2, 4) as u64, number(3, 5));
    let two = pool(2);
    let mut whole = two.install(|| Column::new(edge, Ranks::alone()));
    let one = [pool(1), pool(1)];
    let mut parts: Vec<Column> = std::thread::scope(|scope| {
        let part = |ranks: Ranks| scope.spawn(move || pool(1).install(|| Column::new(edge, ranks)));
        let parts: Vec<_> = Ranks::threads(2).into_iter().map(part).collect();
        parts.into_iter().map(|part| part.join().expect("a rank")).collect()
    });
    let count = whole.solver.particles().len();
    let mut ratios = Vec::new();
    for round in 0..=rounds {
        let start = Instant::now();
        let iterations = two.install(|| whole.run(steps));
        let alone = start.elapsed().as_secs_f64();
        let before = parts[0].ranks.sent();
        let start = Instant::now();
        std::thread::scope(|scope| {
            for (part, pool) in parts.iter_mut().zip(&one) {
                scope.spawn(|| pool.install(|| part.run(steps)));
            }
        });
        let cut = start.elapsed().as_secs_f64();
        let after = parts[0].ranks.sent();
        let per_step = |count: u64| count as f64 / steps as f64;
        println!(
            "{iterations} iterations; a step: {:.1} ms on one rank, {:.1} ms on two, {:.0} messages of {:.0} bytes in all, \
             {:.0} collectives",
            alone * 1e3 / steps as f64,
            cut * 1e3 / steps as f64,
            per_step(after.messages - before.messages),
            per_step(after.bytes - before.bytes),
            per_step(after.collectives - before.collectives),
        );
        if round > 0 {
            ratios.push(cut / alone);
        }
    }
    ratios.sort_by(f64::total_cmp);
    let mut cut: Vec<_> = parts
        .iter()
        .flat_map(|part| {
            let particles = part.solver.particles();
            particles
                .id
                .iter()
                .copied()
                .zip(particles.position.iter().map(|x| x.to_array().map(f64::to_bits)))
        })
        .collect();
    let particles = whole.solver.particles();
    let positions = particles.position.iter().map(|x| x.to_array().map(f64::to_bits));
    let mut all: Vec<_> = particles.id.iter().copied().zip(positions).collect();
    cut.sort_unstable();
    all.sort_unstable();
    assert!(cut == all, "other bits");
    let cells: Vec<_> = parts.iter().map(|part| part.solver.shared()).collect();
    println!(
        "{count} particles, cells and ghost cells {cells:?}, ratio of times {:.3}",
        ratios[ratios.len() / 2]
    );
}
