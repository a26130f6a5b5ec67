//! Loose grains: a solver of their own, and the gravity between them.

pub(crate) mod gravity;
mod share;
pub(crate) mod solver;
