//! `amalgam run`: computes a scene.

use std::{path::PathBuf, time::Instant};

use serde::Serialize;

use crate::{
    cli::RunArgs,
    command::CommandError,
    console::{self, Console, Progress},
    coordinator::{CoordinatorError, Simulation, Summary},
    interrupt::Interrupt,
    local::{END_DEADLINE, Locals},
    output::{Folder, OutputError, Recorder},
    scene::Scene,
};

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
    let started = Instant::now();
    let scene = Scene::read(&args.scene, &args.set)?.limited_to(args.frames)?;
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from("out").join(&scene.header.name));
    let folder = Folder::look_at(out)?;
    args.threads.apply()?;
    let interrupt = Interrupt::install()
        .map_err(|error| CommandError::Failed(format!("cannot listen for signals: {error}")))?;
    let console = Console::new(args.quiet);
    let (locals, participants) = Locals::start(&scene, args.transport, args.threads.count(), &console)?;
    interrupt.at_end(locals.ender());

    let simulation = match Simulation::connect(scene.plan(), participants, interrupt.cancel()) {
        Ok(simulation) => simulation,
        Err(CoordinatorError::Section { participant, errors }) => {
            let faults: Vec<_> = errors.into_iter().map(|fault| (fault.key, fault.message)).collect();
            return Err(scene.section_error(&participant, &faults).into());
        }
        Err(error) => {
            folder.claim(&scene)?;
            let error = describe(&RunError::Coordinator(error), &locals);
            let interrupted = interrupt.is_requested();
            let error = (!interrupted).then_some(error);
            let scene = scene.header.name.as_str();
            let report = FailedStart { scene, steps: 0, simulated_s: 0.0, interrupted, error: error.clone() };
            folder.write_summary(&report)?;
            return error.map_or(Ok(Ending::Interrupted), |error| Err(CommandError::Failed(error)));
        }
    };
    folder.claim(&scene)?;
    let mut run = Run {
        recorder: Recorder::new(&scene, &folder),
        progress: Progress::new(console.clone(), args.quiet, scene.time.duration),
        interrupt,
        simulation,
    };
    let result = run.advance();
    console.clear();
    let interrupted = matches!(result, Ok(Ending::Interrupted))
        || matches!(result, Err(RunError::Coordinator(_)) if run.interrupt.cancel().is_cancelled());
    let error = result.err().filter(|_| !interrupted).map(|error| describe(&error, &locals));
    let summary = run.simulation.summary();
    let report = Report { summary: &summary, interrupted, error: error.clone() };
    let written = folder.write_summary(&report);
    match (error, written) {
        (Some(error), Ok(())) => return Err(CommandError::Failed(error)),
        (Some(error), Err(second)) => return Err(CommandError::Failed(format!("{error}; {second}"))),
        (None, written) => written?,
    }
    if args.json {
        println!(
            "{}",
            serde_json::to_string_pretty(&report).map_err(|error| CommandError::Failed(error.to_string()))?
        );
    } else if !args.quiet {
        run.tell(&summary, &folder, interrupted, started);
    }
    if interrupted {
        return Ok(Ending::Interrupted);
    }
    run.simulation.finish().map_err(|error| CommandError::Failed(error.to_string()))?;
    locals.wait_for_end(END_DEADLINE);
    Ok(Ending::Finished)
}

/// The error, and which solver's process has ended: the reason for what the coordinator saw.
fn describe(error: &RunError, locals: &Locals) -> String {
    let mut text = error.to_string();
    if matches!(error, RunError::Coordinator(_)) {
        // A process may close its connection a moment before it can be reaped.
        std::thread::sleep(std::time::Duration::from_millis(50));
        for (participant, status) in locals.ended() {
            text.push_str(&format!("; the process of `{participant}` has ended: {status}"));
        }
    }
    text
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
        self.interrupt.steps_begin();
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

    fn frame(&mut self, time: f64) -> Result<(), RunError> {
        let wanted = self.recorder.wants_frame();
        let frames = if wanted { self.simulation.frames()? } else { Vec::new() };
        Ok(self.recorder.frame(time, &frames)?)
    }

    /// A few lines about what was done.
    fn tell(&self, summary: &Summary, folder: &Folder, interrupted: bool, started: Instant) {
        let steps = summary.steps;
        println!(
            "{}{}: {:.4} s simulated in {}, {steps} steps of {:.1} ms",
            summary.scene,
            if interrupted { " (interrupted)" } else { "" },
            summary.simulated_s,
            console::time(started.elapsed().as_secs_f64()),
            1e3 * summary.wall_s / (steps.max(1) as f64),
        );
        for sample in self.simulation.probes() {
            let values: Vec<String> = sample
                .columns
                .iter()
                .zip(&sample.values)
                .map(|(column, value)| format!("{column} {value:.6}"))
                .collect();
            println!("  {}: {}", sample.name, values.join(", "));
        }
        println!(
            "  results in {}: summary.json, *.pvd for ParaView, pictures, probes",
            folder.path().display()
        );
    }
}
