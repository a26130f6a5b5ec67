//! Messages, clients and servers that are generated from the `.proto` files, and their descriptors.

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
