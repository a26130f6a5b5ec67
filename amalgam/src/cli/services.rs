//! Arguments of commands about services: `conform` and `serve coordinator`.

use std::path::PathBuf;

use amalgam_network::{Listen, SecurityOptions};
use amalgam_solver_kit::log::LogFormat;
use clap::Args;

use crate::pages::http::At;

const CONFORM_EXAMPLES: &str = "Examples:
  amalgam conform --list                                             the rules
  amalgam conform 127.0.0.1:7401 --settings balls.toml               a service that listens
  amalgam conform --settings balls.toml -- python3 balls.py          a service that is started for it, with --listen
  amalgam conform --scene scenes/small/drop.toml --participant water this program's own solver, or the scene's address
  amalgam conform 127.0.0.1:7401 --settings balls.toml --only slopes one rule

Exit codes:
  0    no rule is broken
  1    a rule is broken, or the service cannot be reached
  2    the command line or the scene is wrong";

/// Arguments of `conform`.
#[derive(Debug, Args)]
#[command(after_help = CONFORM_EXAMPLES)]
pub struct ConformArgs {
    /// Address of the service: unix:PATH or HOST:PORT.
    pub address: Option<String>,
    /// The section to initialise the service with, a TOML file: the keys of [participants.settings].
    #[arg(long, value_name = "FILE", conflicts_with = "scene")]
    pub settings: Option<PathBuf>,
    /// A scene, for the section, domain, gravity and seed of one of its participants.
    #[arg(long, value_name = "SCENE", requires = "participant")]
    pub scene: Option<PathBuf>,
    /// Participant of the scene.
    #[arg(long, value_name = "NAME", requires = "scene")]
    pub participant: Option<String>,
    /// Try this rule alone; may be given several times.
    #[arg(long, value_name = "RULE")]
    pub only: Vec<String>,
    /// Write all findings to a file, an array of objects.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Name the rules instead of trying them.
    #[arg(long)]
    pub list: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "the help says it")]
    pub security: SecurityOptions,
    /// A program that serves: started with --listen 127.0.0.1:0, it must print `listening ADDRESS`.
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "address")]
    pub command: Vec<String>,
}

/// Arguments of `serve coordinator`.
#[derive(Clone, Debug, Args)]
#[allow(missing_docs, reason = "the help says it")]
pub struct CoordinatorArgs {
    /// Address to listen at: unix:PATH or HOST:PORT, port 0 for any free one.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Listen,
    /// Folder of the runs, with a folder for each.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub dir: PathBuf,
    /// Runs at once; each takes the threads that --threads says.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub running: u32,
    /// Runs that may wait for others to end.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub queued: u32,
    /// Runs that are kept, in whatever state.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub stored: u32,
    /// Threads of each solver and of the coordinator, in each run [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    #[command(flatten)]
    pub security: SecurityOptions,
    /// End when standard input does, so that the service does not outlive who started it.
    #[arg(long)]
    pub exit_with_stdin: bool,
    /// Serve metrics for Prometheus at http://HOST:PORT/metrics; a port alone is one of the loopback
    /// interface.
    #[arg(long, value_name = "[HOST:]PORT")]
    pub metrics: Option<At>,
    /// Format of the log on standard error; AMALGAM_LOG or RUST_LOG says what is logged.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}
