//! Spin of free bodies, and its damping by implicit Euler.

use std::ops::Range;

use amalgam_particles::{DVec3, Particles};
use amalgam_solver_kit::{ExactSum, Ranks};

use crate::linear::partition::Partition;

/// Part of its spin that a body may lose per second without a warning.
const LOSS_MAX: f64 = 0.02;

/// Steps between two looks at the bodies.
const INTERVAL: u64 = 64;

/// Warns, once, where implicit Euler takes more of a body's spin than [`LOSS_MAX`].
///
/// In a step of length h, implicit Euler turns the force on a particle by the angle h w against the
/// particle's way. The torque of these forces is h times the virial of the tension, I w^2. So a
/// body that spins at w loses the part h w^2 of its angular momentum per second, and more where
/// compressed springs hold it together (`docs/theory/solids.md`).
#[derive(Clone, Debug)]
pub(crate) struct SpinGuard {
    /// Particles of each body that nothing holds for all time.
    bodies: Vec<Range<usize>>,
    has_warned: bool,
}

impl SpinGuard {
    /// A guard for the bodies without a particle that is held for ever, and with at least one particle that
    /// `is_joined` to another. `held_until` holds the time at which each particle is let go [s].
    pub(crate) fn new(
        mut bodies: Vec<Range<usize>>,
        held_until: &[f64],
        is_joined: impl Fn(usize) -> bool,
    ) -> Self {
        bodies.retain(|body| {
            !held_until[body.clone()].contains(&f64::INFINITY) && body.clone().any(&is_joined)
        });
        Self { bodies, has_warned: false }
    }

    /// Looks at the bodies at the start of a step of length `dt` [s], and warns if one spins too
    /// fast for it. Collective.
    pub(crate) fn look(&mut self, partition: &Partition, particles: &Particles, (step, dt): (u64, f64)) {
        if self.has_warned || !step.is_multiple_of(INTERVAL) {
            return;
        }
        let (own, ranks) = (partition.own(), partition.ranks());
        for (index, body) in self.bodies.iter().enumerate() {
            let row = |i: usize| i.clamp(own.start, own.end) - own.start;
            let rows = row(body.start)..row(body.end);
            if ranks.any(particles.immovable[rows.clone()].contains(&true)) {
                continue;
            }
            if let Some(warning) = warning(index, spin(ranks, particles, rows), dt) {
                self.has_warned = true;
                if ranks.is_first() {
                    tracing::warn!("{warning}");
                }
                return;
            }
        }
    }
}

/// The warning about a body that spins at `rate` [rad/s] in steps of `dt` [s], if anything.
fn warning(index: usize, rate: f64, dt: f64) -> Option<String> {
    let loss = rate * rate * dt;
    (loss > LOSS_MAX).then(|| {
        format!(
            "free body {index} spins at {rate:.3} rad/s: implicit Euler takes about {:.0} % of its spin per second in \
             steps of {dt:.1e} s: write integrator = \"hht-alpha\", or dt_max = {:.0e} under [time]",
            100.0 * loss,
            LOSS_MAX / (rate * rate)
        )
    })
}

/// Angular momentum of a body about its middle, over its moment of inertia about that axis [rad/s]. `rows`
/// are those of its particles that this rank has. Collective.
fn spin(ranks: &Ranks, particles: &Particles, rows: Range<usize>) -> f64 {
    let (x, v, m) = (&particles.position, &particles.velocity, &particles.mass);
    let mass = ranks.exact_sum(&rows.clone().map(|i| m[i]).collect());
    let vector_sum = |term: &dyn Fn(usize) -> DVec3| {
        let sum = |axis: usize| rows.clone().map(|i| term(i)[axis]).collect::<ExactSum>();
        DVec3::from_slice(&ranks.exact_sums(&[sum(0), sum(1), sum(2)]))
    };
    let mean = |of: &[DVec3]| vector_sum(&|i| of[i] * m[i]) / mass;
    let (middle, velocity) = (mean(x), mean(v));
    let momentum = vector_sum(&|i| (x[i] - middle).cross(v[i] - velocity) * m[i]);
    let axis = momentum.normalize_or_zero();
    let inertias = rows.clone().map(|i| (x[i] - middle).cross(axis).length_squared() * m[i]);
    let inertia = ranks.exact_sum(&inertias.collect());
    if inertia > 0.0 { momentum.length() / inertia } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use amalgam_particles::ParticleId;

    use super::*;

    #[test]
    fn the_spin_of_a_body_that_flies_is_found() {
        let (rate, flight) = (DVec3::new(1.0, -2.0, 2.0), DVec3::new(30.0, 0.0, -4.0));
        let mut particles = Particles::default();
        particles.push(ParticleId(0), DVec3::splat(9.0), DVec3::ZERO, 5.0, 0.1, false);
        for corner in 0..8u64 {
            let place = [0, 1, 2].map(|axis| if corner >> axis & 1 == 1 { 0.5 } else { -0.5 });
            let place = DVec3::from_array(place);
            let id = ParticleId(1 + corner);
            particles.push(id, place + flight, rate.cross(place) + flight, 0.2, 0.1, false);
        }
        assert!((spin(&Ranks::alone(), &particles, 1..9) - 3.0).abs() < 1e-12);
    }

    #[test]
    fn bodies_without_springs_and_held_ones_are_not_looked_at() {
        let held_until = [0.0, 0.0, 0.0, 0.0, 0.0, f64::INFINITY, 0.0, 0.5];
        let guard = SpinGuard::new(vec![0..2, 2..4, 4..6, 6..8], &held_until, |i| i >= 2);
        assert_eq!(guard.bodies, [2..4, 6..8]);
    }

    #[test]
    fn a_spin_that_lasts_is_no_reason_to_warn() {
        assert_eq!(warning(0, 10.0, 1e-4), None);
        let text = warning(2, 10.0, 1e-3).expect("a tenth per second");
        assert!(text.contains("free body 2 spins at 10.000 rad/s") && text.contains("10 %"), "{text}");
        assert!(text.contains("hht-alpha") && text.contains("dt_max = 2e-4"), "{text}");
    }
}
