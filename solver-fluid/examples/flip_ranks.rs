//! Speed of FLIP steps on two ranks of one thread, against one rank of two threads: a collapsing column of 1.6
//! million particles in 64^3 cells.
//!
//! `cargo run --release -p amalgam-solver-fluid --example flip_ranks [EDGE] [STEPS] [ROUNDS]`

mod column;

use amalgam_solver_fluid::flip::Flip;
use amalgam_solver_kit::{Alone, RankSpeed, Solver as _, SolverError};
use column::column;

/// Takes a step, and returns the iterations of its pressure.
fn step(solver: &mut Flip, alone: &mut Alone) -> Result<u64, SolverError> {
    let dt = solver.stable_dt().min(0.1);
    alone.step_free(solver, dt)?;
    Ok(u64::from(solver.iterations()))
}

fn main() -> anyhow::Result<()> {
    let number = |at: usize, other: u64| std::env::args().nth(at).map_or(Ok(other), |text| text.parse());
    let (edge, steps, rounds) = (number(1, 64)? as f64, number(2, 4)?, number(3, 5)?);
    let mut speed = RankSpeed::new(|ranks| column(edge, ranks))?;
    for _ in 0..=rounds {
        println!("{}", speed.round(steps, step)?);
    }
    assert!(speed.agrees(), "other bits");
    let (count, cells) = (speed.whole().particles().len(), speed.parts().map(Flip::shared));
    println!("{count} particles, cells and ghost cells {cells:?}, ratio of times {:.3}", speed.ratio());
    Ok(())
}
