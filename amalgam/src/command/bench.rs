//! `amalgam bench`: how fast the solvers are on this machine, beside figures of other programs and the limits
//! of the machine.

pub mod contact;
pub mod flip;
pub mod fluids;
pub mod machine;
pub mod measurement;
pub mod ranks;
#[cfg(feature = "rapier")]
mod rapier;
pub mod solids;
mod steps;

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
use measurement::{Bound, Idle, Measurement};

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
    // Measures inside the pool of workers, as services compute: parallel loops start without a hand-over.
    let figures = rayon::scope(|_| match args.what {
        Benchmark::Contact => Ok(contact::measure(args.quick, idle)),
        Benchmark::Flip => flip::measure(if args.quick { 32 } else { 64 }, idle),
        Benchmark::Fluids | Benchmark::Sph => fluids::measure(args.quick, idle),
        Benchmark::Solids => Ok(solids::measure(args.quick, idle)),
        Benchmark::Ranks => ranks::measure(args.quick, rayon::current_num_threads()),
    })?;
    // The machine comes last: the allocator keeps memory that this frees, and solvers would seem to need
    // less.
    let machine = Machine::measure();
    say(machine)?;
    print_table(args.what.counted(), &figures, &machine)?;
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
    let counted = args.what.counted();
    let mut page = Page::new(&format!("Speed of {what}"), &format!("amalgam bench {what}{quick}"));
    page.paragraph(
        &format!(
            "Times are nanoseconds, the least and the median of all repetitions, and bytes are per one of the {counted}. The \
             ratio is the peer's time over ours."
        ),
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
            number("iterations", 1),
            number("ns_per_bond", 3),
            number("bytes_per_particle", 0),
            number("ratio", 1),
            word("peer"),
        ]
    };
    let head =
        ["", counted, "threads", "least", "median", "iterations", "ns per bond", "bytes", "ratio", "peer"];
    page.table(&head, figures.iter().map(row));
    page
}

/// Runs each benchmark in a process of its own. Otherwise memory that the allocator keeps from one would be
/// missing in the measured need of the next.
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

fn print_table(counted: &str, figures: &[Measurement], machine: &Machine) -> Result<(), CommandError> {
    say(format_args!(
        "{:34} {:>9} {:>7} {:>9} {:>9} {:>9} {:>8} {:>8} {:>7} {:>6}  what others reach",
        "", counted, "threads", "ns least", "median", "ms", "iter.", "ns/bond", "bytes", "ratio"
    ))?;
    for figure in figures {
        let number = |value: Option<f64>, digits: usize| match value {
            Some(value) => format!("{value:.digits$}"),
            None => String::new(),
        };
        say(format_args!(
            "{:34} {:>9} {:>7} {:>9.1} {:>9.1} {:>9.2} {:>8} {:>8} {:>7} {:>6}  {}",
            figure.name,
            figure.n,
            figure.threads,
            figure.ns_per_particle,
            figure.ns_per_particle_median,
            figure.ns_per_particle_median * figure.n as f64 * 1e-6,
            number(figure.iterations, 1),
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
