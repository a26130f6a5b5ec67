//! The matrix of a bond, its coefficient, and the diagonal blocks of the stiffness.
//!
//! A bond of stiffness k, rest length L and length l pulls particle i with the force `f = k (1 - L/l) d`,
//! where `d = x_j - x_i` is the vector to the other end. Its derivative is the bond's matrix:
//!
//! ```text
//! df/dx_j = t I + a d d^T,   t = k (1 - L/l),   a = (k - t) / l^2
//! ```
//!
//! Under compression (l < L) this t is negative, and the stiffness of the body may be indefinite. A
//! compressed bond has t = 0 instead, as a spring has (`springs.rs`, [ChoiKo2002]). Its axial stiffness `t +
//! a l^2` is k still.

use amalgam_particles::lanes::{LANES, Lanes};

use super::super::stretch::elongation_share;
use super::super::variants::{AnyStrain, Corrections, StrainRange};
use super::coefficient::{RelativeCoefficient, packed};
use super::kernels::{Around, BondTerm, StencilGeometry, Strip, double_strains};
use super::stencil::Stencil;

/// Stiffness of a bond at rest length L and length l, over its stiffness k: the transverse part
/// t = max(0, 1 - L/l), and the axial excess (1 - t) L^2/l^2.
#[inline(always)]
pub(super) fn linearised(share: f32) -> (f32, f32) {
    let transverse = if share > 0.0 { share } else { 0.0 };
    // L^2/l^2 = (1 - share)^2.
    let ratio = 1.0 - share;
    (transverse, (1.0 - transverse) * (ratio * ratio))
}

/// Elongations over lengths ([`elongation_share`]) for double strains.
#[inline(always)]
pub(super) fn shares<S: StrainRange>(step: &Stencil, eta: &[Strip<i32>; 3], live: u32) -> Strip {
    let (double_strain, mut share) = (double_strains(step, eta, live), [0.0; LANES]);
    for lane in 0..LANES {
        share[lane] = elongation_share::<S>(double_strain[lane]);
    }
    share
}

/// Computes the diagonal blocks, and the coefficients of all bonds: one row of lanes per stencil.
/// Coefficients are valid for bonds for which the series holds.
pub(super) struct DiagonalTerm<'a> {
    pub(super) geometry: StencilGeometry<'a>,
    pub(super) live: &'a [u16],
    pub(super) coefficient: &'a mut [[RelativeCoefficient; LANES]],
}

impl<'a> BondTerm<6> for DiagonalTerm<'a> {
    type Own = (Around<'a, i32>, Strip);
    type Wide = AnyStrain;

    #[inline(always)]
    fn own<C: Corrections>(&self, site: usize) -> Self::Own {
        (self.geometry.displacements(site), self.geometry.correction::<C>(site))
    }

    #[inline(always)]
    fn terms<L: Lanes, C: Corrections, S: StrainRange>(
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
