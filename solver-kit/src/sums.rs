//! Sums over a solver's particles after each step.

pub(crate) mod exact;

use amalgam_particles::{DVec3, Particles, SPEED_LIMIT, random, reduce};
use amalgam_proto::contract::Totals;
use amalgam_ranks::Ranks;
use rayon::prelude::*;

use crate::error::SolverError;
use crate::joined::agreed;

/// A hash of ids, positions and velocities that does not depend on the order of storage: the wrapping sum of
/// a hash of each particle. Collective.
pub(crate) fn state_hash(ranks: &Ranks, particles: &Particles) -> u64 {
    let own = (0..particles.len())
        .into_par_iter()
        .with_min_len(reduce::CHUNK)
        .map(|i| {
            let (x, v) = (particles.position[i], particles.velocity[i]);
            let words = [x.x, x.y, x.z, v.x, v.y, v.z].map(f64::to_bits);
            words.iter().fold(random::mix(particles.id[i].0), |hash, &word| random::mix(hash ^ word))
        })
        .reduce(|| 0, u64::wrapping_add);
    let mut sum = [own as i64];
    ranks.sum(&mut sum);
    sum[0] as u64
}

/// A particle's momentum, angular momentum, mass moment and kinetic energy, in columns.
fn moments(particles: &Particles, i: usize) -> [f64; 10] {
    let Particles { position: x, velocity: v, mass: m, .. } = particles;
    let momentum = v[i] * m[i];
    let [p, l, c] = [momentum, x[i].cross(momentum), x[i] * m[i]].map(|vector| vector.to_array());
    [p[0], p[1], p[2], l[0], l[1], l[2], c[0], c[1], c[2], 0.5 * momentum.dot(v[i])]
}

/// Largest change of velocity in a step.
pub(crate) enum Change<'a> {
    /// To be found from the velocities before [m/s], NaN for a particle that was born in the step.
    Since(&'a [DVec3]),
    /// As the solver found it for this rank's particles [m/s].
    Told(f64),
}

/// Sums at the end of a step. Collective.
///
/// No bit depends on the order in which particles are stored, nor on the ranks that have them.
pub(crate) fn totals(ranks: &Ranks, particles: &Particles, change: &Change<'_>, dt: f64) -> Totals {
    let Particles { velocity: v, radius, .. } = particles;
    let count = particles.len();
    // The largest magnitudes of the moments, then of v^2, (v / radius)^2 and the squared change of velocity.
    let largest: [f64; 13] = exact::magnitudes(ranks, count, |i| {
        let speed = v[i].length_squared();
        let change = match change {
            Change::Since(before) => (v[i] - before[i]).length_squared().max(0.0),
            Change::Told(_) => 0.0,
        };
        let [p0, p1, p2, l0, l1, l2, c0, c1, c2, energy] = moments(particles, i);
        let rate = speed / (radius[i] * radius[i]);
        [p0, p1, p2, l0, l1, l2, c0, c1, c2, energy, speed, rate, change]
    });
    let [moments_max @ .., speed, rate, changed] = largest;
    let change_max = match *change {
        Change::Since(_) => changed.sqrt(),
        Change::Told(own) => {
            let mut change_max = [own];
            ranks.max(&mut change_max);
            change_max[0]
        }
    };
    let sums = exact::sums(ranks, count, &moments_max, |i| moments(particles, i));
    let vector = |first: usize| DVec3::new(sums[first], sums[first + 1], sums[first + 2]);
    Totals {
        momentum: vector(0),
        angular_momentum: vector(3),
        mass_moment: vector(6),
        kinetic_energy: sums[9],
        speed_max: speed.sqrt(),
        radius_rate_max: rate.sqrt(),
        acceleration_max: change_max / dt,
    }
}

/// Kinetic energy [J] that movable particles would have at the velocities that they were `told` [m/s], less
/// their own kinetic energy. A particle that was born in the step was told none and does not count.
/// Collective.
pub(crate) fn missing_energy(ranks: &Ranks, particles: &Particles, told: &[DVec3]) -> f64 {
    let missing = |i: usize| {
        if particles.immovable[i] || told[i].is_nan() {
            return [0.0];
        }
        [0.5 * particles.mass[i] * (told[i].length_squared() - particles.velocity[i].length_squared())]
    };
    let count = particles.len();
    exact::sums(ranks, count, &exact::magnitudes(ranks, count, missing), missing)[0]
}

/// Checks that the sums are finite; all positions and velocities are then finite. Otherwise the error names
/// the first particle at fault. Collective.
pub(crate) fn check_finite(ranks: &Ranks, particles: &Particles, totals: &Totals) -> Result<(), SolverError> {
    let Totals { momentum, angular_momentum, mass_moment, kinetic_energy, .. } = totals;
    let finite = [momentum, angular_momentum, mass_moment].iter().all(|sum| sum.is_finite());
    let slow = totals.speed_max < SPEED_LIMIT && totals.radius_rate_max.is_finite();
    if finite && kinetic_energy.is_finite() && slow {
        return Ok(());
    }
    let wrong =
        |&i: &usize| !(particles.position[i].is_finite() && particles.velocity[i].length() < SPEED_LIMIT);
    let named = (0..particles.len()).find(wrong).map(|i| {
        SolverError(format!(
            "particle {} has no finite position any more, or no speed below {SPEED_LIMIT:e} m/s",
            particles.id[i]
        ))
    });
    agreed(ranks, named.map_or(Ok(()), Err))?;
    Err(SolverError("momentum or energy is beyond all numbers: the solver is unstable".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use amalgam_particles::ParticleId;

    #[test]
    fn totals_do_not_depend_on_storage() {
        let mut particles = Particles::default();
        for i in 0..10_000u64 {
            let number = |axis| random::uniform_f64(&[i, axis]) - 0.5;
            let [x, v] = [0, 3].map(|n| DVec3::new(number(n), number(n + 1), 1e3 * number(n + 2)));
            particles.push(ParticleId(i), x, v, 0.1 + number(6).abs(), 0.01, false);
        }
        let before: Vec<DVec3> = particles.velocity.iter().map(|v| 0.9 * v).collect();
        let alone = Ranks::alone();
        let as_made = totals(&alone, &particles, &Change::Since(&before), 0.1);
        let mut order: Vec<u32> = (0..10_000).collect();
        order.sort_by_key(|&i| random::mix(u64::from(i)));
        particles.reorder(&order);
        let before: Vec<DVec3> = order.iter().map(|&i| before[i as usize]).collect();
        let shuffled = totals(&alone, &particles, &Change::Since(&before), 0.1);
        assert_eq!(format!("{as_made:?}"), format!("{shuffled:?}"));
        let momentum: DVec3 = particles.velocity.iter().zip(&particles.mass).map(|(&v, &m)| v * m).sum();
        assert!((momentum - as_made.momentum).length() < 1e-8, "{momentum} {as_made:?}");
    }
}
