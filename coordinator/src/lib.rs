//! The coordinator: contacts, merging, synchronising, splitting and the coupled step.
//!
//! [`Simulation::step`] is the algorithm of `docs/method.md`, one call a phase. [`contacts`], [`merge`], [`split`] and
//! [`synchronise`] are its mathematics and know of no network.

mod clock;
pub mod contacts;
mod crossings;
mod error;
pub mod law;
pub mod merge;
pub mod methods;
mod participant;
mod probes;
pub mod quasi_newton;
mod roster;
pub mod settings;
mod simulation;
pub mod split;
mod step;
pub mod summary;
pub mod synchronise;

pub use error::CoordinatorError;
pub use participant::{Address, ParticipantPlan};
pub use probes::ProbeSample;
pub use settings::{
    CouplingSettings, DomainSettings, Fault, Inertia, MaxStages, ProbeSettings, Quantity, Synchronise,
    TimeSettings,
};
pub use simulation::{Cancel, FrameField, PARTICIPANTS_MAX, ParticipantFrame, Plan, Simulation};
pub use step::StepRecord;
pub use summary::{ParticipantSummary, Summary};
