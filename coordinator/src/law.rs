//! The contact law: contacts that slide, hold and part. It knows of bodies, contacts and a step, and of no
//! network.
//!
//! # The law
//!
//! A contact c joins a point of body i with a point of body j. Its unit normal n points from i to j, and its
//! gap g is the distance of the surfaces, negative where they overlap. Within a step of length h it gives one
//! impulse, +p to j and
//! -p to i. All impulses together change the velocities that bodies would have without contacts, v*, to
//!
//! ```text
//! v' = v* + B H^T p,        u = H v' :  relative velocity of j to i at each contact,
//! ```
//!
//! B being the response of bodies to impulses, inverse masses and inertias for explicit participants.
//! Positions move by h v', and v' is what is reported.
//!
//! Signorini's condition says that surfaces do not enter each other, do not pull, and press only where they
//! touch. Over a step, a gap may close but not more: with b = max(g, 0)/h, u_n + b >= 0, p_n >= 0, and their
//! product is zero. A gap that stays open gives no impulse. An overlap that is there, from a rounding or from
//! outside, is neither increased nor pushed out: pushing out would be energy from nothing.
//!
//! Coulomb's law says that the tangential impulse is at most mu p_n, and that where surfaces slide it has
//! this size and opposes the sliding: p_t = -mu p_n u_t / |u_t|.
//!
//! # As one condition
//!
//! Let K be the cone of impulses with |p_t| <= mu p_n. Its dual cone K*, of all w with w . p >= 0 for every p
//! of K, is w_n >= mu |w_t|: the worst p for a given w has p_t against w_t with |p_t| = mu p_n. Put
//!
//! ```text
//! w = u + (b + s) n,    s = mu |u_t|                                        [DeSaxceFeng1998]
//! ```
//!
//! The law is: p in K, w in K*, p . w = 0. To see it, take the three cases. If p = 0, w in K* says u_n + b >= 0 and no more,
//! since s is what K* asks of the tangential part: the contact may open and slide freely. If p is inside K, w must be 0;
//! w_t = u_t = 0 gives s = 0 and u_n + b = 0: the contact holds. If p is on the side of K, w is on the opposite
//! side of K*: w_t = u_t against p_t and w_n = mu |w_t|, which is u_n + b = 0: the contact slides, at the
//! cone's limit, and does not open. Without s, in the last case, u_n = mu |u_t|: what slides would rise.
//!
//! Rolling resistance is a second tangential part, in a unit that makes it alike: a couple over a lever, with
//! a relative angular velocity times the lever, q and u_q, |q| <= mu_r p_n; s has the term mu_r |u_q| more.
//!
//! # Why it can be solved
//!
//! With s held, the condition is that of the optimum of a convex program with the symmetric, positive
//! semidefinite matrix W = H B H^T:
//!
//! ```text
//! minimise  f(p) = 1/2 p . W p + p . (u* + (b + s) n)    over p in K of all contacts,      u* = H v*.
//! ```
//!
//! Its gradient is w. Velocities are unique, impulses need not be. A point p is optimal exactly if it is a
//! fixed point of p -> Proj_K(p - D^-1 w) for any positive diagonal D that is one number for each part of a
//! contact, the projection being in the metric of D: by the definition of a projection, p . w = 0 and w in
//! K*. If in that point s = mu |u_t| too, the law holds. So the solver iterates p by the gradient of the
//! program and renews s [Acary2011]; a fixed point of both is a solution, whatever the way to it. No
//! convergence theorem covers the renewal; the error that ends the iteration is measured with the true s, so
//! what is called converged obeys the law.
//!
//! # Energy and momentum
//!
//! Kinetic energy changes by p . (u + u*)/2 = p . u - 1/2 p . W p. The law gives p . u = -p_n (b + s) <= 0 in
//! sum, so energy never rises, but for what immovable bodies that move put in and for the tolerance. Momentum
//! is kept since p and -p are added; angular momentum since arms end in one point, if both bodies can take a
//! torque.
//!
//! A solve that reaches its limit of iterations has no such sum. If its impulses would give energy, all of
//! them are scaled by one factor, at which they give none. The scaled impulses are still in their cones, and
//! momenta are still kept.
//!
//! # When to stop
//!
//! Two errors are measured. D times the step of the fixed point's map is a velocity: its largest part is to
//! be below a hundredth of a h, the velocity that a contact at rest has to stop in a step. It is not enough:
//! in a tall tower without a good guess, each contact is right to a hundredth while all of them together are
//! not, and the top falls freely. The sum of |p . w|, which is zero in the solution, is to be below 1e-4 of
//! the sum of |p . u*|. Where nothing accelerates, velocities are measured by the fastest approach instead.
//! One iteration is always done.

pub mod bodies;
mod cone;
pub mod contact;
pub mod gradient;
mod impact;
mod problem;
pub mod response;
pub mod secant;
mod tasks;
mod tree;
mod unknown;
mod warm_start;

use amalgam_particles::{DVec3, reduce};

use rayon::prelude::*;

use bodies::Bodies;
use contact::Contact;
use gradient::{Descent, Outcome, Tolerance};
use impact::Reflections;
use problem::Problem;
use serde::{Deserialize, Serialize};
use tasks::{CHUNK, SERIAL};
use tree::Tree;
use unknown::{Rolling, Unknown};
use warm_start::LastImpulses;

/// The step that contacts are solved for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Length h [s].
    pub dt: f64,
    /// Largest acceleration of a body without contacts [m/s^2], gravity in most scenes: the scale of what a
    /// contact at rest must stop, a h. 0 if nothing accelerates.
    pub acceleration: f64,
    /// An error of velocities that is small enough [m/s], where the precision asks for less; 0 to leave it to
    /// that.
    pub enough: f64,
}

/// Precision to which the law is solved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Precision {
    /// Largest error of a contact's velocity, as a part of a h.
    pub velocity: f64,
    /// The same as a part of the fastest approach; it counts where nothing accelerates.
    pub impact: f64,
    /// sum |p . w| over sum |p . u_free|.
    pub duality_gap: f64,
    /// Iterations at most, of one solve.
    pub iterations_max: u32,
}

impl Default for Precision {
    fn default() -> Self {
        Self { velocity: 1e-2, impact: 1e-9, duality_gap: 1e-4, iterations_max: 10_000 }
    }
}

/// Statistics of a step's contacts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LawStatistics {
    /// The last solve; its iterations are those of all solves of the step, its energy [J] is without impacts.
    pub solve: Outcome,
    /// Solves: one, and one more each time that contacts were taken in that had passed each other before.
    pub solves: u32,
    /// Rounds of reflections.
    pub impact_rounds: u32,
    /// Change of kinetic energy by impacts [J].
    pub impact_energy: f64,
    /// Contacts that passed each other by and were left out.
    pub missed: u32,
    /// Contacts without memory from the step before.
    pub new: u32,
    /// True if the first guess of new contacts came from the tree.
    pub from_tree: bool,
}

/// Solves the law, step after step. It holds memory and first guesses; all physics is in the arguments.
#[derive(Clone, Debug)]
pub struct ContactLaw {
    /// Precision of the solve.
    pub precision: Precision,
    /// True if new contacts may get their first guess from the tree; off to compare.
    pub guesses_by_tree: bool,
    sliding: Solver<DVec3>,
    rolling: Solver<Rolling>,
    memory: LastImpulses,
    reflections: Reflections,
    /// L of the last step.
    lipschitz: f64,
    chosen: Vec<u32>,
    left_out: Vec<u32>,
    impulses: Vec<DVec3>,
    couples: Vec<DVec3>,
}

impl Default for ContactLaw {
    fn default() -> Self {
        Self {
            precision: Precision::default(),
            guesses_by_tree: true,
            sliding: Solver::default(),
            rolling: Solver::default(),
            memory: LastImpulses::default(),
            reflections: Reflections::default(),
            lipschitz: 1.0,
            chosen: Vec::new(),
            left_out: Vec::new(),
            impulses: Vec::new(),
            couples: Vec::new(),
        }
    }
}

/// First guesses for the next step, for a checkpoint.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LawState {
    memory: LastImpulses,
    lipschitz: f64,
}

impl ContactLaw {
    /// State that outlives a step. The rest is scratch.
    pub(crate) fn state(&self) -> LawState {
        LawState { memory: self.memory.clone(), lipschitz: self.lipschitz }
    }

    /// Goes on from a checkpoint.
    pub(crate) fn go_on(&mut self, LawState { memory, lipschitz }: LawState) {
        (self.memory, self.lipschitz) = (memory, lipschitz);
    }

    /// A law without memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Impulse of each contact in the last step [kg m/s], on j; its opposite acts on i.
    pub fn impulses(&self) -> &[DVec3] {
        &self.impulses
    }

    /// Angular impulse of rolling resistance of each contact in the last step [kg m^2/s], on j; its opposite
    /// acts on i.
    pub fn couples(&self) -> &[DVec3] {
        &self.couples
    }

    /// Forgets the last step: the next one starts without a guess.
    pub fn forget(&mut self) {
        self.memory.clear();
        self.lipschitz = 1.0;
    }

    /// Takes the bodies from v* to v'. Contacts are sorted by pair, each pair once.
    ///
    /// # Panics
    /// If contacts are not sorted, or name no body.
    pub fn solve(&mut self, bodies: &mut Bodies, contacts: &[Contact], step: Step) -> LawStatistics {
        let mut statistics = LawStatistics::default();
        self.impulses.clear();
        self.impulses.resize(contacts.len(), DVec3::ZERO);
        self.couples.clear();
        self.couples.resize(contacts.len(), DVec3::ZERO);
        let rolls = self.choose(bodies, contacts, step.dt);
        let limits = (step.dt, 2.0 * step.acceleration * step.dt);
        (statistics.impact_rounds, statistics.impact_energy) =
            self.reflections.reflect(bodies, contacts, &self.chosen, limits, &mut self.impulses);
        if rolls {
            let mut solver = std::mem::take(&mut self.rolling);
            self.solve_chosen(&mut solver, bodies, contacts, step, &mut statistics);
            self.rolling = solver;
        } else {
            let mut solver = std::mem::take(&mut self.sliding);
            self.solve_chosen(&mut solver, bodies, contacts, step, &mut statistics);
            self.sliding = solver;
        }
        statistics.missed = self.left_out.len() as u32;
        statistics
    }

    /// Leaves out contacts that pass each other by without contacts, and says whether any contact resists
    /// rolling.
    fn choose(&mut self, bodies: &Bodies, contacts: &[Contact], dt: f64) -> bool {
        let look = |(chunk, part): (usize, &[Contact])| {
            let first = chunk * CHUNK;
            let mut seen = Seen::default();
            for (k, contact) in part.iter().enumerate() {
                let sorted = first + k == 0 || contacts[first + k - 1].pair < contact.pair;
                assert!(sorted, "contacts must be sorted by pair, each once");
                let [i, j] = contact.bodies.map(|body| bodies.motion(body));
                let list = if contact.is_missed(i, j, dt) { &mut seen.left_out } else { &mut seen.chosen };
                list.push((first + k) as u32);
                seen.rolls |= contact.material.rolling > 0.0;
            }
            seen
        };
        let chunks = contacts.par_chunks(CHUNK).enumerate().with_min_len(SERIAL / CHUNK);
        let all: Vec<Seen> = chunks.map(look).collect();
        self.chosen.clear();
        self.left_out.clear();
        for seen in &all {
            self.chosen.extend_from_slice(&seen.chosen);
            self.left_out.extend_from_slice(&seen.left_out);
        }
        all.iter().any(|seen| seen.rolls)
    }

    /// Solves, looks again at the contacts that were left out, and solves again with those that do meet: each
    /// time there are fewer left.
    fn solve_chosen<U: Unknown>(
        &mut self,
        solver: &mut Solver<U>,
        bodies: &mut Bodies,
        contacts: &[Contact],
        step: Step,
        statistics: &mut LawStatistics,
    ) {
        let dt = step.dt;
        loop {
            let new = solver.guess(&self.memory, bodies, contacts, &self.chosen, dt);
            if statistics.solves == 0 {
                statistics.new = new as u32;
            }
            if self.guesses_by_tree && new > 0 {
                statistics.from_tree |= solver.guess_by_tree(bodies, step);
            }
            let tolerance = self.tolerance(&solver.problem, step);
            let before = statistics.solve.iterations;
            statistics.solve =
                solver.descent.run(&mut solver.problem, bodies, &mut self.lipschitz, &tolerance);
            statistics.solve.iterations += before;
            statistics.solves += 1;
            self.memory.keep(contacts, &self.chosen, &solver.descent.impulses, dt);
            let motion = solver.descent.motion();
            let chosen = self.chosen.len();
            self.left_out.retain(|&c| {
                let [i, j] = contacts[c as usize].bodies.map(|body| motion[body as usize]);
                let missed = contacts[c as usize].is_missed(i, j, dt);
                if !missed {
                    self.chosen.push(c);
                }
                missed
            });
            if self.chosen.len() == chosen {
                break;
            }
            self.chosen.sort_unstable();
        }
        for (body, motion) in solver.descent.motion().iter().enumerate() {
            (bodies.velocity[body], bodies.spin[body]) = (motion.linear, motion.angular);
        }
        for (&c, impulse) in self.chosen.iter().zip(&solver.descent.impulses) {
            self.impulses[c as usize] += impulse.linear();
            if U::ROLLING {
                self.couples[c as usize] += impulse.rolling() * contacts[c as usize].lever();
            }
        }
    }

    fn tolerance(&self, problem: &Problem, step: Step) -> Tolerance {
        let approach = |contact: usize| {
            let u: DVec3 = problem.relative(contact, &problem.free);
            -problem.opening(contact, u)
        };
        let fastest = reduce::max(problem.rows.len(), 0.0, approach);
        let Precision { velocity, impact, duality_gap, iterations_max } = self.precision;
        let velocity = (velocity * step.acceleration * step.dt).max(impact * fastest);
        Tolerance { velocity, duality_gap, rounding: problem.rounding().max(step.enough), iterations_max }
    }
}

/// Selection of the contacts of a chunk.
#[derive(Default)]
struct Seen {
    chosen: Vec<u32>,
    left_out: Vec<u32>,
    rolls: bool,
}

/// The scratch of solves with one kind of unknown.
#[derive(Clone, Debug, Default)]
struct Solver<U> {
    problem: Problem,
    descent: Descent<U>,
    tree: Tree,
    guess: Vec<U>,
}

impl<U: Unknown> Solver<U> {
    /// Sets up the problem of a step of length `dt` [s], and a first guess from memory; says how many
    /// contacts have none.
    fn guess(
        &mut self,
        memory: &LastImpulses,
        bodies: &Bodies,
        contacts: &[Contact],
        chosen: &[u32],
        dt: f64,
    ) -> usize {
        let Self { problem, descent, .. } = self;
        problem.set(bodies, contacts, chosen, dt);
        let new = memory.recall(contacts, chosen, problem, dt, &mut descent.impulses);
        descent.start(problem, bodies);
        new
    }

    /// Adds the tree's impulses for the part that the guess lacks. Returns true if that is better.
    fn guess_by_tree(&mut self, bodies: &Bodies, step: Step) -> bool {
        let Self { problem, descent, tree, guess } = self;
        let value = descent.value(problem);
        guess.clone_from(&descent.impulses);
        let slack = SLACK * step.acceleration * step.dt;
        tree.add(problem, bodies, descent.motion(), slack, guess);
        std::mem::swap(&mut descent.impulses, guess);
        descent.start(problem, bodies);
        let is_better = descent.value(problem) < value;
        if !is_better {
            std::mem::swap(&mut descent.impulses, guess);
            descent.start(problem, bodies);
        }
        is_better
    }
}

/// Contacts that open slower than this part of a h join a heap of the first guess.
const SLACK: f64 = 1e-2;
