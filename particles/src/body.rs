//! Rigid bodies as contacts see them: mass, inertia and motion.

use glam::{DMat3, DVec3};

/// A rigid body at the start of a step, with the velocities that it would have at the end of the step if no
/// other body touched it.
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Body {
    /// Mass [kg].
    pub mass: f64,
    /// Moment of inertia about the centre of mass, in the world's axes [kg m^2]: symmetric, positive
    /// definite.
    pub inertia: DMat3,
    /// Centre of mass [m].
    pub centre: DVec3,
    /// Velocity of the centre of mass [m/s].
    pub velocity: DVec3,
    /// Angular velocity [rad/s].
    pub spin: DVec3,
}

impl Body {
    /// A body with the same moment of inertia [kg m^2] about every axis, for example a ball.
    pub fn round(mass: f64, inertia: f64, centre: DVec3, velocity: DVec3, spin: DVec3) -> Self {
        Self { mass, inertia: DMat3::from_diagonal(DVec3::splat(inertia)), centre, velocity, spin }
    }
}
