//! The pressure of particles.
//!
//! There is one solver: the pressure follows from the density by an equation of state, so that the fluid is
//! weakly compressible. `docs/theory/sph.md` says what another one needs.

pub mod equation_of_state;
pub(super) mod hydrostatic;
