//! Distances from obstacles. They come from the library parry.

pub(crate) mod faces;
mod mesh;

use std::sync::Arc;

use amalgam_particles::{CellSet, DQuat, DVec3, Lattice, Obstacle, ObstacleForm};
use glam::IVec3;
use parry3d_f64::math::Pose;
use parry3d_f64::query::PointQuery;
use parry3d_f64::shape::{Ball, Cuboid, Cylinder};

use mesh::MeshSurface;

/// A smooth surface.
#[derive(Clone)]
struct Surface {
    /// Index of the obstacle that it belongs to.
    obstacle: usize,
    geometry: Geometry,
}

#[derive(Clone)]
enum Geometry {
    /// A point, and the unit normal out of the obstacle.
    Plane(DVec3, DVec3),
    /// A convex body, its pose, and true if it is hollow: the obstacle is then all space outside the body.
    Body(Arc<dyn PointQuery + Send + Sync>, Pose, bool),
    Mesh(Arc<MeshSurface>),
}

/// All obstacles of a scene. Their surfaces are numbered.
#[derive(Clone, Default)]
pub struct Obstacles {
    surfaces: Vec<Surface>,
}

/// Position of a particle relative to a surface.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beside {
    /// Distance of the particle's centre from the surface [m], negative inside of the obstacle.
    pub distance: f64,
    /// Unit vector out of the obstacle.
    pub normal: DVec3,
}

impl Obstacles {
    /// Builds the surfaces.
    pub fn new<'a>(obstacles: impl IntoIterator<Item = &'a Obstacle>) -> Self {
        let geometries = obstacles.into_iter().map(geometries).enumerate();
        let surfaces = geometries.flat_map(|(obstacle, found)| {
            found.into_iter().map(move |geometry| Surface { obstacle, geometry })
        });
        Self { surfaces: surfaces.collect() }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.surfaces.is_empty()
    }

    /// Number of surfaces. A hollow box has six.
    pub fn len(&self) -> usize {
        self.surfaces.len()
    }

    /// The obstacle that a surface belongs to.
    pub fn obstacle(&self, surface: usize) -> usize {
        self.surfaces[surface].obstacle
    }

    /// Position of a point [m] relative to a surface.
    pub fn beside(&self, surface: usize, point: DVec3) -> Beside {
        match &self.surfaces[surface].geometry {
            Geometry::Plane(on, normal) => Beside { distance: (point - on).dot(*normal), normal: *normal },
            Geometry::Body(shape, pose, is_hollow) => {
                let nearest = shape.project_point(pose, point, false);
                let apart = point - nearest.point;
                let out = if nearest.is_inside { -1.0 } else { 1.0 };
                // A point exactly on the surface has a normal away from the middle.
                let normal = (apart * out)
                    .try_normalize()
                    .unwrap_or_else(|| (point - pose.translation).try_normalize().unwrap_or(DVec3::Z));
                let side = if *is_hollow { -1.0 } else { 1.0 };
                Beside { distance: side * out * apart.length(), normal: normal * side }
            }
            Geometry::Mesh(mesh) => mesh.beside(point),
        }
    }

    /// Finds the places of a surface within `reach` [m] of a point that a particle there may touch, each with
    /// its number in the surface.
    pub fn all_beside(&self, surface: usize, point: DVec3, reach: f64, mut found: impl FnMut(u32, Beside)) {
        if let Geometry::Mesh(mesh) = &self.surfaces[surface].geometry {
            return mesh.all_beside(point, reach, found);
        }
        let beside = self.beside(surface, point);
        if beside.distance < reach {
            found(0, beside);
        }
    }

    /// The cells among `cells` that may hold a point on or behind a surface.
    pub fn cells(&self, lattice: &Lattice, cells: &CellSet) -> CellSet {
        let reach = 0.5 * 3f64.sqrt() * lattice.cell_size;
        let middle = |cell: IVec3| lattice.origin + (cell.as_dvec3() + 0.5) * lattice.cell_size;
        let touches =
            |cell: IVec3| (0..self.len()).any(|surface| self.beside(surface, middle(cell)).distance <= reach);
        let found = cells.iter().zip(cells.keys()).filter(|&(cell, _)| touches(cell));
        CellSet::from_keys(found.map(|(_, &key)| key).collect())
    }
}

fn geometries(&Obstacle { ref form, rotation, is_hollow }: &Obstacle) -> Vec<Geometry> {
    let body = |shape: Arc<dyn PointQuery + Send + Sync>, middle, rotation| {
        vec![Geometry::Body(shape, Pose::from_parts(middle, rotation), is_hollow)]
    };
    match *form {
        ObstacleForm::Plane { point, normal } => vec![Geometry::Plane(point, rotation * normal)],
        ObstacleForm::Box { min, max } if is_hollow => {
            let (middle, half) = ((min + max) * 0.5, (max - min) * 0.5);
            let wall = |axis: DVec3| {
                let out = rotation * axis;
                Geometry::Plane(middle - out * half.dot(axis.abs()), out)
            };
            DVec3::AXES.iter().flat_map(|&axis| [wall(axis), wall(-axis)]).collect()
        }
        ObstacleForm::Box { min, max } => {
            body(Arc::new(Cuboid::new((max - min) * 0.5)), (min + max) * 0.5, rotation)
        }
        ObstacleForm::Ball { center, radius } => body(Arc::new(Ball::new(radius)), center, rotation),
        ObstacleForm::Cylinder { center, axis, radius, height } => {
            body(Arc::new(Cylinder::new(0.5 * height, radius)), center, rotation * upright(axis))
        }
        ObstacleForm::Mesh(ref surface) => {
            vec![Geometry::Mesh(Arc::new(MeshSurface::new(surface, rotation, is_hollow)))]
        }
    }
}

/// The rotation that takes the library's cylinders, which stand along y, to `axis`.
fn upright(axis: DVec3) -> DQuat {
    DQuat::from_rotation_arc(DVec3::Y, axis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use amalgam_particles::shapes::Shape;

    fn obstacles(form: ObstacleForm, rotation: DQuat, is_hollow: bool) -> Obstacles {
        Obstacles::new(&[Obstacle { form, rotation, is_hollow }])
    }

    #[test]
    fn distances_and_normals_are_those_of_the_shapes() {
        let (straight, quarter) = (DQuat::IDENTITY, DQuat::from_rotation_x(90f64.to_radians()));
        let (min, max) = (DVec3::new(-1.0, -2.0, -3.0), DVec3::new(1.0, 2.0, 3.0));
        let cylinder =
            ObstacleForm::Cylinder { center: DVec3::ZERO, axis: DVec3::X, radius: 0.5, height: 4.0 };
        for (form, rotation, point, distance, normal) in [
            (
                ObstacleForm::Plane { point: DVec3::Z, normal: DVec3::Z },
                straight,
                DVec3::new(5.0, 5.0, 1.5),
                0.5,
                DVec3::Z,
            ),
            (ObstacleForm::Box { min, max }, straight, DVec3::new(1.25, 0.5, 0.0), 0.25, DVec3::X),
            (ObstacleForm::Box { min, max }, straight, DVec3::new(0.75, 0.5, 0.0), -0.25, DVec3::X),
            (ObstacleForm::Box { min, max }, quarter, DVec3::new(0.0, 0.0, 2.5), 0.5, DVec3::Z),
            (cylinder, straight, DVec3::new(1.0, 0.0, 2.0), 1.5, DVec3::Z),
            (
                ObstacleForm::Ball { center: DVec3::X, radius: 2.0 },
                straight,
                DVec3::new(1.0, -1.5, 0.0),
                -0.5,
                -DVec3::Y,
            ),
        ] {
            let beside = obstacles(form.clone(), rotation, false).beside(0, point);
            assert!((beside.distance - distance).abs() < 1e-14, "{form:?}: {beside:?}");
            assert!(beside.normal.distance(normal) < 1e-14, "{form:?}: {beside:?}");
        }
    }

    #[test]
    fn hollow_shapes_hold_what_is_inside() {
        let ball = obstacles(ObstacleForm::Ball { center: DVec3::X, radius: 2.0 }, DQuat::IDENTITY, true);
        let beside = ball.beside(0, DVec3::new(1.0, -1.5, 0.0));
        assert!((beside.distance - 0.5).abs() < 1e-14 && beside.normal.distance(DVec3::Y) < 1e-14);
        let hall = obstacles(ObstacleForm::Box { min: DVec3::ZERO, max: DVec3::ONE }, DQuat::IDENTITY, true);
        let beside = |wall| hall.beside(wall, DVec3::new(0.1, 0.25, 0.7));
        let distances: Vec<f64> = (0..hall.len()).map(|wall| beside(wall).distance).collect();
        let expected = [0.1, 0.9, 0.25, 0.75, 0.7, 0.3];
        assert!(distances.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-14), "{distances:?}");
        assert_eq!(beside(1).normal, DVec3::NEG_X);
    }

    /// The form of a mesh file with this text.
    fn read(name: &str, text: &str) -> ObstacleForm {
        let path = std::env::temp_dir().join(format!("amalgam-{name}-{}.obj", std::process::id()));
        std::fs::write(&path, text).expect("writes");
        let mut shape = Shape::Mesh {
            file: path.display().to_string(),
            scale: 1.0,
            translation: DVec3::ZERO,
            surface: None,
        };
        crate::read_into(&mut shape).expect("reads");
        std::fs::remove_file(&path).expect("removes");
        let Shape::Mesh { surface: Some(surface), .. } = shape else { panic!("it has been read") };
        ObstacleForm::Mesh(surface)
    }

    /// Above one face of a flat hollow octahedron, near its lower tip: the faces beside it and the one beyond the
    /// tip, on which the particle has no foot yet, stop it, too. On the outside the tip is the only place.
    #[test]
    fn a_corner_of_a_hollow_mesh_has_all_its_faces() {
        let mut file = String::new();
        for v in ["1 0 0", "-1 0 0", "0 1 0", "0 -1 0", "0 0 0.1", "0 0 -0.1"] {
            file.push_str(&format!("v {v}\n"));
        }
        for (a, b, c) in
            [(1, 3, 5), (3, 2, 5), (2, 4, 5), (4, 1, 5), (3, 1, 6), (2, 3, 6), (4, 2, 6), (1, 4, 6)]
        {
            file.push_str(&format!("f {a} {b} {c}\n"));
        }
        let count = |point: DVec3, reach: f64, is_inside: bool| {
            let shape = obstacles(read("octahedron", &file), DQuat::IDENTITY, is_inside);
            let mut found = Vec::new();
            shape.all_beside(0, point, reach, |_, beside| found.push(beside));
            for beside in &found {
                let ratio = beside.normal.abs() * 102f64.sqrt() / DVec3::new(1.0, 1.0, 10.0);
                assert!(
                    !is_inside || ratio.distance(DVec3::ONE) < 1e-12 && beside.distance > 0.0,
                    "{beside:?}"
                );
            }
            found.len()
        };
        assert_eq!(count(DVec3::new(0.03, 0.02, -0.085), 0.05, true), 4);
        // From the middle of a face, no other one is within reach.
        assert_eq!(count(DVec3::new(0.3, 0.3, -0.03), 0.05, true), 1);
        assert_eq!(count(DVec3::new(0.0, 0.0, -0.11), 0.05, false), 1);
    }

    /// A step, as a prism along y: in its inner edge there are two contacts, on an outer one there is one.
    #[test]
    fn a_mesh_is_touched_wherever_its_distance_has_a_minimum() {
        let profile = [(0.0, 0.0), (2.0, 0.0), (2.0, 1.0), (1.0, 1.0), (1.0, 2.0), (0.0, 2.0)];
        let mut file = String::new();
        for y in [0.0, 4.0] {
            profile.iter().for_each(|(x, z)| file.push_str(&format!("v {x} {y} {z}\n")));
        }
        // The end at y = 0 is anticlockwise seen from outside.
        let halves = [[1, 2, 3], [1, 3, 4], [1, 4, 5], [1, 5, 6]];
        for [a, b, c] in halves {
            file.push_str(&format!("f {a} {b} {c}\nf {} {} {}\n", a + 6, c + 6, b + 6));
        }
        for a in 1..=6 {
            let b = a % 6 + 1;
            file.push_str(&format!("f {b} {a} {}\nf {b} {} {}\n", a + 6, a + 6, b + 6));
        }
        let step = obstacles(read("step", &file), DQuat::IDENTITY, false);
        let touched = |point: DVec3, reach: f64| {
            let mut found = Vec::new();
            step.all_beside(0, point, reach, |_, beside| found.push(beside));
            found
        };
        let near = |beside: &Beside, distance: f64, normal: DVec3| {
            (beside.distance - distance).abs() < 1e-14 && beside.normal.distance(normal) < 1e-14
        };
        let inner = touched(DVec3::new(1.1, 1.3, 1.2), 0.5);
        assert!(
            inner.len() == 2 && near(&inner[0], 0.1, DVec3::X) && near(&inner[1], 0.2, DVec3::Z),
            "{inner:?}"
        );
        let outer = touched(DVec3::new(2.3, 1.3, 1.4), 1.0);
        assert!(outer.len() == 1 && near(&outer[0], 0.5, DVec3::new(0.6, 0.0, 0.8)), "{outer:?}");
        let deep = touched(DVec3::new(0.5, 1.3, 1.8), 1.0);
        assert!(deep.len() == 1 && near(&deep[0], -0.2, DVec3::Z), "{deep:?}");
        assert!(touched(DVec3::new(1.5, 1.3, 1.6), 0.5).is_empty());
    }

    #[test]
    fn cells_on_and_behind_a_surface_are_found() {
        let floor =
            obstacles(ObstacleForm::Plane { point: DVec3::ZERO, normal: DVec3::Z }, DQuat::IDENTITY, false);
        let lattice = Lattice { origin: DVec3::ZERO, cell_size: 1.0 };
        let heights = [-5.5, -0.5, 0.5, 2.5, 9.5];
        let positions: Vec<DVec3> = heights.iter().map(|&z| DVec3::new(0.5, 0.5, z)).collect();
        let all = lattice.occupied(&positions, &[0.1; 5], amalgam_particles::Reach::Centre);
        assert_eq!(floor.cells(&lattice, &all).len(), 3);
    }
}
