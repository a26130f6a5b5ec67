//! The hot loops over clusters of rows (`rows.rs`).
//!
//! A lane is one particle of a cluster, and the loop runs over all neighbours that any of its particles is
//! bonded to. A neighbour's values go to all lanes, nothing is gathered, and no sum runs over lanes. So
//! results do not depend on the number of lanes. Sixteen lanes take four neighbours, and a sum over each of
//! them.

use amalgam_particles::lanes::{LANES, Lanes, Register, Task};

use super::super::stretch::{BondStiffness, SERIES_MAX, elongation_share, series};
use super::super::table::{QUANTA, component_difference};
use crate::linear::vectors::window;

/// Particles of a cluster.
pub(super) const CLUSTER: usize = 4;

/// Neighbours that sixteen lanes take together.
pub(super) const TOGETHER: usize = LANES / CLUSTER;

/// A value of each particle of a cluster.
pub(super) type Four<T = f32> = [T; CLUSTER];

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

/// Other particles by their slots, and which of the cluster's are bonded to each: four bits per neighbour,
/// the first one's in the lowest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Neighbours {
    pub(super) slot: [u32; TOGETHER],
    pub(super) lanes: u16,
}

impl Neighbours {
    /// Slot and lanes of each.
    pub(super) fn each(&self) -> [(usize, u16); TOGETHER] {
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
    pub(super) neighbours: &'a [Neighbours],
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

/// A loop over neighbours in fours, each of which goes to a quarter of sixteen lanes. If a register has eight
/// lanes, one loop takes the first two neighbours and one the others, with the same sums.
pub(super) trait Kernel {
    type Output;
    /// The result without any bonds.
    const NOTHING: Self::Output;
    /// Runs with `W` lanes in a register; `PART` counts its loops. Adds to the previous results.
    fn run<L: Lanes, const W: usize, const PART: usize>(&mut self, found: &mut Self::Output);
}

/// A kernel in as many lanes as a register has.
pub(super) struct Abreast<K>(pub(super) K);

impl<K: Kernel> Task for Abreast<K> {
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

/// The neighbours of a register, four with sixteen lanes and two with eight: their slots (with eight lanes each
/// comes twice), the lanes that have a bond, and the index of the first of these bonds. Advances `at` to the
/// bonds of the next four neighbours.
#[inline(always)]
fn taken<const W: usize, const PART: usize>(
    four: &Neighbours,
    at: &mut usize,
) -> ([usize; TOGETHER], u16, usize) {
    let ([a, b, c, d], [low, high]) = (four.slot, four.lanes.to_le_bytes());
    let (begin, middle) = (*at, *at + low.count_ones() as usize);
    *at += four.lanes.count_ones() as usize;
    let (slots, selected, begin) = match (W, PART) {
        (LANES, _) => ([a, b, c, d], four.lanes, begin),
        (_, 0) => ([a, b, a, b], low.into(), begin),
        _ => ([c, d, c, d], high.into(), middle),
    };
    ([slots[0] as usize, slots[1] as usize, slots[2] as usize, slots[3] as usize], selected, begin)
}

/// Four numbers of the neighbours' records, one column per number.
#[inline(always)]
fn columns<L: Lanes, const N: usize, const W: usize>(
    records: &[[i32; N]],
    slots: [usize; TOGETHER],
    from: usize,
) -> [[i32; W]; 4] {
    let mut columns = [[0; W]; 4];
    let [a, b, c, d] = slots;
    let four = [
        window(&records[a], from),
        window(&records[b], from),
        window(&records[c], from),
        window(&records[d], from),
    ];
    L::Register::spread(four, &mut columns);
    columns
}

/// Adds the sums of a register to those of the cluster.
#[inline(always)]
fn fold<const W: usize, const N: usize>(sums: &[[f32; W]; N], total: &mut [Four; N]) {
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
    pub(super) force: [Four; 3],
    /// Least and largest double strain of the bonds, infinite without bonds. Without `EXTREMES`: minus and plus
    /// the largest magnitude of a double strain.
    pub(super) least: Four,
    pub(super) largest: Four,
    pub(super) energy: Four,
}

impl Forces {
    /// True if a bond is stretched or compressed so far that the series does not hold.
    pub(super) fn is_far(&self) -> bool {
        let far = |(least, largest): (&f32, &f32)| *least < -SERIES_MAX || *largest > SERIES_MAX;
        self.least.iter().zip(&self.largest).any(far)
    }
}

/// Forces, with extremes as they are if `EXTREMES`. Without `CORRECTED` all corrections must be 1.
pub(super) struct ForceKernel<'a, const FAR: bool, const CORRECTED: bool, const EXTREMES: bool> {
    pub(super) rows: Rows<'a>,
    pub(super) inverse_rest: &'a [f32],
}

impl<const FAR: bool, const CORRECTED: bool, const EXTREMES: bool> Kernel
    for ForceKernel<'_, FAR, CORRECTED, EXTREMES>
{
    type Output = Forces;
    const NOTHING: Forces = Forces {
        force: [[0.0; CLUSTER]; 3],
        least: [f32::INFINITY; CLUSTER],
        largest: [0.0; CLUSTER],
        energy: [0.0; CLUSTER],
    };

    #[inline(always)]
    fn run<L: Lanes, const W: usize, const PART: usize>(&mut self, found: &mut Self::Output) {
        let &mut Self { rows, inverse_rest } = self;
        let own = rows.own::<_, W>(rows.record, 0);
        let (mut force, mut energy) = ([[0.0f32; W]; 3], [[0.0f32; W]]);
        let (mut least, mut largest) = ([f32::INFINITY; W], [0.0f32; W]);
        let mut at = 0;
        for four in rows.neighbours {
            let (others, selected, begin) = taken::<W, PART>(four, &mut at);
            let inverse_rest = expanded_values::<L, W>(inverse_rest, begin, selected);
            let other = columns::<L, _, W>(rows.record, others, 0);
            for lane in 0..W {
                let (d, square, double_strain, stiffness) =
                    bond::<W>(&own, &other, lane, rows.share, inverse_rest[lane]);
                let is_live = inverse_rest[lane] > 0.0;
                let high = if is_live { double_strain } else { 0.0 };
                // Beyond its reach nothing is taken from a series: extremes tell, and the kernel that is
                // `FAR` follows.
                let share = if FAR { elongation_share::<true>(high) } else { series(high) };
                let stiffness = if CORRECTED { stiffness } else { rows.share.stiffness(inverse_rest[lane]) };
                let force_per_length = stiffness * share;
                force[0][lane] = force_per_length.mul_add(d[0], force[0][lane]);
                force[1][lane] = force_per_length.mul_add(d[1], force[1][lane]);
                force[2][lane] = force_per_length.mul_add(d[2], force[2][lane]);
                energy[0][lane] = (force_per_length * share).mul_add(square, energy[0][lane]);
                let high = if EXTREMES { high } else { high.abs() };
                largest[lane] = if high > largest[lane] { high } else { largest[lane] };
                if EXTREMES {
                    let low = if is_live { double_strain } else { f32::INFINITY };
                    least[lane] = if low < least[lane] { low } else { least[lane] };
                } else {
                    least[lane] = -largest[lane];
                }
            }
        }
        if !CORRECTED {
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
fn linearised<const FAR: bool>(double_strain: f32, inverse_rest: f32, stiffness: f32) -> (f32, f32) {
    let share = elongation_share::<FAR>(double_strain);
    let transverse = stiffness * if share > 0.0 { share } else { 0.0 };
    // 1/l = (1 - share) / L.
    let inverse = (1.0 - share) * inverse_rest;
    (transverse, (stiffness - transverse) * (inverse * inverse))
}

/// The result of [`linearised`], rounded to 32 bits. It is computed once per step and read in all iterations,
/// which takes less time than computing it. A missing bond has 0.
///
/// The upper 20 bits hold a = axial + [`LEAST`] as an f32, less the bits of [`LEAST`], without the last
/// [`CUT_BITS`] bits of the fraction. The lower [`TRANSVERSE_BITS`] bits hold the transverse stiffness in units
/// of 2^(e - 23), where 2^e is the largest power of two up to a. For example axial = 1, transverse = 0.0001:
/// a = 1.015625, so that e = 0, and the lower bits hold round(0.0001 x 2^23) = 839.
pub(super) type Coefficient = u32;

const TRANSVERSE_BITS: u32 = 12;
/// Number of the last bits of an f32's fraction that are dropped.
const CUT_BITS: u32 = 8;
/// 2^-6: added to axial stiffness, so that its exponent takes few bits.
const LEAST: f32 = 0.015625;
const EXPONENT: u32 = 0xff << 23;

/// Unit of length of positions in iterations [spacings]. With it, transverse and axial stiffness are of sizes
/// that use the full range of their bits.
pub(super) const UNIT: f32 = 32.0;

/// [`UNIT`]^2 in quanta^2.
const UNIT_SQUARE: f32 = (UNIT * QUANTA as f32) * (UNIT * QUANTA as f32);

/// Packs a coefficient. The flag is true if both numbers fit into their bits.
#[inline(always)]
fn packed((transverse, axial): (f32, f32)) -> (Coefficient, bool) {
    let bits = (axial + LEAST).to_bits() + (1 << (CUT_BITS - 1));
    let axial = (bits >> CUT_BITS).wrapping_sub(LEAST.to_bits() >> CUT_BITS);
    // The reciprocal of a power of two; a sum with 1 has parts of it in its last bits.
    let parts = f32::from_bits((254u32 << 23).wrapping_sub(bits & EXPONENT));
    let transverse = transverse.mul_add(parts, 1.0).to_bits().wrapping_sub(1.0f32.to_bits());
    let fits = (axial < 1 << (32 - TRANSVERSE_BITS)) & (transverse < 1 << TRANSVERSE_BITS);
    (axial << TRANSVERSE_BITS | transverse, fits)
}

#[inline(always)]
fn unpacked(coefficient: Coefficient) -> (f32, f32) {
    const TRANSVERSE: u32 = (1 << TRANSVERSE_BITS) - 1;
    const SHIFT: u32 = TRANSVERSE_BITS - CUT_BITS;
    let axial = (coefficient >> SHIFT & (u32::MAX >> SHIFT & u32::MAX << CUT_BITS)) + LEAST.to_bits();
    let power = axial & EXPONENT;
    let transverse = f32::from_bits(power | coefficient & TRANSVERSE) - f32::from_bits(power);
    (transverse, f32::from_bits(axial) - LEAST)
}

/// Computes the diagonal blocks, and a coefficient per bond; returns true if all bonds have one.
pub(super) struct DiagonalKernel<'a, const FAR: bool> {
    pub(super) rows: Rows<'a>,
    pub(super) inverse_rest: &'a [f32],
    pub(super) coefficient: &'a mut [Coefficient],
}

impl<const FAR: bool> Kernel for DiagonalKernel<'_, FAR> {
    type Output = ([Four; 6], bool);
    const NOTHING: ([Four; 6], bool) = ([[0.0; CLUSTER]; 6], true);

    #[inline(always)]
    fn run<L: Lanes, const W: usize, const PART: usize>(&mut self, found: &mut Self::Output) {
        let &mut Self { rows, inverse_rest, ref mut coefficient } = self;
        let own = rows.own::<_, W>(rows.record, 0);
        let (mut sum, mut far) = ([[0.0f32; W]; 6], [0u32; W]);
        let mut at = 0;
        for four in rows.neighbours {
            let (others, selected, begin) = taken::<W, PART>(four, &mut at);
            let inverse_rest = expanded_values::<L, W>(inverse_rest, begin, selected);
            let other = columns::<L, _, W>(rows.record, others, 0);
            let mut words = [0; W];
            for lane in 0..W {
                let (d, _, double_strain, stiffness) =
                    bond::<W>(&own, &other, lane, rows.share, inverse_rest[lane]);
                let stiffness = if inverse_rest[lane] > 0.0 { stiffness } else { 0.0 };
                let (transverse, axial) = linearised::<FAR>(double_strain, inverse_rest[lane], stiffness);
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
            let end = begin + selected.count_ones() as usize;
            let behind: [Coefficient; W] = *window(coefficient, end);
            L::Register::store_selected_words(&words, selected, &mut coefficient[begin..]);
            if PART != 0 {
                // The loop before wrote there.
                coefficient[end..][..W].copy_from_slice(&behind);
            }
        }
        fold(&sum, &mut found.0);
        found.1 &= far.iter().all(|&far| far == 0);
    }
}

/// Computes the product with the exact operator for an operand in whole numbers. If `ROUNDED`, the operand is
/// f32, and coefficients are rounded as [`packed`] rounds them.
pub(super) struct ProductKernel<'a, const FAR: bool, const ROUNDED: bool> {
    pub(super) rows: Rows<'a>,
    pub(super) inverse_rest: &'a [f32],
    /// Pairs, with operands of f32 as bits if `ROUNDED`.
    pub(super) pair: &'a [Pair],
}

impl<const FAR: bool, const ROUNDED: bool> Kernel for ProductKernel<'_, FAR, ROUNDED> {
    type Output = [Four; 3];
    const NOTHING: [Four; 3] = [[0.0; CLUSTER]; 3];

    #[inline(always)]
    fn run<L: Lanes, const W: usize, const PART: usize>(&mut self, found: &mut Self::Output) {
        let &mut Self { rows, inverse_rest, pair } = self;
        let (own, own_u) = (rows.own::<_, W>(rows.record, 0), rows.own::<_, W>(pair, OPERAND));
        let mut image = [[0.0f32; W]; 3];
        let mut at = 0;
        for four in rows.neighbours {
            let (others, selected, begin) = taken::<W, PART>(four, &mut at);
            let inverse_rest = expanded_values::<L, W>(inverse_rest, begin, selected);
            let other = columns::<L, _, W>(rows.record, others, 0);
            let other_u = columns::<L, _, W>(pair, others, OPERAND);
            for lane in 0..W {
                let (d, _, double_strain, stiffness) =
                    bond::<W>(&own, &other, lane, rows.share, inverse_rest[lane]);
                let stiffness = if inverse_rest[lane] > 0.0 { stiffness } else { 0.0 };
                let (mut transverse, mut axial) =
                    linearised::<FAR>(double_strain, inverse_rest[lane], stiffness);
                if ROUNDED {
                    let (word, fits) = packed((transverse, axial * UNIT_SQUARE));
                    let near = unpacked(word);
                    (transverse, axial) =
                        if fits { (near.0, near.1 / UNIT_SQUARE) } else { (transverse, axial) };
                }
                let u = [
                    component_difference::<ROUNDED>(own_u[0][lane], other_u[0][lane]),
                    component_difference::<ROUNDED>(own_u[1][lane], other_u[1][lane]),
                    component_difference::<ROUNDED>(own_u[2][lane], other_u[2][lane]),
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
    type Output = [Four; 3];
    const NOTHING: [Four; 3] = [[0.0; CLUSTER]; 3];

    #[inline(always)]
    fn run<L: Lanes, const W: usize, const PART: usize>(&mut self, found: &mut Self::Output) {
        let &mut Self { rows, coefficient, pair } = self;
        let (own, own_u) = (rows.own::<_, W>(pair, 0), rows.own::<_, W>(pair, OPERAND));
        let mut image = [[0.0f32; W]; 3];
        let mut at = 0;
        for four in rows.neighbours {
            let (others, selected, begin) = taken::<W, PART>(four, &mut at);
            let coefficient = expanded::<L, W>(coefficient, begin, selected);
            let (other, other_u) =
                (columns::<L, _, W>(pair, others, 0), columns::<L, _, W>(pair, others, OPERAND));
            for lane in 0..W {
                let (transverse, axial) = unpacked(coefficient[lane]);
                let d = [
                    component_difference::<true>(other[0][lane], own[0][lane]),
                    component_difference::<true>(other[1][lane], own[1][lane]),
                    component_difference::<true>(other[2][lane], own[2][lane]),
                ];
                let u = [
                    component_difference::<true>(own_u[0][lane], other_u[0][lane]),
                    component_difference::<true>(own_u[1][lane], other_u[1][lane]),
                    component_difference::<true>(own_u[2][lane], other_u[2][lane]),
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

#[cfg(test)]
mod tests {
    use amalgam_particles::lanes::Width;
    use amalgam_particles::random::uniform_f64;

    use super::*;

    #[test]
    fn every_width_gives_the_same_bits() {
        const HALF: i32 = (0.5 * QUANTA as f32).to_bits() as i32;
        let random = |i: usize, what: u64| uniform_f64(&[i as u64, what]);
        let quanta = |i: usize, what: u64| (random(i, what) * 3.0 * QUANTA) as i32;
        let record: Vec<[i32; 4]> = (0..96)
            .map(|i| {
                let correction = ((0.5 + 0.01 * random(i, 9)) * QUANTA) as f32;
                [quanta(i, 0), quanta(i, 1), quanta(i, 2), correction.to_bits() as i32]
            })
            .collect();
        let bits = |i: usize, what: u64| (random(i, what) as f32).to_bits() as i32;
        let pair: Vec<Pair> = (0..96)
            .map(|i| std::array::from_fn(|k| if k % 4 < 3 { bits(i, 20 + k as u64) } else { 0 }))
            .collect();
        let share = BondStiffness { inner: 3.5, slope: 1.0 / QUANTA as f32 };
        for first in (0..96).step_by(CLUSTER) {
            let others: Vec<u32> = (0..96)
                .filter(|&other| other / CLUSTER != first / CLUSTER)
                .map(|other| other as u32)
                .collect();
            let of = |slots: &[u32; TOGETHER]| {
                let lanes = (random(slots[0] as usize, 10 + first as u64) * 65536.0) as u16;
                Neighbours { slot: *slots, lanes }
            };
            let neighbours: Vec<Neighbours> = others.as_chunks().0.iter().map(of).collect();
            let bonds = neighbours.iter().map(|four| four.lanes.count_ones() as usize).sum::<usize>();
            let rest = |k: usize| {
                (1.0 + random(k, 40)) / (3.0 * QUANTA) * if k.is_multiple_of(9) { -1.0 } else { 1.0 }
            };
            let inverse_rest: Vec<f32> = (0..bonds + 16).map(|k| rest(k) as f32).collect();
            let rows = Rows { first, neighbours: &neighbours, record: &record, share };
            let results = |width: &Width| {
                let inverse_rest = inverse_rest.as_slice();
                let mut coefficient = vec![0; bonds + 16];
                let forces = width.run(Abreast(ForceKernel::<true, true, true> { rows, inverse_rest }));
                let kernel =
                    DiagonalKernel::<true> { rows, inverse_rest, coefficient: coefficient.as_mut_slice() };
                let (diagonal, _) = width.run(Abreast(kernel));
                let exact =
                    width.run(Abreast(ProductKernel::<true, false> { rows, inverse_rest, pair: &pair }));
                let far = width.run(Abreast(ProductKernel::<true, true> { rows, inverse_rest, pair: &pair }));
                let rounded =
                    width.run(Abreast(RoundedKernel { rows, coefficient: &coefficient, pair: &pair }));
                let near = width.run(Abreast(ForceKernel::<false, true, false> { rows, inverse_rest }));
                let without = width.run(Abreast(ForceKernel::<false, false, false> { rows, inverse_rest }));
                let columns = [forces, near, without]
                    .map(|of| [of.force[0], of.force[1], of.force[2], of.least, of.largest, of.energy]);
                let all = columns.into_iter().flatten().chain(diagonal);
                let all = all.chain(exact).chain(far).chain(rounded).flatten().map(f32::to_bits);
                (all.collect::<Vec<_>>(), coefficient[..bonds].to_vec())
            };
            let widths = Width::supported();
            let plain = results(&widths[0]);
            assert!(plain.0.iter().all(|&bits| f32::from_bits(bits).is_finite() && bits != 0));
            for width in &widths[1..] {
                assert_eq!(results(width), plain, "{width:?}");
            }
            let ones: Vec<_> = record.iter().map(|&[x, y, z, _]| [x, y, z, HALF]).collect();
            let (rows, inverse_rest) = (Rows { record: &ones, ..rows }, inverse_rest.as_slice());
            let read = widths[0].run(Abreast(ForceKernel::<false, true, false> { rows, inverse_rest }));
            let not = widths[0].run(Abreast(ForceKernel::<false, false, false> { rows, inverse_rest }));
            assert_eq!((read.force, read.energy), (not.force, not.energy), "corrections of 1, read or not");
        }
    }

    #[test]
    fn coefficients_are_good_to_the_fifth_digit() {
        assert_eq!(unpacked(0), (0.0, 0.0));
        assert_eq!(packed((0.0, 0.0)), (0, true));
        for case in 0..10_000 {
            let random = |what| uniform_f64(&[case, what]);
            // Bonds of a twentieth of a spacing to four, as far as the stiffness transverse is below a quarter of
            // that axial in spacings.
            let length = 0.05 + 3.95 * random(0);
            let share = 0.2 * random(1) / f64::max(1.0, length * length);
            let stiffness = 1.0 / length;
            let unit = length / f64::from(UNIT);
            let (transverse, axial) = (stiffness * share, stiffness * (1.0 - share) / (unit * unit));
            let (word, fits) = packed((transverse as f32, axial as f32));
            assert!(fits, "{length} {share}");
            let found = unpacked(word);
            assert!((f64::from(found.1) / axial - 1.0).abs() < 2e-5, "{found:?} {axial}");
            // Parts of the stiffness axial in spacings.
            let part = stiffness / (length * length);
            assert!((f64::from(found.0) - transverse).abs() < 1.3e-4 * part, "{found:?} {transverse}");
        }
        for far in [(1.0, 1.0), (0.0, 1e9), (f32::INFINITY, 1.0), (0.0, f32::INFINITY), (0.0, f32::NAN)] {
            assert!(!packed(far).1, "{far:?}");
        }
    }
}
