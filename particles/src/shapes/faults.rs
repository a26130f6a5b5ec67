//! Faults of shapes, and what to write instead.

use glam::DVec3;

use super::{MovingShape, Rotation, Shape};
use crate::surface::Surface;

/// A fault of a shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {message}")]
pub struct ShapeError {
    /// The key inside the shape, for example `radius` or `positions[3]`; empty for the shape itself.
    pub key: String,
    /// The fault, and what to write instead.
    pub message: String,
}

impl ShapeError {
    pub(super) fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), message: message.into() }
    }

    /// The path of the key when the shape stands at `parent`, for example `shapes[0].radius`.
    pub fn path(&self, parent: &str) -> String {
        match (parent.is_empty(), self.key.is_empty()) {
            (_, true) => parent.to_string(),
            (true, false) => self.key.clone(),
            (false, false) => format!("{parent}.{}", self.key),
        }
    }
}

impl Shape {
    /// Faults of the shape and of the spacing.
    pub(super) fn faults_at(&self, spacing: f64) -> Vec<ShapeError> {
        let mut faults = self.faults();
        if !(spacing > 0.0 && spacing.is_finite()) {
            faults.push(ShapeError::new("spacing", "must be positive: write e.g. spacing = 0.01"));
        }
        faults
    }

    /// Every fault of the shape, with its key.
    pub fn faults(&self) -> Vec<ShapeError> {
        let mut faults = Faults::default();
        match self {
            Self::Box { min, max } => faults.corners(*min, *max),
            Self::Sphere { center, radius } => {
                faults.finite("center", *center);
                faults.positive("radius", *radius);
            }
            Self::Cylinder { center, axis, radius, height } => {
                faults.finite("center", *center);
                faults.direction("axis", *axis);
                faults.positive("radius", *radius);
                faults.positive("height", *height);
            }
            Self::Ellipsoid { center, semi_axes } => {
                faults.finite("center", *center);
                faults.semi_axes(*semi_axes);
            }
            Self::Torus { center, axis, radius, tube_radius } => {
                faults.finite("center", *center);
                faults.direction("axis", *axis);
                faults.positive("radius", *radius);
                faults.tube_radius(*tube_radius, *radius);
            }
            Self::Shell { center, radius, thickness, axis, half_angle } => {
                faults.finite("center", *center);
                faults.direction("axis", *axis);
                faults.positive("radius", *radius);
                faults.thickness(*thickness, *radius);
                faults.half_angle(*half_angle);
            }
            Self::Mesh { scale, translation, surface, .. } => {
                faults.positive("scale", *scale);
                faults.finite("translation", *translation);
                faults.surface(surface.as_ref());
            }
            Self::Difference { from, subtract } => {
                faults.0.extend(Self::faults_of_difference(from, subtract));
            }
            Self::Points { positions } => faults.positions(positions),
        }
        faults.0
    }
}

impl MovingShape {
    /// Every fault of the body, with its key.
    pub fn faults(&self) -> Vec<ShapeError> {
        let mut faults = self.shape.faults();
        faults.extend(self.own_faults());
        faults
    }

    pub(super) fn own_faults(&self) -> Vec<ShapeError> {
        let mut faults = Vec::new();
        if let Some(Rotation { axis, degrees }) = self.rotation {
            if !axis.is_finite() || axis.try_normalize().is_none() {
                let message = "must be a direction: write e.g. axis = [0.0, 0.0, 1.0]";
                faults.push(ShapeError::new("rotation.axis", message));
            }
            if !degrees.is_finite() {
                faults.push(ShapeError::new("rotation.degrees", "must be finite: write e.g. degrees = 45.0"));
            }
        }
        for (key, value) in [("velocity", self.velocity), ("angular_velocity", self.angular_velocity)] {
            if !value.is_finite() {
                let message = format!("must be three finite numbers: write e.g. {key} = [0.0, 0.0, -1.0]");
                faults.push(ShapeError::new(key, message));
            }
        }
        faults
    }
}

/// Collects faults.
#[derive(Default)]
struct Faults(Vec<ShapeError>);

impl Faults {
    fn add(&mut self, key: impl Into<String>, message: impl Into<String>) {
        self.0.push(ShapeError::new(key, message));
    }

    fn finite(&mut self, key: &str, value: DVec3) -> bool {
        let finite = value.is_finite();
        if !finite {
            self.add(key, format!("must be three finite numbers: write e.g. {key} = [0.0, 0.0, 1.0]"));
        }
        finite
    }

    fn positive(&mut self, key: &str, value: f64) {
        if !(value > 0.0 && value.is_finite()) {
            self.add(key, format!("must be positive: write e.g. {key} = 0.1"));
        }
    }

    fn direction(&mut self, key: &str, value: DVec3) {
        if self.finite(key, value) && value.try_normalize().is_none() {
            self.add(key, format!("must not be zero: write e.g. {key} = [0.0, 0.0, 1.0]"));
        }
    }

    fn corners(&mut self, min: DVec3, max: DVec3) {
        if self.finite("min", min) & self.finite("max", max) && !max.cmpgt(min).all() {
            self.add(
                "max",
                "must be larger than min along each axis: write e.g. min = [0.0, 0.0, 0.0] and max = [1.0, \
                 1.0, 1.0]",
            );
        }
    }

    fn semi_axes(&mut self, semi_axes: DVec3) {
        if !(semi_axes.is_finite() && semi_axes.min_element() > 0.0) {
            self.add("semi_axes", "must be three positive numbers: write e.g. semi_axes = [0.2, 0.1, 0.1]");
        }
    }

    fn tube_radius(&mut self, tube_radius: f64, radius: f64) {
        self.positive("tube_radius", tube_radius);
        if tube_radius >= radius {
            self.add(
                "tube_radius",
                "must be smaller than radius, or the ring has no hole: write e.g. half of it",
            );
        }
    }

    fn thickness(&mut self, thickness: f64, radius: f64) {
        self.positive("thickness", thickness);
        if thickness > radius {
            self.add("thickness", "must be at most the radius: write e.g. a tenth of it");
        }
    }

    fn half_angle(&mut self, degrees: f64) {
        if !(degrees > 0.0 && degrees <= 180.0) {
            self.add("half_angle", "must be above 0 and at most 180 degrees: write e.g. half_angle = 90.0");
        }
    }

    fn surface(&mut self, surface: Option<&Surface>) {
        match surface {
            None => self.add("file", "has not been read: write the path of an OBJ, STL or PLY file"),
            Some(surface) => surface.faults().into_iter().for_each(|fault| self.add("file", fault)),
        }
    }

    fn positions(&mut self, positions: &[DVec3]) {
        if positions.is_empty() {
            self.add("positions", "must hold at least one point: write e.g. positions = [[0.0, 0.0, 0.0]]");
        }
        for (i, position) in positions.iter().enumerate().filter(|(_, p)| !p.is_finite()) {
            self.add(format!("positions[{i}]"), format!("is {position}, but must be three finite numbers"));
        }
    }
}
