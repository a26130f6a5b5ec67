//! The kit that makes a service out of a particle solver: implement [`Solver`] and [`SolverProgram`], call
//! [`serve`].
//!
//! `examples/balls.rs` is a whole participant on one page.

mod alone;
mod error;
mod force;
mod ids;
mod joined;
pub mod log;
mod near;
mod section;
mod service;
mod snapshot;
mod solver;
mod sums;

pub use alone::rank_speed::{RankRound, RankSpeed};
pub use alone::{Alone, AloneGroups};
pub use amalgam_network::{Gate, Listen, Listening, Role, SecurityOptions, listen};
pub use amalgam_ranks::{Cell, Decomposition, ExactSum, Moves, Ranks, Sent};
pub use error::SolverError;
pub use force::drag::DragSettings;
pub use force::fields::Fields;
pub use force::{CenterForce, ForceSettings, IndenterForce, UniformForce};
pub use joined::{Members, Numbered, agreed, numbered};
pub use section::{SectionError, parse as parse_section, renamed_keys};
pub use service::rank_choice::RankChoice;
pub use service::register::Registration;
pub use service::serve::{
    ServeOptions, end_of_service, main, serve, serve_in_process, serve_routes, with_health_and_reflection,
};
pub use snapshot::{SnapshotReader, SnapshotWriter};
pub use solver::{
    Answer, Deferred, Description, Field, FieldValues, Integration, Report, Request, Solver, SolverProgram,
    World,
};
pub use sums::exact::sum_integers;
