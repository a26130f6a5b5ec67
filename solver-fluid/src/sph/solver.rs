use amalgam_particles::{DVec3, GroupMap, NO_GROUP, ParticleId, Particles, StepEnd, reduce};
use amalgam_solver_kit::{Answer, Field, FieldValues, Report, Solver, SolverError, Stage};
use rayon::prelude::*;

use super::{Parameters, evaluation::Evaluation, snapshot};
use crate::section::SUBSTEPS_MAX;

/// How much longer than the stable time step a sub-step may be before there is one more: fluid that gets faster or
/// denser within a step shall not double the work, and the default Courant number leaves room for more than this (a
/// dam break is stable at 2.5 times that number).
const SUBSTEP_TOLERANCE: f64 = 0.25;

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
    /// Where the last integration leaves particles [m].
    end_position: Vec<DVec3>,
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
        };
        solver.start.find_densities(&solver.parameters, &solver.particles.position);
        solver.stable_substep = solver.find_stable_substep();
        solver
    }

    /// The longest stable sub-step for the committed speeds and the densities found last.
    fn find_stable_substep(&self) -> f64 {
        let velocity = &self.particles.velocity;
        let speed = reduce::max(velocity.len(), 0.0, |i| velocity[i].length_squared()).sqrt();
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

    /// Advances velocities and end positions by one sub-step: free particles by `acceleration`, members with their
    /// group.
    fn advance(&mut self, stage: &Stage<'_>, substep: Substep, from_start: bool, velocity: &mut [DVec3]) {
        let Self { parameters, start, later, end_position, .. } = self;
        let acceleration = if from_start { start.accelerations() } else { later.accelerations() };
        let (gravity, walls, dt) = (parameters.gravity, parameters.walls, substep.dt);
        let group_of = stage.groups.group_of();
        end_position
            .par_iter_mut()
            .zip(velocity)
            .zip(acceleration)
            .zip(group_of)
            .with_min_len(4096)
            .for_each(|(((position, velocity), &acceleration), &group)| {
                if group == NO_GROUP {
                    let free = *velocity + dt * (acceleration + gravity);
                    *velocity = walls.map_or(free, |walls| walls.hold(*position, free, dt));
                } else {
                    *velocity = substep.group_velocity(stage, group as usize);
                }
                *position += dt * *velocity;
            });
    }

    /// Adds the momentum that a sub-step gives to groups.
    fn add_momentum(&self, groups: &GroupMap, dt: f64, acceleration: &[DVec3], momentum: &mut [DVec3]) {
        let scale = dt * self.parameters.mass;
        for (group, momentum) in momentum.iter_mut().enumerate() {
            for &member in groups.members(group) {
                *momentum += scale * (acceleration[member as usize] + self.parameters.gravity);
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

/// Which part of a step is integrated.
#[derive(Clone, Copy)]
struct Substep {
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
        check_finite(&self.particles.id, &self.particles.position, "position")?;
        self.start.find_densities(&self.parameters, &self.particles.position);
        self.start.find_accelerations(&self.parameters, &self.particles.velocity);
        self.stable_substep = self.find_stable_substep();
        self.compression_energy = self.start.compression_energy(&self.parameters);
        Ok(())
    }

    fn integrate(&mut self, stage: &Stage<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        let substeps = self.substeps(stage.dt)?;
        let dt = stage.dt / f64::from(substeps);
        self.end_position.clone_from(&self.particles.position);
        answer.velocity.clone_from(&self.particles.velocity);
        for k in 0..substeps {
            let first = k == 0;
            if !first {
                self.later.find_densities(&self.parameters, &self.end_position);
                self.later.find_accelerations(&self.parameters, &answer.velocity);
            }
            let acceleration = if first { self.start.accelerations() } else { self.later.accelerations() };
            self.add_momentum(stage.groups, dt, acceleration, &mut answer.momentum);
            let passed = f64::from(k + 1) / f64::from(substeps);
            self.advance(stage, Substep { dt, passed }, first, &mut answer.velocity);
            check_finite(&self.particles.id, &answer.velocity, "velocity")?;
        }
        self.hold_groups(stage, &mut answer.momentum);
        Ok(())
    }

    /// Reports the energy of compression at the start of the step, where densities are known.
    fn commit(&mut self, end: &StepEnd<'_>, integrated: &[DVec3]) -> Result<Report, SolverError> {
        let particles = &mut self.particles;
        let columns = particles.position.par_iter_mut().zip(&mut particles.velocity);
        columns
            .zip(&self.end_position)
            .zip(integrated)
            .zip(end.groups.group_of())
            .with_min_len(4096)
            .for_each(|((((position, velocity), &end_position), &integrated), &group)| {
                if group == NO_GROUP {
                    *position = end_position;
                    *velocity = integrated;
                }
            });
        end.place_members(particles);
        check_finite(&particles.id, &particles.position, "position")?;
        check_finite(&particles.id, &particles.velocity, "velocity")?;
        self.stable_substep = self.find_stable_substep();
        Ok(Report {
            stable_dt: self.stable_dt(),
            energies: vec![("compression", self.compression_energy)],
            ..Report::default()
        })
    }

    /// `density` [kg/m^3] and `pressure` [Pa] at the committed positions.
    fn fields(&self) -> Vec<Field> {
        let mut now = Evaluation::default();
        now.find_densities(&self.parameters, &self.particles.position);
        let state = self.parameters.state;
        let density = now.compressions().map(|x| (x * state.rest_density) as f32).collect();
        let pressure = now.compressions().map(|x| state.pressure(x) as f32).collect();
        vec![
            Field { name: "density", values: FieldValues::Scalar(density) },
            Field { name: "pressure", values: FieldValues::Scalar(pressure) },
        ]
    }

    fn save(&self) -> Result<Vec<u8>, SolverError> {
        Ok(snapshot::save(&self.particles))
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), SolverError> {
        snapshot::restore(&mut self.particles, snapshot)?;
        self.start.find_densities(&self.parameters, &self.particles.position);
        self.stable_substep = self.find_stable_substep();
        Ok(())
    }
}
