//! The cost of a FLIP step: a collapsing column of 1.6 million particles in 64^3 cells.
//! `cargo run --release -p amalgam-solver-fluid --example flip_speed -- [cells along an edge]`.

mod column;

use std::time::Instant;

use amalgam_solver_kit::{Alone, AloneGroups, Solver};
use column::column;

fn main() {
    let edge: f64 = std::env::args().nth(1).map_or(64.0, |text| text.parse().expect("a number of cells"));
    let mut solver = column(edge, &amalgam_solver_kit::Ranks::alone());
    let count = solver.particles().len();
    println!("{count} particles, {} cells", edge.powi(3));
    let (groups, mut alone) = (AloneGroups::none(count), Alone::default());
    for step in 0..8 {
        let dt = solver.stable_dt().min(0.1);
        let (start, cpu) = (Instant::now(), cpu_seconds());
        solver.begin().expect("a good state");
        let (begun, cpu_begun) = (start.elapsed(), cpu_seconds());
        alone.integrate(&mut solver, (&groups, 0.0), dt).expect("converges");
        let (integrated, cpu_integrated) = (start.elapsed(), cpu_seconds());
        alone.commit(&mut solver, (&groups, &[]), dt).expect("finite");
        let all = start.elapsed();
        let ns = |seconds: f64| seconds * 1e9 / count as f64;
        println!(
            "step {step}: {:.0} ns a particle (begin {:.0}, integrate {:.0}, commit {:.0}), {} iterations; \
             {:.0}, {:.0}, {:.0} of all processors",
            ns(all.as_secs_f64()),
            ns(begun.as_secs_f64()),
            ns((integrated - begun).as_secs_f64()),
            ns((all - integrated).as_secs_f64()),
            solver.iterations(),
            ns(cpu_begun - cpu),
            ns(cpu_integrated - cpu_begun),
            ns(cpu_seconds() - cpu_integrated),
        );
    }
}

/// Time that this process's threads spent on processors [s], where the system says: what a busy machine
/// distorts least.
fn cpu_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of = |task: std::fs::DirEntry| -> Option<f64> {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    tasks.filter_map(of).sum::<f64>() * 1e-9
}
