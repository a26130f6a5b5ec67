//! A fluid as a participant: the parts that do not depend on the method by which the fluid is computed.
//!
//! A [`FluidMethod`] computes forces and advances particles. [`Fluid`] is the [`Solver`] around it: it takes
//! sub-steps, moves groups in them, commits, lets particles appear and disappear, and saves.
//!
//! A step calls [`FluidMethod::begin`]. Each stage then calls [`FluidMethod::substep`] for every sub-step. Between
//! two sub-steps, and at the end of the step, [`FluidMethod::prepare_advance`] and [`FluidMethod::advance`] move the
//! free particles.
//!
//! Another method is a type that implements [`FluidMethod`], a section of its own, a variant of
//! [`Method`](crate::section::Method), and an arm where [`FluidProgram`](crate::FluidProgram) creates the solver.

mod snapshot;

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use amalgam_particles::lanes::Width;
use amalgam_particles::reduce::CHUNK;
use amalgam_particles::shapes::Layers;
use amalgam_particles::{DVec3, GroupMap, Lattice, ParticleId, Particles, StepEnd};
use amalgam_solver_kit::{
    Answer, Deferred, Field, Fields, Integration, Moves, Ranks, Report, Request, SnapshotWriter, Solver,
    SolverError, agreed,
};
use rayon::prelude::*;

use crate::groups::SubstepGroups;
use crate::section::SUBSTEPS_MAX;
use crate::sources::Sources;
use crate::substeps::{Extremes, Substep, SubstepRequest, Tentative, speed_max};
use snapshot::Progress;

/// Relative excess of a sub-step over the stable one up to which no further sub-step is added: rounding alone
/// should not double the work.
const ROUNDING: f64 = 1e-6;

/// Settings that every method has.
#[derive(Clone, Copy, Debug)]
pub struct Basics<'a> {
    /// Edge of the volume that a particle stands for [m].
    pub spacing: f64,
    /// Mass of a particle [kg].
    pub particle_mass: f64,
    /// Collision radius of a particle [m].
    pub radius: f64,
    /// Sub-steps in the longest step.
    pub substeps_max: u32,
    /// Times the longest step that a step may last in which the fluid integrates once.
    pub substeps_once: u32,
    /// Emitters and sinks, as they are at the start.
    pub sources: &'a Sources,
    /// Winds, layers that damp, and fields of force.
    pub fields_of_force: &'a Fields,
}

/// Method that computes a fluid.
///
/// A method implements the items without a body. The others have a body or a value that suits a method which
/// does not need them: no iteration that starts at the last answer, no ranks, no fields in frames.
pub trait FluidMethod: Send + Sync + Sized + 'static {
    /// Its checked settings.
    type Parameters;
    /// Groups as boundaries or as unknowns (`groups.rs`).
    type Groups: SubstepGroups;
    /// First bytes of a snapshot: method and version of the layout.
    const MAGIC: &'static [u8; 8];

    /// The method for `particles`, with loops of a given vector width. Results do not depend on the width.
    fn new(parameters: Self::Parameters, particles: &Particles, width: Width) -> Self;

    /// Settings that every method has.
    fn basics(&self) -> Basics<'_>;

    /// The longest stable sub-step [s] while no particle is faster than `speed` [m/s].
    fn stable_substep(&self, speed: f64) -> f64;

    /// Does the work of a step that does not depend on groups. The largest speed is `speed_max` [m/s].
    ///
    /// # Errors
    /// The state makes the step impossible.
    fn begin(&mut self, particles: &Particles, speed_max: f64) -> Result<(), SolverError>;

    /// Computes a sub-step tentatively, up to the velocities of free particles. Adds the momentum that the fluid
    /// gives each group [kg m/s], and returns a bound of the speed of free particles after the sub-step [m/s].
    ///
    /// # Errors
    /// The sub-step is impossible.
    fn substep(
        &mut self,
        request: SubstepRequest<'_>,
        groups: &mut Self::Groups,
        momentum: &mut [DVec3],
    ) -> Result<f64, SolverError>;

    /// Velocities with which `wanted` free particles move in the last sub-step [m/s], from positions [m] and
    /// velocities [m/s] before it.
    fn velocities(&self, before: (&[DVec3], &[DVec3]), wanted: &[u32]) -> Vec<DVec3>;

    /// Ends the last sub-step for the free ones of some particles, which are stored from `first` on. The columns
    /// hold their groups, and positions [m] and velocities [m/s] before the sub-step.
    fn advance(&self, first: usize, group_of: &[u32], columns: (&mut [DVec3], &mut [DVec3])) -> Extremes;

    /// Prepares [`Self::advance`] after the last sub-step. Collective.
    ///
    /// # Errors
    /// The end of the sub-step is impossible.
    fn prepare_advance(&mut self) -> Result<(), SolverError> {
        Ok(())
    }

    /// Steps after which particles are stored anew in [`Self::order`]. In between, a particle moves by a few
    /// cells at most.
    const STORAGE_PERIOD: u64 = 16;

    /// Own particles in the order of the cells in which they were at the start of the step: neighbours in space
    /// are then neighbours in memory. None leaves particles where they are stored.
    fn order(&self) -> Option<Cow<'_, [u32]>> {
        None
    }

    /// The end of a message about a step that needs too many sub-steps.
    const TOO_MANY_SUBSTEPS: &'static str = "the fluid is too fast for this step";
    /// The end of a message about a position or velocity that is not finite.
    const UNSTABLE: &'static str = "write a smaller cfl";

    /// Sub-steps in a step that is `length` longest stable sub-steps long, not rounded up.
    fn substeps(length: f64) -> f64 {
        length * (1.0 - ROUNDING)
    }

    /// The grid whose occupied cells the method asks for. A cell is occupied if it holds particles of any
    /// participant.
    fn occupancy_grid(&self) -> Option<Lattice> {
        None
    }

    /// True if the method keeps particles off obstacles itself ([`Solver::keeps_off_obstacles`]).
    fn keeps_off_obstacles(&self) -> bool {
        false
    }

    /// The position [m] of a particle that is emitted at `place` [m].
    fn emitted(&self, _id: ParticleId, place: DVec3) -> DVec3 {
        place
    }

    /// Stored energies by name [J], without gravity. Nothing is stored unless something is compressed.
    fn energies(&self) -> Vec<(&'static str, f64)> {
        vec![("stored", 0.0)]
    }

    /// Fields for frames.
    fn fields(&mut self, _particles: &Particles) -> Vec<Field> {
        Vec::new()
    }

    /// Numbers that a snapshot holds beside the particles: the values from which iterations start.
    fn memory(&self) -> Vec<f64> {
        Vec::new()
    }

    /// Takes restored particles and the numbers of [`Self::memory`].
    fn restore(&mut self, _particles: &Particles, _memory: &[f64]) {}

    /// Cuts the fluid among ranks. Each rank has some of the particles, wherever they are. Collective.
    ///
    /// # Errors
    /// The method cannot be cut among ranks.
    fn share(&mut self, _ranks: &Ranks, _particles: &Particles) -> Result<(), SolverError> {
        Err(SolverError("this method cannot be cut among ranks yet: run it as one, with more threads".into()))
    }

    /// The rank to which each particle belongs, if ranks share the fluid. If the time is given that this rank's work
    /// took of late, the method cuts the fluid anew before, unless the work of ranks is balanced. Collective.
    fn owners(&mut self, _particles: &Particles, _busy: Option<Duration>) -> Vec<u32> {
        Vec::new()
    }
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
    /// Time that this rank has worked, without waits for others: in all, and when space might last be cut anew.
    busy: [Duration; 2],
}

impl<M: FluidMethod> Fluid<M> {
    /// A fluid of equal particles.
    pub fn new(parameters: M::Parameters, particles: Particles) -> Self {
        Self::with_width(parameters, particles, Width::of_machine())
    }

    /// A fluid of equal particles, with loops of a given vector width. Results do not depend on the width.
    pub fn with_width(parameters: M::Parameters, particles: Particles, width: Width) -> Self {
        let method = M::new(parameters, &particles, width);
        let sources = method.basics().sources.clone();
        let mut fluid = Self {
            method,
            particles,
            tentative: Tentative::default(),
            speed_max: 0.0,
            stable_substep: 0.0,
            steps: 0,
            sources,
            ranks: Ranks::alone(),
            busy: [Duration::ZERO; 2],
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

    /// Begins with particles of which each rank has some, wherever they are, and with the numbers of
    /// [`FluidMethod::memory`]. Collective.
    fn spread(&mut self, memory: &[f64]) -> Result<(), SolverError> {
        if !self.ranks.is_alone() {
            self.method.share(&self.ranks, &self.particles)?;
            self.move_to_owners(false);
        }
        self.method.restore(&self.particles, memory);
        self.set_speed(speed_max(&self.particles.velocity));
        Ok(())
    }

    /// Progress of the run, as snapshots keep it.
    fn progress(&self) -> Progress {
        let Sources { time, next_id, .. } = self.sources;
        Progress { steps: self.steps, time, next_id }
    }

    /// Goes on from a snapshot, of which each rank has some particles. Collective.
    fn go_on(&mut self, particles: Particles, progress: Progress, memory: &[f64]) -> Result<(), SolverError> {
        let Progress { steps, time, next_id } = progress;
        self.particles = particles;
        self.steps = steps;
        self.sources = Sources { time, next_id, ..self.method.basics().sources.clone() };
        self.spread(memory)
    }

    /// Sends particles to the ranks that own them, and says which moved. Collective.
    fn move_to_owners(&mut self, may_recut: bool) -> Option<Moves> {
        let [all, before] = self.busy;
        let busy = may_recut.then(|| all - before);
        if may_recut {
            self.busy = [all; 2];
        }
        let moves = Moves::new(&self.ranks, &self.method.owners(&self.particles, busy));
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

    /// Carries out work, and counts its time without waits for other ranks.
    fn counted<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let (start, waited) = (Instant::now(), self.ranks.waited());
        let done = work(self);
        self.busy[0] += start.elapsed().saturating_sub(self.ranks.waited() - waited);
        done
    }

    /// Time that this rank has worked, without waits for others.
    pub fn busy(&self) -> Duration {
        self.busy[0]
    }

    /// Divides a step of `dt` [s] into sub-steps, and returns the first one.
    fn cut(&self, dt: f64) -> Result<Substep, SolverError> {
        let stable = self.stable_substep;
        let substeps = M::substeps(dt / stable).ceil().max(1.0);
        if substeps > f64::from(SUBSTEPS_MAX) {
            return Err(SolverError(format!(
                "a step of {dt:e} s would need {substeps} sub-steps of {stable:e} s, more than {SUBSTEPS_MAX}: {}",
                M::TOO_MANY_SUBSTEPS
            )));
        }
        let (time, dt) = (self.sources.time, dt / substeps);
        Ok(Substep { number: 0, count: substeps as u32, time, dt, stable })
    }

    /// Ends the last sub-step for all free particles, from positions [m] and velocities [m/s] before it. Changes of
    /// velocity are found where they are wanted.
    fn advance(
        &self,
        groups: &GroupMap,
        (position, velocity): (&mut [DVec3], &mut [DVec3]),
        with_changes: bool,
    ) -> Extremes {
        let chunks = position.par_chunks_mut(CHUNK).zip(velocity.par_chunks_mut(CHUNK)).enumerate();
        let advance = |before: &mut Vec<DVec3>, (chunk, columns): (usize, (&mut [DVec3], &mut [DVec3]))| {
            let (first, (position, velocity)) = (chunk * CHUNK, columns);
            before.clear();
            if with_changes {
                before.extend_from_slice(velocity);
            }
            let group_of = &groups.group_of()[first..][..position.len()];
            let mut extremes = self.method.advance(first, group_of, (position, &mut *velocity));
            extremes.include_changes(before, velocity);
            extremes
        };
        chunks.map_init(Vec::new, advance).reduce(Extremes::default, Extremes::joined)
    }

    /// Ends a sub-step that is not the last one of its step: free particles and groups move. Collective.
    fn end_substep(
        &mut self,
        request: &Request<'_>,
        substep: Substep,
        groups: &mut M::Groups,
    ) -> Result<(), SolverError> {
        self.method.prepare_advance()?;
        let (mut position, mut velocity) = self.tentative.take(&self.particles);
        let mut extremes = self.advance(request.groups, (&mut position, &mut velocity), false);
        groups.end_substep(request, substep, (&mut position, &mut velocity));
        for &member in request.groups.all_members() {
            extremes.include(position[member as usize], velocity[member as usize]);
        }
        let mut speed = [extremes.speed()];
        self.ranks.max(&mut speed);
        self.tentative.put((position, velocity), speed[0]);
        Ok(())
    }

    /// Finds the changes of all sub-steps, as [`Solver::integrate`] does.
    fn advance_substeps(&mut self, request: &Request<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        let first = self.cut(request.dt)?;
        self.tentative.clear(self.speed_max);
        let mass = self.method.basics().particle_mass;
        let mut groups = M::Groups::new(&self.ranks, request, mass, first.count);
        for number in 0..first.count {
            if number > 0 {
                self.end_substep(request, Substep { number: number - 1, ..first }, &mut groups)?;
            }
            let time = first.time + f64::from(number) * first.dt;
            let (position, velocity) = self.tentative.before(&self.particles);
            let before = SubstepRequest {
                substep: Substep { number, time, ..first },
                request,
                particles: &self.particles,
                position,
                velocity,
                speed_bound: self.tentative.speed_bound,
            };
            let bound = self.method.substep(before, &mut groups, &mut answer.momentum)?;
            self.tentative.speed_bound = bound;
        }
        Ok(())
    }

    /// Advances to the end of a step, as [`Solver::commit`] does.
    fn end_step(&mut self, end: &StepEnd<'_>) -> Result<Report, SolverError> {
        let with_changes = self.finds_change_max();
        self.method.prepare_advance()?;
        let is_pushed = !self.method.basics().fields_of_force.is_empty();
        let before = is_pushed.then(|| (self.particles.position.clone(), self.particles.velocity.clone()));
        let (mut position, mut velocity) = self.tentative.take_committed(end.groups, &mut self.particles);
        let mut extremes = self.advance(end.groups, (&mut position, &mut velocity), with_changes);
        (self.particles.position, self.particles.velocity) = (position, velocity);
        let members = || end.groups.all_members().iter().map(|&member| member as usize);
        let of_members =
            |velocity: &[DVec3]| -> Vec<DVec3> { members().map(|member| velocity[member]).collect() };
        let members_before = of_members(&self.particles.velocity);
        end.place_members(&mut self.particles);
        for member in members() {
            extremes.include(self.particles.position[member], self.particles.velocity[member]);
        }
        extremes.include_changes(&members_before, &of_members(&self.particles.velocity));
        if self.ranks.any(extremes.not_finite) {
            agreed(&self.ranks, self.check_finite())?;
        }
        let pushed = before.map_or(0.0, |(position, velocity)| {
            let step = (self.sources.time, end.dt);
            let fields = self.method.basics().fields_of_force;
            fields.work(&self.ranks, (&position, &velocity), &self.particles, step)
        });
        if self.steps.is_multiple_of(M::STORAGE_PERIOD)
            && let Some(order) = self.method.order()
        {
            self.particles.reorder(&order);
        }
        self.steps += 1;
        let (born, dead) = self.pass_sources(end.dt);
        let is_changed = !self.sources.is_empty()
            && (self.sources.emit_now() || self.ranks.any(!(born.is_empty() && dead.is_empty())));
        self.set_speed(if is_changed { speed_max(&self.particles.velocity) } else { extremes.speed() });
        let (energies, given) = (self.method.energies(), self.sources.given + pushed);
        let change_max = extremes.change();
        Ok(Report {
            stable_dt: self.stable_dt(),
            energies,
            given,
            born,
            dead,
            change_max,
            ..Report::default()
        })
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
        // The program describes itself as explicit.
        Some(M::Groups::INTEGRATION).filter(|&integration| integration != Integration::Explicit)
    }

    fn occupancy_grid(&self) -> Option<Lattice> {
        self.method.occupancy_grid()
    }

    fn keeps_off_obstacles(&self) -> bool {
        self.method.keeps_off_obstacles()
    }

    fn stable_dt(&self) -> f64 {
        let Basics { substeps_max, fields_of_force, .. } = self.method.basics();
        (f64::from(substeps_max) * self.stable_substep).min(fields_of_force.stable_dt())
    }

    fn substeps_once(&self) -> u32 {
        let Basics { substeps_once, fields_of_force, .. } = self.method.basics();
        // Fields of force push once in a step, however many sub-steps it has.
        if fields_of_force.is_empty() { substeps_once } else { 1 }
    }

    fn begin(&mut self) -> Result<(), SolverError> {
        self.counted(|this| {
            this.method.begin(&this.particles, this.speed_max)?;
            this.set_speed(this.speed_max);
            Ok(())
        })
    }

    fn integrate(&mut self, request: &Request<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        self.counted(|this| this.advance_substeps(request, answer))
    }

    fn deferred(&self) -> Option<&dyn Deferred> {
        Some(self)
    }

    /// Later sub-steps begin at tentative velocities, and the change of a particle that died does not count.
    fn finds_change_max(&self) -> bool {
        self.sources.is_empty() && self.tentative.is_committed()
    }

    fn commit(&mut self, end: &StepEnd<'_>, _: &[DVec3]) -> Result<Report, SolverError> {
        self.counted(|this| this.end_step(end))
    }

    fn fields(&mut self) -> Vec<Field> {
        self.method.fields(&self.particles)
    }

    fn share(&mut self, ranks: &Ranks) -> Result<(), SolverError> {
        self.ranks = ranks.clone();
        self.spread(&self.method.memory())
    }

    fn migrate(&mut self) -> Option<Moves> {
        if self.ranks.is_alone() {
            return None;
        }
        // Often at first, when the cost of particles is not known and the fluid may move fast.
        let may_recut = self.steps.is_power_of_two() || self.steps.is_multiple_of(M::STORAGE_PERIOD);
        self.move_to_owners(may_recut)
    }

    fn save(&self) -> Result<Vec<u8>, SolverError> {
        let progress = self.progress();
        let memory = self.method.memory();
        if self.ranks.is_alone() {
            let writer = SnapshotWriter::new(M::MAGIC);
            return Ok(snapshot::save(writer, &self.particles, progress, &memory).finish());
        }
        let Particles { id, position, velocity, .. } = &self.particles;
        let all = Particles {
            id: self.all(id).unwrap_or_default(),
            position: self.all(position).unwrap_or_default(),
            velocity: self.all(velocity).unwrap_or_default(),
            ..Particles::default()
        };
        Ok(snapshot::save(SnapshotWriter::new(M::MAGIC), &all, progress, &memory).finish())
    }

    fn saves_parts(&self) -> bool {
        true
    }

    fn save_part(&self, to: &mut dyn Write) -> io::Result<()> {
        let progress = self.progress();
        // The first rank has the method's numbers.
        let mut memory = self.method.memory();
        if !self.ranks.is_first() {
            memory.clear();
        }
        let writer = SnapshotWriter::onto(M::MAGIC, to);
        snapshot::save(writer, &self.particles, progress, &memory).end().map(drop)
    }

    fn restore_parts(&mut self, parts: &[Vec<u8>]) -> Result<(), SolverError> {
        let count = self.method.memory().len();
        let mut restored = (Particles::default(), Progress::default(), Vec::new());
        let read = parts.iter().enumerate().try_for_each(|(k, bytes)| {
            let is_first = k == 0 && self.ranks.is_first();
            let kept = snapshot::Kept {
                ids: None,
                may_change: true,
                basics: self.method.basics(),
                memory: if is_first { count } else { 0 },
            };
            let (particles, progress, memory) = snapshot::restore(M::MAGIC, &kept, bytes)?;
            if is_first {
                (restored.1, restored.2) = (progress, memory);
            }
            restored.0.append(particles);
            Ok(())
        });
        agreed(&self.ranks, read)?;
        let (particles, Progress { steps, time, next_id }, memory) = restored;
        let common = self.ranks.broadcast(vec![steps, time.to_bits(), next_id]);
        let memory = self.ranks.broadcast(memory);
        let [steps, time, next_id] = common[..] else { unreachable!("three numbers were sent") };
        self.go_on(particles, Progress { steps, time: f64::from_bits(time), next_id }, &memory)
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
        let (mut particles, progress, memory) = restored?;
        if !self.ranks.is_alone() {
            // Every rank has read all particles.
            let part = Layers { part: self.ranks.rank(), parts: self.ranks.size() };
            let part = part.range(particles.len());
            particles.reorder(&Vec::from_iter(part.start as u32..part.end as u32));
        }
        self.go_on(particles, progress, &memory)
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
