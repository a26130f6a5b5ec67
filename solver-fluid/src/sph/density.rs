//! Densities: the sum of the kernel over all neighbours of a particle, and the pass over particles that turns
//! the sums into compressions, pressures and volumes.
//!
//! A particle's compression is its density over the rest density.

#![allow(
    clippy::needless_range_loop,
    reason = "iterators with closures are not compiled for the vector width"
)]

pub(super) mod obstacles;

use std::marker::PhantomData;

use amalgam_particles::lanes::{LANES, Lanes, Register, Task};
use amalgam_solver_kit::{Ranks, sum_integers};

use super::kernel::DensityCalibration;
use super::neighbours::{
    CandidateCoordinates, NeighbourList, NeighbourSearch, PRESSURE, Packet, ParticleRecord, VOLUME,
};
use super::pairs::{DensityKernel, PairCoefficients, PairForce, squared};
use super::pressure::PressureByDensity;
use super::sweep::ChunkSweep;

/// Sums `W(r) / W(0)` over the neighbours of each particle of a chunk.
pub(super) struct KernelSums<'a, K> {
    sweep: ChunkSweep<'a, f32>,
    /// Room for the candidates of a packet.
    candidates: &'a mut CandidateCoordinates,
    kernel: PhantomData<K>,
}

impl<'a, K: DensityKernel> KernelSums<'a, K> {
    /// The sums of the kernel that belongs to a force.
    pub(super) fn of<F: PairForce<Density = K>>(
        _: F,
        sweep: ChunkSweep<'a, f32>,
        candidates: &'a mut CandidateCoordinates,
    ) -> Self {
        Self { sweep, candidates, kernel: PhantomData }
    }
}

impl<K: DensityKernel> Task for KernelSums<'_, K> {
    /// The number of pairs that this loop visits, and of those that the loop over forces will visit.
    type Output = [u64; 2];

    #[inline(always)]
    fn run<L: Lanes>(self) -> [u64; 2] {
        let Self { sweep, candidates, .. } = self;
        let mut pairs = [0; 2];
        sweep.for_each_packet(
            L::Register::LANES,
            #[inline(always)]
            |packet, search, list, values| {
                let counts = kernel_sums::<K, L::Register>(packet, search, candidates, list, values);
                (0..2).for_each(|of| pairs[of] += (counts[of] * L::Register::LANES) as u64);
            },
        );
        pairs
    }
}

/// Fills in the sums of a packet of particles, a particle per lane. The coordinates of the packet's particles
/// are in registers. Each candidate's coordinates go to all lanes in turn. A candidate nearer than the support
/// radius to any lane is a neighbour of the packet, and the list for the loop over forces notes it. Returns the
/// numbers of candidates and of neighbours.
#[inline(always)]
fn kernel_sums<K: DensityKernel, R: Register>(
    packet: &Packet<'_>,
    search: &NeighbourSearch<'_>,
    candidates: &mut CandidateCoordinates,
    list: &mut NeighbourList,
    values: &mut [f32],
) -> [usize; 2] {
    candidates.collect::<R>(search, packet);
    let [own_x, own_y, own_z] = search.packet_coordinates::<R>(packet);
    let mut sum = R::splat(0.0);
    let counts = candidates.visit::<R>(
        list,
        #[inline(always)]
        |[x, y, z]| {
            let distance2 = squared([own_x - R::splat(x), own_y - R::splat(y), own_z - R::splat(z)]);
            sum = sum + K::relative_value(distance2);
            distance2.less(R::splat(1.0)) != 0
        },
    );
    let mut lanes = [0.0; LANES];
    sum.store(&mut lanes);
    copy_first(&lanes, values);
    counts
}

/// Copies the first lanes into `values`. Most packets are full, and a copy of known length takes no call.
#[inline(always)]
fn copy_first(lanes: &[f32; LANES], values: &mut [f32]) {
    match <&mut [f32; LANES]>::try_from(&mut *values) {
        Ok(all) => *all = *lanes,
        Err(_) => values.copy_from_slice(&lanes[..values.len()]),
    }
}

/// Sums and maxima over the particles of a chunk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DensityTotals {
    /// The largest compression, at least 1.
    compression_max: f64,
    /// Energy of compression per mass over [`PressureByDensity::energy_unit`], summed over particles
    /// [[`UNIT`]].
    energy: i128,
    /// Compression less 1, where it is positive, summed over particles [[`UNIT`]].
    excess: i128,
    /// Pairs of particle and candidate that the loops over densities and over forces visit.
    pub(super) pairs: [u64; 2],
}

/// Sums and maxima over the particles of all ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct JoinedTotals {
    /// The largest compression, at least 1.
    pub(super) compression_max: f64,
    /// Energy of compression per mass over [`PressureByDensity::energy_unit`], summed over particles.
    pub(super) energy: f64,
    /// Compression less 1, where it is positive, summed over particles.
    excess: f64,
    /// Number of particles.
    particles: f64,
}

impl DensityTotals {
    /// These totals with the numbers of pairs.
    pub(super) fn with_pairs(self, pairs: [u64; 2]) -> Self {
        Self { pairs, ..self }
    }
}

impl Default for JoinedTotals {
    fn default() -> Self {
        Self { compression_max: 1.0, energy: 0.0, excess: 0.0, particles: 0.0 }
    }
}

impl JoinedTotals {
    /// Joins the totals of the chunks of all ranks; this rank has `own` particles. Collective.
    pub(super) fn new(chunks: &[DensityTotals], own: usize, ranks: &Ranks) -> Self {
        let totals = || chunks.iter();
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
        Self {
            compression_max: largest[0],
            energy: energy as f64 * UNIT,
            excess: excess as f64 * UNIT,
            particles: particles as f64,
        }
    }

    /// The mean of compressions, each at least 1.
    pub(super) fn mean_compression(&self) -> f64 {
        1.0 + self.excess / self.particles.max(1.0)
    }
}

/// Terms of sums over particles are rounded to multiples of this unit. Their sums are then exact and do not
/// depend on how ranks share the particles.
const UNIT: f64 = 1.0 / (1u64 << 42) as f64;
/// A number whose last bit stands for [`UNIT`]. A sum with it is rounded to a multiple of the unit.
const ROUNDING: f64 = 1.5 * (1u64 << 10) as f64;
/// Compression up to which a particle's terms are below 2, so that the f64 sum over a block is exact.
const COMPRESSION_ROUNDED_MAX: f64 = 2.0;
/// Terms up to which [`rounded`] rounds. The bits below [`UNIT`] of a larger term do not matter.
const TERM_ROUNDED_MAX: f64 = 256.0;
/// Particles whose terms are summed before the sum becomes an integer.
const BLOCK: usize = 64 * LANES;

/// The multiple of [`UNIT`] nearest to a number of at most [`TERM_ROUNDED_MAX`].
#[inline(always)]
fn rounded(number: f64) -> f64 {
    (number + ROUNDING) - ROUNDING
}

/// A multiple of [`UNIT`] as an integer.
fn integer(multiple: f64) -> i128 {
    (multiple * (1.0 / UNIT)) as i128
}

/// Constants of the density pass.
#[derive(Clone, Copy)]
pub(super) struct PassConstants {
    pub(super) calibration: DensityCalibration,
    pub(super) pairs: PairCoefficients,
    /// Rest density [kg/m^3].
    pub(super) rest_density: f64,
}

/// Turns kernel sums, which stand in `compression`, into compressions, and stores the scaled pressures and
/// volumes that forces need: one pass over the particles.
pub(super) struct DensityPass<'a, P> {
    pub(super) constants: PassConstants,
    pub(super) source: P,
    pub(super) compression: &'a mut [f32],
    pub(super) records: &'a mut [ParticleRecord],
}

impl<P: PressureByDensity> Task for DensityPass<'_, P> {
    type Output = DensityTotals;

    #[inline(always)]
    fn run<L: Lanes>(self) -> DensityTotals {
        let Self { constants, source, compression, records } = self;
        source.choose(
            #[inline(always)]
            |source| constants.pass(&source, compression, records),
        )
    }
}

impl PassConstants {
    #[inline(always)]
    fn pass(
        &self,
        source: &impl PressureByDensity,
        compression: &mut [f32],
        records: &mut [ParticleRecord],
    ) -> DensityTotals {
        let mut totals = DensityTotals { compression_max: 1.0, ..DensityTotals::default() };
        for (values, records) in compression.chunks_mut(BLOCK).zip(records.chunks_mut(BLOCK)) {
            let block = self.pass_block(source, values, records);
            totals.compression_max = totals.compression_max.max(block.compression_max);
            totals.energy = totals.energy.saturating_add(block.energy);
            totals.excess = totals.excess.saturating_add(block.excess);
        }
        totals
    }

    /// Handles sixteen particles at a time. Missing particles of the last sixteen have sums of zero.
    #[inline(always)]
    fn pass_block(
        &self,
        source: &impl PressureByDensity,
        compression: &mut [f32],
        all_records: &mut [ParticleRecord],
    ) -> DensityTotals {
        let Self { calibration, pairs, rest_density } = self;
        let (mut largest, mut energies) = ([1.0; LANES], [0.0; LANES]);
        let mut excesses = [0.0; LANES];
        let scale = 1.0 / source.energy_unit();
        let mut all = [1.0; BLOCK];
        let all_sixteens = all.chunks_exact_mut(LANES);
        for ((values, records), all) in
            compression.chunks_mut(LANES).zip(all_records.chunks_mut(LANES)).zip(all_sixteens)
        {
            let mut sums = [0.0; LANES];
            match <&[f32; LANES]>::try_from(&*values) {
                Ok(all) => sums = *all,
                Err(_) => sums[..values.len()].copy_from_slice(values),
            }
            let (mut pressure, mut volume) = ([0.0; LANES], [0.0; LANES]);
            for l in 0..LANES {
                let x = calibration.base + calibration.scale * f64::from(sums[l]);
                let specific_volume = 1.0 / (x * rest_density);
                let weight = if pairs.over_squared_density { specific_volume * specific_volume } else { 1.0 };
                pressure[l] = (pairs.pressure * source.pressure(x) * weight) as f32;
                volume[l] = (pairs.volume * specific_volume) as f32;
                sums[l] = x as f32;
                largest[l] = if x > largest[l] { x } else { largest[l] };
                energies[l] += rounded(source.energy(x) * scale);
                excesses[l] += rounded(x.max(1.0) - 1.0);
                all[l] = x;
            }
            copy_first(&sums, values);
            for (l, record) in records.iter_mut().enumerate() {
                record[PRESSURE] = pressure[l].to_bits() as i32;
                record[VOLUME] = volume[l].to_bits() as i32;
            }
        }
        let compression_max = largest.into_iter().fold(1.0, f64::max);
        if compression_max <= COMPRESSION_ROUNDED_MAX {
            let [energy, excess] = [energies, excesses].map(|sums| integer(sums.into_iter().sum()));
            return DensityTotals { compression_max, energy, excess, pairs: [0; 2] };
        }
        // Some terms may be so large that an f64 sum would be rounded. The integers of smaller terms are the
        // same as above.
        let mut totals = DensityTotals { compression_max, ..DensityTotals::default() };
        for &x in &all[..compression.len()] {
            let terms = [source.energy(x) * scale, x.max(1.0) - 1.0];
            let [energy, excess] = terms.map(|x| integer(if x <= TERM_ROUNDED_MAX { rounded(x) } else { x }));
            totals.energy = totals.energy.saturating_add(energy);
            totals.excess = totals.excess.saturating_add(excess);
        }
        totals
    }
}
