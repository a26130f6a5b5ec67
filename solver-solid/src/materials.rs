//! The contract of a material with the integrators: forces, and a linear operator that is never assembled.

pub(crate) mod peridynamics;
pub(crate) mod springs;

use amalgam_particles::{DVec3, Particles};
use amalgam_solver_kit::{Field, SolverError};

use crate::linear::block::Block;
use crate::linear::multilevel::Region;
use crate::linear::vectors::{Columns, Slice, Vector};

/// A material, which holds particles together. One solver sums over several: springs beside bonds.
///
/// The linearised system of a step of length h is `M + h C + h^2 K`; the material's part is `h C + h^2 K`, symmetric
/// and positive semi-definite.
pub(crate) trait Material: Send + Sync {
    /// Visits the particles that are joined to `i`, by index; one may come twice.
    fn visit_neighbours(&self, i: usize, visit: &mut dyn FnMut(u32));

    /// Whether two particles are joined, by index.
    fn joined(&self, a: u32, b: u32) -> bool;

    /// Particles for which the coarse grids of the preconditioner pay, as they are laid out.
    fn regions(&self) -> Vec<Region> {
        Vec::new()
    }

    /// Forces at these positions and, for an implicit step, everything of the operator that does not depend on its
    /// length.
    fn linearise(&mut self, position: &[DVec3], implicit: bool);

    /// Elastic force [N] on each particle, at the positions linearised at.
    fn force(&self) -> &[DVec3];

    /// Makes the operator `dt` C + `square` K for steps of length `dt` [s]; `square` is dt^2 [s^2], or 0 for an
    /// explicit step, which only wants the damping.
    fn prepare(&mut self, dt: f64, square: f64);

    /// Adds the diagonal 3x3 block of particle `i` to `block` [kg], without what joins it to neighbours that are
    /// `internal` to its group.
    fn add_diagonal(&self, i: usize, internal: Option<&dyn Fn(u32) -> bool>, block: &mut Block);

    /// Takes the vector that [`Self::add_rows`] or [`Self::add_rounded`] will multiply, and does what is not done row by
    /// row; of an exact vector only for the slices of sixteen rows that `wanted` has, if it is given.
    fn load(&mut self, u: Vector<'_>, wanted: Option<&[bool]>);

    /// Adds the rows `first..`, a multiple of sixteen, of the operator times `u`, the vector loaded last, to `image` [kg m/s].
    fn add_rows(&self, first: usize, u: &[DVec3], image: &mut [DVec3]);

    /// The same rounded, in slices from the one numbered `first` on. The rounded operator is symmetric too.
    fn add_rounded(&self, first: usize, u: &Columns, image: &mut [Slice]);

    /// Called when particles have moved: what breaks there; the pairs that are no longer joined.
    fn update(&mut self, _particles: &Particles, _implicit: bool) -> Result<Vec<[u32; 2]>, SolverError> {
        Ok(Vec::new())
    }

    /// Potential energies by name [J].
    fn energies(&self, position: &[DVec3]) -> Vec<(&'static str, f64)>;

    /// Fields for frames.
    fn fields(&self, position: &[DVec3]) -> Vec<Field>;

    /// Adds the surface of what tears: vertices [m], and triangles of them.
    fn add_surface(&self, _position: &[DVec3], _vertices: &mut Vec<DVec3>, _triangles: &mut Vec<[u32; 3]>) {}

    /// Longest step of an explicit integrator [s].
    fn stable_dt(&self, particles: &Particles) -> f64;

    /// The state beside positions and velocities, for a snapshot.
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes back what [`Self::save`] gave; false if that is not its own.
    fn restore(&mut self, snapshot: &[u8]) -> bool {
        snapshot.is_empty()
    }
}
