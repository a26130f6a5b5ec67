//! The account of energy: the energy given to each participant and its source, losses, and energy from no
//! accounted source.
//!
//! Energies are kinetic and stored ones as participants report them. A participant is given the work of
//! gravity, the work of scripts and sources (`Committed::given`), and the work of others. The coordinator
//! knows the last one, since it prescribes the motion. The remainder is lost, or came from no source.

use amalgam_particles::DVec3;
use serde::{Deserialize, Serialize};

use super::View;
use crate::participant::Participant;

/// Part of the energy in play that may come from no accounted source before a run ends.
///
/// An integrator of first order has an error in the energy of an oscillation in proportion to the step over
/// the period, up and down. The account is therefore never exact, but the energy of an instability grows
/// without bound. A tenth is above the error of all solvers at steps that they allow, and an instability
/// passes it within a few steps.
pub(crate) const UNACCOUNTED_MAX: f64 = 0.1;

/// Energy given to participants by others in a step, which only the coordinator knows [J].
#[derive(Clone, Debug, Default)]
pub(crate) struct Works {
    /// Work on each participant by its contacts.
    pub(crate) by_contacts: Vec<f64>,
    /// Work that moving immovable particles do on the particles in contact with them.
    pub(crate) by_scripts: f64,
}

/// The account of a run.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EnergyAccount {
    parts: Vec<PartAccount>,
    /// Work by immovable particles that move, on particles of others [J].
    by_scripts: f64,
    /// Least value since the start of the energy less all that was given [J].
    least: f64,
    /// Potential energy at the start, that is after the first step: stored and in gravity [J].
    potential_start: f64,
    /// Least potential energy since the start [J].
    potential_least: f64,
    /// Largest rise above `least` so far [J], and the largest rise as a part of the energy in play.
    #[serde(rename = "gained")]
    unaccounted: f64,
    #[serde(rename = "gained_relative")]
    unaccounted_relative: f64,
    /// True if a step has been counted.
    begun: bool,
}

/// Account of a participant [J].
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct PartAccount {
    /// Energies at the start, that is after the first step, and now: kinetic, stored, and in gravity.
    kinetic_start: f64,
    stored_start: f64,
    gravity_start: f64,
    kinetic: f64,
    stored: f64,
    gravity: f64,
    /// Size of the change of the stored energy in the last step. Stored and kinetic energy may belong to
    /// moments half a step apart, so that the account may lack this amount or count it twice.
    #[serde(skip)]
    exchanged: f64,
    /// Energy given by scripts and sources.
    given: f64,
    by_contacts: f64,
    /// Balance of the participant when the energy of all participants was at its least.
    balance_at_least: f64,
    /// Energy of motion that no frame could show.
    unresolved: f64,
}

impl PartAccount {
    /// Energy that came from no accounted source, less energy that was lost: E - E_start - given - work by
    /// contacts.
    fn balance(&self) -> f64 {
        let energy = self.kinetic + self.stored + self.gravity;
        energy - (self.kinetic_start + self.stored_start + self.gravity_start) - self.given - self.by_contacts
    }

    /// Change of the balance since the whole account was at its least.
    fn rise(&self) -> f64 {
        self.balance() - self.balance_at_least
    }
}

/// Energy from no accounted source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct UnaccountedEnergy {
    /// The participant whose own account rose most.
    pub(crate) participant: usize,
    /// Energy that came from no accounted source [J].
    pub(crate) amount: f64,
    /// Energy in play [J]: a bound on what could have become motion.
    pub(crate) in_play: f64,
    /// True if all participants report their stored energy.
    pub(crate) is_whole: bool,
}

/// The balance of a run, as `summary.json` has it [J].
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs, reason = "docs/reference/summary.md describes every entry")]
pub struct EnergySummary {
    pub start: f64,
    pub end: f64,
    pub by_gravity: f64,
    pub by_scripts_and_sources: f64,
    pub lost: f64,
    pub unaccounted_max: f64,
    pub unaccounted_relative_max: f64,
    pub participants: Vec<ParticipantEnergy>,
}

/// A participant in the balance [J].
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs, reason = "docs/reference/summary.md describes every entry")]
pub struct ParticipantEnergy {
    pub name: String,
    pub kinetic_start: f64,
    pub stored_start: f64,
    pub kinetic: f64,
    pub stored: f64,
    pub by_gravity: f64,
    pub by_scripts_and_sources: f64,
    pub by_contacts: f64,
    pub lost: f64,
    pub unaccounted: f64,
}

impl EnergyAccount {
    /// An account of participants that have taken no step, in a run of `duration` [s].
    ///
    /// Motion that no frame could show counts as none: gravity shifts a particle by its radius r, or the
    /// particle moves by r in the duration T. Its energy is the sum of m (g r + (r/T)^2 / 2).
    pub(crate) fn new(participants: &[Participant], gravity: DVec3, duration: f64) -> Self {
        let part = |participant: &Participant| {
            let crawl = |radius: f64| 0.5 * (radius / duration).powi(2);
            let of = |mass: f64, radius: f64| mass * (gravity.length() * radius + crawl(radius));
            PartAccount { unresolved: participant.part.roster.sum_movable(of), ..PartAccount::default() }
        };
        Self { parts: participants.iter().map(part).collect(), ..Self::default() }
    }

    /// Goes on from a checkpoint. Without an account in the checkpoint, the account begins anew.
    pub(super) fn go_on(&mut self, state: Self) {
        if state.begun {
            *self = state;
        }
    }

    /// Adds a step. Returns energy from no accounted source once it is too large a part of the energy in
    /// play.
    pub(crate) fn add(&mut self, view: &View<'_>) -> Option<UnaccountedEnergy> {
        for (k, (part, participant)) in self.parts.iter_mut().zip(view.participants).enumerate() {
            let answer = &participant.part.committed;
            part.kinetic = answer.totals.kinetic_energy;
            let before = part.stored;
            part.stored = answer.potential_energies.iter().map(|energy| energy.1).sum();
            part.gravity = -view.gravity.dot(answer.totals.mass_moment);
            part.exchanged = if self.begun { (part.stored - before).abs() } else { 0.0 };
            if !self.begun {
                (part.kinetic_start, part.stored_start) = (part.kinetic, part.stored);
                part.gravity_start = part.gravity;
                continue;
            }
            part.given += answer.given;
            // The coordinator does not learn the rotation of bodies from single particles: all change counts
            // as work of contacts.
            match participant.part.roster.has_bodies() {
                true => part.by_contacts += part.balance(),
                false => part.by_contacts += view.works.by_contacts.get(k).copied().unwrap_or(0.0),
            }
        }
        if self.begun {
            self.by_scripts += view.works.by_scripts;
        }
        self.judge(
            view.participants
                .iter()
                .all(|participant| !participant.part.committed.potential_energies.is_empty()),
        )
    }

    /// Compares the energy, less all that was given, with its least value so far. `is_whole` says that all
    /// participants report their stored energy.
    fn judge(&mut self, is_whole: bool) -> Option<UnaccountedEnergy> {
        let sum = |of: fn(&PartAccount) -> f64| self.parts.iter().map(of).sum::<f64>();
        let given = sum(|part| part.given) + self.by_scripts;
        let potential = sum(|part| part.stored + part.gravity);
        let kinetic = sum(|part| part.kinetic);
        let owned = kinetic + potential - given;
        let started = sum(|part| part.kinetic_start);
        let unresolved = sum(|part| part.unresolved);
        if !self.begun {
            (self.begun, self.least) = (true, owned);
            (self.potential_start, self.potential_least) = (potential, potential);
        }
        self.potential_least = self.potential_least.min(potential);
        // Unless all stored energy is reported, the least value stays that of the start: unreported energy
        // may come back.
        let unsure = sum(|part| part.exchanged);
        if owned + unsure <= self.least && is_whole {
            self.least = owned + unsure;
            self.parts.iter_mut().for_each(|part| part.balance_at_least = part.balance());
        }
        let unaccounted = (owned - unsure - self.least).max(0.0);
        let in_play = started + given.abs() + (self.potential_start - self.potential_least) + unresolved;
        self.unaccounted = self.unaccounted.max(unaccounted);
        self.unaccounted_relative =
            self.unaccounted_relative.max(unaccounted / in_play.max(f64::MIN_POSITIVE));
        let most = self.parts.iter().enumerate().max_by(|a, b| a.1.rise().total_cmp(&b.1.rise()))?;
        let has_become_motion = kinetic > in_play;
        (unaccounted > UNACCOUNTED_MAX * in_play && has_become_motion).then_some(UnaccountedEnergy {
            participant: most.0,
            amount: unaccounted,
            in_play,
            is_whole,
        })
    }

    /// The balance so far, of participants with these names.
    pub(crate) fn summary(&self, names: impl Iterator<Item = String>) -> EnergySummary {
        let participants = self.parts.iter().zip(names).map(|(part, name)| ParticipantEnergy {
            name,
            kinetic_start: part.kinetic_start,
            stored_start: part.stored_start,
            kinetic: part.kinetic,
            stored: part.stored,
            by_gravity: part.gravity_start - part.gravity,
            by_scripts_and_sources: part.given,
            by_contacts: part.by_contacts,
            lost: -part.balance(),
            unaccounted: part.rise(),
        });
        let sum = |of: fn(&PartAccount) -> f64| self.parts.iter().map(of).sum::<f64>();
        let start = sum(|part| part.kinetic_start + part.stored_start);
        let end = sum(|part| part.kinetic + part.stored);
        let by_gravity = sum(|part| part.gravity_start - part.gravity);
        let given = sum(|part| part.given) + self.by_scripts;
        EnergySummary {
            start,
            end,
            by_gravity,
            by_scripts_and_sources: given,
            lost: start + by_gravity + given - end,
            unaccounted_max: self.unaccounted,
            unaccounted_relative_max: self.unaccounted_relative,
            participants: participants.collect(),
        }
    }
}
