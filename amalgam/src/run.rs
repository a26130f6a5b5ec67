//! `amalgam run`: computes a scene.

pub mod local;
pub mod output;
mod picture;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use serde::Serialize;

use crate::{
    cli::RunArgs,
    console::{self, Console, Progress, say},
    error::CommandError,
    interrupt::Interrupt,
    scene::Scene,
};
use amalgam_coordinator::{CoordinatorError, Simulation, Summary};
use local::Locals;
use output::{Folder, OutputError, Recorder};

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

/// Runs a scene that has been read; of `args`, only what says how is used.
///
/// # Errors
/// As [`run`].
pub(crate) fn compute(scene: &Scene, args: &RunArgs, interrupt: &Interrupt) -> Result<Ending, CommandError> {
    let started = Instant::now();
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from("out").join(&scene.header.name));
    let folder = Folder::look_at(out)?;
    let console = Console::new(args.quiet);
    let (locals, participants) = Locals::start(scene, args.transport, args.threads.count(), &console)?;
    interrupt.at_end(locals.ender());
    let simulation = match Simulation::connect(scene.plan(), participants, interrupt.cancel()) {
        Ok(simulation) => simulation,
        Err(error) => return not_started(scene, &folder, error, &locals, interrupt),
    };
    folder.claim(scene)?;
    let mut run = Run {
        recorder: Recorder::new(scene, &folder),
        progress: Progress::new(console.clone(), args.quiet, scene.time.duration),
        interrupt: interrupt.clone(),
        simulation,
    };
    // Inside the pool of workers: steps then start where they are, not with a hand-over between threads.
    let result = rayon::scope(|_| run.advance());
    console.clear();
    run.conclude(result, &folder, &locals, args, started)
}

/// Says why a run did not begin; if the scene is right, in `summary.json` too.
fn not_started(
    scene: &Scene,
    folder: &Folder,
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

struct Run {
    simulation: Simulation,
    recorder: Recorder,
    progress: Progress,
    interrupt: Interrupt,
}

impl Run {
    fn advance(&mut self) -> Result<Ending, RunError> {
        self.frame(0.0)?;
        while !self.simulation.is_finished() {
            if self.interrupt.is_requested() {
                return Ok(Ending::Interrupted);
            }
            let record = self.simulation.step()?;
            self.recorder.probes(record.time, self.simulation.probes())?;
            self.progress.step(&record);
            if record.frame_due {
                self.frame(record.time)?;
            }
        }
        Ok(Ending::Finished)
    }

    /// Writes the summary and says how it went.
    fn conclude(
        self,
        result: Result<Ending, RunError>,
        folder: &Folder,
        locals: &Locals,
        args: &RunArgs,
        started: Instant,
    ) -> Result<Ending, CommandError> {
        let abandoned = result.is_err();
        let (interrupted, error) = match result {
            Ok(ending) => (ending == Ending::Interrupted, None),
            Err(RunError::Coordinator(error)) => (false, Some(with_ended(error.to_string(), locals))),
            Err(RunError::Output(error)) => (false, Some(error.to_string())),
        };
        let summary = self.simulation.summary();
        let report = Report { summary: &summary, interrupted, error: error.clone() };
        match (error, folder.write_summary(&report)) {
            (Some(error), Ok(())) => return Err(CommandError::Failed(error)),
            (Some(error), Err(second)) => return Err(CommandError::Failed(format!("{error}; {second}"))),
            (None, written) => written?,
        }
        if args.json {
            let text = serde_json::to_string_pretty(&report);
            say(text.map_err(|error| CommandError::Failed(error.to_string()))?)?;
        } else if !args.quiet {
            self.tell(&summary, folder, interrupted, started)?;
        }
        // Participants that were left in the middle of a step may not answer any more.
        if !abandoned {
            self.simulation.finish().map_err(|error| CommandError::Failed(error.to_string()))?;
            locals.end();
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
            "{}{}: {:.4} s simulated in {}, {steps} steps of {:.1} ms",
            summary.scene,
            if interrupted { " (interrupted)" } else { "" },
            summary.simulated_s,
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
        say(format_args!(
            "  results in {}: summary.json, *.pvd for ParaView, pictures, probes",
            folder.path().display()
        ))
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
