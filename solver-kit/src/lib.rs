//! What makes a service out of a particle solver: implement [`Solver`] and [`SolverProgram`], call [`serve`].
//!
//! `examples/balls.rs` is a whole participant on one page.

mod ids;
mod near;
mod own_contacts;
mod section;
mod serve;
mod service;
mod session;
mod solver;
mod sums;

pub use section::{SectionError, parse as parse_section, renamed_keys};
pub use serve::{Listen, ServeOptions, main, serve, serve_in_process};
pub use solver::{
    Answer, Deferred, Description, Field, FieldValues, Integration, Report, Solver, SolverError,
    SolverProgram, Stage, World,
};
