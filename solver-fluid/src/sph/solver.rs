use amalgam_particles::{DVec3, GroupMap, NO_GROUP, ParticleId, Particles, StepEnd, reduce};
use amalgam_solver_kit::{Answer, Field, FieldValues, Report, Solver, SolverError, Stage};
use rayon::prelude::*;

use super::{Parameters, evaluation::Evaluation, snapshot};
use crate::section::SUBSTEPS_MAX;

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
    /// Where the last integration leaves particles [m]; empty if it had one sub-step, for then it is where their
    /// velocities carry them.
    end_position: Vec<DVec3>,
    /// Steps committed.
    steps: u64,
}

impl Sph {
    /// A fluid of equal particles.
    pub fn new(parameters: Parameters, particles: Particles) -> Self {
        let mut solver = Self {
            parameters,
            particles,
            start: Evaluation::default(),
            later: Evaluation::default(),
            stable_substep: 0.0,
            compression_energy: 0.0,
            end_position: Vec::new(),
            steps: 0,
        };
        solver.start.find_densities(
            &solver.parameters,
            &solver.particles.position,
            &solver.particles.velocity,
        );
        solver.stable_substep = solver.find_stable_substep();
        solver
    }

    /// The longest stable sub-step for the committed speeds and the densities found last.
    fn find_stable_substep(&self) -> f64 {
        let velocity = &self.particles.velocity;
        self.stable_substep_at(reduce::max(velocity.len(), 0.0, |i| velocity[i].length_squared()).sqrt())
    }

    fn stable_substep_at(&self, speed: f64) -> f64 {
        let sound_speed = self.parameters.state.local_sound_speed(self.start.largest_compression());
        self.parameters.stable_substep(speed, sound_speed)
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

    /// Advances velocities by one sub-step: free particles by their acceleration, members with their group.
    fn advance(
        &self,
        stage: &Stage<'_>,
        substep: Substep,
        velocity: &mut [DVec3],
    ) -> Result<(), SolverError> {
        let Self { parameters, particles, end_position, .. } = self;
        let (gravity, walls, dt) = (parameters.gravity, parameters.walls, substep.dt);
        let evaluation = if substep.first { &self.start } else { &self.later };
        let positions = if substep.first { &particles.position } else { end_position };
        let before = &particles.velocity;
        let group_of = stage.groups.group_of();
        let advance = |(c, velocities): (usize, &mut [DVec3])| {
            let mut finite = true;
            for (k, velocity) in velocities.iter_mut().enumerate() {
                let i = c * CHUNK + k;
                if group_of[i] != NO_GROUP {
                    *velocity = substep.group_velocity(stage, group_of[i] as usize);
                    continue;
                }
                let now = if substep.first { before[i] } else { *velocity };
                let free = now + dt * (evaluation.acceleration(i) + gravity);
                finite &= free.is_finite();
                *velocity = walls.map_or(free, |walls| walls.hold(positions[i], free, dt));
            }
            finite
        };
        // Every chunk is done even if one is not finite, so that the particle named is the first.
        let finite = velocity.par_chunks_mut(CHUNK).enumerate().map(advance).reduce(|| true, |a, b| a & b);
        if finite { Ok(()) } else { check_finite(&particles.id, velocity, "velocity") }
    }

    /// Moves end positions on by one of several sub-steps.
    fn travel(&mut self, dt: f64, velocity: &[DVec3]) {
        if self.end_position.is_empty() {
            self.end_position.clone_from(&self.particles.position);
        }
        let columns = self.end_position.par_iter_mut().zip(velocity);
        columns.with_min_len(CHUNK).for_each(|(position, &velocity)| *position += dt * velocity);
    }

    /// Moves free particles to the end of a step and gives them their velocity.
    fn place_free(&mut self, end: &StepEnd<'_>, integrated: &[DVec3]) -> Extremes {
        let Self { particles, end_position, .. } = self;
        let group_of = end.groups.group_of();
        let columns = (particles.position.par_chunks_mut(CHUNK), particles.velocity.par_chunks_mut(CHUNK));
        let place = |(c, (positions, velocities)): (usize, (&mut [DVec3], &mut [DVec3]))| {
            let mut extremes = Extremes::default();
            for (k, (position, velocity)) in positions.iter_mut().zip(velocities).enumerate() {
                let i = c * CHUNK + k;
                if group_of[i] != NO_GROUP {
                    continue;
                }
                *velocity = integrated[i];
                *position = match end_position.get(i) {
                    Some(&end) => end,
                    None => *position + end.dt * *velocity,
                };
                extremes.include(*position, *velocity);
            }
            extremes
        };
        columns.into_par_iter().enumerate().map(place).reduce(Extremes::default, Extremes::joined)
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
    fn add_momentum(&self, groups: &GroupMap, substep: Substep, momentum: &mut [DVec3]) {
        let scale = substep.dt * self.parameters.mass;
        let evaluation = if substep.first { &self.start } else { &self.later };
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

/// What a loop over moving particles notes in passing.
#[derive(Clone, Copy, Debug, Default)]
struct Extremes {
    /// The largest square of a speed [m^2/s^2].
    speed_squared: f64,
    /// Whether a position or velocity is not finite.
    not_finite: bool,
}

impl Extremes {
    #[inline]
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
        self.stable_substep = self.find_stable_substep();
        self.compression_energy = self.start.compression_energy(&self.parameters);
        Ok(())
    }

    fn integrate(&mut self, stage: &Stage<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        let substeps = self.substeps(stage.dt)?;
        let dt = stage.dt / f64::from(substeps);
        self.end_position.clear();
        for k in 0..substeps {
            let substep = Substep { first: k == 0, dt, passed: f64::from(k + 1) / f64::from(substeps) };
            if !substep.first {
                self.later.find_densities(&self.parameters, &self.end_position, &answer.velocity);
                self.later.find_accelerations(&self.parameters);
            }
            self.add_momentum(stage.groups, substep, &mut answer.momentum);
            self.advance(stage, substep, &mut answer.velocity)?;
            if substeps > 1 {
                self.travel(dt, &answer.velocity);
            }
        }
        self.hold_groups(stage, &mut answer.momentum);
        Ok(())
    }

    /// Reports the energy of compression at the start of the step, where densities are known.
    fn commit(&mut self, end: &StepEnd<'_>, integrated: &[DVec3]) -> Result<Report, SolverError> {
        let mut extremes = self.place_free(end, integrated);
        end.place_members(&mut self.particles);
        for &member in end.groups.all_members() {
            let member = member as usize;
            extremes.include(self.particles.position[member], self.particles.velocity[member]);
        }
        if extremes.not_finite {
            check_finite(&self.particles.id, &self.particles.position, "position")?;
            check_finite(&self.particles.id, &self.particles.velocity, "velocity")?;
        }
        self.stable_substep = self.stable_substep_at(extremes.speed_squared.sqrt());
        if self.steps.is_multiple_of(STORAGE_PERIOD) {
            self.sort_storage();
        }
        self.steps += 1;
        Ok(Report {
            stable_dt: self.stable_dt(),
            energies: vec![("compression", self.compression_energy)],
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
        Ok(snapshot::save(&self.particles, self.steps))
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), SolverError> {
        self.steps = snapshot::restore(&mut self.particles, snapshot)?;
        self.start.find_densities(&self.parameters, &self.particles.position, &self.particles.velocity);
        self.stable_substep = self.find_stable_substep();
        Ok(())
    }
}
