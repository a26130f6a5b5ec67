//! Passes over all faces, written for vectors.

use amalgam_particles::lanes::{LANES, Lanes, Task};

use super::Parameters;
use super::grid::{Grid, kept};
use super::members::Extra;
use super::pressure::larger;
use super::system::RUN;
use super::transfer::{Cell, Deposit, OPEN, SPRAY, Sides, WALL, pair};

/// Least density of a face, relative to the fluid's own: what is not fluid still has some inertia
/// (`docs/theory/coupling.md`, "Integrating a meta-particle inside a participant").
const DENSITY_MIN: f64 = 1e-3;

/// What velocities at faces come from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forces<'a> {
    pub(super) grid: &'a Grid,
    pub(super) parameters: &'a Parameters,
    pub(super) deposit: &'a Deposit,
    pub(super) cell: &'a [Cell],
    /// Length of the sub-step [s].
    pub(super) dt: f64,
}

/// Velocity before the projection and before the sub-step, whether they are known, and the conductance of a face.
type Brought = (f64, f64, bool, f32);

impl Forces<'_> {
    /// At a face to which members add `extra`, if they touch it.
    pub(super) fn at(&self, axis: usize, face: usize, extra: Option<Extra>) -> Brought {
        let lower = face.checked_sub(self.grid.strides()[axis]);
        let cells = [self.cell[face], lower.map_or(Cell::Wall, |lower| self.cell[lower])];
        self.face(axis, self.deposit.at(axis, face), extra, Sides::new(cells))
    }

    /// What particles find besides their share of the old velocity, before the push [m/s].
    #[inline(always)]
    pub(super) fn given(&self, velocity: f64, old: f64) -> f64 {
        (velocity - self.parameters.flip_share * old).abs()
    }

    /// Conductance of a face in the midst of the fluid.
    pub(super) fn conductance_inside(&self) -> f32 {
        let h = self.grid.cell_size;
        (self.dt / (h * h * self.parameters.rest_density)) as f32
    }

    /// From the sums of a face, and the cells beside it.
    #[inline(always)]
    fn face(&self, axis: usize, sums: [f32; 2], extra: Option<Extra>, sides: Sides) -> Brought {
        let Parameters { rest_density: rest, particle_mass: mass, gravity, .. } = *self.parameters;
        let (h, dt) = (self.grid.cell_size, self.dt);
        let [weight, moved] = sums.map(|sum| mass * f64::from(sum));
        let Extra { mass, momentum, impulse } = extra.unwrap_or_default();
        let total = weight + mass;
        let known = total > 0.0;
        let old = (moved + momentum) / total;
        let mut change = gravity[axis] * dt;
        if extra.is_some() {
            change += impulse / total;
        }
        let velocity = if sides.contain(WALL) { 0.0 } else { old + change };
        let least = DENSITY_MIN * rest;
        let density = total / (h * h * h);
        let density = if density > least { density } else { least };
        let density = if sides.are_fluid() && extra.is_none() { rest } else { density };
        // Not zero, however heavy what is between two unknowns is.
        let conductance = f64::max(dt / (h * h * density), f64::from(f32::MIN_POSITIVE));
        let conductance = if sides.are_pushed() { conductance } else { 0.0 };
        (if known { velocity } else { 0.0 }, if known { old } else { 0.0 }, known, conductance as f32)
    }
}

/// What a block of faces has without members. Those before the column's first `stride` are in the domain's walls. The
/// largest of what is given to particles there.
pub(super) struct Bring<'a> {
    pub(super) forces: &'a Forces<'a>,
    pub(super) axis: usize,
    /// The first face.
    pub(super) begin: usize,
    pub(super) columns: (&'a mut [f64], &'a mut [f64], &'a mut [bool], &'a mut [f32]),
}

impl Task for Bring<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f64 {
        let Self { forces, axis, begin, columns: (velocity, old, known, conductance) } = self;
        let mut largest = [0.0; LANES];
        let stride = forces.grid.strides()[axis];
        for n in (0..velocity.len()).step_by(LANES) {
            let first = begin + n;
            let velocity: &mut [f64; LANES] = sixteen_mut(&mut velocity[n..]);
            let old: &mut [f64; LANES] = sixteen_mut(&mut old[n..]);
            let known: &mut [bool; LANES] = sixteen_mut(&mut known[n..]);
            let conductance: &mut [f32; LANES] = sixteen_mut(&mut conductance[n..]);
            if first < stride {
                (*velocity, *old, *known, *conductance) = Default::default();
                continue;
            }
            let [weight, moved] = forces.deposit.sixteen(axis, first);
            let (own, lower) = (sixteen(&forces.cell[first..]), sixteen(&forces.cell[first - stride..]));
            for l in 0..LANES {
                (velocity[l], old[l], known[l], conductance[l]) =
                    forces.face(axis, [weight[l], moved[l]], None, Sides::new([own[l], lower[l]]));
            }
            for l in 0..LANES {
                largest[l] = larger(largest[l], forces.given(velocity[l], old[l]));
            }
        }
        largest.into_iter().fold(0.0, larger)
    }
}

/// The coefficients of the pressure's system for a block of cells: of their lower faces, and to air.
pub(super) struct Conduct<'a> {
    /// The first cell.
    pub(super) begin: usize,
    /// From a cell to the next one along each axis.
    pub(super) strides: [usize; 3],
    /// Of all cells, and of all faces of each axis.
    pub(super) cell: &'a [Cell],
    pub(super) conductance: [&'a [f32]; 3],
    /// Which runs of the block's cells have changed.
    pub(super) changed: &'a [bool],
    pub(super) face: [&'a mut [f32]; 3],
    pub(super) ground: &'a mut [f32],
}

impl Task for Conduct<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { begin, strides, cell, conductance, changed, face, ground } = self;
        for n in (0..ground.len()).step_by(LANES).filter(|n| changed[n / RUN]) {
            let first = begin + n;
            let mut to_air = [0.0; LANES];
            // Before and behind that there are walls only.
            let inside = first >= strides[2] && first + strides[2] + LANES <= cell.len();
            for axis in 0..3 {
                let face: &mut [f32; LANES] = sixteen_mut(&mut face[axis][n..]);
                if !inside {
                    *face = [0.0; LANES];
                    continue;
                }
                let (below, beyond) = (first - strides[axis], first + strides[axis]);
                let (own, lower, upper) =
                    (sixteen(&cell[first..]), sixteen(&cell[below..]), sixteen(&cell[beyond..]));
                let (to_lower, to_upper) =
                    (sixteen(&conductance[axis][first..]), sixteen(&conductance[axis][beyond..]));
                for l in 0..LANES {
                    let [own, lower, upper] = [own[l], lower[l], upper[l]].map(is_open);
                    face[l] = kept(to_lower[l], own & lower);
                    // What is pushed through on the way to a cell that is not open goes into air.
                    to_air[l] += kept(to_lower[l], own & !lower);
                    to_air[l] += kept(to_upper[l], own & !upper);
                }
            }
            *sixteen_mut(&mut ground[n..]) = to_air;
        }
    }
}

/// What the pressure takes from the velocity of a face, from that of the cell above it and of the one below [m/s].
#[inline(always)]
pub(super) fn pushed(conductance: f64, cell_size: f64, [upper, lower]: [f64; 2]) -> f64 {
    conductance * cell_size * (upper - lower)
}

/// The strongest push of the pressure on a block of faces [m/s].
pub(super) struct Strongest<'a> {
    /// The first face.
    pub(super) begin: usize,
    /// From a cell to the one on the other side.
    pub(super) stride: usize,
    pub(super) cell_size: f64,
    /// Of the block.
    pub(super) conductance: &'a [f32],
    /// Of all cells.
    pub(super) pressure: &'a [f64],
}

impl Task for Strongest<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f64 {
        let Self { begin, stride, cell_size, conductance, pressure } = self;
        let mut largest = [0.0; LANES];
        for n in (0..conductance.len()).step_by(LANES).filter(|n| begin + n >= stride) {
            let first = begin + n;
            let conductance = sixteen(&conductance[n..]);
            let (upper, lower) = (sixteen(&pressure[first..]), sixteen(&pressure[first - stride..]));
            for l in 0..LANES {
                let push = pushed(f64::from(conductance[l]), cell_size, [upper[l], lower[l]]);
                largest[l] = larger(largest[l], push.abs());
            }
        }
        largest.into_iter().fold(0.0, larger)
    }
}

/// Where velocities are known after the push, on a block of faces.
pub(super) struct Know<'a> {
    /// The first face.
    pub(super) begin: usize,
    /// From a cell to the one on the other side.
    pub(super) stride: usize,
    /// Whether particles brought one, of all faces.
    pub(super) brought: &'a [bool],
    pub(super) cell: &'a [Cell],
    pub(super) known: &'a mut [bool],
}

impl Task for Know<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { begin, stride, brought, cell, known } = self;
        for n in (0..known.len()).step_by(LANES) {
            let first = begin + n;
            let known: &mut [bool; LANES] = sixteen_mut(&mut known[n..]);
            if first < stride {
                *known = Default::default();
                continue;
            }
            let brought = sixteen(&brought[first..]);
            let (own, lower) = (sixteen(&cell[first..]), sixteen(&cell[first - stride..]));
            for l in 0..LANES {
                // Between air and a wall there is nothing that others could be carried on from: it would slow down what
                // flies past the wall.
                let sides = Sides::new([own[l], lower[l]]);
                known[l] = sides.contain(OPEN) | (brought[l] & sides.contain(SPRAY));
            }
        }
    }
}

/// Marks the faces of a block that are not known and through which the pressure pushes.
pub(super) struct Unknown<'a> {
    /// The first face.
    pub(super) begin: usize,
    /// From a cell to the one on the other side.
    pub(super) stride: usize,
    pub(super) cell: &'a [Cell],
    pub(super) known: &'a [bool],
    pub(super) marks: &'a mut [u8],
}

impl Task for Unknown<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { begin, stride, cell, known, marks } = self;
        let (own, lower) = (&cell[begin..][..marks.len()], &cell[begin - stride..][..marks.len()]);
        let known = &known[begin..][..marks.len()];
        for l in 0..marks.len() {
            marks[l] = u8::from(!known[l] & Sides::new([own[l], lower[l]]).are_pushed());
        }
    }
}

/// Marks the faces of a block that are not known but beside known ones, with a bit for each of those; not those of walls.
pub(super) struct BesideKnown<'a> {
    /// The first face.
    pub(super) begin: usize,
    /// Where the faces around one stand.
    pub(super) around: [isize; 6],
    /// From a cell to the one on the other side.
    pub(super) stride: usize,
    pub(super) cell: &'a [Cell],
    pub(super) known: &'a [bool],
    /// Zero.
    pub(super) marks: &'a mut [u8],
}

impl Task for BesideKnown<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { begin, around, stride, cell, known, marks } = self;
        for (n, shift) in around.into_iter().enumerate() {
            let near = &known[begin.wrapping_add_signed(shift)..][..marks.len()];
            for l in 0..marks.len() {
                marks[l] |= u8::from(near[l]) << n;
            }
        }
        let (own, lower) = (&cell[begin..][..marks.len()], &cell[begin - stride..][..marks.len()]);
        let known = &known[begin..][..marks.len()];
        for l in 0..marks.len() {
            let is_none = known[l] | Sides::new([own[l], lower[l]]).contain(WALL);
            marks[l] &= u8::from(is_none).wrapping_sub(1);
        }
    }
}

/// What particles find at a block of faces.
pub(super) struct PairUp<'a> {
    /// The first face.
    pub(super) begin: usize,
    /// From a cell to the one on the other side.
    pub(super) stride: usize,
    pub(super) cell_size: f64,
    pub(super) flip_share: f64,
    /// Of all cells and of all faces.
    pub(super) pressure: &'a [f64],
    pub(super) conductance: &'a [f32],
    /// Velocities before the push and before the sub-step, of all faces; pairs of the block.
    pub(super) columns: (&'a [f64], &'a [f64], &'a mut [[f32; 2]]),
}

impl Task for PairUp<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self {
            begin,
            stride,
            cell_size,
            flip_share,
            pressure,
            conductance,
            columns: (before, old, pairs),
        } = self;
        let (chunks, _) = pairs.as_chunks_mut::<LANES>();
        for (n, pairs) in chunks.iter_mut().enumerate().filter(|(n, _)| begin + n * LANES >= stride) {
            let first = begin + n * LANES;
            let (upper, lower) = (sixteen(&pressure[first..]), sixteen(&pressure[first - stride..]));
            let (before, old) = (sixteen(&before[first..]), sixteen(&old[first..]));
            let conductance = sixteen(&conductance[first..]);
            for l in 0..LANES {
                let push = pushed(f64::from(conductance[l]), cell_size, [upper[l], lower[l]]);
                pairs[l] = pair(flip_share, [before[l] - push, old[l]]);
            }
        }
    }
}

/// Whether the pressure in a cell is unknown.
#[inline(always)]
pub(super) fn is_open(cell: Cell) -> bool {
    cell as u8 & OPEN != 0
}

#[inline(always)]
fn sixteen<T>(column: &[T]) -> &[T; LANES] {
    column.first_chunk().expect("columns are whole chunks")
}

#[inline(always)]
fn sixteen_mut<T>(column: &mut [T]) -> &mut [T; LANES] {
    column.first_chunk_mut().expect("columns are whole chunks")
}
