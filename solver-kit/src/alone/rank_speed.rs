//! Speed of a solver that is cut among two ranks, against the same solver on one rank. Examples of solvers use
//! it.

use std::fmt;
use std::time::{Duration, Instant};

use amalgam_particles::ParticleId;
use amalgam_ranks::{Ranks, Sent};
use rayon::ThreadPool;

use super::Alone;
use crate::error::SolverError;
use crate::solver::Solver;

/// A solver on one rank of two threads, and the same solver on two ranks of one thread each.
pub struct RankSpeed<S> {
    whole: Part<S>,
    parts: [Part<S>; 2],
    /// Time on two ranks over the time on one, of each round but the first.
    ratios: Vec<f64>,
}

/// A rank, its threads, and the solver on it.
struct Part<S> {
    ranks: Ranks,
    pool: ThreadPool,
    solver: S,
    alone: Alone,
}

/// A round: some steps on one rank, and as many on two.
#[derive(Clone, Copy, Debug)]
pub struct RankRound {
    steps: u64,
    /// The sum of the counts that the steps on one rank returned.
    iterations: u64,
    one: Duration,
    two: Duration,
    /// The messages and calls of the first of two ranks.
    sent: Sent,
}

impl<S: Solver> RankSpeed<S> {
    /// Creates the solver three times: whole, and as two parts, each with the ranks that will share it.
    ///
    /// # Errors
    /// The solver cannot be cut among ranks.
    pub fn new(create: impl Fn(&Ranks) -> S + Sync) -> Result<Self, SolverError> {
        let whole = Part::new(&create, Ranks::alone(), 2)?;
        let [first, second] = <[Ranks; 2]>::try_from(Ranks::threads(2))
            .map_err(|ranks| SolverError(format!("{} ranks in place of 2", ranks.len())))?;
        let (first, second) = both(|| Part::new(&create, first, 1), || Part::new(&create, second, 1));
        Ok(Self { whole, parts: [first?, second?], ratios: Vec::new() })
    }

    /// Takes `steps` steps on one rank and then on two. `step` takes one step, and returns the number of its
    /// iterations.
    ///
    /// # Errors
    /// The solver's.
    pub fn round(
        &mut self,
        steps: u64,
        step: impl Fn(&mut S, &mut Alone) -> Result<u64, SolverError> + Sync,
    ) -> Result<RankRound, SolverError> {
        let start = Instant::now();
        let iterations = self.whole.run(steps, &step)?;
        let one = start.elapsed();
        let [first, second] = &mut self.parts;
        let before = first.ranks.sent();
        let start = Instant::now();
        let (done, other) = both(|| first.run(steps, &step), || second.run(steps, &step));
        let two = start.elapsed();
        done?;
        other?;
        let after = first.ranks.sent();
        let sent = Sent {
            messages: after.messages - before.messages,
            bytes: after.bytes - before.bytes,
            collectives: after.collectives - before.collectives,
        };
        self.ratios.push(two.as_secs_f64() / one.as_secs_f64());
        Ok(RankRound { steps, iterations, one, two, sent })
    }

    /// The median over rounds of the time on two ranks over the time on one. The first round is left out,
    /// because memory is not warm in it.
    pub fn ratio(&self) -> f64 {
        let mut ratios = self.ratios.get(1..).unwrap_or_default().to_vec();
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// True if the particles of two ranks are those of one, with the same bits in their positions.
    pub fn agrees(&self) -> bool {
        let mut cut: Vec<_> = self.parts().iter().flat_map(|part| positions(*part)).collect();
        let mut whole: Vec<_> = positions(&self.whole.solver).collect();
        cut.sort_unstable();
        whole.sort_unstable();
        cut == whole
    }

    /// The solver on one rank.
    pub fn whole(&self) -> &S {
        &self.whole.solver
    }

    /// The solvers on two ranks.
    pub fn parts(&self) -> [&S; 2] {
        self.parts.each_ref().map(|part| &part.solver)
    }
}

impl<S: Solver> Part<S> {
    fn new(create: impl Fn(&Ranks) -> S + Sync, ranks: Ranks, threads: usize) -> Result<Self, SolverError> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|error| SolverError(error.to_string()))?;
        let solver = pool.install(|| {
            let mut solver = create(&ranks);
            if !ranks.is_alone() {
                solver.share(&ranks)?;
            }
            Ok(solver)
        });
        Ok(Self { ranks, pool, solver: solver?, alone: Alone::default() })
    }

    /// Takes steps, and returns the iterations of all.
    fn run(
        &mut self,
        steps: u64,
        step: impl Fn(&mut S, &mut Alone) -> Result<u64, SolverError> + Sync,
    ) -> Result<u64, SolverError> {
        let Self { pool, solver, alone, .. } = self;
        pool.install(|| {
            let mut iterations = 0;
            for _ in 0..steps {
                iterations += step(solver, alone)?;
                solver.migrate();
            }
            Ok(iterations)
        })
    }
}

/// The results of two tasks, each on a thread of its own.
fn both<T: Send>(first: impl FnOnce() -> T, second: impl FnOnce() -> T + Send) -> (T, T) {
    std::thread::scope(|scope| {
        let second = scope.spawn(second);
        let first = first();
        let second = second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (first, second)
    })
}

/// The ids of particles, and the bits of their positions.
fn positions<S: Solver>(solver: &S) -> impl Iterator<Item = (ParticleId, [u64; 3])> {
    let particles = solver.particles();
    let bits = particles.position.iter().map(|x| x.to_array().map(f64::to_bits));
    particles.id.iter().copied().zip(bits)
}

impl fmt::Display for RankRound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3 / self.steps as f64;
        let per_step = |count: u64| count as f64 / self.steps as f64;
        write!(
            f,
            "{} iterations; a step: {:.1} ms on one rank, {:.1} ms on two, {:.0} messages of {:.0} bytes in all, {:.0} \
             collectives",
            self.iterations,
            milliseconds(self.one),
            milliseconds(self.two),
            per_step(self.sent.messages),
            per_step(self.sent.bytes),
            per_step(self.sent.collectives),
        )
    }
}
