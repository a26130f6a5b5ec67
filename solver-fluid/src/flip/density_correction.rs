//! Deviation of the number of particles around a cell from the number at rest density, and its correction.
//!
//! *Spray*: particles that are too few to fill their cells are not incompressible. They fly freely until they
//! are near enough to other particles.
//!
//! *Density projection* [Kugelstadt2021]: the projection of velocities keeps the volume of full cells, but it
//! does not know how many particles a cell holds. Errors of advection add up, and gaps stay open. Therefore
//! free particles travel with the velocity `-grad psi` beside the grid's velocity. The divergence of
//! `-grad psi` is the relative deviation of the density over the relaxation time, so that it takes the
//! density to the rest density within this time. The particles are moved and not accelerated: their own
//! velocities do not change.

use amalgam_particles::lanes::{LANES, Lanes, Task, Width};
use amalgam_particles::reduce::CHUNK;
use rayon::prelude::*;

use super::cell::Cell;
use super::grid::Grid;
use super::group_members::MemberContributions;
use super::particle_to_grid::ParticleToGrid;
use super::pressure::{BLOCK, Split};
use super::slab::{Slab, depth};

/// Density over the rest density: particles of a cell are spray if the cell and the six cells around it have
/// less. A full sheet, one cell thick, has 0.67.
const SPRAY: f32 = 0.5;

/// Limit of the relative deviation from the rest density, as in [Kugelstadt2021].
const DEVIATION_MAX: f64 = 0.5;

/// A cell's six neighbours, each as the face towards it, the axis of the face, and the neighbour's number.
#[inline(always)]
pub(super) fn around(grid: &Grid, at: usize) -> [(usize, usize, usize); 6] {
    let [x, y, z] = grid.strides();
    [
        (at, 0, at - x),
        (at + x, 0, at + x),
        (at, 1, at - y),
        (at + y, 1, at + y),
        (at, 2, at - z),
        (at + z, 2, at + z),
    ]
}

/// Finds the density in the cells of the slab that hold particles, relative to the rest density. `full` is the
/// number of particles in a cell at rest density.
fn measure(
    slab: &Slab,
    (grid, width): (&Grid, Width),
    transferred: &ParticleToGrid,
    full: f64,
    density: &mut Vec<f32>,
) {
    let scale = (1.0 / (6.0 * full)) as f32;
    density.resize(grid.len(), 0.0);
    let layers = slab.layers();
    let own = grid.begin_of_layer(layers.start)..grid.begin_of_layer(layers.end);
    density[own.clone()].par_chunks_mut(CHUNK).enumerate().for_each(|(n, density)| {
        width.run(MeasureDensity { grid, transferred, scale, begin: own.start + n * CHUNK, density });
    });
}

/// Finds the density in a block of cells: the mean of the weights that particles bring to a cell's six faces,
/// over the weight at rest density. At a wall the mirror image brings the other half of the weight.
struct MeasureDensity<'a> {
    grid: &'a Grid,
    transferred: &'a ParticleToGrid,
    /// Inverse of six times the number of particles in a cell at rest density.
    scale: f32,
    /// The first cell.
    begin: usize,
    density: &'a mut [f32],
}

impl Task for MeasureDensity<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { grid, transferred, scale, begin, density } = self;
        for (n, density) in density.chunks_mut(LANES).enumerate() {
            let first = begin + n * LANES;
            let mut sums = [0.0; LANES];
            for (face, axis, next) in around(grid, first) {
                let [weight, _] = transferred.sixteen(axis, face);
                let next = &transferred.cell[next..][..LANES];
                for l in 0..LANES {
                    let mirrored = if next[l] == Cell::Wall { 2.0 } else { 1.0 };
                    sums[l] += scale * mirrored * weight[l];
                }
            }
            for ((density, sum), cell) in density.iter_mut().zip(sums).zip(&transferred.cell[first..]) {
                *density = if *cell == Cell::Fluid { sum } else { 0.0 };
            }
        }
    }
}

fn spray(slab: &Slab, grid: &Grid, cell: &[Cell], density: &[f32]) -> Vec<usize> {
    let thin = |at: usize| density[at] < SPRAY;
    let alone = |&at: &usize| {
        cell[at] == Cell::Fluid && thin(at) && around(grid, at).into_iter().all(|(_, _, next)| thin(next))
    };
    slab.entries(0).into_par_iter().with_min_len(BLOCK).filter(alone).collect()
}

/// Measures the density in the cells that particles were transferred to, and marks the cells of spray. `full`
/// is the number of particles in a cell at rest density. Collective.
pub(super) fn measure_and_mark_spray(
    slab: &Slab,
    (grid, width): (&Grid, Width),
    full: f64,
    transferred: &mut ParticleToGrid,
) {
    let mut density = std::mem::take(&mut transferred.density);
    measure(slab, (grid, width), transferred, full, &mut density);
    slab.halo(1).exchange(&slab.ranks, [&mut density]);
    for at in spray(slab, grid, &transferred.cell, &density) {
        transferred.cell[at] = Cell::Spray;
    }
    transferred.density = density;
    let cells = slab.halo(depth::CELLS);
    cells.exchange_as(&slab.ranks, [&mut transferred.cell], |cell| cell as u8, Cell::from_bits);
}

/// The state from which the right-hand side of the density projection follows.
#[derive(Clone, Copy, Debug)]
pub(super) struct DensityCorrection<'a> {
    pub(super) slab: &'a Slab,
    pub(super) grid: &'a Grid,
    pub(super) transferred: &'a ParticleToGrid,
    pub(super) contributions: &'a MemberContributions,
    pub(super) cell: &'a [Cell],
    /// Particles in a cell at rest density.
    pub(super) full: f64,
}

impl DensityCorrection<'_> {
    /// Sets the relative deviation of each cell's density from the rest density. Returns its largest
    /// magnitude. Collective.
    pub(super) fn deviations(&self, result: &mut Split<f64>) -> f64 {
        let mut largest = 0.0;
        for (colour, result) in result.iter_mut().enumerate() {
            let own = self.slab.entries(0);
            let first = own.start / 2;
            let entries = result[first..own.end.div_ceil(2)].par_iter_mut().enumerate().with_min_len(BLOCK);
            let magnitudes = entries.map(|(m, result)| {
                let at = 2 * (first + m) + colour;
                let is_fluid = own.contains(&at) && self.cell[at] == Cell::Fluid;
                *result = if is_fluid { self.deviation(at) } else { 0.0 };
                result.abs()
            });
            largest = magnitudes.reduce(|| largest, f64::max);
        }
        let [largest] = self.slab.largest([largest]);
        largest
    }

    /// The relative deviation that counts. A lack of density counts only inside of the fluid. It does not
    /// count at the surface, beside air or spray, nor beside other participants, whose volume is not known
    /// here.
    fn deviation(&self, at: usize) -> f64 {
        let deviation = f64::from(self.transferred.density[at]) - 1.0;
        if deviation >= 0.0 {
            return deviation.min(DEVIATION_MAX);
        }
        let around = around(self.grid, at);
        let inside = |&(face, axis, next): &(usize, usize, usize)| {
            matches!(self.cell[next], Cell::Fluid | Cell::Wall) && !self.contributions.touch(axis, face)
        };
        if !around.iter().all(inside) {
            return 0.0;
        }
        // The lack of weight at a face towards a cell at the surface does not count either.
        let lack = |&(face, axis, next): &(usize, usize, usize)| {
            let weight = f64::from(self.transferred.at(axis, face)[0]) / self.full;
            if self.is_surface(next) { (1.0 - weight).max(0.0) } else { 0.0 }
        };
        let excused = around.iter().map(lack).sum::<f64>() / 6.0;
        (deviation + excused).clamp(-DEVIATION_MAX, 0.0)
    }

    fn is_surface(&self, at: usize) -> bool {
        let beyond = |(_, _, next): (usize, usize, usize)| matches!(self.cell[next], Cell::Air | Cell::Spray);
        self.cell[at] == Cell::Fluid && around(self.grid, at).into_iter().any(beyond)
    }
}
