//! Viscosity as a Laplacian of velocity, estimated from the kernel's first derivative [Morris1997].

use amalgam_particles::lanes::Register;

use crate::sph::pairs::{Carried, PairTerms, depth, push_and_drag, squared, wendland};

/// Wendland's kernel, viscosity after Morris: t^3 ((P_i + P_j) (x_i - x_j) - V_i V_j (v_i - v_j)).
#[derive(Clone, Copy)]
pub(in crate::sph) struct Laminar;

impl PairTerms for Laminar {
    #[inline(always)]
    fn shape<R: Register>(distance2: R) -> R {
        wendland(distance2)
    }

    #[inline(always)]
    fn pull<R: Register>(self, sum: [R; 3], offset: [R; 3], one: &Carried<R>, other: &Carried<R>) -> [R; 3] {
        let t = depth(squared(offset));
        let t3 = t * t * t;
        let push = t3 * (one.pressure + other.pressure);
        let drag = t3 * (one.volume * other.volume);
        push_and_drag(sum, (push, offset), (drag, one, other))
    }
}
