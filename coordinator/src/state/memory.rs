//! Memory of the coordinator that outlives a step.

use amalgam_particles::{DVec3, ParticleId};

use crate::contacts::{Candidates, ContactFinder};
use crate::law::WarmStart;

/// Memory that outlives a step.
///
/// Checkpoints hold the guesses, on which the bits of later steps depend. The rest is found again by a survey.
///
/// | fields | written by | read by |
/// | --- | --- | --- |
/// | `candidates`, `order` | `begin`, in each step | every later phase of the step |
/// | `margin` | `begin`, where it lists anew | `detect` or `contact`, `begin` of later steps, `commit` |
/// | `span` | `begin`, where it lists anew | `contact` of later steps |
/// | `reach` | `begin`, where it lists anew | `begin` of later steps, `commit` |
/// | `look_ahead` | `begin` and `commit`, for what they ask | `begin` |
/// | `finder`, `near_obstacles` | `detect` or `contact`, where `begin` lists anew | these and `commit` |
/// | guess: `warm_start` | `contact` | `contact` of the next step |
/// | guess: `last_impulse` | the end of each method of contact | groups of the next step |
#[derive(Default)]
pub(crate) struct Memory {
    /// Particles that may touch others'. Participants need not repeat ids that stay the same.
    pub(crate) candidates: Candidates,
    /// For each participant, the order by id of the particles that it sends.
    pub(crate) order: Vec<Vec<u32>>,
    /// Part of their radius by which each participant's spheres counted as larger when near pairs were last
    /// listed.
    pub(crate) margin: Vec<f64>,
    /// Largest distance of a point of each participant's triangles from the nearest corner when near pairs were
    /// last listed [m]; 0 without contacts with triangles.
    pub(crate) span: Vec<f64>,
    /// Smallest distance within which contacts of each participant's particles are sought [radii].
    pub(crate) reach: Vec<f64>,
    /// Time ahead for which participants sought contacts among their own particles [s].
    pub(crate) look_ahead: f64,
    /// The list of near pairs.
    pub(crate) finder: ContactFinder,
    /// Particles that were near obstacles when near pairs were last listed, ascending.
    pub(crate) near_obstacles: Vec<(u16, ParticleId)>,
    /// First guesses of the contact law.
    pub(crate) warm_start: WarmStart,
    /// For each implicit participant, the impulse of each of its particles in the last step, ascending by id:
    /// the impulse that a projection gave, or that contacts gave under the contact law.
    pub(crate) last_impulse: Vec<Vec<(ParticleId, DVec3)>>,
}

impl Memory {
    /// The ids of the particles that a participant sent last, in its order.
    pub(crate) fn told(&self, participant: usize) -> Vec<ParticleId> {
        let first = self.candidates.first(participant as u16);
        let order = &self.order[participant];
        let mut ids = vec![ParticleId(0); order.len()];
        (first..)
            .zip(order)
            .for_each(|(candidate, &place)| ids[place as usize] = self.candidates.id[candidate]);
        ids
    }
}
