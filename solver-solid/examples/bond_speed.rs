//! Times passes over bonds and implicit steps: `cargo run --release -p amalgam-solver-solid --example
//! bond_speed -- [particles] [threads] [dt, or 0 for no steps] [lattice or rows, both otherwise]`. On Linux
//! the last line is the most memory that the process held: with one layout, no less than a whole solver of it
//! takes.

use amalgam_solver_solid::measure::{BondLayout, bond_passes, implicit_step};

/// Nanoseconds a directed bond of other programs, on another machine of two cores (AMD Zen 5).
const PEERS: &str = "LAMMPS peri/pmb 6.8; bare loops, forces / product: rows .30 / .46, lattice .14 / .12";

fn least(seconds: &[f64]) -> f64 {
    seconds.iter().copied().fold(f64::INFINITY, f64::min)
}

fn mean(seconds: &[f64]) -> f64 {
    seconds.iter().sum::<f64>() / seconds.len() as f64
}

fn main() {
    let argument =
        |n: usize, default: f64| std::env::args().nth(n).and_then(|a| a.parse().ok()).unwrap_or(default);
    let (particles, threads, dt) =
        (argument(1, 97_000.0) as usize, argument(2, 2.0) as usize, argument(3, 0.0));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of threads");
    println!("{threads} threads; elsewhere: {PEERS}");
    let layouts = match std::env::args().nth(4).as_deref() {
        Some("lattice") => vec![BondLayout::Lattice],
        Some("rows") => vec![BondLayout::Rows],
        _ => vec![BondLayout::Lattice, BondLayout::Rows],
    };
    for layout in layouts {
        let passes = pool.install(|| bond_passes(particles, layout, 20));
        let each = |seconds: &[f64]| least(seconds) * 1e9 / passes.directed_bonds as f64;
        println!(
            "{layout:?}: {} particles, {:.1} bonds each, {:.1} bytes a bond ({:.0} MB), built in {:.2} s; \
             forces {:.3} ns a bond ({:.2} ms), product {:.3} ns ({:.2} ms), exact {:.3} ns",
            passes.particles,
            passes.directed_bonds as f64 / passes.particles as f64,
            passes.bytes as f64 / passes.directed_bonds as f64,
            passes.bytes as f64 * 1e-6,
            passes.build_seconds,
            each(&passes.force_seconds),
            least(&passes.force_seconds) * 1e3,
            each(&passes.product_seconds),
            least(&passes.product_seconds) * 1e3,
            each(&passes.exact_seconds),
        );
        if dt > 0.0 {
            let step = pool.install(|| implicit_step(particles, layout, dt, 10, || ()));
            println!(
                "  step of {dt} s: begin {:.1} ms, stages {:.1} and {:.1} ms ({:.1} and {:.1} iterations), commit {:.1} ms, \
                 {} broken",
                step.begin_seconds * 1e3,
                mean(&step.stage_seconds[0]) * 1e3,
                mean(&step.stage_seconds[1]) * 1e3,
                step.iterations[0],
                step.iterations[1],
                step.commit_seconds * 1e3,
                step.broken
            );
        }
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().filter(|line| line.starts_with("VmHWM")).for_each(|line| println!("{line}"));
}
