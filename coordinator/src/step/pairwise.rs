//! A step by a pairwise method, to compare with (`pairwise.rs`). Each particle on which the method acts is a
//! group of its own.

use std::time::Instant;

use amalgam_proto::contract::Integration;

use crate::error::CoordinatorError;
use crate::instruments::clocks::Phase;
use crate::pairwise::PairwiseMethod;
use crate::simulation::Simulation;
use crate::state::scratch::Scratch;

impl Simulation {
    /// Finds the velocities at the end of the step. All pairs in contact act at once, in one stage.
    pub(super) fn act_on_pairs(&mut self, method: PairwiseMethod) -> Result<(), CoordinatorError> {
        self.detect();
        loop {
            self.scratch.detected.mark_all();
            self.respond(method);
            self.synchronise()?;
            if self.disagrees() {
                self.halve_step()?;
            } else if self.travels_too_far() {
                self.shorten_step()?;
            } else {
                break;
            }
        }
        let Scratch { detected, velocities, record, .. } = &mut self.scratch;
        record.unresolved = detected.part_marked(&self.memory.candidates, &velocities.candidates);
        self.split();
        // Nothing was merged, so that the method's own loss is all that was lost.
        self.scratch.record.dissipated = self.scratch.response.dissipated;
        self.remember_impulses(&[Integration::Projection]);
        Ok(())
    }

    /// Lets the method act, and distributes the particles on which it acts to their participants.
    fn respond(&mut self, method: PairwiseMethod) {
        let start = Instant::now();
        let Scratch { detected, response, grouped, record, dt, .. } = &mut self.scratch;
        let candidates = &self.memory.candidates;
        method(response, &self.setup.plan.coupling, candidates, &detected.contacts, *dt);
        grouped.forest.keep_apart(candidates, response);
        record.note_errors(response.momentum_error, 0.0);
        record.projected |= grouped.distribute(&self.participants, &self.memory, &detected.marked);
        self.instruments.count(Phase::Merge, start, 0.0);
    }
}
