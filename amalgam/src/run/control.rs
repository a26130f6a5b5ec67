//! The handle by which others end, hold and save a run.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use amalgam_coordinator::Cancel;

/// Requests of others to a run. Clones refer to the same run.
#[derive(Clone, Default)]
pub struct Control(Arc<Requests>);

#[derive(Default)]
struct Requests {
    wishes: Mutex<Wishes>,
    changed: Condvar,
    cancel: Cancel,
    at_end: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

#[derive(Default)]
struct Wishes {
    stop: bool,
    hold: bool,
    checkpoint: bool,
    /// True if the run stands still.
    is_held: bool,
}

/// Next action of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Next {
    /// The next step, after it was held for this time.
    Step(Duration),
    /// A checkpoint.
    Checkpoint,
    /// The end.
    Stop,
}

impl Control {
    /// Ends the run after its current step, with a checkpoint; one that waits for its solvers, at once.
    pub fn stop(&self) {
        self.wish(|wishes| wishes.stop = true);
        self.0.cancel.cancel();
    }

    /// Holds the run after its current step.
    pub fn pause(&self) {
        self.wish(|wishes| wishes.hold = true);
    }

    /// Lets a run go on that was held.
    pub fn go_on(&self) {
        self.wish(|wishes| wishes.hold = false);
    }

    /// Has a checkpoint written after the current step, also while the run is held.
    pub fn save(&self) {
        self.wish(|wishes| wishes.checkpoint = true);
    }

    /// True if the run was asked to end.
    pub fn is_stopped(&self) -> bool {
        self.lock().stop
    }

    /// True if the run stands still.
    pub fn is_held(&self) -> bool {
        self.lock().is_held
    }

    /// Adds an action for the case that the process must end at once.
    pub(crate) fn at_end(&self, action: impl FnOnce() + Send + 'static) {
        self.0.at_end.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(action));
    }

    /// Takes the actions of [`Self::at_end`].
    pub(crate) fn end(&self) {
        let mut actions = self.0.at_end.lock().unwrap_or_else(PoisonError::into_inner);
        actions.drain(..).for_each(|action| action());
    }

    /// Handle that makes the coordinator stop waiting for connections.
    pub(crate) fn cancel(&self) -> &Cancel {
        &self.0.cancel
    }

    /// Next action of the run. Waits while the run is held.
    pub(crate) fn next(&self) -> Next {
        let mut wishes = self.lock();
        let since = Instant::now();
        let next = loop {
            if wishes.stop {
                break Next::Stop;
            }
            if std::mem::take(&mut wishes.checkpoint) {
                break Next::Checkpoint;
            }
            if !wishes.hold {
                let held = if wishes.is_held { since.elapsed() } else { Duration::ZERO };
                break Next::Step(held);
            }
            wishes.is_held = true;
            wishes = self.0.changed.wait(wishes).unwrap_or_else(PoisonError::into_inner);
        };
        if next != Next::Checkpoint {
            wishes.is_held = false;
        }
        next
    }

    fn wish(&self, change: impl FnOnce(&mut Wishes)) {
        change(&mut self.lock());
        self.0.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Wishes> {
        self.0.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_nobody_controls_goes_on() {
        assert_eq!(Control::default().next(), Next::Step(Duration::ZERO));
    }

    #[test]
    fn a_held_run_saves_when_asked_and_goes_on_when_let() {
        let control = Control::default();
        control.pause();
        control.save();
        assert_eq!(control.next(), Next::Checkpoint);
        let other = control.clone();
        let thread = std::thread::spawn(move || other.next());
        while !control.is_held() {
            std::thread::yield_now();
        }
        assert!(!thread.is_finished());
        control.go_on();
        assert!(matches!(thread.join().expect("ends"), Next::Step(_)));
        assert!(!control.is_held());
    }

    #[test]
    fn what_is_to_end_is_not_held() {
        let control = Control::default();
        control.pause();
        control.stop();
        assert_eq!(control.next(), Next::Stop);
        assert!(control.cancel().is_cancelled());
    }
}
