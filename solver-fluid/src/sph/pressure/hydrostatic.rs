//! A start at hydrostatic pressure.
//!
//! A lattice at rest density has no pressure. A pool that starts as such a lattice sinks under its weight and
//! swings for many periods about the state in which it would rest. In this state the pressure at the depth d
//! is p = rho0 g d. Here d is the depth in the lattice at rest density, since the mass above a layer stays
//! the same. So a layer of thickness h gets the thickness h rho0 / rho(p). Each column of particles along
//! gravity keeps its foot, and its layers move nearer to each other.
//!
//! Shapes that touch are one pool with one surface, half a spacing above their highest particle.

use std::collections::BTreeMap;

use amalgam_particles::{DVec3, shapes::MovingShape};
use amalgam_solver_kit::SectionError;

use super::equation_of_state::EquationOfState;

/// Coordinates that differ by less than this [spacings] count as equal.
const SAME: f64 = 1e-3;
/// Positions across gravity are rounded to multiples of spacing / [`PARTS`]. Particles of one column then
/// have equal rounded positions.
const PARTS: f64 = 16.0;

/// Quantities that decide how far its weight presses a fluid together.
#[derive(Clone, Copy, Debug)]
pub(in crate::sph) struct Weight {
    pub(in crate::sph) spacing: f64,
    pub(in crate::sph) gravity: DVec3,
    pub(in crate::sph) state: EquationOfState,
    /// Corners of the box of walls [m], infinite where there is no wall.
    pub(in crate::sph) walls: Option<(DVec3, DVec3)>,
}

/// The direction of gravity along an axis of the domain.
#[derive(Clone, Copy)]
struct Down {
    axis: usize,
    /// 1 if the coordinate along the axis grows upwards, else -1.
    up: f64,
    /// Acceleration [m/s^2].
    gravity: f64,
}

impl Down {
    /// The direction of a gravity [m/s^2]; none if it is zero or not along an axis.
    fn of(gravity: DVec3) -> Option<Self> {
        let axis = gravity.abs().max_position();
        let along = gravity[axis];
        let alone = gravity.abs().element_sum() == along.abs();
        (alone && along != 0.0).then(|| Self { axis, up: -along.signum(), gravity: along.abs() })
    }

    fn height(&self, point: DVec3) -> f64 {
        self.up * point[self.axis]
    }
}

/// Presses the points of bodies at rest together until their pressure carries their weight. Without a `wish`
/// this happens to pools that walls hold on all sides. With the wish `true` it happens to all bodies at rest.
///
/// # Errors
/// The wish is `true`, but gravity is along no axis or no pool is at rest.
pub(in crate::sph) fn press(
    (shapes, bodies): (&[MovingShape], &mut [Vec<DVec3>]),
    wish: Option<bool>,
    weight: &Weight,
) -> Result<(), SectionError> {
    let refused = |message: &str| match wish {
        Some(true) => Err(SectionError::new("hydrostatic", message)),
        _ => Ok(()),
    };
    if wish == Some(false) {
        return Ok(());
    }
    let Some(down) = Down::of(weight.gravity) else {
        return refused("needs gravity along one axis of the domain: leave it out");
    };
    let rests = |k: &usize| shapes[*k].velocity == DVec3::ZERO && shapes[*k].angular_velocity == DVec3::ZERO;
    let mut pools = pools(bodies, weight.spacing);
    pools.retain(|pool| pool.iter().all(rests));
    if pools.is_empty() {
        return refused("needs a shape at rest, which touches none that moves: leave it out");
    }
    for pool in pools {
        let columns = columns(bodies, &pool, &down, weight.spacing);
        if wish == Some(true) || is_held(&columns, bodies, &down, weight) {
            press_pool(&columns, bodies, &down, weight);
        }
    }
    Ok(())
}

/// A particle: the number of its body, and its index among the body's points.
type Place = (usize, usize);

/// Pools: sets of bodies whose bounding boxes touch each other.
fn pools(bodies: &[Vec<DVec3>], spacing: f64) -> Vec<Vec<usize>> {
    let around = |points: &Vec<DVec3>| {
        let fold = |pick: fn(DVec3, DVec3) -> DVec3, start| points.iter().copied().fold(start, pick);
        let (low, high) = (fold(DVec3::min, DVec3::INFINITY), fold(DVec3::max, DVec3::NEG_INFINITY));
        (low - 0.5 * spacing, high + 0.5 * spacing)
    };
    let boxes: Vec<(DVec3, DVec3)> = bodies.iter().map(around).collect();
    let touch = |&a: &usize, b: usize| {
        let apart = (boxes[a].0 - boxes[b].1).max(boxes[b].0 - boxes[a].1);
        apart.max_element() <= SAME * spacing
    };
    let mut pools: Vec<Vec<usize>> = Vec::new();
    for body in 0..bodies.len() {
        let (joined, others) =
            pools.into_iter().partition(|pool| pool.iter().any(|other| touch(other, body)));
        let joined: Vec<Vec<usize>> = joined;
        pools = others;
        pools.push(joined.into_iter().flatten().chain([body]).collect());
    }
    pools
}

/// The columns of a pool's particles along gravity, each from its foot upwards.
fn columns(bodies: &[Vec<DVec3>], pool: &[usize], down: &Down, spacing: f64) -> Vec<Vec<Place>> {
    let mut columns: BTreeMap<[i64; 2], Vec<Place>> = BTreeMap::new();
    for &body in pool {
        for (place, point) in bodies[body].iter().enumerate() {
            let across = [1, 2].map(|k| point[(down.axis + k) % 3]);
            let key = across.map(|x| (x / spacing * PARTS).round() as i64);
            columns.entry(key).or_default().push((body, place));
        }
    }
    let mut columns: Vec<Vec<Place>> = columns.into_values().collect();
    let height = |&(body, place): &Place| down.height(bodies[body][place]);
    columns.iter_mut().for_each(|column| column.sort_by(|a, b| height(a).total_cmp(&height(b))));
    columns
}

/// True if walls hold the fluid on all sides and below, and its surface is level, so that nothing will move.
fn is_held(columns: &[Vec<Place>], bodies: &[Vec<DVec3>], down: &Down, weight: &Weight) -> bool {
    let Some((low, high)) = weight.walls else { return false };
    let height = |&(body, place): &Place| down.height(bodies[body][place]);
    let ends = |column: &Vec<Place>| (height(&column[0]), height(&column[column.len() - 1]));
    let Some(first) = columns.first() else { return false };
    let (foot, top) = ends(first);
    let same = |a: f64, b: f64| (a - b).abs() <= SAME * weight.spacing;
    let is_level = columns.iter().all(|column| {
        let (own_foot, own_top) = ends(column);
        column.len() == first.len() && same(own_foot, foot) && same(own_top, top)
    });
    let floor = if down.up > 0.0 { low[down.axis] } else { -high[down.axis] };
    let across = [1, 2].map(|k| (down.axis + k) % 3);
    // Columns fill the floor, each a spacing wide. Layers between walls may be spread a little, hence 0.9.
    let area: f64 = across.iter().map(|&axis| (high - low)[axis]).product();
    let filled = columns.len() as f64 * weight.spacing * weight.spacing;
    is_level && foot - floor <= weight.spacing && filled >= 0.9 * area
}

fn press_pool(columns: &[Vec<Place>], bodies: &mut [Vec<DVec3>], down: &Down, weight: &Weight) {
    let spacing = weight.spacing;
    let height = |bodies: &[Vec<DVec3>], (body, place): Place| down.height(bodies[body][place]);
    let tops = columns.iter().filter_map(|column| column.last());
    let highest = tops.map(|&top| height(bodies, top)).fold(f64::NEG_INFINITY, f64::max);
    let surface = highest + 0.5 * spacing;
    // rho0 / rho(p) at a height, which is a height before the layers move.
    let thinner = |height: f64| {
        let depth = (surface - height).max(0.0);
        let pressure = weight.state.rest_density * down.gravity * depth;
        1.0 / weight.state.compression(pressure)
    };
    for column in columns {
        // The heights of the particle below, before and after it moved.
        let mut below: Option<[f64; 2]> = None;
        for &(body, place) in column {
            let before = height(bodies, (body, place));
            // A particle above a gap does not rest on the particle below the gap.
            let stands_on = below.filter(|[below, _]| before - below <= 1.5 * spacing);
            let after = match stands_on {
                Some([low, moved]) => moved + 0.5 * (thinner(low) + thinner(before)) * (before - low),
                None => before - 0.5 * spacing * (1.0 - thinner(before)),
            };
            below = Some([before, after]);
            bodies[body][place][down.axis] = down.up * after;
        }
    }
}

#[cfg(test)]
mod tests {
    use amalgam_particles::shapes::Shape;
    use glam::Vec3Swizzles as _;

    use super::super::equation_of_state::Law;
    use super::*;

    const SPACING: f64 = 0.05;

    fn weight() -> Weight {
        Weight {
            spacing: SPACING,
            gravity: DVec3::new(0.0, 0.0, -10.0),
            state: EquationOfState { law: Law::Tait, rest_density: 1000.0, sound_speed: 20.0 },
            walls: Some((DVec3::ZERO, DVec3::new(1.0, 0.5, 4.0))),
        }
    }

    fn body(min: [f64; 3], max: [f64; 3]) -> MovingShape {
        let shape = Shape::Box { min: DVec3::from_array(min), max: DVec3::from_array(max) };
        MovingShape { shape, rotation: None, velocity: DVec3::ZERO, angular_velocity: DVec3::ZERO }
    }

    /// The points of bodies before and after they are pressed.
    fn pressed(
        shapes: &[MovingShape],
        wish: Option<bool>,
        weight: &Weight,
    ) -> Result<[Vec<Vec<DVec3>>; 2], SectionError> {
        let before: Vec<Vec<DVec3>> =
            shapes.iter().map(|body| body.sample(SPACING).expect("a good shape")).collect();
        let mut after = before.clone();
        press((shapes, &mut after), wish, weight).map(|()| [before, after])
    }

    #[test]
    fn each_layer_carries_what_is_above_it() {
        let pool = [body([0.0; 3], [1.0, 0.5, 3.0])];
        let [before, after] = pressed(&pool, None, &weight()).expect("a pool");
        let first = before[0][0];
        let column: Vec<usize> = (0..before[0].len()).filter(|&k| before[0][k].xy() == first.xy()).collect();
        assert_eq!(column.len(), 60);
        for pair in column.windows(2) {
            let [low, high] = [after[0][pair[0]], after[0][pair[1]]];
            let depth = 3.0 - 0.5 * (before[0][pair[0]].z + before[0][pair[1]].z);
            let pressure = weight().state.pressure(SPACING / (high.z - low.z));
            assert!((pressure - 1e4 * depth).abs() < 30.0, "{pressure} Pa at {depth} m");
            assert_eq!(low.xy(), first.xy());
        }
    }

    #[test]
    fn without_a_wish_only_what_walls_hold_is_pressed() {
        let is_pressed = |shapes: &[MovingShape], wish, weight: &Weight| {
            let [before, after] = pressed(shapes, wish, weight).expect("no wish, or one that holds");
            before != after
        };
        let (pool, column) = (body([0.0; 3], [1.0, 0.5, 1.0]), body([0.0; 3], [0.4, 0.5, 1.0]));
        let drop = body([0.4, 0.2, 2.0], [0.6, 0.4, 2.2]);
        assert!(is_pressed(std::slice::from_ref(&pool), None, &weight()));
        assert!(!is_pressed(std::slice::from_ref(&pool), Some(false), &weight()));
        assert!(!is_pressed(std::slice::from_ref(&column), None, &weight()));
        assert!(is_pressed(std::slice::from_ref(&column), Some(true), &weight()));
        // Two halves are one pool, and a step beside it is none.
        let (left, right) = (body([0.0; 3], [0.4, 0.5, 1.0]), body([0.4, 0.0, 0.0], [1.0, 0.5, 1.0]));
        assert!(is_pressed(&[left.clone(), right], None, &weight()));
        assert!(!is_pressed(&[left, body([0.4, 0.0, 0.0], [1.0, 0.5, 0.5])], None, &weight()));
        // A drop above a pool changes nothing.
        let [before, after] = pressed(&[pool.clone(), drop], None, &weight()).expect("a pool");
        assert!(before[0] != after[0] && before[1] == after[1]);
        let moving = MovingShape { velocity: DVec3::X, ..pool.clone() };
        assert!(!is_pressed(std::slice::from_ref(&moving), None, &weight()));
        let open = Weight { walls: None, ..weight() };
        assert!(!is_pressed(std::slice::from_ref(&pool), None, &open));
        let tilted = Weight { gravity: DVec3::new(1.0, 0.0, -9.0), ..weight() };
        assert!(!is_pressed(std::slice::from_ref(&pool), None, &tilted));
        for (shapes, weight) in [([pool], tilted), ([moving], weight())] {
            let fault = pressed(&shapes, Some(true), &weight).expect_err("it cannot be");
            assert_eq!(fault.key, "hydrostatic");
        }
    }
}
