//! `[[coupling.contact]]`: how the surfaces of two participants touch.

use serde::{Deserialize, Serialize};

use super::fault::{Fault, within};

/// Law of a pair of participants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PairLaw {
    /// Particles press, slide, hold by friction and part.
    #[default]
    Cone,
    /// Particles that overlap and approach move as one until the end of the step, as merged ones do.
    Merge,
}

/// `[[coupling.contact]]`: how the surfaces of two participants touch under the contact law.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ContactSettings {
    /// Names of two participants, or of a participant and an obstacle. The same name twice is for
    /// contacts of a participant with itself.
    pub between: [String; 2],
    /// Law of the pair: `"cone"` with the three coefficients below, or `"merge"`, with which particles stick
    /// together.
    #[serde(default)]
    pub law: PairLaw,
    /// Coefficient of friction, from 0.
    #[serde(default)]
    pub friction: f64,
    /// Coefficient of rolling resistance, from 0, for bodies that turn.
    #[serde(default)]
    pub rolling: f64,
    /// Coefficient of restitution, 0 to 1.
    #[serde(default)]
    pub restitution: f64,
}

/// Coefficient of friction of a participant's contacts with itself, where the scene gives none. Contacts of
/// different participants are smooth: one of them may be a fluid.
pub(crate) const OWN_FRICTION: f64 = 0.5;

impl ContactSettings {
    /// Faults in the values of entry `at` of the list.
    pub(super) fn faults(&self, at: usize) -> Vec<Fault> {
        let key = |name: &str| format!("contact[{at}].{name}");
        let stray = [
            ("friction", self.friction, "they never slide"),
            ("rolling", self.rolling, "they are glued at one point"),
            ("restitution", self.restitution, "they never bounce"),
        ];
        let stray = stray.into_iter().filter(|&(_, value, _)| self.law == PairLaw::Merge && value != 0.0);
        let stray = stray.map(|(name, _, why)| {
            let message = format!(
                "{name} goes with law = \"cone\" and not with \"merge\", by which particles move as one: {why}. Leave \
                 {name} out, or write law = \"cone\""
            );
            Fault::new(&key(name), message)
        });
        let ranges = [
            within(&key("friction"), self.friction, f64::INFINITY, "from 0, for example 0.3"),
            within(&key("rolling"), self.rolling, f64::INFINITY, "from 0, for example 0.1"),
            within(&key("restitution"), self.restitution, 1.0, "between 0 and 1"),
        ];
        ranges.into_iter().flatten().chain(stray).collect()
    }
}
