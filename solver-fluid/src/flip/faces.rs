//! Velocities at faces, from what particles bring to what they take: forces, walls, the pressure's push, and the velocity
//! of faces in the air.

use std::sync::atomic::{AtomicBool, Ordering};

use amalgam_particles::DVec3;
use glam::Vec4;
use rayon::prelude::*;

use super::Parameters;
use super::grid::{Grid, Places};
use super::members::Extras;
use super::multigrid::{BLOCK, Split};
use super::pressure::larger;
use super::transfer::{Cell, Deposit, Fours};
use super::walls::WallFace;

/// Least density of a face, relative to the fluid's own: what is not fluid still has some inertia
/// (`docs/method.md`, "Integrating a meta-particle inside a participant").
const DENSITY_MIN: f64 = 1e-3;

/// Times that velocities are carried on to faces which have none.
const EXTRAPOLATIONS: usize = 2;

/// Visiting a part of the faces one by one costs this many times what it costs in a pass over all.
const SPARSE: usize = 4;

/// Columns of faces, one for each axis.
pub(super) type Faces<T> = [Vec<T>; 3];

/// A field of velocities.
#[derive(Clone, Debug)]
struct Field {
    /// Velocity [m/s].
    velocity: Faces<f64>,
    /// Its change in the sub-step [m/s].
    change: Faces<f64>,
    /// Whether it is known.
    known: Faces<bool>,
}

/// The fluid's velocity on the grid in a sub-step.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    /// Before the projection. Kept, so that a later stage computes anew only what groups touch.
    gathered: Field,
    /// dt / (density cell_size^2) [m s/kg].
    conductance: Faces<f32>,
    /// Faces without particles beside cells that others occupy.
    incomplete: Faces<usize>,
    /// After it.
    projected: Field,
}

/// What [`Flow::gather`] starts from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forces<'a> {
    pub(super) deposit: &'a Deposit,
    /// What members of groups add.
    pub(super) extras: &'a Extras,
    pub(super) cell: &'a [Cell],
    /// Mass of a particle [kg].
    pub(super) mass: f64,
    pub(super) dt: f64,
}

fn is_open(cell: Cell) -> bool {
    matches!(cell, Cell::Fluid | Cell::Foreign)
}

/// Whether the pressure in a cell is zero.
fn is_free(cell: Cell) -> bool {
    matches!(cell, Cell::Air | Cell::Spray)
}

/// Whether a face lies between two cells, not at or in a wall.
fn is_inside(cell: &[Cell], face: usize, stride: usize) -> bool {
    cell[face] != Cell::Wall && cell[face - stride] != Cell::Wall
}

impl Forces<'_> {
    /// Velocity before the projection, its change, whether they are known, and the conductance of a face.
    #[inline(always)]
    fn at(&self, grid: &Grid, parameters: &Parameters, axis: usize, face: usize) -> (f64, f64, bool, f32) {
        let Self { deposit, extras, cell, mass, dt } = *self;
        let (rest, h, stride) = (parameters.rest_density, grid.cell_size, grid.strides()[axis]);
        let [weight, moved] = deposit.at(axis, face).map(|sum| mass * f64::from(sum));
        let extra = extras.at(axis, face);
        let total = weight + extra.mass;
        let pair = [cell[face], face.checked_sub(stride).map_or(Cell::Wall, |lower| cell[lower])];
        let inside = pair == [Cell::Fluid; 2] && !extra.touched;
        let (mut velocity, mut change) = (0.0, 0.0);
        if total > 0.0 {
            let old = (moved + extra.momentum) / total;
            change = parameters.gravity[axis] * dt;
            if extra.touched {
                change += extra.impulse / total;
            }
            velocity = old + change;
            if pair.contains(&Cell::Wall) {
                (velocity, change) = (0.0, -old);
            }
        }
        let scale = dt / (h * h);
        let conductance =
            if inside { scale / rest } else { scale / (total / h.powi(3)).max(DENSITY_MIN * rest) };
        (velocity, change, total > 0.0, conductance as f32)
    }
}

impl Field {
    fn new(grid: &Grid) -> Self {
        let zero = || [0, 1, 2].map(|_| vec![0.0; grid.len()]);
        Self { velocity: zero(), change: zero(), known: [0, 1, 2].map(|_| vec![false; grid.len()]) }
    }

    /// Faces without particles beside a cell that is no air: others occupy it.
    fn incomplete(&self, grid: &Grid, axis: usize, cell: &[Cell]) -> Vec<usize> {
        let (stride, known) = (grid.strides()[axis], &self.known[axis]);
        let beside = |face: usize| is_open(cell[face]) || is_open(cell[face - stride]);
        let faces = (grid.first() + stride..cell.len()).into_par_iter().with_min_len(BLOCK);
        faces.filter(|&face| !known[face] && is_inside(cell, face, stride) && beside(face)).collect()
    }

    /// Lets these faces move like those around them.
    fn complete(&mut self, grid: &Grid, axis: usize, faces: &[usize]) {
        // They see only what particles brought, not each other.
        for &face in faces {
            self.known[axis][face] = false;
        }
        let found: Vec<_> = faces.iter().map(|&face| self.mean_around(grid, axis, face)).collect();
        for (&face, found) in faces.iter().zip(found) {
            if let Some(values) = found {
                self.set(axis, face, values);
            }
        }
    }

    fn set(&mut self, axis: usize, face: usize, [velocity, change]: [f64; 2]) {
        self.velocity[axis][face] = velocity;
        self.change[axis][face] = change;
        self.known[axis][face] = true;
    }

    /// Mean velocity and change of the known faces around one.
    fn mean_around(&self, grid: &Grid, axis: usize, face: usize) -> Option<[f64; 2]> {
        let (mut sum, mut count) = ([0.0; 2], 0.0);
        for stride in grid.strides() {
            for near in [face - stride, face + stride] {
                if self.known[axis][near] {
                    sum[0] += self.velocity[axis][near];
                    sum[1] += self.change[axis][near];
                    count += 1.0;
                }
            }
        }
        (count > 0.0).then(|| sum.map(|sum| sum / count))
    }

    /// Gives faces whose velocity is not known the mean of the known ones around them.
    fn extrapolate(&mut self, grid: &Grid, axis: usize, cell: &[Cell]) {
        let ([_, row, layer], known) = (grid.strides(), &self.known[axis]);
        let inside = |&face: &usize| is_inside(cell, face, grid.strides()[axis]);
        let first = grid.index([0, 0, 0]);
        let last = grid.index(grid.cells.map(|n| n - 1)) + 1;
        let found: Vec<(usize, [f64; 2])> = (first..last)
            .into_par_iter()
            .step_by(BLOCK)
            .flat_map_iter(|begin| {
                let block = begin..(begin + BLOCK).min(last);
                let of = |shift: isize| {
                    &known[block.start.wrapping_add_signed(shift)..block.end.wrapping_add_signed(shift)]
                };
                let (row, layer) = (row as isize, layer as isize);
                let near = [-1, 1, -row, row, -layer, layer].map(of);
                let own = of(0);
                let mut wanted = [false; BLOCK];
                for (n, wanted) in wanted[..block.len()].iter_mut().enumerate() {
                    *wanted = !own[n]
                        & (near[0][n] | near[1][n] | near[2][n] | near[3][n] | near[4][n] | near[5][n]);
                }
                (0..block.len()).filter(move |&n| wanted[n]).map(move |n| begin + n).collect::<Vec<_>>()
            })
            .filter(inside)
            .filter_map(|face| self.mean_around(grid, axis, face).map(|values| (face, values)))
            .collect();
        for (face, values) in found {
            self.set(axis, face, values);
        }
    }
}

impl Flow {
    pub(super) fn new(grid: &Grid) -> Self {
        Self {
            gathered: Field::new(grid),
            conductance: [0, 1, 2].map(|_| vec![0.0; grid.len()]),
            incomplete: [0, 1, 2].map(|_| Vec::new()),
            projected: Field::new(grid),
        }
    }

    /// Velocities before the projection: those of the particles, changed by gravity and by what others give groups.
    /// Nothing flows through walls. Unless particles, cells or the length of the sub-step are `new`, only those faces
    /// are visited that members touch, or touched the last time. Whether the conductance of a face has changed.
    pub(super) fn gather(
        &mut self,
        grid: &Grid,
        parameters: &Parameters,
        forces: &Forces<'_>,
        new: bool,
    ) -> bool {
        let Self { gathered, conductance, incomplete, .. } = self;
        let Field { velocity, change, known } = gathered;
        let changed = AtomicBool::new(new);
        let fields = velocity.par_iter_mut().zip(change).zip(known).zip(conductance).enumerate();
        fields.for_each(|(axis, (((velocity, change), known), conductance))| {
            let renew = |face: usize, values: (&mut f64, &mut f64, &mut bool, &mut f32)| {
                let (velocity, change, known, conductance) = values;
                let before = *conductance;
                (*velocity, *change, *known, *conductance) = forces.at(grid, parameters, axis, face);
                if *conductance != before {
                    changed.store(true, Ordering::Relaxed);
                }
            };
            let faces = forces.extras.renewed(axis);
            if new || faces.clone().count() > velocity.len() / SPARSE {
                let columns = velocity.par_iter_mut().zip(change).zip(known).zip(conductance).enumerate();
                columns.with_min_len(BLOCK).for_each(|(face, (((velocity, change), known), conductance))| {
                    renew(face, (velocity, change, known, conductance));
                });
            } else {
                for face in faces {
                    let values = (&mut velocity[face], &mut change[face], &mut known[face]);
                    renew(face, (values.0, values.1, values.2, &mut conductance[face]));
                }
            }
        });
        if new {
            *incomplete = [0, 1, 2].map(|axis| gathered.incomplete(grid, axis, forces.cell));
        }
        for (axis, faces) in incomplete.iter().enumerate() {
            gathered.complete(grid, axis, faces);
        }
        changed.into_inner()
    }

    /// Sets the coefficients of the pressure's system from the faces.
    pub(super) fn conduct(&self, grid: &Grid, cell: &[Cell], face: &mut Faces<f32>, ground: &mut [f32]) {
        let strides = grid.strides();
        for axis in 0..3 {
            let (stride, conductance) = (strides[axis], &self.conductance[axis]);
            face[axis].par_iter_mut().enumerate().with_min_len(BLOCK).for_each(|(at, face)| {
                let open = at >= stride && is_open(cell[at]) && is_open(cell[at - stride]);
                *face = if open { conductance[at] } else { 0.0 };
            });
        }
        let conductance = &self.conductance;
        ground.par_iter_mut().enumerate().with_min_len(BLOCK).for_each(|(at, ground)| {
            *ground = 0.0;
            if is_open(cell[at]) {
                for (conductance, stride) in conductance.iter().zip(strides) {
                    if is_free(cell[at - stride]) {
                        *ground += conductance[at];
                    }
                    if is_free(cell[at + stride]) {
                        *ground += conductance[at + stride];
                    }
                }
            }
        });
    }

    /// What flows into each cell that is no air, by its volume [1/s].
    pub(super) fn convergence(&self, grid: &Grid, cell: &[Cell], result: &mut Split<f64>) {
        let strides = grid.strides();
        for (colour, result) in result.iter_mut().enumerate() {
            result.par_iter_mut().enumerate().with_min_len(BLOCK).for_each(|(m, result)| {
                let at = 2 * m + colour;
                *result = 0.0;
                if is_open(cell[at]) {
                    let flow = |axis: usize| {
                        let velocity = &self.gathered.velocity[axis];
                        velocity[at + strides[axis]] - velocity[at]
                    };
                    *result = -(flow(0) + flow(1) + flow(2)) / grid.cell_size;
                }
            });
        }
    }

    /// Subtracts the gradient of the pressure, and carries velocities on to the faces between cells of air.
    pub(super) fn push(&mut self, grid: &Grid, cell: &[Cell], pressure: &Split<f64>) {
        let Self { gathered, conductance, projected, .. } = self;
        for axis in 0..3 {
            let (stride, conductance) = (grid.strides()[axis], &conductance[axis]);
            let before =
                gathered.velocity[axis].par_iter().zip(&gathered.change[axis]).zip(&gathered.known[axis]);
            let after = projected.velocity[axis].par_iter_mut().zip(&mut projected.change[axis]);
            let columns = after.zip(&mut projected.known[axis]).zip(before).enumerate();
            columns.with_min_len(BLOCK).for_each(|(face, (((velocity, change), known), before))| {
                let ((&old, &gained), &brought) = before;
                (*velocity, *change) = (old, gained);
                let Some(lower) = face.checked_sub(stride) else { return };
                let pair = [cell[face], cell[lower]];
                // Between air and a wall there is nothing that others could be carried on from: it would slow down
                // what flies past the wall.
                let open = pair.into_iter().any(is_open);
                *known = open || brought && pair.contains(&Cell::Spray);
                if open && !pair.contains(&Cell::Wall) {
                    let at = |n: usize| pressure[n % 2][n / 2];
                    let push = f64::from(conductance[face]) * grid.cell_size * (at(face) - at(lower));
                    *velocity -= push;
                    *change -= push;
                }
            });
            for _ in 0..EXTRAPOLATIONS {
                projected.extrapolate(grid, axis, cell);
            }
        }
    }

    /// Stops what flows into walls that let go.
    pub(super) fn hold(&mut self, walls: &[WallFace]) {
        let Field { velocity, change, .. } = &mut self.projected;
        walls.iter().for_each(|wall| wall.hold(velocity, change));
    }

    /// Adds -grad `potential` to the velocity at faces, at most `speed_max` [m/s]. Faces that members touch or that are
    /// beside cells of others stay as they are.
    pub(super) fn spread(
        &self,
        grid: &Grid,
        (cell, extras): (&[Cell], &Extras),
        potential: &Split<f64>,
        speed_max: f64,
        fours: &mut Fours,
    ) {
        let at = |n: usize| potential[n % 2][n / 2];
        let own = |cell: Cell| is_free(cell) || cell == Cell::Fluid;
        for (axis, fours) in fours.iter_mut().enumerate() {
            let (stride, conductance) = (grid.strides()[axis], &self.conductance[axis]);
            let speed = |face: usize| {
                let pair = [face, face - stride].map(|n| cell[n]);
                if pair.contains(&Cell::Fluid) && pair.into_iter().all(own) && !extras.at(axis, face).touched
                {
                    let slope = at(face - stride) - at(face);
                    (f64::from(conductance[face]) * grid.cell_size * slope).clamp(-speed_max, speed_max)
                        as f32
                } else {
                    0.0
                }
            };
            let first = grid.index([0, 0, 0]);
            let last = grid.index(grid.cells);
            fours[first..last].par_chunks_mut(BLOCK).enumerate().for_each(|(block, fours)| {
                let mut next = speed(first + block * BLOCK);
                for (n, four) in fours.iter_mut().enumerate() {
                    four.x += next;
                    next = speed(first + block * BLOCK + n + 1);
                    four.z += next;
                }
            });
        }
    }

    /// For each face its velocity, and what a particle gets to which `flip_share` of its old velocity is added. The
    /// largest of the latter along each axis [m/s].
    pub(super) fn pair_up(&self, flip_share: f64, fours: &mut Fours) -> DVec3 {
        let mut largest = DVec3::ZERO;
        for (axis, fours) in fours.iter_mut().enumerate() {
            let (velocity, change) = (&self.projected.velocity[axis], &self.projected.change[axis]);
            fours.resize(velocity.len(), Vec4::ZERO);
            let last = velocity.len() - 1;
            let blocks = fours.par_chunks_mut(BLOCK).enumerate().map(|(block, fours)| {
                let mut largest = 0.0;
                for (n, four) in fours.iter_mut().enumerate() {
                    let face = block * BLOCK + n;
                    let pair = |face: usize| {
                        let given = flip_share * change[face] + (1.0 - flip_share) * velocity[face];
                        [velocity[face], given]
                    };
                    let ([a, b], [c, d]) = (pair(face), pair((face + 1).min(last)));
                    largest = larger(largest, b.abs());
                    *four = Vec4::new(a as f32, b as f32, c as f32, d as f32);
                }
                largest
            });
            largest[axis] = blocks.reduce(|| 0.0, larger);
        }
        largest
    }

    /// Velocity and its change at a place [m/s], in f64.
    pub(super) fn at(&self, grid: &Grid, place: &Places<1>) -> [DVec3; 2] {
        let Field { velocity, change, .. } = &self.projected;
        let found = [0, 1, 2].map(|axis| place.interpolate(grid, axis, [&velocity[axis], &change[axis]]));
        [0, 1].map(|column| DVec3::from_array(found.map(|both| both[column])))
    }
}
