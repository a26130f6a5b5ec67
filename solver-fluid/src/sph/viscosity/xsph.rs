//! XSPH [Monaghan1989]: velocities are drawn to their neighbours' mean.

use amalgam_particles::lanes::Register;

use crate::sph::pairs::{Carried, PairTerms, depth, push_and_drag, squared, wendland};

/// Wendland's kernel, XSPH: t^3 (P_i + P_j) (x_i - x_j) - V_i V_j W (v_i - v_j).
#[derive(Clone, Copy)]
pub(in crate::sph) struct Xsph;

impl PairTerms for Xsph {
    #[inline(always)]
    fn shape<R: Register>(distance2: R) -> R {
        wendland(distance2)
    }

    #[inline(always)]
    fn pull<R: Register>(self, sum: [R; 3], offset: [R; 3], one: &Carried<R>, other: &Carried<R>) -> [R; 3] {
        let t = depth(squared(offset));
        let t3 = t * t * t;
        let push = t3 * (one.pressure + other.pressure);
        let shape = t * t.mul_add(R::splat(-4.0), R::splat(5.0));
        let drag = t3 * shape * (one.volume * other.volume);
        push_and_drag(sum, (push, offset), (drag, one, other))
    }
}
