//! `[coupling]`: how particles of different participants affect each other.

use serde::{Deserialize, Serialize};

use super::contact::ContactSettings;
use super::fault::Fault;
use super::method::ContactMethod;
use super::pairwise::{PairwiseImpulseSettings, PenaltySettings, SphRepulsionSettings};

/// `[coupling]`: how particles of different participants affect each other (`docs/theory/coupling.md`).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CouplingSettings {
    /// Method by which particles in contact affect each other: `"contact-law"`, `"merge-split"`, or
    /// `"penalty"`, `"sph-repulsion"`, `"pairwise-impulse"` to compare with. Default: `"merge-split"` where
    /// a participant is a projection or two are implicit, else `"contact-law"`.
    pub method: Option<ContactMethod>,
    /// `[[coupling.contact]]`: surfaces of pairs of participants. Only read with `method =
    /// "contact-law"`.
    pub contact: Vec<ContactSettings>,
    /// Names of participants that touch others by the triangles between their particles, and not by the spheres
    /// at the corners. Only read with `method = "contact-law"`.
    pub triangles: Vec<String>,
    /// `[coupling.penalty]`. Only read with that method.
    pub penalty: PenaltySettings,
    /// `[coupling.sph_repulsion]`. Only read with that method.
    pub sph_repulsion: SphRepulsionSettings,
    /// `[coupling.pairwise_impulse]`. Only read with that method.
    pub pairwise_impulse: PairwiseImpulseSettings,
    /// Rule that makes one velocity of the answers: `"impulse"`, or `"average"` as in the paper.
    pub synchronise: Synchronise,
    /// Inertia of a meta-particle in each participant: its own `"share"`, or `"total"`. Only read with
    /// `"average"`.
    pub inertia: Inertia,
    /// Rule by which meta-particles split: `"paper"` or `"symmetric"`.
    pub split: SplitRule,
    /// Part of the energy lost in merging that splitting gives back, 0 (no bounce) to 1. Default: 0 for
    /// contacts of a fluid, 1 for all others.
    pub alpha: Option<f64>,
    /// Part of the energy lost in synchronising that splitting gives back, 0 to 1. With `"impulse"` none
    /// is lost.
    pub beta: f64,
    /// Stages of a step: a number from 1, or `"converged"`, until no marked pair approaches. Default: 2, and
    /// `"converged"` where radii differ by a factor above 3.2 and there is no FLIP.
    pub stages_max: Option<StagesMax>,
    /// Most stages with `"converged"`.
    pub converged_stages_max: u32,
    /// Smallest and largest limit of particles in a meta-particle, at least 2. The limit is drawn for each in
    /// every step. Default: 4 to 8 beside FLIP, 8 to 64 elsewhere, more where radii differ by a factor above
    /// 3.2.
    pub group_limit: Option<[u32; 2]>,
    /// `true` merges a particle beyond the limit if the limit would leave it in no group. `false`, as in the
    /// paper, leaves it without contact for a step.
    pub keep_lone_contacts: bool,
    /// Most repetitions of a stage where implicit participants share meta-particles.
    pub repetitions_max: u32,
    /// Relative disagreement at which repetitions end.
    pub coupling_tolerance: f64,
    /// Error of contacts' velocities under the contact law, as a part of gravity times the step. Overlaps of
    /// piles at rest grow in proportion.
    pub contact_tolerance: f64,
    /// Most iterations of a step's contacts under the contact law. A heap that flows may need thousands for
    /// the tolerance, and a few hundred for where its grains come to rest.
    pub contact_iterations_max: u32,
    /// `true` asks participants only for particles near others. The result is the same with `false`.
    pub interest_mask: bool,
    /// Longest time that one call of a participant may take [s].
    pub step_deadline: f64,
}

impl Default for CouplingSettings {
    fn default() -> Self {
        Self {
            method: None,
            contact: Vec::new(),
            triangles: Vec::new(),
            penalty: PenaltySettings::default(),
            sph_repulsion: SphRepulsionSettings::default(),
            pairwise_impulse: PairwiseImpulseSettings::default(),
            synchronise: Synchronise::Impulse,
            inertia: Inertia::Share,
            split: SplitRule::Paper,
            alpha: None,
            beta: 0.0,
            stages_max: None,
            converged_stages_max: 16,
            group_limit: None,
            keep_lone_contacts: true,
            repetitions_max: 40,
            coupling_tolerance: 1e-3,
            contact_tolerance: 1e-2,
            contact_iterations_max: 10_000,
            interest_mask: true,
            step_deadline: 60.0,
        }
    }
}

/// Rule that makes one velocity of the participants' answers for a meta-particle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Synchronise {
    /// Every participant integrates the full mass and knows the others' impulses.
    Impulse,
    /// Mean, weighted by mass, of answers that do not know each other's impulses (Eq. 17-20 [Truong2021]).
    Average,
}

/// Inertia of a meta-particle in a participant with [`Synchronise::Average`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Inertia {
    /// The mass of its own members.
    Share,
    /// The mass of all members. For comparison only, since it counts forces wrongly.
    Total,
}

/// Number of stages that a step may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StagesMax {
    /// At most this many.
    Count(u32),
    /// Until no marked pair approaches, up to `converged_stages_max`.
    Converged,
}

impl<'de> Deserialize<'de> for StagesMax {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Count(u32),
            Word(String),
        }
        match Raw::deserialize(deserializer) {
            Ok(Raw::Count(count)) if count >= 1 => Ok(Self::Count(count)),
            Ok(Raw::Word(word)) if word == "converged" => Ok(Self::Converged),
            _ => Err(serde::de::Error::custom("stages_max must be a number from 1, or \"converged\"")),
        }
    }
}

impl Serialize for StagesMax {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => serializer.serialize_u32(*count),
            Self::Converged => serializer.serialize_str("converged"),
        }
    }
}

/// Rule for the velocities of two clusters after a split. All rules conserve momentum and give the prescribed
/// energy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SplitRule {
    /// Eq. 12-16 [Truong2021]: the least change of cluster 1 orthogonal to the normal.
    #[default]
    Paper,
    /// Restitution of the normal motion. Both clusters share the change of velocity in the step.
    Symmetric,
}

impl CouplingSettings {
    /// True if energy from no accounted source ends a run by a method. Averaging is left out, since it counts
    /// forces more than once and so creates energy.
    pub(crate) fn conserves_energy(&self, method: ContactMethod) -> bool {
        method.properties().conserves_energy && self.synchronise == Synchronise::Impulse
    }

    /// Faults in the values.
    pub fn faults(&self) -> Vec<Fault> {
        let named = self.method.map(ContactMethod::properties);
        let mut faults = Vec::new();
        for (key, value) in [("alpha", self.alpha.unwrap_or(1.0)), ("beta", self.beta)] {
            if !(0.0..=1.0).contains(&value) {
                faults.push(Fault::new(key, format!("{key} is {value}, but must be between 0 and 1")));
            }
        }
        if let Some([low, high]) = self.group_limit
            && (low < 2 || high < low)
        {
            faults.push(Fault::new(
                "group_limit",
                format!("group_limit is [{low}, {high}], but must be [smallest, largest] with 2 <= smallest <= largest"),
            ));
        }
        if self.converged_stages_max == 0 {
            faults.push(Fault::new("converged_stages_max", "converged_stages_max must be at least 1"));
        }
        faults.extend(self.contact.iter().enumerate().flat_map(|(at, contact)| contact.faults(at)));
        faults.extend(self.penalty.faults());
        faults.extend(self.sph_repulsion.faults());
        faults.extend(self.pairwise_impulse.faults());
        if named.is_some_and(|method| !method.merges) && self.synchronise == Synchronise::Average {
            faults.push(Fault::new(
                "synchronise",
                "synchronise = \"average\" goes with method = \"merge-split\" only",
            ));
        }
        if self.repetitions_max == 0 {
            faults.push(Fault::new("repetitions_max", "repetitions_max must be at least 1"));
        }
        if self.contact_iterations_max == 0 {
            faults.push(Fault::new("contact_iterations_max", "contact_iterations_max must be at least 1"));
        }
        let tolerances =
            [("coupling_tolerance", self.coupling_tolerance), ("contact_tolerance", self.contact_tolerance)];
        for (key, value) in tolerances {
            if !(value > 0.0 && value < 1.0) {
                faults.push(Fault::new(key, format!("{key} must be between 0 and 1, for example 1e-3")));
            }
        }
        if !(self.step_deadline > 0.0 && self.step_deadline <= 86_400.0) {
            faults.push(Fault::new(
                "step_deadline",
                "step_deadline must be a time in seconds, above 0 and at most 86400",
            ));
        }
        faults
    }
}
