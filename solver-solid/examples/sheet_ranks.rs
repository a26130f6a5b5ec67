//! Speed of implicit steps of a pinned cloth on two ranks of one thread, against one rank of two threads.
//!
//! `cargo run --release -p amalgam-solver-solid --example sheet_ranks [EDGE] [STEPS] [ROUNDS]`

use amalgam_particles::DVec3;
use amalgam_solver_kit::{Alone, RankSpeed, SolverError, World};
use amalgam_solver_solid::SolidSolver;

/// Length of a step [s].
const DT: f64 = 1e-3;

/// A cloth that falls, of `edge` particles along each side.
fn cloth(edge: u64) -> SolidSolver {
    let section = format!(
        "method = \"mass-spring\"\ntolerance = 1e-6\n[[bodies]]\ntype = \"sheet\"\ncorner = [0, 0, 0]\n\
         edge_u = [1, 0, 0]\nedge_v = [0, 1, 0]\nspacing = {}\narea_density = 0.4\n\
         structural_stiffness = 300.0\ndamping_ratio = 0.1\npinned = \"edges\"\n",
        1.0 / (edge - 1) as f64
    );
    let world = World {
        participant: "cloth".into(),
        domain: (DVec3::splat(-10.0), DVec3::splat(10.0)),
        gravity: DVec3::new(0.0, 0.0, -9.81),
        seed: 1,
        obstacles: Vec::new(),
        ranks: amalgam_solver_kit::Ranks::alone(),
    };
    SolidSolver::from_section(&section, &world).unwrap_or_else(|faults| panic!("{faults:?}"))
}

/// Takes a step, and returns its iterations.
fn step(solver: &mut SolidSolver, alone: &mut Alone) -> Result<u64, SolverError> {
    alone.step_free(solver, DT)?;
    Ok(u64::from(solver.iterations()))
}

fn main() -> anyhow::Result<()> {
    let number = |at: usize, other: u64| std::env::args().nth(at).map_or(Ok(other), |text| text.parse());
    let (edge, steps, rounds) = (number(1, 500)?, number(2, 4)?, number(3, 5)?);
    let mut speed = RankSpeed::new(|_| cloth(edge))?;
    for _ in 0..=rounds {
        println!("{}", speed.round(steps, step)?);
    }
    assert!(speed.agrees(), "other bits");
    let ghosts = speed.parts().map(SolidSolver::ghost_count);
    println!("{} particles, ghosts {ghosts:?}, ratio of times {:.3}", edge * edge, speed.ratio());
    Ok(())
}
