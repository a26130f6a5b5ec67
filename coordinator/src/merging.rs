//! Merging particles in contact into meta-particles, and splitting them again [Truong2021].

pub mod merge;
pub mod split;
