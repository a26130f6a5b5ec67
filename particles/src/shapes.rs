//! Shapes that are filled with particles: what a scene writes, checked and sampled in one place.

mod difference;
mod faults;
pub(crate) mod obstacle;

use std::f64::consts::PI;
use std::ops::Range;

use glam::{DMat3, DVec3};
use serde::{Deserialize, Serialize};

use crate::surface::Surface;

pub use faults::ShapeError;

/// At most this many points are sampled from one shape, or from a part of it.
pub const POINTS_MAX: usize = 1 << 28;

/// One of several equal parts of the layers in which a shape is sampled, so that each of several processes
/// samples a part. The points of all parts, in their order, are those of the whole shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    /// Number of the part, from 0.
    pub part: usize,
    /// The number of parts.
    pub parts: usize,
}

impl Default for Layers {
    fn default() -> Self {
        Self::ALL
    }
}

impl Layers {
    /// All layers.
    pub const ALL: Self = Self { part: 0, parts: 1 };

    /// The part of `count` things in a row.
    pub fn range(self, count: usize) -> Range<usize> {
        let Self { part, parts } = self;
        count * part / parts..count * (part + 1) / parts
    }
}

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
    /// An ellipsoid with axes along x, y and z; a rotation of the body turns it.
    Ellipsoid {
        /// Centre [m].
        center: DVec3,
        /// Half of its extent along x, y and z [m].
        semi_axes: DVec3,
    },
    /// A ring with a round cross-section.
    Torus {
        /// Centre [m].
        center: DVec3,
        /// Direction through the hole, of any length.
        axis: DVec3,
        /// Distance from the centre to the middle of the tube [m].
        radius: f64,
        /// Radius of the tube [m], smaller than `radius`.
        tube_radius: f64,
    },
    /// A hollow sphere or a part of it: a bowl is the half around `axis` = down.
    Shell {
        /// Centre of the sphere [m].
        center: DVec3,
        /// Outer radius [m].
        radius: f64,
        /// Thickness of the wall, inwards [m].
        thickness: f64,
        /// Direction from the centre to the middle of the shell, of any length.
        #[serde(default = "down")]
        axis: DVec3,
        /// Largest angle between `axis` and a direction of the shell [degrees]: 90 is a bowl, 180 the whole
        /// sphere.
        #[serde(default = "whole")]
        half_angle: f64,
    },
    /// Volume enclosed by a closed surface of triangles, read from a file. The reader of the scene sets
    /// `surface` (crate `amalgam-meshes`).
    Mesh {
        /// The file: OBJ, STL or PLY.
        file: String,
        /// Factor by which the file's coordinates are multiplied, for coordinates not in metres.
        #[serde(default = "one")]
        scale: f64,
        /// Added to the scaled coordinates [m].
        #[serde(default)]
        translation: DVec3,
        /// The surface, scaled and translated.
        #[serde(skip)]
        surface: Option<Surface>,
    },
    /// A shape without others: a box with a hole, a bowl.
    Difference {
        /// The shape that loses.
        from: Box<Shape>,
        /// Solid shapes that are taken away, surfaces included; one or more.
        subtract: Vec<Shape>,
    },
    /// Single points, given one by one.
    Points {
        /// Positions [m].
        positions: Vec<DVec3>,
    },
}

fn down() -> DVec3 {
    DVec3::NEG_Z
}

fn whole() -> f64 {
    180.0
}

fn one() -> f64 {
    1.0
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

/// A shape that moves: the keys of the shape with optional `rotation`, `velocity` and `angular_velocity`
/// beside them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MovingShape {
    /// The shape; it refuses unknown keys, also on behalf of the body.
    #[serde(flatten)]
    pub shape: Shape,
    /// Turns the sampled points about the middle of the shape (for points, about their mean).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotation: Option<Rotation>,
    /// Velocity of the middle [m/s].
    #[serde(default)]
    pub velocity: DVec3,
    /// Angular velocity about the middle [rad/s].
    #[serde(default)]
    pub angular_velocity: DVec3,
}

/// A shape in its own frame, where it is sampled: the bounding box is centred at the origin.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Frame {
    middle: DVec3,
    basis: DMat3,
    extent: DVec3,
}

/// Cubic cells that fill a shape.
#[derive(Clone, Debug, PartialEq)]
pub struct CellSample {
    frame: Frame,
    counts: [u32; 3],
    spacing: f64,
    /// The cells whose centres are in the shape, each by its place along the axes of the shape's own frame: x
    /// fastest, then y, then z.
    pub cells: Vec<[u32; 3]>,
}

impl CellSample {
    /// The point at `place`, in cells from the lowest corner of the cells' box; centres are at halves.
    pub fn point(&self, place: DVec3) -> DVec3 {
        let half = 0.5 * DVec3::from(self.counts.map(f64::from));
        self.frame.middle + self.frame.basis * ((place - half) * self.spacing)
    }

    /// Centres of the cells [m].
    pub fn centres(&self) -> Vec<DVec3> {
        self.cells.iter().map(|cell| self.point(DVec3::from(cell.map(f64::from)) + 0.5)).collect()
    }
}

impl Shape {
    /// Points of a simple cubic lattice that fill the shape, x fastest, then y, then z: the centres of
    /// [`Self::cells`]. Single points are returned as they are.
    ///
    /// # Errors
    /// As [`Self::cells`].
    pub fn sample(&self, spacing: f64) -> Result<Vec<DVec3>, Vec<ShapeError>> {
        self.sample_layers(spacing, Layers::ALL)
    }

    /// The points of [`Self::sample`] in some of the layers. There may be none.
    ///
    /// # Errors
    /// As [`Self::cells`]. Parts that hold no cell are no fault.
    pub fn sample_layers(&self, spacing: f64, layers: Layers) -> Result<Vec<DVec3>, Vec<ShapeError>> {
        match self {
            Self::Points { positions } => {
                let faults = self.faults_at(spacing);
                if faults.is_empty() {
                    Ok(positions[layers.range(positions.len())].to_vec())
                } else {
                    Err(faults)
                }
            }
            _ => Ok(self.cells_in(spacing, layers)?.centres()),
        }
    }

    /// Cubic cells of edge `spacing` that fill the shape.
    ///
    /// They are centred in the bounding box of the shape (for cylinders, rings and shells in their own frame,
    /// with z along the axis); each axis of the box has the number of cells that comes nearest to its length,
    /// or the next larger one where the shape is round. A cell counts if its centre is in the shape. So a box
    /// of 10 x 10 x 10 spacings holds exactly 1000 cells, and a cell stands for the volume `spacing^3` (round
    /// shapes: to about a percent at thirty spacings across).
    ///
    /// # Errors
    /// Every fault of the shape, with its key; or a shape that holds no cell, more than [`POINTS_MAX`], or
    /// only single points; or a difference that leaves none.
    pub fn cells(&self, spacing: f64) -> Result<CellSample, Vec<ShapeError>> {
        self.cells_in(spacing, Layers::ALL)
    }

    /// The cells of [`Self::cells`] in some of the layers, of which each part may have [`POINTS_MAX`].
    fn cells_in(&self, spacing: f64, layers: Layers) -> Result<CellSample, Vec<ShapeError>> {
        let faults = self.faults_at(spacing);
        if !faults.is_empty() {
            return Err(faults);
        }
        let fault = |message: String| Err(vec![ShapeError::new("", message)]);
        let frame = self.frame();
        let round = match self {
            Self::Difference { from, .. } => return self.cells_left(from.cells_in(spacing, layers), layers),
            Self::Points { .. } => {
                return fault("are single points, which hold no volume: write a solid shape".into());
            }
            Self::Box { .. } => [false; 3],
            Self::Cylinder { .. } => [true, true, false],
            Self::Sphere { .. } | Self::Ellipsoid { .. } | Self::Torus { .. } => [true; 3],
            Self::Shell { .. } | Self::Mesh { .. } => [true; 3],
        };
        let counts = DVec3::from_array([0, 1, 2].map(|axis| {
            let cells = frame.extent[axis] / spacing;
            // (0.4 - 0.1) / 0.1 is slightly above 3 in f64: 1e-10 keeps it at three cells.
            if round[axis] { (cells - 1e-10).ceil() } else { cells.round() }
        }));
        let total = counts.element_product();
        if total < 1.0 {
            return fault(format!(
                "is thinner than half a spacing of {spacing} m: enlarge it or write a smaller spacing"
            ));
        }
        let most = POINTS_MAX * layers.parts;
        if total > most as f64 {
            return fault(format!(
                "would hold about {total:.0} points, more than {most}: write a larger spacing"
            ));
        }
        let mut sample =
            CellSample { frame, counts: counts.to_array().map(|n| n as u32), spacing, cells: Vec::new() };
        self.fill(&mut sample, layers);
        if sample.cells.is_empty() && layers == Layers::ALL {
            return fault(format!(
                "holds no point at a spacing of {spacing} m: enlarge it or write a smaller spacing"
            ));
        }
        Ok(sample)
    }

    /// Finds the cells of some layers whose centres are inside.
    fn fill(&self, sample: &mut CellSample, layers: Layers) {
        let [nx, ny, nz] = sample.counts;
        let half = 0.5 * DVec3::from(sample.counts.map(f64::from));
        let local = |i: u32, j: u32, k: u32| {
            (DVec3::new(f64::from(i), f64::from(j), f64::from(k)) + 0.5 - half) * sample.spacing
        };
        let layers = layers.range(nz as usize);
        for k in layers.start as u32..layers.end as u32 {
            for j in 0..ny {
                if let Self::Mesh { surface: Some(surface), .. } = self {
                    let line = surface.line(sample.frame.middle + local(0, j, k));
                    let inside = |i: &u32| line.is_inside(sample.frame.middle.x + local(*i, j, k).x);
                    sample.cells.extend((0..nx).filter(inside).map(|i| [i, j, k]));
                } else {
                    let inside = |i: &u32| self.contains_local(local(*i, j, k), sample.frame.extent);
                    sample.cells.extend((0..nx).filter(inside).map(|i| [i, j, k]));
                }
            }
        }
    }

    /// True if a point is in the shape, its surface included. Single points hold nothing.
    pub fn contains(&self, point: DVec3) -> bool {
        let frame = self.frame();
        match self {
            Self::Mesh { surface: Some(surface), .. } => surface.line(point).is_inside(point.x),
            Self::Difference { from, .. } => from.contains(point) && !self.is_cut_away(point),
            _ => self.contains_local(frame.basis.transpose() * (point - frame.middle), frame.extent),
        }
    }

    /// Volume [m^3]; 0 for single points. A difference has the volume of the shape that it takes from, an
    /// upper bound.
    pub fn volume(&self) -> f64 {
        match *self {
            Self::Box { min, max } => (max - min).element_product(),
            Self::Sphere { radius, .. } => 4.0 / 3.0 * PI * radius.powi(3),
            Self::Cylinder { radius, height, .. } => PI * radius * radius * height,
            Self::Ellipsoid { semi_axes, .. } => 4.0 / 3.0 * PI * semi_axes.element_product(),
            Self::Torus { radius, tube_radius, .. } => 2.0 * PI * PI * radius * tube_radius * tube_radius,
            Self::Shell { radius, thickness, half_angle, .. } => {
                let solid_angle = 2.0 * PI * (1.0 - half_angle.to_radians().cos());
                solid_angle / 3.0 * (radius.powi(3) - (radius - thickness).powi(3))
            }
            Self::Mesh { ref surface, .. } => surface.as_ref().map_or(0.0, Surface::volume),
            Self::Difference { ref from, .. } => from.volume(),
            Self::Points { .. } => 0.0,
        }
    }

    /// The middle about which the shape turns [m].
    pub fn middle(&self) -> DVec3 {
        self.frame().middle
    }

    fn frame(&self) -> Frame {
        match *self {
            Self::Box { min, max } => {
                Frame { middle: 0.5 * (min + max), basis: DMat3::IDENTITY, extent: max - min }
            }
            Self::Sphere { center, radius } | Self::Shell { center, radius, .. } => Frame {
                middle: center,
                basis: self.axis().map_or(DMat3::IDENTITY, along),
                extent: DVec3::splat(2.0 * radius),
            },
            Self::Ellipsoid { center, semi_axes } => {
                Frame { middle: center, basis: DMat3::IDENTITY, extent: 2.0 * semi_axes }
            }
            Self::Cylinder { center, axis, radius, height } => {
                let extent = DVec3::new(2.0 * radius, 2.0 * radius, height);
                Frame { middle: center, basis: along(axis), extent }
            }
            Self::Torus { center, axis, radius, tube_radius } => {
                let across = 2.0 * (radius + tube_radius);
                let extent = DVec3::new(across, across, 2.0 * tube_radius);
                Frame { middle: center, basis: along(axis), extent }
            }
            Self::Mesh { ref surface, .. } => {
                let (low, high) = surface.as_ref().map_or((DVec3::ZERO, DVec3::ZERO), Surface::bounds);
                Frame { middle: 0.5 * (low + high), basis: DMat3::IDENTITY, extent: high - low }
            }
            Self::Difference { ref from, .. } => from.frame(),
            Self::Points { ref positions } => {
                let middle = positions.iter().sum::<DVec3>() / positions.len().max(1) as f64;
                Frame { middle, basis: DMat3::IDENTITY, extent: DVec3::ZERO }
            }
        }
    }

    /// The axis along which the shape's own frame has z, if it has one.
    fn axis(&self) -> Option<DVec3> {
        match *self {
            Self::Cylinder { axis, .. } | Self::Torus { axis, .. } | Self::Shell { axis, .. } => Some(axis),
            _ => None,
        }
    }

    /// True if a point, given in the shape's own frame, is in the shape; not for meshes and differences.
    fn contains_local(&self, local: DVec3, extent: DVec3) -> bool {
        // Rounding must not lose what lies on a face.
        let within_height = || local.z.abs() <= 0.5 * extent.z * (1.0 + 1e-12);
        match *self {
            Self::Box { .. } => local.abs().cmple(0.5 * extent * (1.0 + 1e-12)).all(),
            Self::Sphere { radius, .. } => local.length_squared() <= radius * radius,
            Self::Cylinder { radius, .. } => {
                local.truncate().length_squared() <= radius * radius && within_height()
            }
            Self::Ellipsoid { semi_axes, .. } => (local / semi_axes).length_squared() <= 1.0,
            Self::Torus { radius, tube_radius, .. } => {
                (local.truncate().length() - radius).hypot(local.z) <= tube_radius
            }
            Self::Shell { radius, thickness, half_angle, .. } => {
                let distance = local.length();
                let in_wall = distance <= radius && distance >= radius - thickness;
                in_wall && local.z >= distance * half_angle.to_radians().cos()
            }
            Self::Mesh { .. } | Self::Difference { .. } | Self::Points { .. } => false,
        }
    }
}

/// A frame with z along `axis`. An axis along x, y or z gives one without rounding. Zero axes are refused
/// before.
fn along(axis: DVec3) -> DMat3 {
    let z = axis.normalize_or(DVec3::Z);
    let (x, y) = z.any_orthonormal_pair();
    DMat3::from_cols(x, y, z)
}

impl MovingShape {
    /// Points that fill the body, as [`Shape::sample`] with the rotation applied.
    ///
    /// # Errors
    /// Every fault of the body, with its key.
    pub fn sample(&self, spacing: f64) -> Result<Vec<DVec3>, Vec<ShapeError>> {
        self.sample_layers(spacing, Layers::ALL)
    }

    /// The points of [`Self::sample`] in some of the layers. There may be none.
    ///
    /// # Errors
    /// As [`Self::sample`]. Parts that hold no cell are no fault.
    pub fn sample_layers(&self, spacing: f64, layers: Layers) -> Result<Vec<DVec3>, Vec<ShapeError>> {
        let mut points = self.with_own_faults(self.shape.sample_layers(spacing, layers))?;
        if let Some((turn, middle)) = self.turn() {
            points.iter_mut().for_each(|point| *point = middle + turn * (*point - middle));
        }
        Ok(points)
    }

    /// Cells that fill the body, as [`Shape::cells`] with the rotation applied.
    ///
    /// # Errors
    /// Every fault of the body, with its key.
    pub fn cells(&self, spacing: f64) -> Result<CellSample, Vec<ShapeError>> {
        let mut sample = self.with_own_faults(self.shape.cells(spacing))?;
        if let Some((turn, _)) = self.turn() {
            sample.frame.basis = turn * sample.frame.basis;
        }
        Ok(sample)
    }

    /// Places a point in the box around the shape, in its own frame, at these parts of its edges (0 to 1):
    /// for random points. There is none if the point is outside of the shape. With `flat` it is moved along z
    /// to the height of the middle.
    pub fn point_in(&self, parts: DVec3, flat: bool) -> Option<DVec3> {
        let frame = self.shape.frame();
        let point = frame.middle + frame.basis * ((parts - 0.5) * frame.extent);
        let turned = self.turn().map_or(point, |(turn, middle)| middle + turn * (point - middle));
        let placed = if flat { turned.with_z(frame.middle.z) } else { turned };
        self.shape.contains(point).then_some(placed)
    }

    /// Velocity of the body at a point [m/s].
    pub fn velocity_at(&self, point: DVec3) -> DVec3 {
        self.velocity + self.angular_velocity.cross(point - self.shape.middle())
    }

    /// The rotation, and the middle that it leaves where it is.
    fn turn(&self) -> Option<(DMat3, DVec3)> {
        let Rotation { axis, degrees } = self.rotation?;
        let turn = DMat3::from_axis_angle(axis.normalize_or(DVec3::Z), degrees.to_radians());
        Some((turn, self.shape.middle()))
    }

    fn with_own_faults<T>(&self, sampled: Result<T, Vec<ShapeError>>) -> Result<T, Vec<ShapeError>> {
        let own = self.own_faults();
        match sampled {
            Ok(sample) if own.is_empty() => Ok(sample),
            Ok(_) => Err(own),
            Err(mut faults) => {
                faults.extend(own);
                Err(faults)
            }
        }
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

    fn shell(thickness: f64, half_angle: f64) -> Shape {
        Shape::Shell { center: DVec3::Y, radius: 1.0, thickness, axis: DVec3::NEG_Z, half_angle }
    }

    #[test]
    fn round_shapes_hold_their_volume() {
        let (center, axis) = (DVec3::X, DVec3::new(1.0, 2.0, -0.5));
        let shapes = [
            ball(1.0),
            Shape::Cylinder { center, axis, radius: 0.8, height: 1.7 },
            Shape::Ellipsoid { center, semi_axes: DVec3::new(1.0, 0.7, 0.6) },
            Shape::Torus { center, axis, radius: 1.0, tube_radius: 0.45 },
            shell(0.4, 90.0),
            shell(0.3, 180.0),
            shell(1.0, 60.0),
        ];
        for shape in shapes {
            let points = shape.sample(0.05).expect("a good shape");
            let ratio = points.len() as f64 * 0.05f64.powi(3) / shape.volume();
            assert!((ratio - 1.0).abs() < 0.015, "{shape:?}: {ratio}");
            assert!(points.iter().all(|&point| shape.contains(point)), "{shape:?}");
        }
        let points = ball(0.5).sample(0.1).expect("a good ball");
        assert!(points.iter().all(|p| p.distance(DVec3::new(0.3, -2.0, 1.0)) <= 0.5 + 1e-12));
    }

    #[test]
    fn parts_of_a_shape_are_the_whole() {
        let hole = Shape::Sphere { center: DVec3::new(0.3, -2.0, 1.4), radius: 0.3 };
        let pierced = Shape::Difference { from: Box::new(ball(0.5)), subtract: vec![hole] };
        let points = Shape::Points { positions: vec![DVec3::ZERO, DVec3::X, DVec3::Y] };
        for shape in [ball(1.0), pierced, points] {
            let whole = shape.sample(0.1).expect("a good shape");
            for parts in [1, 2, 3, 7, 40] {
                let part = |part| shape.sample_layers(0.1, Layers { part, parts }).expect("a good shape");
                assert_eq!((0..parts).flat_map(part).collect::<Vec<_>>(), whole);
            }
        }
    }

    #[test]
    fn shapes_are_where_they_should_be() {
        let bowl = shell(0.1, 90.0);
        assert!(bowl.contains(DVec3::new(0.0, 1.0, -0.95)) && !bowl.contains(DVec3::new(0.0, 1.0, 0.95)));
        assert!(!bowl.contains(DVec3::new(0.0, 1.0, -0.85)));
        let ring = Shape::Torus { center: DVec3::ZERO, axis: DVec3::X, radius: 1.0, tube_radius: 0.2 };
        assert!(ring.contains(DVec3::new(0.15, 0.0, 1.0)) && !ring.contains(DVec3::ZERO));
        let block = Shape::Box { min: DVec3::ONE, max: DVec3::splat(2.0) };
        assert!(block.contains(DVec3::ONE) && block.contains(DVec3::splat(2.0)));
        assert!(!block.contains(DVec3::new(1.5, 1.5, 2.001)));
    }

    #[test]
    fn corners_of_cells_surround_their_centre() {
        let body = MovingShape {
            shape: Shape::Cylinder { center: DVec3::ONE, axis: DVec3::ONE, radius: 0.3, height: 1.0 },
            rotation: Some(Rotation { axis: DVec3::Y, degrees: 20.0 }),
            velocity: DVec3::ZERO,
            angular_velocity: DVec3::ZERO,
        };
        let (cells, points) = (body.cells(0.1).expect("cells"), body.sample(0.1).expect("points"));
        for (cell, point) in cells.cells.iter().zip(points) {
            let low = DVec3::from(cell.map(f64::from));
            let middle = 0.5 * (cells.point(low) + cells.point(low + 1.0));
            assert!(middle.distance(point) < 1e-12);
            assert!((cells.point(low).distance(point) - 0.1 * 0.75f64.sqrt()).abs() < 1e-12);
        }
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
        let body = MovingShape { shape, rotation, velocity: DVec3::X, angular_velocity: DVec3::Z };
        let points = body.sample(0.5).expect("a good body");
        let high = points.iter().fold(DVec3::MIN, |high, &p| high.max(p));
        assert!(high.distance(DVec3::new(1.25, 1.25, 0.75)) < 1e-12, "{high}");
        assert_eq!(body.velocity_at(DVec3::new(1.0, 2.5, 0.0)), DVec3::new(-1.0, 0.0, 0.0));
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
        assert_eq!(keys(shell(2.0, 0.0), 0.1), ["thickness", "half_angle"]);
        let ring = Shape::Torus { center: DVec3::NAN, axis: DVec3::Z, radius: 0.1, tube_radius: 0.1 };
        assert_eq!(keys(ring, 0.1), ["center", "tube_radius"]);
        let flat = Shape::Ellipsoid { center: DVec3::ZERO, semi_axes: DVec3::X };
        assert_eq!(keys(flat, 0.1), ["semi_axes"]);
        let mesh = Shape::Mesh { file: "a.obj".into(), scale: 0.0, translation: DVec3::ZERO, surface: None };
        assert_eq!(keys(mesh, 0.1), ["scale", "file"]);
        let error = ShapeError::new("radius", "must be positive: write e.g. radius = 0.1");
        assert_eq!(error.path("shapes[0]"), "shapes[0].radius");
    }
}
