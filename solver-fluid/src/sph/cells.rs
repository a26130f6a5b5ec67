//! Particles in the order of their cells: what makes a cell's neighbours contiguous in memory.
//!
//! Cells are numbered x first over the fluid's bounding box, with an empty layer around it, so that a cell and its
//! neighbours along x are one run of the order, the 27 cells around a place nine runs. If the box is too large for
//! the number of particles (a drop that flies away), cells are counted modulo a smaller box: then a slot can hold
//! particles of distant cells, and [`CellOrder::wraps`] says that cells must be compared.

use std::ops::Range;

use amalgam_particles::{DVec3, counting_sort};
use glam::{IVec3, Vec3};
use rayon::prelude::*;

use super::walls::Walls;

/// Slots per particle, at most; what a box of fluid needs is about a fifth.
const SLOTS_PER_PARTICLE_MAX: i64 = 4;
/// Fractions of a cell that positions are rounded to.
const FRACTIONS: f64 = (1u64 << FRACTION_BITS) as f64;
const FRACTION_BITS: u32 = 22;
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

    /// The cell of a position [m], inside of the walls.
    #[inline(always)]
    pub(super) fn cell(&self, position: DVec3) -> IVec3 {
        IVec3::from_array(
            self.inside(position).to_array().map(|x| (self.fixed_point(x) >> FRACTION_BITS) as i32),
        )
    }

    /// The cell of a position [m], and the place in it [cells], rounded.
    #[inline(always)]
    pub(super) fn locate(&self, position: DVec3) -> (IVec3, Vec3) {
        let fixed = self.inside(position).to_array().map(|x| self.fixed_point(x));
        let fraction = fixed.map(|x| (x & (FRACTIONS as i64 - 1)) as i32 as f32 * (1.0 / FRACTIONS) as f32);
        (IVec3::from_array(fixed.map(|x| (x >> FRACTION_BITS) as i32)), Vec3::from_array(fraction))
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

/// Runs of the order.
#[derive(Debug)]
pub(super) struct Runs {
    run: [(u32, u32); 27],
    count: usize,
}

impl CellOrder {
    /// Sorts particles by cell; in a cell they stay in the order they came in.
    pub(super) fn rebuild(&mut self, raster: &Raster, positions: &[DVec3]) {
        self.fit(raster, positions);
        let mut slot_of = std::mem::take(&mut self.slot_of);
        slot_of.clear();
        slot_of
            .par_extend(positions.par_iter().with_min_len(4096).map(|&x| self.slot(raster.cell(x)) as u32));
        self.slot_of = slot_of;
        let slots = self.size.as_i64vec3().element_product() as usize;
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

    /// The runs of [`Self::order`] that hold all particles of the 27 cells around `home`.
    #[inline(always)]
    pub(super) fn runs(&self, home: IVec3) -> Runs {
        let at = self.wrapped(home);
        let mut runs = Runs { run: [(0, 0); 27], count: 0 };
        for dz in -1..=1 {
            let z = neighbour(at.z + dz, self.size.z);
            for dy in -1..=1 {
                let y = neighbour(at.y + dy, self.size.y);
                let row = (z as usize * self.size.y as usize + y as usize) * self.size.x as usize;
                if at.x > 0 && at.x + 1 < self.size.x {
                    runs.push(&self.start, row + at.x as usize - 1, 3);
                } else {
                    for dx in -1..=1 {
                        runs.push(&self.start, row + neighbour(at.x + dx, self.size.x) as usize, 1);
                    }
                }
            }
        }
        runs
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
        let (low, high) = (raster.cell(low), raster.cell(high));
        self.low = low - 1;
        let mut size = (high - low + 3).as_i64vec3();
        let slots_max = (SLOTS_PER_PARTICLE_MAX * positions.len() as i64).max(1 << 12);
        self.wraps = false;
        while size.x.saturating_mul(size.y).saturating_mul(size.z) > slots_max {
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
    fn slot(&self, cell: IVec3) -> i32 {
        let at = self.wrapped(cell);
        (at.z * self.size.y + at.y) * self.size.x + at.x
    }
}

impl Runs {
    /// The runs, in the order of their rows.
    #[inline(always)]
    pub(super) fn get(&self, index: usize) -> Option<Range<usize>> {
        (index < self.count).then(|| {
            let (begin, end) = self.run[index];
            begin as usize..end as usize
        })
    }

    #[inline(always)]
    fn push(&mut self, start: &[u32], slot: usize, slots: usize) {
        let (begin, end) = (start[slot], start[slot + slots]);
        if begin < end {
            self.run[self.count] = (begin, end);
            self.count += 1;
        }
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
                let runs = cells.runs(raster.cell(x));
                let mut near: Vec<u32> =
                    (0..).map_while(|r| runs.get(r)).flat_map(|run| cells.order()[run].to_vec()).collect();
                near.sort_unstable();
                assert!(near.is_sorted_by(|a, b| a < b), "a particle stands twice");
                for (j, y) in positions.iter().enumerate() {
                    assert!(x.distance(*y) > 0.1 || near.binary_search(&(j as u32)).is_ok());
                }
            }
        }
    }
}
