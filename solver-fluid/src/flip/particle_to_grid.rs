//! Transfer from particles to the grid: every particle adds its weight and its velocity to the faces around
//! it.
//!
//! The two numbers of a face and of the next face along x are one vector of four on every processor. A
//! particle visits 12 rows of two faces, and neighbouring particles visit the same rows. So arithmetic and
//! not memory bounds the time of this loop.

use amalgam_particles::lanes::{LANES, Lanes, Task, Width};
use amalgam_particles::reduce::CHUNK;
use amalgam_particles::{DVec3, ParticleId, counting_sort};
use glam::Vec4;
use rayon::prelude::*;

use super::cell::Cell;
use super::grid::{FacePlaces, Grid, Weights, lay_out};
use super::slab::Slab;
use crate::cell_order::sort_cells_by_id;

/// Number of particles by which memory is prefetched: in the order of cells and ids particles are far apart
/// in memory.
const AHEAD: usize = 64;

/// Number of faces by which sums are prefetched. Particles come row after row of cells, and two of the four
/// rows of faces around a particle are new to each row of cells.
const FACES_AHEAD: usize = 12;

/// For each axis, two numbers at each face and two at the next face along x. The vector of a face then
/// overlaps with no vector of another face.
type Fours = [Vec<Vec4>; 3];

/// Sums over particles at faces and cells. All particles count as if they were free.
#[derive(Clone, Debug, Default)]
pub(super) struct ParticleToGrid {
    /// Sums over the particles between a face and the next face along x: weight and weight times velocity
    /// [m/s] at the face, then at the next face.
    sums: Fours,
    /// The kind of each cell.
    pub(super) cell: Vec<Cell>,
    /// Density in each cell, relative to the rest density.
    pub(super) density: Vec<f32>,
    /// The number of each particle's cell, counted from the first entry of the slab.
    cell_of: Vec<u32>,
    /// Start in `order` of each cell of the slab, and of the particles outside of the slab.
    start: Vec<u32>,
    /// Indices of particles, cell after cell, and in a cell by id.
    order: Vec<u32>,
}

impl ParticleToGrid {
    /// Adds up the weights and velocities that particles at positions [m] with velocities [m/s] bring to the
    /// faces.
    ///
    /// Particles of one layer of cells reach three layers of faces. So every third layer is done at the same
    /// time, each by one thread, in the order of cells and of ids in a cell. No sum depends on threads or on
    /// the order of storage.
    ///
    /// Two ranks add to the faces on both sides of the border between their slabs. After each third they send
    /// each other the sums there, and go on from them ([`Slab::join_sums`]). So the order of terms is that of
    /// one rank. Particles outside of the slab are left out. Collective.
    pub(super) fn transfer(
        &mut self,
        slab: &Slab,
        (grid, width): (&Grid, Width),
        ids: &[ParticleId],
        (position, velocity): (&[DVec3], &[DVec3]),
    ) {
        self.sort_by_cell(slab, (grid, width), ids, position);
        for sums in &mut self.sums {
            lay_out(grid, sums);
            sums[..grid.first()].fill(Vec4::ZERO);
        }
        self.mark_cells(slab, grid);
        let Self { sums, start, order, .. } = self;
        let (layers, base) = (slab.layers(), slab.entries(0).start);
        // The walls around a layer hold no particle.
        let layer_start = |k: usize| start[grid.begin_of_layer(k) - base] as usize;
        // Chunks that hold the layers of faces of the slab.
        let some = layers.start / 3..(layers.end + 1) / 3 + 1;
        for third in 0..3 {
            let chunk = 3 * grid.layer();
            let begin = grid.first() + third * grid.layer();
            let [x, y, z] = sums.each_mut().map(|sums| sums[begin..].par_chunks_mut(chunk));
            x.zip(y).zip(z).enumerate().skip(some.start).take(some.len()).for_each(|(n, ((x, y), z))| {
                let k = third + 3 * n;
                if third == 0 {
                    // The first particles find these sums in the cache.
                    [&mut *x, &mut *y, &mut *z].into_iter().for_each(|sums| sums.fill(Vec4::ZERO));
                }
                if !layers.contains(&k) {
                    return;
                }
                width.run(Scatter {
                    grid,
                    order: &order[layer_start(k)..layer_start(k + 1)],
                    particles: (position, velocity),
                    offset: begin + n * chunk,
                    sums: [x, y, z],
                });
            });
            slab.join_sums(third, sums);
        }
    }

    /// The columns of sums.
    pub(super) fn sums_mut(&mut self) -> [&mut [Vec4]; 3] {
        self.sums.each_mut().map(Vec::as_mut_slice)
    }

    /// A face's sums: weight, and weight times velocity [m/s]. Zero before the first [`Self::transfer`].
    #[inline(always)]
    pub(super) fn at(&self, axis: usize, face: usize) -> [f32; 2] {
        let four = |face: usize| self.sums[axis].get(face).copied().unwrap_or_default();
        total(four(face), four(face.wrapping_sub(1)))
    }

    /// The sums of sixteen faces from `first` on, which is at least 1: weights, and weights times velocities
    /// [m/s].
    #[inline(always)]
    pub(super) fn sixteen(&self, axis: usize, first: usize) -> [[f32; LANES]; 2] {
        let mut sums = [[0.0; LANES]; 2];
        let fours = &self.sums[axis][first - 1..][..=LANES];
        for l in 0..LANES {
            [sums[0][l], sums[1][l]] = total(fours[l + 1], fours[l]);
        }
        sums
    }

    fn sort_by_cell(
        &mut self,
        slab: &Slab,
        (grid, width): (&Grid, Width),
        ids: &[ParticleId],
        position: &[DVec3],
    ) {
        self.cell_of.resize(position.len(), 0);
        let (first, cells) = (slab.entries(0).start as u32, slab.entries(0).len() as u32);
        let chunks = self.cell_of.par_chunks_mut(CHUNK).zip(position.par_chunks(CHUNK));
        chunks
            .for_each(|(cell_of, position)| width.run(CellNumbers { grid, first, cells, position, cell_of }));
        counting_sort(&self.cell_of, cells as usize + 1, &mut self.start, &mut self.order);
        sort_cells_by_id(width, &self.start, (|i| &ids[i as usize], Some(AHEAD)), &mut self.order);
    }

    /// Indices of the particles by cell and id.
    pub(super) fn order(&self) -> &[u32] {
        &self.order
    }

    /// Marks the cells of the slab that hold particles.
    fn mark_cells(&mut self, slab: &Slab, grid: &Grid) {
        if self.cell.is_empty() {
            // Walls, which surround each layer of cells, never change.
            self.cell.resize(grid.len(), Cell::Wall);
            for (j, k) in (0..grid.cells[2]).flat_map(|k| (0..grid.cells[1]).map(move |j| (j, k))) {
                self.cell[grid.row(j, k)].fill(Cell::Air);
            }
        }
        let (start, base, own) = (&self.start, slab.entries(0).start, slab.layers());
        let layers = self.cell[grid.begin_of_layer(0)..].par_chunks_mut(grid.layer()).enumerate();
        layers.skip(own.start).take(own.len()).for_each(|(k, cells)| {
            let begin = grid.begin_of_layer(k);
            for j in 0..grid.cells[1] {
                let row = grid.row(j, k);
                let cells = &mut cells[row.start - begin..row.end - begin];
                for (cell, bounds) in cells.iter_mut().zip(start[row.start - base..].windows(2)) {
                    *cell = if bounds[0] < bounds[1] { Cell::Fluid } else { Cell::Air };
                }
            }
        });
    }
}

/// A face's sums, from its own four numbers and those of the face before it.
#[inline(always)]
fn total(own: Vec4, before: Vec4) -> [f32; 2] {
    [own.x + before.z, own.y + before.w]
}

/// Finds the numbers of the cells of some positions [m], counted from the slab's first entry. Positions
/// outside of the slab get the number behind its last one.
struct CellNumbers<'a> {
    grid: &'a Grid,
    /// The first entry of the slab, and the number of its entries.
    first: u32,
    cells: u32,
    position: &'a [DVec3],
    cell_of: &'a mut [u32],
}

impl Task for CellNumbers<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        for (cell_of, &position) in self.cell_of.iter_mut().zip(self.position) {
            *cell_of = self.grid.cell_number(position).wrapping_sub(self.first).min(self.cells);
        }
    }
}

/// Transfer from the particles of a layer of cells to the faces.
struct Scatter<'a> {
    grid: &'a Grid,
    order: &'a [u32],
    /// Positions [m] and velocities [m/s].
    particles: (&'a [DVec3], &'a [DVec3]),
    /// Number of the face with which `sums` begin.
    offset: usize,
    sums: [&'a mut [Vec4]; 3],
}

impl Task for Scatter<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { grid, order, particles: (position, velocity), offset, sums: [x, y, z] } = self;
        let (mut positions, mut velocities) = ([[0.0; LANES]; 3], [[0.0; LANES]; 3]);
        let velocity = &velocity[..position.len()];
        for (n, some) in order.chunks(LANES).enumerate() {
            let later = LANES * n + AHEAD;
            for &i in order.get(later..later + LANES).unwrap_or_default() {
                // A vector of three may lie in two cache lines.
                for part in [0, size_of::<DVec3>() - size_of::<f64>()] {
                    L::prefetch(&position[i as usize], part);
                    L::prefetch(&velocity[i as usize], part);
                }
            }
            for (&i, l) in some.iter().zip(0..LANES) {
                let (position, velocity) = (position[i as usize], velocity[i as usize]);
                (positions[0][l], positions[1][l], positions[2][l]) = (position.x, position.y, position.z);
                (velocities[0][l], velocities[1][l], velocities[2][l]) = (velocity.x, velocity.y, velocity.z);
            }
            let places = grid.places(&positions);
            scatter::<L>(grid, &places, 0, (&velocities[0], some.len()), (offset, x));
            scatter::<L>(grid, &places, 1, (&velocities[1], some.len()), (offset, y));
            scatter::<L>(grid, &places, 2, (&velocities[2], some.len()), (offset, z));
        }
    }
}

/// Adds weights and velocities [m/s] of the first `count` particles to the faces of an axis around them.
/// `sums` begins with the face of number `offset`.
#[inline(always)]
fn scatter<L: Lanes>(
    grid: &Grid,
    places: &FacePlaces<LANES>,
    axis: usize,
    (velocity, count): (&[f64; LANES], usize),
    (offset, sums): (usize, &mut [Vec4]),
) {
    let (weights, [_, next_row, next_layer, last]) = (Weights::new(places, axis), grid.rows());
    // The compiler then checks one bound per particle.
    assert!(next_row <= last && next_layer <= last, "the last row is beyond the others");
    let [x0, x1] = weights.along;
    let (mut momentum0, mut momentum1) = ([0.0; LANES], [0.0; LANES]);
    for l in 0..LANES {
        let velocity = velocity[l] as f32;
        (momentum0[l], momentum1[l]) = (x0[l] * velocity, x1[l] * velocity);
    }
    let lowest = places.low[axis][0] as usize - offset;
    for row in [next_row, last] {
        L::prefetch(&sums[lowest + row], FACES_AHEAD * size_of::<Vec4>());
    }
    for l in 0..count {
        let four = Vec4::new(x0[l], momentum0[l], x1[l], momentum1[l]);
        let sums = &mut sums[places.low[axis][l] as usize - offset..][..=last];
        sums[0] += weights.row[0][l] * four;
        sums[next_row] += weights.row[1][l] * four;
        sums[next_layer] += weights.row[2][l] * four;
        sums[last] += weights.row[3][l] * four;
    }
}
