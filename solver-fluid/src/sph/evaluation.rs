//! Densities and accelerations of a fluid at one instant.
//!
//! Particles are sorted by cell (`neighbours/cells.rs`) and handled in chunks of whole rows of cells, a chunk
//! per task. Successive particles of a row form a **packet** (`neighbours/search.rs`): as many particles as a
//! vector register has lanes, one particle per lane. The particles around a packet are met one by one, each
//! by all lanes at once:
//!
//! ```text
//!   lane                    0      1      2            15
//!                        +------+------+------+     +------+
//!   packet, in registers |  x0  |  x1  |  x2  | ... | x15  |     likewise y and z
//!                        +------+------+------+     +------+
//!   one other particle   |  xj  |  xj  |  xj  | ... |  xj  |     the same in all lanes
//!                        +------+------+------+     +------+
//!   offset               |x0-xj |x1-xj |x2-xj | ... |x15-xj|     16 pairs at once
//!                        +------+------+------+     +------+
//! ```
//!
//! Two loops do so, each a sweep over the packets of a chunk (`sweep.rs`):
//!
//! 1. **Densities** (`density.rs`). The **candidates** of a packet are all particles of the nine rows around
//!    it, and their mirror images, within a support radius of the packet's bounding box. Their coordinates are
//!    copied next to each other, relative to the packet's origin (`neighbours/candidates.rs`). The loop sums
//!    the kernel over them. A candidate within a support radius of any particle of the packet is a
//!    **neighbour** of the packet, and goes to the neighbour list of the chunk
//!    (`neighbours/neighbour_list.rs`). A pass over the particles then finds their pressures.
//! 2. **Forces** (`acceleration.rs`). The records of the neighbours, with pressures and velocities, are copied
//!    next to each other in the order of the list. The loop sums the accelerations over them.
//!
//! A candidate outside of a particle's support contributes exactly zero, so that the inner loops have no
//! branch. A particle meets its neighbours in the same order whichever packet it is in, so that results do
//! not depend on the number of lanes.
//!
//! Positions are in support radii, rounded to 2^-22. Relative to a packet's origin they are exact in f32, and
//! so are their differences. Hence both particles of a pair, or a particle and an image, see exactly opposite
//! offsets.

use std::{
    borrow::Cow,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use amalgam_particles::{DVec3, lanes::Width};
use amalgam_solver_kit::Ranks;
use glam::Vec3;
use rayon::prelude::*;

use super::SphParameters;
use super::acceleration::Accelerations;
use super::density::obstacles::Added;
use super::density::{DensityPass, DensityTotals, JoinedTotals, KernelSums, PassConstants};
use super::ghosts::Ghosts;
use super::kernel::DensityCalibration;
use super::neighbours::{
    CandidateCoordinates, CellOrder, Chunk, FixedPointGrid, NeighbourList, PRESSURE, PacketNeighbours,
    Points, SortedParticles, VOLUME,
};
use super::pairs::PairForce;
use super::sweep::{ChunkSweep, split};
use super::viscosity::with_force;

/// Least number of particles of one task in loops over pairs, whatever the number of threads. It is smaller
/// than [`reduce::CHUNK`](amalgam_particles::reduce::CHUNK), because a particle takes longer in these loops.
const SWEEP_CHUNK: usize = 1024;

/// Densities and accelerations, with everything that is needed to find them. Its memory is kept from one use
/// to the next.
#[derive(Debug)]
pub struct Evaluation {
    width: Width,
    cells: CellOrder,
    chunks: Vec<Chunk>,
    /// The particles in cell order, in which the columns of results below stand too.
    sorted: SortedParticles,
    compression: Vec<f32>,
    acceleration: Vec<Vec3>,
    totals: Vec<DensityTotals>,
    /// The square of each chunk's largest acceleration [m^2/s^4].
    accelerations_max: Vec<f32>,
    /// Neighbours of the packets of each chunk, found with densities and used again for forces.
    lists: Vec<NeighbourList>,
    /// Contribution of obstacles to each particle, in cell order; empty without obstacles.
    added: Vec<Added>,
    /// Index of each particle in the cell order.
    rank: Vec<AtomicU32>,
    /// Number of own particles, behind which ghosts are numbered.
    own: usize,
    /// Sums and maxima of densities over all ranks.
    joined: JoinedTotals,
    /// The largest acceleration of all ranks [m/s^2].
    acceleration_max: f64,
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
            sorted: SortedParticles::default(),
            compression: Vec::new(),
            acceleration: Vec::new(),
            totals: Vec::new(),
            accelerations_max: Vec::new(),
            lists: Vec::new(),
            added: Vec::new(),
            rank: Vec::new(),
            own: 0,
            joined: JoinedTotals::default(),
            acceleration_max: 0.0,
        }
    }

    /// Finds neighbours and densities of own particles, where neighbours are own particles and `ghosts`. If
    /// points have ids, results do not depend on the order in which particles are stored.
    pub fn find_densities(&mut self, parameters: &SphParameters, own: Points<'_>, ghosts: Points<'_>) {
        let grid = FixedPointGrid::new(parameters.support_radius, parameters.walls);
        // Wrapped positions are needed until particles are sorted, accelerations after that: they share memory.
        let mut wrapped = bytemuck::allocation::cast_vec(std::mem::take(&mut self.acceleration));
        self.cells.rebuild(self.width, &grid, (own, ghosts), &mut wrapped);
        self.own = own.positions.len();
        let Self { width, cells, chunks, sorted, compression, totals, lists, rank, added, .. } = self;
        let own_count = own.positions.len();
        let count = cells.order().len();
        cells.chunks(SWEEP_CHUNK, chunks);
        rank.resize_with(count, AtomicU32::default);
        sorted.set(&grid, (cells, &wrapped), (own, ghosts), rank);
        self.acceleration = bytemuck::allocation::cast_vec(wrapped);
        compression.resize(count, 0.0);
        find_added(parameters, (cells.order(), own.positions), added);
        let added = &*added;
        let [kernel, _] = parameters.formulation.kernels(parameters.support_radius);
        let source = parameters.state;
        let constants = PassConstants {
            calibration: DensityCalibration::new(&kernel, parameters.spacing),
            pairs: parameters.formulation.coefficients(parameters),
            rest_density: source.rest_density,
        };
        let (search, records) = sorted.search_and_records(cells, &grid);
        lists.resize_with(chunks.len(), NeighbourList::default);
        let tasks =
            (chunks.par_iter(), lists.par_iter_mut(), split(compression, chunks), split(records, chunks));
        tasks
            .into_par_iter()
            .map_init(CandidateCoordinates::default, |candidates, (chunk, list, compression, records)| {
                list.clear();
                let sweep = ChunkSweep { search, chunk, list, values: &mut *compression, own: own_count };
                let pairs = with_force!(parameters.formulation, force => {
                    width.run(KernelSums::of(force, sweep, candidates))
                });
                if let Some(added) = added.get(chunk.particles.clone()) {
                    compression.iter_mut().zip(added).for_each(|(sum, added)| *sum += added.sum);
                }
                // A ghost's sum of zero gives no pressure and adds nothing to the totals. Its owner sends its
                // pressure later.
                clear_ghosts(cells.order(), (chunk, own_count), compression, 0.0);
                let pass = DensityPass { constants, source, compression, records };
                width.run(pass).with_pairs(pairs)
            })
            .collect_into_vec(totals);
    }

    /// Finds accelerations [m/s^2] by pressure and viscosity, without gravity, at the densities found last.
    pub fn find_accelerations(&mut self, parameters: &SphParameters) {
        with_force!(parameters.formulation, force => self.sum_accelerations(parameters, force));
    }

    fn sum_accelerations<F: PairForce>(&mut self, parameters: &SphParameters, force: F) {
        let Self { width, cells, chunks, sorted, acceleration, accelerations_max, lists, own, .. } = self;
        let (added, compression, state) = (&self.added, &self.compression, parameters.state);
        let own = *own;
        let grid = FixedPointGrid::new(parameters.support_radius, parameters.walls);
        acceleration.resize(cells.order().len(), Vec3::ZERO);
        let (search, records) = sorted.search_and_records(cells, &grid);
        let particles = &*records;
        let tasks = (chunks.par_iter(), lists.par_iter_mut(), split(acceleration, chunks));
        tasks
            .into_par_iter()
            .map_init(PacketNeighbours::default, |neighbours, (chunk, list, acceleration)| {
                list.rewind();
                let sweep = ChunkSweep { search, chunk, list, values: &mut *acceleration, own };
                width.run(Accelerations { sweep, particles, neighbours, force });
                if let Some(added) = added.get(chunk.particles.clone()) {
                    let compression = &compression[chunk.particles.clone()];
                    for (value, (added, &x)) in acceleration.iter_mut().zip(added.iter().zip(compression)) {
                        let x = f64::from(x);
                        let pressure = state.pressure(x) / (x * x * state.rest_density);
                        *value += pressure as f32 * Vec3::from_array(added.push);
                    }
                }
                clear_ghosts(cells.order(), (chunk, own), acceleration, Vec3::ZERO);
                acceleration.iter().map(|a| a.length_squared()).fold(0.0, larger)
            })
            .collect_into_vec(accelerations_max);
    }

    /// Exchanges pressures and volumes with other ranks, and joins the totals of densities, which
    /// [`Self::largest_compression`], [`Self::mean_compression`] and [`Self::compression_energy`] return.
    /// Collective.
    pub(super) fn join_densities(&mut self, ranks: &Ranks, ghosts: &Ghosts) {
        let own = self.own;
        if !ranks.is_alone() {
            let records = self.sorted.records();
            let of_own = |i: u32| {
                let record = records[self.rank[i as usize].load(Relaxed) as usize];
                [record[PRESSURE], record[VOLUME]]
            };
            for (g, [pressure, volume]) in ghosts.ask(ranks, of_own).into_iter().enumerate() {
                let at = self.rank[own + g].load(Relaxed) as usize;
                let record = &mut self.sorted.records_mut()[at];
                (record[PRESSURE], record[VOLUME]) = (pressure, volume);
            }
        }
        self.joined = JoinedTotals::new(&self.totals, own, ranks);
    }

    /// Finds the largest acceleration of all ranks. Collective.
    pub(super) fn join_accelerations(&mut self, ranks: &Ranks) {
        let largest = self.accelerations_max.iter().copied().fold(0.0, larger);
        let mut largest = [f64::from(largest)];
        ranks.max(&mut largest);
        self.acceleration_max = largest[0].sqrt();
    }

    /// The largest acceleration of all ranks found last [m/s^2]. It is NaN if an acceleration is NaN.
    pub fn largest_acceleration(&self) -> f64 {
        self.acceleration_max
    }

    /// Width of the vectors in loops.
    pub fn width(&self) -> Width {
        self.width
    }

    /// Acceleration found last [m/s^2] of a particle.
    #[inline(always)]
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

    /// The mean of densities of all ranks over rest density. Each counts as at least 1, so that particles at
    /// a surface, which lack neighbours, count as at rest.
    pub fn mean_compression(&self) -> f64 {
        self.joined.mean_compression()
    }

    /// Numbers of pairs that the loops over densities and over forces visited, with candidates out of reach
    /// and unused lanes.
    pub fn pairs(&self) -> [u64; 2] {
        [0, 1].map(|of| self.totals.iter().map(|totals| totals.pairs[of]).sum())
    }

    /// Energy of compression of all ranks [J].
    pub fn compression_energy(&self, parameters: &SphParameters) -> f64 {
        let sound_speed = parameters.state.sound_speed;
        parameters.mass * sound_speed * sound_speed * self.joined.energy
    }
}

/// Finds what obstacles add to each own particle, in cell order.
fn find_added(parameters: &SphParameters, (order, positions): (&[u32], &[DVec3]), added: &mut Vec<Added>) {
    added.clear();
    let Some(obstacles) = &parameters.obstacles else { return };
    let reader = obstacles.read(positions);
    let of = |&i: &u32| positions.get(i as usize).map_or(Added::default(), |&x| reader.at(x));
    added.par_extend(order.par_iter().with_min_len(SWEEP_CHUNK).map(of));
}

/// Sets the unused values of the ghosts in a chunk to the neutral element `nothing` of the sums that follow.
/// `order` holds the particles of all chunks.
fn clear_ghosts<T: Copy>(order: &[u32], (chunk, own): (&Chunk, usize), values: &mut [T], nothing: T) {
    if order.len() == own {
        return;
    }
    let order = &order[chunk.particles.clone()];
    for (value, &particle) in values.iter_mut().zip(order) {
        if particle as usize >= own {
            *value = nothing;
        }
    }
}

/// The larger of two numbers; NaN if one of them is NaN.
fn larger(a: f32, b: f32) -> f32 {
    if a > b || a.is_nan() { a } else { b }
}
