//! Recovery from the loss of a participant: the participant comes back, and all participants go back to the
//! last checkpoint.

use std::time::{Duration, Instant};

use super::{
    RunError,
    keeper::Keeper,
    local::{Locals, StartError},
};
use crate::{
    checkpoint::{CheckpointError, Saved},
    scene::Scene,
};
use amalgam_coordinator::{Cancel, CoordinatorError, Joining, ParticipantPlan, Simulation, new_run_id};

/// A run ends after this many losses in a row between which it came no step farther.
const LOSSES_IN_VAIN_MAX: u32 = 5;

/// Connects a run to its participants, and again when one was lost.
pub(super) struct Recovery<'a> {
    scene: &'a Scene,
    participants: Vec<ParticipantPlan>,
    run_id: String,
    /// Number of times that the run has begun with its services.
    epoch: u64,
    /// Longest time to wait for a service that was lost, if the run goes back at all.
    reconnect: Option<Duration>,
    cancel: Cancel,
    /// Steps taken before any of the losses.
    farthest: u64,
    in_vain: u32,
    losses: u64,
}

impl<'a> Recovery<'a> {
    pub(super) fn new(
        scene: &'a Scene,
        participants: Vec<ParticipantPlan>,
        reconnect: Option<Duration>,
        cancel: Cancel,
    ) -> Self {
        let run_id = new_run_id(&scene.header.name);
        Self { scene, participants, run_id, epoch: 0, reconnect, cancel, farthest: 0, in_vain: 0, losses: 0 }
    }

    /// Unique name of the run.
    pub(super) fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Number of times that a participant was lost and came back.
    pub(super) fn losses(&self) -> u64 {
        self.losses
    }

    /// Joins all participants, under a new epoch; waits for services that the run did not start.
    pub(super) fn join(
        &mut self,
        wait: Duration,
        locals: &Locals,
        tell: &dyn Fn(&str),
    ) -> Result<Simulation, CoordinatorError> {
        for (plan, participant) in self.participants.iter_mut().zip(&self.scene.participants) {
            plan.wait = if locals.is_of_others(participant) { wait } else { Duration::ZERO };
        }
        self.epoch += 1;
        let joining = Joining { run_id: self.run_id.clone(), epoch: self.epoch, cancel: &self.cancel, tell };
        Simulation::join(self.scene.plan(), &self.participants, &joining)
    }

    /// Goes back after a loss that came when `steps` steps were taken. Returns a simulation in the state of
    /// the checkpoint.
    ///
    /// # Errors
    /// The loss itself if the run is not to go back, or the reason why it cannot.
    pub(super) fn go_back(
        &mut self,
        loss: CoordinatorError,
        steps: u64,
        locals: &mut Locals,
        keeper: &mut Keeper<'_>,
        tell: &dyn Fn(&str),
    ) -> Result<(Simulation, Saved), RunError> {
        let (Some(longest), Some(mut lost)) = (self.reconnect, loss.lost().map(str::to_string)) else {
            return Err(loss.into());
        };
        let loss = loss.to_string();
        tell(&loss);
        self.in_vain = if steps > self.farthest { 0 } else { self.in_vain + 1 };
        self.farthest = self.farthest.max(steps);
        let since = Instant::now();
        loop {
            if self.in_vain >= LOSSES_IN_VAIN_MAX {
                let reason = format!("{LOSSES_IN_VAIN_MAX} times in a row it came no step farther");
                return Err(RunError::NoWayBack { loss, reason });
            }
            let wait = longest.saturating_sub(since.elapsed());
            match self.try_once(&lost, wait, locals, keeper, tell) {
                Ok(back) => {
                    self.losses += 1;
                    let (seconds, step) = (since.elapsed().as_secs_f64(), back.1.checkpoint.steps);
                    tell(&format!("back at step {step} after {seconds:.1} s"));
                    return Ok(back);
                }
                Err(Hindrance::Coordinator(CoordinatorError::Cancelled)) => {
                    return Err(CoordinatorError::Cancelled.into());
                }
                Err(hindrance) => match hindrance.lost() {
                    Some(next) if since.elapsed() < longest => lost = next.to_string(),
                    _ => return Err(RunError::NoWayBack { loss, reason: hindrance.to_string() }),
                },
            }
            self.in_vain += 1;
        }
    }

    fn try_once(
        &mut self,
        lost: &str,
        wait: Duration,
        locals: &mut Locals,
        keeper: &mut Keeper<'_>,
        tell: &dyn Fn(&str),
    ) -> Result<(Simulation, Saved), Hindrance> {
        let saved = keeper.newest(tell)?;
        for name in locals.restart(self.scene, &mut self.participants, lost)? {
            tell(&format!("the solver of {name} was started again"));
        }
        let mut simulation = self.join(wait, locals, tell)?;
        simulation.restore(&saved.checkpoint)?;
        Ok((simulation, saved))
    }
}

/// Reasons for which a run did not come back to its last checkpoint.
#[derive(Debug, thiserror::Error)]
enum Hindrance {
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Coordinator(#[from] CoordinatorError),
}

impl Hindrance {
    /// The participant that was lost on the way back, if there was one.
    fn lost(&self) -> Option<&str> {
        if let Self::Coordinator(error) = self { error.lost() } else { None }
    }
}
