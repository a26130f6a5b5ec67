//! Deviation of the number of particles around a cell from the number at rest density, and its correction.
//!
//! *Spray*: particles that are too few to fill their cells are not incompressible. They fly freely until they
//! are near enough to other particles. So do the particles of a cell at the surface that is less than half full,
//! as long as they are farther from the fluid than if they lay on it. Otherwise a drop above a surface would
//! hover there, since nothing that is incompressible comes nearer.
//!
//! *Beside obstacles* ([`CutCells`]) weights are compared with those of particles in the open part of space. A
//! cell of which an obstacle leaves little open may hold no particle by chance. It is fluid if most of its open
//! faces lead to cells with particles.
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
use super::grid::{CutCells, Grid, lay_out};
use super::group_members::MemberContributions;
use super::particle_to_grid::ParticleToGrid;
use super::pressure::{BLOCK, Split};
use super::slab::{Slab, depth};

/// Density over the rest density: particles of a cell with less may be spray. A full sheet, one cell thick, has
/// 0.67, and the upper cell of deep water has 0.5 if it is half full.
const SPRAY: f32 = 0.5;

/// Height above the place where they would lie, in cells, from which on a surface's particles are spray.
const LYING: f64 = 0.1;

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
    (grid, cut, width): (&Grid, Option<&CutCells>, Width),
    transferred: &ParticleToGrid,
    full: f64,
    density: &mut Vec<f32>,
) {
    let scale = (1.0 / (6.0 * full)) as f32;
    lay_out(grid, density);
    let layers = slab.layers();
    let own = grid.begin_of_layer(layers.start)..grid.begin_of_layer(layers.end);
    density[own.clone()].par_chunks_mut(CHUNK).enumerate().for_each(|(n, density)| {
        width.run(MeasureDensity { grid, transferred, scale, begin: own.start + n * CHUNK, density });
    });
    let Some(cut) = cut else { return };
    for &at in cut.cells(&own) {
        let room: f64 = around(grid, at).into_iter().map(|(face, axis, _)| cut.weight(axis, face)).sum();
        density[at] *= (6.0 / room) as f32;
    }
}

/// The cells of the slab without particles that are fluid because an obstacle cuts them.
fn filled(slab: &Slab, grid: &Grid, cut: &CutCells, density: &[f32]) -> Vec<usize> {
    let is_filled = |&&at: &&usize| {
        let (mut fluid, mut all) = (0.0, 0.0);
        for (face, axis, next) in around(grid, at) {
            let area = f64::from(cut.area[axis][face]);
            all += area;
            fluid += if density[next] > 0.0 { area } else { 0.0 };
        }
        cut.volume[at] < 1.0 && density[at] == 0.0 && fluid > 0.5 * all
    };
    cut.cells(&slab.entries(0)).iter().filter(is_filled).copied().collect()
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

/// The cells of the slab that hold spray.
fn spray(
    slab: &Slab,
    (grid, cut): (&Grid, Option<&CutCells>),
    full: f64,
    transferred: &ParticleToGrid,
    density: &[f32],
) -> Vec<usize> {
    let cell = &transferred.cell;
    let is_thin = |at: usize| density[at] < SPRAY;
    let is_closed = |axis, face| cut.is_some_and(|cut| cut.is_closed(axis, face));
    // Particles above a full cell bring w = z n and w' = (1 - z) n + 1/2 to the faces beyond them and towards the full
    // cell. The n is their number over that of a full cell, and z is their mean distance from the full cell. They
    // have z = n / 2 where they lie on it.
    let flies = |at: usize| {
        let around = around(grid, at);
        let weight = |n: usize| {
            let (face, axis, _) = around[n];
            f64::from(transferred.at(axis, face)[0]) / full
        };
        let is_over = |n: usize| {
            let ((face, axis, next), (beyond, _, _)) = (around[n], around[n ^ 1]);
            let is_open = !is_closed(axis, face) && !is_closed(axis, beyond);
            let number = weight(n) + weight(n ^ 1) - 0.5;
            is_open && !is_thin(next) && weight(n ^ 1) > number * (0.5 * number + LYING)
        };
        let is_air = |(face, axis, next): (usize, usize, usize)| {
            density[next] == 0.0 && cell[next] != Cell::Wall && !is_closed(axis, face)
        };
        around.into_iter().all(|(_, _, next)| is_thin(next))
            || around.into_iter().any(is_air) && (0..6).any(is_over)
    };
    let is_spray = |&at: &usize| density[at] > 0.0 && is_thin(at) && flies(at);
    slab.entries(0).into_par_iter().with_min_len(BLOCK).filter(is_spray).collect()
}

/// The density of a cell from the weights at its faces and the parts of them that obstacles leave open.
fn density_beside_obstacle(
    (grid, cut): (&Grid, &CutCells),
    transferred: &ParticleToGrid,
    full: f64,
    at: usize,
) -> f32 {
    let (mut weight, mut room) = (0.0, 0.0);
    for (face, axis, next) in around(grid, at) {
        let mirrored = if transferred.cell[next] == Cell::Wall { 2.0 } else { 1.0 };
        weight += mirrored * f64::from(transferred.at(axis, face)[0]);
        room += cut.weight(axis, face);
    }
    (weight / (room * full)) as f32
}

/// Measures the density in the cells that particles were transferred to, and marks the cells of spray and those
/// that are fluid without particles. `full` is the number of particles in a cell at rest density. Collective.
pub(super) fn measure_and_mark_spray(
    slab: &Slab,
    (grid, cut, width): (&Grid, Option<&CutCells>, Width),
    full: f64,
    transferred: &mut ParticleToGrid,
) {
    let mut density = std::mem::take(&mut transferred.density);
    measure(slab, (grid, cut, width), transferred, full, &mut density);
    slab.halo(1).exchange(&slab.ranks, [&mut density]);
    if let Some(cut) = cut {
        for at in filled(slab, grid, cut, &density) {
            transferred.cell[at] = Cell::Fluid;
            density[at] = density_beside_obstacle((grid, cut), transferred, full, at);
        }
        slab.halo(1).exchange(&slab.ranks, [&mut density]);
    }
    for at in spray(slab, (grid, cut), full, transferred, &density) {
        transferred.cell[at] = Cell::Spray;
    }
    transferred.density = density;
    let cells = slab.halo(depth::CELLS);
    cells.exchange_as(&slab.ranks, [&mut transferred.cell], |cell| cell as u8, Cell::from_bits);
}

/// The state from which the right-hand side of the density projection follows.
#[derive(Clone, Copy)]
pub(super) struct DensityCorrection<'a> {
    pub(super) slab: &'a Slab,
    pub(super) grid: &'a Grid,
    pub(super) cut: Option<&'a CutCells>,
    pub(super) transferred: &'a ParticleToGrid,
    pub(super) contributions: &'a MemberContributions,
    pub(super) cell: &'a [Cell],
    /// Particles in a cell at rest density.
    pub(super) full: f64,
}

impl DensityCorrection<'_> {
    /// Sets the relative deviation of each cell's density from the rest density, times the open part of the cell.
    /// Returns its largest magnitude. Collective.
    pub(super) fn deviations(&self, result: &mut Split<f64>) -> f64 {
        let mut largest = 0.0;
        let closed = self.closed_chambers();
        for (colour, result) in result.iter_mut().enumerate() {
            let own = self.slab.entries(0);
            let first = own.start / 2;
            let entries = result[first..own.end.div_ceil(2)].par_iter_mut().enumerate().with_min_len(BLOCK);
            let magnitudes = entries.map(|(m, result)| {
                let at = 2 * (first + m) + colour;
                let is_fluid = own.contains(&at) && self.cell[at] == Cell::Fluid;
                *result = if is_fluid { self.deviation(at) } else { 0.0 };
                if let Some(cut) = self.cut {
                    let counts = !cut.is_closed_cell(self.grid, at) && !closed[cut.chamber(at)];
                    *result *= if counts { f64::from(cut.volume[at]) } else { 0.0 };
                }
                result.abs()
            });
            largest = magnitudes.reduce(|| largest, f64::max);
        }
        let [largest] = self.slab.largest([largest]);
        largest
    }

    /// For each chamber between obstacles, true if fluid fills it without any air. Its density has nowhere to go.
    /// A single chamber is not listed as closed: [`PressureSolver`](super::pressure::PressureSolver) evens out what
    /// has nowhere to go. Collective.
    fn closed_chambers(&self) -> Vec<bool> {
        let Some(cut) = self.cut else { return Vec::new() };
        let mut surfaces = vec![0i64; cut.chambers().max(1)];
        if surfaces.len() == 1 {
            return vec![false];
        }
        let own = self.slab.entries(0);
        own.filter(|&at| self.is_surface(at)).for_each(|at| surfaces[cut.chamber(at)] += 1);
        self.slab.ranks.sum(&mut surfaces);
        surfaces.into_iter().map(|surface| surface == 0).collect()
    }

    /// True if an obstacle closes a face.
    fn is_closed(&self, axis: usize, face: usize) -> bool {
        self.cut.is_some_and(|cut| cut.is_closed(axis, face))
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
            self.is_closed(axis, face)
                || matches!(self.cell[next], Cell::Fluid | Cell::Wall)
                    && !self.contributions.touch(axis, face)
        };
        if !around.iter().all(inside) {
            return 0.0;
        }
        // The lack of weight at a face towards a cell at the surface does not count either.
        let lack = |&(face, axis, next): &(usize, usize, usize)| {
            let room = self.cut.map_or(1.0, |cut| cut.weight(axis, face));
            let weight = f64::from(self.transferred.at(axis, face)[0]) / (self.full * room);
            if self.is_surface(next) { (1.0 - weight).max(0.0) } else { 0.0 }
        };
        let excused = around.iter().map(lack).sum::<f64>() / 6.0;
        (deviation + excused).clamp(-DEVIATION_MAX, 0.0)
    }

    fn is_surface(&self, at: usize) -> bool {
        let beyond = |(face, axis, next): (usize, usize, usize)| {
            matches!(self.cell[next], Cell::Air | Cell::Spray) && !self.is_closed(axis, face)
        };
        self.cell[at] == Cell::Fluid && around(self.grid, at).into_iter().any(beyond)
    }
}
