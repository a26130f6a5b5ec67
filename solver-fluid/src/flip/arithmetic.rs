//! Choices and maxima of numbers that compilers turn into vector instructions.

use amalgam_particles::lanes::LANES;

/// The value if `keep`, else zero. The choice is made by bits: compilers turn `if` into conditional stores,
/// which some processors execute lane by lane.
#[inline(always)]
pub(super) fn kept(value: f32, keep: bool) -> f32 {
    f32::from_bits(value.to_bits() & u32::from(keep).wrapping_neg())
}

/// The larger of two numbers; NaN if one of them is NaN.
#[inline(always)]
pub(super) fn larger(a: f64, b: f64) -> f64 {
    if a > b || a.is_nan() { a } else { b }
}

/// The first sixteen entries of a column.
#[inline(always)]
pub(super) fn sixteen<T>(column: &[T]) -> &[T; LANES] {
    column.first_chunk().expect("columns are whole chunks")
}

/// The first sixteen entries of a column, to be changed.
#[inline(always)]
pub(super) fn sixteen_mut<T>(column: &mut [T]) -> &mut [T; LANES] {
    column.first_chunk_mut().expect("columns are whole chunks")
}
