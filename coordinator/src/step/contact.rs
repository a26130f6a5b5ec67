//! A step under the contact law: one impulse per contact makes the velocities right (`law.rs`). Every
//! particle near others is a group of its own, or the part of a body's group that is near others.

mod exchange;

use std::time::Instant;

use amalgam_particles::{DVec3, Horizon, ParticleId};
use amalgam_proto::contract::Integration;

use super::exchange::Connections;
use crate::contacts::Candidates;
use crate::error::CoordinatorError;
use crate::instruments::clocks::Phase;
use crate::law::Step;
use crate::law::contact::reach;
use crate::simulation::Simulation;
use crate::state::scratch::{Memory, Scratch};
use crate::synchronise::Synchronised;
use exchange::ContactExchange;

/// Contacts are looked for again at most this often for particles that contacts made faster.
const SEARCHES_MAX: u32 = 4;

/// Tolerance of the contacts relative to the error of the response's model, as long as the model errs.
const FORCING: f64 = 0.05;

/// The part of its first residual that an implicit participant may leave in an answer to be followed by
/// another.
const SOLVE_FORCING: f64 = 0.01;

impl Simulation {
    /// Finds the velocities at the end of the step.
    pub(super) fn contact(&mut self) -> Result<(), CoordinatorError> {
        let Memory { candidates, finder, margin, .. } = &mut self.memory;
        if self.scratch.listed || !self.plan.coupling.interest_mask {
            finder.list(candidates, margin);
            self.list_near_obstacles();
        }
        self.expect_speeds();
        for search in 1.. {
            self.list_contacts();
            self.solve_contacts()?;
            if self.travels_too_far() {
                self.shorten_step()?;
            } else if search >= SEARCHES_MAX || !self.scratch.problem.expect_more(&self.scratch.velocity) {
                break;
            }
        }
        Ok(())
    }

    /// Lists the particles near obstacles, with what the participants were asked for in reserve.
    fn list_near_obstacles(&mut self) {
        let Memory { candidates, margin, near_obstacles, .. } = &mut self.memory;
        near_obstacles.clear();
        if self.obstacles.is_empty() {
            return;
        }
        let is_near = |i: usize| {
            let reach = candidates.radius[i] * (1.0 + margin[usize::from(candidates.participant[i])]);
            let beside = |surface| self.obstacles.beside(surface, candidates.position[i]).distance;
            (0..self.obstacles.len()).any(|surface| beside(surface) < reach)
        };
        let near = (0..candidates.len()).filter(|&i| is_near(i));
        near_obstacles.extend(near.map(|i| (candidates.participant[i], candidates.id[i])));
    }

    /// The particles of a participant that were near others or obstacles, ascending.
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

    /// Starts from the speeds at the start of the step, and what gravity adds; a particle that another may
    /// hit may become as fast as that. Of the participants' own pairs, those are left that may touch in this
    /// very step.
    fn expect_speeds(&mut self) {
        let horizon = Horizon { time: self.scratch.dt, acceleration: self.plan.domain.gravity.length() };
        let Memory { candidates, finder, .. } = &mut self.memory;
        let Scratch { own, problem, dt, .. } = &mut self.scratch;
        let before: Vec<f64> = candidates.velocity.iter().map(|&velocity| horizon.speed(velocity)).collect();
        if !own.is_empty() {
            let mut speed = before.clone();
            horizon.foresee(own, |i, j| candidates.gap(i, j), &mut speed);
            own.retain(|&(i, j)| horizon.meets(candidates.gap(i, j), [speed[i as usize], speed[j as usize]]));
        }
        problem.speed.clone_from(&before);
        for &(i, j) in finder.within(candidates, own, |i| reach(before[i as usize], *dt)) {
            let (i, j) = (i as usize, j as usize);
            problem.speed[i] = problem.speed[i].max(before[j]);
            problem.speed[j] = problem.speed[j].max(before[i]);
        }
    }

    /// Lists the pairs that may touch in the step, and makes their particles bodies and groups.
    fn list_contacts(&mut self) {
        let start = Instant::now();
        let Memory { candidates, finder, .. } = &mut self.memory;
        let Scratch { own, problem, forest, marked, record, dt, contacts: seen, .. } = &mut self.scratch;
        let speed = problem.speed.clone();
        let speed_of = |i: u32| speed[i as usize];
        let pairs = finder.within(candidates, own, |i| reach(speed_of(i), *dt));
        problem.list_beside(candidates, &self.obstacles, |i| reach(speed_of(i), *dt));
        problem.list_bodies(candidates, pairs, &self.members);
        problem.list_contacts(candidates, pairs, &self.surfaces);
        problem.list_obstacles(candidates, &self.obstacles, &self.surfaces, self.members.len());
        // For probes: pairs that may touch in the step.
        seen.active.clear();
        seen.active.extend_from_slice(pairs);
        forest.set(candidates, &problem.offsets, &problem.members);
        marked.clear();
        (record.active, record.marked) = (problem.contacts.len() as u64, 0);
        self.distribute();
        self.instruments.count(Phase::Detect, start, 0.0);
    }

    /// Lets the participants integrate and solves for the impulses, until implicit participants answer these
    /// as expected.
    fn solve_contacts(&mut self) -> Result<(), CoordinatorError> {
        let start = Instant::now();
        let kinds: Vec<Integration> = self.members.iter().map(|member| member.kind).collect();
        let occupied = self.occupied();
        let Memory { candidates, law, .. } = &mut self.memory;
        let Scratch { forest, shares, assignments, velocity, problem, contacts: seen, stage, dt, .. } =
            &mut self.scratch;
        velocity.clone_from(&candidates.velocity);
        let gravity = self.plan.domain.gravity.length();
        let (fall, mut step) = (gravity * *dt, Step { dt: *dt, acceleration: gravity, enough: 0.0 });
        let mut connections = Connections {
            io: &self.io,
            members: &mut self.members,
            instruments: &mut self.instruments,
            candidates,
            forest,
            shares,
            assignments,
            velocity,
            occupied,
            stage: *stage,
            dt: *dt,
            waited: 0.0,
        };
        let mut exchange = ContactExchange::new(&kinds, shares);
        exchange.start(problem, &mut connections)?;
        problem.place_contacts(connections.candidates, &seen.active);
        let settings = &self.plan.coupling;
        let (mut error, mut before) = (f64::INFINITY, f64::INFINITY);
        let (mut iterations, mut unconverged) = (0, 0);
        let (repetitions, disagreement) = loop {
            exchange.expect(problem);
            step.acceleration = gravity.max(problem.acceleration(step.dt));
            let wanted = settings.coupling_tolerance * exchange.speed.max(fall).max(f64::MIN_POSITIVE);
            if !exchange.secants.is_empty() {
                // At rest and without gravity there is no speed to compare with.
                step.enough = (FORCING * error).min(FORCING * exchange.speed.max(fall)).max(0.1 * wanted);
            }
            let statistics = law.solve(&mut problem.bodies, &problem.contacts, step);
            iterations += u64::from(statistics.solve.iterations);
            unconverged += u32::from(!statistics.solve.converged);
            if exchange.secants.is_empty() {
                break (0, 0.0);
            }
            exchange.repetitions += 1;
            // An answer that will be followed by another need not be whole.
            let expected = error * error / before;
            let is_last = expected <= wanted || exchange.repetitions >= settings.repetitions_max;
            let forcing = if is_last { 0.0 } else { SOLVE_FORCING };
            before = error;
            error = exchange.repeat(problem, law.impulses(), forcing, &mut connections)?;
            let is_enough = error <= wanted && step.enough <= 0.5 * wanted && is_last;
            if is_enough || exchange.repetitions >= settings.repetitions_max {
                break (exchange.repetitions, settings.coupling_tolerance * error / wanted);
            }
        };
        let waited = connections.waited;
        exchange.finish(problem);
        let (dissipated, by_immovable) = (problem.dissipated(law), problem.by_immovable(law));
        let momentum = exchange.given();
        let scratch = &mut self.scratch;
        scratch.record.repetitions += repetitions;
        scratch.record.iterations += iterations;
        scratch.record.unconverged = unconverged > 0;
        scratch.record.disagreement = scratch.record.disagreement.max(disagreement);
        (scratch.record.dissipated, scratch.record.by_immovable) = (dissipated, by_immovable);
        scratch.take_motion(&self.memory.candidates, momentum);
        self.instruments.count(Phase::Synchronise, start, waited);
        Ok(())
    }
}

impl Scratch {
    /// Takes the motion that came out of the contacts, and finds how far any particle travels, relative to
    /// its radius.
    fn take_motion(&mut self, candidates: &Candidates, momentum: Vec<Vec<DVec3>>) {
        let Self { problem, synchronised, member_velocity, velocity, assignments, dt, .. } = self;
        let (count, bodies) = (problem.movable, &problem.bodies);
        *synchronised = Synchronised {
            velocity: bodies.velocity[..count].to_vec(),
            spin: bodies.spin[..count].to_vec(),
            energy: vec![0.0; count],
            momentum,
            ..Synchronised::default()
        };
        *member_velocity = problem.member_velocities(candidates);
        let mut travel = assignments.iter().map(|assignment| assignment.travel).fold(0.0, f64::max);
        for (&i, &moved) in problem.members.iter().zip(&*member_velocity) {
            velocity[i as usize] = moved;
            travel = f64::max(travel, moved.length() * *dt / candidates.radius[i as usize]);
        }
        self.travel = travel;
    }
}
