//! Methods of contact that do not merge, against closed forms (`docs/theory/contact-methods.md`).

use std::f64::consts::PI;

use amalgam_coordinator::{
    CouplingSettings,
    contacts::{Candidates, ContactFinder},
    pairwise::{PairResponse, PairwiseMethod},
    settings::{PairwiseImpulseSettings, PenaltySettings, SphRepulsionSettings},
};
use amalgam_particles::{DVec3, PairFinder, ParticleId, Spheres, random};
use proptest::prelude::*;

const PENALTY: PairwiseMethod = PairResponse::penalty;
const SPH_REPULSION: PairwiseMethod = PairResponse::sph_repulsion;
const PAIRWISE_IMPULSE: PairwiseMethod = PairResponse::pairwise_impulse;

fn push(candidates: &mut Candidates, position: DVec3, velocity: DVec3, mass: f64, radius: f64) {
    candidates.participant.push(0);
    candidates.id.push(ParticleId(candidates.id.len() as u64));
    candidates.position.push(position);
    candidates.velocity.push(velocity);
    candidates.mass.push(mass);
    candidates.radius.push(radius);
}

/// Two balls in flight towards each other along x, about to touch.
fn two(masses: [f64; 2]) -> Candidates {
    let mut candidates = Candidates::default();
    push(&mut candidates, DVec3::ZERO, DVec3::new(1.0, 0.3, 0.0), masses[0], 0.1);
    push(&mut candidates, DVec3::new(0.2, 0.0, 0.0), DVec3::new(-1.0, 0.3, 0.0), masses[1], 0.1);
    candidates
}

/// A step of free particles; says whether any pair was in contact.
fn step(
    candidates: &mut Candidates,
    (method, settings): (PairwiseMethod, &CouplingSettings),
    dt: f64,
) -> bool {
    let mut finder = ContactFinder::new();
    let spheres = Spheres { position: &candidates.position, radius: &candidates.radius, class: None };
    let contacts = finder.detect(candidates, PairFinder::new().find(spheres, |_, _| true));
    let touching = contacts.pairs().next().is_some();
    let mut response = PairResponse::default();
    method(&mut response, settings, candidates, contacts, dt);
    for (at, &i) in response.members.iter().enumerate() {
        let i = i as usize;
        candidates.velocity[i] = response.velocity[at] + response.impulse[at] / candidates.mass[i];
    }
    for (position, velocity) in candidates.position.iter_mut().zip(&candidates.velocity) {
        *position += *velocity * dt;
    }
    touching
}

/// Lets two balls collide: time in contact [s], speed of parting [m/s], and the largest relative change of
/// energy.
fn collide(candidates: &mut Candidates, method: (PairwiseMethod, &CouplingSettings), dt: f64) -> (f64, f64) {
    let mut contact = 0;
    for _ in 0..1_000_000 {
        let touching = step(candidates, method, dt);
        contact += u64::from(touching);
        if contact > 0 && !touching {
            return (contact as f64 * dt, (candidates.velocity[1] - candidates.velocity[0]).x);
        }
    }
    panic!("the balls never part");
}

fn momentum(candidates: &Candidates) -> DVec3 {
    candidates
        .mass
        .iter()
        .zip(&candidates.velocity)
        .filter(|(m, _)| m.is_finite())
        .map(|(&m, &v)| v * m)
        .sum()
}

fn energy(candidates: &Candidates) -> f64 {
    candidates.mass.iter().zip(&candidates.velocity).map(|(&m, v)| 0.5 * m * v.length_squared()).sum()
}

#[test]
fn a_spring_without_damping_takes_half_a_period_and_gives_all_energy_back() {
    let penalty = PenaltySettings { stiffness: 5e3, damping_ratio: 0.0 };
    let coupling = CouplingSettings { penalty, ..CouplingSettings::default() };
    for masses in [[1.0, 1.0], [0.1, 3.0], [1.0, f64::INFINITY]] {
        let mut candidates = two(masses);
        let before = candidates.velocity[1].x - candidates.velocity[0].x;
        let reduced = masses[0] / (1.0 + masses[0] / masses[1]);
        let (time, parting) = collide(&mut candidates, (PENALTY, &coupling), 1e-5);
        let expected = PI * (reduced / 5e3).sqrt();
        assert!((time / expected - 1.0).abs() < 0.01, "{masses:?}: {time} s, not {expected} s");
        assert!((parting / -before - 1.0).abs() < 0.01, "{masses:?}: {parting} m/s after {before} m/s");
        // Along the other axis nothing happens.
        assert_eq!(candidates.velocity[0].y, 0.3);
    }
}

/// With the force cut off where it would pull, contact ends when k depth = c u_n, at speed exp(-zeta phi/s)
/// of the first, s = sqrt(1 - zeta^2) and phi = atan2(2 zeta s, 2 zeta^2 - 1): the solution of the damped
/// oscillator.
#[test]
fn a_damped_spring_has_the_restitution_of_the_damped_oscillator() {
    let mut coupling = CouplingSettings::default();
    for damping_ratio in [0.05f64, 0.3, 0.7] {
        coupling.penalty = PenaltySettings { stiffness: 5e3, damping_ratio };
        let (_, parting) = collide(&mut two([1.0, 2.0]), (PENALTY, &coupling), 1e-6);
        let s = (1.0 - damping_ratio * damping_ratio).sqrt();
        let phase = (2.0 * damping_ratio * s).atan2(2.0 * damping_ratio * damping_ratio - 1.0);
        let expected = 2.0 * (-damping_ratio * phase / s).exp();
        assert!((parting / expected - 1.0).abs() < 0.01, "{damping_ratio}: {parting}, not {expected} m/s");
    }
}

#[test]
fn pressure_gives_all_energy_back() {
    let sph_repulsion = SphRepulsionSettings { strength: 1e7 };
    let coupling = CouplingSettings { sph_repulsion, ..CouplingSettings::default() };
    let mut candidates = two([1.0, 2.0]);
    let before = energy(&candidates);
    let (time, parting) = collide(&mut candidates, (SPH_REPULSION, &coupling), 1e-6);
    assert!(time > 1e-4 && (parting / 2.0 - 1.0).abs() < 0.01, "{time} s, {parting} m/s");
    assert!((energy(&candidates) / before - 1.0).abs() < 0.01);
}

#[test]
fn impulses_have_the_restitution_they_are_told() {
    let mut coupling = CouplingSettings::default();
    for restitution in [0.0, 0.4, 1.0] {
        coupling.pairwise_impulse = PairwiseImpulseSettings { restitution, sweeps: 5 };
        let mut candidates = two([1.0, 7.0]);
        candidates.position[1].x = 0.19;
        step(&mut candidates, (PAIRWISE_IMPULSE, &coupling), 1e-6);
        let parting = (candidates.velocity[1] - candidates.velocity[0]).x;
        assert!((parting - 2.0 * restitution).abs() < 1e-12, "{restitution}: {parting} m/s");
    }
}

/// A row of equal balls that touch: impulses go from one to the next within a sweep.
#[test]
fn newtons_cradle_passes_the_impulse_on() {
    let mut candidates = Candidates::default();
    for i in 0..5 {
        let speed = if i == 0 { 1.0 } else { 0.0 };
        push(&mut candidates, DVec3::X * (0.199 * f64::from(i)), DVec3::X * speed, 1.0, 0.1);
    }
    step(&mut candidates, (PAIRWISE_IMPULSE, &CouplingSettings::default()), 1e-6);
    let speeds: Vec<f64> = candidates.velocity.iter().map(|v| v.x).collect();
    for (speed, expected) in speeds.iter().zip([0.0, 0.0, 0.0, 0.0, 1.0]) {
        assert!((speed - expected).abs() < 1e-12, "{speeds:?}");
    }
}

proptest! {
    /// Many particles in one place, of masses within 1e6 of each other: momentum is kept, and a response
    /// finite.
    #[test]
    fn momentum_is_kept(seed: u64, count in 2usize..60, method in 0usize..3) {
        let method = [PENALTY, SPH_REPULSION, PAIRWISE_IMPULSE][method];
        let noise = |i: usize, purpose: u64| 2.0 * random::uniform_f64(&[seed, i as u64, purpose]) - 1.0;
        let vector = |i: usize, purpose: u64| DVec3::from_array([0, 1, 2].map(|k| noise(i, purpose + k)));
        let mut candidates = Candidates::default();
        for i in 0..count {
            // Every tenth lies on the one before.
            let place = if i % 10 == 9 { i - 1 } else { i };
            push(&mut candidates, vector(place, 1), vector(i, 4), 1e3f64.powf(noise(i, 7)), 0.5);
        }
        let before = momentum(&candidates);
        let scale: f64 = candidates.mass.iter().zip(&candidates.velocity).map(|(m, v)| m * v.length()).sum();
        step(&mut candidates, (method, &CouplingSettings::default()), 1e-3);
        let after = momentum(&candidates);
        prop_assert!(after.is_finite());
        prop_assert!((after - before).length() <= 1e-12 * scale.max(after.length()), "{before} {after}");
    }
}
