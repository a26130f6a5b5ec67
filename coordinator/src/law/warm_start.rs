//! First guesses from the step before. They are memory and not physics: the answer does not depend on them beyond the
//! tolerance.

use amalgam_particles::DVec3;
use glam::DQuat;

use super::contact::Contact;
use super::problem::{Problem, Unknown};

/// What contacts gave in the last step, sorted by pair.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    remembered: Vec<Remembered>,
    /// Length of that step [s].
    dt: f64,
}

#[derive(Clone, Copy, Debug)]
struct Remembered {
    pair: (u64, u64),
    normal: DVec3,
    linear: DVec3,
    rolling: DVec3,
}

impl Memory {
    /// Keeps the impulses of the contacts `chosen` of a step of length `dt` [s].
    pub(crate) fn keep<U: Unknown>(&mut self, contacts: &[Contact], chosen: &[u32], impulses: &[U], dt: f64) {
        self.dt = dt;
        self.remembered.clear();
        let kept = chosen.iter().zip(impulses).map(|(&contact, impulse)| {
            let Contact { pair, normal, .. } = contacts[contact as usize];
            Remembered { pair, normal, linear: impulse.linear(), rolling: impulse.rolling() }
        });
        self.remembered.extend(kept);
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.remembered.clear();
    }

    /// Guesses the impulses of the contacts `chosen`, for a step of length `dt` [s], and says how many of them are new.
    ///
    /// A force that stays is an impulse that grows with the step. An impulse turns as its normal turns, by the shortest
    /// rotation, and what then lies outside of the cone goes to its nearest point.
    pub(crate) fn recall<U: Unknown>(
        &self,
        contacts: &[Contact],
        chosen: &[u32],
        problem: &Problem,
        dt: f64,
        impulses: &mut Vec<U>,
    ) -> usize {
        let scale = if self.dt > 0.0 { dt / self.dt } else { 0.0 };
        let (mut at, mut new) = (0, 0);
        impulses.clear();
        for (&contact, row) in chosen.iter().zip(&problem.rows) {
            let Contact { pair, normal, .. } = contacts[contact as usize];
            while self.remembered.get(at).is_some_and(|old| old.pair < pair) {
                at += 1;
            }
            let old = self.remembered.get(at).filter(|old| old.pair == pair);
            new += usize::from(old.is_none());
            impulses.push(old.map_or(U::default(), |old| {
                let turn = DQuat::from_rotation_arc(old.normal, normal);
                row.project(U::new(turn * old.linear, turn * old.rolling) * scale)
            }));
        }
        new
    }
}
