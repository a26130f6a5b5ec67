//! The stiffness of a bond in 32 bits.

/// The stiffness of a bond near its rest length over its stiffness at rest, rounded. The last
/// [`TRANSVERSE_BITS`] bits hold the transverse part in units of 1/[`TRANSVERSE`], the first bits hold the
/// axial excess in units of 1/[`AXIAL`]. A missing bond has 0.
///
/// It is computed once per step and read in all iterations, which takes less time than computing it.
pub(super) type RelativeCoefficient = u32;

const TRANSVERSE_BITS: u32 = 14;

/// Units in a transverse stiffness of 1. For bonds for which the series holds it is below 0.06.
pub(super) const TRANSVERSE: f32 = (1 << 18) as f32;

/// Units in an axial excess of 1. For bonds for which the series holds it is below 1.15.
pub(super) const AXIAL: f32 = (7 << 15) as f32;

/// The sum of a number and this constant has the number, rounded to an integer, in the last bits of the f32.
const WHOLE: f32 = (1 << 23) as f32;

#[inline(always)]
pub(super) fn packed((transverse, axial): (f32, f32)) -> RelativeCoefficient {
    // A saturating conversion would not be compiled to vectors.
    let [transverse, axial] =
        [transverse.mul_add(TRANSVERSE, WHOLE), axial.mul_add(AXIAL, WHOLE)].map(f32::to_bits);
    const MASK: u32 = (1 << TRANSVERSE_BITS) - 1;
    (axial & (u32::MAX >> TRANSVERSE_BITS)) << TRANSVERSE_BITS | transverse & MASK
}

/// Transverse part and axial excess, in units.
#[inline(always)]
pub(super) fn unpacked(coefficient: RelativeCoefficient) -> (f32, f32) {
    let transverse = coefficient & ((1 << TRANSVERSE_BITS) - 1);
    (transverse as i32 as f32, (coefficient >> TRANSVERSE_BITS) as i32 as f32)
}
