//! The command line.

mod help;
mod services;
mod values;

use std::{path::PathBuf, time::Duration};

use amalgam_network::{Listen, SecurityOptions};
use amalgam_particles::text::wall_time;
use amalgam_solver_kit::{ServeOptions, log::LogFormat};
use clap::{Args, Parser, Subcommand};

use crate::pages::http::At;
use crate::{
    at::AtArgs,
    checkpoint::{KEPT, every::Every},
    error::CommandError,
};
use help::{
    AT_EXAMPLES, CERTS_EXAMPLES, EVERY_HELP, EVERY_LONG_HELP, EXIT_CODES, EXPORT_EXAMPLES, LAUNCH_EXAMPLES,
    MAIN_EXAMPLES, MANUAL_EXAMPLES, PLAN_EXAMPLES, RECONNECT_HELP, RECONNECT_LONG_HELP, REPORT_EXAMPLES,
    REPRODUCE_EXAMPLES, RESUME_EXAMPLES, RUN_EXAMPLES, SERVE_EXAMPLES, SET_HELP, SET_LONG_HELP,
    VALIDATE_EXAMPLES, VALIDATE_EXIT_CODES, WATCH_EXAMPLES,
};
pub use services::{ConformArgs, CoordinatorArgs};
pub use values::{Frames, Network, Transport};

/// Couples particle solvers that were never made for each other, by merging and splitting.
#[derive(Debug, Parser)]
#[command(name = "amalgam", version, about, after_help = format!("{MAIN_EXAMPLES}\n\n{EXIT_CODES}"))]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Commands of the program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Compute a scene.
    Run(RunArgs),
    /// Go on with a run that was ended, from its last checkpoint.
    Resume(ResumeArgs),
    /// Start the solvers of a scene on the machines that a deployment file names, compute it, and end them.
    Launch(LaunchArgs),
    /// Make certificates for the machines of a run.
    Certs(CertsArgs),
    /// Write the frames of a run as one animated scene for Blender, Houdini and others.
    Export(ExportArgs),
    /// Show a run in the browser, finished or going on.
    Watch(WatchArgs),
    /// Write one page about a run: its verdict, pictures and curves.
    Report(ReportArgs),
    /// Write man pages, and completions for bash, zsh and fish.
    Manual(ManualArgs),
    /// Check a scene, its solvers' sections included, without computing it.
    Check(CheckArgs),
    /// Say what a scene would take on a cluster: time, memory and messages per step, and what would limit it.
    Plan(PlanArgs),
    /// Offer a solver as a service that scenes reach by its address, or the coordinator as one that scenes
    /// are sent to.
    Serve(ServeArgs),
    /// Send scenes to a coordinator that runs as a service, and follow, hold, end and fetch its runs.
    #[command(after_help = AT_EXAMPLES)]
    At(AtArgs),
    /// Compare the solvers with theory, experiments and conservation laws.
    Validate(ValidateArgs),
    /// Compute the figures of the paper, every method of contact beside merging, and write one report.
    Reproduce(ReproduceArgs),
    /// Measure how fast the solvers are here, beside the figures of other programs.
    Bench(BenchArgs),
    /// Try the rules of the contract on a solver, in whatever language it is written.
    Conform(ConformArgs),
}

/// Arguments of `bench`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct BenchArgs {
    /// Part to measure.
    #[arg(value_enum)]
    pub what: Benchmark,
    /// Write the figures to a file, as an array of objects.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a page of the figures, in Markdown.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Measure only sizes that take a few seconds.
    #[arg(long)]
    pub quick: bool,
    #[command(flatten)]
    pub(crate) threads: Threads,
}

/// Subjects of a benchmark.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Benchmark {
    /// The contact law: stacks at rest, and heaps that flow.
    Contact,
    /// SPH and FLIP, one after the other.
    Fluids,
    /// Smoothed particle hydrodynamics.
    Sph,
    /// Fluid-implicit particles.
    Flip,
    /// Bonds of peridynamics.
    Solids,
    /// SPH on one rank with several threads, and on as many ranks with a thread each.
    Ranks,
}

impl Benchmark {
    /// The things that times are divided by.
    pub(crate) fn counted(self) -> &'static str {
        if matches!(self, Self::Contact) { "contacts" } else { "particles" }
    }
}

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(after_help = format!("{RUN_EXAMPLES}\n{EXIT_CODES}"))]
pub struct RunArgs {
    /// The scene, a TOML file.
    pub scene: PathBuf,
    #[allow(missing_docs, reason = "the help says it")]
    #[arg(long, value_name = "KEY=VALUE", help = SET_HELP, long_help = SET_LONG_HELP)]
    pub set: Vec<String>,
    /// Transport to solvers that the run starts.
    #[arg(long, value_enum, default_value_t = Transport::Unix)]
    pub transport: Transport,
    #[command(flatten)]
    pub(crate) threads: Threads,
    /// Folder for the results [default: out/NAME OF THE SCENE].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// End after this many frames, if the scene is not over before.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub frames: Option<u32>,
    #[allow(missing_docs, reason = "the help says it")]
    #[arg(long, value_name = "INTERVAL", help = EVERY_HELP, long_help = EVERY_LONG_HELP)]
    pub checkpoint_every: Option<Every>,
    /// Number of checkpoints kept, the newest ones.
    #[arg(long, value_name = "N", default_value_t = KEPT, value_parser = clap::value_parser!(u32).range(1..))]
    pub keep_checkpoints: u32,
    #[command(flatten)]
    pub(crate) patience: Patience,
    #[command(flatten)]
    pub(crate) reach: Reach,
    #[command(flatten)]
    pub(crate) seeing: Seeing,
}

/// Arguments of `resume`.
#[derive(Debug, Args)]
#[command(after_help = format!("{RESUME_EXAMPLES}\n{EXIT_CODES}"))]
pub struct ResumeArgs {
    /// The folder with the results of the run.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Go on from the checkpoint after this many steps, in place of the newest one.
    #[arg(long, value_name = "STEPS")]
    pub from: Option<u64>,
    /// Transport to solvers that the run starts.
    #[arg(long, value_enum, default_value_t = Transport::Unix)]
    pub transport: Transport,
    #[command(flatten)]
    pub(crate) threads: Threads,
    /// Write a checkpoint that often, in wall time or steps: 10m, 500steps [default: as before].
    #[arg(long, value_name = "INTERVAL")]
    pub checkpoint_every: Option<Every>,
    /// Number of checkpoints kept, the newest ones [default: as before].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep_checkpoints: Option<u32>,
    #[command(flatten)]
    pub(crate) patience: Patience,
    #[command(flatten)]
    pub(crate) reach: Reach,
    #[command(flatten)]
    pub(crate) seeing: Seeing,
}

/// Arguments of `export`.
#[derive(Debug, Args)]
#[command(after_help = format!("{EXPORT_EXAMPLES}\n{EXIT_CODES}"))]
pub struct ExportArgs {
    /// The folder with the results of the run.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// The file to write, of Universal Scene Description.
    #[arg(long, value_name = "FILE")]
    pub usd: PathBuf,
    /// A frame, or the first and the last as 10..20 [default: all].
    #[arg(long, value_name = "FRAMES", default_value_t = Frames::ALL, hide_default_value = true)]
    pub frames: Frames,
}

/// Arguments of `watch`.
#[derive(Debug, Args)]
#[command(after_help = format!("{WATCH_EXAMPLES}\n{EXIT_CODES}"))]
pub struct WatchArgs {
    /// The folder with the results of the run, or where a coordinator listens: HOST:PORT or unix:PATH.
    #[arg(value_name = "DIR|ADDRESS")]
    pub place: String,
    /// The run of the coordinator [default: the last that was submitted].
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// The page's address; a port alone is one of the loopback interface [default: any that is free].
    #[arg(long, value_name = "[HOST:]PORT", default_value = "0", hide_default_value = true)]
    pub listen: At,
    /// Security of the connection to the coordinator, and of a page beyond this machine.
    #[command(flatten)]
    pub security: SecurityOptions,
}

/// Arguments of `report`.
#[derive(Debug, Args)]
#[command(after_help = format!("{REPORT_EXAMPLES}\n{EXIT_CODES}"))]
pub struct ReportArgs {
    /// The folder with the results of the run.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// The file to write [default: report.html in the folder].
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
}

/// Arguments of `manual`.
#[derive(Debug, Args)]
#[command(after_help = format!("{MANUAL_EXAMPLES}\n{EXIT_CODES}"))]
pub struct ManualArgs {
    /// The folder to write to; below it lie man1 and completions.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct CheckArgs {
    /// The scene, a TOML file.
    pub scene: PathBuf,
    #[allow(missing_docs, reason = "the help says it")]
    #[arg(long, value_name = "KEY=VALUE", help = SET_HELP, long_help = SET_LONG_HELP)]
    pub set: Vec<String>,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// Arguments of `plan`.
#[derive(Debug, Args)]
#[command(after_help = format!("{PLAN_EXAMPLES}\n{EXIT_CODES}"))]
pub struct PlanArgs {
    /// The scene, of which some steps are computed, or the folder with the results of a run.
    #[arg(value_name = "SCENE|DIR")]
    pub scene: PathBuf,
    #[allow(missing_docs, reason = "the help says it")]
    #[arg(long, value_name = "KEY=VALUE", help = SET_HELP, long_help = SET_LONG_HELP)]
    pub set: Vec<String>,
    /// Nodes of the cluster.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub nodes: u32,
    /// Cores of each node.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cores: u32,
    /// Ranks of each node [default: one for 16 cores].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub ranks_per_node: Option<u32>,
    /// Network between nodes.
    #[arg(long, value_enum, default_value_t = Network::Infiniband)]
    pub network: Network,
    /// Number of particles of all participants, such as 1e8 [default: those of the scene].
    #[arg(long, value_name = "N", value_parser = particles)]
    pub particles: Option<f64>,
    /// Let particles grow with the nodes: `--particles` is the number per node.
    #[arg(long)]
    pub weak: bool,
    /// Write the estimates to a file, as an array of objects.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a page of the estimates, in Markdown.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) threads: Threads,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// A number of particles, as 1e8 or 100000000.
fn particles(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (1.0..=1e13).contains(&number) => Ok(number),
        _ => Err("must be a number from 1 to 1e13, such as 1e8".into()),
    }
}

/// Arguments of `launch`.
#[derive(Debug, Args)]
#[command(after_help = format!("{LAUNCH_EXAMPLES}\n{EXIT_CODES}"))]
pub struct LaunchArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "those of `run`")]
    pub run: RunArgs,
}

/// Arguments of `certs`.
#[derive(Debug, Args)]
#[command(after_help = CERTS_EXAMPLES)]
pub struct CertsArgs {
    /// The folder; an authority that is there already is used again.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Names and IP addresses by which services are reached, apart from this machine's own.
    #[arg(long, value_name = "HOST,HOST", value_delimiter = ',', required = true)]
    pub hosts: Vec<String>,
    /// Validity of the certificates [days].
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(0..=3650))]
    pub days: u32,
}

/// Arguments of `serve`.
#[derive(Debug, Args)]
#[command(after_help = SERVE_EXAMPLES, override_usage = "amalgam serve <solid|fluid|coordinator> [OPTIONS]")]
pub struct ServeArgs {
    /// The service.
    #[command(subcommand)]
    pub what: ServedKind,
}

/// Services of the program.
#[derive(Debug, Subcommand)]
pub enum ServedKind {
    /// Cloth and other elastic bodies, grains and rigid bodies.
    Solid(ServeOptions),
    /// Water and other liquids.
    Fluid(ServeOptions),
    /// The coordinator: scenes are submitted to it.
    Coordinator(CoordinatorArgs),
}

/// Arguments of `validate`.
#[derive(Debug, Args)]
#[command(after_help = format!("{VALIDATE_EXAMPLES}\n\n{VALIDATE_EXIT_CODES}"))]
pub struct ValidateArgs {
    /// Cases to compute; all but the longest if none is named.
    #[arg(value_name = "CASE")]
    pub cases: Vec<String>,
    /// Name the cases instead of computing them.
    #[arg(long)]
    pub list: bool,
    /// Compute only cases that take at most a few seconds.
    #[arg(long)]
    pub quick: bool,
    /// Write every comparison to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a page of the comparisons, in Markdown.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Draw a picture CASE.png of each case in this folder.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) threads: Threads,
}

/// Arguments of `reproduce`.
#[derive(Debug, Args)]
#[command(after_help = format!("{REPRODUCE_EXAMPLES}\n{EXIT_CODES}"))]
pub struct ReproduceArgs {
    /// Figures to compute; all if none is named.
    #[arg(value_name = "FIGURE")]
    pub figures: Vec<String>,
    /// Name the figures instead of computing them.
    #[arg(long)]
    pub list: bool,
    /// Resolution: all of it in minutes, half of the paper's, or the paper's numbers of particles.
    #[arg(long, value_enum, default_value_t = Scale::Quick)]
    pub scale: Scale,
    /// Folder for the report and the results of each run.
    #[arg(long, value_name = "DIR", default_value = "out/reproduce")]
    pub out: PathBuf,
    /// At the end, write a page of verdicts and numbers, in Markdown.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) threads: Threads,
}

/// Resolution of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Seconds per run.
    Quick,
    /// Minutes per run.
    Half,
    /// Hours per run.
    Paper,
}

/// Output of a run for people and for other programs.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Seeing {
    /// Show nothing but errors.
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// At the end, print summary.json instead of a few lines.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write phases, waits by participant and bytes of every step to a file that Perfetto opens
    /// (ui.perfetto.dev).
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Serve metrics for Prometheus at http://HOST:PORT/metrics; a port alone is one of the loopback
    /// interface.
    #[arg(long, value_name = "[HOST:]PORT")]
    pub(crate) metrics: Option<At>,
    /// Show the run in the browser while it goes on, and at a terminal afterwards until Ctrl-C: prints the
    /// page's address; a port alone is one of the loopback interface.
    #[arg(long, value_name = "[HOST:]PORT", num_args = 0..=1, default_missing_value = "0")]
    pub(crate) watch: Option<At>,
    #[command(flatten)]
    pub(crate) log: Log,
}

/// Format of the log.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Log {
    /// Format of the log on standard error; AMALGAM_LOG or RUST_LOG says what is logged.
    #[arg(long = "log-format", value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    pub(crate) format: LogFormat,
}

impl Cli {
    /// Format of the log.
    pub(crate) fn log_format(&self) -> LogFormat {
        match &self.command {
            Command::Run(args) => args.seeing.log.format,
            Command::Launch(args) => args.run.seeing.log.format,
            Command::Resume(args) => args.seeing.log.format,
            Command::Serve(args) => match &args.what {
                ServedKind::Solid(options) | ServedKind::Fluid(options) => options.log_format,
                ServedKind::Coordinator(args) => args.log_format,
            },
            Command::Certs(_)
            | Command::Export(_)
            | Command::Watch(_)
            | Command::Report(_)
            | Command::Manual(_)
            | Command::Check(_)
            | Command::Plan(_)
            | Command::At(_)
            | Command::Validate(_)
            | Command::Reproduce(_)
            | Command::Bench(_)
            | Command::Conform(_) => LogFormat::Text,
        }
    }
}

/// Times that a run waits for services of others.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Patience {
    /// Wait that long for solvers at addresses that do not listen yet: 90s, 10m, 2h [default: not at all].
    #[arg(long, value_name = "TIME", value_parser = wall_time)]
    pub(crate) wait: Option<Duration>,
    #[arg(long, value_name = "TIME", value_parser = wall_time, help = RECONNECT_HELP, long_help = RECONNECT_LONG_HELP)]
    pub(crate) reconnect: Option<Duration>,
}

/// Options for where and how solvers run.
#[derive(Clone, Debug, Default, Args)]
pub struct Reach {
    /// Cut the particles of a participant among N ranks of its solver, each with its own threads and memory;
    /// results do not depend on it. May stand several times.
    #[arg(long, value_name = "PARTICIPANT=N")]
    pub(crate) ranks: Vec<RanksOf>,
    #[command(flatten)]
    pub(crate) security: SecurityOptions,
    /// Listen there for solvers that register (serve --register); those of participants without an address
    /// must do so.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) registry: Option<Listen>,
    /// Start solvers where this file says: here, by ssh, by Slurm.
    #[arg(long, value_name = "FILE")]
    pub(crate) deployment: Option<PathBuf>,
}

/// Number of ranks of a participant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RanksOf {
    /// The participant's name.
    pub participant: String,
    /// Its ranks.
    pub ranks: usize,
}

impl std::str::FromStr for RanksOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected the name of a participant and 1 to 1024 ranks, such as water=4".to_string();
        let (participant, ranks) = text.split_once('=').ok_or_else(wrong)?;
        let ranks = ranks.parse().ok().filter(|ranks| (1..=1024).contains(ranks)).ok_or_else(wrong)?;
        Ok(Self { participant: participant.into(), ranks })
    }
}

/// `--threads`.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Threads {
    /// Threads of each solver and of the coordinator; results do not depend on it [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
}

impl Threads {
    pub(crate) fn count(self) -> Option<usize> {
        self.threads.map(|threads| threads as usize)
    }

    /// Sets the threads of this process's own parallel loops.
    pub(crate) fn apply(self) -> Result<(), CommandError> {
        let Some(threads) = self.count() else { return Ok(()) };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
        pool.map_err(|error| CommandError::Failed(format!("cannot start {threads} threads: {error}")))
    }
}
