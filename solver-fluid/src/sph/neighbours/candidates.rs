//! The candidates of a packet for the loop over densities, and its neighbours for the loop over forces. Both
//! are copied next to each other, so that the loops read memory in order.
//!
//! Candidates are all particles and mirror images that any particle of the packet may see.

#![allow(
    clippy::needless_range_loop,
    reason = "iterators with closures are not compiled for the vector width"
)]

use std::ops::Range;

use amalgam_particles::lanes::{LANES, Register};

use super::cells::FRACTION;
use super::neighbour_list::NeighbourList;
use super::search::{BoundingBox, NeighbourSearch, Packet, SIDES};
use super::sorted_particles::{PRESSURE, ParticleRecord, VELOCITY};

/// Ranges of the cell order cut into blocks. A block is as many successive particles as a register has lanes:
///
/// ```text
///   range           |--------------------------------------|
///   blocks, lanes   |0 1 2 ... 15|0 1 2 ... 15|0 1 2 ... 15|
///   mask             0 1 1     0  1 1 1     1  1 0          lanes within reach of the packet
/// ```
#[derive(Clone, Debug, Default)]
struct Blocks {
    /// The first particle of each block, then the end of its range, which the mask of lanes replaces once it
    /// is known. Entries from `count` on are unused.
    blocks: Vec<[u32; 2]>,
    count: usize,
}

impl Blocks {
    /// Appends the blocks of a range.
    #[inline(always)]
    fn append<R: Register>(&mut self, range: Range<u32>) {
        let mut first = range.start;
        // Always writes four blocks, since processors predict a branch on the number of blocks badly.
        while first < range.end {
            if self.blocks.len() < self.count + 4 {
                self.blocks.resize(2 * (self.count + 4), [0; 2]);
            }
            for (k, block) in self.blocks[self.count..][..4].iter_mut().enumerate() {
                *block = [first + (k * R::LANES) as u32, range.end];
            }
            self.count += (range.end - first).div_ceil(R::LANES as u32).min(4) as usize;
            first += 4 * R::LANES as u32;
        }
    }

    #[inline(always)]
    fn all(&mut self) -> &mut [[u32; 2]] {
        &mut self.blocks[..self.count]
    }
}

/// Coordinates of the candidates of a packet, as a structure of arrays. Memory is kept from one packet to the
/// next.
///
/// The particles themselves come first. Behind them stand the images in each set of the walls in reach.
#[derive(Clone, Debug, Default)]
pub(in crate::sph) struct CandidateCoordinates {
    blocks: Blocks,
    /// x, y, z relative to the packet's origin [support radii].
    coordinates: [Vec<f32>; 3],
    /// Index of each candidate, or of an image's original, in the cell order.
    indices: Vec<u32>,
    /// 1 for candidates within a support radius of any particle of the packet.
    is_neighbour: Vec<u8>,
    /// Walls in reach, as bits of [`SIDES`].
    walls: u32,
    /// End of the candidates of each set of walls. The empty set, whose candidates are the particles
    /// themselves, comes first.
    set_ends: Vec<usize>,
}

impl CandidateCoordinates {
    /// Copies the coordinates of a packet's candidates.
    #[inline(always)]
    pub(in crate::sph) fn collect<R: Register>(&mut self, search: &NeighbourSearch<'_>, packet: &Packet<'_>) {
        let Self { blocks, coordinates, indices, walls, set_ends, .. } = self;
        let mut bounds = BoundingBox { low: [R::splat(0.0); 3], high: [R::splat(0.0); 3] };
        let (mut low, mut high) = ([0.0; 3], [0.0; 3]);
        let own = search.packet_coordinates::<R>(packet);
        for axis in 0..3 {
            (low[axis], high[axis]) = own[axis].extremes(packet.particles.len());
            (bounds.low[axis], bounds.high[axis]) = (R::splat(low[axis]), R::splat(high[axis]));
        }
        *walls = 0;
        for (bit, &side) in SIDES.iter().enumerate() {
            let near = |plane: f32| low[side.0] - plane < 1.0 && plane - high[side.0] < 1.0;
            *walls |= u32::from(search.plane(side, packet).is_some_and(near)) << bit;
        }
        blocks.count = 0;
        search.for_each_range(
            packet,
            #[inline(always)]
            |range| blocks.append::<R>(range),
        );
        // First the search, then the copies: the address of a copy depends on the copies before, and the
        // search would wait for it.
        for block in blocks.all() {
            let [first, range_end] = *block;
            let (first, present) = (first as usize, (range_end - first) as usize);
            let points = search.load_coordinates::<R>(first, packet.origin);
            let mut mask = bounds.lanes_within_reach(points, present);
            if !search.cells.is_empty() {
                mask &= search.lanes_in_near_cells(first, present.min(R::LANES), packet);
            }
            block[1] = u32::from(mask);
        }
        reserve::<R>(coordinates, indices, blocks.count * R::LANES);
        let room = indices.len();
        let [x, y, z] = coordinates.each_mut().map(|column| &mut column[..room]);
        let mut end = 0;
        for &mut [first, mask] in blocks.all() {
            let mask = mask as u16;
            let points = search.load_coordinates::<R>(first as usize, packet.origin);
            points[0].store_selected(mask, &mut x[end..]);
            points[1].store_selected(mask, &mut y[end..]);
            points[2].store_selected(mask, &mut z[end..]);
            R::store_indices(mask, first, &mut indices[end..]);
            end += mask.count_ones() as usize;
        }
        set_ends.clear();
        set_ends.push(end);
        for (axis, plane, _) in search.walls(self.walls, packet) {
            for set in 0..self.set_ends.len() {
                self.mirror(&bounds, axis, plane, set);
            }
        }
    }

    /// Appends the images, in one more wall, of the candidates of a set of walls. An image is never nearer to
    /// the packet than its original, so that originals of images in reach are candidates too.
    #[inline(always)]
    fn mirror<R: Register>(&mut self, bounds: &BoundingBox<R>, axis: usize, plane: f32, set: usize) {
        let Self { coordinates, indices, set_ends, .. } = self;
        let (originals, mut end) =
            (candidates_of(set_ends, set), *set_ends.last().expect("the particles themselves"));
        reserve::<R>(coordinates, indices, end + originals.len());
        for at in originals.clone().step_by(R::LANES) {
            let mut points = [R::splat(0.0); 3];
            for axis in 0..3 {
                points[axis] = R::load(&coordinates[axis][at..]);
            }
            points[axis] = R::splat(2.0 * plane) - points[axis];
            let mask = bounds.lanes_within_reach(points, originals.end - at);
            for axis in 0..3 {
                points[axis].store_selected(mask, &mut coordinates[axis][end..]);
            }
            for lane in 0..R::LANES {
                if mask >> lane & 1 == 1 {
                    indices[end] = indices[at + lane];
                    end += 1;
                }
            }
        }
        set_ends.push(end);
    }

    /// Calls `is_neighbour` with the coordinates of each candidate, and appends the candidates for which it
    /// returns true to the list. Returns the numbers of candidates and of neighbours.
    #[inline(always)]
    pub(in crate::sph) fn visit<R: Register>(
        &mut self,
        list: &mut NeighbourList,
        mut is_neighbour: impl FnMut([f32; 3]) -> bool,
    ) -> [usize; 2] {
        let Self { coordinates, indices, is_neighbour: flags, set_ends, .. } = self;
        let mut neighbours = 0;
        list.begin_packet(self.walls);
        for set in 0..set_ends.len() {
            let candidates = candidates_of(set_ends, set);
            let count = candidates.len();
            let [x, y, z] = coordinates.each_ref().map(|column| &column[candidates.clone()]);
            make_room(flags, count + LANES);
            // First a flag for each candidate, then the selection: an address that depends on earlier
            // candidates would delay the loads.
            for (((&x, &y), &z), flag) in x.iter().zip(y).zip(z).zip(&mut *flags) {
                *flag = u8::from(is_neighbour([x, y, z]));
            }
            flags[count..][..LANES].fill(0);
            let flags = &flags[..count.next_multiple_of(R::LANES)];
            neighbours += list.append::<R>(&indices[candidates.start..], flags);
        }
        [set_ends.last().copied().unwrap_or(0), neighbours]
    }
}

/// The candidates of a set of walls.
fn candidates_of(set_ends: &[usize], set: usize) -> Range<usize> {
    set.checked_sub(1).map_or(0, |before| set_ends[before])..set_ends[set]
}

/// A neighbour of a packet: the entries of a [`ParticleRecord`] in f32, and the position relative to the
/// packet's origin [support radii]. An image has its own position and velocity.
pub(in crate::sph) type NeighbourRecord = [f32; 8];

/// The neighbours of one packet, as an array of records. Memory is kept from one packet to the next.
#[derive(Clone, Debug, Default)]
pub(in crate::sph) struct PacketNeighbours {
    /// Entries from `count` on are unused.
    records: Vec<NeighbourRecord>,
    count: usize,
}

impl PacketNeighbours {
    /// Copies the neighbours of the next packet of the list.
    #[inline(always)]
    pub(in crate::sph) fn collect<R: Register>(
        &mut self,
        search: &NeighbourSearch<'_>,
        particles: &[ParticleRecord],
        packet: &Packet<'_>,
        list: &mut NeighbourList,
    ) {
        let Self { records, count } = self;
        let [x, y, z] = packet.origin;
        let walls = list.read(1)[0];
        *count = 0;
        for set in 0..1u32 << walls.count_ones() {
            // An image in the walls of the set has the entries `factor * entry + term`.
            let (mut factor, mut term) = ([1.0; 8], [0.0; 8]);
            factor[..PRESSURE].fill(FRACTION);
            for (n, (axis, plane, sticks)) in search.walls(walls, packet).enumerate() {
                if set >> n & 1 == 1 {
                    factor[axis] = -factor[axis];
                    term[axis] = 2.0 * plane - term[axis];
                    // At a wall where the fluid sticks, the image's velocity is opposite in all directions.
                    for direction in (0..3).filter(|&direction| sticks || direction == axis) {
                        factor[VELOCITY + direction] = -factor[VELOCITY + direction];
                    }
                }
            }
            let neighbours = list.read(1)[0] as usize;
            let neighbours = list.read(neighbours);
            make_room(records, *count + neighbours.len());
            for (record, &k) in records[*count..].iter_mut().zip(neighbours) {
                *record = R::placed(&particles[k as usize], &[x, y, z, 0, 0, 0, 0, 0], &factor, &term);
            }
            *count += neighbours.len();
        }
    }

    /// All neighbours of the packet.
    #[inline(always)]
    pub(in crate::sph) fn all(&self) -> &[NeighbourRecord] {
        &self.records[..self.count]
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
fn reserve<R: Register>(coordinates: &mut [Vec<f32>; 3], indices: &mut Vec<u32>, count: usize) {
    coordinates.iter_mut().for_each(|column| make_room(column, count + R::LANES));
    make_room(indices, count + R::LANES);
}
