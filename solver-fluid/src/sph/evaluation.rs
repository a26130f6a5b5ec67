//! Densities and accelerations of a fluid at one instant.
//!
//! Particles are sorted into cells of one support radius (`cells.rs`) and handled in chunks of whole rows of cells.
//! Particles of one cell form a **block**; its **candidates** are copied next to each other, relative to the block's
//! cell: all particles of the 27 cells around it and their mirror images that lie within reach of the block's bounding
//! box (`candidates.rs`), layer after layer, so that particles in each half of the cell can pass over a sixth of them.
//! Candidates outside of a particle's support contribute exactly zero, so that the inner loops have no branch. Loops are compiled for several vector widths and give the same bits with
//! each ([`amalgam_particles::lanes`]).
//!
//! Positions are in support radii, rounded to 2^-22: relative to any cell nearby they are exact in f32, and so are
//! their differences. Hence both particles of a pair, or a particle and an image, see exactly opposite offsets.

#![allow(
    clippy::needless_range_loop,
    reason = "iterators with closures are not compiled for the vector width"
)]

use std::{
    marker::PhantomData,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use amalgam_particles::{
    DVec3,
    lanes::{LANES, Lanes, Task, Width},
};
use glam::Vec3;
use rayon::prelude::*;

use super::{
    Formulation, Parameters,
    candidates::{Block, Candidates, Columns, Selections, Sources, chunk},
    cells::{CellOrder, Chunk, Raster},
    kernel::Kernel,
    pairs::{Artificial, Carried, Laminar, Mueller, Scheme, Xsph},
    state::EquationOfState,
};

/// Least number of particles of one task, whatever the number of threads.
const CHUNK: usize = 1024;

/// Densities and accelerations, with everything that is needed to find them; memory is kept from one use to the next.
#[derive(Debug)]
pub struct Evaluation {
    width: Width,
    cells: CellOrder,
    chunks: Vec<Chunk>,
    /// In sorted order.
    columns: Columns,
    compression: Vec<f32>,
    acceleration: Vec<Vec3>,
    totals: Vec<Totals>,
    selections: Vec<Selections>,
    /// Where each particle is in the sorted order.
    rank: Vec<AtomicU32>,
}

/// Of the particles of a chunk, or of all.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    /// The largest density over rest density, at least 1.
    compression_max: f64,
    /// Energy of compression [J/kg], summed over particles.
    energy: f64,
    /// Pairs of particle and candidate that each of the two loops over pairs goes through.
    pairs: u64,
}

impl Default for Evaluation {
    fn default() -> Self {
        Self::with_width(Width::of_machine())
    }
}

impl Evaluation {
    /// An evaluation by loops of a given vector width, on which results do not depend.
    pub fn with_width(width: Width) -> Self {
        Self {
            width,
            cells: CellOrder::default(),
            chunks: Vec::new(),
            columns: Columns::default(),
            compression: Vec::new(),
            acceleration: Vec::new(),
            totals: Vec::new(),
            selections: Vec::new(),
            rank: Vec::new(),
        }
    }

    /// Finds neighbours and densities of particles at `positions` [m] with `velocities` [m/s].
    pub fn find_densities(&mut self, parameters: &Parameters, positions: &[DVec3], velocities: &[DVec3]) {
        let raster = Raster::new(parameters.support_radius, parameters.walls);
        self.cells.rebuild(&raster, positions);
        let Self { width, cells, chunks, columns, compression, totals, selections, rank, .. } = self;
        let count = cells.order().len();
        cells.chunks(CHUNK, chunks);
        rank.resize_with(count, AtomicU32::default);
        columns.set(&raster, cells, positions, velocities, rank);
        compression.resize(count, 0.0);
        let coefficients = Coefficients::new(parameters);
        let (places, [pressure, volume]) = columns.places_and_states();
        let around = Surroundings { cells, planes: raster.planes() };
        selections.resize_with(chunks.len(), Selections::default);
        let tasks = (
            chunks.par_iter(),
            selections.par_iter_mut(),
            split(compression, chunks),
            split(&mut pressure[..count], chunks),
            split(&mut volume[..count], chunks),
        );
        tasks
            .into_par_iter()
            .map_init(
                Candidates::default,
                |candidates, (chunk, selections, compression, pressure, volume)| {
                    selections.clear();
                    let sums = Sums { columns: places, around, chunk, candidates, selections };
                    let pairs = match parameters.formulation {
                        Formulation::Mueller { .. } => {
                            width.run(Densities { sums, scheme: PhantomData::<Mueller>, values: compression })
                        }
                        _ => {
                            width.run(Densities { sums, scheme: PhantomData::<Laminar>, values: compression })
                        }
                    };
                    Totals { pairs, ..coefficients.apply(&parameters.state, compression, pressure, volume) }
                },
            )
            .collect_into_vec(totals);
    }

    /// Accelerations [m/s^2] by pressure and viscosity, gravity not included, at the densities found last.
    pub fn find_accelerations(&mut self, parameters: &Parameters) {
        match parameters.formulation {
            Formulation::Laminar { .. } => self.sum_accelerations(parameters, Laminar),
            Formulation::Artificial { .. } => self.sum_accelerations(parameters, Artificial),
            Formulation::Xsph { .. } => self.sum_accelerations(parameters, Xsph),
            Formulation::Mueller { viscosity } => {
                let viscosity = mueller_viscosity(parameters, viscosity) as f32;
                self.sum_accelerations(parameters, Mueller { viscosity });
            }
        }
    }

    fn sum_accelerations<S: Scheme>(&mut self, parameters: &Parameters, scheme: S) {
        let Self { width, cells, chunks, columns, acceleration, selections, .. } = self;
        let raster = Raster::new(parameters.support_radius, parameters.walls);
        let around = Surroundings { cells, planes: raster.planes() };
        acceleration.resize(cells.order().len(), Vec3::ZERO);
        let columns = &*columns;
        let tasks = (chunks.par_iter(), selections.par_iter_mut(), split(acceleration, chunks));
        tasks.into_par_iter().for_each_init(
            Candidates::default,
            |candidates, (chunk, selections, acceleration)| {
                selections.rewind();
                let sums = Sums { columns: columns.all(), around, chunk, candidates, selections };
                width.run(Accelerations { sums, scheme, values: acceleration });
            },
        );
    }

    /// Acceleration found last [m/s^2] of a particle.
    #[inline]
    pub fn acceleration(&self, particle: usize) -> DVec3 {
        self.acceleration[self.rank[particle].load(Relaxed) as usize].as_dvec3()
    }

    /// Density over rest density, one per particle.
    pub fn compressions(&self) -> impl Iterator<Item = f64> + '_ {
        self.rank.iter().map(|r| f64::from(self.compression[r.load(Relaxed) as usize]))
    }

    /// The particles' indices, sorted by cell.
    pub fn order(&self) -> &[u32] {
        self.cells.order()
    }

    /// The largest density over rest density, at least 1.
    pub fn largest_compression(&self) -> f64 {
        self.totals.iter().map(|totals| totals.compression_max).fold(1.0, f64::max)
    }

    /// Pairs that each of the two loops over pairs went through, candidates out of reach and unused lanes included.
    pub fn pairs(&self) -> u64 {
        self.totals.iter().map(|totals| totals.pairs).sum()
    }

    /// Energy of compression [J].
    pub fn compression_energy(&self, parameters: &Parameters) -> f64 {
        parameters.mass * self.totals.iter().map(|totals| totals.energy).sum::<f64>()
    }
}

/// How sums over kernels become densities, and densities what pairs carry.
#[derive(Clone, Copy)]
struct Coefficients {
    /// Compression is `base + scale * sum`.
    base: f64,
    scale: f64,
    pressure: f64,
    /// Whether the carried pressure is over squared density (Eq. 3.3 [Monaghan1992]).
    over_squared_density: bool,
    volume: f64,
}

impl Coefficients {
    fn new(parameters: &Parameters) -> Self {
        let Parameters { spacing, support_radius, mass, state, formulation, .. } = *parameters;
        let [value, gradient] = formulation.kernels(support_radius);
        let sums = value.lattice_sums(spacing);
        let moment = gradient.lattice_sums(spacing).moment;
        // The sum of W / W(0) over a full lattice.
        let full = sums.value / (spacing.powi(3) * value.value(0.0));
        // Value and first derivative right on the lattice, see `kernel`.
        let response = sums.moment / sums.value;
        let (base, scale) = (1.0 - 1.0 / response, 1.0 / (response * full));
        // dW/dr / r is `slope` times the pair's function of distance; an offset in support radii brings a factor H.
        let wendland = 210.0 / (std::f64::consts::PI * support_radius.powi(5) * moment);
        let spiky = 45.0 / (std::f64::consts::PI * support_radius.powi(5) * moment);
        let (pressure, volume) = match formulation {
            // Eq. 22 [Morris1997] with volumes m / rho: m a_i = sum 2 mu V_i V_j (dW/dr / r) (v_i - v_j).
            Formulation::Laminar { viscosity } => {
                (mass * wendland * support_radius, 2.0 * viscosity * wendland * mass)
            }
            // Eq. 4.1 and 4.2 [Monaghan1992]; 1 / mean density is taken as rho0 / (rho_i rho_j).
            Formulation::Artificial { alpha } => (
                mass * wendland * support_radius,
                0.5 * alpha * state.sound_speed * mass * wendland * support_radius * state.rest_density,
            ),
            // [Monaghan1989] as a rate, with the same mean density and the lattice's own second moment.
            Formulation::Xsph { epsilon } => {
                let rate = epsilon * state.sound_speed / (0.5 * support_radius);
                let moment = value.second_moment(spacing) / (0.2 * support_radius * support_radius);
                let weight = rate * mass * state.rest_density * value.value(0.0) / moment;
                (mass * wendland * support_radius, weight)
            }
            // Eq. 10 [Mueller2003] over the density of the particle itself, with p_i + p_j in place of half of it: as
            // the sum of V grad W vanishes, half of it gives half the gradient, and a column would rest on twice the
            // pressure that it weighs.
            Formulation::Mueller { .. } => (1.0, mass * spiky * support_radius),
        };
        let over_squared_density = !matches!(formulation, Formulation::Mueller { .. });
        Self { base, scale, pressure, over_squared_density, volume: volume.sqrt() }
    }

    /// Turns sums over kernels into compressions, and finds what pairs carry.
    fn apply(
        &self,
        state: &EquationOfState,
        compression: &mut [f32],
        pressure: &mut [f32],
        volume: &mut [f32],
    ) -> Totals {
        let mut totals = Totals { compression_max: 1.0, ..Totals::default() };
        for ((value, pressure), volume) in compression.iter_mut().zip(pressure).zip(volume) {
            let x = self.base + self.scale * f64::from(*value);
            let specific_volume = 1.0 / (x * state.rest_density);
            let weight = if self.over_squared_density { specific_volume * specific_volume } else { 1.0 };
            *pressure = (self.pressure * state.pressure(x) * weight) as f32;
            *volume = (self.volume * specific_volume) as f32;
            *value = x as f32;
            totals.compression_max = totals.compression_max.max(x);
            totals.energy += state.energy(x);
        }
        totals
    }
}

/// Viscous over pressure term of a pair, Eq. 14 over Eq. 10 [Mueller2003], the Laplacian kernel calibrated like the
/// others: the Laplacian of a quadratic field is exact on the lattice.
fn mueller_viscosity(parameters: &Parameters, viscosity: f64) -> f64 {
    let Parameters { spacing, support_radius, formulation, .. } = *parameters;
    let [_, spiky] = formulation.kernels(support_radius);
    let moment = Kernel::mueller_laplacian_moment(support_radius, spacing);
    viscosity / support_radius * spiky.lattice_sums(spacing).moment / moment
}

/// A column cut into chunks.
fn split<'a, T>(column: &'a mut [T], chunks: &[Chunk]) -> Vec<&'a mut [T]> {
    let mut rest = column;
    chunks
        .iter()
        .map(|chunk| rest.split_off_mut(..chunk.particles.len()).expect("chunks cover the column"))
        .collect()
}

/// What a chunk needs to find candidates.
#[derive(Clone, Copy)]
struct Surroundings<'a> {
    cells: &'a CellOrder,
    planes: Option<[DVec3; 2]>,
}

/// Sums over neighbours of the particles of a chunk, from `C` columns.
struct Sums<'a, const C: usize> {
    columns: Sources<'a, C>,
    around: Surroundings<'a>,
    chunk: &'a Chunk,
    candidates: &'a mut Candidates,
    selections: &'a mut Selections,
}

/// What is done with a block and its candidates.
trait Visit<const C: usize> {
    fn block<L: Lanes>(&mut self, columns: &Sources<'_, C>, block: &Block, candidates: &Candidates);
}

impl<const C: usize> Sums<'_, C> {
    /// Goes through the blocks of the chunk.
    #[inline(always)]
    fn visit<L: Lanes>(self, visit: &mut impl Visit<C>) {
        let Self { columns, around, chunk, candidates, selections } = self;
        for (lower, home) in around.cells.lower_halves(chunk) {
            let mut halves = around.cells.halves(lower);
            while !(halves[0].is_empty() && halves[1].is_empty()) {
                let block = columns.block(&mut halves, home);
                candidates.collect::<L, C>(&columns, (around.cells, around.planes), &block, selections);
                visit.block::<L>(&columns, &block, candidates);
            }
        }
    }
}

struct Densities<'a, S> {
    sums: Sums<'a, 3>,
    scheme: PhantomData<S>,
    values: &'a mut [f32],
}

struct DensityLoop<'a, S> {
    begin: usize,
    scheme: PhantomData<S>,
    values: &'a mut [f32],
    pairs: u64,
}

impl<S: Scheme> Task for Densities<'_, S> {
    /// Pairs gone through.
    type Output = u64;

    #[inline(always)]
    fn run<L: Lanes>(self) -> u64 {
        let Self { sums, scheme, values } = self;
        let mut visit = DensityLoop { begin: sums.chunk.particles.start, scheme, values, pairs: 0 };
        sums.visit::<L>(&mut visit);
        visit.pairs
    }
}

impl<S: Scheme> Visit<3> for DensityLoop<'_, S> {
    #[inline(always)]
    fn block<L: Lanes>(&mut self, columns: &Sources<'_, 3>, block: &Block, candidates: &Candidates) {
        for half in 0..2 {
            let seen = candidates.seen_from::<3>(half);
            for k in block.halves[half].clone() {
                let [at_x, at_y, at_z] = columns.splat::<L>(k, block);
                let mut sum = L::splat(0.0);
                for [x, y, z] in seen {
                    for ((x, y), z) in x.iter().zip(y).zip(z) {
                        let (dx, dy, dz) = (at_x - L::load(x), at_y - L::load(y), at_z - L::load(z));
                        sum = sum + S::shape(dx * dx + dy * dy + dz * dz);
                    }
                }
                self.values[k - self.begin] = sum.sum();
            }
            let vectors = seen[0][0].len() + seen[1][0].len();
            self.pairs += (block.halves[half].len() * LANES * vectors) as u64;
        }
    }
}

struct Accelerations<'a, S> {
    sums: Sums<'a, 8>,
    scheme: S,
    values: &'a mut [Vec3],
}

struct ForceLoop<'a, S> {
    begin: usize,
    scheme: S,
    values: &'a mut [Vec3],
}

impl<S: Scheme> Task for Accelerations<'_, S> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { sums, scheme, values } = self;
        let begin = sums.chunk.particles.start;
        sums.visit::<L>(&mut ForceLoop { begin, scheme, values });
    }
}

impl<S: Scheme> Visit<8> for ForceLoop<'_, S> {
    #[inline(always)]
    fn block<L: Lanes>(&mut self, columns: &Sources<'_, 8>, block: &Block, candidates: &Candidates) {
        for half in 0..2 {
            let seen = candidates.seen_from::<8>(half);
            for k in block.halves[half].clone() {
                let [x, y, z, pressure, volume, vx, vy, vz] = columns.splat::<L>(k, block);
                let one = Carried { pressure, volume, velocity: [vx, vy, vz] };
                let mut sum = [L::splat(0.0); 3];
                for columns in seen {
                    for v in 0..columns[0].len() {
                        let [cx, cy, cz, pressure, volume, vx, vy, vz] = chunk::<L, 8>(&columns, v);
                        let other = Carried { pressure, volume, velocity: [vx, vy, vz] };
                        let pull = self.scheme.pull([x - cx, y - cy, z - cz], &one, &other);
                        sum = [sum[0] + pull[0], sum[1] + pull[1], sum[2] + pull[2]];
                    }
                }
                self.values[k - self.begin] = Vec3::new(sum[0].sum(), sum[1].sum(), sum[2].sum());
            }
        }
    }
}
