//! Contacts of particles with the triangles of another participant's surface.
//!
//! A surface has two sides and the thickness of its particles: at a point with weights w of three corners, its
//! radius is the sum of w r. A particle above a flat part has one contact, with the triangle that holds the
//! foot of its perpendicular. A contact is with
//!
//! - each triangle that holds the foot;
//! - an edge or corner, if it is the nearest point of all triangles around it;
//! - the plane of a triangle that rises beyond an edge of a triangle that holds the foot, if the particle may
//!   come to it in the step. Otherwise a particle that slides into a fold would enter it.

use amalgam_particles::DVec3;
use rayon::prelude::*;

use super::Candidates;
use super::mesh::{NONE, SurfaceMesh, closest_on_triangle};
use crate::law::contact::reach as reach_of;

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
    /// Corners near particles, particle after particle, as candidates.
    meetings: Vec<u32>,
    /// Start of each candidate's part of `meetings`, and the end of the last part.
    starts: Vec<u32>,
}

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

    /// Lists the particles near vertices: all that may have a contact within `reach`, the largest distance of
    /// surfaces for a particle and, at most, for a corner [m]. `near` are pairs of candidates of different
    /// participants, sorted, and `spans` is the largest distance of a triangle's point from the nearest corner, by
    /// participant [m].
    ///
    /// A line from the nearest point of a triangle to the particle is perpendicular to the triangle, or to the
    /// edge that the point is on. So a corner is within the hypotenuse of their distance and the span.
    fn meet(
        &mut self,
        candidates: &Candidates,
        spans: &[f64],
        near: &[(u32, u32)],
        reach: &impl Fn(u32) -> f64,
    ) {
        let Self { vertex, candidate, meetings, starts, .. } = self;
        let farthest: Vec<f64> = candidate
            .iter()
            .map(|vertices| {
                let alive = vertices.iter().filter(|&&candidate| candidate != NONE);
                alive.map(|&candidate| reach(candidate)).fold(0.0, f64::max)
            })
            .collect();
        let meets = |particle: u32, corner: u32| {
            if vertex[corner as usize] == NONE {
                return false;
            }
            let (p, c) = (particle as usize, corner as usize);
            let surface = usize::from(candidates.participant[c]);
            let reach = reach(particle) + farthest[surface];
            let (far, aside) = (candidates.radius[p] + candidates.radius[c] + reach, spans[surface] + reach);
            candidates.position[p].distance_squared(candidates.position[c]) < far * far + aside * aside
        };
        let both = near.iter().flat_map(|&(i, j)| [(i, j), (j, i)]);
        let found: Vec<(u32, u32)> = both.filter(|&(particle, corner)| meets(particle, corner)).collect();
        starts.clear();
        starts.resize(candidates.len() + 1, 0);
        found.iter().for_each(|&(particle, _)| starts[particle as usize + 1] += 1);
        for particle in 0..candidates.len() {
            starts[particle + 1] += starts[particle];
        }
        let mut next = starts.clone();
        meetings.clear();
        meetings.resize(found.len(), NONE);
        for (particle, corner) in found {
            let place = &mut next[particle as usize];
            meetings[*place as usize] = corner;
            *place += 1;
        }
    }

    /// Raises the speed that is expected of each corner to that of a particle that may hit it, and of each particle
    /// to that of a corner [m/s]; `before` is the speed of each candidate.
    pub(crate) fn foresee(
        &mut self,
        candidates: &Candidates,
        spans: &[f64],
        near: &[(u32, u32)],
        (before, dt): (&[f64], f64),
        speed: &mut [f64],
    ) {
        if self.vertex.is_empty() {
            return;
        }
        self.meet(candidates, spans, near, &|i: u32| reach_of(before[i as usize], dt));
        for (particle, corners) in self.groups() {
            for &corner in corners {
                let (p, c) = (particle as usize, corner as usize);
                speed[c] = speed[c].max(before[p]);
                speed[p] = speed[p].max(before[c]);
            }
        }
    }

    /// Particles with the corners that they meet.
    fn groups(&self) -> impl Iterator<Item = (u32, &[u32])> {
        let groups = self.starts.windows(2).zip(0..).filter(|(ends, _)| ends[1] > ends[0]);
        groups.map(|(ends, particle)| (particle, &self.meetings[ends[0] as usize..ends[1] as usize]))
    }

    /// Finds the contacts whose surfaces are nearer to each other than the sum of what `reach` says for the
    /// particle and, at most, for a corner [m]; see [`Self::meet`].
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
        self.meet(candidates, spans, near, &reach);
        let this = &*self;
        let of = |corner: &u32| candidates.participant[*corner as usize];
        let groups: Vec<(u32, &[u32])> = this
            .groups()
            .flat_map(|(particle, corners)| {
                corners.chunk_by(move |a, b| of(a) == of(b)).map(move |corners| (particle, corners))
            })
            .collect();
        let found = groups.par_iter().with_min_len(64).flat_map_iter(|&(particle, corners)| {
            let surface = of(&corners[0]);
            let k = usize::from(surface);
            let Some(mesh) = &meshes[k] else { unreachable!("a corner belongs to a surface") };
            let beside = Beside { candidates, mesh, surface, place: &this.candidate[k], particle };
            beside.facets(corners.iter().map(|&corner| this.vertex[corner as usize]), &reach)
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
struct NearestPoint {
    triangle: u32,
    corners: [u32; 3],
    weights: [f64; 3],
    distance: f64,
    /// The largest reach of a corner [m].
    reach: f64,
}

impl NearestPoint {
    fn holds_foot(&self) -> bool {
        self.weights.iter().all(|&weight| weight > 0.0)
    }
}

impl Beside<'_> {
    /// Contacts with the triangles around some vertices.
    fn facets(&self, vertices: impl Iterator<Item = u32>, reach: &impl Fn(u32) -> f64) -> Vec<Facet> {
        let mut triangles: Vec<u32> = vertices.flat_map(|vertex| self.mesh.around(vertex)).copied().collect();
        triangles.sort_unstable();
        triangles.dedup();
        let all: Vec<NearestPoint> =
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
        for nearest in all.iter().filter(|nearest| nearest.holds_foot()) {
            for corner in 0..3 {
                let beyond = self.mesh.beyond[nearest.triangle as usize][corner];
                let is_new = beyond != NONE && found.iter().all(|facet| facet.triangle != beyond);
                if let Some(next) = of(beyond).filter(|_| is_new) {
                    found.extend(self.rising(nearest, corner, next, reach));
                }
            }
        }
        found
    }

    fn position(&self, candidate: u32) -> DVec3 {
        self.candidates.position[candidate as usize]
    }

    /// The nearest point of a triangle, if it is within reach and any of both can move.
    fn nearest(&self, triangle: u32, reach: &impl Fn(u32) -> f64) -> Option<NearestPoint> {
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
        is_near.then_some(NearestPoint { triangle, corners, weights, distance, reach: farthest })
    }

    /// The nearest point [m].
    fn foot(&self, NearestPoint { corners, weights, .. }: &NearestPoint) -> DVec3 {
        let [a, b, c] = corners.map(|corner| self.position(corner));
        a * weights[0] + b * weights[1] + c * weights[2]
    }

    fn radius(&self, corners: [u32; 3], weights: [f64; 3]) -> f64 {
        let [a, b, c] = corners.map(|corner| self.candidates.radius[corner as usize]);
        a * weights[0] + b * weights[1] + c * weights[2]
    }

    /// True if the point is the nearest one of all triangles around it, and this triangle is the first of
    /// these.
    fn is_least<'a>(&self, nearest: &NearestPoint, of: impl Fn(u32) -> Option<&'a NearestPoint>) -> bool {
        let zero = nearest.weights.map(|weight| weight == 0.0);
        let triangle = nearest.triangle;
        match zero.iter().filter(|&&zero| zero).count() {
            0 => true,
            1 => {
                let corner = usize::from(zero[1]) + 2 * usize::from(zero[2]);
                let beyond = self.mesh.beyond[triangle as usize][corner];
                let agrees = |other: &NearestPoint| {
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

    fn facet(&self, nearest: &NearestPoint) -> Facet {
        let NearestPoint { triangle, corners, weights, distance, .. } = *nearest;
        let away = self.position(self.particle) - self.foot(nearest);
        let normal = away.try_normalize().unwrap_or_else(|| {
            // The centre lies in the triangle. It came from where it is free to go back.
            let [u, v, w] = corners.map(|corner| self.candidates.velocity[corner as usize]);
            let motion = self.candidates.velocity[self.particle as usize]
                - (u * weights[0] + v * weights[1] + w * weights[2]);
            let [a, b, c] = corners.map(|corner| self.position(corner));
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
    /// the particle's side and the particle may come to it in the step.
    fn rising(
        &self,
        nearest: &NearestPoint,
        corner: usize,
        next: &NearestPoint,
        reach: &impl Fn(u32) -> f64,
    ) -> Option<Facet> {
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
        // On both planes at once, the particle's feet are at this part of its distance from the edge.
        let half_angle = here.cross(normal).length() / (1.0 + here.dot(normal));
        let way = self.foot(nearest).distance(self.foot(next)) - nearest.distance * half_angle;
        let facet = self.facet(next);
        let distance = (x - a).dot(normal);
        // In front of an overlapped plane is another triangle, or none.
        let is_open = distance > self.candidates.radius[self.particle as usize] + facet.radius;
        let comes = way < reach(self.particle) + next.reach;
        (comes && is_open).then_some(Facet { normal, distance, is_rim: false, ..facet })
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
        let triangles = triangles.map(|t| t.map(ParticleId)).to_vec();
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
        let fold = touch(0.5, DVec3::new(0.98, 0.4, 0.21));
        assert_eq!(fold.len(), 2, "{fold:?}");
        // Before the fold the plane beyond it counts, although the nearest point of it is on the edge.
        let x = DVec3::new(0.92, 0.4, 0.2);
        let before = touch(0.5, x);
        assert_eq!(before.len(), 2, "{before:?}");
        let rising = before.iter().find(|facet| facet.triangle >= 2).expect("a plane that rises");
        let plane = DVec3::new(-0.5f64.sin(), 0.0, 0.5f64.cos());
        assert!((rising.normal - plane).length() < 1e-12);
        assert!((rising.distance - (x - DVec3::X).dot(plane)).abs() < 1e-12);
        // Far from the fold it does not count.
        assert_eq!(touch(0.5, DVec3::new(0.8, 0.4, 0.2)).len(), 1);
    }

    #[test]
    fn beyond_the_rim_the_nearest_point_of_the_rim_touches() {
        let found = touch(0.0, DVec3::new(-0.1, 0.5, 0.1));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].is_rim && (foot(&found[0], 0.0) - DVec3::Y * 0.5).length() < 1e-12);
        assert!(touch(0.0, DVec3::new(-0.3, 0.5, 0.0)).is_empty());
    }
}
