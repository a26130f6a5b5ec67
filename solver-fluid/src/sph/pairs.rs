//! What two particles do to each other: the arithmetic of the innermost loops, sixteen candidates at a time.
//!
//! Offsets are in support radii. Every product and sum of two particles' values is symmetric in them, or changes sign
//! with their order, so that both particles of a pair find exactly opposite forces.

use amalgam_particles::lanes::Lanes;

/// What a particle brings into a pair's force beside its position; constants are folded in by [`super::evaluation`].
#[derive(Clone, Copy)]
pub(super) struct Carried<L> {
    /// Of its pressure.
    pub(super) pressure: L,
    /// Of its volume.
    pub(super) volume: L,
    /// Velocity [m/s].
    pub(super) velocity: [L; 3],
}

/// A pair's terms in density and acceleration.
pub(super) trait Scheme: Copy + Send + Sync {
    /// The kernel over its value at 0, at a squared distance.
    fn shape<L: Lanes>(squared: L) -> L;

    /// Acceleration of one particle by another at `offset` from it to itself.
    fn pull<L: Lanes>(self, offset: [L; 3], one: &Carried<L>, other: &Carried<L>) -> [L; 3];
}

/// Wendland's kernel, viscosity after Morris: t^3 ((P_i + P_j) (x_i - x_j) - V_i V_j (v_i - v_j)).
#[derive(Clone, Copy)]
pub(super) struct Laminar;

/// Wendland's kernel, artificial viscosity after Monaghan: it acts along the line of centres, on approaching pairs.
#[derive(Clone, Copy)]
pub(super) struct Artificial;

/// Wendland's kernel, XSPH: t^3 (P_i + P_j) (x_i - x_j) - V_i V_j W (v_i - v_j).
#[derive(Clone, Copy)]
pub(super) struct Xsph;

/// Poly6 for density, the spiky kernel for pressure, the Laplacian kernel for viscosity [Mueller2003].
#[derive(Clone, Copy)]
pub(super) struct Mueller {
    /// Viscous over pressure term.
    pub(super) viscosity: f32,
}

/// eta^2 of Eq. 4.2 [Monaghan1992], .01 squared smoothing lengths, in squared support radii.
const SOFTENING: f32 = 0.0025;

#[inline(always)]
fn squared<L: Lanes>([x, y, z]: [L; 3]) -> L {
    x * x + y * y + z * z
}

/// 1 - s where positive.
#[inline(always)]
fn depth<L: Lanes>(squared: L) -> L {
    (L::splat(1.0) - squared.sqrt()).larger(L::splat(0.0))
}

#[inline(always)]
fn wendland<L: Lanes>(squared: L) -> L {
    let t = depth(squared);
    let t2 = t * t;
    t2 * t2 * (L::splat(5.0) - L::splat(4.0) * t)
}

impl Scheme for Laminar {
    #[inline(always)]
    fn shape<L: Lanes>(squared: L) -> L {
        wendland(squared)
    }

    #[inline(always)]
    fn pull<L: Lanes>(self, offset: [L; 3], one: &Carried<L>, other: &Carried<L>) -> [L; 3] {
        let t = depth(squared(offset));
        let t3 = t * t * t;
        let push = t3 * (one.pressure + other.pressure);
        let drag = t3 * (one.volume * other.volume);
        [
            push * offset[0] - drag * (one.velocity[0] - other.velocity[0]),
            push * offset[1] - drag * (one.velocity[1] - other.velocity[1]),
            push * offset[2] - drag * (one.velocity[2] - other.velocity[2]),
        ]
    }
}

impl Scheme for Artificial {
    #[inline(always)]
    fn shape<L: Lanes>(squared: L) -> L {
        wendland(squared)
    }

    #[inline(always)]
    fn pull<L: Lanes>(self, offset: [L; 3], one: &Carried<L>, other: &Carried<L>) -> [L; 3] {
        let distance2 = squared(offset);
        let t = depth(distance2);
        let t3 = t * t * t;
        let approach = (one.velocity[0] - other.velocity[0]) * offset[0]
            + (one.velocity[1] - other.velocity[1]) * offset[1]
            + (one.velocity[2] - other.velocity[2]) * offset[2];
        let rate = approach.smaller(L::splat(0.0)) / (distance2 + L::splat(SOFTENING));
        let push = t3 * ((one.pressure + other.pressure) - (one.volume * other.volume) * rate);
        [push * offset[0], push * offset[1], push * offset[2]]
    }
}

impl Scheme for Xsph {
    #[inline(always)]
    fn shape<L: Lanes>(squared: L) -> L {
        wendland(squared)
    }

    #[inline(always)]
    fn pull<L: Lanes>(self, offset: [L; 3], one: &Carried<L>, other: &Carried<L>) -> [L; 3] {
        let t = depth(squared(offset));
        let t3 = t * t * t;
        let push = t3 * (one.pressure + other.pressure);
        let drag = t3 * (t * (L::splat(5.0) - L::splat(4.0) * t)) * (one.volume * other.volume);
        [
            push * offset[0] - drag * (one.velocity[0] - other.velocity[0]),
            push * offset[1] - drag * (one.velocity[1] - other.velocity[1]),
            push * offset[2] - drag * (one.velocity[2] - other.velocity[2]),
        ]
    }
}

impl Scheme for Mueller {
    #[inline(always)]
    fn shape<L: Lanes>(squared: L) -> L {
        let u = (L::splat(1.0) - squared).larger(L::splat(0.0));
        u * u * u
    }

    #[inline(always)]
    fn pull<L: Lanes>(self, offset: [L; 3], one: &Carried<L>, other: &Carried<L>) -> [L; 3] {
        let s = squared(offset).sqrt();
        let t = (L::splat(1.0) - s).larger(L::splat(0.0));
        let weight = t * (one.volume * other.volume);
        // At the particle itself the offset is zero and s only must not be.
        let push = weight * (one.pressure + other.pressure) * (t / s.larger(L::splat(1e-9)));
        let drag = weight * L::splat(self.viscosity);
        [
            push * offset[0] - drag * (one.velocity[0] - other.velocity[0]),
            push * offset[1] - drag * (one.velocity[1] - other.velocity[1]),
            push * offset[2] - drag * (one.velocity[2] - other.velocity[2]),
        ]
    }
}
