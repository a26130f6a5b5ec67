//! A fluid as a participant: the parts that do not depend on the method by which the fluid is computed.
//!
//! A [`FluidMethod`] computes forces and advances particles. [`Fluid`] is the [`Solver`] around it: it counts
//! sub-steps, keeps the state between them, commits, lets particles appear and disappear, and saves.

mod snapshot;

use amalgam_particles::lanes::Width;
use amalgam_particles::{DVec3, GroupMap, Lattice, ParticleId, Particles, StepEnd};
use amalgam_solver_kit::{
    Answer, Deferred, Field, Fields, Integration, Moves, Ranks, Report, Request, Solver, SolverError, agreed,
};
use rayon::prelude::*;

use crate::section::SUBSTEPS_MAX;
use crate::sources::Sources;
use crate::substeps::{Extremes, Tentative, speed_max};
use snapshot::Progress;

/// Settings that every method has.
#[derive(Clone, Copy, Debug)]
pub struct Basics {
    /// Edge of the volume that a particle stands for [m].
    pub spacing: f64,
    /// Mass of a particle [kg].
    pub particle_mass: f64,
    /// Collision radius of a particle [m].
    pub radius: f64,
    /// Sub-steps in the longest step.
    pub substeps_max: u32,
}

/// Division of a step into sub-steps.
#[derive(Clone, Copy, Debug)]
pub struct Substeps {
    /// Number of sub-steps.
    pub substeps: u32,
    /// Length of a sub-step [s].
    pub dt: f64,
    /// Longest stable sub-step [s] at the start of the step.
    pub stable: f64,
}

/// Method that computes a fluid.
pub trait FluidMethod: Send + Sync + Sized + 'static {
    /// Its checked settings.
    type Parameters;
    /// Steps after which particles are stored anew in the order of their cells: neighbours in space are then
    /// neighbours in memory.
    const STORAGE_PERIOD: u64;
    /// First bytes of a snapshot: method and version of the layout.
    const MAGIC: &'static [u8; 8];
    /// The end of a message about a step that needs too many sub-steps, such as `the fluid is too fast for
    /// this step`.
    const TOO_MANY_SUBSTEPS: &'static str;
    /// The end of a message about a position or velocity that is not finite, such as `write a smaller cfl`.
    const UNSTABLE: &'static str;

    /// The method for `particles`, with loops of a given vector width. Results do not depend on the width.
    fn new(parameters: Self::Parameters, particles: &Particles, width: Width) -> Self;

    /// Settings that every method has.
    fn basics(&self) -> Basics;

    /// Emitters and sinks, as they are at the start.
    fn sources(&self) -> &Sources;

    /// Winds, layers that damp, and fields of force.
    fn fields_of_force(&self) -> &Fields;

    /// Takes the time at the start of a step [s], on which drags and fields of force depend.
    fn set_time(&mut self, time: f64);

    /// The kind of integration, if it is not explicit.
    fn integration(&self) -> Option<Integration> {
        None
    }

    /// The grid whose occupied cells the method asks for. A cell is occupied if it holds particles of any
    /// participant.
    fn occupancy_grid(&self) -> Option<Lattice> {
        None
    }

    /// The longest stable sub-step [s] while no particle is faster than `speed` [m/s].
    fn stable_substep(&self, speed: f64) -> f64;

    /// Sub-steps in a step that is `length` longest stable sub-steps long, not rounded up.
    fn substeps(length: f64) -> f64;

    /// Does the work of a step that does not depend on groups. The largest speed is `speed_max` [m/s].
    ///
    /// # Errors
    /// The state makes the step impossible.
    fn begin(&mut self, particles: &Particles, speed_max: f64) -> Result<(), SolverError>;

    /// Integrates a stage tentatively: all sub-steps, the last one up to the velocities of free particles.
    ///
    /// # Errors
    /// The integration is impossible.
    fn integrate(
        &mut self,
        particles: &Particles,
        tentative: &mut Tentative,
        stage: (&Request<'_>, Substeps),
        answer: &mut Answer,
    ) -> Result<(), SolverError>;

    /// Velocities with which `wanted` free particles move in the last sub-step [m/s], from positions [m] and
    /// velocities [m/s] before it.
    fn velocities(&self, before: (&[DVec3], &[DVec3]), wanted: &[u32]) -> Vec<DVec3>;

    /// Prepares [`Self::advance`]. `is_first` is true if the step has one sub-step.
    ///
    /// # Errors
    /// The end of the step is impossible.
    fn prepare_advance(&mut self, _is_first: bool) -> Result<(), SolverError> {
        Ok(())
    }

    /// Ends the last sub-step for all free particles, from positions [m] and velocities [m/s] before it.
    fn advance(&self, groups: &GroupMap, position: &mut [DVec3], velocity: &mut [DVec3]) -> Extremes;

    /// Sorts the particles by cells.
    fn sort_storage(&self, particles: &mut Particles);

    /// The position [m] of a particle that is emitted at `place` [m].
    fn emitted(&self, _id: ParticleId, place: DVec3) -> DVec3 {
        place
    }

    /// Stored energies by name [J], without gravity. Nothing is stored unless something is compressed.
    fn energies(&self) -> Vec<(&'static str, f64)> {
        vec![("stored", 0.0)]
    }

    /// Fields for frames.
    fn fields(&self, particles: &Particles) -> Vec<Field>;

    /// Numbers that a snapshot holds beside the particles: the values from which iterations start.
    fn memory(&self) -> Vec<f64> {
        Vec::new()
    }

    /// Takes this rank's part of the particles, and returns their indices. Every rank has all particles
    /// before. Collective.
    ///
    /// # Errors
    /// The method cannot be cut among ranks.
    fn share(&mut self, _ranks: &Ranks, _particles: &Particles) -> Result<Vec<u32>, SolverError> {
        Err(SolverError("this method cannot be cut among ranks yet: run it as one, with more threads".into()))
    }

    /// The rank to which each particle belongs after `step` committed steps, if ranks share the fluid.
    /// Collective.
    fn owners(&mut self, _particles: &Particles, _step: u64) -> Vec<u32> {
        Vec::new()
    }

    /// Takes restored particles and the numbers of [`Self::memory`].
    fn restore(&mut self, particles: &Particles, memory: &[f64]);
}

/// A fluid of equal particles, computed by a method.
pub struct Fluid<M> {
    pub(crate) method: M,
    pub(crate) particles: Particles,
    tentative: Tentative,
    /// Largest speed at the start of the step [m/s].
    speed_max: f64,
    /// Longest stable sub-step [s] at the start of the step.
    stable_substep: f64,
    /// Steps committed.
    steps: u64,
    sources: Sources,
    /// The ranks that share the particles.
    ranks: Ranks,
}

impl<M: FluidMethod> Fluid<M> {
    /// A fluid of equal particles.
    pub fn new(parameters: M::Parameters, particles: Particles) -> Self {
        Self::with_width(parameters, particles, Width::of_machine())
    }

    /// A fluid of equal particles, with loops of a given vector width. Results do not depend on the width.
    pub fn with_width(parameters: M::Parameters, particles: Particles, width: Width) -> Self {
        let method = M::new(parameters, &particles, width);
        let sources = method.sources().clone();
        let mut fluid = Self {
            method,
            particles,
            tentative: Tentative::default(),
            speed_max: 0.0,
            stable_substep: 0.0,
            steps: 0,
            sources,
            ranks: Ranks::alone(),
        };
        fluid.set_speed(speed_max(&fluid.particles.velocity));
        fluid
    }

    /// Takes the largest speed of own particles [m/s]. Collective.
    fn set_speed(&mut self, speed: f64) {
        let mut largest = [speed];
        self.ranks.max(&mut largest);
        self.speed_max = largest[0];
        self.stable_substep = self.method.stable_substep(self.speed_max);
    }

    /// Divides a step of `dt` [s] into sub-steps.
    fn cut(&self, dt: f64) -> Result<Substeps, SolverError> {
        let stable = self.stable_substep;
        let substeps = M::substeps(dt / stable).ceil().max(1.0);
        if substeps > f64::from(SUBSTEPS_MAX) {
            return Err(SolverError(format!(
                "a step of {dt:e} s would need {substeps} sub-steps of {stable:e} s, more than {SUBSTEPS_MAX}: {}",
                M::TOO_MANY_SUBSTEPS
            )));
        }
        Ok(Substeps { substeps: substeps as u32, dt: dt / substeps, stable })
    }

    /// Removes and appends particles at the end of a step of `dt` [s]. Returns the particles that were born
    /// and those that died.
    fn pass_sources(&mut self, dt: f64) -> (Vec<ParticleId>, Vec<ParticleId>) {
        let Basics { spacing, particle_mass, radius, .. } = self.method.basics();
        let (born, dead) =
            self.sources.pass(dt, spacing, (particle_mass, radius), &self.ranks, &mut self.particles);
        let Particles { id, position, .. } = &mut self.particles;
        let first_born = id.len() - born.len();
        for (&id, position) in id[first_born..].iter().zip(&mut position[first_born..]) {
            *position = self.method.emitted(id, *position);
        }
        (born, dead)
    }

    /// The columns of all ranks in one, at the first rank. Collective.
    fn all<T: bytemuck::Pod>(&self, own: &[T]) -> Option<Vec<T>> {
        self.ranks.gather(own.to_vec()).map(|columns| columns.concat())
    }

    /// Fails if a position or a velocity is not finite. The error names the particle.
    fn check_finite(&self) -> Result<(), SolverError> {
        let Particles { id, position, velocity, .. } = &self.particles;
        for (values, what) in [(position, "position"), (velocity, "velocity")] {
            if let Some(i) = values.par_iter().position_first(|value| !value.is_finite()) {
                return Err(SolverError(format!(
                    "the {what} of particle {} is {}: the fluid has become unstable; {}",
                    id[i],
                    values[i],
                    M::UNSTABLE
                )));
            }
        }
        Ok(())
    }
}

impl<M: FluidMethod> Solver for Fluid<M> {
    fn particles(&self) -> &Particles {
        &self.particles
    }

    fn integration(&self) -> Option<Integration> {
        self.method.integration()
    }

    fn occupancy_grid(&self) -> Option<Lattice> {
        self.method.occupancy_grid()
    }

    fn stable_dt(&self) -> f64 {
        let substeps = f64::from(self.method.basics().substeps_max) * self.stable_substep;
        substeps.min(self.method.fields_of_force().stable_dt())
    }

    fn begin(&mut self) -> Result<(), SolverError> {
        self.method.begin(&self.particles, self.speed_max)?;
        self.set_speed(self.speed_max);
        Ok(())
    }

    fn integrate(&mut self, request: &Request<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        let cut = self.cut(request.dt)?;
        self.method.set_time(self.sources.time);
        self.tentative.clear(self.speed_max);
        self.method.integrate(&self.particles, &mut self.tentative, (request, cut), answer)
    }

    fn deferred(&self) -> Option<&dyn Deferred> {
        Some(self)
    }

    fn commit(&mut self, end: &StepEnd<'_>, _: &[DVec3]) -> Result<Report, SolverError> {
        self.method.prepare_advance(self.tentative.is_committed())?;
        let is_pushed = !self.method.fields_of_force().is_empty();
        let before = is_pushed.then(|| (self.particles.position.clone(), self.particles.velocity.clone()));
        let (mut position, mut velocity) = self.tentative.take_committed(end.groups, &mut self.particles);
        let mut extremes = self.method.advance(end.groups, &mut position, &mut velocity);
        (self.particles.position, self.particles.velocity) = (position, velocity);
        end.place_members(&mut self.particles);
        for &member in end.groups.all_members() {
            let member = member as usize;
            extremes.include(self.particles.position[member], self.particles.velocity[member]);
        }
        if self.ranks.any(extremes.not_finite) {
            agreed(&self.ranks, self.check_finite())?;
        }
        let pushed = before.map_or(0.0, |(position, velocity)| {
            let step = (self.sources.time, end.dt);
            self.method.fields_of_force().work(&self.ranks, (&position, &velocity), &self.particles, step)
        });
        if self.steps.is_multiple_of(M::STORAGE_PERIOD) {
            self.method.sort_storage(&mut self.particles);
        }
        self.steps += 1;
        let (born, dead) = self.pass_sources(end.dt);
        let is_changed = !self.sources.is_empty() && self.ranks.any(!(born.is_empty() && dead.is_empty()));
        self.set_speed(if is_changed { speed_max(&self.particles.velocity) } else { extremes.speed() });
        let (energies, given) = (self.method.energies(), self.sources.given + pushed);
        Ok(Report { stable_dt: self.stable_dt(), energies, given, born, dead, ..Report::default() })
    }

    fn fields(&self) -> Vec<Field> {
        self.method.fields(&self.particles)
    }

    fn share(&mut self, ranks: &Ranks) -> Result<(), SolverError> {
        let own = self.method.share(ranks, &self.particles)?;
        self.ranks = ranks.clone();
        self.particles.reorder(&own);
        self.method.restore(&self.particles, &self.method.memory());
        self.set_speed(speed_max(&self.particles.velocity));
        Ok(())
    }

    fn migrate(&mut self) -> Option<Moves> {
        if self.ranks.is_alone() {
            return None;
        }
        let moves = Moves::new(&self.ranks, &self.method.owners(&self.particles, self.steps));
        if moves.is_empty() {
            return None;
        }
        let Particles { id, position, velocity, mass, radius, immovable } = &mut self.particles;
        moves.apply(&self.ranks, id);
        moves.apply(&self.ranks, position);
        moves.apply(&self.ranks, velocity);
        // All particles of a fluid have equal mass and radius.
        let Basics { particle_mass, radius: all, .. } = self.method.basics();
        mass.resize(id.len(), particle_mass);
        radius.resize(id.len(), all);
        immovable.resize(id.len(), false);
        Some(moves)
    }

    fn save(&self) -> Result<Vec<u8>, SolverError> {
        let Sources { time, next_id, .. } = self.sources;
        let progress = Progress { steps: self.steps, time, next_id };
        let memory = self.method.memory();
        if self.ranks.is_alone() {
            return Ok(snapshot::save(M::MAGIC, &self.particles, progress, &memory));
        }
        let Particles { id, position, velocity, .. } = &self.particles;
        let all = Particles {
            id: self.all(id).unwrap_or_default(),
            position: self.all(position).unwrap_or_default(),
            velocity: self.all(velocity).unwrap_or_default(),
            ..Particles::default()
        };
        Ok(snapshot::save(M::MAGIC, &all, progress, &memory))
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), SolverError> {
        let ids = self.all(&self.particles.id);
        let kept = snapshot::Kept {
            ids: ids.as_deref(),
            may_change: !self.sources.is_empty(),
            basics: self.method.basics(),
            memory: self.method.memory().len(),
        };
        let restored = agreed(&self.ranks, snapshot::restore(M::MAGIC, &kept, bytes));
        let (particles, progress, memory) = restored?;
        let Progress { steps, time, next_id } = progress;
        self.particles = particles;
        self.steps = steps;
        self.sources = Sources { time, next_id, ..self.method.sources().clone() };
        if !self.ranks.is_alone() {
            let own = self.method.share(&self.ranks, &self.particles)?;
            self.particles.reorder(&own);
        }
        self.method.restore(&self.particles, &memory);
        self.set_speed(speed_max(&self.particles.velocity));
        Ok(())
    }
}

impl<M: FluidMethod> Deferred for Fluid<M> {
    fn travel_bound(&self, dt: f64) -> f64 {
        self.tentative.speed_bound * dt / self.method.basics().radius
    }

    fn velocity(&self, wanted: &[u32]) -> Vec<DVec3> {
        self.method.velocities(self.tentative.before(&self.particles), wanted)
    }
}
