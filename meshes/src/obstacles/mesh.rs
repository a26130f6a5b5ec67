//! Obstacles from meshes: position of a point relative to a closed surface of triangles.

use amalgam_particles::surface::Surface;
use amalgam_particles::{DQuat, DVec3};
use parry3d_f64::bounding_volume::Aabb;
use parry3d_f64::query::PointQueryWithLocation;
use parry3d_f64::shape::{TriMesh, TriMeshFlags, TrianglePointLocation};

use super::Beside;

/// A closed surface of triangles, whose pseudonormals say what is inside [BaerentzenAanaes2005].
#[derive(Clone)]
pub(super) struct MeshSurface {
    mesh: TriMesh,
    /// 1 where the obstacle is inside of the surface, -1 where the surface is hollow.
    side: f64,
    /// For each triangle, up to three triangles beyond its edges that rise towards the side of the particles;
    /// the rest is [`NONE`].
    rising: Vec<[u32; 3]>,
    /// For each vertex the triangles around it, if the space of the particles lies in front of all of them.
    corners: Vec<Vec<u32>>,
}

/// Number of no triangle.
const NONE: u32 = u32::MAX;

/// Sine of the angle below which two triangles are parts of one plane.
const SAME: f64 = 1e-9;

impl MeshSurface {
    /// A surface without faults, rotated about the middle of its box.
    pub(super) fn new(surface: &Surface, rotation: DQuat, is_hollow: bool) -> Self {
        let (low, high) = surface.bounds();
        let middle = 0.5 * (low + high);
        let (vertices, triangles) = surface.mesh();
        let vertices = vertices.iter().map(|&vertex| middle + rotation * (vertex - middle)).collect();
        let mesh = TriMesh::with_flags(vertices, triangles.to_vec(), TriMeshFlags::ORIENTED);
        let mesh = mesh.expect("the surface has been found to be closed");
        let side = if is_hollow { -1.0 } else { 1.0 };
        let rising = rising(&mesh, side);
        let corners = corners(&mesh, side);
        Self { mesh, side, rising, corners }
    }

    /// The nearest point of the surface, and the triangle that it is on.
    fn nearest(&self, point: DVec3) -> (u32, Beside) {
        let (nearest, (triangle, _)) = self.mesh.project_local_point_and_get_location(point, false);
        let apart = point - nearest.point;
        let out = if nearest.is_inside { -1.0 } else { 1.0 };
        let flat = || self.mesh.triangle(triangle).normal().unwrap_or(DVec3::Z);
        let normal = (apart * out).try_normalize().unwrap_or_else(flat);
        (triangle, Beside { distance: self.side * out * apart.length(), normal: self.side * normal })
    }

    pub(super) fn beside(&self, point: DVec3) -> Beside {
        self.nearest(point).1
    }

    /// Finds all places within `reach` [m] that stop a particle at the point, each with the number of its
    /// triangle. The places are the nearest point, every triangle that faces the point and holds the foot of
    /// its perpendicular, the planes of triangles that rise beyond an edge of the nearest one, and those of
    /// triangles within reach around a corner of the nearest one. In a corner there are several, and each is a contact.
    /// With the nearest place alone, a particle that slides along one face would enter the next.
    pub(super) fn all_beside(&self, point: DVec3, reach: f64, mut found: impl FnMut(u32, Beside)) {
        let (nearest, beside) = self.nearest(point);
        if beside.distance >= reach {
            return;
        }
        found(nearest, beside);
        let mut planes = vec![beside];
        let rising = self.rising[nearest as usize];
        let mut plane = |number: u32, must_have_foot: bool| {
            let triangle = self.mesh.triangle(number);
            let Some(normal) = triangle.normal() else { return };
            let normal = self.side * normal;
            let distance = (point - triangle.a).dot(normal);
            let is_before = distance > 0.0 && distance < reach;
            let has_foot = || {
                let (_, location) = triangle.project_local_point_and_get_location(point, false);
                matches!(location, TrianglePointLocation::OnFace(..))
            };
            // Triangles of one face are one contact.
            let is_same = |known: &Beside| {
                known.normal.distance(normal) < SAME && (known.distance - distance).abs() < SAME * reach
            };
            let is_known = planes.iter().any(is_same);
            if is_before && !is_known && (!must_have_foot || has_foot()) {
                planes.push(Beside { distance, normal });
                found(number, Beside { distance, normal });
            }
        };
        rising.into_iter().filter(|&number| number != NONE).for_each(|number| plane(number, false));
        let vertices = self.mesh.indices()[nearest as usize];
        let around = vertices.into_iter().flat_map(|vertex| &self.corners[vertex as usize]).copied();
        let across = around.filter(|&number| {
            let (foot, _) = self.mesh.triangle(number).project_local_point_and_get_location(point, false);
            number != nearest && foot.point.distance(point) < reach
        });
        across.for_each(|number| plane(number, false));
        let around = Aabb::from_half_extents(point, DVec3::splat(reach));
        let others = self.mesh.bvh().intersect_aabb(&around);
        others
            .filter(|number| *number != nearest && !rising.contains(number))
            .for_each(|number| plane(number, true));
    }
}

/// Finds, for each triangle, the triangles beyond its edges that rise to the side of the particles. A
/// particle above a triangle counts as in front of the planes of its rising triangles, wherever they end.
fn rising(mesh: &TriMesh, side: f64) -> Vec<[u32; 3]> {
    let mut edges: Vec<([u32; 2], u32)> = Vec::with_capacity(3 * mesh.indices().len());
    for (number, &[a, b, c]) in mesh.indices().iter().enumerate() {
        edges.extend([(a, b), (b, c), (c, a)].map(|(a, b)| ([a.min(b), a.max(b)], number as u32)));
    }
    edges.sort_unstable();
    let mut rising = vec![[NONE; 3]; mesh.indices().len()];
    for pair in edges.chunk_by(|a, b| a.0 == b.0) {
        let &[([a, b], one), (_, other)] = pair else {
            unreachable!("a closed surface has two triangles at an edge")
        };
        for (here, beyond) in [(one, other), (other, one)] {
            let triangle = mesh.triangle(here);
            let Some(normal) = triangle.normal() else { continue };
            let tip = mesh.indices()[beyond as usize].into_iter().find(|&vertex| vertex != a && vertex != b);
            let Some(tip) = tip else { continue };
            let to_tip = mesh.vertices()[tip as usize] - mesh.vertices()[a as usize];
            if side * to_tip.dot(normal) > SAME * to_tip.length() {
                let free = rising[here as usize].iter_mut().find(|number| **number == NONE);
                *free.expect("a triangle has three edges") = beyond;
            }
        }
    }
    rising
}

/// Finds, for each vertex, the triangles around it, if none has a part behind another's plane: the space of the
/// particles is then what lies in front of all of them. Other vertices have none.
fn corners(mesh: &TriMesh, side: f64) -> Vec<Vec<u32>> {
    let mut corners = vec![Vec::new(); mesh.vertices().len()];
    for (number, triangle) in mesh.indices().iter().enumerate() {
        triangle.iter().for_each(|&vertex| corners[vertex as usize].push(number as u32));
    }
    for (fan, &vertex) in corners.iter_mut().zip(mesh.vertices()) {
        let ways = |number: &u32| {
            mesh.indices()[*number as usize]
                .map(|other| (mesh.vertices()[other as usize] - vertex).normalize_or_zero())
        };
        let all_in_front =
            |normal: DVec3| fan.iter().flat_map(ways).all(|way| side * way.dot(normal) >= -SAME);
        if !fan.iter().all(|&number| mesh.triangle(number).normal().is_some_and(all_in_front)) {
            *fan = Vec::new();
        }
    }
    corners
}
