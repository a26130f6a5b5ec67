//! A step under the contact law: one impulse per contact makes the velocities right (`law.rs`). A group is a
//! single particle near others, or the part of a body that is near others.

mod exchange;

use std::slice;
use std::time::Instant;

use amalgam_particles::{ContactLookAhead, DVec3, ParticleId};
use amalgam_proto::contract::Integration;

use super::exchange::Connections;
use super::stage::move_members;
use crate::contacts::Candidates;
use crate::error::CoordinatorError;
use crate::instruments::clocks::Phase;
use crate::law::contact::reach;
use crate::law::{Precision, Step};
use crate::simulation::Simulation;
use crate::state::memory::Memory;
use crate::state::problem::ContactProblem;
use crate::state::scratch::{Scratch, Velocities};
use crate::state::setup::Setup;
use crate::synchronise::{Synchronised, next_forcing};
use exchange::ContactExchange;

/// Largest number of searches in a step. Contacts are sought again if contacts made particles faster.
const SEARCHES_MAX: u32 = 4;

/// Tolerance of the contacts' velocities relative to the error of the response's model, as long as the model
/// errs.
const FORCING: f64 = 0.05;

/// Answers are exact if the next error is expected below this multiple of the wanted one. The error falls by two to ten
/// times per repetition. An answer that is right but for its roughness costs one more repetition, an exact one less.
const LIKELY: f64 = 4.0;

impl Simulation {
    /// Finds the velocities at the end of the step.
    pub(super) fn contact(&mut self) -> Result<(), CoordinatorError> {
        let Memory { candidates, finder, margin, span, .. } = &mut self.memory;
        if self.scratch.begun.listed || !self.setup.plan.coupling.interest_mask {
            finder.list(candidates, margin, span);
            self.list_near_obstacles();
        }
        self.scratch.problem.facets.place(&self.memory.candidates, &self.setup.meshes);
        self.expect_speeds();
        for search in 1.. {
            self.list_contacts();
            self.solve_contacts()?;
            if self.travels_too_far() {
                self.shorten_step()?;
            } else if search >= SEARCHES_MAX
                || !self.scratch.problem.expect_more(&self.scratch.velocities.candidates)
            {
                break;
            }
        }
        self.remember_impulses(&[Integration::Projection, Integration::Implicit]);
        Ok(())
    }

    /// Lists the particles whose distance from an obstacle is below r (1 + margin), with the margin for which
    /// participants were asked.
    fn list_near_obstacles(&mut self) {
        let Memory { candidates, margin, near_obstacles, .. } = &mut self.memory;
        near_obstacles.clear();
        if self.setup.obstacles.is_empty() {
            return;
        }
        let meets_obstacles = &self.setup.meets_obstacles;
        let is_near = |i: usize| {
            let reach = candidates.radius[i] * (1.0 + margin[usize::from(candidates.participant[i])]);
            let beside = |surface| self.setup.obstacles.beside(surface, candidates.position[i]).distance;
            (0..self.setup.obstacles.len()).any(|surface| beside(surface) < reach)
        };
        let may_meet = |&i: &usize| meets_obstacles[usize::from(candidates.participant[i])];
        let near = (0..candidates.len()).filter(may_meet).filter(|&i| is_near(i));
        near_obstacles.extend(near.map(|i| (candidates.participant[i], candidates.id[i])));
    }

    /// Particles of a participant that were near others or obstacles at the last listing, ascending.
    pub(super) fn listed(&self, participant: usize) -> Vec<ParticleId> {
        let Memory { finder, near_obstacles, .. } = &self.memory;
        let mut listed = finder.listed(participant as u16);
        let more = near_obstacles.iter().filter(|(owner, _)| usize::from(*owner) == participant);
        let before = listed.len();
        listed.extend(more.map(|(_, id)| *id));
        if listed.len() > before {
            listed.sort_unstable();
            listed.dedup();
        }
        listed
    }

    /// Sets the speed with which each candidate's contacts are sought: its speed at the start of the step
    /// plus the speed that gravity adds, or the speed of a faster particle that may hit it. Of the
    /// participants' own pairs, only those are kept that may touch in this step.
    fn expect_speeds(&mut self) {
        let look_ahead =
            ContactLookAhead { time: self.scratch.dt, acceleration: self.setup.plan.domain.gravity.length() };
        let Memory { candidates, finder, span, .. } = &mut self.memory;
        let Scratch { begun, problem: ContactProblem { own, speed, facets, .. }, dt, .. } = &mut self.scratch;
        let before: Vec<f64> =
            candidates.velocity.iter().map(|&velocity| look_ahead.speed(velocity)).collect();
        own.clear();
        if !begun.own.is_empty() {
            let mut foreseen = before.clone();
            look_ahead.foresee(&begun.own, |i, j| candidates.gap(i, j), &mut foreseen);
            let speeds = |i: u32, j: u32| [foreseen[i as usize], foreseen[j as usize]];
            let meets = |&&(i, j): &&(u32, u32)| look_ahead.meets(candidates.gap(i, j), speeds(i, j));
            own.extend(begun.own.iter().filter(meets));
        }
        speed.clone_from(&before);
        for &(i, j) in finder.within(candidates, own, |i| reach(before[i as usize], *dt)) {
            let (i, j) = (i as usize, j as usize);
            speed[i] = speed[i].max(before[j]);
            speed[j] = speed[j].max(before[i]);
        }
        facets.foresee(candidates, span, finder.near(), (&before, *dt), speed);
    }

    /// Lists the pairs that may touch in the step. Their particles become bodies and groups.
    fn list_contacts(&mut self) {
        let start = Instant::now();
        let Memory { candidates, finder, span, .. } = &mut self.memory;
        let Setup { plan, surfaces, meshes, obstacles, meets_obstacles, .. } = &self.setup;
        let Scratch { problem, detected, grouped, record, dt, .. } = &mut self.scratch;
        let speed = problem.speed.clone();
        let speed_of = |i: u32| speed[i as usize];
        finder.within(candidates, &problem.own, |i| reach(speed_of(i), *dt));
        problem.facets.find(candidates, meshes, span, finder.near(), |i| reach(speed_of(i), *dt));
        let pairs = finder.found();
        problem.list_beside(candidates, (obstacles, meets_obstacles), |i| reach(speed_of(i), *dt));
        problem.list_bodies(candidates, pairs, &self.participants);
        // Errors that the last step may have left: of the contacts, and of the answers to their impulses.
        let at_rest = plan.coupling.contact_tolerance * plan.domain.gravity.length() * *dt;
        let error = |speed: f64| at_rest + plan.coupling.coupling_tolerance * speed;
        problem.list_contacts(candidates, surfaces, error);
        problem.list_facets(candidates, surfaces, error);
        problem.list_obstacles(candidates, obstacles, surfaces, self.participants.len(), error);
        // For probes: pairs that may touch in the step.
        detected.contacts.active.clear();
        detected.contacts.active.extend_from_slice(pairs);
        problem.facets.add_pairs(&mut detected.contacts.active);
        grouped.forest.set(candidates, &problem.offsets, &problem.members);
        (record.active, record.marked) = (problem.contacts.len() as u64, 0);
        record.projected |= grouped.distribute(&self.participants, &self.memory, &[]);
        self.instruments.count(Phase::Detect, start, 0.0);
    }

    /// Lets the participants integrate and solves for the impulses of the contacts. Repeats this until
    /// implicit participants answer the impulses as their models predict.
    fn solve_contacts(&mut self) -> Result<(), CoordinatorError> {
        let start = Instant::now();
        let kinds: Vec<Integration> = self.participants.iter().map(|participant| participant.kind).collect();
        let (settings, gravity) = (&self.setup.plan.coupling, self.setup.plan.domain.gravity.length());
        let Memory { candidates, warm_start, .. } = &mut self.memory;
        let Scratch { problem, grouped, velocities, record, stage, dt, .. } = &mut self.scratch;
        let (participants, instruments, time) =
            (&mut self.participants, &mut self.instruments, (*stage, *dt));
        let mut connections =
            Connections::new(&self.io, participants, instruments, candidates, grouped, velocities, time);
        let Connections { shares, dt, .. } = connections;
        let (fall, mut step) = (gravity * dt, Step { dt, acceleration: gravity, enough: 0.0 });
        problem.law.settings.precision = Precision {
            iterations_max: settings.contact_iterations_max,
            ..Precision::with_velocity(settings.contact_tolerance)
        };
        let mut exchange = ContactExchange::new(&kinds, shares);
        exchange.start(problem, &mut connections)?;
        problem.place_contacts(candidates);
        let (mut error, mut before) = (f64::INFINITY, f64::INFINITY);
        let (mut iterations, mut unconverged) = (0, 0);
        let (repetitions, disagreement) = loop {
            exchange.expect(problem);
            step.acceleration = gravity.max(problem.acceleration(step.dt));
            let wanted = settings.coupling_tolerance * exchange.speed.max(fall).max(f64::MIN_POSITIVE);
            if !exchange.secants.is_empty() {
                // At rest and without gravity the speed is 0, and a tenth of the wanted error is enough.
                step.enough = (FORCING * error).min(FORCING * exchange.speed.max(fall)).max(0.1 * wanted);
            }
            // Once an answer of the step has shown which contacts carry load, their impulses are a better guess.
            problem.law.settings.guesses_by_tree = exchange.repetitions == 0;
            let statistics = problem.solve(warm_start, step, exchange.repetitions > 0);
            iterations += u64::from(statistics.solve.iterations);
            unconverged += u32::from(!statistics.solve.converged);
            if exchange.secants.is_empty() {
                break (0, 0.0);
            }
            exchange.repetitions += 1;
            let is_last = exchange.repetitions >= settings.repetitions_max;
            let forcing = if is_last { 0.0 } else { next_forcing(error, before, LIKELY * wanted) };
            // Without an answer to impulses of this step, velocities are unknown to their own size.
            before = if exchange.repetitions == 1 { exchange.speed.max(fall) } else { error };
            error = exchange.repeat(problem, forcing, &mut connections)?;
            let is_enough = error <= wanted && step.enough <= 0.5 * wanted && forcing == 0.0;
            if is_enough || exchange.repetitions >= settings.repetitions_max {
                break (exchange.repetitions, settings.coupling_tolerance * error / wanted);
            }
        };
        let waited = connections.waited;
        exchange.finish(problem);
        let (dissipated, by_immovable) = (problem.dissipated(), problem.by_immovable());
        let momentum = exchange.given();
        record.repetitions += repetitions;
        record.iterations += iterations;
        record.unconverged = unconverged > 0;
        record.disagreement = record.disagreement.max(disagreement);
        (record.dissipated, record.by_immovable) = (dissipated, by_immovable);
        velocities.take_motion(problem, candidates, momentum);
        let Velocities { candidates: moving, members, travel, .. } = velocities;
        let moved = problem.members.iter().map(slice::from_ref).zip(members.iter().copied());
        *travel = move_members(candidates, moved, &grouped.assignments, dt, moving);
        self.instruments.count(Phase::Synchronise, start, waited);
        Ok(())
    }
}

impl Velocities {
    /// Takes over the motion after the contacts. No group is split, since each is one body.
    fn take_motion(&mut self, problem: &ContactProblem, candidates: &Candidates, momentum: Vec<Vec<DVec3>>) {
        let (count, bodies) = (problem.movable, &problem.bodies);
        self.synchronised = Synchronised {
            velocity: bodies.velocity[..count].to_vec(),
            spin: bodies.spin[..count].to_vec(),
            energy: vec![0.0; count],
            momentum,
            ..Synchronised::default()
        };
        self.members = problem.member_velocities(candidates);
    }
}
