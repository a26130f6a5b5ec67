//! Start of a step: the participants are asked for their particles that may touch particles of others
//! (`docs/theory/coupling.md`, "Contacts").

use std::collections::HashMap;
use std::time::Instant;

use amalgam_particles::{CellSet, ContactLookAhead, ParticleId, Reach};
use amalgam_proto::contract::{Batch, Begin, Interest, Next, Survey, Wanted};
use futures_util::future::join_all;

use super::exchange::first_error;
use crate::contacts::sieve::passing_radius;
use crate::error::CoordinatorError;
use crate::instruments::clocks::Phase;
use crate::law::contact::reach;
use crate::participant::Part;
use crate::participant::roster::Roster;
use crate::simulation::Simulation;
use crate::state::memory::Memory;

/// Near pairs are found with radii larger by this part, on average over the two fastest participants. The
/// list serves until the particles have moved as far. A larger margin costs more in each step, a smaller one
/// serves for fewer steps.
const NEAR_MARGIN: f64 = 0.5;

/// Smallest margin of a participant, as a part of the radius. Particles at rest are soon pushed, too.
const NEAR_MARGIN_MIN: f64 = 0.05;

/// Near pairs are listed for this many times the reach of the current step, since particles may become faster
/// before the next listing.
const REACH_RESERVE: f64 = 2.0;

/// Number of steps ahead for which participants look for contacts among their own particles. The next step
/// may be a little longer than the current one.
const LOOK_AHEAD_RESERVE: f64 = 1.25;

/// Largest reach to which the reserve may lead [radii]. A longer list costs more than frequent listing.
const REACH_RESERVED_MAX: f64 = 2.0;

impl Simulation {
    /// Takes over the particles that may touch others, from the last Commit or from a new survey.
    pub(super) fn begin(&mut self) -> Result<(), CoordinatorError> {
        let start = Instant::now();
        let reaches = self.reaches();
        let begun = self.participants.iter_mut().map(|participant| participant.part.committed.next.take());
        let batches = match begun.collect() {
            Some(batches) if self.reaches_far_enough(&reaches) && !self.has_released() => {
                self.scratch.begun.listed = false;
                batches
            }
            // A particle has moved too far for the list or may do so in this step, or an immovable particle
            // was released. The list has no pairs of two immovable particles.
            _ => {
                self.memory.reach = reaches
                    .iter()
                    .map(|&reach| reach.max((REACH_RESERVE * reach).min(REACH_RESERVED_MAX)))
                    .collect();
                self.scratch.begun.listed = true;
                self.look_ahead();
                self.survey()?
            }
        };
        self.take_batches(&batches)?;
        self.instruments.count(Phase::Begin, start, 0.0);
        Ok(())
    }

    /// True if the particles that were asked for cover this step.
    fn reaches_far_enough(&self, reaches: &[f64]) -> bool {
        let looks_ahead = self.setup.chosen.method.properties().looks_ahead;
        self.memory.reach.iter().zip(reaches).all(|(listed, now)| now <= listed)
            && (!looks_ahead || self.scratch.dt <= self.memory.look_ahead)
    }

    /// True if a particle was immovable in the last step and no longer is.
    fn has_released(&self) -> bool {
        self.participants.iter().any(|participant| !participant.part.committed.released.is_empty())
    }

    /// Sets how far ahead participants look for their own contacts in the next step.
    pub(super) fn look_ahead(&mut self) {
        self.memory.look_ahead = LOOK_AHEAD_RESERVE * self.scratch.dt;
    }

    /// Largest distance from its surface at which a particle of each participant may meet others in this step
    /// [radii]: 2 (|v|/r + g h/r_min) h. It is 0 if only particles that intersect are contacts.
    fn reaches(&self) -> Vec<f64> {
        if !self.setup.chosen.method.properties().looks_ahead {
            return vec![0.0; self.participants.len()];
        }
        let dt = self.scratch.dt;
        let fall = self.setup.plan.domain.gravity.length() * dt / self.progress.clock.radius_min();
        let rates =
            self.participants.iter().map(|participant| participant.part.committed.totals.radius_rate_max);
        rates.map(|rate| reach(rate + fall, dt)).collect()
    }

    fn take_batches(&mut self, batches: &[Batch]) -> Result<(), CoordinatorError> {
        let Memory { candidates, order, .. } = &mut self.memory;
        order.resize_with(batches.len(), Vec::new);
        for ((participant, batch), order) in self.participants.iter().zip(batches).zip(order.iter_mut()) {
            let Part { connection, roster, committed, .. } = &participant.part;
            let checked = roster.check_speeds(&committed.totals, &batch.velocity);
            checked.map_err(|reason| connection.broken("Begin", reason))?;
            if let Some(ids) = &batch.id
                && let Err(id) = participant.part.roster.sort(ids, order)
            {
                let reason = format!("id {id} is not in its particle table");
                return Err(participant.part.connection.broken("Begin", reason));
            }
        }
        let rosters: Vec<&Roster> =
            self.participants.iter().map(|participant| &participant.part.roster).collect();
        candidates.update(batches, order, &rosters);
        let own = &mut self.scratch.begun.own;
        own.clear();
        for (k, batch) in batches.iter().enumerate().filter(|(_, batch)| !batch.contacts.is_empty()) {
            let first = candidates.first(k as u16) as u32;
            let mut rank = vec![0; order[k].len()];
            (first..).zip(&order[k]).for_each(|(candidate, &place)| rank[place as usize] = candidate);
            own.extend(batch.contacts.iter().map(|pair| {
                let [i, j] = pair.map(|place| rank[place as usize]);
                (i.min(j), i.max(j))
            }));
        }
        Ok(())
    }

    /// Asks every participant for its particles that are near particles of others.
    fn survey(&mut self) -> Result<Vec<Batch>, CoordinatorError> {
        let (told, wanted): (Vec<Option<Batch>>, Vec<Wanted>) = if self.setup.plan.coupling.interest_mask {
            let rates: Vec<f64> =
                self.participants.iter().map(|m| m.part.committed.totals.radius_rate_max).collect();
            self.memory.margin = margins(&rates);
            let reaches = self.memory.margin.iter_mut().zip(&self.memory.reach);
            reaches.for_each(|(margin, reach)| *margin += reach);
            let (lattice, margins) = (self.setup.lattice, &self.memory.margin);
            let calls = self.participants.iter_mut().zip(margins).map(|(participant, &margin)| async move {
                let Part { connection, roster, .. } = &mut participant.part;
                let cells = roster.cells_max(&lattice, margin);
                let call = Survey { context: connection.context(), lattice, margin, centres: false };
                connection.survey(&call, cells).await
            });
            let asked = Instant::now();
            let cells = first_error(self.io.block_on(join_all(calls)))?;
            self.instruments.count_round_trip(&mut self.participants, asked);
            let (told, cells) = self.begin_surfaces(cells)?;
            let is_smooth = self.setup.obstacles.is_empty();
            let beside = |cells| (!is_smooth).then(|| self.setup.obstacles.cells(&lattice, cells));
            let beside: Vec<Option<CellSet>> = cells.iter().map(beside).collect();
            let others = |k: usize| {
                let others = cells.iter().enumerate().filter(move |&(j, _)| j != k);
                CellSet::union(others.map(|(_, cells)| cells).chain(&beside[k]))
            };
            let near = |(k, &margin)| Wanted::Near { lattice, cells: others(k), margin };
            let wanted = self.memory.margin.iter().enumerate().map(near).collect();
            (told, wanted)
        } else {
            self.memory.margin.clone_from(&self.memory.reach);
            let (told, _) = self.begin_surfaces(vec![CellSet::default(); self.participants.len()])?;
            (told, vec![Wanted::All; self.participants.len()])
        };
        let is_told: Vec<bool> = told.iter().map(Option::is_some).collect();
        let asked = self.begin_with(wanted, |k| !is_told[k])?;
        Ok(told.into_iter().zip(asked).filter_map(|(told, asked)| told.or(asked)).collect())
    }

    /// Asks the participants whose triangles touch others for all particles, and returns their answers. Sets the
    /// cells of these participants to those near their triangles.
    fn begin_surfaces(
        &mut self,
        mut cells: Vec<CellSet>,
    ) -> Result<(Vec<Option<Batch>>, Vec<CellSet>), CoordinatorError> {
        self.memory.span = vec![0.0; self.participants.len()];
        let wanted = vec![Wanted::All; self.participants.len()];
        let has_mesh: Vec<bool> = self.setup.meshes.iter().map(Option::is_some).collect();
        let told = self.begin_with(wanted, |k| has_mesh[k])?;
        for (k, (mesh, batch)) in self.setup.meshes.iter().zip(&told).enumerate() {
            let (Some(mesh), Some(batch)) = (mesh, batch) else { continue };
            let roster = &self.participants[k].part.roster;
            let ids = match &batch.id {
                Some(ids) => ids.clone(),
                None => self.memory.told(k),
            };
            if ids.is_empty() {
                continue;
            }
            let place: HashMap<ParticleId, usize> = ids.iter().copied().zip(0..).collect();
            let mut radii = Vec::new();
            roster.radii(&ids, &mut radii);
            let corner = |&vertex: &u32| place.get(&mesh.vertex_ids[vertex as usize]).copied();
            let alive = mesh.triangles.iter().filter_map(|t| {
                let [a, b, c] = [corner(&t[0])?, corner(&t[1])?, corner(&t[2])?];
                Some([a, b, c].map(|at| batch.position[at]))
            });
            let span = alive.map(passing_radius).fold(0.0, f64::max);
            let smallest = radii.iter().copied().fold(f64::INFINITY, f64::min);
            let largest = radii.iter().copied().fold(0.0, f64::max);
            let grown = largest * (1.0 + self.memory.margin[k]) + span;
            self.memory.span[k] = grown - smallest * (1.0 + self.memory.margin[k]);
            radii.fill(grown);
            cells[k] = self.setup.lattice.occupied(&batch.position, &radii, Reach::Sphere(0.0));
        }
        Ok((told, cells))
    }

    /// Begins the step of the participants for which `begins` is true, with the particles wanted of each.
    fn begin_with(
        &mut self,
        wanted: Vec<Wanted>,
        begins: impl Fn(usize) -> bool,
    ) -> Result<Vec<Option<Batch>>, CoordinatorError> {
        let interests: Vec<Interest> =
            wanted.into_iter().enumerate().map(|(k, wanted)| self.interest(k, wanted)).collect();
        let pairs = self.participants.iter_mut().zip(interests).enumerate().filter(|(k, _)| begins(*k));
        let calls = pairs.map(|(k, (participant, interest))| async move {
            let context = participant.part.connection.context();
            Ok((k, participant.part.connection.begin(Begin { context, interest }).await?))
        });
        let asked = Instant::now();
        let answers = first_error(self.io.block_on(join_all(calls)))?;
        if !answers.is_empty() {
            self.instruments.count_round_trip(&mut self.participants, asked);
        }
        let mut batches: Vec<Option<Batch>> = self.participants.iter().map(|_| None).collect();
        answers.into_iter().for_each(|(k, batch)| batches[k] = Some(batch));
        Ok(batches)
    }

    /// The interest that asks for `wanted` particles. A participant whose sheet a probe watches for crossings
    /// sends all corners of its triangles.
    fn interest(&self, participant: usize, wanted: Wanted) -> Interest {
        let triangles = self.instruments.wants_triangles(participant);
        let look_ahead = match self.setup.chosen.method.properties().looks_ahead {
            true => ContactLookAhead {
                time: self.memory.look_ahead,
                acceleration: self.setup.plan.domain.gravity.length(),
            },
            false => ContactLookAhead::default(),
        };
        Interest { wanted, triangles, look_ahead }
    }

    /// Particles to ask for with Commit: the particles of near pairs, unless a particle has moved too far.
    pub(super) fn next(&self, participant: usize) -> Option<Next> {
        if self.progress.clock.is_finished() {
            return None;
        }
        let Memory { margin, reach, .. } = &self.memory;
        // A little less than the margin, because displacements and distances are rounded.
        let within = || 0.999 * (margin[participant] - reach[participant]);
        let (wanted, within) = match self.scratch.begun.listed {
            _ if !self.setup.plan.coupling.interest_mask => (Wanted::All, f64::INFINITY),
            _ if self.setup.meshes[participant].is_some() => (Wanted::All, within()),
            true => (Wanted::Listed(self.listed(participant)), within()),
            false => (Wanted::Again, within()),
        };
        Some(Next { interest: self.interest(participant, wanted), within })
    }
}

/// Margin of each participant as a part of the radius, from its largest |v|/r [1/s]: m_k = (|v|/r)_k t, with
/// t = 2 NEAR_MARGIN / (sum of the two largest |v|/r). All participants use up their margins in the time t.
fn margins(rates: &[f64]) -> Vec<f64> {
    let (mut first, mut second) = (0.0, 0.0f64);
    for &rate in rates {
        (first, second) = if rate > first { (rate, first) } else { (first, second.max(rate)) };
    }
    // The time stays finite if nothing moves.
    let time = (2.0 * NEAR_MARGIN / (first + second)).min(f64::MAX);
    rates.iter().map(|rate| (rate * time).max(NEAR_MARGIN_MIN)).collect()
}

#[cfg(test)]
mod tests {
    use super::margins;

    #[test]
    fn margins_are_used_up_in_the_same_time() {
        assert_eq!(margins(&[3.0, 1.0]), [0.75, 0.25]);
        assert_eq!(margins(&[1.0, 3.0, 1.0]), [0.25, 0.75, 0.25]);
        assert_eq!(margins(&[0.0, 7.0]), [0.05, 1.0]);
        assert_eq!(margins(&[0.0, 0.0]), [0.05; 2]);
        assert_eq!(margins(&[5e-324, 0.0]), [0.05; 2]);
        assert_eq!(margins(&[f64::MAX; 2]), [0.05; 2]);
    }
}
