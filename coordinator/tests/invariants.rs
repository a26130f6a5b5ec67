//! Invariants of merging and splitting for any particles (`docs/theory/coupling.md`, "Invariants").
//! `invariants/crowds.rs` compares the detection of contacts and the groups of many particles with brute
//! force.

#[path = "invariants/crowds.rs"]
mod crowds;

use amalgam_coordinator::{
    contacts::{Candidates, approaches},
    merging::merge::{Forest, GroupLimit},
    merging::split::SplitSettings,
    settings::SplitRule,
};
use amalgam_particles::{DVec3, ParticleId, random};
use glam::DMat3;
use proptest::prelude::*;

const TOLERANCE: f64 = 1e-12;
const UNLIMITED: GroupLimit =
    GroupLimit { min: u32::MAX, max: u32::MAX, keep_lone_contacts: true, seed: 0, step: 0 };

/// Random numbers in [-1, 1), named by a seed, a particle and a purpose.
fn noise(seed: u64, i: usize, purpose: u64) -> f64 {
    2.0 * random::uniform_f64(&[seed, i as u64, purpose]) - 1.0
}

fn noise3(seed: u64, i: usize, purpose: u64) -> DVec3 {
    DVec3::from_array([0, 1, 2].map(|axis| noise(seed, i, 10 * purpose + axis)))
}

/// `count` particles in one place, masses within `ratio` of each other, the first `immovable` of every second
/// cluster of infinite mass and one velocity.
fn cluster(seed: u64, count: usize, ratio: f64, immovable: usize) -> Candidates {
    let mut candidates = Candidates::default();
    for i in 0..count {
        let fixed = random::bits(&[seed, i as u64, 5]) % count as u64 <= immovable as u64 && immovable > 0;
        candidates.participant.push(0);
        candidates.id.push(ParticleId(i as u64));
        candidates.position.push(noise3(seed, i, 1));
        candidates.velocity.push(if fixed { noise3(seed, 0, 3) } else { noise3(seed, i, 2) * 3.0 });
        candidates.mass.push(if fixed { f64::INFINITY } else { ratio.powf(0.5 * noise(seed, i, 9)) });
        candidates.radius.push(1.0);
    }
    candidates
}

/// Pairs that join all candidates into one group, in a random tree.
fn random_tree(seed: u64, count: usize) -> Vec<(u32, u32)> {
    let mut pairs: Vec<(u32, u32)> =
        (1..count).map(|i| ((random::bits(&[seed, i as u64, 77]) % i as u64) as u32, i as u32)).collect();
    pairs.sort_unstable();
    pairs
}

fn merged(candidates: &Candidates, pairs: &[(u32, u32)]) -> Forest {
    let mut forest = Forest::new();
    forest.merge(candidates, pairs, &UNLIMITED);
    forest
}

/// Splits one group; the velocities of its members, in order.
fn split(forest: &Forest, change: DVec3, energy: f64, settings: &SplitSettings<'_>) -> Vec<DVec3> {
    let mut velocity = Vec::new();
    forest.split(&[forest.velocity()[0] + change], &[energy], settings, &mut velocity);
    velocity
}

fn pair(m: [f64; 2], x: [DVec3; 2], v: [DVec3; 2]) -> Candidates {
    Candidates {
        participant: vec![0, 1],
        id: vec![ParticleId(4); 2],
        position: x.to_vec(),
        velocity: v.to_vec(),
        mass: m.to_vec(),
        radius: vec![1.0; 2],
    }
}

fn settings() -> impl Strategy<Value = SplitSettings<'static>> {
    let unit = || prop_oneof![Just(0.0), Just(1.0), 0.0..=1.0];
    (any::<bool>(), unit(), unit()).prop_map(|(paper, alpha, beta)| SplitSettings {
        rule: if paper { SplitRule::Paper } else { SplitRule::Symmetric },
        alpha,
        beta,
        ..SplitSettings::default()
    })
}

fn energy(mass: &[f64], velocity: &[DVec3]) -> f64 {
    mass.iter().zip(velocity).map(|(m, v)| 0.5 * m * v.length_squared()).sum()
}

proptest! {
    #[test]
    fn merging_and_splitting_conserve_momentum_and_prescribed_energy(
        seed: u64,
        count in 2usize..200,
        ratio in prop::sample::select(vec![1.0, 1e3, 1e6]),
        immovable in 0usize..3,
        settings in settings(),
        change in 0.0f64..10.0,
        lost in 0.0f64..5.0,
    ) {
        let candidates = cluster(seed, count, ratio, immovable);
        let forest = merged(&candidates, &random_tree(seed, count));
        prop_assert_eq!(forest.len(), 1);
        let errors = forest.merge_errors(&candidates);
        prop_assert!(errors.momentum < TOLERANCE && errors.energy < TOLERANCE, "{errors:?}");

        // An immovable group keeps its prescribed velocity.
        let change = if forest.mass()[0].is_infinite() { DVec3::ZERO } else { noise3(seed, 0, 8) * change };
        let together = [forest.velocity()[0] + change];
        let velocity = split(&forest, change, lost, &settings);
        let errors = forest.split_errors(&candidates, &together, &[lost], &settings, &velocity);
        prop_assert!(errors.momentum < TOLERANCE && errors.energy < TOLERANCE, "{errors:?}");

        // Once more without the code under test.
        if forest.mass()[0].is_finite() {
            let mass = &candidates.mass;
            let momentum = |v: &[DVec3]| mass.iter().zip(v).map(|(&m, &v)| m * v).sum::<DVec3>();
            let total: f64 = mass.iter().sum();
            let after = momentum(&velocity) - momentum(&candidates.velocity) - total * change;
            let scale: f64 = mass.iter().zip(&velocity).map(|(m, v)| m * v.length()).sum::<f64>()
                + mass.iter().zip(&candidates.velocity).map(|(m, v)| m * v.length()).sum::<f64>();
            prop_assert!(after.length() < TOLERANCE * scale);
            if settings.rule == SplitRule::Paper {
                let v12 = momentum(&candidates.velocity) / total;
                let in_bonds = energy(mass, &candidates.velocity) - 0.5 * total * v12.length_squared();
                let expected =
                    0.5 * total * together[0].length_squared() + settings.alpha * in_bonds + settings.beta * lost;
                let scale = expected + energy(mass, &candidates.velocity);
                prop_assert!((energy(mass, &velocity) - expected).abs() < TOLERANCE * scale);
            }
        }
        // What is gone is what the members had relative to v12, and what synchronising took, less what they
        // have now.
        let relative = |velocity: &[DVec3], to: DVec3| -> f64 {
            let movable = candidates.mass.iter().zip(velocity).filter(|(m, _)| m.is_finite());
            movable.map(|(m, &v)| 0.5 * m * (v - to).length_squared()).sum()
        };
        // Nobody's energy is lost in a group that an immovable member prescribes.
        let lost = if forest.mass()[0].is_infinite() { 0.0 } else { lost };
        let velocity = split(&forest, change, lost, &settings);
        let (before, after) =
            (relative(&candidates.velocity, forest.velocity()[0]), relative(&velocity, together[0]));
        let dissipated = forest.dissipated(&[lost], &settings);
        let scale = before + lost + relative(&velocity, DVec3::ZERO);
        prop_assert!((before + lost - after - dissipated).abs() <= TOLERANCE * scale, "{dissipated}");

        // What measures errors must see them.
        let mut wrong = velocity.clone();
        wrong[count / 2] += DVec3::splat(1.0);
        let errors = forest.split_errors(&candidates, &together, &[lost], &settings, &wrong);
        prop_assert!(errors.momentum > 1e-12 || errors.energy > 1e-12);
    }

    #[test]
    fn nothing_dissipates_with_alpha_one_and_no_change(
        seed: u64, count in 2usize..200, rule in prop::sample::select(vec![SplitRule::Paper, SplitRule::Symmetric]),
    ) {
        let candidates = cluster(seed, count, 1e6, 0);
        let forest = merged(&candidates, &random_tree(seed, count));
        let velocity = split(&forest, DVec3::ZERO, 0.0, &SplitSettings { rule, ..SplitSettings::default() });
        let (before, after) = (energy(&candidates.mass, &candidates.velocity), energy(&candidates.mass, &velocity));
        prop_assert!((after / before - 1.0).abs() < TOLERANCE, "{before} {after}");
    }

    #[test]
    fn members_leave_with_the_group_when_nothing_is_given_back(seed: u64, count in 2usize..50) {
        let forest = merged(&cluster(seed, count, 1e6, 0), &random_tree(seed, count));
        let settings = SplitSettings { alpha: 0.0, ..SplitSettings::default() };
        let together = forest.velocity()[0] + DVec3::X;
        prop_assert!(split(&forest, DVec3::X, 0.0, &settings).iter().all(|&v| v == together));
    }

    /// The contact of two particles gives back as much as the less elastic of their participants does.
    #[test]
    fn the_less_elastic_participant_counts(seed: u64, alpha in 0.0f64..=1.0, soft in 0.0f64..=1.0) {
        let mut candidates = cluster(seed, 2, 1e3, 0);
        candidates.participant = vec![0, 1];
        let forest = merged(&candidates, &[(0, 1)]);
        let settings = SplitSettings { alpha, elasticity: &[1.0, soft], ..SplitSettings::default() };
        let same = SplitSettings { alpha: alpha * soft, ..SplitSettings::default() };
        prop_assert_eq!(split(&forest, DVec3::X, 0.0, &settings), split(&forest, DVec3::X, 0.0, &same));
    }

    #[test]
    fn symmetric_rule_does_not_see_order_rotation_or_motion_of_the_frame(
        seed: u64, count in 2usize..40, alpha in 0.0f64..=1.0, lost in 0.0f64..1.0,
    ) {
        let settings = SplitSettings { rule: SplitRule::Symmetric, alpha, beta: 0.5, ..SplitSettings::default() };
        let candidates = cluster(seed, count, 1e4, 0);
        let pairs = random_tree(seed, count);
        let change = noise3(seed, 0, 8);
        let velocity = split(&merged(&candidates, &pairs), change, lost, &settings);
        let close = |a: &[DVec3], b: &[DVec3]| a.iter().zip(b).all(|(a, b)| a.distance(*b) < 1e-9);

        let rotation = DMat3::from_axis_angle(noise3(seed, 0, 4).normalize(), 2.0);
        let mut rotated = candidates.clone();
        rotated.position.iter_mut().chain(&mut rotated.velocity).for_each(|x| *x = rotation * *x);
        let expected: Vec<DVec3> = velocity.iter().map(|&v| rotation * v).collect();
        prop_assert!(close(&split(&merged(&rotated, &pairs), rotation * change, lost, &settings), &expected));

        let boost = noise3(seed, 0, 6) * 5.0;
        let mut boosted = candidates.clone();
        boosted.velocity.iter_mut().for_each(|v| *v += boost);
        let expected: Vec<DVec3> = velocity.iter().map(|&v| v + boost).collect();
        prop_assert!(close(&split(&merged(&boosted, &pairs), change, lost, &settings), &expected));

        // A constant acceleration moves everything alike, before and after.
        let expected: Vec<DVec3> = velocity.iter().map(|&v| v + boost).collect();
        prop_assert!(close(&split(&merged(&candidates, &pairs), change + boost, lost, &settings), &expected));

        // Swapping the two particles of a pair changes no bit.
        let (m, x, v) = (&candidates.mass, &candidates.position, &candidates.velocity);
        let there = merged(&pair([m[0], m[1]], [x[0], x[1]], [v[0], v[1]]), &[(0, 1)]);
        let back = merged(&pair([m[1], m[0]], [x[1], x[0]], [v[1], v[0]]), &[(0, 1)]);
        let (there, back) = (split(&there, change, lost, &settings), split(&back, change, lost, &settings));
        prop_assert_eq!((there[0], there[1]), (back[1], back[0]));
    }

    #[test]
    fn symmetric_rule_keeps_angular_momentum(seed: u64, count in 2usize..60, alpha in 0.0f64..=1.0) {
        let candidates = cluster(seed, count, 1e3, 0);
        let forest = merged(&candidates, &random_tree(seed, count));
        let settings = SplitSettings { rule: SplitRule::Symmetric, alpha, beta: 0.0, ..SplitSettings::default() };
        let velocity = split(&forest, DVec3::ZERO, 0.0, &settings);
        let angular = |velocity: &[DVec3]| -> (DVec3, f64) {
            let each = (0..count).map(|i| candidates.mass[i] * candidates.position[i].cross(velocity[i]));
            each.fold((DVec3::ZERO, 0.0), |(sum, scale), l| (sum + l, scale + l.length()))
        };
        let ((before, scale), (after, _)) = (angular(&candidates.velocity), angular(&velocity));
        prop_assert!((after - before).length() < TOLERANCE * scale);
    }

    /// Eq. 12-16 as the paper writes them, for particle 1 in the frame of the laboratory.
    #[test]
    fn paper_rule_is_the_paper(seed: u64, alpha in 0.0f64..=1.0, lost in 0.0f64..2.0, kick in 0.0f64..4.0) {
        let (m1, m2) = (1.0 + noise(seed, 0, 1).abs(), 1.0 + noise(seed, 1, 1).abs());
        let (x1, x2) = (noise3(seed, 0, 2), noise3(seed, 1, 2));
        let (v1, v2) = (noise3(seed, 0, 3), noise3(seed, 1, 3));
        let change = noise3(seed, 0, 4) * kick;
        let forest = merged(&pair([m1, m2], [x1, x2], [v1, v2]), &[(0, 1)]);
        let settings = SplitSettings { rule: SplitRule::Paper, alpha, beta: 0.7, ..SplitSettings::default() };
        let found = split(&forest, change, lost, &settings);

        let m12 = m1 + m2;
        let v12_after = (m1 * v1 + m2 * v2) / m12 + change;
        let n = (x2 - x1).normalize();
        let energy = m1 * m2 / (2.0 * m12) * (v1 - v2).length_squared();
        let s_squared = 2.0 * (alpha * energy + 0.7 * lost) / (m12 * (m1 / m2));
        let half = n.dot(v12_after - v1);
        let root = half * half - (v12_after - v1).length_squared() + s_squared;
        let v1_after = if root >= 0.0 {
            v1 + (half - root.sqrt()) * n
        } else {
            let w = v12_after - v1 - half * n;
            v1 + half * n + (w.length() - s_squared.sqrt()) * w / w.length()
        };
        let v2_after = (m12 * v12_after - m1 * v1_after) / m2;
        // Near a double root, rounding of the discriminant shows as its root.
        let tolerance = if root.abs() < 1e-9 { 1e-6 } else { 1e-9 };
        prop_assert!(found[0].distance(v1_after) < tolerance && found[1].distance(v2_after) < tolerance);
        prop_assert!((found[1] - found[0]).dot(n) >= -TOLERANCE);
    }

    #[test]
    fn degenerate_input_has_a_defined_answer(
        seed: u64,
        settings in settings(),
        heavy in prop::sample::select(vec![1.0, 1e12, 1e-12, f64::INFINITY]),
        same_place: bool,
        same_velocity: bool,
        tiny in prop::sample::select(vec![1.0, 1e-200, 1e-310]),
        change in prop::sample::select(vec![DVec3::ZERO, DVec3::X, DVec3::splat(1e8)]),
        swapped: bool,
    ) {
        let (x, v) = (noise3(seed, 0, 1), noise3(seed, 0, 2));
        let x = [x * tiny, if same_place { x * tiny } else { noise3(seed, 1, 1) * tiny }];
        let v = [v, if same_velocity { v } else { noise3(seed, 1, 2) }];
        let m = if swapped { [1.0, heavy] } else { [heavy, 1.0] };
        let candidates = pair(m, x, v);
        let forest = merged(&candidates, &[(0, 1)]);
        let change = if heavy.is_infinite() { DVec3::ZERO } else { change };
        let velocity = split(&forest, change, 0.3, &settings);
        prop_assert!(velocity.iter().all(|v| v.is_finite()), "{velocity:?}");
        let together = [forest.velocity()[0] + change];
        let errors = forest.split_errors(&candidates, &together, &[0.3], &settings, &velocity);
        prop_assert!(errors.momentum < TOLERANCE && errors.energy < TOLERANCE, "{errors:?}");
        if heavy.is_infinite() {
            prop_assert_eq!(velocity[usize::from(swapped)], v[usize::from(swapped)]);
        }
        if same_place && !same_velocity {
            prop_assert!(approaches(DVec3::ZERO, v[1] - v[0]));
            let apart = velocity[1] - velocity[0];
            let rounding = 1e-12 * apart.length() + 1e-15 * (3.0 + change.length());
            prop_assert!(apart.dot(v[1] - v[0]) <= rounding * v[0].distance(v[1]), "must part where they came from");
        }
    }
}

#[test]
fn clusters_that_move_differently_by_prescription_are_not_joined() {
    let mut candidates = cluster(1, 3, 1.0, 0);
    candidates.mass[0] = f64::INFINITY;
    candidates.mass[2] = f64::INFINITY;
    candidates.velocity[0] = DVec3::X;
    let mut forest = merged(&candidates, &[(0, 1), (1, 2)]);
    assert_eq!((forest.all_members(), forest.refused()), (&[0, 1][..], &[(1, 2)][..]));
    candidates.velocity[2] = DVec3::X;
    forest.merge(&candidates, &[(0, 1), (1, 2)], &UNLIMITED);
    assert_eq!((forest.all_members(), forest.refused()), (&[0, 1, 2][..], &[][..]));
    assert_eq!(forest.velocity(), [DVec3::X]);
}

#[test]
fn equal_masses_that_meet_head_on_exchange_their_velocities() {
    for rule in [SplitRule::Paper, SplitRule::Symmetric] {
        let candidates = pair([2.0; 2], [DVec3::ZERO, DVec3::X], [DVec3::new(1.0, 0.5, 0.0), DVec3::NEG_X]);
        let forest = merged(&candidates, &[(0, 1)]);
        let velocity = split(&forest, DVec3::ZERO, 0.0, &SplitSettings { rule, ..SplitSettings::default() });
        assert!(velocity[0].distance(DVec3::new(-1.0, 0.5, 0.0)) < 1e-15);
        assert!(velocity[1].distance(DVec3::X) < 1e-15);
    }
}

#[test]
fn settings_out_of_range_are_named() {
    let error = SplitSettings { beta: 1.5, ..SplitSettings::default() }.validate().expect_err("out of range");
    assert_eq!(error, "beta is 1.5, but must be a number from 0 to 1");
    assert!(SplitSettings { alpha: f64::NAN, ..SplitSettings::default() }.validate().is_err());
}
