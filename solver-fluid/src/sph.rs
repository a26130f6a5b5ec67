//! Weakly compressible smoothed particle hydrodynamics (SPH).
//!
//! - **Density** by summation over neighbours with Wendland's C2 kernel, calibrated so that on a full cubic lattice of
//!   the particles' spacing it is exactly the rest density, and changes exactly as it should under a small compression
//!   ([`kernel`]). A particle's mass is `rest_density * spacing^3`.
//! - **Pressure** from the equation of state of Tait [Becker2007] or the linear one of [Mueller2003], never negative
//!   ([`pressure::equation_of_state`]): a free surface feels no tension and does not clump. The pressure force is the symmetric one that
//!   conserves momentum and, with the summed density, energy [Monaghan1992].
//! - **Viscosity** after [Morris1997]: the Laplacian of velocity that stands in Eq. 14 of [Mueller2003], estimated from
//!   the kernel's first derivative. Or the artificial one of [Monaghan1992], or XSPH [Monaghan1989]. Or kernels, pressure force and viscosity
//!   of [Mueller2003] altogether ([`Formulation`]).
//! - **Walls** are planes of symmetry ([`walls`]): beyond each stands the mirror image of the fluid.
//! - **Time**: symplectic Euler, as many sub-steps in a step as the Courant condition asks for.
//!
//! Gradients are divided by the kernel's first moment on the lattice, 0.95: it is the derivative of the
//! calibrated density, so that the pressure that particles carry is the one that walls and groups feel.
//! (Without this, forces balance as well, but a column at rest reports 5 % too much pressure.)
//!
//! Pairs are evaluated in f32 on positions relative to their cell, rounded to 2^-22 of the support radius.
//! Both particles of a pair see exactly opposite distances and forces, so momentum is lost only by the
//! rounding of each particle's own sum, some 1e-7 of the largest pair force. State, equation of state and
//! time integration are f64.

mod acceleration;
mod density;
pub mod evaluation;
mod ghosts;
pub mod guard;
pub mod kernel;
mod neighbours;
mod pairs;
pub mod pressure;
pub mod section;
mod solver;
mod sweep;
mod viscosity;
pub mod walls;

pub use crate::sources;
pub use ghosts::Spent;
pub use neighbours::Points;
pub use solver::SphMethod;

/// An SPH fluid as a participant.
pub type Sph = crate::fluid::Fluid<SphMethod>;

use amalgam_particles::DVec3;
use amalgam_solver_kit::Fields;

use self::{
    kernel::{Kernel, Shape},
    pressure::equation_of_state::EquationOfState,
    sources::Sources,
    walls::Walls,
};

/// Kinematic viscosity of XSPH over epsilon, speed of sound and smoothing length.
///
/// `dv_i/dt = epsilon c/l sum V_j W_ij (v_j - v_i)` is, for velocities that vary slowly, `epsilon c/l
/// <r^2>/6` times their Laplacian, and Wendland's kernel has the second moment `<r^2> = H^2/5 = 4 l^2/5`.
pub const XSPH_VISCOSITY: f64 = 2.0 / 15.0;

/// Kernels and viscosity.
#[derive(Clone, Copy, Debug)]
pub enum Formulation {
    /// Wendland's kernel, viscosity after [Morris1997].
    Laminar {
        /// Dynamic viscosity [Pa s].
        viscosity: f64,
    },
    /// Wendland's kernel, artificial viscosity after [Monaghan1992].
    Artificial {
        /// Its strength, alpha.
        alpha: f64,
    },
    /// Wendland's kernel, velocities drawn to their neighbours' mean (XSPH, [Monaghan1989]).
    Xsph {
        /// Its strength, epsilon: the share of the difference that a particle gives up while sound travels a
        /// smoothing length. Amounts to the kinematic viscosity `2/15 epsilon c l`, see [`XSPH_VISCOSITY`].
        epsilon: f64,
    },
    /// Kernels, pressure force and viscosity of [Mueller2003].
    Mueller {
        /// Dynamic viscosity [Pa s].
        viscosity: f64,
    },
}

impl Formulation {
    /// The kernels of density and of the gradient of pressure.
    pub fn kernels(&self, support_radius: f64) -> [Kernel; 2] {
        let shapes = match self {
            Self::Mueller { .. } => [Shape::Poly6, Shape::Spiky],
            Self::Laminar { .. } | Self::Artificial { .. } | Self::Xsph { .. } => [Shape::Wendland; 2],
        };
        shapes.map(|shape| Kernel { shape, support_radius })
    }
}

/// Checked settings of an SPH fluid, all SI.
#[derive(Clone, Debug)]
pub struct SphParameters {
    /// Edge of the volume that a particle stands for at rest [m].
    pub spacing: f64,
    /// Distance from which the kernel is zero [m], twice the smoothing length.
    pub support_radius: f64,
    /// Mass of every particle [kg].
    pub mass: f64,
    /// Collision radius of every particle [m].
    pub radius: f64,
    /// Pressure from density.
    pub state: EquationOfState,
    /// Kernels and viscosity.
    pub formulation: Formulation,
    /// Courant number of a sub-step.
    pub cfl: f64,
    /// The longest step asked for is this many sub-steps long.
    pub substeps_max: u32,
    /// Gravity [m/s^2].
    pub gravity: DVec3,
    /// Walls of the domain, if they hold the fluid.
    pub walls: Option<Walls>,
    /// Emitters and sinks, as they are at the start.
    pub sources: Sources,
    /// Winds, layers that damp, and fields of force.
    pub fields: Fields,
}

impl SphParameters {
    /// The longest stable sub-step [s] for a largest `speed` [m/s] of particles and a largest local speed of
    /// sound.
    ///
    /// Courant condition with the smoothing length (half the support radius), and that of viscous diffusion
    /// (Eq. 31 [Morris1997]).
    pub fn stable_substep(&self, speed: f64, sound_speed: f64) -> f64 {
        let smoothing_length = 0.5 * self.support_radius;
        let courant = self.cfl * smoothing_length / (sound_speed + speed);
        let viscosity = match self.formulation {
            Formulation::Laminar { viscosity } | Formulation::Mueller { viscosity } => viscosity,
            // The viscosity in shear that artificial viscosity amounts to.
            Formulation::Artificial { alpha } => {
                0.1 * alpha * self.state.rest_density * self.state.sound_speed * smoothing_length
            }
            Formulation::Xsph { epsilon } => {
                XSPH_VISCOSITY * epsilon * self.state.rest_density * self.state.sound_speed * smoothing_length
            }
        };
        let diffusion = 0.125 * smoothing_length * smoothing_length * self.state.rest_density / viscosity;
        courant.min(diffusion)
    }
}
