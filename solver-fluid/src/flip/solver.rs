//! A FLIP fluid as a participant.

use amalgam_particles::lanes::{LANES, Width};
use amalgam_particles::{CellSet, DMat3, DVec3, GroupMap, Lattice, NO_GROUP, Particles, StepEnd, counting_sort};
use amalgam_solver_kit::{
    Answer, Deferred, Field, FieldValues, Integration, Report, Solver, SolverError, Stage,
};
use rayon::prelude::*;

use super::Parameters;
use super::density::{Crowd, around};
use super::faces::Flow;
use super::grid::Grid;
use super::members::{Extras, MEMBERS, Moving, Take, Taken, inertias, is_lone, masses};
use super::pressure::{Limits, Pressure};
use super::snapshot::{self, Progress};
use super::sweeps::Forces;
use super::system::{Split, split_zeros};
use super::transfer::{CHUNK, Cell, Deposit, Found, Gather, Pairs, Source};
use super::walls::{WallFace, unpressed};
use crate::sources::Sources;
use crate::substeps::{BeforeLast, fastest};

/// Steps after which particles are stored anew in the order of their cells, so that what is near in space is near in
/// memory. In between, a particle moves by a few cells at most.
const STORAGE_PERIOD: u64 = 16;

/// Deviation from the rest density, relative to it, up to which particles are not moved for it.
const DEVIATION_MIN: f64 = 0.05;

/// Residual of the density projection relative to the largest deviation: what is left is there in the next step again.
const DENSITY_TOLERANCE: f64 = 0.1;

/// How far the density projection may move a particle in a sub-step, in radii: contacts are looked for at the start of
/// a step only.
const SPREAD_MAX: f64 = 0.25;

/// The least part of the mass around it that a member is taken to have.
const SHARE_MIN: f64 = 0.01;

/// From which part of all particles on pairs are found at all faces before they are asked for.
const MANY: usize = 16;

/// Particles that find what is on the grid at once.
const BLOCK: usize = 256;

/// A FLIP fluid [ZhuBridson2005]: velocities live on particles, pressure on a grid.
pub struct Flip {
    parameters: Parameters,
    grid: Grid,
    particles: Particles,
    /// Of the state at the start of the step; it serves the first sub-step of every stage.
    start: Deposit,
    /// At later sub-steps; unused while steps have one.
    later: Deposit,
    extras: Extras,
    /// Where the walls may let go.
    unpressed: Vec<WallFace>,
    /// What each cell holds, that of others included.
    cell: Vec<Cell>,
    /// The same at the last marking.
    cell_before: Vec<Cell>,
    flow: Flow,
    /// Length of the sub-step [s] for which `flow` was gathered from `start`; none if it was not.
    gathered: Option<f64>,
    /// What particles take: see [`Flow::pair_up`].
    pairs: Pairs,
    right_hand_side: Split<f64>,
    solver: Pressure,
    /// Pressure in cells [Pa]: the last answer, where the next solve starts.
    pressure: Split<f64>,
    /// psi of the density projection (`flip/density.rs`), as a pressure [Pa].
    potential: Split<f64>,
    before: BeforeLast,
    /// Velocity [m/s] that each member which carries nobody else has after the last sub-step.
    kept: Vec<(u32, DVec3)>,
    /// Bound of the speed of free particles after the last sub-step [m/s].
    speed_bound: f64,
    /// Time in which the fastest particle crosses about a cell [s]: the relaxation time of the density.
    crossing: f64,
    /// Largest speed at the start of the step [m/s].
    speed_max: f64,
    /// Longest sub-step [s] in which no particle crosses more than `cfl` cells, with the speed that gravity adds in it.
    stable_substep: f64,
    /// Length of a sub-step of the last integration [s].
    substep: f64,
    sources: Sources,
    /// Steps committed.
    steps: u64,
    iterations: u32,
    width: Width,
}

impl Flip {
    /// A fluid of equal particles.
    pub fn new(parameters: Parameters, particles: Particles) -> Self {
        Self::with_width(parameters, particles, Width::of_machine())
    }

    /// The same with loops of a given vector width, on which results do not depend.
    pub fn with_width(parameters: Parameters, particles: Particles, width: Width) -> Self {
        let grid = Grid::new(parameters.domain.0, parameters.cell_size, parameters.cells());
        let mut this = Self {
            start: Deposit::default(),
            later: Deposit::default(),
            extras: Extras::default(),
            unpressed: Vec::new(),
            cell: Vec::new(),
            cell_before: Vec::new(),
            flow: Flow::new(&grid, width),
            gathered: None,
            pairs: Pairs::default(),
            right_hand_side: split_zeros(&grid),
            solver: Pressure::new(grid, width),
            pressure: split_zeros(&grid),
            potential: split_zeros(&grid),
            before: BeforeLast::default(),
            kept: Vec::new(),
            speed_bound: 0.0,
            crossing: 0.0,
            speed_max: 0.0,
            stable_substep: 0.0,
            substep: 0.0,
            steps: 0,
            iterations: 0,
            sources: parameters.sources.clone(),
            parameters,
            grid,
            particles,
            width,
        };
        this.find_speed();
        this
    }

    /// Iterations of the last projection.
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Cells that hold particles of this fluid.
    pub fn liquid_cells(&self) -> usize {
        self.start.cell.iter().filter(|&&cell| cell == Cell::Fluid).count()
    }

    /// Finds the largest speed and the longest stable sub-step.
    fn find_speed(&mut self) {
        let speed = fastest(&self.particles.velocity);
        // v dt + g dt^2 = reach, solved for dt in the form that cannot cancel.
        let reach = self.parameters.cfl * self.grid.cell_size;
        let root = (speed * speed + 4.0 * self.parameters.gravity.length() * reach).sqrt();
        self.stable_substep = if speed + root > 0.0 { 2.0 * reach / (speed + root) } else { f64::INFINITY };
        self.speed_max = speed;
    }

    /// Sets which cells are no air; whether any is another than before.
    fn mark_cells(&mut self, first: bool, occupied: Option<&CellSet>) -> bool {
        let deposit = if first { &self.start } else { &self.later };
        std::mem::swap(&mut self.cell, &mut self.cell_before);
        self.cell.clone_from(&deposit.cell);
        let fall = (self.parameters.gravity * self.substep).to_array();
        for face in &self.unpressed {
            face.release(deposit, fall, &mut self.cell);
        }
        for cell in occupied.into_iter().flat_map(CellSet::iter) {
            let inside = cell.to_array().map(|c| usize::try_from(c).unwrap_or(usize::MAX));
            if self.grid.is_cell(inside) {
                let at = self.grid.index(inside);
                if self.cell[at] == Cell::Air {
                    self.cell[at] = Cell::Foreign;
                    // What is beside others fills its cell together with them.
                    for (_, _, next) in around(&self.grid, at) {
                        if self.cell[next] == Cell::Spray {
                            self.cell[next] = Cell::Fluid;
                        }
                    }
                }
            }
        }
        let pairs = self.cell.iter().zip(&self.cell_before);
        // Without a way out early: in vectors.
        pairs.fold(self.cell.len() != self.cell_before.len(), |other, (a, b)| other | (a != b))
    }

    /// One sub-step on the grid, to velocities that are divergence-free in all cells that are no air.
    fn advance_grid(
        &mut self,
        first: bool,
        moving: &Moving<'_>,
        stage: &Stage<'_>,
    ) -> Result<(), SolverError> {
        let dt = self.substep;
        let new_cells = self.mark_cells(first, stage.occupied);
        let before = std::mem::replace(&mut self.gathered, first.then_some(dt));
        let new = new_cells || before != Some(dt) || !first;
        let Self { grid, width, parameters, particles, extras, cell, flow, before, .. } = self;
        let deposit = if first { &self.start } else { &self.later };
        let (position, _) = before.of(particles);
        extras.renew((grid, *width), (position, particles), moving, parameters.gravity * dt);
        let forces = Forces { grid, parameters, deposit, cell, dt };
        flow.gather(&forces, extras, new);
        if flow.conducts() {
            self.solver.set_coefficients(flow.changed(), |system| flow.conduct(&forces, system));
        }
        flow.convergence(grid, cell, &mut self.right_hand_side);
        let limits = Limits {
            tolerance: parameters.tolerance,
            forcing: stage.forcing,
            max_iterations: parameters.max_iterations,
        };
        let solved =
            self.solver.solve(&mut self.right_hand_side, flow.changed(), &mut self.pressure, &limits);
        self.iterations = solved.map_err(|unconverged| {
            SolverError(format!(
                "the pressure reached a residual of {:.1e} in {} iterations, not the tolerance {:.1e}: write a larger \
                 max_iterations or tolerance, or take shorter steps",
                unconverged.0, limits.max_iterations, limits.tolerance
            ))
        })?;
        let given = flow.push((grid, cell), &self.pressure, &self.unpressed, parameters.flip_share);
        self.speed_bound += given.length();
        Ok(())
    }

    /// Reports how particles that carry nobody else answer impulses. The pressure, which makes neighbours answer for each other,
    /// is left out: what is reported is no derivative, but tells spray, which is free, from what moves all water around it.
    fn report_slopes(&mut self, moving: &Moving<'_>, answer: &mut Answer) {
        let Self { grid, start, extras, parameters, .. } = self;
        if !moving.lone.contains(&true) {
            return;
        }
        let shares = extras.shares(grid, start, parameters.particle_mass);
        for group in (0..moving.groups.len()).filter(|&group| moving.lone[group]) {
            let share = shares[moving.groups.offsets()[group] as usize].max(DVec3::splat(SHARE_MIN));
            answer.slope[group] = DMat3::from_diagonal(moving.own[group] * (1.0 / share - 1.0).max(DVec3::ZERO));
        }
    }

    /// What each member takes from the grid. In f64: a group's inertia times the change of its velocity is what others
    /// feel.
    fn taken_by_members(&mut self, moving: &Moving<'_>) -> Vec<Taken> {
        let Self { grid, width, extras, flow, parameters: Parameters { flip_share, .. }, .. } = self;
        extras.take(&flow.at_faces(grid, *flip_share));
        let (flip_share, extras) = (*flip_share, &*extras);
        let mut taken = vec![Taken::default(); moving.mass.len()];
        let chunks = taken.par_chunks_mut(LANES).zip(&extras.members).with_min_len(MEMBERS / LANES);
        chunks.for_each(|(result, members)| {
            width.run(Take { grid, velocity: moving.velocity, flip_share, extras, members, result });
        });
        taken
    }

    /// Lets free particles, stored from `begin` on, take the last sub-step's velocities, and moves them with that of the
    /// grid, second order, through the middle of the way.
    fn travel(&self, groups: &GroupMap, begin: usize, (position, velocity): (&mut [DVec3], &mut [DVec3])) {
        let Self { grid, pairs, substep, width, .. } = self;
        let (low, high) = self.parameters.inner_domain();
        let group_of = &groups.group_of()[begin..];
        let (mut middle, mut found) = ([DVec3::ZERO; BLOCK], [Found::default(); BLOCK]);
        for (n, (position, velocity)) in
            position.chunks_mut(BLOCK).zip(velocity.chunks_mut(BLOCK)).enumerate()
        {
            let group_of = &group_of[n * BLOCK..][..position.len()];
            let (middle, found) = (&mut middle[..position.len()], &mut found[..position.len()]);
            width.run(Gather { grid, pairs, position, found: &mut *found });
            for (l, found) in found.iter().enumerate() {
                middle[l] = position[l] + 0.5 * substep * grid_velocity(found);
                if group_of[l] == NO_GROUP {
                    velocity[l] = self.taken(velocity[l], found);
                }
            }
            width.run(Gather { grid, pairs, position: middle, found: &mut *found });
            for (l, found) in found.iter().enumerate() {
                if group_of[l] == NO_GROUP {
                    position[l] = (position[l] + *substep * grid_velocity(found)).max(low).min(high);
                }
            }
        }
    }

    /// The velocity of a particle after a sub-step, from that before and what it found.
    #[inline(always)]
    fn taken(&self, before: DVec3, found: &Found) -> DVec3 {
        self.parameters.flip_share * before + DVec3::from_array(found.map(|pair| f64::from(pair[1])))
    }

    /// The velocities that these free particles take, from where they find pairs and from positions and velocities before.
    fn found(&self, pairs: impl Source + Sync, before: (&[DVec3], &[DVec3]), wanted: &[u32]) -> Vec<DVec3> {
        let Self { grid, width, .. } = self;
        let of_block = |wanted: &[u32]| {
            let (mut position, mut found) = ([DVec3::ZERO; BLOCK], [Found::default(); BLOCK]);
            for (position, &i) in position.iter_mut().zip(wanted) {
                *position = before.0[i as usize];
            }
            let (position, found) = (&position[..wanted.len()], &mut found[..wanted.len()]);
            width.run(Gather { grid, pairs, position, found: &mut *found });
            let velocity =
                found.iter().zip(wanted).map(|(found, &i)| self.taken(before.1[i as usize], found));
            velocity.collect::<Vec<_>>()
        };
        wanted.par_chunks(BLOCK).flat_map_iter(of_block).collect()
    }

    /// Finds with what free particles travel: the flow, and what brings the density nearer to the rest density.
    fn pair_up(&mut self, first: bool) -> Result<(), SolverError> {
        let Self { grid, parameters, extras, cell, right_hand_side, potential, .. } = self;
        self.flow.pair_up(grid, parameters.flip_share, &mut self.pairs);
        let deposit = if first { &self.start } else { &self.later };
        let crowd = Crowd { grid, deposit, extras, cell, full: parameters.full() };
        if crowd.deviations(right_hand_side) < DEVIATION_MIN {
            return Ok(());
        }
        let relaxation = self.crossing.max(self.substep);
        for column in &mut *right_hand_side {
            column.par_iter_mut().with_min_len(CHUNK).for_each(|deviation| *deviation /= relaxation);
        }
        potential.iter_mut().for_each(|column| column.fill(0.0));
        let limits =
            Limits { tolerance: DENSITY_TOLERANCE, forcing: 0.0, max_iterations: parameters.max_iterations };
        let changed = vec![true; self.flow.changed().len()];
        let solved = self.solver.solve(right_hand_side, &changed, potential, &limits);
        solved.map_err(|unconverged| {
            SolverError(format!(
                "the density projection reached a residual of {:.1e} in {} iterations, not {DENSITY_TOLERANCE}: write a \
                 larger max_iterations",
                unconverged.0, limits.max_iterations
            ))
        })?;
        let speed_max = SPREAD_MAX * parameters.radius / self.substep;
        self.flow.spread(grid, (cell, extras), potential, speed_max, &mut self.pairs);
        Ok(())
    }

    /// Ends a sub-step that is not the last: free particles move, members with their group, by `moves` [m/s].
    fn pass_substep(&mut self, moving: &Moving<'_>, moves: &[DVec3]) {
        let (mut position, mut velocity) = self.before.take(&self.particles);
        self.travel_all(moving.groups, &mut position, &mut velocity);
        for (group, &velocity) in moves.iter().enumerate() {
            for &member in moving.groups.members(group) {
                position[member as usize] += self.substep * velocity;
            }
        }
        self.speed_bound = fastest(&velocity);
        self.before.put((position, velocity));
    }

    /// Ends a sub-step for all free particles.
    fn travel_all(&self, groups: &GroupMap, position: &mut [DVec3], velocity: &mut [DVec3]) {
        let chunks = position.par_chunks_mut(CHUNK).zip(velocity.par_chunks_mut(CHUNK)).enumerate();
        chunks.for_each(|(c, chunk)| self.travel(groups, c * CHUNK, chunk));
    }

    /// Stores particles in the order of their cells.
    fn sort_storage(&mut self) {
        let cell_of: Vec<u32> = self
            .particles
            .position
            .par_iter()
            .with_min_len(CHUNK)
            .map(|&x| self.grid.index(self.grid.cell(x)) as u32)
            .collect();
        let (mut start, mut order) = (Vec::new(), Vec::new());
        counting_sort(&cell_of, self.grid.len(), &mut start, &mut order);
        self.particles.reorder(&order);
    }
}

/// The grid's velocity [m/s] in what a particle found.
#[inline(always)]
fn grid_velocity(found: &Found) -> DVec3 {
    DVec3::from_array(found.map(|pair| f64::from(pair[0])))
}

/// The momentum that the fluid gives each group in a sub-step: J = M (v_new - v12) - J_ext. `taken` is that of members,
/// group after group.
fn give(moving: &Moving<'_>, taken: &[Taken]) -> Vec<DVec3> {
    let mut members = taken.iter().zip(moving.mass);
    let momentum = |group: usize| {
        let members = members.by_ref().take(moving.groups.members(group).len());
        let sum: DVec3 = members.map(|(taken, &mass)| mass * taken.own).sum();
        let change = sum / moving.own[group] - moving.velocity[group];
        moving.inertia[group] * change - moving.impulse[group]
    };
    (0..moving.groups.len()).map(momentum).collect()
}

impl Solver for Flip {
    fn particles(&self) -> &Particles {
        &self.particles
    }

    fn integration(&self) -> Option<Integration> {
        Some(Integration::Projection)
    }

    fn occupancy_grid(&self) -> Option<Lattice> {
        self.parameters.occupancy.then(|| self.grid.lattice())
    }

    fn stable_dt(&self) -> f64 {
        f64::from(self.parameters.max_substeps) * self.stable_substep
    }

    /// What particles bring to the grid, as if all were free: groups only add to that.
    fn begin(&mut self) -> Result<(), SolverError> {
        let Self { start, grid, width, parameters, particles, .. } = self;
        start.renew(grid, *width, parameters.full(), (&particles.position, &particles.velocity));
        self.unpressed = unpressed(&self.grid, &self.start.cell, &self.pressure);
        self.gathered = None;
        Ok(())
    }

    fn integrate(&mut self, stage: &Stage<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        let substeps = self.parameters.substeps(stage.dt, self.stable_substep)?;
        self.crossing = self.stable_substep / self.parameters.cfl;
        self.substep = stage.dt / f64::from(substeps);
        self.before.clear();
        self.speed_bound = self.speed_max;
        let (own, mass) = masses(stage.groups, &self.particles);
        let inertia = inertias(stage, &own);
        let impulse: Vec<DVec3> =
            stage.impulse.iter().map(|&impulse| impulse / f64::from(substeps)).collect();
        let lone = is_lone(stage, &own);
        let mut velocity = stage.velocity.to_vec();
        // How far a group that carries nobody else has moved in all sub-steps so far, over their length [m/s].
        let mut way = vec![DVec3::ZERO; lone.len()];
        for k in 0..substeps {
            let first = k == 0;
            if !first {
                self.later.renew(
                    &self.grid,
                    self.width,
                    self.parameters.full(),
                    self.before.of(&self.particles),
                );
                self.unpressed = unpressed(&self.grid, &self.later.cell, &self.pressure);
            }
            let moving = Moving {
                groups: stage.groups,
                velocity: &velocity,
                impulse: &impulse,
                inertia: &inertia,
                own: &own,
                lone: &lone,
                mass: &mass,
            };
            self.advance_grid(first, &moving, stage)?;
            if first {
                self.report_slopes(&moving, answer);
            }
            let taken = self.taken_by_members(&moving);
            let given = give(&moving, &taken);
            let of_lone = |group: usize| taken[stage.groups.offsets()[group] as usize];
            if k + 1 < substeps {
                self.pair_up(first)?;
                let moves = |group| if lone[group] { of_lone(group).grid } else { velocity[group] };
                let moves: Vec<DVec3> = (0..lone.len()).map(moves).collect();
                self.pass_substep(&moving, &moves);
            }
            for (group, given) in given.into_iter().enumerate() {
                if lone[group] {
                    way[group] += of_lone(group).grid;
                    velocity[group] = of_lone(group).own;
                } else {
                    answer.momentum[group] += given;
                    velocity[group] += (given + impulse[group]) / inertia[group];
                }
            }
        }
        self.kept.clear();
        for group in (0..lone.len()).filter(|&group| lone[group]) {
            let change = way[group] / f64::from(substeps) - stage.velocity[group];
            answer.momentum[group] = own[group] * change - stage.impulse[group];
            self.kept.push((stage.groups.members(group)[0], velocity[group]));
        }
        Ok(())
    }

    fn deferred(&self) -> Option<&dyn Deferred> {
        Some(self)
    }

    fn commit(&mut self, end: &StepEnd<'_>, _: &[DVec3]) -> Result<Report, SolverError> {
        self.pair_up(self.before.is_committed())?;
        let (mut position, mut velocity) = self.before.take_committed(end.groups, &mut self.particles);
        self.travel_all(end.groups, &mut position, &mut velocity);
        (self.particles.position, self.particles.velocity) = (position, velocity);
        end.place_members(&mut self.particles);
        for &(member, velocity) in &self.kept {
            self.particles.velocity[member as usize] = velocity;
        }
        if self.steps.is_multiple_of(STORAGE_PERIOD) {
            self.sort_storage();
        }
        self.steps += 1;
        let Parameters { spacing, particle_mass, radius, .. } = self.parameters;
        let (born, dead) = self.sources.pass(end.dt, spacing, (particle_mass, radius), &mut self.particles);
        let Particles { id, position, .. } = &mut self.particles;
        let first_born = id.len() - born.len();
        for (&id, position) in id[first_born..].iter().zip(&mut position[first_born..]) {
            *position = self.parameters.jittered(id, *position);
        }
        self.find_speed();
        Ok(Report { stable_dt: self.stable_dt(), born, dead, ..Report::default() })
    }

    /// `density` [kg/m^3] of the particles where they are, and `pressure` [Pa] of the last step, from the grid.
    fn fields(&self) -> Vec<Field> {
        // The grid of `start` is of this state or of the one before, by whether the next step has begun.
        let Self { grid, width, parameters, particles, .. } = self;
        let mut now = Deposit::default();
        now.renew(grid, *width, parameters.full(), (&particles.position, &particles.velocity));
        let scale = self.parameters.particle_mass / self.grid.cell_size.powi(3);
        let value = |&x: &DVec3| {
            let faces = self.grid.place(x).faces(&self.grid, 2).into_iter();
            let weight: f64 = faces.map(|(face, weight)| weight * f64::from(now.at(2, face)[0])).sum();
            let cell = self.grid.index(self.grid.cell(x));
            ((scale * weight) as f32, self.pressure[cell % 2][cell / 2] as f32)
        };
        let (density, pressure) = self.particles.position.iter().map(value).unzip();
        vec![
            Field { name: "density", values: FieldValues::Scalar(density) },
            Field { name: "pressure", values: FieldValues::Scalar(pressure) },
        ]
    }

    fn save(&self) -> Result<Vec<u8>, SolverError> {
        let Sources { time, next_id, .. } = self.sources;
        Ok(snapshot::save(&self.particles, Progress { steps: self.steps, time, next_id }, &self.pressure))
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), SolverError> {
        let Progress { steps, time, next_id } =
            snapshot::restore(&mut self.particles, &self.parameters, &mut self.pressure, bytes)?;
        self.steps = steps;
        self.sources = Sources { time, next_id, ..self.parameters.sources.clone() };
        self.find_speed();
        Ok(())
    }
}

impl Deferred for Flip {
    fn travel_bound(&self, dt: f64) -> f64 {
        self.speed_bound * dt / self.parameters.radius
    }

    fn velocity(&self, wanted: &[u32]) -> Vec<DVec3> {
        let before = self.before.of(&self.particles);
        let flip_share = self.parameters.flip_share;
        if wanted.len() < self.particles.len() / MANY {
            return self.found(self.flow.at_faces(&self.grid, flip_share), before, wanted);
        }
        let mut pairs = Pairs::default();
        self.flow.pair_up(&self.grid, flip_share, &mut pairs);
        self.found(&pairs, before, wanted)
    }
}
