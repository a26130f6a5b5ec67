//! Surfaces of fluids: a closed mesh of triangles around particles, because people look at surfaces, not at
//! points.
//!
//! The mesh is a level set of the fluid's interpolated volume fraction, found by marching cubes (the library
//! `splashsurf`, in a crate of its own because it brings its own linear algebra). Then it is smoothed, where
//! many particles are and less where few are, so that drops keep their size ([Loeschner2023]). The same
//! particles in the same order give the same mesh to the bit, on any number of threads.
//!
//! Architecture invariant: this crate depends on nothing else of the project.

use glam::DVec3;
use rayon::prelude::*;
use splashsurf_lib::mesh::{Mesh3d, TriMesh3d};
use splashsurf_lib::nalgebra::Vector3;
use splashsurf_lib::postprocessing::{
    par_laplacian_smoothing_inplace, par_laplacian_smoothing_normals_inplace,
};
use splashsurf_lib::sph_interpolation::SphInterpolator;
use splashsurf_lib::{Parameters, SurfaceReconstruction, reconstruct_surface};

/// Parameters of the surface reconstruction. Lengths are in particle radii, half the edge of the volume of a
/// particle.
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
    /// Number of times that each vertex is moved towards the mean of its neighbours.
    pub smoothing: u32,
}

impl SurfaceSettings {
    /// Cubes of one radius, a support of four, a threshold of 0.6, and 25 passes of smoothing.
    pub fn new(radius: f64) -> Self {
        Self { radius, cell: 1.0, support: 4.0, threshold: 0.6, smoothing: 25 }
    }
}

/// A closed mesh of triangles.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Surface {
    /// Vertices [m].
    pub vertices: Vec<DVec3>,
    /// Outward normals of the vertices.
    pub normals: Vec<[f32; 3]>,
    /// Velocities of the vertices [m/s].
    pub velocities: Vec<[f32; 3]>,
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

/// Reason for which there is no surface.
#[derive(Debug, thiserror::Error)]
#[error("no surface can be found around {particles} particles: {reason}")]
pub struct SurfaceError {
    particles: usize,
    reason: String,
}

/// The surface around particles at `positions` [m] that move with `velocities` [m/s]; empty without
/// particles.
///
/// # Errors
/// Particles so far apart that cubes between them cannot be numbered, or settings that are no positive
/// numbers.
///
/// # Panics
/// If there are not as many velocities as positions.
pub fn reconstruct(
    positions: &[DVec3],
    velocities: &[DVec3],
    settings: SurfaceSettings,
) -> Result<Surface, SurfaceError> {
    assert_eq!(positions.len(), velocities.len(), "a velocity for each particle");
    if positions.is_empty() {
        return Ok(Surface::default());
    }
    let SurfaceSettings { radius, cell, support, threshold, smoothing } = settings;
    let points: Vec<Vector3<f64>> = positions.iter().map(vector).collect();
    let mut parameters = Parameters::new(radius, support * radius, cell * radius);
    parameters.iso_surface_threshold = threshold;
    parameters.global_neighborhood_list = true;
    // Instructions that not every machine has would change bits.
    parameters.enable_simd = false;
    let fault = |reason: String| SurfaceError { particles: points.len(), reason };
    // The library joins its parts in the order in which threads finish them.
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let one = one.map_err(|error| fault(format!("cannot start a thread: {error}")))?;
    let found = one.install(|| reconstruct_surface::<i64, f64>(&points, &parameters));
    let mut found = found.map_err(|error| fault(error.to_string()))?;
    let between = Between::new(&points, &found, &parameters);
    // The library leaves vertices behind that belong to no triangle.
    let all: Vec<usize> = (0..found.mesh.triangles.len()).collect();
    found.mesh = found.mesh.keep_cells(&all, false);
    let mesh = &mut found.mesh;
    let neighbours = mesh.vertex_vertex_connectivity();
    if let Some(crowding) = between.crowding(&points, parameters.compact_support_radius) {
        let weights = between.at(&crowding, mesh.vertices());
        par_laplacian_smoothing_inplace(mesh, &neighbours, smoothing as usize, 1.0, &weights);
    }
    let normals = normals(mesh, &neighbours);
    let number = |index: usize| u32::try_from(index);
    let triangles: Result<Vec<[u32; 3]>, _> =
        mesh.triangles.iter().map(|&[a, b, c]| Ok([number(a)?, number(b)?, number(c)?])).collect();
    let triangles = triangles
        .map_err(|_: std::num::TryFromIntError| fault("it has more than 2^32 vertices".to_string()))?;
    let velocities: Vec<Vector3<f64>> = velocities.iter().map(vector).collect();
    let velocities = between.interpolator.interpolate_vector_quantity(&velocities, mesh.vertices(), true);
    let vertices = mesh.vertices.iter().map(|v| DVec3::new(v.x, v.y, v.z)).collect();
    let single = |v: &Vector3<f64>| [v.x as f32, v.y as f32, v.z as f32];
    let [normals, velocities] = [&normals, &velocities].map(|values| values.iter().map(single).collect());
    Ok(Surface { vertices, normals, velocities, triangles })
}

fn vector(v: &DVec3) -> Vector3<f64> {
    Vector3::new(v.x, v.y, v.z)
}

/// Interpolation between particles.
struct Between {
    interpolator: SphInterpolator<f64>,
    /// Neighbours of each particle.
    neighbours: Option<Vec<Vec<usize>>>,
}

impl Between {
    fn new(
        points: &[Vector3<f64>],
        found: &SurfaceReconstruction<i64, f64>,
        parameters: &Parameters<f64>,
    ) -> Self {
        let densities = found.particle_densities.clone().unwrap_or_default();
        let mass = parameters.rest_density * (2.0 * parameters.particle_radius).powi(3);
        Self {
            interpolator: SphInterpolator::new(points, &densities, mass, parameters.compact_support_radius),
            neighbours: found.particle_neighbors.clone(),
        }
    }

    /// Crowding of each particle, from 0 for an isolated one to 1 for one with as many neighbours as in the
    /// bulk (Section 3 of [Loeschner2023]).
    fn crowding(&self, points: &[Vector3<f64>], support: f64) -> Option<Vec<f64>> {
        let neighbours = self.neighbours.as_ref()?;
        let of = |(x, near): (&Vector3<f64>, &Vec<usize>)| {
            let weight =
                |&j: &usize| 1.0 - ((points[j] - x).norm_squared() / (support * support)).clamp(0.0, 1.0);
            let part = (near.iter().map(weight).sum::<f64>() / FULL).min(1.0);
            part.powi(3) * (part * (6.0 * part - 15.0) + 10.0)
        };
        Some(points.par_iter().zip(neighbours).map(of).collect())
    }

    fn at(&self, values: &[f64], points: &[Vector3<f64>]) -> Vec<f64> {
        let mut values = self.interpolator.interpolate_scalar_quantity(values, points, true);
        // Whoever has no particle near stays where it is.
        values.iter_mut().filter(|value| !value.is_finite()).for_each(|value| *value = 0.0);
        values
    }
}

/// The sum of the weights of all neighbours on a full lattice, rounded up.
const FULL: f64 = 13.0;

/// Passes over the normals, each of which gives a vertex the mean of its neighbours' ones.
const NORMAL_PASSES: usize = 10;

/// Normals of vertices: those of the triangles around each, weighted by area, then smoothed.
fn normals(mesh: &TriMesh3d<f64>, neighbours: &[Vec<usize>]) -> Vec<Vector3<f64>> {
    let mut normals = vec![Vector3::zeros(); mesh.vertices.len()];
    for triangle in &mesh.triangles {
        let [a, b, c] = triangle.map(|i| mesh.vertices[i]);
        let normal = (b - a).cross(&(c - a));
        triangle.iter().for_each(|&i| normals[i] += normal);
    }
    normals.iter_mut().for_each(|normal| *normal = normal.try_normalize(0.0).unwrap_or_else(Vector3::z));
    par_laplacian_smoothing_normals_inplace(&mut normals, neighbours, NORMAL_PASSES);
    // A vertex of no triangle has no neighbours, and the mean of none is no number.
    normals.iter_mut().filter(|n| !n.norm().is_finite()).for_each(|normal| *normal = Vector3::z());
    normals
}
