//! The stiffness of a bond in 32 bits.

use super::super::table::QUANTA;

/// The transverse stiffness and the axial excess of a bond, as `linearised` in `rows/kernels.rs` computes
/// them, rounded to 32 bits. It is computed once per step and read in all iterations, which takes less time
/// than computing it. A missing bond has 0.
///
/// The upper 20 bits hold a = axial + [`LEAST`] as an f32, less the bits of [`LEAST`], without the last
/// [`CUT_BITS`] bits of the fraction. The lower [`TRANSVERSE_BITS`] bits hold the transverse stiffness in units
/// of 2^(e - 23), where 2^e is the largest power of two up to a. For example axial = 1, transverse = 0.0001:
/// a = 1.015625, so that e = 0, and the lower bits hold round(0.0001 x 2^23) = 839.
pub(super) type Coefficient = u32;

const TRANSVERSE_BITS: u32 = 12;
/// Number of the last bits of an f32's fraction that are dropped.
const CUT_BITS: u32 = 8;
/// 2^-6: added to axial stiffness, so that its exponent takes few bits.
const LEAST: f32 = 0.015625;
const EXPONENT: u32 = 0xff << 23;

/// Unit of length of positions in iterations [spacings]. With it, transverse and axial stiffness are of sizes
/// that use the full range of their bits.
pub(super) const UNIT: f32 = 32.0;

/// [`UNIT`]^2 in quanta^2.
pub(super) const UNIT_SQUARE: f32 = (UNIT * QUANTA as f32) * (UNIT * QUANTA as f32);

/// Packs a coefficient. The flag is true if both numbers fit into their bits.
#[inline(always)]
pub(super) fn packed((transverse, axial): (f32, f32)) -> (Coefficient, bool) {
    let bits = (axial + LEAST).to_bits() + (1 << (CUT_BITS - 1));
    let axial = (bits >> CUT_BITS).wrapping_sub(LEAST.to_bits() >> CUT_BITS);
    // The reciprocal of a power of two; a sum with 1 has parts of it in its last bits.
    let parts = f32::from_bits((254u32 << 23).wrapping_sub(bits & EXPONENT));
    let transverse = transverse.mul_add(parts, 1.0).to_bits().wrapping_sub(1.0f32.to_bits());
    let fits = (axial < 1 << (32 - TRANSVERSE_BITS)) & (transverse < 1 << TRANSVERSE_BITS);
    (axial << TRANSVERSE_BITS | transverse, fits)
}

/// The transverse stiffness and the axial excess of a coefficient.
#[inline(always)]
pub(super) fn unpacked(coefficient: Coefficient) -> (f32, f32) {
    const TRANSVERSE: u32 = (1 << TRANSVERSE_BITS) - 1;
    const SHIFT: u32 = TRANSVERSE_BITS - CUT_BITS;
    let axial = (coefficient >> SHIFT & (u32::MAX >> SHIFT & u32::MAX << CUT_BITS)) + LEAST.to_bits();
    let power = axial & EXPONENT;
    let transverse = f32::from_bits(power | coefficient & TRANSVERSE) - f32::from_bits(power);
    (transverse, f32::from_bits(axial) - LEAST)
}

#[cfg(test)]
mod tests {
    use amalgam_particles::random::uniform_f64;

    use super::*;

    #[test]
    fn coefficients_are_good_to_the_fifth_digit() {
        assert_eq!(unpacked(0), (0.0, 0.0));
        assert_eq!(packed((0.0, 0.0)), (0, true));
        for case in 0..10_000 {
            let random = |what| uniform_f64(&[case, what]);
            // Bonds of a twentieth of a spacing to four, as far as the stiffness transverse is below a quarter of
            // that axial in spacings.
            let length = 0.05 + 3.95 * random(0);
            let share = 0.2 * random(1) / f64::max(1.0, length * length);
            let stiffness = 1.0 / length;
            let unit = length / f64::from(UNIT);
            let (transverse, axial) = (stiffness * share, stiffness * (1.0 - share) / (unit * unit));
            let (word, fits) = packed((transverse as f32, axial as f32));
            assert!(fits, "{length} {share}");
            let found = unpacked(word);
            assert!((f64::from(found.1) / axial - 1.0).abs() < 2e-5, "{found:?} {axial}");
            // Parts of the stiffness axial in spacings.
            let part = stiffness / (length * length);
            assert!((f64::from(found.0) - transverse).abs() < 1.3e-4 * part, "{found:?} {transverse}");
        }
        for far in [(1.0, 1.0), (0.0, 1e9), (f32::INFINITY, 1.0), (0.0, f32::INFINITY), (0.0, f32::NAN)] {
            assert!(!packed(far).1, "{far:?}");
        }
    }
}
