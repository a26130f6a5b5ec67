//! The contact law: solves of stacks at rest and of a column that collapses.

use amalgam_coordinator::measure::{Solves, Start, at_rest, collapse, iterations, world::Spin};

use super::measurement::{Idle, Measurement};

/// Iterations of a solve that measures one.
const ITERATIONS: u32 = 50;
const REPETITIONS: usize = 10;
/// Length of the steps of the column [radius of a ball over gravity, square root]: what falls for one step from
/// rest falls by 2e-4 radii.
const DT: f64 = 0.02;
const STEPS: usize = 100;

/// All figures of contacts, or only quick ones. They are per contact, with and without spin of the balls.
pub fn measure(quick: bool, idle: Idle) -> Vec<Measurement> {
    let sides: &[usize] = if quick { &[32] } else { &[32, 69] };
    let mut figures = Vec::new();
    for (spin, with) in [(Spin::None, "no spin"), (Spin::Ball, "spin")] {
        let row = |what: &str, solves: Solves| figure(format!("{what}, {with}"), &solves);
        for &side in sides {
            let mut each = iterations(side, spin, ITERATIONS, REPETITIONS);
            each.seconds.iter_mut().for_each(|time| *time /= f64::from(ITERATIONS));
            let mut one = figure(format!("one iteration, {with}"), &each);
            one.bytes_per_particle = idle.held_for_each(each.contacts);
            one.iterations = Some(1.0);
            figures.push(one);
            figures.push(row("stacks at rest, warm", at_rest(side, spin, Start::Warm, REPETITIONS)));
            figures.push(row("stacks at rest, cold", at_rest(side, spin, Start::Cold, REPETITIONS)));
        }
        let (side, tall) = if quick { (8, 16) } else { (16, 48) };
        figures.push(row("column that collapses", collapse(side, tall, spin, DT, STEPS)));
    }
    figures
}

fn figure(name: String, solves: &Solves) -> Measurement {
    let mut figure = Measurement::new(name, solves.contacts, solves.seconds.clone());
    figure.iterations = Some(solves.iterations as f64 / solves.seconds.len() as f64);
    figure
}
