//! Observers of a run while it goes on: progress, traces, metrics, followers of a service.

use amalgam_coordinator::{Simulation, Spans, StepRecord};

/// A run after a step.
pub struct Seen<'a> {
    /// Record of the step.
    pub record: &'a StepRecord,
    /// The run.
    pub simulation: &'a Simulation,
    /// Spans since the last step; empty unless an observer wants spans.
    pub spans: &'a Spans,
}

/// Observer of a run. It changes nothing in the run.
pub trait Watch: Send {
    /// True if the observer reads [`Seen::spans`].
    fn wants_spans(&self) -> bool {
        false
    }

    /// Called when the run has come to its participants, at the start and after each loss.
    ///
    /// # Errors
    /// The reason why it cannot go on observing.
    fn begin(&mut self, _simulation: &Simulation) -> Result<(), String> {
        Ok(())
    }

    /// Called after each step.
    ///
    /// # Errors
    /// The reason why it cannot go on observing.
    fn step(&mut self, seen: &Seen<'_>) -> Result<(), String>;

    /// Called when a checkpoint of this number of steps is on the disk.
    fn checkpoint(&mut self, _steps: u64) {}

    /// Called when a participant was lost and all went back to the checkpoint of this number of steps.
    fn recovered(&mut self, _steps: u64) {}

    /// Called at the end, with the spans after the last step.
    ///
    /// # Errors
    /// Why the end could not be told.
    fn end(&mut self, _spans: &Spans) -> Result<(), String> {
        Ok(())
    }
}

/// All observers of a run.
#[derive(Default)]
pub(crate) struct Watchers(Vec<Box<dyn Watch>>);

impl Watchers {
    pub(crate) fn new(watchers: Vec<Box<dyn Watch>>) -> Self {
        Self(watchers)
    }

    pub(crate) fn begin(&mut self, simulation: &mut Simulation, tell: &dyn Fn(&str)) {
        if self.0.iter().any(|watcher| watcher.wants_spans()) {
            simulation.observe();
        }
        self.each(tell, |watcher| watcher.begin(simulation));
    }

    pub(crate) fn step(&mut self, record: &StepRecord, simulation: &mut Simulation, tell: &dyn Fn(&str)) {
        let spans = simulation.take_spans();
        let seen = Seen { record, simulation, spans: &spans };
        self.each(tell, |watcher| watcher.step(&seen));
    }

    pub(crate) fn checkpoint(&mut self, steps: u64) {
        self.0.iter_mut().for_each(|watcher| watcher.checkpoint(steps));
    }

    pub(crate) fn recovered(&mut self, steps: u64) {
        self.0.iter_mut().for_each(|watcher| watcher.recovered(steps));
    }

    pub(crate) fn end(&mut self, simulation: &mut Simulation, tell: &dyn Fn(&str)) {
        let spans = simulation.take_spans();
        self.each(tell, |watcher| watcher.end(&spans));
    }

    /// Calls each observer. One that fails is reported and dropped: it must not end the run.
    fn each(&mut self, tell: &dyn Fn(&str), mut look: impl FnMut(&mut dyn Watch) -> Result<(), String>) {
        self.0.retain_mut(|watcher| match look(watcher.as_mut()) {
            Ok(()) => true,
            Err(reason) => {
                tell(&format!("warning: {reason}"));
                false
            }
        });
    }
}
