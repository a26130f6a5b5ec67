//! Outcome of a run: `summary.json`, and lines for people.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::{Course, RunError, local::Locals, trust, with_four_decimals};
use crate::{
    cli::Frames,
    console,
    error::{CommandError, ending::Ending},
    folder::Folder,
    run::{control::Control, export},
    scene::Scene,
};
use amalgam_coordinator::{CoordinatorError, Summary};

/// Participants that the line about waiting names; the participant waited for longest comes first.
const NAMED_MAX: usize = 5;

/// Outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Finished or interrupted.
    pub ending: Ending,
    /// `summary.json`.
    pub json: String,
    /// Lines for people.
    pub lines: Vec<String>,
    /// Hash of the state at the last frame, 16 hexadecimal digits.
    pub state_hash: String,
}

/// `summary.json`.
#[derive(Serialize)]
struct SummaryFile<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    interrupted: bool,
    error: Option<String>,
    /// Error of a participant that did not end in order after a run whose results are whole.
    shutdown_error: Option<String>,
    /// The command that goes on from the last checkpoint, if the run is not over.
    resume: Option<String>,
    /// Number of times that a participant was lost and came back.
    recoveries: u64,
    /// Reasons to doubt that the results are those of the scene as meant.
    cautions: Vec<String>,
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

/// Reports why a run did not begin. If the scene is right, `summary.json` has the reason, too.
pub(super) fn not_started(
    scene: &Scene,
    folder: &mut Folder,
    error: CoordinatorError,
    locals: &Locals,
    control: &Control,
) -> Result<Outcome, CommandError> {
    let interrupted = control.is_stopped();
    let error = match CommandError::at_start(scene, error) {
        CommandError::Failed(message) => (!interrupted).then(|| with_ended(message, locals)),
        wrong => return Err(wrong),
    };
    folder.claim(scene)?;
    let name = scene.header.name.as_str();
    let report = FailedStart { scene: name, steps: 0, simulated_s: 0.0, interrupted, error: error.clone() };
    folder.write_summary(&report)?;
    match error {
        Some(error) => Err(CommandError::Failed(error)),
        None => Ok(Outcome {
            ending: Ending::Interrupted,
            json: pretty(&report)?,
            lines: Vec::new(),
            state_hash: format!("{:016x}", 0),
        }),
    }
}

fn pretty(report: &impl Serialize) -> Result<String, CommandError> {
    serde_json::to_string_pretty(report).map_err(|error| CommandError::Failed(error.to_string()))
}

/// The error of the coordinator, and the solvers whose process has ended: the probable cause.
pub(super) fn with_ended(mut error: String, locals: &Locals) -> String {
    // A process may close its connection a moment before it can be reaped.
    std::thread::sleep(Duration::from_millis(50));
    for (participant, status) in locals.ended() {
        error.push_str(&format!("; the process of {participant} has ended: {status}"));
    }
    error
}

impl Course<'_> {
    /// Writes the summary and reports how the run went.
    pub(super) fn conclude(
        mut self,
        result: Result<Ending, RunError>,
        started: Instant,
    ) -> Result<Outcome, CommandError> {
        self.watchers.end(&mut self.simulation, &|line| self.console.line(line));
        let (abandoned, folder) = (result.is_err(), self.folder);
        let (interrupted, error) = match result {
            Ok(ending) => (ending == Ending::Interrupted, None),
            // The run was stopped while it waited for a participant.
            Err(RunError::Coordinator(CoordinatorError::Cancelled)) => (true, None),
            Err(RunError::Coordinator(error)) => (false, Some(with_ended(error.to_string(), &self.locals))),
            Err(error) => (false, Some(error.to_string())),
        };
        let summary = self.simulation.summary();
        let is_over = error.is_none() && !interrupted;
        let resume = self.keeper.command(folder.path()).filter(|_| !is_over);
        let mut report = SummaryFile {
            summary: &summary,
            interrupted,
            error: error.clone(),
            shutdown_error: None,
            resume,
            recoveries: self.recovery.losses(),
            cautions: trust::cautions(&summary, &self.at_start),
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
        let exported = self.scene.output.usd.map_or(Ok(Vec::new()), |settings| {
            let file = export::file_of(self.scene, folder.path());
            export::write(self.scene, folder.path(), &file, settings, Frames::ALL)
        });
        let mut lines = self.lines(&summary, interrupted, started);
        // Participants that were left in the middle of a step may not answer.
        if !abandoned {
            if let Err(error) = self.simulation.finish() {
                self.console.line(&format!("warning: all results are written, but {error}"));
                report.shutdown_error = Some(error.to_string());
                folder.write_summary(&report)?;
            }
            self.locals.end();
        }
        exported
            .map_err(|error| CommandError::Failed(format!("all other results are written, but {error}")))?;
        lines.extend(report.resume.as_ref().map(|command| format!("  to go on: {command}")));
        Ok(Outcome {
            ending: if interrupted { Ending::Interrupted } else { Ending::Finished },
            json: pretty(&report)?,
            lines,
            state_hash: summary.state_hash.clone(),
        })
    }

    /// A few lines about the run.
    fn lines(&self, summary: &Summary, interrupted: bool, started: Instant) -> Vec<String> {
        let steps = summary.steps;
        let mut lines = vec![format!(
            "{}{}: {} s simulated in {}, {steps} steps of {:.1} ms",
            summary.scene,
            if interrupted { " (interrupted)" } else { "" },
            with_four_decimals(summary.simulated_s),
            console::time(started.elapsed().as_secs_f64()),
            1e3 * summary.wall_s / (steps.max(1) as f64),
        )];
        for sample in self.simulation.probes() {
            let values: Vec<String> = sample
                .columns
                .iter()
                .zip(&sample.values)
                .map(|(column, value)| format!("{column} {}", with_four_decimals(*value)))
                .collect();
            lines.push(format!("  {}: {}", sample.name, values.join(", ")));
        }
        lines.extend(trust::lines(summary, &self.at_start).into_iter().map(|line| format!("  {line}")));
        lines.extend(waiting(summary).map(|line| format!("  {line}")));
        let folder = self.folder;
        lines.push(format!("  results in {}: {}", folder.path().display(), folder.written().join(", ")));
        lines
    }
}

/// Line about where wall time went; `None` for a run that took no step.
fn waiting(summary: &Summary) -> Option<String> {
    let whole = summary.wall_s;
    if summary.steps == 0 || whole <= 0.0 {
        return None;
    }
    let percent = |seconds: f64| format!("{:.0} %", 100.0 * seconds / whole);
    let mut waits: Vec<(&str, f64)> =
        summary.participants.iter().map(|one| (one.name.as_str(), one.waited_s)).collect();
    waits.sort_by(|a, b| b.1.total_cmp(&a.1));
    let others: f64 = waits.iter().skip(NAMED_MAX).map(|wait| wait.1).sum();
    let files = summary.phases_s.files;
    let own = whole - files - waits.iter().map(|wait| wait.1).sum::<f64>();
    let mut parts: Vec<String> = waits
        .iter()
        .take(NAMED_MAX)
        .map(|(name, seconds)| format!("{} for {name}", percent(*seconds)))
        .collect();
    if waits.len() > NAMED_MAX {
        parts.push(format!("{} for {} others", percent(others), waits.len() - NAMED_MAX));
    }
    parts.extend([format!("{} own computing", percent(own.max(0.0))), format!("{} files", percent(files))]);
    Some(format!("waited {}; {:.1} round trips per step", parts.join(", "), summary.wire.round_trips_mean))
}

#[cfg(test)]
mod tests {
    use super::waiting;
    use crate::run::trust::tests::summary as changed;
    use amalgam_coordinator::{ParticipantSummary, Summary};

    fn summary(waits: &[(&str, f64)]) -> Summary {
        changed(|summary| {
            let one = summary.participants.remove(0);
            let participant = |&(name, waited_s): &(&str, f64)| ParticipantSummary {
                name: name.into(),
                waited_s,
                ..one.clone()
            };
            summary.participants = waits.iter().map(participant).collect();
            summary.wall_s = 100.0;
            summary.phases_s.files = 5.0;
            summary.wire.round_trips_mean = 2.5;
        })
    }

    #[test]
    fn what_was_waited_for_longest_comes_first() {
        let line = waiting(&summary(&[("cloth", 22.0), ("water", 61.0)]));
        let expected =
            "waited 61 % for water, 22 % for cloth, 12 % own computing, 5 % files; 2.5 round trips per step";
        assert_eq!(line.as_deref(), Some(expected));
    }

    #[test]
    fn of_many_participants_a_few_are_named() {
        let many: Vec<(&str, f64)> = ["a", "b", "c", "d", "e", "f", "g"].map(|name| (name, 10.0)).to_vec();
        let line = waiting(&summary(&many)).expect("a line");
        assert!(line.contains("10 % for e, 20 % for 2 others, 25 % own computing"), "{line}");
    }

    #[test]
    fn a_run_without_steps_waited_for_nothing() {
        assert_eq!(waiting(&Summary { steps: 0, ..summary(&[]) }), None);
    }
}
