//! The stiffness of a bond in 32 bits.

/// The stiffness of a bond near its rest length, rounded: across the bond in the last [`ACROSS_BITS`] bits,
/// as whole parts in [`ACROSS`], and along it, in [`ALONG`], before; 0 of a bond that is not there.
///
/// It serves all iterations of a step: reading it takes less than computing it.
pub(super) type Coefficient = u32;

const ACROSS_BITS: u32 = 14;

/// Parts in 1 across a bond. Where the series holds, the stiffness across is below 0.06.
pub(super) const ACROSS: f32 = (1 << 18) as f32;

/// Parts in 1 along a bond. Where the series holds, the stiffness along is below 1.15.
pub(super) const ALONG: f32 = (7 << 15) as f32;

/// A sum with this number has a whole number in the last bits of the f32.
const WHOLE: f32 = (1 << 23) as f32;

#[inline(always)]
pub(super) fn packed((across, along): (f32, f32)) -> Coefficient {
    // A conversion that saturates would take each lane by itself.
    let [across, along] = [across.mul_add(ACROSS, WHOLE), along.mul_add(ALONG, WHOLE)].map(f32::to_bits);
    const MASK: u32 = (1 << ACROSS_BITS) - 1;
    (along & (u32::MAX >> ACROSS_BITS)) << ACROSS_BITS | across & MASK
}

/// The parts across and along.
#[inline(always)]
pub(super) fn unpacked(coefficient: Coefficient) -> (f32, f32) {
    let across = coefficient & ((1 << ACROSS_BITS) - 1);
    (across as i32 as f32, (coefficient >> ACROSS_BITS) as i32 as f32)
}
