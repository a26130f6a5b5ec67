//! Names of particles.

/// A stable name of a particle inside its participant. It never changes and is never reused, wherever the
/// particle is stored; the coordinator orders particles by (participant, id).
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    bytemuck::Pod,
    bytemuck::Zeroable,
    serde::Deserialize,
    serde::Serialize,
)]
#[repr(transparent)]
pub struct ParticleId(pub u64);

impl ParticleId {
    /// Ids are below this limit, so that (participant, id) packs into 64 bits.
    pub const LIMIT: u64 = 1 << 48;
}

impl std::fmt::Display for ParticleId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
