//! Drag toward a velocity: wind, and layers at open ends in which waves die.

use amalgam_particles::DVec3;
use amalgam_particles::shapes::Shape;
use serde::Deserialize;

use crate::section::SectionError;

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
    pub(crate) fn faults(&self, path: &str) -> Vec<SectionError> {
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
