//! The contact law: solves of stacks at rest and of heaps that collapse.

use amalgam_coordinator::measure::{
    Solves, at_rest, collapse, heaps, iterations, whole_steps,
    world::{Spin, World},
};

use super::measurement::{Idle, Measurement};
#[cfg(feature = "rapier")]
use super::rapier;

/// Iterations of a solve that measures one.
const ITERATIONS: u32 = 50;
const REPETITIONS: usize = 10;
/// Length of a heap's steps [s]. Radii and gravity are 1, so that a ball falls by 2e-4 radii in a step from
/// rest.
const DT: f64 = 0.02;
/// Number and length [s] of the steps of balls that rest.
const STEPS: usize = 30;
const STEP: f64 = 0.01;

/// All figures of contacts, or only quick ones. They are per contact, with and without spin of the balls.
pub fn measure(quick: bool, idle: Idle) -> Vec<Measurement> {
    let (sides, wide, steps): (&[usize], _, _) = if quick { (&[32], 30, 170) } else { (&[32, 69], 45, 250) };
    let mut figures = Vec::new();
    for (spin, with) in [(Spin::None, "no spin"), (Spin::Ball, "spin")] {
        for &side in sides {
            let mut each = iterations(side, spin, ITERATIONS, REPETITIONS);
            each.seconds.iter_mut().for_each(|time| *time /= f64::from(ITERATIONS));
            let mut one = Measurement::new(format!("one iteration, {with}"), each.contacts, each.seconds);
            one.bytes_per_particle = idle.held_for_each(each.contacts);
            figures.push(one);
            let [cold, warm] = at_rest(side, spin, REPETITIONS);
            figures.push(figure(format!("stacks at rest, warm, {with}"), warm));
            figures.push(figure(format!("stacks at rest, cold, {with}"), cold));
        }
        let heaps: [(&str, World); 2] = [
            ("column of discs", heaps::discs(wide, wide, 0.5, 0.0, spin)),
            ("box of balls", heaps::box_of_balls(wide / 3, wide / 3, 0.3, spin)),
        ];
        for (name, heap) in heaps {
            figures.push(figure(format!("{name}, flowing, {with}"), collapse(heap, DT, steps)));
        }
    }
    figures.push(beside_peer(if quick { 16 } else { 32 }));
    figures
}

/// Whole steps of balls that rest on each other, search for contacts included, and those of Rapier if it is
/// compiled in. Rapier is compared at its default number of iterations, at which its overlap is larger.
fn beside_peer(side: usize) -> Measurement {
    let stacks = || heaps::stacks(side, side, 0.3, Spin::Ball);
    let (solves, overlap) = whole_steps(stacks(), STEP, STEPS);
    let ours = figure(format!("whole steps at rest, overlap {overlap:.0e}"), solves);
    #[cfg(feature = "rapier")]
    {
        let mut balls = stacks();
        let peer = Measurement::new("", ours.n, rapier::steps(&mut balls, STEP, STEPS));
        let name = format!("Rapier, overlap {:.0e}", balls.overlap());
        ours.beside_median(&name, peer.ns_per_particle_median)
    }
    #[cfg(not(feature = "rapier"))]
    ours
}

fn figure(mut name: String, solves: Solves) -> Measurement {
    if solves.unconverged > 0 {
        name += &format!(", {} unconverged", solves.unconverged);
    }
    let mean = solves.iterations as f64 / solves.seconds.len() as f64;
    let mut figure = Measurement::new(name, solves.contacts, solves.seconds);
    figure.iterations = Some(mean);
    figure
}
