//! The state machine of a served solver: the order of calls, and the effect of each. No IO and no async.

mod answers;
pub(crate) mod files;
mod frame;

use std::sync::Arc;
use std::time::Instant;

use amalgam_particles::text::shorten;
use amalgam_particles::{DVec3, GroupMap, NO_GROUP, ParticleId, Particles, Reach, StepEnd, reduce};
use amalgam_proto::columns::WireError;
use amalgam_proto::contract::{
    AskFrame, AskSave, Batch, Begin, Commit, Committed, Context, Frame, Groups, Integrate, Integrated,
    Interest, Next, Restore, Snapshot, Survey, Surveyed, Table,
};
use amalgam_proto::{Columns, v1};
use amalgam_ranks::Ranks;
use rayon::prelude::*;

use crate::error::SolverError;
use crate::ids::{Found, IdIndex};
use crate::joined::{Members, by_number, united};
use crate::near::NearParticles;
use crate::section::SectionError;
use crate::solver::{Answer, Request, Solver, SolverProgram, World};
use crate::sums::{Change, check_finite, missing_energy, state_hash, totals};
use answers::{agreed, all_particles, brief, in_order_of_ids};
use files::{Files, read_parts, write_part};

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

/// A served solver between Initialize and Shutdown. If it is cut among ranks, each has a session that carries
/// out the same calls, and the first one's answers are the participant's.
#[derive(Default)]
pub(crate) struct Session {
    ranks: Ranks,
    files: Files,
    run: Option<Run>,
    /// A fault of work done in advance; the next call of the run gets it.
    fault: Option<Refusal>,
}

struct Run {
    context: Context,
    ranks: Ranks,
    solver: Box<dyn Solver>,
    /// Particles of all ranks.
    count: u64,
    phase: Phase,
    ids: IdIndex,
    near: NearParticles,
    /// True if groups are bodies.
    has_bodies: bool,
    /// True if the solver has begun the step.
    prepared: bool,
    /// The groups' members on this rank.
    groups: GroupMap,
    members: Found,
    /// Number of each group's first member among those of all ranks, and the number of these.
    offsets: Vec<u32>,
    member_ids: Vec<ParticleId>,
    velocity: Vec<DVec3>,
    watch: Found,
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
    /// The session of one of the ranks that a participant is cut among.
    pub(crate) fn new(ranks: Ranks, files: Files) -> Self {
        Self { ranks, files, ..Self::default() }
    }

    pub(crate) fn initialize(
        &mut self,
        program: &Arc<dyn SolverProgram>,
        mut request: v1::InitializeRequest,
    ) -> Result<Table, Refusal> {
        use amalgam_proto::contract::{check_name, obstacle_from_wire, vec3_from_wire};
        check_name("run_id", &request.run_id)?;
        check_name("participant", &request.participant)?;
        let context = Context { run_id: request.run_id, epoch: request.epoch, step: 0 };
        self.run.as_ref().map_or(Ok(()), |run| check_beginning(&context, &run.context))?;
        let nearest_to = std::mem::take(&mut request.nearest_to);
        let obstacles = request.obstacles.into_iter().map(obstacle_from_wire).collect::<Result<_, _>>()?;
        let world = World {
            participant: request.participant,
            domain: (
                vec3_from_wire("domain_min", request.domain_min)?,
                vec3_from_wire("domain_max", request.domain_max)?,
            ),
            gravity: vec3_from_wire("gravity", request.gravity)?,
            seed: request.seed,
            obstacles,
            ranks: self.ranks.clone(),
        };
        let mut solver = program.create(&request.section, &world).map_err(Refusal::Section)?;
        let (particles, ranks) = (solver.particles(), &self.ranks);
        let bodies = solver.bodies();
        if bodies.as_ref().is_some_and(|bodies| bodies.len() != particles.len()) {
            return Err(Refusal::Solver(SolverError("one body is wanted for each particle".into())));
        }
        let valid = particles.validate().map_err(|error| Refusal::Solver(SolverError(error.to_string())));
        agreed(ranks, valid)?;
        let has_bodies = bodies.is_some();
        let bodies = bodies.map(|bodies| in_order_of_ids(ranks, &particles.id, bodies));
        let triangles = solver.triangles();
        let mut near = NearParticles::new(ranks, &*solver)?;
        if !ranks.is_alone() {
            solver.share(ranks)?;
            near.share(solver.particles());
        }
        let nearest_to = nearest_to.into_iter().map(|point| vec3_from_wire("nearest_to", Some(point)));
        let nearest_to = nearest_to.collect::<Result<Vec<DVec3>, WireError>>()?;
        let is_brief = request.brief && !has_bodies && triangles.is_empty();
        let brief = is_brief.then(|| brief(ranks, solver.particles(), &nearest_to)).flatten();
        let particles = match &brief {
            Some(_) => Particles::default(),
            None => all_particles(ranks, solver.particles()),
        };
        let table = Table {
            particles,
            brief,
            stable_dt: solver.stable_dt(),
            occupancy: solver.occupancy_grid(),
            triangles,
            integration: solver.integration(),
            bodies,
            keeps_off_obstacles: solver.keeps_off_obstacles(),
        };
        let mut run = Run::new((context, ranks.clone()), solver, near);
        run.has_bodies = has_bodies;
        run.count_particles();
        self.run = Some(run);
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
        self.run.as_ref().map(|run| (run.context.clone(), run.count))
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
            // A caller that asks again may have lost the last answer.
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
            let begun = run.solver.begin().map_err(Refusal::from);
            agreed(&run.ranks, begun)?;
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
            // The answer was lost, and with it the ids that it named.
            run.near.say_all();
            return Ok(run.start_next(done, next));
        }
        let (stage, repetition, step) = (call.stage, call.repetition, call.context.step);
        let expected = run.phase == Phase::Integrated { stage, repetition };
        run.expect(expected, &format!("Commit of stage {stage}, repetition {repetition},"), step)?;
        let told = (call.group_velocity.len(), call.member_velocity.len());
        let known = (run.groups.len(), run.member_ids.len());
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
                    // The step is half done: no consistent state is left to go on from.
                    self.run = None;
                }
                Err(fault)
            }
        }
    }

    pub(crate) fn frame(&mut self, ask: &AskFrame) -> Result<Frame, Refusal> {
        let run = self.run("Frame", &ask.context)?;
        run.expect(run.is_between_steps(), "Frame", ask.context.step)?;
        let run = self.run.as_mut().expect("a run is served");
        run.frame(ask, &self.files)
    }

    pub(crate) fn save(&mut self, ask: &AskSave) -> Result<Snapshot, Refusal> {
        let run = self.run("Save", &ask.context)?;
        run.expect(run.is_between_steps(), "Save", ask.context.step)?;
        // A run that is restored from here is told all ids. This run is told them, too, so that both see the
        // same bytes.
        run.near.say_all();
        let state_hash = state_hash(&run.ranks, run.solver.particles());
        let run = self.run.as_ref().expect("a run is served");
        if let Some(files) = &ask.files
            && run.solver.saves_parts()
            && self.files.are_wanted(&run.ranks, &files.folder)
        {
            let written = write_part(&files.path_of(run.ranks.rank() as u32), &*run.solver);
            if let Err(error) = &written {
                tracing::warn!("the snapshot goes to the coordinator: {error}");
            }
            if !run.ranks.any(written.is_err()) {
                return Ok(Snapshot { state_hash, bytes: Vec::new(), parts: run.ranks.size() as u32 });
            }
        }
        let bytes = run.solver.save().map_err(Refusal::from);
        Ok(Snapshot { state_hash, bytes: agreed(&run.ranks, bytes)?, parts: 0 })
    }

    pub(crate) fn restore(&mut self, call: Restore) -> Result<u64, Refusal> {
        self.run("Restore", &call.context)?;
        let run = self.run.as_mut().expect("a run is served");
        if !run.is_between_steps() {
            return run.expect(false, "Restore", call.context.step).map(|()| 0);
        }
        let restored = match &call.files {
            None => run.solver.restore(&call.bytes),
            Some((files, parts)) => {
                let parts = read_parts(&self.files, &run.ranks, files, *parts).map_err(Refusal::from);
                run.solver.restore_parts(&agreed(&run.ranks, parts)?)
            }
        };
        agreed(&run.ranks, restored.map_err(Refusal::from))?;
        run.count_particles();
        run.context.step = call.context.step;
        (run.phase, run.prepared) = (Phase::Ready, false);
        (run.last_integrate, run.last_commit) = (None, None);
        run.near.forget();
        run.group_number = vec![u32::MAX; run.solver.particles().len()];
        Ok(state_hash(&run.ranks, run.solver.particles()))
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

/// Checks that a run may begin. A new run takes the place of another. One that begins anew does not: its
/// coordinator was away, and the service has been given to others meanwhile.
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
    fn new((context, ranks): (Context, Ranks), solver: Box<dyn Solver>, near: NearParticles) -> Self {
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

    fn count_particles(&mut self) {
        let mut count = [self.solver.particles().len() as i64];
        self.ranks.sum(&mut count);
        self.count = count[0] as u64;
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

    /// Begins the next step in the same call as the end of this one, if the call asks for it.
    fn start_next(&mut self, done: Committed, next: Option<Next>) -> Committed {
        let drift = self.near.drift(self.solver.particles());
        let next = next.filter(|next| drift <= next.within);
        Committed { next: next.map(|next| self.begin(next.interest)), ..done }
    }

    fn integrate(&mut self, call: Integrate) -> Result<Encoded, Refusal> {
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
            inertia: &call.inertia,
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

    fn commit(&mut self, call: Commit) -> Result<Committed, Refusal> {
        let track = self.ids.resolve(&self.ranks, "track", &call.track)?;
        let particles = self.solver.particles();
        let tracked = |&i: &u32| [particles.position[i as usize], particles.velocity[i as usize]];
        let before: Vec<[DVec3; 2]> = track.index.iter().map(tracked).collect();
        let of_member = |&number: &u32| call.member_velocity[number as usize];
        let member_velocity: Vec<DVec3> = self.members.number.iter().map(of_member).collect();
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

    /// The velocities that the solver was told to take [m/s]: of members as split, of free particles as it
    /// answered.
    fn told_velocities(&self, member_velocity: &[DVec3]) -> Vec<DVec3> {
        assert!(self.solver.deferred().is_none(), "a solver that defers velocities takes them as told");
        let mut told = self.answer.velocity.clone();
        for (&member, &velocity) in self.groups.all_members().iter().zip(member_velocity) {
            told[member as usize] = velocity;
        }
        told
    }
}
