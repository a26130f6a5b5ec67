//! State that the phases of a step work on: memory that outlives a step, working storage, contacts of the
//! contact law.

pub(crate) mod clock;
pub(crate) mod problem;
pub(crate) mod scratch;
pub(crate) mod surfaces;
