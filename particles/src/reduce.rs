//! Sums whose rounding does not depend on the number of threads: fixed chunks, combined in order.

use std::ops::Add;

use rayon::prelude::*;

/// Elements of one task in loops over particles, faces or cells, whatever the number of threads. A sum adds up
/// the elements of a chunk one after the other before it combines the chunks.
pub const CHUNK: usize = 4096;

/// The sum of `term(i)` for `i` in `0..count`, the same to the bit for every number of threads.
pub fn sum<T, F>(count: usize, zero: T, term: F) -> T
where
    T: Add<Output = T> + Copy + Send + Sync,
    F: Fn(usize) -> T + Sync + Send,
{
    let chunk = |c: usize| (c * CHUNK..((c + 1) * CHUNK).min(count)).fold(zero, |total, i| total + term(i));
    let chunks = count.div_ceil(CHUNK);
    if chunks <= 1 {
        return chunk(0);
    }
    let partial: Vec<T> = (0..chunks).into_par_iter().with_min_len(4).map(chunk).collect();
    partial.into_iter().fold(zero, |total, part| total + part)
}

/// The largest `term(i)` for `i` in `0..count`, or `least` if there is none. NaN terms are ignored.
pub fn max<F>(count: usize, least: f64, term: F) -> f64
where
    F: Fn(usize) -> f64 + Sync + Send,
{
    (0..count).into_par_iter().with_min_len(4 * CHUNK).map(term).reduce(|| least, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_do_not_depend_on_threads() {
        let term = |i: usize| (i as f64 * 0.37).sin() * 1e3f64.powi((i % 7) as i32);
        let sums: Vec<u64> = [1, 2, 3, 5]
            .iter()
            .map(|&threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("pool");
                pool.install(|| sum(100_003, 0.0, term)).to_bits()
            })
            .collect();
        assert!(sums.iter().all(|&s| s == sums[0]));
    }
}
