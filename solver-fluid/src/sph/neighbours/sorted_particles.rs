//! Particles in cell order, as the two loops over pairs read them.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use amalgam_particles::lanes::LANES;
use amalgam_particles::reduce::CHUNK;
use glam::IVec3;
use rayon::prelude::*;

use super::cells::{CellOrder, FixedPointGrid, Points};
use super::search::NeighbourSearch;

/// Indices of scaled pressure, scaled volume (`sph/pairs.rs`) and velocity in [`ParticleRecord`] and
/// [`NeighbourRecord`](super::candidates::NeighbourRecord). The position stands before them.
pub(in crate::sph) const PRESSURE: usize = 3;
pub(in crate::sph) const VOLUME: usize = 4;
pub(in crate::sph) const VELOCITY: usize = 5;

/// All values of a particle that the loop over forces reads, 32 bytes side by side.
///
/// ```text
///   index     0    1    2       3         4       5     6     7
///          +----+----+----+----------+--------+-----+-----+-----+
///          |  x |  y |  z | pressure | volume | v_x | v_y | v_z |
///          +----+----+----+----------+--------+-----+-----+-----+
///           fixed point    bits of f32
/// ```
///
/// Coordinates are in fractions of a cell, modulo 1024 cells; velocities are in m/s.
pub(in crate::sph) type ParticleRecord = [i32; 8];

/// Particles in cell order. Entry k of each column belongs to the particle `CellOrder::order()[k]`.
///
/// Coordinates stand twice. The search for neighbours reads coordinates only, and many particles at once, so
/// that it has them as a structure of arrays. The loop over forces reads all values of single neighbours, so
/// that it has them as an array of records.
#[derive(Clone, Debug, Default)]
pub(in crate::sph) struct SortedParticles {
    /// x, y, z as in [`ParticleRecord`], then [`LANES`] unused values, so that a whole register can be read
    /// from any particle on.
    coordinates: [Vec<i32>; 3],
    records: Vec<ParticleRecord>,
    /// Cell of each particle. Empty unless slots can hold particles of several cells.
    cells: Vec<IVec3>,
}

impl SortedParticles {
    /// Copies wrapped positions and velocities of particles in a new order, and writes the rank of each particle: its
    /// index in the order.
    pub(in crate::sph) fn set(
        &mut self,
        grid: &FixedPointGrid,
        (order, positions): (&CellOrder, &[[i32; 3]]),
        (own, ghosts): (Points<'_>, Points<'_>),
        rank: &[AtomicU32],
    ) {
        let particles = order.order();
        let velocity = |i: usize| match own.velocities.get(i) {
            Some(velocity) => *velocity,
            None => ghosts.velocities[i - own.velocities.len()],
        };
        let count = particles.len();
        self.coordinates.iter_mut().for_each(|column| column.resize(count + LANES, 0));
        self.records.resize(count, [0; 8]);
        let [x, y, z] = self.coordinates.each_mut().map(|column| column[..count].par_chunks_mut(CHUNK));
        let tasks = (particles.par_chunks(CHUNK), self.records.par_chunks_mut(CHUNK), x, y, z);
        tasks.into_par_iter().enumerate().for_each(|(c, (particles, records, x, y, z))| {
            for (k, &i) in particles.iter().enumerate() {
                let [px, py, pz] = positions[i as usize];
                let [vx, vy, vz] = velocity(i as usize).to_array().map(|v| (v as f32).to_bits() as i32);
                [x[k], y[k], z[k]] = [px, py, pz];
                records[k] = [px, py, pz, 0, 0, vx, vy, vz];
                rank[i as usize].store((c * CHUNK + k) as u32, Relaxed);
            }
        });
        self.cells.clear();
        if order.wraps() {
            let cell = |&i: &u32| {
                let (i, count) = (i as usize, own.positions.len());
                grid.locate(if i < count { own.positions[i] } else { ghosts.positions[i - count] }).cell()
            };
            self.cells.par_extend(particles.par_iter().map(cell));
        }
    }

    /// The records of the particles.
    pub(in crate::sph) fn records(&self) -> &[ParticleRecord] {
        &self.records
    }

    /// The records of the particles, to be changed.
    pub(in crate::sph) fn records_mut(&mut self) -> &mut [ParticleRecord] {
        &mut self.records
    }

    /// The search for neighbours among these particles, and their records, to be changed.
    pub(in crate::sph) fn search_and_records<'a>(
        &'a mut self,
        order: &'a CellOrder,
        grid: &FixedPointGrid,
    ) -> (NeighbourSearch<'a>, &'a mut [ParticleRecord]) {
        let Self { coordinates, records, cells } = self;
        let coordinates = coordinates.each_ref().map(Vec::as_slice);
        let (planes, no_slip) = (grid.planes(), grid.no_slip());
        (NeighbourSearch { order, coordinates, cells, planes, no_slip }, records)
    }
}
