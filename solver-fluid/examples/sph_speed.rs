//! Time per particle and sub-step of a dam break: `cargo run --release -p amalgam-solver-fluid --example
//! sph_speed`. Arguments: spacing in metres (default 0.0125, some 64 000 particles) and number of steps
//! (default 200).

use std::time::Instant;

use amalgam_particles::DVec3;
use amalgam_solver_fluid::FluidProgram;
use amalgam_solver_kit::{Alone, AloneGroups, SolverProgram, World};

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let spacing: f64 = arguments.next().map_or(Ok(0.0125), |a| a.parse())?;
    let steps: u64 = arguments.next().map_or(Ok(200), |a| a.parse())?;
    let world = World {
        participant: "water".into(),
        domain: (DVec3::ZERO, DVec3::new(1.0, 0.5, 1.0)),
        gravity: DVec3::new(0.0, 0.0, -9.81),
        seed: 1,
        obstacles: Vec::new(),
        ranks: amalgam_solver_kit::Ranks::alone(),
    };
    let section =
        format!("spacing = {spacing}\n[[shapes]]\ntype = \"box\"\nmin = [0, 0, 0]\nmax = [0.5, 0.5, 0.5]");
    let mut solver = FluidProgram.create(&section, &world).map_err(|faults| anyhow::anyhow!("{faults:?}"))?;
    let count = solver.particles().len();
    let (groups, mut alone) = (AloneGroups::none(count), Alone::default());
    let (mut dt, mut time) = (solver.stable_dt(), 0.0);
    let (mut begin_s, mut integrate_s, mut commit_s) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..steps {
        let start = Instant::now();
        solver.begin()?;
        let begun = Instant::now();
        alone.integrate(solver.as_mut(), (&groups, 0.0), dt)?;
        let integrated = Instant::now();
        time += dt;
        dt = alone.commit(solver.as_mut(), (&groups, &[]), dt)?.stable_dt;
        begin_s.push((begun - start).as_secs_f64());
        integrate_s.push((integrated - begun).as_secs_f64());
        commit_s.push(integrated.elapsed().as_secs_f64());
    }
    println!(
        "{count} particles, {steps} steps, {time:.4} s of simulated time, ns per particle (least / median):"
    );
    for (name, mut seconds) in [("begin", begin_s), ("integrate", integrate_s), ("commit", commit_s)] {
        seconds.sort_by(f64::total_cmp);
        let ns = |s: f64| s * 1e9 / count as f64;
        println!("{name:10} {:6.1} / {:6.1}", ns(seconds[0]), ns(seconds[seconds.len() / 2]));
    }
    Ok(())
}
