//! The coupled step (`docs/theory/coupling.md`, "One coupled step"): one call per phase. Numbers beside the
//! calls are the phases' numbers there.
//!
//! [`Simulation`] says how long each part of its state lives, and [`Scratch`](crate::state::scratch::Scratch)
//! which phase writes which part of a step.

mod begin;
mod commit;
pub(crate) mod contact;
mod exchange;
mod pairwise;
mod stage;
mod work;

use std::time::Instant;

use amalgam_particles::text::number;
use amalgam_proto::contract::{Integration, Totals};

use crate::error::CoordinatorError;
use crate::instruments::View;
use crate::instruments::energy::{UnaccountedEnergy, Works};
use crate::instruments::record::StepRecord;
use crate::pairwise::PairResponse;
use crate::settings::ContactMethod;
use crate::simulation::Simulation;

/// Largest number of times that a step is restarted with a shorter length.
const RETRIES_MAX: u32 = 8;

impl Simulation {
    /// Advances the scene by one step.
    ///
    /// # Errors
    /// The error of the call that failed, with the participant's name, the step and the phase. The state is
    /// then that of the last frame or checkpoint.
    pub fn step(&mut self) -> Result<StepRecord, CoordinatorError> {
        // The step runs inside the pool of workers, so that each parallel loop starts on this thread and
        // needs no hand-over between threads.
        rayon::scope(|_| self.coupled_step())
    }

    fn coupled_step(&mut self) -> Result<StepRecord, CoordinatorError> {
        let start = Instant::now();
        self.start_step()?;
        self.begin()?; // 1
        match self.setup.chosen.method {
            ContactMethod::MergeSplit => self.merge_and_split()?, // 2 to 7
            ContactMethod::ContactLaw => self.contact()?,
            ContactMethod::Penalty => self.act_on_pairs(PairResponse::penalty)?,
            ContactMethod::SphRepulsion => self.act_on_pairs(PairResponse::sph_repulsion)?,
            ContactMethod::PairwiseImpulse => self.act_on_pairs(PairResponse::pairwise_impulse)?,
        }
        let works = self.commit()?; // 8
        self.end_step(start, &works)
    }

    /// Finds the velocities at the end of the step by merging and splitting [Truong2021].
    fn merge_and_split(&mut self) -> Result<(), CoordinatorError> {
        self.detect(); // 2
        loop {
            self.merge(); // 3
            self.synchronise()?; // 4 and 5
            if self.disagrees() {
                self.halve_step()?;
            } else if self.travels_too_far() {
                self.shorten_step()?;
            } else if !self.activate_marked() {
                break; // 6: no marked pair approaches, or no more stages are allowed
            }
        }
        self.split(); // 7
        self.remember_impulses(&[Integration::Projection]);
        Ok(())
    }

    /// Chooses the length of the step.
    fn start_step(&mut self) -> Result<(), CoordinatorError> {
        let (step, dt) = (self.progress.steps, self.next_dt());
        if self.progress.clock.is_stuck(dt) {
            return Err(self.stuck(dt));
        }
        let scratch = &mut self.scratch;
        scratch.record = StepRecord { step, ..StepRecord::default() };
        (scratch.stage, scratch.dt) = (1, dt);
        self.memory.last_impulse.resize_with(self.participants.len(), Vec::new);
        Ok(())
    }

    /// True if a particle would travel more than its own radius. Contacts could be missed then.
    fn travels_too_far(&self) -> bool {
        self.scratch.velocities.travel > 1.0
    }

    /// True if implicit participants that share groups have diverged.
    fn disagrees(&self) -> bool {
        self.scratch.velocities.synchronised.disagreement.is_infinite()
    }

    /// Restarts the stages with half of the step.
    fn halve_step(&mut self) -> Result<(), CoordinatorError> {
        if self.scratch.record.retries == RETRIES_MAX {
            let shares = |k: &usize| !self.scratch.grouped.shares[*k].groups.is_empty();
            let sharing = (0..self.participants.len()).filter(shares);
            let names = sharing.map(|k| self.participants[k].part.connection.name.as_str());
            let participants = names.collect::<Vec<_>>().join(", ");
            return Err(CoordinatorError::Disagree {
                participants,
                step: self.progress.steps,
                dt: self.scratch.dt,
            });
        }
        self.restart_step(0.5 * self.scratch.dt);
        Ok(())
    }

    /// Restarts the stages with the step h cfl/s, where s is the largest travel of a particle in radii.
    fn shorten_step(&mut self) -> Result<(), CoordinatorError> {
        let scratch = &self.scratch;
        let travel = scratch.velocities.travel;
        if scratch.record.retries == RETRIES_MAX {
            let (step, dt) = (self.progress.steps, scratch.dt);
            let participant =
                self.participants[scratch.velocities.fastest(&scratch.grouped)].part.connection.name.clone();
            return Err(CoordinatorError::Runaway { participant, step, dt, travel });
        }
        let dt = scratch.dt * (self.setup.plan.time.cfl / travel);
        self.restart_step(dt);
        Ok(())
    }

    fn restart_step(&mut self, dt: f64) {
        let scratch = &mut self.scratch;
        scratch.dt = self.progress.clock.shortened(dt);
        scratch.stage = 1;
        scratch.record.retries += 1;
        scratch.detected.start_stages();
    }

    fn end_step(&mut self, start: Instant, works: &Works) -> Result<StepRecord, CoordinatorError> {
        let scratch = &mut self.scratch;
        let sizes = scratch.grouped.forest.offsets().windows(2).map(|w| u64::from(w[1] - w[0]));
        let record = StepRecord {
            dt: scratch.dt,
            time: self.progress.clock.time(),
            stages: scratch.stage,
            groups: scratch.grouped.forest.len() as u64,
            group_size_max: sizes.max().unwrap_or(0),
            broken: self.participants.iter().map(|participant| participant.part.committed.broken).sum(),
            wall_s: start.elapsed().as_secs_f64(),
            frame_due: self.progress.clock.frame_due(),
            ..scratch.record
        };
        tracing::debug!(
            run = self.participants[0].part.connection.context().run_id,
            step = record.step,
            stage = record.stages,
            time = record.time,
            dt = record.dt,
            contacts = record.active,
            groups = record.groups,
            seconds = record.wall_s,
            "step"
        );
        self.progress.steps += 1;
        let unaccounted = self.instruments.sample(&View {
            participants: &self.participants,
            candidates: &self.memory.candidates,
            contacts: &self.scratch.detected.contacts,
            beside: self.scratch.problem.beside(),
            record: &record,
            works,
            gravity: self.setup.plan.domain.gravity,
        });
        match unaccounted.filter(|_| self.setup.plan.coupling.conserves_energy(self.setup.chosen.method)) {
            Some(unaccounted) => Err(self.energy_error(unaccounted, record.step)),
            None => Ok(record),
        }
    }

    /// The error for a step so short that the scene would never end. It names the participant that needs this
    /// step.
    fn stuck(&self, dt: f64) -> CoordinatorError {
        let parts = || self.participants.iter().map(|participant| &participant.part);
        let shortest = parts().min_by(|a, b| a.stable_dt.total_cmp(&b.stable_dt));
        let fastest = parts()
            .max_by(|a, b| a.committed.totals.radius_rate_max.total_cmp(&b.committed.totals.radius_rate_max));
        let (part, reason) = match (shortest, fastest) {
            (Some(part), _) if part.stable_dt <= dt * (1.0 + 1e-9) => {
                (part, format!("allows no more than {} s (stable_dt)", number(part.stable_dt)))
            }
            (_, Some(part)) => {
                let Totals { speed_max, radius_rate_max, .. } = part.committed.totals;
                let (speed, rate) = (number(speed_max), number(radius_rate_max));
                (
                    part,
                    format!(
                        "has a particle that moves {rate} of its radii per second, and one at {speed} m/s"
                    ),
                )
            }
            (_, None) => unreachable!("a scene has participants"),
        };
        CoordinatorError::Stuck {
            participant: part.connection.name.clone(),
            step: self.progress.steps,
            dt,
            reason,
        }
    }

    /// The error for energy from no accounted source, with the participant whose account rose most.
    fn energy_error(&self, unaccounted: UnaccountedEnergy, step: u64) -> CoordinatorError {
        let UnaccountedEnergy { participant, amount, in_play, is_whole } = unaccounted;
        let participant = self.participants[participant].part.connection.name.clone();
        let others = self.participants.len() > 1;
        CoordinatorError::Energy { participant, step, gained: amount, in_play, others, is_whole }
    }
}
