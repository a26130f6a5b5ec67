//! Restitution: generalised reflections [Smith2012].
//!
//! Fast contacts are reflected before the problem of the step is solved. A round takes all contacts that
//! approach, solves the plastic, frictionless problem on them alone, and applies (1 + e) times its impulses.
//! Bodies that were hit may then approach others, which the next round reflects, until none approach. So a
//! row of balls at rest passes a blow on from ball to ball, and the last one leaves. One round for all
//! contacts at once would share the blow among all balls.
//!
//! Plastic impulses p fulfil W p = -u where p > 0. With E the diagonal of coefficients e, a round changes the
//! energy by
//!
//! ```text
//! 1/2 (E p) . W (E p) - 1/2 p . W p.
//! ```
//!
//! With one coefficient of at most 1 this is not positive. With several it may be positive, and E p is then
//! scaled by a factor s < 1. A round that reaches its limit of iterations does not fulfil W p = -u, and
//! changes the energy by
//!
//! ```text
//! p . u + 1/2 p . W p + s E p . (u + W p) + s^2 1/2 (E p) . W (E p).
//! ```
//!
//! s is the largest number up to 1 for which the energy does not rise.

use amalgam_particles::DVec3;

use super::bodies::Bodies;
use super::contact::Contact;
use super::gradient::{Descent, Tolerance};
use super::problem::{Answers, Problem};

/// Largest number of rounds. Contacts that still approach are then treated as plastic.
const ROUNDS_MAX: u32 = 1000;

/// Largest number of iterations of a round.
const ITERATIONS_MAX: u32 = 10_000;

/// Error of a round's velocities, as a part of the fastest approach.
const PRECISION: f64 = 1e-12;

/// Contacts that approach slower than this part of the fastest approach of the first round are treated as
/// plastic. Otherwise rounds in a cluster with restitution below 1 would never end, each slower than the
/// last.
const SLOW: f64 = 1e-6;

/// Working storage of the reflections.
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
    /// `threshold` [m/s]. Changes the bodies' motion and adds each contact's impulse to `given` [kg m/s].
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
            energy += self.round(bodies, contacts, (dt, fastest, ITERATIONS_MAX), given);
        }
        (rounds, energy)
    }

    /// Reflects `approaching`, with the fastest approach `fastest` [m/s]. Returns the change of energy [J].
    fn round(
        &mut self,
        bodies: &mut Bodies,
        contacts: &[Contact],
        (dt, fastest, iterations_max): (f64, f64, u32),
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
            iterations_max,
        };
        // With L = 1 a step solves contacts exactly that share no body.
        let solve = descent.run(problem, bodies, &mut 1.0, &tolerance);

        let restitution = |k: usize| contacts[approaching[k] as usize].material.restitution;
        let plastic = descent.impulses.clone();
        let elastic: Vec<DVec3> = plastic.iter().enumerate().map(|(k, &p)| p * restitution(k)).collect();
        let mut half_square = |impulses: &[DVec3]| -> f64 {
            problem.answer(bodies, impulses, answers, None);
            let change = |k: usize| {
                problem.relative::<DVec3>(k, &answers.motion) - problem.relative::<DVec3>(k, &problem.free)
            };
            0.5 * impulses.iter().enumerate().map(|(k, p)| p.dot(change(k))).sum::<f64>()
        };
        let (lost, returned) = (half_square(&plastic), half_square(&elastic));
        let (change, slope) = match solve.converged {
            true => (-lost, 0.0),
            false => {
                let after = |k: usize| problem.relative::<DVec3>(k, descent.motion());
                (solve.energy, elastic.iter().enumerate().map(|(k, p)| p.dot(after(k))).sum())
            }
        };
        let share = share(change, slope, returned);
        for (k, impulse) in descent.impulses.iter_mut().enumerate() {
            *impulse += elastic[k] * share;
            given[approaching[k] as usize] += *impulse;
        }
        problem.answer(bodies, &descent.impulses, answers, None);
        bodies.take(&answers.motion);
        change + share * (slope + share * returned)
    }
}

/// The largest s up to 1 with change + s slope + s^2 returned <= 0, for a change <= 0.
fn share(change: f64, slope: f64, returned: f64) -> f64 {
    if change + slope + returned <= 0.0 {
        return 1.0;
    }
    // The root of the quadratic, in the form that does not cancel.
    let root = (slope * slope - 4.0 * returned * change).max(0.0).sqrt();
    let share = if slope > 0.0 { -2.0 * change / (slope + root) } else { (root - slope) / (2.0 * returned) };
    share.clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use amalgam_particles::random;

    use super::*;
    use crate::law::bodies::InverseInertia;
    use crate::law::contact::{ContactMaterial, Sphere};

    /// A cube of balls at random masses and speeds, each contact with a restitution of its own.
    fn cube(seed: u64) -> (Bodies, Vec<Contact>) {
        let chance = |draw: u64| random::uniform_f64(&[seed, draw]);
        let mut bodies = Bodies::default();
        let mut spheres = Vec::new();
        for name in 0..27u64 {
            let [x, y, z] = [name % 3, name / 3 % 3, name / 9].map(|k| k as f64);
            let mass = 1e3f64.powf(chance(4 * name));
            let velocity = DVec3::from_array([1, 2, 3].map(|k| chance(4 * name + k) - 0.5));
            bodies.push(1.0 / mass, InverseInertia::None, velocity, DVec3::ZERO);
            let centre = DVec3::new(x, y, z);
            spheres.push(Sphere { name, body: name as u32, centre, offset: DVec3::ZERO, radius: 0.5 });
        }
        let mut contacts = Vec::new();
        for (at, i) in spheres.iter().enumerate() {
            for j in spheres[at + 1..].iter().filter(|j| j.centre.distance(i.centre) < 1.1) {
                let restitution = chance(1000 + contacts.len() as u64);
                let material = ContactMaterial { friction: 0.0, rolling: 0.0, restitution, glued: false };
                contacts.push(Contact::between_spheres(i, j, &bodies, material));
            }
        }
        (bodies, contacts)
    }

    fn kinetic_energy(bodies: &Bodies) -> f64 {
        let of = |(v, w): (&DVec3, &f64)| 0.5 * v.length_squared() / w;
        bodies.velocity.iter().zip(&bodies.inverse_mass).map(of).sum()
    }

    #[test]
    fn a_round_that_does_not_converge_gives_no_energy() {
        for seed in 0..40 {
            for iterations_max in [1, 2, 3, 5, 8, 10_000] {
                let (mut bodies, contacts) = cube(seed);
                let approaching = (0..contacts.len() as u32).collect();
                let mut reflections = Reflections { approaching, ..Reflections::default() };
                let before = kinetic_energy(&bodies);
                let mut given = vec![DVec3::ZERO; contacts.len()];
                let change =
                    reflections.round(&mut bodies, &contacts, (1e-3, 1.0, iterations_max), &mut given);
                let after = kinetic_energy(&bodies);
                assert!((after - before - change).abs() < 1e-10 * before, "{} {change}", after - before);
                assert!(after <= before * (1.0 + 1e-12), "{seed}, {iterations_max}: {before} {after}");
            }
        }
    }
}
