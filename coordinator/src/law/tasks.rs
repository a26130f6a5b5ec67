//! Sizes of parallel tasks.

/// Bodies or contacts that one task works through.
pub(super) const CHUNK: usize = 1024;

/// Fewer contacts or bodies are not worth a second thread: their cost is less than that of waking it.
pub(super) const SERIAL: usize = 8 * CHUNK;
