//! Working storage of a step, by the phase that fills it.

use amalgam_particles::{DVec3, ParticleId};

use crate::contacts::{Candidates, Contacts, Ranked, approaching};
use crate::instruments::record::StepRecord;
use crate::merging::merge::Forest;
use crate::pairwise::PairResponse;
use crate::state::problem::ContactProblem;
use crate::synchronise::{Share, Synchronised};

/// Working storage of a step. It may be replaced by a new one before any step. Only allocations are kept from
/// step to step.
///
/// A phase writes the fields that stand beside it in the table, and only reads the others. After `halve_step`
/// or `shorten_step` the step goes on with `merge`, or with the phase that takes its place.
///
/// | phase | writes |
/// | --- | --- |
/// | `start_step` | `dt`, `stage` |
/// | `begin` | `begun` |
/// | `detect` | `detected` |
/// | `merge`; `respond` of a pairwise method | `grouped`, `response` |
/// | `synchronise` | `velocities`, the answers in `grouped.assignments` |
/// | `activate_marked` | `detected`, `stage` |
/// | `split` | `velocities.members` |
/// | `contact`, in place of `detect` to `split` | `problem`, `detected.contacts`, `grouped`, `velocities` |
/// | `halve_step`, `shorten_step` | `dt`, `stage`, `detected` as `detect` left it |
///
/// Every phase notes what it counts in `record`, and `end_step` completes it.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Length of the step [s].
    pub(crate) dt: f64,
    /// Stage, from 1.
    pub(crate) stage: u32,
    pub(crate) begun: Begun,
    pub(crate) detected: Detected,
    /// Effect of a pairwise method.
    pub(crate) response: PairResponse,
    /// Contacts and bodies under the contact law.
    pub(crate) problem: ContactProblem,
    pub(crate) grouped: Grouped,
    pub(crate) velocities: Velocities,
    pub(crate) record: StepRecord,
}

/// Answers of the participants when the step began.
#[derive(Default)]
pub(crate) struct Begun {
    /// True if the participants were asked anew for their particles near others, so that near pairs must be
    /// listed.
    pub(crate) listed: bool,
    /// Contacts of participants with themselves, as pairs of candidates.
    pub(crate) own: Vec<(u32, u32)>,
}

/// Pairs of candidates in contact.
#[derive(Default)]
pub(crate) struct Detected {
    /// Contacts at the start of the step. Under the contact law, all pairs that may touch in the step count
    /// as active.
    pub(crate) contacts: Contacts,
    /// Active pairs of this stage, ascending: those that are merged.
    pub(crate) active: Vec<(u32, u32)>,
    /// Marked pairs of this stage: those that are in contact and are not merged.
    pub(crate) marked: Vec<(u32, u32)>,
    /// Parts of the pairs that were last asked about.
    pub(crate) approaching: Vec<(u32, u32)>,
    pub(crate) receding: Vec<(u32, u32)>,
}

impl Detected {
    /// Begins the first stage with the contacts at the start of the step.
    pub(crate) fn start_stages(&mut self) {
        self.active.clone_from(&self.contacts.active);
        self.marked.clone_from(&self.contacts.marked);
    }

    /// Marks all contacts, so that answers tell the velocities of their free particles.
    pub(crate) fn mark_all(&mut self) {
        self.marked.clear();
        self.marked.extend(self.contacts.pairs());
    }

    /// Finds the marked pairs that approach with these velocities of the candidates [m/s], and returns their
    /// number.
    pub(crate) fn part_marked(&mut self, candidates: &Candidates, velocity: &[DVec3]) -> u64 {
        let marked = std::mem::take(&mut self.marked);
        let count = self.part(candidates, &marked, velocity);
        self.marked = marked;
        count
    }

    /// Does for `pairs` what [`Self::part_marked`] does for marked pairs.
    pub(crate) fn part(&mut self, candidates: &Candidates, pairs: &[(u32, u32)], velocity: &[DVec3]) -> u64 {
        let Self { approaching: found, receding, .. } = self;
        approaching(candidates, pairs, |i| velocity[i as usize], found, receding);
        found.len() as u64
    }

    /// Makes the marked pairs active that [`Self::part_marked`] found.
    pub(crate) fn activate(&mut self) {
        std::mem::swap(&mut self.marked, &mut self.receding);
        self.active.append(&mut self.approaching);
        // The list consists of two sorted runs, which a stable sort merges in linear time.
        self.active.sort();
    }
}

/// The groups of a stage, and what each participant is told of them.
#[derive(Default)]
pub(crate) struct Grouped {
    pub(crate) forest: Forest,
    /// Each participant's part of the groups.
    pub(crate) shares: Vec<Share>,
    pub(crate) assignments: Vec<Assignment>,
    pub(crate) watched: Ranked,
}

/// The groups of a stage as one participant is told them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Assignment {
    /// Number of own members of each group.
    pub(crate) size: Vec<u32>,
    /// Members, group after group.
    pub(crate) member: Vec<ParticleId>,
    /// Place of each member in the forest's list.
    pub(crate) place: Vec<u32>,
    /// Free candidates in marked pairs.
    pub(crate) watch: Vec<u32>,
    /// Inertia of each group as the participant was told it last [kg].
    pub(crate) inertia: Vec<f64>,
    /// Number of times that the participant was asked in this stage.
    pub(crate) asked: u32,
    /// Largest distance that a free particle travels, relative to its radius; from the last answer.
    pub(crate) travel: f64,
}

/// Velocities at the end of the step.
#[derive(Default)]
pub(crate) struct Velocities {
    /// Velocity of each group, by which its members move.
    pub(crate) synchronised: Synchronised,
    /// Velocity that moves each candidate [m/s].
    pub(crate) candidates: Vec<DVec3>,
    /// Velocity of each member after the split [m/s].
    pub(crate) members: Vec<DVec3>,
    /// Largest distance that a particle travels, relative to its radius.
    pub(crate) travel: f64,
}
