//! End of a step: groups are split, and the participants commit the step and begin the next one.

use std::time::Instant;

use amalgam_particles::Lattice;
use amalgam_proto::contract::{Commit, Committed, Integration, Next};
use futures_util::future::join_all;

use super::exchange::first_error;
use crate::error::CoordinatorError;
use crate::instruments::clocks::Phase;
use crate::member::Member;
use crate::merging::split::SplitSettings;
use crate::simulation::{Simulation, joint_hash};
use crate::state::scratch::{Assignment, Scratch};
use crate::synchronise::{Share, Synchronised};

impl Simulation {
    pub(super) fn split(&mut self) {
        let start = Instant::now();
        let coupling = &self.plan.coupling;
        let settings = SplitSettings {
            rule: coupling.split,
            alpha: coupling.alpha.unwrap_or(1.0),
            elasticity: if coupling.alpha.is_some() { &[] } else { &self.elasticity },
            beta: coupling.beta,
            slip: coupling.slip,
        };
        let Scratch { forest, synchronised, member_velocity, record, .. } = &mut self.scratch;
        let Synchronised { velocity, energy, .. } = synchronised;
        forest.split(velocity, energy, &settings, member_velocity);
        let candidates = &self.memory.candidates;
        let errors = forest.split_errors(candidates, velocity, energy, &settings, member_velocity);
        record.note_errors(errors.momentum, errors.energy);
        record.dissipated = forest.dissipated(energy, &settings);
        self.instruments.count(Phase::Split, start, 0.0);
    }

    /// Ends the step in every participant and lets it begin the next one. The answers limit the length of the
    /// next step.
    pub(super) fn commit(&mut self) -> Result<(), CoordinatorError> {
        let start = Instant::now();
        self.clock.advance(self.scratch.dt);
        for member in &mut self.members {
            // Particles that died are tracked no longer.
            let roster = &member.part.roster;
            member.part.tracked.retain(|&id| roster.contains(id));
        }
        self.scratch.record.phantom = self.scratch.phantom(&self.memory.candidates);
        self.scratch.works = self.scratch.works(&self.memory.candidates, self.scratch.record.by_immovable);
        let want_state_hash = self.clock.frame_due();
        let grids: Vec<Lattice> = self.members.iter().filter_map(|member| member.occupancy).collect();
        self.look_ahead();
        let nexts: Vec<Option<Next>> = (0..self.members.len()).map(|k| self.next(k)).collect();
        let scratch = &self.scratch;
        let told = scratch.shares.iter().zip(&scratch.assignments);
        let calls = self.members.iter_mut().zip(told).zip(nexts).map(|((member, told), next)| {
            let call = Commit { want_state_hash, grids: grids.clone(), next, ..scratch.commit(member, told) };
            member.part.connection.commit(call)
        });
        let asked = Instant::now();
        let done = first_error(self.io.block_on(join_all(calls)))?;
        self.instruments.count_round_trip(&mut self.members, asked);
        self.take_over(done)?;
        self.instruments.count(Phase::Commit, start, 0.0);
        Ok(())
    }

    fn take_over(&mut self, done: Vec<Committed>) -> Result<(), CoordinatorError> {
        for (member, committed) in self.members.iter_mut().zip(done) {
            let part = &mut member.part;
            let updated = part.roster.update(&committed);
            let checked = updated.and_then(|()| part.roster.check_speeds(&committed.totals, &[]));
            if let Err(reason) = checked {
                // The participants are in the next step already, but the fault is in this one.
                let (participant, step) = (part.connection.name.clone(), self.steps);
                return Err(CoordinatorError::Protocol { participant, step, phase: "Commit", reason });
            }
            part.cells.clone_from(&committed.cells);
            part.stable_dt = committed.stable_dt;
            self.scratch.record.dissipated += committed.not_taken;
            part.solver_s += committed.solver_seconds;
            part.committed = committed;
        }
        self.learn_limits();
        if self.clock.frame_due() {
            let hashes = self.members.iter().map(|member| member.part.committed.state_hash);
            self.state_hash = joint_hash(hashes);
        }
        Ok(())
    }

    /// Keeps first guesses for the next step, for participants of these kinds: the impulse that a projection
    /// gave its particles, or the impulse of the contacts on the particles of an implicit participant.
    pub(super) fn remember_impulses(&mut self, kinds: &[Integration]) {
        let Scratch { shares, assignments, synchronised, forest, .. } = &self.scratch;
        let masses = &self.memory.candidates.mass;
        for (k, _) in self.members.iter().enumerate().filter(|(_, member)| kinds.contains(&member.kind)) {
            let (share, assignment) = (&shares[k], &assignments[k]);
            let memory = &mut self.memory.last_impulse[k];
            memory.clear();
            let mut at = 0;
            for (local, &size) in assignment.size.iter().enumerate() {
                for _ in 0..size {
                    let candidate = forest.all_members()[assignment.place[at] as usize] as usize;
                    let part_of_mass = masses[candidate] / share.mass[local];
                    if part_of_mass.is_finite() {
                        memory.push((assignment.member[at], synchronised.momentum[k][local] * part_of_mass));
                    }
                    at += 1;
                }
            }
            memory.sort_unstable_by_key(|entry| entry.0);
        }
    }
}

impl Scratch {
    /// The call that commits a participant's last answer. The caller adds the fields that are the same for
    /// all participants.
    fn commit(&self, member: &Member, (share, assignment): (&Share, &Assignment)) -> Commit {
        let group_velocity = |&g: &u32| self.synchronised.velocity[g as usize];
        let group_spin = |&g: &u32| self.synchronised.spin[g as usize];
        let member_velocity = |&place: &u32| self.member_velocity[place as usize];
        Commit {
            context: member.part.connection.context(),
            stage: self.stage,
            repetition: assignment.asked - 1,
            want_state_hash: false,
            grids: Vec::new(),
            group_velocity: share.groups.iter().map(group_velocity).collect(),
            group_number: share.groups.clone(),
            member_velocity: assignment.place.iter().map(member_velocity).collect(),
            group_spin: member
                .part
                .roster
                .has_bodies()
                .then(|| share.groups.iter().map(group_spin).collect()),
            track: member.part.tracked.clone(),
            next: None,
        }
    }
}
