//! Lanes in AVX2 and AVX-512.

use std::arch::x86_64::*;
use std::ops::{Add, Div, Mul, Sub};

use super::{LANES, Lanes, Register, Task, register::SELECTED_FIRST};

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

#[target_feature(enable = "avx2,fma,popcnt")]
pub(super) fn run_avx2<T: Task>(task: T) -> T::Output {
    task.run::<Avx2>()
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,popcnt")]
pub(super) fn run_avx512<T: Task>(task: T) -> T::Output {
    task.run::<Avx512>()
}

/// Two times eight lanes. Private, and only made inside `run_avx2`: that is why the intrinsics below are
/// sound.
#[derive(Clone, Copy)]
struct Avx2(__m256, __m256);

/// Eight lanes. Private, and only made inside `run_avx2`.
#[derive(Clone, Copy)]
struct Eight(__m256);

/// Sixteen lanes. Private, and only made inside `run_avx512`.
#[derive(Clone, Copy)]
struct Avx512(__m512);

operators! { Avx2,
    Add add(a, b) unsafe { Avx2(_mm256_add_ps(a.0, b.0), _mm256_add_ps(a.1, b.1)) };
    Sub sub(a, b) unsafe { Avx2(_mm256_sub_ps(a.0, b.0), _mm256_sub_ps(a.1, b.1)) };
    Mul mul(a, b) unsafe { Avx2(_mm256_mul_ps(a.0, b.0), _mm256_mul_ps(a.1, b.1)) };
}

impl Lanes for Avx2 {
    type Register = Eight;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        unsafe { Self(_mm256_set1_ps(value), _mm256_set1_ps(value)) }
    }
    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self {
        unsafe { Self(_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))) }
    }
    #[inline(always)]
    fn store(self, to: &mut [f32; LANES]) {
        unsafe {
            _mm256_storeu_ps(to.as_mut_ptr(), self.0);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), self.1);
        }
    }
    #[inline(always)]
    fn any_outside(values: &[f32; LANES], low: f32, high: f32) -> bool {
        // SAFETY: two times eight values are read of sixteen; and this runs inside `run_avx2` alone.
        unsafe {
            let (low, high) = (_mm256_set1_ps(low), _mm256_set1_ps(high));
            let [first, second] = [_mm256_loadu_ps(values.as_ptr()), _mm256_loadu_ps(values.as_ptr().add(8))];
            let below = _mm256_or_ps(
                _mm256_cmp_ps::<_CMP_LT_OQ>(first, low),
                _mm256_cmp_ps::<_CMP_LT_OQ>(second, low),
            );
            let above = _mm256_or_ps(
                _mm256_cmp_ps::<_CMP_GT_OQ>(first, high),
                _mm256_cmp_ps::<_CMP_GT_OQ>(second, high),
            );
            _mm256_movemask_ps(_mm256_or_ps(below, above)) != 0
        }
    }
    #[inline(always)]
    fn sum(self) -> f32 {
        unsafe { sum8(_mm256_add_ps(self.0, self.1)) }
    }
    #[inline(always)]
    fn mul_add(self, factor: Self, term: Self) -> Self {
        unsafe { Self(_mm256_fmadd_ps(self.0, factor.0, term.0), _mm256_fmadd_ps(self.1, factor.1, term.1)) }
    }
}

operators! { Eight,
    Add add(a, b) unsafe { Eight(_mm256_add_ps(a.0, b.0)) };
    Sub sub(a, b) unsafe { Eight(_mm256_sub_ps(a.0, b.0)) };
    Mul mul(a, b) unsafe { Eight(_mm256_mul_ps(a.0, b.0)) };
    Div div(a, b) unsafe { Eight(_mm256_div_ps(a.0, b.0)) };
}

impl Register for Eight {
    const LANES: usize = 8;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        unsafe { Self(_mm256_set1_ps(value)) }
    }
    #[inline(always)]
    fn load(from: &[f32]) -> Self {
        unsafe { Self(_mm256_loadu_ps(from[..8].as_ptr())) }
    }
    #[inline(always)]
    fn load_differences(from: &[i32], origin: i32) -> Self {
        unsafe {
            let from = _mm256_loadu_si256(from[..8].as_ptr().cast());
            Self(_mm256_cvtepi32_ps(_mm256_sub_epi32(from, _mm256_set1_epi32(origin))))
        }
    }
    #[inline(always)]
    fn store(self, to: &mut [f32]) {
        unsafe { _mm256_storeu_ps(to[..8].as_mut_ptr(), self.0) }
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        unsafe { Self(_mm256_sqrt_ps(self.0)) }
    }
    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        unsafe { Self(_mm256_max_ps(self.0, other.0)) }
    }
    #[inline(always)]
    fn smaller(self, other: Self) -> Self {
        unsafe { Self(_mm256_min_ps(self.0, other.0)) }
    }
    #[inline(always)]
    fn less(self, other: Self) -> u16 {
        unsafe { _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(self.0, other.0)) as u16 }
    }
    #[inline(always)]
    fn mul_add(self, factor: Self, term: Self) -> Self {
        unsafe { Self(_mm256_fmadd_ps(self.0, factor.0, term.0)) }
    }
    #[inline(always)]
    fn store_selected(self, selected: u16, to: &mut [f32]) {
        unsafe {
            let lanes = _mm256_permutevar8x32_ps(self.0, selected_first(selected));
            _mm256_storeu_ps(to[..8].as_mut_ptr(), lanes);
        }
    }
    #[inline(always)]
    fn store_selected_words(from: &[u32], selected: u16, to: &mut [u32]) {
        unsafe {
            let words = _mm256_loadu_si256(from[..8].as_ptr().cast());
            let words = _mm256_permutevar8x32_epi32(words, selected_first(selected));
            _mm256_storeu_si256(to[..8].as_mut_ptr().cast(), words);
        }
    }
    #[inline(always)]
    fn expand_words(from: &[u32], selected: u16, to: &mut [u32]) {
        unsafe {
            let rank = _mm256_loadu_si256(RANK[usize::from(selected & 0xff)].as_ptr().cast());
            let words = _mm256_permutevar8x32_epi32(_mm256_loadu_si256(from[..8].as_ptr().cast()), rank);
            let (words, rank) = (_mm256_castsi256_ps(words), _mm256_castsi256_ps(rank));
            let lanes = _mm256_blendv_ps(words, _mm256_setzero_ps(), rank);
            _mm256_storeu_ps(to[..8].as_mut_ptr().cast(), lanes);
        }
    }
    #[inline(always)]
    fn spread<const W: usize>(records: [&[i32; 4]; 4], to: &mut [[i32; W]; 4]) {
        let [first, second, third, fourth] = to;
        unsafe {
            let low = _mm256_broadcastsi128_si256(_mm_loadu_si128(records[0].as_ptr().cast()));
            let high = _mm256_broadcastsi128_si256(_mm_loadu_si128(records[1].as_ptr().cast()));
            let both = _mm256_blend_epi32::<0xf0>(low, high);
            _mm256_storeu_si256(first[..8].as_mut_ptr().cast(), _mm256_shuffle_epi32::<0x00>(both));
            _mm256_storeu_si256(second[..8].as_mut_ptr().cast(), _mm256_shuffle_epi32::<0x55>(both));
            _mm256_storeu_si256(third[..8].as_mut_ptr().cast(), _mm256_shuffle_epi32::<0xaa>(both));
            _mm256_storeu_si256(fourth[..8].as_mut_ptr().cast(), _mm256_shuffle_epi32::<0xff>(both));
        }
    }
    #[inline(always)]
    fn store_indices(selected: u16, first: u32, to: &mut [u32]) {
        unsafe {
            let lanes = _mm256_add_epi32(selected_first(selected), _mm256_set1_epi32(first as i32));
            _mm256_storeu_si256(to[..8].as_mut_ptr().cast(), lanes);
        }
    }
    #[inline(always)]
    fn placed(record: &[i32; 8], origin: &[i32; 8], factor: &[f32; 8], term: &[f32; 8]) -> [f32; 8] {
        unsafe { placed(record, origin, factor, term) }
    }
}

#[inline(always)]
unsafe fn placed(record: &[i32; 8], origin: &[i32; 8], factor: &[f32; 8], term: &[f32; 8]) -> [f32; 8] {
    // SAFETY: eight i32 or f32 are 32 bytes; and this runs inside `run_avx2` or `run_avx512` alone.
    unsafe {
        let record = _mm256_loadu_si256(record.as_ptr().cast());
        let origin = _mm256_loadu_si256(origin.as_ptr().cast());
        let place = _mm256_cvtepi32_ps(_mm256_sub_epi32(record, origin));
        let entries = _mm256_blend_ps::<0b1111_1000>(place, _mm256_castsi256_ps(record));
        let (factor, term) = (_mm256_loadu_ps(factor.as_ptr()), _mm256_loadu_ps(term.as_ptr()));
        std::mem::transmute::<__m256, [f32; 8]>(_mm256_fmadd_ps(entries, factor, term))
    }
}

#[inline(always)]
unsafe fn selected_first(selected: u16) -> __m256i {
    let lanes = u64::from_le_bytes(SELECTED_FIRST[usize::from(selected & 0xff)]);
    unsafe { _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(lanes as i64)) }
}

/// For each set of eight lanes, the word that each lane takes, with the highest bit set if it takes none.
/// Entries are as wide as the instruction reads them: with bytes, the compiler would add a shuffle.
static RANK: [[u32; 8]; 256] = {
    let mut table = [[1 << 31; 8]; 256];
    let mut set = 0;
    while set < 256 {
        let (mut lane, mut next) = (0, 0);
        while lane < 8 {
            if set >> lane & 1 == 1 {
                table[set][lane] = next;
                next += 1;
            }
            lane += 1;
        }
        set += 1;
    }
    table
};

/// Halves added until one lane is left.
#[inline(always)]
unsafe fn sum8(lanes: __m256) -> f32 {
    unsafe {
        let four = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps::<1>(lanes));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
    }
}

/// Returns the words, hidden from the optimiser. Otherwise the compiler would fuse the load with the
/// instruction that expands words, which is slow from memory. It would also choose shuffles that make an
/// iteration wait for the one before.
#[inline]
#[target_feature(enable = "avx512f")]
fn opaque(mut words: __m512i) -> __m512i {
    // SAFETY: there are no instructions in it.
    unsafe {
        std::arch::asm!("/* {0} */", inout(zmm_reg) words, options(pure, nomem, nostack, preserves_flags));
    }
    words
}

operators! { Avx512,
    Add add(a, b) unsafe { Avx512(_mm512_add_ps(a.0, b.0)) };
    Sub sub(a, b) unsafe { Avx512(_mm512_sub_ps(a.0, b.0)) };
    Mul mul(a, b) unsafe { Avx512(_mm512_mul_ps(a.0, b.0)) };
    Div div(a, b) unsafe { Avx512(_mm512_div_ps(a.0, b.0)) };
}

impl Lanes for Avx512 {
    type Register = Self;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        unsafe { Self(_mm512_set1_ps(value)) }
    }
    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self {
        unsafe { Self(_mm512_loadu_ps(from.as_ptr())) }
    }
    #[inline(always)]
    fn store(self, to: &mut [f32; LANES]) {
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), self.0) }
    }
    #[inline(always)]
    fn any_outside(values: &[f32; LANES], low: f32, high: f32) -> bool {
        // SAFETY: sixteen values are read of sixteen; and this runs inside `run_avx512` alone.
        unsafe {
            let values = _mm512_loadu_ps(values.as_ptr());
            let below = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(values, _mm512_set1_ps(low));
            below | _mm512_cmp_ps_mask::<_CMP_GT_OQ>(values, _mm512_set1_ps(high)) != 0
        }
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
}

impl Register for Avx512 {
    const LANES: usize = LANES;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        <Self as Lanes>::splat(value)
    }
    #[inline(always)]
    fn load(from: &[f32]) -> Self {
        unsafe { Self(_mm512_loadu_ps(from[..LANES].as_ptr())) }
    }
    #[inline(always)]
    fn load_differences(from: &[i32], origin: i32) -> Self {
        unsafe {
            let from = _mm512_loadu_si512(from[..LANES].as_ptr().cast());
            Self(_mm512_cvtepi32_ps(_mm512_sub_epi32(from, _mm512_set1_epi32(origin))))
        }
    }
    #[inline(always)]
    fn store(self, to: &mut [f32]) {
        unsafe { _mm512_storeu_ps(to[..LANES].as_mut_ptr(), self.0) }
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
    fn mul_add(self, factor: Self, term: Self) -> Self {
        <Self as Lanes>::mul_add(self, factor, term)
    }
    #[inline(always)]
    fn store_selected(self, selected: u16, to: &mut [f32]) {
        // Compresses into a register and stores it whole: stores of single lanes under a mask are slow on
        // some processors.
        unsafe { _mm512_storeu_ps(to[..LANES].as_mut_ptr(), _mm512_maskz_compress_ps(selected, self.0)) }
    }
    #[inline(always)]
    fn store_selected_words(from: &[u32], selected: u16, to: &mut [u32]) {
        unsafe {
            let words = _mm512_loadu_si512(from[..LANES].as_ptr().cast());
            _mm512_storeu_si512(
                to[..LANES].as_mut_ptr().cast(),
                _mm512_maskz_compress_epi32(selected, words),
            );
        }
    }
    #[inline(always)]
    fn expand_words(from: &[u32], selected: u16, to: &mut [u32]) {
        unsafe {
            let words = opaque(_mm512_loadu_si512(from[..LANES].as_ptr().cast()));
            _mm512_storeu_si512(to[..LANES].as_mut_ptr().cast(), _mm512_maskz_expand_epi32(selected, words));
        }
    }
    #[inline(always)]
    fn spread<const W: usize>(records: [&[i32; 4]; 4], to: &mut [[i32; W]; 4]) {
        let [first, second, third, fourth] = to;
        unsafe {
            let [a, b, c, d] = records.map(|record| _mm_loadu_si128(record.as_ptr().cast()));
            let (low, high) = (_mm256_set_m128i(b, a), _mm256_set_m128i(d, c));
            let all = opaque(_mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high));
            _mm512_storeu_si512(first[..LANES].as_mut_ptr().cast(), _mm512_shuffle_epi32::<0x00>(all));
            _mm512_storeu_si512(second[..LANES].as_mut_ptr().cast(), _mm512_shuffle_epi32::<0x55>(all));
            _mm512_storeu_si512(third[..LANES].as_mut_ptr().cast(), _mm512_shuffle_epi32::<0xaa>(all));
            _mm512_storeu_si512(fourth[..LANES].as_mut_ptr().cast(), _mm512_shuffle_epi32::<0xff>(all));
        }
    }
    #[inline(always)]
    fn store_indices(selected: u16, first: u32, to: &mut [u32]) {
        unsafe {
            let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            let lanes = _mm512_add_epi32(lanes, _mm512_set1_epi32(first as i32));
            let lanes = _mm512_maskz_compress_epi32(selected, lanes);
            _mm512_storeu_si512(to[..LANES].as_mut_ptr().cast(), lanes);
        }
    }
    #[inline(always)]
    fn placed(record: &[i32; 8], origin: &[i32; 8], factor: &[f32; 8], term: &[f32; 8]) -> [f32; 8] {
        unsafe { placed(record, origin, factor, term) }
    }
}
