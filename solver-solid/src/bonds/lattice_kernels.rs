//! The hot loops over blocks of sixteen lattice sites (`lattice.rs`).

use amalgam_particles::lanes::{LANES, Lanes, Sixteen, Task};

use super::stretch::{SERIES_MAX, elongation_share};
use super::strips::{Strips, component_difference, in_strips};
use crate::vectors::{window, window_mut};

/// A step from a site to a neighbour.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stencil {
    pub(super) shift: isize,
    /// Vector to the neighbour in the lattice, in quanta.
    pub(super) offset: [f32; 3],
    /// Twice that.
    pub(super) twice: [f32; 3],
    /// Square of its length, in quanta, and the inverse.
    pub(super) rest_square: f32,
    pub(super) inverse_square: f32,
    /// Stiffness, of the body's unit.
    pub(super) stiffness: f32,
    /// What a part in [`ACROSS`] and in [`ALONG`] of a [`Coefficient`] is, with lengths in spacings.
    pub(super) across_part: f32,
    pub(super) along_part: f32,
}

impl Stencil {
    /// The excess l^2/L^2 - 1 for a difference of displacements.
    #[inline(always)]
    pub(super) fn excess(&self, eta: [i32; 3]) -> f32 {
        let [x, y, z] = [eta[0] as f32, eta[1] as f32, eta[2] as f32];
        let [two_x, two_y, two_z] = self.twice;
        let difference = z.mul_add(two_z + z, y.mul_add(two_y + y, x * (two_x + x)));
        difference * self.inverse_square
    }
}

/// What the kernels share: a block, its surroundings and their displacements.
#[derive(Clone, Copy)]
pub(super) struct Geometry<'a> {
    pub(super) site: usize,
    pub(super) stencils: &'a [Stencil],
    pub(super) displacement: [&'a [i32]; 3],
    pub(super) half_gain: &'a [f32],
}

impl<'a> Geometry<'a> {
    /// The displacements' columns, and as long ones of an operand, so that it is asked once for all of them whether a site is
    /// inside.
    #[inline(always)]
    fn columns(&self, operand: [&'a [i32]; 3]) -> [[&'a [i32]; 3]; 2] {
        let sites = self.displacement[0].len();
        let [x, y, z] = self.displacement;
        let [u, v, w] = operand;
        [[x, &y[..sites], &z[..sites]], [&u[..sites], &v[..sites], &w[..sites]]]
    }

    /// Half of the gains from a site on.
    #[inline(always)]
    fn gain<const GAIN: bool, const W: usize>(&self, site: usize) -> &'a [f32; W] {
        if GAIN { window(self.half_gain, site) } else { &[0.5; W] }
    }
}

#[inline(always)]
fn at<T, const W: usize>([x, y, z]: [&[T]; 3], site: usize) -> [&[T; W]; 3] {
    [window(x, site), window(y, site), window(z, site)]
}

/// Forces on a block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BlockForce {
    pub(super) force: [Sixteen; 3],
    /// Least excess of each particle's bonds, infinite without any.
    pub(super) least: Sixteen,
    /// Least and largest of all.
    pub(super) range: [f32; 2],
    pub(super) energy: f32,
}

impl BlockForce {
    /// Whether a bond is stretched or compressed so far that the series does not hold.
    pub(super) fn is_far(&self) -> bool {
        self.range[0] < -SERIES_MAX || self.range[1] > SERIES_MAX
    }
}

pub(super) struct ForceKernel<'a, const GAIN: bool, const FAR: bool> {
    pub(super) geometry: Geometry<'a>,
    pub(super) live: &'a [u16],
}

impl<const GAIN: bool, const FAR: bool> Task for ForceKernel<'_, GAIN, FAR> {
    type Output = BlockForce;

    #[inline(always)]
    fn run<L: Lanes>(mut self) -> BlockForce {
        let [x, y, z, least, largest, energy] = in_strips::<L, 6>(&mut self);
        let (bottom, top) = (L::load(&least).least(), L::load(&largest).greatest());
        // Each bond is seen from both ends: a quarter of k e^2 from each.
        BlockForce { force: [x, y, z], least, range: [bottom, top], energy: 0.25 * L::load(&energy).sum() }
    }
}

impl<const GAIN: bool, const FAR: bool> Strips<6> for ForceKernel<'_, GAIN, FAR> {
    #[inline(always)]
    fn strip<L: Lanes, const W: usize>(&mut self, first: usize) -> [[f32; W]; 6] {
        let [displacement, _] = self.geometry.columns(self.geometry.displacement);
        let site = self.geometry.site + first;
        let own = at::<_, W>(displacement, site);
        let own_gain = self.geometry.gain::<GAIN, W>(site);
        let mut force = [[0.0f32; W]; 3];
        let (mut least, mut largest) = ([f32::INFINITY; W], [0.0f32; W]);
        let mut energy = [0.0f32; W];
        for (stencil, &live) in self.geometry.stencils.iter().zip(self.live) {
            let live = live >> first;
            if live == 0 {
                continue;
            }
            let there = site.wrapping_add_signed(stencil.shift);
            let other = at::<_, W>(displacement, there);
            let gain = self.geometry.gain::<GAIN, W>(there);
            for lane in 0..W {
                let on = live & (1 << lane) != 0;
                let eta = [
                    other[0][lane].wrapping_sub(own[0][lane]),
                    other[1][lane].wrapping_sub(own[1][lane]),
                    other[2][lane].wrapping_sub(own[2][lane]),
                ];
                let excess = stencil.excess(eta);
                let share = elongation_share::<FAR>(excess);
                let pull = stencil.stiffness * (own_gain[lane] + gain[lane]) * share;
                let pull = if on { pull } else { 0.0 };
                force[0][lane] = pull.mul_add(stencil.offset[0] + eta[0] as f32, force[0][lane]);
                force[1][lane] = pull.mul_add(stencil.offset[1] + eta[1] as f32, force[1][lane]);
                force[2][lane] = pull.mul_add(stencil.offset[2] + eta[2] as f32, force[2][lane]);
                let square = excess.mul_add(stencil.rest_square, stencil.rest_square);
                energy[lane] = (pull * share).mul_add(square, energy[lane]);
                least[lane] = if on & (excess < least[lane]) { excess } else { least[lane] };
                largest[lane] = if on & (excess > largest[lane]) { excess } else { largest[lane] };
            }
        }
        let [x, y, z] = force;
        [x, y, z, least, largest, energy]
    }
}

/// Diagonal blocks, and the coefficients of all bonds, a row of lanes a stencil; those are of use if not `FAR`.
pub(super) struct DiagonalKernel<'a, const GAIN: bool, const FAR: bool> {
    pub(super) geometry: Geometry<'a>,
    pub(super) live: &'a [u16],
    pub(super) coefficient: &'a mut [[Coefficient; LANES]],
}

impl<const GAIN: bool, const FAR: bool> Task for DiagonalKernel<'_, GAIN, FAR> {
    type Output = [Sixteen; 6];

    #[inline(always)]
    fn run<L: Lanes>(mut self) -> [Sixteen; 6] {
        in_strips::<L, 6>(&mut self)
    }
}

impl<const GAIN: bool, const FAR: bool> Strips<6> for DiagonalKernel<'_, GAIN, FAR> {
    #[inline(always)]
    fn strip<L: Lanes, const W: usize>(&mut self, first: usize) -> [[f32; W]; 6] {
        let [displacement, _] = self.geometry.columns(self.geometry.displacement);
        let site = self.geometry.site + first;
        let own = at::<_, W>(displacement, site);
        let own_gain = self.geometry.gain::<GAIN, W>(site);
        let mut sum = [[0.0f32; W]; 6];
        let rows = self.live.iter().zip(self.coefficient.iter_mut());
        for (stencil, (&live, coefficient)) in self.geometry.stencils.iter().zip(rows) {
            let live = live >> first;
            let coefficient: &mut [Coefficient; W] = window_mut(coefficient, first);
            if live == 0 {
                *coefficient = [0; W];
                continue;
            }
            let there = site.wrapping_add_signed(stencil.shift);
            let other = at::<_, W>(displacement, there);
            let gain = self.geometry.gain::<GAIN, W>(there);
            for lane in 0..W {
                let eta = [
                    other[0][lane].wrapping_sub(own[0][lane]),
                    other[1][lane].wrapping_sub(own[1][lane]),
                    other[2][lane].wrapping_sub(own[2][lane]),
                ];
                let on = live & (1 << lane) != 0;
                let share = elongation_share::<FAR>(stencil.excess(eta));
                let (across, along) = linearised(share);
                coefficient[lane] = if on { packed((across, along)) } else { 0 };
                let (across, along) = if on { (across, along) } else { (0.0, 0.0) };
                let stiffness = stencil.stiffness * (own_gain[lane] + gain[lane]);
                let (across, along) = (stiffness * across, stiffness * (along * stencil.inverse_square));
                let d = [
                    stencil.offset[0] + eta[0] as f32,
                    stencil.offset[1] + eta[1] as f32,
                    stencil.offset[2] + eta[2] as f32,
                ];
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

/// The stiffness of a bond across it, 1 - L/l and not negative, and what it has along it above that times L^2/l^2, both by
/// its stiffness.
#[inline(always)]
fn linearised(share: f32) -> (f32, f32) {
    let across = if share > 0.0 { share } else { 0.0 };
    // L^2/l^2 = (1 - share)^2.
    let ratio = 1.0 - share;
    (across, (1.0 - across) * (ratio * ratio))
}

/// What [`linearised`] gives for a bond near its rest length, rounded: across it in the last [`ACROSS_BITS`] bits, as whole parts in
/// [`ACROSS`], and along it, in [`ALONG`], before; 0 of a bond that is not there.
///
/// It serves all iterations of a step: reading it takes less than computing it.
pub(super) type Coefficient = u32;

const ACROSS_BITS: u32 = 14;

/// Bytes ahead that coefficients are asked for: they are read once, in order, and the processor's own foresight ends with each
/// page.
const PREFETCH: usize = 2048;

/// Parts in 1: where the series holds, what a bond has across it is below .06,
pub(super) const ACROSS: f32 = (1 << 18) as f32;

/// and along it below 1.15.
pub(super) const ALONG: f32 = (7 << 15) as f32;

/// In a sum with this, f32 have whole numbers in their last bits.
const WHOLE: f32 = (1 << 23) as f32;

#[inline(always)]
fn packed((across, along): (f32, f32)) -> Coefficient {
    // A conversion that saturates would take each lane by itself.
    let [across, along] = [across.mul_add(ACROSS, WHOLE), along.mul_add(ALONG, WHOLE)].map(f32::to_bits);
    const MASK: u32 = (1 << ACROSS_BITS) - 1;
    (along & (u32::MAX >> ACROSS_BITS)) << ACROSS_BITS | across & MASK
}

/// Parts across and along.
#[inline(always)]
fn unpacked(coefficient: Coefficient) -> (f32, f32) {
    let across = coefficient & ((1 << ACROSS_BITS) - 1);
    (across as i32 as f32, (coefficient >> ACROSS_BITS) as i32 as f32)
}

/// The product as the iteration wants it: operand and positions are f32, coefficients those that [`DiagonalKernel`] left. Entries
/// are off in the sixth digit. If `FAR`, coefficients are computed, and those of bonds for which the series holds rounded alike.
pub(super) struct RoundedKernel<'a, const GAIN: bool, const FAR: bool> {
    pub(super) geometry: Geometry<'a>,
    pub(super) live: &'a [u16],
    /// As many as live words.
    pub(super) coefficient: &'a [[Coefficient; LANES]],
    /// Columns of positions, in spacings.
    pub(super) position: [&'a [f32]; 3],
    /// Columns of f32, as bits.
    pub(super) operand: [&'a [i32]; 3],
}

impl<const GAIN: bool, const FAR: bool> Task for RoundedKernel<'_, GAIN, FAR> {
    type Output = [Sixteen; 3];

    #[inline(always)]
    fn run<L: Lanes>(mut self) -> [Sixteen; 3] {
        in_strips::<L, 3>(&mut self)
    }
}

impl<const GAIN: bool, const FAR: bool> Strips<3> for RoundedKernel<'_, GAIN, FAR> {
    #[inline(always)]
    fn strip<L: Lanes, const W: usize>(&mut self, first: usize) -> [[f32; W]; 3] {
        let [displacement, operand] = self.geometry.columns(self.operand);
        let sites = displacement[0].len();
        let position = self.position.map(|column| &column[..sites]);
        let site = self.geometry.site + first;
        let (own, own_u) = (at::<_, W>(position, site), at::<_, W>(operand, site));
        let own_displacement = at::<_, W>(displacement, site);
        let own_gain = self.geometry.gain::<GAIN, W>(site);
        let mut image = [[0.0f32; W]; 3];
        let rows = self.live.iter().zip(self.coefficient);
        for (stencil, (&live, coefficient)) in self.geometry.stencils.iter().zip(rows) {
            let live = live >> first;
            if live == 0 {
                continue;
            }
            let there = site.wrapping_add_signed(stencil.shift);
            let (other, other_u) = (at::<_, W>(position, there), at::<_, W>(operand, there));
            let other_displacement = at::<_, W>(displacement, there);
            let gain = self.geometry.gain::<GAIN, W>(there);
            let coefficient: &[Coefficient; W] = window(coefficient, first);
            if first == 0 {
                L::prefetch(coefficient, PREFETCH);
            }
            for lane in 0..W {
                let (mut across, mut along) = unpacked(coefficient[lane]);
                if FAR {
                    let eta = [0, 1, 2].map(|axis| {
                        other_displacement[axis][lane].wrapping_sub(own_displacement[axis][lane])
                    });
                    let excess = stencil.excess(eta);
                    let exact = linearised(elongation_share::<true>(excess));
                    let near = unpacked(packed(exact));
                    let far = (exact.0 * ACROSS, exact.1 * ALONG);
                    let of = if excess.abs() > SERIES_MAX { far } else { near };
                    (across, along) = if live & (1 << lane) != 0 { of } else { (0.0, 0.0) };
                }
                let gain = own_gain[lane] + gain[lane];
                let (across, along) =
                    (across * (stencil.across_part * gain), along * (stencil.along_part * gain));
                let d = [
                    other[0][lane] - own[0][lane],
                    other[1][lane] - own[1][lane],
                    other[2][lane] - own[2][lane],
                ];
                let u = [
                    component_difference::<true>(own_u[0][lane], other_u[0][lane]),
                    component_difference::<true>(own_u[1][lane], other_u[1][lane]),
                    component_difference::<true>(own_u[2][lane], other_u[2][lane]),
                ];
                let along = along * d[2].mul_add(u[2], d[1].mul_add(u[1], d[0] * u[0]));
                image[0][lane] = along.mul_add(d[0], across.mul_add(u[0], image[0][lane]));
                image[1][lane] = along.mul_add(d[1], across.mul_add(u[1], image[1][lane]));
                image[2][lane] = along.mul_add(d[2], across.mul_add(u[2], image[2][lane]));
            }
        }
        image
    }
}

/// The product with an operand in whole numbers.
pub(super) struct ProductKernel<'a, const GAIN: bool, const FAR: bool> {
    pub(super) geometry: Geometry<'a>,
    pub(super) live: &'a [u16],
    pub(super) operand: [&'a [i32]; 3],
}

impl<const GAIN: bool, const FAR: bool> Task for ProductKernel<'_, GAIN, FAR> {
    type Output = [Sixteen; 3];

    #[inline(always)]
    fn run<L: Lanes>(mut self) -> [Sixteen; 3] {
        in_strips::<L, 3>(&mut self)
    }
}

impl<const GAIN: bool, const FAR: bool> Strips<3> for ProductKernel<'_, GAIN, FAR> {
    #[inline(always)]
    fn strip<L: Lanes, const W: usize>(&mut self, first: usize) -> [[f32; W]; 3] {
        let [displacement, operand] = self.geometry.columns(self.operand);
        let site = self.geometry.site + first;
        let (own, own_u) = (at::<_, W>(displacement, site), at::<_, W>(operand, site));
        let own_gain = self.geometry.gain::<GAIN, W>(site);
        let mut image = [[0.0f32; W]; 3];
        for (stencil, &live) in self.geometry.stencils.iter().zip(self.live) {
            let live = live >> first;
            if live == 0 {
                continue;
            }
            let there = site.wrapping_add_signed(stencil.shift);
            let (other, other_u) = (at::<_, W>(displacement, there), at::<_, W>(operand, there));
            let gain = self.geometry.gain::<GAIN, W>(there);
            for lane in 0..W {
                let eta = [
                    other[0][lane].wrapping_sub(own[0][lane]),
                    other[1][lane].wrapping_sub(own[1][lane]),
                    other[2][lane].wrapping_sub(own[2][lane]),
                ];
                let share = elongation_share::<FAR>(stencil.excess(eta));
                let stiffness = stencil.stiffness * (own_gain[lane] + gain[lane]);
                let stiffness = if live & (1 << lane) != 0 { stiffness } else { 0.0 };
                let (across, along) = linearised(share);
                let (across, along) = (stiffness * across, stiffness * (along * stencil.inverse_square));
                let d = [
                    stencil.offset[0] + eta[0] as f32,
                    stencil.offset[1] + eta[1] as f32,
                    stencil.offset[2] + eta[2] as f32,
                ];
                let u = [
                    component_difference::<false>(own_u[0][lane], other_u[0][lane]),
                    component_difference::<false>(own_u[1][lane], other_u[1][lane]),
                    component_difference::<false>(own_u[2][lane], other_u[2][lane]),
                ];
                let along = along * d[2].mul_add(u[2], d[1].mul_add(u[1], d[0] * u[0]));
                image[0][lane] = along.mul_add(d[0], across.mul_add(u[0], image[0][lane]));
                image[1][lane] = along.mul_add(d[1], across.mul_add(u[1], image[1][lane]));
                image[2][lane] = along.mul_add(d[2], across.mul_add(u[2], image[2][lane]));
            }
        }
        image
    }
}
