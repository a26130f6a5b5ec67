//! Forces of bonds, and bonds that break.

use std::marker::PhantomData;

use amalgam_particles::lanes::{LANES, Lanes};

use super::super::stretch::{SERIES_MAX, elongation_share};
use super::super::table::Broken;
use super::super::variants::{AnyStrain, Corrections, LeastStrain, SmallStrain, StrainRange};
use super::kernels::{Around, BondTerm, StencilGeometry, Strip, double_strains};
use super::stencil::Stencil;

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

/// Forces, the least double strain of each particle's bonds where it is recorded (M), and at their lower ends
/// twice the energies of bonds. Bonds beyond the thresholds break first.
pub(super) struct ForceTerm<'a, M> {
    pub(super) variant: PhantomData<M>,
    pub(super) geometry: StencilGeometry<'a>,
    pub(super) live: &'a mut [u16],
    pub(super) thresholds: Option<Thresholds<'a>>,
    /// True if a bond is stretched or compressed so far that the series does not hold.
    pub(super) is_far: bool,
    pub(super) broken: &'a mut Vec<Broken>,
}

impl<M: LeastStrain> ForceTerm<'_, M> {
    /// Breaks bonds beyond their thresholds, and notes whether any of the others is far.
    #[cold]
    #[inline(never)]
    fn break_beyond<C: Corrections>(&mut self, stencil: usize) {
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
    fn forces<C: Corrections, S: StrainRange>(
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

impl<'a, M: LeastStrain> BondTerm<5> for ForceTerm<'a, M> {
    const NONE: [f32; 5] = [0.0, 0.0, 0.0, f32::INFINITY, 0.0];
    /// A particle's surroundings and strip, and the double strain beyond which a bond is treated by itself.
    type Own = (Around<'a, i32>, Strip, f32);
    /// Each stencil finds for itself whether the series holds for its bonds: one copy does for all blocks.
    type Wide = SmallStrain;

    #[inline(always)]
    fn own<C: Corrections>(&self, site: usize) -> Self::Own {
        let limit = self.thresholds.map_or(SERIES_MAX, |thresholds| thresholds.least.min(SERIES_MAX));
        (self.geometry.displacements(site), self.geometry.correction::<C>(site), limit)
    }

    #[inline(always)]
    fn terms<L: Lanes, C: Corrections, S: StrainRange>(
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
            self.break_beyond::<C>(stencil);
            let live = u32::from(self.live[stencil]);
            let double_strain = double_strains(step, &eta, live);
            return Some(self.forces::<C, AnyStrain>(
                own_correction,
                (step, there),
                live,
                &double_strain,
                &eta,
            ));
        }
        Some(self.forces::<C, SmallStrain>(own_correction, (step, there), live, &double_strain, &eta))
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
