//! Threads that act as ranks, for tests.

use std::thread;

use amalgam_ranks::Ranks;

/// Numbers of ranks to test with.
pub(crate) const SIZES: [usize; 5] = [1, 2, 3, 5, 8];

/// The answers of `size` ranks that all do the same.
pub(crate) fn on_ranks<T: Send>(size: usize, work: impl Fn(&Ranks) -> T + Sync) -> Vec<T> {
    let work = &work;
    thread::scope(|scope| {
        let rank = |ranks: Ranks| scope.spawn(move || work(&ranks));
        let threads: Vec<_> = Ranks::threads(size).into_iter().map(rank).collect();
        threads.into_iter().map(|thread| thread.join().expect("a rank")).collect()
    })
}

/// Random bits for a purpose named by `key`: SplitMix64, folded.
pub(crate) fn bits(key: &[u64]) -> u64 {
    key.iter().fold(7, |state: u64, &word| {
        let x = (state ^ word.wrapping_mul(0xd134_2543_de82_ef95)).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    })
}
