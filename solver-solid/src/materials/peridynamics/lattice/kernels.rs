//! The hot loops over blocks of sixteen lattice sites (`lattice.rs`).

use std::marker::PhantomData;

use amalgam_particles::lanes::{LANES, Lanes, Task};

use super::super::stretch::{SERIES_MAX, elongation_share};
use super::super::table::Broken;
use super::super::variants::{
    AnyStrain, Components, Corrections, FloatBits, LeastStrain, SmallStrain, StrainRange, WholeNumbers,
};
use super::coefficient::{AXIAL, Coefficient, TRANSVERSE, packed, unpacked};
use super::stencil::Stencil;
use crate::linear::vectors::{window, window_mut};

/// A value of each lane.
pub(super) type Strip<T = f32> = [T; LANES];

/// The data that the kernels share: a block, its surroundings and their displacements.
#[derive(Clone, Copy)]
pub(super) struct StencilGeometry<'a> {
    pub(super) site: usize,
    pub(super) stencils: &'a [Stencil],
    pub(super) displacement: [&'a [i32]; 3],
    pub(super) half_correction: &'a [f32],
}

impl<'a> StencilGeometry<'a> {
    /// Half of the corrections from a site on.
    #[inline(always)]
    fn correction<C: Corrections>(&self, site: usize) -> Strip {
        if C::ARE_READ { *window(self.half_correction, site) } else { [0.5; LANES] }
    }

    /// The displacements around a block.
    #[inline(always)]
    fn displacements(&self, site: usize) -> Around<'a, i32> {
        self.around(self.displacement, site)
    }

    /// Values around a block.
    #[inline(always)]
    fn around<T: Copy>(&self, [x, y, z]: [&'a [T]; 3], site: usize) -> Around<'a, T> {
        // Equal lengths let the compiler check bounds once for all columns.
        let sites = self.displacement[0].len();
        let columns = [&x[..sites], &y[..sites], &z[..sites]];
        Around { columns, own: at(columns, site) }
    }
}

/// Columns, and their values at a block's sites.
pub(super) struct Around<'a, T> {
    columns: [&'a [T]; 3],
    own: [Strip<T>; 3],
}

impl Around<'_, i32> {
    /// Differences to the sites from `there` on.
    #[inline(always)]
    fn differences(&self, there: usize) -> [Strip<i32>; 3] {
        let (own, other) = (&self.own, at(self.columns, there));
        let mut difference = [[0; LANES]; 3];
        for axis in 0..3 {
            for lane in 0..LANES {
                difference[axis][lane] = other[axis][lane].wrapping_sub(own[axis][lane]);
            }
        }
        difference
    }
}

#[inline(always)]
fn at<T: Copy>([x, y, z]: [&[T]; 3], site: usize) -> [Strip<T>; 3] {
    [*window(x, site), *window(y, site), *window(z, site)]
}

/// The terms that a bond adds to K sums at both of its ends.
pub(super) trait BondTerm<const K: usize> {
    /// Sums of nothing.
    const NONE: [f32; K] = [0.0; K];
    /// The entries of the lower ends, read once for all stencils.
    type Own;

    /// Reads it.
    fn own(&self, site: usize) -> Self::Own;

    /// The terms of the bonds of a stencil from the block to the sites from `there` on; none if there is no
    /// such bond.
    fn terms<L: Lanes>(&mut self, own: &Self::Own, stencil: usize, there: usize) -> Option<[Strip; K]>;

    /// Adds a term to a sum at the lower end of a bond.
    #[inline(always)]
    fn with(_sum_of: usize, sum: f32, term: f32) -> f32 {
        sum + term
    }

    /// Adds a term to a sum at the upper end of a bond.
    #[inline(always)]
    fn with_upper(_sum_of: usize, sum: f32, term: f32) -> f32 {
        sum - term
    }
}

/// Sums over the bonds of a block of sites to sites of higher number, at both of their ends: a column of each
/// sum, in which `start` is the first site. The task yields the term as it leaves it.
///
/// The order of stencils returns late to a row of sites. A load from a place that was stored to just before would
/// wait for these stores.
pub(super) struct BothEnds<'a, T, const K: usize> {
    pub(super) term: T,
    pub(super) geometry: StencilGeometry<'a>,
    pub(super) start: usize,
    pub(super) sums: [&'a mut [f32]; K],
}

impl<T: BondTerm<K>, const K: usize> Task for BothEnds<'_, T, K> {
    type Output = T;

    #[inline(always)]
    fn run<L: Lanes>(self) -> T {
        let Self { mut term, geometry: StencilGeometry { site, stencils, .. }, start, sums } = self;
        let length = sums[0].len();
        let sums = sums.map(|column| &mut column[..length]);
        let own = term.own(site);
        let mut sum = T::NONE.map(|none| [none; LANES]);
        for (index, stencil) in stencils.iter().enumerate() {
            let there = site + stencil.shift;
            let Some(terms) = term.terms::<L>(&own, index, there) else { continue };
            for k in 0..K {
                for lane in 0..LANES {
                    sum[k][lane] = T::with(k, sum[k][lane], terms[k][lane]);
                }
            }
            for k in 0..K {
                let upper: &mut Strip = window_mut(sums[k], there - start);
                for lane in 0..LANES {
                    upper[lane] = T::with_upper(k, upper[lane], terms[k][lane]);
                }
            }
        }
        for k in 0..K {
            let lower: &mut Strip = window_mut(sums[k], site - start);
            for lane in 0..LANES {
                lower[lane] = T::with(k, lower[lane], sum[k][lane]);
            }
        }
        term
    }
}

/// Double strains of bonds for these differences of displacements; 0 for broken bonds.
#[inline(always)]
fn double_strains(step: &Stencil, eta: &[Strip<i32>; 3], live: u32) -> Strip {
    let mut double_strain = [0.0; LANES];
    for lane in 0..LANES {
        let own = step.double_strain([eta[0][lane], eta[1][lane], eta[2][lane]]);
        double_strain[lane] = if live & (1 << lane) != 0 { own } else { 0.0 };
    }
    double_strain
}

/// Elongations over lengths ([`elongation_share`]) for double strains.
#[inline(always)]
fn shares<S: StrainRange>(step: &Stencil, eta: &[Strip<i32>; 3], live: u32) -> Strip {
    let (double_strain, mut share) = (double_strains(step, eta, live), [0.0; LANES]);
    for lane in 0..LANES {
        share[lane] = elongation_share::<S>(double_strain[lane]);
    }
    share
}

/// Thresholds at which bonds break.
#[derive(Clone, Copy)]
pub(super) struct Thresholds<'a> {
    /// Largest double strain of each particle's bonds.
    pub(super) of: &'a [f32],
    /// The least of them.
    pub(super) least: f32,
    /// Particle at each site.
    pub(super) particle: &'a [u32],
}

/// Forces, the least double strain of each particle's bonds where it is recorded, and at their lower ends
/// twice the energies of bonds. Bonds beyond the thresholds break first.
pub(super) struct ForceTerm<'a, C, M> {
    pub(super) variant: PhantomData<(C, M)>,
    pub(super) geometry: StencilGeometry<'a>,
    pub(super) live: &'a mut [u16],
    pub(super) thresholds: Option<Thresholds<'a>>,
    /// True if a bond is stretched or compressed so far that the series does not hold.
    pub(super) is_far: bool,
    pub(super) broken: &'a mut Vec<Broken>,
}

impl<C: Corrections, M: LeastStrain> ForceTerm<'_, C, M> {
    /// Breaks bonds beyond their thresholds, and notes whether any of the others is far.
    #[cold]
    #[inline(never)]
    fn break_beyond(&mut self, stencil: usize) {
        let Self { geometry, thresholds, .. } = self;
        let (step, column) = (&geometry.stencils[stencil], geometry.displacement);
        let live = self.live[stencil];
        for lane in (0..LANES).filter(|lane| live >> lane & 1 != 0) {
            let site = geometry.site + lane;
            let there = site + step.shift;
            let eta = column.map(|column| column[there].wrapping_sub(column[site]));
            let double_strain = step.double_strain(eta);
            if let Some(Thresholds { of, particle, .. }) = thresholds {
                let ends = [particle[site], particle[there]];
                let [own, other] = ends.map(|end| of[end as usize]);
                if double_strain > own.min(other) {
                    let correction = geometry.correction::<C>(site)[0] + geometry.correction::<C>(there)[0];
                    let force_per_length =
                        step.stiffness * correction * elongation_share::<AnyStrain>(double_strain);
                    let force =
                        std::array::from_fn(|axis| force_per_length * (step.offset[axis] + eta[axis] as f32));
                    self.broken.push(Broken { ends, force });
                    self.live[stencil] &= !(1 << lane);
                    continue;
                }
            }
            self.is_far |= double_strain.abs() > SERIES_MAX;
        }
    }

    /// The terms of bonds of these double strains and differences of displacements.
    #[inline(always)]
    fn forces<S: StrainRange>(
        &self,
        own_correction: &Strip,
        (step, there): (&Stencil, usize),
        live: u32,
        double_strain: &Strip,
        eta: &[Strip<i32>; 3],
    ) -> [Strip; 5] {
        let correction = self.geometry.correction::<C>(there);
        let mut terms = [[0.0; LANES]; 5];
        for lane in 0..LANES {
            let share = elongation_share::<S>(double_strain[lane]);
            let force_per_length = step.stiffness * (own_correction[lane] + correction[lane]) * share;
            for axis in 0..3 {
                terms[axis][lane] = force_per_length * (step.offset[axis] + eta[axis][lane] as f32);
            }
            let square = double_strain[lane].mul_add(step.rest_square, step.rest_square);
            terms[4][lane] = force_per_length * share * square;
            terms[3][lane] = if live & (1 << lane) != 0 { double_strain[lane] } else { f32::INFINITY };
        }
        terms
    }
}

impl<'a, C: Corrections, M: LeastStrain> BondTerm<5> for ForceTerm<'a, C, M> {
    const NONE: [f32; 5] = [0.0, 0.0, 0.0, f32::INFINITY, 0.0];
    /// A particle's surroundings and strip, and the double strain beyond which a bond is treated by itself.
    type Own = (Around<'a, i32>, Strip, f32);

    #[inline(always)]
    fn own(&self, site: usize) -> Self::Own {
        let limit = self.thresholds.map_or(SERIES_MAX, |thresholds| thresholds.least.min(SERIES_MAX));
        (self.geometry.displacements(site), self.geometry.correction::<C>(site), limit)
    }

    #[inline(always)]
    fn terms<L: Lanes>(
        &mut self,
        (own, own_correction, limit): &Self::Own,
        stencil: usize,
        there: usize,
    ) -> Option<[Strip; 5]> {
        let live = u32::from(self.live[stencil]);
        if live == 0 {
            return None;
        }
        let (step, eta) = (&self.geometry.stencils[stencil], own.differences(there));
        let double_strain = double_strains(step, &eta, live);
        if L::any_outside(&double_strain, -SERIES_MAX, *limit) {
            self.break_beyond(stencil);
            let live = u32::from(self.live[stencil]);
            let double_strain = double_strains(step, &eta, live);
            return Some(self.forces::<AnyStrain>(own_correction, (step, there), live, &double_strain, &eta));
        }
        Some(self.forces::<SmallStrain>(own_correction, (step, there), live, &double_strain, &eta))
    }

    #[inline(always)]
    fn with(sum_of: usize, sum: f32, term: f32) -> f32 {
        match sum_of {
            3 if M::IS_RECORDED => sum.min(term),
            3 => sum,
            _ => sum + term,
        }
    }

    #[inline(always)]
    fn with_upper(sum_of: usize, sum: f32, term: f32) -> f32 {
        match sum_of {
            3 if M::IS_RECORDED => sum.min(term),
            3 | 4 => sum,
            _ => sum - term,
        }
    }
}

/// Computes the diagonal blocks, and the coefficients of all bonds: one row of lanes per stencil. Coefficients are
/// valid for bonds for which the series holds. `S` must hold the strains of all bonds.
pub(super) struct DiagonalTerm<'a, C, S> {
    pub(super) variant: PhantomData<(C, S)>,
    pub(super) geometry: StencilGeometry<'a>,
    pub(super) live: &'a [u16],
    pub(super) coefficient: &'a mut [[Coefficient; LANES]],
}

impl<'a, C: Corrections, S: StrainRange> BondTerm<6> for DiagonalTerm<'a, C, S> {
    type Own = (Around<'a, i32>, Strip);

    #[inline(always)]
    fn own(&self, site: usize) -> Self::Own {
        (self.geometry.displacements(site), self.geometry.correction::<C>(site))
    }

    #[inline(always)]
    fn terms<L: Lanes>(
        &mut self,
        (own, own_correction): &Self::Own,
        stencil: usize,
        there: usize,
    ) -> Option<[Strip; 6]> {
        let live = u32::from(self.live[stencil]);
        let coefficient = &mut self.coefficient[stencil];
        if live == 0 {
            *coefficient = [0; LANES];
            return None;
        }
        let (step, eta) = (&self.geometry.stencils[stencil], own.differences(there));
        let correction = self.geometry.correction::<C>(there);
        let share = shares::<S>(step, &eta, live);
        let mut rounded = [0; LANES];
        for lane in 0..LANES {
            let on = if live & (1 << lane) != 0 { u32::MAX } else { 0 };
            rounded[lane] = packed(linearised(share[lane])) & on;
        }
        *coefficient = rounded;
        // In a loop of its own: with a branch the compiler would not turn the next loop into vectors.
        let mut stiffness = [0.0; LANES];
        for lane in 0..LANES {
            let own = step.stiffness * (own_correction[lane] + correction[lane]);
            stiffness[lane] = if live & (1 << lane) != 0 { own } else { 0.0 };
        }
        let mut terms = [[0.0; LANES]; 6];
        for lane in 0..LANES {
            let (transverse, axial) = linearised(share[lane]);
            let (transverse, axial) =
                (stiffness[lane] * transverse, stiffness[lane] * (axial * step.inverse_square));
            let x = step.offset[0] + eta[0][lane] as f32;
            let y = step.offset[1] + eta[1][lane] as f32;
            let z = step.offset[2] + eta[2][lane] as f32;
            let (along_x, along_y, along_z) = (axial * x, axial * y, axial * z);
            terms[0][lane] = along_x.mul_add(x, transverse);
            terms[1][lane] = along_y.mul_add(y, transverse);
            terms[2][lane] = along_z.mul_add(z, transverse);
            terms[3][lane] = along_y * z;
            terms[4][lane] = along_x * z;
            terms[5][lane] = along_x * y;
        }
        Some(terms)
    }

    #[inline(always)]
    fn with_upper(_sum_of: usize, sum: f32, term: f32) -> f32 {
        sum + term
    }
}

/// Stiffness of a bond at rest length L and length l, over its stiffness k: the transverse part
/// t = max(0, 1 - L/l), and the axial excess (1 - t) L^2/l^2.
#[inline(always)]
fn linearised(share: f32) -> (f32, f32) {
    let transverse = if share > 0.0 { share } else { 0.0 };
    // L^2/l^2 = (1 - share)^2.
    let ratio = 1.0 - share;
    (transverse, (1.0 - transverse) * (ratio * ratio))
}

/// Prefetch distance [bytes]. Coefficients are read once, in order, and hardware prefetchers stop at page
/// boundaries, so the loop prefetches explicitly.
const PREFETCH: usize = 2048;

/// Computes the rounded product for iterations in f32, with operand and positions in f32 and the coefficients
/// of [`DiagonalTerm`]. The relative error of entries is about 1e-6. For any strain, coefficients are
/// computed anew; for bonds for which the series holds, they are rounded as the stored ones.
pub(super) struct RoundedTerm<'a, C, S> {
    pub(super) variant: PhantomData<(C, S)>,
    pub(super) geometry: StencilGeometry<'a>,
    pub(super) live: &'a [u16],
    /// Coefficients, one entry per live word.
    pub(super) coefficient: &'a [[Coefficient; LANES]],
    /// Columns of positions, in spacings.
    pub(super) position: [&'a [f32]; 3],
    /// Columns of f32, as bits.
    pub(super) operand: [&'a [i32]; 3],
}

impl<C: Corrections, S: StrainRange> RoundedTerm<'_, C, S> {
    /// Transverse part and axial excess of each bond, in units.
    #[inline(always)]
    fn parts(&self, own: &Around<'_, i32>, stencil: usize, live: u32, there: usize) -> [Strip; 2] {
        let coefficient = &self.coefficient[stencil];
        let (mut transverse, mut axial) = ([0.0; LANES], [0.0; LANES]);
        if S::IS_UNLIMITED {
            let (step, eta) = (&self.geometry.stencils[stencil], own.differences(there));
            for lane in 0..LANES {
                let double_strain = step.double_strain([eta[0][lane], eta[1][lane], eta[2][lane]]);
                let exact = linearised(elongation_share::<AnyStrain>(double_strain));
                let near = unpacked(packed(exact));
                let far = (exact.0 * TRANSVERSE, exact.1 * AXIAL);
                let of = if double_strain.abs() > SERIES_MAX { far } else { near };
                (transverse[lane], axial[lane]) = if live & (1 << lane) != 0 { of } else { (0.0, 0.0) };
            }
        } else {
            for lane in 0..LANES {
                (transverse[lane], axial[lane]) = unpacked(coefficient[lane]);
            }
        }
        [transverse, axial]
    }
}

impl<'a, C: Corrections, S: StrainRange> BondTerm<3> for RoundedTerm<'a, C, S> {
    type Own = (Around<'a, f32>, Around<'a, i32>, Around<'a, i32>, Strip);

    #[inline(always)]
    fn own(&self, site: usize) -> Self::Own {
        let geometry = self.geometry;
        let (position, operand) = (geometry.around(self.position, site), geometry.around(self.operand, site));
        (position, operand, geometry.displacements(site), geometry.correction::<C>(site))
    }

    #[inline(always)]
    fn terms<L: Lanes>(
        &mut self,
        (position, operand, displacement, own_correction): &Self::Own,
        stencil: usize,
        there: usize,
    ) -> Option<[Strip; 3]> {
        let live = u32::from(self.live[stencil]);
        if live == 0 {
            return None;
        }
        L::prefetch(&self.coefficient[stencil], PREFETCH);
        let step = &self.geometry.stencils[stencil];
        let (own, other) = (&position.own, at(position.columns, there));
        let (own_u, other_u) = (&operand.own, at(operand.columns, there));
        let correction = self.geometry.correction::<C>(there);
        let [transverse, axial] = self.parts(displacement, stencil, live, there);
        let mut terms = [[0.0; LANES]; 3];
        for lane in 0..LANES {
            let correction = own_correction[lane] + correction[lane];
            let (transverse, axial) = (
                transverse[lane] * (step.transverse_part * correction),
                axial[lane] * (step.axial_part * correction),
            );
            let d =
                [other[0][lane] - own[0][lane], other[1][lane] - own[1][lane], other[2][lane] - own[2][lane]];
            let u = [
                FloatBits::difference(own_u[0][lane], other_u[0][lane]),
                FloatBits::difference(own_u[1][lane], other_u[1][lane]),
                FloatBits::difference(own_u[2][lane], other_u[2][lane]),
            ];
            let axial = axial * d[2].mul_add(u[2], d[1].mul_add(u[1], d[0] * u[0]));
            terms[0][lane] = axial.mul_add(d[0], transverse * u[0]);
            terms[1][lane] = axial.mul_add(d[1], transverse * u[1]);
            terms[2][lane] = axial.mul_add(d[2], transverse * u[2]);
        }
        Some(terms)
    }
}

/// The product with an operand in whole numbers, for bonds of the given strains.
pub(super) struct ProductTerm<'a, C, S> {
    pub(super) variant: PhantomData<(C, S)>,
    pub(super) geometry: StencilGeometry<'a>,
    pub(super) live: &'a [u16],
    pub(super) operand: [&'a [i32]; 3],
}

impl<'a, C: Corrections, S: StrainRange> BondTerm<3> for ProductTerm<'a, C, S> {
    type Own = (Around<'a, i32>, Around<'a, i32>, Strip);

    #[inline(always)]
    fn own(&self, site: usize) -> Self::Own {
        let operand = self.geometry.around(self.operand, site);
        (self.geometry.displacements(site), operand, self.geometry.correction::<C>(site))
    }

    #[inline(always)]
    fn terms<L: Lanes>(
        &mut self,
        (own, operand, own_correction): &Self::Own,
        stencil: usize,
        there: usize,
    ) -> Option<[Strip; 3]> {
        let live = u32::from(self.live[stencil]);
        if live == 0 {
            return None;
        }
        let (step, eta) = (&self.geometry.stencils[stencil], own.differences(there));
        let (own_u, other_u) = (&operand.own, at(operand.columns, there));
        let correction = self.geometry.correction::<C>(there);
        let share = shares::<S>(step, &eta, live);
        let mut terms = [[0.0; LANES]; 3];
        for lane in 0..LANES {
            let stiffness = step.stiffness * (own_correction[lane] + correction[lane]);
            let stiffness = if live & (1 << lane) != 0 { stiffness } else { 0.0 };
            let (transverse, axial) = linearised(share[lane]);
            let (transverse, axial) = (stiffness * transverse, stiffness * (axial * step.inverse_square));
            let d = [
                step.offset[0] + eta[0][lane] as f32,
                step.offset[1] + eta[1][lane] as f32,
                step.offset[2] + eta[2][lane] as f32,
            ];
            let u = [
                WholeNumbers::difference(own_u[0][lane], other_u[0][lane]),
                WholeNumbers::difference(own_u[1][lane], other_u[1][lane]),
                WholeNumbers::difference(own_u[2][lane], other_u[2][lane]),
            ];
            let axial = axial * d[2].mul_add(u[2], d[1].mul_add(u[1], d[0] * u[0]));
            terms[0][lane] = axial.mul_add(d[0], transverse * u[0]);
            terms[1][lane] = axial.mul_add(d[1], transverse * u[1]);
            terms[2][lane] = axial.mul_add(d[2], transverse * u[2]);
        }
        Some(terms)
    }
}
