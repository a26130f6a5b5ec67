//! Sixteen f32 side by side, the same to the bit on every processor.
//!
//! A hot loop is a [`Task`], generic over [`Lanes`]; [`Width::run`] compiles it for plain code, AVX2 and
//! AVX-512 and picks one at run time. All have sixteen lanes and do the same operations in the same order
//! (IEEE addition, subtraction, multiplication, division and square root, fused multiply-add only where it is
//! written, sums over lanes as a fixed tree). So results do not depend on the width. A loop may also be plain
//! code over arrays of sixteen, which the compiler turns into vectors of the width. Without fused
//! multiply-add in hardware, software computes the same result slowly. A loop that never combines lanes may
//! work on one [`Register`] of them at a time.
//!
//! This is the only place of the workspace with `unsafe` code. It is sound because a [`Width`] other than the
//! plain one only exists where the processor was found to have it, and because every load and store goes
//! through a reference to an array of sixteen or a slice found to be long enough.

#![allow(unsafe_code)]

use std::ops::{Add, Div, Mul, Sub};
use std::sync::OnceLock;

/// Number of lanes.
pub const LANES: usize = 16;

/// Sixteen f32 in memory.
pub type Sixteen = [f32; LANES];

/// Sixteen f32. Methods act on each lane by itself unless they say otherwise.
pub trait Lanes: Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> {
    /// The register type of this width.
    type Register: Register;

    /// The same value in every lane.
    fn splat(value: f32) -> Self;
    /// Loads a register from memory.
    fn load(from: &[f32; LANES]) -> Self;
    /// Stores a register to memory.
    fn store(self, to: &mut [f32; LANES]);
    /// Sum over the lanes: halves are added until one lane is left.
    fn sum(self) -> f32;
    /// `self * factor + term`, rounded once.
    fn mul_add(self, factor: Self, term: Self) -> Self;

    /// The least of the lanes, of which none is NaN.
    #[inline(always)]
    fn least(self) -> f32 {
        let mut lanes = [0.0; LANES];
        self.store(&mut lanes);
        for half in [8, 4, 2, 1] {
            for l in 0..half {
                lanes[l] = if lanes[l + half] < lanes[l] { lanes[l + half] } else { lanes[l] };
            }
        }
        lanes[0]
    }

    /// The greatest of the lanes, of which none is NaN.
    #[inline(always)]
    fn greatest(self) -> f32 {
        let mut lanes = [0.0; LANES];
        self.store(&mut lanes);
        for half in [8, 4, 2, 1] {
            for l in 0..half {
                lanes[l] = if lanes[l + half] > lanes[l] { lanes[l + half] } else { lanes[l] };
            }
        }
        lanes[0]
    }

    /// True if any of the values is below `low` or above `high`.
    #[inline(always)]
    fn any_outside(values: &[f32; LANES], low: f32, high: f32) -> bool {
        values.iter().fold(false, |any, &value| any | (value < low) | (value > high))
    }

    /// Prefetches the memory `bytes` after `at`, which need not be valid.
    #[inline(always)]
    fn prefetch<T>(at: &T, bytes: usize) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch reads nothing, wherever it points.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch(std::ptr::from_ref(at).cast::<i8>().wrapping_add(bytes), _MM_HINT_T0);
        }
    }
}

/// A loop to be compiled for each width. `run` must be `#[inline(always)]`, and so must every function that
/// it calls in its loops: only code that is inlined into the caller is compiled for its width. The body of a
/// closure is not always inlined.
pub trait Task {
    /// The result of the loop.
    type Output;
    /// The loop.
    fn run<L: Lanes>(self) -> Self::Output;
}

/// Vector instructions that loops use. Results do not depend on the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Width(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Width {
    /// The widths that this processor has, the plainest first.
    pub fn supported() -> Vec<Self> {
        #[allow(unused_mut, reason = "other processors have but one")]
        let mut widths = vec![Self(Kind::Plain)];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("popcnt")
            {
                widths.push(Self(Kind::Avx2));
                if is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                {
                    widths.push(Self(Kind::Avx512));
                }
            }
        }
        widths
    }

    /// The widest that this processor has; `AMALGAM_LANES` may ask for less (`plain`, `avx2`, `avx512`),
    /// which changes the time that a run takes and nothing else. A name that is unknown, or that the
    /// processor lacks, is ignored.
    pub fn of_machine() -> Self {
        let supported = Self::supported();
        let asked = std::env::var("AMALGAM_LANES").unwrap_or_default();
        let found = supported.iter().find(|width| width.name() == asked).or(supported.last());
        *found.expect("plain code runs everywhere")
    }

    /// `plain`, `avx2` or `avx512`.
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Plain => "plain",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => "avx512",
        }
    }

    /// Runs a task with these instructions.
    #[inline]
    pub fn run<T: Task>(self, task: T) -> T::Output {
        match self.0 {
            Kind::Plain => task.run::<Plain<LANES>>(),
            // SAFETY: such a width was made by `supported`, which found these features.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => unsafe { x86::run_avx2(task) },
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => unsafe { x86::run_avx512(task) },
        }
    }
}

/// Runs a task with the instructions of [`Width::of_machine`], looked up once in the life of the process.
#[inline]
pub fn run<T: Task>(task: T) -> T::Output {
    static WIDTH: OnceLock<Width> = OnceLock::new();
    WIDTH.get_or_init(Width::of_machine).run(task)
}

/// Lanes in plain code: all of them, or one register's.
#[derive(Clone, Copy)]
struct Plain<const N: usize>([f32; N]);

macro_rules! operators {
    ($($operator:ident $method:ident $symbol:tt;)*) => {$(
        impl<const N: usize> $operator for Plain<N> {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                self.each(other, |a, b| a $symbol b)
            }
        }
    )*};
}

operators! { Add add +; Sub sub -; Mul mul *; Div div /; }

impl<const N: usize> Plain<N> {
    #[inline(always)]
    fn each(self, other: Self, of: impl Fn(f32, f32) -> f32) -> Self {
        let mut result = [0.0; N];
        for (l, value) in result.iter_mut().enumerate() {
            *value = of(self.0[l], other.0[l]);
        }
        Self(result)
    }

    /// `self * factor + term`, rounded once.
    #[inline(always)]
    fn fused(self, factor: Self, term: Self) -> Self {
        let mut result = [0.0; N];
        for (l, value) in result.iter_mut().enumerate() {
            *value = self.0[l].mul_add(factor.0[l], term.0[l]);
        }
        Self(result)
    }
}

impl Lanes for Plain<LANES> {
    type Register = Plain<8>;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        Self([value; LANES])
    }
    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self {
        Self(*from)
    }
    #[inline(always)]
    fn store(self, to: &mut [f32; LANES]) {
        *to = self.0;
    }
    #[inline(always)]
    fn sum(self) -> f32 {
        let mut lanes = self.0;
        for half in [8, 4, 2, 1] {
            for l in 0..half {
                lanes[l] += lanes[l + half];
            }
        }
        lanes[0]
    }
    #[inline(always)]
    fn mul_add(self, factor: Self, term: Self) -> Self {
        self.fused(factor, term)
    }
}

mod register;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use register::Register;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random;

    /// Every operation on random lanes, as bits.
    struct Everything<'a> {
        a: &'a [f32; LANES],
        b: &'a [f32; LANES],
    }

    impl Task for Everything<'_> {
        type Output = Vec<u32>;

        #[inline(always)]
        fn run<L: Lanes>(self) -> Vec<u32> {
            let (a, b) = (L::load(self.a), L::load(self.b));
            let mut bits = Vec::new();
            for lanes in [a + b, a - b, a * b, a.mul_add(b, a), L::splat(0.1)] {
                let mut values = [0.0; LANES];
                lanes.store(&mut values);
                bits.extend(values.map(f32::to_bits));
            }
            bits.extend([(a + b).sum(), b.least(), b.greatest()].map(f32::to_bits));
            bits
        }
    }

    #[test]
    fn widths_agree_to_the_bit() {
        for case in 0..2000 {
            let random = |lane: usize, what| random::uniform_f64(&[case, lane as u64, what]) as f32;
            let a = std::array::from_fn(|l| if case % 7 == 0 { f32::NAN } else { random(l, 0) });
            let b = std::array::from_fn(|l| if case % 5 == 0 { random(0, 1) } else { random(l, 1) });
            let run = |width: Width| width.run(Everything { a: &a, b: &b });
            let expected = run(Width(Kind::Plain));
            for width in Width::supported() {
                // IEEE 754 leaves open which NaN an operation on two NaNs returns.
                let equal = |(&x, &y): (&u32, &u32)| {
                    x == y || f32::from_bits(x).is_nan() && f32::from_bits(y).is_nan()
                };
                let found = run(width);
                assert!(found.len() == expected.len() && found.iter().zip(&expected).all(equal), "{width:?}");
            }
        }
    }

    #[test]
    fn plain_lanes_do_what_they_say() {
        let a: Plain<LANES> = Plain(std::array::from_fn(|l| l as f32));
        assert_eq!(a.sum(), 120.0);
        assert_eq!(a.mul_add(a, Plain([0.5; LANES])).0[3], 9.5);
        assert_eq!((a.least(), a.greatest()), (0.0, 15.0));
    }

    struct Expand<'a>(&'a [u32; 2 * LANES], u16);

    impl Task for Expand<'_> {
        type Output = [u32; LANES];

        #[inline(always)]
        fn run<L: Lanes>(self) -> [u32; LANES] {
            let (mut lanes, mut next) = ([0; LANES], 0);
            for (first, lanes) in lanes.chunks_mut(L::Register::LANES).enumerate() {
                let selected = self.1 >> (first * L::Register::LANES);
                L::Register::expand_words(&self.0[next..], selected, lanes);
                next += lanes.iter().filter(|&&word| word != 0).count();
            }
            lanes
        }
    }

    #[test]
    fn words_go_to_the_selected_lanes() {
        let words = std::array::from_fn(|lane| 10 + lane as u32);
        for width in Width::supported() {
            let expand = |selected| width.run(Expand(&words, selected));
            let expected = [0, 10, 11, 0, 0, 12, 0, 13, 14, 0, 0, 0, 0, 0, 15, 16];
            assert_eq!(expand(0b1100_0001_1010_0110), expected, "{width:?}");
            for selected in 0..=u16::MAX {
                let lanes = expand(selected);
                let found: Vec<u32> = lanes.into_iter().filter(|&word| word != 0).collect();
                assert_eq!(found, words[..selected.count_ones() as usize], "{width:?}");
                let is_selected = |(lane, word): (usize, u32)| (word != 0) == (selected >> lane & 1 == 1);
                assert!(lanes.into_iter().enumerate().all(is_selected), "{width:?}");
            }
        }
    }

    struct Spread<'a>([&'a [i32; 4]; 4]);

    impl Task for Spread<'_> {
        type Output = [[i32; LANES]; 4];

        #[inline(always)]
        fn run<L: Lanes>(self) -> [[i32; LANES]; 4] {
            let mut lanes = [[0; LANES]; 4];
            if L::Register::LANES == LANES {
                L::Register::spread(self.0, &mut lanes);
            } else {
                let [a, b, c, d] = self.0;
                for (records, first) in [([a, b, a, b], 0), ([c, d, c, d], 8)] {
                    let mut half = [[0; 8]; 4];
                    L::Register::spread(records, &mut half);
                    for (lanes, half) in lanes.iter_mut().zip(half) {
                        lanes[first..][..8].copy_from_slice(&half);
                    }
                }
            }
            lanes
        }
    }

    #[test]
    fn each_record_goes_to_four_lanes() {
        for width in Width::supported() {
            let lanes =
                width.run(Spread([&[1, 2, 3, 4], &[11, 12, 13, 14], &[21, 22, 23, 24], &[31, 32, 33, 34]]));
            for (word, lanes) in (1..).zip(lanes) {
                assert_eq!(lanes, std::array::from_fn(|lane| word + 10 * (lane as i32 / 4)), "{width:?}");
            }
        }
    }

    struct AnyOutside<'a>(&'a [f32; LANES]);

    impl Task for AnyOutside<'_> {
        type Output = bool;

        #[inline(always)]
        fn run<L: Lanes>(self) -> bool {
            L::any_outside(self.0, -1.0, 2.0)
        }
    }

    #[test]
    fn one_lane_outside_is_found() {
        let inside = std::array::from_fn(|lane| [-1.0, 2.0, 0.0, -0.5, 1.5, f32::NAN][lane % 6]);
        for width in Width::supported() {
            assert!(!width.run(AnyOutside(&inside)), "{width:?}");
            for lane in 0..LANES {
                for value in [-1.1, 2.1, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut values = [0.0; LANES];
                    values[lane] = value;
                    assert!(width.run(AnyOutside(&values)), "{width:?} {lane} {value}");
                }
            }
        }
    }
}
