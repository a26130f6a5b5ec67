//! The candidates of a group of particles: copies, next to each other, of every particle and mirror image that any of
//! the group may see.

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
    lanes::{LANES, Register},
};
use glam::IVec3;
use rayon::prelude::*;

use super::cells::{BINS, CellOrder, FRACTION, Place, Raster, Row};

/// Squared distance from a group's bounding box within which particles are candidates, a little more than 1 for
/// rounding.
const REACH: f32 = 1.000_01;
/// Bins that a group reaches over at most. Offsets from their middle are then exact in f32, of images too.
const GROUP_BINS: i32 = 7;
/// Particles of one task in loops that copy.
const COPY_CHUNK: usize = 4096;

/// Walls: their axis, and whether they are the higher ones along it. Wall after wall, so that edges and corners get
/// their images, too.
const SIDES: [(usize, usize); 6] = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)];

/// Where pressure, volume and velocity begin in [`Stored`] and [`Candidate`].
pub(super) const PRESSURE: usize = 3;
pub(super) const VOLUME: usize = 4;
pub(super) const VELOCITY: usize = 5;

/// A particle as stored: x, y, z [fractions of a cell, modulo 1024 cells], and the bits of f32: pressure, volume,
/// velocity x, y, z [m/s].
pub(super) type Stored = [i32; 8];
/// A particle or image as a candidate: place from the group's origin on [support radii], the rest as stored.
pub(super) type Candidate = [f32; 8];

/// What the loops over pairs read of particles, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Columns {
    /// x, y, z of [`Stored`], and [`LANES`] values more, so that a register can be read from wherever a run begins.
    places: [Vec<i32>; 3],
    stored: Vec<Stored>,
    /// Cells, where slots can hold particles of more than one.
    cells: Vec<IVec3>,
}

/// What a group's candidates are looked for in.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub(super) order: &'a CellOrder,
    pub(super) places: [&'a [i32]; 3],
    pub(super) cells: &'a [IVec3],
    /// Lowest and highest planes of the walls [cells].
    pub(super) planes: Option<[DVec3; 2]>,
}

/// Particles in a row that are as many as a register has lanes, or fewer.
pub(super) struct Group<'a> {
    pub(super) particles: Range<usize>,
    /// Where it is in the order; cells may wrap.
    in_order: &'a Row,
    row: [i32; 2],
    /// Its first bin and its last.
    bins: [i32; 2],
    /// From where its places count: in the middle of the bins it may reach over, at the row's corner.
    origin: [i32; 3],
}

/// What was found about candidates with densities and is used again for forces, for all groups of a chunk one after the
/// other: the number of registers that hold particles and which walls are in reach, then these registers; then for wall
/// after wall the number of registers that hold images, and these.
#[derive(Clone, Debug, Default)]
pub(super) struct Selections {
    registers: Vec<Selected>,
    next: usize,
}

/// Which lanes of a register hold candidates.
#[derive(Clone, Copy, Debug, Default)]
struct Selected {
    /// What the first lane holds.
    first: u32,
    lanes: u16,
}

/// Places of the candidates of one group, a column a coordinate; memory is kept from one to the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    spans: Spans,
    columns: [Vec<f32>; 3],
    count: usize,
}

/// The candidates of one group; memory is kept from one to the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidates {
    index: Vec<u32>,
    candidates: Vec<Candidate>,
    count: usize,
}

/// Runs of the order cut into registers: where each begins and its run ends.
#[derive(Clone, Debug, Default)]
struct Spans {
    spans: Vec<[u32; 2]>,
    count: usize,
}

impl Selections {
    /// Begins anew, to find them.
    pub(super) fn clear(&mut self) {
        self.registers.clear();
    }

    /// Begins at the first one again, to use them.
    pub(super) fn rewind(&mut self) {
        self.next = 0;
    }

    /// Notes which walls are in reach and those registers in which `select` selects lanes; it is called for each.
    #[inline(always)]
    fn find(
        &mut self,
        walls: u16,
        firsts: impl ExactSizeIterator<Item = u32>,
        mut select: impl FnMut(usize, u32) -> u16,
    ) {
        let begin = self.registers.len();
        self.registers.resize(begin + 1 + firsts.len(), Selected::default());
        let (head, registers) = self.registers[begin..].split_first_mut().expect("one more");
        let mut count = 0;
        for (n, first) in firsts.enumerate() {
            let lanes = select(n, first);
            registers[count] = Selected { first, lanes };
            count += usize::from(lanes != 0);
        }
        *head = Selected { first: count as u32, lanes: walls };
        self.registers.truncate(begin + 1 + count);
    }

    /// The next walls and registers.
    #[inline(always)]
    fn recall(&mut self) -> (u16, &[Selected]) {
        let Selected { first: count, lanes: walls } = self.registers[self.next];
        let begin = self.next + 1;
        self.next = begin + count as usize;
        (walls, &self.registers[begin..self.next])
    }
}

impl Columns {
    /// Copies places and velocities of particles in a new order, and notes where each particle went.
    pub(super) fn set(
        &mut self,
        raster: &Raster,
        order: &CellOrder,
        positions: &[DVec3],
        velocities: &[DVec3],
        rank: &[AtomicU32],
    ) {
        let (particles, places) = (order.order(), order.places());
        let count = particles.len();
        self.places.iter_mut().for_each(|column| column.resize(count + LANES, 0));
        self.stored.resize(count, [0; 8]);
        let [x, y, z] = self.places.each_mut().map(|column| column[..count].par_chunks_mut(COPY_CHUNK));
        let tasks = (particles.par_chunks(COPY_CHUNK), self.stored.par_chunks_mut(COPY_CHUNK), x, y, z);
        tasks.into_par_iter().enumerate().for_each(|(c, (particles, stored, x, y, z))| {
            for (k, &i) in particles.iter().enumerate() {
                let [px, py, pz] = places[i as usize];
                let [vx, vy, vz] = velocities[i as usize].to_array().map(|v| (v as f32).to_bits() as i32);
                [x[k], y[k], z[k]] = [px, py, pz];
                stored[k] = [px, py, pz, 0, 0, vx, vy, vz];
                rank[i as usize].store((c * COPY_CHUNK + k) as u32, Relaxed);
            }
        });
        self.cells.clear();
        if order.wraps() {
            let cell = |&i: &u32| raster.locate(positions[i as usize]).cell();
            self.cells.par_extend(particles.par_iter().map(cell));
        }
    }

    /// Where candidates are looked for, and the particles as stored.
    pub(super) fn parts<'a>(
        &'a mut self,
        order: &'a CellOrder,
        planes: Option<[DVec3; 2]>,
    ) -> (Surroundings<'a>, &'a mut [Stored]) {
        let Self { places, stored, cells } = self;
        let places = places.each_ref().map(Vec::as_slice);
        (Surroundings { order, places, cells, planes }, stored)
    }
}

impl Surroundings<'_> {
    /// The particles of a row from `first` on, `lanes` of them unless they reach too far or are of distant cells.
    #[inline(always)]
    pub(super) fn group<'a>(&self, in_order: &'a Row, first: usize, lanes: usize) -> Group<'a> {
        let row = in_order;
        let longest = (first + lanes).min(row.particles.end);
        let (row, bins, end) = if self.cells.is_empty() {
            let bin = self.order.bin(row, first);
            let end = self.order.end_before(row, bin + GROUP_BINS).min(longest);
            (row.at, [bin, self.order.bin(row, end - 1)], end)
        } else {
            let bin_of = |k: usize| Place::bin_in(self.cells[k], self.places[0][k]);
            let (home, bin) = (self.cells[first], bin_of(first));
            let near = |&k: &usize| {
                let IVec3 { y, z, .. } = self.cells[k];
                (y, z) == (home.y, home.z) && (bin..bin + GROUP_BINS).contains(&bin_of(k))
            };
            let end = (first..longest).take_while(near).last().map_or(first + 1, |last| last + 1);
            ([home.y, home.z], [bin, bin + GROUP_BINS - 1], end)
        };
        let origin = Place::wrapped_point([2 * bins[0] + GROUP_BINS, row[0], row[1]]);
        Group { particles: first..end, in_order, row, bins, origin }
    }

    /// The runs of the order that hold all that is within a support radius of a group.
    #[inline(always)]
    fn cut<R: Register>(&self, group: &Group<'_>, spans: &mut Spans) {
        spans.count = 0;
        let bins = self.order.bins(group.bins[0] - BINS, group.bins[1] + BINS);
        self.order.runs(
            group.in_order,
            bins,
            #[inline(always)]
            |run| spans.add::<R>(run),
        );
    }

    /// Which of the particles from `at` on are in cells near enough for places to be compared.
    #[inline(never)]
    fn same_space(&self, at: usize, count: usize, group: &Group<'_>) -> u16 {
        let near = |&lane: &usize| {
            let cell = self.cells[at + lane];
            let bin = Place::bin_in(cell, self.places[0][at + lane]);
            (cell.y - group.row[0]).abs() <= 1
                && (cell.z - group.row[1]).abs() <= 1
                && (group.bins[0] - BINS..=group.bins[1] + BINS).contains(&bin)
        };
        (0..count).filter(near).fold(0, |bits, lane| bits | 1 << lane)
    }

    /// The plane of one of [`SIDES`] from a group's origin on [support radii], if there are walls.
    #[inline(always)]
    fn plane(&self, (axis, side): (usize, usize), group: &Group<'_>) -> Option<f32> {
        let origin = match axis {
            0 => f64::from(2 * group.bins[0] + GROUP_BINS) / f64::from(2 * BINS),
            _ => f64::from(group.row[axis - 1]),
        };
        self.planes.map(|planes| (planes[side][axis] - origin) as f32)
    }

    /// Axis and plane of those walls of [`SIDES`] whose bit is set.
    #[inline(always)]
    fn walls(&self, bits: u16, group: &Group<'_>) -> impl Iterator<Item = (usize, f32)> {
        let selected = SIDES.iter().enumerate().filter(move |(bit, _)| bits >> bit & 1 == 1);
        selected.filter_map(|(_, &side)| Some((side.0, self.plane(side, group)?)))
    }

    /// Coordinates of the group's particles, and of as many more as there are lanes.
    #[inline(always)]
    pub(super) fn places<R: Register>(&self, group: &Group<'_>) -> [R; 3] {
        places_from(self.places, group.particles.start, group.origin)
    }
}

/// Places from `at` on, from an origin on [support radii].
#[inline(always)]
fn places_from<R: Register>(places: [&[i32]; 3], at: usize, origin: [i32; 3]) -> [R; 3] {
    let mut values = [R::splat(0.0); 3];
    for axis in 0..3 {
        let differences = R::load_differences(&places[axis][at..], origin[axis]);
        values[axis] = differences * R::splat(FRACTION);
    }
    values
}

impl Spans {
    #[inline(always)]
    fn add<R: Register>(&mut self, run: Range<u32>) {
        let mut at = run.start;
        // Four at a time whether there are as many or not: how many there are is hard to predict.
        while at < run.end {
            if self.spans.len() < self.count + 4 {
                self.spans.resize(2 * (self.count + 4), [0; 2]);
            }
            for (k, span) in self.spans[self.count..][..4].iter_mut().enumerate() {
                *span = [at + (k * R::LANES) as u32, run.end];
            }
            self.count += (run.end - at).div_ceil(R::LANES as u32).min(4) as usize;
            at += 4 * R::LANES as u32;
        }
    }

    #[inline(always)]
    fn all(&self) -> &[[u32; 2]] {
        &self.spans[..self.count]
    }
}

/// A box, and what is in reach of it.
struct Reach<R> {
    low: [R; 3],
    high: [R; 3],
}

impl<R: Register> Reach<R> {
    /// Which of the first `count` places are in reach.
    #[inline(always)]
    fn selects(&self, places: [R; 3], count: usize) -> u16 {
        let mut gap2 = R::splat(0.0);
        for axis in 0..3 {
            let gap = places[axis] - places[axis].larger(self.low[axis]).smaller(self.high[axis]);
            gap2 = gap.mul_add(gap, gap2);
        }
        let present = u16::MAX >> (16 - count.min(R::LANES));
        gap2.less(R::splat(REACH)) & present
    }
}

impl Places {
    /// Copies the places of a group's candidates, and notes which they are.
    #[inline(always)]
    pub(super) fn collect<R: Register>(
        &mut self,
        around: &Surroundings<'_>,
        group: &Group<'_>,
        selections: &mut Selections,
    ) {
        let Self { spans, columns, count } = self;
        let mut reach = Reach { low: [R::splat(0.0); 3], high: [R::splat(0.0); 3] };
        let (mut low, mut high) = ([0.0; 3], [0.0; 3]);
        let own = around.places::<R>(group);
        for axis in 0..3 {
            (low[axis], high[axis]) = own[axis].extremes(group.particles.len());
            (reach.low[axis], reach.high[axis]) = (R::splat(low[axis]), R::splat(high[axis]));
        }
        let mut walls = 0;
        for (bit, &side) in SIDES.iter().enumerate() {
            let near = |plane: f32| low[side.0] - plane < 1.0 && plane - high[side.0] < 1.0;
            walls |= u16::from(around.plane(side, group).is_some_and(near)) << bit;
        }
        around.cut::<R>(group, spans);
        reserve::<R>(columns, spans.count * R::LANES);
        let (mut end, places, spans) = (0, around.places, spans.all());
        let [x, y, z] = columns.each_mut().map(Vec::as_mut_slice);
        selections.find(
            walls,
            spans.iter().map(|span| span[0]),
            #[inline(always)]
            |n: usize, at: u32| {
                let (at, present) = (at as usize, (spans[n][1] - at) as usize);
                let values = places_from::<R>(places, at, group.origin);
                let mut selected = reach.selects(values, present);
                if !around.cells.is_empty() {
                    selected &= around.same_space(at, present.min(R::LANES), group);
                }
                values[0].store_selected(selected, &mut x[end..]);
                values[1].store_selected(selected, &mut y[end..]);
                values[2].store_selected(selected, &mut z[end..]);
                end += selected.count_ones() as usize;
                selected
            },
        );
        *count = end;
        for (axis, plane) in around.walls(walls, group) {
            self.mirror(&reach, axis, plane, selections);
        }
    }

    /// Appends the images of all that there is behind a wall. An image is never nearer than its original, so every
    /// image in reach is one of a candidate.
    #[inline(always)]
    fn mirror<R: Register>(
        &mut self,
        reach: &Reach<R>,
        axis: usize,
        plane: f32,
        selections: &mut Selections,
    ) {
        let originals = self.count;
        reserve::<R>(&mut self.columns, 2 * originals);
        let mut end = originals;
        let columns = &mut self.columns;
        let registers = 0..originals.div_ceil(R::LANES) as u32;
        selections.find(
            0,
            registers.map(|register| register * R::LANES as u32),
            #[inline(always)]
            |_: usize, at: u32| {
                let at = at as usize;
                let mut values = [R::splat(0.0); 3];
                for axis in 0..3 {
                    values[axis] = R::load(&columns[axis][at..]);
                }
                values[axis] = R::splat(2.0 * plane) - values[axis];
                let selected = reach.selects(values, originals - at);
                for axis in 0..3 {
                    values[axis].store_selected(selected, &mut columns[axis][end..]);
                }
                end += selected.count_ones() as usize;
                selected
            },
        );
        self.count = end;
    }

    /// x, y and z of the candidates.
    #[inline(always)]
    pub(super) fn columns(&self) -> [&[f32]; 3] {
        let [x, y, z] = &self.columns;
        [&x[..self.count], &y[..self.count], &z[..self.count]]
    }
}

impl Candidates {
    /// Copies the candidates of a group, which were found before.
    #[inline(always)]
    pub(super) fn collect<R: Register>(
        &mut self,
        around: &Surroundings<'_>,
        stored: &[Stored],
        group: &Group<'_>,
        selections: &mut Selections,
    ) {
        let Self { index, candidates, count } = self;
        let (walls, registers) = selections.recall();
        let found = expand::<R>(index, registers);
        make_room(candidates, found.len());
        let [x, y, z] = group.origin;
        for (candidate, &k) in candidates.iter_mut().zip(found) {
            *candidate = R::placed(&stored[k as usize], &[x, y, z, 0, 0, 0, 0, 0], FRACTION);
        }
        *count = found.len();
        for (axis, plane) in around.walls(walls, group) {
            let found = expand::<R>(index, selections.recall().1);
            make_room(candidates, *count + found.len());
            let (originals, images) = candidates.split_at_mut(*count);
            for (image, &k) in images.iter_mut().zip(found) {
                *image = originals[k as usize];
                image[axis] = 2.0 * plane - image[axis];
                image[VELOCITY + axis] = 0.0 - image[VELOCITY + axis];
            }
            *count += found.len();
        }
    }

    /// All of them.
    #[inline(always)]
    pub(super) fn all(&self) -> &[Candidate] {
        &self.candidates[..self.count]
    }
}

/// What selected lanes hold.
#[inline(always)]
fn expand<'a, R: Register>(index: &'a mut Vec<u32>, registers: &[Selected]) -> &'a [u32] {
    make_room(index, (registers.len() + 1) * R::LANES);
    let mut count = 0;
    for &Selected { first, lanes } in registers {
        R::store_indices(lanes, first, &mut index[count..]);
        count += lanes.count_ones() as usize;
    }
    &index[..count]
}

#[inline(always)]
fn make_room<T: Copy + Default>(column: &mut Vec<T>, count: usize) {
    if column.len() < count {
        column.resize(2 * count, T::default());
    }
}

/// Makes room for `count` values in each column, and the rest of a register.
#[inline(always)]
fn reserve<R: Register>(columns: &mut [Vec<f32>; 3], count: usize) {
    columns.iter_mut().for_each(|column| make_room(column, count + R::LANES));
}
