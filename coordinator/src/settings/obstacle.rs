//! `[[domain.obstacles]]`: smooth surfaces that nothing moves.

use amalgam_meshes::Faces;
use amalgam_particles::shapes::{Rotation, Shape};
use amalgam_particles::surface::Surface;
use amalgam_particles::{DQuat, DVec3, Obstacle, ObstacleForm, POSITION_LIMIT};
use serde::{Deserialize, Serialize};

use super::fault::Fault;

/// `[[domain.obstacles]]`: a smooth surface that nothing moves, under the contact law.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ObstacleSettings {
    /// Name for `between` in `[[coupling.contact]]`, unlike those of participants.
    pub name: String,
    /// A plane such as `{ type = "plane", point = [0, 0, 0], normal = [0, 0, 1] }`, whose normal points
    /// out of the obstacle; or a `"box"`, `"sphere"`, `"cylinder"` or `"mesh"` with the keys of shapes.
    pub shape: ObstacleShape,
    /// Turns the shape about its middle, as in `{ axis = [0, 1, 0], degrees = 25 }`.
    pub rotation: Option<Rotation>,
    /// `true` makes the shape hollow: it holds particles inside. For boxes, spheres and meshes.
    #[serde(default)]
    pub inside: bool,
}

/// Space that an obstacle fills.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ObstacleShape {
    /// All space behind a plane.
    Plane {
        /// A point of the plane [m].
        point: DVec3,
        /// Direction out of the obstacle, of any length.
        normal: DVec3,
    },
    /// A box.
    Box {
        /// Lowest corner [m].
        min: DVec3,
        /// Highest corner [m].
        max: DVec3,
    },
    /// A ball.
    Sphere {
        /// Centre [m].
        center: DVec3,
        /// Radius [m].
        radius: f64,
    },
    /// A circular cylinder.
    Cylinder {
        /// Middle of the axis [m].
        center: DVec3,
        /// Direction of the axis, of any length.
        axis: DVec3,
        /// Radius [m].
        radius: f64,
        /// Length along the axis [m].
        height: f64,
    },
    /// Volume enclosed by a closed surface of triangles.
    Mesh {
        /// The file: OBJ, STL or PLY.
        file: String,
        /// Factor by which the file's coordinates are multiplied.
        #[serde(default = "one")]
        scale: f64,
        /// Added to the scaled coordinates [m].
        #[serde(default)]
        translation: DVec3,
    },
}

fn one() -> f64 {
    1.0
}

impl ObstacleShape {
    /// The surface of a shape from a file, scaled and translated.
    ///
    /// # Errors
    /// The fault of the file, or the reason why it cannot be read.
    fn surface(&self) -> Result<Surface, String> {
        let Self::Mesh { file, scale, translation } = self else { return Err("is not named".into()) };
        let mut shape =
            Shape::Mesh { file: file.clone(), scale: *scale, translation: *translation, surface: None };
        amalgam_meshes::read_into(&mut shape).map_err(|error| error.to_string())?;
        let Shape::Mesh { surface: Some(surface), .. } = shape else { unreachable!("it has been read") };
        if let Some(fault) = surface.faults().into_iter().next() {
            return Err(format!("is {file}, which {fault}"));
        }
        let (low, high) = surface.bounds();
        if low.abs().max(high.abs()).max_element() > POSITION_LIMIT {
            return Err(format!(
                "is {file}, which reaches from {low} to {high} m: write a smaller scale or translation"
            ));
        }
        Ok(surface)
    }
}

impl ObstacleSettings {
    /// The obstacle, with the surface from its file.
    ///
    /// # Errors
    /// A file that gives no closed surface.
    pub fn obstacle(&self) -> Result<Obstacle, String> {
        let form = match self.shape {
            ObstacleShape::Plane { point, normal } => {
                ObstacleForm::Plane { point, normal: normal.normalize() }
            }
            ObstacleShape::Box { min, max } => ObstacleForm::Box { min, max },
            ObstacleShape::Sphere { center, radius } => ObstacleForm::Ball { center, radius },
            ObstacleShape::Cylinder { center, axis, radius, height } => {
                ObstacleForm::Cylinder { center, axis: axis.normalize(), radius, height }
            }
            ObstacleShape::Mesh { .. } => {
                let read = self.shape.surface();
                ObstacleForm::Mesh(read.map_err(|what| format!("the file of obstacle {} {what}", self.name))?)
            }
        };
        let turn = |rotation: Rotation| {
            DQuat::from_axis_angle(rotation.axis.normalize(), rotation.degrees.to_radians())
        };
        let rotation = self.rotation.map_or(DQuat::IDENTITY, turn);
        Ok(Obstacle { form, rotation, is_hollow: self.inside })
    }

    /// The faces as triangles: see [`amalgam_meshes::faces`].
    ///
    /// # Errors
    /// A file that gives no closed surface.
    pub fn faces(&self, within: (DVec3, DVec3)) -> Result<Faces, String> {
        Ok(amalgam_meshes::faces(&self.obstacle()?, within))
    }

    /// Faults in the values of entry `at` of the list.
    pub(super) fn faults(&self, at: usize) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut that = |right: bool, key: &str, rule: &str| {
            if !right {
                faults.push(Fault::new(&format!("obstacles[{at}].{key}"), format!("{key} {rule}")));
            }
        };
        let long = |v: DVec3| v.is_finite() && v.length() > 0.0;
        let positive = |x: f64| x.is_finite() && x > 0.0;
        match &self.shape {
            &ObstacleShape::Plane { point, normal } => {
                that(point.is_finite(), "shape.point", "must be finite");
                that(long(normal), "shape.normal", "needs a length: write for example normal = [0, 0, 1]");
            }
            &ObstacleShape::Box { min, max } => {
                let right = min.is_finite() && max.is_finite() && min.cmplt(max).all();
                that(right, "shape.max", "must be larger than min in every coordinate");
            }
            &ObstacleShape::Sphere { center, radius } => {
                that(center.is_finite(), "shape.center", "must be finite");
                that(positive(radius), "shape.radius", "must be above 0, for example 0.5");
            }
            &ObstacleShape::Cylinder { center, axis, radius, height } => {
                that(center.is_finite(), "shape.center", "must be finite");
                that(long(axis), "shape.axis", "needs a length: write for example axis = [0, 0, 1]");
                that(positive(radius), "shape.radius", "must be above 0, for example 0.5");
                that(positive(height), "shape.height", "must be above 0, for example 1.0");
            }
            shape @ ObstacleShape::Mesh { scale, translation, .. } => {
                that(positive(*scale), "shape.scale", "must be above 0, for example 0.001 for millimetres");
                that(translation.is_finite(), "shape.translation", "must be finite");
                if let Err(what) = shape.surface() {
                    that(false, "shape.file", &what);
                }
            }
        }
        let open = matches!(self.shape, ObstacleShape::Plane { .. } | ObstacleShape::Cylinder { .. });
        that(!self.inside || !open, "inside", "is for boxes, spheres and meshes: leave it out");
        if let Some(rotation) = self.rotation {
            let right = long(rotation.axis) && rotation.degrees.is_finite();
            that(right, "rotation", "needs an axis with a length and an angle in degrees");
        }
        faults
    }
}
