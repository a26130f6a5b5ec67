//! Those who look at a run while it goes on: progress, traces, metrics, followers of a service.

use amalgam_coordinator::{Simulation, Spans, StepRecord};

/// A run after a step.
pub struct Seen<'a> {
    /// What happened in the step.
    pub record: &'a StepRecord,
    /// The run.
    pub simulation: &'a Simulation,
    /// What passed since the step before; nothing unless somebody wants spans.
    pub spans: &'a Spans,
}

/// Somebody who looks at a run and changes nothing of it.
pub trait Watch: Send {
    /// Whether it reads [`Seen::spans`].
    fn wants_spans(&self) -> bool {
        false
    }

    /// After the run has come to its participants, at the start and after each loss.
    ///
    /// # Errors
    /// Why it cannot go on looking.
    fn begin(&mut self, _simulation: &Simulation) -> Result<(), String> {
        Ok(())
    }

    /// After each step.
    ///
    /// # Errors
    /// Why it cannot go on looking.
    fn step(&mut self, seen: &Seen<'_>) -> Result<(), String>;

    /// After a checkpoint of this many steps is on the disk.
    fn checkpoint(&mut self, _steps: u64) {}

    /// After a participant was lost, and all went back to the checkpoint of this many steps.
    fn recovered(&mut self, _steps: u64) {}

    /// At the end, with what passed after the last step.
    ///
    /// # Errors
    /// Why the end could not be told.
    fn end(&mut self, _spans: &Spans) -> Result<(), String> {
        Ok(())
    }
}

/// All who look at a run.
#[derive(Default)]
pub(super) struct Watchers(Vec<Box<dyn Watch>>);

impl Watchers {
    pub(super) fn new(watchers: Vec<Box<dyn Watch>>) -> Self {
        Self(watchers)
    }

    pub(super) fn begin(&mut self, simulation: &mut Simulation, tell: &dyn Fn(&str)) {
        if self.0.iter().any(|watcher| watcher.wants_spans()) {
            simulation.observe();
        }
        self.each(tell, |watcher| watcher.begin(simulation));
    }

    pub(super) fn step(&mut self, record: &StepRecord, simulation: &mut Simulation, tell: &dyn Fn(&str)) {
        let spans = simulation.take_spans();
        let seen = Seen { record, simulation, spans: &spans };
        self.each(tell, |watcher| watcher.step(&seen));
    }

    pub(super) fn checkpoint(&mut self, steps: u64) {
        self.0.iter_mut().for_each(|watcher| watcher.checkpoint(steps));
    }

    pub(super) fn recovered(&mut self, steps: u64) {
        self.0.iter_mut().for_each(|watcher| watcher.recovered(steps));
    }

    pub(super) fn end(&mut self, simulation: &mut Simulation, tell: &dyn Fn(&str)) {
        let spans = simulation.take_spans();
        self.each(tell, |watcher| watcher.end(&spans));
    }

    /// Lets each look. Who cannot go on is told of and looks no more: the run is not theirs to end.
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
