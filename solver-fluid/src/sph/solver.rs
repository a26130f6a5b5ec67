//! SPH as a method of a fluid: densities and forces of a sub-step, groups, walls.

use std::borrow::Cow;
use std::cell::Cell;
use std::time::Duration;

use amalgam_particles::lanes::{Lanes, Task, Width};
use amalgam_particles::reduce::CHUNK;
use amalgam_particles::{DVec3, GroupMap, NO_GROUP, Particles};
use amalgam_solver_kit::{Field, FieldValues, Fields, Members, Ranks, Request, SolverError};
use rayon::prelude::*;

use super::ghosts::{Ghosts, Share};
use super::neighbours::{FixedPointGrid, Points};
use super::{SphParameters, evaluation::Evaluation, guard::Guard, walls::Walls};
use crate::fluid::{Basics, Fluid, FluidMethod};
use crate::groups::BoundaryGroups;
use crate::substeps::{Extremes, SubstepRequest};

/// Relative excess of a sub-step over the longest stable one up to which no further sub-step is added,
/// because fluid that gets slightly faster or denser within a step should not double the work. The default
/// Courant number leaves room for this excess: a dam break is stable at 2.5 times the default.
const SUBSTEP_TOLERANCE: f64 = 0.25;

/// Weakly compressible SPH.
pub struct SphMethod {
    parameters: SphParameters,
    /// Densities and forces at the start of the step. They serve its first sub-step.
    start: Evaluation,
    /// True if the densities of `start` are known to be those of the committed particles.
    is_current: bool,
    /// Densities and forces at later sub-steps. It is unused while steps have one sub-step.
    later: Evaluation,
    /// Energy of compression [J] at the start of the step.
    compression_energy: f64,
    /// Position of the last sub-step in its step.
    when: When,
    /// Start of the last sub-step and its length [s].
    step: (f64, f64),
    guard: Guard,
    /// The part of the fluid that this rank owns, and the particles of other ranks that it sees.
    share: Share,
    ghosts: Ghosts,
}

impl Fluid<SphMethod> {
    /// Cuts space among ranks anew, where an own particle costs `weight` [ns], so that particles move between
    /// ranks at the end of the next step. Collective.
    pub fn recut(&mut self, weight: u64) {
        let grid = self.method.grid();
        self.method.share.recut(&grid, &self.particles.position, weight);
    }

    /// The number of particles of other ranks that this rank sees, and the time that it has spent so far on finding
    /// and copying particles that others see, and on copying received ghosts.
    pub fn shared(&self) -> (usize, Duration) {
        (self.method.ghosts.points().ids.len(), self.method.share.packing)
    }

    /// Pairs of particle and candidate per particle that the loops over densities and over forces visited at
    /// the start of the last step.
    pub fn pairs_per_particle(&self) -> [f64; 2] {
        self.method.start.pairs().map(|pairs| pairs as f64 / self.particles.len() as f64)
    }
}

impl SphMethod {
    fn grid(&self) -> FixedPointGrid {
        FixedPointGrid::new(self.parameters.support_radius, self.parameters.walls)
    }

    /// Finds the densities of own particles. Collective.
    fn find_densities(&mut self, when: When, own: Points<'_>) {
        let grid = self.grid();
        let Self { parameters, start, later, share, ghosts, .. } = self;
        let evaluation = match when {
            When::Start => start,
            When::Later => later,
        };
        ghosts.exchange(share, &grid, own, when == When::Later);
        evaluation.find_densities(parameters, own, ghosts.points());
        evaluation.join_densities(&share.ranks, ghosts);
        self.is_current |= when == When::Start;
    }

    /// Finds accelerations at the densities found last. Collective.
    fn find_accelerations(&mut self, when: When) {
        let Self { parameters, start, later, share, .. } = self;
        let evaluation = match when {
            When::Start => start,
            When::Later => later,
        };
        evaluation.find_accelerations(parameters);
        evaluation.join_accelerations(&share.ranks);
    }

    /// The accelerations of the last sub-step.
    fn evaluation(&self) -> &Evaluation {
        match self.when {
            When::Start => &self.start,
            When::Later => &self.later,
        }
    }

    fn kick(&self) -> Kick<'_> {
        let SphParameters { gravity, walls, ref fields, .. } = self.parameters;
        Kick { evaluation: self.evaluation(), gravity, walls, fields, step: self.step }
    }

    /// Adds the momentum that a sub-step gives to groups.
    fn add_momentum(
        &self,
        (groups, members): (&GroupMap, Members<'_>),
        (position, velocity): (&[DVec3], &[DVec3]),
        momentum: &mut [DVec3],
    ) {
        let (fields, mass) = (&self.parameters.fields, self.parameters.mass);
        let (evaluation, scale) = (self.evaluation(), self.step.1 * mass);
        let forces = |i: u32| scale * (evaluation.acceleration(i as usize) + self.parameters.gravity);
        let momentum = Cell::from_mut(momentum).as_slice_of_cells();
        let start = |group: usize| Some(momentum[group].get());
        let end = |group: usize, sum: DVec3| momentum[group].set(sum);
        if fields.is_empty() {
            return members.fold(groups, forces, start, |sum, _, forces| sum + forces, end);
        }
        let all = |i: u32| {
            let state = (position[i as usize], velocity[i as usize]);
            [forces(i), mass * fields.change(state, self.step)]
        };
        members.fold(groups, all, start, |sum, _, [forces, pushed]| sum + forces + pushed, end);
    }

    /// Adds the impulse by which walls keep members in the domain: the least impulse on the whole group with
    /// which no member comes nearer to a wall than the clearance. A group of infinite inertia is not stopped.
    fn hold_groups(&self, position: &[DVec3], request: &Request<'_>, momentum: &mut [DVec3]) {
        let Some(walls) = self.parameters.walls else { return };
        let range = |member: u32| <[DVec3; 2]>::from(walls.bounds(position[member as usize], request.dt));
        let free = [DVec3::NEG_INFINITY, DVec3::INFINITY];
        let start = |group: usize| request.inertia[group].is_finite().then_some(free);
        let narrower =
            |[lowest, highest]: [DVec3; 2], _, [low, high]: [DVec3; 2]| [lowest.max(low), highest.min(high)];
        request.members.fold(request.groups, range, start, narrower, |group, [lowest, highest]| {
            let (inertia, momentum) = (request.inertia[group], &mut momentum[group]);
            let velocity = request.velocity[group] + (*momentum + request.impulse[group]) / inertia;
            *momentum += inertia * (velocity.clamp(lowest, highest) - velocity);
        });
    }
}

/// Position of a sub-step in its step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// The first one of a step.
    Start,
    /// A later one.
    Later,
}

/// Committed particles as loops over pairs read them.
fn committed(particles: &Particles) -> Points<'_> {
    let Particles { id, position, velocity, .. } = particles;
    Points { ids: id, positions: position, velocities: velocity }
}

/// Advance of free particles in a sub-step.
struct Kick<'a> {
    evaluation: &'a Evaluation,
    gravity: DVec3,
    walls: Option<Walls>,
    fields: &'a Fields,
    /// Start of the sub-step and its length [s].
    step: (f64, f64),
}

impl Kick<'_> {
    /// The velocity [m/s] after the sub-step, from index, position [m] and velocity [m/s] before it.
    #[inline(always)]
    fn velocity(&self, particle: usize, position: DVec3, velocity: DVec3) -> DVec3 {
        let mut free = velocity + self.step.1 * (self.evaluation.acceleration(particle) + self.gravity);
        if !self.fields.is_empty() {
            free += self.change_by_fields(position, velocity);
        }
        match &self.walls {
            Some(walls) => walls.hold(position, free, self.step.1),
            None => free,
        }
    }

    /// The change of velocity [m/s] by fields of force. It is not a part of the loops over particles, which
    /// would be slower with it where there are no fields.
    #[cold]
    fn change_by_fields(&self, position: DVec3, velocity: DVec3) -> DVec3 {
        self.fields.change((position, velocity), self.step)
    }
}

/// Motion of a chunk of particles in a sub-step. Members of groups stay where they are.
struct Travel<'a> {
    kick: &'a Kick<'a>,
    /// Index of the chunk's first particle.
    first: usize,
    group_of: &'a [u32],
    /// Positions [m] and velocities [m/s].
    positions: &'a mut [DVec3],
    velocities: &'a mut [DVec3],
}

impl Task for Travel<'_> {
    type Output = Extremes;

    #[inline(always)]
    fn run<L: Lanes>(self) -> Extremes {
        let Self { kick, first, group_of, positions, velocities } = self;
        let mut extremes = Extremes::default();
        for (k, (position, velocity)) in positions.iter_mut().zip(velocities).enumerate() {
            if group_of[k] == NO_GROUP {
                let free = kick.velocity(first + k, *position, *velocity);
                let end = *position + kick.step.1 * free;
                extremes.include(end, free);
                (*position, *velocity) = (end, free);
            }
        }
        extremes
    }
}

impl FluidMethod for SphMethod {
    type Parameters = SphParameters;
    type Groups = BoundaryGroups;
    /// In 64 steps of one sub-step a particle moves by few cells, since it moves by about `cfl / 20` cells in
    /// each. The speed of sound is ten times the largest speed, and a cell is two smoothing lengths wide.
    const STORAGE_PERIOD: u64 = 64;
    const MAGIC: &'static [u8; 8] = b"AMSPH004";
    const TOO_MANY_SUBSTEPS: &'static str = "the fluid is too fast or too dense for this step";
    const UNSTABLE: &'static str = "write a smaller cfl or a larger viscosity";

    fn new(parameters: SphParameters, particles: &Particles, width: Width) -> Self {
        let mut method = Self {
            parameters,
            start: Evaluation::with_width(width),
            is_current: false,
            later: Evaluation::with_width(width),
            compression_energy: 0.0,
            when: When::Start,
            step: (0.0, 0.0),
            guard: Guard::default(),
            share: Share::default(),
            ghosts: Ghosts::default(),
        };
        method.find_densities(When::Start, committed(particles));
        method
    }

    fn basics(&self) -> Basics<'_> {
        let SphParameters { spacing, mass, radius, substeps_max, substeps_once, .. } = self.parameters;
        let SphParameters { ref sources, ref fields, .. } = self.parameters;
        let (particle_mass, fields_of_force) = (mass, fields);
        Basics { spacing, particle_mass, radius, substeps_max, substeps_once, sources, fields_of_force }
    }

    /// The longest stable sub-step [s] at the densities found last.
    fn stable_substep(&self, speed: f64) -> f64 {
        let sound_speed = self.parameters.state.local_sound_speed(self.start.largest_compression());
        self.parameters.stable_substep(speed, sound_speed)
    }

    fn substeps(length: f64) -> f64 {
        length - SUBSTEP_TOLERANCE
    }

    /// Finds densities, pressures and all forces of the first sub-step. Viscosity uses the particles' own
    /// velocities and not those of groups, so that the forces do not depend on groups.
    fn begin(&mut self, particles: &Particles, speed_max: f64) -> Result<(), SolverError> {
        self.find_densities(When::Start, committed(particles));
        self.find_accelerations(When::Start);
        self.guard.look(&self.parameters.state, speed_max, self.start.mean_compression())?;
        self.compression_energy = self.start.compression_energy(&self.parameters);
        Ok(())
    }

    fn substep(
        &mut self,
        asked: SubstepRequest<'_>,
        _: &mut BoundaryGroups,
        momentum: &mut [DVec3],
    ) -> Result<f64, SolverError> {
        let SubstepRequest { substep, request, particles, position, velocity, speed_bound } = asked;
        self.when = if substep.is_first() { When::Start } else { When::Later };
        self.step = (substep.time, substep.dt);
        if self.when == When::Later {
            self.find_densities(
                When::Later,
                Points { ids: &particles.id, positions: position, velocities: velocity },
            );
            self.find_accelerations(When::Later);
        }
        self.add_momentum((request.groups, request.members), (position, velocity), momentum);
        if substep.is_last() {
            self.hold_groups(&particles.position, request, momentum);
        }
        // Walls only slow down.
        let acceleration = self.evaluation().largest_acceleration() + self.parameters.gravity.length();
        let accelerated = speed_bound + substep.dt * acceleration;
        let fields = &self.parameters.fields;
        let change = if fields.is_empty() { 0.0 } else { fields.change_max(accelerated, substep.dt) };
        Ok(accelerated + change)
    }

    fn prepare_advance(&mut self) -> Result<(), SolverError> {
        self.is_current = false;
        Ok(())
    }

    fn velocities(&self, (position, velocity): (&[DVec3], &[DVec3]), wanted: &[u32]) -> Vec<DVec3> {
        let kick = self.kick();
        let of = |&i: &u32| kick.velocity(i as usize, position[i as usize], velocity[i as usize]);
        wanted.par_iter().with_min_len(CHUNK).map(of).collect()
    }

    fn advance(
        &self,
        first: usize,
        group_of: &[u32],
        (positions, velocities): (&mut [DVec3], &mut [DVec3]),
    ) -> Extremes {
        let kick = self.kick();
        self.evaluation().width().run(Travel { kick: &kick, first, group_of, positions, velocities })
    }

    fn order(&self) -> Option<Cow<'_, [u32]>> {
        Some(self.start.order())
    }

    /// The energy of compression at the start of the step, where densities are known.
    fn energies(&self) -> Vec<(&'static str, f64)> {
        vec![("compression", self.compression_energy)]
    }

    /// `density` [kg/m^3] and `pressure` [Pa] at the committed positions.
    fn fields(&mut self, particles: &Particles) -> Vec<Field> {
        if !self.is_current {
            self.find_densities(When::Start, committed(particles));
        }
        let now = &self.start;
        let state = self.parameters.state;
        let density = now.compressions().map(|x| (x * state.rest_density) as f32).collect();
        let pressure = now.compressions().map(|x| state.pressure(x) as f32).collect();
        vec![
            Field { name: "density", values: FieldValues::Scalar(density) },
            Field { name: "pressure", values: FieldValues::Scalar(pressure) },
        ]
    }

    fn restore(&mut self, particles: &Particles, _: &[f64]) {
        self.find_densities(When::Start, committed(particles));
    }

    fn share(&mut self, ranks: &Ranks, particles: &Particles) -> Result<(), SolverError> {
        self.share = Share::new(ranks, &self.grid(), &particles.position);
        if !ranks.is_first() {
            self.guard = Guard::silent();
        }
        Ok(())
    }

    fn owners(&mut self, particles: &Particles, busy: Option<Duration>) -> Vec<u32> {
        let grid = self.grid();
        if let Some(busy) = busy {
            self.share.balance(&grid, &particles.position, busy);
        }
        self.share.owners(&grid, &particles.position)
    }
}
