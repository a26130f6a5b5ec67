//! Probes, statistics and wall time by phase. Instruments observe a run and change nothing of it.

pub(crate) mod clocks;
mod crossings;
pub(crate) mod energy;
pub(crate) mod probes;
pub(crate) mod record;
pub mod summary;

use std::collections::BTreeMap;
use std::time::Instant;

use amalgam_particles::DVec3;

use crate::contacts::{Candidates, Contacts};
use crate::participant::Participant;
use clocks::{Phase, PhaseSpan, Spans};
use energy::{EnergyAccount, UnaccountedEnergy, Works};
use probes::{Probe, ProbeSample, ProbeState};
use record::StepRecord;
use serde::{Deserialize, Serialize};
use summary::{Extremes, Profile, Statistics};

/// The instruments of a run.
#[derive(Default)]
pub(crate) struct Instruments {
    pub(crate) profile: Profile,
    pub(crate) statistics: Statistics,
    pub(crate) energy: EnergyAccount,
    probes: Vec<Probe>,
    samples: Vec<ProbeSample>,
    /// Spans of phases and calls, if an observer wants them.
    spans: Option<Spans>,
}

/// The state of a run after a step, as instruments see it.
pub(crate) struct View<'a> {
    pub(crate) participants: &'a [Participant],
    /// Particles that may touch others', at the start of the step.
    pub(crate) candidates: &'a Candidates,
    /// Contacts at the start of the step.
    pub(crate) contacts: &'a Contacts,
    /// Particles beside obstacles, and their gaps [m], at the start of the step.
    pub(crate) beside: &'a [(u32, f64)],
    pub(crate) record: &'a StepRecord,
    /// Work that participants do on each other in the step.
    pub(crate) works: &'a Works,
    /// Gravity [m/s^2].
    pub(crate) gravity: DVec3,
}

/// State of the instruments, for a checkpoint.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InstrumentsState {
    profile: Profile,
    statistics: Statistics,
    /// Account of energy; absent from older checkpoints.
    #[serde(default)]
    energy: EnergyAccount,
    probes: Vec<ProbeState>,
}

impl Instruments {
    /// State that outlives a step.
    pub(crate) fn state(&self) -> InstrumentsState {
        InstrumentsState {
            profile: self.profile.clone(),
            statistics: self.statistics,
            energy: self.energy.clone(),
            probes: self.probes.iter().map(Probe::state).collect(),
        }
    }

    /// Goes on from a checkpoint.
    ///
    /// # Errors
    /// A checkpoint with other probes.
    pub(crate) fn go_on(&mut self, state: InstrumentsState) -> Result<(), String> {
        if state.probes.len() != self.probes.len() {
            return Err(format!("it has {} probes, this run {}", state.probes.len(), self.probes.len()));
        }
        (self.profile, self.statistics) = (state.profile, state.statistics);
        self.energy.go_on(state.energy);
        for (probe, state) in self.probes.iter_mut().zip(state.probes) {
            probe.go_on(state)?;
        }
        self.samples = self.probes.iter().filter_map(Probe::last).collect();
        Ok(())
    }

    pub(crate) fn new(probes: Vec<Probe>, energy: EnergyAccount) -> Self {
        Self { probes, energy, ..Self::default() }
    }

    /// Keeps spans from now on, until they are taken.
    pub(crate) fn observe(&mut self) {
        self.spans.get_or_insert_default();
    }

    /// Takes the spans since the last call of this function.
    pub(crate) fn take_spans(&mut self) -> Spans {
        self.spans.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Counts the time since `start` for a phase, less `within` [s], which counts for another phase.
    pub(crate) fn count(&mut self, phase: Phase, start: Instant, within: f64) {
        let end = Instant::now();
        *self.profile.of(phase) += (end - start).as_secs_f64() - within;
        if let Some(spans) = &mut self.spans {
            spans.phases.push(PhaseSpan { phase, start, end });
        }
    }

    /// Counts calls that were made at once, at `asked`, and have all been answered.
    pub(crate) fn count_calls(&mut self, participants: &mut [Participant], asked: Instant) {
        clocks::charge(participants, asked, self.spans.as_mut());
    }

    /// Counts calls as [`Self::count_calls`] does, and the round trip for which the step waits.
    pub(crate) fn count_round_trip(&mut self, participants: &mut [Participant], asked: Instant) {
        self.statistics.round_trips += 1;
        self.count_calls(participants, asked);
    }

    /// Counts the time since `asked` as integration in a stage.
    pub(crate) fn count_integration(&mut self, asked: Instant, stage: u32) {
        let end = Instant::now();
        self.profile.integrate(stage, (end - asked).as_secs_f64());
        if let Some(spans) = &mut self.spans {
            spans.phases.push(PhaseSpan { phase: Phase::Integrate, start: asked, end });
        }
    }

    /// Adds a step to the statistics and to the account of energy, and reads all probes. Returns energy from
    /// no accounted source, if it is too large.
    pub(crate) fn sample(&mut self, view: &View<'_>) -> Option<UnaccountedEnergy> {
        let [_, overlap] = probes::overlap(view.candidates, view.contacts, view.beside);
        self.statistics.add(view.record, view.participants, overlap);
        self.samples.resize_with(self.probes.len(), ProbeSample::default);
        for (probe, sample) in self.probes.iter_mut().zip(&mut self.samples) {
            probe.sample(view, self.statistics.dissipated, sample);
        }
        self.energy.add(view)
    }

    /// Values of the probes in the last step.
    pub(crate) fn samples(&self) -> &[ProbeSample] {
        &self.samples
    }

    /// True if a probe needs all corners of this participant's triangles.
    pub(crate) fn wants_triangles(&self, participant: usize) -> bool {
        self.probes.iter().any(|probe| probe.sheet() == Some(participant))
    }

    /// Last and extreme values of all probes.
    pub(crate) fn extremes(&self) -> BTreeMap<String, BTreeMap<String, Extremes>> {
        self.probes.iter().map(Probe::summary).collect()
    }
}
