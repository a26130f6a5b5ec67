//! `amalgam run`: computes a scene.

mod deployment;
mod keeper;
pub mod local;
mod lock;
pub mod output;
mod picture;
mod recovery;
mod trust;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use serde::Serialize;

use crate::{
    checkpoint::{Saved, every::Every},
    cli::{LaunchArgs, Patience, RunArgs},
    console::{self, Console, Progress, say},
    error::CommandError,
    interrupt::Interrupt,
    scene::Scene,
};
use amalgam_coordinator::{CoordinatorError, ParticipantSummary, Simulation, Summary};
use keeper::Keeper;
use local::{Locals, Means};
use output::{Folder, OutputError, Recorder};
use picture::Painter;
use recovery::Recovery;

/// How a run went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// To the end of the scene.
    Finished,
    /// Until a signal asked to end it.
    Interrupted,
}

/// `summary.json`.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    interrupted: bool,
    error: Option<String>,
    /// Which participant did not end in order after a run whose results are whole.
    shutdown_error: Option<String>,
    /// The command that goes on from the last checkpoint, if the run is not over.
    resume: Option<String>,
    /// How often a participant was lost and came back.
    recoveries: u64,
}

/// `summary.json` of a run that failed before it began.
#[derive(Serialize)]
struct FailedStart<'a> {
    scene: &'a str,
    steps: u64,
    simulated_s: f64,
    interrupted: bool,
    error: Option<String>,
}

/// What ends a run early.
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
/// A wrong scene, a solver that fails or is lost, or results that cannot be written. What was computed until then is
/// in the output folder, with the error in `summary.json`.
pub fn run(args: &RunArgs) -> Result<Ending, CommandError> {
    let scene = Scene::read(&args.scene, &args.set)?.limited_to(args.frames)?;
    args.threads.apply()?;
    compute(&scene, args, &Interrupt::listen()?)
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

/// Runs a scene that has been read; of `args`, only what says how is used.
///
/// # Errors
/// As [`run`].
pub(crate) fn compute(scene: &Scene, args: &RunArgs, interrupt: &Interrupt) -> Result<Ending, CommandError> {
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from("out").join(&scene.header.name));
    carry_out(scene, args, interrupt, Folder::look_at(out)?, None)
}

/// Goes on with a run from a checkpoint, in its folder.
///
/// # Errors
/// As [`run`]; nothing is changed before all participants have taken the checkpoint back.
pub(crate) fn go_on(
    scene: &Scene,
    args: &RunArgs,
    interrupt: &Interrupt,
    folder: Folder,
    saved: &Saved,
) -> Result<Ending, CommandError> {
    carry_out(scene, args, interrupt, folder, Some(saved))
}

fn carry_out(
    scene: &Scene,
    args: &RunArgs,
    interrupt: &Interrupt,
    mut folder: Folder,
    saved: Option<&Saved>,
) -> Result<Ending, CommandError> {
    let started = Instant::now();
    let console = Console::new(args.quiet);
    let means = Means::new(scene, args.transport, args.threads.count(), &args.reach)?;
    let (locals, participants) = Locals::start(scene, means, &console)?;
    locals.tell_where_to_register(&|line| console.line(line));
    interrupt.at_end(locals.ender());
    let Patience { wait, reconnect } = args.patience;
    let mut recovery = Recovery::new(scene, participants, reconnect, interrupt.cancel());
    let joined = recovery.join(wait.unwrap_or_default(), &locals, &|line| console.line(line));
    let mut simulation = match joined {
        Ok(simulation) => simulation,
        Err(error) if saved.is_some() => return Err(CommandError::at_start(scene, error)),
        Err(error) => return not_started(scene, &mut folder, error, &locals, interrupt),
    };
    let recorder = match saved {
        None => {
            check_colours(scene, &mut simulation)?;
            folder.claim(scene)?;
            Recorder::new(scene, &folder)
        }
        Some(saved) => take_back(scene, &folder, &mut simulation, saved)?,
    };
    let last = saved.map(|saved| saved.checkpoint.steps);
    let every = args.checkpoint_every.clone().or_else(|| reconnect.map(|_| Every::default()));
    let mut run = Run {
        recorder,
        keeper: Keeper::new(scene, &folder, every, args.keep_checkpoints, last),
        progress: Progress::new(console.clone(), args.quiet, scene.time.duration),
        console: console.clone(),
        interrupt: interrupt.clone(),
        recovery,
        locals,
        at_start: simulation.participants(),
        simulation,
        scene,
        folder: &folder,
    };
    // Inside the pool of workers: steps then start where they are, not with a hand-over between threads.
    let result = rayon::scope(|_| run.complete(saved.is_some()));
    console.clear();
    run.conclude(result, args, started)
}

/// Refuses pictures whose colours follow fields that participants do not have. Asks for frames only if there are pictures.
pub(crate) fn check_colours(scene: &Scene, simulation: &mut Simulation) -> Result<(), CommandError> {
    let Some(settings) = &scene.output.pictures else { return Ok(()) };
    let frames = simulation.frames().map_err(|error| CommandError::at_start(scene, error))?;
    match Painter::new(scene, settings).missing_field(&frames) {
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
    Ok(Recorder::resume(scene, folder, &saved.output, simulation.probes())?)
}

/// Says why a run did not begin; if the scene is right, in `summary.json` too.
fn not_started(
    scene: &Scene,
    folder: &mut Folder,
    error: CoordinatorError,
    locals: &Locals,
    interrupt: &Interrupt,
) -> Result<Ending, CommandError> {
    let interrupted = interrupt.is_requested();
    let error = match CommandError::at_start(scene, error) {
        CommandError::Failed(message) => (!interrupted).then(|| with_ended(message, locals)),
        wrong => return Err(wrong),
    };
    folder.claim(scene)?;
    let name = scene.header.name.as_str();
    let report = FailedStart { scene: name, steps: 0, simulated_s: 0.0, interrupted, error: error.clone() };
    folder.write_summary(&report)?;
    error.map_or(Ok(Ending::Interrupted), |error| Err(CommandError::Failed(error)))
}

/// The error of the coordinator, and which solver's process has ended: the reason for what the coordinator saw.
fn with_ended(mut error: String, locals: &Locals) -> String {
    // A process may close its connection a moment before it can be reaped.
    std::thread::sleep(Duration::from_millis(50));
    for (participant, status) in locals.ended() {
        error.push_str(&format!("; the process of {participant} has ended: {status}"));
    }
    error
}

struct Run<'a> {
    simulation: Simulation,
    at_start: Vec<ParticipantSummary>,
    recorder: Recorder,
    keeper: Keeper<'a>,
    progress: Progress,
    console: Console,
    interrupt: Interrupt,
    recovery: Recovery<'a>,
    locals: Locals,
    scene: &'a Scene,
    folder: &'a Folder,
}

impl Run<'_> {
    /// Computes to the end, and goes back to a checkpoint wherever a participant is lost.
    fn complete(&mut self, mut goes_on: bool) -> Result<Ending, RunError> {
        loop {
            match self.advance(goes_on) {
                Err(RunError::Coordinator(loss)) => self.go_back(loss)?,
                result => return result,
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
        self.recorder = Recorder::resume(self.scene, self.folder, &saved.output, self.simulation.probes())?;
        Ok(())
    }

    fn advance(&mut self, goes_on: bool) -> Result<Ending, RunError> {
        if !goes_on {
            self.frame(0.0)?;
            if self.keeper.is_wanted() {
                // Who asks for checkpoints wants to know at once if there can be none.
                self.keeper.keep(&mut self.simulation, &self.recorder)?;
            }
        }
        while !self.simulation.is_finished() {
            if self.interrupt.is_requested() {
                if let Err(error) = self.keeper.keep(&mut self.simulation, &self.recorder) {
                    self.console.line(&format!("warning: no checkpoint was written: {error}"));
                }
                return Ok(Ending::Interrupted);
            }
            let record = self.simulation.step()?;
            self.recorder.probes(record.time, self.simulation.probes())?;
            self.progress.step(&record);
            if record.frame_due {
                self.frame(record.time)?;
            }
            if self.keeper.is_due(record.step + 1) {
                self.checkpoint()?;
            }
        }
        Ok(Ending::Finished)
    }

    /// Writes a checkpoint; one that the disk does not take ends no run.
    fn checkpoint(&mut self) -> Result<(), RunError> {
        match self.keeper.keep(&mut self.simulation, &self.recorder) {
            Err(RunError::Output(error)) => {
                let last = self.keeper.last().map_or("none".into(), |steps| format!("that of step {steps}"));
                self.console.line(&format!("warning: {error}; the last whole checkpoint is {last}"));
                Ok(())
            }
            other => other,
        }
    }

    /// Writes the summary and says how it went.
    fn conclude(
        mut self,
        result: Result<Ending, RunError>,
        args: &RunArgs,
        started: Instant,
    ) -> Result<Ending, CommandError> {
        let (abandoned, folder) = (result.is_err(), self.folder);
        let (interrupted, error) = match result {
            Ok(ending) => (ending == Ending::Interrupted, None),
            // A signal came while a participant was waited for.
            Err(RunError::Coordinator(CoordinatorError::Cancelled)) => (true, None),
            Err(RunError::Coordinator(error)) => (false, Some(with_ended(error.to_string(), &self.locals))),
            Err(error) => (false, Some(error.to_string())),
        };
        let summary = self.simulation.summary();
        let is_over = error.is_none() && !interrupted;
        let resume = self.keeper.command(folder.path()).filter(|_| !is_over);
        let mut report = Report {
            summary: &summary,
            interrupted,
            error: error.clone(),
            shutdown_error: None,
            resume,
            recoveries: self.recovery.losses(),
        };
        match (error, folder.write_summary(&report)) {
            (Some(error), Ok(())) => {
                let way = self.keeper.last().zip(report.resume.as_ref());
                let way = way.map(|(steps, command)| format!("; to go on from step {steps}: {command}"));
                return Err(CommandError::Failed(error + &way.unwrap_or_default()));
            }
            (Some(error), Err(second)) => return Err(CommandError::Failed(format!("{error}; {second}"))),
            (None, written) => written?,
        }
        // Participants that were left in the middle of a step may not answer any more.
        if !abandoned {
            if let Err(error) = self.simulation.finish() {
                self.console.line(&format!("warning: all results are written, but {error}"));
                report.shutdown_error = Some(error.to_string());
                folder.write_summary(&report)?;
            }
            self.locals.end();
        }
        if args.json {
            let text = serde_json::to_string_pretty(&report);
            say(text.map_err(|error| CommandError::Failed(error.to_string()))?)?;
        } else if !args.quiet && !self.interrupt.is_hung_up() {
            self.tell(&summary, folder, interrupted, started)?;
            if let Some(command) = &report.resume {
                say(format_args!("  to go on: {command}"))?;
            }
        }
        Ok(if interrupted { Ending::Interrupted } else { Ending::Finished })
    }

    fn frame(&mut self, time: f64) -> Result<(), RunError> {
        let wanted = self.recorder.wants_frame();
        let surface = |participant: &str| self.recorder.wants_surface_of(participant);
        let frames = if wanted { self.simulation.frames_with_surfaces(&surface)? } else { Vec::new() };
        let started = Instant::now();
        self.recorder.frame(time, &frames)?;
        self.simulation.note_frame_time(started.elapsed().as_secs_f64());
        Ok(())
    }

    /// A few lines about what was done.
    fn tell(
        &self,
        summary: &Summary,
        folder: &Folder,
        interrupted: bool,
        started: Instant,
    ) -> Result<(), CommandError> {
        let steps = summary.steps;
        say(format_args!(
            "{}{}: {} s simulated in {}, {steps} steps of {:.1} ms",
            summary.scene,
            if interrupted { " (interrupted)" } else { "" },
            short(summary.simulated_s),
            console::time(started.elapsed().as_secs_f64()),
            1e3 * summary.wall_s / (steps.max(1) as f64),
        ))?;
        for sample in self.simulation.probes() {
            let values: Vec<String> = sample
                .columns
                .iter()
                .zip(&sample.values)
                .map(|(column, value)| format!("{column} {}", short(*value)))
                .collect();
            say(format_args!("  {}: {}", sample.name, values.join(", ")))?;
        }
        for line in trust::lines(summary, &self.at_start) {
            say(format_args!("  {line}"))?;
        }
        say(format_args!("  results in {}: {}", folder.path().display(), folder.written().join(", ")))
    }
}

/// A number for the eye: about five digits.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_string(),
        1e-3..1e6 if value.fract() == 0.0 => format!("{value:.0}"),
        1e-3..1e6 => format!("{value:.4}"),
        _ => format!("{value:.3e}"),
    }
}
