//! Tests of ranks together: on threads, and under MPI with the feature `mpi`.

#![allow(clippy::unwrap_used)]

mod common;
mod cut;
mod ends;
mod messages;
mod workload;
