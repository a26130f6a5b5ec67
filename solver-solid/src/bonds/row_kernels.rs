//! The hot loops over rows of bonds (`rows.rs`).

use amalgam_particles::lanes::{LANES, Lanes, Task};

use super::stretch::{SERIES_MAX, SHORT_SERIES_MAX, elongation_share, length_ratio};
use super::strips::{Strips, component_difference, in_strips};
use super::table::QUANTA;
use crate::vectors::window;

/// The stiffness of a bond by its rest length L, of the body's unit: min(a - b L, 1) spacing / L, which is linear in
/// 1/L.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// a spacing [quanta]
    pub(super) inner: f32,
    /// b spacing
    pub(super) slope: f32,
}

impl Share {
    #[inline(always)]
    pub(super) fn stiffness(&self, inverse_rest: f32) -> f32 {
        let (inner, edge) = (QUANTA as f32 * inverse_rest, self.inner.mul_add(inverse_rest, -self.slope));
        if edge < inner { edge } else { inner }
    }
}

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
pub(super) fn excess(square: f32, inverse_rest: f32) -> f32 {
    (square * inverse_rest).mul_add(inverse_rest, -1.0)
}

/// Force on a particle.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RowForce {
    pub(super) force: [f32; 3],
    /// Least excess of the bonds, infinite without any, and largest.
    pub(super) least: f32,
    pub(super) largest: f32,
    pub(super) energy: f32,
}

impl RowForce {
    /// Whether a bond is stretched or compressed so far that the series does not hold.
    pub(super) fn is_far(&self) -> bool {
        self.exceeds(SERIES_MAX)
    }

    /// The same of the short series.
    pub(super) fn is_far_for_rounded(&self) -> bool {
        self.exceeds(SHORT_SERIES_MAX)
    }

    fn exceeds(&self, limit: f32) -> bool {
        self.least < -limit || self.largest > limit
    }
}

/// A row of bonds.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) own: [i32; 4],
    pub(super) share: Share,
    pub(super) neighbour: &'a [u32],
    pub(super) inverse_rest: &'a [f32],
    pub(super) live: &'a [u16],
}

impl<'a> Row<'a> {
    /// Other ends, inverse rest lengths and live bits of a group of sixteen, from the lane `first` on.
    #[inline(always)]
    fn group<const W: usize>(&self, group: usize, first: usize) -> (&'a [u32; W], &'a [f32; W], u16) {
        let at = group * LANES + first;
        (window(self.neighbour, at), window(self.inverse_rest, at), self.live[group] >> first)
    }

    /// Half of the particle's gain.
    #[inline(always)]
    fn half_gain(&self) -> f32 {
        f32::from_bits(self.own[3] as u32)
    }
}

pub(super) struct ForceKernel<'a, const FAR: bool> {
    pub(super) row: Row<'a>,
    pub(super) record: &'a [[i32; 4]],
}

impl<const FAR: bool> Task for ForceKernel<'_, FAR> {
    type Output = RowForce;

    #[inline(always)]
    fn run<L: Lanes>(mut self) -> RowForce {
        let [x, y, z, least, largest, energy] = in_strips::<L, 6>(&mut self);
        let (bottom, top) = (L::load(&least).least(), L::load(&largest).greatest());
        let force = [L::load(&x).sum(), L::load(&y).sum(), L::load(&z).sum()];
        // Each bond is seen from both ends: a quarter of k e^2 from each.
        RowForce { force, least: bottom, largest: top, energy: 0.25 * L::load(&energy).sum() }
    }
}

impl<const FAR: bool> Strips<6> for ForceKernel<'_, FAR> {
    #[inline(always)]
    fn strip<L: Lanes, const W: usize>(&mut self, first: usize) -> [[f32; W]; 6] {
        let Self { row, record } = *self;
        let mut force = [[0.0f32; W]; 3];
        let (mut least, mut largest) = ([f32::INFINITY; W], [0.0f32; W]);
        let mut energy = [0.0f32; W];
        let half_gain = row.half_gain();
        for group in 0..row.live.len() {
            let (neighbour, inverse_rest, live) = row.group(group, first);
            let other = L::gather::<4, W>(record, neighbour);
            for lane in 0..W {
                let on = live & (1 << lane) != 0;
                let d = difference(&[other[0][lane], other[1][lane], other[2][lane], 0], &row.own);
                let square = square(d);
                let excess = excess(square, inverse_rest[lane]);
                let share = elongation_share::<FAR>(excess);
                let gain = half_gain + f32::from_bits(other[3][lane] as u32);
                let pull = gain * row.share.stiffness(inverse_rest[lane]) * share;
                let pull = if on { pull } else { 0.0 };
                force[0][lane] = pull.mul_add(d[0], force[0][lane]);
                force[1][lane] = pull.mul_add(d[1], force[1][lane]);
                force[2][lane] = pull.mul_add(d[2], force[2][lane]);
                energy[lane] = (pull * share).mul_add(square, energy[lane]);
                least[lane] = if on & (excess < least[lane]) { excess } else { least[lane] };
                largest[lane] = if on & (excess > largest[lane]) { excess } else { largest[lane] };
            }
        }
        let [x, y, z] = force;
        [x, y, z, least, largest, energy]
    }
}

/// The stiffness of a bond across it, k (1 - L/l) and not negative, and what it has along it above that, divided by the
/// square of its length.
#[inline(always)]
fn linearised<const FAR: bool>(square: f32, inverse_rest: f32, stiffness: f32) -> (f32, f32) {
    let share = elongation_share::<FAR>(excess(square, inverse_rest));
    let across = stiffness * if share > 0.0 { share } else { 0.0 };
    // 1/l = (1 - share) / L.
    let inverse = (1.0 - share) * inverse_rest;
    (across, (stiffness - across) * (inverse * inverse))
}

pub(super) struct DiagonalKernel<'a, const FAR: bool> {
    pub(super) row: Row<'a>,
    pub(super) record: &'a [[i32; 4]],
}

impl<const FAR: bool> Task for DiagonalKernel<'_, FAR> {
    type Output = [f32; 6];

    #[inline(always)]
    fn run<L: Lanes>(mut self) -> [f32; 6] {
        let mut entries = [0.0; 6];
        for (entry, column) in entries.iter_mut().zip(&in_strips::<L, 6>(&mut self)) {
            *entry = L::load(column).sum();
        }
        entries
    }
}

impl<const FAR: bool> Strips<6> for DiagonalKernel<'_, FAR> {
    #[inline(always)]
    fn strip<L: Lanes, const W: usize>(&mut self, first: usize) -> [[f32; W]; 6] {
        let Self { row, record } = *self;
        let mut sum = [[0.0f32; W]; 6];
        let half_gain = row.half_gain();
        for group in 0..row.live.len() {
            let (neighbour, inverse_rest, live) = row.group(group, first);
            let other = L::gather::<4, W>(record, neighbour);
            for lane in 0..W {
                let d = difference(&[other[0][lane], other[1][lane], other[2][lane], 0], &row.own);
                let gain = half_gain + f32::from_bits(other[3][lane] as u32);
                let stiffness = gain * row.share.stiffness(inverse_rest[lane]);
                let stiffness = if live & (1 << lane) != 0 { stiffness } else { 0.0 };
                let (across, along) = linearised::<FAR>(square(d), inverse_rest[lane], stiffness);
                sum[0][lane] = (along * d[0]).mul_add(d[0], sum[0][lane]) + across;
                sum[1][lane] = (along * d[1]).mul_add(d[1], sum[1][lane]) + across;
                sum[2][lane] = (along * d[2]).mul_add(d[2], sum[2][lane]) + across;
                sum[3][lane] = (along * d[1]).mul_add(d[2], sum[3][lane]);
                sum[4][lane] = (along * d[0]).mul_add(d[2], sum[4][lane]);
                sum[5][lane] = (along * d[0]).mul_add(d[1], sum[5][lane]);
            }
        }
        sum
    }
}

/// The same rounded: with fewer operations, and off in the sixth digit. What is not there may be infinite.
#[inline(always)]
fn rounded<const FAR: bool>(square: f32, inverse_rest: f32, stiffness: f32, on: bool) -> (f32, f32) {
    let ratio = length_ratio::<FAR>(excess(square, inverse_rest));
    let (ratio, stiffness) = if on { (ratio, stiffness) } else { (0.0, 0.0) };
    let inner = stiffness * if ratio < 1.0 { ratio } else { 1.0 };
    let inverse = ratio * inverse_rest;
    (stiffness - inner, inner * (inverse * inverse))
}

/// The product with an operand in whole numbers; or, if `ROUNDED`, with one of f32, as the iteration wants it, and a rounded
/// stiffness.
pub(super) struct ProductKernel<'a, const FAR: bool, const ROUNDED: bool> {
    pub(super) row: Row<'a>,
    pub(super) own: [i32; 8],
    /// With an operand of f32, as bits, if `ROUNDED`.
    pub(super) pair: &'a [[i32; 8]],
}

impl<const FAR: bool, const ROUNDED: bool> Task for ProductKernel<'_, FAR, ROUNDED> {
    type Output = [f32; 3];

    #[inline(always)]
    fn run<L: Lanes>(mut self) -> [f32; 3] {
        let [x, y, z] = in_strips::<L, 3>(&mut self);
        [L::load(&x).sum(), L::load(&y).sum(), L::load(&z).sum()]
    }
}

impl<const FAR: bool, const ROUNDED: bool> Strips<3> for ProductKernel<'_, FAR, ROUNDED> {
    #[inline(always)]
    fn strip<L: Lanes, const W: usize>(&mut self, first: usize) -> [[f32; W]; 3] {
        let Self { row, own, pair } = *self;
        let mut image = [[0.0f32; W]; 3];
        let half_gain = row.half_gain();
        for group in 0..row.live.len() {
            let (neighbour, inverse_rest, live) = row.group(group, first);
            let other = L::gather::<8, W>(pair, neighbour);
            for lane in 0..W {
                let on = live & (1 << lane) != 0;
                let d = [
                    other[0][lane].wrapping_sub(own[0]) as f32,
                    other[1][lane].wrapping_sub(own[1]) as f32,
                    other[2][lane].wrapping_sub(own[2]) as f32,
                ];
                let u = [
                    component_difference::<ROUNDED>(own[4], other[4][lane]),
                    component_difference::<ROUNDED>(own[5], other[5][lane]),
                    component_difference::<ROUNDED>(own[6], other[6][lane]),
                ];
                let gain = half_gain + f32::from_bits(other[3][lane] as u32);
                let stiffness = gain * row.share.stiffness(inverse_rest[lane]);
                let (across, along) = if ROUNDED {
                    rounded::<FAR>(square(d), inverse_rest[lane], stiffness, on)
                } else {
                    let stiffness = if on { stiffness } else { 0.0 };
                    linearised::<FAR>(square(d), inverse_rest[lane], stiffness)
                };
                let along = along * d[2].mul_add(u[2], d[1].mul_add(u[1], d[0] * u[0]));
                image[0][lane] = along.mul_add(d[0], across.mul_add(u[0], image[0][lane]));
                image[1][lane] = along.mul_add(d[1], across.mul_add(u[1], image[1][lane]));
                image[2][lane] = along.mul_add(d[2], across.mul_add(u[2], image[2][lane]));
            }
        }
        image
    }
}

#[cfg(test)]
mod tests {
    use amalgam_particles::lanes::Width;
    use amalgam_particles::random::uniform_f64;

    use super::*;

    #[test]
    fn every_width_gives_the_same_bits() {
        let random = |i: usize, what: u64| uniform_f64(&[i as u64, what]);
        let quanta = |i: usize, what: u64| (random(i, what) * 3.0 * QUANTA) as i32;
        let pair: Vec<[i32; 8]> = (0..100)
            .map(|i| {
                let gain = (0.5 + 0.01 * random(i, 9)) as f32;
                let [x, y, z, u, v, w] = [0, 1, 2, 3, 4, 5].map(|what| quanta(i, what));
                [x, y, z, gain.to_bits() as i32, u, v, w, 0]
            })
            .collect();
        let record: Vec<[i32; 4]> = pair.iter().map(|pair| [pair[0], pair[1], pair[2], pair[3]]).collect();
        let share = Share { inner: 3.5 * QUANTA as f32, slope: 1.0 };
        for i in 0..20 {
            let neighbour: Vec<u32> = (0..3 * LANES).map(|k| (random(k, 10 + i) * 100.0) as u32).collect();
            let inverse_rest: Vec<f32> =
                (0..3 * LANES).map(|k| ((1.0 + random(k, 40 + i)) / (3.0 * QUANTA)) as f32).collect();
            let live = [0xffff, 0x7ffe, 0x8001 << (i % 2)];
            let (neighbour, inverse_rest) = (neighbour.as_slice(), inverse_rest.as_slice());
            let row = Row { own: record[i as usize], share, neighbour, inverse_rest, live: &live };
            let bits = |width: &Width| {
                let force = width.run(ForceKernel::<true> { row, record: &record });
                let diagonal = width.run(DiagonalKernel::<true> { row, record: &record });
                let own = pair[i as usize];
                let product = width.run(ProductKernel::<true, false> { row, own, pair: &pair });
                let rounded = width.run(ProductKernel::<true, true> { row, own, pair: &pair });
                let scalars = [force.least, force.largest, force.energy];
                let all =
                    force.force.into_iter().chain(scalars).chain(diagonal).chain(product).chain(rounded);
                all.map(f32::to_bits).collect::<Vec<_>>()
            };
            let widths = Width::supported();
            let plain = bits(&widths[0]);
            assert!(plain.iter().all(|&bits| f32::from_bits(bits).is_finite() && bits != 0));
            for width in &widths[1..] {
                assert_eq!(bits(width), plain, "{width:?}");
            }
        }
    }
}
