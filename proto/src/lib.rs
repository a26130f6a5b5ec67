//! The wire contract `amalgam.solver.v1`, and the one place where its wire types are checked and converted; and
//! `amalgam.coordinator.v1`, whose messages [`coordinator`] holds.
//!
//! [`v1`] holds the generated messages and the gRPC client and server. [`contract`] holds the calls as plain Rust
//! values; [`Call`] turns them into streams of messages and back, with every check on the way.

pub mod codec;
pub mod columns;
pub mod contract;
mod messages;
mod transport;

pub use columns::room;
pub use columns::room::{Known, Room};
pub use columns::{Columns, Packet, WireError};
pub use contract::Call;
pub use messages::{Incoming, Outgoing, call};
pub use transport::{CHUNK_BYTES, TransportLimits, gather, message_limit};

/// Version of the contract.
pub const PROTOCOL_VERSION: u32 = 2;

/// Generated from `amalgam/solver/v1/solver.proto`.
#[allow(missing_docs, clippy::all, unreachable_pub)]
pub mod v1 {
    tonic::include_proto!("amalgam.solver.v1");
}

/// Generated from `amalgam/registry/v1/registry.proto`.
#[allow(missing_docs, clippy::all, unreachable_pub)]
pub mod registry {
    tonic::include_proto!("amalgam.registry.v1");
}

/// Generated from `amalgam/coordinator/v1/coordinator.proto`.
#[allow(missing_docs, clippy::all, unreachable_pub)]
pub mod coordinator {
    tonic::include_proto!("amalgam.coordinator.v1");
}

/// The compiled descriptors of `amalgam.solver.v1`, for server reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/solver.bin"));

/// The compiled descriptors of `amalgam.coordinator.v1`.
pub const COORDINATOR_DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/coordinator.bin"));
