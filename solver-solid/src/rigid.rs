//! Rigid bodies: each turns and flies as one, whatever touches it.

pub(crate) mod rotation;
pub(crate) mod section;
pub(crate) mod solver;
