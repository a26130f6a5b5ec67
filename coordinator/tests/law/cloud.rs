//! Clouds of spheres that touch by chance.

use amalgam_coordinator::law::{contact::ContactMaterial, gradient::Outcome};
use amalgam_coordinator::measure::world::{Spin, World};
use amalgam_particles::{DVec3, random};

/// `count` spheres at random in a box, dense enough to touch, at random velocities, of masses up to `ratio`.
pub(crate) fn cloud(seed: u64, count: usize, ratio: f64, spin: Spin) -> World {
    let mut world = World::new(DVec3::ZERO, 0.4);
    let size = 2.0 * (count as f64).cbrt();
    for i in 0..count as u64 {
        let vector =
            |k: u64| DVec3::from_array([0, 1, 2].map(|a| random::uniform_f64(&[seed, i, k, a]) - 0.5));
        let mass = ratio.powf(random::uniform_f64(&[seed, i, 9]));
        let body = world.push(vector(1) * size, vector(2) * 3.0, mass, 1.0, spin) as usize;
        if spin != Spin::None {
            world.bodies.spin[body] = vector(3) * 2.0;
        }
    }
    world
}

/// Solves three steps each of `count` clouds of 2 to 60 balls, of equal and of very unequal masses, with any
/// friction below 2, rolling resistance below 0.5 and restitution; tells the cloud's number and how each
/// solve ended.
pub(crate) fn of_all_kinds(count: u64, mut told: impl FnMut(u64, Outcome)) {
    for seed in 0..count {
        let pick = |k: u64| random::uniform_f64(&[seed, 77, k]);
        let spheres = 2 + (58.0 * pick(0)) as usize;
        let (ratio, dt) = (if pick(1) < 0.5 { 1e3 } else { 1.0 }, if pick(2) < 0.5 { 0.2 } else { 1e-3 });
        let mut world = cloud(seed, spheres, ratio, Spin::Ball);
        let rolling = if pick(4) < 0.2 { 0.0 } else { 0.5 * pick(5) };
        world.material =
            ContactMaterial { friction: 2.0 * pick(3), rolling, restitution: pick(6), glued: false };
        for _ in 0..3 {
            told(seed, world.step(dt).solve);
        }
    }
}
