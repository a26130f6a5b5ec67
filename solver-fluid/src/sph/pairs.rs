//! Kernels and forces of pairs of particles: the arithmetic of the innermost loops, on as many particles at a
//! time as a register has lanes.
//!
//! Offsets are in support radii. The factors of a force are symmetric in the two particles, and its
//! directions change sign when the particles change places. So the two particles of a pair find exactly
//! opposite forces, up to the rounding of their sums.

#![allow(
    clippy::needless_range_loop,
    reason = "iterators with closures are not compiled for the vector width"
)]

use amalgam_particles::lanes::Register;

use super::SphParameters;
use super::kernel::{Kernel, Shape};

/// The values of one particle that enter the force of a pair, beside its position. The density pass has
/// multiplied pressure and volume by the constants in [`PairCoefficients`].
#[derive(Clone, Copy)]
pub(super) struct PairQuantities<R> {
    /// Scaled pressure.
    pub(super) pressure: R,
    /// Scaled reciprocal of the density.
    pub(super) volume: R,
    /// Velocity [m/s].
    pub(super) velocity: [R; 3],
}

/// The constants by which the density pass turns a particle's pressure p and density rho into
/// [`PairQuantities`].
#[derive(Clone, Copy, Debug)]
pub(super) struct PairCoefficients {
    /// The scaled pressure is `pressure p / rho^2`, or `pressure p`.
    pub(super) pressure: f64,
    /// True if the scaled pressure has the factor 1 / rho^2 of Eq. 3.3 [Monaghan1992].
    pub(super) over_squared_density: bool,
    /// The scaled volume is `volume / rho`. Forces use the product of two scaled volumes, so that this is the
    /// square root of a constant that all pairs share.
    pub(super) volume: f64,
}

impl PairCoefficients {
    /// The constants of a force in which the pressure has the factor 1 / rho^2, as in
    /// `a_i = sum m k t^3 (p_i / rho_i^2 + p_j / rho_j^2) (x_i - x_j)`. Here `-k t^3 (x_i - x_j)` is the
    /// kernel's gradient, and `slope` is k. Offsets are in support radii H, so that the factor of the scaled
    /// pressure is `m k H`.
    ///
    /// `viscous` is the constant c of the viscous term, which is `c / (rho_i rho_j)` times a function of
    /// velocities and offsets.
    pub(super) fn over_squared_density(parameters: &SphParameters, slope: f64, viscous: f64) -> Self {
        let &SphParameters { support_radius, mass, .. } = parameters;
        Self { pressure: mass * slope * support_radius, over_squared_density: true, volume: viscous.sqrt() }
    }
}

/// A kernel that densities are summed with.
pub(super) trait DensityKernel: Send + Sync {
    /// The kernel as a function in f64.
    const SHAPE: Shape;

    /// W(r) / W(0), from `(r / H)^2`.
    fn relative_value<R: Register>(distance2: R) -> R;
}

/// The force between two particles by pressure and viscosity, and its kernels. `docs/theory/sph.md` has the
/// equations.
pub(super) trait PairForce: Copy + Send + Sync {
    /// The kernel of the density.
    type Density: DensityKernel;
    /// The kernel whose gradient stands in the pressure force.
    const PRESSURE_KERNEL: Shape;

    /// Constants of the pair's quantities.
    fn coefficients(&self, parameters: &SphParameters) -> PairCoefficients;

    /// The dynamic viscosity [Pa s] that the force amounts to in a shear flow. It limits the sub-step.
    fn dynamic_viscosity(&self, parameters: &SphParameters) -> f64;

    /// Returns `sum` plus the acceleration of particle `one` by particle `other` [m/s^2]. `offset` is the
    /// position of `one` less that of `other`, in support radii.
    fn add_acceleration<R: Register>(
        self,
        sum: [R; 3],
        offset: [R; 3],
        one: &PairQuantities<R>,
        other: &PairQuantities<R>,
    ) -> [R; 3];

    /// The kernels of density and of the gradient of pressure.
    fn kernels(&self, support_radius: f64) -> [Kernel; 2] {
        [Self::Density::SHAPE, Self::PRESSURE_KERNEL].map(|shape| Kernel { shape, support_radius })
    }

    /// The calibrated factor k [1/m^5] of the gradient in the pressure force: see
    /// [`Kernel::calibrated_slope`].
    fn slope(&self, &SphParameters { spacing, support_radius, .. }: &SphParameters) -> f64 {
        let [_, kernel] = self.kernels(support_radius);
        kernel.calibrated_slope(spacing)
    }
}

/// Wendland's C2 kernel.
pub(super) enum WendlandKernel {}

impl DensityKernel for WendlandKernel {
    const SHAPE: Shape = Shape::Wendland;

    /// t^4 (1 + 4 s) with t = 1 - s, so that 1 + 4 s = 5 - 4 t.
    #[inline(always)]
    fn relative_value<R: Register>(distance2: R) -> R {
        let t = depth(distance2);
        let t2 = t * t;
        t2 * t2 * t.mul_add(R::splat(-4.0), R::splat(5.0))
    }
}

/// The square of a vector's length.
#[inline(always)]
pub(super) fn squared<R: Register>([x, y, z]: [R; 3]) -> R {
    z.mul_add(z, y.mul_add(y, x * x))
}

/// t = 1 - s where positive, else 0, from s^2.
#[inline(always)]
pub(super) fn depth<R: Register>(squared: R) -> R {
    (R::splat(1.0) - squared.sqrt()).larger(R::splat(0.0))
}

/// Returns `sum + push offset + drag (v_other - v_one)`.
#[inline(always)]
pub(super) fn push_and_drag<R: Register>(
    sum: [R; 3],
    (push, offset): (R, [R; 3]),
    (drag, one, other): (R, &PairQuantities<R>, &PairQuantities<R>),
) -> [R; 3] {
    let mut result = sum;
    for axis in 0..3 {
        let difference = other.velocity[axis] - one.velocity[axis];
        result[axis] = drag.mul_add(difference, push.mul_add(offset[axis], sum[axis]));
    }
    result
}
