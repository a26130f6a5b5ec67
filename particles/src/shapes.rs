//! Shapes that are filled with particles: what a scene writes, checked and sampled in one place.

use glam::{DMat3, DVec3};
use serde::{Deserialize, Serialize};

/// At most this many points are sampled from one shape.
pub const POINTS_MAX: usize = 1 << 28;

/// A solid shape, as a scene writes it. Lengths in metres.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Shape {
    /// A box with edges along the axes.
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
    /// Single points, given one by one.
    Points {
        /// Positions [m].
        positions: Vec<DVec3>,
    },
}

/// A rotation about an axis through the middle of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rotation {
    /// Direction of the axis, of any length.
    pub axis: DVec3,
    /// Angle, right-handed [degrees].
    pub degrees: f64,
}

/// A shape that moves: the keys of the shape with an optional `rotation` and `velocity` beside them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Body {
    /// The shape; it refuses unknown keys, also on behalf of the body.
    #[serde(flatten)]
    pub shape: Shape,
    /// Turns the sampled points about the middle of the shape (for points, about their mean).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotation: Option<Rotation>,
    /// Velocity of every point [m/s].
    #[serde(default)]
    pub velocity: DVec3,
}

/// What is wrong with a shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {message}")]
pub struct ShapeError {
    /// The key inside the shape, for example `radius` or `positions[3]`; empty for the shape itself.
    pub key: String,
    /// What is wrong, and what to write instead.
    pub message: String,
}

impl ShapeError {
    fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
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

/// A shape in its own frame, where it is sampled: the bounding box is centred at the origin.
struct Frame {
    middle: DVec3,
    basis: DMat3,
    extent: DVec3,
}

impl Shape {
    /// Points of a simple cubic lattice that fill the shape, x fastest, then y, then z.
    ///
    /// The lattice is made of cubic cells of edge `spacing`, centred in the bounding box of the shape (for a
    /// cylinder, in its own frame, with z along the axis); each axis of the box has the number of cells that comes
    /// nearest to its length, or the next larger one where the shape is round. A cell counts if its centre is in the
    /// shape, and the centre is the point. So a box of 10 x 10 x 10 spacings holds exactly 1000 points, each half a
    /// spacing away from the faces, and a point stands for the volume `spacing^3` (round shapes: to about a percent at
    /// thirty spacings across). Single points are returned as
    /// they are.
    ///
    /// # Errors
    /// Every fault of the shape, with its key; or a shape that holds no point or more than [`POINTS_MAX`].
    pub fn sample(&self, spacing: f64) -> Result<Vec<DVec3>, Vec<ShapeError>> {
        let mut faults = self.faults();
        if !(spacing > 0.0 && spacing.is_finite()) {
            faults.push(ShapeError::new("spacing", "must be positive: write e.g. spacing = 0.01"));
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let (frame, round) = match self {
            Self::Points { positions } => return Ok(positions.clone()),
            Self::Box { .. } => (self.frame(), [false; 3]),
            Self::Sphere { .. } => (self.frame(), [true; 3]),
            Self::Cylinder { .. } => (self.frame(), [true, true, false]),
        };
        let cells = DVec3::from_array([0, 1, 2].map(|axis| {
            let cells = frame.extent[axis] / spacing;
            // A tenth of a billionth keeps 0.3 / 0.1 at three cells.
            if round[axis] { (cells - 1e-10).ceil() } else { cells.round() }
        }));
        let total = cells.element_product();
        if total < 1.0 {
            let message = format!(
                "is thinner than half a spacing of {spacing} m: enlarge it or write a smaller spacing"
            );
            return Err(vec![ShapeError::new("", message)]);
        }
        if total > POINTS_MAX as f64 {
            let message =
                format!("would hold about {total:.0} points, more than {POINTS_MAX}: write a larger spacing");
            return Err(vec![ShapeError::new("", message)]);
        }
        let mut points = Vec::new();
        let centre = |i: u32, axis: usize| (f64::from(i) + 0.5 - 0.5 * cells[axis]) * spacing;
        for k in 0..cells.z as u32 {
            for j in 0..cells.y as u32 {
                for i in 0..cells.x as u32 {
                    let local = DVec3::new(centre(i, 0), centre(j, 1), centre(k, 2));
                    if self.contains_local(local) {
                        points.push(frame.middle + frame.basis * local);
                    }
                }
            }
        }
        if points.is_empty() {
            let message =
                format!("holds no point at a spacing of {spacing} m: enlarge it or write a smaller spacing");
            return Err(vec![ShapeError::new("", message)]);
        }
        Ok(points)
    }

    /// Volume [m^3]; 0 for single points.
    pub fn volume(&self) -> f64 {
        match *self {
            Self::Box { min, max } => (max - min).element_product(),
            Self::Sphere { radius, .. } => 4.0 / 3.0 * std::f64::consts::PI * radius.powi(3),
            Self::Cylinder { radius, height, .. } => std::f64::consts::PI * radius * radius * height,
            Self::Points { .. } => 0.0,
        }
    }

    /// Every fault of the shape, with its key.
    pub fn faults(&self) -> Vec<ShapeError> {
        let mut faults = Vec::new();
        let mut finite = |key: &str, value: DVec3| {
            let ok = value.is_finite();
            if !ok {
                faults.push(ShapeError::new(
                    key,
                    format!("must be three finite numbers: write e.g. {key} = [0.0, 0.0, 1.0]"),
                ));
            }
            ok
        };
        let positive = |faults: &mut Vec<ShapeError>, key: &str, value: f64| {
            if !(value > 0.0 && value.is_finite()) {
                faults.push(ShapeError::new(key, format!("must be positive: write e.g. {key} = 0.1")));
            }
        };
        match self {
            Self::Box { min, max } => {
                if finite("min", *min) & finite("max", *max) && !max.cmpgt(*min).all() {
                    let message = "must be larger than min along each axis: write e.g. min = [0.0, 0.0, 0.0] and max = [1.0, 1.0, 1.0]";
                    faults.push(ShapeError::new("max", message));
                }
            }
            Self::Sphere { center, radius } => {
                finite("center", *center);
                positive(&mut faults, "radius", *radius);
            }
            Self::Cylinder { center, axis, radius, height } => {
                finite("center", *center);
                if finite("axis", *axis) && axis.try_normalize().is_none() {
                    faults
                        .push(ShapeError::new("axis", "must not be zero: write e.g. axis = [0.0, 0.0, 1.0]"));
                }
                positive(&mut faults, "radius", *radius);
                positive(&mut faults, "height", *height);
            }
            Self::Points { positions } => {
                if positions.is_empty() {
                    let message = "must hold at least one point: write e.g. positions = [[0.0, 0.0, 0.0]]";
                    faults.push(ShapeError::new("positions", message));
                }
                for (i, position) in positions.iter().enumerate().filter(|(_, p)| !p.is_finite()) {
                    let message = format!("is {position}, but must be three finite numbers");
                    faults.push(ShapeError::new(format!("positions[{i}]"), message));
                }
            }
        }
        faults
    }

    fn frame(&self) -> Frame {
        match *self {
            Self::Box { min, max } => {
                Frame { middle: 0.5 * (min + max), basis: DMat3::IDENTITY, extent: max - min }
            }
            Self::Sphere { center, radius } => {
                Frame { middle: center, basis: DMat3::IDENTITY, extent: DVec3::splat(2.0 * radius) }
            }
            Self::Cylinder { center, axis, radius, height } => {
                // Zero axes were refused. An axis along x, y or z gives a basis without rounding.
                let z = axis.normalize_or(DVec3::Z);
                let (x, y) = z.any_orthonormal_pair();
                let extent = DVec3::new(2.0 * radius, 2.0 * radius, height);
                Frame { middle: center, basis: DMat3::from_cols(x, y, z), extent }
            }
            Self::Points { ref positions } => {
                let middle = positions.iter().sum::<DVec3>() / positions.len().max(1) as f64;
                Frame { middle, basis: DMat3::IDENTITY, extent: DVec3::ZERO }
            }
        }
    }

    fn contains_local(&self, local: DVec3) -> bool {
        match *self {
            // Along these axes the cells were counted to fit.
            Self::Box { .. } | Self::Points { .. } => true,
            Self::Sphere { radius, .. } => local.length_squared() <= radius * radius,
            Self::Cylinder { radius, .. } => local.truncate().length_squared() <= radius * radius,
        }
    }
}

impl Body {
    /// Points that fill the body, as [`Shape::sample`] with the rotation applied.
    ///
    /// # Errors
    /// Every fault of the body, with its key.
    pub fn sample(&self, spacing: f64) -> Result<Vec<DVec3>, Vec<ShapeError>> {
        let mut faults = self.own_faults();
        let mut points = match self.shape.sample(spacing) {
            Ok(points) if faults.is_empty() => points,
            Ok(_) => return Err(faults),
            Err(of_shape) => {
                faults.splice(0..0, of_shape);
                return Err(faults);
            }
        };
        if let Some(Rotation { axis, degrees }) = self.rotation {
            let turn = DMat3::from_axis_angle(axis.normalize_or(DVec3::Z), degrees.to_radians());
            let middle = self.shape.frame().middle;
            for point in &mut points {
                *point = middle + turn * (*point - middle);
            }
        }
        Ok(points)
    }

    fn own_faults(&self) -> Vec<ShapeError> {
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
        if !self.velocity.is_finite() {
            let message = "must be three finite numbers: write e.g. velocity = [0.0, 0.0, -1.0]";
            faults.push(ShapeError::new("velocity", message));
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ball(radius: f64) -> Shape {
        Shape::Sphere { center: DVec3::new(0.3, -2.0, 1.0), radius }
    }

    #[test]
    fn a_box_of_ten_spacings_holds_a_thousand_points() {
        for (spacing, origin) in [(0.1, 0.0), (0.007, 3.3), (3.0, -17.0)] {
            let (min, max) = (DVec3::splat(origin), DVec3::splat(origin + 10.0 * spacing));
            let points = Shape::Box { min, max }.sample(spacing).expect("a good box");
            assert_eq!(points.len(), 1000);
            assert!(points[0].distance(min + 0.5 * spacing) < 1e-12);
            assert!(points[1].distance(min + spacing * DVec3::new(1.5, 0.5, 0.5)) < 1e-12);
            assert!(points[999].distance(max - 0.5 * spacing) < 1e-12);
        }
    }

    #[test]
    fn an_uneven_box_is_rounded_and_centred() {
        let points = Shape::Box { min: DVec3::ZERO, max: DVec3::new(1.04, 0.96, 0.2) }
            .sample(0.1)
            .expect("a good box");
        assert_eq!(points.len(), 10 * 10 * 2);
        let mean = points.iter().sum::<DVec3>() / 200.0;
        assert!(mean.distance(DVec3::new(0.52, 0.48, 0.1)) < 1e-12);
    }

    #[test]
    fn round_shapes_hold_their_volume() {
        let axis = DVec3::new(1.0, 2.0, -0.5);
        let shapes = [ball(1.0), Shape::Cylinder { center: DVec3::X, axis, radius: 0.8, height: 1.7 }];
        for shape in shapes {
            let points = shape.sample(0.05).expect("a good shape");
            let ratio = points.len() as f64 * 0.05f64.powi(3) / shape.volume();
            assert!((ratio - 1.0).abs() < 0.015, "{shape:?}: {ratio}");
        }
        let points = ball(0.5).sample(0.1).expect("a good ball");
        assert!(points.iter().all(|p| p.distance(DVec3::new(0.3, -2.0, 1.0)) <= 0.5 + 1e-12));
    }

    #[test]
    fn a_cylinder_stands_along_its_axis() {
        let center = DVec3::new(1.0, 2.0, 3.0);
        for axis in [DVec3::X, -2.0 * DVec3::Y, DVec3::Z, DVec3::ONE] {
            let direction = axis.normalize();
            let points = Shape::Cylinder { center, axis, radius: 0.3, height: 1.0 }
                .sample(0.1)
                .expect("a good cylinder");
            for point in points {
                let along = (point - center).dot(direction);
                assert!(along.abs() < 0.45 + 1e-12);
                assert!((point - center - along * direction).length() <= 0.3 + 1e-12);
            }
        }
    }

    #[test]
    fn a_body_turns_about_its_middle() {
        let shape = Shape::Box { min: DVec3::ZERO, max: DVec3::new(2.0, 1.0, 1.0) };
        let rotation = Some(Rotation { axis: 3.0 * DVec3::Z, degrees: 90.0 });
        let body = Body { shape, rotation, velocity: DVec3::ZERO };
        let points = body.sample(0.5).expect("a good body");
        let high = points.iter().fold(DVec3::MIN, |high, &p| high.max(p));
        assert!(high.distance(DVec3::new(1.25, 1.25, 0.75)) < 1e-12, "{high}");
    }

    #[test]
    fn faults_name_their_keys() {
        let keys = |shape: Shape, spacing: f64| -> Vec<String> {
            shape.sample(spacing).expect_err("a fault").into_iter().map(|fault| fault.key).collect()
        };
        assert_eq!(keys(ball(-1.0), 0.1), ["radius"]);
        assert_eq!(keys(ball(f64::NAN), 0.0), ["radius", "spacing"]);
        assert_eq!(keys(Shape::Box { min: DVec3::ONE, max: DVec3::new(2.0, 1.0, 2.0) }, 0.1), ["max"]);
        let flat =
            Shape::Cylinder { center: DVec3::ZERO, axis: DVec3::ZERO, radius: 0.0, height: f64::INFINITY };
        assert_eq!(keys(flat, 0.1), ["axis", "radius", "height"]);
        assert_eq!(keys(Shape::Points { positions: vec![] }, 0.1), ["positions"]);
        assert_eq!(keys(Shape::Points { positions: vec![DVec3::ZERO, DVec3::NAN] }, 0.1), ["positions[1]"]);
        assert_eq!(keys(Shape::Box { min: DVec3::ZERO, max: DVec3::new(1.0, 1.0, 0.01) }, 0.1), [""]);
        assert_eq!(keys(Shape::Box { min: DVec3::ZERO, max: DVec3::ONE }, 1e-6), [""]);
        let error = ShapeError::new("radius", "must be positive: write e.g. radius = 0.1");
        assert_eq!(error.path("shapes[0]"), "shapes[0].radius");
    }
}
