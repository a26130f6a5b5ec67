//! The candidates of a block: copies, next to each other, of every particle and mirror image that any particle of the
//! block may see.

#![allow(
    clippy::needless_range_loop,
    reason = "iterators with closures are not compiled for the vector width"
)]

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

use super::cells::{CellOrder, FRACTION, LAYERS, LAYERS_SEEN, Place, Raster};

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
    /// x, y, z [fractions of a cell], modulo 1024 cells.
    places: [Vec<i32>; 3],
    /// Pressure, volume; velocity x, y, z.
    carried: [Vec<f32>; 5],
    /// Cells, where slots can hold particles of more than one.
    cells: Vec<IVec3>,
}

/// Three or all eight columns.
#[derive(Clone, Copy)]
pub(super) struct Sources<'a, const C: usize> {
    places: [&'a [i32]; 3],
    carried: [&'a [f32]; 5],
    cells: &'a [IVec3],
}

/// Particles of one cell.
pub(super) struct Block {
    /// Those in its lower half and those in its upper one, in the sorted order.
    pub(super) halves: [Range<usize>; 2],
    home: IVec3,
    /// The cell's corner as places are counted.
    corner: [i32; 3],
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
    /// Where each layer of half cells begins, and where the highest ends.
    layers: [usize; LAYERS + 1],
    /// Where mirror images begin.
    images: usize,
}

/// Which of sixteen particles or images in a row were candidates, for all blocks of a chunk one after the other: found
/// with densities, used again for forces.
#[derive(Clone, Debug, Default)]
pub(super) struct Selections {
    bits: Vec<u16>,
    next: usize,
}

impl Selections {
    /// Begins anew, to find them.
    pub(super) fn clear(&mut self) {
        self.bits.clear();
    }

    /// Begins at the first one again, to use them.
    pub(super) fn rewind(&mut self) {
        self.next = 0;
    }

    #[inline(always)]
    fn find(&mut self, selected: u16) -> u16 {
        self.bits.push(selected);
        selected
    }

    #[inline(always)]
    fn recall(&mut self) -> u16 {
        self.next += 1;
        self.bits[self.next - 1]
    }
}

impl Block {
    /// Which of the first `count` places are within reach of the block's bounding box.
    #[inline(always)]
    fn reaches<L: Lanes>(&self, places: [L; 3], count: usize) -> u16 {
        let mut gap2 = L::splat(0.0);
        for axis in 0..3 {
            let below = L::splat(self.low[axis]) - places[axis];
            let gap = below.larger(places[axis] - L::splat(self.high[axis])).larger(L::splat(0.0));
            gap2 = gap2 + gap * gap;
        }
        let present = u16::MAX >> (LANES - count.min(LANES));
        gap2.less(L::splat(REACH)) & present
    }
}

impl Columns {
    /// Copies places and velocities of particles in a new order, and notes where each particle went.
    pub(super) fn set(
        &mut self,
        raster: &Raster,
        cells: &CellOrder,
        positions: &[DVec3],
        velocities: &[DVec3],
        rank: &[AtomicU32],
    ) {
        let order = cells.order();
        let count = order.len();
        self.places.iter_mut().for_each(|column| column.resize(count + LANES, 0));
        self.carried.iter_mut().for_each(|column| column.resize(count + LANES, 0.0));
        let [x, y, z] = self.places.each_mut().map(|column| column[..count].par_chunks_mut(COPY_CHUNK));
        let [_, _, vx, vy, vz] =
            self.carried.each_mut().map(|column| column[..count].par_chunks_mut(COPY_CHUNK));
        let tasks = (order.par_chunks(COPY_CHUNK), x, y, z, vx, vy, vz);
        tasks.into_par_iter().enumerate().for_each(|(c, (order, x, y, z, vx, vy, vz))| {
            for (k, &i) in order.iter().enumerate() {
                [x[k], y[k], z[k]] = raster.locate(positions[i as usize]).wrapped();
                [vx[k], vy[k], vz[k]] = velocities[i as usize].to_array().map(|v| v as f32);
                rank[i as usize].store((c * COPY_CHUNK + k) as u32, Relaxed);
            }
        });
        self.cells.clear();
        if cells.wraps() {
            let cell = |&i: &u32| raster.locate(positions[i as usize]).cell();
            self.cells.par_extend(order.par_iter().map(cell));
        }
    }

    /// The columns of places, and those of pressure and volume to be written.
    pub(super) fn places_and_states(&mut self) -> (Sources<'_, 3>, [&mut Vec<f32>; 2]) {
        let Self { places, carried: [pressure, volume, ..], cells } = self;
        let places = places.each_ref().map(Vec::as_slice);
        (Sources { places, carried: [&[]; 5], cells }, [pressure, volume])
    }

    /// All columns.
    pub(super) fn all(&self) -> Sources<'_, 8> {
        let (places, carried) =
            (self.places.each_ref().map(Vec::as_slice), self.carried.each_ref().map(Vec::as_slice));
        Sources { places, carried, cells: &self.cells }
    }
}

impl<const C: usize> Sources<'_, C> {
    /// Particles of one cell, `home` if cells do not wrap: the first of `halves`, which are cut by as many.
    #[inline(always)]
    pub(super) fn block(&self, halves: &mut [Range<usize>; 2], mut home: IVec3) -> Block {
        let mut own = halves.clone();
        if self.cells.is_empty() {
            halves.iter_mut().for_each(|half| half.start = half.end);
        } else {
            let half = usize::from(halves[0].is_empty());
            let Range { start, end } = halves[half].clone();
            home = self.cells[start];
            let count = self.cells[start..end].iter().take_while(|cell| **cell == home).count();
            (own[half].end, own[1 - half].end) = (start + count, own[1 - half].start);
            halves[half].start += count;
        }
        let mut block = Block {
            halves: own,
            home,
            corner: Place::corner(home),
            low: [f32::INFINITY; 3],
            high: [f32::NEG_INFINITY; 3],
        };
        for half in block.halves.clone() {
            for k in half {
                for axis in 0..3 {
                    let x = self.relative(axis, k, &block);
                    block.low[axis] = block.low[axis].min(x);
                    block.high[axis] = block.high[axis].max(x);
                }
            }
        }
        block
    }

    /// A coordinate of a particle from the corner of a block's cell on [support radii], exact.
    #[inline(always)]
    fn relative(&self, axis: usize, particle: usize, block: &Block) -> f32 {
        self.places[axis][particle].wrapping_sub(block.corner[axis]) as f32 * FRACTION
    }

    /// The values of one particle of a block, each in all lanes.
    #[inline(always)]
    pub(super) fn splat<L: Lanes>(&self, particle: usize, block: &Block) -> [L; C] {
        let mut lanes = [L::splat(0.0); C];
        for c in 0..C {
            lanes[c] = L::splat(if c < 3 {
                self.relative(c, particle, block)
            } else {
                self.carried[c - 3][particle]
            });
        }
        lanes
    }

    /// The places of sixteen particles, from the corner of a block's cell on.
    #[inline(always)]
    fn places<L: Lanes>(&self, at: usize, block: &Block) -> [L; 3] {
        let mut values = [L::splat(0.0); 3];
        for axis in 0..3 {
            let differences = L::load_differences(lanes(self.places[axis], at), block.corner[axis]);
            values[axis] = differences * L::splat(FRACTION);
        }
        values
    }
}

impl Candidates {
    /// Copies the candidates of a block, and finds which they are if only places are copied.
    #[inline(always)]
    pub(super) fn collect<L: Lanes, const C: usize>(
        &mut self,
        sources: &Sources<'_, C>,
        (cells, planes): (&CellOrder, Option<[DVec3; 2]>),
        block: &Block,
        selections: &mut Selections,
    ) {
        self.end = 0;
        let runs = cells.runs(block.home);
        for layer in 0..LAYERS {
            self.layers[layer] = self.end;
            for index in 0..runs.count() {
                let run = runs.get(layer, index);
                if sources.cells.is_empty() {
                    self.append_near::<L, C>(sources, run, block, selections);
                } else {
                    self.append_own_cells::<L, C>(sources, run, layer, block, selections);
                }
            }
        }
        self.layers[LAYERS] = self.end;
        self.images = self.end;
        self.fill_lanes::<C>();
        if let Some([min, max]) = planes {
            // What is read beyond the highest layer must be nothing, not images.
            self.end += LANES;
            self.images = self.end;
            self.append_images::<L, C>([min, max], block, selections);
            self.fill_lanes::<C>();
        }
    }

    /// Columns of the candidates that particles in a half of the block may see: those in layers around it, and images.
    /// In the last lanes of the former may be candidates of layers that are out of reach.
    #[inline(always)]
    pub(super) fn seen_from<const C: usize>(&self, half: usize) -> [[&[[f32; LANES]]; C]; 2] {
        [
            self.columns(self.layers[half]..self.layers[half + LAYERS_SEEN]),
            self.columns(self.images..self.end.max(self.images)),
        ]
    }

    #[inline(always)]
    fn columns<const C: usize>(&self, range: Range<usize>) -> [&[[f32; LANES]]; C] {
        let vectors = range.len().div_ceil(LANES);
        let mut columns = [&[] as &[[f32; LANES]]; C];
        for c in 0..C {
            columns[c] =
                &self.values[self.origin + c * self.stride + range.start..].as_chunks::<LANES>().0[..vectors];
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

    /// Where slots can hold particles of distant cells: those of a run that are in the cells it stands for.
    #[inline(always)]
    fn append_own_cells<L: Lanes, const C: usize>(
        &mut self,
        sources: &Sources<'_, C>,
        run: Range<usize>,
        layer: usize,
        block: &Block,
        selections: &mut Selections,
    ) {
        let near = |k: usize| {
            let step = sources.cells[k] - block.home;
            step.z == layer as i32 / 2 - 1 && step.abs().max_element() <= 1
        };
        let mut begin = run.start;
        while begin < run.end {
            let mut end = begin;
            while end < run.end && near(end) {
                end += 1;
            }
            self.append_near::<L, C>(sources, begin..end, block, selections);
            begin = end + 1;
        }
    }

    /// Appends the particles of a run that are within reach of the block's bounding box.
    #[inline(always)]
    fn append_near<L: Lanes, const C: usize>(
        &mut self,
        sources: &Sources<'_, C>,
        run: Range<usize>,
        block: &Block,
        selections: &mut Selections,
    ) {
        self.reserve::<C>(run.len());
        let mut at = run.start;
        while at < run.end {
            let mut values = [L::splat(0.0); C];
            let selected = if C == 3 {
                values[..3].copy_from_slice(&sources.places::<L>(at, block));
                selections.find(block.reaches::<L>([values[0], values[1], values[2]], run.end - at))
            } else {
                selections.recall()
            };
            if selected != 0 {
                if C == 8 {
                    values[..3].copy_from_slice(&sources.places::<L>(at, block));
                    for c in 3..C {
                        values[c] = L::load(lanes(sources.carried[c - 3], at));
                    }
                }
                self.append::<L, C>(values, selected);
            }
            at += LANES;
        }
    }

    /// Appends mirror images of the candidates, wall after wall so that edges and corners get theirs. An image is
    /// never nearer than its original, so every image in reach is an image of a candidate.
    #[inline(always)]
    fn append_images<L: Lanes, const C: usize>(
        &mut self,
        planes: [DVec3; 2],
        block: &Block,
        selections: &mut Selections,
    ) {
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
                    let selected = if C == 3 {
                        selections.find(block.reaches::<L>([values[0], values[1], values[2]], originals - at))
                    } else {
                        selections.recall()
                    };
                    if selected != 0 {
                        self.append::<L, C>(values, selected);
                    }
                    at += LANES;
                }
            }
        }
    }

    /// Appends the selected lanes.
    #[inline(always)]
    fn append<L: Lanes, const C: usize>(&mut self, values: [L; C], selected: u16) {
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
