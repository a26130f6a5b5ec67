//! Accelerations: the sum of the forces of pressure and viscosity over all neighbours of a particle.

#![allow(
    clippy::needless_range_loop,
    reason = "iterators with closures are not compiled for the vector width"
)]

use amalgam_particles::lanes::{LANES, Lanes, Register, Task};
use glam::Vec3;

use super::neighbours::{Candidates, Group, PRESSURE, Stored, Surroundings, VELOCITY, VOLUME};
use super::pairs::{PairForce, PairQuantities};
use super::sweep::Sums;

/// Sums the accelerations of a chunk of particles.
pub(super) struct Accelerations<'a, F> {
    pub(super) sums: Sums<'a, Vec3>,
    pub(super) stored: &'a [Stored],
    pub(super) candidates: &'a mut Candidates,
    pub(super) force: F,
}

impl<F: PairForce> Task for Accelerations<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { sums, stored, candidates, force } = self;
        sums.visit(
            L::Register::LANES,
            #[inline(always)]
            |group, around, found, values| {
                candidates.collect::<L::Register>(around, stored, group, found);
                accelerations::<F, L::Register>(force, group, around, (stored, candidates), values);
            },
        );
    }
}

/// Sums the accelerations of a group of particles [m/s^2], a particle per lane.
#[inline(always)]
fn accelerations<F: PairForce, R: Register>(
    force: F,
    group: &Group<'_>,
    around: &Surroundings<'_>,
    (stored, candidates): (&[Stored], &Candidates),
    values: &mut [Vec3],
) {
    let [x, y, z] = around.places::<R>(group);
    let mut own = [[0.0; LANES]; 8];
    for (lane, stored) in stored[group.particles.clone()].iter().enumerate() {
        for column in PRESSURE..8 {
            own[column][lane] = f32::from_bits(stored[column] as u32);
        }
    }
    let mut velocity = [R::splat(0.0); 3];
    for axis in 0..3 {
        velocity[axis] = R::load(&own[VELOCITY + axis]);
    }
    let one = PairQuantities { pressure: R::load(&own[PRESSURE]), volume: R::load(&own[VOLUME]), velocity };
    let mut sum = [R::splat(0.0); 3];
    for &[cx, cy, cz, pressure, volume, vx, vy, vz] in candidates.all() {
        let velocity = [R::splat(vx), R::splat(vy), R::splat(vz)];
        let other = PairQuantities { pressure: R::splat(pressure), volume: R::splat(volume), velocity };
        let offset = [x - R::splat(cx), y - R::splat(cy), z - R::splat(cz)];
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
