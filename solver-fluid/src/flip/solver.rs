//! A FLIP fluid as a participant.

use amalgam_particles::{CellSet, DVec3, Lattice, NO_GROUP, Particles, StepEnd, reduce};
use amalgam_solver_kit::{Answer, Field, FieldValues, Integration, Report, Solver, SolverError, Stage};
use rayon::prelude::*;

use super::Parameters;
use super::grid::Grid;
use super::pressure::{Limits, Pressure};
use super::snapshot;
use super::transfer::{Deposit, Faces, Sorted, group_masses, inertia, zero_faces};

/// Least density of a face, relative to the fluid's own: what is not fluid still has some inertia
/// (`docs/method.md`, "Integrating a meta-particle inside a participant").
const DENSITY_MIN: f64 = 1e-3;

/// Times that velocities are carried on to faces which have none.
const EXTRAPOLATIONS: usize = 2;

/// Kinds of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Air,
    /// Holds particles of other participants only.
    Foreign,
    /// Holds particles of this fluid.
    Fluid,
}

/// A FLIP fluid [ZhuBridson2005]: velocities live on particles, pressure on a grid.
pub struct Flip {
    parameters: Parameters,
    grid: Grid,
    particles: Particles,
    sorted: Sorted,
    cell: Vec<Cell>,
    deposit: Deposit,
    /// Velocity at the end of the step at faces [m/s].
    velocity: Faces,
    /// Its change in the step [m/s].
    change: Faces,
    /// Whether a face's velocity is known.
    known: [Vec<bool>; 3],
    /// Whether a member of a group touches a face.
    touched: [Vec<bool>; 3],
    divergence: Vec<f64>,
    solver: Pressure,
    /// Pressure in cells [Pa]: the last answer, where the next solve starts.
    pressure: Vec<f64>,
    end_position: Vec<DVec3>,
    iterations: u32,
}

impl Flip {
    /// A fluid of equal particles.
    pub fn new(parameters: Parameters, particles: Particles) -> Self {
        let grid =
            Grid { origin: parameters.domain.0, cell_size: parameters.cell_size, cells: parameters.cells() };
        let flags = || [0, 1, 2].map(|_| vec![false; grid.len()]);
        Self {
            sorted: Sorted::default(),
            cell: vec![Cell::Air; grid.len()],
            deposit: Deposit::new(&grid),
            velocity: zero_faces(&grid),
            change: zero_faces(&grid),
            known: flags(),
            touched: flags(),
            divergence: vec![0.0; grid.len()],
            solver: Pressure::new(grid),
            pressure: vec![0.0; grid.len()],
            end_position: Vec::new(),
            iterations: 0,
            parameters,
            grid,
            particles,
        }
    }

    /// Iterations of the last projection.
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Which cells are no air in a stage.
    fn mark_cells(&mut self, occupied: Option<&CellSet>) {
        self.cell.fill(Cell::Air);
        if let Some(occupied) = occupied {
            for cell in occupied.iter() {
                let inside = cell.to_array().map(|c| usize::try_from(c).unwrap_or(usize::MAX));
                if self.grid.is_cell(inside) {
                    self.cell[self.grid.index(inside)] = Cell::Foreign;
                }
            }
        }
        for &position in &self.particles.position {
            self.cell[self.grid.index(self.grid.cell(position))] = Cell::Fluid;
        }
    }

    fn mark_touched(&mut self, stage: &Stage<'_>) {
        for (axis, touched) in self.touched.iter_mut().enumerate() {
            touched.fill(false);
            for &member in stage.groups.all_members() {
                let place = self.grid.place(self.particles.position[member as usize]);
                for (face, _) in place.faces(&self.grid, axis).into_iter().filter(|face| face.1 > 0.0) {
                    touched[face] = true;
                }
            }
        }
    }

    /// Velocities before the projection: those of the particles, changed by gravity and by what others give groups.
    fn apply_forces(&mut self, dt: f64) {
        let Self { grid, parameters, deposit, velocity, change, known, cell, .. } = self;
        for axis in 0..3 {
            let fall = parameters.gravity[axis] * dt;
            let Deposit { mass, velocity: old, kick } = &*deposit;
            let columns = velocity[axis].par_iter_mut().zip(&mut change[axis]).zip(&mut known[axis]);
            columns.enumerate().with_min_len(4096).for_each(|(face, ((velocity, change), known))| {
                *known = mass[axis][face] > 0.0;
                *change = if *known { fall + kick[axis][face] } else { 0.0 };
                *velocity = old[axis][face] + *change;
            });
            // A face without particles beside a cell that others occupy moves like those around it.
            let wanted = |face: usize| {
                cell[face] != Cell::Air
                    || face.checked_sub(grid.strides()[axis]).is_some_and(|lower| cell[lower] != Cell::Air)
            };
            extrapolate(grid, [&mut velocity[axis], &mut change[axis]], &mut known[axis], 1, wanted);
        }
    }

    /// Makes the velocities divergence-free in all cells that are no air.
    fn project(&mut self, dt: f64) -> Result<(), SolverError> {
        let grid = self.grid;
        let strides = grid.strides();
        let conductance = self.conductance(dt);
        let largest = {
            let (faces, ground) = self.solver.coefficients();
            ground.fill(0.0);
            for axis in 0..3 {
                faces[axis].fill(0.0);
                for_each_inner_face(&grid, axis, |face| {
                    let lower = face - strides[axis];
                    match (self.cell[lower] != Cell::Air, self.cell[face] != Cell::Air) {
                        (true, true) => faces[axis][face] = conductance[axis][face],
                        (true, false) => ground[lower] += conductance[axis][face],
                        (false, true) => ground[face] += conductance[axis][face],
                        (false, false) => {}
                    }
                });
            }
            let Self { divergence, velocity, cell, .. } = &mut *self;
            for_each_cell(&grid, |at, _| {
                let flow = |axis: usize| velocity[axis][at + strides[axis]] - velocity[axis][at];
                divergence[at] =
                    if cell[at] == Cell::Air { 0.0 } else { -(flow(0) + flow(1) + flow(2)) / grid.cell_size };
            });
            reduce::max(divergence.len(), 0.0, |at| divergence[at].abs())
        };
        let limits =
            Limits { tolerance: self.parameters.tolerance, max_iterations: self.parameters.max_iterations };
        let solved = self.solver.solve(&mut self.divergence, &mut self.pressure, largest, &limits);
        self.iterations = solved.map_err(|unconverged| {
            SolverError(format!(
                "the pressure reached a residual of {:.1e} in {} iterations, not the tolerance {:.1e}: write a larger \
                 max_iterations or tolerance, or take shorter steps",
                unconverged.0, limits.max_iterations, limits.tolerance
            ))
        })?;
        self.apply_pressure(&conductance);
        Ok(())
    }

    /// dt / (density h^2) of every face [m s/kg].
    fn conductance(&self, dt: f64) -> Faces {
        let Self { grid, parameters, deposit, cell, touched, .. } = self;
        let (rest, h) = (parameters.rest_density, grid.cell_size);
        std::array::from_fn(|axis| {
            let stride = grid.strides()[axis];
            let of = |face: usize| {
                let fluid = |at: usize| cell[at] == Cell::Fluid;
                let inside = face >= stride && fluid(face) && fluid(face - stride) && !touched[axis][face];
                let density = if inside {
                    rest
                } else {
                    (deposit.mass[axis][face] / h.powi(3)).max(DENSITY_MIN * rest)
                };
                dt / (density * h * h)
            };
            (0..grid.len()).into_par_iter().with_min_len(4096).map(of).collect()
        })
    }

    /// Subtracts the gradient of the pressure, and carries velocities on to the faces between cells of air.
    fn apply_pressure(&mut self, conductance: &Faces) {
        let Self { grid, pressure, cell, velocity, change, known, .. } = self;
        for axis in 0..3 {
            let stride = grid.strides()[axis];
            known[axis].fill(false);
            for_each_inner_face(grid, axis, |face| {
                let lower = face - stride;
                if cell[face] != Cell::Air || cell[lower] != Cell::Air {
                    let push = conductance[axis][face] * grid.cell_size * (pressure[face] - pressure[lower]);
                    velocity[axis][face] -= push;
                    change[axis][face] -= push;
                    known[axis][face] = true;
                }
            });
            hold_walls(grid, axis, &mut velocity[axis], &mut change[axis], &mut known[axis]);
            extrapolate(
                grid,
                [&mut velocity[axis], &mut change[axis]],
                &mut known[axis],
                EXTRAPOLATIONS,
                |_| true,
            );
        }
    }

    /// Velocities of particles after the step, and where the free ones are then.
    fn collect(&mut self, stage: &Stage<'_>, answer: &mut Answer) {
        let Self { grid, parameters, particles, velocity, change, end_position, .. } = self;
        let flip = parameters.flip_share;
        let group_of = stage.groups.group_of();
        end_position.resize(particles.len(), DVec3::ZERO);
        let (low, high) = parameters.inner_domain();
        answer
            .velocity
            .par_iter_mut()
            .zip(end_position.par_iter_mut())
            .enumerate()
            .with_min_len(1024)
            .for_each(|(i, (result, end))| {
                let x = particles.position[i];
                let before = match group_of[i] {
                    NO_GROUP => particles.velocity[i],
                    group => stage.velocity[group as usize],
                };
                let place = grid.place(x);
                let new = place.interpolate_all(grid, velocity);
                *result = flip * (before + place.interpolate_all(grid, change)) + (1.0 - flip) * new;
                // Second order, through the middle of the way.
                let middle = grid.place(x + 0.5 * stage.dt * new).interpolate_all(grid, velocity);
                *end = (x + stage.dt * middle).clamp(low, high);
            });
    }

    /// The momentum that the fluid gave each group: J = M (v_new - v12) - J_ext.
    fn answer_groups(&self, stage: &Stage<'_>, answer: &mut Answer) {
        let own = group_masses(stage.groups, &self.particles);
        for (group, momentum) in answer.momentum.iter_mut().enumerate() {
            let members = stage.groups.members(group);
            let sum: DVec3 =
                members.iter().map(|&i| self.particles.mass[i as usize] * answer.velocity[i as usize]).sum();
            let change = sum / own[group] - stage.velocity[group];
            *momentum = inertia(stage, own[group], group) * change - stage.impulse[group];
        }
    }
}

/// Visits the faces of an axis that lie between two cells.
fn for_each_inner_face(grid: &Grid, axis: usize, mut visit: impl FnMut(usize)) {
    for_each_cell(grid, |at, cell| {
        if cell[axis] > 0 {
            visit(at);
        }
    });
}

fn for_each_cell(grid: &Grid, mut visit: impl FnMut(usize, [usize; 3])) {
    for k in 0..grid.cells[2] {
        for j in 0..grid.cells[1] {
            for i in 0..grid.cells[0] {
                visit(grid.index([i, j, k]), [i, j, k]);
            }
        }
    }
}

/// Nothing flows through the domain's faces.
fn hold_walls(grid: &Grid, axis: usize, velocity: &mut [f64], change: &mut [f64], known: &mut [bool]) {
    for_each_cell(grid, |_, mut cell| {
        if cell[axis] == 0 {
            for end in [0, grid.cells[axis]] {
                cell[axis] = end;
                let face = grid.index(cell);
                change[face] -= velocity[face];
                velocity[face] = 0.0;
                known[face] = true;
            }
        }
    });
}

/// Gives faces whose velocity is not known the mean of the known ones around them, `passes` times.
fn extrapolate(
    grid: &Grid,
    columns: [&mut [f64]; 2],
    known: &mut [bool],
    passes: usize,
    wanted: impl Fn(usize) -> bool,
) {
    let strides = grid.strides();
    for _ in 0..passes {
        let mut found: Vec<(usize, [f64; 2])> = Vec::new();
        for_each_cell(grid, |face, _| {
            if known[face] || !wanted(face) {
                return;
            }
            let (mut sum, mut count) = ([0.0; 2], 0.0);
            for stride in strides {
                for near in [face.checked_sub(stride), Some(face + stride)].into_iter().flatten() {
                    if near < known.len() && known[near] {
                        sum[0] += columns[0][near];
                        sum[1] += columns[1][near];
                        count += 1.0;
                    }
                }
            }
            if count > 0.0 {
                found.push((face, sum.map(|sum| sum / count)));
            }
        });
        for (face, values) in found {
            (columns[0][face], columns[1][face]) = (values[0], values[1]);
            known[face] = true;
        }
    }
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

    /// No particle crosses more than `cfl` cells in a step.
    fn stable_dt(&self) -> f64 {
        let velocity = &self.particles.velocity;
        let speed = reduce::max(velocity.len(), 0.0, |i| velocity[i].length_squared()).sqrt();
        let reach = self.parameters.cfl * self.grid.cell_size;
        // With the speed that gravity adds in the step: v dt + g dt^2 = reach.
        let fall = self.parameters.gravity.length();
        let root = (speed * speed + 4.0 * fall * reach).sqrt();
        if speed + root > 0.0 { 2.0 * reach / (speed + root) } else { f64::INFINITY }
    }

    fn begin(&mut self) -> Result<(), SolverError> {
        self.sorted.sort(&self.grid, &self.particles.position);
        Ok(())
    }

    fn integrate(&mut self, stage: &Stage<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        self.mark_cells(stage.occupied);
        self.mark_touched(stage);
        self.sorted.load(&self.grid, &self.particles, stage, self.parameters.gravity);
        self.sorted.deposit(&self.grid, &mut self.deposit);
        self.apply_forces(stage.dt);
        for axis in 0..3 {
            let Self { grid, velocity, change, known, .. } = self;
            hold_walls(grid, axis, &mut velocity[axis], &mut change[axis], &mut known[axis]);
        }
        self.project(stage.dt)?;
        self.collect(stage, answer);
        self.answer_groups(stage, answer);
        Ok(())
    }

    fn commit(&mut self, end: &StepEnd<'_>, integrated: &[DVec3]) -> Result<Report, SolverError> {
        let group_of = end.groups.group_of();
        for i in 0..integrated.len() {
            if group_of[i] == NO_GROUP {
                self.particles.position[i] = self.end_position[i];
                self.particles.velocity[i] = integrated[i];
            }
        }
        end.place_members(&mut self.particles);
        Ok(Report { stable_dt: self.stable_dt(), ..Report::default() })
    }

    /// `density` [kg/m^3] and `pressure` [Pa], from the grid of the last step.
    fn fields(&self) -> Vec<Field> {
        let volume = self.grid.cell_size.powi(3);
        let value = |&x: &DVec3| {
            let density = self.grid.place(x).interpolate(&self.grid, 2, &self.deposit.mass[2]) / volume;
            (density as f32, self.pressure[self.grid.index(self.grid.cell(x))] as f32)
        };
        let (density, pressure) = self.particles.position.iter().map(value).unzip();
        vec![
            Field { name: "density", values: FieldValues::Scalar(density) },
            Field { name: "pressure", values: FieldValues::Scalar(pressure) },
        ]
    }

    fn save(&self) -> Result<Vec<u8>, SolverError> {
        Ok(snapshot::save(&self.particles, &self.pressure))
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), SolverError> {
        snapshot::restore(&mut self.particles, &mut self.pressure, bytes)
    }
}
