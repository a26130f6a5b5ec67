//! The state machine of a served solver: the order of calls, and the effect of each. No IO and no async.

mod answers;
pub(crate) mod files;
mod frame;
mod run;

use std::sync::Arc;
use std::time::Instant;

use amalgam_particles::text::shorten;
use amalgam_particles::{DVec3, Particles};
use amalgam_proto::columns::WireError;
use amalgam_proto::contract::{
    AskFrame, AskSave, Batch, Begin, Commit, Committed, Context, Frame, Integrate, Restore, Snapshot, Survey,
    Surveyed, Table,
};
use amalgam_proto::v1;
use amalgam_ranks::Ranks;

use crate::error::SolverError;
use crate::joined::first_fault;
use crate::near::NearParticles;
use crate::section::SectionError;
use crate::solver::{SolverProgram, World};
use crate::sums::state_hash;
use answers::{brief, whole_table};
use files::{Files, read_parts, write_part};
use run::{Encoded, Phase, Run};

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

/// The epoch of a run that has not yet begun anew.
const FIRST_EPOCH: u64 = 1;

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
        let turns_alone = bodies.as_ref().is_none_or(|bodies| *bodies == particles.id);
        let triangles = solver.triangles();
        let mut near = agreed(ranks, NearParticles::new(ranks, &*solver).map_err(Refusal::Solver))?;
        if !ranks.is_alone() {
            solver.share(ranks)?;
            near.share(solver.particles());
        }
        let nearest_to = nearest_to.into_iter().map(|point| vec3_from_wire("nearest_to", Some(point)));
        let nearest_to = nearest_to.collect::<Result<Vec<DVec3>, WireError>>()?;
        let is_long = !request.brief || ranks.any(!turns_alone || !triangles.is_empty());
        let brief = if is_long { None } else { brief(ranks, solver.particles(), &nearest_to) };
        let (particles, bodies) = match &brief {
            Some(_) => (Particles::default(), has_bodies.then(Vec::new)),
            None => whole_table(ranks, solver.particles(), solver.bodies()),
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
            substeps_once: solver.substeps_once(),
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
        let known = (run.groups.len(), run.member_ids.len());
        let told = (call.group_velocity.len(), call.member_velocity.as_ref().map_or(known.1, Vec::len));
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
            let path = files.path_of(run.ranks.rank() as u32);
            let written = write_part(&path, &*run.solver);
            if let Err(error) = &written {
                tracing::warn!("the snapshot goes to the coordinator: {error}");
            }
            if !run.ranks.any(written.is_err()) {
                return Ok(Snapshot { state_hash, bytes: Vec::new(), parts: run.ranks.size() as u32 });
            }
            // A part alone is of no use. It may not be there.
            let _ = std::fs::remove_file(&path);
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

/// The result on this rank if no rank has a fault; else, on all ranks, the fault of the lowest rank that has
/// one.
pub(super) fn agreed<T>(ranks: &Ranks, result: Result<T, Refusal>) -> Result<T, Refusal> {
    if ranks.is_alone() {
        return result;
    }
    // Faults of the caller and of the solver differ by their first letter on the way.
    let own = result.as_ref().err().map(|fault| match fault {
        Refusal::Solver(_) => format!("S{fault}"),
        _ => format!("W{fault}"),
    });
    match first_fault(ranks, own.as_deref()) {
        None => result,
        Some(fault) => Err(match fault.strip_prefix('S') {
            Some(message) => Refusal::Solver(SolverError(message.to_string())),
            None => Refusal::Wire(WireError::Rule(fault[1..].to_string())),
        }),
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
