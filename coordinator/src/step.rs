//! The coupled step (`docs/method.md`, "One coupled step"): one call a phase.

mod near;
mod stage;

use std::time::Instant;

use amalgam_particles::{CellSet, DVec3, ParticleId};
use amalgam_proto::contract::{Commit, Committed, Next};
use futures_util::future::join_all;

use crate::contacts::{Candidates, ContactFinder, Contacts, Ranked, approaching};
use crate::error::CoordinatorError;
use crate::merge::{Forest, GroupLimit};
use crate::methods::{ContactMethod, Response};
use crate::participant::Participant;
use crate::roster::Roster;
use crate::settings::{CouplingSettings, MaxStages};
use crate::simulation::Simulation;
use crate::split::SplitSettings;
use crate::synchronise::{Share, Stage, Synchronised};
use stage::{Connections, Part};

/// What happened in a step.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepRecord {
    /// Step, from 0.
    pub step: u64,
    /// Its length [s].
    pub dt: f64,
    /// Time at its end [s].
    pub time: f64,
    /// Stages it took.
    pub stages: u32,
    /// Pairs that intersected and approached at its start.
    pub active: u64,
    /// Pairs that intersected and did not approach at its start.
    pub marked: u64,
    /// Meta-particles of the last stage.
    pub groups: u64,
    /// Particles in the largest of them.
    pub group_size_max: u64,
    /// Pairs that the group limit kept from merging in the last stage.
    pub ignored: u64,
    /// Pairs that still approach after the last stage, ignored ones among them.
    pub unresolved: u64,
    /// Times that implicit participants were asked again, all stages.
    pub repetitions: u32,
    /// What they disagreed about at the end, relative to their impulses.
    pub disagreement: f64,
    /// Largest relative error of momentum in merging, synchronising and splitting.
    pub momentum_error: f64,
    /// Largest relative error of energy in merging and splitting.
    pub energy_error: f64,
    /// Energy that merging, synchronising and splitting did not give back [J].
    pub dissipated: f64,
    /// Bonds that broke at its end.
    pub broken: u64,
    /// Times that the step was started again with a shorter dt.
    pub retries: u32,
    /// Wall time [s].
    pub wall_s: f64,
    /// Whether its end is the time of a frame.
    pub frame_due: bool,
}

/// What a step works with. Nothing here outlives the step but memory, the list of near pairs, the candidates' ids and
/// the last impulses of projections.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Whether near pairs were listed in this step.
    listed: bool,
    /// By how much of their radius each participant's spheres counted as larger when near pairs were last listed.
    margin: Vec<f64>,
    pub(crate) candidates: Candidates,
    /// For each participant, the order by id of the particles that it sends.
    order: Vec<Vec<u32>>,
    /// Contacts of participants with themselves.
    own: Vec<(u32, u32)>,
    finder: ContactFinder,
    pub(crate) contacts: Contacts,
    pairs: Vec<(u32, u32)>,
    marked: Vec<(u32, u32)>,
    approaching: Vec<(u32, u32)>,
    receding: Vec<(u32, u32)>,
    forest: Forest,
    response: Response,
    shares: Vec<Share>,
    parts: Vec<Part>,
    watched: Ranked,
    synchronised: Synchronised,
    velocity: Vec<DVec3>,
    /// How far any particle travels at most, relative to its radius.
    travel: f64,
    member_velocity: Vec<DVec3>,
    /// For each projection, the impulse it gave its particles in the last step, ascending by id.
    last_impulse: Vec<Vec<(ParticleId, DVec3)>>,
    stage: u32,
    dt: f64,
    record: StepRecord,
}

/// A step is not started again more often than this for particles that would travel too far.
const RETRIES_MAX: u32 = 8;

impl Simulation {
    /// Advances the scene by one step.
    ///
    /// # Errors
    /// What a participant could not do, with its name, the step and the phase; the state is then that of the last
    /// frame or checkpoint.
    pub fn step(&mut self) -> Result<StepRecord, CoordinatorError> {
        // Inside the pool of workers: each parallel loop then starts where it is, not with a hand-over between threads.
        rayon::scope(|_| self.coupled_step())
    }

    fn coupled_step(&mut self) -> Result<StepRecord, CoordinatorError> {
        let start = Instant::now();
        self.start_step()?;
        self.begin()?;
        self.detect();
        loop {
            self.merge();
            self.synchronise()?;
            if self.travels_too_far() {
                self.shorten_step()?;
            } else if !self.activate_marked() {
                break;
            }
        }
        self.split();
        self.commit()?;
        Ok(self.end_step(start))
    }

    fn start_step(&mut self) -> Result<(), CoordinatorError> {
        let (step, dt) = (self.steps, self.clock.next_dt(self.limits));
        if self.clock.is_stuck(dt) {
            let speed_max = self.committed.iter().map(|c| c.totals.speed_max).fold(0.0, f64::max);
            return Err(CoordinatorError::Stuck { step, dt, speed_max });
        }
        let scratch = &mut self.scratch;
        scratch.record = StepRecord { step, ..StepRecord::default() };
        (scratch.stage, scratch.dt) = (1, dt);
        Ok(())
    }

    /// Takes what the participants said of their particles that may touch others'.
    fn begin(&mut self) -> Result<(), CoordinatorError> {
        let start = Instant::now();
        let begun = self.committed.iter_mut().map(|committed| committed.next.take());
        let batches = match begun.collect() {
            Some(batches) => {
                self.scratch.listed = false;
                batches
            }
            // Someone has moved too far for the list.
            None => {
                self.scratch.listed = true;
                self.survey()?
            }
        };
        let Scratch { candidates, own, order, .. } = &mut self.scratch;
        order.resize_with(batches.len(), Vec::new);
        for (k, batch) in batches.iter().enumerate() {
            if let Some(ids) = &batch.id
                && let Err(id) = self.rosters[k].sort(ids, &mut order[k])
            {
                let reason = format!("id {id} is not in its particle table");
                return Err(self.participants[k].broken("Begin", reason));
            }
        }
        candidates.update(&batches, order, &self.rosters);
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
        self.profile.begin += start.elapsed().as_secs_f64();
        Ok(())
    }

    fn detect(&mut self) {
        let start = Instant::now();
        let Scratch { listed, margin, finder, candidates, own, contacts, pairs, marked, record, .. } =
            &mut self.scratch;
        if !self.plan.coupling.interest_mask {
            finder.list(candidates, &[]);
        } else if *listed {
            finder.list(candidates, margin);
        }
        contacts.clone_from(finder.touching(candidates, own));
        pairs.clone_from(&contacts.active);
        marked.clone_from(&contacts.marked);
        (record.active, record.marked) = (pairs.len() as u64, marked.len() as u64);
        self.profile.detect += start.elapsed().as_secs_f64();
    }

    /// Merges the active pairs and deals the groups to the participants that have particles in them.
    fn merge(&mut self) {
        let start = Instant::now();
        let CouplingSettings { group_limit: [min, max], keep_lone_contacts, .. } = self.plan.coupling;
        let limit = GroupLimit { min, max, keep_lone_contacts, seed: self.plan.seed, step: self.steps };
        let scratch = &mut self.scratch;
        if self.plan.coupling.method == ContactMethod::MergeSplit {
            scratch.forest.merge(&scratch.candidates, &scratch.pairs, &limit);
            let errors = scratch.forest.merge_errors(&scratch.candidates);
            scratch.record.note_errors(errors.momentum, errors.energy);
        } else {
            scratch.respond(&self.plan.coupling);
        }
        scratch.deal(&self.kinds);
        self.profile.merge += start.elapsed().as_secs_f64();
    }

    /// Lets the participants integrate and agrees on a velocity for each group.
    fn synchronise(&mut self) -> Result<(), CoordinatorError> {
        let start = Instant::now();
        let occupied = self.occupied();
        let Scratch { forest, shares, parts, candidates, velocity, stage, dt, .. } = &mut self.scratch;
        let mut connections = Connections {
            io: &self.io,
            participants: &mut self.participants,
            candidates,
            forest,
            shares,
            parts,
            velocity,
            occupied,
            stage: *stage,
            dt: *dt,
            waited: 0.0,
        };
        connections.velocity.clone_from(&candidates.velocity);
        let sizes: Vec<u64> = self.rosters.iter().map(Roster::len).collect();
        let gravity_dt = self.plan.domain.gravity * *dt;
        let stage_of_groups = Stage { kinds: &self.kinds, sizes: &sizes, forest, shares, gravity_dt };
        let result = stage_of_groups.synchronise(&self.plan.coupling, &mut connections)?;
        let waited = connections.waited;

        let scratch = &mut self.scratch;
        scratch.record.repetitions += result.repetitions;
        scratch.record.disagreement = scratch.record.disagreement.max(result.disagreement);
        scratch.record.note_errors(result.momentum_error, 0.0);
        scratch.synchronised = result;
        scratch.move_groups();
        self.profile.integrate(self.scratch.stage, waited);
        self.profile.synchronise += start.elapsed().as_secs_f64() - waited;
        Ok(())
    }

    /// Whether a particle would travel more than its own radius, so that contacts could be missed.
    fn travels_too_far(&self) -> bool {
        self.scratch.travel > 1.0
    }

    /// Starts the stages again with a step short enough for the velocities that came out.
    fn shorten_step(&mut self) -> Result<(), CoordinatorError> {
        let scratch = &mut self.scratch;
        let travel = scratch.travel;
        if scratch.record.retries == RETRIES_MAX {
            let (step, dt) = (self.steps, scratch.dt);
            return Err(CoordinatorError::Runaway { step, dt, travel });
        }
        scratch.dt *= self.plan.time.cfl / travel;
        scratch.stage = 1;
        scratch.record.retries += 1;
        scratch.pairs.clone_from(&scratch.contacts.active);
        scratch.marked.clone_from(&scratch.contacts.marked);
        Ok(())
    }

    /// Activates the marked pairs that approach with the velocities that will move positions. Says whether another
    /// stage is needed and allowed.
    fn activate_marked(&mut self) -> bool {
        let start = Instant::now();
        let Scratch {
            candidates,
            pairs,
            marked,
            approaching: found,
            receding,
            velocity,
            forest,
            stage,
            record,
            ..
        } = &mut self.scratch;
        let velocity = |i| velocity[i as usize];
        approaching(candidates, marked, velocity, found, receding);
        let stages_max = match self.plan.coupling.max_stages {
            _ if self.plan.coupling.method != ContactMethod::MergeSplit => 1,
            MaxStages::Count(count) => count,
            MaxStages::Converged => self.plan.coupling.stage_cap,
        };
        let another = !found.is_empty() && *stage < stages_max;
        if another {
            std::mem::swap(marked, receding);
            pairs.append(found);
            // Two sorted lists: what a stable sort joins at once.
            pairs.sort();
            *stage += 1;
        } else {
            record.ignored = forest.refused().len() as u64;
            record.unresolved = found.len() as u64;
            approaching(candidates, forest.refused(), velocity, found, receding);
            record.unresolved += found.len() as u64;
        }
        self.profile.synchronise += start.elapsed().as_secs_f64();
        another
    }

    fn split(&mut self) {
        let start = Instant::now();
        let coupling = &self.plan.coupling;
        let settings = SplitSettings {
            rule: coupling.split,
            alpha: coupling.alpha,
            beta: coupling.beta,
            slip: coupling.slip,
        };
        let Scratch { forest, candidates, synchronised, member_velocity, record, .. } = &mut self.scratch;
        let Synchronised { velocity, energy, .. } = synchronised;
        forest.split(velocity, energy, &settings, member_velocity);
        let errors = forest.split_errors(candidates, velocity, energy, &settings, member_velocity);
        record.note_errors(errors.momentum, errors.energy);
        if coupling.method == ContactMethod::MergeSplit {
            record.dissipated = forest.dissipated(energy, &settings);
        }
        self.profile.split += start.elapsed().as_secs_f64();
    }

    /// Ends the step in every participant, learns from them what limits the next one, and lets them begin it.
    fn commit(&mut self) -> Result<(), CoordinatorError> {
        let start = Instant::now();
        self.clock.advance(self.scratch.dt);
        let want_state_hash = self.clock.frame_due();
        let grids: Vec<_> = self.occupancy.iter().flatten().copied().collect();
        for (tracked, roster) in self.tracked.iter_mut().zip(&self.rosters) {
            // Who died can be tracked no longer.
            tracked.retain(|&id| roster.contains(id));
        }
        let nexts: Vec<Option<Next>> = (0..self.participants.len()).map(|k| self.next(k)).collect();
        let scratch = &self.scratch;
        let calls = self.participants.iter_mut().zip(nexts).enumerate().map(|(k, (participant, next))| {
            let (share, part) = (&scratch.shares[k], &scratch.parts[k]);
            let own = |&place: &u32| scratch.member_velocity[place as usize];
            participant.commit(Commit {
                context: participant.context(),
                stage: scratch.stage,
                repetition: part.asked - 1,
                want_state_hash,
                grids: grids.clone(),
                group_velocity: share
                    .groups
                    .iter()
                    .map(|&g| scratch.synchronised.velocity[g as usize])
                    .collect(),
                group_number: share.groups.clone(),
                member_velocity: part.place.iter().map(own).collect(),
                track: self.tracked[k].clone(),
                next,
            })
        });
        let done = first_error(self.io.block_on(join_all(calls)))?;
        self.take_over(done)?;
        self.scratch.remember_impulses(&self.kinds);
        self.profile.commit += start.elapsed().as_secs_f64();
        Ok(())
    }

    fn take_over(&mut self, done: Vec<Committed>) -> Result<(), CoordinatorError> {
        // The participants have gone on to the next step; the fault is of this one.
        let broken = |participant: &Participant, step: u64, reason: String| {
            let participant = participant.name.clone();
            Err(CoordinatorError::Protocol { participant, step, phase: "Commit", reason })
        };
        for (k, committed) in done.into_iter().enumerate() {
            if let Err(reason) = self.rosters[k].update(&committed) {
                return broken(&self.participants[k], self.steps, reason);
            }
            self.cells[k].clone_from(&committed.cells);
            self.solver_s[k] += committed.solver_seconds;
            self.committed[k] = committed;
        }
        self.limits.stable_dt = self.committed.iter().map(|c| c.stable_dt).fold(f64::INFINITY, f64::min);
        self.limits.radius_rate = self.committed.iter().map(|c| c.totals.radius_rate_max).fold(0.0, f64::max);
        if self.clock.frame_due() {
            self.state_hash = crate::simulation::joint_hash(self.committed.iter().map(|c| c.state_hash));
        }
        Ok(())
    }

    fn end_step(&mut self, start: Instant) -> StepRecord {
        let scratch = &mut self.scratch;
        let sizes = scratch.forest.offsets().windows(2).map(|w| u64::from(w[1] - w[0]));
        scratch.record = StepRecord {
            dt: scratch.dt,
            time: self.clock.time(),
            stages: scratch.stage,
            groups: scratch.forest.len() as u64,
            group_size_max: sizes.max().unwrap_or(0),
            broken: self.committed.iter().map(|committed| committed.broken).sum(),
            wall_s: start.elapsed().as_secs_f64(),
            frame_due: self.clock.frame_due(),
            ..scratch.record
        };
        let record = scratch.record;
        self.steps += 1;
        self.statistics.add(&record, &self.committed);
        self.sample_probes(&record);
        record
    }

    /// The cells that anyone occupies, for each participant that wants to know.
    fn occupied(&self) -> Vec<Option<CellSet>> {
        let mut grids = 0..;
        let union_of_grid = |lattice: &Option<_>| {
            let grid = lattice.as_ref().and_then(|_| grids.next())?;
            Some(CellSet::union(self.cells.iter().map(|cells| &cells[grid])))
        };
        self.occupancy.iter().map(union_of_grid).collect()
    }
}

impl StepRecord {
    fn note_errors(&mut self, momentum: f64, energy: f64) {
        self.momentum_error = self.momentum_error.max(momentum);
        self.energy_error = self.energy_error.max(energy);
    }
}

impl Scratch {
    /// Lets a method of contact that does not merge act. Every pair counts as marked: those that approach in the end are
    /// unresolved.
    fn respond(&mut self, coupling: &CouplingSettings) {
        let Self { response, candidates, contacts, forest, marked, record, .. } = self;
        response.respond(coupling, candidates, contacts, self.dt);
        forest.keep_apart(candidates, response);
        marked.clear();
        marked.extend(contacts.pairs());
        record.dissipated = response.dissipated;
        record.note_errors(response.momentum_error, 0.0);
    }
}

/// All answers, or the error of the first participant that has one.
fn first_error<T>(answers: Vec<Result<T, CoordinatorError>>) -> Result<Vec<T>, CoordinatorError> {
    answers.into_iter().collect()
}
