//! Numbers in vectors: choices and maxima that compilers turn into vector instructions.

use amalgam_particles::lanes::LANES;

/// The value, or zero. In bits, not as a choice: compilers make conditional stores of choices, which some
/// processors take a vector's lanes for one after the other.
#[inline(always)]
pub(super) fn kept(value: f32, keep: bool) -> f32 {
    f32::from_bits(value.to_bits() & u32::from(keep).wrapping_neg())
}

/// The larger one; NaN if one is NaN.
#[inline(always)]
pub(super) fn larger(a: f64, b: f64) -> f64 {
    if a > b || a.is_nan() { a } else { b }
}

#[inline(always)]
pub(super) fn sixteen<T>(column: &[T]) -> &[T; LANES] {
    column.first_chunk().expect("columns are whole chunks")
}

#[inline(always)]
pub(super) fn sixteen_mut<T>(column: &mut [T]) -> &mut [T; LANES] {
    column.first_chunk_mut().expect("columns are whole chunks")
}
