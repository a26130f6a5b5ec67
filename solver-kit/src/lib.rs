//! The kit that makes a service out of a particle solver: implement [`Solver`] and [`SolverProgram`], call [`serve`].
//!
//! `examples/balls.rs` is a whole participant on one page.

mod alone;
mod drag;
mod exact;
mod fields;
mod force;
mod ghosts;
mod ids;
mod joined;
pub mod log;
mod near;
mod order;
mod own_contacts;
mod parts;
mod register;
mod section;
mod serve;
mod service;
mod session;
mod snapshot;
mod solver;
mod sums;

pub use alone::{Alone, AloneGroups};
pub use amalgam_network::{Gate, Listen, Listening, Role, SecurityOptions, listen};
pub use amalgam_ranks::{Cell, Cut, ExactSum, Moves, Ranks, Sent};
pub use drag::DragSettings;
pub use exact::sum_integers;
pub use fields::Fields;
pub use force::{CenterForce, ForceSettings, IndenterForce, UniformForce};
pub use joined::{Members, agreed};
pub use parts::RankChoice;
pub use register::Registration;
pub use section::{SectionError, parse as parse_section, renamed_keys};
pub use serve::{
    ServeOptions, end_of_service, main, serve, serve_in_process, serve_routes, with_health_and_reflection,
};
pub use snapshot::{SnapshotReader, SnapshotWriter};
pub use solver::{
    Answer, Deferred, Description, Field, FieldValues, Integration, Report, Solver, SolverError,
    SolverProgram, Stage, World,
};
