//! The arithmetic of a bond in the hot loops, without square roots and divisions.
//!
//! Everything follows from one number, the *excess* `x = l^2/L^2 - 1` of a bond of rest length L at length l:
//! the stretch is `sqrt(1 + x) - 1`, and a force `k (l - L) n` is `k r d` with `r = 1 - L/l = 1 - 1/sqrt(1 +
//! x)` and d the vector between the ends. For |x| up to 1/8, stretches of -6.5 to +6 %, r is x times a
//! polynomial of fifth degree (interpolated at Chebyshev's points; its error of 5e-8 is below the rounding of
//! f32). Beyond, which brittle bodies hardly see, it is computed as it stands. Which of the two is decided
//! for each bond by its own excess, so that both ends of a bond agree to the bit.

/// Largest |x| for which the polynomial holds.
pub(super) const SERIES_MAX: f32 = 0.125;

/// Elongation by length, 1 - L/l, for an excess within [`SERIES_MAX`].
#[inline(always)]
pub(super) fn series(excess: f32) -> f32 {
    const C: [f32; 6] = [0.5, -0.375_000_02, 0.312_470_65, -0.273_409_96, 0.251_080_8, -0.230_262_27];
    let x = excess;
    // In pairs, which need not wait for each other.
    let square = x * x;
    let [low, middle, high] = [C[1].mul_add(x, C[0]), C[3].mul_add(x, C[2]), C[5].mul_add(x, C[4])];
    x * high.mul_add(square, middle).mul_add(square, low)
}

/// The same for any excess if `FAR`; if not, that of a live bond must be within [`SERIES_MAX`].
#[inline(always)]
pub(super) fn elongation_share<const FAR: bool>(excess: f32) -> f32 {
    // A broken bond, whose factor is zero, may be any length: its number must not overflow, zero times that
    // is none.
    let near = series(excess.min(SERIES_MAX));
    if FAR && excess.abs() > SERIES_MAX {
        // Ends that coincide have no direction, and the vector by which this is multiplied is zero.
        let square = 1.0 + excess;
        1.0 - 1.0 / (if square > 1e-12 { square } else { 1e-12 }).sqrt()
    } else {
        near
    }
}

/// The stiffness of a bond by its rest length L, of the body's unit: min(a - b L, 1) spacing / L, which is
/// linear in 1/L.
#[derive(Clone, Copy, Debug)]
pub(super) struct ElongationShare {
    /// Coefficient a.
    pub(super) inner: f32,
    /// Coefficient b times the spacing [1/quanta].
    pub(super) slope: f32,
}

impl ElongationShare {
    /// By 1/L, in its unit: without the factor of a spacing.
    #[inline(always)]
    pub(super) fn stiffness(&self, inverse_rest: f32) -> f32 {
        let edge = self.inner.mul_add(inverse_rest, -self.slope);
        if edge < inverse_rest { edge } else { inverse_rest }
    }
}

/// The excess of a stretch.
pub(super) fn excess_of(stretch: f64) -> f64 {
    stretch * (2.0 + stretch)
}

/// The stretch of an excess.
pub(super) fn stretch_of(excess: f64) -> f64 {
    // Without cancellation for small ones.
    excess / (1.0 + (1.0 + excess).max(0.0).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_bonds_of_any_length_stay_finite() {
        for excess in [0.2, 1e3, 1e6, 1e12, f32::MAX] {
            let near = elongation_share::<false>(excess);
            assert!((near * near).is_finite(), "{excess}: {near}");
        }
    }

    #[test]
    fn the_series_meets_the_formula() {
        for i in -12_500..=12_500 {
            let excess = i as f32 * 1e-5;
            let exact = 1.0 - 1.0 / (1.0 + f64::from(excess)).sqrt();
            let near = f64::from(elongation_share::<false>(excess));
            assert!((near - exact).abs() <= 3e-7 * exact.abs(), "{excess}: {near} {exact}");
            assert_eq!(elongation_share::<true>(excess), elongation_share::<false>(excess));
        }
        for excess in [-1.0, -0.99, -0.5, -0.13, 0.13, 1.0, 30.0] {
            let exact = 1.0 - 1.0 / f64::max(1.0 + excess, 1e-12).sqrt();
            let far = f64::from(elongation_share::<true>(excess as f32));
            assert!((far - exact).abs() <= 1e-5 * exact.abs(), "{excess}: {far} {exact}");
            assert!((stretch_of(excess_of(stretch_of(excess))) - stretch_of(excess)).abs() < 1e-12);
        }
    }
}
