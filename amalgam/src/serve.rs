//! `amalgam serve`: a solver as a service.

use std::sync::Arc;

use amalgam_solver_fluid::FluidProgram;
use amalgam_solver_kit::SolverProgram;
use amalgam_solver_solid::SolidProgram;

use crate::{cli::ServeArgs, error::CommandError, scene::SolverKind};

impl SolverKind {
    /// The program that makes such solvers.
    pub fn program(self) -> Arc<dyn SolverProgram> {
        match self {
            Self::Solid => Arc::new(SolidProgram),
            Self::Fluid => Arc::new(FluidProgram),
        }
    }
}

/// Serves a solver until a signal or, with `--exit-with-stdin`, the end of standard input.
///
/// # Errors
/// If the address cannot be listened at.
pub fn serve(args: &ServeArgs) -> Result<(), CommandError> {
    let served = amalgam_solver_kit::serve(args.solver.program(), args.options.clone());
    served.map_err(|error| CommandError::Failed(format!("{error:#}")))
}
