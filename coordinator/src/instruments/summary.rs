//! `summary.json`: a run in numbers, for machines. `docs/reference/summary.md` describes it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::clocks::Phase;
pub use super::energy::{EnergySummary, ParticipantEnergy};
use crate::instruments::record::StepRecord;
use crate::participant::Participant;
use crate::settings::ChosenMethod;

/// A run so far.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs, reason = "docs/reference/summary.md describes every entry")]
pub struct Summary {
    pub scene: String,
    pub steps: u64,
    pub simulated_s: f64,
    pub wall_s: f64,
    pub participants: Vec<ParticipantSummary>,
    pub phases_s: Profile,
    pub stages: MeanMax,
    pub contacts: ContactSummary,
    pub wire: WireSummary,
    pub coupling: CouplingSummary,
    pub energy: EnergySummary,
    pub speed_max: f64,
    pub probes: BTreeMap<String, BTreeMap<String, Extremes>>,
    pub state_hash: String,
}

/// A participant in a summary.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs, reason = "docs/reference/summary.md describes every entry")]
pub struct ParticipantSummary {
    pub name: String,
    pub solver: String,
    pub version: String,
    pub particles: u64,
    pub solver_s: f64,
    pub waited_s: f64,
    pub bytes_out: u64,
    pub bytes_in: u64,
}

/// Wall time by phase [s].
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/reference/summary.md describes every entry")]
pub struct Profile {
    pub begin: f64,
    pub detect: f64,
    pub merge: f64,
    pub integrate: f64,
    pub synchronise: f64,
    pub split: f64,
    pub commit: f64,
    pub frames: f64,
    /// Wall time of files [s]; absent from older checkpoints, as is the next field.
    #[serde(default)]
    pub files: f64,
    #[serde(default)]
    pub checkpoints: f64,
    /// Integration by stage, the first one first; stages beyond the eighth count as the eighth.
    pub integrate_stages: Vec<f64>,
}

impl Profile {
    /// Time of a phase [s].
    pub fn seconds(&self, phase: Phase) -> f64 {
        match phase {
            Phase::Begin => self.begin,
            Phase::Detect => self.detect,
            Phase::Merge => self.merge,
            Phase::Integrate => self.integrate,
            Phase::Synchronise => self.synchronise,
            Phase::Split => self.split,
            Phase::Commit => self.commit,
            Phase::Frames => self.frames,
            Phase::Files => self.files,
            Phase::Checkpoints => self.checkpoints,
        }
    }

    pub(crate) fn of(&mut self, phase: Phase) -> &mut f64 {
        match phase {
            Phase::Begin => &mut self.begin,
            Phase::Detect => &mut self.detect,
            Phase::Merge => &mut self.merge,
            Phase::Integrate => &mut self.integrate,
            Phase::Synchronise => &mut self.synchronise,
            Phase::Split => &mut self.split,
            Phase::Commit => &mut self.commit,
            Phase::Frames => &mut self.frames,
            Phase::Files => &mut self.files,
            Phase::Checkpoints => &mut self.checkpoints,
        }
    }

    pub(crate) fn integrate(&mut self, stage: u32, seconds: f64) {
        let at = (stage.min(8) - 1) as usize;
        if self.integrate_stages.len() <= at {
            self.integrate_stages.resize(at + 1, 0.0);
        }
        self.integrate_stages[at] += seconds;
        self.integrate += seconds;
    }
}

/// Mean and largest value over steps.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct MeanMax {
    pub mean: f64,
    pub max: f64,
}

/// Contacts over steps.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[allow(missing_docs, reason = "docs/reference/summary.md describes every entry")]
pub struct ContactSummary {
    pub active_mean: f64,
    pub marked_mean: f64,
    pub groups_mean: f64,
    pub group_size_max: u64,
    pub ignored_by_group_limit: u64,
    pub unresolved_after_last_stage: u64,
    pub overlap_relative_max: f64,
    pub bonds_broken: u64,
}

/// Bytes of columns over all participants.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[allow(missing_docs, reason = "docs/reference/summary.md describes every entry")]
pub struct WireSummary {
    pub bytes_out: u64,
    pub bytes_in: u64,
    pub occupancy_bytes_mean: f64,
    pub round_trips_mean: f64,
}

/// Effect of coupling on conserved quantities.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs, reason = "docs/reference/summary.md describes every entry")]
pub struct CouplingSummary {
    pub method: String,
    pub method_reason: String,
    pub momentum_error_relative_max: f64,
    pub energy_error_relative_max: f64,
    pub energy_dissipated: f64,
    pub repetitions_mean: f64,
    pub disagreement_relative_max: f64,
    pub phantom_energy_max: f64,
    pub law_iterations_mean: f64,
    pub law_unconverged_steps: u64,
    pub projected_steps: u64,
    pub retried_steps: u64,
}

/// A probe's column: the last value and the extremes.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Extremes {
    pub last: f64,
    pub min: f64,
    pub max: f64,
}

/// Sums and extremes of step records.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Statistics {
    steps: u64,
    /// Round trips to participants; absent from older checkpoints.
    #[serde(default)]
    pub(super) round_trips: u64,
    stages: u64,
    stages_max: u32,
    active: u64,
    marked: u64,
    groups: u64,
    group_size_max: u64,
    ignored: u64,
    unresolved: u64,
    /// Largest overlap relative to the smaller radius; absent from older checkpoints.
    #[serde(default)]
    overlap: f64,
    broken: u64,
    repetitions: u64,
    disagreement: f64,
    momentum_error: f64,
    energy_error: f64,
    phantom: f64,
    iterations: u64,
    unconverged: u64,
    /// Absent from older checkpoints.
    #[serde(default)]
    projected: u64,
    retried: u64,
    speed_max: f64,
    pub(crate) dissipated: f64,
}

impl Statistics {
    /// Mean number of round trips per step.
    pub(crate) fn round_trips_mean(&self) -> f64 {
        self.round_trips as f64 / self.steps.max(1) as f64
    }

    /// Adds a step, in which particles overlapped by at most `overlap` of the smaller radius.
    pub(crate) fn add(&mut self, record: &StepRecord, participants: &[Participant], overlap: f64) {
        self.overlap = self.overlap.max(overlap);
        self.steps += 1;
        self.stages += u64::from(record.stages);
        self.stages_max = self.stages_max.max(record.stages);
        self.active += record.active;
        self.marked += record.marked;
        self.groups += record.groups;
        self.group_size_max = self.group_size_max.max(record.group_size_max);
        self.ignored += record.ignored;
        self.unresolved += record.unresolved;
        self.broken += record.broken;
        self.repetitions += u64::from(record.repetitions);
        self.disagreement = self.disagreement.max(record.disagreement);
        self.momentum_error = self.momentum_error.max(record.momentum_error);
        self.energy_error = self.energy_error.max(record.energy_error);
        self.phantom = self.phantom.max(record.phantom);
        self.iterations += record.iterations;
        self.unconverged += u64::from(record.unconverged);
        self.projected += u64::from(record.projected);
        self.retried += u64::from(record.retries > 0);
        self.dissipated += record.dissipated;
        self.speed_max = participants
            .iter()
            .map(|participant| participant.part.committed.totals.speed_max)
            .fold(self.speed_max, f64::max);
    }

    fn mean(&self, sum: u64) -> f64 {
        if self.steps == 0 { 0.0 } else { sum as f64 / self.steps as f64 }
    }

    pub(crate) fn stages(&self) -> MeanMax {
        MeanMax { mean: self.mean(self.stages), max: f64::from(self.stages_max) }
    }

    pub(crate) fn contacts(&self) -> ContactSummary {
        ContactSummary {
            active_mean: self.mean(self.active),
            marked_mean: self.mean(self.marked),
            groups_mean: self.mean(self.groups),
            group_size_max: self.group_size_max,
            ignored_by_group_limit: self.ignored,
            unresolved_after_last_stage: self.unresolved,
            overlap_relative_max: self.overlap,
            bonds_broken: self.broken,
        }
    }

    pub(crate) fn coupling(&self, chosen: &ChosenMethod) -> CouplingSummary {
        CouplingSummary {
            method: chosen.method.to_string(),
            method_reason: chosen.reason.clone(),
            momentum_error_relative_max: self.momentum_error,
            energy_error_relative_max: self.energy_error,
            energy_dissipated: self.dissipated,
            repetitions_mean: self.mean(self.repetitions),
            disagreement_relative_max: self.disagreement,
            phantom_energy_max: self.phantom,
            law_iterations_mean: self.mean(self.iterations),
            law_unconverged_steps: self.unconverged,
            projected_steps: self.projected,
            retried_steps: self.retried,
        }
    }

    pub(crate) fn speed_max(&self) -> f64 {
        self.speed_max
    }
}
