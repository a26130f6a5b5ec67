//! The same balls in Rapier, a solver of rigid bodies: feature `rapier`.

use std::time::Instant;

use amalgam_coordinator::measure::world::World;
use amalgam_particles::DVec3;
use rapier3d_f64::prelude::{
    ColliderBuilder, PhysicsWorld, RigidBodyBuilder, RigidBodyHandle, SharedShape, Vector,
};

/// Steps of length `dt` [s] of a world's spheres and planes, with Rapier's own settings. Returns the time of
/// each step [s], and changes positions.
pub(super) fn steps(world: &mut World, dt: f64, count: usize) -> Vec<f64> {
    let mut rapier = PhysicsWorld { gravity: vector(world.gravity), ..PhysicsWorld::default() };
    rapier.integration_parameters.dt = dt;
    let friction = world.material.friction;
    for plane in &world.planes {
        let shape = SharedShape::halfspace(vector(plane.normal));
        let collider = ColliderBuilder::new(shape).translation(vector(plane.point)).friction(friction);
        rapier.colliders.insert(collider);
    }
    let insert = |(i, &x): (usize, &DVec3)| -> RigidBodyHandle {
        // A body that sleeps is not solved.
        let body = RigidBodyBuilder::dynamic().translation(vector(x)).can_sleep(false);
        let mass = 1.0 / world.bodies.inverse_mass[i];
        let ball = ColliderBuilder::ball(world.radius[i]).mass(mass).friction(friction);
        rapier.insert(body, ball).0
    };
    let handles: Vec<_> = world.position.iter().enumerate().map(insert).collect();
    let mut seconds = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        rapier.step();
        seconds.push(start.elapsed().as_secs_f64());
    }
    for (x, &handle) in world.position.iter_mut().zip(&handles) {
        let at = rapier.bodies[handle].translation();
        *x = DVec3::new(at.x, at.y, at.z);
    }
    seconds
}

fn vector(v: DVec3) -> Vector {
    Vector::new(v.x, v.y, v.z)
}
