//! A stage of a step: contacts are merged, the participants integrate, and marked pairs that approach become
//! active.

use std::time::Instant;

use amalgam_proto::contract::Integration;

use super::exchange::Connections;
use crate::contacts::{Candidates, approaching};
use crate::error::CoordinatorError;
use crate::instruments::clocks::Phase;
use crate::member::Member;
use crate::merging::merge::GroupLimit;
use crate::settings::{CouplingSettings, StagesMax};
use crate::simulation::Simulation;
use crate::state::scratch::Scratch;
use crate::synchronise::Stage;

/// Smallest and largest limit of particles in a group where all radii are similar.
const LIMIT: [u32; 2] = [8, 64];

/// Smallest and largest limit of particles in a group beside a projection. Neighbouring particles of a solid
/// move as one in a group, so that the solid bends only from step to step. Projections take long steps: with
/// larger groups a plate under water takes a second to sag.
const LIMIT_BESIDE_PROJECTIONS: [u32; 2] = [4, 8];

/// Smallest and largest limit of particles in a group, for scenes that set none.
fn default_limit(members: &[Member]) -> [u32; 2] {
    let [min, max] = LIMIT;
    match has_projection(members) {
        true => LIMIT_BESIDE_PROJECTIONS,
        false => many_on_one(members).map_or(LIMIT, |many| [many, many.saturating_mul(max / min)]),
    }
}

/// Stages of a step, for scenes that set none: 2 as in the paper. Many fine particles of a group on one
/// coarse particle press on each other in the second stage, and more stages are needed.
fn default_stages(members: &[Member]) -> StagesMax {
    match !has_projection(members) && many_on_one(members).is_some() {
        true => StagesMax::Converged,
        false => StagesMax::Count(2),
    }
}

fn has_projection(members: &[Member]) -> bool {
    members.iter().any(|member| member.kind == Integration::Projection)
}

/// Number of the finest particles that have room on half of a coarsest one, if it exceeds the mean of
/// [`LIMIT`]. Particles for which a group has no room would sink in.
fn many_on_one(members: &[Member]) -> Option<u32> {
    let ranges = members.iter().map(|member| member.part.roster.radius_range());
    let wider = |(low, high): (f64, f64), range: (f64, f64)| (low.min(range.0), high.max(range.1));
    let (finest, coarsest) = ranges.fold((f64::INFINITY, 0.0), wider);
    let many = room_on_half(coarsest / finest);
    (many > LIMIT[0].midpoint(LIMIT[1])).then_some(many)
}

/// Number n = 2 (1 + R/r)^2 of spheres of radius r that have room on half of a sphere of radius R, with
/// `ratio` = R/r: 8 spheres of equal size.
fn room_on_half(ratio: f64) -> u32 {
    (2.0 * (1.0 + ratio).powi(2)) as u32
}

impl Simulation {
    pub(super) fn detect(&mut self) {
        let start = Instant::now();
        let Scratch { listed, own, contacts, pairs, marked, record, .. } = &mut self.scratch;
        let (finder, candidates) = (&mut self.memory.finder, &self.memory.candidates);
        if !self.plan.coupling.interest_mask {
            finder.list(candidates, &[]);
        } else if *listed {
            finder.list(candidates, &self.memory.margin);
        }
        contacts.clone_from(finder.touching(candidates, own));
        pairs.clone_from(&contacts.active);
        marked.clone_from(&contacts.marked);
        (record.active, record.marked) = (pairs.len() as u64, marked.len() as u64);
        self.instruments.count(Phase::Detect, start, 0.0);
    }

    /// Merges the active pairs and distributes the groups to the participants that have particles in them.
    pub(super) fn merge(&mut self) {
        let start = Instant::now();
        let CouplingSettings { group_limit, keep_lone_contacts, .. } = self.plan.coupling;
        let [min, max] = group_limit.unwrap_or_else(|| default_limit(&self.members));
        let limit = GroupLimit { min, max, keep_lone_contacts, seed: self.plan.seed, step: self.steps };
        let (scratch, candidates) = (&mut self.scratch, &self.memory.candidates);
        scratch.forest.merge(candidates, &scratch.pairs, &limit);
        let errors = scratch.forest.merge_errors(candidates);
        scratch.record.note_errors(errors.momentum, errors.energy);
        self.distribute();
        self.instruments.count(Phase::Merge, start, 0.0);
    }

    /// Lets the participants integrate and finds one velocity for each group.
    pub(super) fn synchronise(&mut self) -> Result<(), CoordinatorError> {
        let start = Instant::now();
        let kinds: Vec<Integration> = self.members.iter().map(|member| member.kind).collect();
        let sizes: Vec<u64> = self.members.iter().map(|member| member.part.roster.len()).collect();
        let candidates = &self.memory.candidates;
        let (members, instruments) = (&mut self.members, &mut self.instruments);
        let mut connections = Connections::new(&self.io, members, instruments, candidates, &mut self.scratch);
        let Connections { forest, shares, dt, .. } = connections;
        let gravity_dt = self.plan.domain.gravity * dt;
        let stage_of_groups = Stage { kinds: &kinds, sizes: &sizes, forest, shares, gravity_dt };
        let result = stage_of_groups.synchronise(&self.plan.coupling, &mut connections)?;
        let waited = connections.waited;

        let scratch = &mut self.scratch;
        scratch.record.repetitions += result.repetitions;
        // Answers that diverged are thrown away, and their errors do not count.
        if result.disagreement.is_finite() {
            scratch.record.disagreement = scratch.record.disagreement.max(result.disagreement);
            scratch.record.note_errors(result.momentum_error, 0.0);
        }
        scratch.synchronised = result;
        scratch.move_groups(candidates);
        self.instruments.count(Phase::Synchronise, start, waited);
        Ok(())
    }

    /// Activates the marked pairs that approach with the velocities that will move positions. Returns true if
    /// another stage is needed and allowed.
    pub(super) fn activate_marked(&mut self) -> bool {
        let start = Instant::now();
        let coupling = &self.plan.coupling;
        let stages_max = match coupling.stages_max.unwrap_or_else(|| default_stages(&self.members)) {
            StagesMax::Count(count) => count,
            StagesMax::Converged => coupling.converged_stages_max,
        };
        let another = self.scratch.activate_marked(&self.memory.candidates, stages_max);
        self.instruments.count(Phase::Synchronise, start, 0.0);
        another
    }
}

impl Scratch {
    /// Gives the members of each group its velocity, and finds the largest travel |v| h/r of a particle.
    pub(super) fn move_groups(&mut self, candidates: &Candidates) {
        let Self { forest, synchronised, velocity, assignments, dt, .. } = self;
        let mut travel = assignments.iter().map(|assignment| assignment.travel).fold(0.0, f64::max);
        for (group, &together) in synchronised.velocity.iter().enumerate() {
            let distance = together.length() * *dt;
            for &i in forest.members(group) {
                velocity[i as usize] = together;
                if !candidates.is_immovable(i) {
                    travel = f64::max(travel, distance / candidates.radius[i as usize]);
                }
            }
        }
        self.travel = travel;
    }

    /// Kinetic energy [J] of the difference between the velocities v_i that members of groups report and the
    /// velocity v' of the group, by which they move: the sum of m_i |v_i - v'|^2 / 2. Particles outside of
    /// groups move by the velocities that they report.
    pub(super) fn phantom(&self, candidates: &Candidates) -> f64 {
        let Self { forest, velocity, member_velocity, .. } = self;
        let reported = forest.all_members().iter().zip(member_velocity);
        let movable = reported.filter(|&(&i, _)| !candidates.is_immovable(i));
        let energies = movable.map(|(&i, &reported)| {
            0.5 * candidates.mass[i as usize] * (reported - velocity[i as usize]).length_squared()
        });
        energies.sum()
    }

    fn activate_marked(&mut self, candidates: &Candidates, stages_max: u32) -> bool {
        let velocity = |i| self.velocity[i as usize];
        approaching(candidates, &self.marked, velocity, &mut self.approaching, &mut self.receding);
        let another = !self.approaching.is_empty() && self.stage < stages_max;
        if another {
            std::mem::swap(&mut self.marked, &mut self.receding);
            self.pairs.append(&mut self.approaching);
            // The list consists of two sorted runs, which a stable sort merges in linear time.
            self.pairs.sort();
            self.stage += 1;
        } else {
            let refused = self.forest.refused();
            self.record.ignored = refused.len() as u64;
            self.record.unresolved = self.approaching.len() as u64;
            approaching(candidates, refused, velocity, &mut self.approaching, &mut self.receding);
            self.record.unresolved += self.approaching.len() as u64;
        }
        another
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_room_for_what_lies_on_one_particle() {
        assert_eq!([1.0, 3.0, 4.0, 8.0].map(room_on_half), [8, 32, 50, 162]);
        assert_eq!(room_on_half(1e12), u32::MAX);
        // No particles yet.
        assert_eq!(room_on_half(0.0 / f64::INFINITY), 2);
    }
}
