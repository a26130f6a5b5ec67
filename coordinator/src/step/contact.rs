//! A step under the contact law: every particle near others is a group of its own, and one impulse per contact makes
//! the velocities right (`law.rs`).

use std::time::Instant;

use amalgam_particles::{DMat3, DVec3, Horizon, reduce};
use amalgam_proto::contract::Integration;

use super::exchange::Connections;
use super::scratch::{Memory, Scratch};
use crate::contacts::Candidates;
use crate::error::CoordinatorError;
use crate::law::Step;
use crate::law::bodies::{Bodies, InverseInertia};
use crate::law::contact::{Contact, ContactMaterial, Sphere, outruns, reach};
use crate::law::response::Response;
use crate::law::secant::Secant;
use crate::settings::{CouplingSettings, OWN_FRICTION};
use crate::simulation::Simulation;
use crate::synchronise::{ADDED_MASS, Ask, Share, Synchronised, Turn};

/// Contacts are looked for again at most this often for particles that contacts made faster.
const SEARCHES_MAX: u32 = 4;

/// The contacts of a step and the bodies that have them.
#[derive(Debug, Default)]
pub(super) struct ContactProblem {
    contacts: Vec<Contact>,
    bodies: Bodies,
    /// Candidates of the bodies: first those that can be moved, ascending, each a group of the same number.
    candidates: Vec<u32>,
    movable: usize,
    /// The body of each candidate, or [`NO_BODY`].
    body_of: Vec<u32>,
    /// Speed with which each candidate's contacts are looked for [m/s].
    speed: Vec<f64>,
}

/// As long as the model of a response errs, the contacts are solved for to this part of its error.
const FORCING: f64 = 0.05;

/// The part of its first residual that an implicit participant may leave in an answer to be followed by another.
const SOLVE_FORCING: f64 = 0.01;

const NO_BODY: u32 = u32::MAX;

/// Surfaces by pair of participants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surfaces {
    count: usize,
    materials: Vec<ContactMaterial>,
}

impl Surfaces {
    /// Reads `[[coupling.contact]]`.
    ///
    /// # Errors
    /// An entry that names no participant.
    pub(crate) fn new(settings: &CouplingSettings, names: &[String]) -> Result<Self, CoordinatorError> {
        let count = names.len();
        let mut materials = vec![ContactMaterial::default(); count * count];
        for k in 0..count {
            materials[k * count + k].friction = OWN_FRICTION;
        }
        for (at, entry) in settings.contact.iter().enumerate() {
            let find = |name: &String| {
                names.iter().position(|known| known == name).ok_or_else(|| {
                    CoordinatorError::Scene(format!(
                        "coupling.contact[{at}].between names {name:?}, but there are {}",
                        names.join(", ")
                    ))
                })
            };
            let (a, b) = (find(&entry.between[0])?, find(&entry.between[1])?);
            let material = ContactMaterial {
                friction: entry.friction,
                restitution: entry.restitution,
                ..ContactMaterial::default()
            };
            (materials[a * count + b], materials[b * count + a]) = (material, material);
        }
        Ok(Self { count, materials })
    }

    fn between(&self, a: u16, b: u16) -> ContactMaterial {
        self.materials[usize::from(a) * self.count + usize::from(b)]
    }
}

impl Simulation {
    /// Finds the velocities at the end of the step.
    pub(super) fn contact(&mut self) -> Result<(), CoordinatorError> {
        let Memory { candidates, finder, margin, .. } = &mut self.memory;
        if self.scratch.listed || !self.plan.coupling.interest_mask {
            finder.list(candidates, margin);
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

    /// Starts from the speeds at the start of the step, and what gravity adds; a particle that another may hit may become
    /// as fast as that. Of the participants' own pairs, those are left that may touch in this very step.
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
        let Scratch { own, problem, forest, response, marked, record, dt, contacts: seen, .. } =
            &mut self.scratch;
        let speed = &problem.speed;
        let pairs = finder.within(candidates, own, |i| reach(speed[i as usize], *dt));
        // For probes: pairs that may touch in the step.
        seen.active.clear();
        seen.active.extend_from_slice(pairs);
        let (contacts, bodies) = (&mut problem.contacts, &mut problem.bodies);
        problem.body_of.clear();
        problem.body_of.resize(candidates.len(), NO_BODY);
        pairs.iter().flat_map(|&(i, j)| [i, j]).for_each(|i| problem.body_of[i as usize] = 0);
        problem.candidates.clear();
        let near = (0..candidates.len() as u32).filter(|&i| problem.body_of[i as usize] == 0);
        let (movable, immovable): (Vec<u32>, Vec<u32>) = near.partition(|&i| !candidates.is_immovable(i));
        problem.movable = movable.len();
        problem.candidates.extend(movable.iter().chain(&immovable));
        bodies.clear();
        for (body, &i) in problem.candidates.iter().enumerate() {
            problem.body_of[i as usize] = body as u32;
            let velocity = candidates.velocity[i as usize];
            bodies.push(1.0 / candidates.mass[i as usize], InverseInertia::None, velocity, DVec3::ZERO);
        }
        contacts.clear();
        contacts.extend(pairs.iter().map(|&(i, j)| {
            let sphere = |i: u32| Sphere {
                name: candidates.global_id(i),
                body: problem.body_of[i as usize],
                centre: candidates.position[i as usize],
                offset: DVec3::ZERO,
                radius: candidates.radius[i as usize],
            };
            let [a, b] = [i, j].map(|i| candidates.participant[i as usize]);
            Contact::between_spheres(&sphere(i), &sphere(j), bodies, self.surfaces.between(a, b))
        }));
        response.members.clone_from(&movable);
        response.velocity.clear();
        response.velocity.extend(movable.iter().map(|&i| candidates.velocity[i as usize]));
        response.impulse.clear();
        response.impulse.resize(movable.len(), DVec3::ZERO);
        forest.keep_apart(candidates, response);
        marked.clear();
        (record.active, record.marked) = (contacts.len() as u64, 0);
        self.distribute();
        self.instruments.profile.detect += start.elapsed().as_secs_f64();
    }

    /// Lets the participants integrate and solves for the impulses, until implicit participants answer these as
    /// expected.
    fn solve_contacts(&mut self) -> Result<(), CoordinatorError> {
        let start = Instant::now();
        let kinds: Vec<Integration> = self.members.iter().map(|member| member.kind).collect();
        let occupied = self.occupied();
        let Memory { candidates, law, .. } = &mut self.memory;
        let Scratch { forest, shares, assignments, velocity, problem, stage, dt, .. } = &mut self.scratch;
        velocity.clone_from(&candidates.velocity);
        let gravity = self.plan.domain.gravity.length();
        let (fall, mut step) = (gravity * *dt, Step { dt: *dt, acceleration: gravity, enough: 0.0 });
        let mut connections = Connections {
            io: &self.io,
            members: &mut self.members,
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
        let mut exchange = Exchange::new(&kinds, shares);
        exchange.start(problem, &mut connections)?;
        let settings = &self.plan.coupling;
        let (mut error, mut before) = (f64::INFINITY, f64::INFINITY);
        let (mut iterations, mut unconverged) = (0, 0);
        let (repetitions, disagreement) = loop {
            exchange.expect(problem);
            step.acceleration = gravity.max(problem.acceleration(connections.candidates, step.dt));
            let wanted = settings.coupling_tolerance * exchange.speed.max(fall).max(f64::MIN_POSITIVE);
            if !exchange.secants.is_empty() {
                step.enough = (FORCING * error).clamp(0.1 * wanted, FORCING * exchange.speed.max(fall));
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
            let is_last = expected <= wanted || exchange.repetitions >= settings.coupling_iterations;
            let forcing = if is_last { 0.0 } else { SOLVE_FORCING };
            before = error;
            error = exchange.repeat(problem, law.impulses(), forcing, &mut connections)?;
            let is_enough = error <= wanted && step.enough <= 0.5 * wanted && is_last;
            if is_enough || exchange.repetitions >= settings.coupling_iterations {
                break (exchange.repetitions, settings.coupling_tolerance * error / wanted);
            }
        };
        let waited = connections.waited;
        exchange.finish(problem);
        let dissipated = problem.dissipated(candidates, law.impulses());
        let (count, momentum) = (problem.movable, exchange.given());
        let scratch = &mut self.scratch;
        scratch.record.repetitions += repetitions;
        scratch.record.iterations += iterations;
        scratch.record.unconverged = unconverged > 0;
        scratch.record.disagreement = scratch.record.disagreement.max(disagreement);
        scratch.record.dissipated = dissipated;
        scratch.synchronised = Synchronised {
            velocity: scratch.problem.bodies.velocity[..count].to_vec(),
            energy: vec![0.0; count],
            momentum,
            ..Synchronised::default()
        };
        scratch.member_velocity.clone_from(&scratch.synchronised.velocity);
        scratch.move_groups(&self.memory.candidates);
        let profile = &mut self.instruments.profile;
        profile.integrate(1, waited);
        profile.synchronise += start.elapsed().as_secs_f64() - waited;
        Ok(())
    }
}

impl ContactProblem {
    /// Takes the speeds that came out where they are beyond what was expected; says whether any is.
    fn expect_more(&mut self, velocity: &[DVec3]) -> bool {
        let mut more = false;
        for (body, &i) in self.candidates.iter().enumerate() {
            let speed = velocity[i as usize].length();
            if body < self.movable && outruns(self.speed[i as usize], speed) {
                self.speed[i as usize] = speed;
                more = true;
            }
        }
        more
    }

    /// Acceleration of the bodies without contacts [m/s^2], as the root of the mean of squares.
    fn acceleration(&self, candidates: &Candidates, dt: f64) -> f64 {
        let change = |body: usize| {
            let before = candidates.velocity[self.candidates[body] as usize];
            (self.bodies.velocity[body] - before).length_squared()
        };
        let mean = reduce::sum(self.movable, 0.0, change) / self.movable.max(1) as f64;
        mean.sqrt() / dt
    }

    /// Energy that the contacts took [J]: minus the work of their impulses, each over the mean of the relative
    /// velocities before and after the step.
    fn dissipated(&self, candidates: &Candidates, impulses: &[DVec3]) -> f64 {
        let before = |body: u32| candidates.velocity[self.candidates[body as usize] as usize];
        let works = self.contacts.iter().zip(impulses).map(|(contact, impulse)| {
            let [i, j] = contact.bodies;
            let after = |body: u32| self.bodies.velocity[body as usize];
            0.5 * impulse.dot(before(j) + after(j) - before(i) - after(i))
        });
        -works.sum::<f64>()
    }
}

/// What the participants have answered in a step.
struct Exchange<'a> {
    kinds: &'a [Integration],
    shares: &'a [Share],
    /// Velocity without contacts of the groups of explicit participants [m/s], by group.
    free: Vec<DVec3>,
    /// Each implicit participant that has groups, and its response.
    secants: Vec<(usize, Secant)>,
    /// Impulse of the contacts on each group [kg m/s].
    impulse: Vec<DVec3>,
    /// The largest speed in the last answers of implicit participants [m/s].
    speed: f64,
    repetitions: u32,
}

impl<'a> Exchange<'a> {
    fn new(kinds: &'a [Integration], shares: &'a [Share]) -> Self {
        Self {
            kinds,
            shares,
            free: Vec::new(),
            secants: Vec::new(),
            impulse: Vec::new(),
            speed: 0.0,
            repetitions: 0,
        }
    }

    /// Lets every participant integrate, implicit ones with the impulses of the last step.
    fn start(
        &mut self,
        problem: &ContactProblem,
        connections: &mut Connections<'_>,
    ) -> Result<(), CoordinatorError> {
        let velocity = &problem.bodies.velocity;
        self.free = velocity[..problem.movable].to_vec();
        self.impulse = vec![DVec3::ZERO; problem.movable];
        let is_explicit = |k: usize| self.kinds[k] == Integration::Explicit;
        let turn = |participant: usize| {
            let share = &self.shares[participant];
            let impulse = match is_explicit(participant) {
                true => vec![DVec3::ZERO; share.groups.len()],
                false => share.guess.clone(),
            };
            Turn { participant, inertia: share.mass.clone(), impulse, forcing: 0.0 }
        };
        let turns: Vec<Turn> = (0..self.shares.len()).map(turn).collect();
        let answers = connections.ask(turns.clone())?;
        for (turn, answer) in turns.into_iter().zip(answers) {
            let groups = &self.shares[turn.participant].groups;
            let own = groups.iter().map(|&group| velocity[group as usize]);
            let moved = own.zip(&answer.momentum).zip(turn.impulse.iter().zip(&turn.inertia));
            let after: Vec<DVec3> = moved.map(|((v, j), (p, m))| v + (*j + *p) / *m).collect();
            if is_explicit(turn.participant) {
                groups.iter().zip(&after).for_each(|(&group, &v)| self.free[group as usize] = v);
            } else if !groups.is_empty() {
                let mobility = |(k, &mass): (usize, &f64)| {
                    let slope = match self.kinds[turn.participant] {
                        Integration::Projection => DMat3::from_diagonal(DVec3::splat(ADDED_MASS * mass)),
                        _ => answer.slope[k],
                    };
                    (slope + DMat3::from_diagonal(DVec3::splat(mass))).inverse()
                };
                let mobility = turn.inertia.iter().enumerate().map(mobility).collect();
                self.speed = after.iter().map(|v| v.length()).fold(self.speed, f64::max);
                self.secants.push((turn.participant, Secant::new(mobility, turn.impulse, after)));
            }
        }
        Ok(())
    }

    /// Sets the velocities that the bodies have without contacts, and the responses.
    fn expect(&self, problem: &mut ContactProblem) {
        let bodies = &mut problem.bodies;
        bodies.velocity[..problem.movable].copy_from_slice(&self.free);
        let mut models = Vec::new();
        if !self.secants.is_empty() {
            let alike = |&inverse_mass: &f64| DMat3::from_diagonal(DVec3::splat(inverse_mass));
            bodies.mobility = bodies.inverse_mass.iter().map(alike).collect();
        }
        for (k, secant) in &self.secants {
            let groups = &self.shares[*k].groups;
            let model = secant.model(groups.clone());
            let free = secant.free(&model);
            for ((&group, free), mobility) in groups.iter().zip(free).zip(secant.mobility()) {
                bodies.velocity[group as usize] = free;
                bodies.mobility[group as usize] = *mobility;
            }
            models.push(model);
        }
        bodies.response = Response::LowRank(models);
    }

    /// Gives the implicit participants the impulses of the contacts. Returns the largest difference between their
    /// answers and what was expected of them [m/s].
    fn repeat(
        &mut self,
        problem: &ContactProblem,
        impulses: &[DVec3],
        forcing: f64,
        connections: &mut Connections<'_>,
    ) -> Result<f64, CoordinatorError> {
        self.impulse.fill(DVec3::ZERO);
        for (contact, &impulse) in problem.contacts.iter().zip(impulses) {
            let [i, j] = contact.bodies.map(|body| body as usize);
            if i < problem.movable {
                self.impulse[i] -= impulse;
            }
            if j < problem.movable {
                self.impulse[j] += impulse;
            }
        }
        let turns: Vec<Turn> = self.secants.iter().map(|(k, _)| self.turn(*k, forcing)).collect();
        let answers = connections.ask(turns.clone())?;
        let start = |group: u32| connections.candidates.velocity[problem.candidates[group as usize] as usize];
        let mut error = 0.0f64;
        self.speed = 0.0;
        for ((turn, answer), (_, secant)) in turns.into_iter().zip(answers).zip(&mut self.secants) {
            let groups = &self.shares[turn.participant].groups;
            let moved = groups.iter().zip(&answer.momentum).zip(turn.impulse.iter().zip(&turn.inertia));
            let after: Vec<DVec3> = moved.map(|((&g, j), (p, m))| start(g) + (*j + *p) / *m).collect();
            for (&group, &v) in groups.iter().zip(&after) {
                error = error.max((v - problem.bodies.velocity[group as usize]).length());
                self.speed = self.speed.max(v.length());
            }
            secant.learn(turn.impulse, after);
        }
        Ok(error)
    }

    fn turn(&self, participant: usize, forcing: f64) -> Turn {
        let share = &self.shares[participant];
        let impulse = share.groups.iter().map(|&group| self.impulse[group as usize]).collect();
        Turn { participant, inertia: share.mass.clone(), impulse, forcing }
    }

    /// Implicit participants move as they answered.
    fn finish(&self, problem: &mut ContactProblem) {
        for (k, secant) in &self.secants {
            for (&group, &velocity) in self.shares[*k].groups.iter().zip(secant.velocity()) {
                problem.bodies.velocity[group as usize] = velocity;
            }
        }
    }

    /// Impulse of the contacts on each group of each participant [kg m/s].
    fn given(&self) -> Vec<Vec<DVec3>> {
        let of = |share: &Share| share.groups.iter().map(|&group| self.impulse[group as usize]).collect();
        self.shares.iter().map(of).collect()
    }
}
