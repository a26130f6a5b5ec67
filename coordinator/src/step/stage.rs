//! What the participants are told in a stage, and what they answer.

use std::time::Instant;

use amalgam_particles::{CellSet, DVec3, ParticleId};
use amalgam_proto::contract::{Context, Groups, Integrate, Integrated};
use futures_util::future::join_all;

use super::{Scratch, first_error};
use crate::contacts::Candidates;
use crate::error::CoordinatorError;
use crate::merge::Forest;
use crate::participant::Participant;
use crate::synchronise::{Ask, Kind, Share, Turn};

/// A participant's part of a stage.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    pub(super) size: Vec<u32>,
    pub(super) member: Vec<ParticleId>,
    /// Place of each member in the forest's list.
    pub(super) place: Vec<u32>,
    /// Free candidates in marked pairs.
    pub(super) watch: Vec<u32>,
    pub(super) asked: u32,
    pub(super) travel: f64,
}

impl Scratch {
    /// Sorts the forest's groups into the participants' shares, and the free particles of marked pairs into the
    /// watch lists.
    pub(super) fn deal(&mut self, kinds: &[Kind]) {
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
        let Self { forest, candidates, shares, parts, last_impulse, marked, watched, .. } = self;
        // Members ascend, and so do the candidates' participants.
        let ends: Vec<u32> = (1..=count).map(|k| candidates.first(k as u16) as u32).collect();
        let mut place = 0;
        for group in 0..forest.len() {
            let mut rest = forest.members(group);
            while let Some(&first) = rest.first() {
                let k = usize::from(candidates.participant[first as usize]);
                let (own, others) = rest.split_at(rest.iter().take_while(|&&i| i < ends[k]).count());
                rest = others;
                let (share, part) = (&mut shares[k], &mut parts[k]);
                let ids = own.iter().map(|&i| candidates.id[i as usize]);
                let last = |id| match kinds[k] {
                    Kind::Projection => last_impulse[k].binary_search_by_key(&id, |entry| entry.0).ok(),
                    _ => None,
                };
                let guess = ids.clone().filter_map(last).map(|at| last_impulse[k][at].1);
                share.groups.push(group as u32);
                share.mass.push(own.iter().map(|&i| candidates.mass[i as usize]).sum());
                share.guess.push(guess.fold(DVec3::ZERO, |sum, impulse| sum + impulse));
                part.size.push(own.len() as u32);
                part.member.extend(ids);
                part.place.extend(place..place + own.len() as u32);
                place += own.len() as u32;
            }
        }
        watched.clear(candidates.len());
        marked.iter().flat_map(|&(i, j)| [i, j]).for_each(|candidate| watched.insert(candidate));
        for candidate in watched.iter() {
            if forest.group_of(candidate).is_none() && !candidates.is_immovable(candidate) {
                parts[usize::from(candidates.participant[candidate as usize])].watch.push(candidate);
            }
        }
    }

    /// Lets every group's members move as one, and finds how far any particle travels, relative to its radius.
    pub(super) fn move_groups(&mut self) {
        let Self { forest, candidates, synchronised, velocity, parts, dt, .. } = self;
        let mut travel = parts.iter().map(|part| part.travel).fold(0.0, f64::max);
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

    /// Keeps what projections gave their particles: the first guess of their impulse in the next step.
    pub(super) fn remember_impulses(&mut self, kinds: &[Kind]) {
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

/// The participants' services during one stage.
pub(super) struct Connections<'a> {
    pub(super) io: &'a tokio::runtime::Runtime,
    pub(super) participants: &'a mut [Participant],
    pub(super) candidates: &'a Candidates,
    pub(super) forest: &'a Forest,
    pub(super) shares: &'a [Share],
    pub(super) parts: &'a mut [Part],
    /// Velocities that move positions, of watched candidates.
    pub(super) velocity: &'a mut Vec<DVec3>,
    pub(super) occupied: Vec<Option<CellSet>>,
    pub(super) stage: u32,
    pub(super) dt: f64,
    /// Wall time spent waiting [s].
    pub(super) waited: f64,
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
        let Turn { inertia, impulse, forcing, .. } = turn;
        Integrate {
            context,
            stage: self.stage,
            repetition: part.asked,
            dt: self.dt,
            forcing,
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
