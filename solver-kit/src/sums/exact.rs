//! Sums that depend neither on the order of their terms nor on threads.
//!
//! Plain sums round differently in another order. Here every term is cut into two pieces that are multiples
//! of powers of two [DemmelNguyen2013]. The powers follow from the largest term and the number of terms
//! alone. They are so large that sums of pieces are exact, in any order. The parts of terms below the second
//! piece are dropped: of a million terms, each loses at most 2^-59 of the largest one, less than a plain sum
//! loses. Ranks that share the terms get the same bits as one that has them all.

use amalgam_particles::reduce;
use amalgam_ranks::Ranks;
use rayon::prelude::*;

/// Bits of the mantissa of an f64.
const MANTISSA: i32 = 52;

/// The number whose last bit stands for 2^`unit`: a term that is added to it is rounded to a multiple of
/// that.
fn anchor(unit: i32) -> f64 {
    // Below the smallest normal number everything is a multiple already.
    1.5 * 2.0f64.powi((unit + MANTISSA).max(f64::MIN_EXP))
}

/// Two anchors for `count` terms of at most `largest` in magnitude, the larger one first.
fn anchors(count: usize, largest: f64) -> [f64; 2] {
    // largest < 2^exponent / 2, from its bits, and count < 2^bits / 4.
    let exponent = (largest.to_bits() >> MANTISSA) as i32 - 1023 + 2;
    let bits = (usize::BITS - count.leading_zeros()) as i32 + 2;
    let first = exponent + bits - MANTISSA;
    // The remainder after the first piece is at most half of the first unit.
    let second = first + bits - MANTISSA;
    [anchor(first), anchor(second)]
}

/// The sums over ranks and over `i` in `0..count` of the columns of `term(i)`, of which `largest` are the
/// largest magnitudes. Not a number where a magnitude is not finite. Collective.
pub(crate) fn sums<const N: usize>(
    ranks: &Ranks,
    count: usize,
    largest: &[f64; N],
    term: impl Fn(usize) -> [f64; N] + Sync + Send,
) -> [f64; N] {
    let mut all = [count as i64];
    ranks.sum(&mut all);
    let anchors = largest.map(|largest| anchors(all[0] as usize, largest));
    let zero = [[0.0; N]; 2];
    let chunk = |chunk: usize| {
        let mut sums = zero;
        for i in chunk * reduce::CHUNK..count.min((chunk + 1) * reduce::CHUNK) {
            let term = term(i);
            for n in 0..N {
                let high = (term[n] + anchors[n][0]) - anchors[n][0];
                let low = ((term[n] - high) + anchors[n][1]) - anchors[n][1];
                sums[0][n] += high;
                sums[1][n] += low;
            }
        }
        sums
    };
    let add = |mut a: [[f64; N]; 2], b: [[f64; N]; 2]| {
        for (a, b) in a.as_flattened_mut().iter_mut().zip(b.as_flattened()) {
            *a += b;
        }
        a
    };
    let chunks = (0..count.div_ceil(reduce::CHUNK)).into_par_iter();
    let mut pieces = chunks.with_min_len(4).map(chunk).reduce(|| zero, add);
    ranks.sum_exact(pieces.as_flattened_mut());
    let [high, low] = pieces;
    std::array::from_fn(|n| if largest[n].is_finite() { high[n] + low[n] } else { f64::NAN })
}

/// The largest magnitudes over ranks of the columns of `term(i)` for `i` in `0..count`; infinite where a term
/// is not finite. Collective.
pub(crate) fn magnitudes<const N: usize>(
    ranks: &Ranks,
    count: usize,
    term: impl Fn(usize) -> [f64; N] + Sync + Send,
) -> [f64; N] {
    let larger = |mut a: [f64; N], b: [f64; N]| {
        for (a, b) in a.iter_mut().zip(b) {
            let size = if b.is_finite() { b.abs() } else { f64::INFINITY };
            *a = if size > *a { size } else { *a };
        }
        a
    };
    let terms = (0..count).into_par_iter().with_min_len(reduce::CHUNK);
    let mut largest =
        terms.fold(|| [0.0; N], |largest, i| larger(largest, term(i))).reduce(|| [0.0; N], larger);
    ranks.max(&mut largest);
    largest
}

/// Bits of a piece of a wide integer: sums of pieces over all ranks that there can be fit into 64 bits.
const PIECE: u32 = 40;

/// The sums over ranks of wide integers below 2^118. Collective.
pub fn sum_integers<const N: usize>(ranks: &Ranks, own: [i128; N]) -> [i128; N] {
    if ranks.is_alone() {
        return own;
    }
    let mask = (1i128 << PIECE) - 1;
    let split = |x: i128| [x & mask, x >> PIECE & mask, x >> (2 * PIECE)].map(|piece| piece as i64);
    let mut pieces = own.map(split);
    ranks.sum(pieces.as_flattened_mut());
    pieces.map(|pieces| (0..3).map(|n| i128::from(pieces[n as usize]) << (n * PIECE)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use amalgam_particles::random;
    use proptest::prelude::*;

    fn sum(terms: &[f64]) -> f64 {
        shared_sum(&Ranks::alone(), terms)
    }

    fn shared_sum(ranks: &Ranks, terms: &[f64]) -> f64 {
        let term = |i: usize| [terms[i]];
        sums(ranks, terms.len(), &magnitudes(ranks, terms.len(), term), term)[0]
    }

    proptest! {
        #[test]
        fn the_order_of_terms_does_not_matter(
            terms in prop::collection::vec(prop_oneof![-1e6..1e6f64, -1e-9..1e-9f64, -1e300..1e300f64, -1e-310..1e-310f64], 1..300),
            seed: u64,
        ) {
            let mut shuffled: Vec<(u64, f64)> =
                terms.iter().enumerate().map(|(i, &x)| (random::mix(seed ^ i as u64), x)).collect();
            shuffled.sort_by_key(|&(key, _)| key);
            let shuffled: Vec<f64> = shuffled.into_iter().map(|(_, x)| x).collect();
            prop_assert_eq!(sum(&terms).to_bits(), sum(&shuffled).to_bits());
        }

        #[test]
        fn sums_of_integers_are_exact(terms in prop::collection::vec(-1_000_000i64..1_000_000, 0..2000)) {
            let floats: Vec<f64> = terms.iter().map(|&x| x as f64).collect();
            prop_assert_eq!(sum(&floats), terms.iter().sum::<i64>() as f64);
        }
    }

    #[test]
    fn many_terms_are_summed_to_the_last_bits_on_any_number_of_threads() {
        let terms: Vec<f64> = (0..100_000).map(|i| (f64::from(i) * 0.37).sin() + 1e-7).collect();
        let sums: Vec<f64> = [1, 2, 3]
            .iter()
            .map(|&threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
                pool.install(|| sum(&terms))
            })
            .collect();
        // Neumaier's sum, exact here to the last bit but one.
        let (mut total, mut lost) = (0.0f64, 0.0);
        for &x in &terms {
            let next = total + x;
            lost += if total.abs() >= x.abs() { (total - next) + x } else { (x - next) + total };
            total = next;
        }
        assert!((sums[0] - (total + lost)).abs() < 1e-12, "{} {}", sums[0], total + lost);
        assert!(sums.iter().all(|sum| sum.to_bits() == sums[0].to_bits()));
    }

    #[test]
    fn ranks_find_the_sum_of_one_that_has_all_terms() {
        let terms: Vec<f64> = (0..10_000).map(|i| (f64::from(i) * 0.37).sin() * 1e3f64.powi(i % 5)).collect();
        for size in [2, 3, 7] {
            let part = |ranks: Ranks| {
                let mine = terms.iter().skip(ranks.rank()).step_by(size).copied();
                let mine: Vec<f64> = mine.filter(|x| ranks.rank() > 0 || x.abs() < 1e9).collect();
                shared_sum(&ranks, &mine)
            };
            let all: Vec<f64> =
                (0..10_000).filter(|i| i % size > 0 || terms[*i].abs() < 1e9).map(|i| terms[i]).collect();
            std::thread::scope(|scope| {
                let sums = Ranks::threads(size).into_iter().map(|ranks| scope.spawn(|| part(ranks)));
                for rank in sums.collect::<Vec<_>>() {
                    assert_eq!(rank.join().expect("a sum").to_bits(), sum(&all).to_bits());
                }
            });
        }
    }

    #[test]
    fn terms_that_are_not_finite_are_seen() {
        assert!(sum(&[1.0, f64::INFINITY]).is_nan() && sum(&[f64::NAN]).is_nan());
        assert_eq!(sum(&[]), 0.0);
    }
}
