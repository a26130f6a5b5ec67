//! Longer runs of the contact law alone: `cargo run --release -p amalgam-coordinator --example law --
//! planet`.
//!
//! Arguments: `planet`, `turning-planet`, `column`, `rolling-column`, `lattice`, `box`; then, if wanted, the
//! number of steps. Or `clouds`, and how many: random spheres that touch, and which solves do not converge. Every tenth
//! of the run a line says what iterations cost, how deep particles overlap, and what is conserved.

#[path = "../tests/law/cloud.rs"]
mod cloud;
#[path = "../tests/law/planet.rs"]
mod planet;

use amalgam_coordinator::measure::{
    heaps,
    world::{Spin, World},
};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "planet".to_string());
    if name == "clouds" {
        return clouds(arguments.next().and_then(|n| n.parse().ok()).unwrap_or(500));
    }
    let (mut world, dt, steps) = match name.as_str() {
        "planet" => (planet::planet(500, 0.0, 0.0, Spin::None), 0.01, 3000),
        "turning-planet" => (planet::planet(500, 0.05, 0.3, Spin::Disc), 0.01, 3000),
        "column" => (heaps::discs(30, 30, 0.5, 0.0, Spin::None), 0.02, 3000),
        "rolling-column" => (heaps::discs(30, 30, 0.5, 0.1, Spin::Disc), 0.02, 3000),
        "lattice" => (heaps::lattice(8, 16, 0.3, Spin::Ball), 0.02, 40),
        "box" => (heaps::box_of_balls(10, 9, 0.3, Spin::Ball), 0.02, 1500),
        other => {
            eprintln!(
                "no run {other}; write planet, turning-planet, column, rolling-column, lattice, box or clouds"
            );
            std::process::exit(2);
        }
    };
    let steps = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(steps);
    run(&mut world, dt, steps);
}

fn run(world: &mut World, dt: f64, steps: usize) {
    let before = world.angular_momentum();
    let (mut iterations, mut not_converged, mut most) = (0, 0, 0);
    let part = (steps / 10).max(1);
    for step in 1..=steps {
        let solve = world.step(dt).solve;
        iterations += solve.iterations;
        most = most.max(solve.iterations);
        not_converged += u32::from(!solve.converged);
        if step % part == 0 {
            let x = world.position.iter().map(|x| x.x).fold(f64::MIN, f64::max);
            let radius = world.position.iter().map(|x| x.length()).sum::<f64>() / world.position.len() as f64;
            println!(
                "step {step}: {} contacts, iterations {:.1} (most {most}), not converged {not_converged}, overlap {:.1e} r, \
                 mean distance {radius:.2}, largest x {x:.2}, change of L {:.1e}, kinetic energy {:.3e}",
                world.contacts.len(),
                f64::from(iterations) / part as f64,
                world.overlap(),
                (world.angular_momentum() - before).length(),
                world.kinetic_energy(),
            );
            (iterations, most) = (0, 0);
        }
    }
}

/// Clouds of all kinds, three steps each.
fn clouds(count: u64) {
    let (mut solves, mut iterations, mut most, mut failed) = (0u32, 0u64, 0, 0);
    cloud::of_all_kinds(count, |seed, solve| {
        solves += 1;
        iterations += u64::from(solve.iterations);
        most = most.max(solve.iterations);
        if !solve.converged {
            failed += 1;
            println!("cloud {seed}: {solve:?}");
        }
    });
    println!(
        "{solves} solves, {failed} not converged, iterations {:.1} (most {most})",
        iterations as f64 / f64::from(solves)
    );
}
