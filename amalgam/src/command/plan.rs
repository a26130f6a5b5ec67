//! `amalgam plan`: the needs of a scene on a cluster, and what would limit it there.

pub(crate) mod basis;
pub mod model;

use clap::ValueEnum;

use crate::{
    cli::PlanArgs,
    command::check::size,
    console::{Console, say},
    error::CommandError,
    pages::markdown::Page,
};
use basis::Basis;
use model::{Cluster, Estimate, Load, estimate};

/// Cores per rank on a node: the cores of a part of a processor that shares memory.
const CORES_PER_RANK: usize = 16;

/// Number of nodes up to which the model looks for the limit of scaling.
const NODES_MAX: usize = 4096;

/// Measures or reads the needs of a step here, and prints its needs on a cluster.
///
/// # Errors
/// A wrong scene, a folder without results, or a solver that cannot be reached.
pub fn plan(args: &PlanArgs) -> Result<(), CommandError> {
    let ranks = args.ranks_per_node.map_or((args.cores as usize / CORES_PER_RANK).max(1), |n| n as usize);
    if ranks > args.cores as usize {
        let message = format!("a node of {} cores has no room for {ranks} ranks: write at most", args.cores);
        return Err(CommandError::Usage(format!("{message} --ranks-per-node {}", args.cores)));
    }
    args.threads.apply()?;
    let basis = Basis::of(&args.scene, &args.set, &args.reach, &Console::new(true))?;
    let factor = match args.particles {
        Some(particles) => particles / basis.particles(),
        None => 1.0,
    };
    let loads = basis.loads(factor);
    say(&basis)?;
    if factor != 1.0 {
        say(format_args!("  {factor:.3e} times as many particles, contacts by the power of two thirds"))?;
    }
    for load in &loads {
        let cut = if load.halo.is_some() {
            "cut among ranks"
        } else {
            "on one node: nothing is known of a cut of its method"
        };
        say(format_args!(
            "  {}: {:.3e} particles, {:.0} ns per particle and step on one core, {cut}",
            load.name,
            load.particles,
            1e9 * load.work / load.particles
        ))?;
    }
    let on = |nodes: usize| {
        let cluster = Cluster { nodes, cores: args.cores as usize, ranks, network: args.network };
        let factor = if args.weak { factor * nodes as f64 } else { factor };
        // Contacts lie on surfaces, whose area grows as the volume to the power 2/3.
        estimate(&basis.loads(factor), basis.coordinator(factor.powf(2.0 / 3.0)), cluster)
    };
    let nodes =
        (0..).map(|k| 1usize << k).take_while(|&n| n < args.nodes as usize).chain([args.nodes as usize]);
    let estimates: Vec<Estimate> = nodes.map(on).collect();
    print(&estimates)?;
    let wall = wall(&on, args.cores);
    say(&wall)?;
    say(memory(estimates.last().expect("a node")))?;
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&estimates);
        let text = text.map_err(|error| CommandError::Failed(error.to_string()))?;
        std::fs::write(file, text + "\n")
            .map_err(|error| CommandError::Failed(format!("cannot write {}: {error}", file.display())))?;
    }
    match &args.report {
        Some(file) => page(args, &loads, &estimates, &wall).write(file),
        None => Ok(()),
    }
}

/// Titles of the table of estimates, and the units below them.
const TITLES: [[&str; COLUMNS]; 2] = [
    ["nodes", "ranks", "particles", "memory", "messages", "bytes", "step", "computing", "longest wait"],
    ["", "", "per rank", "per node", "per rank", "per rank", "", "", ""],
];
const COLUMNS: usize = 9;

/// The row of an estimate.
fn row(estimate: &Estimate) -> [String; COLUMNS] {
    let (name, wait) = estimate.longest_wait();
    [
        estimate.nodes.to_string(),
        estimate.ranks.to_string(),
        format!("{:.2e}", estimate.particles),
        size(estimate.memory),
        format!("{:.0}", estimate.messages),
        size(estimate.bytes),
        time(estimate.step),
        format!("{:.0} %", 100.0 * estimate.efficiency()),
        format!("{} {}", time(wait), name),
    ]
}

/// The page that `--report` writes.
fn page(args: &PlanArgs, loads: &[Load], estimates: &[Estimate], wall: &str) -> Page {
    let PlanArgs { scene, nodes, cores, .. } = args;
    let network =
        args.network.to_possible_value().map_or(String::new(), |value| value.get_name().to_string());
    let mut command =
        format!("amalgam plan {} --nodes {nodes} --cores {cores} --network {network}", scene.display());
    if let Some(particles) = args.particles {
        command += &format!(" --particles {particles:e}");
    }
    if args.weak {
        command += " --weak";
    }
    let kind = if args.weak { "Weak" } else { "Strong" };
    let mut page = Page::new(&format!("{kind} scaling by the model"), &command);
    page.paragraph(
        "An estimate, not a measurement: [Machines](../guide/machines.md#what-a-cluster-would-give) says what the model counts. \
         Costs per particle were measured on the processor above.",
    );
    let per = if args.weak { " per node" } else { "" };
    page.list(loads.iter().map(|load| format!("{}: {:.3e} particles{per}", load.name, load.particles)));
    let [titles, units] = TITLES;
    let head: Vec<String> = titles
        .iter()
        .zip(units)
        .map(|(title, unit)| format!("{title} {unit}").trim_end().to_string())
        .collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    page.table(&head, estimates.iter().map(|estimate| row(estimate).to_vec()));
    page.paragraph(&format!("In words: {wall}."));
    page
}

/// The table of estimates.
fn print(estimates: &[Estimate]) -> Result<(), CommandError> {
    say("")?;
    let rows: Vec<[String; COLUMNS]> =
        TITLES.map(|row| row.map(String::from)).into_iter().chain(estimates.iter().map(row)).collect();
    let width = |k: usize| rows.iter().map(|row| row[k].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..COLUMNS).map(width).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells: Vec<String> = cells
            .map(
                |(k, (cell, &width))| if k == COLUMNS - 1 { cell.clone() } else { format!("{cell:>width$}") },
            )
            .collect();
        say(cells.join("  ").trim_end())?;
    }
    Ok(())
}

/// The number of nodes from which on half of the cores wait, and the reason.
fn wall(on: &impl Fn(usize) -> Estimate, cores: u32) -> String {
    let mut nodes = 1;
    while nodes <= NODES_MAX {
        let estimate = on(nodes);
        if estimate.efficiency() < 0.5 {
            let all = nodes * cores as usize;
            let nodes = if nodes == 1 { "the first node".to_string() } else { format!("{nodes} nodes") };
            let wait = estimate.longest_wait().0;
            return format!("half of the time is lost from {nodes} ({all} cores) on, most of it to: {wait}");
        }
        nodes *= 2;
    }
    format!("more than half of the time is computing up to {NODES_MAX} nodes")
}

/// Memory at the start, where it is more than later.
fn memory(last: &Estimate) -> String {
    if last.memory_at_start <= last.memory {
        return "memory: no more at the start than in steps".into();
    }
    format!(
        "memory: at the start every rank lays out all particles, but not of fluids and grains: {} per node in place of {}",
        size(last.memory_at_start),
        size(last.memory)
    )
}

/// The time of a step for people.
fn time(seconds: f64) -> String {
    match seconds {
        0.0..1e-3 => format!("{:.0} us", 1e6 * seconds),
        1e-3..1.0 => format!("{:.1} ms", 1e3 * seconds),
        _ => format!("{seconds:.2} s"),
    }
}
