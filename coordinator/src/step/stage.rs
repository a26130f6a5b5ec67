//! A stage of a step: contacts are merged, the participants integrate, and marked pairs that approach become
//! active.

use std::time::Instant;

use amalgam_particles::DVec3;
use amalgam_proto::contract::Integration;

use super::exchange::Connections;
use crate::contacts::Candidates;
use crate::error::CoordinatorError;
use crate::instruments::clocks::Phase;
use crate::merging::merge::GroupLimit;
use crate::participant::Participant;
use crate::settings::{CouplingSettings, StagesMax};
use crate::simulation::Simulation;
use crate::state::memory::Memory;
use crate::state::scratch::{Assignment, Scratch, Velocities};
use crate::synchronise::Stage;

/// Smallest and largest limit of particles in a group where all radii are similar.
const LIMIT: [u32; 2] = [8, 64];

/// Smallest and largest limit of particles in a group beside a projection. Neighbouring particles of a solid
/// move as one in a group, so that the solid bends only from step to step. Projections take long steps: with
/// larger groups a plate under water takes a second to sag.
const LIMIT_BESIDE_PROJECTIONS: [u32; 2] = [4, 8];

/// Smallest and largest limit of particles in a group, for scenes that set none.
fn default_limit(participants: &[Participant]) -> [u32; 2] {
    let [min, max] = LIMIT;
    match has_projection(participants) {
        true => LIMIT_BESIDE_PROJECTIONS,
        false => many_on_one(participants).map_or(LIMIT, |many| [many, many.saturating_mul(max / min)]),
    }
}

/// Stages of a step, for scenes that set none: 2 as in the paper. Many fine particles of a group on one
/// coarse particle press on each other in the second stage, and more stages are needed.
fn default_stages(participants: &[Participant]) -> StagesMax {
    match !has_projection(participants) && many_on_one(participants).is_some() {
        true => StagesMax::Converged,
        false => StagesMax::Count(2),
    }
}

fn has_projection(participants: &[Participant]) -> bool {
    participants.iter().any(|participant| participant.kind == Integration::Projection)
}

/// Number of the finest particles that have room on half of a coarsest one, if it exceeds the mean of
/// [`LIMIT`]. Particles for which a group has no room would sink in.
fn many_on_one(participants: &[Participant]) -> Option<u32> {
    let ranges = participants.iter().map(|participant| participant.part.roster.radius_range());
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
    /// Finds the contacts at the start of the step: the active pairs approach, and the marked pairs do not.
    pub(super) fn detect(&mut self) {
        let start = Instant::now();
        let Scratch { begun, detected, record, .. } = &mut self.scratch;
        let Memory { finder, candidates, margin, .. } = &mut self.memory;
        if !self.setup.plan.coupling.interest_mask {
            finder.list(candidates, &[], &[]);
        } else if begun.listed {
            finder.list(candidates, margin, &[]);
        }
        detected.contacts.clone_from(finder.touching(candidates, &begun.own));
        detected.start_stages();
        (record.active, record.marked) = (detected.active.len() as u64, detected.marked.len() as u64);
        self.instruments.count(Phase::Detect, start, 0.0);
    }

    /// Merges the active pairs and distributes the groups to the participants that have particles in them.
    pub(super) fn merge(&mut self) {
        let start = Instant::now();
        let CouplingSettings { group_limit, keep_lone_contacts, .. } = self.setup.plan.coupling;
        let [min, max] = group_limit.unwrap_or_else(|| default_limit(&self.participants));
        let (seed, step) = (self.setup.plan.seed, self.progress.steps);
        let limit = GroupLimit { min, max, keep_lone_contacts, seed, step };
        let Scratch { detected, grouped, record, .. } = &mut self.scratch;
        let candidates = &self.memory.candidates;
        grouped.forest.merge(candidates, &detected.active, &limit);
        let errors = grouped.forest.merge_errors(candidates);
        record.note_errors(errors.momentum, errors.energy);
        record.projected |= grouped.distribute(&self.participants, &self.memory, &detected.marked);
        self.instruments.count(Phase::Merge, start, 0.0);
    }

    /// Lets the participants integrate and finds one velocity for each group.
    pub(super) fn synchronise(&mut self) -> Result<(), CoordinatorError> {
        let start = Instant::now();
        let kinds: Vec<Integration> = self.participants.iter().map(|participant| participant.kind).collect();
        let sizes: Vec<u64> =
            self.participants.iter().map(|participant| participant.part.roster.len()).collect();
        let Scratch { grouped, velocities, record, stage, dt, .. } = &mut self.scratch;
        let candidates = &self.memory.candidates;
        let (participants, instruments, time) =
            (&mut self.participants, &mut self.instruments, (*stage, *dt));
        let mut connections =
            Connections::new(&self.io, participants, instruments, candidates, grouped, velocities, time);
        let Connections { forest, shares, .. } = connections;
        let gravity_dt = self.setup.plan.domain.gravity * *dt;
        let stage_of_groups = Stage { kinds: &kinds, sizes: &sizes, forest, shares, gravity_dt };
        let result = stage_of_groups.synchronise(&self.setup.plan.coupling, &mut connections)?;
        let waited = connections.waited;

        record.repetitions += result.repetitions;
        // Answers that diverged are thrown away, and their errors do not count.
        if result.disagreement.is_finite() {
            record.disagreement = record.disagreement.max(result.disagreement);
            record.note_errors(result.momentum_error, 0.0);
        }
        velocities.synchronised = result;
        let Velocities { synchronised, candidates: moving, travel, .. } = velocities;
        let groups = synchronised.velocity.iter().enumerate();
        let moved = groups.map(|(group, &together)| (grouped.forest.members(group), together));
        *travel = move_members(candidates, moved, &grouped.assignments, *dt, moving);
        self.instruments.count(Phase::Synchronise, start, waited);
        Ok(())
    }

    /// Activates the marked pairs that approach with the velocities that will move positions. Returns true if
    /// another stage is needed and allowed.
    pub(super) fn activate_marked(&mut self) -> bool {
        let start = Instant::now();
        let coupling = &self.setup.plan.coupling;
        let stages_max = match coupling.stages_max.unwrap_or_else(|| default_stages(&self.participants)) {
            StagesMax::Count(count) => count,
            StagesMax::Converged => coupling.converged_stages_max,
        };
        let candidates = &self.memory.candidates;
        let Scratch { stage, detected, grouped, velocities, record, .. } = &mut self.scratch;
        let approach = detected.part_marked(candidates, &velocities.candidates);
        let another = approach > 0 && *stage < stages_max;
        if another {
            detected.activate();
            *stage += 1;
        } else {
            let refused = grouped.forest.refused();
            record.ignored = refused.len() as u64;
            record.unresolved = approach + detected.part(candidates, refused, &velocities.candidates);
        }
        self.instruments.count(Phase::Synchronise, start, 0.0);
        another
    }
}

/// Gives members the velocities by which they move, into the column `moving` of the candidates: `moved` names
/// members that move as one, with their velocity v [m/s]. Returns the largest travel |v| h/r of a particle in
/// the step of length h = `dt`, where r is its radius. Participants told the travel of free particles.
pub(super) fn move_members<'a>(
    candidates: &Candidates,
    moved: impl Iterator<Item = (&'a [u32], DVec3)>,
    assignments: &[Assignment],
    dt: f64,
    moving: &mut [DVec3],
) -> f64 {
    let mut travel = assignments.iter().map(|assignment| assignment.travel).fold(0.0, f64::max);
    for (members, together) in moved {
        let distance = together.length() * dt;
        for &i in members {
            moving[i as usize] = together;
            if !candidates.is_immovable(i) {
                travel = f64::max(travel, distance / candidates.radius[i as usize]);
            }
        }
    }
    travel
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
