//! What makes a service out of a particle solver: implement [`Solver`] and [`SolverProgram`], call [`serve`].
//!
//! `examples/balls.rs` is a whole participant on one page.

mod ids;
mod near;
mod own_contacts;
mod register;
mod section;
mod serve;
mod service;
mod session;
mod solver;
mod sums;

pub use amalgam_network::{Listen, SecurityOptions};
pub use register::Registration;
pub use section::{SectionError, parse as parse_section};
pub use serve::{ServeOptions, main, serve, serve_in_process};
pub use solver::{
    Answer, Deferred, Description, Field, FieldValues, Integration, Report, Solver, SolverError,
    SolverProgram, Stage, World,
};
