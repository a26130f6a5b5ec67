//! Answers of the participants in a step under the contact law, and models of the response of implicit
//! participants, learned from their answers.

use amalgam_particles::{DMat3, DVec3, Spheres};
use amalgam_proto::contract::Integration;

use crate::error::CoordinatorError;
use crate::law::response::Response;
use crate::law::response::neighbours::Neighbours;
use crate::law::secant::Secant;
use crate::state::problem::ContactProblem;
use crate::step::exchange::Connections;
use crate::synchronise::{ADDED_MASS, Ask, FORCING, Share, StageRequest};

/// Weight of the mean error along the impulses. Such an error gives energy, while errors in all directions give none.
const ALONG: f64 = 4.0;

/// Answers of the participants in a step.
pub(super) struct ContactExchange<'a> {
    kinds: &'a [Integration],
    shares: &'a [Share],
    /// Velocity without contacts of each group of an explicit participant [m/s], by group.
    free: Vec<DVec3>,
    /// Spin without contacts of each group of an explicit participant [rad/s], by group.
    free_spin: Vec<DVec3>,
    /// Implicit participants that have groups, each with the model of its response.
    pub(super) secants: Vec<(usize, Secant)>,
    /// Impulse of the contacts on each group [kg m/s].
    impulse: Vec<DVec3>,
    /// The largest speed in the last answers of implicit participants [m/s].
    pub(super) speed: f64,
    pub(super) repetitions: u32,
}

impl<'a> ContactExchange<'a> {
    pub(super) fn new(kinds: &'a [Integration], shares: &'a [Share]) -> Self {
        Self {
            kinds,
            shares,
            free: Vec::new(),
            free_spin: Vec::new(),
            secants: Vec::new(),
            impulse: Vec::new(),
            speed: 0.0,
            repetitions: 0,
        }
    }

    /// Lets every participant integrate. Explicit participants get no impulse, implicit ones the impulse of
    /// the contacts in the last step. An answer J gives the velocity v + (J + J_ext)/m.
    pub(super) fn start(
        &mut self,
        problem: &mut ContactProblem,
        connections: &mut Connections<'_>,
    ) -> Result<(), CoordinatorError> {
        let velocity = problem.bodies.velocity.clone();
        self.free = velocity[..problem.movable].to_vec();
        self.free_spin = vec![DVec3::ZERO; problem.movable];
        self.impulse = vec![DVec3::ZERO; problem.movable];
        let is_explicit = |k: usize| self.kinds[k] == Integration::Explicit;
        let request = |participant: usize| {
            let share = &self.shares[participant];
            let (impulse, forcing) = match is_explicit(participant) {
                true => (vec![DVec3::ZERO; share.groups.len()], 0.0),
                // Without groups it is not asked again.
                false => (share.guess.clone(), if share.groups.is_empty() { 0.0 } else { FORCING }),
            };
            StageRequest { participant, inertia: share.mass.clone(), impulse, forcing }
        };
        let requests: Vec<StageRequest> = (0..self.shares.len()).map(request).collect();
        let answers = connections.ask(requests.clone())?;
        for (request, answer) in requests.into_iter().zip(answers) {
            let groups = &self.shares[request.participant].groups;
            if let Some(bodies) = &answer.bodies {
                for ((&group, body), &momentum) in groups.iter().zip(bodies).zip(&answer.momentum) {
                    let group = group as usize;
                    problem.take_body(group, body, momentum);
                    (self.free[group], self.free_spin[group]) = (body.velocity, body.spin);
                }
                continue;
            }
            let own = groups.iter().map(|&group| velocity[group as usize]);
            let moved = own.zip(&answer.momentum).zip(request.impulse.iter().zip(&request.inertia));
            let after: Vec<DVec3> = moved.map(|((v, j), (p, m))| v + (*j + *p) / *m).collect();
            if is_explicit(request.participant) {
                groups.iter().zip(&after).for_each(|(&group, &v)| self.free[group as usize] = v);
            } else if !groups.is_empty() {
                let slope = |(k, mass): (usize, &f64)| match self.kinds[request.participant] {
                    Integration::Projection => DMat3::from_diagonal(DVec3::splat(ADDED_MASS * *mass)),
                    _ => answer.slope_of(k),
                };
                let slopes: Vec<DMat3> = request.inertia.iter().enumerate().map(slope).collect();
                // D = (m + Z)^-1.
                let alone = |(slope, &mass): (&DMat3, &f64)| {
                    (*slope + DMat3::from_diagonal(DVec3::splat(mass))).inverse()
                };
                let mobility: Vec<DMat3> = slopes.iter().zip(&request.inertia).map(alone).collect();
                let neighbours = match self.kinds[request.participant] {
                    // The particles of a cell move almost as one: what one answers alone is not shared.
                    Integration::Projection => None,
                    _ => {
                        let (position, radius) = problem.particles(groups, connections.candidates);
                        let spheres = Spheres { position: &position, radius: &radius, class: None };
                        Neighbours::new(spheres, &slopes, &mobility)
                    }
                };
                self.speed = after.iter().map(|v| v.length()).fold(self.speed, f64::max);
                self.secants
                    .push((request.participant, Secant::new(mobility, neighbours, request.impulse, after)));
            }
        }
        Ok(())
    }

    /// Sets the velocities that bodies would have without contacts, and the models of their response.
    pub(super) fn expect(&self, problem: &mut ContactProblem) {
        let bodies = &mut problem.bodies;
        bodies.velocity[..problem.movable].copy_from_slice(&self.free);
        bodies.spin[..problem.movable].copy_from_slice(&self.free_spin);
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
        bodies.response = Response::Models(models);
        bodies.place_blends();
    }

    /// Gives the implicit participants the impulses of the contacts. Returns the largest difference between
    /// the answered velocities and the velocities that the models predict [m/s], or [`ALONG`] times its mean along the
    /// impulses if that is more.
    pub(super) fn repeat(
        &mut self,
        problem: &ContactProblem,
        forcing: f64,
        connections: &mut Connections<'_>,
    ) -> Result<f64, CoordinatorError> {
        self.impulse.fill(DVec3::ZERO);
        for (contact, &impulse) in problem.contacts.iter().zip(problem.law.impulses()) {
            for (side, impulse) in contact.bodies.into_iter().zip([-impulse, impulse]) {
                for (body, part) in problem.bodies.parts(side) {
                    if (body as usize) < problem.movable && part != 0.0 {
                        self.impulse[body as usize] += impulse * part;
                    }
                }
            }
        }
        let requests: Vec<StageRequest> =
            self.secants.iter().map(|(k, _)| self.request_of(*k, forcing)).collect();
        let answers = connections.ask(requests.clone())?;
        let (mut error, mut work, mut pushed) = (0.0f64, 0.0, 0.0);
        self.speed = 0.0;
        for ((request, answer), (_, secant)) in requests.into_iter().zip(answers).zip(&mut self.secants) {
            let groups = &self.shares[request.participant].groups;
            let moved = groups.iter().zip(&answer.momentum).zip(request.impulse.iter().zip(&request.inertia));
            let after: Vec<DVec3> =
                moved.map(|((&g, j), (p, m))| problem.start(g) + (*j + *p) / *m).collect();
            for ((&group, &v), impulse) in groups.iter().zip(&after).zip(&request.impulse) {
                let wrong = v - problem.bodies.velocity[group as usize];
                error = error.max(wrong.length());
                (work, pushed) = (work + impulse.dot(wrong), pushed + impulse.length());
                self.speed = self.speed.max(v.length());
            }
            secant.learn(request.impulse, after);
        }
        // Errors along the impulses give energy, or take it.
        let along = if pushed > 0.0 { work.abs() / pushed } else { 0.0 };
        Ok(error.max(ALONG * along))
    }

    /// The request with the impulses of the contacts.
    fn request_of(&self, participant: usize, forcing: f64) -> StageRequest {
        let share = &self.shares[participant];
        let impulse = share.groups.iter().map(|&group| self.impulse[group as usize]).collect();
        StageRequest { participant, inertia: share.mass.clone(), impulse, forcing }
    }

    /// Sets the velocities of implicit participants to their last answers.
    pub(super) fn finish(&self, problem: &mut ContactProblem) {
        for (k, secant) in &self.secants {
            for (&group, &velocity) in self.shares[*k].groups.iter().zip(secant.velocity()) {
                problem.bodies.velocity[group as usize] = velocity;
            }
        }
        problem.bodies.place_blends();
    }

    /// Impulse of the contacts on each group of each participant [kg m/s].
    pub(super) fn given(&self) -> Vec<Vec<DVec3>> {
        let of = |share: &Share| share.groups.iter().map(|&group| self.impulse[group as usize]).collect();
        self.shares.iter().map(of).collect()
    }
}
