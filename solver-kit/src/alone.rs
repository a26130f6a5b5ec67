//! A solver without a coordinator: for tests, benchmarks and validation.

pub(crate) mod rank_speed;

use amalgam_particles::{DVec3, GroupMap, Particles, StepEnd};

use crate::error::SolverError;
use crate::joined::Members;
use crate::solver::{Answer, Report, Request, Solver};
use amalgam_ranks::Ranks;

/// Groups of a solver's particles, with the numbers that a coordinator would send with them.
#[derive(Clone, Debug, Default)]
pub struct AloneGroups {
    /// The members.
    pub map: GroupMap,
    /// Inertia of each group [kg].
    pub inertia: Vec<f64>,
    /// Velocity of each group at the start of the step [m/s].
    pub velocity: Vec<DVec3>,
    /// Impulse that others give each group in the step [kg m/s].
    pub impulse: Vec<DVec3>,
}

impl AloneGroups {
    /// No groups of `particles` particles.
    pub fn none(particles: usize) -> Self {
        Self { map: GroupMap::none(particles), ..Self::default() }
    }

    /// A group for every particle, of its own mass and velocity; held ones have infinite inertia.
    pub fn each(particles: &Particles) -> Self {
        let (count, all) = (particles.len(), Vec::from_iter(0..=particles.len() as u32));
        let mut map = GroupMap::default();
        map.set(count, &all, &all[..count]);
        let columns = particles.mass.iter().zip(&particles.immovable);
        let inertia = columns.map(|(&mass, &held)| if held { f64::INFINITY } else { mass }).collect();
        Self::new(map, inertia, particles.velocity.clone())
    }

    /// A single group of some of `particles` particles.
    pub fn one(particles: usize, members: &[u32], inertia: f64, velocity: DVec3, impulse: DVec3) -> Self {
        let mut map = GroupMap::default();
        map.set(particles, &[0, members.len() as u32], members);
        Self { map, inertia: vec![inertia], velocity: vec![velocity], impulse: vec![impulse] }
    }

    /// Groups without impulses of others.
    pub fn new(map: GroupMap, inertia: Vec<f64>, velocity: Vec<DVec3>) -> Self {
        let impulse = vec![DVec3::ZERO; map.len()];
        Self { map, inertia, velocity, impulse }
    }
}

/// Drives a solver through steps as a coordinator would.
#[derive(Clone, Debug, Default)]
pub struct Alone {
    /// The last answer.
    pub answer: Answer,
    /// Steps committed.
    step: u64,
    /// Stages of this step so far.
    stage: u32,
}

impl Alone {
    /// Asks for the next stage of a step of `dt` [s], with new groups. An iterative solver may stop when its
    /// residual has fallen to `forcing` times the first one; 0 asks for its own tolerance.
    ///
    /// # Errors
    /// The solver's.
    pub fn integrate<S: Solver + ?Sized>(
        &mut self,
        solver: &mut S,
        (groups, forcing): (&AloneGroups, f64),
        dt: f64,
    ) -> Result<&Answer, SolverError> {
        self.stage += 1;
        let count = groups.map.len();
        let velocities = if solver.deferred().is_some() { 0 } else { solver.particles().len() };
        let Answer { momentum, slope, velocity, bodies } = &mut self.answer;
        bodies.clear();
        momentum.clear();
        momentum.resize(count, DVec3::ZERO);
        slope.clear();
        velocity.clear();
        velocity.resize(velocities, DVec3::ZERO);
        let stage = Request {
            step: self.step,
            stage: self.stage,
            repetition: 0,
            dt,
            forcing,
            groups: &groups.map,
            members: Members { ranks: &Ranks::alone(), number: &[], offsets: groups.map.offsets() },
            inertia: &groups.inertia,
            velocity: &groups.velocity,
            impulse: &groups.impulse,
            occupied: None,
        };
        solver.integrate(&stage, &mut self.answer)?;
        Ok(&self.answer)
    }

    /// Velocity of each group after the last stage [m/s]: it moves by the momentum that the solver and others
    /// gave it.
    pub fn group_velocities(&self, groups: &AloneGroups) -> Vec<DVec3> {
        let AloneGroups { map, inertia, velocity, impulse } = groups;
        let of = |g: usize| velocity[g] + (self.answer.momentum[g] + impulse[g]) / inertia[g];
        (0..map.len()).map(of).collect()
    }

    /// Ends the step: groups take these velocities [m/s], and members that of their group.
    ///
    /// # Errors
    /// The solver's.
    pub fn commit<S: Solver + ?Sized>(
        &mut self,
        solver: &mut S,
        (groups, velocity): (&AloneGroups, &[DVec3]),
        dt: f64,
    ) -> Result<Report, SolverError> {
        let map = &groups.map;
        let members: Vec<DVec3> =
            (0..map.len()).flat_map(|g| map.members(g).iter().map(move |_| velocity[g])).collect();
        let end =
            StepEnd { dt, groups: map, group_velocity: velocity, member_velocity: &members, group_spin: &[] };
        (self.step, self.stage) = (self.step + 1, 0);
        solver.commit(&end, &self.answer.velocity)
    }

    /// A whole step of one stage: groups move by the momentum that the solver and others give them.
    ///
    /// # Errors
    /// The solver's.
    pub fn step<S: Solver + ?Sized>(
        &mut self,
        solver: &mut S,
        groups: &AloneGroups,
        dt: f64,
    ) -> Result<Report, SolverError> {
        solver.begin()?;
        self.integrate(solver, (groups, 0.0), dt)?;
        let velocity = self.group_velocities(groups);
        self.commit(solver, (groups, &velocity), dt)
    }

    /// A whole step without groups.
    ///
    /// # Errors
    /// The solver's.
    pub fn step_free<S: Solver + ?Sized>(&mut self, solver: &mut S, dt: f64) -> Result<Report, SolverError> {
        let groups = AloneGroups::none(solver.particles().len());
        self.step(solver, &groups, dt)
    }
}
