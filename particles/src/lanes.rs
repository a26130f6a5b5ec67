//! Sixteen f32 side by side, the same to the bit on every processor.
//!
//! A hot loop is a [`Task`], generic over [`Lanes`]; [`Width::run`] compiles it for plain code, AVX2 and AVX-512 and
//! picks one at run time. All have sixteen lanes and do the same operations in the same order (IEEE addition,
//! subtraction, multiplication, division and square root, fused multiply-add only where it is written, sums over lanes
//! as a fixed tree), so that results do not depend on the width. A loop may also be plain code over arrays of
//! sixteen, which the compiler turns into vectors of the width; without fused multiply-add in hardware that is computed in
//! software: slow, and the same.
//!
//! This is the only place of the workspace with `unsafe` code. It is sound because a [`Width`] other than the plain one
//! only exists where the processor was found to have it, and because every load and store goes through a reference
//! to an array of sixteen.

#![allow(unsafe_code)]

use std::ops::{Add, Div, Mul, Sub};
use std::sync::OnceLock;

/// Number of lanes.
pub const LANES: usize = 16;

/// Sixteen f32 in memory.
pub type Sixteen = [f32; LANES];

/// Sixteen f32. Methods take lanes one by one unless they say otherwise.
pub trait Lanes:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    /// Lanes that a loop with many values at hand should work on at once, 8 or 16: one register's.
    const STRIP: usize;

    /// The same value in every lane.
    fn splat(value: f32) -> Self;
    /// From memory.
    fn load(from: &[f32; LANES]) -> Self;
    /// `from - origin`, wrapping, as f32: exact up to 2^24.
    fn load_differences(from: &[i32; LANES], origin: i32) -> Self;
    /// To memory.
    fn store(self, to: &mut [f32; LANES]);
    /// Square root, correctly rounded.
    fn sqrt(self) -> Self;
    /// `self` where it is greater than `other`, else `other` (also where one is NaN).
    fn larger(self, other: Self) -> Self;
    /// `self` where it is less than `other`, else `other` (also where one is NaN).
    fn smaller(self, other: Self) -> Self;
    /// Bit l is set where lane l of `self` is less than that of `other`.
    fn less(self, other: Self) -> u16;
    /// Writes the lanes whose bit is set to the first places of `to`, in order. The places behind hold anything
    /// finite that was in the other lanes, or what they held.
    fn store_selected(self, selected: u16, to: &mut [f32; LANES]);
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

    /// The columns of W records, `column[c][lane] = record[index[lane]][c]`. Panics if an index is out of range.
    #[inline(always)]
    fn gather<const N: usize, const W: usize>(record: &[[i32; N]], index: &[u32; W]) -> [[i32; W]; N] {
        gather_plainly(record, index)
    }
}

#[inline(always)]
fn gather_plainly<const N: usize, const W: usize>(record: &[[i32; N]], index: &[u32; W]) -> [[i32; W]; N] {
    let mut columns = [[0; W]; N];
    for lane in 0..W {
        let record = &record[index[lane] as usize];
        for column in 0..N {
            columns[column][lane] = record[column];
        }
    }
    columns
}

/// A loop to be compiled for each width. `run` must be `#[inline(always)]`, and so must what it calls in its loops:
/// only code that is inlined into the caller is compiled for its width, which the body of a closure is not always.
pub trait Task {
    /// What the loop yields.
    type Output;
    /// The loop.
    fn run<L: Lanes>(self) -> Self::Output;
}

/// Which instructions loops use. Results do not depend on it.
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
    /// What this processor can do, the plainest first.
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

    /// The widest that this processor has; `AMALGAM_LANES` may ask for less (`plain`, `avx2`, `avx512`), which changes
    /// the time that a run takes and nothing else. Unknown or missing ones are passed over.
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
            Kind::Plain => task.run::<Plain>(),
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

/// Lanes in plain code.
#[derive(Clone, Copy)]
struct Plain([f32; LANES]);

macro_rules! operators {
    ($lanes:ty, $($operator:ident $method:ident($a:ident, $b:ident) $body:expr;)*) => {$(
        impl $operator for $lanes {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                let ($a, $b) = (self, other);
                $body
            }
        }
    )*};
}

impl Plain {
    #[inline(always)]
    fn each(self, other: Self, of: impl Fn(f32, f32) -> f32) -> Self {
        let mut result = [0.0; LANES];
        for (l, value) in result.iter_mut().enumerate() {
            *value = of(self.0[l], other.0[l]);
        }
        Self(result)
    }
}

operators! { Plain,
    Add add(a, b) a.each(b, |a, b| a + b);
    Sub sub(a, b) a.each(b, |a, b| a - b);
    Mul mul(a, b) a.each(b, |a, b| a * b);
    Div div(a, b) a.each(b, |a, b| a / b);
}

impl Lanes for Plain {
    const STRIP: usize = 8;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        Self([value; LANES])
    }
    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self {
        Self(*from)
    }
    #[inline(always)]
    fn load_differences(from: &[i32; LANES], origin: i32) -> Self {
        Self(from.map(|value| value.wrapping_sub(origin) as f32))
    }
    #[inline(always)]
    fn store(self, to: &mut [f32; LANES]) {
        *to = self.0;
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        Self(self.0.map(f32::sqrt))
    }
    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        self.each(other, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn smaller(self, other: Self) -> Self {
        self.each(other, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn less(self, other: Self) -> u16 {
        (0..LANES).fold(0, |bits, l| bits | u16::from(self.0[l] < other.0[l]) << l)
    }
    #[inline(always)]
    fn store_selected(self, selected: u16, to: &mut [f32; LANES]) {
        let mut next = 0;
        for (l, &value) in self.0.iter().enumerate() {
            // Written whether selected or not: a branch here would be mispredicted often.
            to[next] = value;
            next += usize::from(selected >> l & 1);
        }
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
        let mut result = [0.0; LANES];
        for (l, value) in result.iter_mut().enumerate() {
            *value = self.0[l].mul_add(factor.0[l], term.0[l]);
        }
        Self(result)
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::ops::{Add, Div, Mul, Sub};

    use super::{LANES, Lanes, Task, gather_plainly};

    #[target_feature(enable = "avx2,fma,popcnt")]
    pub(super) fn run_avx2<T: Task>(task: T) -> T::Output {
        task.run::<Avx2>()
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,popcnt")]
    pub(super) fn run_avx512<T: Task>(task: T) -> T::Output {
        task.run::<Avx512>()
    }

    /// Two times eight lanes. Private, and only made inside `run_avx2`: that is why the intrinsics below are sound.
    #[derive(Clone, Copy)]
    struct Avx2(__m256, __m256);

    /// Sixteen lanes. Private, and only made inside `run_avx512`.
    #[derive(Clone, Copy)]
    struct Avx512(__m512);

    /// For each set of eight lanes, which come first so that the selected ones do.
    const SELECTED_FIRST: [u64; 256] = {
        let mut table = [0; 256];
        let mut set = 0;
        while set < 256 {
            let (mut lane, mut next) = (0, 0);
            while lane < 8 {
                if set >> lane & 1 == 1 {
                    table[set] |= (lane as u64) << (8 * next);
                    next += 1;
                }
                lane += 1;
            }
            set += 1;
        }
        table
    };

    #[inline(always)]
    unsafe fn selected_first(set: u8) -> __m256i {
        unsafe { _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(SELECTED_FIRST[usize::from(set)] as i64)) }
    }

    operators! { Avx2,
        Add add(a, b) unsafe { Avx2(_mm256_add_ps(a.0, b.0), _mm256_add_ps(a.1, b.1)) };
        Sub sub(a, b) unsafe { Avx2(_mm256_sub_ps(a.0, b.0), _mm256_sub_ps(a.1, b.1)) };
        Mul mul(a, b) unsafe { Avx2(_mm256_mul_ps(a.0, b.0), _mm256_mul_ps(a.1, b.1)) };
        Div div(a, b) unsafe { Avx2(_mm256_div_ps(a.0, b.0), _mm256_div_ps(a.1, b.1)) };
    }

    impl Lanes for Avx2 {
        const STRIP: usize = 8;

        #[inline(always)]
        fn splat(value: f32) -> Self {
            unsafe { Self(_mm256_set1_ps(value), _mm256_set1_ps(value)) }
        }
        #[inline(always)]
        fn load(from: &[f32; LANES]) -> Self {
            unsafe { Self(_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))) }
        }
        #[inline(always)]
        fn load_differences(from: &[i32; LANES], origin: i32) -> Self {
            unsafe {
                let origin = _mm256_set1_epi32(origin);
                let low = _mm256_loadu_si256(from.as_ptr().cast());
                let high = _mm256_loadu_si256(from.as_ptr().add(8).cast());
                Self(
                    _mm256_cvtepi32_ps(_mm256_sub_epi32(low, origin)),
                    _mm256_cvtepi32_ps(_mm256_sub_epi32(high, origin)),
                )
            }
        }
        #[inline(always)]
        fn store(self, to: &mut [f32; LANES]) {
            unsafe {
                _mm256_storeu_ps(to.as_mut_ptr(), self.0);
                _mm256_storeu_ps(to.as_mut_ptr().add(8), self.1);
            }
        }
        #[inline(always)]
        fn sqrt(self) -> Self {
            unsafe { Self(_mm256_sqrt_ps(self.0), _mm256_sqrt_ps(self.1)) }
        }
        #[inline(always)]
        fn larger(self, other: Self) -> Self {
            unsafe { Self(_mm256_max_ps(self.0, other.0), _mm256_max_ps(self.1, other.1)) }
        }
        #[inline(always)]
        fn smaller(self, other: Self) -> Self {
            unsafe { Self(_mm256_min_ps(self.0, other.0), _mm256_min_ps(self.1, other.1)) }
        }
        #[inline(always)]
        fn less(self, other: Self) -> u16 {
            unsafe {
                let low = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(self.0, other.0));
                let high = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(self.1, other.1));
                low as u16 | (high as u16) << 8
            }
        }
        #[inline(always)]
        fn store_selected(self, selected: u16, to: &mut [f32; LANES]) {
            let [low, high] = selected.to_le_bytes();
            // At most 8, so that both stores stay inside of `to`.
            let begin = low.count_ones() as usize;
            unsafe {
                let (low, high) = (selected_first(low), selected_first(high));
                _mm256_storeu_ps(to.as_mut_ptr(), _mm256_permutevar8x32_ps(self.0, low));
                _mm256_storeu_ps(to.as_mut_ptr().add(begin), _mm256_permutevar8x32_ps(self.1, high));
            }
        }
        #[inline(always)]
        fn sum(self) -> f32 {
            unsafe { sum8(_mm256_add_ps(self.0, self.1)) }
        }
        #[inline(always)]
        fn mul_add(self, factor: Self, term: Self) -> Self {
            unsafe {
                Self(_mm256_fmadd_ps(self.0, factor.0, term.0), _mm256_fmadd_ps(self.1, factor.1, term.1))
            }
        }
        #[inline(always)]
        fn gather<const N: usize, const W: usize>(record: &[[i32; N]], index: &[u32; W]) -> [[i32; W]; N] {
            if !W.is_multiple_of(8) {
                return gather_plainly(record, index);
            }
            let largest = index.iter().fold(0, |largest, &index| largest.max(index));
            assert!((largest as usize) < record.len(), "an index is out of range");
            let mut columns = [[0; W]; N];
            for half in (0..W).step_by(8) {
                let mut quarter = 0;
                while quarter + 4 <= N {
                    // Four numbers of eight records: register r holds those of lanes r and 4 + r.
                    // SAFETY: all indices are below the number of records, as was seen above, and a record holds N numbers,
                    // of which `quarter..quarter + 4` are read; a register and eight i32 are the same 32 bytes; and this
                    // runs inside `run_avx2` alone, so that the machine has these instructions.
                    let transposed: [[i32; 8]; 4] = unsafe {
                        let first: *const i32 = record.as_ptr().cast::<i32>().add(quarter);
                        let mut rows = [_mm256_setzero_si256(); 4];
                        for r in 0..4 {
                            let low = _mm_loadu_si128(first.add(N * index[half + r] as usize).cast());
                            let high = _mm_loadu_si128(first.add(N * index[half + 4 + r] as usize).cast());
                            rows[r] = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high);
                        }
                        let [a, b, c, d] = rows;
                        let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
                        let (ab_high, cd_high) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
                        std::mem::transmute::<[__m256i; 4], [[i32; 8]; 4]>([
                            _mm256_unpacklo_epi64(ab, cd),
                            _mm256_unpackhi_epi64(ab, cd),
                            _mm256_unpacklo_epi64(ab_high, cd_high),
                            _mm256_unpackhi_epi64(ab_high, cd_high),
                        ])
                    };
                    for (column, transposed) in columns[quarter..].iter_mut().zip(transposed) {
                        column[half..half + 8].copy_from_slice(&transposed);
                    }
                    quarter += 4;
                }
                for lane in half..half + 8 {
                    for column in quarter..N {
                        columns[column][lane] = record[index[lane] as usize][column];
                    }
                }
            }
            columns
        }
    }

    /// Halves added until one lane is left.
    #[inline(always)]
    unsafe fn sum8(lanes: __m256) -> f32 {
        unsafe {
            let four = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps::<1>(lanes));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }

    operators! { Avx512,
        Add add(a, b) unsafe { Avx512(_mm512_add_ps(a.0, b.0)) };
        Sub sub(a, b) unsafe { Avx512(_mm512_sub_ps(a.0, b.0)) };
        Mul mul(a, b) unsafe { Avx512(_mm512_mul_ps(a.0, b.0)) };
        Div div(a, b) unsafe { Avx512(_mm512_div_ps(a.0, b.0)) };
    }

    impl Lanes for Avx512 {
        const STRIP: usize = LANES;

        #[inline(always)]
        fn splat(value: f32) -> Self {
            unsafe { Self(_mm512_set1_ps(value)) }
        }
        #[inline(always)]
        fn load(from: &[f32; LANES]) -> Self {
            unsafe { Self(_mm512_loadu_ps(from.as_ptr())) }
        }
        #[inline(always)]
        fn load_differences(from: &[i32; LANES], origin: i32) -> Self {
            unsafe {
                let value = _mm512_loadu_si512(from.as_ptr().cast());
                Self(_mm512_cvtepi32_ps(_mm512_sub_epi32(value, _mm512_set1_epi32(origin))))
            }
        }
        #[inline(always)]
        fn store(self, to: &mut [f32; LANES]) {
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), self.0) }
        }
        #[inline(always)]
        fn sqrt(self) -> Self {
            unsafe { Self(_mm512_sqrt_ps(self.0)) }
        }
        #[inline(always)]
        fn larger(self, other: Self) -> Self {
            unsafe { Self(_mm512_max_ps(self.0, other.0)) }
        }
        #[inline(always)]
        fn smaller(self, other: Self) -> Self {
            unsafe { Self(_mm512_min_ps(self.0, other.0)) }
        }
        #[inline(always)]
        fn less(self, other: Self) -> u16 {
            unsafe { _mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, other.0) }
        }
        #[inline(always)]
        fn store_selected(self, selected: u16, to: &mut [f32; LANES]) {
            // Into a register and then whole: stores of single lanes under a mask are slow on some processors.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), _mm512_maskz_compress_ps(selected, self.0)) }
        }
        #[inline(always)]
        fn sum(self) -> f32 {
            unsafe {
                let low = _mm512_castps512_ps256(self.0);
                sum8(_mm256_add_ps(low, _mm512_extractf32x8_ps::<1>(self.0)))
            }
        }
        #[inline(always)]
        fn mul_add(self, factor: Self, term: Self) -> Self {
            unsafe { Self(_mm512_fmadd_ps(self.0, factor.0, term.0)) }
        }
        #[inline(always)]
        fn gather<const N: usize, const W: usize>(record: &[[i32; N]], index: &[u32; W]) -> [[i32; W]; N] {
            if W != LANES {
                return gather_plainly(record, index);
            }
            let count = record.len().min(u32::MAX as usize) as u32;
            // SAFETY: sixteen indices are 64 bytes; and this runs inside `run_avx512` alone, so that the machine has these
            // instructions.
            let inside = unsafe {
                let index = _mm512_loadu_si512(index.as_ptr().cast());
                _mm512_cmplt_epu32_mask(index, _mm512_set1_epi32(count as i32))
            };
            assert!(inside == u16::MAX, "an index is out of range");
            let mut columns = [[0; W]; N];
            let mut quarter = 0;
            while quarter + 4 <= N {
                // Four numbers of sixteen records: register r holds those of lanes r, 4 + r, 8 + r and 12 + r.
                let mut rows = [[0; LANES]; 4];
                for r in 0..4 {
                    // SAFETY: all indices are below the number of records, as was seen above, and a record holds N numbers,
                    // of which `quarter..quarter + 4` are read.
                    rows[r] = unsafe {
                        let first: *const i32 = record.as_ptr().cast::<i32>().add(quarter);
                        let a = _mm_loadu_si128(first.add(N * index[r] as usize).cast());
                        let b = _mm_loadu_si128(first.add(N * index[4 + r] as usize).cast());
                        let c = _mm_loadu_si128(first.add(N * index[8 + r] as usize).cast());
                        let d = _mm_loadu_si128(first.add(N * index[12 + r] as usize).cast());
                        let row = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(a), b);
                        let row = _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(row, c), d);
                        std::mem::transmute::<__m512i, [i32; LANES]>(row)
                    };
                }
                // SAFETY: as above; a register and sixteen i32 are the same 64 bytes.
                let transposed: [[i32; LANES]; 4] = unsafe {
                    let [a, b, c, d] = std::mem::transmute::<[[i32; LANES]; 4], [__m512i; 4]>(rows);
                    let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
                    let (ab_high, cd_high) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
                    std::mem::transmute::<[__m512i; 4], [[i32; LANES]; 4]>([
                        _mm512_unpacklo_epi64(ab, cd),
                        _mm512_unpackhi_epi64(ab, cd),
                        _mm512_unpacklo_epi64(ab_high, cd_high),
                        _mm512_unpackhi_epi64(ab_high, cd_high),
                    ])
                };
                for (column, transposed) in columns[quarter..].iter_mut().zip(transposed) {
                    column.copy_from_slice(&transposed);
                }
                quarter += 4;
            }
            for lane in 0..W {
                for column in quarter..N {
                    columns[column][lane] = record[index[lane] as usize][column];
                }
            }
            columns
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random;

    /// Every operation on random lanes, as bits.
    struct Everything<'a> {
        a: &'a [f32; LANES],
        b: &'a [f32; LANES],
        cells: &'a [i32; LANES],
    }

    impl Task for Everything<'_> {
        type Output = Vec<u32>;

        #[inline(always)]
        fn run<L: Lanes>(self) -> Vec<u32> {
            let (a, b) = (L::load(self.a), L::load(self.b));
            let mut bits = Vec::new();
            let cells = L::load_differences(self.cells, i32::MAX - 1);
            for lanes in [
                a + b,
                a - b,
                a * b,
                a / b,
                a.sqrt(),
                a.larger(b),
                a.smaller(b),
                a.mul_add(b, a),
                L::splat(0.1),
                cells,
            ] {
                let mut values = [0.0; LANES];
                lanes.store(&mut values);
                bits.extend(values.map(f32::to_bits));
            }
            bits.extend([(a + b).sum(), b.least(), b.greatest()].map(f32::to_bits));
            let selected = a.less(b);
            bits.push(u32::from(selected));
            let mut values = [0.0; LANES];
            a.store_selected(selected, &mut values);
            bits.extend(values[..selected.count_ones() as usize].iter().map(|value| value.to_bits()));
            bits
        }
    }

    #[test]
    fn widths_agree_to_the_bit() {
        for case in 0..2000 {
            let random = |lane: usize, what| random::uniform_f64(&[case, lane as u64, what]) as f32;
            let a = std::array::from_fn(|l| if case % 7 == 0 { f32::NAN } else { random(l, 0) });
            let b = std::array::from_fn(|l| if case % 5 == 0 { random(0, 1) } else { random(l, 1) });
            let cells = std::array::from_fn(|l| (random(l, 2) * 10.0) as i32 - 5 + i32::MIN);
            let run = |width: Width| width.run(Everything { a: &a, b: &b, cells: &cells });
            let expected = run(Width(Kind::Plain));
            for width in Width::supported() {
                // Which NaN comes out of an operation on two is not laid down.
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
        let a = Plain(std::array::from_fn(|l| l as f32));
        let mut kept = [-1.0; LANES];
        a.store_selected(0b1000_0000_0010_0101, &mut kept);
        assert_eq!(kept[..4], [0.0, 2.0, 5.0, 15.0]);
        assert_eq!(a.sum(), 120.0);
        assert_eq!(a.less(Plain::splat(2.5)), 0b111);
        assert_eq!(Plain([f32::NAN; LANES]).larger(Plain::splat(0.0)).0, [0.0; LANES]);
        assert_eq!(Plain::load_differences(&[i32::MIN; LANES], i32::MAX).0, [1.0; LANES]);
        assert_eq!(a.mul_add(a, Plain::splat(0.5)).0[3], 9.5);
        assert_eq!((a.least(), a.greatest()), (0.0, 15.0));
    }

    struct Gather<'a, const N: usize>(&'a [[i32; N]], &'a [u32; LANES]);

    impl<const N: usize> Task for Gather<'_, N> {
        type Output = [[i32; LANES]; N];

        #[inline(always)]
        fn run<L: Lanes>(self) -> [[i32; LANES]; N] {
            let columns = L::gather(self.0, self.1);
            if L::STRIP == 8 {
                let mut halves = columns;
                for at in [0, 8] {
                    let index = std::array::from_fn::<u32, 8, _>(|lane| self.1[at + lane]);
                    let half = L::gather(self.0, &index);
                    for (column, half) in halves.iter_mut().zip(half) {
                        column[at..at + 8].copy_from_slice(&half);
                    }
                }
                assert_eq!(halves, columns);
            }
            columns
        }
    }

    fn every_width_gathers_alike<const N: usize>() {
        let record: Vec<[i32; N]> = (0..100).map(|i| std::array::from_fn(|c| 10 * i + c as i32)).collect();
        let index = std::array::from_fn(|lane| (lane as u32 * 37) % 100);
        for width in Width::supported() {
            let columns = width.run(Gather(&record, &index));
            for (lane, &index) in index.iter().enumerate() {
                assert_eq!(columns.map(|column| column[lane]), record[index as usize], "{width:?}");
            }
        }
    }

    #[test]
    fn records_are_gathered() {
        every_width_gathers_alike::<3>();
        every_width_gathers_alike::<4>();
        every_width_gathers_alike::<8>();
    }

    #[test]
    #[should_panic = "out of"]
    fn an_index_out_of_range_is_refused() {
        let mut index = [0; LANES];
        index[11] = 4;
        run(Gather(&[[1; 4]; 4], &index));
    }
}
