//! Kernels in three dimensions, and how they are calibrated.
//!
//! With s = r / H and t = 1 - s, where H is the support radius:
//!
//! - Wendland's C2 [Wendland1995] is W = 21 / (2 pi H^3) t^4 (1 + 4 s), with dW/dr / r = -210 / (pi H^5) t^3.
//!   Its Fourier transform is positive, so that particles do not pair [Dehnen2012]. Neither value nor
//!   derivative needs a division.
//! - Two kernels of [Mueller2003]: poly6 for density (Eq. 20), spiky for the gradient of pressure (Eq. 21).
//!
//! **Calibration.** Sums over particles stand for integrals and differ from them by some percent. The
//! calibration makes two sums exact on the cubic lattice that the fluid starts from. The density of a full
//! lattice is the rest density (`DensityCalibration`). Gradients are divided by the kernel's **first
//! moment** on the lattice, `-1/3 sum V r . grad W` (0.95 for Wendland's kernel at two spacings). The
//! gradient of a linear field, the Laplacian of a quadratic field, and the change of density under a small
//! uniform compression are then exact.

use std::f64::consts::PI;

use amalgam_particles::DVec3;

/// Form of a kernel: its function of distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Wendland's C2.
    Wendland,
    /// Mueller's poly6.
    Poly6,
    /// Mueller's spiky kernel.
    Spiky,
}

impl Shape {
    /// The constant k of -dW/dr / r = k / (pi H^5) f(s).
    fn slope(self) -> f64 {
        match self {
            Self::Wendland => 210.0,
            Self::Poly6 => 945.0 / 32.0,
            Self::Spiky => 45.0,
        }
    }
}

/// The kernel of one support radius, normalised: its integral is 1.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Function of distance.
    pub shape: Shape,
    /// Distance from which the kernel is zero [m].
    pub support_radius: f64,
}

/// Sums over a full cubic lattice of unit volumes around one of its points.
#[derive(Clone, Copy, Debug)]
pub struct LatticeSums {
    /// `sum V W`, itself included; 1 in the continuum.
    pub value: f64,
    /// `-1/3 sum V r . grad W`; 1 in the continuum.
    pub moment: f64,
}

/// The constants by which a sum of the kernel becomes the compression, the density over the rest density.
///
/// With the lattice's sum S0 of V W and its first moment M the compression is `1 + (S - S0) / M`
/// (`docs/theory/sph.md`). In the sum of W / W(0) this is `base + scale * sum`.
#[derive(Clone, Copy, Debug)]
pub(super) struct DensityCalibration {
    pub(super) base: f64,
    pub(super) scale: f64,
}

impl DensityCalibration {
    /// The constants of a kernel on a lattice of `spacing` [m].
    pub(super) fn new(kernel: &Kernel, spacing: f64) -> Self {
        let sums = kernel.lattice_sums(spacing);
        // The sum of W / W(0) over a full lattice.
        let full = sums.value / (spacing.powi(3) * kernel.value(0.0));
        // M / S0: the relative change of the sum over that of the density, under a small compression.
        let response = sums.moment / sums.value;
        Self { base: 1.0 - 1.0 / response, scale: 1.0 / (response * full) }
    }
}

impl Kernel {
    /// W [1/m^3] at distance `r` [m].
    pub fn value(&self, r: f64) -> f64 {
        let s = r / self.support_radius;
        let t = (1.0 - s).max(0.0);
        let volume = self.support_radius.powi(3);
        match self.shape {
            Shape::Wendland => 21.0 / (2.0 * PI * volume) * t.powi(4) * (1.0 + 4.0 * s),
            Shape::Poly6 => 315.0 / (64.0 * PI * volume) * (1.0 - s * s).max(0.0).powi(3),
            Shape::Spiky => 15.0 / (PI * volume) * t.powi(3),
        }
    }

    /// dW/dr / r [1/m^5] at distance `r` [m], not for r = 0 of the spiky kernel.
    pub fn slope_over_distance(&self, r: f64) -> f64 {
        let s = r / self.support_radius;
        let t = (1.0 - s).max(0.0);
        let scale = 1.0 / (PI * self.support_radius.powi(5));
        match self.shape {
            Shape::Wendland => -self.shape.slope() * scale * t.powi(3),
            Shape::Poly6 => -self.shape.slope() * scale * (1.0 - s * s).max(0.0).powi(2),
            Shape::Spiky => -self.shape.slope() * scale * t * t / s,
        }
    }

    /// The calibrated factor k [1/m^5] of -dW/dr / r, which is k t^3 for Wendland's kernel and k t^2 / s for
    /// the spiky one, on a lattice of `spacing` [m].
    pub fn calibrated_slope(&self, spacing: f64) -> f64 {
        let moment = self.lattice_sums(spacing).moment;
        self.shape.slope() / (PI * self.support_radius.powi(5) * moment)
    }

    /// Gradient of W [1/m^4] with respect to the position that lies at `offset` [m] from the kernel's centre.
    pub fn gradient(&self, offset: DVec3) -> DVec3 {
        if offset == DVec3::ZERO {
            return DVec3::ZERO;
        }
        self.slope_over_distance(offset.length()) * offset
    }

    /// `1/6 sum V r^2 L` over a cubic lattice of `spacing` [m], with L = 45 / (pi H^5) t the Laplacian of
    /// Mueller's viscosity kernel (Eq. 22 [Mueller2003]); 1 in the continuum.
    pub fn mueller_laplacian_moment(support_radius: f64, spacing: f64) -> f64 {
        let scale = 45.0 / (PI * support_radius.powi(5));
        let term = |offset: DVec3| {
            let t = (1.0 - offset.length() / support_radius).max(0.0);
            scale * t * offset.length_squared()
        };
        spacing.powi(3) / 6.0 * lattice(support_radius, spacing).map(term).sum::<f64>()
    }

    /// `sum V r^2 W` [m^2] over a cubic lattice of `spacing` [m]; H^2/5 in the continuum with Wendland's
    /// kernel.
    pub fn second_moment(&self, spacing: f64) -> f64 {
        let term = |offset: DVec3| self.value(offset.length()) * offset.length_squared();
        spacing.powi(3) * lattice(self.support_radius, spacing).map(term).sum::<f64>()
    }

    /// Sums over a cubic lattice of `spacing` [m].
    pub fn lattice_sums(&self, spacing: f64) -> LatticeSums {
        let volume = spacing.powi(3);
        let mut sums = LatticeSums { value: 0.0, moment: 0.0 };
        for offset in lattice(self.support_radius, spacing) {
            sums.value += volume * self.value(offset.length());
            sums.moment -= volume / 3.0 * offset.dot(self.gradient(offset));
        }
        sums
    }
}

/// The points of a cubic lattice around one of them, as far as `reach` [m] along each axis.
fn lattice(reach: f64, spacing: f64) -> impl Iterator<Item = DVec3> {
    let steps = (reach / spacing).ceil() as i32;
    let along = move || (-steps..=steps).map(f64::from);
    along().flat_map(move |z| along().flat_map(move |y| along().map(move |x| spacing * DVec3::new(x, y, z))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPES: [Shape; 3] = [Shape::Wendland, Shape::Poly6, Shape::Spiky];

    #[test]
    fn integrates_to_one_and_vanishes_at_its_support() {
        for (shape, support_radius) in SHAPES.iter().flat_map(|&shape| [0.01, 1.0, 7.0].map(|h| (shape, h))) {
            let kernel = Kernel { shape, support_radius };
            let steps = 2000;
            let h = support_radius / f64::from(steps);
            // Midpoint rule over spherical shells.
            let integral: f64 = (0..steps)
                .map(|k| (f64::from(k) + 0.5) * h)
                .map(|r| 4.0 * PI * r * r * kernel.value(r) * h)
                .sum();
            assert!((integral - 1.0).abs() < 1e-6, "{integral}");
            assert_eq!(kernel.value(support_radius), 0.0);
            assert_eq!(kernel.gradient(DVec3::X * 1.1 * support_radius), DVec3::ZERO);
        }
    }

    #[test]
    fn gradient_is_the_derivative() {
        for shape in SHAPES {
            let kernel = Kernel { shape, support_radius: 0.2 };
            for offset in [DVec3::new(0.03, -0.05, 0.1), DVec3::new(0.0, 0.19, 0.0), DVec3::splat(1e-3)] {
                let step = 1e-7;
                let slope = DVec3::from_array(DVec3::AXES.map(|axis| {
                    let at = |sign: f64| kernel.value((offset + axis * sign * step).length());
                    (at(1.0) - at(-1.0)) / (2.0 * step)
                }));
                let gradient = kernel.gradient(offset);
                assert!(gradient.distance(slope) < 1e-5 * gradient.length().max(1.0), "{gradient} {slope}");
            }
        }
    }

    #[test]
    fn lattice_sums_approach_the_integrals() {
        for (ratio, bound) in [(2.0, 0.055), (2.4, 0.03), (3.0, 0.01), (8.0, 1e-4)] {
            let sums = Kernel { shape: Shape::Wendland, support_radius: ratio }.lattice_sums(1.0);
            assert!(
                (sums.value - 1.0).abs() < bound && (sums.moment - 1.0).abs() < bound,
                "{ratio}: {sums:?}"
            );
        }
    }
}
