//! Discs pulled together by their own gravity, as in `scenes/planet-of-discs.toml`.
#![allow(dead_code, unreachable_pub, reason = "tests, an example and a benchmark each use a part")]

use amalgam_coordinator::measure::world::{Spin, World};
use amalgam_particles::{DVec3, random};

/// Attraction of each by all others, softened below the sum of radii: G m / d^2 with G = 1.
pub fn attraction(position: &[DVec3], mass: &[f64]) -> Vec<DVec3> {
    let on = |i: usize| {
        let mut sum = DVec3::ZERO;
        for j in (0..position.len()).filter(|&j| j != i) {
            let d = position[j] - position[i];
            let squared = d.length_squared().max(1.0);
            sum += d * (mass[j] / (squared * squared.sqrt()));
        }
        sum
    };
    (0..position.len()).map(on).collect()
}

/// `count` discs of radius 1 at random in a disc, turning at `rate` [1/s].
pub fn planet(count: usize, rate: f64, friction: f64, spin: Spin) -> World {
    let mut world = World::new(DVec3::ZERO, friction);
    world.attraction = Some(attraction);
    let size = 2.0 * (count as f64).sqrt();
    let mut tries = 0;
    while world.position.len() < count {
        tries += 1;
        let at = |k: u64| size * (2.0 * random::uniform_f64(&[7, tries, k]) - 1.0);
        let x = DVec3::new(at(0), at(1), 0.0);
        let free = x.length() < size && world.position.iter().all(|y| y.distance(x) > 2.0);
        if free {
            world.push(x, DVec3::Z.cross(x) * rate, 1.0, 1.0, spin);
        }
    }
    world
}
