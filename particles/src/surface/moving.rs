//! Surfaces that frames show.

use glam::DVec3;

/// The surface of particles at a time, for people to look at. Vertices are no particles: where a body tears,
/// there are vertices on either side of the crack.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MovingSurface {
    /// Vertices [m].
    pub vertices: Vec<DVec3>,
    /// Velocity of each vertex [m/s]; empty if the solver does not say.
    pub velocities: Vec<DVec3>,
    /// Indices of vertices, anticlockwise seen from outside.
    pub triangles: Vec<[u32; 3]>,
}
