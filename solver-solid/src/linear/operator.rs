//! Operator of a linear system: a linearised force, as a matrix that is never assembled.

use std::sync::Arc;

use amalgam_particles::DVec3;

use super::block::Block;
use super::multilevel::Region;
use super::partition::Partition;
use super::vectors::{Columns, Slice, Vector};

/// The version of an operator's matrix `dt` C + `square` K: matrices of equal versions are equal. Whatever
/// is computed from the matrix keeps the version beside it, and is computed again when the versions differ.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct OperatorVersion {
    /// Number of linearisations so far, which C and K depend on.
    pub(crate) linearisation: u64,
    /// Factor of C [s].
    pub(crate) dt: f64,
    /// Factor of K [s^2].
    pub(crate) square: f64,
}

/// A linearised force: its value at some positions, and its change with the velocities.
///
/// The linearised system of a step of length h is `M + h C + h^2 K`. An operator is the part `h C + h^2 K`,
/// which is symmetric and positive semi-definite.
pub(crate) trait Operator: Send + Sync {
    /// Version of the matrix, which [`Self::prepare`] and each linearisation change.
    fn version(&self) -> OperatorVersion;

    /// The rows that this rank has of the system. Rows below are its own, and places are as in
    /// `partition.rs`.
    fn partition(&self) -> &Arc<Partition>;

    /// Force [N] on the particle of row `i`, at the positions linearised at.
    fn force(&self, i: usize) -> DVec3;

    /// Makes the matrix `dt` C + `square` K, for factors `dt` [s] and `square` [s^2] as
    /// [`crate::section::Integrator::factors`] returns them. `square` is 0 where only the damping is needed.
    fn prepare(&mut self, dt: f64, square: f64);

    /// Visits the particles whose rows have a block for the particle at place `i`, by place; one may come
    /// twice. Of the neighbours of a ghost only own particles are visited for certain.
    fn visit_neighbours(&self, i: usize, visit: &mut dyn FnMut(u32));

    /// Particles for which the coarse grids of the preconditioner pay, as they are laid out.
    fn regions(&self) -> Vec<Region> {
        Vec::new()
    }

    /// Adds the diagonal 3x3 block of row `i` to `block` [kg], without the springs to neighbours that are
    /// `internal` to its group, by place.
    fn add_diagonal(&self, i: usize, internal: Option<&dyn Fn(u32) -> bool>, block: &mut Block);

    /// Takes the vector that [`Self::add_rows`] or [`Self::add_rounded`] multiplies next, and does the part
    /// of the product that cannot be computed row by row. With an exact vector and `wanted`, only the
    /// slices of sixteen rows that `wanted` marks need to be right. An exact vector has a value per row at
    /// [`crate::materials::Materials`], which bring it to places, and a value per place at a material. A
    /// rounded one has a value per place. Collective.
    fn set_operand(&mut self, u: Vector<'_>, wanted: Option<&[bool]>);

    /// Adds rows of the matrix times `u` to `image` [kg m/s], from the row `first` on, a multiple of
    /// sixteen. `u` is the vector of the last [`Self::set_operand`], by row.
    fn add_rows(&self, first: usize, u: &[DVec3], image: &mut [DVec3]);

    /// Adds rows of the rounded matrix times `u` to `image`, from the slice `first` on. The rounded matrix is
    /// symmetric, too.
    fn add_rounded(&self, first: usize, u: &Columns, image: &mut [Slice]);
}
