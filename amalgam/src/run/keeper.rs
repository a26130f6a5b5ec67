//! Checkpoints while a run goes on: when they are due, and how to go on from the last one.

use std::{path::Path, time::Instant};

use super::{RunError, recorder::Recorder};
use crate::{
    checkpoint::{CheckpointError, Saved, Store, every::Every},
    folder::Folder,
    scene::Scene,
};
use amalgam_coordinator::{Phase, Simulation};

/// Writes the checkpoints of a run.
pub(super) struct Keeper<'a> {
    scene: &'a Scene,
    store: Store,
    every: Option<Every>,
    keep: u32,
    /// Time at which the last checkpoint was written, or the run began.
    since: Instant,
    /// Number of steps of the last whole checkpoint.
    last: Option<u64>,
}

impl<'a> Keeper<'a> {
    /// Keeper of a run; `last` is the number of steps of the checkpoint that the run goes on from.
    pub(super) fn new(
        scene: &'a Scene,
        folder: &Folder,
        every: Option<Every>,
        keep: u32,
        last: Option<u64>,
    ) -> Self {
        Self { scene, store: Store::new(folder.path()), every, keep, since: Instant::now(), last }
    }

    /// True if checkpoints are wanted while the run goes on.
    pub(super) fn is_wanted(&self) -> bool {
        self.every.is_some()
    }

    /// True if a checkpoint is due after this many steps.
    pub(super) fn is_due(&self, steps: u64) -> bool {
        self.every.as_ref().is_some_and(|every| every.is_due(steps, self.since.elapsed()))
    }

    /// Writes a checkpoint.
    pub(super) fn keep(
        &mut self,
        simulation: &mut Simulation,
        recorder: &mut Recorder,
    ) -> Result<(), RunError> {
        self.since = Instant::now();
        let files = self.store.begin(simulation.steps())?;
        let checkpoint = simulation.checkpoint(&files);
        if checkpoint.is_err() {
            // The error that matters is the first.
            let _ = self.store.tidy();
        }
        let checkpoint = checkpoint?;
        let steps = checkpoint.steps;
        let start = Instant::now();
        let saved =
            Saved { checkpoint, output: recorder.state()?, every: self.every.clone(), keep: self.keep };
        self.store.write(self.scene, &saved)?;
        simulation.count(Phase::Files, start);
        self.last = Some(steps);
        Ok(())
    }

    /// The newest checkpoint that is whole; later ones are reported.
    pub(super) fn newest(&mut self, tell: &dyn Fn(&str)) -> Result<Saved, CheckpointError> {
        let (saved, skipped) = self.store.newest(self.scene)?;
        skipped.iter().for_each(|reason| tell(&format!("warning: a checkpoint is left out: {reason}")));
        self.last = Some(saved.checkpoint.steps);
        Ok(saved)
    }

    /// The last checkpoint's number of steps.
    pub(super) fn last(&self) -> Option<u64> {
        self.last
    }

    /// The command that goes on from the last checkpoint.
    pub(super) fn command(&self, folder: &Path) -> Option<String> {
        let path = folder.display().to_string();
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        let path = if path.chars().all(plain) { path } else { format!("'{}'", path.replace('\'', r"'\''")) };
        self.last.map(|_| format!("amalgam resume {path}"))
    }
}
