//! Artificial viscosity [Monaghan1992]: along the line of centres, on approaching pairs.

#![allow(
    clippy::needless_range_loop,
    reason = "iterators with closures are not compiled for the vector width"
)]

use super::prelude::*;

/// eta^2 of Eq. 4.2 [Monaghan1992], 0.01 squared smoothing lengths, in squared support radii.
const SOFTENING: f32 = 0.0025;

/// Wendland's kernel, artificial viscosity after Monaghan.
#[derive(Clone, Copy, Debug)]
pub struct Artificial {
    /// Strength alpha.
    pub alpha: f64,
}

/// Eq. 4.1 and 4.2 [Monaghan1992] add to the pressures of an approaching pair
/// `-alpha c l (v_i - v_j) . (x_i - x_j) / (|x_i - x_j|^2 + eta^2)` over the mean density. Here
/// `rho0 / (rho_i rho_j)` stands for the reciprocal of the mean density.
impl PairForce for Artificial {
    type Density = WendlandKernel;
    const PRESSURE_KERNEL: Shape = Shape::Wendland;

    fn coefficients(&self, parameters: &SphParameters) -> PairCoefficients {
        let &SphParameters { support_radius, mass, state, .. } = parameters;
        let slope = self.slope(parameters);
        // In support radii (v . x) x / (x^2 + eta^2) keeps no factor H; H / 2 is the smoothing length l.
        let viscous =
            0.5 * self.alpha * state.sound_speed * mass * slope * support_radius * state.rest_density;
        PairCoefficients::over_squared_density(parameters, slope, viscous)
    }

    /// `alpha c l / 10` times the density, as in three dimensions [Monaghan1992].
    fn dynamic_viscosity(&self, parameters: &SphParameters) -> f64 {
        let state = &parameters.state;
        0.1 * self.alpha * state.rest_density * state.sound_speed * parameters.smoothing_length()
    }

    #[inline(always)]
    fn add_acceleration<R: Register>(
        self,
        sum: [R; 3],
        offset: [R; 3],
        one: &PairQuantities<R>,
        other: &PairQuantities<R>,
    ) -> [R; 3] {
        let distance2 = squared(offset);
        let t = depth(distance2);
        let t3 = t * t * t;
        let mut approach = R::splat(0.0);
        for axis in 0..3 {
            approach = (one.velocity[axis] - other.velocity[axis]).mul_add(offset[axis], approach);
        }
        let rate = approach.smaller(R::splat(0.0)) / (distance2 + R::splat(SOFTENING));
        let push = t3 * ((one.pressure + other.pressure) - (one.volume * other.volume) * rate);
        let mut result = sum;
        for axis in 0..3 {
            result[axis] = push.mul_add(offset[axis], sum[axis]);
        }
        result
    }
}
