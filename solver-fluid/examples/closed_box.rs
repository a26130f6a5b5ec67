//! Water sloshes in a closed box; every particle is looked for after every step. Arguments: particles along an edge of
//! the cube of water (100: a million), number of steps in all, and a file to keep the state in: if it exists, the run
//! goes on from there. `cargo run --release -p amalgam-solver-fluid --example closed_box -- 100 10000 box.snapshot`.

use std::{fs, path::PathBuf, time::Instant};

use amalgam_particles::DVec3;
use amalgam_solver_fluid::FluidProgram;
use amalgam_solver_kit::{Alone, SolverProgram, World};
use anyhow::{Context, bail};

const EDGE: f64 = 0.5;
/// Steps from one snapshot to the next.
const PERIOD: u64 = 500;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |a| a.parse());
    let (along, steps) = (number(25)?, number(1000)?);
    let file: Option<PathBuf> = arguments.next().map(Into::into);
    let world = World {
        participant: "water".into(),
        domain: (DVec3::ZERO, DVec3::new(2.0 * EDGE, EDGE, 1.5 * EDGE)),
        gravity: DVec3::new(0.0, 0.0, -9.81),
        seed: 1,
        obstacles: Vec::new(),
        ranks: amalgam_solver_kit::Ranks::alone(),
    };
    let section = format!(
        "spacing = {}\n[[shapes]]\ntype = \"box\"\nmin = [0, 0, 0]\nmax = [{EDGE}, {EDGE}, {EDGE}]",
        EDGE / along as f64
    );
    let mut solver = FluidProgram.create(&section, &world).map_err(|faults| anyhow::anyhow!("{faults:?}"))?;
    let count = solver.particles().len();
    let mut done = 0;
    if let Some(bytes) = file.as_ref().filter(|file| file.exists()).map(fs::read).transpose()? {
        let (header, state) = bytes.split_first_chunk::<8>().context("the file is too short")?;
        done = u64::from_le_bytes(*header);
        solver.restore(state)?;
        println!("goes on from step {done}");
    }
    let mut alone = Alone::default();
    let (start, mut dt) = (Instant::now(), solver.stable_dt());
    while done < steps {
        dt = alone.step_free(solver.as_mut(), dt)?.stable_dt;
        done += 1;
        let positions = &solver.particles().position;
        // Written so that NaN is outside.
        let inside = |x: &DVec3| x.cmpge(world.domain.0).all() && x.cmple(world.domain.1).all();
        let outside = positions.iter().filter(|x| !inside(x)).count();
        if outside > 0 || positions.len() != count {
            bail!("step {done}: {outside} of {} particles are outside, {count} there were", positions.len());
        }
        if done.is_multiple_of(PERIOD) || done == steps {
            if let Some(file) = &file {
                fs::write(file, [&done.to_le_bytes()[..], &solver.save()?].concat())?;
            }
            let farthest = positions.iter().map(|x| x.x).fold(0.0, f64::max);
            let speed = solver.particles().velocity.iter().map(|v| v.length()).fold(0.0, f64::max);
            println!(
                "step {done}, {:.0} s: all {count} particles inside; farthest at {farthest:.3} m, fastest {speed:.2} m/s",
                start.elapsed().as_secs_f64()
            );
        }
    }
    Ok(())
}
