//! Densities and accelerations of a fluid at one instant.
//!
//! Particles are sorted by place (`cells.rs`) and handled in chunks of whole rows. As many particles of a row
//! as a register has lanes form a **group**, a particle a lane. Its **candidates** are copied next to each
//! other, relative to the group's origin: all particles of the nine rows around it and their mirror images
//! that lie within reach of the group's bounding box (`candidates.rs`). Each is then met with all lanes at
//! once. Candidates outside of a particle's support contribute exactly zero, so that the inner loops have no
//! branch, and a particle meets its neighbours in the same order whatever else there is: results do not
//! depend on the number of lanes.
//!
//! Positions are in support radii, rounded to 2^-22: relative to a group's origin they are exact in f32, and
//! so are their differences. Hence both particles of a pair, or a particle and an image, see exactly opposite
//! offsets.

#![allow(
    clippy::needless_range_loop,
    reason = "iterators with closures are not compiled for the vector width"
)]

use std::{
    borrow::Cow,
    marker::PhantomData,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use amalgam_particles::{
    DVec3,
    lanes::{LANES, Lanes, Task, Width},
};
use amalgam_solver_kit::{Fields, Ranks, sum_integers};
use glam::Vec3;
use rayon::prelude::*;

use super::acceleration::Accelerations;
use super::density::Densities;
use super::ghosts::Ghosts;
use super::kernel::Kernel;
use super::neighbours::{
    Candidates, CellOrder, Chunk, Columns, NeighbourList, PRESSURE, Places, Points, Raster, Stored, VOLUME,
};
use super::pairs::PairTerms;
use super::pressure::equation_of_state::{EquationOfState, Law};
use super::sweep::{Sums, split};
use super::viscosity::{Artificial, Laminar, Mueller, Xsph};
use super::walls::Walls;
use super::{Formulation, SphParameters};
use crate::sources::Sources;

/// Least number of particles of one task, whatever the number of threads.
const CHUNK: usize = 1024;

/// Densities and accelerations, with everything that is needed to find them; memory is kept from one use to
/// the next.
#[derive(Debug)]
pub struct Evaluation {
    width: Width,
    cells: CellOrder,
    chunks: Vec<Chunk>,
    /// Columns in sorted order.
    columns: Columns,
    compression: Vec<f32>,
    acceleration: Vec<Vec3>,
    totals: Vec<Totals>,
    /// The square of each chunk's largest acceleration [m^2/s^4].
    accelerations_max: Vec<f32>,
    found: Vec<NeighbourList>,
    /// Place of each particle in the sorted order.
    rank: Vec<AtomicU32>,
    /// Number of own particles, behind which ghosts are numbered.
    own: usize,
    /// Sums and maxima over all ranks.
    joined: Joined,
}

/// Sums and maxima over the particles of a chunk.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    /// The largest density over rest density, at least 1.
    compression_max: f64,
    /// Energy of compression over the square of the speed of sound, summed over particles [[`UNIT`]].
    energy: i128,
    /// Density over rest density, less 1, where it is positive; summed over particles [[`UNIT`]].
    excess: i128,
    /// Pairs of particle and candidate that the loops over pairs go through, of densities and of forces.
    pairs: [u64; 2],
}

/// Sums and maxima over the particles of all ranks.
#[derive(Clone, Copy, Debug)]
struct Joined {
    compression_max: f64,
    /// Energy of compression over the square of the speed of sound, and excess of density, summed over
    /// particles.
    energy: f64,
    excess: f64,
    particles: f64,
    acceleration_max: f64,
}

impl Default for Joined {
    fn default() -> Self {
        Self { compression_max: 1.0, energy: 0.0, excess: 0.0, particles: 0.0, acceleration_max: 0.0 }
    }
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
            accelerations_max: Vec::new(),
            found: Vec::new(),
            rank: Vec::new(),
            own: 0,
            joined: Joined::default(),
        }
    }

    /// Finds neighbours and densities of own particles among these and `ghosts`. With ids, results do not
    /// depend on the order in which particles are stored.
    pub fn find_densities(&mut self, parameters: &SphParameters, own: Points<'_>, ghosts: Points<'_>) {
        let raster = Raster::new(parameters.support_radius, parameters.walls);
        self.cells.rebuild(&raster, own, ghosts);
        self.own = own.positions.len();
        let Self { width, cells, chunks, columns, compression, totals, found, rank, own: own_count, .. } =
            self;
        let own_count = *own_count;
        let count = cells.order().len();
        cells.chunks(CHUNK, chunks);
        rank.resize_with(count, AtomicU32::default);
        columns.set(&raster, cells, (own, ghosts), rank);
        compression.resize(count, 0.0);
        let coefficients = Coefficients::new(parameters);
        let (around, stored) = columns.parts(cells, &raster);
        found.resize_with(chunks.len(), NeighbourList::default);
        let tasks =
            (chunks.par_iter(), found.par_iter_mut(), split(compression, chunks), split(stored, chunks));
        tasks
            .into_par_iter()
            .map_init(Places::default, |places, (chunk, found, compression, stored)| {
                found.clear();
                let sums = Sums { around, chunk, found, values: &mut *compression, own: own_count };
                let pairs = match parameters.formulation {
                    Formulation::Mueller { .. } => {
                        width.run(Densities { sums, places, scheme: PhantomData::<Mueller> })
                    }
                    _ => width.run(Densities { sums, places, scheme: PhantomData::<Laminar> }),
                };
                let state = parameters.state;
                // A ghost without pressure counts for nothing; its owner knows its pressure.
                clear_ghosts(&cells.order()[chunk.particles.clone()], own_count, compression, 0.0);
                Totals { pairs, ..width.run(Apply { coefficients, state, compression, stored }) }
            })
            .collect_into_vec(totals);
    }

    /// Accelerations [m/s^2] by pressure and viscosity, gravity not included, at the densities found last.
    pub fn find_accelerations(&mut self, parameters: &SphParameters) {
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

    fn sum_accelerations<S: PairTerms>(&mut self, parameters: &SphParameters, scheme: S) {
        let Self { width, cells, chunks, columns, acceleration, accelerations_max, found, own, .. } = self;
        let own = *own;
        let raster = Raster::new(parameters.support_radius, parameters.walls);
        acceleration.resize(cells.order().len(), Vec3::ZERO);
        let (around, stored) = columns.parts(cells, &raster);
        let stored = &*stored;
        let tasks = (chunks.par_iter(), found.par_iter_mut(), split(acceleration, chunks));
        tasks
            .into_par_iter()
            .map_init(Candidates::default, |candidates, (chunk, found, acceleration)| {
                found.rewind();
                let sums = Sums { around, chunk, found, values: &mut *acceleration, own };
                width.run(Accelerations { sums, stored, candidates, scheme });
                clear_ghosts(&cells.order()[chunk.particles.clone()], own, acceleration, Vec3::ZERO);
                acceleration.iter().map(|a| a.length_squared()).fold(0.0, larger)
            })
            .collect_into_vec(accelerations_max);
    }

    /// Exchanges pressures and volumes with other ranks, and finds what [`Self::largest_compression`] and its
    /// like tell. Collective.
    pub(super) fn join_densities(&mut self, ranks: &Ranks, ghosts: &Ghosts) {
        let own = self.own;
        if !ranks.is_alone() {
            let place = |i: usize| self.rank[i].load(Relaxed) as usize;
            let stored = self.columns.stored();
            let of_own = |i: u32| {
                let stored = stored[place(i as usize)];
                [stored[PRESSURE], stored[VOLUME]]
            };
            for (g, [pressure, volume]) in ghosts.ask(ranks, of_own).into_iter().enumerate() {
                let at = self.rank[own + g].load(Relaxed) as usize;
                let stored = &mut self.columns.stored_mut()[at];
                (stored[PRESSURE], stored[VOLUME]) = (pressure, volume);
            }
        }
        let totals = || self.totals.iter();
        let mut largest = [totals().map(|totals| totals.compression_max).fold(1.0, f64::max)];
        ranks.max(&mut largest);
        let [energy, excess, particles] = sum_integers(
            ranks,
            [
                totals().map(|totals| totals.energy).sum(),
                totals().map(|totals| totals.excess).sum(),
                own as i128,
            ],
        );
        self.joined = Joined {
            compression_max: largest[0],
            energy: energy as f64 * UNIT,
            excess: excess as f64 * UNIT,
            particles: particles as f64,
            ..self.joined
        };
    }

    /// Finds what [`Self::largest_acceleration`] tells. Collective.
    pub(super) fn join_accelerations(&mut self, ranks: &Ranks) {
        let largest = self.accelerations_max.iter().copied().fold(0.0, larger);
        let mut largest = [f64::from(largest)];
        ranks.max(&mut largest);
        self.joined.acceleration_max = largest[0].sqrt();
    }

    /// The largest acceleration of all ranks found last [m/s^2]; NaN if one is.
    pub fn largest_acceleration(&self) -> f64 {
        self.joined.acceleration_max
    }

    /// Acceleration found last [m/s^2] of a particle.
    #[inline]
    pub fn acceleration(&self, particle: usize) -> DVec3 {
        self.acceleration[self.rank[particle].load(Relaxed) as usize].as_dvec3()
    }

    /// Density over rest density, one per own particle.
    pub fn compressions(&self) -> impl Iterator<Item = f64> + '_ {
        self.rank[..self.own].iter().map(|r| f64::from(self.compression[r.load(Relaxed) as usize]))
    }

    /// The own particles' indices, sorted by cell.
    pub fn order(&self) -> Cow<'_, [u32]> {
        let all = self.cells.order();
        if all.len() == self.own {
            return Cow::Borrowed(all);
        }
        Cow::Owned(all.iter().copied().filter(|&i| (i as usize) < self.own).collect())
    }

    /// The largest density of all ranks over rest density, at least 1.
    pub fn largest_compression(&self) -> f64 {
        self.joined.compression_max
    }

    /// The mean of densities over rest density, each at least 1: a surface, which lacks neighbours, counts as
    /// at rest. Over all ranks.
    pub fn mean_compression(&self) -> f64 {
        1.0 + self.joined.excess / self.joined.particles.max(1.0)
    }

    /// Pairs that the loops over pairs went through, of densities and of forces, candidates out of reach and
    /// unused lanes included.
    pub fn pairs(&self) -> [u64; 2] {
        [0, 1].map(|of| self.totals.iter().map(|totals| totals.pairs[of]).sum())
    }

    /// Energy of compression of all ranks [J].
    pub fn compression_energy(&self, parameters: &SphParameters) -> f64 {
        let sound_speed = parameters.state.sound_speed;
        parameters.mass * sound_speed * sound_speed * self.joined.energy
    }
}

/// Gives the ghosts of a chunk, whose values nobody needs, a value that counts for nothing.
fn clear_ghosts<T: Copy>(order: &[u32], own: usize, values: &mut [T], nothing: T) {
    for (value, &particle) in values.iter_mut().zip(order) {
        if particle as usize >= own {
            *value = nothing;
        }
    }
}

/// Sums over particles are taken of multiples of this, so that they are exact and do not depend on how ranks
/// share the particles.
const UNIT: f64 = 1.0 / (1u64 << 42) as f64;
/// A number whose last bit stands for [`UNIT`]: what is added to it is rounded.
const ROUNDING: f64 = 1.5 * (1u64 << 10) as f64;
/// Compression up to which terms are below 2, so that sums of them over a block are exact.
const COMPRESSION_ROUNDED_MAX: f64 = 2.0;
/// Terms up to which [`rounded`] rounds; what is larger has no bits below [`UNIT`] that matter.
const TERM_ROUNDED_MAX: f64 = 256.0;
/// Particles whose terms are summed before the sum becomes an integer.
const BLOCK: usize = 64 * LANES;

/// The multiple of [`UNIT`] next to a number of at most [`TERM_ROUNDED_MAX`].
#[inline(always)]
fn rounded(number: f64) -> f64 {
    (number + ROUNDING) - ROUNDING
}

/// A multiple of [`UNIT`] as an integer.
fn integer(multiple: f64) -> i128 {
    (multiple * (1.0 / UNIT)) as i128
}

/// Coefficients that turn sums over kernels into densities, and densities into the quantities of pairs.
#[derive(Clone, Copy)]
struct Coefficients {
    /// Compression is `base + scale * sum`.
    base: f64,
    scale: f64,
    pressure: f64,
    /// True if the carried pressure is over squared density (Eq. 3.3 [Monaghan1992]).
    over_squared_density: bool,
    volume: f64,
}

impl Coefficients {
    fn new(parameters: &SphParameters) -> Self {
        let SphParameters { spacing, support_radius, mass, state, formulation, .. } = *parameters;
        let [value, gradient] = formulation.kernels(support_radius);
        let sums = value.lattice_sums(spacing);
        let moment = gradient.lattice_sums(spacing).moment;
        // The sum of W / W(0) over a full lattice.
        let full = sums.value / (spacing.powi(3) * value.value(0.0));
        // Value and first derivative right on the lattice, see `kernel`.
        let response = sums.moment / sums.value;
        let (base, scale) = (1.0 - 1.0 / response, 1.0 / (response * full));
        // dW/dr / r is `slope` times the pair's function of distance; an offset in support radii brings a
        // factor H.
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
            // Eq. 10 [Mueller2003] over the density of the particle itself, with p_i + p_j in place of half
            // of it: as the sum of V grad W vanishes, half of it gives half the gradient, and a column would
            // rest on twice the pressure that it weighs.
            Formulation::Mueller { .. } => (1.0, mass * spiky * support_radius),
        };
        let over_squared_density = !matches!(formulation, Formulation::Mueller { .. });
        Self { base, scale, pressure, over_squared_density, volume: volume.sqrt() }
    }
}

/// Turns sums over kernels into compressions, and finds the quantities of pairs.
struct Apply<'a> {
    coefficients: Coefficients,
    state: EquationOfState,
    compression: &'a mut [f32],
    stored: &'a mut [Stored],
}

impl Task for Apply<'_> {
    type Output = Totals;

    #[inline(always)]
    fn run<L: Lanes>(self) -> Totals {
        let Self { coefficients, state, compression, stored } = self;
        // The law is chosen outside of the loop.
        match state.law {
            Law::Tait => {
                coefficients.apply(&EquationOfState { law: Law::Tait, ..state }, compression, stored)
            }
            Law::Mueller => {
                coefficients.apply(&EquationOfState { law: Law::Mueller, ..state }, compression, stored)
            }
        }
    }
}

impl Coefficients {
    /// Sixteen at a time; what is missing in the last sixteen counts as zero.
    #[inline(always)]
    fn apply(&self, state: &EquationOfState, compression: &mut [f32], stored: &mut [Stored]) -> Totals {
        let mut totals = Totals { compression_max: 1.0, ..Totals::default() };
        for (values, stored) in compression.chunks_mut(BLOCK).zip(stored.chunks_mut(BLOCK)) {
            let block = self.apply_to_block(state, values, stored);
            totals.compression_max = totals.compression_max.max(block.compression_max);
            totals.energy = totals.energy.saturating_add(block.energy);
            totals.excess = totals.excess.saturating_add(block.excess);
        }
        totals
    }

    #[inline(always)]
    fn apply_to_block(
        &self,
        state: &EquationOfState,
        compression: &mut [f32],
        all_stored: &mut [Stored],
    ) -> Totals {
        let (mut largest, mut energies) = ([1.0; LANES], [0.0; LANES]);
        let mut excesses = [0.0; LANES];
        let scale = 1.0 / (state.sound_speed * state.sound_speed);
        let mut all = [1.0; BLOCK];
        let places = all.chunks_exact_mut(LANES);
        for ((values, stored), all) in
            compression.chunks_mut(LANES).zip(all_stored.chunks_mut(LANES)).zip(places)
        {
            let mut sums = [0.0; LANES];
            sums[..values.len()].copy_from_slice(values);
            let (mut pressure, mut volume) = ([0.0; LANES], [0.0; LANES]);
            for l in 0..LANES {
                let x = self.base + self.scale * f64::from(sums[l]);
                let specific_volume = 1.0 / (x * state.rest_density);
                let weight = if self.over_squared_density { specific_volume * specific_volume } else { 1.0 };
                pressure[l] = (self.pressure * state.pressure(x) * weight) as f32;
                volume[l] = (self.volume * specific_volume) as f32;
                sums[l] = x as f32;
                largest[l] = if x > largest[l] { x } else { largest[l] };
                energies[l] += rounded(state.energy(x) * scale);
                excesses[l] += rounded(x.max(1.0) - 1.0);
                all[l] = x;
            }
            values.copy_from_slice(&sums[..values.len()]);
            for (l, stored) in stored.iter_mut().enumerate() {
                stored[PRESSURE] = pressure[l].to_bits() as i32;
                stored[VOLUME] = volume[l].to_bits() as i32;
            }
        }
        let compression_max = largest.into_iter().fold(1.0, f64::max);
        if compression_max <= COMPRESSION_ROUNDED_MAX {
            let [energy, excess] = [energies, excesses].map(|sums| integer(sums.into_iter().sum()));
            return Totals { compression_max, energy, excess, pairs: [0; 2] };
        }
        // Some terms may be so large that their sum would be rounded. Each is the same as above.
        let mut totals = Totals { compression_max, ..Totals::default() };
        for &x in &all[..compression.len()] {
            let terms = [state.energy(x) * scale, x.max(1.0) - 1.0];
            let [energy, excess] = terms.map(|x| integer(if x <= TERM_ROUNDED_MAX { rounded(x) } else { x }));
            totals.energy = totals.energy.saturating_add(energy);
            totals.excess = totals.excess.saturating_add(excess);
        }
        totals
    }
}

/// Viscous over pressure term of a pair, Eq. 14 over Eq. 10 [Mueller2003], the Laplacian kernel calibrated
/// like the others: the Laplacian of a quadratic field is exact on the lattice.
fn mueller_viscosity(parameters: &SphParameters, viscosity: f64) -> f64 {
    let SphParameters { spacing, support_radius, formulation, .. } = *parameters;
    let [_, spiky] = formulation.kernels(support_radius);
    let moment = Kernel::mueller_laplacian_moment(support_radius, spacing);
    viscosity / support_radius * spiky.lattice_sums(spacing).moment / moment
}

/// The larger one; NaN if one is NaN.
fn larger(a: f32, b: f32) -> f32 {
    if a > b || a.is_nan() { a } else { b }
}

/// Densities over rest density by the kernel of SPH, for points of a fluid whose own measure is coarser.
pub(crate) fn kernel_compressions(points: &[DVec3], spacing: f64, domain: (DVec3, DVec3)) -> Vec<f64> {
    let support_radius = 2.0 * spacing;
    let (count, (low, mut high)) = (points.len(), domain);
    let mut points = points.to_vec();
    // The kernel sees no image of an image: a narrow domain is joined to its mirror image until it is wide
    // enough.
    for axis in 0..3 {
        while high[axis] - low[axis] < 2.0 * support_radius {
            let wall = high[axis];
            let image = |&x: &DVec3| {
                let mut x = x;
                x[axis] = 2.0 * wall - x[axis];
                x
            };
            let images: Vec<DVec3> = points.iter().map(image).collect();
            points.extend(images);
            high[axis] += wall - low[axis];
        }
    }
    let parameters = SphParameters {
        spacing,
        support_radius,
        mass: spacing.powi(3),
        radius: 0.5 * spacing,
        state: EquationOfState { law: Law::Tait, rest_density: 1.0, sound_speed: 1.0 },
        formulation: Formulation::Laminar { viscosity: 0.0 },
        cfl: 1.0,
        substeps_max: 1,
        gravity: DVec3::ZERO,
        walls: Some(Walls::new((low, high), support_radius)),
        sources: Sources::default(),
        fields: Fields::default(),
    };
    compressions(&parameters, &points).into_iter().take(count).collect()
}

/// Densities over rest density of particles at `points` [m].
pub(crate) fn compressions(parameters: &SphParameters, points: &[DVec3]) -> Vec<f64> {
    let mut evaluation = Evaluation::default();
    let velocities = vec![DVec3::ZERO; points.len()];
    let points = Points { ids: &[], positions: points, velocities: &velocities };
    evaluation.find_densities(parameters, points, Points::default());
    evaluation.compressions().collect()
}

#[cfg(test)]
mod tests {
    use amalgam_particles::shapes::Shape;

    use super::*;

    #[test]
    fn a_narrow_domain_is_measured_like_a_wide_one() {
        let lattice = |max| Shape::Box { min: DVec3::ZERO, max }.sample(0.1).expect("a good box");
        for width in [0.2, 1.0] {
            let edges = DVec3::new(width, 1.0, 1.0);
            let compressions = kernel_compressions(&lattice(edges), 0.1, (DVec3::ZERO, edges));
            assert!(compressions.iter().all(|compression| (compression - 1.0).abs() < 1e-4));
        }
    }
}
