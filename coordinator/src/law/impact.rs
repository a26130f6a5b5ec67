//! Restitution: generalised reflections [Smith2012].
//!
//! Contacts that come in fast are reflected before the step's problem is solved. A round takes all contacts that approach,
//! solves the plastic, frictionless problem on them alone, and applies (1 + e) times its impulses. Bodies that
//! were hit may now approach others: the next round is theirs, until nobody approaches. So a row of balls at rest passes a
//! blow on from ball to ball, and the last one leaves. One round for all contacts at once would share it among all.
//!
//! With plastic impulses p, W p = -u where p > 0, a round changes the energy by 1/2 (E p) . W (E p) - 1/2 p . W p, E the diagonal
//! of coefficients. For one coefficient of at most 1 it falls. For several it may rise; the part E p is then made
//! shorter until it does not.

use amalgam_particles::DVec3;

use super::bodies::Bodies;
use super::contact::Contact;
use super::gradient::{Descent, Tolerance};
use super::problem::{Answers, Problem};

/// Rounds at most. What is left then is treated as plastic.
const ROUNDS_MAX: u32 = 1000;

/// Error of a round's velocities, as a part of the fastest approach.
const PRECISION: f64 = 1e-12;

/// Contacts that approach slower than this part of the fastest approach of the first round are left to the
/// plastic solve. In a cluster with restitution below 1 rounds would go on for ever, each slower than the
/// last.
const SLOW: f64 = 1e-6;

/// Memory of the reflections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reflections {
    problem: Problem,
    descent: Descent<DVec3>,
    answers: Answers,
    bouncing: Vec<u32>,
    approaching: Vec<u32>,
}

impl Reflections {
    /// Reflects the contacts `chosen` that would close within the step, `dt` [s], and approach faster than
    /// `threshold` [m/s]: changes the bodies' motion and adds each contact's impulse to `given` [kg m/s].
    /// Returns the number of rounds and the change of kinetic energy [J].
    pub(crate) fn reflect(
        &mut self,
        bodies: &mut Bodies,
        contacts: &[Contact],
        chosen: &[u32],
        (dt, threshold): (f64, f64),
        given: &mut [DVec3],
    ) -> (u32, f64) {
        let bounces = |&&c: &&u32| {
            let material = &contacts[c as usize].material;
            material.restitution > 0.0 && !material.glued
        };
        self.bouncing.clear();
        self.bouncing.extend(chosen.iter().filter(bounces));
        let (mut rounds, mut energy, mut threshold) = (0, 0.0, threshold);
        while rounds < ROUNDS_MAX && !self.bouncing.is_empty() {
            let approach = |contact: &Contact| {
                let [i, j] = contact.bodies.map(|body| bodies.motion(body));
                let arms = contact.arms();
                -(j.at(arms[1]) - i.at(arms[0])).dot(contact.normal)
            };
            let mut fastest = 0.0f64;
            self.approaching.clear();
            for &c in &self.bouncing {
                let contact = &contacts[c as usize];
                let speed = approach(contact);
                if speed > threshold && contact.gap < speed * dt {
                    self.approaching.push(c);
                    fastest = fastest.max(speed);
                }
            }
            if self.approaching.is_empty() {
                break;
            }
            if rounds == 0 {
                threshold = threshold.max(SLOW * fastest);
            }
            rounds += 1;
            energy += self.round(bodies, contacts, dt, fastest, given);
        }
        (rounds, energy)
    }

    /// Reflects `approaching`; returns the change of energy [J].
    fn round(
        &mut self,
        bodies: &mut Bodies,
        contacts: &[Contact],
        dt: f64,
        fastest: f64,
        given: &mut [DVec3],
    ) -> f64 {
        let Self { problem, descent, answers, approaching, .. } = self;
        problem.set(bodies, contacts, approaching, dt);
        problem.make_smooth();
        descent.impulses.clear();
        descent.impulses.resize(approaching.len(), DVec3::ZERO);
        descent.start(problem, bodies);
        let tolerance = Tolerance {
            velocity: PRECISION * fastest,
            duality_gap: PRECISION,
            rounding: problem.rounding(),
            iterations_max: 10_000,
        };
        // From 1, a step solves contacts exactly that share no body.
        descent.run(problem, bodies, &mut 1.0, &tolerance);

        let restitution = |k: usize| contacts[approaching[k] as usize].material.restitution;
        let plastic = descent.impulses.clone();
        let elastic: Vec<DVec3> = plastic.iter().enumerate().map(|(k, &p)| p * restitution(k)).collect();
        let mut half_square = |impulses: &[DVec3]| -> f64 {
            problem.answer(bodies, impulses, answers);
            let work = |body: usize| answers.given[body].dot(answers.motion[body] - problem.free[body]);
            0.5 * (0..bodies.len()).map(work).sum::<f64>()
        };
        let lost = half_square(&plastic);
        let returned = half_square(&elastic);
        let share = if returned > lost { (lost / returned).sqrt() } else { 1.0 };
        for (k, impulse) in descent.impulses.iter_mut().enumerate() {
            *impulse += elastic[k] * share;
            given[approaching[k] as usize] += *impulse;
        }
        problem.answer(bodies, &descent.impulses, answers);
        for (body, motion) in answers.motion.iter().enumerate() {
            (bodies.velocity[body], bodies.spin[body]) = (motion.linear, motion.angular);
        }
        share * share * returned - lost
    }
}
