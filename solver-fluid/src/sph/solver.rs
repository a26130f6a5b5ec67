//! The SPH solver: sub-steps, groups, commit.

use amalgam_particles::{DVec3, GroupMap, NO_GROUP, ParticleId, Particles, StepEnd, lanes::Width};
use amalgam_solver_kit::{Answer, Deferred, Field, FieldValues, Report, Solver, SolverError, Stage};
use rayon::prelude::*;

use super::{
    Parameters,
    evaluation::Evaluation,
    guard::Guard,
    snapshot::{self, Progress},
    sources::{Changes, Sources},
    walls::Walls,
};
use crate::section::SUBSTEPS_MAX;
use crate::substeps::{BeforeLast, fastest};

/// How much longer than the stable time step a sub-step may be before there is one more: fluid that gets faster or
/// denser within a step shall not double the work, and the default Courant number leaves room for more than this (a
/// dam break is stable at 2.5 times that number).
const SUBSTEP_TOLERANCE: f64 = 0.25;
/// Particles of one task in loops over particles.
const CHUNK: usize = 4096;

/// Steps after which particles are stored anew in the order of their cells, so that what is near in space is near in
/// memory. In between, a particle moves by a few cells at most (`cfl` over ten cells a step).
const STORAGE_PERIOD: u64 = 64;

/// An SPH fluid as a participant.
pub struct Sph {
    parameters: Parameters,
    particles: Particles,
    /// At the state at the start of the step; the first sub-step's forces.
    start: Evaluation,
    /// At later sub-steps; unused while steps have one.
    later: Evaluation,
    /// Longest stable sub-step [s] at the start of the step.
    stable_substep: f64,
    /// Energy of compression [J] at the start of the step.
    compression_energy: f64,
    before: BeforeLast,
    /// Largest speed at the start of the step [m/s].
    speed_max: f64,
    /// The last sub-step.
    substep: Substep,
    /// Bound of the speed of free particles after it [m/s].
    speed_bound: f64,
    /// Steps committed.
    steps: u64,
    sources: Sources,
    guard: Guard,
}

impl Sph {
    /// A fluid of equal particles.
    pub fn new(parameters: Parameters, particles: Particles) -> Self {
        Self::with_width(parameters, particles, Width::of_machine())
    }

    /// The same with loops of a given vector width, on which results do not depend.
    pub fn with_width(parameters: Parameters, particles: Particles, width: Width) -> Self {
        let sources = parameters.sources.clone();
        let mut solver = Self {
            sources,
            parameters,
            particles,
            start: Evaluation::with_width(width),
            later: Evaluation::with_width(width),
            stable_substep: 0.0,
            compression_energy: 0.0,
            before: BeforeLast::default(),
            speed_max: 0.0,
            substep: Substep { first: true, dt: 0.0, passed: 0.0 },
            speed_bound: 0.0,
            steps: 0,
            guard: Guard::default(),
        };
        solver.start.find_densities(
            &solver.parameters,
            &solver.particles.position,
            &solver.particles.velocity,
        );
        solver.find_speed();
        solver
    }

    /// Pairs of particle and candidate that the loops over pairs of the last step went through, of densities and of forces, per
    /// particle.
    pub fn pairs_per_particle(&self) -> [f64; 2] {
        self.start.pairs().map(|pairs| pairs as f64 / self.particles.len() as f64)
    }

    /// The largest committed speed, and the longest stable sub-step for it and the densities found last.
    fn find_speed(&mut self) {
        self.set_speed(fastest(&self.particles.velocity));
    }

    fn set_speed(&mut self, speed: f64) {
        let sound_speed = self.parameters.state.local_sound_speed(self.start.largest_compression());
        self.speed_max = speed;
        self.stable_substep = self.parameters.stable_substep(speed, sound_speed);
    }

    fn substeps(&self, dt: f64) -> Result<u32, SolverError> {
        let substeps = (dt / self.stable_substep - SUBSTEP_TOLERANCE).ceil().max(1.0);
        if substeps > f64::from(SUBSTEPS_MAX) {
            return Err(SolverError(format!(
                "a step of {dt:e} s would need {substeps} sub-steps of {:e} s, more than {SUBSTEPS_MAX}: the fluid is \
                 too fast or too dense for this step",
                self.stable_substep
            )));
        }
        Ok(substeps as u32)
    }

    /// The accelerations of the last sub-step.
    fn evaluation(&self) -> &Evaluation {
        if self.substep.first { &self.start } else { &self.later }
    }

    fn advance(&self) -> Advance<'_> {
        let Parameters { gravity, walls, .. } = self.parameters;
        Advance { evaluation: self.evaluation(), gravity, walls, dt: self.substep.dt }
    }

    /// Ends the last sub-step for all free particles: the new velocity carries them.
    fn travel(&self, groups: &GroupMap, position: &mut [DVec3], velocity: &mut [DVec3]) -> Extremes {
        let (group_of, advance) = (groups.group_of(), self.advance());
        let travel = |(c, (positions, velocities)): (usize, (&mut [DVec3], &mut [DVec3]))| {
            let mut extremes = Extremes::default();
            let group_of = &group_of[c * CHUNK..][..positions.len()];
            for (k, (position, velocity)) in positions.iter_mut().zip(velocities).enumerate() {
                if group_of[k] == NO_GROUP {
                    let free = advance.velocity(c * CHUNK + k, *position, *velocity);
                    let end = *position + advance.dt * free;
                    extremes.include(end, free);
                    (*position, *velocity) = (end, free);
                }
            }
            extremes
        };
        let chunks = position.par_chunks_mut(CHUNK).zip(velocity.par_chunks_mut(CHUNK)).enumerate();
        chunks.map(travel).reduce(Extremes::default, Extremes::joined)
    }

    /// Ends a sub-step that is not the last: free particles are advanced, members move with their group.
    fn pass_substep(&mut self, stage: &Stage<'_>) {
        let (mut position, mut velocity) = self.before.take(&self.particles);
        let mut extremes = self.travel(stage.groups, &mut position, &mut velocity);
        for group in 0..stage.groups.len() {
            let with_group = self.substep.group_velocity(stage, group);
            for &member in stage.groups.members(group) {
                velocity[member as usize] = with_group;
                position[member as usize] += self.substep.dt * with_group;
                extremes.include(position[member as usize], with_group);
            }
        }
        self.speed_bound = extremes.speed_squared.sqrt();
        self.before.put((position, velocity));
    }

    /// Removes and appends particles at the end of a step.
    fn pass_sources(&mut self, dt: f64) -> Changes {
        if self.sources.is_empty() {
            return Changes::default();
        }
        let Parameters { spacing, mass, radius, .. } = self.parameters;
        let changes = self.sources.pass(dt, spacing, (mass, radius), &mut self.particles);
        if changes != Changes::default() {
            self.find_speed();
        }
        changes
    }

    /// Stores particles in the order of the cells they were in at the start of the step.
    fn sort_storage(&mut self) {
        fn sort<T: Copy + Send + Sync>(column: &mut Vec<T>, order: &[u32]) {
            *column = order.par_iter().with_min_len(CHUNK).map(|&i| column[i as usize]).collect();
        }
        let order = self.start.order();
        let Particles { id, position, velocity, mass, radius, immovable } = &mut self.particles;
        sort(id, order);
        sort(position, order);
        sort(velocity, order);
        sort(mass, order);
        sort(radius, order);
        sort(immovable, order);
    }

    /// Adds the momentum that a sub-step gives to groups.
    fn add_momentum(&self, groups: &GroupMap, momentum: &mut [DVec3]) {
        let scale = self.substep.dt * self.parameters.mass;
        let evaluation = self.evaluation();
        for (group, momentum) in momentum.iter_mut().enumerate() {
            for &member in groups.members(group) {
                *momentum += scale * (evaluation.acceleration(member as usize) + self.parameters.gravity);
            }
        }
    }

    /// Adds the impulse by which walls keep members in the domain: the least that stops the group, whole, from
    /// carrying one of them nearer than the clearance. A group of infinite inertia is not stopped.
    fn hold_groups(&self, stage: &Stage<'_>, momentum: &mut [DVec3]) {
        let Some(walls) = self.parameters.walls else { return };
        for (group, momentum) in momentum.iter_mut().enumerate() {
            let inertia = stage.inertia[group];
            if !inertia.is_finite() {
                continue;
            }
            let (mut lowest, mut highest) = (DVec3::NEG_INFINITY, DVec3::INFINITY);
            for &member in stage.groups.members(group) {
                let (low, high) = walls.bounds(self.particles.position[member as usize], stage.dt);
                (lowest, highest) = (lowest.max(low), highest.min(high));
            }
            let velocity = stage.velocity[group] + (*momentum + stage.impulse[group]) / inertia;
            *momentum += inertia * (velocity.clamp(lowest, highest) - velocity);
        }
    }
}

/// How free particles advance in a sub-step.
struct Advance<'a> {
    evaluation: &'a Evaluation,
    gravity: DVec3,
    walls: Option<Walls>,
    dt: f64,
}

impl Advance<'_> {
    /// The velocity after it, from index, position and velocity before it.
    #[inline(always)]
    fn velocity(&self, particle: usize, position: DVec3, velocity: DVec3) -> DVec3 {
        let free = velocity + self.dt * (self.evaluation.acceleration(particle) + self.gravity);
        match &self.walls {
            Some(walls) => walls.hold(position, free, self.dt),
            None => free,
        }
    }
}

/// What a loop over moving particles notes in passing.
#[derive(Clone, Copy, Debug, Default)]
struct Extremes {
    /// The largest square of a speed [m^2/s^2].
    speed_squared: f64,
    /// Whether a position or velocity is not finite.
    not_finite: bool,
}

impl Extremes {
    #[inline(always)]
    fn include(&mut self, position: DVec3, velocity: DVec3) {
        let square = velocity.length_squared();
        self.speed_squared = self.speed_squared.max(square);
        // Infinite or NaN where a term is.
        self.not_finite |= !(position.element_sum() + square).is_finite();
    }

    fn joined(self, other: Self) -> Self {
        Self {
            speed_squared: self.speed_squared.max(other.speed_squared),
            not_finite: self.not_finite | other.not_finite,
        }
    }
}

/// Which part of a step is integrated.
#[derive(Clone, Copy)]
struct Substep {
    /// Whether it starts from the state at the start of the step.
    first: bool,
    /// Length [s].
    dt: f64,
    /// The part of the step that has passed at its end.
    passed: f64,
}

impl Substep {
    /// A group is a boundary in prescribed motion: its velocity with what others give it, in proportion to time.
    fn group_velocity(&self, stage: &Stage<'_>, group: usize) -> DVec3 {
        stage.velocity[group] + stage.impulse[group] / stage.inertia[group] * self.passed
    }
}

/// The first vector that is not finite, as an error that names its particle.
fn check_finite(ids: &[ParticleId], values: &[DVec3], what: &str) -> Result<(), SolverError> {
    match values.par_iter().position_first(|value| !value.is_finite()) {
        None => Ok(()),
        Some(i) => Err(SolverError(format!(
            "the {what} of particle {} is {}: the fluid has become unstable; write a smaller cfl or a larger viscosity",
            ids[i], values[i]
        ))),
    }
}

impl Solver for Sph {
    fn particles(&self) -> &Particles {
        &self.particles
    }

    fn stable_dt(&self) -> f64 {
        f64::from(self.parameters.max_substeps) * self.stable_substep
    }

    /// Densities, pressures and all forces of the first sub-step. Viscosity uses the particles' own velocities, so
    /// that these forces do not depend on groups.
    fn begin(&mut self) -> Result<(), SolverError> {
        self.start.find_densities(&self.parameters, &self.particles.position, &self.particles.velocity);
        self.start.find_accelerations(&self.parameters);
        self.set_speed(self.speed_max);
        self.guard.look(&self.parameters.state, self.speed_max, self.start.mean_compression())?;
        self.compression_energy = self.start.compression_energy(&self.parameters);
        Ok(())
    }

    fn integrate(&mut self, stage: &Stage<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        let substeps = self.substeps(stage.dt)?;
        let dt = stage.dt / f64::from(substeps);
        self.before.clear();
        self.speed_bound = self.speed_max;
        for k in 0..substeps {
            if k > 0 {
                self.pass_substep(stage);
                let (position, velocity) = self.before.of(&self.particles);
                self.later.find_densities(&self.parameters, position, velocity);
                self.later.find_accelerations(&self.parameters);
            }
            self.substep = Substep { first: k == 0, dt, passed: f64::from(k + 1) / f64::from(substeps) };
            self.add_momentum(stage.groups, &mut answer.momentum);
        }
        // Walls only slow down.
        let acceleration = self.evaluation().largest_acceleration() + self.parameters.gravity.length();
        self.speed_bound += dt * acceleration;
        self.hold_groups(stage, &mut answer.momentum);
        Ok(())
    }

    fn deferred(&self) -> Option<&dyn Deferred> {
        Some(self)
    }

    /// Reports the energy of compression at the start of the step, where densities are known.
    fn commit(&mut self, end: &StepEnd<'_>, _: &[DVec3]) -> Result<Report, SolverError> {
        let (mut position, mut velocity) = self.before.take_committed(end.groups, &mut self.particles);
        let mut extremes = self.travel(end.groups, &mut position, &mut velocity);
        (self.particles.position, self.particles.velocity) = (position, velocity);
        end.place_members(&mut self.particles);
        for &member in end.groups.all_members() {
            let member = member as usize;
            extremes.include(self.particles.position[member], self.particles.velocity[member]);
        }
        if extremes.not_finite {
            check_finite(&self.particles.id, &self.particles.position, "position")?;
            check_finite(&self.particles.id, &self.particles.velocity, "velocity")?;
        }
        self.set_speed(extremes.speed_squared.sqrt());
        if self.steps.is_multiple_of(STORAGE_PERIOD) {
            self.sort_storage();
        }
        self.steps += 1;
        let (born, dead) = self.pass_sources(end.dt);
        Ok(Report {
            stable_dt: self.stable_dt(),
            energies: vec![("compression", self.compression_energy)],
            given: self.sources.given,
            born,
            dead,
            ..Report::default()
        })
    }

    /// `density` [kg/m^3] and `pressure` [Pa] at the committed positions.
    fn fields(&self) -> Vec<Field> {
        let mut now = Evaluation::default();
        now.find_densities(&self.parameters, &self.particles.position, &self.particles.velocity);
        let state = self.parameters.state;
        let density = now.compressions().map(|x| (x * state.rest_density) as f32).collect();
        let pressure = now.compressions().map(|x| state.pressure(x) as f32).collect();
        vec![
            Field { name: "density", values: FieldValues::Scalar(density) },
            Field { name: "pressure", values: FieldValues::Scalar(pressure) },
        ]
    }

    fn save(&self) -> Result<Vec<u8>, SolverError> {
        let Sources { time, next_id, .. } = self.sources;
        Ok(snapshot::save(&self.particles, Progress { steps: self.steps, time, next_id }))
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), SolverError> {
        let Progress { steps, time, next_id } =
            snapshot::restore(&mut self.particles, &self.parameters, snapshot)?;
        self.steps = steps;
        self.sources = Sources { time, next_id, ..self.parameters.sources.clone() };
        self.start.find_densities(&self.parameters, &self.particles.position, &self.particles.velocity);
        self.find_speed();
        Ok(())
    }
}

impl Deferred for Sph {
    fn travel_bound(&self, dt: f64) -> f64 {
        self.speed_bound * dt / self.parameters.radius
    }

    fn velocity(&self, wanted: &[u32]) -> Vec<DVec3> {
        let (position, velocity) = self.before.of(&self.particles);
        let advance = self.advance();
        let of = |&i: &u32| advance.velocity(i as usize, position[i as usize], velocity[i as usize]);
        wanted.par_iter().with_min_len(CHUNK).map(of).collect()
    }
}
