//! Loose grains: a solver of their own, and the gravity between them.

pub(crate) mod gravity;
pub(crate) mod section;
mod share;
pub(crate) mod solver;
