//! Particles in the order of their cells: what makes a cell's neighbours contiguous in memory.
//!
//! Cells are cut into a lower and an upper **half** (along z). They are numbered over the fluid's bounding box, with an
//! empty layer around it: a **row** of cells along x is its lower halves, then its upper ones; rows go along y, then z.
//! So a half and its neighbours along x are one run of the order, and what is around a cell are six **layers** of
//! halves of three runs each, from low to high; a particle in the lower half sees nothing in the highest layer, one in
//! the upper half nothing in the lowest.
//!
//! If the box is too large for the number of particles (a drop that flies away), cells are counted modulo a smaller
//! box: then a slot can hold particles of distant cells, and [`CellOrder::wraps`] says that cells must be compared.

use std::ops::Range;

use amalgam_particles::{DVec3, counting_sort};
use glam::IVec3;
use rayon::prelude::*;

use super::walls::Walls;

/// Slots per particle, at most; what a box of fluid needs is about a fifth.
const SLOTS_PER_PARTICLE_MAX: i64 = 4;
/// Fractions of a cell that positions are rounded to.
const FRACTIONS: f64 = (1u64 << FRACTION_BITS) as f64;
const FRACTION_BITS: u32 = 22;
/// A fraction [cells].
pub(super) const FRACTION: f32 = (1.0 / FRACTIONS) as f32;
/// Cells are numbered up to here [cells from the origin]; what is farther counts as there, alone.
const CELL_MAX: f64 = (1u64 << 28) as f64;

/// Where cells are, and where particles are in them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raster {
    inverse_cell_size: f64,
    walls: Option<Walls>,
}

impl Raster {
    /// Cells of edge `cell_size` [m].
    pub(super) fn new(cell_size: f64, walls: Option<Walls>) -> Self {
        Self { inverse_cell_size: 1.0 / cell_size, walls }
    }

    /// The place of a position [m], rounded.
    #[inline(always)]
    pub(super) fn locate(&self, position: DVec3) -> Place {
        Place(self.inside(position).to_array().map(|x| self.fixed_point(x)))
    }

    /// Lowest and highest plane of the walls [cells], rounded so that images fall on the positions' own raster.
    pub(super) fn planes(&self) -> Option<[DVec3; 2]> {
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
        // The last bit of a sum with this number stands for 1, and the sum's bits count up from the number's.
        const UNIT: f64 = 1.5 * (1u64 << 52) as f64;
        let scaled = (coordinate * self.inverse_cell_size).clamp(-CELL_MAX, CELL_MAX);
        (scaled * FRACTIONS + UNIT).to_bits() as i64 - UNIT.to_bits() as i64
    }
}

/// A place in fractions of cells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place([i64; 3]);

impl Place {
    /// The cell.
    #[inline(always)]
    pub(super) fn cell(self) -> IVec3 {
        IVec3::from_array(self.0.map(|x| (x >> FRACTION_BITS) as i32))
    }

    /// 0 in the lower half of the cell, 1 in the upper one.
    #[inline(always)]
    fn half(self) -> i32 {
        (self.0[2] >> (FRACTION_BITS - 1)) as i32 & 1
    }

    /// The coordinates modulo 1024 cells, of which differences between near places are exact.
    #[inline(always)]
    pub(super) fn wrapped(self) -> [i32; 3] {
        self.0.map(|x| x as i32)
    }

    /// The same of a cell's corner.
    #[inline(always)]
    pub(super) fn corner(cell: IVec3) -> [i32; 3] {
        cell.to_array().map(|x| x.wrapping_shl(FRACTION_BITS))
    }
}

/// The order of cells.
#[derive(Clone, Debug, Default)]
pub(super) struct CellOrder {
    low: IVec3,
    size: IVec3,
    wraps: bool,
    slot_of: Vec<u32>,
    start: Vec<u32>,
    order: Vec<u32>,
}

/// Layers of half cells around a cell.
pub(super) const LAYERS: usize = 6;
/// Layers that a particle sees, from that of its half on.
pub(super) const LAYERS_SEEN: usize = 5;

/// Runs of the order around a cell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs<'a> {
    cells: &'a CellOrder,
    at: IVec3,
    cells_at_once: usize,
}

/// Whole rows of cells, in a row.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    rows: Range<usize>,
    pub(super) particles: Range<usize>,
}

impl CellOrder {
    /// Sorts particles by cell; in a cell they stay in the order they came in.
    pub(super) fn rebuild(&mut self, raster: &Raster, positions: &[DVec3]) {
        self.fit(raster, positions);
        let mut slot_of = std::mem::take(&mut self.slot_of);
        slot_of.clear();
        slot_of
            .par_extend(positions.par_iter().with_min_len(4096).map(|&x| self.slot(raster.locate(x)) as u32));
        self.slot_of = slot_of;
        let slots = 2 * self.size.as_i64vec3().element_product() as usize;
        counting_sort(&self.slot_of, slots, &mut self.start, &mut self.order);
    }

    /// Indices of the particles, sorted by cell.
    pub(super) fn order(&self) -> &[u32] {
        &self.order
    }

    /// Whether a run may hold particles of other cells than those around a place.
    pub(super) fn wraps(&self) -> bool {
        self.wraps
    }

    /// Whole rows, at least `least` particles in each chunk but the last.
    pub(super) fn chunks(&self, least: usize, chunks: &mut Vec<Chunk>) {
        chunks.clear();
        let rows = (self.size.y * self.size.z) as usize;
        let start = |row: usize| self.start[row * 2 * self.size.x as usize] as usize;
        let mut first = 0;
        for row in 1..=rows {
            let particles = start(first)..start(row);
            if particles.len() >= least || row == rows {
                chunks.push(Chunk { rows: first..row, particles });
                first = row;
            }
        }
    }

    /// The slots of the lower halves of a chunk's cells, each with its cell as it is counted without wrapping.
    #[inline(always)]
    pub(super) fn lower_halves(&self, chunk: &Chunk) -> impl Iterator<Item = (usize, IVec3)> + use<'_> {
        let size = self.size;
        chunk.rows.clone().flat_map(move |row| {
            let (y, z) = (row as i32 % size.y, row as i32 / size.y);
            (0..size.x).map(move |x| (row * 2 * size.x as usize + x as usize, self.low + IVec3::new(x, y, z)))
        })
    }

    /// Where the particles of a lower half and of the upper one above it stand in the order.
    #[inline(always)]
    pub(super) fn halves(&self, lower: usize) -> [Range<usize>; 2] {
        [lower, lower + self.size.x as usize]
            .map(|slot| self.start[slot] as usize..self.start[slot + 1] as usize)
    }

    /// The runs of [`Self::order`] that hold all particles of the 27 cells around `home`.
    #[inline(always)]
    pub(super) fn runs(&self, home: IVec3) -> Runs<'_> {
        let at = self.wrapped(home);
        let whole_rows = at.x > 0 && at.x + 1 < self.size.x;
        Runs { cells: self, at, cells_at_once: if whole_rows { 3 } else { 1 } }
    }

    /// Lays the box of cells around the particles.
    fn fit(&mut self, raster: &Raster, positions: &[DVec3]) {
        let nothing = (DVec3::INFINITY, DVec3::NEG_INFINITY);
        let (low, high) = positions
            .par_chunks(4096)
            .map(|chunk| {
                chunk.iter().fold(nothing, |(low, high), &x| {
                    let x = raster.inside(x);
                    (low.min(x), high.max(x))
                })
            })
            .reduce(|| nothing, |a, b| (a.0.min(b.0), a.1.max(b.1)));
        let (low, high) = if positions.is_empty() { (DVec3::ZERO, DVec3::ZERO) } else { (low, high) };
        // Inside once more is where it was: a fold moves nothing that is inside.
        let (low, high) = (raster.locate(low).cell(), raster.locate(high).cell());
        self.low = low - 1;
        let mut size = (high - low + 3).as_i64vec3();
        let cells_max = (SLOTS_PER_PARTICLE_MAX * positions.len() as i64 / 2).max(1 << 12);
        self.wraps = false;
        while size.x.saturating_mul(size.y).saturating_mul(size.z) > cells_max {
            self.wraps = true;
            let longest = size.max_position();
            size[longest] = (size[longest] / 2).max(3);
        }
        self.size = size.as_ivec3();
    }

    #[inline(always)]
    fn wrapped(&self, cell: IVec3) -> IVec3 {
        let at = cell - self.low;
        if self.wraps { at.rem_euclid(self.size) } else { at }
    }

    #[inline(always)]
    fn slot(&self, place: Place) -> i32 {
        let at = self.wrapped(place.cell());
        ((at.z * self.size.y + at.y) * 2 + place.half()) * self.size.x + at.x
    }
}

impl Runs<'_> {
    /// How many there are in a layer, empty ones included.
    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        9 / self.cells_at_once
    }

    /// The run of this index in a layer, row after row.
    #[inline(always)]
    pub(super) fn get(&self, layer: usize, index: usize) -> Range<usize> {
        let Self { cells, at, cells_at_once } = *self;
        let (row, dx) = if cells_at_once == 3 { (index, -1) } else { (index / 3, index as i32 % 3 - 1) };
        let y = neighbour(at.y + row as i32 - 1, cells.size.y) as usize;
        let z = neighbour(at.z + layer as i32 / 2 - 1, cells.size.z) as usize;
        let x = neighbour(at.x + dx, cells.size.x) as usize;
        let slot = ((z * cells.size.y as usize + y) * 2 + layer % 2) * cells.size.x as usize + x;
        cells.start[slot] as usize..cells.start[slot + cells_at_once] as usize
    }
}

/// `at`, at most one off the range of `size` cells, wrapped into it.
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

    /// Every particle near another one is in the runs around its cell, once, wherever the fluid is.
    #[test]
    fn runs_hold_what_is_near() {
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
            let raster = Raster::new(0.1, None);
            let mut cells = CellOrder::default();
            cells.rebuild(&raster, &positions);
            assert_eq!(cells.wraps(), wraps);
            for &x in positions.iter().step_by(7) {
                let runs = cells.runs(raster.locate(x).cell());
                let mut near: Vec<u32> = (0..LAYERS * runs.count())
                    .flat_map(|r| cells.order()[runs.get(r % LAYERS, r / LAYERS)].to_vec())
                    .collect();
                near.sort_unstable();
                assert!(near.is_sorted_by(|a, b| a < b), "a particle stands twice");
                for (j, y) in positions.iter().enumerate() {
                    assert!(x.distance(*y) > 0.1 || near.binary_search(&(j as u32)).is_ok());
                }
            }
        }
    }
}
