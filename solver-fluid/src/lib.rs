//! The fluid solver: a participant made of fluid, by smoothed particle hydrodynamics.
//!
//! [`FluidProgram`] reads a participant's section of the scene ([`section`]) and builds the solver from it. See
//! [`sph`] for the method.

mod filling;
pub mod flip;
pub mod section;
pub mod sources;
pub mod sph;
mod substeps;

use amalgam_solver_kit::{Description, Integration, SectionError, Solver, SolverProgram, World};

/// The program `fluid`.
#[derive(Clone, Copy, Debug, Default)]
pub struct FluidProgram;

impl SolverProgram for FluidProgram {
    fn describe(&self) -> Description {
        Description { name: "fluid", version: env!("CARGO_PKG_VERSION"), integration: Integration::Explicit }
    }

    fn create(&self, section: &str, world: &World) -> Result<Box<dyn Solver>, Vec<SectionError>> {
        // What is no TOML, or has no method, is told by the reader of the default method.
        let method = section.parse::<toml::Table>().ok().and_then(|table| table.get("method").cloned());
        if method.as_ref().and_then(toml::Value::as_str) == Some("flip") {
            let (parameters, particles) = flip::section::read(section, world)?;
            return Ok(Box::new(flip::Flip::new(parameters, particles)));
        }
        let (parameters, particles) = section::read(section, world)?;
        Ok(Box::new(sph::Sph::new(parameters, particles)))
    }
}
