//! The fluid solver: a participant made of fluid, by smoothed particle hydrodynamics ([`sph`]) or FLIP
//! ([`flip`]).
//!
//! [`FluidProgram`] reads the method from a participant's section of the scene ([`section`]). It builds the
//! solver, a [`fluid::Fluid`] around the method. Each method has a section of its own.

mod cell_order;
mod filling;
pub mod flip;
pub mod fluid;
mod groups;
mod ranks;
pub mod section;
pub mod sources;
pub mod sph;
mod substeps;

use section::Method;

use amalgam_solver_kit::{Description, Integration, SectionError, Solver, SolverProgram, World};

/// The program `fluid`.
#[derive(Clone, Copy, Debug, Default)]
pub struct FluidProgram;

impl SolverProgram for FluidProgram {
    fn wants_obstacles(&self) -> bool {
        true
    }

    fn describe(&self) -> Description {
        Description { name: "fluid", version: env!("CARGO_PKG_VERSION"), integration: Integration::Explicit }
    }

    fn create(&self, section: &str, world: &World) -> Result<Box<dyn Solver>, Vec<SectionError>> {
        Ok(match section::method(section)? {
            Method::Sph => {
                let (parameters, particles) = sph::section::read(section, world)?;
                Box::new(sph::Sph::new(parameters, particles))
            }
            Method::Flip => {
                let (parameters, particles) = flip::section::read(section, world)?;
                Box::new(flip::Flip::new(parameters, particles))
            }
        })
    }
}
