//! The implicit integrators: implicit Euler with its Newton iterations, and HHT-alpha.

use amalgam_particles::{DVec3, StepEnd};
use amalgam_solver_kit::{Answer, Request, SolverError, agreed};
use rayon::prelude::*;

use super::SolidSolver;
use crate::chunks::{CHUNK, CHUNKS_PER_TASK};
use crate::finite::check_finite;
use crate::linear::conjugate_gradients::{Failure, Solved};
use crate::linear::operator::Operator;
use crate::linear::reduced::{Outside, impulses, subtract_product};
use crate::linear::system::Limits;
use crate::linear::vectors::copy;
use crate::materials::Positions;
use crate::section::{self, Integrator};

impl SolidSolver {
    /// Solves for the velocities at the end of a step, once or with Newton's iterations.
    pub(super) fn integrate_implicit(
        &mut self,
        request: &Request<'_>,
        answer: &mut Answer,
    ) -> Result<(), SolverError> {
        if !self.materials.are_linearised_at(self.positions_version) {
            // An earlier stage linearised them at the end of the step.
            self.linearise();
        }
        if self.integrator == Integrator::ImplicitEuler && request.stage == 1 {
            self.spin_guard.look(self.materials.partition(), &self.particles, (request.step, request.dt));
        }
        let factors = self.factors(request.dt);
        let Self { particles, materials, reduced, iteration, .. } = self;
        materials.prepare(factors.0, factors.1);
        if !reduced.is_set_for(materials, request) {
            reduced.set(particles, materials, request)?;
            let load = &mut iteration.right_hand_side;
            let outside = Outside { fall: self.gravity * factors.0, pushed: &self.pushed };
            if self.integrator == Integrator::HhtAlpha {
                let of = (&*particles, &mut *materials as &mut dyn Operator, outside);
                reduced.find_hht_load(of, (&self.mean_travel, factors), load);
            } else {
                reduced.find_load(particles, materials, outside, request, load);
            }
            reduced.starting_point(particles, &self.expected, request, &mut iteration.solution);
        }
        reduced.set_impulses(request, &mut iteration.right_hand_side);
        let floor = reduced.rounding(materials.partition());
        let limits = Limits { forcing: request.forcing, floor, ..self.limits };
        let solved = iteration.solve(&mut reduced.system(materials), &limits, None);
        let solved = solved.map_err(|failure| self.explain(failure))?;
        self.iterations = solved.iterations;
        self.expect()?;
        let mut scale = solved.scale;
        for _ in 1..self.newton_iterations {
            let solved = self.correct(request, scale)?;
            if solved.iterations == 0 {
                break;
            }
            scale = solved.scale;
        }
        tracing::debug!(step = request.step, stage = request.stage, iterations = self.iterations, "solved");
        self.answer(request, answer);
        Ok(())
    }

    /// Takes the velocities at the end of the step from the last solve.
    fn expect(&mut self) -> Result<(), SolverError> {
        let change = &self.iteration.solution;
        let ends = self.expected.par_iter_mut().zip(&self.reduced.velocity).zip(change);
        let ends = ends.with_min_len(CHUNK * CHUNKS_PER_TASK).map(|((end, start), change)| {
            *end = *start + *change;
            end.is_finite()
        });
        let checked = match ends.reduce(|| true, |a, b| a & b) {
            true => Ok(()),
            false => check_finite(&self.particles, &self.expected, "velocity"),
        };
        agreed(self.ranks(), checked)
    }

    /// Takes a Newton iteration: linearises at the result of the last solve, and solves for the remainder of
    /// `M dv = h (f + M g) - h C v` there. It needs no linear iterations if the remainder is within the
    /// tolerance. The tolerance is relative to the largest right-hand side of the step, of which `scale` is
    /// the squared norm so far; the remainder may be larger. For a body that spins, the first right-hand side
    /// is rounding alone, while the remainder holds the centripetal forces.
    fn correct(&mut self, request: &Request<'_>, scale: f64) -> Result<Solved, SolverError> {
        self.linearise_at_end(request.dt);
        let Self { particles, materials, reduced, iteration, expected, .. } = self;
        self.newton_change.clone_from(&iteration.solution);
        materials.prepare(request.dt, 0.0);
        let remainder = &mut iteration.right_hand_side;
        let outside = Outside { fall: self.gravity * request.dt, pushed: &self.pushed };
        reduced.remainder(
            (particles, materials, outside),
            request,
            (&self.newton_change, expected),
            remainder,
        );
        materials.prepare(request.dt, request.dt * request.dt);
        reduced.set(particles, materials, request)?;
        iteration.solution.fill(DVec3::ZERO);
        let limits = Limits { floor: reduced.rounding(materials.partition()), ..self.limits };
        let solved = iteration.solve(&mut reduced.system(materials), &limits, Some(scale));
        let solved = solved.map_err(|failure| self.explain(failure))?;
        self.iteration
            .solution
            .iter_mut()
            .zip(&self.newton_change)
            .for_each(|(change, before)| *change += *before);
        self.iterations += solved.iterations;
        self.expect()?;
        Ok(solved)
    }

    /// Linearises the materials at the positions that the expected velocities lead to in a step of length
    /// `dt` [s].
    fn linearise_at_end(&mut self, dt: f64) {
        let Self { particles, materials, ends, expected, .. } = self;
        ends.clear();
        ends.extend(particles.position.iter().zip(expected.iter()).map(|(x, v)| *x + *v * dt));
        materials.linearise(Positions::tentative(ends), true);
    }

    /// Writes the velocities, the momentum of each group and the slopes of the last solve.
    fn answer(&mut self, request: &Request<'_>, answer: &mut Answer) {
        copy(&self.expected, &mut answer.velocity);
        let ranks = self.ranks().clone();
        answer.slope = self.reduced.slopes(&ranks);
        let held = |group: usize| !request.inertia[group].is_finite();
        let change = self.reduced.at_leaders(&ranks, &self.iteration.solution);
        let has_members = |group: usize| request.members.offsets[group] < request.members.offsets[group + 1];
        let is_free = |&(group, _): &(usize, DVec3)| has_members(group) && !held(group);
        for (group, change) in change.into_iter().enumerate().filter(is_free) {
            answer.momentum[group] = change * request.inertia[group] - request.impulse[group];
        }
        if (0..request.groups.len()).any(held) {
            // A held group takes up whatever the materials give it: its row of the system without the
            // inertia.
            self.find_reactions(request.dt);
            let reaction = |i: u32| self.reaction[i as usize];
            request.members.for_each(request.groups, reaction, |group, reaction| {
                if held(group) {
                    answer.momentum[group] += reaction;
                }
            });
        }
    }

    /// Finds the momentum that materials and gravity give each particle in a step of length `dt`
    /// [s], in [`Self::reaction`].
    pub(super) fn find_reactions(&mut self, dt: f64) {
        if self.newton_iterations > 1 {
            self.linearise_at_end(dt);
            self.materials.prepare(dt, 0.0);
        }
        let (kick, square) = self.factors(dt);
        let Self { particles, materials, reaction, .. } = self;
        reaction.resize(particles.len(), DVec3::ZERO);
        let outside = Outside { fall: self.gravity * kick, pushed: &self.pushed };
        if self.integrator == Integrator::ImplicitEuler {
            impulses(particles, materials, outside, (kick, &self.expected), reaction);
            return;
        }
        materials.prepare(kick, 0.0);
        impulses(particles, materials, outside, (kick, &self.mean_travel), reaction);
        materials.prepare(kick, square);
        let change: Vec<DVec3> = self.expected.iter().zip(&self.mean_travel).map(|(v, u)| *v - *u).collect();
        subtract_product(materials, &change, reaction);
    }

    /// Takes the velocities with which this step moves particles.
    pub(super) fn follow_travel(&mut self, end: &StepEnd<'_>, integrated: &[DVec3]) {
        let Self { travel, mean_travel, .. } = self;
        copy(integrated, mean_travel);
        for (group, &velocity) in end.group_velocity.iter().enumerate() {
            end.groups.members(group).iter().for_each(|&i| mean_travel[i as usize] = velocity);
        }
        let past = section::HHT_LAST / section::HHT_NEXT;
        let both = travel.par_iter_mut().zip(mean_travel).with_min_len(CHUNK * CHUNKS_PER_TASK);
        both.for_each(|(travel, mean)| {
            let before = std::mem::replace(travel, *mean);
            *mean = *travel + (before - *travel) * past;
        });
    }

    /// The error for a solve that failed.
    fn explain(&self, failure: Failure) -> SolverError {
        match failure {
            Failure::Unconverged(residual) => SolverError(format!(
                "conjugate gradients reached a residual of {residual:.1e} of the right-hand side in {} iterations, \
                 not the tolerance {:.1e}: write a larger iterations_max or tolerance, or take shorter steps",
                self.limits.iterations_max, self.limits.tolerance
            )),
            Failure::NotFinite => match check_finite(
                &self.particles,
                &self.iteration.right_hand_side,
                "impulse",
            ) {
                Err(error) => error,
                Ok(()) => SolverError(
                    "conjugate gradients overflowed: stiffness, damping, inertia or the step is too large"
                        .into(),
                ),
            },
        }
    }
}
