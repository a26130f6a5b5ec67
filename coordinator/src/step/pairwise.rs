//! A step by a pairwise method, to compare with (`pairwise.rs`). Each particle on which the method acts is a
//! group of its own.

use std::time::Instant;

use amalgam_proto::contract::Integration;

use crate::contacts::{Candidates, approaching};
use crate::error::CoordinatorError;
use crate::instruments::clocks::Phase;
use crate::pairwise::PairwiseMethod;
use crate::settings::CouplingSettings;
use crate::simulation::Simulation;
use crate::state::scratch::Scratch;

impl Simulation {
    /// Finds the velocities at the end of the step. All pairs in contact act at once, in one stage.
    pub(super) fn act_on_pairs(&mut self, method: PairwiseMethod) -> Result<(), CoordinatorError> {
        self.detect();
        loop {
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
        self.scratch.count_unresolved(&self.memory.candidates);
        self.split();
        // Nothing was merged, so that the method's own loss is all that was lost.
        self.scratch.record.dissipated = self.scratch.response.dissipated;
        self.remember_impulses(&[Integration::Projection]);
        Ok(())
    }

    /// Lets the method act, and distributes the particles on which it acts to their participants.
    fn respond(&mut self, method: PairwiseMethod) {
        let start = Instant::now();
        self.scratch.respond(method, &self.plan.coupling, &self.memory.candidates);
        self.distribute();
        self.instruments.count(Phase::Merge, start, 0.0);
    }
}

impl Scratch {
    /// Applies the method. All pairs count as marked, so that answers tell the velocities of their free
    /// particles.
    fn respond(&mut self, method: PairwiseMethod, coupling: &CouplingSettings, candidates: &Candidates) {
        let Self { response, contacts, forest, marked, record, .. } = self;
        method(response, coupling, candidates, contacts, self.dt);
        forest.keep_apart(candidates, response);
        marked.clear();
        marked.extend(contacts.pairs());
        record.note_errors(response.momentum_error, 0.0);
    }

    /// Counts the pairs that approach in the end.
    fn count_unresolved(&mut self, candidates: &Candidates) {
        let velocity = |i| self.velocity[i as usize];
        approaching(candidates, &self.marked, velocity, &mut self.approaching, &mut self.receding);
        self.record.unresolved = self.approaching.len() as u64;
    }
}
