//! The pressure: its system, the projection that solves it, and the preconditioner of that.

mod between_levels;
mod columns;
pub(super) mod gradient;
mod multigrid;
mod passes;
mod projection;
pub(super) mod separating_walls;
mod share;
mod system;

pub(super) use columns::{BLOCK, RUN, Split, split_zeros};
pub(super) use projection::{Limits, PressureSolver};
pub(super) use share::pressure_seen;
pub(super) use system::System;
