//! The free rotation of a rigid body.
//!
//! Let R take the body's principal axes to the world, I = diag(I1, I2, I3) be its moments of inertia, L its
//! angular momentum in the world and P = R^T L the same in the body. Without torque L stays what it is, and
//! the energy is
//!
//! ```text
//! H(P) = P1^2/(2 I1) + P2^2/(2 I2) + P3^2/(2 I3).
//! ```
//!
//! Each term alone turns the body about one of its axes at the constant rate Pk/Ik, and P against it. These
//! three motions are known exactly. One after the other, forwards for half of the time and backwards for the
//! other half, they are a symmetric method of second order [McLachlan1993] that keeps L and |P| to rounding
//! and whose energy does not drift. Three of its steps, of lengths g, 1 - 2 g and g with g = 1/(2 - 2^(1/3)),
//! are a method of fourth order [Yoshida1990].

use amalgam_particles::DVec3;
use glam::{DMat3, DQuat};

/// A step turns a body by no more than this angle [rad].
const ANGLE_MAX: f64 = 0.05;

/// Lengths of the three steps of second order.
const LENGTHS: [f64; 3] = [1.351_207_191_959_657_6, -1.702_414_383_919_315_3, 1.351_207_191_959_657_6];

/// Rotational state of a body: inertia, orientation and angular momentum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rotation {
    /// Moments of inertia about the principal axes [kg m^2].
    pub(crate) moments: DVec3,
    /// Rotation from the principal axes to the world's.
    pub(crate) orientation: DQuat,
    /// Angular momentum about the centre of mass, in the world [kg m^2/s].
    pub(crate) momentum: DVec3,
}

impl Rotation {
    /// The inertia in the world's axes [kg m^2].
    pub(crate) fn inertia(&self) -> DMat3 {
        let axes = DMat3::from_quat(self.orientation);
        let tensor = axes * DMat3::from_diagonal(self.moments) * axes.transpose();
        // Symmetric to the bit.
        (tensor + tensor.transpose()) * 0.5
    }

    /// Angular velocity in the world [rad/s].
    pub(crate) fn spin(&self) -> DVec3 {
        self.orientation * (self.in_body() / self.moments)
    }

    /// Gives the body an angular velocity [rad/s].
    pub(crate) fn set_spin(&mut self, spin: DVec3) {
        self.momentum = self.orientation * ((self.orientation.conjugate() * spin) * self.moments);
    }

    fn in_body(&self) -> DVec3 {
        self.orientation.conjugate() * self.momentum
    }

    /// Turns the body freely for a time [s].
    pub(crate) fn advance(&mut self, time: f64) {
        let angle = (self.in_body() / self.moments).length() * time;
        let steps = (angle / ANGLE_MAX).ceil().max(1.0);
        let step = time / steps;
        for _ in 0..steps as u64 {
            LENGTHS.iter().for_each(|length| self.step(length * step));
            self.orientation = self.orientation.normalize();
        }
    }

    /// The symmetric step of second order.
    fn step(&mut self, time: f64) {
        for (axis, part) in [(0, 0.5), (1, 0.5), (2, 1.0), (1, 0.5), (0, 0.5)] {
            let direction = DVec3::AXES[axis];
            let rate = self.in_body()[axis] / self.moments[axis];
            self.orientation *= DQuat::from_axis_angle(direction, rate * part * time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn energy(rotation: &Rotation) -> f64 {
        0.5 * rotation.spin().dot(rotation.momentum)
    }

    /// A body that turns about its middle axis, which is unstable, tumbles for ever: a million revolutions
    /// would not change its energy more than a thousand do.
    #[test]
    fn the_energy_of_an_asymmetric_top_does_not_drift() {
        let mut top = Rotation {
            moments: DVec3::new(1.0, 2.0, 3.0),
            orientation: DQuat::from_rotation_x(0.3),
            momentum: DVec3::ZERO,
        };
        top.set_spin(DQuat::from_rotation_x(0.3) * DVec3::new(0.01, 5.0, 0.02));
        let (momentum, start) = (top.momentum, energy(&top));
        let mut worst = 0.0f64;
        let mut tumbles = 0;
        let mut before = top.in_body().y > 0.0;
        for _ in 0..200_000 {
            top.advance(0.01);
            worst = worst.max((energy(&top) / start - 1.0).abs());
            let now = top.in_body().y > 0.0;
            tumbles += u32::from(now != before);
            before = now;
        }
        assert!(worst < 1e-6, "{worst}");
        assert!(tumbles > 100, "{tumbles}");
        assert_eq!(top.momentum, momentum);
    }

    /// A symmetric top: its axis goes round the angular momentum at the rate |L| / I1 (Landau and Lifshitz,
    /// Mechanics, section 33).
    #[test]
    fn a_symmetric_top_precesses_at_its_rate() {
        let mut top = Rotation {
            moments: DVec3::new(2.0, 2.0, 1.0),
            orientation: DQuat::from_rotation_y(0.5),
            momentum: 4.0 * DVec3::Z,
        };
        let (rate, time) = (4.0 / 2.0, 100.0);
        for _ in 0..10_000 {
            top.advance(time / 10_000.0);
        }
        let axis = top.orientation * DVec3::Z;
        let expected = DQuat::from_rotation_z(rate * time) * (DQuat::from_rotation_y(0.5) * DVec3::Z);
        assert!(axis.distance(expected) < 1e-5, "{axis} {expected}");
    }
}
