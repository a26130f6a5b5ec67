//! The coupled step (`docs/method.md`, "One coupled step"): one call a phase.

use std::time::Instant;

use amalgam_particles::{CellSet, DVec3, ParticleId, reduce};
use amalgam_proto::contract::{
    Batch, Begin, Commit, Committed, Context, Groups, Integrate, Integrated, Interest, Next, Survey, Wanted,
};
use futures_util::future::join_all;

use crate::contacts::{Candidates, ContactFinder, Contacts, Ranked, approaching};
use crate::error::CoordinatorError;
use crate::merge::{Forest, GroupLimit};
use crate::methods::{ContactMethod, Response};
use crate::participant::Participant;
use crate::settings::{CouplingSettings, MaxStages};
use crate::simulation::Simulation;
use crate::split::SplitSettings;
use crate::synchronise::{Ask, Kind, Share, Stage, Synchronised, Turn};

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
    forest: Forest,
    response: Response,
    shares: Vec<Share>,
    parts: Vec<Part>,
    watched: Ranked,
    synchronised: Synchronised,
    velocity: Vec<DVec3>,
    member_velocity: Vec<DVec3>,
    /// For each projection, the impulse it gave its particles in the last step, ascending by id.
    last_impulse: Vec<Vec<(ParticleId, DVec3)>>,
    stage: u32,
    dt: f64,
    record: StepRecord,
}

/// A participant's part of a stage.
#[derive(Clone, Debug, Default)]
struct Part {
    size: Vec<u32>,
    member: Vec<ParticleId>,
    /// Place of each member in the forest's list.
    place: Vec<u32>,
    /// Free candidates in marked pairs.
    watch: Vec<u32>,
    asked: u32,
    travel: f64,
}

/// Near pairs are found with spheres larger by this part of their radius, on average over the two that move fastest: the
/// list then serves until they have moved as far. A longer list costs more in each step, a shorter one serves for fewer.
const NEAR_MARGIN: f64 = 0.5;

/// No participant's spheres count as larger by less than this part of their radius: even what rests is soon pushed.
const NEAR_MARGIN_MIN: f64 = 0.05;

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

    /// Asks every participant for its particles that are near others'.
    fn survey(&mut self) -> Result<Vec<Batch>, CoordinatorError> {
        let wanted = if self.plan.coupling.interest_mask {
            let rates: Vec<f64> = self.committed.iter().map(|c| c.totals.radius_rate_max).collect();
            self.scratch.margin = margins(&rates);
            let (lattice, margins) = (self.lattice, &self.scratch.margin);
            let calls = self.participants.iter_mut().zip(margins).map(|(participant, &margin)| async move {
                participant.survey(&Survey { context: participant.context(), lattice, margin }).await
            });
            let cells = first_error(self.io.block_on(join_all(calls)))?;
            let others = |k: usize| {
                let others = cells.iter().enumerate().filter(move |&(j, _)| j != k);
                CellSet::union(others.map(|(_, cells)| cells))
            };
            let near = |(k, &margin)| Wanted::Near { lattice, cells: others(k), margin };
            margins.iter().enumerate().map(near).collect()
        } else {
            vec![Wanted::All; self.participants.len()]
        };
        let interests: Vec<Interest> =
            wanted.into_iter().enumerate().map(|(k, wanted)| self.interest(k, wanted)).collect();
        let calls = self.participants.iter_mut().zip(interests).map(|(participant, interest)| {
            let context = participant.context();
            participant.begin(Begin { context, interest })
        });
        first_error(self.io.block_on(join_all(calls)))
    }

    /// Crossings are counted with whole triangles.
    fn interest(&self, participant: usize, wanted: Wanted) -> Interest {
        let triangles = self.probes.iter().any(|probe| probe.sheet() == Some(participant));
        Interest { wanted, triangles }
    }

    /// What to ask for with Commit: the particles in near pairs, as long as nobody has moved far.
    fn next(&self, participant: usize) -> Option<Next> {
        if self.clock.is_finished() {
            return None;
        }
        let Scratch { finder, listed, margin, .. } = &self.scratch;
        // A little less than the margin, since displacements and distances are rounded.
        let within = || 0.999 * margin[participant];
        let (wanted, within) = match listed {
            _ if !self.plan.coupling.interest_mask => (Wanted::All, f64::INFINITY),
            true => (Wanted::Listed(finder.listed(participant as u16)), within()),
            false => (Wanted::Again, within()),
        };
        Some(Next { interest: self.interest(participant, wanted), within })
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
        let [min, max] = self.plan.coupling.group_limit;
        let limit = GroupLimit { min, max, seed: self.plan.seed, step: self.steps };
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
        let stage_of_groups =
            Stage { kinds: &self.kinds, forest, shares, gravity_dt: self.plan.domain.gravity * *dt };
        let result = stage_of_groups.synchronise(&self.plan.coupling, &mut connections)?;
        let waited = connections.waited;

        let scratch = &mut self.scratch;
        for (group, &velocity) in result.velocity.iter().enumerate() {
            for &candidate in scratch.forest.members(group) {
                scratch.velocity[candidate as usize] = velocity;
            }
        }
        scratch.record.repetitions += result.repetitions;
        scratch.record.disagreement = scratch.record.disagreement.max(result.disagreement);
        scratch.record.note_errors(result.momentum_error, 0.0);
        scratch.synchronised = result;
        self.profile.integrate(self.scratch.stage, waited);
        self.profile.synchronise += start.elapsed().as_secs_f64() - waited;
        Ok(())
    }

    /// Whether a particle would travel more than its own radius, so that contacts could be missed.
    fn travels_too_far(&self) -> bool {
        self.scratch.travel() > 1.0
    }

    /// Starts the stages again with a step short enough for the velocities that came out.
    fn shorten_step(&mut self) -> Result<(), CoordinatorError> {
        let scratch = &mut self.scratch;
        let travel = scratch.travel();
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
            candidates, pairs, marked, approaching: found, velocity, forest, stage, record, ..
        } = &mut self.scratch;
        approaching(candidates, marked, |i| velocity[i as usize], found);
        let stages_max = match self.plan.coupling.max_stages {
            _ if self.plan.coupling.method != ContactMethod::MergeSplit => 1,
            MaxStages::Count(count) => count,
            MaxStages::Converged => self.plan.coupling.stage_cap,
        };
        let another = !found.is_empty() && *stage < stages_max;
        if another {
            // Both are sorted.
            let mut next = found.iter().peekable();
            marked.retain(|pair| next.next_if_eq(&pair).is_none());
            pairs.append(found);
            pairs.sort_unstable();
            *stage += 1;
        } else {
            let mut still = Vec::new();
            approaching(candidates, forest.refused(), |i| velocity[i as usize], &mut still);
            record.ignored = forest.refused().len() as u64;
            record.unresolved = (found.len() + still.len()) as u64;
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
            record.dissipated = dissipated(forest, candidates, synchronised, member_velocity);
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

    /// Sorts the forest's groups into the participants' shares, and the free particles of marked pairs into the
    /// watch lists.
    fn deal(&mut self, kinds: &[Kind]) {
        let count = kinds.len();
        self.shares.resize_with(count, Share::default);
        self.parts.resize_with(count, Part::default);
        self.last_impulse.resize_with(count, Vec::new);
        for (share, part) in self.shares.iter_mut().zip(&mut self.parts) {
            share.groups.clear();
            share.mass.clear();
            share.guess.clear();
            part.size.clear();
            part.member.clear();
            part.place.clear();
            part.watch.clear();
            (part.asked, part.travel) = (0, 0.0);
        }
        let mut place = 0;
        for group in 0..self.forest.len() {
            for &candidate in self.forest.members(group) {
                let i = candidate as usize;
                let k = usize::from(self.candidates.participant[i]);
                let (share, part) = (&mut self.shares[k], &mut self.parts[k]);
                if share.groups.last() != Some(&(group as u32)) {
                    share.groups.push(group as u32);
                    share.mass.push(0.0);
                    share.guess.push(DVec3::ZERO);
                    part.size.push(0);
                }
                let local = share.groups.len() - 1;
                share.mass[local] += self.candidates.mass[i];
                part.size[local] += 1;
                let id = self.candidates.id[i];
                if kinds[k] == Kind::Projection
                    && let Ok(at) = self.last_impulse[k].binary_search_by_key(&id, |entry| entry.0)
                {
                    share.guess[local] += self.last_impulse[k][at].1;
                }
                part.member.push(id);
                part.place.push(place);
                place += 1;
            }
        }
        self.watched.clear(self.candidates.len());
        for candidate in self.marked.iter().flat_map(|&(i, j)| [i, j]) {
            if self.forest.group_of(candidate).is_none() && !self.candidates.is_immovable(candidate) {
                self.watched.insert(candidate);
            }
        }
        for candidate in self.watched.iter() {
            self.parts[usize::from(self.candidates.participant[candidate as usize])].watch.push(candidate);
        }
    }

    /// The farthest that any particle travels, relative to its radius.
    fn travel(&self) -> f64 {
        let free = self.parts.iter().map(|part| part.travel).fold(0.0, f64::max);
        let members = self.forest.all_members();
        let member = |place: usize| {
            let i = members[place];
            if self.candidates.is_immovable(i) {
                return 0.0;
            }
            self.velocity[i as usize].length() * self.dt / self.candidates.radius[i as usize]
        };
        free.max(reduce::max(members.len(), 0.0, member))
    }

    /// Keeps what projections gave their particles: the first guess of their impulse in the next step.
    fn remember_impulses(&mut self, kinds: &[Kind]) {
        for (k, memory) in
            self.last_impulse.iter_mut().enumerate().filter(|&(k, _)| kinds[k] == Kind::Projection)
        {
            memory.clear();
            let (share, part) = (&self.shares[k], &self.parts[k]);
            let mut at = 0;
            for (local, &size) in part.size.iter().enumerate() {
                for _ in 0..size {
                    let candidate = self.forest.all_members()[part.place[at] as usize] as usize;
                    let part_of_mass = self.candidates.mass[candidate] / share.mass[local];
                    if part_of_mass.is_finite() {
                        memory.push((part.member[at], self.synchronised.momentum[k][local] * part_of_mass));
                    }
                    at += 1;
                }
            }
            memory.sort_unstable_by_key(|entry| entry.0);
        }
    }
}

/// By how much of their radius the spheres of each participant count as larger when near pairs are listed, from the
/// largest |v| / radius of each [1/s]: so that all use up their margins in the same time.
fn margins(rates: &[f64]) -> Vec<f64> {
    let (mut first, mut second) = (0.0, 0.0f64);
    for &rate in rates {
        (first, second) = if rate > first { (rate, first) } else { (first, second.max(rate)) };
    }
    let time = 2.0 * NEAR_MARGIN / (first + second);
    // Nobody moves: 0 times infinity is not a number.
    rates.iter().map(|rate| (rate * time).max(NEAR_MARGIN_MIN)).collect()
}

/// The participants' services during one stage.
struct Connections<'a> {
    io: &'a tokio::runtime::Runtime,
    participants: &'a mut [Participant],
    candidates: &'a Candidates,
    forest: &'a Forest,
    shares: &'a [Share],
    parts: &'a mut [Part],
    /// Velocities that move positions, of watched candidates.
    velocity: &'a mut Vec<DVec3>,
    occupied: Vec<Option<CellSet>>,
    stage: u32,
    dt: f64,
    /// Wall time spent waiting [s].
    waited: f64,
}

impl Connections<'_> {
    /// The call for a participant's turn; the first of a stage carries the groups.
    fn call(&self, turn: Turn, context: Context) -> Integrate {
        let (share, part) = (&self.shares[turn.participant], &self.parts[turn.participant]);
        let groups = (part.asked == 0).then(|| Groups {
            size: part.size.clone(),
            member: part.member.clone(),
            velocity: share.groups.iter().map(|&group| self.forest.velocity()[group as usize]).collect(),
            watch: part.watch.iter().map(|&i| self.candidates.id[i as usize]).collect(),
            occupied: self.occupied[turn.participant].clone(),
        });
        let Turn { inertia, impulse, .. } = turn;
        Integrate {
            context,
            stage: self.stage,
            repetition: part.asked,
            dt: self.dt,
            groups,
            inertia,
            impulse,
        }
    }
}

impl Ask for Connections<'_> {
    fn ask(&mut self, turns: Vec<Turn>) -> Result<Vec<Integrated>, CoordinatorError> {
        let start = Instant::now();
        let asked: Vec<usize> = turns.iter().map(|turn| turn.participant).collect();
        assert!(asked.is_sorted_by(|a, b| a < b), "each participant has one turn at a time, in order");
        let calls: Vec<(Integrate, u64)> = turns
            .into_iter()
            .map(|turn| {
                let k = turn.participant;
                (self.call(turn, self.participants[k].context()), self.parts[k].watch.len() as u64)
            })
            .collect();
        let turn_of =
            self.participants.iter_mut().enumerate().filter(|(k, _)| asked.binary_search(k).is_ok());
        let waiting = turn_of
            .zip(calls)
            .map(|((_, participant), (call, watched))| participant.integrate(call, watched));
        let answers = first_error(self.io.block_on(join_all(waiting)))?;
        for (&k, answer) in asked.iter().zip(&answers) {
            let part = &mut self.parts[k];
            part.asked += 1;
            part.travel = answer.travel_max;
            for (&candidate, &velocity) in part.watch.iter().zip(&answer.watch_velocity) {
                self.velocity[candidate as usize] = velocity;
            }
        }
        self.waited += start.elapsed().as_secs_f64();
        Ok(answers)
    }
}

/// Energy [J] that a step's merging, synchronising and splitting took away for good: what merging took (relative to
/// v12), and synchronising, less what the members have relative to v' after splitting.
fn dissipated(
    forest: &Forest,
    candidates: &Candidates,
    synchronised: &Synchronised,
    member_velocity: &[DVec3],
) -> f64 {
    reduce::sum(forest.len(), 0.0, |group| {
        let first = forest.offsets()[group] as usize;
        let (before, after) = (forest.velocity()[group], synchronised.velocity[group]);
        let members = forest.members(group).iter().enumerate().map(|(at, &i)| {
            let (mass, velocity) = (candidates.mass[i as usize], candidates.velocity[i as usize]);
            if mass.is_infinite() {
                return 0.0;
            }
            let lost =
                (velocity - before).length_squared() - (member_velocity[first + at] - after).length_squared();
            0.5 * mass * lost
        });
        members.sum::<f64>() + synchronised.energy[group]
    })
}

/// All answers, or the error of the first participant that has one.
fn first_error<T>(answers: Vec<Result<T, CoordinatorError>>) -> Result<Vec<T>, CoordinatorError> {
    answers.into_iter().collect()
}
