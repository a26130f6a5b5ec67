//! Obstacles from mesh files: where a closed surface of triangles is beside a point. Distances come from the library parry.

use amalgam_particles::DVec3;
use amalgam_particles::surface::Surface;
use glam::DQuat;
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
}

impl MeshSurface {
    /// A surface without faults, turned about the middle of its box.
    pub(super) fn new(surface: &Surface, turn: DQuat, is_hollow: bool) -> Self {
        let (low, high) = surface.bounds();
        let middle = 0.5 * (low + high);
        let (corners, triangles) = surface.mesh();
        let corners = corners.iter().map(|&corner| middle + turn * (corner - middle)).collect();
        let mesh = TriMesh::with_flags(corners, triangles.to_vec(), TriMeshFlags::ORIENTED);
        let mesh = mesh.expect("the surface has been found to be closed");
        Self { mesh, side: if is_hollow { -1.0 } else { 1.0 } }
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

    /// All places within `reach` [m] where the distance from the point has a minimum: the nearest one, and every triangle on
    /// which the point has its foot and that looks at it. In a corner there are several, and each is a contact: with the
    /// nearest alone, what slides along one face would enter the next. Each has the number of its triangle.
    pub(super) fn all_beside(&self, point: DVec3, reach: f64, mut found: impl FnMut(u32, Beside)) {
        let (nearest, beside) = self.nearest(point);
        if beside.distance >= reach {
            return;
        }
        found(nearest, beside);
        let around = Aabb::from_half_extents(point, DVec3::splat(reach));
        for number in self.mesh.bvh().intersect_aabb(&around).filter(|&number| number != nearest) {
            let triangle = self.mesh.triangle(number);
            let Some(normal) = triangle.normal() else { continue };
            let normal = self.side * normal;
            let distance = (point - triangle.a).dot(normal);
            if !(distance > 0.0 && distance < reach) {
                continue;
            }
            let (_, location) = triangle.project_local_point_and_get_location(point, false);
            if matches!(location, TrianglePointLocation::OnFace(..)) {
                found(number, Beside { distance, normal });
            }
        }
    }
}
