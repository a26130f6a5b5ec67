//! Ranks that share a participant: threads of one process, or processes under MPI.
//!
//! A rank owns a part of space and of the particles. Messages between ranks, sums over them, the cut of space
//! and moves of particles stand here. Nothing here knows physics or the wire. Everything a rank can learn
//! from the others is the same to the bit for every number of ranks, as long as callers use [`ExactSum`] for
//! sums that round.

mod alone;
mod backend;
mod bisect;
mod decomposition;
mod exact;
mod message;
mod moves;
#[cfg(feature = "mpi")]
mod mpi;
mod ranks;
mod threads;

pub use crate::{
    decomposition::{Cell, Decomposition},
    exact::ExactSum,
    moves::Moves,
    ranks::{Ranks, Sent},
};

#[cfg(feature = "mpi")]
pub use crate::mpi::MpiError;
