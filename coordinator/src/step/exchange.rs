//! Messages of a stage: the groups that each participant is told, and its answers.

use std::time::Instant;

use amalgam_particles::text::{number, vector};
use amalgam_particles::{CellSet, DVec3, SPEED_LIMIT};
use amalgam_proto::contract::{Context, Groups, Integrate, Integrated, Integration};
use futures_util::future::join_all;

use crate::contacts::Candidates;
use crate::error::CoordinatorError;
use crate::instruments::Instruments;
use crate::merging::merge::Forest;
use crate::participant::Participant;
use crate::state::memory::Memory;
use crate::state::scratch::{Assignment, Grouped, Velocities};
use crate::synchronise::{Ask, Share, StageRequest};

impl Grouped {
    /// Sorts the forest's groups into the participants' shares, with first guesses from memory, and the free
    /// particles of the pairs in `watch` into the participants' watch lists. Returns true if a projection and
    /// an implicit participant share a movable group.
    pub(super) fn distribute(
        &mut self,
        participants: &[Participant],
        memory: &Memory,
        watch: &[(u32, u32)],
    ) -> bool {
        self.clear_shares(participants.len());
        let Self { forest, shares, assignments, watched } = self;
        let Memory { candidates, last_impulse, .. } = memory;
        let mut projected = false;
        // Candidates are sorted by participant and members ascend: the members of one participant follow each
        // other.
        let ends: Vec<u32> = (1..=participants.len()).map(|k| candidates.first(k as u16) as u32).collect();
        let mut place = 0;
        for group in 0..forest.len() {
            let mut rest = forest.members(group);
            let (mut projection, mut implicit) = (false, false);
            while let Some(&first) = rest.first() {
                let k = usize::from(candidates.participant[first as usize]);
                let (own, others) = rest.split_at(rest.iter().take_while(|&&i| i < ends[k]).count());
                rest = others;
                projection |= participants[k].kind == Integration::Projection;
                implicit |= participants[k].kind == Integration::Implicit;
                let (share, assignment) = (&mut shares[k], &mut assignments[k]);
                let ids = own.iter().map(|&i| candidates.id[i as usize]);
                let last = |id| match participants[k].kind {
                    Integration::Explicit => None,
                    _ => last_impulse[k].binary_search_by_key(&id, |entry| entry.0).ok(),
                };
                let guess = ids.clone().filter_map(last).map(|at| last_impulse[k][at].1);
                share.groups.push(group as u32);
                share.mass.push(own.iter().map(|&i| candidates.mass[i as usize]).sum());
                share.guess.push(guess.fold(DVec3::ZERO, |sum, impulse| sum + impulse));
                assignment.size.push(own.len() as u32);
                assignment.member.extend(ids);
                assignment.place.extend(place..place + own.len() as u32);
                place += own.len() as u32;
            }
            projected |= projection && implicit && forest.mass()[group].is_finite();
        }
        watched.clear(candidates.len());
        watch.iter().flat_map(|&(i, j)| [i, j]).for_each(|candidate| watched.insert(candidate));
        for candidate in watched.iter() {
            if forest.group_of(candidate).is_none() && !candidates.is_immovable(candidate) {
                assignments[usize::from(candidates.participant[candidate as usize])].watch.push(candidate);
            }
        }
        projected
    }

    fn clear_shares(&mut self, count: usize) {
        self.shares.resize_with(count, Share::default);
        self.assignments.resize_with(count, Assignment::default);
        for (share, assignment) in self.shares.iter_mut().zip(&mut self.assignments) {
            share.groups.clear();
            share.mass.clear();
            share.guess.clear();
            assignment.size.clear();
            assignment.member.clear();
            assignment.place.clear();
            assignment.watch.clear();
            (assignment.asked, assignment.travel) = (0, 0.0);
        }
    }
}

/// Services of the participants during one stage.
pub(super) struct Connections<'a> {
    io: &'a tokio::runtime::Runtime,
    participants: &'a mut [Participant],
    instruments: &'a mut Instruments,
    pub(super) candidates: &'a Candidates,
    pub(super) forest: &'a Forest,
    pub(super) shares: &'a [Share],
    assignments: &'a mut [Assignment],
    /// Velocity that moves each candidate [m/s]. Answers set the velocities of watched candidates.
    velocity: &'a mut Vec<DVec3>,
    occupied: Vec<Option<CellSet>>,
    pub(super) stage: u32,
    pub(super) dt: f64,
    /// Wall time spent waiting [s].
    pub(super) waited: f64,
}

impl<'a> Connections<'a> {
    /// Services in a stage, for a step of length `dt` [s]. Candidates have the velocities at the start of the
    /// step until answers change them.
    pub(super) fn new(
        io: &'a tokio::runtime::Runtime,
        participants: &'a mut [Participant],
        instruments: &'a mut Instruments,
        candidates: &'a Candidates,
        grouped: &'a mut Grouped,
        velocities: &'a mut Velocities,
        (stage, dt): (u32, f64),
    ) -> Self {
        let Grouped { forest, shares, assignments, .. } = grouped;
        let velocity = &mut velocities.candidates;
        velocity.clone_from(&candidates.velocity);
        let occupied = occupied(participants);
        Self {
            io,
            participants,
            instruments,
            candidates,
            forest,
            shares,
            assignments,
            velocity,
            occupied,
            stage,
            dt,
            waited: 0.0,
        }
    }

    /// The call for a request. The first call of a participant in a stage carries the groups.
    fn call(&mut self, request: StageRequest, context: Context) -> Integrate {
        let (share, assignment) =
            (&self.shares[request.participant], &mut self.assignments[request.participant]);
        let groups = (assignment.asked == 0).then(|| Groups {
            size: assignment.size.clone(),
            member: assignment.member.clone(),
            velocity: share.groups.iter().map(|&group| self.forest.velocity()[group as usize]).collect(),
            watch: assignment.watch.iter().map(|&i| self.candidates.id[i as usize]).collect(),
            occupied: self.occupied[request.participant].clone(),
        });
        let StageRequest { inertia, impulse, forcing, .. } = request;
        let told = std::mem::replace(&mut assignment.inertia, inertia);
        let inertia = (groups.is_some() || assignment.inertia != told).then(|| assignment.inertia.clone());
        Integrate {
            context,
            stage: self.stage,
            repetition: assignment.asked,
            dt: self.dt,
            forcing,
            groups,
            inertia,
            impulse,
        }
    }

    /// Refuses bodies that do not fit the particle table, and a momentum that would make a group faster than
    /// [`SPEED_LIMIT`], before other participants are told of it.
    fn check_momentum(&self, participant: usize, answer: &Integrated) -> Result<(), CoordinatorError> {
        let part = &self.participants[participant].part;
        if answer.bodies.is_some() != part.roster.has_bodies() {
            let reason = match answer.bodies {
                Some(_) => "its groups are described as bodies, but its particle table has none",
                None => "its groups are bodies, but they are not described",
            };
            return Err(part.connection.broken("Integrate", reason));
        }
        let groups = &self.shares[participant].groups;
        for (&group, &momentum) in groups.iter().zip(&answer.momentum) {
            let mass = self.forest.mass()[group as usize];
            if mass.is_finite() && momentum.length() >= mass * SPEED_LIMIT {
                let first = self.forest.members(group as usize)[0];
                let reason = format!(
                    "momentum {} kg m/s of the group of particle {}, which has {} kg, is beyond {SPEED_LIMIT:e} m/s",
                    vector(momentum),
                    self.candidates.id[first as usize],
                    number(mass)
                );
                return Err(self.participants[participant].part.connection.broken("Integrate", reason));
            }
        }
        Ok(())
    }
}

impl Velocities {
    /// The participant that makes a particle travel farthest: the owner of a free particle, or the
    /// participant that gave the fastest group the most momentum.
    pub(super) fn fastest(&self, grouped: &Grouped) -> usize {
        let farthest = |&k: &usize| grouped.assignments[k].travel;
        let free =
            (0..grouped.assignments.len()).max_by(|a, b| farthest(a).total_cmp(&farthest(b))).unwrap_or(0);
        let speed = |&group: &usize| self.synchronised.velocity[group].length();
        let group =
            (0..self.synchronised.velocity.len()).max_by(|a, b| speed(a).total_cmp(&speed(b))).unwrap_or(0);
        let given = |&k: &usize| {
            let local = grouped.shares[k].groups.binary_search(&(group as u32)).ok();
            local.map_or(0.0, |local| self.synchronised.momentum[k][local].length())
        };
        if farthest(&free) >= self.travel {
            return free;
        }
        (0..grouped.shares.len()).max_by(|a, b| given(a).total_cmp(&given(b))).unwrap_or(free)
    }
}

impl Ask for Connections<'_> {
    fn ask(&mut self, requests: Vec<StageRequest>) -> Result<Vec<Integrated>, CoordinatorError> {
        let start = Instant::now();
        let asked: Vec<usize> = requests.iter().map(|request| request.participant).collect();
        assert!(asked.is_sorted_by(|a, b| a < b), "each participant has one request at a time, in order");
        let calls: Vec<(Integrate, u64)> = requests
            .into_iter()
            .map(|request| {
                let k = request.participant;
                let watched = self.assignments[k].watch.len() as u64;
                (self.call(request, self.participants[k].part.connection.context()), watched)
            })
            .collect();
        let asked_now =
            self.participants.iter_mut().enumerate().filter(|(k, _)| asked.binary_search(k).is_ok());
        let waiting = asked_now
            .zip(calls)
            .map(|((_, participant), (call, watched))| participant.part.connection.integrate(call, watched));
        let answers = first_error(self.io.block_on(join_all(waiting)))?;
        self.instruments.count_round_trip(self.participants, start);
        for (&k, answer) in asked.iter().zip(&answers) {
            self.check_momentum(k, answer)?;
            let assignment = &mut self.assignments[k];
            assignment.asked += 1;
            assignment.travel = answer.travel_max;
            for (&candidate, &velocity) in assignment.watch.iter().zip(&answer.watch_velocity) {
                self.velocity[candidate as usize] = velocity;
            }
        }
        self.instruments.count_integration(start, self.stage);
        self.waited += start.elapsed().as_secs_f64();
        Ok(answers)
    }
}

/// Cells that particles of any participant occupy, for each participant that asks for them.
fn occupied(participants: &[Participant]) -> Vec<Option<CellSet>> {
    let mut grids = 0..;
    let union_of_grid = |participant: &Participant| {
        let grid = participant.occupancy.as_ref().and_then(|_| grids.next())?;
        Some(CellSet::union(participants.iter().map(|participant| &participant.part.cells[grid])))
    };
    participants.iter().map(union_of_grid).collect()
}

/// All answers, or the first error in the order of the participants.
pub(super) fn first_error<T>(answers: Vec<Result<T, CoordinatorError>>) -> Result<Vec<T>, CoordinatorError> {
    answers.into_iter().collect()
}
