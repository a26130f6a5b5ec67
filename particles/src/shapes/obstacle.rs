//! Obstacles as data: smooth surfaces that nothing moves.

use glam::{DQuat, DVec3};

use crate::surface::Surface;

/// Space that nothing enters, and that nothing moves.
#[derive(Clone, Debug, PartialEq)]
pub struct Obstacle {
    /// The shape before it is rotated.
    pub form: ObstacleForm,
    /// Turns the shape about its middle. A unit quaternion.
    pub rotation: DQuat,
    /// True if the obstacle is all space outside of the shape. Not for planes and cylinders.
    pub is_hollow: bool,
}

/// The shape of an [`Obstacle`].
#[derive(Clone, Debug, PartialEq)]
pub enum ObstacleForm {
    /// All space behind a plane.
    Plane {
        /// A point of the plane [m].
        point: DVec3,
        /// Unit vector out of the obstacle.
        normal: DVec3,
    },
    /// A box.
    Box {
        /// Lowest corner [m].
        min: DVec3,
        /// Highest corner [m].
        max: DVec3,
    },
    /// A ball.
    Ball {
        /// Centre [m].
        center: DVec3,
        /// Radius [m].
        radius: f64,
    },
    /// A circular cylinder.
    Cylinder {
        /// Middle of the axis [m].
        center: DVec3,
        /// Unit vector along the axis.
        axis: DVec3,
        /// Radius [m].
        radius: f64,
        /// Length along the axis [m].
        height: f64,
    },
    /// Volume enclosed by a closed surface without faults.
    Mesh(Surface),
}
