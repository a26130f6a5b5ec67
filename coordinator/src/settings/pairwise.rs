//! `[coupling.penalty]`, `[coupling.sph_repulsion]` and `[coupling.pairwise_impulse]`: methods to compare
//! with.

use serde::{Deserialize, Serialize};

use super::fault::{Fault, positive, within};

/// `[coupling.penalty]`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct PenaltySettings {
    /// Stiffness of the spring between two particles [N/m].
    pub stiffness: f64,
    /// Damping of the spring as a part of the pair's critical damping.
    pub damping_ratio: f64,
}

impl Default for PenaltySettings {
    fn default() -> Self {
        Self { stiffness: 1e3, damping_ratio: 0.1 }
    }
}

/// `[coupling.sph_repulsion]`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SphRepulsionSettings {
    /// Pressure where foreign particles fill as much of space as they can without overlap [Pa].
    pub strength: f64,
}

impl Default for SphRepulsionSettings {
    fn default() -> Self {
        Self { strength: 1e4 }
    }
}

/// `[coupling.pairwise_impulse]`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct PairwiseImpulseSettings {
    /// Coefficient of restitution, 0 to 1.
    pub restitution: f64,
    /// Passes over all pairs per step.
    pub sweeps: u32,
}

impl Default for PairwiseImpulseSettings {
    /// Five sweeps, as in [Guendelman2003].
    fn default() -> Self {
        Self { restitution: 1.0, sweeps: 5 }
    }
}

impl PenaltySettings {
    pub(crate) fn faults(&self) -> Vec<Fault> {
        [
            positive("penalty.stiffness", self.stiffness, "1e3 [N/m]"),
            within("penalty.damping_ratio", self.damping_ratio, f64::INFINITY, "from 0, for example 0.1"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl SphRepulsionSettings {
    pub(crate) fn faults(&self) -> Vec<Fault> {
        positive("sph_repulsion.strength", self.strength, "1e4 [Pa]").into_iter().collect()
    }
}

impl PairwiseImpulseSettings {
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let sweeps = (self.sweeps == 0).then(|| Fault {
            key: "pairwise_impulse.sweeps".to_string(),
            message: "sweeps must be at least 1".to_string(),
        });
        within("pairwise_impulse.restitution", self.restitution, 1.0, "between 0 and 1")
            .into_iter()
            .chain(sweeps)
            .collect()
    }
}
