//! Loops over bonds in strips of lanes.

use amalgam_particles::lanes::{LANES, Lanes, Sixteen};

/// A loop over bonds that adds up K columns of lanes, none of which needs another.
///
/// With sixteen lanes at once, AVX2 has not enough registers for the sums and what a bond needs: they would go through memory
/// for each bond, which takes longer than the arithmetic.
pub(super) trait Strips<const K: usize> {
    /// The lanes `at..at + W`.
    fn strip<L: Lanes, const W: usize>(&mut self, at: usize) -> [[f32; W]; K];
}

/// All sixteen lanes, in strips as wide as suits the instructions.
#[inline(always)]
pub(super) fn in_strips<L: Lanes, const K: usize>(of: &mut impl Strips<K>) -> [Sixteen; K] {
    if L::STRIP == LANES {
        return of.strip::<L, LANES>(0);
    }
    let mut columns = [[0.0; LANES]; K];
    for at in [0, 8] {
        let strip = of.strip::<L, 8>(at);
        for (column, strip) in columns.iter_mut().zip(&strip) {
            column[at..at + 8].copy_from_slice(strip);
        }
    }
    columns
}

/// The difference of two components of an operand: of f32, as bits, if `ROUNDED`, else whole numbers.
#[inline(always)]
pub(super) fn component_difference<const ROUNDED: bool>(a: i32, b: i32) -> f32 {
    if ROUNDED { f32::from_bits(a as u32) - f32::from_bits(b as u32) } else { a.wrapping_sub(b) as f32 }
}
