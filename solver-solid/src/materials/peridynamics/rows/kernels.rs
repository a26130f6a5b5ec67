//! The hot loops over clusters of rows (`rows.rs`).
//!
//! A cluster is four particles, and a block of neighbours is four particles that any of the cluster's is
//! bonded to. The sixteen pairs between them have a lane each:
//!
//! ```text
//!   neighbour of the block       a         b         c         d
//!                            +---------+---------+---------+---------+
//!   particle of the cluster  | 0 1 2 3 | 0 1 2 3 | 0 1 2 3 | 0 1 2 3 |
//!                            +---------+---------+---------+---------+
//!   mask: is there a bond?     1 1 0 1   0 1 1 1   1 0 0 0   1 1 1 1
//!   bonds as stored            0 1   2     3 4 5   6         7 8 9 10
//!                            +-------------------+-------------------+
//!   registers of 8 lanes     |      PART 0       |      PART 1       |
//!                            +-------------------+-------------------+
//!   registers of 16 lanes    |                PART 0                 |
//!                            +---------------------------------------+
//! ```
//!
//! The values of a neighbour go to its four lanes. A bond's own values are stored for existing bonds only, one
//! after the other, and the mask expands them to their lanes. Each lane sums over all blocks by itself. At the
//! end a particle's four lanes are added in the order a, b, c, d. So results do not depend on the number of
//! lanes of a register. With eight lanes, one loop over all blocks takes the neighbours a and b, and a second
//! one c and d.

use std::marker::PhantomData;

use amalgam_particles::lanes::{LANES, Lanes, Register, Task};

use super::super::stretch::{BondStiffness, SERIES_MAX, elongation_share, series};
use super::super::table::QUANTA;
use super::super::variants::{Components, Corrections, FloatBits, LeastStrain, StrainRange};
use super::coefficient::{Coefficient, UNIT_SQUARE, packed, unpacked};
use crate::linear::vectors::window;

/// Particles of a cluster.
pub(super) const CLUSTER: usize = 4;

/// Neighbours of a block: as many as sixteen lanes take together.
pub(super) const BLOCK: usize = LANES / CLUSTER;

/// A value of each particle of a cluster.
pub(super) type ClusterValues<T = f32> = [T; CLUSTER];

#[inline(always)]
pub(super) fn difference(other: &[i32; 4], own: &[i32; 4]) -> [f32; 3] {
    [
        other[0].wrapping_sub(own[0]) as f32,
        other[1].wrapping_sub(own[1]) as f32,
        other[2].wrapping_sub(own[2]) as f32,
    ]
}

#[inline(always)]
pub(super) fn square(d: [f32; 3]) -> f32 {
    d[2].mul_add(d[2], d[1].mul_add(d[1], d[0] * d[0]))
}

/// l^2/L^2 - 1.
#[inline(always)]
pub(super) fn double_strain(square: f32, inverse_rest: f32) -> f32 {
    (square * inverse_rest).mul_add(inverse_rest, -1.0)
}

/// A block of neighbours by their slots, and which of the cluster's particles are bonded to each: four bits
/// per neighbour, the first one's in the lowest.
#[derive(Clone, Copy, Debug)]
pub(super) struct NeighbourBlock {
    pub(super) slot: [u32; BLOCK],
    pub(super) lanes: u16,
}

impl NeighbourBlock {
    /// Slot and lanes of each.
    pub(super) fn each(&self) -> [(usize, u16); BLOCK] {
        std::array::from_fn(|k| (self.slot[k] as usize, self.lanes >> (k * CLUSTER) & ((1 << CLUSTER) - 1)))
    }
}

/// The entries of a particle that the iteration reads, bits of f32: its position in [`UNIT`]s, and the
/// operand from [`OPERAND`] on.
pub(super) type Pair = [i32; 8];
pub(super) const OPERAND: usize = 4;

#[inline(always)]
fn f32_of(bits: i32) -> f32 {
    f32::from_bits(bits as u32)
}

/// The rows of the bonds of a cluster.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    /// Slot of its first particle.
    pub(super) first: usize,
    pub(super) neighbours: &'a [NeighbourBlock],
    /// Position in quanta and the correction times half a spacing [quanta] (the bits of an f32) at each slot.
    pub(super) record: &'a [[i32; 4]],
    pub(super) share: BondStiffness,
}

impl Rows<'_> {
    /// Four numbers of the records of the cluster, one column per number.
    #[inline(always)]
    fn own<const N: usize, const W: usize>(&self, record: &[[i32; N]], from: usize) -> [[i32; W]; 4] {
        let records: &[_; CLUSTER] = window(record, self.first);
        let mut columns = [[0; W]; 4];
        for k in 0..4 {
            for lane in 0..W {
                columns[k][lane] = records[lane % CLUSTER][from + k];
            }
        }
        columns
    }
}

/// A loop over the blocks of neighbours of a cluster.
pub(super) trait Kernel {
    type Output;
    /// The result without any bonds.
    const NOTHING: Self::Output;
    /// Runs with `W` lanes in a register. With eight lanes there are two runs: `PART` 0 takes the first two
    /// neighbours of each block, `PART` 1 the others. Adds to the results of the run before.
    fn run<L: Lanes, const W: usize, const PART: usize>(&mut self, found: &mut Self::Output);
}

/// Runs a kernel with as many lanes as a register has.
pub(super) struct KernelTask<K>(pub(super) K);

impl<K: Kernel> Task for KernelTask<K> {
    type Output = K::Output;

    #[inline(always)]
    fn run<L: Lanes>(mut self) -> K::Output {
        let mut found = K::NOTHING;
        if L::Register::LANES == LANES {
            self.0.run::<L, LANES, 0>(&mut found);
        } else {
            self.0.run::<L, { LANES / 2 }, 0>(&mut found);
            self.0.run::<L, { LANES / 2 }, 1>(&mut found);
        }
        found
    }
}

/// The part of a block of neighbours that a register takes: four neighbours with sixteen lanes, two with
/// eight.
struct RegisterPart {
    /// The slots of the neighbours. With eight lanes each comes twice.
    slots: [usize; BLOCK],
    /// The lanes that have a bond.
    mask: u16,
    /// Index of the first of these bonds.
    first_bond: usize,
}

impl RegisterPart {
    /// The part of this block. Advances `next_bond` from the block's first bond to that of the next block.
    #[inline(always)]
    fn of<const W: usize, const PART: usize>(block: &NeighbourBlock, next_bond: &mut usize) -> Self {
        let ([a, b, c, d], [low, high]) = (block.slot, block.lanes.to_le_bytes());
        let (begin, middle) = (*next_bond, *next_bond + low.count_ones() as usize);
        *next_bond += block.lanes.count_ones() as usize;
        let (slots, mask, first_bond) = match (W, PART) {
            (LANES, _) => ([a, b, c, d], block.lanes, begin),
            (_, 0) => ([a, b, a, b], low.into(), begin),
            _ => ([c, d, c, d], high.into(), middle),
        };
        let slots = [slots[0] as usize, slots[1] as usize, slots[2] as usize, slots[3] as usize];
        Self { slots, mask, first_bond }
    }
}

/// Four numbers of the neighbours' records, one column per number.
#[inline(always)]
fn columns<L: Lanes, const N: usize, const W: usize>(
    records: &[[i32; N]],
    slots: [usize; BLOCK],
    from: usize,
) -> [[i32; W]; 4] {
    let mut columns = [[0; W]; 4];
    let [a, b, c, d] = slots;
    let records = [
        window(&records[a], from),
        window(&records[b], from),
        window(&records[c], from),
        window(&records[d], from),
    ];
    L::Register::spread(records, &mut columns);
    columns
}

/// Adds the sums of a register to those of the cluster.
#[inline(always)]
fn fold<const W: usize, const N: usize>(sums: &[[f32; W]; N], total: &mut [ClusterValues; N]) {
    for entry in 0..N {
        for lane in 0..W {
            total[entry][lane % CLUSTER] += sums[entry][lane];
        }
    }
}

/// A bond in a lane: the vector to the neighbour, its square, the double strain, and the stiffness as if the
/// bond were live.
#[inline(always)]
fn bond<const W: usize>(
    own: &[[i32; W]; 4],
    other: &[[i32; W]; 4],
    lane: usize,
    share: BondStiffness,
    inverse_rest: f32,
) -> ([f32; 3], f32, f32, f32) {
    let other = [other[0][lane], other[1][lane], other[2][lane], other[3][lane]];
    let d = difference(&other, &[own[0][lane], own[1][lane], own[2][lane], 0]);
    let square = square(d);
    let correction = f32_of(own[3][lane]) + f32_of(other[3]);
    (d, square, double_strain(square, inverse_rest), correction * share.stiffness(inverse_rest))
}

/// Prefetch distance [bytes]. Hardware prefetchers stop at page boundaries, so the loop prefetches
/// explicitly.
const AHEAD: usize = 2048;

/// Words from `at` on, one after the other, to the selected lanes.
#[inline(always)]
fn expanded<L: Lanes, const W: usize>(words: &[u32], at: usize, selected: u16) -> [u32; W] {
    let mut lanes = [0; W];
    let words: &[u32; W] = window(words, at);
    L::prefetch(words, AHEAD);
    L::Register::expand_words(words, selected, &mut lanes);
    lanes
}

/// Does as [`expanded`] for f32 values.
#[inline(always)]
fn expanded_values<L: Lanes, const W: usize>(values: &[f32], at: usize, selected: u16) -> [f32; W] {
    let (values, mut words): (&[f32; W], _) = (window(values, at), [0; W]);
    L::prefetch(values, AHEAD);
    for lane in 0..W {
        words[lane] = values[lane].to_bits();
    }
    let mut expanded = [0; W];
    L::Register::expand_words(&words, selected, &mut expanded);
    let mut lanes = [0.0; W];
    for lane in 0..W {
        lanes[lane] = f32::from_bits(expanded[lane]);
    }
    lanes
}

/// One entry per particle of a cluster.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Forces {
    pub(super) force: [ClusterValues; 3],
    /// Least and largest double strain of the bonds, infinite without bonds. If the least one is not
    /// recorded: minus and plus the largest magnitude of a double strain.
    pub(super) least: ClusterValues,
    pub(super) largest: ClusterValues,
    pub(super) energy: ClusterValues,
}

impl Forces {
    /// True if a bond is stretched or compressed so far that the series does not hold.
    pub(super) fn is_far(&self) -> bool {
        let far = |(least, largest): (&f32, &f32)| *least < -SERIES_MAX || *largest > SERIES_MAX;
        self.least.iter().zip(&self.largest).any(far)
    }
}

/// Forces. The kernel for small strains also runs on larger strains, to find them. Its extremes are then right
/// but its forces are not, so that the kernel for any strain follows.
pub(super) struct ForceKernel<'a, S, C, M> {
    variant: PhantomData<(S, C, M)>,
    rows: Rows<'a>,
    inverse_rest: &'a [f32],
}

impl<'a, S, C, M> ForceKernel<'a, S, C, M> {
    pub(super) fn new(rows: Rows<'a>, inverse_rest: &'a [f32]) -> Self {
        Self { variant: PhantomData, rows, inverse_rest }
    }
}

impl<S: StrainRange, C: Corrections, M: LeastStrain> Kernel for ForceKernel<'_, S, C, M> {
    type Output = Forces;
    const NOTHING: Forces = Forces {
        force: [[0.0; CLUSTER]; 3],
        least: [f32::INFINITY; CLUSTER],
        largest: [0.0; CLUSTER],
        energy: [0.0; CLUSTER],
    };

    #[inline(always)]
    fn run<L: Lanes, const W: usize, const PART: usize>(&mut self, found: &mut Self::Output) {
        let &mut Self { rows, inverse_rest, .. } = self;
        let own = rows.own::<_, W>(rows.record, 0);
        let (mut force, mut energy) = ([[0.0f32; W]; 3], [[0.0f32; W]]);
        let (mut least, mut largest) = ([f32::INFINITY; W], [0.0f32; W]);
        let mut next_bond = 0;
        for block in rows.neighbours {
            let RegisterPart { slots, mask, first_bond } = RegisterPart::of::<W, PART>(block, &mut next_bond);
            let inverse_rest = expanded_values::<L, W>(inverse_rest, first_bond, mask);
            let other = columns::<L, _, W>(rows.record, slots, 0);
            for lane in 0..W {
                let (d, square, double_strain, stiffness) =
                    bond::<W>(&own, &other, lane, rows.share, inverse_rest[lane]);
                let is_live = inverse_rest[lane] > 0.0;
                let high = if is_live { double_strain } else { 0.0 };
                let share = if S::IS_UNLIMITED { elongation_share::<S>(high) } else { series(high) };
                let stiffness =
                    if C::ARE_READ { stiffness } else { rows.share.stiffness(inverse_rest[lane]) };
                let force_per_length = stiffness * share;
                force[0][lane] = force_per_length.mul_add(d[0], force[0][lane]);
                force[1][lane] = force_per_length.mul_add(d[1], force[1][lane]);
                force[2][lane] = force_per_length.mul_add(d[2], force[2][lane]);
                energy[0][lane] = (force_per_length * share).mul_add(square, energy[0][lane]);
                let high = if M::IS_RECORDED { high } else { high.abs() };
                largest[lane] = if high > largest[lane] { high } else { largest[lane] };
                if M::IS_RECORDED {
                    let low = if is_live { double_strain } else { f32::INFINITY };
                    least[lane] = if low < least[lane] { low } else { least[lane] };
                } else {
                    least[lane] = -largest[lane];
                }
            }
        }
        if !C::ARE_READ {
            // The factors of both ends add up to QUANTA, a power of two: multiplying the sums by it once
            // gives the same bits.
            for lane in 0..W {
                force[0][lane] *= QUANTA as f32;
                force[1][lane] *= QUANTA as f32;
                force[2][lane] *= QUANTA as f32;
                energy[0][lane] *= QUANTA as f32;
            }
        }
        // Each bond is seen from both ends: a quarter of k e^2 from each.
        for energy in &mut energy[0] {
            *energy *= 0.25;
        }
        fold(&force, &mut found.force);
        fold(&energy, std::array::from_mut(&mut found.energy));
        for lane in 0..W {
            let of = lane % CLUSTER;
            found.least[of] = if least[lane] < found.least[of] { least[lane] } else { found.least[of] };
            found.largest[of] =
                if largest[lane] > found.largest[of] { largest[lane] } else { found.largest[of] };
        }
    }
}

/// Stiffness of a bond at rest length L and length l: the transverse stiffness t = max(0, k (1 - L/l)), and the
/// axial excess (k - t)/l^2, so that the block of the bond is t I + (k - t)/l^2 d d^T for the vector d between
/// its ends.
#[inline(always)]
fn linearised<S: StrainRange>(double_strain: f32, inverse_rest: f32, stiffness: f32) -> (f32, f32) {
    let share = elongation_share::<S>(double_strain);
    let transverse = stiffness * if share > 0.0 { share } else { 0.0 };
    // 1/l = (1 - share) / L.
    let inverse = (1.0 - share) * inverse_rest;
    (transverse, (stiffness - transverse) * (inverse * inverse))
}

/// Computes the diagonal blocks, and a coefficient per bond; returns true if all bonds have one.
pub(super) struct DiagonalKernel<'a, S> {
    variant: PhantomData<S>,
    rows: Rows<'a>,
    inverse_rest: &'a [f32],
    coefficient: &'a mut [Coefficient],
}

impl<'a, S> DiagonalKernel<'a, S> {
    pub(super) fn new(rows: Rows<'a>, inverse_rest: &'a [f32], coefficient: &'a mut [Coefficient]) -> Self {
        Self { variant: PhantomData, rows, inverse_rest, coefficient }
    }
}

impl<S: StrainRange> Kernel for DiagonalKernel<'_, S> {
    type Output = ([ClusterValues; 6], bool);
    const NOTHING: ([ClusterValues; 6], bool) = ([[0.0; CLUSTER]; 6], true);

    #[inline(always)]
    fn run<L: Lanes, const W: usize, const PART: usize>(&mut self, found: &mut Self::Output) {
        let &mut Self { rows, inverse_rest, ref mut coefficient, .. } = self;
        let own = rows.own::<_, W>(rows.record, 0);
        let (mut sum, mut far) = ([[0.0f32; W]; 6], [0u32; W]);
        let mut next_bond = 0;
        for block in rows.neighbours {
            let RegisterPart { slots, mask, first_bond } = RegisterPart::of::<W, PART>(block, &mut next_bond);
            let inverse_rest = expanded_values::<L, W>(inverse_rest, first_bond, mask);
            let other = columns::<L, _, W>(rows.record, slots, 0);
            let mut words = [0; W];
            for lane in 0..W {
                let (d, _, double_strain, stiffness) =
                    bond::<W>(&own, &other, lane, rows.share, inverse_rest[lane]);
                let stiffness = if inverse_rest[lane] > 0.0 { stiffness } else { 0.0 };
                let (transverse, axial) = linearised::<S>(double_strain, inverse_rest[lane], stiffness);
                let (word, fits) = packed((transverse, axial * UNIT_SQUARE));
                words[lane] = word;
                far[lane] |= u32::from(!fits);
                sum[0][lane] = (axial * d[0]).mul_add(d[0], sum[0][lane]) + transverse;
                sum[1][lane] = (axial * d[1]).mul_add(d[1], sum[1][lane]) + transverse;
                sum[2][lane] = (axial * d[2]).mul_add(d[2], sum[2][lane]) + transverse;
                sum[3][lane] = (axial * d[1]).mul_add(d[2], sum[3][lane]);
                sum[4][lane] = (axial * d[0]).mul_add(d[2], sum[4][lane]);
                sum[5][lane] = (axial * d[0]).mul_add(d[1], sum[5][lane]);
            }
            let end = first_bond + mask.count_ones() as usize;
            let behind: [Coefficient; W] = *window(coefficient, end);
            L::Register::store_selected_words(&words, mask, &mut coefficient[first_bond..]);
            if PART != 0 {
                // The loop before wrote there.
                coefficient[end..][..W].copy_from_slice(&behind);
            }
        }
        fold(&sum, &mut found.0);
        found.1 &= far.iter().all(|&far| far == 0);
    }
}

/// Computes the product with the exact operator for an operand in whole numbers. For an operand of f32,
/// coefficients are rounded as [`packed`] rounds them.
pub(super) struct ProductKernel<'a, S, N> {
    variant: PhantomData<(S, N)>,
    rows: Rows<'a>,
    inverse_rest: &'a [f32],
    pair: &'a [Pair],
}

impl<'a, S, N> ProductKernel<'a, S, N> {
    pub(super) fn new(rows: Rows<'a>, inverse_rest: &'a [f32], pair: &'a [Pair]) -> Self {
        Self { variant: PhantomData, rows, inverse_rest, pair }
    }
}

impl<S: StrainRange, N: Components> Kernel for ProductKernel<'_, S, N> {
    type Output = [ClusterValues; 3];
    const NOTHING: [ClusterValues; 3] = [[0.0; CLUSTER]; 3];

    #[inline(always)]
    fn run<L: Lanes, const W: usize, const PART: usize>(&mut self, found: &mut Self::Output) {
        let &mut Self { rows, inverse_rest, pair, .. } = self;
        let (own, own_u) = (rows.own::<_, W>(rows.record, 0), rows.own::<_, W>(pair, OPERAND));
        let mut image = [[0.0f32; W]; 3];
        let mut next_bond = 0;
        for block in rows.neighbours {
            let RegisterPart { slots, mask, first_bond } = RegisterPart::of::<W, PART>(block, &mut next_bond);
            let inverse_rest = expanded_values::<L, W>(inverse_rest, first_bond, mask);
            let other = columns::<L, _, W>(rows.record, slots, 0);
            let other_u = columns::<L, _, W>(pair, slots, OPERAND);
            for lane in 0..W {
                let (d, _, double_strain, stiffness) =
                    bond::<W>(&own, &other, lane, rows.share, inverse_rest[lane]);
                let stiffness = if inverse_rest[lane] > 0.0 { stiffness } else { 0.0 };
                let (mut transverse, mut axial) =
                    linearised::<S>(double_strain, inverse_rest[lane], stiffness);
                if N::ARE_ROUNDED {
                    let (word, fits) = packed((transverse, axial * UNIT_SQUARE));
                    let near = unpacked(word);
                    (transverse, axial) =
                        if fits { (near.0, near.1 / UNIT_SQUARE) } else { (transverse, axial) };
                }
                let u = [
                    N::difference(own_u[0][lane], other_u[0][lane]),
                    N::difference(own_u[1][lane], other_u[1][lane]),
                    N::difference(own_u[2][lane], other_u[2][lane]),
                ];
                let axial = axial * d[2].mul_add(u[2], d[1].mul_add(u[1], d[0] * u[0]));
                image[0][lane] = axial.mul_add(d[0], transverse.mul_add(u[0], image[0][lane]));
                image[1][lane] = axial.mul_add(d[1], transverse.mul_add(u[1], image[1][lane]));
                image[2][lane] = axial.mul_add(d[2], transverse.mul_add(u[2], image[2][lane]));
            }
        }
        fold(&image, found);
    }
}

/// Computes the rounded product for iterations in f32, with the coefficients of [`DiagonalKernel`]. The
/// relative error of entries is about 1e-5.
pub(super) struct RoundedKernel<'a> {
    pub(super) rows: Rows<'a>,
    pub(super) coefficient: &'a [Coefficient],
    pub(super) pair: &'a [Pair],
}

impl Kernel for RoundedKernel<'_> {
    type Output = [ClusterValues; 3];
    const NOTHING: [ClusterValues; 3] = [[0.0; CLUSTER]; 3];

    #[inline(always)]
    fn run<L: Lanes, const W: usize, const PART: usize>(&mut self, found: &mut Self::Output) {
        let &mut Self { rows, coefficient, pair } = self;
        let (own, own_u) = (rows.own::<_, W>(pair, 0), rows.own::<_, W>(pair, OPERAND));
        let mut image = [[0.0f32; W]; 3];
        let mut next_bond = 0;
        for block in rows.neighbours {
            let RegisterPart { slots, mask, first_bond } = RegisterPart::of::<W, PART>(block, &mut next_bond);
            let coefficient = expanded::<L, W>(coefficient, first_bond, mask);
            let (other, other_u) =
                (columns::<L, _, W>(pair, slots, 0), columns::<L, _, W>(pair, slots, OPERAND));
            for lane in 0..W {
                let (transverse, axial) = unpacked(coefficient[lane]);
                let d = [
                    FloatBits::difference(other[0][lane], own[0][lane]),
                    FloatBits::difference(other[1][lane], own[1][lane]),
                    FloatBits::difference(other[2][lane], own[2][lane]),
                ];
                let u = [
                    FloatBits::difference(own_u[0][lane], other_u[0][lane]),
                    FloatBits::difference(own_u[1][lane], other_u[1][lane]),
                    FloatBits::difference(own_u[2][lane], other_u[2][lane]),
                ];
                let axial = axial * d[2].mul_add(u[2], d[1].mul_add(u[1], d[0] * u[0]));
                image[0][lane] = axial.mul_add(d[0], transverse.mul_add(u[0], image[0][lane]));
                image[1][lane] = axial.mul_add(d[1], transverse.mul_add(u[1], image[1][lane]));
                image[2][lane] = axial.mul_add(d[2], transverse.mul_add(u[2], image[2][lane]));
            }
        }
        fold(&image, found);
    }
}
