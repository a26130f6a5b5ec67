//! FLIP: the fluid-implicit-particle method [ZhuBridson2005].
//!
//! A step carries the particles' velocities to a staggered grid (`flip/transfer.rs`, `flip/grid.rs`), adds gravity,
//! makes the grid's velocities divergence-free in every cell that holds a particle of anyone (`flip/pressure.rs`), and
//! gives the change back to the particles, which then move with the grid's velocities (`flip/solver.rs`).
//!
//! Groups: members enter the transfer with their share of the group's inertia and with the group's velocity. What others
//! give the group is a force on the grid, added after the old grid velocity has been saved. Face densities are hybrid
//! (`docs/method.md`, section 4).

mod grid;
mod pressure;
pub mod section;
mod snapshot;
mod solver;
mod transfer;

use amalgam_particles::DVec3;

pub use solver::Flip;

/// Settings of a FLIP fluid.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// Edge of a cell [m].
    pub cell_size: f64,
    /// Density of the fluid [kg/m^3].
    pub rest_density: f64,
    /// Part of the new velocity that is the old one and the grid's change (FLIP); the rest is the grid's velocity (PIC).
    pub flip_share: f64,
    /// Residual of the pressure at which the solve ends, relative to the largest divergence.
    pub tolerance: f64,
    /// Iterations after which the solve is an error.
    pub max_iterations: u32,
    /// Cells that a particle may cross in a step.
    pub cfl: f64,
    /// Whether to ask which cells others occupy.
    pub occupancy: bool,
    /// Gravity [m/s^2].
    pub gravity: DVec3,
    /// Corners of the domain [m].
    pub domain: (DVec3, DVec3),
}

/// How near to a wall a particle may come, in cells.
const CLEARANCE: f64 = 1e-3;

impl Parameters {
    /// Cells along each axis.
    pub fn cells(&self) -> [usize; 3] {
        ((self.domain.1 - self.domain.0) / self.cell_size).round().to_array().map(|n| n as usize)
    }

    /// Where particles may be.
    fn inner_domain(&self) -> (DVec3, DVec3) {
        let clearance = DVec3::splat(CLEARANCE * self.cell_size);
        (self.domain.0 + clearance, self.domain.1 - clearance)
    }
}
