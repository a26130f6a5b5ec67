//! Kernels, pressure force and viscosity of [Mueller2003].

use super::prelude::*;

/// Poly6 for density, the spiky kernel for pressure, the Laplacian kernel for viscosity [Mueller2003].
#[derive(Clone, Copy, Debug)]
pub struct Mueller {
    /// Dynamic viscosity [Pa s].
    pub viscosity: f64,
    /// The viscous factor of a pair over the factor of its pressure force.
    ratio: f32,
}

impl Mueller {
    /// The force of a fluid of a dynamic viscosity [Pa s], for lengths in metres.
    pub fn new(viscosity: f64, spacing: f64, support_radius: f64) -> Self {
        let spiky = Kernel { shape: Shape::Spiky, support_radius };
        // The Laplacian kernel is calibrated like the others: the Laplacian of a quadratic field is exact on
        // the lattice.
        let moment = Kernel::mueller_laplacian_moment(support_radius, spacing);
        let ratio = viscosity / support_radius * spiky.lattice_sums(spacing).moment / moment;
        Self { viscosity, ratio: ratio as f32 }
    }
}

/// Poly6, Eq. 20 [Mueller2003].
pub(in crate::sph) enum Poly6Kernel {}

impl DensityKernel for Poly6Kernel {
    const SHAPE: Shape = Shape::Poly6;

    #[inline(always)]
    fn relative_value<R: Register>(distance2: R) -> R {
        let u = (R::splat(1.0) - distance2).larger(R::splat(0.0));
        u * u * u
    }
}

/// Eq. 10 and 14 [Mueller2003], forces per volume, over the density of the particle itself:
/// `a_i = sum m / (rho_i rho_j) (-(p_i + p_j) grad W + mu (v_j - v_i) L)`. W is the spiky kernel and L the
/// Laplacian kernel. Eq. 10 has half of p_i + p_j. As the sum of V grad W vanishes, half of it gives half
/// the gradient of pressure, and a column would rest on twice the pressure that it weighs.
impl PairForce for Mueller {
    type Density = Poly6Kernel;
    const PRESSURE_KERNEL: Shape = Shape::Spiky;

    fn coefficients(&self, parameters: &SphParameters) -> PairCoefficients {
        let &SphParameters { support_radius, mass, .. } = parameters;
        PairCoefficients {
            pressure: 1.0,
            over_squared_density: false,
            volume: (mass * self.slope(parameters) * support_radius).sqrt(),
        }
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
        let s = squared(offset).sqrt();
        let t = (R::splat(1.0) - s).larger(R::splat(0.0));
        let weight = t * (one.volume * other.volume);
        // A particle is a candidate of itself. Its offset is zero then, and s must not be zero.
        let push = weight * (one.pressure + other.pressure) * (t / s.larger(R::splat(1e-9)));
        let drag = weight * R::splat(self.ratio);
        push_and_drag(sum, (push, offset), (drag, one, other))
    }
}
