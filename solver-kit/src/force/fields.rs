//! Drags and fields of force: all that acts on particles from outside of participants, besides gravity.
//!
//! The equation is `dv/dt = rate (u - v) + a`, summed over drags with their u and fields of force with their
//! a. A solver takes it as a force of the positions and velocities at the start of a step, whose exact
//! solution over the step it adds: any rate and any step are stable. Like viscosity in SPH it does not depend
//! on groups.

use amalgam_particles::{DVec3, Particles};

use crate::force::{ForceSettings, drag::DragSettings};
use crate::section::SectionError;
use crate::sums::exact;
use amalgam_ranks::Ranks;

/// Largest dt sqrt(gradient): a particle in a field of this gradient oscillates at sqrt(gradient) [rad/s] at
/// most.
const COURANT: f64 = 0.5;

/// All drags and fields of force of a participant.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    drags: Vec<DragSettings>,
    forces: Vec<ForceSettings>,
}

impl Fields {
    /// Checks the entries of the keys `drag` and `force`.
    ///
    /// # Errors
    /// Every fault, with its key.
    pub fn new(drags: Vec<DragSettings>, forces: Vec<ForceSettings>) -> Result<Self, Vec<SectionError>> {
        let drag = |(k, entry): (usize, &DragSettings)| entry.faults(&format!("drag[{k}]"));
        let force = |(k, entry): (usize, &ForceSettings)| entry.faults(&format!("force[{k}]"));
        let mut faults: Vec<SectionError> = drags.iter().enumerate().flat_map(drag).collect();
        faults.extend(forces.iter().enumerate().flat_map(force));
        if faults.is_empty() { Ok(Self { drags, forces }) } else { Err(faults) }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.drags.is_empty() && self.forces.is_empty()
    }

    /// Change of the velocity [m/s] of what is at `position` [m] with `velocity` [m/s] in a step of length
    /// `dt` from `time` on [s].
    pub fn change(&self, (position, velocity): (DVec3, DVec3), (time, dt): (f64, f64)) -> DVec3 {
        let in_force = |from: f64, until: f64| (until.min(time + dt) - time.max(from)).max(0.0);
        let (mut lost, mut drawn) = (0.0, DVec3::ZERO);
        for drag in &self.drags {
            let span = in_force(drag.from, drag.until.unwrap_or(f64::INFINITY));
            if span > 0.0 && drag.shape.as_ref().is_none_or(|shape| shape.contains(position)) {
                lost += drag.rate * span;
                drawn += drag.velocity * (drag.rate * span);
            }
        }
        for force in &self.forces {
            let (from, until) = force.times();
            let span = in_force(from, until);
            if span > 0.0 {
                drawn += force.acceleration(position, time.max(from)) * span;
            }
        }
        if lost == 0.0 { drawn } else { (velocity - drawn / lost) * (-lost).exp_m1() }
    }

    /// The largest change of velocity in a step of `dt` [s] of what is no faster than `speed` [m/s].
    pub fn change_max(&self, speed: f64, dt: f64) -> f64 {
        let lost: f64 = self.drags.iter().map(|drag| drag.rate * dt).sum();
        let wind = self.drags.iter().map(|drag| drag.velocity.length()).fold(0.0, f64::max);
        let pushed: f64 = self.forces.iter().map(|force| force.acceleration_max() * dt).sum();
        pushed - (speed + wind) * (-lost).exp_m1()
    }

    /// The longest step that resolves motion in the fields of force [s]; infinite without them.
    pub fn stable_dt(&self) -> f64 {
        let steepest = self.forces.iter().fold(0.0, |sum, force| sum + force.gradient_max());
        COURANT / steepest.sqrt()
    }

    /// Work [J] on movable particles in a step of length `dt` from `time` on [s], at the mean of the
    /// velocities before and after it. `before` are positions [m] and velocities [m/s] at its start; no bit
    /// depends on the order of the particles, nor on the ranks that have them. Collective.
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
    use amalgam_particles::shapes::Shape;

    use super::*;
    use crate::force::{CenterForce, IndenterForce, UniformForce};

    fn drags(entries: Vec<DragSettings>) -> Fields {
        Fields::new(entries, Vec::new()).expect("good drags")
    }

    fn wind(rate: f64, velocity: DVec3) -> DragSettings {
        DragSettings { rate, velocity, shape: None, from: 0.0, until: None }
    }

    fn fall() -> ForceSettings {
        let acceleration = DVec3::NEG_Z * 9.0;
        ForceSettings::Uniform(UniformForce { acceleration, shape: None, from: 0.0, until: None })
    }

    #[test]
    fn velocities_go_to_the_wind_exponentially() {
        let drag = drags(vec![wind(2.0, DVec3::X), wind(1.0, DVec3::Z)]);
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
    fn what_falls_in_a_drag_reaches_its_terminal_velocity() {
        let fields = Fields::new(vec![wind(3.0, DVec3::X)], vec![fall()]).expect("good fields");
        let mut velocity = DVec3::ZERO;
        for n in 0..10 {
            velocity += fields.change((DVec3::ZERO, velocity), (0.1 * f64::from(n), 0.1));
        }
        let expected = DVec3::new(1.0, 0.0, -3.0) * -(-3.0f64).exp_m1();
        assert!(velocity.distance(expected) < 1e-15, "{velocity} {expected}");
        assert_eq!(fields.stable_dt(), f64::INFINITY);
    }

    #[test]
    fn drag_acts_where_and_when_it_should() {
        let shape = Some(Shape::Sphere { center: DVec3::ZERO, radius: 1.0 });
        let drag = drags(vec![DragSettings { shape, from: 1.0, until: Some(2.0), ..wind(1.0, DVec3::ZERO) }]);
        let left = |x: f64, step| 1.0 + drag.change((DVec3::X * x, DVec3::X), step).x;
        assert_eq!(left(1.5, (1.0, 0.5)), 1.0);
        assert_eq!(left(0.5, (0.0, 1.0)), 1.0);
        assert_eq!(left(0.5, (2.0, 1.0)), 1.0);
        for (step, lost) in [((0.5, 1.0), 0.5f64), ((1.5, 1.0), 0.5), ((0.0, 5.0), 1.0), ((1.2, 0.1), 0.1)] {
            assert!((left(0.5, step) - (-lost).exp()).abs() < 1e-14);
        }
    }

    /// A step of the largest length that the field allows keeps the energy of an orbit over thousands of
    /// turns.
    #[test]
    fn an_orbit_in_the_longest_steps_keeps_its_energy() {
        let field = CenterForce {
            center: DVec3::ZERO,
            velocity: DVec3::ZERO,
            strength: 2.0,
            softening: 0.3,
            from: 0.0,
            until: None,
        };
        let fields = Fields::new(Vec::new(), vec![ForceSettings::Center(field)]).expect("a good field");
        let (mut x, mut v) = (DVec3::X * 0.5, DVec3::Y * 1.2);
        let energy = |x: DVec3, v: DVec3| 0.5 * v.length_squared() - 2.0 / (x.length_squared() + 0.09).sqrt();
        let (start, dt) = (energy(x, v), fields.stable_dt());
        for _ in 0..100_000 {
            v += fields.change((x, v), (0.0, dt));
            x += v * dt;
            assert!((energy(x, v) / start - 1.0).abs() < 0.3, "{} of {start}", energy(x, v));
        }
    }

    #[test]
    fn faults_name_their_keys() {
        let shape = Some(Shape::Sphere { center: DVec3::ZERO, radius: -1.0 });
        let entry = DragSettings {
            rate: 0.0,
            velocity: DVec3::NAN,
            shape: shape.clone(),
            from: -1.0,
            until: Some(-2.0),
        };
        let uniform = UniformForce { acceleration: DVec3::INFINITY, shape, from: 1.0, until: Some(0.5) };
        let indenter = IndenterForce {
            center: DVec3::NAN,
            velocity: DVec3::ZERO,
            radius: 0.0,
            stiffness: -1.0,
            from: 0.0,
            until: None,
        };
        let forces = vec![ForceSettings::Uniform(uniform), ForceSettings::Indenter(indenter)];
        let faults = Fields::new(vec![wind(1.0, DVec3::ZERO), entry], forces).expect_err("faults");
        let keys: Vec<&str> = faults.iter().map(|fault| fault.key.as_str()).collect();
        assert_eq!(
            keys,
            [
                "drag[1].rate",
                "drag[1].velocity",
                "drag[1].from",
                "drag[1].until",
                "drag[1].shape.radius",
                "force[0].acceleration",
                "force[0].until",
                "force[0].shape.radius",
                "force[1].center",
                "force[1].radius",
                "force[1].stiffness"
            ]
        );
    }
}
