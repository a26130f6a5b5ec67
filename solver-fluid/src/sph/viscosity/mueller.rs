//! Kernels, pressure force and viscosity of [Mueller2003].

use amalgam_particles::lanes::Register;

use crate::sph::pairs::{Carried, PairTerms, push_and_drag, squared};

/// Poly6 for density, the spiky kernel for pressure, the Laplacian kernel for viscosity [Mueller2003].
#[derive(Clone, Copy)]
pub(in crate::sph) struct Mueller {
    /// Viscous over pressure term.
    pub(in crate::sph) viscosity: f32,
}

impl PairTerms for Mueller {
    #[inline(always)]
    fn shape<R: Register>(distance2: R) -> R {
        let u = (R::splat(1.0) - distance2).larger(R::splat(0.0));
        u * u * u
    }

    #[inline(always)]
    fn pull<R: Register>(self, sum: [R; 3], offset: [R; 3], one: &Carried<R>, other: &Carried<R>) -> [R; 3] {
        let s = squared(offset).sqrt();
        let t = (R::splat(1.0) - s).larger(R::splat(0.0));
        let weight = t * (one.volume * other.volume);
        // At the particle itself the offset is zero and s only must not be.
        let push = weight * (one.pressure + other.pressure) * (t / s.larger(R::splat(1e-9)));
        let drag = weight * R::splat(self.viscosity);
        push_and_drag(sum, (push, offset), (drag, one, other))
    }
}
