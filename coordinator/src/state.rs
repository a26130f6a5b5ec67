//! State that the phases of a step work on, by lifetime: the setup and the progress of a run, memory that
//! outlives a step, and working storage of a step with the contacts of the contact law.

pub(crate) mod clock;
pub(crate) mod memory;
pub(crate) mod order;
pub(crate) mod problem;
pub(crate) mod progress;
pub(crate) mod scratch;
pub(crate) mod setup;
pub(crate) mod surfaces;
