//! What makes a service out of a particle solver: implement [`Solver`] and [`SolverProgram`], call [`serve`].

mod section;
mod solver;

pub use section::{SectionError, parse as parse_section};
pub use solver::{
    Answer, Description, Field, FieldValues, Integration, Report, Solver, SolverError, SolverProgram, Stage, World,
};
