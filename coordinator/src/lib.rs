//! The coordinator: contacts, merging, synchronising, splitting and the coupled step.
//!
//! [`Simulation::step`] is the algorithm of `docs/theory/coupling.md`, one call per phase. [`contacts`],
//! [`merging`], [`synchronise`], [`law`] and [`pairwise`] are its mathematics and know of no network.

mod checkpoint;
pub mod contacts;
mod error;
mod instruments;
pub mod law;
pub mod measure;
pub mod merging;
pub mod pairwise;
mod participant;
pub mod settings;
mod simulation;
mod state;
mod step;
pub mod synchronise;

pub use amalgam_meshes::Faces;
pub use amalgam_proto::contract::{FrameFiles, SnapshotFiles};
pub use checkpoint::{Checkpoint, ParticipantCheckpoint};
pub use error::{CoordinatorError, Loss};
pub use instruments::clocks::{CallSpan, Phase, PhaseSpan, Spans, Traffic};
pub use instruments::probes::ProbeSample;
pub use instruments::record::StepRecord;
pub use instruments::summary::{self, ParticipantSummary, Summary};
pub use participant::address::registry::{Registry, RegistryError};
pub use participant::address::{Address, dial};
pub use participant::connection::ParticipantPlan;
pub use settings::{
    CouplingSettings, DomainSettings, Fault, Inertia, ProbeSettings, Quantity, StagesMax, Synchronise,
    TimeSettings,
};
pub use simulation::joining::{Joining, new_run_id};
pub use simulation::{Cancel, FrameField, FrameWish, PARTICIPANTS_MAX, ParticipantFrame, Simulation};
pub use state::setup::Plan;
