//! Fields of force: an acceleration in a shape, a centre that attracts, a soft indenter.

pub(crate) mod drag;
pub(crate) mod fields;

use amalgam_particles::DVec3;
use amalgam_particles::shapes::Shape;
use serde::Deserialize;

use crate::section::SectionError;

/// A field of force as a scene writes it: an acceleration of what is in it, so that it does not depend on the
/// size of particles.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum ForceSettings {
    /// The same acceleration everywhere in a shape.
    Uniform(UniformForce),
    /// A centre that attracts or repels.
    Center(CenterForce),
    /// A ball that pushes out what is inside of it.
    Indenter(IndenterForce),
}

/// The same acceleration everywhere in a shape.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UniformForce {
    /// Acceleration of what is in the shape [m/s^2].
    pub acceleration: DVec3,
    /// Shape in which it acts, any but a mesh. Default: everywhere.
    pub shape: Option<Shape>,
    /// Time at which it begins [s].
    #[serde(default)]
    pub from: f64,
    /// Time at which it ends [s]. Default: never.
    pub until: Option<f64>,
}

/// A centre that attracts or repels, as a ball of matter does: at a distance d the acceleration is
/// `strength d / (d^2 + softening^2)^(3/2)`, toward the centre.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CenterForce {
    /// The centre at time 0 [m].
    pub center: DVec3,
    /// Velocity of the centre [m/s].
    #[serde(default)]
    pub velocity: DVec3,
    /// Strength [m^3/s^2]: below 0 it repels. For a mass M it is G M.
    pub strength: f64,
    /// Length below which the field weakens again [m].
    pub softening: f64,
    /// Time at which it begins [s].
    #[serde(default)]
    pub from: f64,
    /// Time at which it ends [s]. Default: never.
    pub until: Option<f64>,
}

/// A ball without particles that pushes out what is inside of it: at a depth d below its surface the
/// acceleration is `stiffness d^2 / radius`, away from the centre.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndenterForce {
    /// The centre at time 0 [m].
    pub center: DVec3,
    /// Velocity of the centre [m/s].
    #[serde(default)]
    pub velocity: DVec3,
    /// Radius of the ball [m].
    pub radius: f64,
    /// Stiffness [1/s^2]. On a particle of mass m the force is that of an indenter with K = m stiffness /
    /// radius in N/m^2.
    pub stiffness: f64,
    /// Time at which it begins [s].
    #[serde(default)]
    pub from: f64,
    /// Time at which it ends [s]. Default: never.
    pub until: Option<f64>,
}

impl ForceSettings {
    /// Beginning and end [s].
    pub(crate) fn times(&self) -> (f64, f64) {
        let (from, until) = match self {
            Self::Uniform(UniformForce { from, until, .. })
            | Self::Center(CenterForce { from, until, .. })
            | Self::Indenter(IndenterForce { from, until, .. }) => (from, until),
        };
        (*from, until.unwrap_or(f64::INFINITY))
    }

    /// Acceleration [m/s^2] of what is at `position` [m] at a time [s] at which the field acts.
    pub(crate) fn acceleration(&self, position: DVec3, time: f64) -> DVec3 {
        match self {
            Self::Uniform(field) => {
                let is_inside = field.shape.as_ref().is_none_or(|shape| shape.contains(position));
                if is_inside { field.acceleration } else { DVec3::ZERO }
            }
            Self::Center(field) => {
                let arm = field.center + field.velocity * time - position;
                let square = arm.length_squared() + field.softening * field.softening;
                arm * (field.strength / (square * square.sqrt()))
            }
            Self::Indenter(field) => {
                let arm = position - field.center - field.velocity * time;
                let depth = (field.radius - arm.length()).max(0.0);
                arm.normalize_or_zero() * (field.stiffness * depth * depth / field.radius)
            }
        }
    }

    /// The largest acceleration anywhere [m/s^2].
    pub(crate) fn acceleration_max(&self) -> f64 {
        match self {
            Self::Uniform(field) => field.acceleration.length(),
            // The maximum is at the distance softening / sqrt 2.
            Self::Center(field) => {
                2.0 / 27.0f64.sqrt() * field.strength.abs() / (field.softening * field.softening)
            }
            Self::Indenter(field) => field.stiffness * field.radius,
        }
    }

    /// The largest derivative of the acceleration in any direction [1/s^2].
    pub(crate) fn gradient_max(&self) -> f64 {
        match self {
            Self::Uniform(_) => 0.0,
            Self::Center(field) => field.strength.abs() / field.softening.powi(3),
            Self::Indenter(field) => 2.0 * field.stiffness,
        }
    }

    pub(crate) fn faults(&self, path: &str) -> Vec<SectionError> {
        let mut faults = Vec::new();
        let mut check = |ok: bool, key: &str, rule: &str| {
            if !ok {
                faults.push(SectionError::new(format!("{path}.{key}"), rule));
            }
        };
        let positive = |value: f64| value > 0.0 && value.is_finite();
        let three = "must be three finite numbers: write e.g. [0.0, 0.0, 0.5]";
        match self {
            Self::Uniform(field) => check(field.acceleration.is_finite(), "acceleration", three),
            Self::Center(field) => {
                check(field.center.is_finite(), "center", three);
                check(field.velocity.is_finite(), "velocity", three);
                check(
                    field.strength.is_finite(),
                    "strength",
                    "must be a finite number: write e.g. strength = 2.0",
                );
                check(positive(field.softening), "softening", "must be positive: write e.g. softening = 0.1");
            }
            Self::Indenter(field) => {
                check(field.center.is_finite(), "center", three);
                check(field.velocity.is_finite(), "velocity", three);
                check(positive(field.radius), "radius", "must be positive: write e.g. radius = 0.05");
                check(positive(field.stiffness), "stiffness", "must be positive: write e.g. stiffness = 1e5");
            }
        }
        let (from, until) = self.times();
        check(from >= 0.0 && from.is_finite(), "from", "must not be negative: write e.g. from = 0.5");
        check(until > from, "until", "must be later than from: write a time in seconds");
        if let Self::Uniform(UniformForce { shape: Some(shape), .. }) = self {
            for fault in shape.faults() {
                faults.push(SectionError::new(fault.path(&format!("{path}.shape")), fault.message));
            }
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn center(strength: f64) -> ForceSettings {
        let (center, velocity) = (DVec3::X, DVec3::Y);
        ForceSettings::Center(CenterForce {
            center,
            velocity,
            strength,
            softening: 0.3,
            from: 0.0,
            until: None,
        })
    }

    fn indenter() -> ForceSettings {
        let (center, velocity) = (DVec3::X, DVec3::Y);
        let field = IndenterForce { center, velocity, radius: 0.5, stiffness: 20.0, from: 0.0, until: None };
        ForceSettings::Indenter(field)
    }

    #[test]
    fn a_center_attracts_and_an_indenter_repels() {
        // At 2 s both are at (1, 2, 0).
        let far = center(5.0).acceleration(DVec3::new(1.0, 2.0, 100.0), 2.0);
        assert!((far + DVec3::Z * 5.0 / 1e4).length() < 1e-8, "{far}");
        let pushed = indenter().acceleration(DVec3::new(1.0, 2.0, 0.2), 2.0);
        assert!((pushed - DVec3::Z * 20.0 * 0.3 * 0.3 / 0.5).length() < 1e-12, "{pushed}");
        assert_eq!(indenter().acceleration(DVec3::new(1.0, 2.0, 0.51), 2.0), DVec3::ZERO);
        assert_eq!(indenter().acceleration(DVec3::new(1.0, 2.0, 0.0), 2.0), DVec3::ZERO);
    }

    #[test]
    fn bounds_hold_everywhere() {
        for field in [center(-5.0), indenter()] {
            let (mut largest, mut steepest) = (0.0f64, 0.0f64);
            for k in 1..1000 {
                let [at, next] = [k, k + 1].map(|k| DVec3::X + DVec3::Z * (1e-3 * f64::from(k)));
                let [here, there] = [at, next].map(|x| field.acceleration(x, 0.0));
                largest = largest.max(here.length());
                steepest = steepest.max((there - here).length() / 1e-3);
            }
            assert!(largest <= field.acceleration_max() && largest > 0.98 * field.acceleration_max());
            assert!(steepest <= field.gradient_max() && steepest > 0.98 * field.gradient_max());
        }
    }
}
