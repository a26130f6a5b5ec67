//! Working storage of a step.

use amalgam_particles::{DVec3, ParticleId};

use crate::contacts::{Candidates, ContactFinder, Contacts, Ranked};
use crate::instruments::energy::Works;
use crate::instruments::record::StepRecord;
use crate::law::WarmStart;
use crate::merging::merge::Forest;
use crate::pairwise::PairResponse;
use crate::synchronise::{Share, Synchronised};

/// Memory that outlives a step. Checkpoints hold `warm_start` and `last_impulse`, on which the bits of later
/// steps depend. The rest is found again.
#[derive(Default)]
pub(crate) struct Memory {
    /// Part of their radius by which each participant's spheres counted as larger when near pairs were last
    /// listed.
    pub(crate) margin: Vec<f64>,
    /// The list of near pairs.
    pub(crate) finder: ContactFinder,
    /// Particles that may touch others'. Participants need not repeat ids that stay the same.
    pub(crate) candidates: Candidates,
    /// For each participant, the order by id of the particles that it sends.
    pub(crate) order: Vec<Vec<u32>>,
    /// Particles that were near obstacles when near pairs were last listed, ascending.
    pub(crate) near_obstacles: Vec<(u16, ParticleId)>,
    /// First guesses of the contact law.
    pub(crate) warm_start: WarmStart,
    /// Smallest distance within which contacts of each participant's particles are sought [radii].
    pub(crate) reach: Vec<f64>,
    /// Time ahead for which participants sought contacts among their own particles [s].
    pub(crate) horizon: f64,
    /// For each implicit participant, the impulse of each of its particles in the last step, ascending by id:
    /// the impulse that a projection gave, or that contacts gave under the contact law.
    pub(crate) last_impulse: Vec<Vec<(ParticleId, DVec3)>>,
}

/// Working storage of a step. It may be replaced by a new one before any step.
#[derive(Default)]
pub(crate) struct Scratch {
    /// True if near pairs were listed in this step.
    pub(crate) listed: bool,
    /// Contacts of participants with themselves.
    pub(crate) own: Vec<(u32, u32)>,
    /// Contacts at the start of the step.
    pub(crate) contacts: Contacts,
    /// Pairs that are merged in this stage, ascending.
    pub(crate) pairs: Vec<(u32, u32)>,
    /// Pairs in contact that are not merged in this stage.
    pub(crate) marked: Vec<(u32, u32)>,
    pub(crate) approaching: Vec<(u32, u32)>,
    pub(crate) receding: Vec<(u32, u32)>,
    pub(crate) forest: Forest,
    pub(crate) response: PairResponse,
    /// Each participant's part of the groups.
    pub(crate) shares: Vec<Share>,
    pub(crate) assignments: Vec<Assignment>,
    pub(crate) watched: Ranked,
    pub(crate) synchronised: Synchronised,
    /// Velocity that moves each candidate [m/s].
    pub(crate) velocity: Vec<DVec3>,
    /// Largest distance that a particle travels, relative to its radius.
    pub(crate) travel: f64,
    /// Velocity of each member after the split [m/s].
    pub(crate) member_velocity: Vec<DVec3>,
    /// Stage, from 1.
    pub(crate) stage: u32,
    /// Length of the step [s].
    pub(crate) dt: f64,
    pub(crate) record: StepRecord,
    /// Work that participants do on each other.
    pub(crate) works: Works,
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
    /// Number of times that the participant was asked in this stage.
    pub(crate) asked: u32,
    /// Largest distance that a free particle travels, relative to its radius.
    pub(crate) travel: f64,
}
