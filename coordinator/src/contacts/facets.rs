//! Contacts of particles with the triangles of another participant's surface.
//!
//! A surface has two sides and the thickness of its particles: at a point with weights w of three corners, its
//! radius is the sum of w r. A particle above a flat part has one contact, with the triangle that holds the
//! foot of its perpendicular. A contact is with
//!
//! - each triangle that holds the foot;
//! - an edge or corner, if it is the nearest point of all triangles around it;
//! - the plane of a triangle that rises beyond an edge of a triangle that holds the foot. Otherwise a particle
//!   that slides into a fold would enter it by as much as it moves in a step.

use amalgam_particles::DVec3;
use rayon::prelude::*;

use super::mesh::{NONE, SurfaceMesh, closest_on_triangle};
use super::{Candidates, PAIRS_IN_TASK};

/// A contact of a triangle, first, with a particle, second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Facet {
    /// The participant of the surface.
    pub(crate) surface: u16,
    /// Number of the triangle in the surface.
    pub(crate) triangle: u32,
    /// The candidate that touches the triangle.
    pub(crate) particle: u32,
    /// The corners of the triangle, as candidates.
    pub(crate) corners: [u32; 3],
    /// Weights of the corners at the point of contact.
    pub(crate) weights: [f64; 3],
    /// Unit vector from the surface to the particle.
    pub(crate) normal: DVec3,
    /// Distance of the particle's centre from the surface without thickness [m].
    pub(crate) distance: f64,
    /// Radius of the surface at the point of contact [m].
    pub(crate) radius: f64,
    /// True if the point of contact is on the rim of the surface.
    pub(crate) is_rim: bool,
}

/// Sine of the angle below which two triangles are parts of one plane.
const SAME: f64 = 1e-9;

/// Finds the contacts of particles with surfaces. It is working storage of a step.
#[derive(Debug, Default)]
pub(crate) struct FacetFinder {
    /// Contacts of the last search, sorted by surface, triangle and particle.
    pub(crate) facets: Vec<Facet>,
    /// The vertex that each candidate is, or [`NONE`].
    vertex: Vec<u32>,
    /// The candidate of each vertex of each participant's surface, or [`NONE`].
    candidate: Vec<Vec<u32>>,
}

/// A particle near a vertex, with the participant of the vertex.
type Meeting = (u32, u16, u32);

impl FacetFinder {
    /// Takes over the candidates of a step.
    pub(crate) fn place(&mut self, candidates: &Candidates, meshes: &[Option<SurfaceMesh>]) {
        self.facets.clear();
        self.vertex.clear();
        self.candidate.clear();
        if meshes.iter().all(Option::is_none) {
            return;
        }
        self.vertex.resize(candidates.len(), NONE);
        for (k, mesh) in meshes.iter().enumerate() {
            let mut found = Vec::new();
            if let Some(mesh) = mesh {
                let ids = &candidates.id[candidates.first(k as u16)..candidates.first(k as u16 + 1)];
                let mut at = candidates.first(k as u16);
                let mut next = ids.iter().peekable();
                found = vec![NONE; mesh.vertex_ids.len()];
                for (vertex, id) in mesh.vertex_ids.iter().enumerate() {
                    while next.next_if(|own| *own < id).is_some() {
                        at += 1;
                    }
                    if next.peek() == Some(&id) {
                        (found[vertex], self.vertex[at]) = (at as u32, vertex as u32);
                    }
                }
            }
            self.candidate.push(found);
        }
    }

    /// True if a candidate is a corner of a surface's triangles.
    pub(crate) fn is_vertex(&self, candidate: u32) -> bool {
        self.vertex.get(candidate as usize).is_some_and(|&vertex| vertex != NONE)
    }

    /// Adds the pairs of a particle and a corner of its triangle that `pairs` lacks, ascending.
    pub(crate) fn add_pairs(&self, pairs: &mut Vec<(u32, u32)>) {
        if self.facets.is_empty() {
            return;
        }
        for Facet { particle, corners, .. } in &self.facets {
            pairs.extend(corners.map(|corner| (corner.min(*particle), corner.max(*particle))));
        }
        pairs.sort_unstable();
        pairs.dedup();
    }

    /// Finds the contacts whose surfaces are nearer to each other than the sum of what `reach` says for the
    /// particle and, at most, for a corner [m]. `near` are pairs of candidates of different participants, and
    /// `spans` is the largest distance of a triangle's point from the nearest corner, by participant [m].
    pub(crate) fn find(
        &mut self,
        candidates: &Candidates,
        meshes: &[Option<SurfaceMesh>],
        spans: &[f64],
        near: &[(u32, u32)],
        reach: impl Fn(u32) -> f64 + Sync,
    ) {
        self.facets.clear();
        if self.vertex.is_empty() {
            return;
        }
        let reaches: Vec<f64> = self
            .candidate
            .iter()
            .map(|vertices| {
                let all = vertices.iter().filter(|&&candidate| candidate != NONE);
                all.map(|&candidate| reach(candidate)).fold(0.0, f64::max)
            })
            .collect();
        let this = &*self;
        let meet = |&(i, j): &(u32, u32)| {
            let meeting = |particle: u32, corner: u32| -> Option<Meeting> {
                let vertex = this.vertex[corner as usize];
                if vertex == NONE {
                    return None;
                }
                let (surface, p, c) =
                    (candidates.participant[corner as usize], particle as usize, corner as usize);
                let k = usize::from(surface);
                let within =
                    candidates.radius[p] + candidates.radius[c] + reach(particle) + reaches[k] + spans[k];
                let is_near =
                    candidates.position[p].distance_squared(candidates.position[c]) < within * within;
                is_near.then_some((particle, surface, vertex))
            };
            [meeting(i, j), meeting(j, i)].into_iter().flatten()
        };
        let mut meetings: Vec<Meeting> =
            near.par_iter().with_min_len(PAIRS_IN_TASK).flat_map_iter(meet).collect();
        meetings.par_sort_unstable();
        let groups: Vec<&[Meeting]> = meetings.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)).collect();
        let found = groups.par_iter().with_min_len(64).flat_map_iter(|group| {
            let (particle, surface, _) = group[0];
            let k = usize::from(surface);
            let Some(mesh) = &meshes[k] else { unreachable!("a vertex belongs to a surface") };
            let beside = Beside { candidates, mesh, surface, place: &this.candidate[k], particle };
            beside.facets(group, &reach)
        });
        let mut facets: Vec<Facet> = found.collect();
        facets.par_sort_unstable_by_key(|facet| (facet.surface, facet.triangle, facet.particle));
        self.facets = facets;
    }
}

/// A particle beside a surface.
struct Beside<'a> {
    candidates: &'a Candidates,
    mesh: &'a SurfaceMesh,
    surface: u16,
    /// The candidate of each vertex.
    place: &'a [u32],
    particle: u32,
}

/// The nearest point of a triangle.
#[derive(Clone, Copy)]
struct Nearest {
    triangle: u32,
    corners: [u32; 3],
    weights: [f64; 3],
    distance: f64,
}

impl Nearest {
    fn holds_foot(&self) -> bool {
        self.weights.iter().all(|&weight| weight > 0.0)
    }
}

impl Beside<'_> {
    /// Contacts with the triangles around some vertices.
    fn facets(&self, group: &[Meeting], reach: &impl Fn(u32) -> f64) -> Vec<Facet> {
        let mut triangles: Vec<u32> =
            group.iter().flat_map(|&(_, _, vertex)| self.mesh.around(vertex)).copied().collect();
        triangles.sort_unstable();
        triangles.dedup();
        let all: Vec<Nearest> =
            triangles.into_iter().filter_map(|triangle| self.nearest(triangle, reach)).collect();
        let of = |triangle: u32| {
            all.binary_search_by_key(&triangle, |nearest| nearest.triangle).ok().map(|at| &all[at])
        };
        let mut found: Vec<Facet> = Vec::new();
        for nearest in all.iter().filter(|nearest| self.is_least(nearest, of)) {
            found.push(self.facet(nearest));
        }
        // Rounding may say that the nearest point is none of any triangle's.
        if let Some(first) = all.iter().min_by(|a, b| a.distance.total_cmp(&b.distance))
            && !found.iter().any(|facet| facet.distance <= first.distance * (1.0 + 1e-9))
        {
            found.push(self.facet(first));
        }
        let count = found.len();
        for nearest in all.iter().filter(|nearest| nearest.holds_foot()) {
            for corner in 0..3 {
                let beyond = self.mesh.beyond[nearest.triangle as usize][corner];
                let is_new = beyond != NONE && found.iter().all(|facet| facet.triangle != beyond);
                if let Some(next) = of(beyond).filter(|_| is_new) {
                    found.extend(self.rising(nearest, corner, next));
                }
            }
        }
        debug_assert!(found[count..].iter().all(|facet| !facet.is_rim));
        found
    }

    fn position(&self, candidate: u32) -> DVec3 {
        self.candidates.position[candidate as usize]
    }

    /// The nearest point of a triangle, if it is within reach and any of both can move.
    fn nearest(&self, triangle: u32, reach: &impl Fn(u32) -> f64) -> Option<Nearest> {
        let corners = self.mesh.triangles[triangle as usize].map(|vertex| self.place[vertex as usize]);
        if corners.contains(&NONE) {
            return None;
        }
        let is_fixed = |candidate: &u32| self.candidates.is_immovable(*candidate);
        if is_fixed(&self.particle) && corners.iter().all(is_fixed) {
            return None;
        }
        let at = corners.map(|corner| self.position(corner));
        let x = self.position(self.particle);
        let weights = closest_on_triangle(x, at);
        let distance = x.distance(at[0] * weights[0] + at[1] * weights[1] + at[2] * weights[2]);
        let gap = distance - self.candidates.radius[self.particle as usize] - self.radius(corners, weights);
        let farthest = corners.iter().map(|&corner| reach(corner)).fold(0.0, f64::max);
        let is_near = gap < reach(self.particle) + farthest;
        is_near.then_some(Nearest { triangle, corners, weights, distance })
    }

    fn radius(&self, corners: [u32; 3], weights: [f64; 3]) -> f64 {
        let [a, b, c] = corners.map(|corner| self.candidates.radius[corner as usize]);
        a * weights[0] + b * weights[1] + c * weights[2]
    }

    /// True if the point is the nearest one of all triangles around it, and this triangle is the first of
    /// these.
    fn is_least<'a>(&self, nearest: &Nearest, of: impl Fn(u32) -> Option<&'a Nearest>) -> bool {
        let zero = nearest.weights.map(|weight| weight == 0.0);
        let triangle = nearest.triangle;
        match zero.iter().filter(|&&zero| zero).count() {
            0 => true,
            1 => {
                let corner = usize::from(zero[1]) + 2 * usize::from(zero[2]);
                let beyond = self.mesh.beyond[triangle as usize][corner];
                let agrees = |other: &Nearest| {
                    let tip = (0..3).find(|&tip| self.mesh.beyond[beyond as usize][tip] == triangle);
                    other.weights.iter().filter(|&&weight| weight == 0.0).count() == 1
                        && tip.is_some_and(|tip| other.weights[tip] == 0.0)
                        && triangle < beyond
                };
                beyond == NONE || of(beyond).is_none_or(agrees)
            }
            _ => {
                let corner = zero.iter().position(|&zero| !zero).unwrap_or(0);
                let (candidate, vertex) =
                    (nearest.corners[corner], self.mesh.triangles[triangle as usize][corner]);
                self.mesh.around(vertex).iter().filter(|&&other| other != triangle).all(|&other| {
                    of(other).is_none_or(|near| {
                        let agrees =
                            (0..3).all(|at| (near.weights[at] != 0.0) == (near.corners[at] == candidate));
                        agrees && triangle < other
                    })
                })
            }
        }
    }

    fn facet(&self, nearest: &Nearest) -> Facet {
        let Nearest { triangle, corners, weights, distance, .. } = *nearest;
        let [a, b, c] = corners.map(|corner| self.position(corner));
        let foot = a * weights[0] + b * weights[1] + c * weights[2];
        let away = self.position(self.particle) - foot;
        let normal = away.try_normalize().unwrap_or_else(|| {
            // The centre lies in the triangle. It came from where it is free to go back.
            let [u, v, w] = corners.map(|corner| self.candidates.velocity[corner as usize]);
            let motion = self.candidates.velocity[self.particle as usize]
                - (u * weights[0] + v * weights[1] + w * weights[2]);
            let normal = (b - a).cross(c - a).try_normalize().unwrap_or(DVec3::Z);
            if normal.dot(motion) > 0.0 { -normal } else { normal }
        });
        Facet {
            surface: self.surface,
            triangle,
            particle: self.particle,
            corners,
            weights,
            normal,
            distance,
            radius: self.radius(corners, weights),
            is_rim: self.mesh.is_rim(triangle, weights),
        }
    }

    /// The contact with the plane of the triangle `next` beyond the edge opposite to `corner`, if it rises to
    /// the particle's side.
    fn rising(&self, nearest: &Nearest, corner: usize, next: &Nearest) -> Option<Facet> {
        let x = self.position(self.particle);
        let normal = |corners: [u32; 3]| {
            let [a, b, c] = corners.map(|corner| self.position(corner));
            (b - a).cross(c - a).try_normalize().map(|normal| (normal * (x - a).dot(normal).signum(), a))
        };
        let edge = nearest.corners[(corner + 1) % 3];
        let tip = next.corners.iter().find(|corner| !nearest.corners.contains(corner))?;
        let (here, _) = normal(nearest.corners)?;
        let to_tip = self.position(*tip) - self.position(edge);
        if to_tip.dot(here) <= SAME * to_tip.length() {
            return None;
        }
        let (normal, a) = normal(next.corners)?;
        let distance = (x - a).dot(normal);
        (distance > 0.0).then(|| Facet { normal, distance, is_rim: false, ..self.facet(next) })
    }
}

#[cfg(test)]
mod tests {
    use amalgam_particles::{ParticleId, Particles};
    use amalgam_proto::contract::Table;

    use super::*;

    /// A strip of two squares of edge 1 with radius 0.1. The second square rises by `angle` from the line x = 1.
    fn strip(angle: f64) -> (Table, Vec<DVec3>) {
        let far = DVec3::new(1.0 + angle.cos(), 0.0, angle.sin());
        let places = vec![DVec3::ZERO, DVec3::X, far, DVec3::Y, DVec3::X + DVec3::Y, far + DVec3::Y];
        let mut particles = Particles::default();
        for (id, &x) in places.iter().enumerate() {
            particles.push(ParticleId(id as u64), x, DVec3::ZERO, 1.0, 0.1, false);
        }
        let triangles = [[0, 1, 4], [0, 4, 3], [1, 2, 5], [1, 5, 4]];
        let triangles = triangles.map(|t| t.map(|id| ParticleId(id))).to_vec();
        (Table { particles, triangles, ..Table::default() }, places)
    }

    /// Contacts of a particle of radius 0.1 within a reach of 0.05.
    fn touch(angle: f64, x: DVec3) -> Vec<Facet> {
        let (table, places) = strip(angle);
        let mut candidates = Candidates::default();
        for (at, &position) in places.iter().chain([&x]).enumerate() {
            let participant = u16::from(at == places.len());
            candidates.participant.push(participant);
            candidates.id.push(ParticleId(if participant == 1 { 7 } else { at as u64 }));
            candidates.position.push(position);
            candidates.velocity.push(DVec3::ZERO);
            candidates.mass.push(1.0);
            candidates.radius.push(0.1);
        }
        let meshes = [Some(SurfaceMesh::new(&table)), None];
        let near: Vec<(u32, u32)> = (0..6).map(|corner| (corner, 6)).collect();
        let mut finder = FacetFinder::default();
        finder.place(&candidates, &meshes);
        assert!((0..6).all(|corner| finder.is_vertex(corner)) && !finder.is_vertex(6));
        finder.find(&candidates, &meshes, &[1.0, 0.0], &near, |_| 0.025);
        finder.facets
    }

    fn foot(facet: &Facet, angle: f64) -> DVec3 {
        let (_, places) = strip(angle);
        let at = facet.corners.map(|corner| places[corner as usize]);
        (0..3).map(|k| at[k] * facet.weights[k]).sum()
    }

    #[test]
    fn above_a_flat_sheet_there_is_one_contact_everywhere() {
        for (x, y) in [(0.5, 0.5), (0.3, 0.7), (1.0, 0.4), (1.0, 0.0), (1.99, 0.01), (0.0, 1.0), (1.5, 0.5)] {
            for side in [1.0, -1.0] {
                let at = DVec3::new(x, y, 0.2 * side);
                let found = touch(0.0, at);
                assert_eq!(found.len(), 1, "{at}: {found:?}");
                let Facet { normal, distance, radius, .. } = found[0];
                assert!((normal - DVec3::Z * side).length() < 1e-12 && (distance - 0.2).abs() < 1e-12);
                assert!((radius - 0.1).abs() < 1e-12);
                assert!((foot(&found[0], 0.0) - DVec3::new(x, y, 0.0)).length() < 1e-12);
            }
        }
        assert!(touch(0.0, DVec3::new(0.5, 0.5, 0.26)).is_empty());
    }

    #[test]
    fn at_a_ridge_the_edge_touches_and_in_a_fold_both_sides() {
        let ridge = touch(-0.5, DVec3::new(1.05, 0.4, 0.2));
        assert_eq!(ridge.len(), 1, "{ridge:?}");
        assert!((foot(&ridge[0], -0.5) - DVec3::new(1.0, 0.4, 0.0)).length() < 1e-12 && !ridge[0].is_rim);
        let fold = touch(0.5, DVec3::new(1.0, 0.4, 0.21));
        assert_eq!(fold.len(), 2, "{fold:?}");
        // Before the fold the plane beyond it counts, although the nearest point of it is on the edge.
        let x = DVec3::new(0.88, 0.4, 0.2);
        let before = touch(0.5, x);
        assert_eq!(before.len(), 2, "{before:?}");
        let rising = before.iter().find(|facet| facet.triangle >= 2).expect("a plane that rises");
        let plane = DVec3::new(-0.5f64.sin(), 0.0, 0.5f64.cos());
        assert!((rising.normal - plane).length() < 1e-12);
        assert!((rising.distance - (x - DVec3::X).dot(plane)).abs() < 1e-12);
        // Far from the fold it does not count.
        assert_eq!(touch(0.5, DVec3::new(0.5, 0.4, 0.2)).len(), 1);
    }

    #[test]
    fn beyond_the_rim_the_nearest_point_of_the_rim_touches() {
        let found = touch(0.0, DVec3::new(-0.1, 0.5, 0.1));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].is_rim && (foot(&found[0], 0.0) - DVec3::Y * 0.5).length() < 1e-12);
        assert!(touch(0.0, DVec3::new(-0.3, 0.5, 0.0)).is_empty());
    }
}
