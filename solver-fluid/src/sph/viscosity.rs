//! Viscosity: a file for each formula by which pairs of particles drag each other.
//!
//! A file holds one [`PairForce`](super::pairs::PairForce): kernels, constants, the force of a pair, and the
//! viscosity that it amounts to. Pressure and viscosity are summed together, because they share the kernel's
//! value. A new formula is a new file here, a variant of [`Formulation`], an arm of `with_force`, and its
//! keys in `sph/section.rs`.

mod artificial;
mod morris;
mod mueller;
mod xsph;

pub use artificial::Artificial;
pub use morris::Morris;
pub use mueller::Mueller;
pub use xsph::Xsph;

use super::SphParameters;
use super::kernel::Kernel;
use super::pairs::{PairCoefficients, PairForce as _};

/// Names that the file of a formula uses.
mod prelude {
    pub(super) use amalgam_particles::lanes::Register;

    pub(super) use crate::sph::SphParameters;
    pub(super) use crate::sph::kernel::{Kernel, Shape};
    pub(super) use crate::sph::pairs::{
        DensityKernel, PairCoefficients, PairForce, PairQuantities, WendlandKernel, depth, push_and_drag,
        squared,
    };
}

/// Kernels, pressure force and viscosity of a fluid.
#[derive(Clone, Copy, Debug)]
pub enum Formulation {
    /// Wendland's kernel, viscosity after [Morris1997].
    Morris(Morris),
    /// Wendland's kernel, artificial viscosity after [Monaghan1992].
    Artificial(Artificial),
    /// Wendland's kernel, velocities drawn to the mean of their neighbours (XSPH, [Monaghan1989]).
    Xsph(Xsph),
    /// Kernels, pressure force and viscosity of [Mueller2003].
    Mueller(Mueller),
}

/// Evaluates `$result` with `$force` bound to the formulation's own type, so that the compiler makes a copy
/// of the loops in it for each type.
macro_rules! with_force {
    ($formulation:expr, $force:ident => $result:expr) => {{
        use $crate::sph::viscosity::Formulation;
        match $formulation {
            Formulation::Morris($force) => $result,
            Formulation::Artificial($force) => $result,
            Formulation::Xsph($force) => $result,
            Formulation::Mueller($force) => $result,
        }
    }};
}
pub(super) use with_force;

impl Formulation {
    /// The kernels of density and of the gradient of pressure.
    pub fn kernels(&self, support_radius: f64) -> [Kernel; 2] {
        with_force!(self, force => force.kernels(support_radius))
    }

    /// Constants of the quantities that enter the force of a pair.
    pub(super) fn coefficients(&self, parameters: &SphParameters) -> PairCoefficients {
        with_force!(self, force => force.coefficients(parameters))
    }

    /// The dynamic viscosity [Pa s] that the force amounts to in a shear flow.
    pub(super) fn dynamic_viscosity(&self, parameters: &SphParameters) -> f64 {
        with_force!(self, force => force.dynamic_viscosity(parameters))
    }
}
