//! What a scene says to the coordinator: `[domain]`, `[time]`, `[coupling]` and `[[probes]]`.
//!
//! Values are checked by `faults`, which names the key and what to write.

use amalgam_particles::DVec3;
use serde::{Deserialize, Serialize};

use crate::methods::{ContactMethod, PairwiseImpulseSettings, PenaltySettings, SphRepulsionSettings};
use crate::split::SplitRule;

/// A fault in a section of the scene: the key's dotted path inside the section, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Dotted path of the key, for example `group_limit`.
    pub key: String,
    /// What is wrong and what to write.
    pub message: String,
}

/// `[domain]`: where the scene happens.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DomainSettings {
    /// Lower corner [m].
    pub min: DVec3,
    /// Upper corner [m].
    pub max: DVec3,
    /// Gravity [m/s^2].
    #[serde(default = "earth")]
    pub gravity: DVec3,
}

fn earth() -> DVec3 {
    DVec3::new(0.0, 0.0, -9.81)
}

/// `[time]`: how long, and when to look.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TimeSettings {
    /// Simulated time [s].
    pub duration: f64,
    /// Time between frames [s]; steps end exactly on frames.
    #[serde(default = "default_frame_interval")]
    pub frame_interval: f64,
    /// Longest step [s]; steps are shorter where the solvers or the particles' speeds ask for it.
    #[serde(default = "default_dt_max")]
    pub dt_max: f64,
    /// Largest part of its own radius that a particle may travel in a step. The paper uses 1.
    #[serde(default = "default_cfl")]
    pub cfl: f64,
}

fn default_frame_interval() -> f64 {
    1.0 / 30.0
}

fn default_dt_max() -> f64 {
    1e-2
}

fn default_cfl() -> f64 {
    0.5
}

/// `[coupling]`: how particles of different participants affect each other (`docs/method.md`).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CouplingSettings {
    /// How particles in contact affect each other. All keys but those of the other methods are for merging.
    pub method: ContactMethod,
    /// Only read with `method = "penalty"`.
    pub penalty: PenaltySettings,
    /// Only read with `method = "sph-repulsion"`.
    pub sph_repulsion: SphRepulsionSettings,
    /// Only read with `method = "pairwise-impulse"`.
    pub pairwise_impulse: PairwiseImpulseSettings,
    /// How the participants' answers become one velocity.
    pub synchronise: Synchronise,
    /// Inertia of a meta-particle in each participant; only read with `synchronise = "average"`.
    pub inertia: Inertia,
    /// How meta-particles split.
    pub split: SplitRule,
    /// Part of the kinetic energy lost in merging that splitting gives back, 0 to 1.
    pub alpha: f64,
    /// Part of the kinetic energy lost in synchronising that splitting gives back, 0 to 1.
    pub beta: f64,
    /// Part of the tangential velocity kept by the symmetric split: 1 frictionless, 0 no slip.
    pub slip: f64,
    /// Stages of a step: a number, or "converged": until no marked pair approaches.
    pub max_stages: MaxStages,
    /// Most stages when `max_stages` is "converged".
    pub stage_cap: u32,
    /// Smallest and largest limit of particles in a meta-particle; drawn anew for each in every step.
    pub group_limit: [u32; 2],
    /// Take a particle that no group has taken beyond the limit, so that it is not left without contacts for a step.
    pub keep_lone_contacts: bool,
    /// Most repetitions of a stage when implicit participants share meta-particles.
    pub coupling_iterations: u32,
    /// Relative change of the impulses at which repetitions end.
    pub coupling_tolerance: f64,
    /// Ask participants only for particles near others. Off: for all of them, with the same result.
    pub interest_mask: bool,
    /// Longest time that one call of a participant may take [s].
    pub step_deadline: f64,
}

impl Default for CouplingSettings {
    fn default() -> Self {
        Self {
            method: ContactMethod::MergeSplit,
            penalty: PenaltySettings::default(),
            sph_repulsion: SphRepulsionSettings::default(),
            pairwise_impulse: PairwiseImpulseSettings::default(),
            synchronise: Synchronise::Impulse,
            inertia: Inertia::Share,
            split: SplitRule::Paper,
            alpha: 1.0,
            beta: 0.0,
            slip: 1.0,
            max_stages: MaxStages::Count(2),
            stage_cap: 16,
            group_limit: [8, 64],
            keep_lone_contacts: true,
            coupling_iterations: 40,
            coupling_tolerance: 1e-3,
            interest_mask: true,
            step_deadline: 60.0,
        }
    }
}

/// How the participants' answers for a meta-particle become one velocity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Synchronise {
    /// Every participant integrates the full mass and knows the others' impulses.
    Impulse,
    /// Mass-weighted mean of answers given in ignorance of each other (Eq. 17-20 [Truong2021]).
    Average,
}

/// Inertia of a meta-particle in a participant with [`Synchronise::Average`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Inertia {
    /// The mass of its own members.
    Share,
    /// The mass of all members; for comparison only, it counts forces wrongly.
    Total,
}

/// How many stages a step may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxStages {
    /// At most this many.
    Count(u32),
    /// Until no marked pair approaches, up to `stage_cap`.
    Converged,
}

impl<'de> Deserialize<'de> for MaxStages {
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
            _ => Err(serde::de::Error::custom("max_stages must be a number from 1, or \"converged\"")),
        }
    }
}

impl Serialize for MaxStages {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => serializer.serialize_u32(*count),
            Self::Converged => serializer.serialize_str("converged"),
        }
    }
}

/// `[[probes]]`: a quantity sampled while the scene runs.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeSettings {
    /// Name of the CSV file and of the entry in `summary.json`.
    pub name: String,
    /// What is sampled. The keys of the quantity stand beside `name`.
    #[serde(flatten)]
    pub quantity: Quantity,
}

/// What a probe samples, after every step.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "quantity", rename_all = "snake_case", deny_unknown_fields)]
pub enum Quantity {
    /// Momentum [kg m/s] of one participant, or of all.
    Momentum {
        /// Whose; all together if absent.
        participant: Option<String>,
    },
    /// Angular momentum about the origin [kg m^2/s] of one participant, or of all.
    AngularMomentum {
        /// Whose; all together if absent.
        participant: Option<String>,
    },
    /// Kinetic and potential energies [J] of all participants, gravity included, and what coupling dissipated so far.
    Energy {},
    /// Largest speed [m/s] of one participant, or of all.
    Speed {
        /// Whose; all together if absent.
        participant: Option<String>,
    },
    /// Displacement [m] of the particle that was nearest to `point` at the start.
    Displacement {
        /// Whose particle.
        participant: String,
        /// Where to look for the particle at the start [m].
        point: DVec3,
    },
    /// Particles of `of` that went through the sheet `sheet` and are on the wrong side of it.
    Crossings {
        /// Participant with triangles.
        sheet: String,
        /// Participant whose particles are counted.
        of: String,
    },
    /// Deepest overlap of two particles in contact [m], and relative to the smaller radius.
    Overlap {},
    /// Pairs still approaching after the last stage, or refused by the group limit.
    Unresolved {},
}

impl DomainSettings {
    /// What is wrong with the values.
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        if !(self.min.is_finite() && self.max.is_finite() && self.min.cmplt(self.max).all()) {
            faults.push(fault("max", "every coordinate of max must be finite and larger than that of min"));
        }
        if !self.gravity.is_finite() {
            faults.push(fault("gravity", "gravity must be finite, for example gravity = [0, 0, -9.81]"));
        }
        faults
    }
}

impl TimeSettings {
    /// What is wrong with the values.
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (key, value) in
            [("duration", self.duration), ("frame_interval", self.frame_interval), ("dt_max", self.dt_max)]
        {
            if !(value > 0.0 && value.is_finite()) {
                faults.push(fault(key, format!("{key} is {value}, but must be a positive time in seconds")));
            }
        }
        if !(self.cfl > 0.0 && self.cfl <= 1.0) {
            faults.push(fault("cfl", format!("cfl is {}, but must be above 0 and at most 1", self.cfl)));
        }
        faults
    }
}

impl CouplingSettings {
    /// What is wrong with the values.
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (key, value) in [("alpha", self.alpha), ("beta", self.beta), ("slip", self.slip)] {
            if !(0.0..=1.0).contains(&value) {
                faults.push(fault(key, format!("{key} is {value}, but must be between 0 and 1")));
            }
        }
        let [low, high] = self.group_limit;
        if low < 2 || high < low {
            faults.push(fault(
                "group_limit",
                format!("group_limit is [{low}, {high}], but must be [smallest, largest] with 2 <= smallest <= largest"),
            ));
        }
        if self.stage_cap == 0 {
            faults.push(fault("stage_cap", "stage_cap must be at least 1"));
        }
        faults.extend(self.penalty.faults());
        faults.extend(self.sph_repulsion.faults());
        faults.extend(self.pairwise_impulse.faults());
        if self.method != ContactMethod::MergeSplit && self.synchronise == Synchronise::Average {
            faults.push(fault(
                "synchronise",
                "synchronise = \"average\" goes with method = \"merge-split\" only",
            ));
        }
        if self.coupling_iterations == 0 {
            faults.push(fault("coupling_iterations", "coupling_iterations must be at least 1"));
        }
        if !(self.coupling_tolerance > 0.0 && self.coupling_tolerance < 1.0) {
            faults.push(fault(
                "coupling_tolerance",
                "coupling_tolerance must be between 0 and 1, for example 1e-3",
            ));
        }
        if !(self.step_deadline > 0.0 && self.step_deadline <= 86_400.0) {
            faults.push(fault(
                "step_deadline",
                "step_deadline must be a time in seconds, above 0 and at most 86400",
            ));
        }
        faults
    }
}

fn fault(key: &str, message: impl Into<String>) -> Fault {
    Fault { key: key.to_string(), message: message.into() }
}
