//! Drag toward a velocity: wind, and layers at open ends in which waves die.
//!
//! The equation is `dv/dt = rate (u - v)`. A solver takes it as a force of the velocities at the start of a step, whose exact
//! solution over the step it adds: any rate and any step are stable. Like viscosity in SPH it does not depend on groups.

use amalgam_particles::shapes::Shape;
use amalgam_particles::{DVec3, Particles};
use serde::Deserialize;

use crate::{Ranks, SectionError, exact};

/// A drag as a scene writes it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DragSettings {
    /// Part of the difference to `velocity` that is lost per second [1/s]. Rates add up where shapes overlap.
    pub rate: f64,
    /// Velocity toward which particles are drawn, that of a wind [m/s].
    #[serde(default)]
    pub velocity: DVec3,
    /// Shape in which it acts, any but a mesh. Default: everywhere.
    pub shape: Option<Shape>,
    /// Time at which it begins [s].
    #[serde(default)]
    pub from: f64,
    /// Time at which it ends [s]. Default: never.
    pub until: Option<f64>,
}

impl DragSettings {
    fn faults(&self, path: &str) -> Vec<SectionError> {
        let mut faults = Vec::new();
        let mut check = |ok: bool, key: &str, rule: &str| {
            if !ok {
                faults.push(SectionError::new(format!("{path}.{key}"), rule));
            }
        };
        check(self.rate > 0.0 && self.rate.is_finite(), "rate", "must be positive: write e.g. rate = 5.0");
        let velocity = "must be three finite numbers: write e.g. velocity = [10.0, 0.0, 0.0]";
        check(self.velocity.is_finite(), "velocity", velocity);
        check(
            self.from >= 0.0 && self.from.is_finite(),
            "from",
            "must not be negative: write e.g. from = 0.5",
        );
        let until_ok = self.until.is_none_or(|until| until > self.from);
        check(until_ok, "until", "must be later than from: write a time in seconds");
        for fault in self.shape.iter().flat_map(Shape::faults) {
            faults.push(SectionError::new(fault.path(&format!("{path}.shape")), fault.message));
        }
        faults
    }
}

/// All drags of a participant.
#[derive(Clone, Debug, Default)]
pub struct Drag(Vec<DragSettings>);

impl Drag {
    /// Checks the entries of the key `drag`.
    ///
    /// # Errors
    /// Every fault, with its key.
    pub fn new(entries: Vec<DragSettings>) -> Result<Self, Vec<SectionError>> {
        let of = |(k, entry): (usize, &DragSettings)| entry.faults(&format!("drag[{k}]"));
        let faults: Vec<SectionError> = entries.iter().enumerate().flat_map(of).collect();
        if faults.is_empty() { Ok(Self(entries)) } else { Err(faults) }
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Change of the velocity [m/s] of what is at `position` [m] with `velocity` [m/s] in a step of length `dt` from `time` on
    /// [s].
    pub fn change(&self, (position, velocity): (DVec3, DVec3), (time, dt): (f64, f64)) -> DVec3 {
        let (mut lost, mut drawn) = (0.0, DVec3::ZERO);
        for drag in &self.0 {
            let end = drag.until.unwrap_or(f64::INFINITY).min(time + dt);
            let in_force = (end - time.max(drag.from)).max(0.0);
            if in_force > 0.0 && drag.shape.as_ref().is_none_or(|shape| shape.contains(position)) {
                lost += drag.rate * in_force;
                drawn += drag.velocity * (drag.rate * in_force);
            }
        }
        if lost == 0.0 { DVec3::ZERO } else { (velocity - drawn / lost) * (-lost).exp_m1() }
    }

    /// The largest change of velocity in a step of `dt` [s] of what is no faster than `speed` [m/s].
    pub fn change_max(&self, speed: f64, dt: f64) -> f64 {
        let lost: f64 = self.0.iter().map(|drag| drag.rate * dt).sum();
        let wind = self.0.iter().map(|drag| drag.velocity.length()).fold(0.0, f64::max);
        -(speed + wind) * (-lost).exp_m1()
    }

    /// Work [J] on movable particles in a step of length `dt` from `time` on [s], at the mean of the velocities before and after
    /// it. `before` are positions [m] and velocities [m/s] at its start; no bit depends on the order of the particles, nor on the
    /// ranks that have them. Collective.
    pub fn work(
        &self,
        ranks: &Ranks,
        before: (&[DVec3], &[DVec3]),
        after: &Particles,
        step: (f64, f64),
    ) -> f64 {
        if self.is_empty() {
            return 0.0;
        }
        let of = |i: usize| {
            if after.immovable[i] {
                return [0.0];
            }
            let change = self.change((before.0[i], before.1[i]), step);
            [0.5 * after.mass[i] * change.dot(before.1[i] + after.velocity[i])]
        };
        exact::sums(ranks, after.len(), &exact::magnitudes(ranks, after.len(), of), of)[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drag(entries: Vec<DragSettings>) -> Drag {
        Drag::new(entries).expect("a good drag")
    }

    fn wind(rate: f64, velocity: DVec3) -> DragSettings {
        DragSettings { rate, velocity, shape: None, from: 0.0, until: None }
    }

    #[test]
    fn velocities_go_to_the_wind_exponentially() {
        let drag = drag(vec![wind(2.0, DVec3::X), wind(1.0, DVec3::Z)]);
        let mut velocity = DVec3::Y;
        for n in 0..7 {
            velocity += drag.change((DVec3::ZERO, velocity), (0.1 * f64::from(n), 0.1));
        }
        let end = (2.0 * DVec3::X + DVec3::Z) / 3.0;
        let expected = end + (DVec3::Y - end) * (-3.0f64 * 0.7).exp();
        assert!(velocity.distance(expected) < 1e-15, "{velocity} {expected}");
        assert!(drag.change_max(1.0, 1e9) <= 2.0);
    }

    #[test]
    fn drag_acts_where_and_when_it_should() {
        let shape = Some(Shape::Sphere { center: DVec3::ZERO, radius: 1.0 });
        let drag = drag(vec![DragSettings { shape, from: 1.0, until: Some(2.0), ..wind(1.0, DVec3::ZERO) }]);
        let left = |x: f64, step| 1.0 + drag.change((DVec3::X * x, DVec3::X), step).x;
        assert_eq!(left(1.5, (1.0, 0.5)), 1.0);
        assert_eq!(left(0.5, (0.0, 1.0)), 1.0);
        assert_eq!(left(0.5, (2.0, 1.0)), 1.0);
        for (step, lost) in [((0.5, 1.0), 0.5f64), ((1.5, 1.0), 0.5), ((0.0, 5.0), 1.0), ((1.2, 0.1), 0.1)] {
            assert!((left(0.5, step) - (-lost).exp()).abs() < 1e-14);
        }
    }

    #[test]
    fn faults_name_their_keys() {
        let shape = Some(Shape::Sphere { center: DVec3::ZERO, radius: -1.0 });
        let entry = DragSettings { rate: 0.0, velocity: DVec3::NAN, shape, from: -1.0, until: Some(-2.0) };
        let faults = Drag::new(vec![wind(1.0, DVec3::ZERO), entry]).expect_err("faults");
        let keys: Vec<&str> = faults.iter().map(|fault| fault.key.as_str()).collect();
        assert_eq!(
            keys,
            ["drag[1].rate", "drag[1].velocity", "drag[1].from", "drag[1].until", "drag[1].shape.radius"]
        );
    }
}
