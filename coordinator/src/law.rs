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
//! A glued contact moves as one. K is all of space, and K* is {0}, since w = 0 alone has w . p >= 0 for all p.
//! Gap and friction do not count, so that w = u, and the law is the bilateral constraint u = 0.
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
//! The solver iterates p by the gradient of the program without s, and cuts friction to what the new normal part
//! allows (`gradient.rs`). A fixed point obeys Coulomb's law, however it was reached. No theorem says that the
//! iteration reaches one [Acary2011]. The error that ends the iteration is measured with the true s, so that a
//! converged solution obeys the law.
//!
//! Kinetic energy changes by p . (u + u*)/2 = p . u - 1/2 p . W p. Since p . w = 0, each contact has p . u =
//! -p_n (b + s) <= 0. Energy can only rise by immovable bodies that move, and within the tolerance. Momentum
//! is kept since p and -p are added. Angular momentum is kept since the arms end in one point, if both bodies
//! can take a torque.
//!
//! A solve that ends without convergence does not have p . w = 0. If its impulses would give energy,
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
mod columns;
mod cone;
pub mod contact;
pub mod gradient;
mod impact;
mod problem;
pub mod response;
pub mod secant;
mod selection;
mod solver;
mod tasks;
mod tree;
mod unknown;
mod warm_start;

use amalgam_particles::{DVec3, reduce};

use bodies::Bodies;
use contact::Contact;
use gradient::{Outcome, Tolerance};
use impact::Reflections;
use problem::Problem;
use selection::Selection;
use solver::Solver;
use unknown::{Rolling, Unknown};

pub use warm_start::WarmStart;

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

impl Precision {
    /// The precision with the error `velocity`, as a part of a h. The duality gap is an energy, and so goes by
    /// the square of velocities: the largest one is the square of `velocity`.
    pub fn with_velocity(velocity: f64) -> Self {
        Self { velocity, duality_gap: velocity * velocity, ..Self::default() }
    }

    /// Tolerances of a problem.
    fn tolerance(&self, problem: &Problem, step: Step) -> Tolerance {
        let approach = |contact: usize| {
            let u: DVec3 = problem.relative(contact, &problem.free);
            -problem.opening(contact, u)
        };
        let fastest = reduce::max(problem.joined.len(), 0.0, approach);
        let Self { velocity, impact, duality_gap, iterations_max } = *self;
        let velocity = (velocity * step.acceleration * step.dt).max(impact * fastest);
        Tolerance { velocity, duality_gap, rounding: problem.rounding().max(step.enough), iterations_max }
    }
}

/// Settings of the solver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LawSettings {
    /// Precision of a solve.
    pub precision: Precision,
    /// True if new contacts may get their first guess from the tree; false to compare.
    pub guesses_by_tree: bool,
}

impl Default for LawSettings {
    fn default() -> Self {
        Self { precision: Precision::default(), guesses_by_tree: true }
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
    /// Contacts that were left out, since they open or their particles pass each other.
    pub missed: u32,
    /// Contacts that the step before did not have.
    pub new: u32,
    /// True if the first guess of new contacts came from the tree.
    pub from_tree: bool,
}

/// Solver of the law. The memory that outlives a step is in [`WarmStart`], outside of the solver. A new solver
/// with the same settings gives the same bits.
#[derive(Clone, Debug, Default)]
pub struct ContactLaw {
    /// Settings.
    pub settings: LawSettings,
    solution: Solution,
    workspace: Workspace,
}

/// Result of a step, until the next one.
#[derive(Clone, Debug, Default)]
struct Solution {
    /// Impulse of each contact [kg m/s].
    impulses: Vec<DVec3>,
    /// Angular impulse of each contact's rolling resistance [kg m^2/s].
    couples: Vec<DVec3>,
}

/// Working storage of a step. It holds nothing between calls.
#[derive(Clone, Debug, Default)]
struct Workspace {
    selection: Selection,
    reflections: Reflections,
    /// Solver of contacts without rolling resistance.
    sliding: Solver<DVec3>,
    /// Solver of contacts of which one has rolling resistance.
    rolling: Solver<Rolling>,
}

impl ContactLaw {
    /// Impulse of each contact in the last step [kg m/s], on j; its opposite acts on i.
    pub fn impulses(&self) -> &[DVec3] {
        &self.solution.impulses
    }

    /// Angular impulse of rolling resistance of each contact in the last step [kg m^2/s], on j; its opposite
    /// acts on i.
    pub fn couples(&self) -> &[DVec3] {
        &self.solution.couples
    }

    /// Takes the bodies from v* to v', and the warm start from the step before to this one. Contacts are
    /// sorted by pair, each pair once.
    ///
    /// # Panics
    /// If contacts are not sorted, or name no body.
    pub fn solve(
        &mut self,
        warm_start: &mut WarmStart,
        bodies: &mut Bodies,
        contacts: &[Contact],
        step: Step,
    ) -> LawStatistics {
        // Forces without contacts change the velocities of two bodies by up to this much against each other.
        let slack = 2.0 * step.acceleration * step.dt;
        self.workspace.selection.choose(bodies, contacts, &warm_start.impulses, step.dt, slack);
        self.solve_chosen(warm_start, bodies, contacts, (step, false))
    }

    /// Does what [`Self::solve`] does for the contacts and the step of the last call, once the velocities of
    /// the bodies are others or the models of their response. The last solution is the first guess.
    ///
    /// # Panics
    /// If there are not as many contacts as in the last call.
    pub fn solve_again(
        &mut self,
        warm_start: &mut WarmStart,
        bodies: &mut Bodies,
        contacts: &[Contact],
        step: Step,
    ) -> LawStatistics {
        assert_eq!(self.solution.impulses.len(), contacts.len(), "the contacts of the last call");
        // Reflections go by the velocities.
        match self.workspace.selection.bounces {
            false => self.solve_chosen(warm_start, bodies, contacts, (step, true)),
            true => self.solve(warm_start, bodies, contacts, step),
        }
    }

    /// Solves the contacts of the selection. If the problem is `set`, it is that of the last call, but for
    /// the velocities of the bodies and the models of their response.
    fn solve_chosen(
        &mut self,
        warm_start: &mut WarmStart,
        bodies: &mut Bodies,
        contacts: &[Contact],
        (step, set): (Step, bool),
    ) -> LawStatistics {
        let Self { settings, solution, workspace } = self;
        let Workspace { selection, reflections, sliding, rolling } = workspace;
        solution.clear(contacts.len());
        let (mut impact_rounds, mut impact_energy) = (0, 0.0);
        if selection.bounces {
            let limits = (step.dt, 2.0 * step.acceleration * step.dt);
            (impact_rounds, impact_energy) =
                reflections.reflect(bodies, contacts, &selection.chosen, limits, &mut solution.impulses);
        }
        let statistics;
        if selection.rolls {
            statistics = rolling.solve(settings, warm_start, selection, bodies, contacts, (step, set));
            solution.add(contacts, &selection.chosen, rolling.impulses());
        } else {
            statistics = sliding.solve(settings, warm_start, selection, bodies, contacts, (step, set));
            solution.add(contacts, &selection.chosen, sliding.impulses());
        }
        LawStatistics { impact_rounds, impact_energy, ..statistics }
    }
}

impl Solution {
    /// No impulses of this many contacts.
    fn clear(&mut self, contacts: usize) {
        for column in [&mut self.impulses, &mut self.couples] {
            column.clear();
            column.resize(contacts, DVec3::ZERO);
        }
    }

    /// Adds the impulses of the contacts `chosen`.
    fn add<U: Unknown>(&mut self, contacts: &[Contact], chosen: &[u32], impulses: &[U]) {
        for (&c, impulse) in chosen.iter().zip(impulses) {
            self.impulses[c as usize] += impulse.linear();
            if U::ROLLING {
                self.couples[c as usize] += impulse.rolling() * contacts[c as usize].lever();
            }
        }
    }
}
