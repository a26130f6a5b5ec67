//! Output for people: results, and during a run the progress and lines from the solvers.

use std::{
    fmt,
    io::{ErrorKind, IsTerminal, Write as _},
    sync::Arc,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme};

use crate::{
    error::CommandError,
    observers::{Seen, Watch},
    scene::SceneError,
};
use amalgam_coordinator::StepRecord;
use amalgam_solver_kit::log;

/// Interval of the progress bar, and of lines where there is no terminal.
const BAR_INTERVAL: Duration = Duration::from_millis(100);
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// The bar's length, in steps of simulated time.
const BAR_LENGTH: u64 = 10_000;

/// Writes a line to standard output. A reader who has gone, as in `amalgam bench sph | head -1`, is no reason
/// to end a computation.
///
/// # Errors
/// A line that cannot be written for another reason.
pub fn say(line: impl fmt::Display) -> Result<(), CommandError> {
    match writeln!(std::io::stdout(), "{line}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CommandError::Failed(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a line to standard error, or to the log if the log is for machines. A failure is ignored: no
/// channel is left to report it.
pub fn note(line: impl fmt::Display) {
    if log::is_json() {
        return log::tell(&line.to_string());
    }
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Takes lines for people.
type Sink = dyn Fn(&str) + Send + Sync;

/// Standard error, shared by the progress bar and all other lines; or another receiver of the lines.
#[derive(Clone)]
pub struct Console {
    bar: Option<Arc<ProgressBar>>,
    sink: Option<Arc<Sink>>,
}

impl Console {
    /// Console with a progress bar if standard error is a terminal and `quiet` is not set.
    pub fn new(quiet: bool) -> Self {
        let bar = (!quiet && !log::is_json() && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(Some(BAR_LENGTH), ProgressDrawTarget::stderr());
            // The template is constant, so this does not fail; a bar without style would be better than none.
            if let Ok(style) = ProgressStyle::with_template("{bar:20.cyan/blue} {percent:>3}% {wide_msg}") {
                bar.set_style(style);
            }
            Arc::new(bar)
        });
        Self { bar, sink: None }
    }

    /// Sends lines to `sink` in place of standard error.
    pub fn to(sink: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { bar: None, sink: Some(Arc::new(sink)) }
    }

    /// Writes a line to standard error, above the bar.
    pub fn line(&self, text: &str) {
        match (&self.sink, &self.bar) {
            (Some(sink), _) => sink(text),
            (None, Some(bar)) => bar.suspend(|| note(text)),
            (None, None) => note(text),
        }
    }

    /// Writes a line of a participant's process. A JSON object of its log names its participant itself.
    pub(crate) fn line_of(&self, participant: &str, text: &str) {
        if log::is_json() && self.sink.is_none() && text.starts_with('{') {
            let _ = writeln!(std::io::stderr(), "{text}");
        } else {
            self.line(&format!("[{participant}] {text}"));
        }
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Progress of a run.
pub struct Progress {
    console: Console,
    quiet: bool,
    duration: f64,
    shown: Instant,
    /// Simulated time at the last output [s], and its smoothed rate [s per s of wall time].
    shown_time: f64,
    speed: f64,
}

impl Progress {
    /// Progress before the first step of a run that simulates `duration` [s].
    pub fn new(console: Console, quiet: bool, duration: f64) -> Self {
        Self { console, quiet, duration, shown: Instant::now(), shown_time: 0.0, speed: 0.0 }
    }

    fn show(&mut self, record: &StepRecord) {
        let interval = if self.console.bar.is_some() { BAR_INTERVAL } else { LINE_INTERVAL };
        let elapsed = self.shown.elapsed();
        if self.quiet || elapsed < interval {
            return;
        }
        let speed = (record.time - self.shown_time) / elapsed.as_secs_f64();
        // Exponential smoothing over some ten seconds: the remaining time follows the scene without jumps.
        let new = 1.0 - (-elapsed.as_secs_f64() / 10.0).exp();
        self.speed = if self.speed == 0.0 { speed } else { self.speed + new * (speed - self.speed) };
        (self.shown, self.shown_time) = (Instant::now(), record.time);
        let part = (record.time / self.duration).min(1.0);
        let message = self.message(record);
        match &self.console.bar {
            Some(bar) => {
                bar.set_position((part * BAR_LENGTH as f64) as u64);
                bar.set_message(message);
            }
            None => note(format_args!("{:>3.0}%  {message}", 100.0 * part)),
        }
    }

    fn message(&self, record: &StepRecord) -> String {
        let remaining = (self.duration - record.time).max(0.0) / self.speed;
        format!(
            "{} left | {:.4} of {} s | step {} dt {:.2e} s | {} contacts {} groups {} stages | {:.1} ms/step",
            if remaining.is_finite() { time(remaining) } else { "?".to_string() },
            record.time,
            self.duration,
            record.step,
            record.dt,
            record.active,
            record.groups,
            record.stages,
            1e3 * record.wall_s,
        )
    }
}

impl Watch for Progress {
    fn step(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        self.show(seen.record);
        Ok(())
    }
}

/// A span of wall time in words.
pub fn time(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..10 => format!("{seconds:.1} s"),
        10..120 => format!("{whole} s"),
        120..7200 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
    }
}

/// A scene's faults as they are shown, with colours if `colour`.
pub fn render(error: &SceneError, colour: bool) -> String {
    let theme = if colour { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let handler = GraphicalReportHandler::new_themed(theme).with_width(100);
    let mut text = String::new();
    let mut show = |diagnostic: &dyn Diagnostic| {
        // Writing to a string cannot fail.
        let _ = handler.render_report(&mut text, diagnostic);
    };
    match error {
        SceneError::Read { .. } => show(error),
        SceneError::Faults { faults, .. } => {
            for fault in faults {
                show(fault);
            }
            text.push_str(&format!("{error}; nothing was run\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn times_read_well() {
        assert_eq!(
            [0.04, 9.96, 75.2, 150.0, 9000.0].map(time),
            ["0.0 s", "10 s", "75 s", "2 min 30 s", "2 h 30 min"]
        );
    }
}
