//! Obstacles on the wire.

use amalgam_particles::surface::Surface;
use amalgam_particles::text::{number, vector};
use amalgam_particles::{DQuat, DVec3, Obstacle, ObstacleForm, POSITION_LIMIT};

use super::values::{vec3_from_wire, vec3_to_wire};
use crate::columns::WireError;
use crate::generated::v1;
use crate::generated::v1::obstacle::{Ball, Box, Cylinder, Form, Mesh, Plane, Rotation};

/// Bytes of a vertex of a mesh.
const VERTEX_BYTES: usize = 24;
/// Bytes of a triangle of a mesh.
const TRIANGLE_BYTES: usize = 12;

/// Difference of a unit vector's length from 1 that rounding explains.
const UNIT_TOLERANCE: f64 = 1e-9;

/// An obstacle for Initialize.
pub fn obstacle_to_wire(&Obstacle { ref form, rotation, is_hollow }: &Obstacle) -> v1::Obstacle {
    let form = match *form {
        ObstacleForm::Plane { point, normal } => {
            Form::Plane(Plane { point: Some(vec3_to_wire(point)), normal: Some(vec3_to_wire(normal)) })
        }
        ObstacleForm::Box { min, max } => {
            Form::Box(Box { min: Some(vec3_to_wire(min)), max: Some(vec3_to_wire(max)) })
        }
        ObstacleForm::Ball { center, radius } => {
            Form::Ball(Ball { center: Some(vec3_to_wire(center)), radius })
        }
        ObstacleForm::Cylinder { center, axis, radius, height } => Form::Cylinder(Cylinder {
            center: Some(vec3_to_wire(center)),
            axis: Some(vec3_to_wire(axis)),
            radius,
            height,
        }),
        ObstacleForm::Mesh(ref surface) => {
            let (vertices, triangles) = surface.mesh();
            Form::Mesh(Mesh {
                vertices: vertices.iter().flat_map(|v| v.to_array()).flat_map(f64::to_le_bytes).collect(),
                triangles: triangles.iter().flatten().flat_map(|i| i.to_le_bytes()).collect(),
            })
        }
    };
    let DQuat { x, y, z, w } = rotation;
    v1::Obstacle { form: Some(form), rotation: Some(Rotation { x, y, z, w }), hollow: is_hollow }
}

/// An obstacle of Initialize.
///
/// # Errors
/// The first rule of the contract that it breaks.
pub fn obstacle_from_wire(obstacle: v1::Obstacle) -> Result<Obstacle, WireError> {
    let form = match obstacle.form.ok_or(WireError::Missing("form"))? {
        Form::Plane(Plane { point, normal }) => {
            ObstacleForm::Plane { point: vec3_from_wire("point", point)?, normal: unit("normal", normal)? }
        }
        Form::Box(Box { min, max }) => {
            let (min, max) = (vec3_from_wire("min", min)?, vec3_from_wire("max", max)?);
            if !min.cmplt(max).all() {
                return rule(format!("a box reaches from {} to {}", vector(min), vector(max)));
            }
            ObstacleForm::Box { min, max }
        }
        Form::Ball(Ball { center, radius }) => ObstacleForm::Ball {
            center: vec3_from_wire("center", center)?,
            radius: positive("the radius", radius)?,
        },
        Form::Cylinder(Cylinder { center, axis, radius, height }) => ObstacleForm::Cylinder {
            center: vec3_from_wire("center", center)?,
            axis: unit("axis", axis)?,
            radius: positive("the radius", radius)?,
            height: positive("the height", height)?,
        },
        Form::Mesh(mesh) => ObstacleForm::Mesh(surface(&mesh)?),
    };
    let Rotation { x, y, z, w } = obstacle.rotation.ok_or(WireError::Missing("rotation"))?;
    let rotation = DQuat::from_xyzw(x, y, z, w);
    let is_unit = (rotation.length() - 1.0).abs() <= UNIT_TOLERANCE;
    if !is_unit {
        return rule(format!("a rotation is a quaternion of length {}, not 1", number(rotation.length())));
    }
    let is_open = matches!(form, ObstacleForm::Plane { .. } | ObstacleForm::Cylinder { .. });
    if obstacle.hollow && is_open {
        return rule("a plane or a cylinder is hollow".into());
    }
    Ok(Obstacle { form, rotation, is_hollow: obstacle.hollow })
}

fn rule<T>(what: String) -> Result<T, WireError> {
    Err(WireError::Rule(format!("an obstacle is impossible: {what}")))
}

fn unit(name: &'static str, v: Option<v1::Vec3>) -> Result<DVec3, WireError> {
    let v = vec3_from_wire(name, v)?;
    if (v.length() - 1.0).abs() <= UNIT_TOLERANCE {
        return Ok(v);
    }
    rule(format!("its {name} is {}, not a unit vector", vector(v)))
}

fn positive(name: &str, x: f64) -> Result<f64, WireError> {
    if x > 0.0 && x <= POSITION_LIMIT {
        return Ok(x);
    }
    rule(format!("{name} is {}", number(x)))
}

fn surface(Mesh { vertices, triangles }: &Mesh) -> Result<Surface, WireError> {
    if vertices.len() % VERTEX_BYTES != 0 || triangles.len() % TRIANGLE_BYTES != 0 {
        return rule(format!(
            "a mesh has {} bytes of vertices and {} of triangles",
            vertices.len(),
            triangles.len()
        ));
    }
    let numbers: Vec<f64> = vertices.as_chunks().0.iter().map(|&bytes| f64::from_le_bytes(bytes)).collect();
    let vertices: Vec<DVec3> = numbers.as_chunks().0.iter().copied().map(DVec3::from_array).collect();
    let indices: Vec<u32> = triangles.as_chunks().0.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect();
    if let Some(corner) = indices.iter().find(|&&corner| corner as usize >= vertices.len()) {
        return rule(format!("a mesh of {} vertices names vertex {corner}", vertices.len()));
    }
    let surface = Surface::new(&vertices, indices.as_chunks().0);
    match surface.faults().into_iter().next() {
        Some(fault) => rule(format!("a mesh {fault}")),
        None => Ok(surface),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tetrahedron() -> Surface {
        let corners = [DVec3::ZERO, DVec3::X, DVec3::Y, DVec3::Z];
        Surface::new(&corners, &[[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
    }

    #[test]
    fn obstacles_come_back_to_the_bit() {
        let rotation = DQuat::from_rotation_y(0.3);
        for (form, is_hollow) in [
            (ObstacleForm::Plane { point: DVec3::X, normal: DVec3::new(0.6, 0.0, 0.8) }, false),
            (ObstacleForm::Box { min: DVec3::NEG_ONE, max: DVec3::splat(0.1) }, true),
            (ObstacleForm::Ball { center: DVec3::Y, radius: 0.7 }, true),
            (ObstacleForm::Cylinder { center: DVec3::Y, axis: DVec3::Z, radius: 0.7, height: 1.1 }, false),
            (ObstacleForm::Mesh(tetrahedron()), true),
        ] {
            let obstacle = Obstacle { form, rotation, is_hollow };
            assert_eq!(obstacle_from_wire(obstacle_to_wire(&obstacle)).expect("right"), obstacle);
        }
    }

    #[test]
    fn impossible_obstacles_are_refused_with_the_reason() {
        let ball = Obstacle {
            form: ObstacleForm::Ball { center: DVec3::ZERO, radius: 1.0 },
            rotation: DQuat::IDENTITY,
            is_hollow: false,
        };
        let with = |form: ObstacleForm| Obstacle { form, ..ball.clone() };
        let refused = |obstacle: v1::Obstacle| {
            obstacle_from_wire(obstacle).expect_err("an impossible obstacle").to_string()
        };
        for (obstacle, reason) in [
            (with(ObstacleForm::Ball { center: DVec3::ZERO, radius: -1.0 }), "the radius is -1"),
            (with(ObstacleForm::Ball { center: DVec3::ZERO, radius: f64::NAN }), "the radius is NaN"),
            (with(ObstacleForm::Plane { point: DVec3::ZERO, normal: DVec3::Z * 2.0 }), "not a unit vector"),
            (with(ObstacleForm::Box { min: DVec3::ONE, max: DVec3::ZERO }), "a box reaches from"),
            (Obstacle { rotation: DQuat::from_xyzw(0.0, 0.0, 0.0, 0.0), ..ball.clone() }, "length 0"),
            (
                Obstacle {
                    is_hollow: true,
                    ..with(ObstacleForm::Plane { point: DVec3::ZERO, normal: DVec3::Z })
                },
                "is hollow",
            ),
        ] {
            let told = refused(obstacle_to_wire(&obstacle));
            assert!(told.contains(reason), "{told}");
        }
        let mesh = |change: fn(&mut Mesh)| {
            let mut wire = obstacle_to_wire(&with(ObstacleForm::Mesh(tetrahedron())));
            let Some(Form::Mesh(mesh)) = &mut wire.form else { panic!("a mesh") };
            change(mesh);
            refused(wire)
        };
        let told = mesh(|mesh| mesh.vertices.truncate(95));
        assert!(told.contains("95 bytes of vertices"), "{told}");
        let told = mesh(|mesh| mesh.triangles = [&[9], &mesh.triangles[1..]].concat().into());
        assert!(told.contains("names vertex 9"), "{told}");
        let told = mesh(|mesh| mesh.triangles.truncate(36));
        assert!(told.contains("has a hole"), "{told}");
        assert!(refused(v1::Obstacle::default()).contains("form"));
    }
}
