//! The pressure: its system, the projection that solves it, and the preconditioner of that.

mod between_levels;
pub(super) mod gradient;
mod multigrid;
mod passes;
mod projection;
pub(super) mod separating_walls;
mod share;
mod system;

pub(super) use projection::{Limits, PressureSolver};
pub(super) use system::{BLOCK, RUN, Split, System, split_zeros};
