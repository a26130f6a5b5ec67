//! Surfaces of fluids: a closed mesh of triangles around particles, because people look at surfaces, not at points.
//!
//! The mesh is a level set of the fluid's interpolated volume fraction, found by marching cubes (the library
//! `splashsurf`, in a crate of its own because it brings its own linear algebra). The same particles in the same order
//! give the same mesh to the bit, on any number of threads.
//!
//! Architecture invariant: this crate depends on nothing else of the project.

use glam::DVec3;
use splashsurf_lib::{Parameters, nalgebra::Vector3, reconstruct_surface};

/// How a surface is found; lengths in particle radii, half the edge of the volume that a particle stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SurfaceSettings {
    /// Radius of a particle [m].
    pub radius: f64,
    /// Edge of the cubes that are marched through, over the radius.
    pub cell: f64,
    /// Distance from which a particle does not count, over the radius.
    pub support: f64,
    /// Volume fraction at the surface, between 0 and 1.
    pub threshold: f64,
}

impl SurfaceSettings {
    /// Cubes of one radius, a support of four, a threshold of 0.6.
    pub fn new(radius: f64) -> Self {
        Self { radius, cell: 1.0, support: 4.0, threshold: 0.6 }
    }
}

/// A closed mesh of triangles.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Surface {
    /// Vertices [m].
    pub vertices: Vec<DVec3>,
    /// Indices of vertices, anticlockwise seen from outside.
    pub triangles: Vec<[u32; 3]>,
}

impl Surface {
    /// Volume enclosed [m^3].
    pub fn volume(&self) -> f64 {
        let vertex = |k: u32| self.vertices[k as usize];
        let sixfold = |&[a, b, c]: &[u32; 3]| vertex(a).cross(vertex(b)).dot(vertex(c));
        self.triangles.iter().map(sixfold).sum::<f64>() / 6.0
    }
}

/// Why there is no surface.
#[derive(Debug, thiserror::Error)]
#[error("no surface can be found around {particles} particles: {reason}")]
pub struct SurfaceError {
    particles: usize,
    reason: String,
}

/// The surface around particles at `positions` [m]; empty without particles.
///
/// # Errors
/// Particles so far apart that cubes between them cannot be numbered, or settings that are no positive numbers.
pub fn reconstruct(positions: &[DVec3], settings: SurfaceSettings) -> Result<Surface, SurfaceError> {
    if positions.is_empty() {
        return Ok(Surface::default());
    }
    let SurfaceSettings { radius, cell, support, threshold } = settings;
    let points: Vec<Vector3<f64>> = positions.iter().map(|x| Vector3::new(x.x, x.y, x.z)).collect();
    let mut parameters = Parameters::new(radius, support * radius, cell * radius);
    parameters.iso_surface_threshold = threshold;
    // Instructions that not every machine has would change bits.
    parameters.enable_simd = false;
    let fault = |reason: String| SurfaceError { particles: points.len(), reason };
    // The library joins its parts in the order in which threads finish them.
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let one = one.map_err(|error| fault(format!("cannot start a thread: {error}")))?;
    let found = one.install(|| reconstruct_surface::<i64, f64>(&points, &parameters));
    let mesh = found.map_err(|error| fault(error.to_string()))?.mesh;
    let number = |index: usize| u32::try_from(index);
    let triangles: Result<Vec<[u32; 3]>, _> =
        mesh.triangles.iter().map(|&[a, b, c]| Ok([number(a)?, number(b)?, number(c)?])).collect();
    let triangles = triangles
        .map_err(|_: std::num::TryFromIntError| fault("it has more than 2^32 vertices".to_string()))?;
    let vertices = mesh.vertices.iter().map(|v| DVec3::new(v.x, v.y, v.z)).collect();
    Ok(Surface { vertices, triangles })
}
