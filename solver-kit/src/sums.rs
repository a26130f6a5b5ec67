//! What the kit computes from a solver's particles after each step.

use amalgam_particles::{DVec3, Particles, SPEED_LIMIT, random, reduce};
use amalgam_proto::contract::Totals;
use rayon::prelude::*;

use crate::SolverError;

/// A hash of ids, positions and velocities that does not depend on the order of storage: the wrapping sum of a hash
/// of each particle.
pub(crate) fn state_hash(particles: &Particles) -> u64 {
    (0..particles.len())
        .into_par_iter()
        .with_min_len(4096)
        .map(|i| {
            let (x, v) = (particles.position[i], particles.velocity[i]);
            let words = [x.x, x.y, x.z, v.x, v.y, v.z].map(f64::to_bits);
            words.iter().fold(random::mix(particles.id[i].0), |hash, &word| random::mix(hash ^ word))
        })
        .reduce(|| 0, u64::wrapping_add)
}

/// Sums that one pass over the particles yields.
#[derive(Clone, Copy, Default)]
struct Moments {
    momentum: DVec3,
    angular_momentum: DVec3,
    mass_moment: DVec3,
    kinetic_energy: f64,
}

impl std::ops::Add for Moments {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            momentum: self.momentum + other.momentum,
            angular_momentum: self.angular_momentum + other.angular_momentum,
            mass_moment: self.mass_moment + other.mass_moment,
            kinetic_energy: self.kinetic_energy + other.kinetic_energy,
        }
    }
}

/// Sums over a step's end; the velocity before is not a number for a particle that was not there.
pub(crate) fn totals(particles: &Particles, velocity_before: &[DVec3], dt: f64) -> Totals {
    let Particles { position: x, velocity: v, mass: m, radius, .. } = particles;
    let count = particles.len();
    let moments = reduce::sum(count, Moments::default(), |i| {
        let momentum = v[i] * m[i];
        Moments {
            momentum,
            angular_momentum: x[i].cross(momentum),
            mass_moment: x[i] * m[i],
            kinetic_energy: 0.5 * momentum.dot(v[i]),
        }
    });
    // Largest squares of speed, speed over radius, and change of velocity.
    let largest = (0..count)
        .into_par_iter()
        .with_min_len(reduce::CHUNK)
        .map(|i| {
            let speed = v[i].length_squared();
            let change = (v[i] - velocity_before[i]).length_squared().max(0.0);
            DVec3::new(speed, speed / (radius[i] * radius[i]), change)
        })
        .reduce(|| DVec3::ZERO, DVec3::max);
    Totals {
        momentum: moments.momentum,
        angular_momentum: moments.angular_momentum,
        kinetic_energy: moments.kinetic_energy,
        mass_moment: moments.mass_moment,
        speed_max: largest.x.sqrt(),
        radius_rate_max: largest.y.sqrt(),
        acceleration_max: largest.z.sqrt() / dt,
    }
}

/// Kinetic energy [J] that movable particles would have at the velocities that they were `told` [m/s], less that which they
/// have. A particle that nobody told, since it was born in the step, counts for nothing.
pub(crate) fn missing_energy(particles: &Particles, told: &[DVec3]) -> f64 {
    reduce::sum(particles.len(), 0.0, |i| {
        if particles.immovable[i] || told[i].is_nan() {
            return 0.0;
        }
        0.5 * particles.mass[i] * (told[i].length_squared() - particles.velocity[i].length_squared())
    })
}

/// Whether the sums are finite: then all positions and velocities are. Else the first particle at fault is named.
pub(crate) fn check_finite(particles: &Particles, totals: &Totals) -> Result<(), SolverError> {
    let Totals { momentum, angular_momentum, mass_moment, kinetic_energy, .. } = totals;
    let finite = [momentum, angular_momentum, mass_moment].iter().all(|sum| sum.is_finite());
    let slow = totals.speed_max < SPEED_LIMIT && totals.radius_rate_max.is_finite();
    if finite && kinetic_energy.is_finite() && slow {
        return Ok(());
    }
    let wrong =
        |&i: &usize| !(particles.position[i].is_finite() && particles.velocity[i].length() < SPEED_LIMIT);
    Err(SolverError(match (0..particles.len()).find(wrong) {
        Some(i) => format!(
            "particle {} has no finite position any more, or no speed below {SPEED_LIMIT:e} m/s",
            particles.id[i]
        ),
        None => "momentum or energy is beyond all numbers: the solver is unstable".into(),
    }))
}
