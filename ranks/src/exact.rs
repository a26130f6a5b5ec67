//! Sums that are exact until they are rounded once, so neither order nor ranks matter.

use crate::ranks::Ranks;

/// Bits of a digit.
const DIGIT: u32 = 32;

/// Digits from 2^-1074, the smallest f64, to 2^1024, and one more for carries.
const DIGITS: usize = 67;

/// Terms after which carries are moved up. A term changes a digit by less than 2^32, and a digit has 63 bits.
const TERMS_MAX: u32 = 1 << 30;

/// Bits of the mantissa of an f64.
const MANTISSA: u32 = 52;

/// A sum of f64 whose value depends neither on the order of its terms nor on how ranks share them.
///
/// A wide fixed-point number (Kulisch's accumulator) that covers the whole range of f64. Cutting terms at
/// powers of two that follow from the largest one [DemmelNguyen2013] is faster per term, but needs two passes
/// over the terms, and one more call between ranks.
#[derive(Clone, Debug)]
pub struct ExactSum {
    /// Digit i counts 2^(32 i - 1074). Digits may be negative and larger than 32 bits until carries are moved
    /// up.
    digits: [i64; DIGITS],
    /// Terms since carries were moved up.
    terms: u32,
    /// True if a term was not finite.
    broken: bool,
}

impl Default for ExactSum {
    fn default() -> Self {
        Self { digits: [0; DIGITS], terms: 0, broken: false }
    }
}

impl Extend<f64> for ExactSum {
    fn extend<I: IntoIterator<Item = f64>>(&mut self, terms: I) {
        terms.into_iter().for_each(|term| self.add(term));
    }
}

impl FromIterator<f64> for ExactSum {
    fn from_iter<I: IntoIterator<Item = f64>>(terms: I) -> Self {
        let mut sum = Self::default();
        sum.extend(terms);
        sum
    }
}

impl ExactSum {
    /// A sum without terms: zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a term.
    #[inline]
    pub fn add(&mut self, term: f64) {
        let bits = term.to_bits();
        let exponent = (bits >> MANTISSA) as u32 & 0x7ff;
        if exponent == 0x7ff {
            self.broken = true;
            return;
        }
        if self.terms == TERMS_MAX {
            self.carry();
        }
        self.terms += 1;
        let fraction = bits & ((1 << MANTISSA) - 1);
        // Subnormal numbers lack the hidden bit, and have the exponent of the smallest normal ones.
        let (mantissa, shift) =
            if exponent == 0 { (fraction, 0) } else { (fraction | 1 << MANTISSA, exponent - 1) };
        let digit = (shift / DIGIT) as usize;
        let wide = u128::from(mantissa) << (shift % DIGIT);
        // -1 for negative terms: (x ^ -1) - -1 = -x.
        let sign = bits.cast_signed() >> 63;
        for (k, digit) in self.digits[digit..digit + 3].iter_mut().enumerate() {
            let part = i64::from((wide >> (DIGIT * k as u32)) as u32);
            *digit += (part ^ sign) - sign;
        }
    }

    /// Adds all terms of another sum.
    pub fn merge(&mut self, other: &Self) {
        self.broken |= other.broken;
        if self.terms + other.terms + 1 > TERMS_MAX {
            self.carry();
        }
        let mut other = other.clone();
        if self.terms + other.terms + 1 > TERMS_MAX {
            other.carry();
        }
        // Digits without carries are at most as large as the digits of one term.
        self.terms += other.terms + 1;
        for (digit, other) in self.digits.iter_mut().zip(other.digits) {
            *digit += other;
        }
    }

    /// The sum, rounded once to the nearest f64, ties to even. Not a number if a term was not finite.
    pub fn value(&self) -> f64 {
        if self.broken {
            return f64::NAN;
        }
        let mut sum = self.clone();
        sum.carry();
        let negative = sum.digits[DIGITS - 1] < 0;
        if negative {
            sum.digits.iter_mut().for_each(|digit| *digit = -*digit);
            sum.carry();
        }
        let magnitude = sum.magnitude();
        if negative { -magnitude } else { magnitude }
    }

    /// Moves carries up: every digit but the last is then in `0..2^32`.
    fn carry(&mut self) {
        let mut carry = 0;
        for digit in &mut self.digits[..DIGITS - 1] {
            let total = *digit + carry;
            *digit = total & ((1 << DIGIT) - 1);
            carry = total >> DIGIT;
        }
        self.digits[DIGITS - 1] += carry;
        self.terms = 1;
    }

    /// The value of a sum that is not negative and has no carries.
    fn magnitude(&self) -> f64 {
        let Some(top) = self.digits.iter().rposition(|&digit| digit != 0) else { return 0.0 };
        let highest = top as u32 * DIGIT + self.digits[top].ilog2();
        // Numbers below 2^53 units have no bits to lose, and their bits are those of the f64.
        let shift = highest.saturating_sub(MANTISSA);
        let (digit, within) = ((shift / DIGIT) as usize, shift % DIGIT);
        let wide = (digit..DIGITS.min(digit + 4)).rev();
        let wide = wide.fold(0u128, |wide, i| wide << DIGIT | self.digits[i] as u128);
        let mantissa = (wide >> within) as u64;
        // The bits of the f64; a mantissa that rounds up to 2^53 moves on to the next exponent by itself.
        let bits = (u64::from(shift) << MANTISSA) + mantissa + u64::from(self.rounds_up(shift, mantissa));
        f64::from_bits(bits.min(f64::INFINITY.to_bits()))
    }

    /// True if the bits below bit `shift` are more than half of it, or half of it where the rest is odd.
    fn rounds_up(&self, shift: u32, mantissa: u64) -> bool {
        let Some(half) = shift.checked_sub(1) else { return false };
        let (digit, bit) = ((half / DIGIT) as usize, 1i64 << (half % DIGIT));
        let below =
            self.digits[digit] & (bit - 1) != 0 || self.digits[..digit].iter().any(|&digit| digit != 0);
        self.digits[digit] & bit != 0 && (below || mantissa & 1 == 1)
    }
}

impl Ranks {
    /// The value of the sum of all ranks' terms, the same bits on all of them. Collective.
    pub fn exact_sum(&self, sum: &ExactSum) -> f64 {
        self.exact_sums(std::slice::from_ref(sum))[0]
    }

    /// As [`Self::exact_sum`] for several sums in one message.
    pub fn exact_sums(&self, sums: &[ExactSum]) -> Vec<f64> {
        if self.is_alone() {
            return sums.iter().map(ExactSum::value).collect();
        }
        let mut words = Vec::with_capacity(sums.len() * (DIGITS + 1));
        for sum in sums {
            let mut sum = sum.clone();
            sum.carry();
            words.extend_from_slice(&sum.digits);
            words.push(i64::from(sum.broken));
        }
        self.sum(&mut words);
        let total = |words: &[i64]| {
            let mut sum = ExactSum { broken: words[DIGITS] != 0, ..ExactSum::default() };
            sum.digits.copy_from_slice(&words[..DIGITS]);
            sum.value()
        };
        words.chunks_exact(DIGITS + 1).map(total).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum(terms: &[f64]) -> f64 {
        terms.iter().copied().collect::<ExactSum>().value()
    }

    /// 2^`exponent`, also below the smallest normal number.
    fn power(exponent: i32) -> f64 {
        if exponent < -1022 { f64::from_bits(1 << (exponent + 1074)) } else { 2.0f64.powi(exponent) }
    }

    /// Any finite number.
    fn finite() -> impl Strategy<Value = f64> {
        any::<u64>().prop_map(f64::from_bits).prop_filter("finite", |x| x.is_finite())
    }

    /// Sums of the same terms in another order, and in parts.
    fn others(terms: &[f64], parts: usize, seed: u64) -> [f64; 3] {
        let mut keyed: Vec<(u64, f64)> =
            terms.iter().map(|&x| (x.to_bits().wrapping_mul(seed | 1), x)).collect();
        keyed.sort_by_key(|&(key, _)| key);
        let shuffled: Vec<f64> = keyed.into_iter().map(|(_, x)| x).collect();
        let mut merged = ExactSum::new();
        let of_parts: Vec<ExactSum> =
            (0..parts).map(|part| shuffled.iter().skip(part).step_by(parts).copied().collect()).collect();
        of_parts.iter().for_each(|part| merged.merge(part));
        let shared = std::thread::scope(|scope| {
            let rank = |(ranks, part): (Ranks, ExactSum)| scope.spawn(move || ranks.exact_sum(&part));
            let threads: Vec<_> = Ranks::threads(parts).into_iter().zip(of_parts).map(rank).collect();
            let sums: Vec<f64> = threads.into_iter().map(|thread| thread.join().expect("a rank")).collect();
            assert!(sums.iter().all(|sum| sum.to_bits() == sums[0].to_bits()));
            sums[0]
        });
        [sum(&shuffled), merged.value(), shared]
    }

    proptest! {
        #[test]
        fn neither_order_nor_ranks_matter(
            terms in prop::collection::vec(finite(), 0..60),
            parts in 1usize..6,
            seed: u64,
        ) {
            for other in others(&terms, parts, seed) {
                prop_assert_eq!(other.to_bits(), sum(&terms).to_bits());
            }
        }

        #[test]
        fn sums_are_those_of_integers_rounded_once(
            terms in prop::collection::vec((-(1i64 << 53)..=1 << 53, 0i32..64), 0..100),
            exponent in prop_oneof![-1074..-900i32, -1074..850, Just(-1074), Just(-60)],
        ) {
            let floats: Vec<f64> = terms.iter().map(|&(m, s)| m as f64 * power(s) * power(exponent)).collect();
            let whole: i128 = terms.iter().map(|&(m, s)| i128::from(m) << s).sum();
            // A sum of less than 2^53 units is exact; a larger one is a normal number, and scaling does not
            // round it.
            prop_assert_eq!(sum(&floats), whole as f64 * power(exponent));
        }

        #[test]
        fn halves_are_rounded_to_even(mantissa in 1u64 << 52..1 << 53, below in 0i32..900, more in -1i32..=1) {
            let terms = [mantissa as f64, 0.5, f64::from(more) * power(-below - 2)];
            let up = more > 0 || more == 0 && mantissa % 2 == 1;
            prop_assert_eq!(sum(&terms), (mantissa + u64::from(up)) as f64);
            prop_assert_eq!(sum(&terms.map(|x| -x)), -((mantissa + u64::from(up)) as f64));
        }

        #[test]
        fn large_terms_that_cancel_leave_small_ones(
            large in prop::collection::vec(finite(), 0..40),
            small in prop::collection::vec(-1000i32..1000, 0..10),
            unit in prop_oneof![Just(5e-324), Just(1.0), Just(1e-300), Just(2.0f64.powi(900))],
        ) {
            let terms: Vec<f64> = large
                .iter()
                .copied()
                .chain(small.iter().map(|&x| f64::from(x) * unit))
                .chain(large.iter().rev().map(|x| -x))
                .collect();
            // 1e-300 is no power of two, and small multiples of it round.
            let multiples: Vec<f64> = small.iter().map(|&x| f64::from(x) * unit).collect();
            prop_assert_eq!(sum(&terms), sum(&multiples));
            if unit != 1e-300 {
                prop_assert_eq!(sum(&terms), f64::from(small.iter().sum::<i32>()) * unit);
            }
        }

        #[test]
        fn one_term_is_its_own_sum(term in finite()) {
            prop_assert_eq!(sum(&[term]), term);
        }
    }

    #[test]
    fn sums_beyond_the_range_come_back_or_are_infinite() {
        let max = f64::MAX;
        assert_eq!(sum(&[max, max, max, -max, -max]), max);
        assert_eq!(sum(&[max, max]), f64::INFINITY);
        assert_eq!(sum(&[-max, -max]), f64::NEG_INFINITY);
        // Half of the last bit beyond the largest number rounds to even, and so to infinity; less does not.
        assert_eq!(sum(&[max, 2.0f64.powi(970)]), f64::INFINITY);
        assert_eq!(sum(&[max, 2.0f64.powi(970), -5e-324]), max);
    }

    #[test]
    fn terms_that_are_not_finite_are_seen() {
        assert!(sum(&[1.0, f64::INFINITY]).is_nan() && sum(&[f64::NAN]).is_nan());
        let mut merged = ExactSum::new();
        merged.merge(&[f64::NEG_INFINITY].into_iter().collect());
        assert!(merged.value().is_nan());
    }

    #[test]
    fn a_sum_of_nothing_is_plus_zero() {
        assert_eq!(sum(&[]).to_bits(), 0);
        assert_eq!(sum(&[-0.0]).to_bits(), 0);
        assert_eq!(sum(&[1.0, -1.0]).to_bits(), 0);
    }

    #[test]
    fn carries_are_moved_up_in_time() {
        let mut total = ExactSum::new();
        let mut part: ExactSum = [1.0 - f64::EPSILON / 2.0, -3e-310].into_iter().collect();
        // Merging a sum with itself doubles the number of terms: 2^60 of each in the end.
        for _ in 0..60 {
            total.merge(&part);
            let again = part.clone();
            part.merge(&again);
        }
        let count = (1u64 << 60) as f64;
        assert_eq!(part.value(), (1.0 - f64::EPSILON / 2.0) * count);
        total.merge(&[1.0 - f64::EPSILON / 2.0, -3e-310].into_iter().collect());
        assert_eq!(total.value(), part.value());
    }
}
