//! Artificial viscosity [Monaghan1992]: along the line of centres, on approaching pairs.

#![allow(
    clippy::needless_range_loop,
    reason = "iterators with closures are not compiled for the vector width"
)]

use amalgam_particles::lanes::Register;

use crate::sph::pairs::{Carried, PairTerms, depth, squared, wendland};

/// eta^2 of Eq. 4.2 [Monaghan1992], 0.01 squared smoothing lengths, in squared support radii.
const SOFTENING: f32 = 0.0025;

/// Wendland's kernel, artificial viscosity after Monaghan: it acts along the line of centres, on approaching
/// pairs.
#[derive(Clone, Copy)]
pub(in crate::sph) struct Artificial;

impl PairTerms for Artificial {
    #[inline(always)]
    fn shape<R: Register>(distance2: R) -> R {
        wendland(distance2)
    }

    #[inline(always)]
    fn pull<R: Register>(self, sum: [R; 3], offset: [R; 3], one: &Carried<R>, other: &Carried<R>) -> [R; 3] {
        let distance2 = squared(offset);
        let t = depth(distance2);
        let t3 = t * t * t;
        let mut approach = R::splat(0.0);
        for axis in 0..3 {
            approach = (one.velocity[axis] - other.velocity[axis]).mul_add(offset[axis], approach);
        }
        let rate = approach.smaller(R::splat(0.0)) / (distance2 + R::splat(SOFTENING));
        let push = t3 * ((one.pressure + other.pressure) - (one.volume * other.volume) * rate);
        let mut result = sum;
        for axis in 0..3 {
            result[axis] = push.mul_add(offset[axis], sum[axis]);
        }
        result
    }
}
