//! Speed of implicit steps of a pinned cloth on two ranks of one thread, against one rank of two threads.
//!
//! `cargo run --release -p amalgam-solver-solid --example rank_speed [EDGE] [STEPS] [ROUNDS]`

use std::time::Instant;

use amalgam_particles::{DVec3, GroupMap, StepEnd};
use amalgam_solver_kit::{Answer, Members, Ranks, Request, Solver as _, World};
use amalgam_solver_solid::SolidSolver;

/// Length of a step [s].
const DT: f64 = 1e-3;

/// A cloth that falls, and its step.
struct Cloth {
    ranks: Ranks,
    solver: SolidSolver,
    step: u64,
}

impl Cloth {
    fn new(edge: usize, ranks: Ranks) -> Self {
        let section = format!(
            "method = \"mass-spring\"\ntolerance = 1e-6\n[[bodies]]\ntype = \"sheet\"\ncorner = [0, 0, 0]\n\
             edge_u = [1, 0, 0]\nedge_v = [0, 1, 0]\nspacing = {}\narea_density = 0.4\n\
             structural_stiffness = 300.0\ndamping_ratio = 0.1\npinned = \"edges\"\n",
            1.0 / (edge - 1) as f64
        );
        let world = World {
            participant: "cloth".into(),
            domain: (DVec3::splat(-10.0), DVec3::splat(10.0)),
            gravity: DVec3::new(0.0, 0.0, -9.81),
            seed: 1,
        };
        let solver = SolidSolver::from_section(&section, &world);
        let mut solver = solver.unwrap_or_else(|faults| panic!("{faults:?}"));
        if !ranks.is_alone() {
            solver.share(&ranks).unwrap_or_else(|error| panic!("{error}"));
        }
        Self { ranks, solver, step: 0 }
    }

    /// Takes steps; the iterations of all.
    fn run(&mut self, steps: u64) -> u64 {
        let count = self.solver.particles().len();
        let groups = GroupMap::none(count);
        let mut iterations = 0;
        for _ in 0..steps {
            let mut answer = Answer { velocity: vec![DVec3::ZERO; count], ..Answer::default() };
            self.solver.begin().unwrap_or_else(|error| panic!("{error}"));
            let request = Request {
                step: self.step,
                stage: 1,
                repetition: 0,
                dt: DT,
                forcing: 0.0,
                groups: &groups,
                members: Members { ranks: &self.ranks, number: &[], offsets: &[0] },
                inertia: &[],
                velocity: &[],
                impulse: &[],
                occupied: None,
            };
            self.solver.integrate(&request, &mut answer).unwrap_or_else(|error| panic!("{error}"));
            iterations += u64::from(self.solver.iterations());
            let end = StepEnd {
                dt: DT,
                groups: &groups,
                group_velocity: &[],
                member_velocity: &[],
                group_spin: &[],
            };
            self.solver.commit(&end, &answer.velocity).unwrap_or_else(|error| panic!("{error}"));
            self.step += 1;
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
    let (edge, steps, rounds) = (number(1, 500), number(2, 4) as u64, number(3, 5));
    let mut whole = Cloth::new(edge, Ranks::alone());
    let mut parts: Vec<Cloth> = std::thread::scope(|scope| {
        let part = |ranks: Ranks| scope.spawn(move || pool(1).install(|| Cloth::new(edge, ranks)));
        let parts: Vec<_> = Ranks::threads(2).into_iter().map(part).collect();
        parts.into_iter().map(|part| part.join().expect("a rank")).collect()
    });
    let (two, one) = (pool(2), [pool(1), pool(1)]);
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
    let same = parts.iter().flat_map(|part| &part.solver.particles().position);
    assert!(same.eq(&whole.solver.particles().position), "other bits");
    let ghosts: Vec<usize> = parts.iter().map(|part| part.solver.ghost_count()).collect();
    println!("{} particles, ghosts {ghosts:?}, ratio of times {:.3}", edge * edge, ratios[ratios.len() / 2]);
}
