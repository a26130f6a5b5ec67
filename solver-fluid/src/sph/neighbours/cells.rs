//! The order of particles by cell, in which particles that are near each other in space are mostly
//! contiguous in memory.
//!
//! Space is cut into **rows** of cells along x, one support radius wide and high. Rows are cut into **bins**
//! of a quarter of a support radius. Rows are numbered along y, then along z, over the fluid's bounding box
//! with an empty layer around it. A **slot** is the number of a bin in the whole box. So successive particles
//! of a row are near each other. All particles that they may see form one range of the order in each of the
//! nine rows around them:
//!
//! ```text
//!   z                                     one row, cut into bins
//!   ^  +---+---+---+
//!   |  | 6 | 7 | 8 |   nine rows,         . . . . . . . . . . . . . . . .
//!   |  +---+---+---+   seen along x             |<- 4 ->|p p|<- 4 ->|
//!   |  | 3 | 4 | 5 |   particles p in           +-------------------+
//!   |  +---+---+---+   row 4                     bins of the range around p
//!   |  | 0 | 1 | 2 |
//!   |  +---+---+---+                      ---------------------------------> x
//!   +-------------------> y
//! ```
//!
//! The box may be too large for the number of particles, for example if a drop flies away. Bins are then
//! counted modulo a smaller box, and a slot can hold particles of distant cells. [`CellOrder::wraps`] says
//! that cells must be compared.

use std::ops::Range;

use amalgam_particles::lanes::{Lanes, Task, Width};
use amalgam_particles::reduce::CHUNK;
use amalgam_particles::{DVec3, ParticleId, counting_sort};
use glam::{I64Vec3, IVec3};
use rayon::prelude::*;

use crate::cell_order::sort_cells_by_id;
use crate::sph::walls::Walls;

/// Largest number of slots per particle. A full box of fluid needs about 0.5.
const SLOTS_PER_PARTICLE_MAX: i64 = 8;
/// Bins along the edge of a cell.
pub(in crate::sph) const BINS: i32 = 1 << BIN_BITS;
const BIN_BITS: u32 = 2;
/// Number of steps per cell that positions are rounded to. A step is called a fraction.
const FRACTIONS: f64 = (1u64 << FRACTION_BITS) as f64;
const FRACTION_BITS: u32 = 22;
/// A fraction [cells].
pub(in crate::sph) const FRACTION: f32 = (1.0 / FRACTIONS) as f32;
/// Least number of cells along an axis when cells are counted modulo the box: more than a packet sees.
const SIZE_MIN: i64 = 6;
/// Largest distance of a cell from the origin [cells]. Particles farther away count as if they were there.
const CELL_MAX: f64 = (1u64 << 27) as f64;

/// Particles as loops over pairs read them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Points<'a> {
    /// Their ids. If there are none, the order of storage stands for the order of ids.
    pub ids: &'a [ParticleId],
    /// Positions [m].
    pub positions: &'a [DVec3],
    /// Velocities [m/s].
    pub velocities: &'a [DVec3],
}

/// The grid of cells, and the fixed-point positions of particles in it.
#[derive(Clone, Copy, Debug)]
pub(in crate::sph) struct FixedPointGrid {
    inverse_cell_size: f64,
    walls: Option<Walls>,
}

impl FixedPointGrid {
    /// Cells of edge `cell_size` [m].
    pub(in crate::sph) fn new(cell_size: f64, walls: Option<Walls>) -> Self {
        Self { inverse_cell_size: 1.0 / cell_size, walls }
    }

    /// The fixed-point value of a position [m], rounded.
    #[inline(always)]
    pub(in crate::sph) fn locate(&self, position: DVec3) -> FixedPosition {
        self.round(self.inside(position))
    }

    /// The fixed-point value of a position inside of the walls [m], rounded.
    #[inline(always)]
    fn round(&self, position: DVec3) -> FixedPosition {
        FixedPosition(position.to_array().map(|x| self.fixed_point(x)))
    }

    /// Lowest and highest corner [m] of a box whose points are all in the cells from `low` to `high`, and at
    /// least `depth` cells away from other cells. The box is empty if there is no such point.
    pub(in crate::sph) fn box_within(&self, (low, high): ([i32; 3], [i32; 3]), depth: i32) -> [DVec3; 2] {
        // Space ends at the outermost cells, and rounding moves a point by less than a thousandth of a cell.
        let face = |cell: i32, is_end: bool, inwards: f64| match is_end {
            true => -inwards * f64::INFINITY,
            false => (f64::from(cell) + inwards * (f64::from(depth) + 1e-3)) / self.inverse_cell_size,
        };
        let low = DVec3::from_array(low.map(|cell| face(cell, cell == i32::MIN, 1.0)));
        let high = DVec3::from_array(high.map(|cell| face(cell.saturating_add(1), cell == i32::MAX, -1.0)));
        match &self.walls {
            // A point beyond a wall counts as its mirror image, which may be in other cells.
            Some(walls) => [low.max(walls.min), high.min(walls.max)],
            None => [low, high],
        }
    }

    /// At which walls the fluid sticks, by axis, the lower one first.
    pub(in crate::sph) fn no_slip(&self) -> [[bool; 2]; 3] {
        self.walls.map_or([[false; 2]; 3], |walls| walls.no_slip)
    }

    /// Lowest and highest plane of the walls [cells], rounded so that images are fixed-point positions
    /// too.
    pub(in crate::sph) fn planes(&self) -> Option<[DVec3; 2]> {
        let round =
            |plane: DVec3| (plane * (self.inverse_cell_size * 2.0 * FRACTIONS)).round() / (2.0 * FRACTIONS);
        self.walls.map(|walls| [round(walls.min), round(walls.max)])
    }

    #[inline(always)]
    fn inside(&self, position: DVec3) -> DVec3 {
        match &self.walls {
            Some(walls) => walls.fold(position),
            None => position,
        }
    }

    /// A coordinate [m] in fractions of a cell, rounded.
    #[inline(always)]
    fn fixed_point(&self, coordinate: f64) -> i64 {
        // The last bit of a sum with this number stands for 1, so that the sum is rounded to an integer. As
        // an integer, the sum's bit pattern less the number's is the rounded value.
        const UNIT: f64 = 1.5 * (1u64 << 52) as f64;
        let scaled = (coordinate * self.inverse_cell_size).clamp(-CELL_MAX, CELL_MAX);
        (scaled * FRACTIONS + UNIT).to_bits() as i64 - UNIT.to_bits() as i64
    }
}

/// A position in fixed point [fractions of a cell].
#[derive(Clone, Copy, Debug)]
pub(in crate::sph) struct FixedPosition([i64; 3]);

impl FixedPosition {
    /// The cell.
    #[inline(always)]
    pub(in crate::sph) fn cell(self) -> IVec3 {
        IVec3::from_array(self.0.map(|x| (x >> FRACTION_BITS) as i32))
    }

    /// The bin along x.
    #[inline(always)]
    fn bin(self) -> i32 {
        (self.0[0] >> (FRACTION_BITS - BIN_BITS)) as i32
    }

    /// The coordinates modulo 1024 cells: their lowest 32 bits. Wrapping differences between near
    /// positions are exact.
    #[inline(always)]
    pub(in crate::sph) fn wrapped(self) -> [i32; 3] {
        self.0.map(|x| x as i32)
    }

    /// The position that has these wrapped coordinates and is at `low` or less than 1024 cells above it.
    #[inline(always)]
    fn from_wrapped(wrapped: [i32; 3], Self(low): Self) -> Self {
        let above = |axis: usize| wrapped[axis].wrapping_sub(low[axis] as i32) as u32;
        Self([0, 1, 2].map(|axis| low[axis] + i64::from(above(axis))))
    }

    /// The wrapped coordinates of a point [half bins along x; cells along y and z].
    #[inline(always)]
    pub(in crate::sph) fn wrapped_point([x, y, z]: [i32; 3]) -> [i32; 3] {
        [
            x.wrapping_shl(FRACTION_BITS - BIN_BITS - 1),
            y.wrapping_shl(FRACTION_BITS),
            z.wrapping_shl(FRACTION_BITS),
        ]
    }

    /// The bin of a particle, from its cell and its wrapped x.
    #[inline(always)]
    pub(in crate::sph) fn bin_in(cell: IVec3, wrapped_x: i32) -> i32 {
        cell.x * BINS + (wrapped_x >> (FRACTION_BITS - BIN_BITS) & (BINS - 1))
    }
}

/// The order of particles: a counting sort by slot, then by id.
#[derive(Clone, Debug, Default)]
pub(in crate::sph) struct CellOrder {
    /// Origin of rows and bins [cells].
    low: IVec3,
    /// Bins of a row, rows along y and along z.
    size: IVec3,
    wraps: bool,
    /// The slot of each particle.
    slot_of: Vec<u32>,
    /// The particles of slot s are `order[start[s]..start[s + 1]]`.
    start: Vec<u32>,
    order: Vec<u32>,
}

/// A row of cells along x that holds particles.
#[derive(Clone, Debug)]
pub(in crate::sph) struct Row {
    /// The row's cell along y and z, counted without wrapping.
    pub(in crate::sph) cell_yz: [i32; 2],
    /// The slot of the row's first bin.
    slot: usize,
    /// The slots of the first bins of the nine rows around it.
    rows_around: [usize; 9],
    pub(in crate::sph) particles: Range<usize>,
}

/// Range of bins of a row, in two parts. The second part is empty unless the range wraps.
pub(in crate::sph) type Bins = [Range<usize>; 2];

/// Some successive rows of cells, and their particles.
#[derive(Clone, Debug)]
pub(in crate::sph) struct Chunk {
    rows: Range<usize>,
    pub(in crate::sph) particles: Range<usize>,
}

/// Rounds positions to fixed point. Returns the lowest and the highest coordinates inside of the walls [m].
struct RoundPositions<'a> {
    grid: &'a FixedPointGrid,
    positions: &'a [DVec3],
    wrapped: &'a mut [[i32; 3]],
}

impl Task for RoundPositions<'_> {
    type Output = (DVec3, DVec3);

    #[inline(always)]
    fn run<L: Lanes>(self) -> (DVec3, DVec3) {
        let Self { grid, positions, wrapped } = self;
        let (mut low, mut high) = (DVec3::INFINITY, DVec3::NEG_INFINITY);
        for (wrapped, &position) in wrapped.iter_mut().zip(positions) {
            let inside = grid.inside(position);
            *wrapped = grid.round(inside).wrapped();
            (low, high) = (low.min(inside), high.max(inside));
        }
        (low, high)
    }
}

/// Finds the slots of particles, which are less than 1024 cells above `low` along each axis.
struct FindSlots<'a> {
    cells: &'a CellOrder,
    low: FixedPosition,
    wrapped: &'a [[i32; 3]],
    slot_of: &'a mut [u32],
}

impl Task for FindSlots<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { cells, low, wrapped, slot_of } = self;
        for (slot, &wrapped) in slot_of.iter_mut().zip(wrapped) {
            *slot = cells.slot(FixedPosition::from_wrapped(wrapped, low)) as u32;
        }
    }
}

impl CellOrder {
    /// Sorts own particles, and ghosts numbered behind them, by row, bin and id. Without ids, particles of a
    /// bin keep their order. `wrapped` gets the fixed-point position of each particle, wrapped.
    pub(in crate::sph) fn rebuild(
        &mut self,
        width: Width,
        grid: &FixedPointGrid,
        (own, ghosts): (Points<'_>, Points<'_>),
        wrapped: &mut Vec<[i32; 3]>,
    ) {
        let own_count = own.positions.len();
        wrapped.resize(own_count + ghosts.positions.len(), [0; 3]);
        let nothing = (DVec3::INFINITY, DVec3::NEG_INFINITY);
        let (own_wrapped, ghosts_wrapped) = wrapped.split_at_mut(own_count);
        let chunks = own.positions.par_chunks(CHUNK).zip(own_wrapped.par_chunks_mut(CHUNK));
        let chunks =
            chunks.chain(ghosts.positions.par_chunks(CHUNK).zip(ghosts_wrapped.par_chunks_mut(CHUNK)));
        let round = |(positions, wrapped)| width.run(RoundPositions { grid, positions, wrapped });
        let range = chunks.map(round).reduce(|| nothing, |a, b| (a.0.min(b.0), a.1.max(b.1)));
        let (low, high) = if wrapped.is_empty() { (DVec3::ZERO, DVec3::ZERO) } else { range };
        let (low, high) = (grid.round(low), grid.round(high));
        self.fit((low.cell(), high.cell()), wrapped.len());
        let unique = (0..3).all(|axis| high.0[axis] - low.0[axis] < 1 << 32);
        let mut slot_of = std::mem::take(&mut self.slot_of);
        let position = |i: usize| *own.positions.get(i).unwrap_or_else(|| &ghosts.positions[i - own_count]);
        slot_of.resize(wrapped.len(), 0);
        let chunks = wrapped.par_chunks(CHUNK).zip(slot_of.par_chunks_mut(CHUNK)).enumerate();
        chunks.for_each(|(chunk, (wrapped, slot_of))| {
            if unique {
                return width.run(FindSlots { cells: self, low, wrapped, slot_of });
            }
            for (k, slot) in slot_of.iter_mut().enumerate() {
                *slot = self.slot(grid.locate(position(chunk * CHUNK + k))) as u32;
            }
        });
        self.slot_of = slot_of;
        let slots = self.size.as_i64vec3().element_product() as usize;
        counting_sort(&self.slot_of, slots, &mut self.start, &mut self.order);
        if !own.ids.is_empty() || !ghosts.ids.is_empty() {
            let id = |i: u32| own.ids.get(i as usize).unwrap_or_else(|| &ghosts.ids[i as usize - own_count]);
            sort_cells_by_id(width, &self.start, (id, None), &mut self.order);
        }
    }

    /// Indices of the particles, sorted by row and bin.
    pub(in crate::sph) fn order(&self) -> &[u32] {
        &self.order
    }

    /// True if cells are counted modulo the box, so that a range may hold particles of distant cells.
    pub(in crate::sph) fn wraps(&self) -> bool {
        self.wraps
    }

    /// Cuts the order into chunks of whole rows, with at least `least` particles in each chunk but the last.
    pub(in crate::sph) fn chunks(&self, least: usize, chunks: &mut Vec<Chunk>) {
        chunks.clear();
        let rows = (self.size.y * self.size.z) as usize;
        let start = |row: usize| self.start[row * self.size.x as usize] as usize;
        let mut first = 0;
        for row in 1..=rows {
            let particles = start(first)..start(row);
            if particles.len() >= least || row == rows {
                chunks.push(Chunk { rows: first..row, particles });
                first = row;
            }
        }
    }

    /// The rows of a chunk, empty ones included.
    #[inline(always)]
    pub(in crate::sph) fn rows(&self, chunk: &Chunk) -> impl Iterator<Item = Row> + use<'_> {
        let Self { low, size, start, .. } = self;
        chunk.rows.clone().map(move |row| {
            let slot = row * size.x as usize;
            let [y, z] = [row as i32 % size.y, row as i32 / size.y];
            Row {
                cell_yz: [low.y + y, low.z + z],
                slot,
                rows_around: self.rows_around(y, z),
                particles: start[slot] as usize..start[slot + size.x as usize] as usize,
            }
        })
    }

    /// The bin of a particle of a row, if cells do not wrap. `particle` is its index in the order.
    #[inline(always)]
    pub(in crate::sph) fn bin(&self, row: &Row, particle: usize) -> i32 {
        let slot = self.slot_of[self.order[particle] as usize] as usize;
        self.low.x * BINS + (slot - row.slot) as i32
    }

    /// End of the particles of a row in the bins before `bin`, if cells do not wrap.
    #[inline(always)]
    pub(in crate::sph) fn end_before(&self, row: &Row, bin: i32) -> usize {
        let bins = (bin - self.low.x * BINS).min(self.size.x);
        self.start[row.slot + bins as usize] as usize
    }

    /// The slots of the first bins of the nine rows around a row.
    fn rows_around(&self, y: i32, z: i32) -> [usize; 9] {
        let size = self.size;
        std::array::from_fn(|n| {
            let n = n as i32;
            let (y, z) = (neighbour(y + n % 3 - 1, size.y), neighbour(z + n / 3 - 1, size.z));
            (z * size.y + y) as usize * size.x as usize
        })
    }

    /// The bins `first..=last` of a row.
    #[inline(always)]
    pub(in crate::sph) fn bins(&self, first: i32, last: i32) -> Bins {
        let Self { low, size, .. } = *self;
        let [first, last] = [first - low.x * BINS, last - low.x * BINS];
        if !self.wraps {
            return [first.max(0) as usize..(last + 1).min(size.x) as usize, 0..0];
        }
        let begin = first.rem_euclid(size.x);
        let end = begin + last + 1 - first;
        [begin as usize..end.min(size.x) as usize, 0..(end - size.x).max(0) as usize]
    }

    /// Visits the ranges of [`Self::order`] that hold all particles in these bins of the nine rows around a
    /// row, empty ranges included. Row follows upon row, and bin upon bin, also where cells wrap: they wrap
    /// elsewhere on other ranks, which must visit particles in the same order.
    #[inline(always)]
    pub(in crate::sph) fn for_each_range(&self, row: &Row, bins: Bins, mut visit: impl FnMut(Range<u32>)) {
        let [bins, wrapped] = bins;
        for slot in row.rows_around {
            let at = |bin: usize| self.start[slot + bin];
            visit(at(bins.start)..at(bins.end));
            if !wrapped.is_empty() {
                visit(at(wrapped.start)..at(wrapped.end));
            }
        }
    }

    /// Sets the box of cells: the cells from `low` to `high` and a layer around them, or a smaller box modulo
    /// which cells are counted if there are too many for the number of particles.
    fn fit(&mut self, (low, high): (IVec3, IVec3), particles: usize) {
        self.low = low - 1;
        let mut size = (high - low + 3).as_i64vec3().max(I64Vec3::new(SIZE_MIN, 3, 3));
        let cells_max = (SLOTS_PER_PARTICLE_MAX * particles as i64 / i64::from(BINS)).max(1 << 12);
        self.wraps = false;
        while size.x.saturating_mul(size.y).saturating_mul(size.z) > cells_max {
            self.wraps = true;
            let longest = size.max_position();
            size[longest] = (size[longest] / 2).max(SIZE_MIN);
        }
        self.size = size.as_ivec3() * IVec3::new(BINS, 1, 1);
    }

    #[inline(always)]
    fn slot(&self, position: FixedPosition) -> i32 {
        let Self { low, size, .. } = *self;
        let cell = position.cell();
        let mut at = IVec3::new(position.bin() - low.x * BINS, cell.y - low.y, cell.z - low.z);
        if self.wraps {
            at = at.rem_euclid(size);
        }
        (at.z * size.y + at.y) * size.x + at.x
    }
}

/// Wraps `at`, from -1 to `size`, into the range of `size` cells.
#[inline(always)]
fn neighbour(at: i32, size: i32) -> i32 {
    if at < 0 {
        at + size
    } else if at >= size {
        at - size
    } else {
        at
    }
}

#[cfg(test)]
mod tests {
    use amalgam_particles::random;

    use super::*;

    /// The ranges around a particle's cell hold each particle near it once, wherever the fluid is.
    #[test]
    fn ranges_hold_what_is_near() {
        for (extent, wraps) in
            [(DVec3::ONE, false), (DVec3::new(1e3, 1e4, 2.0), true), (DVec3::splat(1e7), true)]
        {
            let positions: Vec<DVec3> = (0..2000u64)
                .map(|i| {
                    // Half of them in pairs.
                    let noise = DVec3::from_array([0, 1, 2].map(|axis| random::uniform_f64(&[i / 2, axis])));
                    noise * extent + DVec3::splat(0.01 * (i % 2) as f64)
                })
                .collect();
            let grid = FixedPointGrid::new(0.1, None);
            let mut cells = CellOrder::default();
            let points = Points { positions: &positions, ..Points::default() };
            cells.rebuild(Width::of_machine(), &grid, (points, Points::default()), &mut Vec::new());
            assert_eq!(cells.wraps(), wraps);
            for &x in positions.iter().step_by(7) {
                let position = grid.locate(x);
                let IVec3 { y, z, .. } = position.cell() - cells.low;
                let (y, z) = (y.rem_euclid(cells.size.y), z.rem_euclid(cells.size.z));
                let row = cells
                    .rows(&Chunk { rows: (z * cells.size.y + y) as usize..usize::MAX, particles: 0..0 })
                    .next()
                    .expect("a row");
                let mut near = Vec::new();
                cells.for_each_range(
                    &row,
                    cells.bins(position.bin() - BINS, position.bin() + BINS),
                    |range| {
                        near.extend(range.map(|rank| cells.order()[rank as usize]));
                    },
                );
                near.sort_unstable();
                assert!(near.is_sorted_by(|a, b| a < b), "a particle stands twice");
                for (j, y) in positions.iter().enumerate() {
                    assert!(x.distance(*y) > 0.1 || near.binary_search(&(j as u32)).is_ok());
                }
            }
        }
    }
}
