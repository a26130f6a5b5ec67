//! Cases of a test on as many threads as there are cores.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Calls `check` for each case. The result of the first that panics is passed on, after the others have ended.
pub(crate) fn at_once<T: Sync>(cases: &[T], check: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            check(case);
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let ended: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..cores.min(cases.len())).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    ended.into_iter().for_each(|end| end.unwrap_or_else(|panic| resume_unwind(panic)));
}
