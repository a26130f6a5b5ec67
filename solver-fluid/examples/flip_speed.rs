//! What a FLIP step costs: a collapsing column of 1.6 million particles in 64^3 cells.
//! `cargo run --release -p amalgam-solver-fluid --example flip_speed -- [cells along an edge]`

use std::time::Instant;

use amalgam_particles::{DVec3, GroupMap, Particles, StepEnd};
use amalgam_solver_fluid::flip::{Flip, section};
use amalgam_solver_kit::{Answer, Solver, Stage, World};

fn main() {
    let edge: f64 = std::env::args().nth(1).map_or(64.0, |text| text.parse().expect("a number of cells"));
    let world = World {
        participant: "water".into(),
        domain: (DVec3::ZERO, DVec3::splat(edge)),
        gravity: DVec3::NEG_Z * 9.81,
        seed: 1,
    };
    let text = format!(
        "method = 'flip'\nspacing = 0.5\n[[shapes]]\ntype = 'box'\nmin = [0, 0, 0]\nmax = [{}, {edge}, {edge}]\n",
        (0.76 * edge).round()
    );
    let (parameters, particles) = section::read(&text, &world).expect("a good section");
    let mut solver = Flip::new(parameters, particles);
    let count = solver.particles().len();
    println!("{count} particles, {} cells", edge.powi(3));
    let mut answer = Answer::default();
    for step in 0..8 {
        let dt = solver.stable_dt().min(0.1);
        let (mut parts, mut clock) = (Vec::new(), (Instant::now(), cpu_seconds()));
        let mut lap = |part: &str| {
            let now = (Instant::now(), cpu_seconds());
            let ns = |seconds: f64| seconds * 1e9 / count as f64;
            parts.push((part.to_owned(), ns((now.0 - clock.0).as_secs_f64()), ns(now.1 - clock.1)));
            clock = now;
        };
        solver.begin().expect("a good state");
        lap("begin");
        let groups = [9, 10].map(|tenths| on_floor(solver.particles(), tenths));
        let mut end = Vec::new();
        for (number, groups) in (1..).zip(&groups) {
            let Particles { mass, velocity, .. } = solver.particles();
            let members = |g| groups.members(g).iter().map(|&i| i as usize);
            let inertia: Vec<f64> =
                (0..groups.len()).map(|g| 2.0 * members(g).map(|i| mass[i]).sum::<f64>()).collect();
            let mean = |g| members(g).map(|i| velocity[i]).sum::<DVec3>() / members(g).count() as f64;
            let velocity: Vec<DVec3> = (0..groups.len()).map(mean).collect();
            let impulse = vec![DVec3::ZERO; groups.len()];
            answer.momentum = vec![DVec3::ZERO; groups.len()];
            answer.slope = vec![0.0; groups.len()];
            let stage = Stage {
                step,
                stage: number,
                repetition: 0,
                dt,
                groups,
                inertia: &inertia,
                velocity: &velocity,
                impulse: &impulse,
                occupied: None,
            };
            solver.integrate(&stage, &mut answer).expect("converges");
            end =
                (0..groups.len()).map(|g| velocity[g] + answer.momentum[g] / inertia[g]).collect::<Vec<_>>();
            lap(&format!("stage {number} ({} iterations)", solver.iterations()));
        }
        let groups = &groups[1];
        let members: Vec<DVec3> =
            (0..groups.len()).flat_map(|g| vec![end[g]; groups.members(g).len()]).collect();
        let end = StepEnd { dt, groups, group_velocity: &end, member_velocity: &members };
        solver.commit(&end, &answer.velocity).expect("finite");
        lap("commit");
        let parts: Vec<String> =
            parts.iter().map(|(part, wall, cpu)| format!("{part} {wall:.1} / {cpu:.1}")).collect();
        println!("step {step}, ns a particle, wall / all processors: {}", parts.join(", "));
    }
}

/// Particles on the floor in groups of ten neighbours, of ten groups as many as `tenths`.
fn on_floor(particles: &Particles, tenths: usize) -> GroupMap {
    let position = &particles.position;
    let mut floor: Vec<u32> = (0..particles.len() as u32).filter(|&i| position[i as usize].z < 0.5).collect();
    floor.sort_by_key(|&i| position[i as usize].to_array().map(|x| x as u32));
    let tens = floor.chunks_exact(10).enumerate().filter(|(n, _)| n % 10 < tenths);
    let members: Vec<u32> = tens.flat_map(|(_, ten)| ten).copied().collect();
    let mut groups = GroupMap::default();
    groups.set(particles.len(), &(0..=members.len() as u32).step_by(10).collect::<Vec<_>>(), &members);
    groups
}

/// Time that this process's threads spent on processors [s], where the system says: what a busy machine distorts least.
fn cpu_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of = |task: std::fs::DirEntry| -> Option<f64> {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    tasks.filter_map(of).sum::<f64>() * 1e-9
}
