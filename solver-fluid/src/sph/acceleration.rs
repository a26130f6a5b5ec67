//! Accelerations: the sum of the forces of pressure and viscosity over all neighbours of a particle.

#![allow(
    clippy::needless_range_loop,
    reason = "iterators with closures are not compiled for the vector width"
)]

use amalgam_particles::lanes::{LANES, Lanes, Register, Task};
use glam::Vec3;

use super::neighbours::{
    NeighbourSearch, PRESSURE, Packet, PacketNeighbours, ParticleRecord, VELOCITY, VOLUME,
};
use super::pairs::{PairForce, PairQuantities};
use super::sweep::ChunkSweep;

/// Sums the accelerations of a chunk of particles.
pub(super) struct Accelerations<'a, F> {
    pub(super) sweep: ChunkSweep<'a, Vec3>,
    /// All particles in cell order.
    pub(super) particles: &'a [ParticleRecord],
    /// Room for the neighbours of a packet.
    pub(super) neighbours: &'a mut PacketNeighbours,
    pub(super) force: F,
}

impl<F: PairForce> Task for Accelerations<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { sweep, particles, neighbours, force } = self;
        sweep.for_each_packet(
            L::Register::LANES,
            #[inline(always)]
            |packet, search, list, values| {
                neighbours.collect::<L::Register>(search, particles, packet, list);
                accelerations::<F, L::Register>(force, packet, search, (particles, neighbours), values);
            },
        );
    }
}

/// Sums the accelerations of a packet of particles [m/s^2], a particle per lane. The values of the packet's
/// particles are in registers. Each neighbour's values go to all lanes in turn, so that a neighbour meets all
/// particles of the packet at once.
#[inline(always)]
fn accelerations<F: PairForce, R: Register>(
    force: F,
    packet: &Packet<'_>,
    search: &NeighbourSearch<'_>,
    (particles, neighbours): (&[ParticleRecord], &PacketNeighbours),
    values: &mut [Vec3],
) {
    let [x, y, z] = search.packet_coordinates::<R>(packet);
    // Records of the packet, transposed: a column per value, a row per lane.
    let mut own = [[0.0; LANES]; 8];
    for (lane, record) in particles[packet.particles.clone()].iter().enumerate() {
        for column in PRESSURE..8 {
            own[column][lane] = f32::from_bits(record[column] as u32);
        }
    }
    let mut velocity = [R::splat(0.0); 3];
    for axis in 0..3 {
        velocity[axis] = R::load(&own[VELOCITY + axis]);
    }
    let one = PairQuantities { pressure: R::load(&own[PRESSURE]), volume: R::load(&own[VOLUME]), velocity };
    let mut sum = [R::splat(0.0); 3];
    for &[nx, ny, nz, pressure, volume, vx, vy, vz] in neighbours.all() {
        let velocity = [R::splat(vx), R::splat(vy), R::splat(vz)];
        let other = PairQuantities { pressure: R::splat(pressure), volume: R::splat(volume), velocity };
        let offset = [x - R::splat(nx), y - R::splat(ny), z - R::splat(nz)];
        sum = force.add_acceleration(sum, offset, &one, &other);
    }
    let mut lanes = [[0.0; LANES]; 3];
    for axis in 0..3 {
        sum[axis].store(&mut lanes[axis]);
    }
    for (lane, value) in values.iter_mut().enumerate() {
        *value = Vec3::new(lanes[0][lane], lanes[1][lane], lanes[2][lane]);
    }
}
