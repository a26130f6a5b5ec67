//! Connections of a server: how many there may be, and when one that does nothing ends.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Context;
use std::time::{Duration, Instant};

use amalgam_proto::TransportLimits;
use futures_util::task::AtomicWaker;

use crate::pace::{PATIENCE, time_for};

/// Time that a connection may be open without a call, unless it serves the run.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Time of silence after which a connection gives way to a new one, if all places are taken.
const GIVES_WAY_AFTER: Duration = Duration::from_secs(1);

/// Time between two looks at all connections.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The connections of a server. Clones share them.
#[derive(Clone, Default)]
pub struct Lines {
    open: Arc<Mutex<BTreeMap<u64, Arc<State>>>>,
    next: Arc<AtomicU64>,
}

impl Lines {
    /// Number of open connections.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// A place for a new connection. If there is none, the one that has been silent for longest gives way.
    pub(crate) fn admit(&self) -> Option<Place> {
        let mut open = self.lock();
        if open.len() >= TransportLimits::CONNECTIONS_MAX {
            let now = Instant::now();
            let silent = open.iter().filter_map(|(id, state)| Some((state.silent_for(now)?, *id))).max();
            let (_, id) = silent.filter(|(silence, _)| *silence >= GIVES_WAY_AFTER)?;
            open.remove(&id).expect("it was found there").end();
        }
        let (id, state) = (self.next.fetch_add(1, Ordering::Relaxed), Arc::new(State::default()));
        open.insert(id, Arc::clone(&state));
        Some(Place { id, state, lines: self.clone() })
    }

    /// Ends the connections that have been silent for too long, or on which a call or an answer does not
    /// move.
    pub(crate) fn look(&self, now: Instant) {
        let idle = |state: &State| state.silent_for(now).is_some_and(|silence| silence >= SILENCE_MAX);
        self.lock().retain(|_, state| {
            let stays = !idle(state) && !state.is_late(now);
            if !stays {
                state.end();
            }
            stays
        });
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<State>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// State of a connection.
struct State {
    /// True if calls on this connection belong to the run that is served; silence is then no fault.
    of_run: AtomicBool,
    ended: AtomicBool,
    waker: AtomicWaker,
    calls: Mutex<InProgress>,
}

struct InProgress {
    next: u64,
    /// Calls in progress, each with the time at which its answer must have been taken, if it is there.
    open: BTreeMap<u64, Option<Instant>>,
    /// Time at which the connection came, or at which the last of its calls ended.
    last: Instant,
}

impl Default for State {
    fn default() -> Self {
        let calls = InProgress { next: 0, open: BTreeMap::new(), last: Instant::now() };
        Self {
            of_run: AtomicBool::default(),
            ended: AtomicBool::default(),
            waker: AtomicWaker::new(),
            calls: Mutex::new(calls),
        }
    }
}

impl State {
    fn calls(&self) -> MutexGuard<'_, InProgress> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time since the last call. `None` during a call, and for a connection of the run that is served.
    fn silent_for(&self, now: Instant) -> Option<Duration> {
        let calls = self.calls();
        let is_free = calls.open.is_empty() && !self.of_run.load(Ordering::Relaxed);
        is_free.then(|| now.saturating_duration_since(calls.last))
    }

    /// True if the client should have taken an answer by now.
    fn is_late(&self, now: Instant) -> bool {
        self.calls().open.values().flatten().any(|deadline| *deadline <= now)
    }

    fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// The place of a connection among all.
pub(crate) struct Place {
    id: u64,
    state: Arc<State>,
    lines: Lines,
}

impl Place {
    /// True if the server has ended the connection. If the server ends it later, the task is woken.
    pub(crate) fn is_ended(&self, cx: &Context<'_>) -> bool {
        self.state.waker.register(cx.waker());
        self.state.ended.load(Ordering::Acquire)
    }

    pub(crate) fn caller(&self) -> Caller {
        Caller { state: Arc::clone(&self.state), lines: self.lines.clone() }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lines.lock().remove(&self.id);
    }
}

/// The connection on which a call came, kept among the extensions of each request.
#[derive(Clone)]
pub struct Caller {
    state: Arc<State>,
    lines: Lines,
}

impl Caller {
    /// Begins a call that the service carries out; it lasts until the value is dropped.
    pub fn call(&self) -> OpenCall {
        let mut calls = self.state.calls();
        let id = calls.next;
        calls.next += 1;
        calls.open.insert(id, None);
        drop(calls);
        OpenCall { id, caller: self.clone() }
    }

    /// Notes that a call belonged to the run that is served: this connection may be silent from now on.
    pub fn is_of_run(&self) {
        self.state.of_run.store(true, Ordering::Relaxed);
    }

    /// Notes that a call began a run: from now on this connection alone may be silent.
    pub fn begins_run(&self) {
        for state in self.lines.lock().values() {
            state.of_run.store(false, Ordering::Relaxed);
        }
        self.is_of_run();
    }
}

/// A call in progress.
pub struct OpenCall {
    id: u64,
    caller: Caller,
}

impl OpenCall {
    /// The connection of the call.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Notes that the answer is ready: the client must take its bytes within [`PATIENCE`] and the time that
    /// they need.
    pub fn answers(&self, bytes: u64) {
        let deadline = Instant::now() + PATIENCE + time_for(bytes);
        self.caller.state.calls().open.insert(self.id, Some(deadline));
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let mut calls = self.caller.state.calls();
        calls.open.remove(&self.id);
        calls.last = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ended(place: &Place) -> bool {
        place.state.ended.load(Ordering::Relaxed)
    }

    #[test]
    fn a_silent_connection_ends_and_one_of_the_run_stays() {
        let lines = Lines::default();
        let (silent, calls, of_run) = (
            lines.admit().expect("a place"),
            lines.admit().expect("a place"),
            lines.admit().expect("a place"),
        );
        let call = calls.caller().call();
        of_run.caller().is_of_run();
        let later = Instant::now() + SILENCE_MAX + Duration::from_secs(1);
        lines.look(Instant::now());
        assert_eq!(lines.count(), 3);
        lines.look(later);
        assert!(is_ended(&silent) && !is_ended(&calls) && !is_ended(&of_run));
        // The client does not take its answer; a longer answer gets more time.
        call.answers(100 * crate::RATE_MIN);
        lines.look(later + PATIENCE);
        assert!(!is_ended(&calls));
        lines.look(later + PATIENCE + Duration::from_secs(100));
        assert!(is_ended(&calls) && !is_ended(&of_run));
        // Another connection begins a run.
        lines.admit().expect("a place").caller().begins_run();
        lines.look(later + PATIENCE);
        assert!(is_ended(&of_run));
    }

    #[test]
    fn silent_connections_lock_nobody_out() {
        let lines = Lines::default();
        let places: Vec<Place> = std::iter::from_fn(|| lines.admit()).collect();
        assert_eq!(places.len(), TransportLimits::CONNECTIONS_MAX);
        std::thread::sleep(GIVES_WAY_AFTER);
        let newcomer = lines.admit().expect("one gives way");
        assert!(is_ended(&places[0]) && !is_ended(&places[1]));
        assert_eq!(lines.count(), TransportLimits::CONNECTIONS_MAX);
        drop((places, newcomer));
        assert_eq!(lines.count(), 0);
    }
}
