//! `amalgam plan`: the needs of a scene on a cluster, and what would limit it there.

pub(crate) mod basis;
pub mod model;

use crate::{
    cli::PlanArgs,
    command::check::size,
    console::{Console, say},
    error::CommandError,
};
use basis::Basis;
use model::{Cluster, Estimate, estimate};

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
    // Contacts lie on surfaces, whose area grows as the volume to the power 2/3.
    let coordinator = basis.coordinator(factor.powf(2.0 / 3.0));
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
        estimate(&loads, coordinator, cluster)
    };
    let nodes =
        (0..).map(|k| 1usize << k).take_while(|&n| n < args.nodes as usize).chain([args.nodes as usize]);
    let estimates: Vec<Estimate> = nodes.map(on).collect();
    print(&estimates)?;
    say(wall(&on, args.cores))?;
    say(memory(estimates.last().expect("a node")))?;
    match &args.json {
        None => Ok(()),
        Some(file) => {
            let text = serde_json::to_string_pretty(&estimates);
            let text = text.map_err(|error| CommandError::Failed(error.to_string()))?;
            std::fs::write(file, text + "\n")
                .map_err(|error| CommandError::Failed(format!("cannot write {}: {error}", file.display())))
        }
    }
}

/// The table of estimates.
fn print(estimates: &[Estimate]) -> Result<(), CommandError> {
    say("")?;
    let titles =
        ["nodes", "ranks", "particles", "memory", "messages", "bytes", "step", "computing", "longest wait"];
    let units = ["", "", "per rank", "per node", "per rank", "per rank", "", "", ""];
    let rows = estimates.iter().map(|estimate| {
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
    });
    let rows: Vec<[String; 9]> =
        [titles, units].map(|row| row.map(String::from)).into_iter().chain(rows).collect();
    let width = |k: usize| rows.iter().map(|row| row[k].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..9).map(width).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells: Vec<String> = cells
            .map(|(k, (cell, &width))| if k == 8 { cell.clone() } else { format!("{cell:>width$}") })
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
        "memory: at the start every rank lays out all particles, but not of fluids: {} per node in place of {}",
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
