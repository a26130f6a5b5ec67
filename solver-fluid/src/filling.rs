//! Shapes filled with a fluid's particles.
//!
//! A lattice of the particles' spacing is at rest density beside a wall only if its first layer is half a
//! spacing from the wall. A shape is *held* on a side by a wall of the domain or by the face of another
//! shape. The particles of a held shape start half a spacing from this side. Between two sides that hold it,
//! a whole number of layers is spread evenly. The spacing along other axes makes up for the stretch, so that
//! the volume per particle stays `spacing^3`.
//!
//! Each of the ranks that share a fluid fills its part of the layers of every shape.

use amalgam_particles::shapes::{Layers, MovingShape, POINTS_MAX, Shape, ShapeError};
use amalgam_particles::{DVec3, ParticleId};
use amalgam_solver_kit::{Numbered, Ranks, SectionError, SolverError, agreed, numbered};

/// Distance [spacings] up to which faces touch.
const TOUCH: f64 = 1e-6;
/// Relative deviation from a shape's volume from which on a warning tells it.
const TOLD: f64 = 0.02;
/// Largest density over rest density of layers between two sides that hold them.
const PRESSED: f64 = 1.01;

/// The box around a shape whose lattice can be moved, along the domain's axes.
struct Bounds {
    low: DVec3,
    high: DVec3,
    /// True for axes along which the shape ends in flat faces.
    flat: [bool; 3],
}

impl Bounds {
    /// The box around the outline of a shape with flat or round sides along the domain's axes. There is none
    /// for other shapes.
    fn of(body: &MovingShape) -> Option<Self> {
        if body.rotation.is_some() {
            return None;
        }
        let around =
            |center: DVec3, half: DVec3, flat| Some(Self { low: center - half, high: center + half, flat });
        match *body.shape.outline() {
            Shape::Box { min, max } => Some(Self { low: min, high: max, flat: [true; 3] }),
            Shape::Sphere { center, radius } => around(center, DVec3::splat(radius), [false; 3]),
            Shape::Ellipsoid { center, semi_axes } => around(center, semi_axes, [false; 3]),
            Shape::Cylinder { center, axis, radius, height } => {
                let along = axis.normalize_or_zero().abs().to_array();
                let flat = along.map(|part| part == 1.0);
                let half = DVec3::from_array(flat.map(|flat| if flat { 0.5 * height } else { radius }));
                flat.contains(&true).then_some(())?;
                around(center, half, flat)
            }
            _ => None,
        }
    }

    /// True if a flat face of `other` lies on the face of `self` at `side` (0 low, 1 high) of `axis`.
    fn meets(&self, other: &Self, axis: usize, side: usize, touch: f64) -> bool {
        let gap = if side == 0 { self.low - other.high } else { other.low - self.high };
        let beside = |a: usize| self.low[a] < other.high[a] - touch && other.low[a] < self.high[a] - touch;
        other.flat[axis] && gap[axis].abs() <= touch && (0..3).all(|a| a == axis || beside(a))
    }
}

/// True for sides of a shape that are held, low and high along each axis.
type Held = [[bool; 2]; 3];

/// The points of a shape on this rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FilledShape {
    /// Id of the first of them. The others follow.
    pub(crate) first_id: u64,
    /// Positions [m].
    pub(crate) points: Vec<DVec3>,
    /// The number of points on all ranks.
    pub(crate) whole: u64,
}

impl FilledShape {
    /// Ids and points [m].
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ParticleId, DVec3)> + '_ {
        (self.first_id..).map(ParticleId).zip(self.points.iter().copied())
    }
}

/// The number of points of bodies, on all ranks.
pub(crate) fn total(bodies: &[FilledShape]) -> u64 {
    bodies.iter().map(|body| body.whole).sum()
}

/// Reads the files that shapes name, and returns the points of every body. Ids count the points of all bodies in
/// turn. Faults are the same on all ranks. Collective.
///
/// `walls` are the corners of the domain [m], infinite where a face does not hold the fluid. More than
/// [`POINTS_MAX`] points per rank are a fault.
pub(crate) fn fill(
    ranks: &Ranks,
    shapes: &mut [MovingShape],
    spacing: f64,
    walls: Option<(DVec3, DVec3)>,
    faults: &mut Vec<SectionError>,
) -> Vec<FilledShape> {
    if shapes.is_empty() {
        let message = "must hold at least one shape: write e.g. [[shapes]] with type = \"box\"";
        faults.push(SectionError::new("shapes", message));
    }
    let mut read = Ok(());
    for (k, body) in shapes.iter_mut().enumerate() {
        if let Err(error) = amalgam_meshes::read_into(&mut body.shape) {
            read = Err(SolverError(error.to_string()));
            faults.push(SectionError::new(format!("shapes[{k}].{}", error.key), error.to_string()));
        }
    }
    // Files may differ between the machines of ranks.
    if !ranks.is_alone()
        && let Err(SolverError(message)) = agreed(ranks, read)
    {
        if faults.is_empty() {
            faults.push(SectionError::new("shapes", format!("on the machine of another rank: {message}")));
        }
        return Vec::new();
    }
    // A bad spacing is reported once, under its own key.
    if !(spacing > 0.0 && spacing.is_finite()) {
        return Vec::new();
    }
    let bounds: Vec<Option<Bounds>> = shapes.iter().map(Bounds::of).collect();
    let fault =
        |k: usize, error: ShapeError| SectionError::new(error.path(&format!("shapes[{k}]")), error.message);
    let (mut parts, mut wrong) = (Vec::new(), Vec::new());
    for (k, body) in shapes.iter().enumerate() {
        match fill_one(ranks, body, &bounds, k, spacing, walls) {
            Ok(points) => parts.push(points),
            Err(errors) => wrong.extend(errors.into_iter().map(|error| fault(k, error))),
        }
    }
    let counts = Vec::from_iter(parts.iter().map(|points| points.len() as u64));
    let parts = parts.into_iter().zip(numbered(ranks, &counts));
    let bodies: Vec<FilledShape> = parts
        .map(|(points, Numbered { first, whole })| FilledShape { first_id: first, points, whole })
        .collect();
    if wrong.is_empty() {
        // A shape of which no rank has a point says why.
        let empty = (0..bodies.len()).filter(|&k| bodies[k].whole == 0);
        let errors = empty.map(|k| (k, shapes[k].sample(spacing).err().unwrap_or_default()));
        wrong.extend(errors.flat_map(|(k, errors)| errors.into_iter().map(move |error| fault(k, error))));
    }
    faults.extend(wrong);
    let (total, most) = (total(&bodies), POINTS_MAX * ranks.size());
    if total > most as u64 {
        let message = format!("hold {total} particles, more than {most}: write a larger spacing");
        faults.push(SectionError::new("shapes", message));
    }
    bodies
}

/// The points of this rank's part of one body, in the order of [`Shape::sample`]. Collective.
fn fill_one(
    ranks: &Ranks,
    body: &MovingShape,
    bounds: &[Option<Bounds>],
    own: usize,
    spacing: f64,
    walls: Option<(DVec3, DVec3)>,
) -> Result<Vec<DVec3>, Vec<ShapeError>> {
    let part = Layers { part: ranks.rank(), parts: ranks.size() };
    let points = body.sample_layers(spacing, part)?;
    let Some(shape) = &bounds[own] else { return Ok(points) };
    let touch = TOUCH * spacing;
    let held: Held = [0, 1, 2].map(|axis| {
        let wall = walls.map_or([false; 2], |(min, max)| {
            [(shape.low[axis] - min[axis]).abs() <= touch, (shape.high[axis] - max[axis]).abs() <= touch]
        });
        [0, 1].map(|side| {
            let others =
                bounds.iter().enumerate().filter(|&(k, _)| k != own).filter_map(|(_, other)| other.as_ref());
            wall[side] || others.into_iter().any(|other| shape.meets(other, axis, side, touch))
        })
    });
    let layers = (shape.high - shape.low) / spacing;
    let broken = |axis: usize| (layers[axis] - layers[axis].round()).abs() > TOUCH;
    if !(0..3).any(|axis| broken(axis) && held[axis].contains(&true)) {
        return Ok(points);
    }
    let mut points = fitted((ranks, part), body.shape.outline(), shape, &held, spacing)?;
    points.retain(|&point| !body.shape.is_cut_away(point));
    Ok(points)
}

/// Layers along each axis, and the distance between them [m].
fn layers(shape: &Bounds, held: &Held, spacing: f64) -> ([f64; 3], DVec3) {
    let length = shape.high - shape.low;
    let between = |axis: usize| shape.flat[axis] && held[axis] == [true; 2];
    let mut counts = (length / spacing).round().max(DVec3::ONE).to_array();
    let pitch = |counts: &[f64; 3]| {
        DVec3::from_array(
            [0, 1, 2].map(|axis| if between(axis) { length[axis] / counts[axis] } else { spacing }),
        )
    };
    let free: Vec<usize> = (0..3).filter(|&axis| shape.flat[axis] && !between(axis)).collect();
    let density = |pitch: DVec3| (spacing / pitch).element_product();
    if free.is_empty() {
        // No axis can make up for the stretch. Too few layers are better than layers under pressure.
        while density(pitch(&counts)) > PRESSED {
            let most = (0..3)
                .filter(|&axis| between(axis) && counts[axis] > 1.0)
                .max_by(|&a, &b| counts[a].total_cmp(&counts[b]));
            let Some(most) = most else { break };
            counts[most] -= 1.0;
        }
        return (counts, pitch(&counts));
    }
    let mut distance = pitch(&counts);
    let stretch = density(distance).powf(1.0 / free.len() as f64);
    for axis in free {
        distance[axis] = spacing * stretch;
        counts[axis] = (length[axis] / distance[axis]).round().max(1.0);
    }
    (counts, distance)
}

/// Points of a part of an outline that is held on some side and is not a whole number of spacings long.
/// Collective.
fn fitted(
    (ranks, part): (&Ranks, Layers),
    outline: &Shape,
    shape: &Bounds,
    held: &Held,
    spacing: f64,
) -> Result<Vec<DVec3>, Vec<ShapeError>> {
    let (counts, pitch) = layers(shape, held, spacing);
    let whole = spacing * DVec3::from_array(counts);
    // A shape of a whole number of layers, whose points are then moved layer by layer.
    let mut points = match *outline {
        Shape::Box { .. } => Shape::Box { min: DVec3::ZERO, max: whole }.sample_layers(spacing, part)?,
        Shape::Cylinder { center, axis, radius, .. } => {
            let height = (axis.normalize_or_zero().abs() * whole).element_sum();
            Shape::Cylinder { center, axis, radius, height }.sample_layers(spacing, part)?
        }
        _ => outline.sample_layers(spacing, part)?,
    };
    let (first, last) = around(ranks, &points);
    for axis in 0..3 {
        let [low, high] = held[axis];
        if shape.flat[axis] {
            let begin = match (low, high) {
                (true, _) => shape.low[axis] + 0.5 * pitch[axis],
                (false, true) => shape.high[axis] - (counts[axis] - 0.5) * pitch[axis],
                (false, false) => {
                    0.5 * (shape.low[axis] + shape.high[axis] - (counts[axis] - 1.0) * pitch[axis])
                }
            };
            for x in &mut points {
                x[axis] = begin + ((x[axis] - first[axis]) / spacing).round() * pitch[axis];
            }
        } else if low != high {
            let short = if low { first[axis] - shape.low[axis] } else { shape.high[axis] - last[axis] };
            let shift = (0.5 * spacing - short).max(0.0) * if low { 1.0 } else { -1.0 };
            points.iter_mut().for_each(|x| x[axis] += shift);
        }
    }
    Ok(points)
}

/// The corners of the box around the points [m] of all ranks. Collective.
pub(crate) fn around(ranks: &Ranks, points: &[DVec3]) -> (DVec3, DVec3) {
    let low = points.iter().fold(DVec3::INFINITY, |low, &x| low.min(x));
    let high = points.iter().fold(DVec3::NEG_INFINITY, |high, &x| high.max(x));
    let mut ends = [(-low).to_array(), high.to_array()];
    ranks.max(ends.as_flattened_mut());
    (-DVec3::from_array(ends[0]), DVec3::from_array(ends[1]))
}

/// Warnings of boxes whose fluid differs from their volume by more than [`TOLD`].
pub(crate) fn volume_warnings(shapes: &[MovingShape], bodies: &[FilledShape], spacing: f64) -> Vec<String> {
    let warning =
        |(k, (body, filled)): (usize, (&MovingShape, &FilledShape))| {
            let Shape::Box { min, max } = body.shape else { return None };
            let part = filled.whole as f64 * spacing.powi(3) / body.shape.volume() - 1.0;
            let layers = (max - min) / spacing;
            let rule = if part > 0.0 { "more" } else { "less" };
            (part.abs() > TOLD).then(|| {
            format!(
                "shapes[{k}] holds {:.1} % {rule} fluid than its volume: its edges are {:.3} x {:.3} x {:.3} \
                 spacings; write edges of whole spacings",
                100.0 * part.abs(), layers.x, layers.y, layers.z
            )
        })
        };
    shapes.iter().zip(bodies).enumerate().filter_map(warning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_layers_are_said() {
        let body = |z: f64| MovingShape {
            shape: Shape::Box { min: DVec3::ZERO, max: DVec3::new(1.0, 1.0, z) },
            rotation: None,
            velocity: DVec3::ZERO,
            angular_velocity: DVec3::ZERO,
        };
        let mut faults = Vec::new();
        let mut shapes = [body(1.0), body(1.25)];
        let walls = Some((DVec3::ZERO, DVec3::new(1.0, 1.0, 1.25)));
        let bodies = fill(&Ranks::alone(), &mut shapes, 0.1, walls, &mut faults);
        let warnings = volume_warnings(&shapes, &bodies, 0.1);
        assert!(faults.is_empty() && warnings.len() == 1, "{faults:?} {warnings:?}");
        assert!(warnings[0].starts_with("shapes[1] holds 4.0 % less fluid"), "{warnings:?}");
        assert!(warnings[0].contains("12.500 spacings"), "{warnings:?}");
    }
}
