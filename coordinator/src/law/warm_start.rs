//! First guesses from the step before. They save iterations: beyond the tolerance the solution does not
//! depend on them.

use amalgam_particles::DVec3;
use glam::DQuat;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::cone::Kind;
use super::contact::Contact;
use super::problem::Problem;
use super::tasks::{CHUNK, SERIAL};
use super::unknown::Unknown;

/// Memory of the solver that outlives a step. Checkpoints hold it. The default is the memory of a solver that
/// has taken no step.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WarmStart {
    /// Impulses of the contacts in the last step.
    #[serde(rename = "memory")]
    pub(crate) impulses: LastImpulses,
    /// Bound L on the eigenvalues of D^-1 W in the last step (`gradient.rs`).
    pub(crate) lipschitz: f64,
}

impl Default for WarmStart {
    fn default() -> Self {
        Self { impulses: LastImpulses::default(), lipschitz: 1.0 }
    }
}

/// Impulses of contacts in the last step, sorted by pair.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LastImpulses {
    remembered: Vec<Remembered>,
    /// Length of the last step [s].
    dt: f64,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Remembered {
    pair: (u64, u64),
    normal: DVec3,
    linear: DVec3,
    rolling: DVec3,
}

impl LastImpulses {
    /// Keeps the impulses of the contacts `chosen` of a step of length `dt` [s].
    pub(crate) fn keep<U: Unknown>(&mut self, contacts: &[Contact], chosen: &[u32], impulses: &[U], dt: f64) {
        self.dt = dt;
        let kept = chosen.par_iter().zip(impulses).with_min_len(SERIAL).map(|(&contact, impulse)| {
            let Contact { pair, normal, .. } = contacts[contact as usize];
            Remembered { pair, normal, linear: impulse.linear(), rolling: impulse.rolling() }
        });
        kept.collect_into_vec(&mut self.remembered);
    }

    /// True for each of `contacts` that had an impulse in the last step. Contacts are sorted by pair.
    pub(crate) fn pressed(&self, contacts: &[Contact]) -> Vec<bool> {
        let Some(first) = contacts.first() else { return Vec::new() };
        let mut at = self.remembered.partition_point(|old| old.pair < first.pair);
        let one = |contact: &Contact| {
            while self.remembered.get(at).is_some_and(|old| old.pair < contact.pair) {
                at += 1;
            }
            let old = self.remembered.get(at).filter(|old| old.pair == contact.pair);
            old.is_some_and(|old| old.linear != DVec3::ZERO)
        };
        contacts.iter().map(one).collect()
    }

    /// Guesses the impulses of the contacts `chosen`, for a step of length `dt` [s], and returns the number
    /// of new contacts.
    ///
    /// A steady force gives an impulse in proportion to the length of the step. The impulse is rotated with
    /// its normal, by the shortest rotation. An impulse that then lies outside the cone is replaced by the
    /// nearest point of the cone.
    pub(crate) fn recall<U: Unknown>(
        &self,
        contacts: &[Contact],
        chosen: &[u32],
        problem: &Problem,
        dt: f64,
        impulses: &mut Vec<U>,
    ) -> usize {
        let scale = if self.dt > 0.0 { dt / self.dt } else { 0.0 };
        impulses.resize(chosen.len(), U::default());
        let one = |(chunk, (chosen, impulses)): (usize, (&[u32], &mut [U]))| {
            let pair = |contact: u32| contacts[contact as usize].pair;
            let mut at = self.remembered.partition_point(|old| old.pair < pair(chosen[0]));
            let mut new = 0;
            for (k, (&contact, impulse)) in chosen.iter().zip(impulses).enumerate() {
                let Contact { pair, normal, .. } = contacts[contact as usize];
                while self.remembered.get(at).is_some_and(|old| old.pair < pair) {
                    at += 1;
                }
                let old = self.remembered.get(at).filter(|old| old.pair == pair);
                new += usize::from(old.is_none());
                let k = chunk * CHUNK + k;
                *impulse = match old {
                    Some(old) if problem.kinds[k] != Kind::Idle => {
                        let rotated = old.rotated(normal);
                        problem.cone(k).project(U::new(rotated[0], rotated[1]) * scale)
                    }
                    _ => U::default(),
                };
            }
            new
        };
        let chunks = chosen.par_chunks(CHUNK).zip(impulses.par_chunks_mut(CHUNK)).enumerate();
        chunks.with_min_len(SERIAL / CHUNK).map(one).sum()
    }
}

impl Remembered {
    /// Both parts of the impulse, rotated by the shortest rotation from the old normal to the new one.
    fn rotated(&self, normal: DVec3) -> [DVec3; 2] {
        if normal == self.normal {
            return [self.linear, self.rolling];
        }
        let rotation = DQuat::from_rotation_arc(self.normal, normal);
        [rotation * self.linear, rotation * self.rolling]
    }
}
