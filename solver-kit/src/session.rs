//! The state machine of a served solver: the order of calls, and the effect of each. No IO and no async.

use std::sync::Arc;
use std::time::Instant;

use amalgam_particles::text::{shorten, vector};
use amalgam_particles::{
    DMat3, DVec3, GroupMap, MOMENTUM_LIMIT, NO_GROUP, ParticleId, Reach, SPEED_LIMIT, StepEnd, reduce,
};
use amalgam_proto::columns::WireError;
use amalgam_proto::contract::{
    Batch, Begin, Commit, Committed, Context, Frame, Groups, Integrate, Integrated, Interest, Next, Restore,
    SLOPE_LIMIT, Snapshot, Survey, Surveyed, Table,
};
use amalgam_proto::{Columns, v1};
use rayon::prelude::*;

use crate::ids::IdIndex;
use crate::near::NearParticles;
use crate::solver::{Answer, FieldValues, Report, Solver, SolverProgram, Stage, World};
use crate::sums::{check_finite, missing_energy, state_hash, totals};
use crate::{SectionError, SolverError};

/// Reasons for which a call was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("{got} is out of order: expected Initialize")]
    NoRun { got: String },
    #[error("{got} is out of order: expected {expected}")]
    OutOfOrder { got: String, expected: String },
    #[error("the call is for run {got}, but this solver serves {expected}")]
    OtherRun { got: String, expected: String },
    #[error("the participant's section is wrong")]
    Section(Vec<SectionError>),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(transparent)]
    Solver(#[from] SolverError),
}

/// A served solver between Initialize and Shutdown.
#[derive(Default)]
pub(crate) struct Session {
    run: Option<Run>,
    /// A fault of work done in advance; the next call of the run gets it.
    fault: Option<Refusal>,
}

struct Run {
    context: Context,
    solver: Box<dyn Solver>,
    phase: Phase,
    ids: IdIndex,
    near: NearParticles,
    /// True if groups are bodies.
    has_bodies: bool,
    /// True if the solver has begun the step.
    prepared: bool,
    groups: GroupMap,
    offsets: Vec<u32>,
    members: Vec<u32>,
    member_ids: Vec<ParticleId>,
    velocity: Vec<DVec3>,
    watch: Vec<u32>,
    occupied: Option<amalgam_particles::CellSet>,
    answer: Answer,
    dt: f64,
    group_number: Vec<u32>,
    velocity_before: Vec<DVec3>,
    /// Wall time in the solver since the last commit [s].
    solver_seconds: f64,
    /// The last call to integrate and its answer as sent, until the step ends.
    last_integrate: Option<(Integrate, Encoded)>,
    /// The last answer to Commit, and the further questions that came with it.
    last_commit: Option<(Committed, Option<Next>)>,
}

/// The answer to Integrate on its way out: clones share its columns.
pub(crate) type Encoded = (v1::IntegrateAnswer, Columns);

/// The epoch of a run that has not yet begun anew.
const FIRST_EPOCH: u64 = 1;

/// The call that came last in the current step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Ready,
    Begun,
    Integrated { stage: u32, repetition: u32 },
}

impl Session {
    pub(crate) fn initialize(
        &mut self,
        program: &Arc<dyn SolverProgram>,
        request: v1::InitializeRequest,
    ) -> Result<Table, Refusal> {
        use amalgam_proto::contract::{check_name, vec3_from_wire};
        check_name("run_id", &request.run_id)?;
        check_name("participant", &request.participant)?;
        let context = Context { run_id: request.run_id, epoch: request.epoch, step: 0 };
        self.run.as_ref().map_or(Ok(()), |run| check_beginning(&context, &run.context))?;
        let world = World {
            participant: request.participant,
            domain: (
                vec3_from_wire("domain_min", request.domain_min)?,
                vec3_from_wire("domain_max", request.domain_max)?,
            ),
            gravity: vec3_from_wire("gravity", request.gravity)?,
            seed: request.seed,
        };
        let solver = program.create(&request.section, &world).map_err(Refusal::Section)?;
        let table = Table {
            particles: solver.particles().clone(),
            stable_dt: solver.stable_dt(),
            occupancy: solver.occupancy_grid(),
            triangles: solver.triangles(),
            integration: solver.integration(),
            bodies: solver.bodies(),
        };
        if table.bodies.as_ref().is_some_and(|bodies| bodies.len() != table.particles.len()) {
            return Err(Refusal::Solver(SolverError("one body is wanted for each particle".into())));
        }
        let has_bodies = table.bodies.is_some();
        table.particles.validate().map_err(|error| Refusal::Solver(SolverError(error.to_string())))?;
        let near = NearParticles::new(&*solver)?;
        self.run = Some(Run { has_bodies, ..Run::new(context, solver, near) });
        self.fault = None;
        Ok(table)
    }

    /// Ends the run; nothing if none is served.
    pub(crate) fn shutdown(&mut self, context: &Context) -> Result<(), Refusal> {
        if let Some(run) = &self.run {
            check_run("Shutdown", context, Some(&run.context))?;
        }
        self.run = None;
        Ok(())
    }

    /// The run that is served, and the number of its particles.
    pub(crate) fn serving(&self) -> Option<(Context, u64)> {
        self.run.as_ref().map(|run| (run.context.clone(), run.solver.particles().len() as u64))
    }

    /// The run a call is for, if run and epoch are right.
    fn run(&mut self, call: &str, context: &Context) -> Result<&mut Run, Refusal> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        check_run(call, context, self.run.as_ref().map(|run| &run.context))?;
        Ok(self.run.as_mut().expect("a run is served"))
    }

    pub(crate) fn survey(&mut self, call: &Survey) -> Result<Surveyed, Refusal> {
        let run = self.run("Survey", &call.context)?;
        run.expect(run.is_between_steps(), "Survey", call.context.step)?;
        Ok(run.near.survey(run.solver.particles(), call)?)
    }

    pub(crate) fn begin(&mut self, call: Begin) -> Result<Batch, Refusal> {
        let run = self.run("Begin", &call.context)?;
        run.expect(run.is_between_steps(), "Begin", call.context.step)?;
        run.ids.update(&run.solver.particles().id);
        run.near.check(run.solver.particles(), &run.ids, &call.interest)?;
        if run.phase == Phase::Begun {
            // Whoever asks again may not have taken over the last answer.
            run.near.say_all();
        }
        Ok(run.begin(call.interest))
    }

    /// Keeps a fault for the next call.
    pub(crate) fn fail(&mut self, fault: Refusal) {
        self.fault = Some(fault);
    }

    /// The part of beginning a step that the coordinator need not wait for. Nothing, if no step was begun.
    pub(crate) fn prepare(&mut self) -> Result<(), Refusal> {
        if let Some(run) = &mut self.run
            && run.phase == Phase::Begun
            && !run.prepared
        {
            let start = Instant::now();
            run.solver.begin()?;
            run.solver_seconds += start.elapsed().as_secs_f64();
            run.prepared = true;
        }
        Ok(())
    }

    pub(crate) fn integrate(&mut self, call: Integrate) -> Result<Encoded, Refusal> {
        let run = self.run("Integrate", &call.context)?;
        run.integrate(call)
    }

    pub(crate) fn commit(&mut self, mut call: Commit) -> Result<Committed, Refusal> {
        let run = self.run("Commit", &call.context)?;
        if run.is_between_steps()
            && call.context.step.checked_add(1) == Some(run.context.step)
            && let Some((done, next)) = run.last_commit.clone()
        {
            // Its answer was lost, and with it what was said of particles.
            run.near.say_all();
            return Ok(run.start_next(done, next));
        }
        let (stage, repetition, step) = (call.stage, call.repetition, call.context.step);
        let expected = run.phase == Phase::Integrated { stage, repetition };
        run.expect(expected, &format!("Commit of stage {stage}, repetition {repetition},"), step)?;
        let told = (call.group_velocity.len(), call.member_velocity.len());
        let known = (run.groups.len(), run.groups.all_members().len());
        if call.group_spin.is_some() != run.has_bodies {
            return Err(WireError::Rule(match run.has_bodies {
                true => "the groups are bodies, but their spins are missing".into(),
                false => "spins are committed, but the groups are no bodies".into(),
            })
            .into());
        }
        if told != known {
            return Err(WireError::Rule(format!(
                "{} groups and {} members are committed, but the stage has {} and {}",
                told.0, told.1, known.0, known.1
            ))
            .into());
        }
        let next = call.next.take();
        if let Some(next) = &next {
            run.near.check(run.solver.particles(), &run.ids, &next.interest)?;
        }
        match run.commit(call) {
            Ok(done) => {
                run.last_commit = Some((done.clone(), next.clone()));
                Ok(run.start_next(done, next))
            }
            Err(fault) => {
                if matches!(fault, Refusal::Solver(_)) {
                    // Half a step was taken: no state is left that anyone could go on from.
                    self.run = None;
                }
                Err(fault)
            }
        }
    }

    pub(crate) fn frame(&mut self, context: &Context, surface: bool) -> Result<Frame, Refusal> {
        let run = self.run("Frame", context)?;
        run.expect(run.is_between_steps(), "Frame", context.step)?;
        let surface = surface.then(|| run.solver.surface()).flatten();
        Ok(Frame { surface, ..run.frame()? })
    }

    pub(crate) fn save(&mut self, context: &Context) -> Result<Snapshot, Refusal> {
        let run = self.run("Save", context)?;
        run.expect(run.is_between_steps(), "Save", context.step)?;
        // A run that is restored from here hears all ids; this one, too, so that both see the same bytes.
        run.near.say_all();
        Ok(Snapshot { state_hash: state_hash(run.solver.particles()), bytes: run.solver.save()? })
    }

    pub(crate) fn restore(&mut self, call: Restore) -> Result<u64, Refusal> {
        let run = self.run("Restore", &call.context)?;
        if !run.is_between_steps() {
            return run.expect(false, "Restore", call.context.step).map(|()| 0);
        }
        run.solver.restore(&call.bytes)?;
        run.context.step = call.context.step;
        (run.phase, run.prepared) = (Phase::Ready, false);
        (run.last_integrate, run.last_commit) = (None, None);
        run.near.forget();
        run.group_number = vec![u32::MAX; run.solver.particles().len()];
        Ok(state_hash(run.solver.particles()))
    }
}

/// Checks that a call is for the run that is served.
pub(crate) fn check_run(call: &str, context: &Context, serving: Option<&Context>) -> Result<(), Refusal> {
    let serving =
        serving.ok_or_else(|| Refusal::NoRun { got: format!("{call} of step {}", context.step) })?;
    if (&context.run_id, context.epoch) == (&serving.run_id, serving.epoch) {
        return Ok(());
    }
    let name = |c: &Context| format!("{:?}, epoch {}", shorten(&c.run_id), c.epoch);
    Err(Refusal::OtherRun { got: name(context), expected: name(serving) })
}

/// Checks that a run may begin. A new run takes the place of another. One that begins anew does not: its coordinator was
/// away, and the service has been given to others meanwhile.
fn check_beginning(beginning: &Context, serving: &Context) -> Result<(), Refusal> {
    if beginning.run_id != serving.run_id {
        return if beginning.epoch <= FIRST_EPOCH {
            Ok(())
        } else {
            check_run("Initialize", beginning, Some(serving))
        };
    }
    if beginning.epoch > serving.epoch {
        return Ok(());
    }
    Err(Refusal::OutOfOrder {
        got: format!("Initialize of run {}, epoch {}", beginning.run_id, beginning.epoch),
        expected: format!("an epoch above {}", serving.epoch),
    })
}

impl Run {
    fn new(context: Context, solver: Box<dyn Solver>, near: NearParticles) -> Self {
        let count = solver.particles().len();
        Self {
            context,
            solver,
            phase: Phase::Ready,
            ids: IdIndex::default(),
            near,
            has_bodies: false,
            prepared: false,
            groups: GroupMap::none(count),
            offsets: Vec::new(),
            members: Vec::new(),
            member_ids: Vec::new(),
            velocity: Vec::new(),
            watch: Vec::new(),
            occupied: None,
            answer: Answer::default(),
            dt: 0.0,
            group_number: vec![u32::MAX; count],
            velocity_before: Vec::new(),
            solver_seconds: 0.0,
            last_integrate: None,
            last_commit: None,
        }
    }

    /// True if the particles are as they were committed, even if the next step has begun.
    fn is_between_steps(&self) -> bool {
        !matches!(self.phase, Phase::Integrated { .. })
    }

    fn expect(&self, in_order: bool, call: &str, step: u64) -> Result<(), Refusal> {
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

    fn begin(&mut self, interest: Interest) -> Batch {
        self.phase = Phase::Begun;
        self.near.begin(&*self.solver, &self.ids, interest)
    }

    /// Begins the next step with the end of this one, if that was asked for.
    fn start_next(&mut self, done: Committed, next: Option<Next>) -> Committed {
        let drift = self.near.drift(self.solver.particles());
        let next = next.filter(|next| drift <= next.within);
        Committed { next: next.map(|next| self.begin(next.interest)), ..done }
    }

    fn integrate(&mut self, call: Integrate) -> Result<Encoded, Refusal> {
        if let Some((last, answer)) = &self.last_integrate
            && *last == call
        {
            // Its answer was lost. Whatever iterates would start from there and end elsewhere.
            return Ok(answer.clone());
        }
        let (stage, repetition) = (call.stage, call.repetition);
        // Stage 1 may come again: the coordinator starts over with a shorter step.
        let in_order = (stage, repetition) == (1, 0) && self.phase != Phase::Ready
            || matches!(self.phase, Phase::Integrated { stage: s, repetition: r }
                if (stage, repetition) == (s, r + 1) || (stage, repetition) == (s + 1, 0));
        self.expect(
            in_order,
            &format!("Integrate of stage {stage}, repetition {repetition},"),
            call.context.step,
        )?;
        // Whatever fails from here on spoils the last answer: nothing can be committed before stage 1 comes again.
        (self.phase, self.last_integrate) = (Phase::Begun, None);
        if let Some(groups) = &call.groups {
            self.set_groups(groups)?;
        }
        let (count, groups) = (self.solver.particles().len(), self.groups.len());
        if call.inertia.len() != groups {
            return Err(WireError::Rule(format!(
                "{} inertias for the {groups} groups of this stage",
                call.inertia.len()
            ))
            .into());
        }
        self.answer.momentum.clear();
        self.answer.momentum.resize(groups, DVec3::ZERO);
        self.answer.slope.clear();
        self.answer.bodies.clear();
        let velocities = if self.solver.deferred().is_none() { count } else { 0 };
        self.answer.velocity.resize(velocities, DVec3::ZERO);
        self.answer.velocity.par_iter_mut().with_min_len(4096).for_each(|velocity| *velocity = DVec3::ZERO);
        self.dt = call.dt;
        let request = Stage {
            step: self.context.step,
            stage,
            repetition,
            dt: call.dt,
            forcing: call.forcing,
            groups: &self.groups,
            inertia: &call.inertia,
            velocity: &self.velocity,
            impulse: &call.impulse,
            occupied: self.occupied.as_ref(),
        };
        let start = Instant::now();
        self.solver.integrate(&request, &mut self.answer)?;
        self.solver_seconds += start.elapsed().as_secs_f64();
        let travel_max = self.check_answer()?;
        self.phase = Phase::Integrated { stage, repetition };
        let watch_velocity = match self.solver.deferred() {
            Some(deferred) => deferred.velocity(&self.watch),
            None => self.watch.iter().map(|&i| self.answer.velocity[i as usize]).collect(),
        };
        let answer = Integrated {
            momentum: std::mem::take(&mut self.answer.momentum),
            slope: std::mem::take(&mut self.answer.slope),
            watch_velocity,
            travel_max,
            bodies: self.has_bodies.then(|| std::mem::take(&mut self.answer.bodies)),
        };
        let answer = answer.encode();
        self.last_integrate = Some((call, answer.clone()));
        Ok(answer)
    }

    fn set_groups(&mut self, groups: &Groups) -> Result<(), Refusal> {
        self.ids.resolve("member", &groups.member, &mut self.members)?;
        self.ids.resolve("watch", &groups.watch, &mut self.watch)?;
        self.offsets.clear();
        self.offsets.push(0);
        let mut end = 0;
        self.offsets.extend(groups.size.iter().map(|size| {
            end += size;
            end
        }));
        self.groups.set(self.solver.particles().len(), &self.offsets, &self.members);
        let group_of = self.groups.group_of();
        if let Some(at) = self.watch.iter().position(|&i| group_of[i as usize] != NO_GROUP) {
            let id = groups.watch[at];
            return Err(
                WireError::Rule(format!("watch: particle {id} is a member of a group, not free")).into()
            );
        }
        self.velocity.clone_from(&groups.velocity);
        self.member_ids.clone_from(&groups.member);
        self.occupied.clone_from(&groups.occupied);
        Ok(())
    }

    /// The farthest that a free particle travels, relative to its radius, or a bound of that which is below 1. A solver
    /// that answers nonsense is stopped here, before it spoils others.
    fn check_answer(&self) -> Result<f64, Refusal> {
        let (answer, particles, groups) = (&self.answer, self.solver.particles(), self.groups.len());
        assert_eq!(answer.momentum.len(), groups, "lengths of the solver's answer");
        assert!(answer.slope.is_empty() || answer.slope.len() == groups, "slopes of the solver's answer");
        assert_eq!(
            answer.bodies.len(),
            if self.has_bodies { groups } else { 0 },
            "bodies of the solver's answer"
        );
        let travel_max = match self.solver.deferred() {
            None => self.check_velocities(&answer.velocity)?,
            Some(deferred) => match deferred.travel_bound(self.dt) {
                bound if bound < 1.0 => bound,
                _ => self.check_velocities(&deferred.velocity(&Vec::from_iter(0..particles.len() as u32)))?,
            },
        };
        for group in 0..groups {
            let momentum = answer.momentum[group];
            let is_slope = answer.slope.get(group).is_none_or(|z| z.abs_diff_eq(DMat3::ZERO, SLOPE_LIMIT));
            if !(momentum.abs().cmplt(DVec3::splat(MOMENTUM_LIMIT)).all() && is_slope) {
                let id = particles.id[self.groups.members(group)[0] as usize];
                let momentum = vector(momentum);
                return Err(SolverError(format!(
                    "the group of particle {id} got momentum {momentum}: the solver is unstable"
                ))
                .into());
            }
        }
        Ok(travel_max)
    }

    /// The farthest that a free particle travels with these velocities [m/s], relative to its radius.
    fn check_velocities(&self, velocity: &[DVec3]) -> Result<f64, Refusal> {
        let (particles, group_of, dt) = (self.solver.particles(), self.groups.group_of(), self.dt);
        let is_travel =
            |v: DVec3, travel: f64| travel.is_finite() && v.abs().cmplt(DVec3::splat(SPEED_LIMIT)).all();
        assert_eq!(velocity.len(), particles.len(), "lengths of the solver's answer");
        let travel_max = reduce::max(particles.len(), 0.0, |i| {
            if group_of[i] != NO_GROUP {
                return 0.0;
            }
            let travel = velocity[i].length() * dt / particles.radius[i];
            match (is_travel(velocity[i], travel), particles.immovable[i]) {
                (false, _) => f64::INFINITY,
                (true, true) => 0.0,
                (true, false) => travel,
            }
        });
        if travel_max == f64::INFINITY {
            let wrong = |i: usize| group_of[i] == NO_GROUP && !is_travel(velocity[i], 0.0);
            let wrong = (0..particles.len()).find(|&i| wrong(i)).map(|i| (particles.id[i], velocity[i]));
            return Err(SolverError(match wrong {
                Some((id, v)) => format!("particle {id} got velocity {}: the solver is unstable", vector(v)),
                None => "a particle travels beyond all numbers in a step: the solver is unstable".into(),
            })
            .into());
        }
        Ok(travel_max)
    }

    fn commit(&mut self, call: Commit) -> Result<Committed, Refusal> {
        let mut track = Vec::new();
        self.ids.resolve("track", &call.track, &mut track)?;
        let particles = self.solver.particles();
        let tracked = |&i: &u32| (particles.position[i as usize], particles.velocity[i as usize]);
        let before: Vec<(DVec3, DVec3)> = track.iter().map(tracked).collect();
        let velocity = self.solver.particles().velocity.par_iter().with_min_len(4096);
        velocity.copied().collect_into_vec(&mut self.velocity_before);
        let end = StepEnd {
            dt: self.dt,
            groups: &self.groups,
            group_velocity: &call.group_velocity,
            member_velocity: &call.member_velocity,
            group_spin: call.group_spin.as_deref().unwrap_or_default(),
        };
        let start = Instant::now();
        let report = self.solver.commit(&end, &self.answer.velocity)?;
        self.solver_seconds += start.elapsed().as_secs_f64();
        self.near.allow(&report.broken, &self.ids);
        let mut told = if report.adjusted { self.told_velocities(&call.member_velocity) } else { Vec::new() };
        let particles = self.solver.particles();
        // A solver may store its particles in another order after a step, or others: all are known by id.
        if self.ids.ids != particles.id {
            let (ids, before) = (&self.ids, &self.velocity_before);
            let before = |id| ids.find(id).map_or(DVec3::NAN, |i| before[i as usize]);
            self.velocity_before = particles.id.par_iter().with_min_len(4096).map(|&id| before(id)).collect();
            if report.adjusted {
                let place = |id| ids.find(id).map_or(DVec3::NAN, |i| told[i as usize]);
                told = particles.id.iter().map(|&id| place(id)).collect();
            }
            self.near.reorder(ids, particles);
            self.ids.update(&particles.id);
        }
        let mut totals = totals(particles, &self.velocity_before, self.dt);
        totals.angular_momentum += report.spin.0;
        totals.kinetic_energy += report.spin.1;
        check_finite(particles, &totals)?;
        let not_taken = if report.adjusted { missing_energy(particles, &told) } else { 0.0 };
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
            state_hash: if call.want_state_hash { state_hash(particles) } else { 0 },
            cells: call
                .grids
                .iter()
                .map(|grid| grid.occupied(&particles.position, &particles.radius, Reach::Centre))
                .collect(),
            ..self.report(&report, &call.track, before)?
        };
        self.context.step += 1;
        (self.phase, self.prepared, self.last_integrate) = (Phase::Ready, false, None);
        Ok(done)
    }

    /// The velocities that the solver was told to take [m/s]: of members as split, of free particles as it answered.
    fn told_velocities(&self, member_velocity: &[DVec3]) -> Vec<DVec3> {
        assert!(self.solver.deferred().is_none(), "a solver that defers velocities takes them as told");
        let mut told = self.answer.velocity.clone();
        for (&member, &velocity) in self.groups.all_members().iter().zip(member_velocity) {
            told[member as usize] = velocity;
        }
        told
    }

    /// The end of a step, with the tracked particles where they are; one that died, where it was `before`.
    fn report(
        &self,
        report: &Report,
        track: &[ParticleId],
        before: Vec<(DVec3, DVec3)>,
    ) -> Result<Committed, Refusal> {
        let particles = self.solver.particles();
        let now = |i: u32| (particles.position[i as usize], particles.velocity[i as usize]);
        let tracked = track.iter().zip(before).map(|(&id, before)| self.ids.find(id).map_or(before, now));
        let (track_position, track_velocity) = tracked.unzip();
        let mut born = Vec::new();
        self.ids.resolve("born", &report.born, &mut born)?;
        let born = born.iter().map(|&i| {
            let i = i as usize;
            (particles.id[i], particles.mass[i], particles.radius[i], particles.immovable[i])
        });
        let mut released = Vec::new();
        self.ids.resolve("released", &report.released, &mut released)?;
        let released = released.iter().map(|&i| (particles.id[i as usize], particles.mass[i as usize]));
        Ok(Committed {
            particles: particles.len() as u64,
            stable_dt: report.stable_dt,
            potential_energies: report
                .energies
                .iter()
                .map(|&(name, joule)| (name.to_string(), joule))
                .collect(),
            given: report.given,
            broken: report.broken.len() as u64,
            born: born.collect(),
            dead: report.dead.clone(),
            released: released.collect(),
            track_position,
            track_velocity,
            ..Committed::default()
        })
    }

    fn frame(&self) -> Result<Frame, SolverError> {
        let particles = self.solver.particles();
        let mut order: Vec<u32> = (0..particles.len() as u32).collect();
        order.sort_unstable_by_key(|&i| particles.id[i as usize]);
        fn gather<T: Copy>(order: &[u32], column: &[T]) -> Vec<T> {
            order.iter().map(|&i| column[i as usize]).collect()
        }
        let fields = self.solver.fields().into_iter().map(|field| match field.values {
            FieldValues::Scalar(values) => (field.name.to_string(), 1, gather(&order, &values)),
            FieldValues::Vector(values) => {
                (field.name.to_string(), 3, gather(&order, &values).into_flattened())
            }
        });
        let frame = Frame {
            id: gather(&order, &particles.id),
            position: gather(&order, &particles.position),
            velocity: gather(&order, &particles.velocity),
            radius: gather(&order, &particles.radius),
            group: gather(&order, &self.group_number),
            fields: fields.collect(),
            surface: None,
        };
        for (name, components, values) in &frame.fields {
            if let Some(at) = values.iter().position(|value| !value.is_finite()) {
                let (id, value) = (frame.id[at / *components as usize], values[at]);
                return Err(SolverError(format!(
                    "field {name} of particle {id} is {value}: the solver is unstable"
                )));
            }
        }
        Ok(frame)
    }
}
