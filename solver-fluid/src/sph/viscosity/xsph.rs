//! XSPH [Monaghan1989]: velocities are drawn to the mean of their neighbours.

use super::prelude::*;

/// Kinematic viscosity of XSPH over epsilon, speed of sound c and smoothing length l.
///
/// The sum `epsilon c/l sum V_j W_ij (v_j - v_i)` is `epsilon c/l <r^2>/6` times the Laplacian of a velocity
/// that varies slowly. Wendland's kernel has the second moment `<r^2> = H^2/5 = 4 l^2/5`.
const VISCOSITY: f64 = 2.0 / 15.0;

/// Wendland's kernel, XSPH.
#[derive(Clone, Copy, Debug)]
pub struct Xsph {
    /// Strength epsilon: the part of the difference of velocities that a particle gives up while sound
    /// travels a smoothing length.
    pub epsilon: f64,
}

/// The correction of velocity in [Monaghan1989] as a rate, with `rho0 / (rho_i rho_j)` for the reciprocal of
/// the mean density: `dv_i/dt = -epsilon c/l sum m rho0 / (rho_i rho_j) W_ij (v_i - v_j)`. The pressure force
/// is that of Eq. 3.3 [Monaghan1992].
impl PairForce for Xsph {
    type Density = WendlandKernel;
    const PRESSURE_KERNEL: Shape = Shape::Wendland;

    fn coefficients(&self, parameters: &SphParameters) -> PairCoefficients {
        let &SphParameters { spacing, support_radius, mass, state, .. } = parameters;
        let [kernel, _] = self.kernels(support_radius);
        let rate = self.epsilon * state.sound_speed / (0.5 * support_radius);
        // The lattice's second moment over the continuum's: the Laplacian of a quadratic field is exact.
        let moment = kernel.second_moment(spacing) / (0.2 * support_radius * support_radius);
        let viscous = rate * mass * state.rest_density * kernel.value(0.0) / moment;
        PairCoefficients::over_squared_density(parameters, self.slope(parameters), viscous)
    }

    fn dynamic_viscosity(&self, parameters: &SphParameters) -> f64 {
        let state = &parameters.state;
        VISCOSITY * self.epsilon * state.rest_density * state.sound_speed * parameters.smoothing_length()
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
        // W / W(0) = t^4 (5 - 4 t), of which t^3 is in the drag below.
        let shape = t * t.mul_add(R::splat(-4.0), R::splat(5.0));
        let drag = t3 * shape * (one.volume * other.volume);
        push_and_drag(sum, (push, offset), (drag, one, other))
    }
}
