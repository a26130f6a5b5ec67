//! A run that is served: the effect of the calls of a step.

use std::time::Instant;

use amalgam_particles::{DMat3, DVec3, GroupMap, NO_GROUP, ParticleId, Reach, StepEnd, reduce};
use amalgam_proto::columns::WireError;
use amalgam_proto::contract::{
    Batch, Commit, Committed, Context, Groups, Integrate, Integrated, Interest, Next,
};
use amalgam_proto::{Columns, v1};
use amalgam_ranks::Ranks;
use rayon::prelude::*;

use super::{Refusal, agreed};
use crate::ids::{Found, IdIndex};
use crate::joined::{Members, by_number, united};
use crate::near::NearParticles;
use crate::solver::{Answer, Request, Solver};
use crate::sums::{Change, check_finite, missing_energy, state_hash, totals};

/// A run of a solver, between Initialize and Shutdown, on one of the ranks that a participant is cut among.
pub(super) struct Run {
    pub(super) context: Context,
    pub(super) ranks: Ranks,
    pub(super) solver: Box<dyn Solver>,
    /// Particles of all ranks.
    pub(super) count: u64,
    pub(super) phase: Phase,
    pub(super) ids: IdIndex,
    pub(super) near: NearParticles,
    /// True if groups are bodies.
    pub(super) has_bodies: bool,
    /// True if the solver has begun the step.
    pub(super) prepared: bool,
    /// The groups' members on this rank.
    pub(super) groups: GroupMap,
    pub(super) members: Found,
    /// Number of each group's first member among those of all ranks, and the number of these.
    pub(super) offsets: Vec<u32>,
    pub(super) member_ids: Vec<ParticleId>,
    pub(super) velocity: Vec<DVec3>,
    /// Inertia of each group [kg] in the last call of the stage.
    pub(super) inertia: Vec<f64>,
    /// Slopes in the last answer of the stage [kg].
    pub(super) slope: Vec<DMat3>,
    pub(super) watch: Found,
    pub(super) occupied: Option<amalgam_particles::CellSet>,
    pub(super) answer: Answer,
    pub(super) dt: f64,
    pub(super) group_number: Vec<u32>,
    pub(super) velocity_before: Vec<DVec3>,
    /// Wall time in the solver since the last commit [s].
    pub(super) solver_seconds: f64,
    /// The last call to integrate and its answer as sent, until the step ends.
    pub(super) last_integrate: Option<(Integrate, Encoded)>,
    /// The last answer to Commit, and the further questions that came with it.
    pub(super) last_commit: Option<(Committed, Option<Next>)>,
}

/// The answer to Integrate on its way out: clones share its columns.
pub(crate) type Encoded = (v1::IntegrateAnswer, Columns);

/// The call that came last in the current step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Ready,
    Begun,
    Integrated { stage: u32, repetition: u32 },
}

impl Run {
    pub(super) fn new(
        (context, ranks): (Context, Ranks),
        solver: Box<dyn Solver>,
        near: NearParticles,
    ) -> Self {
        let own = solver.particles().len();
        Self {
            context,
            ranks,
            solver,
            count: own as u64,
            phase: Phase::Ready,
            ids: IdIndex::default(),
            near,
            has_bodies: false,
            prepared: false,
            groups: GroupMap::none(own),
            members: Found::default(),
            offsets: vec![0],
            member_ids: Vec::new(),
            velocity: Vec::new(),
            inertia: Vec::new(),
            slope: Vec::new(),
            watch: Found::default(),
            occupied: None,
            answer: Answer::default(),
            dt: 0.0,
            group_number: vec![u32::MAX; own],
            velocity_before: Vec::new(),
            solver_seconds: 0.0,
            last_integrate: None,
            last_commit: None,
        }
    }

    pub(super) fn count_particles(&mut self) {
        let mut count = [self.solver.particles().len() as i64];
        self.ranks.sum(&mut count);
        self.count = count[0] as u64;
    }

    /// True if the particles are as they were committed, even if the next step has begun.
    pub(super) fn is_between_steps(&self) -> bool {
        !matches!(self.phase, Phase::Integrated { .. })
    }

    pub(super) fn expect(&self, in_order: bool, call: &str, step: u64) -> Result<(), Refusal> {
        if in_order && step == self.context.step {
            return Ok(());
        }
        let now = self.context.step;
        let expected = match self.phase {
            Phase::Ready => format!("Begin of step {now}"),
            Phase::Begun => format!("Integrate of step {now}, stage 1, repetition 0"),
            Phase::Integrated { stage, repetition } => {
                format!("Integrate or Commit of step {now} after stage {stage}, repetition {repetition}")
            }
        };
        Err(Refusal::OutOfOrder { got: format!("{call} of step {step}"), expected })
    }

    pub(super) fn begin(&mut self, interest: Interest) -> Batch {
        self.phase = Phase::Begun;
        self.near.begin(&*self.solver, &self.ids, interest)
    }

    /// Begins the next step in the same call as the end of this one, if the call asks for it.
    pub(super) fn start_next(&mut self, done: Committed, next: Option<Next>) -> Committed {
        let drift = self.near.drift(self.solver.particles());
        let next = next.filter(|next| drift <= next.within);
        Committed { next: next.map(|next| self.begin(next.interest)), ..done }
    }

    pub(super) fn integrate(&mut self, call: Integrate) -> Result<Encoded, Refusal> {
        if let Some((last, answer)) = &self.last_integrate
            && *last == call
        {
            // The answer was lost. A second integration would start its iterations from the first result and
            // end with other bits.
            return Ok(answer.clone());
        }
        let (stage, repetition) = (call.stage, call.repetition);
        // Stage 1 may come again: the coordinator then starts the step again with a shorter dt.
        let in_order = (stage, repetition) == (1, 0) && self.phase != Phase::Ready
            || matches!(self.phase, Phase::Integrated { stage: s, repetition: r }
                if (stage, repetition) == (s, r + 1) || (stage, repetition) == (s + 1, 0));
        self.expect(
            in_order,
            &format!("Integrate of stage {stage}, repetition {repetition},"),
            call.context.step,
        )?;
        // Any failure from here on spoils the last answer: nothing can be committed before stage 1 comes
        // again.
        (self.phase, self.last_integrate) = (Phase::Begun, None);
        if let Some(groups) = &call.groups {
            self.set_groups(groups)?;
        }
        let (count, groups) = (self.solver.particles().len(), self.groups.len());
        if call.impulse.len() != groups {
            return Err(WireError::Rule(format!(
                "{} impulses for the {groups} groups of this stage",
                call.impulse.len()
            ))
            .into());
        }
        if let Some(inertia) = &call.inertia {
            self.inertia.clone_from(inertia);
        }
        self.answer.momentum.clear();
        self.answer.momentum.resize(groups, DVec3::ZERO);
        self.answer.slope.clear();
        self.answer.bodies.clear();
        let velocities = if self.solver.deferred().is_none() { count } else { 0 };
        self.answer.velocity.resize(velocities, DVec3::ZERO);
        self.answer
            .velocity
            .par_iter_mut()
            .with_min_len(reduce::CHUNK)
            .for_each(|velocity| *velocity = DVec3::ZERO);
        self.dt = call.dt;
        let request = Request {
            step: self.context.step,
            stage,
            repetition,
            dt: call.dt,
            forcing: call.forcing,
            groups: &self.groups,
            members: Members { ranks: &self.ranks, number: &self.members.number, offsets: &self.offsets },
            inertia: &self.inertia,
            velocity: &self.velocity,
            impulse: &call.impulse,
            occupied: self.occupied.as_ref(),
        };
        let start = Instant::now();
        let integrated = self.solver.integrate(&request, &mut self.answer).map_err(Refusal::from);
        self.solver_seconds += start.elapsed().as_secs_f64();
        agreed(&self.ranks, integrated)?;
        let travel_max = self.check_answer()?;
        self.phase = Phase::Integrated { stage, repetition };
        let watch_velocity = match self.solver.deferred() {
            Some(deferred) => deferred.velocity(&self.watch.index),
            None => self.watch.index.iter().map(|&i| self.answer.velocity[i as usize]).collect(),
        };
        let watch_velocity = by_number(&self.ranks, &self.watch.number, watch_velocity).unwrap_or_default();
        let slope = std::mem::replace(&mut self.slope, std::mem::take(&mut self.answer.slope));
        let answer = Integrated {
            momentum: std::mem::take(&mut self.answer.momentum),
            slope: (repetition == 0 || self.slope != slope).then(|| self.slope.clone()),
            watch_velocity,
            travel_max,
            bodies: self.has_bodies.then(|| std::mem::take(&mut self.answer.bodies)),
        };
        let answer = answer.encode();
        self.last_integrate = Some((call, answer.clone()));
        Ok(answer)
    }

    pub(super) fn set_groups(&mut self, groups: &Groups) -> Result<(), Refusal> {
        self.members = self.ids.resolve(&self.ranks, "member", &groups.member)?;
        self.watch = self.ids.resolve(&self.ranks, "watch", &groups.watch)?;
        self.offsets.clear();
        self.offsets.push(0);
        let mut end = 0;
        self.offsets.extend(groups.size.iter().map(|size| {
            end += size;
            end
        }));
        // Members are found in ascending order of their numbers, so the members of a group are consecutive.
        let number = &self.members.number;
        let own = |&offset: &u32| number.partition_point(|&number| number < offset) as u32;
        let offsets: Vec<u32> = self.offsets.iter().map(own).collect();
        self.groups.set(self.solver.particles().len(), &offsets, &self.members.index);
        let group_of = self.groups.group_of();
        let watched = self.watch.index.iter().position(|&i| group_of[i as usize] != NO_GROUP);
        let wrong = watched.map(|at| {
            let id = groups.watch[self.watch.number[at] as usize];
            Refusal::Wire(WireError::Rule(format!("watch: particle {id} is a member of a group, not free")))
        });
        agreed(&self.ranks, wrong.map_or(Ok(()), Err))?;
        self.velocity.clone_from(&groups.velocity);
        self.member_ids.clone_from(&groups.member);
        self.occupied.clone_from(&groups.occupied);
        Ok(())
    }

    pub(super) fn commit(&mut self, call: Commit) -> Result<Committed, Refusal> {
        let track = self.ids.resolve(&self.ranks, "track", &call.track)?;
        let particles = self.solver.particles();
        let tracked = |&i: &u32| [particles.position[i as usize], particles.velocity[i as usize]];
        let before: Vec<[DVec3; 2]> = track.index.iter().map(tracked).collect();
        let member_velocity = self.member_velocity(&call);
        let finds_change_max = self.solver.finds_change_max();
        self.velocity_before.clear();
        if !finds_change_max {
            let velocity = self.solver.particles().velocity.par_iter().with_min_len(reduce::CHUNK);
            velocity.copied().collect_into_vec(&mut self.velocity_before);
        }
        let end = StepEnd {
            dt: self.dt,
            groups: &self.groups,
            group_velocity: &call.group_velocity,
            member_velocity: &member_velocity,
            group_spin: call.group_spin.as_deref().unwrap_or_default(),
        };
        let start = Instant::now();
        let report = self.solver.commit(&end, &self.answer.velocity).map_err(Refusal::from);
        self.solver_seconds += start.elapsed().as_secs_f64();
        let report = agreed(&self.ranks, report)?;
        self.near.allow(&report.broken, &self.ids);
        let mut told = if report.adjusted { self.told_velocities(&member_velocity) } else { Vec::new() };
        let particles = self.solver.particles();
        // After a step a solver may store its particles in another order, or other particles. Ids tell which
        // is which.
        if self.ids.ids != particles.id {
            let ids = &self.ids;
            if !finds_change_max {
                let before = &self.velocity_before;
                let before = |id| ids.find(id).map_or(DVec3::NAN, |i| before[i as usize]);
                self.velocity_before =
                    particles.id.par_iter().with_min_len(reduce::CHUNK).map(|&id| before(id)).collect();
            }
            if report.adjusted {
                let place = |id| ids.find(id).map_or(DVec3::NAN, |i| told[i as usize]);
                told = particles.id.iter().map(|&id| place(id)).collect();
            }
            self.near.reorder(ids, particles);
            self.ids.update(&particles.id);
        }
        let change = match finds_change_max {
            true => Change::Told(report.change_max),
            false => Change::Since(&self.velocity_before),
        };
        let mut totals = totals(&self.ranks, particles, &change, self.dt);
        totals.angular_momentum += report.spin.0;
        totals.kinetic_energy += report.spin.1;
        check_finite(&self.ranks, particles, &totals)?;
        let not_taken = if report.adjusted { missing_energy(&self.ranks, particles, &told) } else { 0.0 };
        self.group_number.clear();
        self.group_number.resize(particles.len(), u32::MAX);
        for (group, &number) in call.group_number.iter().enumerate() {
            for &id in &self.member_ids[self.offsets[group] as usize..self.offsets[group + 1] as usize] {
                if let Some(member) = self.ids.find(id) {
                    self.group_number[member as usize] = number;
                }
            }
        }
        let done = Committed {
            totals,
            not_taken,
            solver_seconds: std::mem::take(&mut self.solver_seconds),
            state_hash: if call.want_state_hash { state_hash(&self.ranks, particles) } else { 0 },
            cells: call
                .grids
                .iter()
                .map(|grid| grid.occupied(&particles.position, &particles.radius, Reach::Centre))
                .map(|cells| united(&self.ranks, cells))
                .collect(),
            ..self.report(&report, (&call.track, &track.number), before)?
        };
        self.count = done.particles;
        if let Some(moves) = self.solver.migrate() {
            moves.apply(&self.ranks, &mut self.group_number);
            self.near.follow(&moves);
            self.ids.update(&self.solver.particles().id);
        }
        self.context.step += 1;
        (self.phase, self.prepared, self.last_integrate) = (Phase::Ready, false, None);
        Ok(done)
    }

    /// Velocity of each of this rank's members at the end of the step [m/s].
    fn member_velocity(&self, call: &Commit) -> Vec<DVec3> {
        match &call.member_velocity {
            Some(velocity) => self.members.number.iter().map(|&number| velocity[number as usize]).collect(),
            None => {
                let of_group =
                    |(group, &velocity)| std::iter::repeat_n(velocity, self.groups.members(group).len());
                call.group_velocity.iter().enumerate().flat_map(of_group).collect()
            }
        }
    }

    /// The velocities that the solver was told to take [m/s]: of members as split, of free particles as it
    /// answered.
    pub(super) fn told_velocities(&self, member_velocity: &[DVec3]) -> Vec<DVec3> {
        assert!(self.solver.deferred().is_none(), "a solver that defers velocities takes them as told");
        let mut told = self.answer.velocity.clone();
        for (&member, &velocity) in self.groups.all_members().iter().zip(member_velocity) {
            told[member as usize] = velocity;
        }
        told
    }
}
