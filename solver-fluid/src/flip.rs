//! FLIP: the fluid-implicit-particle method [ZhuBridson2005].
//!
//! The phases of a sub-step, in the words of [Bridson2015], and where they are:
//!
//! | phase | file |
//! | --- | --- |
//! | particle to grid | `flip/particle_to_grid.rs`, what groups add in `flip/group_members.rs` |
//! | viscosity | `flip/viscosity.rs` |
//! | body forces | `flip/forces.rs` |
//! | what obstacles leave open, particles kept off them | `flip/grid/cut_cells.rs` and below |
//! | walls that let go | `flip/pressure/separating_walls.rs` |
//! | pressure projection | `flip/pressure.rs` and below |
//! | extrapolation into the air | `flip/face_velocity/extrapolation.rs` |
//! | grid to particle, advection | `flip/grid_to_particle.rs`, `flip/solver.rs` |
//! | density correction | `flip/density_correction.rs` |
//!
//! The velocities at faces go through all of these phases: `flip/face_velocity.rs`. The solver's data by role,
//! and what a snapshot holds, are in `flip/solver.rs` and `flip/state.rs`.
//!
//! Members enter the transfer with their part of their group's inertia and with the group's velocity. The
//! impulse that others give the group is a force on the grid, added after the old grid velocity has been
//! saved. `docs/theory/flip.md`, "A step", says which densities faces have.

mod arithmetic;
mod cell;
mod density_correction;
mod face_velocity;
mod forces;
mod grid;
mod grid_to_particle;
mod group_members;
mod particle_to_grid;
mod pressure;
pub mod section;
mod slab;
mod solver;
mod state;
mod viscosity;

use amalgam_particles::{DVec3, Obstacle, ParticleId, random};
use amalgam_solver_kit::Fields;

use crate::sources::Sources;

pub use solver::FlipMethod;

/// A FLIP fluid as a participant.
pub type Flip = crate::fluid::Fluid<FlipMethod>;

/// Settings of a FLIP fluid.
#[derive(Clone, Debug)]
pub struct FlipParameters {
    /// Edge of a cell [m].
    pub cell_size: f64,
    /// Density of the fluid [kg/m^3].
    pub rest_density: f64,
    /// Edge of the volume that a particle stands for [m].
    pub spacing: f64,
    /// Mass of a particle [kg].
    pub particle_mass: f64,
    /// Collision radius of a particle [m].
    pub radius: f64,
    /// Emitters and sinks, as they are at the start.
    pub sources: Sources,
    /// Winds, layers that damp, and fields of force.
    pub fields: Fields,
    /// Largest initial displacement of a particle from its place in the lattice along each axis, in spacings.
    /// In a stretched lattice, particles stay in its sheets.
    pub jitter: f64,
    /// Seed of the jitter.
    pub seed: u64,
    /// Part of FLIP in the new velocity, 0 to 1. FLIP is a particle's old velocity plus the grid's change.
    /// The rest is PIC, the grid's velocity.
    pub flip_ratio: f64,
    /// Dynamic viscosity [Pa s].
    pub viscosity: f64,
    /// At which walls the fluid sticks, by axis, the lower one first.
    pub no_slip: [[bool; 2]; 3],
    /// Residual of the pressure at which the solve ends, relative to the largest divergence.
    pub tolerance: f64,
    /// Iterations after which the solve is an error.
    pub iterations_max: u32,
    /// Cells that a particle may cross in a sub-step.
    pub cfl: f64,
    /// Sub-steps in the longest step.
    pub substeps_max: u32,
    /// True if the solver asks which cells others occupy.
    pub occupancy: bool,
    /// Obstacles in the domain.
    pub obstacles: Vec<Obstacle>,
    /// Gravity [m/s^2].
    pub gravity: DVec3,
    /// Corners of the domain [m].
    pub domain: (DVec3, DVec3),
}

/// Least distance between a particle and a wall or an obstacle, in cells.
const CLEARANCE: f64 = 1e-3;

impl FlipParameters {
    /// Cells along each axis.
    pub fn cells(&self) -> [usize; 3] {
        ((self.domain.1 - self.domain.0) / self.cell_size).round().to_array().map(|n| n as usize)
    }

    /// Particles in a cell at rest density.
    fn full(&self) -> f64 {
        (self.cell_size / self.spacing).powi(3)
    }

    /// Initial position of the particle whose place in the lattice is `place` [m].
    fn jittered(&self, id: ParticleId, place: DVec3) -> DVec3 {
        let noise = |axis| 2.0 * random::uniform_f64(&[self.seed, id.0, axis]) - 1.0;
        let (low, high) = self.inner_domain();
        let moved = place + self.jitter * self.spacing * DVec3::from_array([0, 1, 2].map(noise));
        moved.max(low).min(high)
    }

    /// Box that particles may not leave.
    fn inner_domain(&self) -> (DVec3, DVec3) {
        let clearance = DVec3::splat(CLEARANCE * self.cell_size);
        (self.domain.0 + clearance, self.domain.1 - clearance)
    }
}
