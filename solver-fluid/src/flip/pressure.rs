//! The pressure: its system, the projection that solves it, and the preconditioner of that.

mod multigrid;
mod projection;
mod system;

pub(super) use projection::{Limits, PressureSolver};
pub(super) use system::{BLOCK, RUN, Split, System, split_zeros};
