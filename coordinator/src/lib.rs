//! Contacts, merging, synchronising, splitting and the coupled step.

pub mod contacts;
pub mod merge;
pub mod split;
