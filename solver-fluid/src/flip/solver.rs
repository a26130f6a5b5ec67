//! FLIP as a method of a fluid: the phases of a sub-step in their order.

use std::time::Duration;

use std::borrow::Cow;

use amalgam_particles::lanes::{LANES, Width};
use amalgam_particles::reduce::CHUNK;
use amalgam_particles::{DVec3, Lattice, NO_GROUP, ParticleId, Particles};
use amalgam_solver_kit::{Field, FieldValues, Ranks, Request, SolverError};
use rayon::prelude::*;

use super::FlipParameters;
use super::cell::Cell;
use super::density_correction::DensityCorrection;
use super::face_velocity::FaceVelocities;
use super::forces::{FaceForces, ForcesVersion};
use super::grid::{CutCells, Grid};
use super::grid_to_particle::{FacePairs, FaceSource, GridToParticle, Interpolated};
use super::group_members::{MEMBERS, SampleMembers};
use super::particle_to_grid::ParticleToGrid;
use super::pressure::{Limits, PressureSolver, Split, pressure_seen, split_zeros};
use super::slab::members::SeenMembers;
use super::slab::{Halo, Slab, depth};
use super::state::{CellKinds, OutsideImpulses, ParticlesOnGrid, Settings, Timing, Transfer};
use crate::fluid::{Basics, Fluid, FluidMethod};
use crate::groups::{GroupMotion, UnknownGroups};
use crate::substeps::{Extremes, SubstepRequest};

/// Deviation from the rest density, relative to it, up to which particles are not moved for it.
const DEVIATION_MIN: f64 = 0.05;

/// Residual of the density projection relative to the largest deviation: what is left is there in the next
/// step again.
const DENSITY_TOLERANCE: f64 = 0.1;

/// Largest displacement of a particle by the density projection in a sub-step, in radii. Contacts are sought
/// only at the start of a step.
const SPREAD_MAX: f64 = 0.25;

/// Inverse of the part of all particles above which pairs are computed at all faces in advance.
const MANY: usize = 16;

/// Number of particles that interpolate from the grid at once.
const BLOCK: usize = 256;

/// FLIP [ZhuBridson2005]: velocities live on particles, pressure on a grid.
///
/// A snapshot holds the particles, which the method does not own, and `pressure`. A restored run goes on with
/// the same bits, since a step computes all other data anew from these before it reads them:
///
/// | fields | live | in a snapshot |
/// | --- | --- | --- |
/// | `settings` | as long as the solver, unchanged | no, a scene has them |
/// | `slab` | until layers are dealt anew | no, no bit depends on it |
/// | `pressure` | from step to step: each solve starts at the last answer | yes |
/// | `timing`, `strayed`, `particles`, `cells`, `outside`, `flow`, `pairs` | for a step | no |
/// | `scratch` | for a solve | no |
/// | `solver` | for a solve, and the system as long as its version is valid | no |
/// | `iterations` | a counter for tests and benchmarks | no |
///
/// Versions in `particles`, `cells`, `outside`, `flow` and `solver` tell what has not changed since it was
/// computed last, also in an earlier step. They save time and change no result.
pub struct FlipMethod {
    settings: Settings,
    /// The layers that this rank computes.
    slab: Slab,
    /// Pressure in cells [Pa]: the last answer, where the next solve starts.
    pressure: Split<f64>,
    timing: Timing,
    /// Layers by which a particle of some rank is outside of the rank's slab at the start of the sub-step.
    strayed: usize,
    particles: ParticlesOnGrid,
    cells: CellKinds,
    outside: OutsideImpulses,
    /// Velocities at faces in all phases of the last sub-step.
    flow: FaceVelocities,
    /// The velocities that free particles take: see [`FaceVelocities::set_face_pairs`].
    pairs: FacePairs,
    scratch: Scratch,
    solver: PressureSolver,
    /// Iterations of the last projection.
    iterations: u32,
}

/// Columns that are filled for one solve.
struct Scratch {
    /// Minus the divergence, or the deviation of the density over the relaxation time [1/s].
    right_hand_side: Split<f64>,
    /// psi of the density projection (`flip/density_correction.rs`), as a pressure [Pa].
    potential: Split<f64>,
}

impl Fluid<FlipMethod> {
    /// Iterations of the last projection.
    pub fn iterations(&self) -> u32 {
        self.method.iterations
    }

    /// Deals layers to ranks anew, by numbers of particles in layers, so that particles move between ranks at
    /// the end of the next step. Collective.
    ///
    /// # Errors
    /// There are too few layers.
    pub fn recut(&mut self, particles: &[i64]) -> Result<(), SolverError> {
        let slab = Slab::new(&self.method.slab.ranks, self.method.settings.grid, particles)?;
        self.method.take_over(slab);
        Ok(())
    }

    /// Numbers of cells in the slab of this rank, and in the layers beside it that this rank sees.
    pub fn shared(&self) -> (usize, usize) {
        let (slab, [x, y, _]) = (&self.method.slab, self.method.settings.grid.cells);
        let cells = |depth| x * y * slab.layers_of(slab.ranks.rank(), depth).len();
        (cells(0), cells(depth::FORCES) - cells(0))
    }

    /// Cells that hold particles of this fluid.
    pub fn liquid_cells(&self) -> usize {
        self.method.particles.start.grid.cell.iter().filter(|&&cell| cell == Cell::Fluid).count()
    }
}

impl FlipMethod {
    /// Begins a slab without any data of the last one, but for the pressure.
    fn take(&mut self, slab: Slab) {
        let Settings { parameters, grid, width, .. } = &self.settings;
        self.particles = ParticlesOnGrid::default();
        self.cells = CellKinds::default();
        self.outside = OutsideImpulses::new(grid, parameters);
        self.flow = FaceVelocities::new(grid, *width);
        self.pairs = FacePairs::default();
        self.solver = PressureSolver::new(&slab, *grid, *width);
        self.slab = slab;
    }

    /// Begins another slab, with the pressure that all ranks have found. Collective.
    fn take_over(&mut self, slab: Slab) {
        let (before, grid) = (&self.slab, self.settings.grid);
        let wanted = |rank| pressure_seen(&slab, grid, rank);
        let found = Halo::new(&before.ranks, |rank| before.entries_of(rank, 0), wanted);
        found.exchange_split(&before.ranks, &mut self.pressure);
        self.take(slab);
    }

    /// Transfers particles to the grid as if all were free; contributions of groups are added later. Finds
    /// spray, and the faces at which walls may let go. Collective.
    fn transfer(&mut self, first: bool, id: &[ParticleId], state: (&[DVec3], &[DVec3])) {
        let Self { settings, slab, particles, cells, pressure, .. } = self;
        particles.transfer((settings, slab), first, id, state);
        cells.find_unpressed((settings, slab), &particles.of(first).grid, pressure);
    }

    /// Advances the grid by a sub-step, to velocities that are divergence-free in all cells except air. Returns a
    /// bound of the velocity that the sub-step gives [m/s].
    fn advance_grid(
        &mut self,
        first: bool,
        seen: &SeenMembers<'_>,
        motion: &GroupMotion<'_>,
        request: &Request<'_>,
    ) -> Result<f64, SolverError> {
        let Self { settings, slab, timing, cells, outside, flow, scratch, .. } = self;
        let Settings { parameters, grid, cut, width } = &*settings;
        let (transfer, members) = self.particles.parts_mut(first);
        let Transfer { grid: transferred, number } = transfer;
        let (dt, cut) = (timing.substep, cut.as_ref());
        cells.classify((grid, cut, slab), transferred, parameters.gravity * dt, request.occupied);
        outside.update((settings, slab), transfer, timing)?;
        members.add_up((grid, *width), (&seen.position, &seen.velocity), motion, parameters.gravity * dt);
        let version = ForcesVersion { transfer: *number, cells: cells.version, dt };
        let (cell, outside) = (&cells.now, outside.at_faces.as_ref());
        let forces = FaceForces { grid, cut, parameters, transferred, cell, outside, version };
        flow.apply_forces(slab, &forces, members);
        let set = |system: &mut _| flow.set_coefficients(slab, &forces, system);
        self.solver.set_coefficients(flow.conductance_version(), flow.changed(), set);
        flow.negative_divergence((grid, slab), (cell, cut), &mut scratch.right_hand_side);
        let limits = Limits {
            tolerance: parameters.tolerance,
            forcing: request.forcing,
            iterations_max: parameters.iterations_max,
        };
        let solved =
            self.solver.solve(&mut scratch.right_hand_side, flow.changed(), &mut self.pressure, &limits);
        self.iterations = solved.map_err(|unconverged| {
            SolverError(format!(
                "the pressure reached a residual of {:.1e} in {} iterations, not the tolerance {:.1e}: write a larger \
                 iterations_max or tolerance, or take shorter steps",
                unconverged.0, limits.iterations_max, limits.tolerance
            ))
        })?;
        let given = flow.set_pressure(
            slab,
            (grid, (cell, cut)),
            &self.pressure,
            &cells.unpressed,
            parameters.flip_ratio,
        );
        Ok(given.length())
    }

    /// Velocity of each seen member as the grid alone would have it. In f64: a group's inertia times the change of
    /// its velocity is what others feel.
    fn member_velocities(&mut self, motion: &GroupMotion<'_>) -> Vec<DVec3> {
        let Self { settings, particles: ParticlesOnGrid { members, .. }, flow, .. } = self;
        let Settings { parameters: FlipParameters { flip_ratio, .. }, grid, width, .. } = &*settings;
        let projected = flow.projected(grid, *flip_ratio);
        members.sample(|axis, face| projected.velocities(axis, face));
        let (flip_ratio, contributions) = (*flip_ratio, &*members);
        let mut velocities = vec![DVec3::ZERO; motion.groups.all_members().len()];
        let chunks =
            velocities.par_chunks_mut(LANES).zip(&contributions.members).with_min_len(MEMBERS / LANES);
        chunks.for_each(|(result, members)| {
            width.run(SampleMembers { grid, motion, flip_ratio, contributions, members, result });
        });
        velocities
    }

    /// Lets the free ones of some particles take the last sub-step's velocities, and moves them with the grid's
    /// velocity, second order, through the middle of the way.
    fn advect(&self, group_of: &[u32], (position, velocity): (&mut [DVec3], &mut [DVec3])) -> Extremes {
        let Self { settings: Settings { parameters, grid, cut, width }, pairs, timing, .. } = self;
        let (substep, flip_ratio) = (timing.substep, parameters.flip_ratio);
        let (low, high) = parameters.inner_domain();
        let (mut middle, mut interpolated) = ([DVec3::ZERO; BLOCK], [Interpolated::default(); BLOCK]);
        let (mut extremes, cut) = (Extremes::default(), cut.as_ref());
        for (n, (position, velocity)) in
            position.chunks_mut(BLOCK).zip(velocity.chunks_mut(BLOCK)).enumerate()
        {
            let group_of = &group_of[n * BLOCK..][..position.len()];
            let (middle, interpolated) = (&mut middle[..position.len()], &mut interpolated[..position.len()]);
            width.run(GridToParticle { grid, pairs, position, interpolated: &mut *interpolated });
            for (l, interpolated) in interpolated.iter().enumerate() {
                middle[l] = position[l] + 0.5 * substep * grid_velocity(interpolated);
                if group_of[l] == NO_GROUP {
                    let gained = DVec3::from_array(interpolated.map(|pair| f64::from(pair[1])));
                    velocity[l] = flip_ratio * velocity[l] + gained;
                }
            }
            width.run(GridToParticle { grid, pairs, position: middle, interpolated: &mut *interpolated });
            for (l, interpolated) in interpolated.iter().enumerate() {
                if group_of[l] == NO_GROUP {
                    let to = (position[l] + substep * grid_velocity(interpolated)).max(low).min(high);
                    (position[l], velocity[l]) = match cut {
                        Some(cut) => cut.kept_off(grid, (low, high), (position[l], to), velocity[l]),
                        None => (to, velocity[l]),
                    };
                    extremes.include(position[l], velocity[l]);
                }
            }
        }
        extremes
    }

    /// The grid's velocities at the positions of these particles, from where they find pairs.
    fn interpolated(&self, pairs: impl FaceSource + Sync, all: &[DVec3], wanted: &[u32]) -> Vec<DVec3> {
        let Settings { grid, width, .. } = &self.settings;
        let of_block = |wanted: &[u32]| {
            let (mut position, mut interpolated) = ([DVec3::ZERO; BLOCK], [Interpolated::default(); BLOCK]);
            for (position, &i) in position.iter_mut().zip(wanted) {
                *position = all[i as usize];
            }
            let (position, interpolated) = (&position[..wanted.len()], &mut interpolated[..wanted.len()]);
            width.run(GridToParticle { grid, pairs, position, interpolated: &mut *interpolated });
            interpolated.iter().map(grid_velocity).collect::<Vec<_>>()
        };
        wanted.par_chunks(BLOCK).flat_map_iter(of_block).collect()
    }

    /// Finds the velocities with which free particles travel: the flow, and what brings the density nearer to
    /// the rest density. Collective.
    fn set_face_pairs(&mut self, first: bool) -> Result<(), SolverError> {
        let (flip_ratio, grid) = (self.settings.parameters.flip_ratio, &self.settings.grid);
        self.flow.set_face_pairs((grid, &self.slab), flip_ratio, &mut self.pairs);
        self.correct_density(first)?;
        self.slab.see_pairs(0.5 * self.timing.substep, self.strayed, &mut self.pairs);
        Ok(())
    }

    /// Adds the velocities that bring the density nearer to the rest density. Collective.
    fn correct_density(&mut self, first: bool) -> Result<(), SolverError> {
        let Self { settings, slab, cells, scratch: Scratch { right_hand_side, potential }, .. } = self;
        let Settings { parameters, grid, cut, .. } = &*settings;
        let (Transfer { grid: transferred, .. }, contributions) = self.particles.parts(first);
        let (cell, full) = (&cells.now, parameters.full());
        let cut = cut.as_ref();
        let correction = DensityCorrection { slab, grid, cut, transferred, contributions, cell, full };
        if correction.deviations(right_hand_side) < DEVIATION_MIN {
            return Ok(());
        }
        let relaxation = self.timing.relaxation_time.max(self.timing.substep);
        let own = slab.entries(0);
        for column in &mut *right_hand_side {
            let own = column[own.start / 2..own.end.div_ceil(2)].par_iter_mut().with_min_len(CHUNK);
            own.for_each(|deviation| *deviation /= relaxation);
        }
        self.solver.begin_at_zero(potential);
        let limits =
            Limits { tolerance: DENSITY_TOLERANCE, forcing: 0.0, iterations_max: parameters.iterations_max };
        let changed = vec![true; self.flow.changed().len()];
        let solved = self.solver.solve(right_hand_side, &changed, potential, &limits);
        solved.map_err(|unconverged| {
            SolverError(format!(
                "the density projection reached a residual of {:.1e} in {} iterations, not {DENSITY_TOLERANCE}: write a \
                 larger iterations_max",
                unconverged.0, limits.iterations_max
            ))
        })?;
        let speed_max = SPREAD_MAX * parameters.radius / self.timing.substep;
        self.flow.add_correction((grid, slab), (cell, contributions), potential, speed_max, &mut self.pairs);
        Ok(())
    }
}

/// The grid's velocity [m/s] among a particle's interpolated values.
#[inline(always)]
fn grid_velocity(interpolated: &Interpolated) -> DVec3 {
    DVec3::from_array(interpolated.map(|pair| f64::from(pair[0])))
}

impl FluidMethod for FlipMethod {
    type Parameters = FlipParameters;
    type Groups = UnknownGroups;
    const MAGIC: &'static [u8; 8] = b"AMFLP003";

    fn new(parameters: FlipParameters, _: &Particles, width: Width) -> Self {
        let grid = Grid::new(parameters.domain.0, parameters.cell_size, parameters.cells());
        Self {
            pressure: split_zeros(&grid),
            timing: Timing::default(),
            particles: ParticlesOnGrid::default(),
            cells: CellKinds::default(),
            outside: OutsideImpulses::new(&grid, &parameters),
            flow: FaceVelocities::new(&grid, width),
            strayed: 0,
            pairs: FacePairs::default(),
            scratch: Scratch { right_hand_side: split_zeros(&grid), potential: split_zeros(&grid) },
            solver: PressureSolver::new(&Slab::whole(grid), grid, width),
            slab: Slab::whole(grid),
            iterations: 0,
            settings: Settings {
                cut: CutCells::new(&grid, &parameters.obstacles, parameters.cfl),
                parameters,
                grid,
                width,
            },
        }
    }

    fn basics(&self) -> Basics<'_> {
        let FlipParameters { spacing, particle_mass, radius, substeps_max, ref sources, ref fields, .. } =
            self.settings.parameters;
        Basics {
            spacing,
            particle_mass,
            radius,
            substeps_max,
            substeps_once: 1,
            sources,
            fields_of_force: fields,
        }
    }

    fn keeps_off_obstacles(&self) -> bool {
        true
    }

    fn occupancy_grid(&self) -> Option<Lattice> {
        self.settings.parameters.occupancy.then(|| self.settings.grid.lattice())
    }

    /// No particle crosses more than `cfl` cells, with the speed that gravity adds in the sub-step.
    fn stable_substep(&self, speed: f64) -> f64 {
        // v dt + g dt^2 = reach, solved for dt in the form that cannot cancel.
        let FlipParameters { cfl, gravity, .. } = &self.settings.parameters;
        let reach = cfl * self.settings.grid.cell_size;
        let root = (speed * speed + 4.0 * gravity.length() * reach).sqrt();
        if speed + root > 0.0 { 2.0 * reach / (speed + root) } else { f64::INFINITY }
    }

    fn begin(&mut self, particles: &Particles, _: f64) -> Result<(), SolverError> {
        self.transfer(true, &particles.id, (&particles.position, &particles.velocity));
        Ok(())
    }

    fn substep(
        &mut self,
        asked: SubstepRequest<'_>,
        groups: &mut UnknownGroups,
        momentum: &mut [DVec3],
    ) -> Result<f64, SolverError> {
        let SubstepRequest { substep, request, particles, position, velocity, speed_bound } = asked;
        self.timing = Timing {
            is_first: substep.is_first(),
            begin: substep.time,
            substep: substep.dt,
            relaxation_time: substep.stable / self.settings.parameters.cfl,
        };
        self.strayed = 0;
        if !substep.is_first() {
            self.strayed = self.slab.strayed(position);
            let guests =
                (self.strayed > 0).then(|| self.slab.with_guests(&particles.id, (position, velocity)));
            match guests {
                Some((id, position, velocity)) => self.transfer(false, &id, (&position, &velocity)),
                None => self.transfer(false, &particles.id, (position, velocity)),
            }
        }
        let seen =
            SeenMembers::new(&self.slab, &self.settings.grid, request, (position, &particles.velocity));
        let motion = groups.motion(&seen.groups);
        let given = self.advance_grid(substep.is_first(), &seen, &motion, request)?;
        let of_members = self.member_velocities(&motion);
        groups.react(&self.slab.ranks, seen.all(&self.slab, of_members), momentum);
        Ok(speed_bound + given)
    }

    /// The grid's velocities, to first order in the sub-step and without the density projection.
    fn velocities(&self, (position, _): (&[DVec3], &[DVec3]), wanted: &[u32]) -> Vec<DVec3> {
        let Settings { parameters: FlipParameters { flip_ratio, .. }, grid, .. } = &self.settings;
        let few = wanted.len() < position.len() / MANY;
        if few && self.strayed == 0 {
            return self.interpolated(self.flow.projected(grid, *flip_ratio), position, wanted);
        }
        let mut pairs = FacePairs::default();
        self.flow.set_face_pairs((grid, &self.slab), *flip_ratio, &mut pairs);
        if self.strayed > 0 {
            self.slab.see_pairs(0.0, self.strayed, &mut pairs);
        }
        self.interpolated(&pairs, position, wanted)
    }

    fn prepare_advance(&mut self) -> Result<(), SolverError> {
        self.set_face_pairs(self.timing.is_first)
    }

    fn advance(&self, _: usize, group_of: &[u32], columns: (&mut [DVec3], &mut [DVec3])) -> Extremes {
        self.advect(group_of, columns)
    }

    fn order(&self) -> Option<Cow<'_, [u32]>> {
        Some(self.particles.start.grid.order().into())
    }

    fn emitted(&self, id: ParticleId, place: DVec3) -> DVec3 {
        self.settings.parameters.jittered(id, place)
    }

    /// `density` [kg/m^3] of the particles where they are, and `pressure` [Pa] of the last step, from the
    /// grid.
    fn fields(&mut self, particles: &Particles) -> Vec<Field> {
        let Settings { parameters, grid, cut, width } = &self.settings;
        // The transfer at the start is of this state or of the one before, by whether the next step has begun.
        let mut now = ParticleToGrid::default();
        now.transfer(&self.slab, (grid, *width), &particles.id, (&particles.position, &particles.velocity));
        let scale = parameters.particle_mass / grid.cell_size.powi(3);
        let value = |&x: &DVec3| {
            let faces = grid.place(x).faces(grid, 2).into_iter();
            let (mut weight, mut room) = (0.0, 0.0);
            for (face, part) in faces {
                weight += part * f64::from(now.at(2, face)[0]);
                room += part * cut.as_ref().map_or(1.0, |cut| cut.weight(2, face));
            }
            let cell = grid.index(grid.cell(x));
            ((scale * weight / room) as f32, self.pressure[cell % 2][cell / 2] as f32)
        };
        let (density, pressure) = particles.position.iter().map(value).unzip();
        vec![
            Field { name: "density", values: FieldValues::Scalar(density) },
            Field { name: "pressure", values: FieldValues::Scalar(pressure) },
        ]
    }

    /// The pressure of each cell, by colour: the next solve starts there. The first rank has that of all.
    fn memory(&self) -> Vec<f64> {
        let (slab, mut pressure) = (&self.slab, self.pressure.clone());
        let all = |rank| if rank == 0 { 0..self.settings.grid.len() } else { 0..0 };
        let gathered = Halo::new(&slab.ranks, |rank| slab.entries_of(rank, 0), all);
        gathered.exchange_split(&slab.ranks, &mut pressure);
        pressure.concat()
    }

    fn restore(&mut self, _: &Particles, memory: &[f64]) {
        self.pressure.iter_mut().flatten().zip(memory).for_each(|(pressure, &kept)| *pressure = kept);
    }

    fn share(&mut self, ranks: &Ranks, particles: &Particles) -> Result<(), SolverError> {
        let grid = self.settings.grid;
        let counts = Slab::count(ranks, &grid, particles.position.iter().copied());
        let slab = Slab::new(ranks, grid, &counts)?;
        self.take(slab);
        Ok(())
    }

    fn owners(&mut self, particles: &Particles, busy: Option<Duration>) -> Vec<u32> {
        let grid = self.settings.grid;
        if let Some(busy) = busy {
            let counts = Slab::count(&self.slab.ranks, &grid, particles.position.iter().copied());
            if let Some(slab) = self.slab.balanced(&counts, busy) {
                self.take_over(slab);
            }
        }
        self.slab.owners(&particles.position)
    }
}
