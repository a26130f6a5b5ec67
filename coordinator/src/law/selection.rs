//! Selection of the contacts that a step solves.

use rayon::prelude::*;

use super::bodies::{Bodies, Motion};
use super::contact::Contact;
use super::tasks::{CHUNK, SERIAL};

/// The contacts of a step, cut in two.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// Contacts to solve, ascending.
    pub(crate) chosen: Vec<u32>,
    /// Contacts whose particles pass each other, ascending.
    pub(crate) left_out: Vec<u32>,
    /// True if a contact resists rolling.
    pub(crate) rolls: bool,
    /// True if a contact has restitution.
    pub(crate) bounces: bool,
}

impl Selection {
    /// Chooses the contacts to solve in a step of length `dt` [s]. Contacts whose particles pass each other
    /// without contact are left out.
    ///
    /// # Panics
    /// If contacts are not sorted by pair, each pair once.
    pub(crate) fn choose(&mut self, bodies: &Bodies, contacts: &[Contact], dt: f64) {
        let look = |(chunk, part): (usize, &[Contact])| {
            let first = chunk * CHUNK;
            let mut seen = Self::default();
            for (k, contact) in part.iter().enumerate() {
                let sorted = first + k == 0 || contacts[first + k - 1].pair < contact.pair;
                assert!(sorted, "contacts must be sorted by pair, each once");
                let [i, j] = contact.bodies.map(|body| bodies.motion(body));
                let list = if contact.is_missed(i, j, dt) { &mut seen.left_out } else { &mut seen.chosen };
                list.push((first + k) as u32);
                seen.rolls |= contact.material.rolling > 0.0;
                seen.bounces |= contact.material.restitution > 0.0;
            }
            seen
        };
        let chunks = contacts.par_chunks(CHUNK).enumerate().with_min_len(SERIAL / CHUNK);
        let all: Vec<Self> = chunks.map(look).collect();
        self.chosen.clear();
        self.left_out.clear();
        for seen in &all {
            self.chosen.extend_from_slice(&seen.chosen);
            self.left_out.extend_from_slice(&seen.left_out);
        }
        self.rolls = all.iter().any(|seen| seen.rolls);
        self.bounces = all.iter().any(|seen| seen.bounces);
    }

    /// Chooses those of the contacts left out that meet with the motion `motion` of all bodies. Returns true
    /// if there are any.
    pub(crate) fn add_meeting(&mut self, contacts: &[Contact], motion: &[Motion], dt: f64) -> bool {
        let Self { chosen, left_out, .. } = self;
        let before = chosen.len();
        left_out.retain(|&c| {
            let contact = &contacts[c as usize];
            let [i, j] = contact.bodies.map(|body| motion[body as usize]);
            let missed = contact.is_missed(i, j, dt);
            if !missed {
                chosen.push(c);
            }
            missed
        });
        let more = chosen.len() > before;
        if more {
            chosen.sort_unstable();
        }
        more
    }
}
