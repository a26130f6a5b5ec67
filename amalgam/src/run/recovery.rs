//! What a run does when it loses a participant: the participant comes back, and all of them go back to the last checkpoint.

use std::time::{Duration, Instant};

use super::{RunError, keeper::Keeper, local::Locals};
use crate::{
    checkpoint::Saved,
    scene::{Scene, Served},
};
use amalgam_coordinator::{Cancel, CoordinatorError, Joining, ParticipantPlan, Simulation, new_run_id};

/// Losses in a row, without a step that was not taken before, after which a run ends.
const LOSSES_IN_VAIN_MAX: u32 = 5;

/// How a run comes to its participants, and again when one was lost.
pub(super) struct Recovery<'a> {
    scene: &'a Scene,
    participants: Vec<ParticipantPlan>,
    run_id: String,
    /// How often the run has begun with its services.
    epoch: u64,
    /// Longest time to wait for a service that was lost, if the run goes back at all.
    reconnect: Option<Duration>,
    cancel: &'a Cancel,
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
        cancel: &'a Cancel,
    ) -> Self {
        let run_id = new_run_id(&scene.header.name);
        Self { scene, participants, run_id, epoch: 0, reconnect, cancel, farthest: 0, in_vain: 0, losses: 0 }
    }

    /// How often a participant was lost and came back.
    pub(super) fn losses(&self) -> u64 {
        self.losses
    }

    /// Comes to all participants, under a new epoch; services that the run did not start are waited for.
    pub(super) fn join(
        &mut self,
        wait: Duration,
        tell: &dyn Fn(&str),
    ) -> Result<Simulation, CoordinatorError> {
        for (plan, participant) in self.participants.iter_mut().zip(&self.scene.participants) {
            plan.wait = match participant.served {
                Served::At(_) => wait,
                Served::Locally(_) => Duration::ZERO,
            };
        }
        self.epoch += 1;
        let joining = Joining { run_id: self.run_id.clone(), epoch: self.epoch, cancel: self.cancel, tell };
        Simulation::join(self.scene.plan(), &self.participants, &joining)
    }

    /// Goes back after a loss that came when `steps` steps were taken: a simulation that is as it was at the checkpoint.
    ///
    /// # Errors
    /// The loss itself if the run is not to go back, or why it cannot.
    pub(super) fn go_back(
        &mut self,
        loss: CoordinatorError,
        steps: u64,
        locals: &mut Locals,
        keeper: &mut Keeper<'_>,
        tell: &dyn Fn(&str),
    ) -> Result<(Simulation, Saved), RunError> {
        let (Some(longest), Some(lost)) = (self.reconnect, loss.lost().map(str::to_string)) else {
            return Err(loss.into());
        };
        tell(&loss.to_string());
        let no_way = |loss, reason: String| Err(RunError::NoWayBack { loss, reason });
        self.in_vain = if steps > self.farthest { 1 } else { self.in_vain + 1 };
        self.farthest = self.farthest.max(steps);
        if self.in_vain > LOSSES_IN_VAIN_MAX {
            return no_way(loss, format!("{LOSSES_IN_VAIN_MAX} times in a row no step more was taken"));
        }
        let (since, mut lost) = (Instant::now(), lost);
        loop {
            let saved = match keeper.newest(tell) {
                Ok(saved) => saved,
                Err(error) => return no_way(loss, error.to_string()),
            };
            let started = match locals.restart(self.scene, &mut self.participants, &lost) {
                Ok(started) => started,
                Err(error) => return no_way(loss, error.to_string()),
            };
            let joined = self.join(longest.saturating_sub(since.elapsed()), tell);
            let restored = joined.and_then(|mut simulation| {
                simulation.restore(&saved.checkpoint)?;
                Ok(simulation)
            });
            match restored {
                Ok(simulation) => {
                    self.losses += 1;
                    let (seconds, step) = (since.elapsed().as_secs_f64(), saved.checkpoint.steps);
                    let started =
                        started.iter().map(|name| format!(", {name} started again")).collect::<String>();
                    tell(&format!("back at step {step} after {seconds:.1} s{started}"));
                    return Ok((simulation, saved));
                }
                Err(CoordinatorError::Cancelled) => return Err(CoordinatorError::Cancelled.into()),
                Err(error) => match error.lost() {
                    Some(next) if since.elapsed() < longest && self.in_vain < LOSSES_IN_VAIN_MAX => {
                        self.in_vain += 1;
                        lost = next.to_string();
                    }
                    _ => return no_way(loss, error.to_string()),
                },
            }
        }
    }
}
