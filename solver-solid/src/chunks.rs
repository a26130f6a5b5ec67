//! Sizes of the pieces into which loops over particles are cut.

/// Particles whose rows one task works on, one after the other. Sums over particles are formed per chunk and
/// the chunks added in order, so that no result depends on the number of threads.
pub(crate) const CHUNK: usize = 512;

/// Chunks below which a loop is not split between threads: waking a thread costs more than they take.
pub(crate) const CHUNKS_PER_TASK: usize = 2;
