//! Weakly compressible smoothed particle hydrodynamics (SPH).
//!
//! - **Density** is a sum over neighbours with Wendland's C2 kernel. Its calibration ([`kernel`]) makes it
//!   exactly the rest density on a full cubic lattice of the particles' spacing. A particle's mass is
//!   `rest_density * spacing^3`.
//! - **Pressure** follows from the equation of state of Tait [Becker2007] or the linear one of [Mueller2003]
//!   ([`pressure::equation_of_state`]). It is never negative: a free surface feels no tension and does not
//!   clump. The pressure force is symmetric, so that it conserves momentum and, with the summed density,
//!   energy [Monaghan1992].
//! - **Viscosity** ([`Formulation`]) is the Laplacian of velocity after [Morris1997], the artificial
//!   viscosity of [Monaghan1992], or XSPH [Monaghan1989]. Kernels, pressure force and viscosity may also all
//!   be those of [Mueller2003].
//! - **Walls** are planes of symmetry ([`walls`]): beyond each stands the mirror image of the fluid.
//! - **Time** is integrated by symplectic Euler. A step has as many sub-steps as the Courant condition needs.
//!
//! Gradients are divided by the kernel's first moment on the lattice, 0.95. They are then the derivatives of
//! the calibrated density, and the pressure that particles carry is the pressure that walls and groups feel.
//! Without this division forces balance as well, but a column at rest reports 5 % too much pressure.
//!
//! Pairs are evaluated in f32 on positions relative to their cell, rounded to 2^-22 of the support radius.
//! Both particles of a pair see exactly opposite distances and forces. So momentum is lost only by the
//! rounding of each particle's own sum, some 1e-7 of the largest pair force. State, equation of state and
//! time integration are f64.

mod acceleration;
mod density;
pub mod evaluation;
mod ghosts;
pub mod guard;
pub(crate) mod initial_density;
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
pub use density::obstacles::ObstacleDensity;
pub use neighbours::Points;
pub use solver::SphMethod;
pub use viscosity::{Artificial, Formulation, Morris, Mueller, Xsph};

/// An SPH fluid as a participant.
pub type Sph = crate::fluid::Fluid<SphMethod>;

use amalgam_particles::DVec3;
use amalgam_solver_kit::Fields;

use self::{pressure::equation_of_state::EquationOfState, sources::Sources, walls::Walls};

/// Checked settings of an SPH fluid, all SI.
#[derive(Clone, Debug)]
pub struct SphParameters {
    /// Edge of the volume that a particle stands for at rest [m].
    pub spacing: f64,
    /// Distance from which on the kernel is zero [m], twice the smoothing length.
    pub support_radius: f64,
    /// Mass of every particle [kg].
    pub mass: f64,
    /// Collision radius of every particle [m].
    pub radius: f64,
    /// Pressure from density.
    pub state: EquationOfState,
    /// Kernels, pressure force and viscosity.
    pub formulation: Formulation,
    /// Courant number of a sub-step.
    pub cfl: f64,
    /// The longest step asked for is this many sub-steps long.
    pub substeps_max: u32,
    /// A step in which the fluid integrates once may be this many times longer.
    pub substeps_once: u32,
    /// Gravity [m/s^2].
    pub gravity: DVec3,
    /// Walls of the domain, if they hold the fluid.
    pub walls: Option<Walls>,
    /// Density of the space that obstacles fill, if there are any.
    pub obstacles: Option<ObstacleDensity>,
    /// Emitters and sinks, as they are at the start.
    pub sources: Sources,
    /// Winds, layers that damp, and fields of force.
    pub fields: Fields,
}

impl SphParameters {
    /// Smoothing length l [m], half the support radius.
    pub fn smoothing_length(&self) -> f64 {
        0.5 * self.support_radius
    }

    /// The longest stable sub-step [s] for a largest `speed` |v| of particles [m/s] and a largest local speed
    /// of sound c [m/s].
    ///
    /// It is the shorter one of `cfl l / (c + |v|)`, the Courant condition, and of `l^2 rho0 / (8 eta)` with
    /// the viscosity eta (Eq. 31 [Morris1997]).
    pub fn stable_substep(&self, speed: f64, sound_speed: f64) -> f64 {
        let smoothing_length = self.smoothing_length();
        let courant = self.cfl * smoothing_length / (sound_speed + speed);
        let viscosity = self.formulation.dynamic_viscosity(self);
        let diffusion = 0.125 * smoothing_length * smoothing_length * self.state.rest_density / viscosity;
        courant.min(diffusion)
    }
}
