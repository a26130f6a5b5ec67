//! End of a step: groups are split, and the participants commit the step and begin the next one.

use std::time::Instant;

use amalgam_particles::Lattice;
use amalgam_proto::contract::{Commit, Committed, Integration, Next};
use futures_util::future::join_all;

use super::exchange::first_error;
use super::work::{phantom, works};
use crate::error::CoordinatorError;
use crate::instruments::clocks::Phase;
use crate::instruments::energy::Works;
use crate::merging::split::SplitSettings;
use crate::participant::Participant;
use crate::simulation::{Simulation, joint_hash};
use crate::state::scratch::{Assignment, Grouped, Scratch, Velocities};
use crate::synchronise::{Share, Synchronised};

impl Simulation {
    pub(super) fn split(&mut self) {
        let start = Instant::now();
        let coupling = &self.setup.plan.coupling;
        let settings = SplitSettings {
            rule: coupling.split,
            alpha: coupling.alpha.unwrap_or(1.0),
            elasticity: if coupling.alpha.is_some() { &[] } else { &self.setup.elasticity },
            beta: coupling.beta,
        };
        let Scratch { grouped, velocities, record, .. } = &mut self.scratch;
        let (forest, candidates) = (&grouped.forest, &self.memory.candidates);
        let Velocities { synchronised: Synchronised { velocity, energy, .. }, members, .. } = velocities;
        forest.split(velocity, energy, &settings, members);
        let errors = forest.split_errors(candidates, velocity, energy, &settings, members);
        record.note_errors(errors.momentum, errors.energy);
        record.dissipated = forest.dissipated(energy, &settings);
        self.instruments.count(Phase::Split, start, 0.0);
    }

    /// Ends the step in every participant and lets it begin the next one. The answers limit the length of the
    /// next step. Returns the work that participants did on each other in the step.
    pub(super) fn commit(&mut self) -> Result<Works, CoordinatorError> {
        let start = Instant::now();
        self.progress.clock.advance(self.scratch.dt);
        for participant in &mut self.participants {
            // Particles that died are tracked no longer.
            let roster = &participant.part.roster;
            participant.part.tracked.retain(|&id| roster.contains(id));
        }
        let Scratch { grouped, velocities, record, .. } = &mut self.scratch;
        let candidates = &self.memory.candidates;
        record.phantom = phantom(candidates, &grouped.forest, velocities);
        let works = works(candidates, grouped, velocities, record.by_immovable);
        let want_state_hash = self.progress.clock.frame_due();
        let grids: Vec<Lattice> =
            self.participants.iter().filter_map(|participant| participant.occupancy).collect();
        self.look_ahead();
        let nexts: Vec<Option<Next>> = (0..self.participants.len()).map(|k| self.next(k)).collect();
        let Scratch { grouped, velocities, stage, .. } = &self.scratch;
        let told = grouped.shares.iter().zip(&grouped.assignments);
        let calls = self.participants.iter_mut().zip(told).zip(nexts).map(|((participant, told), next)| {
            let told = commit_groups(participant, told, velocities, *stage);
            let call = Commit { want_state_hash, grids: grids.clone(), next, ..told };
            participant.part.connection.commit(call)
        });
        let asked = Instant::now();
        let done = first_error(self.io.block_on(join_all(calls)))?;
        self.instruments.count_round_trip(&mut self.participants, asked);
        self.take_over(done)?;
        self.instruments.count(Phase::Commit, start, 0.0);
        Ok(works)
    }

    fn take_over(&mut self, done: Vec<Committed>) -> Result<(), CoordinatorError> {
        for (participant, committed) in self.participants.iter_mut().zip(done) {
            let part = &mut participant.part;
            let updated = part.roster.update(&committed);
            let checked = updated.and_then(|()| part.roster.check_speeds(&committed.totals, &[]));
            if let Err(reason) = checked {
                // The participants are in the next step already, but the fault is in this one.
                let (participant, step) = (part.connection.name.clone(), self.progress.steps);
                return Err(CoordinatorError::Protocol { participant, step, phase: "Commit", reason });
            }
            part.cells.clone_from(&committed.cells);
            part.stable_dt = part.substeps * committed.stable_dt;
            self.scratch.record.dissipated += committed.not_taken;
            part.solver_s += committed.solver_seconds;
            part.committed = committed;
        }
        if self.progress.clock.frame_due() {
            let hashes = self.participants.iter().map(|participant| participant.part.committed.state_hash);
            self.progress.state_hash = joint_hash(hashes);
        }
        Ok(())
    }

    /// Keeps first guesses for the next step, for participants of these kinds: the impulse that a projection
    /// gave its particles, or the impulse of the contacts on the particles of an implicit participant.
    pub(super) fn remember_impulses(&mut self, kinds: &[Integration]) {
        let Scratch { grouped: Grouped { shares, assignments, forest, .. }, velocities, .. } = &self.scratch;
        let masses = &self.memory.candidates.mass;
        for (k, _) in
            self.participants.iter().enumerate().filter(|(_, participant)| kinds.contains(&participant.kind))
        {
            let (share, assignment) = (&shares[k], &assignments[k]);
            let memory = &mut self.memory.last_impulse[k];
            memory.clear();
            let mut at = 0;
            for (local, &size) in assignment.size.iter().enumerate() {
                for _ in 0..size {
                    let candidate = forest.all_members()[assignment.place[at] as usize] as usize;
                    let part_of_mass = masses[candidate] / share.mass[local];
                    if part_of_mass.is_finite() {
                        memory.push((
                            assignment.member[at],
                            velocities.synchronised.momentum[k][local] * part_of_mass,
                        ));
                    }
                    at += 1;
                }
            }
            memory.sort_unstable_by_key(|entry| entry.0);
        }
    }
}

/// The call that commits a participant's last answer in a stage. The caller adds the fields that are the same
/// for all participants.
fn commit_groups(
    participant: &Participant,
    (share, assignment): (&Share, &Assignment),
    velocities: &Velocities,
    stage: u32,
) -> Commit {
    let group_velocity = |&g: &u32| velocities.synchronised.velocity[g as usize];
    let group_spin = |&g: &u32| velocities.synchronised.spin[g as usize];
    let member_velocity = |&place: &u32| velocities.members[place as usize];
    let member_velocity: Vec<_> = assignment.place.iter().map(member_velocity).collect();
    let of_group = |(&g, &size): (&u32, &u32)| {
        std::iter::repeat_n(velocities.synchronised.velocity[g as usize], size as usize)
    };
    let as_groups = share.groups.iter().zip(&assignment.size).flat_map(of_group);
    let follows = member_velocity.iter().copied().eq(as_groups);
    Commit {
        context: participant.part.connection.context(),
        stage,
        repetition: assignment.asked - 1,
        want_state_hash: false,
        grids: Vec::new(),
        group_velocity: share.groups.iter().map(group_velocity).collect(),
        group_number: share.groups.clone(),
        member_velocity: (!follows).then_some(member_velocity),
        group_spin: participant
            .part
            .roster
            .has_bodies()
            .then(|| share.groups.iter().map(group_spin).collect()),
        track: participant.part.tracked.clone(),
        next: None,
    }
}
