//! `amalgam run`: computes a scene. [`Run`] is the common part of the command, `amalgam resume` and the
//! service.

pub mod control;
mod deployment;
pub mod export;
pub mod interrupt;
mod keeper;
pub mod local;
pub mod metrics;
pub mod recorder;
mod recovery;
mod report;
mod trace;
mod trust;

use std::{
    io::{self, IsTerminal},
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::{
    checkpoint::{KEPT, Saved, every::Every},
    cli::{LaunchArgs, Patience, Reach, ResumeArgs, RunArgs, Seeing, Threads, Transport},
    console::{Console, Progress, note, say},
    error::{CommandError, ending::Ending},
    folder::{Folder, OutputError},
    observers::{Watch, Watchers},
    picture::Painter,
    scene::Scene,
    viewer::{self, Source},
};
use amalgam_coordinator::{CoordinatorError, Faces, ParticipantSummary, Phase, Simulation};
use amalgam_solver_kit::log;
use control::{Control, Next};
use interrupt::Interrupt;
use keeper::Keeper;
use local::{Locals, Means};
use metrics::Metrics;
use recorder::Recorder;
use recovery::Recovery;
use report::not_started;
use trace::Trace;

pub use report::Outcome;

/// Options of a run. None of them changes a result.
#[derive(Clone, Debug)]
pub struct Options {
    /// Transport to solvers that the run starts.
    pub transport: Transport,
    /// Threads of each solver that the run starts; one per core if none is given.
    pub threads: Option<usize>,
    /// Interval between checkpoints, if any are written.
    pub every: Option<Every>,
    /// Number of checkpoints kept.
    pub keep: u32,
    /// Longest time to wait for solvers at addresses that do not listen yet.
    pub wait: Option<Duration>,
    /// Longest time to wait for a solver that was lost; without it a loss ends the run.
    pub reconnect: Option<Duration>,
    /// Options for where and how solvers run.
    pub reach: Reach,
}

impl Options {
    /// Options that `run` and `resume` share, without checkpoints.
    fn new(transport: Transport, threads: Threads, patience: Patience, reach: &Reach) -> Self {
        Self {
            transport,
            threads: threads.count(),
            every: None,
            keep: KEPT,
            wait: patience.wait,
            reconnect: patience.reconnect,
            reach: reach.clone(),
        }
    }

    /// Options of a resumed run: checkpoints are written as before unless the command line says otherwise.
    pub(crate) fn resumed(args: &ResumeArgs, saved: &Saved) -> Self {
        Self {
            every: args.checkpoint_every.clone().or_else(|| saved.every.clone()),
            keep: args.keep_checkpoints.unwrap_or(saved.keep),
            ..Self::new(args.transport, args.threads, args.patience, &args.reach)
        }
    }
}

impl From<&RunArgs> for Options {
    fn from(args: &RunArgs) -> Self {
        Self {
            every: args.checkpoint_every.clone(),
            keep: args.keep_checkpoints,
            ..Self::new(args.transport, args.threads, args.patience, &args.reach)
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new(Transport::Unix, Threads::default(), Patience::default(), &Reach::default())
    }
}

/// A scene that is to be computed.
pub struct Run<'a> {
    /// The scene.
    pub scene: &'a Scene,
    /// The options.
    pub options: &'a Options,
    /// Handle by which others end, hold and save the run.
    pub control: Control,
    /// Console that shows lines for people.
    pub console: Console,
    /// Observers of the run.
    pub watchers: Vec<Box<dyn Watch>>,
}

/// Errors that end a run early.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Coordinator(#[from] CoordinatorError),
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error("{loss}; the run cannot go back to a checkpoint: {reason}")]
    NoWayBack { loss: String, reason: String },
}

/// Runs a scene.
///
/// # Errors
/// A wrong scene, a solver that fails or is lost, or results that cannot be written. The results until then
/// are in the output folder, with the error in `summary.json`.
pub fn run(args: &RunArgs) -> Result<Ending, CommandError> {
    let scene = Scene::read(&args.scene, &args.set)?.limited_to(args.frames)?;
    args.threads.apply()?;
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from("out").join(&scene.header.name));
    let interrupt = Interrupt::listen()?;
    let folder = Folder::look_at(out)?;
    let seeing = &args.seeing;
    show(&scene, &Options::from(args), seeing, &interrupt, folder, |run, folder| run.compute(folder))
}

/// Runs a scene on the machines that a deployment file names.
///
/// # Errors
/// As [`run`], and a deployment file that is wrong.
pub fn launch(args: &LaunchArgs) -> Result<Ending, CommandError> {
    if args.run.reach.deployment.is_none() {
        return Err(CommandError::Usage(
            "give the file that says where solvers run, with --deployment FILE".into(),
        ));
    }
    run(&args.run)
}

/// Lets `compute` run a scene for the command line, and tells how it went.
///
/// # Errors
/// As [`run`].
pub(crate) fn show(
    scene: &Scene,
    options: &Options,
    seeing: &Seeing,
    interrupt: &Interrupt,
    folder: Folder,
    compute: impl FnOnce(Run<'_>, Folder) -> Result<Outcome, CommandError>,
) -> Result<Ending, CommandError> {
    let console = Console::new(seeing.quiet);
    let progress = Progress::new(console.clone(), seeing.quiet, scene.time.duration);
    let mut watchers: Vec<Box<dyn Watch>> = vec![Box::new(progress)];
    if let Some(path) = &seeing.trace {
        let trace = Trace::create(path);
        let trace = trace
            .map_err(|error| CommandError::Usage(format!("cannot write {}: {error}", path.display())))?;
        watchers.push(Box::new(trace));
    }
    if let Some(at) = &seeing.metrics {
        let metrics = Metrics::default();
        watchers.push(Box::new(metrics.of_run(&scene.header.name)));
        let served = metrics::serve(metrics, at);
        let address =
            served.map_err(|error| CommandError::Usage(format!("cannot serve metrics at {at}: {error}")))?;
        if !seeing.quiet {
            note(format_args!("metrics at {address}/metrics"));
        }
    }
    if let Some(at) = &seeing.watch {
        let results = Source::Folder(folder.path().into());
        note(format_args!("watch at {}", viewer::show(results, at, &options.reach.security)?));
    }
    let control = interrupt.control().clone();
    let run = Run { scene, options, control, console: console.clone(), watchers };
    let outcome = compute(run, folder);
    console.clear();
    let outcome = outcome?;
    if seeing.json {
        say(&outcome.json)?;
    } else if !seeing.quiet && !interrupt.is_hung_up() {
        outcome.lines.iter().try_for_each(say)?;
    }
    // People may go on looking at the page; a script does not wait.
    if seeing.watch.is_some() && matches!(outcome.ending, Ending::Finished) && io::stdin().is_terminal() {
        note("the page stays until Ctrl-C");
        interrupt.wait();
    }
    Ok(outcome.ending)
}

impl Run<'_> {
    /// Computes the scene from its start into a folder.
    ///
    /// # Errors
    /// A wrong scene, a solver that fails or is lost, or results that cannot be written. From the moment that
    /// all solvers listen, whatever ends the run is in `summary.json`.
    pub fn compute(self, folder: Folder) -> Result<Outcome, CommandError> {
        self.carry_out(folder, None)
    }

    /// Goes on from a checkpoint, in its folder.
    ///
    /// # Errors
    /// As [`Self::compute`]; nothing is changed before all participants have taken the checkpoint back.
    pub fn go_on(self, folder: Folder, saved: &Saved) -> Result<Outcome, CommandError> {
        self.carry_out(folder, Some(saved))
    }

    fn carry_out(self, mut folder: Folder, saved: Option<&Saved>) -> Result<Outcome, CommandError> {
        let started = Instant::now();
        let Self { scene, options, control, console, watchers } = self;
        let files = std::path::absolute(folder.path()).ok();
        let means = Means { files, ..Means::new(scene, options)? };
        let (locals, participants) = Locals::start(scene, means, &console)?;
        locals.tell_where_to_register(&|line| console.line(line));
        control.at_end(locals.ender());
        let mut recovery = Recovery::new(scene, participants, options.reconnect, control.cancel().clone());
        let joined = recovery.join(options.wait.unwrap_or_default(), &locals, &|line| console.line(line));
        let mut simulation = match joined {
            Ok(simulation) => simulation,
            Err(error) if saved.is_some() => return Err(CommandError::at_start(scene, error)),
            Err(error) => return not_started(scene, &mut folder, error, &locals, &control),
        };
        // The participants of the scene, even if a checkpoint follows.
        let at_start = simulation.participants();
        let recorder = match saved {
            None => {
                check_colours(scene, &mut simulation)?;
                folder.claim(scene)?;
                Recorder::new(scene, &folder)?
            }
            Some(saved) => take_back(scene, &folder, &mut simulation, saved)?,
        };
        let last = saved.map(|saved| saved.checkpoint.steps);
        let every = options.every.clone().or_else(|| options.reconnect.map(|_| Every::default()));
        let mut course = Course {
            recorder,
            keeper: Keeper::new(scene, &folder, every, options.keep, last),
            watchers: Watchers::new(watchers),
            console,
            control,
            recovery,
            locals,
            at_start,
            simulation,
            scene,
            folder: &folder,
        };
        // Inside the pool of workers, parallel loops start on this thread, without a hand-over.
        let result = rayon::scope(|_| {
            let _about = log::about_run(course.recovery.run_id());
            course.complete(saved.is_some())
        });
        course.conclude(result, started)
    }
}

/// Refuses pictures whose colours follow fields that participants do not have. Asks for frames only if there
/// are pictures.
pub(crate) fn check_colours(scene: &Scene, simulation: &mut Simulation) -> Result<(), CommandError> {
    let Some(settings) = &scene.output.pictures else { return Ok(()) };
    let frames = simulation.frames().map_err(|error| CommandError::at_start(scene, error))?;
    match Painter::new(scene, settings, &Faces::default()).missing_field(&frames) {
        Some((participant, reason)) => Err(scene.colour_error(participant, &reason).into()),
        None => Ok(()),
    }
}

/// Takes a checkpoint back, then cuts the results to it.
fn take_back(
    scene: &Scene,
    folder: &Folder,
    simulation: &mut Simulation,
    saved: &Saved,
) -> Result<Recorder, CommandError> {
    let restored = simulation.restore(&saved.checkpoint);
    restored.map_err(|error| {
        let (folder, steps) = (folder.path().display(), saved.checkpoint.steps);
        CommandError::Failed(format!("cannot go on from step {steps} of {folder}: {error}"))
    })?;
    folder.reserve()?;
    Ok(Recorder::resume(scene, folder, &saved.output, simulation)?)
}

/// A run that has joined its participants.
struct Course<'a> {
    simulation: Simulation,
    at_start: Vec<ParticipantSummary>,
    recorder: Recorder,
    keeper: Keeper<'a>,
    watchers: Watchers,
    console: Console,
    control: Control,
    recovery: Recovery<'a>,
    locals: Locals,
    scene: &'a Scene,
    folder: &'a Folder,
}

impl Course<'_> {
    /// Computes to the end, and goes back to a checkpoint wherever a participant is lost.
    fn complete(&mut self, mut goes_on: bool) -> Result<Ending, RunError> {
        loop {
            self.watchers.begin(&mut self.simulation, &|line| self.console.line(line));
            match self.advance(goes_on) {
                Err(RunError::Coordinator(loss)) => self.go_back(loss)?,
                result => {
                    let ending = result?;
                    let started = Instant::now();
                    self.recorder.finish()?;
                    self.simulation.count(Phase::Files, started);
                    return Ok(ending);
                }
            }
            goes_on = true;
        }
    }

    fn go_back(&mut self, loss: CoordinatorError) -> Result<(), RunError> {
        let (console, steps) = (&self.console, self.simulation.steps());
        let tell = |line: &str| console.line(line);
        let back = self.recovery.go_back(loss, steps, &mut self.locals, &mut self.keeper, &tell)?;
        let (simulation, saved) = back;
        self.simulation = simulation;
        self.recorder.finish()?;
        self.recorder = Recorder::resume(self.scene, self.folder, &saved.output, &self.simulation)?;
        self.watchers.recovered(saved.checkpoint.steps);
        Ok(())
    }

    fn advance(&mut self, goes_on: bool) -> Result<Ending, RunError> {
        if !goes_on {
            self.frame(0.0)?;
            if self.keeper.is_wanted() {
                // If checkpoints were asked for, a solver that cannot make any is found at once.
                self.keep()?;
            }
        }
        while !self.simulation.is_finished() {
            match self.control.next() {
                Next::Step(held) => self.simulation.leave_out(held.as_secs_f64()),
                Next::Checkpoint => {
                    self.checkpoint()?;
                    continue;
                }
                Next::Stop => {
                    if let Err(error) = self.keep() {
                        self.console.line(&format!("warning: no checkpoint was written: {error}"));
                    }
                    return Ok(Ending::Interrupted);
                }
            }
            let record = self.simulation.step()?;
            let start = Instant::now();
            self.recorder.probes(record.time, self.simulation.probes())?;
            self.simulation.count(Phase::Files, start);
            if record.frame_due {
                self.frame(record.time)?;
                self.recorder.work(&record, &self.simulation)?;
            }
            self.watchers.step(&record, &mut self.simulation, &|line| self.console.line(line));
            if self.keeper.is_due(record.step + 1) {
                self.checkpoint()?;
            }
        }
        Ok(Ending::Finished)
    }

    /// Writes a checkpoint. A failure of the disk does not end the run.
    fn checkpoint(&mut self) -> Result<(), RunError> {
        match self.keep() {
            Err(RunError::Output(error)) => {
                let last = self.keeper.last().map_or("none".into(), |steps| format!("that of step {steps}"));
                self.console.line(&format!("warning: {error}; the last whole checkpoint is {last}"));
                Ok(())
            }
            other => other,
        }
    }

    fn keep(&mut self) -> Result<(), RunError> {
        self.keeper.keep(&mut self.simulation, &mut self.recorder)?;
        self.watchers.checkpoint(self.simulation.steps());
        tracing::info!(step = self.simulation.steps(), "checkpoint");
        Ok(())
    }

    fn frame(&mut self, time: f64) -> Result<(), RunError> {
        let frames = match self.recorder.wants_frame() {
            true => self.simulation.frames_as(&self.recorder.wishes(time)?)?,
            false => Vec::new(),
        };
        let started = Instant::now();
        self.recorder.frame(time, frames)?;
        self.simulation.count(Phase::Files, started);
        Ok(())
    }
}

/// A number with four decimals, or none if it is whole; very small and large numbers have an exponent.
fn with_four_decimals(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_string(),
        1e-3..1e6 if value.fract() == 0.0 => format!("{value:.0}"),
        1e-3..1e6 => format!("{value:.4}"),
        _ => format!("{value:.3e}"),
    }
}
