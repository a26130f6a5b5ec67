//! `[[coupling.contact]]`: how the surfaces of two participants touch.

use serde::{Deserialize, Serialize};

use super::fault::{Fault, within};

/// `[[coupling.contact]]`: how the surfaces of two participants touch under the contact law.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ContactSettings {
    /// Names of two participants, or of a participant and an obstacle. The same name twice is for
    /// contacts of a participant with itself.
    pub between: [String; 2],
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
        [
            within(&key("friction"), self.friction, f64::INFINITY, "from 0, for example 0.3"),
            within(&key("rolling"), self.rolling, f64::INFINITY, "from 0, for example 0.1"),
            within(&key("restitution"), self.restitution, 1.0, "between 0 and 1"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
