//! Common parts of the hot loops over blocks of sixteen lattice sites: the data around a block, the sums over
//! bonds, and the choice among the copies of a loop. The terms that are summed are in `forces.rs`,
//! `stiffness.rs` and `product.rs`.

use std::marker::PhantomData;

use amalgam_particles::lanes::{self, LANES, Lanes, Task};

use super::super::variants::{Corrected, Corrections, SmallStrain, StrainRange, Uncorrected};
use super::stencil::Stencil;
use crate::linear::vectors::{window, window_mut};

/// A value of each lane.
pub(super) type Strip<T = f32> = [T; LANES];

/// The data that the kernels share: a block, its surroundings and their displacements.
#[derive(Clone, Copy)]
pub(super) struct StencilGeometry<'a> {
    pub(super) site: usize,
    /// The first site whose sums are wanted. Bonds that end before it are left out.
    pub(super) from: usize,
    pub(super) stencils: &'a [Stencil],
    pub(super) displacement: [&'a [i32]; 3],
    /// Half of each site's correction; empty without corrections.
    pub(super) half_correction: &'a [f32],
}

impl<'a> StencilGeometry<'a> {
    /// Half of the corrections from a site on.
    #[inline(always)]
    pub(super) fn correction<C: Corrections>(&self, site: usize) -> Strip {
        if C::ARE_READ { *window(self.half_correction, site) } else { [0.5; LANES] }
    }

    /// The displacements around a block.
    #[inline(always)]
    pub(super) fn displacements(&self, site: usize) -> Around<'a, i32> {
        self.around(self.displacement, site)
    }

    /// Values around a block.
    #[inline(always)]
    pub(super) fn around<T: Copy>(&self, [x, y, z]: [&'a [T]; 3], site: usize) -> Around<'a, T> {
        // Equal lengths let the compiler check bounds once for all columns.
        let sites = self.displacement[0].len();
        let columns = [&x[..sites], &y[..sites], &z[..sites]];
        Around { columns, own: at(columns, site) }
    }
}

/// Columns, and their values at a block's sites.
pub(super) struct Around<'a, T> {
    columns: [&'a [T]; 3],
    pub(super) own: [Strip<T>; 3],
}

impl<T: Copy> Around<'_, T> {
    /// The values at the sites from `there` on.
    #[inline(always)]
    pub(super) fn other(&self, there: usize) -> [Strip<T>; 3] {
        at(self.columns, there)
    }
}

impl Around<'_, i32> {
    /// Differences to the sites from `there` on.
    #[inline(always)]
    pub(super) fn differences(&self, there: usize) -> [Strip<i32>; 3] {
        let (own, other) = (&self.own, self.other(there));
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
    /// Strain range of the copy that runs on blocks with `any_strain`.
    type Wide: StrainRange;

    /// Reads the entries of the lower ends for the block that starts at `site`.
    fn own<C: Corrections>(&self, site: usize) -> Self::Own;

    /// The terms of the bonds of a stencil from the block to the sites from `there` on; none if there is no
    /// such bond.
    fn terms<L: Lanes, C: Corrections, S: StrainRange>(
        &mut self,
        own: &Self::Own,
        stencil: usize,
        there: usize,
    ) -> Option<[Strip; K]>;

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
/// The order of stencils returns late to a row of sites. A load from a place that was stored to just before
/// would wait for these stores.
pub(super) struct BothEnds<'a, T, C, S, const K: usize> {
    variant: PhantomData<(C, S)>,
    term: T,
    geometry: StencilGeometry<'a>,
    start: usize,
    sums: [&'a mut [f32]; K],
}

impl<'a, T, C, S, const K: usize> BothEnds<'a, T, C, S, K> {
    #[inline(always)]
    pub(super) fn new(
        term: T,
        geometry: StencilGeometry<'a>,
        start: usize,
        sums: [&'a mut [f32]; K],
    ) -> Self {
        Self { variant: PhantomData, term, geometry, start, sums }
    }
}

/// Runs [`BothEnds`] in the copy of the loop that a block asks for: with or without corrections, for small
/// strains or for `any_strain`. A call that is not inlined would copy the term once more for each block.
#[inline(always)]
pub(super) fn add_block<T: BondTerm<K>, const K: usize>(
    term: T,
    geometry: StencilGeometry<'_>,
    any_strain: bool,
    start: usize,
    sums: &mut [&mut [f32]; K],
) -> T {
    let sums = sums.each_mut().map(|column| &mut **column);
    match (geometry.half_correction.is_empty(), any_strain) {
        (true, false) => run::<T, Uncorrected, SmallStrain, K>(term, geometry, start, sums),
        (true, true) => run::<T, Uncorrected, T::Wide, K>(term, geometry, start, sums),
        (false, false) => run::<T, Corrected, SmallStrain, K>(term, geometry, start, sums),
        (false, true) => run::<T, Corrected, T::Wide, K>(term, geometry, start, sums),
    }
}

#[inline(always)]
fn run<T: BondTerm<K>, C: Corrections, S: StrainRange, const K: usize>(
    term: T,
    geometry: StencilGeometry<'_>,
    start: usize,
    sums: [&mut [f32]; K],
) -> T {
    lanes::run(BothEnds::<T, C, S, K>::new(term, geometry, start, sums))
}

impl<T, C, S, const K: usize> Task for BothEnds<'_, T, C, S, K>
where
    T: BondTerm<K>,
    C: Corrections,
    S: StrainRange,
{
    type Output = T;

    #[inline(always)]
    fn run<L: Lanes>(self) -> T {
        let Self { mut term, geometry: StencilGeometry { site, from, stencils, .. }, start, sums, .. } = self;
        let length = sums[0].len();
        let sums = sums.map(|column| &mut column[..length]);
        let own = term.own::<C>(site);
        let mut sum = T::NONE.map(|none| [none; LANES]);
        for (index, stencil) in stencils.iter().enumerate() {
            let there = site + stencil.shift;
            if there + LANES <= from {
                continue;
            }
            let Some(terms) = term.terms::<L, C, S>(&own, index, there) else { continue };
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
pub(super) fn double_strains(step: &Stencil, eta: &[Strip<i32>; 3], live: u32) -> Strip {
    let mut double_strain = [0.0; LANES];
    for lane in 0..LANES {
        let own = step.double_strain([eta[0][lane], eta[1][lane], eta[2][lane]]);
        double_strain[lane] = if live & (1 << lane) != 0 { own } else { 0.0 };
    }
    double_strain
}
