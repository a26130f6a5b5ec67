//! Viscosity: a file for each way in which pairs of particles drag each other.
//!
//! Each sums pressure and viscosity of a pair together, because they share the kernel's value.

mod artificial;
mod morris;
mod mueller;
mod xsph;

pub(super) use artificial::Artificial;
pub(super) use morris::Laminar;
pub(super) use mueller::Mueller;
pub(super) use xsph::Xsph;
