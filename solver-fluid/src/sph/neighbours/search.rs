//! Packets of particles, and the search for the particles and walls near a packet.

#![allow(
    clippy::needless_range_loop,
    reason = "iterators with closures are not compiled for the vector width"
)]

use std::ops::Range;

use amalgam_particles::{DVec3, lanes::Register};
use glam::IVec3;

use super::cells::{BINS, CellOrder, FRACTION, FixedPosition, Row};

/// Squared distance [squared support radii] from a packet's bounding box up to which particles are
/// candidates. It is a little more than 1 because of rounding.
const REACH: f32 = 1.000_01;
/// Largest number of bins that a packet spans. Offsets of particles and images from their middle are then
/// exact in f32.
const PACKET_BINS: i32 = 7;

/// Walls: axis, and 1 for the wall at the higher end of the axis. Each wall also mirrors the images in the
/// walls before it, so that edges and corners get their images.
pub(super) const SIDES: [(usize, usize); 6] = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)];

/// A packet: successive particles of a row, one per lane of a vector register. It has fewer particles than a
/// register has lanes at the end of a row, and where the next particle is too far away along x.
pub(in crate::sph) struct Packet<'a> {
    /// The particles, as a range of the cell order.
    pub(in crate::sph) particles: Range<usize>,
    /// The row of the order that holds the packet. If cells wrap, it may hold particles of distant cells.
    row: &'a Row,
    /// The packet's cell along y and z.
    cell_yz: [i32; 2],
    /// The packet's first bin and its last.
    bins: [i32; 2],
    /// Origin of coordinates [fractions of a cell, wrapped]: along x the middle of the bins that a packet may
    /// span, along y and z the row's corner.
    pub(super) origin: [i32; 3],
}

/// The data that the search for the neighbours of a packet reads.
#[derive(Clone, Copy)]
pub(in crate::sph) struct NeighbourSearch<'a> {
    /// The particles of each cell.
    pub(in crate::sph) order: &'a CellOrder,
    /// Coordinates and cells of the particles: see [`SortedParticles`](super::SortedParticles).
    pub(super) coordinates: [&'a [i32]; 3],
    pub(super) cells: &'a [IVec3],
    /// Lowest and highest planes of the walls [cells].
    pub(super) planes: Option<[DVec3; 2]>,
    /// True for walls at which the fluid sticks, by axis, the lower wall first.
    pub(super) no_slip: [[bool; 2]; 3],
}

impl NeighbourSearch<'_> {
    /// The packet of the particles of a row from `first` on. It has `lanes` particles, or fewer if they would
    /// span too many bins or lie in distant cells.
    #[inline(always)]
    pub(in crate::sph) fn packet<'a>(&self, row: &'a Row, first: usize, lanes: usize) -> Packet<'a> {
        let longest = (first + lanes).min(row.particles.end);
        let (cell_yz, bins, end) = if self.cells.is_empty() {
            let bin = self.order.bin(row, first);
            let end = self.order.end_before(row, bin + PACKET_BINS).min(longest);
            (row.cell_yz, [bin, self.order.bin(row, end - 1)], end)
        } else {
            let bin_of = |k: usize| FixedPosition::bin_in(self.cells[k], self.coordinates[0][k]);
            let (home, bin) = (self.cells[first], bin_of(first));
            let near = |&k: &usize| {
                let IVec3 { y, z, .. } = self.cells[k];
                (y, z) == (home.y, home.z) && (bin..bin + PACKET_BINS).contains(&bin_of(k))
            };
            let end = (first..longest).take_while(near).last().map_or(first + 1, |last| last + 1);
            ([home.y, home.z], [bin, bin + PACKET_BINS - 1], end)
        };
        let origin = FixedPosition::wrapped_point([2 * bins[0] + PACKET_BINS, cell_yz[0], cell_yz[1]]);
        Packet { particles: first..end, row, cell_yz, bins, origin }
    }

    /// Visits the ranges of the order that hold all particles within a support radius of a packet.
    #[inline(always)]
    pub(super) fn for_each_range(&self, packet: &Packet<'_>, visit: impl FnMut(Range<u32>)) {
        let bins = self.order.bins(packet.bins[0] - BINS, packet.bins[1] + BINS);
        self.order.for_each_range(packet.row, bins, visit);
    }

    /// Lanes of the particles from `first` on that are in cells near the packet, if cells wrap.
    #[inline(never)]
    pub(super) fn lanes_in_near_cells(&self, first: usize, count: usize, packet: &Packet<'_>) -> u16 {
        let near = |&lane: &usize| {
            let cell = self.cells[first + lane];
            let bin = FixedPosition::bin_in(cell, self.coordinates[0][first + lane]);
            (cell.y - packet.cell_yz[0]).abs() <= 1
                && (cell.z - packet.cell_yz[1]).abs() <= 1
                && (packet.bins[0] - BINS..=packet.bins[1] + BINS).contains(&bin)
        };
        (0..count).filter(near).fold(0, |bits, lane| bits | 1 << lane)
    }

    /// The plane of one of [`SIDES`] relative to a packet's origin [support radii], if there are walls.
    #[inline(always)]
    pub(super) fn plane(&self, (axis, side): (usize, usize), packet: &Packet<'_>) -> Option<f32> {
        let origin = match axis {
            0 => f64::from(2 * packet.bins[0] + PACKET_BINS) / f64::from(2 * BINS),
            _ => f64::from(packet.cell_yz[axis - 1]),
        };
        self.planes.map(|planes| (planes[side][axis] - origin) as f32)
    }

    /// The walls of [`SIDES`] whose bit is set: axis, plane [support radii], and true if the fluid sticks
    /// there.
    #[inline(always)]
    pub(super) fn walls(&self, bits: u32, packet: &Packet<'_>) -> impl Iterator<Item = (usize, f32, bool)> {
        let selected = SIDES.iter().enumerate().filter(move |(bit, _)| bits >> bit & 1 == 1);
        selected
            .filter_map(|(_, &side)| Some((side.0, self.plane(side, packet)?, self.no_slip[side.0][side.1])))
    }

    /// Coordinates of the packet's particles relative to its origin [support radii], a particle per lane.
    /// Lanes beyond the packet hold the particles that follow in the order.
    #[inline(always)]
    pub(in crate::sph) fn packet_coordinates<R: Register>(&self, packet: &Packet<'_>) -> [R; 3] {
        self.load_coordinates(packet.particles.start, packet.origin)
    }

    /// Coordinates of as many particles as a register has lanes, from `first` on, relative to an origin
    /// [support radii].
    #[inline(always)]
    pub(super) fn load_coordinates<R: Register>(&self, first: usize, origin: [i32; 3]) -> [R; 3] {
        let mut values = [R::splat(0.0); 3];
        let count = self.coordinates[0].len();
        for axis in 0..3 {
            let differences = R::load_differences(&self.coordinates[axis][..count][first..], origin[axis]);
            values[axis] = differences * R::splat(FRACTION);
        }
        values
    }
}

/// The bounding box of a packet's particles [support radii]. Each corner stands in all lanes.
pub(super) struct BoundingBox<R> {
    pub(super) low: [R; 3],
    pub(super) high: [R; 3],
}

impl<R: Register> BoundingBox<R> {
    /// The lanes, of the first `count`, whose points are within a support radius of the box.
    #[inline(always)]
    pub(super) fn lanes_within_reach(&self, points: [R; 3], count: usize) -> u16 {
        let mut distance2 = R::splat(0.0);
        for axis in 0..3 {
            // A coordinate less its nearest value in the box.
            let gap = points[axis] - points[axis].larger(self.low[axis]).smaller(self.high[axis]);
            distance2 = gap.mul_add(gap, distance2);
        }
        let present = u16::MAX >> (16 - count.min(R::LANES));
        distance2.less(R::splat(REACH)) & present
    }
}
