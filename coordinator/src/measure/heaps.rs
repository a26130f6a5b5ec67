//! Heaps of spheres: columns, and balls in a box.

use amalgam_particles::{DVec3, random};

use super::world::{Spin, World};

/// A column of discs of radius 1 (metres do not matter: gravity is 1), `wide` discs wide and `tall` high, on
/// a rough floor and beside a wall at x = 0. Radii vary by a fifth.
pub fn discs(wide: usize, tall: usize, friction: f64, rolling: f64, spin: Spin) -> World {
    let mut world = World::new(DVec3::NEG_Y, friction);
    world.material.rolling = rolling;
    for k in 0..wide * tall {
        let radius = 0.8 + 0.2 * random::uniform_f64(&[3, k as u64]);
        let (column, row) = (k % wide, k / wide);
        let shift = if row % 2 == 1 { 0.7 } else { 0.0 };
        let x = DVec3::new(1.0 + shift + 2.0 * column as f64, 1.0 + 1.9 * row as f64, 0.0);
        world.push(x, DVec3::ZERO, radius * radius, radius, spin);
    }
    world.plane(DVec3::ZERO, DVec3::Y);
    world.plane(DVec3::ZERO, DVec3::X);
    world
}

/// Spheres of radius 1 in a box of `side` x `side` cells, `tall` layers, a little apart.
pub fn box_of_balls(side: usize, tall: usize, friction: f64, spin: Spin) -> World {
    let mut world = World::new(DVec3::NEG_Z, friction);
    for k in 0..side * side * tall {
        let noise = |a: u64| 0.1 * random::uniform_f64(&[5, k as u64, a]);
        let (i, j, l) = (k % side, k / side % side, k / side / side);
        let x = DVec3::new(i as f64, j as f64, l as f64) * 2.1 + DVec3::new(noise(0), noise(1), noise(2));
        world.push(x + DVec3::ONE, DVec3::ZERO, 1.0, 1.0, spin);
    }
    let far = 2.1 * side as f64 + 0.1;
    world.plane(DVec3::ZERO, DVec3::Z);
    world.plane(DVec3::ZERO, DVec3::X);
    world.plane(DVec3::ZERO, DVec3::Y);
    world.plane(DVec3::X * far, DVec3::NEG_X);
    world.plane(DVec3::Y * far, DVec3::NEG_Y);
    world
}

/// Balls of radius 1 on each other in straight stacks beside each other, at rest: `side` x `side` x `tall`,
/// each touching six others, in a box without a lid.
pub fn stacks(side: usize, tall: usize, friction: f64, spin: Spin) -> World {
    let mut world = box_of_balls(side, tall, friction, spin);
    for (k, x) in world.position.iter_mut().enumerate() {
        let (i, j, l) = (k % side, k / side % side, k / side / side);
        *x = 2.0 * DVec3::new(i as f64 + 0.5, j as f64 + 0.5, l as f64 + 0.5);
    }
    world
}

/// Balls of radius 1 on a plane, in close layers: `side` x `side` x `tall`. Nothing holds the sides of the
/// lattice, so that it collapses.
pub fn lattice(side: usize, tall: usize, friction: f64, spin: Spin) -> World {
    let mut world = World::new(DVec3::NEG_Z, friction);
    for k in 0..side * side * tall {
        let (i, j, l) = (k % side, k / side % side, k / side / side);
        let shift = (l % 2) as f64;
        let x = DVec3::new(2.0 * i as f64 + shift, 2.0 * j as f64 + shift, 1.0 + l as f64 * 2.0f64.sqrt());
        world.push(x, DVec3::ZERO, 1.0, 1.0, spin);
    }
    world.plane(DVec3::ZERO, DVec3::Z);
    world
}
