//! Times steps of a hanging sheet: `cargo run --release -p amalgam-solver-solid --example sheet_speed --
//! [nodes an edge] [dt^2 k/m] [threads] [dt c/m] [tolerance]`. The cloth of `scenes/water-on-cloth.toml` is
//! about `101 0.7 2 44 1e-6`.

use std::time::Instant;

use amalgam_particles::DVec3;
use amalgam_solver_kit::{Alone, AloneGroups, Solver, World};
use amalgam_solver_solid::SolidSolver;

fn main() {
    let argument =
        |n: usize, default: f64| std::env::args().nth(n).and_then(|a| a.parse().ok()).unwrap_or(default);
    let (nodes, stiffness_ratio, threads, damping_ratio) =
        (argument(1, 100.0), argument(2, 10.0), argument(3, 2.0) as usize, argument(4, 0.3));
    let tolerance = argument(5, 1e-8);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of threads");
    let (dt, spacing, area_density) = (1e-3, 0.01, 0.2);
    let mass = area_density * spacing * spacing;
    let (stiffness, damping) = (stiffness_ratio * mass / (dt * dt), damping_ratio * mass / dt);
    let edge = spacing * (nodes - 1.0);
    let section = format!(
        "method = \"mass-spring\"\ntolerance = {tolerance:e}\n[[bodies]]\ntype = \"sheet\"\ncorner = [0, 0, 0]\nedge_u = [{edge}, 0, 0]\n\
         edge_v = [0, {edge}, 0]\nspacing = {spacing}\narea_density = {area_density}\n\
         structural_stiffness = {stiffness}\ndamping = {damping}\npinned = \"corners\""
    );
    let world = World {
        participant: "sheet".into(),
        domain: (DVec3::splat(-10.0), DVec3::splat(10.0)),
        gravity: DVec3::new(0.0, 0.0, -9.81),
        seed: 1,
        obstacles: Vec::new(),
        ranks: amalgam_solver_kit::Ranks::alone(),
    };
    let mut solid = SolidSolver::from_section(&section, &world).expect("the section is right");
    let count = solid.particles().len();
    let (groups, mut alone) = (AloneGroups::none(count), Alone::default());
    for phase in 0..5 {
        let steps = 100;
        let (mut seconds, mut iterations) = ([0.0; 4], [0; 2]);
        for _ in 0..steps {
            let mut clock = Instant::now();
            let mut lap = |phase: usize| {
                seconds[phase] += clock.elapsed().as_secs_f64();
                clock = Instant::now();
            };
            pool.install(|| solid.begin()).expect("begin");
            lap(0);
            for (again, iterations) in iterations.iter_mut().enumerate() {
                pool.install(|| alone.integrate(&mut solid, (&groups, 0.0), dt).map(|_| ()))
                    .expect("integrate");
                lap(1 + again);
                *iterations += solid.iterations();
            }
            pool.install(|| alone.commit(&mut solid, (&groups, &[]), dt)).expect("commit");
            lap(3);
        }
        let milliseconds = seconds.map(|s| s / steps as f64 * 1e3);
        let per_step = iterations.map(|n| f64::from(n) / steps as f64);
        println!(
            "steps {:3}..: begin {:.2} ms, stage 1 {:.2} ms ({:.1} iterations), stage 2 {:.2} ms ({:.1}), commit {:.2} ms; \
             {:.2} ns a spring and iteration",
            phase * steps,
            milliseconds[0],
            milliseconds[1],
            per_step[0],
            milliseconds[2],
            per_step[1],
            milliseconds[3],
            (milliseconds[1] - milliseconds[2]) * 1e6
                / (per_step[0] - per_step[1])
                / solid.pair_count() as f64
        );
    }
}
