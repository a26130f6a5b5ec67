//! Surfaces of triangles between a participant's particles.

use std::collections::HashMap;

use amalgam_particles::{DVec3, ParticleId};
use amalgam_proto::contract::Table;

/// Triangles between particles of a participant, which are its vertices, and how they join. It does not change
/// in a run.
#[derive(Debug)]
pub(crate) struct SurfaceMesh {
    /// Ids of the vertices, ascending.
    pub(crate) vertex_ids: Vec<ParticleId>,
    /// The corners of each triangle, as places in `vertex_ids`.
    pub(crate) triangles: Vec<[u32; 3]>,
    /// For each triangle, the triangle beyond the edge opposite to each corner, or [`NONE`] on the rim.
    pub(crate) beyond: Vec<[u32; 3]>,
    /// Triangles around each vertex, ascending.
    around: Vec<u32>,
    around_start: Vec<u32>,
}

/// Number of no triangle, and of no vertex.
pub(crate) const NONE: u32 = u32::MAX;

impl SurfaceMesh {
    pub(crate) fn new(table: &Table) -> Self {
        let mut vertex_ids: Vec<ParticleId> = table.triangles.as_flattened().to_vec();
        vertex_ids.sort_unstable();
        vertex_ids.dedup();
        let index = |id: ParticleId| vertex_ids.partition_point(|&known| known < id) as u32;
        let triangles: Vec<[u32; 3]> = table.triangles.iter().map(|t| t.map(index)).collect();
        let mut beyond = vec![[NONE; 3]; triangles.len()];
        let mut open: HashMap<(u32, u32), (u32, usize)> = HashMap::new();
        for (t, corners) in triangles.iter().enumerate() {
            for corner in 0..3 {
                let (a, b) = (corners[(corner + 1) % 3], corners[(corner + 2) % 3]);
                let here = (t as u32, corner);
                if let Some((other, across)) = open.insert((a.min(b), a.max(b)), here) {
                    beyond[t][corner] = other;
                    beyond[other as usize][across] = t as u32;
                }
            }
        }
        let mut corners: Vec<(u32, u32)> =
            triangles.iter().zip(0..).flat_map(|(t, at)| t.map(|vertex| (vertex, at))).collect();
        corners.sort_unstable();
        let around_start =
            (0..=vertex_ids.len() as u32).map(|vertex| corners.partition_point(|c| c.0 < vertex) as u32);
        Self {
            around_start: around_start.collect(),
            around: corners.into_iter().map(|c| c.1).collect(),
            triangles,
            beyond,
            vertex_ids,
        }
    }

    /// The triangles around a vertex, ascending.
    pub(crate) fn around(&self, vertex: u32) -> &[u32] {
        let vertex = vertex as usize;
        &self.around[self.around_start[vertex] as usize..self.around_start[vertex + 1] as usize]
    }

    /// The vertex that a particle is.
    pub(crate) fn vertex(&self, id: ParticleId) -> Option<u32> {
        self.vertex_ids.binary_search(&id).ok().map(|vertex| vertex as u32)
    }

    /// True if the point of a triangle with these weights is on the rim.
    pub(crate) fn is_rim(&self, triangle: u32, weights: [f64; 3]) -> bool {
        let zero = weights.map(|weight| weight == 0.0);
        let at_rim = |triangle: u32, corner: usize| self.beyond[triangle as usize][corner] == NONE;
        match zero.iter().filter(|&&zero| zero).count() {
            0 => false,
            1 => (0..3).any(|corner| zero[corner] && at_rim(triangle, corner)),
            _ => {
                let corner = (0..3).find(|&corner| !zero[corner]).unwrap_or(0);
                let vertex = self.triangles[triangle as usize][corner];
                let meets = |&t: &u32, corner: usize| self.triangles[t as usize][corner] != vertex;
                self.around(vertex)
                    .iter()
                    .any(|t| (0..3).any(|corner| meets(t, corner) && at_rim(*t, corner)))
            }
        }
    }
}

/// Barycentric weights of the point of triangle abc closest to x [Ericson2005, 5.1.5]; weights of corners
/// that have no part in it are exactly 0.
pub(crate) fn closest_on_triangle(x: DVec3, [a, b, c]: [DVec3; 3]) -> [f64; 3] {
    let (ab, ac, ax) = (b - a, c - a, x - a);
    let (d1, d2) = (ab.dot(ax), ac.dot(ax));
    if d1 <= 0.0 && d2 <= 0.0 {
        return [1.0, 0.0, 0.0];
    }
    let bx = x - b;
    let (d3, d4) = (ab.dot(bx), ac.dot(bx));
    if d3 >= 0.0 && d4 <= d3 {
        return [0.0, 1.0, 0.0];
    }
    let cx = x - c;
    let (d5, d6) = (ab.dot(cx), ac.dot(cx));
    if d6 >= 0.0 && d5 <= d6 {
        return [0.0, 0.0, 1.0];
    }
    let vc = d1 * d4 - d3 * d2;
    if vc <= 0.0 && d1 >= 0.0 && d3 <= 0.0 {
        let v = d1 / (d1 - d3);
        return [1.0 - v, v, 0.0];
    }
    let vb = d5 * d2 - d1 * d6;
    if vb <= 0.0 && d2 >= 0.0 && d6 <= 0.0 {
        let w = d2 / (d2 - d6);
        return [1.0 - w, 0.0, w];
    }
    let va = d3 * d6 - d5 * d4;
    if va <= 0.0 && d4 - d3 >= 0.0 && d5 - d6 >= 0.0 {
        let w = (d4 - d3) / ((d4 - d3) + (d5 - d6));
        return [0.0, 1.0 - w, w];
    }
    let sum = va + vb + vc;
    [va / sum, vb / sum, vc / sum]
}
