//! A start at hydrostatic pressure.
//!
//! A lattice at rest density has no pressure. A pool that starts as such a lattice sinks under its weight and
//! swings for many periods about the state in which it would rest. In this state the pressure at the depth d
//! is p = rho0 g d. Here d is the depth in the lattice at rest density, since the mass above a layer stays
//! the same. So a layer of thickness h gets the thickness h rho0 / rho(p). Each column of particles along
//! gravity keeps its foot, and its layers move nearer to each other.
//!
//! Shapes that touch are one pool with one surface, half a spacing above their highest particle. Each of the ranks that
//! share the fluid presses some of the columns.

use amalgam_particles::{DVec3, random, shapes::MovingShape};
use amalgam_solver_kit::{Ranks, SectionError};
use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;

use super::equation_of_state::EquationOfState;
use crate::filling::{FilledShape, around};

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
/// Collective.
///
/// # Errors
/// The wish is `true`, but gravity is along no axis or no pool is at rest.
pub(in crate::sph) fn press(
    ranks: &Ranks,
    (shapes, bodies): (&[MovingShape], &mut [FilledShape]),
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
    let mut pools = pools(ranks, bodies, weight.spacing);
    pools.retain(|pool| pool.iter().all(rests));
    if pools.is_empty() {
        return refused("needs a shape at rest, which touches none that moves: leave it out");
    }
    for pool in pools {
        let mut columns = PoolColumns::gather(ranks, bodies, &pool, &down, weight.spacing);
        let heights = columns.heights(ranks);
        if wish == Some(true) || heights.is_some_and(|heights| heights.are_held(&down, weight)) {
            columns.press(heights.map_or(0.0, |heights| heights.top), &down, weight);
            columns.hand_back(ranks, bodies, &pool, &down, weight.spacing);
        }
    }
    Ok(())
}

/// Pools: sets of bodies whose bounding boxes touch each other. Collective.
fn pools(ranks: &Ranks, bodies: &[FilledShape], spacing: f64) -> Vec<Vec<usize>> {
    let around = |body: &FilledShape| {
        let (low, high) = around(ranks, &body.points);
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

/// A particle of a column along gravity.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct InColumn {
    /// The rounded position across gravity.
    column: [i64; 2],
    /// The height [m].
    height: f64,
}

impl InColumn {
    fn of(point: DVec3, down: &Down, spacing: f64) -> Self {
        let across = [1, 2].map(|k| point[(down.axis + k) % 3]);
        Self { column: across.map(|x| (x / spacing * PARTS).round() as i64), height: down.height(point) }
    }

    /// The rank that has the whole column.
    fn rank(&self, ranks: &Ranks) -> usize {
        let [a, b] = self.column.map(i64::cast_unsigned);
        (random::mix(random::mix(a) ^ b) % ranks.size() as u64) as usize
    }
}

/// Whole columns of a pool's particles along gravity. Each column is at one rank.
struct PoolColumns {
    /// The particles in the order in which they came, from one rank after the other.
    particles: Vec<InColumn>,
    /// The number of particles from each rank.
    from: Vec<usize>,
    /// The indices of the particles, column by column, each from its foot upwards.
    order: Vec<u32>,
}

/// Heights of all columns of a pool [m].
#[derive(Clone, Copy)]
struct Heights {
    /// The lowest foot and the highest one.
    feet: [f64; 2],
    /// The highest top, and the lowest one.
    top: f64,
    lowest_top: f64,
    /// The fewest particles in a column, and the most.
    lengths: [f64; 2],
    columns: f64,
}

impl PoolColumns {
    /// The columns that this rank has. Collective.
    fn gather(ranks: &Ranks, bodies: &[FilledShape], pool: &[usize], down: &Down, spacing: f64) -> Self {
        let mut sent = vec![Vec::new(); ranks.size()];
        for &point in pool.iter().flat_map(|&body| &bodies[body].points) {
            let particle = InColumn::of(point, down, spacing);
            sent[particle.rank(ranks)].push(particle);
        }
        let arrived = ranks.all_to_all(sent);
        let from = arrived.iter().map(Vec::len).collect();
        let particles = match <[Vec<InColumn>; 1]>::try_from(arrived) {
            Ok([own]) => own,
            Err(arrived) => arrived.concat(),
        };
        let mut order: Vec<u32> = (0..particles.len() as u32).collect();
        order.par_sort_by(|&a, &b| {
            let (a, b) = (&particles[a as usize], &particles[b as usize]);
            a.column.cmp(&b.column).then(a.height.total_cmp(&b.height))
        });
        Self { particles, from, order }
    }

    fn iter(&self) -> impl Iterator<Item = &[u32]> {
        let column = |i: u32| self.particles[i as usize].column;
        self.order.chunk_by(move |&a, &b| column(a) == column(b))
    }

    /// The heights of the columns of all ranks, if there are any. Collective.
    fn heights(&self, ranks: &Ranks) -> Option<Heights> {
        let height = |i: u32| self.particles[i as usize].height;
        let mut most = [f64::NEG_INFINITY; 6];
        let mut columns = 0;
        for column in self.iter() {
            let (foot, top, length) =
                (height(column[0]), height(column[column.len() - 1]), column.len() as f64);
            for (most, value) in most.iter_mut().zip([-foot, foot, top, -top, -length, length]) {
                *most = most.max(value);
            }
            columns += 1;
        }
        let mut count = [columns];
        ranks.max(&mut most);
        ranks.sum(&mut count);
        let [lowest_foot, foot, top, lowest_top, shortest, longest] = most;
        (count[0] > 0).then_some(Heights {
            feet: [-lowest_foot, foot],
            top,
            lowest_top: -lowest_top,
            lengths: [-shortest, longest],
            columns: count[0] as f64,
        })
    }

    /// Moves the particles nearer to each other, below a surface half a spacing above the `highest` [m].
    fn press(&mut self, highest: f64, down: &Down, weight: &Weight) {
        let spacing = weight.spacing;
        let surface = highest + 0.5 * spacing;
        // rho0 / rho(p) at a height, which is a height before the layers move.
        let thinner = |height: f64| {
            let depth = (surface - height).max(0.0);
            let pressure = weight.state.rest_density * down.gravity * depth;
            1.0 / weight.state.compression(pressure)
        };
        // The particle below: its column, and its heights before and after it moved.
        let mut below: Option<([i64; 2], [f64; 2])> = None;
        for &i in &self.order {
            let InColumn { column, height: before } = self.particles[i as usize];
            // A particle above a gap does not rest on the particle below the gap.
            let stands_on = below.filter(|(of, [below, _])| *of == column && before - below <= 1.5 * spacing);
            let after = match stands_on {
                Some((_, [low, moved])) => moved + 0.5 * (thinner(low) + thinner(before)) * (before - low),
                None => before - 0.5 * spacing * (1.0 - thinner(before)),
            };
            below = Some((column, [before, after]));
            self.particles[i as usize].height = after;
        }
    }

    /// Gives the points of the pool's bodies on all ranks their heights. Collective.
    fn hand_back(self, ranks: &Ranks, bodies: &mut [FilledShape], pool: &[usize], down: &Down, spacing: f64) {
        let mut heights = self.particles.iter().map(|particle| particle.height);
        let sent = self.from.iter().map(|&count| heights.by_ref().take(count).collect()).collect();
        let mut arrived: Vec<_> = ranks.all_to_all::<f64>(sent).into_iter().map(Vec::into_iter).collect();
        for &body in pool {
            for point in &mut bodies[body].points {
                // In the order in which they were sent.
                let rank = InColumn::of(*point, down, spacing).rank(ranks);
                let height = arrived[rank].next().expect("an answer for each particle that was sent");
                point[down.axis] = down.up * height;
            }
        }
    }
}

impl Heights {
    /// True if walls hold the fluid on all sides and below, and its surface is level, so that nothing will move.
    fn are_held(&self, down: &Down, weight: &Weight) -> bool {
        let Some((low, high)) = weight.walls else { return false };
        let same = |[low, high]: [f64; 2]| high - low <= SAME * weight.spacing;
        let [shortest, longest] = self.lengths;
        let is_level = shortest == longest && same(self.feet) && same([self.lowest_top, self.top]);
        let floor = if down.up > 0.0 { low[down.axis] } else { -high[down.axis] };
        let across = [1, 2].map(|k| (down.axis + k) % 3);
        // PoolColumns fill the floor, each a spacing wide. Layers between walls may be spread a little, hence 0.9.
        let area: f64 = across.iter().map(|&axis| (high - low)[axis]).product();
        let filled = self.columns * weight.spacing * weight.spacing;
        is_level && self.feet[0] - floor <= weight.spacing && filled >= 0.9 * area
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
        let filled = filled(&Ranks::alone(), shapes);
        let mut after = filled.clone();
        press(&Ranks::alone(), (shapes, &mut after), wish, weight)?;
        Ok([filled, after].map(|bodies| bodies.into_iter().map(|body| body.points).collect()))
    }

    fn filled(ranks: &Ranks, shapes: &[MovingShape]) -> Vec<FilledShape> {
        let (mut shapes, mut faults) = (shapes.to_vec(), Vec::new());
        let filled = crate::filling::fill(ranks, &mut shapes, SPACING, None, &mut faults);
        assert!(faults.is_empty(), "{faults:?}");
        filled
    }

    #[test]
    fn ranks_press_what_one_would() {
        let (left, right) = (body([0.0; 3], [0.4, 0.5, 1.0]), body([0.4, 0.0, 0.0], [1.0, 0.5, 1.0]));
        let shapes = [left, right, body([0.4, 0.2, 2.0], [0.6, 0.4, 2.2])];
        let [before, one] = pressed(&shapes, None, &weight()).expect("a pool");
        assert!(before[1] != one[1] && before[2] == one[2]);
        for size in [2, 3, 5] {
            let part = |ranks: Ranks| {
                let mut part = filled(&ranks, &shapes);
                press(&ranks, (&shapes, &mut part), None, &weight()).expect("a pool");
                part
            };
            let parts: Vec<Vec<FilledShape>> = std::thread::scope(|scope| {
                let ranks: Vec<_> =
                    Ranks::threads(size).into_iter().map(|ranks| scope.spawn(|| part(ranks))).collect();
                ranks.into_iter().map(|rank| rank.join().expect("a rank")).collect()
            });
            for (k, one) in one.iter().enumerate() {
                let joined: Vec<DVec3> = parts.iter().flat_map(|part| part[k].points.clone()).collect();
                assert_eq!(joined, *one, "body {k} on {size} ranks");
            }
        }
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
