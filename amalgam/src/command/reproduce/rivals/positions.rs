//! Rivals of order zero: positions.
//!
//! A pair that overlaps is moved apart along its normal n, by dx with m1 dx1 + m2 dx2 = 0. The momentum stays,
//! but the angular momentum, the sum of m x × v, changes by mu (dx2 - dx1) × (v2 - v1). In a pile that turns at
//! the rate w this is mu w d |dx2 - dx1| for a pair at the distance d. So whatever rotation there is grows: the
//! attraction pulls discs together along the motion that keeps the angular momentum, and the correction moves
//! them out again without slowing them down.

use super::Rival;
use super::discs::{Attraction, Discs};

/// Position correction in steps of symplectic Euler, of pairs that approach.
pub(super) struct Positions {
    /// e, the part of the speed of approach with which discs part; without it velocities are left alone.
    pub(super) restitution: Option<f64>,
    pub(super) iterations: u32,
}

impl Rival for Positions {
    fn step(&mut self, discs: &mut Discs, dt: f64) {
        discs.kick(Attraction::Newton, dt);
        discs.drift(dt);
        for _ in 0..self.iterations {
            for (i, j) in discs.overlapping() {
                let pair = discs.pair(i, j);
                if pair.gap >= 0.0 || pair.rate >= 0.0 {
                    continue;
                }
                discs.part(i, j, &pair);
                if let Some(e) = self.restitution {
                    discs.push(i, j, pair.normal * (-(1.0 + e) * pair.reduced_mass * pair.rate));
                }
            }
        }
    }
}

/// Position correction in steps of Verlet [Verlet1967]: x(t + dt) = 2 x(t) - x(t - dt) + a dt^2.
///
/// The velocity of a step is (x(t) - x(t - dt))/dt, so that it holds the corrections, as in position-based
/// dynamics [Mueller2007].
pub(super) struct Verlet {
    pub(super) iterations: u32,
}

impl Rival for Verlet {
    fn step(&mut self, discs: &mut Discs, dt: f64) {
        let before = discs.position.clone();
        discs.kick(Attraction::Newton, dt);
        discs.drift(dt);
        for _ in 0..self.iterations {
            for (i, j) in discs.overlapping() {
                let pair = discs.pair(i, j);
                if pair.gap < 0.0 {
                    discs.part(i, j, &pair);
                }
            }
        }
        for ((v, after), before) in discs.velocity.iter_mut().zip(&discs.position).zip(&before) {
            *v = (*after - *before) / dt;
        }
    }
}
