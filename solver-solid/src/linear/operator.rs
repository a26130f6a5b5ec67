//! Operator of a linear system: a linearised force, as a matrix that is never assembled.

use amalgam_particles::DVec3;

use super::block::Block;
use super::multilevel::Region;
use super::vectors::{Columns, Slice, Vector};

/// A force that was linearised: its value where it was, and how it changes with velocities.
///
/// The linearised system of a step of length h is `M + h C + h^2 K`; the part of an operator is `h C + h^2
/// K`, symmetric and positive semi-definite.
pub(crate) trait Operator: Send + Sync {
    /// Force [N] on particle `i`, at the positions linearised at.
    fn force(&self, i: usize) -> DVec3;

    /// Makes the matrix `dt` C + `square` K for steps of length `dt` [s]; `square` is dt^2 [s^2], or 0 for an
    /// explicit step, which only wants the damping.
    fn prepare(&mut self, dt: f64, square: f64);

    /// Visits the particles whose rows have a block for particle `i`, by index; one may come twice.
    fn visit_neighbours(&self, i: usize, visit: &mut dyn FnMut(u32));

    /// Particles for which the coarse grids of the preconditioner pay, as they are laid out.
    fn regions(&self) -> Vec<Region> {
        Vec::new()
    }

    /// Adds the diagonal 3x3 block of particle `i` to `block` [kg], without the springs to neighbours that
    /// are `internal` to its group.
    fn add_diagonal(&self, i: usize, internal: Option<&dyn Fn(u32) -> bool>, block: &mut Block);

    /// Takes the vector that [`Self::add_rows`] or [`Self::add_rounded`] will multiply, and does the work
    /// that is not done row by row. For an exact vector it does so only for the slices of sixteen rows in
    /// `wanted`, if given.
    fn set_operand(&mut self, u: Vector<'_>, wanted: Option<&[bool]>);

    /// Adds the rows `first..`, a multiple of sixteen, of the matrix times `u`, the vector loaded last, to
    /// `image` [kg m/s].
    fn add_rows(&self, first: usize, u: &[DVec3], image: &mut [DVec3]);

    /// The same rounded, in slices from the one numbered `first` on. The rounded matrix is symmetric too.
    fn add_rounded(&self, first: usize, u: &Columns, image: &mut [Slice]);
}
