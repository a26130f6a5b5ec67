//! The candidates of a group of particles: all particles and mirror images that any particle of the group may
//! see, copied next to each other.

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

use super::cells::{BINS, CellOrder, FRACTION, Place, Points, Raster, Row};

/// Squared distance [squared support radii] from a group's bounding box up to which particles are candidates.
/// It is a little more than 1 because of rounding.
const REACH: f32 = 1.000_01;
/// Largest number of bins that a group spans. Offsets of particles and images from their middle are then
/// exact in f32.
const GROUP_BINS: i32 = 7;
/// Particles of one task in loops that copy.
const COPY_CHUNK: usize = 4096;

/// Walls: axis, and 1 for the wall at the higher end of the axis. Each wall also mirrors the images in the
/// walls before it, so that edges and corners get their images.
const SIDES: [(usize, usize); 6] = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)];

/// Offsets of pressure, volume and velocity in [`Stored`] and [`Candidate`].
pub(in crate::sph) const PRESSURE: usize = 3;
pub(in crate::sph) const VOLUME: usize = 4;
pub(in crate::sph) const VELOCITY: usize = 5;

/// A particle as stored: x, y, z [fractions of a cell, modulo 1024 cells], then as bits of f32 the scaled
/// pressure and volume (`sph/pairs.rs`) and the velocity along x, y and z [m/s].
pub(in crate::sph) type Stored = [i32; 8];
/// A particle or image as a candidate: place relative to the group's origin [support radii], then the stored
/// pressure, volume and velocity.
pub(in crate::sph) type Candidate = [f32; 8];

/// The columns of particles that the loops over pairs read, in their order.
#[derive(Clone, Debug, Default)]
pub(in crate::sph) struct Columns {
    /// x, y, z of [`Stored`], then [`LANES`] unused values, so that a whole register can be read from any
    /// particle on.
    places: [Vec<i32>; 3],
    stored: Vec<Stored>,
    /// Cell of each particle. Empty unless slots can hold particles of several cells.
    cells: Vec<IVec3>,
}

/// The particles among which a group's candidates are looked for.
#[derive(Clone, Copy)]
pub(in crate::sph) struct Surroundings<'a> {
    pub(in crate::sph) order: &'a CellOrder,
    pub(in crate::sph) places: [&'a [i32]; 3],
    pub(in crate::sph) cells: &'a [IVec3],
    /// Lowest and highest planes of the walls [cells].
    pub(in crate::sph) planes: Option<[DVec3; 2]>,
    /// True for walls at which the fluid sticks, by axis, the lower wall first.
    pub(in crate::sph) no_slip: [[bool; 2]; 3],
}

/// Some successive particles of a row, at most as many as a register has lanes.
pub(in crate::sph) struct Group<'a> {
    pub(in crate::sph) particles: Range<usize>,
    /// The row of the order that holds the group. If cells wrap, it may hold particles of distant cells.
    in_order: &'a Row,
    /// The group's cell along y and z.
    row: [i32; 2],
    /// The group's first bin and its last.
    bins: [i32; 2],
    /// Origin of places: along x the middle of the bins that a group may span, along y and z the row's
    /// corner.
    origin: [i32; 3],
}

/// Candidates within reach of any particle of a group, for all groups of a chunk one after the other. They
/// are found with densities and used again for forces.
///
/// The entry of a group begins with the walls in reach, as bits of [`SIDES`]. For each set of these walls,
/// the empty set first, follow the number of candidates mirrored in all walls of the set, and their indices.
#[derive(Clone, Debug, Default)]
pub(in crate::sph) struct NeighbourList {
    words: Vec<u32>,
    /// The next word to be read.
    next: usize,
}

/// Places of the candidates of a group, one column per coordinate, and their indices. Memory is kept from one
/// group to the next.
#[derive(Clone, Debug, Default)]
pub(in crate::sph) struct Places {
    spans: Spans,
    columns: [Vec<f32>; 3],
    index: Vec<u32>,
    /// 1 for candidates in reach of any particle of the group.
    met: Vec<u8>,
    /// Walls in reach, as bits of [`SIDES`].
    walls: u32,
    /// End of the candidates of each set of walls. The empty set, whose candidates are the particles
    /// themselves, comes first.
    ends: Vec<usize>,
}

/// The candidates of one group; memory is kept from one to the next.
#[derive(Clone, Debug, Default)]
pub(in crate::sph) struct Candidates {
    candidates: Vec<Candidate>,
    count: usize,
}

/// Runs of the order cut into registers. Each span holds the first particle, and the end of its run, which
/// the lanes in reach replace later.
#[derive(Clone, Debug, Default)]
struct Spans {
    spans: Vec<[u32; 2]>,
    count: usize,
}

impl NeighbourList {
    /// Empties the list, to be filled anew.
    pub(in crate::sph) fn clear(&mut self) {
        self.words.clear();
    }

    /// Continues reading at the first group.
    pub(in crate::sph) fn rewind(&mut self) {
        self.next = 0;
    }

    /// Appends the number of `particles` that were met, and these particles. `met` has a flag for each
    /// particle and is filled up to a whole number of registers. Returns the number.
    #[inline(always)]
    fn add<R: Register>(&mut self, particles: &[u32], met: &[u8]) -> usize {
        let begin = self.words.len();
        let room = 1 + met.len() + R::LANES;
        if self.words.capacity() - begin < room {
            // Lists live from step to step. To double their capacity would waste memory.
            self.words.reserve_exact(begin / 8 + room);
        }
        self.words.resize(begin + room, 0);
        let mut end = begin + 1;
        for at in (0..met.len()).step_by(R::LANES) {
            let selected = bits(&met[at..][..R::LANES]);
            R::store_selected_words(&particles[at..], selected, &mut self.words[end..]);
            end += selected.count_ones() as usize;
        }
        let count = end - begin - 1;
        self.words[begin] = count as u32;
        self.words.truncate(end);
        count
    }

    #[inline(always)]
    fn take(&mut self, count: usize) -> &[u32] {
        let begin = self.next;
        self.next += count;
        &self.words[begin..self.next]
    }
}

impl Columns {
    /// Copies places and velocities of particles in a new order, and puts each particle's place in the order
    /// into `rank`.
    pub(in crate::sph) fn set(
        &mut self,
        raster: &Raster,
        order: &CellOrder,
        (own, ghosts): (Points<'_>, Points<'_>),
        rank: &[AtomicU32],
    ) {
        let (particles, places) = (order.order(), order.places());
        let velocity = |i: usize| match own.velocities.get(i) {
            Some(velocity) => *velocity,
            None => ghosts.velocities[i - own.velocities.len()],
        };
        let count = particles.len();
        self.places.iter_mut().for_each(|column| column.resize(count + LANES, 0));
        self.stored.resize(count, [0; 8]);
        let [x, y, z] = self.places.each_mut().map(|column| column[..count].par_chunks_mut(COPY_CHUNK));
        let tasks = (particles.par_chunks(COPY_CHUNK), self.stored.par_chunks_mut(COPY_CHUNK), x, y, z);
        tasks.into_par_iter().enumerate().for_each(|(c, (particles, stored, x, y, z))| {
            for (k, &i) in particles.iter().enumerate() {
                let [px, py, pz] = places[i as usize];
                let [vx, vy, vz] = velocity(i as usize).to_array().map(|v| (v as f32).to_bits() as i32);
                [x[k], y[k], z[k]] = [px, py, pz];
                stored[k] = [px, py, pz, 0, 0, vx, vy, vz];
                rank[i as usize].store((c * COPY_CHUNK + k) as u32, Relaxed);
            }
        });
        self.cells.clear();
        if order.wraps() {
            let cell = |&i: &u32| {
                let (i, count) = (i as usize, own.positions.len());
                raster.locate(if i < count { own.positions[i] } else { ghosts.positions[i - count] }).cell()
            };
            self.cells.par_extend(particles.par_iter().map(cell));
        }
    }

    /// The particles as stored.
    pub(in crate::sph) fn stored(&self) -> &[Stored] {
        &self.stored
    }

    /// The particles as stored, to be changed.
    pub(in crate::sph) fn stored_mut(&mut self) -> &mut [Stored] {
        &mut self.stored
    }

    /// The surroundings in which candidates are sought, and the particles as stored.
    pub(in crate::sph) fn parts<'a>(
        &'a mut self,
        order: &'a CellOrder,
        raster: &Raster,
    ) -> (Surroundings<'a>, &'a mut [Stored]) {
        let Self { places, stored, cells } = self;
        let places = places.each_ref().map(Vec::as_slice);
        (Surroundings { order, places, cells, planes: raster.planes(), no_slip: raster.no_slip() }, stored)
    }
}

impl Surroundings<'_> {
    /// A group of the particles of a row from `first` on. It has `lanes` particles, or fewer if they would
    /// span too many bins or lie in distant cells.
    #[inline(always)]
    pub(in crate::sph) fn group<'a>(&self, in_order: &'a Row, first: usize, lanes: usize) -> Group<'a> {
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

    /// Finds the runs of the order that hold all particles within a support radius of a group.
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

    /// Lanes of the particles from `at` on that are truly near the group, if cells wrap.
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

    /// The plane of one of [`SIDES`] relative to a group's origin [support radii], if there are walls.
    #[inline(always)]
    fn plane(&self, (axis, side): (usize, usize), group: &Group<'_>) -> Option<f32> {
        let origin = match axis {
            0 => f64::from(2 * group.bins[0] + GROUP_BINS) / f64::from(2 * BINS),
            _ => f64::from(group.row[axis - 1]),
        };
        self.planes.map(|planes| (planes[side][axis] - origin) as f32)
    }

    /// The walls of [`SIDES`] whose bit is set: axis, plane [support radii], and true if the fluid sticks
    /// there.
    #[inline(always)]
    fn walls(&self, bits: u32, group: &Group<'_>) -> impl Iterator<Item = (usize, f32, bool)> {
        let selected = SIDES.iter().enumerate().filter(move |(bit, _)| bits >> bit & 1 == 1);
        selected
            .filter_map(|(_, &side)| Some((side.0, self.plane(side, group)?, self.no_slip[side.0][side.1])))
    }

    /// Coordinates of the group's particles [support radii], and of later particles in the remaining lanes.
    #[inline(always)]
    pub(in crate::sph) fn places<R: Register>(&self, group: &Group<'_>) -> [R; 3] {
        places_from(self.places, group.particles.start, group.origin)
    }
}

/// Places of the particles from `at` on, relative to an origin [support radii].
#[inline(always)]
fn places_from<R: Register>(places: [&[i32]; 3], at: usize, origin: [i32; 3]) -> [R; 3] {
    let mut values = [R::splat(0.0); 3];
    let count = places[0].len();
    for axis in 0..3 {
        let differences = R::load_differences(&places[axis][..count][at..], origin[axis]);
        values[axis] = differences * R::splat(FRACTION);
    }
    values
}

impl Spans {
    #[inline(always)]
    fn add<R: Register>(&mut self, run: Range<u32>) {
        let mut at = run.start;
        // Always writes four spans, since processors predict a branch on the number of spans badly.
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
    fn all(&mut self) -> &mut [[u32; 2]] {
        &mut self.spans[..self.count]
    }
}

/// A group's bounding box, for finding the places within reach of it [support radii].
struct Reach<R> {
    low: [R; 3],
    high: [R; 3],
}

impl<R: Register> Reach<R> {
    /// The lanes, of the first `count`, whose places are in reach.
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
    /// Copies the places of a group's candidates.
    #[inline(always)]
    pub(in crate::sph) fn collect<R: Register>(&mut self, around: &Surroundings<'_>, group: &Group<'_>) {
        let Self { spans, columns, index, walls, ends, .. } = self;
        let mut reach = Reach { low: [R::splat(0.0); 3], high: [R::splat(0.0); 3] };
        let (mut low, mut high) = ([0.0; 3], [0.0; 3]);
        let own = around.places::<R>(group);
        for axis in 0..3 {
            (low[axis], high[axis]) = own[axis].extremes(group.particles.len());
            (reach.low[axis], reach.high[axis]) = (R::splat(low[axis]), R::splat(high[axis]));
        }
        *walls = 0;
        for (bit, &side) in SIDES.iter().enumerate() {
            let near = |plane: f32| low[side.0] - plane < 1.0 && plane - high[side.0] < 1.0;
            *walls |= u32::from(around.plane(side, group).is_some_and(near)) << bit;
        }
        around.cut::<R>(group, spans);
        // First the search, then the copies: the address of a copy depends on the copies before, and the
        // search would wait for it.
        for span in spans.all() {
            let [at, run_end] = *span;
            let (at, present) = (at as usize, (run_end - at) as usize);
            let mut selected = reach.selects(places_from::<R>(around.places, at, group.origin), present);
            if !around.cells.is_empty() {
                selected &= around.same_space(at, present.min(R::LANES), group);
            }
            span[1] = u32::from(selected);
        }
        reserve::<R>(columns, index, spans.count * R::LANES);
        let room = index.len();
        let [x, y, z] = columns.each_mut().map(|column| &mut column[..room]);
        let mut end = 0;
        for &mut [first, selected] in spans.all() {
            let selected = selected as u16;
            let values = places_from::<R>(around.places, first as usize, group.origin);
            values[0].store_selected(selected, &mut x[end..]);
            values[1].store_selected(selected, &mut y[end..]);
            values[2].store_selected(selected, &mut z[end..]);
            R::store_indices(selected, first, &mut index[end..]);
            end += selected.count_ones() as usize;
        }
        ends.clear();
        ends.push(end);
        for (axis, plane, _) in around.walls(self.walls, group) {
            for set in 0..self.ends.len() {
                self.mirror(&reach, axis, plane, set);
            }
        }
    }

    /// Appends the images, in one more wall, of the candidates of a set of walls. An image is never nearer to
    /// the group than its original, so that originals of images in reach are candidates too.
    #[inline(always)]
    fn mirror<R: Register>(&mut self, reach: &Reach<R>, axis: usize, plane: f32, set: usize) {
        let Self { columns, index, ends, .. } = self;
        let (originals, mut end) = (range(ends, set), *ends.last().expect("the particles themselves"));
        reserve::<R>(columns, index, end + originals.len());
        for at in originals.clone().step_by(R::LANES) {
            let mut values = [R::splat(0.0); 3];
            for axis in 0..3 {
                values[axis] = R::load(&columns[axis][at..]);
            }
            values[axis] = R::splat(2.0 * plane) - values[axis];
            let selected = reach.selects(values, originals.end - at);
            for axis in 0..3 {
                values[axis].store_selected(selected, &mut columns[axis][end..]);
            }
            for lane in 0..R::LANES {
                if selected >> lane & 1 == 1 {
                    index[end] = index[at + lane];
                    end += 1;
                }
            }
        }
        ends.push(end);
    }

    /// Calls `meet` with the place of each candidate, and appends to `found` the candidates for which it
    /// returns true. Returns the number of all candidates, and of the appended ones.
    #[inline(always)]
    pub(in crate::sph) fn visit<R: Register>(
        &mut self,
        found: &mut NeighbourList,
        mut meet: impl FnMut([f32; 3]) -> bool,
    ) -> [usize; 2] {
        let Self { columns, index, met, ends, .. } = self;
        let mut noted = 0;
        found.words.push(self.walls);
        for set in 0..ends.len() {
            let candidates = range(ends, set);
            let count = candidates.len();
            let [x, y, z] = columns.each_ref().map(|column| &column[candidates.clone()]);
            make_room(met, count + LANES);
            // First a flag for each candidate, then the selection: an address that depends on earlier
            // candidates would delay the loads.
            for (((&x, &y), &z), met) in x.iter().zip(y).zip(z).zip(&mut *met) {
                *met = u8::from(meet([x, y, z]));
            }
            met[count..][..LANES].fill(0);
            noted += found.add::<R>(&index[candidates.start..], &met[..count.next_multiple_of(R::LANES)]);
        }
        [ends.last().copied().unwrap_or(0), noted]
    }
}

/// Eight or sixteen flags, each 0 or 1, as bits.
#[inline(always)]
fn bits(flags: &[u8]) -> u16 {
    let (eights, _) = flags.as_chunks();
    // The factor's powers of two move each of eight flags to its bit in the last byte of the product.
    let of = |&eight| (u64::from_le_bytes(eight).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u16;
    eights.iter().rev().fold(0, |bits, eight| bits << 8 | of(eight))
}

/// The candidates of a set of walls.
fn range(ends: &[usize], set: usize) -> Range<usize> {
    set.checked_sub(1).map_or(0, |before| ends[before])..ends[set]
}

impl Candidates {
    /// Copies the candidates of a group that `found` lists.
    #[inline(always)]
    pub(in crate::sph) fn collect<R: Register>(
        &mut self,
        around: &Surroundings<'_>,
        stored: &[Stored],
        group: &Group<'_>,
        found: &mut NeighbourList,
    ) {
        let Self { candidates, count } = self;
        let [x, y, z] = group.origin;
        let walls = found.take(1)[0];
        *count = 0;
        for set in 0..1u32 << walls.count_ones() {
            let (mut factor, mut term) = ([1.0; 8], [0.0; 8]);
            factor[..PRESSURE].fill(FRACTION);
            for (n, (axis, plane, sticks)) in around.walls(walls, group).enumerate() {
                if set >> n & 1 == 1 {
                    factor[axis] = -factor[axis];
                    term[axis] = 2.0 * plane - term[axis];
                    // At a wall where the fluid sticks, the image's velocity is opposite in all directions.
                    for direction in (0..3).filter(|&direction| sticks || direction == axis) {
                        factor[VELOCITY + direction] = -factor[VELOCITY + direction];
                    }
                }
            }
            let particles = found.take(1)[0] as usize;
            let particles = found.take(particles);
            make_room(candidates, *count + particles.len());
            for (candidate, &k) in candidates[*count..].iter_mut().zip(particles) {
                *candidate = R::placed(&stored[k as usize], &[x, y, z, 0, 0, 0, 0, 0], &factor, &term);
            }
            *count += particles.len();
        }
    }

    /// All candidates of the group.
    #[inline(always)]
    pub(in crate::sph) fn all(&self) -> &[Candidate] {
        &self.candidates[..self.count]
    }
}

#[inline(always)]
fn make_room<T: Copy + Default>(column: &mut Vec<T>, count: usize) {
    if column.len() < count {
        column.resize(2 * count, T::default());
    }
}

/// Makes room for `count` candidates, and for a register beyond them, in columns of equal length.
#[inline(always)]
fn reserve<R: Register>(columns: &mut [Vec<f32>; 3], index: &mut Vec<u32>, count: usize) {
    columns.iter_mut().for_each(|column| make_room(column, count + R::LANES));
    make_room(index, count + R::LANES);
}
