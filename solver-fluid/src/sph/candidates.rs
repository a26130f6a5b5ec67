//! The candidates of a block: copies, next to each other, of every particle and mirror image that any particle of the
//! block may see.

use std::{
    ops::Range,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use amalgam_particles::{
    DVec3,
    lanes::{LANES, Lanes},
};
use glam::IVec3;
use rayon::prelude::*;

use super::cells::{CellOrder, Raster};

/// Where unused lanes are put: out of everyone's reach [support radii].
const FAR: f32 = 1e3;
/// Squared distance from a block's bounding box within which particles are candidates, a little more than 1 for
/// rounding.
const REACH: f32 = 1.000_01;
/// Particles of one task in loops that copy.
const COPY_CHUNK: usize = 4096;

/// What the loops over pairs read of particles, sorted by cell. Columns end with [`LANES`] values more, so that
/// sixteen can be read from wherever a run begins.
#[derive(Clone, Debug, Default)]
pub(super) struct Columns {
    /// x, y, z relative to the cell [support radii]; pressure, volume; velocity x, y, z.
    values: [Vec<f32>; 8],
    cell_x: Vec<i32>,
    cell_yz: Vec<[i32; 2]>,
}

/// `C` of the columns, with the particles' cells.
#[derive(Clone, Copy)]
pub(super) struct Sources<'a, const C: usize> {
    values: [&'a [f32]; C],
    cell_x: &'a [i32],
    cell_yz: &'a [[i32; 2]],
}

/// Particles of one cell, in a row of the sorted order.
pub(super) struct Block {
    pub(super) particles: Range<usize>,
    home: IVec3,
    low: [f32; 3],
    high: [f32; 3],
}

/// The candidates of one block; memory is kept from one to the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidates {
    /// Columns one after the other, `stride` values each, from `origin` on: then vectors lie in single cache lines.
    values: Vec<f32>,
    origin: usize,
    stride: usize,
    end: usize,
}

impl Columns {
    /// Copies cells, places and velocities of particles in a new order, and notes where each particle went.
    pub(super) fn set(
        &mut self,
        raster: &Raster,
        order: &[u32],
        positions: &[DVec3],
        velocities: &[DVec3],
        rank: &[AtomicU32],
    ) {
        let count = order.len();
        for column in &mut self.values {
            column.resize(count + LANES, 0.0);
        }
        self.cell_x.resize(count + LANES, 0);
        self.cell_yz.resize(count, [0; 2]);
        let [x, y, z, _, _, vx, vy, vz] =
            self.values.each_mut().map(|column| column[..count].par_chunks_mut(COPY_CHUNK));
        let cell_x = self.cell_x[..count].par_chunks_mut(COPY_CHUNK);
        let cell_yz = self.cell_yz.par_chunks_mut(COPY_CHUNK);
        let tasks = (order.par_chunks(COPY_CHUNK), x, y, z, cell_x, cell_yz, vx, vy, vz);
        tasks.into_par_iter().enumerate().for_each(|(c, (order, x, y, z, cell_x, cell_yz, vx, vy, vz))| {
            for (k, &i) in order.iter().enumerate() {
                let (cell, fraction) = raster.locate(positions[i as usize]);
                (x[k], y[k], z[k]) = fraction.into();
                cell_x[k] = cell.x;
                cell_yz[k] = [cell.y, cell.z];
                (vx[k], vy[k], vz[k]) = velocities[i as usize].as_vec3().into();
                rank[i as usize].store((c * COPY_CHUNK + k) as u32, Relaxed);
            }
        });
    }

    /// The columns of places, and those of pressure and volume to be written.
    pub(super) fn places_and_states(&mut self) -> (Sources<'_, 3>, [&mut Vec<f32>; 2]) {
        let [x, y, z, pressure, volume, ..] = &mut self.values;
        let sources = Sources { values: [x, y, z], cell_x: &self.cell_x, cell_yz: &self.cell_yz };
        (sources, [pressure, volume])
    }

    /// All columns.
    pub(super) fn all(&self) -> Sources<'_, 8> {
        let values = self.values.each_ref().map(Vec::as_slice);
        Sources { values, cell_x: &self.cell_x, cell_yz: &self.cell_yz }
    }
}

impl<const C: usize> Sources<'_, C> {
    /// The block of the particles from `first` on, before `end`.
    #[inline(always)]
    pub(super) fn block(&self, first: usize, end: usize) -> Block {
        let (home_x, home_yz) = (self.cell_x[first], self.cell_yz[first]);
        let mut low = [f32::INFINITY; 3];
        let mut high = [f32::NEG_INFINITY; 3];
        let mut last = first;
        while last < end && self.cell_x[last] == home_x && self.cell_yz[last] == home_yz {
            for axis in 0..3 {
                low[axis] = low[axis].min(self.values[axis][last]);
                high[axis] = high[axis].max(self.values[axis][last]);
            }
            last += 1;
        }
        Block { particles: first..last, home: IVec3::new(home_x, home_yz[0], home_yz[1]), low, high }
    }

    /// The values of one particle, each in all lanes.
    #[inline(always)]
    pub(super) fn splat<L: Lanes>(&self, particle: usize) -> [L; C] {
        let mut lanes = [L::splat(0.0); C];
        for c in 0..C {
            lanes[c] = L::splat(self.values[c][particle]);
        }
        lanes
    }
}

impl Candidates {
    /// Finds the candidates of a block.
    #[inline(always)]
    pub(super) fn collect<L: Lanes, const C: usize>(
        &mut self,
        sources: &Sources<'_, C>,
        cells: &CellOrder,
        planes: Option<[DVec3; 2]>,
        block: &Block,
    ) {
        self.end = 0;
        let runs = cells.runs(block.home);
        let mut index = 0;
        while let Some(run) = runs.get(index) {
            index += 1;
            let mut begin = run.start;
            while begin < run.end {
                let row = sources.cell_yz[begin];
                let mut end = run.end;
                if cells.wraps() {
                    end = begin + 1;
                    while end < run.end && sources.cell_yz[end] == row {
                        end += 1;
                    }
                }
                let rise = [row[0].wrapping_sub(block.home.y), row[1].wrapping_sub(block.home.z)];
                self.append_near::<L, C>(sources, begin..end, rise, block);
                begin = end;
            }
        }
        if let Some([min, max]) = planes {
            self.append_images::<L, C>([min, max], block);
        }
        self.fill_lanes::<C>();
    }

    /// The columns of candidates, a whole number of times [`LANES`].
    #[inline(always)]
    pub(super) fn columns<const C: usize>(&self) -> [&[[f32; LANES]]; C] {
        let vectors = self.end.div_ceil(LANES);
        let mut columns = [&[] as &[[f32; LANES]]; C];
        for c in 0..C {
            columns[c] = &self.values[self.origin + c * self.stride..].as_chunks::<LANES>().0[..vectors];
        }
        columns
    }

    /// Makes room for `more` candidates and the rest of the last lanes.
    #[inline(always)]
    fn reserve<const C: usize>(&mut self, more: usize) {
        if self.stride < self.end + more + 2 * LANES {
            self.grow(C, self.end + more + 2 * LANES);
        }
    }

    #[cold]
    fn grow(&mut self, columns: usize, needed: usize) {
        let stride = needed.next_power_of_two().max(1 << 10);
        let mut values = vec![0.0; columns * stride + LANES];
        let origin = values.as_ptr().align_offset(LANES * size_of::<f32>()).min(LANES);
        for c in 0..columns {
            let (from, to) = (self.origin + c * self.stride, origin + c * stride);
            values[to..to + self.end].copy_from_slice(&self.values[from..from + self.end]);
        }
        (self.values, self.origin, self.stride) = (values, origin, stride);
    }

    /// Appends the particles of a run that are within reach of the block's bounding box; all are in one row of cells,
    /// `rise` cells above the block's.
    #[inline(always)]
    fn append_near<L: Lanes, const C: usize>(
        &mut self,
        sources: &Sources<'_, C>,
        run: Range<usize>,
        rise: [i32; 2],
        block: &Block,
    ) {
        self.reserve::<C>(run.len());
        let (rise_y, rise_z) = (L::splat(rise[0] as f32), L::splat(rise[1] as f32));
        let mut at = run.start;
        while at < run.end {
            let steps = L::load_differences(lanes(sources.cell_x, at), block.home.x);
            let mut values = [L::splat(0.0); C];
            for c in 0..C {
                values[c] = L::load(lanes(sources.values[c], at));
            }
            values[0] = values[0] + steps;
            values[1] = values[1] + rise_y;
            values[2] = values[2] + rise_z;
            self.append::<L, C>(values, run.end - at, block);
            at += LANES;
        }
    }

    /// Appends mirror images of the candidates, wall after wall so that edges and corners get theirs. An image is
    /// never nearer than its original, so every image in reach is an image of a candidate.
    #[inline(always)]
    fn append_images<L: Lanes, const C: usize>(&mut self, planes: [DVec3; 2], block: &Block) {
        for axis in 0..3 {
            for plane in planes {
                let plane = (plane[axis] - f64::from(block.home[axis])) as f32;
                if block.low[axis] - plane >= 1.0 || plane - block.high[axis] >= 1.0 {
                    continue;
                }
                let originals = self.end;
                self.reserve::<C>(originals);
                let mut at = 0;
                while at < originals {
                    let mut values = [L::splat(0.0); C];
                    for c in 0..C {
                        values[c] = L::load(lanes(&self.values, self.origin + c * self.stride + at));
                    }
                    values[axis] = L::splat(2.0 * plane) - values[axis];
                    if C == 8 {
                        values[5 + axis] = L::splat(0.0) - values[5 + axis];
                    }
                    self.append::<L, C>(values, originals - at, block);
                    at += LANES;
                }
            }
        }
    }

    /// Appends those of the first `count` lanes that are within reach.
    #[inline(always)]
    fn append<L: Lanes, const C: usize>(&mut self, values: [L; C], count: usize, block: &Block) {
        let mut gap2 = L::splat(0.0);
        for axis in 0..3 {
            let below = L::splat(block.low[axis]) - values[axis];
            let gap = below.larger(values[axis] - L::splat(block.high[axis])).larger(L::splat(0.0));
            gap2 = gap2 + gap * gap;
        }
        let present = u16::MAX >> (LANES - count.min(LANES));
        let selected = gap2.less(L::splat(REACH)) & present;
        for c in 0..C {
            let to = self.origin + c * self.stride + self.end;
            let to = self.values[to..].first_chunk_mut().expect("room was made");
            values[c].store_selected(selected, to);
        }
        self.end += selected.count_ones() as usize;
    }

    /// Fills the last lanes up with nothing.
    #[inline(always)]
    fn fill_lanes<const C: usize>(&mut self) {
        self.reserve::<C>(0);
        for c in 0..C {
            let at = self.origin + c * self.stride + self.end;
            self.values[at..at + LANES].fill(if c < 3 { FAR } else { 0.0 });
        }
    }
}

/// Sixteen candidates.
#[inline(always)]
pub(super) fn chunk<L: Lanes, const C: usize>(columns: &[&[[f32; LANES]]; C], vector: usize) -> [L; C] {
    let mut lanes = [L::splat(0.0); C];
    for c in 0..C {
        lanes[c] = L::load(&columns[c][vector]);
    }
    lanes
}

/// Sixteen values from wherever.
#[inline(always)]
fn lanes<T>(column: &[T], at: usize) -> &[T; LANES] {
    column[at..].first_chunk().expect("columns end with sixteen values more")
}
