//! Between particles and grid: the loops over all particles.
//!
//! A face holds two numbers side by side, so that two neighbouring faces along x are four: one vector on every processor.
//! What bounds these loops is arithmetic, not memory: a particle visits 12 such rows to bring its velocity to the grid
//! and 24 to take the grid's back, and neighbouring particles visit the same ones.

use amalgam_particles::{DVec3, counting_sort};
use glam::Vec4;
use rayon::prelude::*;

use super::grid::{Grid, Place};

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
    pub(super) fn renew(&mut self, grid: &Grid, position: &[DVec3], velocity: &[DVec3]) {
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
                for &i in &order[start[k] as usize..start[k + 1] as usize] {
                    let (position, velocity) = (position[i as usize], velocity[i as usize]);
                    let place = grid.place(position);
                    scatter(grid, &place, 0, velocity.x as f32, offset, x);
                    scatter(grid, &place, 1, velocity.y as f32, offset, y);
                    scatter(grid, &place, 2, velocity.z as f32, offset, z);
                    cell[grid.index(grid.cell(position)) - offset] = Cell::Fluid;
                }
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

/// Adds a particle's weight and velocity to the eight faces around it. `sums` begins with the face of number `offset`.
#[inline(always)]
fn scatter(grid: &Grid, place: &Place, axis: usize, velocity: f32, offset: usize, sums: &mut [[f32; 2]]) {
    let [x, y, z] = place.parts(axis);
    let pair = Vec4::new(1.0 - x, (1.0 - x) * velocity, x, x * velocity);
    let ([_, row, layer], at) = (grid.strides(), place.low[axis] - offset);
    let (low, high) = ((1.0 - z) * pair, z * pair);
    for (at, four) in [
        (at, (1.0 - y) * low),
        (at + row, y * low),
        (at + layer, (1.0 - y) * high),
        (at + layer + row, y * high),
    ] {
        let four_sums = sums[at..at + 2].as_flattened_mut();
        (Vec4::from_slice(four_sums) + four).write_to_slice(four_sums);
    }
}

/// Both numbers of `axis` at a place.
#[inline(always)]
fn gather(grid: &Grid, place: &Place, axis: usize, pairs: &[[f32; 2]]) -> [f32; 2] {
    let [x, y, z] = place.parts(axis);
    let ([_, row, layer], at) = (grid.strides(), place.low[axis]);
    let four = |at: usize| Vec4::from_slice(pairs[at..at + 2].as_flattened());
    let low = (1.0 - y) * four(at) + y * four(at + row);
    let high = (1.0 - y) * four(at + layer) + y * four(at + layer + row);
    let four = ((1.0 - z) * low + z * high) * Vec4::new(1.0 - x, 1.0 - x, x, x);
    [four.x + four.z, four.y + four.w]
}

/// Both numbers of each axis at a place: the first ones, then the second ones.
#[inline(always)]
pub(super) fn gather_all(grid: &Grid, place: &Place, pairs: &Pairs) -> [[f32; 3]; 2] {
    let [x, y, z] = [0, 1, 2].map(|axis| gather(grid, place, axis, &pairs[axis]));
    [[x[0], y[0], z[0]], [x[1], y[1], z[1]]]
}
