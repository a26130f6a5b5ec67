//! The faces of obstacles as triangles, for pictures and files.

use amalgam_particles::{DQuat, DVec3, Obstacle, ObstacleForm, polygon};
use parry3d_f64::shape::{Ball, Cuboid, Cylinder};

use super::upright;

/// Number of corners of a circle.
const CIRCLE: u32 = 96;

/// Corners [m] and triangles of them.
pub type Faces = (Vec<DVec3>, Vec<[u32; 3]>);

/// The faces of an obstacle as triangles, anticlockwise seen from the side of the particles. A plane is as
/// large as the box `within` [m].
pub fn faces(&Obstacle { ref form, rotation, is_hollow }: &Obstacle, within: (DVec3, DVec3)) -> Faces {
    let placed = |(corners, triangles): Faces, middle: DVec3, rotation: DQuat| {
        (corners.into_iter().map(|corner| middle + rotation * corner).collect(), triangles)
    };
    let (corners, mut triangles) = match *form {
        ObstacleForm::Plane { point, normal } => plane(point, rotation * normal, within),
        ObstacleForm::Box { min, max } => {
            placed(Cuboid::new((max - min) * 0.5).to_trimesh(), (min + max) * 0.5, rotation)
        }
        ObstacleForm::Ball { center, radius } => {
            placed(Ball::new(radius).to_trimesh(CIRCLE, CIRCLE / 2), center, rotation)
        }
        ObstacleForm::Cylinder { center, axis, radius, height } => {
            placed(Cylinder::new(0.5 * height, radius).to_trimesh(CIRCLE), center, rotation * upright(axis))
        }
        ObstacleForm::Mesh(ref surface) => {
            let (low, high) = surface.bounds();
            let middle = 0.5 * (low + high);
            let (corners, triangles) = surface.mesh();
            let corners = corners.iter().map(|&corner| middle + rotation * (corner - middle)).collect();
            (corners, triangles.to_vec())
        }
    };
    if is_hollow {
        triangles.iter_mut().for_each(|[_, b, c]| std::mem::swap(b, c));
    }
    (corners, triangles)
}

/// The part of a plane in a box.
fn plane(point: DVec3, normal: DVec3, (low, high): (DVec3, DVec3)) -> Faces {
    let size = (high - low).length();
    let middle = 0.5 * (low + high);
    let middle = middle - normal * (middle - point).dot(normal);
    let right = normal.any_orthonormal_vector();
    let [right, ahead] = [right, normal.cross(right)].map(|side| side * size);
    let mut corners =
        vec![middle - right - ahead, middle + right - ahead, middle + right + ahead, middle - right + ahead];
    // The margin keeps a plane that lies in a face of the box.
    let margin = 1e-9 * size;
    for axis in DVec3::AXES {
        corners = polygon::clip(&corners, high + margin, axis);
        corners = polygon::clip(&corners, low - margin, -axis);
    }
    let triangles = (2..corners.len() as u32).map(|i| [0, i - 1, i]).collect();
    (corners, triangles)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::obstacles::Obstacles;

    #[test]
    fn faces_lie_on_the_surface_and_look_to_where_particles_are() {
        let rotation = DQuat::from_axis_angle(DVec3::new(1.0, 2.0, 0.5).normalize(), 40f64.to_radians());
        let (min, max) = (DVec3::new(-0.3, -0.2, 0.1), DVec3::new(0.5, 0.4, 0.3));
        let shapes = [
            (
                ObstacleForm::Plane {
                    point: DVec3::new(0.1, 0.2, 0.3),
                    normal: DVec3::new(0.2, 0.1, 2.0).normalize(),
                },
                false,
            ),
            (ObstacleForm::Box { min, max }, false),
            (ObstacleForm::Box { min, max }, true),
            (ObstacleForm::Ball { center: min, radius: 0.4 }, false),
            (ObstacleForm::Ball { center: min, radius: 0.4 }, true),
            (
                ObstacleForm::Cylinder {
                    center: max,
                    axis: DVec3::new(0.3, 1.0, 0.0).normalize(),
                    radius: 0.2,
                    height: 0.5,
                },
                false,
            ),
        ];
        for (form, is_hollow) in shapes {
            let one = Obstacle { form, rotation, is_hollow };
            let obstacles = Obstacles::new(std::slice::from_ref(&one));
            let distance = |x: DVec3| {
                let all = (0..obstacles.len()).map(|surface| obstacles.beside(surface, x).distance);
                all.fold(f64::INFINITY, f64::min)
            };
            let (corners, triangles) = faces(&one, (DVec3::NEG_ONE, DVec3::ONE));
            assert!(!triangles.is_empty(), "{one:?}");
            assert!(corners.iter().all(|&corner| distance(corner).abs() < 1e-8), "{one:?}");
            for corner in triangles.iter().map(|t| t.map(|i| corners[i as usize])) {
                let [a, b, c] = corner;
                let normal = (b - a).cross(c - a).normalize();
                let middle = (a + b + c) / 3.0;
                // The flat faces of round shapes lie a little inside.
                assert!((distance(middle + 0.01 * normal) - 0.01).abs() < 1e-3, "{one:?}: {corner:?}");
            }
        }
    }

    #[test]
    fn a_plane_is_as_large_as_the_domain() {
        let area = |(corners, triangles): Faces| -> f64 {
            let area = |[a, b, c]: [u32; 3]| {
                let [a, b, c] = [a, b, c].map(|i| corners[i as usize]);
                0.5 * (b - a).cross(c - a).length()
            };
            triangles.into_iter().map(area).sum()
        };
        let within = (DVec3::ZERO, DVec3::new(1.0, 2.0, 3.0));
        for (point, normal, expected) in [
            (DVec3::ZERO, DVec3::Z, 2.0),
            (DVec3::Z * 3.0, DVec3::NEG_Z, 2.0),
            (DVec3::X * 0.5, DVec3::X, 6.0),
            (DVec3::ZERO, DVec3::new(1.0, -0.5, 0.0).normalize(), 3.0 * 5f64.sqrt()),
            (DVec3::NEG_Z, DVec3::Z, 0.0),
        ] {
            let found = area(plane(point, normal, within));
            assert!((found - expected).abs() < 1e-7, "{point} {normal}: {found}");
        }
    }
}
