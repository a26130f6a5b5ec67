//! `amalgam serve`: a solver or the coordinator as a service.

use std::sync::Arc;

use amalgam_solver_fluid::FluidProgram;
use amalgam_solver_kit::SolverProgram;
use amalgam_solver_solid::SolidProgram;

use crate::{
    cli::{ServeArgs, ServedKind},
    error::CommandError,
    scene::SolverKind,
    service,
};

impl SolverKind {
    /// The program that makes solvers of this kind.
    pub fn program(self) -> Arc<dyn SolverProgram> {
        match self {
            Self::Solid => Arc::new(SolidProgram),
            Self::Fluid => Arc::new(FluidProgram),
        }
    }
}

/// Serves until a signal or, with `--exit-with-stdin`, the end of standard input.
///
/// # Errors
/// If the address cannot be listened at.
pub fn serve(args: &ServeArgs) -> Result<(), CommandError> {
    let (kind, options) = match &args.what {
        ServedKind::Solid(options) => (SolverKind::Solid, options),
        ServedKind::Fluid(options) => (SolverKind::Fluid, options),
        ServedKind::Coordinator(args) => return service::serve(args),
    };
    let served = amalgam_solver_kit::serve(kind.program(), options.clone());
    served.map_err(|error| CommandError::Failed(format!("{error:#}")))
}
