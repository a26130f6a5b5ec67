//! Solver of the contacts of a step, for one kind of unknown: a first guess, the iteration, and contacts that
//! had been left out.

use super::bodies::Bodies;
use super::contact::Contact;
use super::gradient::Descent;
use super::problem::Problem;
use super::selection::Selection;
use super::tree::Tree;
use super::unknown::Unknown;
use super::warm_start::WarmStart;
use super::{LawSettings, LawStatistics, Step};

/// Contacts that open slower than this part of a h join a heap of the first guess.
const SLACK: f64 = 1e-2;

/// Working storage of solves with one kind of unknown. It holds nothing between calls but the impulses of the
/// last one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Solver<U> {
    problem: Problem,
    descent: Descent<U>,
    tree: Tree,
    guess: Vec<U>,
}

impl<U: Unknown> Solver<U> {
    /// Solves the chosen contacts and sets the motion of the bodies. Contacts that were left out and now close
    /// are added, and all are solved again. Each time fewer are left out, so that this ends. If the problem is
    /// `set`, it is that of the last call, but for the bodies' velocities and the models of their response; its
    /// solution is the first guess.
    pub(crate) fn solve(
        &mut self,
        settings: &LawSettings,
        warm_start: &mut WarmStart,
        selection: &mut Selection,
        bodies: &mut Bodies,
        contacts: &[Contact],
        (step, set): (Step, bool),
    ) -> LawStatistics {
        let mut statistics = LawStatistics::default();
        loop {
            let new = if set && statistics.solves == 0 {
                self.problem.take_free(bodies);
                self.descent.start(&mut self.problem, bodies);
                0
            } else {
                self.guess(warm_start, bodies, contacts, &selection.chosen, step.dt)
            };
            if statistics.solves == 0 {
                statistics.new = new as u32;
            }
            if settings.guesses_by_tree && new > 0 {
                statistics.from_tree |= self.guess_by_tree(bodies, step);
            }
            let Self { problem, descent, .. } = self;
            let tolerance = settings.precision.tolerance(problem, step);
            let allowed = tolerance.rounding;
            statistics.solves += 1;
            // Contacts that meet after all show up long before a solve is precise.
            let tolerances = [tolerance.rough(), tolerance];
            let tolerances = if selection.left_out.is_empty() { &tolerances[1..] } else { &tolerances };
            let mut adds = false;
            for tolerance in tolerances {
                let before = statistics.solve.iterations;
                statistics.solve = descent.run(problem, bodies, &mut warm_start.lipschitz, tolerance);
                statistics.solve.iterations += before;
                warm_start.impulses.keep(contacts, &selection.chosen, &descent.impulses, step.dt);
                adds = selection.add_meeting(contacts, &problem.free, descent.motion(), step.dt, allowed);
                if adds {
                    break;
                }
            }
            if !adds {
                break;
            }
        }
        statistics.missed = selection.left_out.len() as u32;
        bodies.take(self.descent.motion());
        statistics
    }

    /// Impulses of the chosen contacts in the last solve.
    pub(crate) fn impulses(&self) -> &[U] {
        &self.descent.impulses
    }

    /// Sets up the problem of a step of length `dt` [s], and a first guess from the step before. Returns the
    /// number of contacts that the step before did not have.
    fn guess(
        &mut self,
        warm_start: &WarmStart,
        bodies: &Bodies,
        contacts: &[Contact],
        chosen: &[u32],
        dt: f64,
    ) -> usize {
        let Self { problem, descent, .. } = self;
        problem.set(bodies, contacts, chosen, dt);
        let new = warm_start.impulses.recall(contacts, chosen, problem, dt, &mut descent.impulses);
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
