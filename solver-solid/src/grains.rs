//! Loose grains: a solver of their own, and the gravity between them.

pub(crate) mod gravity;
pub(crate) mod solver;
