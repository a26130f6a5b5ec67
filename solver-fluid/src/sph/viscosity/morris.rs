//! Viscosity as a Laplacian of velocity, estimated from the kernel's first derivative [Morris1997].

use super::prelude::*;

/// Wendland's kernel, viscosity after Morris.
#[derive(Clone, Copy, Debug)]
pub struct Morris {
    /// Dynamic viscosity [Pa s].
    pub viscosity: f64,
}

/// The kernel has the gradient `-k t^3 (x_i - x_j)`. Eq. 3.3 [Monaghan1992] and Eq. 22 [Morris1997] are then
/// `a_i = sum m k t^3 ((p_i / rho_i^2 + p_j / rho_j^2) (x_i - x_j) - 2 mu / (rho_i rho_j) (v_i - v_j))`.
impl PairForce for Morris {
    type Density = WendlandKernel;
    const PRESSURE_KERNEL: Shape = Shape::Wendland;

    fn coefficients(&self, parameters: &SphParameters) -> PairCoefficients {
        let slope = self.slope(parameters);
        let viscous = 2.0 * self.viscosity * slope * parameters.mass;
        PairCoefficients::over_squared_density(parameters, slope, viscous)
    }

    fn dynamic_viscosity(&self, _: &SphParameters) -> f64 {
        self.viscosity
    }

    #[inline(always)]
    fn add_acceleration<R: Register>(
        self,
        sum: [R; 3],
        offset: [R; 3],
        one: &PairQuantities<R>,
        other: &PairQuantities<R>,
    ) -> [R; 3] {
        let t = depth(squared(offset));
        let t3 = t * t * t;
        let push = t3 * (one.pressure + other.pressure);
        let drag = t3 * (one.volume * other.volume);
        push_and_drag(sum, (push, offset), (drag, one, other))
    }
}
