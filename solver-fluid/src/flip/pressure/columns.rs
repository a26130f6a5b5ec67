//! Columns of a level of the multigrid: a number per cell, split by colour.

use amalgam_particles::lanes::LANES;

use crate::flip::grid::Grid;

/// Entries of one colour in a task.
pub(in crate::flip) const BLOCK: usize = 1024;
/// Number of successive cells that fill one vector of each colour.
pub(in crate::flip) const RUN: usize = 2 * LANES;

/// A column by colour: entry n stands at `n / 2` of the column `n % 2`, red (even) and black (odd).
pub(in crate::flip) type Split<T> = [Vec<T>; 2];

/// A column of default values for all cells.
pub(in crate::flip) fn split_zeros<T: Default + Clone>(grid: &Grid) -> Split<T> {
    [0, 1].map(|_| vec![T::default(); grid.len() / 2])
}
