//! Selection of the contacts that a step solves.

use rayon::prelude::*;

use super::bodies::{Bodies, Motions};
use super::contact::Contact;
use super::tasks::{CHUNK, SERIAL};
use super::warm_start::LastImpulses;

/// The contacts of a step, cut in two.
///
/// Most contacts have no impulse: they are pairs that might touch, and do not. Without an impulse the law asks
/// only that a contact does not close by more than its gap. So contacts that open are left out, the others are
/// solved, and the motion then says which of those left out must be solved, too. The solution is the one of
/// all contacts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// Contacts to solve, ascending.
    pub(crate) chosen: Vec<u32>,
    /// Contacts that open, or whose particles pass each other, ascending.
    pub(crate) left_out: Vec<u32>,
    /// True if a contact resists rolling.
    pub(crate) rolls: bool,
    /// True if a contact has restitution.
    pub(crate) bounces: bool,
}

impl Selection {
    /// Chooses the contacts to solve in a step of length `dt` [s]. Left out are contacts that open faster than
    /// `slack` [m/s] without impulses and had none in the last step, and contacts whose particles pass each
    /// other. Contacts with immovable flat surfaces, such as obstacles, are few, and all are solved.
    ///
    /// # Panics
    /// If contacts are not sorted by pair, each pair once.
    pub(crate) fn choose(
        &mut self,
        bodies: &Bodies,
        contacts: &[Contact],
        last: &LastImpulses,
        dt: f64,
        slack: f64,
    ) {
        let look = |(chunk, part): (usize, &[Contact])| {
            let first = chunk * CHUNK;
            let mut seen = Self::default();
            for (k, (contact, pressed)) in part.iter().zip(last.pressed(part)).enumerate() {
                let sorted = first + k == 0 || contacts[first + k - 1].pair < contact.pair;
                assert!(sorted, "contacts must be sorted by pair, each once");
                let [i, j] = contact.bodies.map(|body| bodies.motion(body));
                let is_idle = || {
                    let always = pressed
                        || contact.reach.is_infinite() && bodies.is_immovable(contact.bodies[0])
                        || contact.material.glued
                        || contact.material.restitution > 0.0;
                    !always && contact.opening(i, j, dt) > slack
                };
                let leave = contact.is_missed(i, j, dt) || is_idle();
                let list = if leave { &mut seen.left_out } else { &mut seen.chosen };
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

    /// If contacts left out close faster than `allowed` [m/s] with the motion `motion` of all bodies, chooses
    /// them, and returns true. Impulses changed the motion from `free`. Contacts that would close if they
    /// changed it as much again are chosen with them, since the next solve may reach them.
    pub(crate) fn add_meeting(
        &mut self,
        contacts: &[Contact],
        free: &Motions,
        motion: &Motions,
        dt: f64,
        allowed: f64,
    ) -> bool {
        let Self { chosen, left_out, .. } = self;
        let opening = |contact: &Contact| {
            let [i, j] = contact.bodies.map(|body| motion.of(body));
            if contact.is_missed(i, j, dt) { f64::INFINITY } else { contact.opening(i, j, dt) }
        };
        if !left_out.par_iter().with_min_len(SERIAL).any(|&c| opening(&contacts[c as usize]) < -allowed) {
            return false;
        }
        let change = |body: u32| (motion.linear[body as usize] - free.linear[body as usize]).length();
        left_out.retain(|&c| {
            let contact = &contacts[c as usize];
            let stays = opening(contact) > contact.bodies.map(change).iter().sum();
            if !stays {
                chosen.push(c);
            }
            stays
        });
        chosen.sort_unstable();
        true
    }
}
