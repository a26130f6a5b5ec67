//! Sizes of parallel tasks.

/// Bodies or contacts that one task works through.
pub(super) const CHUNK: usize = 1024;

/// Smallest number of contacts or bodies that is worth a second thread. With fewer, waking the thread takes
/// longer than their work.
pub(super) const SERIAL: usize = 2 * CHUNK;
