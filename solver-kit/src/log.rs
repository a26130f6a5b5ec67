//! The log of a program on standard error, for people or for machines.

use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::span::EnteredSpan;
use tracing_subscriber::EnvFilter;

/// Format of the lines of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// A JSON object per line, with its subject as fields: run, participant, step, stage.
    Json,
}

/// The variables that say what is logged, the first that is set: as in `debug` or
/// `warn,amalgam_coordinator=trace`.
const VARIABLES: [&str; 2] = ["AMALGAM_LOG", "RUST_LOG"];

/// True if lines are JSON objects.
static JSON: AtomicBool = AtomicBool::new(false);

/// Logs to standard error from now on: warnings, or what AMALGAM_LOG or RUST_LOG asks for. A second call
/// changes nothing.
pub fn log_to_standard_error(format: LogFormat) {
    let asked = VARIABLES.iter().find_map(|name| std::env::var(name).ok().filter(|text| !text.is_empty()));
    let filter = EnvFilter::try_new(asked.as_deref().unwrap_or("warn"));
    let filter = filter.unwrap_or_else(|error| {
        eprintln!("warning: AMALGAM_LOG or RUST_LOG is no filter of logs ({error}); write for example debug");
        EnvFilter::new("warn")
    });
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr);
    // Tests may have set one up before.
    let _ = match format {
        LogFormat::Text => {
            let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            log.with_env_filter(filter).without_time().with_target(false).with_ansi(colour).try_init()
        }
        LogFormat::Json => {
            JSON.store(true, Ordering::Relaxed);
            let told = format!("{TOLD}=info").parse().expect("a directive");
            let log = log.with_env_filter(filter.add_directive(told));
            log.json().flatten_event(true).with_span_list(false).try_init()
        }
    };
}

/// True if the log is for machines. It then also holds the messages for people.
pub fn is_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// The target of messages for people, which are always in the log.
const TOLD: &str = "amalgam::told";

/// Tells people something in a log for machines.
pub fn tell(text: &str) {
    tracing::info!(target: TOLD, "{text}");
}

/// Adds a call to the lines of a log for machines, until the value is dropped.
pub fn about_call(call: &str, participant: &str, run: &str, step: u64, stage: u32) -> Option<EnteredSpan> {
    is_json().then(|| tracing::error_span!("call", run, participant, step, stage, call).entered())
}

/// The same for a run as a whole.
pub fn about_run(run: &str) -> Option<EnteredSpan> {
    is_json().then(|| tracing::error_span!("run", run).entered())
}
