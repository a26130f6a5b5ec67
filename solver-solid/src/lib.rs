//! The solid solver: particles joined by springs and by bonds that break (peridynamics), loose grains, or
//! rigid bodies.
//!
//! [`SolidProgram`] reads a participant's section (`section.rs`), lays its bodies out as particles, springs
//! and bonds (`bodies/`) and builds a [`SolidSolver`] (`solver.rs`) a [`GrainSolver`] (`grains/solver.rs`) or
//! a [`RigidSolver`] (`rigid/solver.rs`).
//!
//! An implicit step of the [`SolidSolver`] linearises the materials (`materials/`) at the start-of-step
//! positions, reduces the linear system to one unknown per group and solves it with preconditioned conjugate
//! gradients (`linear/`). The [`GrainSolver`] sums the grains' attraction (`grains/gravity.rs`), explicitly.

mod bodies;
mod chunks;
mod finite;
mod grains;
mod linear;
mod materials;
pub mod measure;
mod rigid;
mod section;
mod solver;
mod spin;

use amalgam_solver_kit::{Description, Integration, SectionError, Solver, SolverProgram, World};

use section::Method;

pub use grains::solver::GrainSolver;
pub use rigid::solver::RigidSolver;
pub use solver::SolidSolver;

/// Solids as a program: the participant's key `method` chooses among the solvers of this crate.
#[derive(Clone, Copy, Debug, Default)]
pub struct SolidProgram;

impl SolverProgram for SolidProgram {
    fn describe(&self) -> Description {
        Description { name: "solid", version: env!("CARGO_PKG_VERSION"), integration: Integration::Implicit }
    }

    fn create(&self, section: &str, world: &World) -> Result<Box<dyn Solver>, Vec<SectionError>> {
        Ok(match section::method(section) {
            Some(Method::Grains) => Box::new(GrainSolver::from_section(section, world)?),
            Some(Method::Rigid) => Box::new(RigidSolver::from_section(section, world)?),
            // Without a method, the reading of the section says which methods there are.
            Some(Method::MassSpring | Method::Peridynamics) | None => {
                Box::new(SolidSolver::from_section(section, world)?)
            }
        })
    }
}
