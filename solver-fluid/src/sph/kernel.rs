//! Wendland's C2 kernel in three dimensions [Wendland1995].
//!
//! With s = r / H and t = 1 - s, H the support radius, the kernel is W = 21 / (2 pi H^3) t^4 (1 + 4 s), and
//! dW/dr / r = -210 / (pi H^5) t^3. It is positive in Fourier space, so particles do not pair [Dehnen2012], and neither
//! value nor derivative needs a division.

use std::f64::consts::PI;

use amalgam_particles::DVec3;

/// The kernel of one support radius.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Distance from which the kernel is zero [m].
    pub support_radius: f64,
}

impl Kernel {
    /// W [1/m^3] at distance `r` [m].
    pub fn value(&self, r: f64) -> f64 {
        21.0 / (2.0 * PI * self.support_radius.powi(3)) * shape(r / self.support_radius)
    }

    /// Gradient of W [1/m^4] with respect to the position that lies at `offset` [m] from the kernel's centre.
    pub fn gradient(&self, offset: DVec3) -> DVec3 {
        let t = (1.0 - offset.length() / self.support_radius).max(0.0);
        -210.0 / (PI * self.support_radius.powi(5)) * t.powi(3) * offset
    }

    /// Sum of W / W(0) over a cubic lattice of `spacing` [m] around one of its points, itself included.
    pub fn lattice_sum(&self, spacing: f64) -> f64 {
        let reach = (self.support_radius / spacing).ceil() as i32;
        let mut sum = 0.0;
        for z in -reach..=reach {
            for y in -reach..=reach {
                for x in -reach..=reach {
                    let r = f64::from(x * x + y * y + z * z).sqrt() * spacing;
                    sum += shape(r / self.support_radius);
                }
            }
        }
        sum
    }
}

/// W / W(0) at `s` support radii.
fn shape(s: f64) -> f64 {
    let t = (1.0 - s).max(0.0);
    t.powi(4) * (1.0 + 4.0 * s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integrates_to_one_and_vanishes_at_its_support() {
        for support_radius in [0.01, 1.0, 7.0] {
            let kernel = Kernel { support_radius };
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
        let kernel = Kernel { support_radius: 0.2 };
        for offset in [DVec3::new(0.03, -0.05, 0.1), DVec3::new(0.0, 0.19, 0.0), DVec3::splat(1e-3)] {
            let step = 1e-7;
            let slope = DVec3::from_array(DVec3::AXES.map(|axis| {
                let at = |sign: f64| kernel.value((offset + axis * sign * step).length());
                (at(1.0) - at(-1.0)) / (2.0 * step)
            }));
            let gradient = kernel.gradient(offset);
            assert!(gradient.distance(slope) < 1e-6 * gradient.length().max(1.0), "{gradient} {slope}");
        }
    }

    #[test]
    fn lattice_sum_is_near_the_integral() {
        // spacing^3 W(0) times the lattice sum approximates the kernel's integral, 1.
        for (ratio, bound) in [(2.0, 0.035), (2.4, 0.02), (3.0, 0.004)] {
            let kernel = Kernel { support_radius: ratio };
            let integral = kernel.value(0.0) * kernel.lattice_sum(1.0);
            assert!((integral - 1.0).abs() < bound, "{ratio}: {integral}");
        }
    }
}
