//! The contact law: contacts that slide, hold and part (`docs/contact-law.md`).
pub mod bodies;
pub mod cone;
pub mod contact;
pub mod gradient;
mod impact;
mod problem;
pub mod response;
mod tree;
mod warm_start;

use amalgam_particles::{DVec3, reduce};

use bodies::Bodies;
use contact::Contact;
use gradient::{Descent, Outcome, Tolerance};
use impact::Reflections;
use problem::{Problem, Rolling, Unknown};
use tree::Tree;
use warm_start::Memory;

/// The step that contacts are solved for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Length h [s].
    pub dt: f64,
    /// Largest acceleration of a body without contacts [m/s^2], gravity in most scenes: the scale of what a contact at
    /// rest must stop, a h. 0 if nothing accelerates.
    pub acceleration: f64,
}

/// How well the law is solved.
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

/// What a step's contacts did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Statistics {
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
    /// Whether the first guess of new contacts was the tree's.
    pub from_tree: bool,
}

/// Solves the law, step after step. It holds memory and first guesses; all physics is in the arguments.
#[derive(Clone, Debug)]
pub struct ContactLaw {
    /// How well.
    pub precision: Precision,
    /// Whether new contacts may get their first guess from the tree; off to compare.
    pub guesses_by_tree: bool,
    sliding: Solver<DVec3>,
    rolling: Solver<Rolling>,
    memory: Memory,
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
            memory: Memory::default(),
            reflections: Reflections::default(),
            lipschitz: 1.0,
            chosen: Vec::new(),
            left_out: Vec::new(),
            impulses: Vec::new(),
            couples: Vec::new(),
        }
    }
}

impl ContactLaw {
    /// A law without memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Impulse of each contact in the last step [kg m/s], on j; its opposite acts on i.
    pub fn impulses(&self) -> &[DVec3] {
        &self.impulses
    }

    /// Angular impulse of rolling resistance of each contact in the last step [kg m^2/s], on j; its opposite acts on i.
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
    pub fn solve(&mut self, bodies: &mut Bodies, contacts: &[Contact], step: Step) -> Statistics {
        assert!(contacts.is_sorted_by(|a, b| a.pair < b.pair), "contacts must be sorted by pair, each once");
        let mut statistics = Statistics::default();
        self.impulses.clear();
        self.impulses.resize(contacts.len(), DVec3::ZERO);
        self.couples.clear();
        self.couples.resize(contacts.len(), DVec3::ZERO);
        self.choose(bodies, contacts, step.dt);
        let limits = (step.dt, 2.0 * step.acceleration * step.dt);
        (statistics.impact_rounds, statistics.impact_energy) =
            self.reflections.reflect(bodies, contacts, &self.chosen, limits, &mut self.impulses);
        if contacts.iter().any(|contact| contact.material.rolling > 0.0) {
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

    /// Leaves out contacts that pass each other by without contacts.
    fn choose(&mut self, bodies: &Bodies, contacts: &[Contact], dt: f64) {
        self.chosen.clear();
        self.left_out.clear();
        for (c, contact) in contacts.iter().enumerate() {
            let [i, j] = contact.bodies.map(|body| bodies.motion(body));
            let list = if contact.is_missed(i, j, dt) { &mut self.left_out } else { &mut self.chosen };
            list.push(c as u32);
        }
    }

    /// Solves, looks again at what was left out, and solves again with those that do meet: each time there are fewer left.
    fn solve_chosen<U: Unknown>(
        &mut self,
        solver: &mut Solver<U>,
        bodies: &mut Bodies,
        contacts: &[Contact],
        step: Step,
        statistics: &mut Statistics,
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
            let motion = &solver.descent.motion;
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
        for (body, motion) in solver.descent.motion.iter().enumerate() {
            (bodies.velocity[body], bodies.spin[body]) = (motion.linear, motion.angular);
        }
        for (&c, impulse) in self.chosen.iter().zip(&solver.descent.impulses) {
            self.impulses[c as usize] += impulse.linear();
            self.couples[c as usize] += impulse.rolling() * contacts[c as usize].lever();
        }
    }

    fn tolerance(&self, problem: &Problem, step: Step) -> Tolerance {
        let approach = |contact: usize| {
            let row = &problem.rows[contact];
            let u: DVec3 = problem.relative(contact, &problem.free);
            -(u.dot(row.normal) + row.bias)
        };
        let fastest = reduce::max(problem.rows.len(), 0.0, approach);
        let Precision { velocity, impact, duality_gap, iterations_max } = self.precision;
        let velocity = (velocity * step.acceleration * step.dt).max(impact * fastest);
        Tolerance { velocity, duality_gap, rounding: problem.rounding(), iterations_max }
    }
}

/// The scratch of solves with one kind of unknown.
#[derive(Clone, Debug, Default)]
struct Solver<U> {
    problem: Problem,
    descent: Descent<U>,
    tree: Tree,
    remembered: Vec<U>,
    /// f of the guess from memory [J].
    value: f64,
}

impl<U: Unknown> Solver<U> {
    /// Sets up the problem of a step of length `dt` [s], and a first guess from memory; says how many contacts have none.
    fn guess(
        &mut self,
        memory: &Memory,
        bodies: &Bodies,
        contacts: &[Contact],
        chosen: &[u32],
        dt: f64,
    ) -> usize {
        let Self { problem, descent, .. } = self;
        problem.set(bodies, contacts, chosen, dt);
        let new = memory.recall(contacts, chosen, problem, dt, &mut descent.impulses);
        self.value = descent.start(problem, bodies);
        new
    }

    /// Adds the tree's impulses for what the guess lacks, and says whether that is better.
    fn guess_by_tree(&mut self, bodies: &Bodies, step: Step) -> bool {
        let Self { problem, descent, tree, remembered, value } = self;
        remembered.clone_from(&descent.impulses);
        let slack = SLACK * step.acceleration * step.dt;
        tree.add(problem, bodies, &descent.motion, slack, &mut descent.impulses);
        let is_better = descent.start(problem, bodies) < *value;
        if !is_better {
            descent.impulses.clone_from(remembered);
            descent.start(problem, bodies);
        }
        is_better
    }
}

/// Contacts that open slower than this part of a h join a heap of the first guess.
const SLACK: f64 = 1e-2;
