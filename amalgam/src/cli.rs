//! The command line.

use std::{path::PathBuf, time::Duration};

use amalgam_network::{Listen, SecurityOptions};
use amalgam_particles::text::wall_time;
use amalgam_solver_kit::{ServeOptions, log::LogFormat};
use clap::{Args, Parser, Subcommand};

use crate::export::Frames;
use crate::http::At;
use crate::{
    at::AtArgs,
    checkpoint::{KEPT, every::Every},
    conform::ConformArgs,
    error::CommandError,
    run::{Options, local::Transport},
    service::CoordinatorArgs,
};

const EXIT_CODES: &str = "Exit codes:
  0    done
  1    the run failed: a solver was lost, results could not be written
  2    the scene or the command line is wrong; nothing was run
  130  interrupted by Ctrl-C or SIGTERM; what was computed is readable";

const MAIN_EXAMPLES: &str = "Examples:
  amalgam run scenes/water-on-cloth.toml            compute a scene, results in out/water-on-cloth
  amalgam check scenes/water-on-cloth.toml          is the scene right? without computing it
  amalgam run SCENE --set time.duration=0.5         the same scene, with another value
  amalgam resume out/water-on-cloth                 go on with a run that was ended
  amalgam run --help                                everything about running";

const RUN_EXAMPLES: &str = "Examples:
  amalgam run scenes/water-on-cloth.toml
  amalgam run SCENE --frames 10                     a look at the first ten frames
  amalgam run SCENE --out /tmp/try --set coupling.alpha=0 --set participants.cloth.settings.bodies[0].spacing=0.02
  amalgam run SCENE --transport in-process --json   no child processes, summary to standard output
  amalgam run SCENE --checkpoint-every 10m          what takes days; amalgam resume goes on after whatever ended it
  amalgam run SCENE --wait 10m                      its solvers on other machines may start later than the run
  amalgam run SCENE --reconnect 5m                  a solver that is lost costs no more than the time since a checkpoint

Results, in out/NAME OF THE SCENE unless --out says otherwise:
  summary.json           what was computed, how fast, how exact; the error if it failed
  scene.toml             the scene as it ran, --set applied
  PARTICIPANT.pvd        open this in ParaView; the frames are in frames/
  pictures/000012.png    a picture per frame, if the scene has [output.pictures]
  probes/NAME.csv        a table per probe, a row per step
  checkpoints/           what amalgam resume goes on from

Ctrl-C or SIGTERM ends the run after its current step and writes a checkpoint and the summary; a second one ends it at
once.
";

const RESUME_EXAMPLES: &str = "Examples:
  amalgam resume out/water-on-cloth                 from the newest checkpoint that is whole
  amalgam resume out/water-on-cloth --from 1500     from the one after 1500 steps

The scene is scene.toml in the folder. Frames and tables go on where the checkpoint was taken; whatever was written later
is written again. All of it is to the bit what the run would have written without the interruption.
";

const WATCH_EXAMPLES: &str = "Examples:
  amalgam watch out/water-on-cloth
  amalgam run SCENE --watch                         computes and shows at once
  amalgam watch node1:7500 --tls certs              the last run of a coordinator as a service
  ssh -L 8080:localhost:8080 HOST amalgam watch out/water-on-cloth --listen 8080   a run on another machine
  amalgam watch out/water-on-cloth --listen node1:8443 --tls certs                 a page that other machines reach

The page is at the address that the command prints, for this machine alone unless --listen says more. It follows the run while frames are written.
";

const REPORT_EXAMPLES: &str = "Examples:
  amalgam report out/water-on-cloth
  amalgam report out/water-on-cloth --to cloth.html

Pictures and curves are inside the file, which needs nothing else.
";

const MANUAL_EXAMPLES: &str = "Examples:
  amalgam manual ~/.local/share/amalgam
  source ~/.local/share/amalgam/completions/amalgam.bash
  man ~/.local/share/amalgam/man1/amalgam-run.1
";

const EXPORT_EXAMPLES: &str = "Examples:
  amalgam export out/water-on-cloth --usd water.usda
  amalgam run SCENE --set output.usd={}             the same at the end of every run, in out/NAME/NAME.usda

One file holds all frames: particles as points with ids, velocities and widths, sheets, surfaces and obstacles as meshes, each
with its material. Metres, Z up, a time code per frame. Blender, Houdini and Omniverse open it.
";

const EVERY_HELP: &str = "Write a checkpoint that often, in wall time or steps: 10m, 500steps";
const EVERY_LONG_HELP: &str = "Write a checkpoint that often, so that `amalgam resume` can go on from there.

Wall time is written as 90s, 10m, 2h or 1d, a number of steps as 500steps. The first is written at the start.";

const RECONNECT_HELP: &str =
    "Go back to the last checkpoint when a solver is lost, and wait that long for one at an address";
const RECONNECT_LONG_HELP: &str = "Go back to the last checkpoint when a solver is lost, in place of ending the run.

Solvers that the run starts itself are started again; one at an address is waited for that long: 90s, 10m, 2h. Results are to
the bit as without the loss. Checkpoints are written at the start and every 5m, or as --checkpoint-every says.";

const LAUNCH_EXAMPLES: &str = "Examples:
  amalgam launch SCENE --deployment where.toml
  amalgam resume out/NAME --deployment where.toml   go on with such a run

The file says for each participant who starts its solver; one that is not named is started here:
  tls = \"certs\"                                     a folder of `amalgam certs`, the same path on every machine
  [participants.water]
  run = \"ssh\"                                       or local, slurm, address, registry
  host = \"node7\"
  threads = 32

docs/guide/machines.md names all keys. Ctrl-C ends the run and all solvers that it started.
";

const CERTS_EXAMPLES: &str = "Examples:
  amalgam certs certs --hosts node1,node7,10.0.0.7  an authority, and certificates of coordinator, solver and operator
  amalgam certs certs --hosts node1,node7,node8     the same authority, with another host
";

const SERVE_EXAMPLES: &str = "Examples:
  amalgam serve solid --listen unix:/tmp/solid.sock
  amalgam serve fluid --listen 127.0.0.1:50051      in the scene: address = \"127.0.0.1:50051\"
  amalgam serve fluid --listen node7:0 --tls certs  any free port of this machine, whose name is node7
  amalgam serve fluid --listen '*:0' --tls certs --register node1:7400 --name water
                                                    told to amalgam run SCENE --registry node1:7400 --tls certs
  amalgam serve coordinator --listen 127.0.0.1:7500 scenes are sent to it with amalgam at 127.0.0.1:7500 submit SCENE

Prints `listening ADDRESS` on standard output when it is ready.";

const AT_EXAMPLES: &str = "Examples:
  amalgam at 127.0.0.1:7500 submit scenes/small/drop.toml --follow
  amalgam at 127.0.0.1:7500 runs                    all runs, and how far they are
  amalgam at 127.0.0.1:7500 pause drop-1            hold a run; continue lets it go on
  amalgam at 127.0.0.1:7500 stop drop-1             end it with a checkpoint; continue goes on from there
  amalgam at 127.0.0.1:7500 fetch drop-1            copy its results to out/drop-1

Exit codes: 0 done; 1 the service refused, could not be reached, or the run that was followed failed; 2 the scene or the
command line is wrong; 130 the run that was followed was stopped.";

const VALIDATE_EXAMPLES: &str = "Examples:
  amalgam validate                                  every case
  amalgam validate --list                           which cases there are, and what they compare
  amalgam validate catenary --out out/validation    one case, with its picture in that folder
  amalgam validate --json checks.json               an array of {case, quantity, reference, measured, tolerance, pass}

Each case is a scene that runs through the same coordinator and solvers as `amalgam run`, in this process, and is
compared with a closed form, published data or a conservation law; the README of each case names its source. A quantity
passes if it differs from its reference by at most the tolerance, which is in the quantity's own unit.";

const VALIDATE_EXIT_CODES: &str = "Exit codes:
  0    everything is within its tolerance
  1    something is not, or a case could not be computed
  2    the command line is wrong; nothing was computed";

const REPRODUCE_EXAMPLES: &str = "Examples:
  amalgam reproduce                                 every figure, some seconds per run
  amalgam reproduce --list                          which figures there are, and how many runs each takes
  amalgam reproduce fig3 fig11 --out /tmp/figures   two of them

DIR/report.html holds everything: pictures, numbers, verdicts and the rules by which they come about. It is written anew
after every run, so that Ctrl-C leaves a report of what was computed. A run that ends with an error counts as a failure
of its method and not of this command. docs/guide/trust.md says what came out.
";

const SET_HELP: &str = "Replace a value of the scene, KEY=VALUE; may be given several times";
const SET_LONG_HELP: &str = "Replace a value of the scene; may be given several times.

KEY is a path such as time.duration or participants[0].settings.bodies[0].spacing; a participant may also be given by
its name, as in participants.cloth.settings.tolerance. VALUE is written as in TOML; plain words need no quotes.";

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
    /// Offer a solver as a service that scenes reach by its address, or the coordinator as one that scenes are sent to.
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
    /// Solvers to measure.
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
    pub what: Served,
}

/// Services of the program.
#[derive(Debug, Subcommand)]
pub enum Served {
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
    /// Cases to compute; all if none is named.
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
    /// Write phases, waits by participant and bytes of every step to a file that Perfetto opens (ui.perfetto.dev).
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Serve metrics for Prometheus at http://HOST:PORT/metrics; a port alone is one of the loopback interface.
    #[arg(long, value_name = "[HOST:]PORT")]
    pub(crate) metrics: Option<At>,
    /// Show the run in the browser while it goes on: prints the page's address; a port alone is one of the loopback interface.
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

impl RunArgs {
    /// Options of the run.
    pub(crate) fn options(&self) -> Options {
        Options {
            transport: self.transport,
            threads: self.threads.count(),
            every: self.checkpoint_every.clone(),
            keep: self.keep_checkpoints,
            wait: self.patience.wait,
            reconnect: self.patience.reconnect,
            reach: self.reach.clone(),
        }
    }
}

impl ResumeArgs {
    /// Options of the resumed run, as far as the command line gives them.
    pub(crate) fn options(&self) -> Options {
        Options {
            transport: self.transport,
            threads: self.threads.count(),
            every: self.checkpoint_every.clone(),
            keep: self.keep_checkpoints.unwrap_or(KEPT),
            wait: self.patience.wait,
            reconnect: self.patience.reconnect,
            reach: self.reach.clone(),
        }
    }
}

impl Cli {
    /// Format of the log.
    pub(crate) fn log_format(&self) -> LogFormat {
        match &self.command {
            Command::Run(args) => args.seeing.log.format,
            Command::Resume(args) => args.seeing.log.format,
            Command::Serve(args) => match &args.what {
                Served::Solid(options) | Served::Fluid(options) => options.log_format,
                Served::Coordinator(args) => args.log_format,
            },
            _ => LogFormat::Text,
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
    /// Cut the particles of a participant among N ranks of its solver, each with its own threads and memory; results do not
    /// depend on it. May stand several times.
    #[arg(long, value_name = "PARTICIPANT=N")]
    pub(crate) ranks: Vec<RanksOf>,
    #[command(flatten)]
    pub(crate) security: SecurityOptions,
    /// Listen there for solvers that register (serve --register); those of participants without an address must do so.
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
#[derive(Clone, Copy, Debug, Args)]
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
