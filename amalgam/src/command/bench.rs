//! `amalgam bench`: how fast the solvers are on this machine, beside figures of other programs and the limits
//! of the machine.

pub mod flip;
pub mod fluids;
pub mod machine;
pub mod ranks;
pub mod solids;

use std::{path::Path, process::Command, time::Instant};

use serde::Serialize;
use serde_json::Value;

use crate::{
    cli::{BenchArgs, Benchmark},
    console::say,
    error::CommandError,
    pages::markdown::Page,
};
use machine::Machine;

/// The memory of this process before anything is measured.
#[derive(Clone, Copy, Debug)]
pub struct Idle(Option<u64>);

impl Idle {
    /// Measures the memory in use now.
    pub fn now() -> Self {
        Self(resident_bytes())
    }

    /// Bytes in use beyond that for each of `count` particles, where the system says.
    pub fn held_for_each(self, count: usize) -> Option<f64> {
        resident_bytes().zip(self.0).map(|(now, before)| now.saturating_sub(before) as f64 / count as f64)
    }
}

/// Memory of this process that is in use [bytes], where the system says.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(1024 * line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?)
}

/// A measured loop or step: a row of the table, an object of the JSON array.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Name of the loop or step measured.
    pub name: String,
    /// Particles.
    pub n: usize,
    /// Threads.
    pub threads: usize,
    /// Least time per particle [ns] of all repetitions.
    pub ns_per_particle: f64,
    /// Median time per particle [ns].
    pub ns_per_particle_median: f64,
    /// Least time per directed bond [ns], for solids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_per_bond: Option<f64>,
    /// Memory held per particle [bytes], where it was measured.
    pub bytes_per_particle: Option<f64>,
    /// Program that the figure is compared with, and its figure.
    pub peer: Option<String>,
    /// The peer's time divided by ours.
    pub ratio: Option<f64>,
    /// Share of the machine's limits: operations and bytes per particle, against the measured peaks.
    #[serde(skip)]
    pub bound: Option<Bound>,
}

/// Operations and bytes of a loop per particle, by count.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// Multiplications, additions and the like, in single lanes.
    pub operations: f64,
    /// Bytes read and written.
    pub bytes: f64,
}

/// Figure of another program.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Name of the program and its loop.
    pub name: &'static str,
    /// Time per particle [ns], or per directed bond for solids.
    pub ns: f64,
}

impl Figure {
    /// A figure from the wall time [s] of repetitions.
    pub fn new(name: impl Into<String>, n: usize, mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        let ns = |at: usize| seconds[at] * 1e9 / n as f64;
        Self {
            name: name.into(),
            n,
            threads: rayon::current_num_threads(),
            ns_per_particle: ns(0),
            ns_per_particle_median: ns(seconds.len() / 2),
            ns_per_bond: None,
            bytes_per_particle: None,
            peer: None,
            ratio: None,
            bound: None,
        }
    }

    /// Adds a peer's figure for comparison: per bond if this figure is known per bond, else per particle.
    pub fn beside(mut self, peer: Peer) -> Self {
        self.peer = Some(format!("{}: {} ns", peer.name, peer.ns));
        self.ratio = Some(peer.ns / self.ns_per_bond.unwrap_or(self.ns_per_particle));
        self
    }
}

/// Measures, prints a table, and writes the figures as JSON if asked to.
///
/// # Errors
/// A solver that does not run, or a file that cannot be written.
pub fn bench(args: &BenchArgs) -> Result<(), CommandError> {
    if matches!(args.what, Benchmark::Fluids) {
        return apart(args, ["sph", "flip"]);
    }
    args.threads.apply()?;
    let (start, idle) = (Instant::now(), Idle::now());
    // As services do: among the workers, where a parallel loop starts without a hand-over.
    let figures = rayon::scope(|_| match args.what {
        Benchmark::Flip => flip::measure(if args.quick { 32 } else { 64 }, idle),
        Benchmark::Fluids | Benchmark::Sph => fluids::measure(args.quick, idle),
        Benchmark::Solids => Ok(solids::measure(args.quick, idle)),
        Benchmark::Ranks => ranks::measure(args.quick, rayon::current_num_threads()),
    })?;
    // Only now: the allocator keeps what this frees for a while, and what a solver needs would seem less.
    let machine = Machine::measure();
    say(machine)?;
    print_table(&figures, &machine)?;
    say(format_args!("measured in {:.0} s; least and median of repetitions", start.elapsed().as_secs_f64()))?;
    let figures = figures.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>();
    let figures = figures.map_err(|error| CommandError::Failed(error.to_string()))?;
    write_files(args, &figures)
}

/// Writes the files that the command line asks for besides the table.
fn write_files(args: &BenchArgs, figures: &[Value]) -> Result<(), CommandError> {
    if let Some(file) = &args.json {
        write(file, figures)?;
    }
    match &args.report {
        Some(file) => page(args, figures).write(file),
        None => Ok(()),
    }
}

/// The page of results that `--report` writes.
fn page(args: &BenchArgs, figures: &[Value]) -> Page {
    let what = format!("{:?}", args.what).to_lowercase();
    let quick = if args.quick { " --quick" } else { "" };
    let mut page = Page::new(&format!("Speed of {what}"), &format!("amalgam bench {what}{quick}"));
    page.paragraph(
        "Times are nanoseconds per particle, the least and the median of all repetitions. The ratio is the peer's time over \
         ours.",
    );
    let row = |figure: &Value| {
        let number = |key: &str, digits: usize| match figure[key].as_f64() {
            Some(value) => format!("{value:.digits$}"),
            None => String::new(),
        };
        let word = |key: &str| figure[key].as_str().unwrap_or_default().to_string();
        vec![
            word("name"),
            number("n", 0),
            number("threads", 0),
            number("ns_per_particle", 1),
            number("ns_per_particle_median", 1),
            number("ns_per_bond", 3),
            number("bytes_per_particle", 0),
            number("ratio", 1),
            word("peer"),
        ]
    };
    let head =
        ["", "particles", "threads", "least", "median", "ns per bond", "bytes per particle", "ratio", "peer"];
    page.table(&head, figures.iter().map(row));
    page
}

/// Runs benchmarks each in a process of its own: memory that one leaves with the allocator would be missing
/// in the measured need of the next.
fn apart(args: &BenchArgs, parts: [&str; 2]) -> Result<(), CommandError> {
    let mut figures: Vec<Value> = Vec::new();
    let folder = tempfile::tempdir();
    let folder = folder.map_err(|error| CommandError::Failed(format!("cannot create a folder: {error}")))?;
    for part in parts {
        let fail = |reason: String| CommandError::Failed(format!("amalgam bench {part}: {reason}"));
        let program = std::env::current_exe().map_err(|error| fail(error.to_string()))?;
        let mut command = Command::new(program);
        command.args(["bench", part]).args(args.quick.then_some("--quick"));
        if let Some(threads) = args.threads.count() {
            command.args(["--threads", &threads.to_string()]);
        }
        let own = folder.path().join(part);
        command.arg("--json").arg(&own);
        let status = command.status().map_err(|error| fail(error.to_string()))?;
        if !status.success() {
            return Err(fail(status.to_string()));
        }
        let text = std::fs::read(&own).map_err(|error| fail(error.to_string()))?;
        let read: Vec<_> = serde_json::from_slice(&text).map_err(|error| fail(error.to_string()))?;
        figures.extend(read);
    }
    write_files(args, &figures)
}

fn print_table(figures: &[Figure], machine: &Machine) -> Result<(), CommandError> {
    say(format_args!(
        "{:34} {:>9} {:>7} {:>9} {:>9} {:>8} {:>7} {:>6}  what others reach",
        "", "particles", "threads", "ns least", "median", "ns/bond", "bytes/p", "ratio"
    ))?;
    for figure in figures {
        let number = |value: Option<f64>, digits: usize| match value {
            Some(value) => format!("{value:.digits$}"),
            None => String::new(),
        };
        say(format_args!(
            "{:34} {:>9} {:>7} {:>9.1} {:>9.1} {:>8} {:>7} {:>6}  {}",
            figure.name,
            figure.n,
            figure.threads,
            figure.ns_per_particle,
            figure.ns_per_particle_median,
            number(figure.ns_per_bond, 3),
            number(figure.bytes_per_particle, 0),
            number(figure.ratio, 1),
            figure.peer.as_deref().unwrap_or_default()
        ))?;
        if let Some(Bound { operations, bytes }) = figure.bound {
            let arithmetic = operations / figure.ns_per_particle / machine.gigaflops;
            let traffic = bytes / figure.ns_per_particle / machine.gigabytes_per_second;
            say(format_args!(
                "{:34} {operations:.0} operations and {bytes:.0} bytes a particle: {:.0} % of the machine's arithmetic, \
                 {:.0} % of its bandwidth",
                "",
                100.0 * arithmetic,
                100.0 * traffic
            ))?;
        }
    }
    Ok(())
}

fn write(file: &Path, figures: &[impl Serialize]) -> Result<(), CommandError> {
    let fail = |reason: String| CommandError::Failed(format!("cannot write {}: {reason}", file.display()));
    let text = serde_json::to_string_pretty(figures).map_err(|error| fail(error.to_string()))?;
    std::fs::write(file, text + "\n").map_err(|error| fail(error.to_string()))
}
