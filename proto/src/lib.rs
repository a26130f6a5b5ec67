//! The wire contract `amalgam.solver.v1`, and the one place where its wire types are checked and converted;
//! and `amalgam.coordinator.v1`, whose messages [`coordinator`] holds.
//!
//! [`v1`] holds the generated messages and the gRPC client and server. [`contract`] holds the calls as plain
//! Rust values; [`Call`] turns them into streams of messages and back, with every check on the way.

pub mod codec;
pub mod columns;
pub mod contract;
mod generated;
mod messages;
mod transport;

pub use columns::room;
pub use columns::room::{Known, Room};
pub use columns::{Columns, Packet, WireError};
pub use contract::Call;
pub use generated::{COORDINATOR_DESCRIPTORS, DESCRIPTORS, PROTOCOL_VERSION, coordinator, registry, v1};
pub use messages::{Incoming, Outgoing, call};
pub use transport::{CHUNK_BYTES, TransportLimits, gather, message_limit};
