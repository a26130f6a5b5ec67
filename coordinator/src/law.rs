//! The contact law: contacts that slide, hold and part. This module knows of bodies, contacts and a step, and
//! of no network.
//!
//! A contact c joins a point of body i with a point of body j. Its unit normal n points from i to j. Its gap
//! g is the distance of the surfaces, negative where they overlap. Within a step of length h the contact
//! gives one impulse, +p to j and -p to i. All impulses together change the velocities v*, which bodies would
//! have without contacts, to
//!
//! ```text
//! v' = v* + B H^T p,        u = H v' :  velocity of j relative to i at each contact.
//! ```
//!
//! B is the response of bodies to impulses: inverse masses and inertias for explicit participants. Positions
//! move by h v', and v' is reported.
//!
//! Signorini's condition says that surfaces do not enter each other, do not pull, and press only where they
//! touch. Over a step, a gap may close but not more. With b = max(g, 0)/h this means u_n + b >= 0, p_n >= 0
//! and p_n (u_n + b) = 0. A gap that stays open gives no impulse. An overlap from rounding or from outside
//! neither grows nor is pushed out: pushing it out would add energy.
//!
//! Coulomb's law says that |p_t| <= mu p_n, and that p_t = -mu p_n u_t / |u_t| where surfaces slide.
//!
//! Both laws together are one condition. Let K be the cone of impulses with |p_t| <= mu p_n. Its dual cone K*
//! holds all w with w . p >= 0 for every p of K. This means w_n >= mu |w_t|, since w . p is least where p_t
//! points against w_t with |p_t| = mu p_n. Put
//!
//! ```text
//! w = u + (b + s) n,    s = mu |u_t|                                        [DeSaxceFeng1998]
//! ```
//!
//! The law is: p in K, w in K*, p . w = 0. There are three cases:
//!
//! - p = 0. Then w in K* says u_n + b >= 0 and no more, since s is what K* asks of the tangential part. The
//!   contact may open and slide freely.
//! - p inside K. Then w = 0, hence u_t = w_t = 0, s = 0 and u_n + b = 0. The contact holds.
//! - p on the side of K. Then w is on the opposite side of K*: w_t = u_t points against p_t, and w_n = mu
//!   |w_t| gives u_n + b = 0. The contact slides at the limit of friction and does not open. Without s, u_n +
//!   b would be mu |u_t|: sliding surfaces would part.
//!
//! Rolling resistance is a second tangential part: q is a couple over a lever and u_q a relative angular
//! velocity times the lever, so that they have the units of p and u. It obeys |q| <= mu_r p_n, and s gets the
//! further term mu_r |u_q|.
//!
//! With s held fixed, the condition is that of the optimum of a convex program. Its matrix W = H B H^T is
//! symmetric and positive semidefinite:
//!
//! ```text
//! minimise  f(p) = 1/2 p . W p + p . (u* + (b + s) n)    over p in K of all contacts,      u* = H v*.
//! ```
//!
//! Its gradient is w. Velocities are unique, impulses need not be. A point p is optimal exactly if it is a
//! fixed point of p -> Proj_K(p - D^-1 w). D is any positive diagonal with one number for each part of a
//! contact, and the projection is in the metric of D. By the definition of a projection, w in K* and p . w =
//! 0 hold at a fixed point. If s = mu |u_t| holds there, too, the law holds.
//!
//! The solver therefore iterates p by the gradient of the program and renews s [Acary2011]. A fixed point of
//! both is a solution, however it was reached. No convergence theorem covers the renewal. The error that ends
//! the iteration is measured with the true s, so that a converged solution obeys the law.
//!
//! Kinetic energy changes by p . (u + u*)/2 = p . u - 1/2 p . W p. Since p . w = 0, each contact has p . u =
//! -p_n (b + s) <= 0. Energy can only rise by immovable bodies that move, and within the tolerance. Momentum
//! is kept since p and -p are added. Angular momentum is kept since the arms end in one point, if both bodies
//! can take a torque.
//!
//! A solve that reaches its limit of iterations does not have p . w = 0. If its impulses would give energy,
//! all are scaled by the factor at which they give none. The scaled impulses are still in their cones, and
//! momenta are still kept.
//!
//! Two errors end the iteration. D times the step of the fixed-point map is a velocity. Its largest part must
//! be below a hundredth of a h, the velocity that a contact at rest has to stop in a step. This is not
//! enough: in a tall tower without a good guess, each velocity is right to a hundredth, but their sum is not,
//! and the top falls freely. The sum of |p . w|, zero in the solution, must therefore be below 1e-4 of the
//! sum of |p . u*|. Where nothing accelerates, velocities are measured by the fastest approach. One iteration
//! is always done.

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
    /// Acceleration a of bodies without contacts [m/s^2], gravity in most scenes; 0 if nothing accelerates. A
    /// contact at rest must stop the velocity a h.
    pub acceleration: f64,
    /// Error of velocities that is small enough [m/s], even where the precision asks for less; 0 if the
    /// precision decides.
    pub enough: f64,
}

/// Precision to which the law is solved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Precision {
    /// Largest error of a contact's velocity, as a part of a h.
    pub velocity: f64,
    /// Largest error of a contact's velocity, as a part of the fastest approach. The larger of both limits
    /// counts.
    pub impact: f64,
    /// Largest duality gap: sum |p . w| over sum |p . u*|.
    pub duality_gap: f64,
    /// Largest number of iterations of one solve.
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
    /// Outcome of the last solve, but with the iterations of all solves of the step. Its energy [J] is
    /// without impacts.
    pub solve: Outcome,
    /// Number of solves: one, and one more each time that contacts were added that had been left out.
    pub solves: u32,
    /// Rounds of reflections.
    pub impact_rounds: u32,
    /// Change of kinetic energy by impacts [J].
    pub impact_energy: f64,
    /// Contacts that were left out, since their particles pass each other.
    pub missed: u32,
    /// Contacts that the step before did not have.
    pub new: u32,
    /// True if the first guess of new contacts came from the tree.
    pub from_tree: bool,
}

/// Solver of the law, step after step. It holds working storage and first guesses; all physics is in the
/// arguments.
#[derive(Clone, Debug)]
pub struct ContactLaw {
    /// Precision of the solve.
    pub precision: Precision,
    /// True if new contacts may get their first guess from the tree; false to compare.
    pub guesses_by_tree: bool,
    sliding: Solver<DVec3>,
    rolling: Solver<Rolling>,
    memory: LastImpulses,
    reflections: Reflections,
    /// Bound L on the eigenvalues of D^-1 W in the last step (`gradient.rs`).
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

    /// Chooses the contacts to solve. Contacts whose particles pass each other without contacts are left out.
    /// Returns true if a contact resists rolling.
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

    /// Solves the chosen contacts. Contacts that were left out and now meet are added, and all are solved
    /// again. Each time fewer are left out, so that this ends.
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

/// Working storage of solves with one kind of unknown.
#[derive(Clone, Debug, Default)]
struct Solver<U> {
    problem: Problem,
    descent: Descent<U>,
    tree: Tree,
    guess: Vec<U>,
}

impl<U: Unknown> Solver<U> {
    /// Sets up the problem of a step of length `dt` [s], and a first guess from memory. Returns the number of
    /// contacts without memory.
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

    /// Adds the tree's impulses for the momentum that the guess lacks, if this lowers f. Returns true if it
    /// does.
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
