//! The product of a body's stiffness with a vector, for the bonds of a block. The linear solves spend most of
//! their time in this loop.
//!
//! A bond from particle i to particle j has the matrix `t I + a d d^T` with `d = x_j - x_i` (`stiffness.rs`).
//! It acts on the difference v of the vector u between the ends:
//!
//! ```text
//! (K u)_i = sum over the bonds of i:  t v + a (d . v) d,   v = u_i - u_j
//! ```
//!
//! Seen from the other end, d and v have the opposite signs, and so has the term. Therefore each bond is
//! computed once: [`BothEnds`](super::kernels::BothEnds) adds the term to row i and subtracts it from row j.
//!
//! There are two precisions, which differ in where t, a, d and v come from: [`ExactBonds`] and
//! [`RoundedBonds`].

use amalgam_particles::lanes::{LANES, Lanes};

use super::super::stretch::{SERIES_MAX, elongation_share};
use super::super::variants::{AnyStrain, Components, Corrections, FloatBits, StrainRange, WholeNumbers};
use super::coefficient::{AXIAL, RelativeCoefficient, TRANSVERSE, packed, unpacked};
use super::kernels::{Around, BondTerm, StencilGeometry, Strip};
use super::stencil::Stencil;
use super::stiffness::{linearised, shares};

/// The products of the bonds of a block.
pub(super) struct ProductTerm<'a, B> {
    pub(super) bonds: B,
    pub(super) live: &'a [u16],
}

impl<B: LinearBonds> BondTerm<3> for ProductTerm<'_, B> {
    type Own = B::Own;
    type Wide = AnyStrain;

    #[inline(always)]
    fn own<C: Corrections>(&self, site: usize) -> Self::Own {
        self.bonds.own::<C>(site)
    }

    #[inline(always)]
    fn terms<L: Lanes, C: Corrections, S: StrainRange>(
        &mut self,
        own: &Self::Own,
        stencil: usize,
        there: usize,
    ) -> Option<[Strip; 3]> {
        let live = u32::from(self.live[stencil]);
        if live == 0 {
            return None;
        }
        let row = self.bonds.row::<L, C, S>(own, (stencil, live), there);
        let mut terms = [[0.0; LANES]; 3];
        #[allow(clippy::needless_range_loop, reason = "a loop over all lanes becomes vectors")]
        for lane in 0..LANES {
            let LinearBond { transverse, axial, d, v } = B::bond(own, &row, lane);
            // t v + a (d . v) d
            let along = axial * d[2].mul_add(v[2], d[1].mul_add(v[1], d[0] * v[0]));
            terms[0][lane] = along.mul_add(d[0], transverse * v[0]);
            terms[1][lane] = along.mul_add(d[1], transverse * v[1]);
            terms[2][lane] = along.mul_add(d[2], transverse * v[2]);
        }
        Some(terms)
    }
}

/// A bond's matrix `t I + a d d^T`, and the difference v of the vector between its ends. A broken bond has
/// t = a = 0.
pub(super) struct LinearBond {
    /// The transverse stiffness t.
    transverse: f32,
    /// The axial excess a.
    axial: f32,
    d: [f32; 3],
    v: [f32; 3],
}

/// The linearised bonds of a block.
pub(super) trait LinearBonds {
    /// The entries of the lower ends, read once for all stencils.
    type Own;
    /// The entries of the bonds of one stencil.
    type Row;

    /// Reads those of the lower ends.
    fn own<C: Corrections>(&self, site: usize) -> Self::Own;

    /// Reads those of a stencil, with its live bits, to the sites from `there` on. C and S hold for all of
    /// the block's bonds.
    fn row<L: Lanes, C: Corrections, S: StrainRange>(
        &self,
        own: &Self::Own,
        stencil: (usize, u32),
        there: usize,
    ) -> Self::Row;

    /// The bond in a lane.
    fn bond(own: &Self::Own, row: &Self::Row, lane: usize) -> LinearBond;
}

/// Bonds as they are, computed from exact differences of displacements, and a vector in whole numbers.
/// Lengths are in quanta.
pub(super) struct ExactBonds<'a> {
    pub(super) geometry: StencilGeometry<'a>,
    pub(super) operand: [&'a [i32]; 3],
}

/// The lower ends of exact bonds.
pub(super) struct ExactOwn<'a> {
    displacement: Around<'a, i32>,
    operand: Around<'a, i32>,
    correction: Strip,
}

/// The exact bonds of a stencil.
pub(super) struct ExactRow<'a> {
    step: &'a Stencil,
    live: u32,
    /// Differences of displacements.
    eta: [Strip<i32>; 3],
    operand: [Strip<i32>; 3],
    correction: Strip,
    /// Elongations over lengths.
    share: Strip,
}

impl<'a> LinearBonds for ExactBonds<'a> {
    type Own = ExactOwn<'a>;
    type Row = ExactRow<'a>;

    #[inline(always)]
    fn own<C: Corrections>(&self, site: usize) -> Self::Own {
        let Self { geometry, operand } = *self;
        ExactOwn {
            displacement: geometry.displacements(site),
            operand: geometry.around(operand, site),
            correction: geometry.correction::<C>(site),
        }
    }

    #[inline(always)]
    fn row<L: Lanes, C: Corrections, S: StrainRange>(
        &self,
        own: &Self::Own,
        (stencil, live): (usize, u32),
        there: usize,
    ) -> Self::Row {
        let (step, eta) = (&self.geometry.stencils[stencil], own.displacement.differences(there));
        ExactRow {
            step,
            live,
            share: shares::<S>(step, &eta, live),
            eta,
            operand: own.operand.other(there),
            correction: self.geometry.correction::<C>(there),
        }
    }

    #[inline(always)]
    fn bond(own: &Self::Own, row: &Self::Row, lane: usize) -> LinearBond {
        let ExactRow { step, eta, operand: other, .. } = row;
        let stiffness = step.stiffness * (own.correction[lane] + row.correction[lane]);
        let stiffness = if row.live & (1 << lane) != 0 { stiffness } else { 0.0 };
        let (transverse, axial) = linearised(row.share[lane]);
        let operand = &own.operand.own;
        LinearBond {
            transverse: stiffness * transverse,
            axial: stiffness * (axial * step.inverse_square),
            d: [
                step.offset[0] + eta[0][lane] as f32,
                step.offset[1] + eta[1][lane] as f32,
                step.offset[2] + eta[2][lane] as f32,
            ],
            v: [
                WholeNumbers::difference(operand[0][lane], other[0][lane]),
                WholeNumbers::difference(operand[1][lane], other[1][lane]),
                WholeNumbers::difference(operand[2][lane], other[2][lane]),
            ],
        }
    }
}

/// Prefetch distance [bytes]. Coefficients are read once, in order, and hardware prefetchers stop at page
/// boundaries, so the loop prefetches explicitly.
const PREFETCH: usize = 2048;

/// Bonds rounded for iterations in f32, with vector and positions in f32 and the coefficients of
/// [`DiagonalTerm`](super::stiffness::DiagonalTerm). The relative error of entries is about 1e-6. For any
/// strain, coefficients are computed anew; for bonds for which the series holds, they are rounded as the
/// stored ones. Lengths are in spacings.
pub(super) struct RoundedBonds<'a> {
    pub(super) geometry: StencilGeometry<'a>,
    /// Coefficients, one entry per live word.
    pub(super) coefficient: &'a [[RelativeCoefficient; LANES]],
    /// Columns of positions, in spacings.
    pub(super) position: [&'a [f32]; 3],
    /// Columns of f32, as bits.
    pub(super) operand: [&'a [i32]; 3],
}

/// The lower ends of rounded bonds.
pub(super) struct RoundedOwn<'a> {
    position: Around<'a, f32>,
    operand: Around<'a, i32>,
    displacement: Around<'a, i32>,
    correction: Strip,
}

/// The rounded bonds of a stencil.
pub(super) struct RoundedRow<'a> {
    step: &'a Stencil,
    position: [Strip; 3],
    operand: [Strip<i32>; 3],
    correction: Strip,
    /// Transverse part and axial excess, in units of a [`RelativeCoefficient`].
    parts: [Strip; 2],
}

impl RoundedBonds<'_> {
    /// Transverse part and axial excess of each bond, in units.
    #[inline(always)]
    fn parts<S: StrainRange>(
        &self,
        own: &Around<'_, i32>,
        (stencil, live): (usize, u32),
        there: usize,
    ) -> [Strip; 2] {
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

impl<'a> LinearBonds for RoundedBonds<'a> {
    type Own = RoundedOwn<'a>;
    type Row = RoundedRow<'a>;

    #[inline(always)]
    fn own<C: Corrections>(&self, site: usize) -> Self::Own {
        let geometry = self.geometry;
        RoundedOwn {
            position: geometry.around(self.position, site),
            operand: geometry.around(self.operand, site),
            displacement: geometry.displacements(site),
            correction: geometry.correction::<C>(site),
        }
    }

    #[inline(always)]
    fn row<L: Lanes, C: Corrections, S: StrainRange>(
        &self,
        own: &Self::Own,
        (stencil, live): (usize, u32),
        there: usize,
    ) -> Self::Row {
        L::prefetch(&self.coefficient[stencil], PREFETCH);
        RoundedRow {
            step: &self.geometry.stencils[stencil],
            position: own.position.other(there),
            operand: own.operand.other(there),
            correction: self.geometry.correction::<C>(there),
            parts: self.parts::<S>(&own.displacement, (stencil, live), there),
        }
    }

    #[inline(always)]
    fn bond(own: &Self::Own, row: &Self::Row, lane: usize) -> LinearBond {
        let RoundedRow { step, position: other, operand: other_u, .. } = row;
        let (position, operand) = (&own.position.own, &own.operand.own);
        let correction = own.correction[lane] + row.correction[lane];
        LinearBond {
            transverse: row.parts[0][lane] * (step.transverse_part * correction),
            axial: row.parts[1][lane] * (step.axial_part * correction),
            d: [
                other[0][lane] - position[0][lane],
                other[1][lane] - position[1][lane],
                other[2][lane] - position[2][lane],
            ],
            v: [
                FloatBits::difference(operand[0][lane], other_u[0][lane]),
                FloatBits::difference(operand[1][lane], other_u[1][lane]),
                FloatBits::difference(operand[2][lane], other_u[2][lane]),
            ],
        }
    }
}
