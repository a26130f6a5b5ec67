//! The arithmetic of a bond in the hot loops, without square roots and divisions.
//!
//! Everything follows from one number: the *double strain* `x = l^2/L^2 - 1` of a bond of rest length L at
//! length l, which is twice its Green strain. The stretch is `sqrt(1 + x) - 1`. With d the vector between the
//! ends, a force `k (l - L) n` is `k r d`, where `r = 1 - L/l = 1 - 1/sqrt(1 + x)`. For |x| up to 1/8,
//! stretches of -6.5 to +6 %, r is x times a polynomial of fifth degree (interpolated at Chebyshev's points;
//! its error of 5e-8 is below the rounding of f32). Outside of this range, which brittle bodies hardly reach, r
//! is computed directly. The double strain of each bond decides between the two, so that both ends of a bond
//! agree to the bit.

use super::variants::StrainRange;

/// Largest |x| for which the polynomial holds.
pub(super) const SERIES_MAX: f32 = 0.125;

/// Elongation by length, 1 - L/l, for a double strain within [`SERIES_MAX`].
#[inline(always)]
pub(super) fn series(double_strain: f32) -> f32 {
    const C: [f32; 6] = [0.5, -0.375_000_02, 0.312_470_65, -0.273_409_96, 0.251_080_8, -0.230_262_27];
    let x = double_strain;
    // Pairs of terms need not wait for each other.
    let square = x * x;
    let [low, middle, high] = [C[1].mul_add(x, C[0]), C[3].mul_add(x, C[2]), C[5].mul_add(x, C[4])];
    x * high.mul_add(square, middle).mul_add(square, low)
}

/// Elongation by length, 1 - L/l, for double strains of live bonds in the range.
#[inline(always)]
pub(super) fn elongation_share<S: StrainRange>(double_strain: f32) -> f32 {
    // A broken bond has the factor 0 but may have any length. The strain is limited, since 0 times infinity
    // would be NaN.
    let near = series(double_strain.min(SERIES_MAX));
    if S::IS_UNLIMITED && double_strain.abs() > SERIES_MAX {
        // Ends that coincide have no direction, and the vector by which this is multiplied is zero.
        let square = 1.0 + double_strain;
        1.0 - 1.0 / (if square > 1e-12 { square } else { 1e-12 }).sqrt()
    } else {
        near
    }
}

/// The stiffness of a bond by its rest length L, of the body's unit: min(a - b L, 1) spacing / L, which is
/// linear in 1/L.
#[derive(Clone, Copy, Debug)]
pub(super) struct BondStiffness {
    /// Coefficient a.
    pub(super) inner: f32,
    /// Coefficient b times the spacing [1/quanta].
    pub(super) slope: f32,
}

impl BondStiffness {
    /// By 1/L, in its unit: without the factor of a spacing.
    #[inline(always)]
    pub(super) fn stiffness(&self, inverse_rest: f32) -> f32 {
        let edge = self.inner.mul_add(inverse_rest, -self.slope);
        if edge < inverse_rest { edge } else { inverse_rest }
    }
}

/// The double strain of a stretch.
pub(super) fn double_strain_of(stretch: f64) -> f64 {
    stretch * (2.0 + stretch)
}

/// The stretch of a double strain.
pub(super) fn stretch_of(double_strain: f64) -> f64 {
    // Without cancellation for small ones.
    double_strain / (1.0 + (1.0 + double_strain).max(0.0).sqrt())
}

#[cfg(test)]
mod tests {
    use super::super::variants::{AnyStrain, SmallStrain};
    use super::*;

    #[test]
    fn broken_bonds_of_any_length_stay_finite() {
        for double_strain in [0.2, 1e3, 1e6, 1e12, f32::MAX] {
            let near = elongation_share::<SmallStrain>(double_strain);
            assert!((near * near).is_finite(), "{double_strain}: {near}");
        }
    }

    #[test]
    fn the_series_meets_the_formula() {
        for i in -12_500..=12_500 {
            let double_strain = i as f32 * 1e-5;
            let exact = 1.0 - 1.0 / (1.0 + f64::from(double_strain)).sqrt();
            let near = f64::from(elongation_share::<SmallStrain>(double_strain));
            assert!((near - exact).abs() <= 3e-7 * exact.abs(), "{double_strain}: {near} {exact}");
            assert_eq!(
                elongation_share::<AnyStrain>(double_strain),
                elongation_share::<SmallStrain>(double_strain)
            );
        }
        for double_strain in [-1.0, -0.99, -0.5, -0.13, 0.13, 1.0, 30.0] {
            let exact = 1.0 - 1.0 / f64::max(1.0 + double_strain, 1e-12).sqrt();
            let far = f64::from(elongation_share::<AnyStrain>(double_strain as f32));
            assert!((far - exact).abs() <= 1e-5 * exact.abs(), "{double_strain}: {far} {exact}");
            assert!(
                (stretch_of(double_strain_of(stretch_of(double_strain))) - stretch_of(double_strain)).abs()
                    < 1e-12
            );
        }
    }
}
