//! Peak performance of the machine: memory bandwidth and single-precision arithmetic, on all threads
//! together.

use std::{fmt, hint::black_box, time::Instant};

use amalgam_particles::lanes::{LANES, Lanes, Task, Width};
use rayon::prelude::*;

/// Measured limits.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Threads of the measurement.
    pub threads: usize,
    /// Vector width of the hot loops.
    pub width: Width,
    /// Bytes read and written by a = b + s c over arrays larger than caches [GB/s].
    pub gigabytes_per_second: f64,
    /// f32 multiplications and additions in registers, as separate instructions like in the hot loops
    /// [10^9/s].
    pub gigaflops: f64,
}

/// Values of each of the three arrays: 128 MiB.
const ARRAY: usize = 1 << 25;
/// Independent chains of dependent operations, of one register each: enough to hide their latency. Chains of
/// two or four registers are a half or a quarter as many, since more would not fit into the registers.
const CHAINS: usize = 12;
const ROUNDS: usize = 1 << 20;
const REPETITIONS: usize = 5;

impl Machine {
    /// Measures the limits, in about a second.
    pub fn measure() -> Self {
        let threads = rayon::current_num_threads();
        let width = Width::of_machine();
        Self { threads, width, gigabytes_per_second: triad(threads), gigaflops: multiply_add(threads, width) }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "this machine, {} threads, {}: {:.1} GB/s (triad), {:.0} x 10^9 f32 multiplications and additions a second",
            self.threads,
            self.width.name(),
            self.gigabytes_per_second,
            self.gigaflops
        )
    }
}

/// The best of a few repetitions [1/s].
fn best_rate(mut run: impl FnMut()) -> f64 {
    let rate = |_| {
        let start = Instant::now();
        run();
        1.0 / start.elapsed().as_secs_f64()
    };
    (0..REPETITIONS).map(rate).fold(0.0, f64::max)
}

fn triad(threads: usize) -> f64 {
    let share = ARRAY.div_ceil(threads);
    let (b, c) = (vec![1.0f32; ARRAY], vec![2.0f32; ARRAY]);
    let mut a = vec![0.0f32; ARRAY];
    let rate = best_rate(|| {
        let chunks = a.par_chunks_mut(share).zip(b.par_chunks(share)).zip(c.par_chunks(share));
        chunks.for_each(|((a, b), c)| {
            for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
                *a = b + 3.0 * c;
            }
        });
        black_box(&mut a);
    });
    rate * (3 * size_of::<f32>() * ARRAY) as f64 * 1e-9
}

struct Chains<const COUNT: usize>;

impl<const COUNT: usize> Task for Chains<COUNT> {
    type Output = f32;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f32 {
        let (factor, term) = (L::splat(black_box(0.999)), L::splat(black_box(0.001)));
        let mut chains = [L::splat(black_box(1.0)); COUNT];
        for _ in 0..ROUNDS {
            for chain in &mut chains {
                *chain = *chain * factor + term;
            }
        }
        let mut sum = 0.0;
        for chain in chains {
            sum += chain.sum();
        }
        sum
    }
}

/// The best rate of as many chains as fit [10^9/s]. A chain takes one, two or four registers, depending on
/// the width.
fn multiply_add(threads: usize, width: Width) -> f64 {
    let whole = multiply_add_by::<CHAINS>(threads, width);
    let halves = multiply_add_by::<{ CHAINS / 2 }>(threads, width);
    let quarters = multiply_add_by::<{ CHAINS / 4 }>(threads, width);
    whole.max(halves).max(quarters)
}

fn multiply_add_by<const COUNT: usize>(threads: usize, width: Width) -> f64 {
    let rate = best_rate(|| {
        (0..threads).into_par_iter().with_max_len(1).for_each(|_| {
            black_box(width.run(Chains::<COUNT>));
        });
    });
    rate * (threads * ROUNDS * COUNT * LANES * 2) as f64 * 1e-9
}
