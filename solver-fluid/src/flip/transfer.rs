//! Between particles and grid: the loops over all particles.
//!
//! A face holds two numbers side by side, so that two neighbouring faces along x are four: one vector on every processor.
//! What bounds these loops is arithmetic, not memory: a particle visits 12 such rows to bring its velocity to the grid
//! and 24 to take the grid's back, and neighbouring particles visit the same ones.

use amalgam_particles::lanes::{LANES, Lanes, Task, Width};
use amalgam_particles::{DVec3, counting_sort};
use glam::Vec4;
use rayon::prelude::*;

use super::grid::{Grid, Places};

/// Particles of one task.
pub(super) const CHUNK: usize = 4096;

/// Kinds of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Cell {
    Air,
    /// Holds particles of other participants only.
    Foreign,
    /// Holds particles of this fluid.
    Fluid,
    /// Around the domain.
    Wall,
}

/// A pair of numbers at each face of each axis.
pub(super) type Pairs = [Vec<[f32; 2]>; 3];

/// A loop compiled for the vectors of the machine; it must be `#[inline(always)]`.
pub(super) struct Compiled<F>(pub(super) F);

impl<R, F: FnOnce() -> R> Task for Compiled<F> {
    type Output = R;

    #[inline(always)]
    fn run<L: Lanes>(self) -> R {
        (self.0)()
    }
}

/// Weights of places among the faces of an axis: along x, and of the four rows of two faces.
struct Weights<const N: usize> {
    along: [[f32; N]; 2],
    row: [[f32; N]; 4],
}

/// What particles bring to the faces, all as if they were free.
#[derive(Clone, Debug, Default)]
pub(super) struct Deposit {
    /// Sums over particles of a face's weight, and of weight times velocity [m/s].
    pub(super) sums: Pairs,
    /// What each cell holds.
    pub(super) cell: Vec<Cell>,
    layer_of: Vec<u32>,
    /// Where each layer of cells begins in `order`.
    start: Vec<u32>,
    /// Indices of particles, layer after layer.
    order: Vec<u32>,
}

impl Deposit {
    /// Sums up what particles at `position` [m] with `velocity` [m/s] bring to the faces.
    ///
    /// Particles of one layer of cells reach three layers of faces: every third layer is done at once, each by one
    /// thread, in the order of its particles. No sum depends on threads.
    pub(super) fn renew(&mut self, grid: &Grid, width: Width, position: &[DVec3], velocity: &[DVec3]) {
        self.sort_by_layer(grid, position);
        for sums in &mut self.sums {
            sums.resize(grid.len(), [0.0; 2]);
            sums.par_chunks_mut(CHUNK).for_each(|sums| sums.fill([0.0; 2]));
        }
        self.reset_cells(grid);
        let Self { sums, cell, start, order, .. } = self;
        for third in 0..3 {
            let chunk = 3 * grid.layer();
            let begin = grid.first() + third * grid.layer();
            let [x, y, z] = sums.each_mut().map(|sums| sums[begin..].par_chunks_mut(chunk));
            let cells = cell[begin..].par_chunks_mut(chunk);
            x.zip(y).zip(z).zip(cells).enumerate().for_each(|(n, (((x, y), z), cell))| {
                let k = third + 3 * n;
                if k >= grid.cells[2] {
                    return;
                }
                let offset = begin + n * chunk;
                width.run(Compiled(
                    #[inline(always)]
                    || {
                        for some in order[start[k] as usize..start[k + 1] as usize].chunks(LANES) {
                            let places =
                                grid.places(&positions_of(some.len(), |l| position[some[l] as usize]));
                            let mut velocities = [[0.0; LANES]; 3];
                            for (l, &i) in some.iter().enumerate() {
                                for (velocities, v) in
                                    velocities.iter_mut().zip(velocity[i as usize].to_array())
                                {
                                    velocities[l] = v as f32;
                                }
                                cell[places.cell[l] as usize - offset] = Cell::Fluid;
                            }
                            let of = |axis: usize| &velocities[axis][..some.len()];
                            scatter(grid, &places, 0, of(0), (offset, x));
                            scatter(grid, &places, 1, of(1), (offset, y));
                            scatter(grid, &places, 2, of(2), (offset, z));
                        }
                    },
                ));
            });
        }
    }

    fn sort_by_layer(&mut self, grid: &Grid, position: &[DVec3]) {
        let layer_of = position.par_iter().with_min_len(CHUNK).map(|&x| grid.cell(x)[2] as u32);
        layer_of.collect_into_vec(&mut self.layer_of);
        counting_sort(&self.layer_of, grid.cells[2], &mut self.start, &mut self.order);
    }

    fn reset_cells(&mut self, grid: &Grid) {
        self.cell.clear();
        self.cell.resize(grid.len(), Cell::Wall);
        for k in 0..grid.cells[2] {
            for j in 0..grid.cells[1] {
                self.cell[grid.row(j, k)].fill(Cell::Air);
            }
        }
    }
}

/// Up to [`LANES`] positions; those that are missing are filled up.
#[inline(always)]
fn positions_of(count: usize, of: impl Fn(usize) -> DVec3) -> [DVec3; LANES] {
    let mut positions = [DVec3::ZERO; LANES];
    for (l, position) in positions[..count].iter_mut().enumerate() {
        *position = of(l);
    }
    positions
}

impl<const N: usize> Weights<N> {
    #[inline(always)]
    fn new(places: &Places<N>, axis: usize) -> Self {
        let [x, y, z] = places.parts(axis);
        let mut weights = Self { along: [[0.0; N]; 2], row: [[0.0; N]; 4] };
        for l in 0..N {
            weights.along[0][l] = 1.0 - x[l];
            weights.along[1][l] = x[l];
            weights.row[0][l] = (1.0 - y[l]) * (1.0 - z[l]);
            weights.row[1][l] = y[l] * (1.0 - z[l]);
            weights.row[2][l] = (1.0 - y[l]) * z[l];
            weights.row[3][l] = y[l] * z[l];
        }
        weights
    }
}

/// The four rows of two faces around particle `l`, by their distance from the lowest one.
#[inline(always)]
fn rows(grid: &Grid) -> [usize; 4] {
    let [_, row, layer] = grid.strides();
    [0, row, layer, layer + row]
}

/// Adds weights and velocities of the first `count` particles to the faces around them. `sums` begins with the face of
/// number `offset`.
#[inline(always)]
fn scatter(
    grid: &Grid,
    places: &Places<LANES>,
    axis: usize,
    velocity: &[f32],
    (offset, sums): (usize, &mut [[f32; 2]]),
) {
    let (weights, rows) = (Weights::new(places, axis), rows(grid));
    for (l, &velocity) in velocity.iter().enumerate() {
        let (x0, x1) = (weights.along[0][l], weights.along[1][l]);
        let pair = Vec4::new(x0, x0 * velocity, x1, x1 * velocity);
        let low = places.low[axis][l] as usize - offset;
        for (row, weight) in rows.iter().zip(&weights.row) {
            let four = sums[low + row..][..2].as_flattened_mut();
            (Vec4::from_slice(four) + weight[l] * pair).write_to_slice(four);
        }
    }
}

/// Both numbers of `axis` at the places of the first `count` particles.
#[inline(always)]
fn gather(
    grid: &Grid,
    places: &Places<LANES>,
    axis: usize,
    pairs: &[[f32; 2]],
    result: &mut [[[f32; 2]; 3]],
) {
    let (weights, rows) = (Weights::new(places, axis), rows(grid));
    for (l, result) in result.iter_mut().enumerate() {
        let low = places.low[axis][l] as usize;
        let four =
            |r: usize| weights.row[r][l] * Vec4::from_slice(pairs[low + rows[r]..][..2].as_flattened());
        let sum = (four(0) + four(1)) + (four(2) + four(3));
        let (x0, x1) = (weights.along[0][l], weights.along[1][l]);
        let sum = sum * Vec4::new(x0, x0, x1, x1);
        result[axis] = [sum.x + sum.z, sum.y + sum.w];
    }
}

/// Both numbers of each axis at up to [`LANES`] positions, one for each entry of `result`.
#[inline(always)]
pub(super) fn gather_all(
    grid: &Grid,
    pairs: &Pairs,
    positions: impl Fn(usize) -> DVec3,
    result: &mut [[[f32; 2]; 3]],
) {
    let places = grid.places(&positions_of(result.len(), positions));
    gather(grid, &places, 0, &pairs[0], result);
    gather(grid, &places, 1, &pairs[1], result);
    gather(grid, &places, 2, &pairs[2], result);
}
