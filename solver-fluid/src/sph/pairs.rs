//! What two particles do to each other: the arithmetic of the innermost loops, as many particles at a time as a register
//! has lanes.
//!
//! Offsets are in support radii. Every product and sum of two particles' values is symmetric in them, or changes sign
//! with their order, so that both particles of a pair find exactly opposite forces, up to the rounding of their sums.

#![allow(
    clippy::needless_range_loop,
    reason = "iterators with closures are not compiled for the vector width"
)]

use amalgam_particles::lanes::Register;

/// What a particle brings into a pair's force beside its position; constants are folded in by [`super::evaluation`].
#[derive(Clone, Copy)]
pub(super) struct Carried<R> {
    /// Contribution of its pressure.
    pub(super) pressure: R,
    /// Contribution of its volume.
    pub(super) volume: R,
    /// Velocity [m/s].
    pub(super) velocity: [R; 3],
}

/// A pair's terms in density and acceleration.
pub(super) trait Scheme: Copy + Send + Sync {
    /// The kernel over its value at 0, at the root of a squared distance.
    fn shape<R: Register>(distance2: R) -> R;

    /// `sum` with the acceleration of one particle by another, at `offset` from that one to the first.
    fn pull<R: Register>(self, sum: [R; 3], offset: [R; 3], one: &Carried<R>, other: &Carried<R>) -> [R; 3];
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

/// eta^2 of Eq. 4.2 [Monaghan1992], 0.01 squared smoothing lengths, in squared support radii.
const SOFTENING: f32 = 0.0025;

/// Square of its length.
#[inline(always)]
pub(super) fn squared<R: Register>([x, y, z]: [R; 3]) -> R {
    z.mul_add(z, y.mul_add(y, x * x))
}

/// 1 - s where positive.
#[inline(always)]
fn depth<R: Register>(squared: R) -> R {
    (R::splat(1.0) - squared.sqrt()).larger(R::splat(0.0))
}

#[inline(always)]
fn wendland<R: Register>(distance2: R) -> R {
    let t = depth(distance2);
    let t2 = t * t;
    t2 * t2 * t.mul_add(R::splat(-4.0), R::splat(5.0))
}

/// `sum + push offset + drag (v_j - v_i)`.
#[inline(always)]
fn push_and_drag<R: Register>(
    sum: [R; 3],
    (push, offset): (R, [R; 3]),
    (drag, one, other): (R, &Carried<R>, &Carried<R>),
) -> [R; 3] {
    let mut result = sum;
    for axis in 0..3 {
        let difference = other.velocity[axis] - one.velocity[axis];
        result[axis] = drag.mul_add(difference, push.mul_add(offset[axis], sum[axis]));
    }
    result
}

impl Scheme for Laminar {
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

impl Scheme for Artificial {
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

impl Scheme for Xsph {
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

impl Scheme for Mueller {
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
