//! The terms of a pair of particles: the arithmetic of the innermost loops, as many particles at a time as a
//! register has lanes.
//!
//! Offsets are in support radii. Every product and sum of two particles' values is symmetric in them, or
//! changes sign with their order, so that both particles of a pair find exactly opposite forces, up to the
//! rounding of their sums.

#![allow(
    clippy::needless_range_loop,
    reason = "iterators with closures are not compiled for the vector width"
)]

use amalgam_particles::lanes::Register;

/// The quantities of a particle in a pair's force beside its position; constants are folded in by the
/// evaluation.
#[derive(Clone, Copy)]
pub(super) struct Carried<R> {
    /// Its pressure, scaled.
    pub(super) pressure: R,
    /// Its volume, scaled.
    pub(super) volume: R,
    /// Velocity [m/s].
    pub(super) velocity: [R; 3],
}

/// A pair's terms in density and acceleration.
pub(super) trait PairTerms: Copy + Send + Sync {
    /// The kernel over its value at 0, at the root of a squared distance.
    fn shape<R: Register>(distance2: R) -> R;

    /// `sum` with the acceleration of one particle by another, at `offset` from that one to the first.
    fn pull<R: Register>(self, sum: [R; 3], offset: [R; 3], one: &Carried<R>, other: &Carried<R>) -> [R; 3];
}

/// The square of a vector's length.
#[inline(always)]
pub(super) fn squared<R: Register>([x, y, z]: [R; 3]) -> R {
    z.mul_add(z, y.mul_add(y, x * x))
}

/// 1 - s where positive.
#[inline(always)]
pub(super) fn depth<R: Register>(squared: R) -> R {
    (R::splat(1.0) - squared.sqrt()).larger(R::splat(0.0))
}

#[inline(always)]
pub(super) fn wendland<R: Register>(distance2: R) -> R {
    let t = depth(distance2);
    let t2 = t * t;
    t2 * t2 * t.mul_add(R::splat(-4.0), R::splat(5.0))
}

/// `sum + push offset + drag (v_j - v_i)`.
#[inline(always)]
pub(super) fn push_and_drag<R: Register>(
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
