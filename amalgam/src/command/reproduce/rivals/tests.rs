//! Every rival keeps what it must keep, and does what it is known for.

use amalgam_particles::{DVec3, ParticleId, Particles, random};

use super::Algorithm;
use super::discs::{Attraction, Discs};

const DT: f64 = 0.01;

/// Discs at these places and velocities, with masses and radii.
fn discs(gravitational_constant: f64, all: &[(DVec3, DVec3, f64, f64)]) -> Discs {
    let mut particles = Particles::default();
    for (id, &(position, velocity, mass, radius)) in all.iter().enumerate() {
        particles.push(ParticleId(id as u64), position, velocity, mass, radius, false);
    }
    Discs::new(&particles, gravitational_constant)
}

/// A small planet of 60 discs that has not fallen together yet and turns at `rate` [rad/s].
fn cloud(rate: f64) -> Discs {
    let mut all: Vec<(DVec3, DVec3, f64, f64)> = Vec::new();
    for k in 0.. {
        let number = |purpose: u64| random::uniform_f64(&[5, k, purpose]);
        let x = DVec3::new(number(0) - 0.5, number(1) - 0.5, 0.0) * 40.0;
        let radius = 0.5 + 1.5 * number(2);
        if all.iter().all(|(y, _, _, other)| x.distance(*y) > radius + other) {
            all.push((x, DVec3::Z.cross(x) * rate, 0.5 + 1.5 * number(3), radius));
        }
        if all.len() == 60 {
            break;
        }
    }
    discs(500.0, &all)
}

fn impulses(beta: f64, restitution: f64, iterations: u32) -> Algorithm {
    Algorithm::Impulses { beta, restitution, iterations }
}

/// Algorithms whose forces and impulses act along the line of centres, where the discs are.
fn central() -> [Algorithm; 7] {
    [
        Algorithm::Points {},
        Algorithm::BoundedForce {},
        Algorithm::Springs { stiffness: 1e4 },
        impulses(0.0, 0.0, 1),
        impulses(0.5, 0.0, 16),
        impulses(0.125, 0.75, 16),
        Algorithm::Events { restitution: 0.25, contact_time: 1e-4 },
    ]
}

/// Algorithms that move discs by position.
fn corrections() -> [Algorithm; 4] {
    [
        Algorithm::Positions { restitution: None, iterations: 1 },
        Algorithm::Positions { restitution: Some(0.25), iterations: 16 },
        Algorithm::Verlet { iterations: 1 },
        Algorithm::Verlet { iterations: 16 },
    ]
}

/// Takes 200 steps and calls `each` after each.
fn fall(algorithm: Algorithm, rate: f64, mut each: impl FnMut(&mut Discs)) -> Discs {
    let (mut discs, mut rival) = (cloud(rate), algorithm.rival());
    for _ in 0..200 {
        rival.step(&mut discs, DT);
        each(&mut discs);
    }
    discs
}

/// Largest sum of m |v| and of m |x| |v| in steps so far.
fn scales(discs: &Discs, [momentum, angular]: [f64; 2]) -> [f64; 2] {
    let terms = (0..discs.len()).map(|i| {
        let momentum = discs.mass[i] * discs.velocity[i].length();
        (momentum, momentum * discs.position[i].length())
    });
    let (p, l) = terms.fold((0.0, 0.0), |(p, l), term| (p + term.0, l + term.1));
    [f64::max(momentum, p), f64::max(angular, l)]
}

#[test]
fn every_rival_keeps_momentum_and_mass_and_central_ones_angular_momentum() {
    let all = central().into_iter().chain(corrections()).chain([Algorithm::Accretion {}]);
    for algorithm in all {
        let start = cloud(0.2);
        let mut scale = [0.0; 2];
        let end = fall(algorithm, 0.2, |discs| scale = scales(discs, scale));
        let lost = (end.momentum() - start.momentum()).length() / scale[0];
        assert!(lost < 1e-12, "{algorithm:?}: {lost}");
        let mass = |discs: &Discs| discs.mass.iter().sum::<f64>();
        assert!((mass(&end) / mass(&start) - 1.0).abs() < 1e-14, "{algorithm:?}");
        let changed = (end.angular_momentum() - start.angular_momentum()).z.abs() / scale[1];
        let keeps = central().iter().any(|central| format!("{central:?}") == format!("{algorithm:?}"));
        assert_eq!(changed < 1e-12, keeps, "{algorithm:?}: {changed}");
    }
}

#[test]
fn iterated_position_corrections_make_a_pile_turn_faster() {
    for algorithm in [corrections()[1], corrections()[3]] {
        let grown = fall(algorithm, 0.2, |_| ()).angular_momentum().z / cloud(0.2).angular_momentum().z;
        assert!(grown > 1.1, "{algorithm:?}: {grown}");
    }
}

#[test]
fn accretion_leaves_one_disc_of_the_same_area() {
    let area = |discs: &Discs| discs.radius.iter().map(|r| r * r).sum::<f64>();
    let end = fall(Algorithm::Accretion {}, 0.0, |_| ());
    assert_eq!(end.len(), 1);
    assert!((area(&end) / area(&cloud(0.0)) - 1.0).abs() < 1e-13);
}

#[test]
fn only_events_keep_discs_apart() {
    let deepest = |algorithm| {
        let mut deepest = 0.0f64;
        fall(algorithm, 0.0, |discs| deepest = deepest.max(discs.overlap_max()[1]));
        deepest
    };
    let events = deepest(Algorithm::Events { restitution: 0.25, contact_time: 1e-4 });
    assert!(events < 1e-12, "{events}");
    let others = central().into_iter().take(6).chain(corrections());
    for algorithm in others {
        assert!(deepest(algorithm) > 0.1, "{algorithm:?}");
    }
}

#[test]
fn bounded_attraction_is_that_of_discs_that_touch() {
    let pair = |distance: f64| {
        discs(2.0, &[(DVec3::ZERO, DVec3::ZERO, 3.0, 1.0), (DVec3::X * distance, DVec3::ZERO, 5.0, 1.0)])
    };
    let pull = |distance, attraction| pair(distance).acceleration(attraction)[0].x;
    assert!((pull(4.0, Attraction::Newton) - 10.0 / 16.0).abs() < 1e-15);
    assert!((pull(4.0, Attraction::Bounded) - 10.0 / 16.0).abs() < 1e-15);
    assert!((pull(0.5, Attraction::Newton) - 10.0 / 0.25).abs() < 1e-13);
    assert!((pull(0.5, Attraction::Bounded) - 10.0 / 4.0).abs() < 1e-15);
}

/// Two discs of radius 1 on the x axis, of 1 kg and 3 kg, without attraction. The second is at `distance` and
/// has the velocity `velocity` along x.
fn two(distance: f64, velocity: f64) -> Discs {
    discs(0.0, &[(DVec3::ZERO, DVec3::ZERO, 1.0, 1.0), (DVec3::X * distance, DVec3::X * velocity, 3.0, 1.0)])
}

#[test]
fn a_spring_pushes_by_its_stiffness_and_its_depth() {
    let mut discs = two(1.9, 0.0);
    Algorithm::Springs { stiffness: 50.0 }.rival().step(&mut discs, DT);
    // 50 N/m times 0.1 m, for 0.01 s on 1 kg and on 3 kg.
    assert!((discs.velocity[0].x + 0.05).abs() < 1e-15, "{}", discs.velocity[0]);
    assert!((discs.velocity[1].x - 0.05 / 3.0).abs() < 1e-15, "{}", discs.velocity[1]);
}

#[test]
fn baumgarte_closes_its_part_of_an_overlap_in_a_step() {
    for (beta, iterations) in [(0.0, 1), (0.125, 1), (0.5, 16), (1.0, 16)] {
        let mut discs = two(1.9, -3.0);
        impulses(beta, 0.0, iterations).rival().step(&mut discs, DT);
        let gap = discs.pair(0, 1).gap;
        assert!((gap + 0.1 * (1.0 - beta)).abs() < 1e-14, "{beta}: {gap}");
    }
}

#[test]
fn iterations_take_the_rebound_of_impulses_away() {
    let rate = |iterations| {
        let mut discs = two(1.9, -3.0);
        impulses(0.0, 0.75, iterations).rival().step(&mut discs, DT);
        discs.pair(0, 1).rate
    };
    assert!((rate(1) - 2.25).abs() < 1e-14, "{}", rate(1));
    assert!(rate(16).abs() < 0.05, "{}", rate(16));
}

#[test]
fn a_correction_moves_a_pair_apart_about_its_centre_of_mass() {
    let mut alone = two(1.9, -3.0);
    Algorithm::Positions { restitution: None, iterations: 1 }.rival().step(&mut alone, DT);
    assert!(alone.pair(0, 1).gap.abs() < 1e-14);
    assert_eq!(alone.pair(0, 1).rate, -3.0);
    let centre = (alone.position[0].x + 3.0 * alone.position[1].x) / 4.0;
    assert!((centre - 3.0 * (1.9 - 3.0 * DT) / 4.0).abs() < 1e-14, "{centre}");
    let mut rebounds = two(1.9, -3.0);
    Algorithm::Positions { restitution: Some(0.25), iterations: 1 }.rival().step(&mut rebounds, DT);
    assert!((rebounds.pair(0, 1).rate - 0.75).abs() < 1e-14);
    // Under Verlet the way of the correction is a velocity.
    let mut verlet = two(1.9, -3.0);
    Algorithm::Verlet { iterations: 1 }.rival().step(&mut verlet, DT);
    assert!((verlet.pair(0, 1).rate - 0.1 / DT).abs() < 1e-11);
}

#[test]
fn an_event_happens_at_its_time() {
    // A gap of 0.01 m closes in 0.0025 s; then the discs part with half of 4 m/s for 0.0075 s.
    let mut discs = two(2.01, -4.0);
    Algorithm::Events { restitution: 0.5, contact_time: 0.0 }.rival().step(&mut discs, DT);
    assert!((discs.pair(0, 1).gap - 0.015).abs() < 1e-14, "{}", discs.pair(0, 1).gap);
    assert!((discs.pair(0, 1).rate - 2.0).abs() < 1e-14);
}

#[test]
fn events_run_through_a_row_of_discs_and_contacts_that_last_take_no_energy() {
    let at = |x: f64, v: f64| (DVec3::X * x, DVec3::X * v, 1.0, 1.0);
    let row = [at(0.0, 8.0), at(2.01, 0.0), at(4.02, 0.0), at(6.03, 0.0)];
    let mut elastic = discs(0.0, &row);
    let energy = elastic.kinetic_energy();
    Algorithm::Events { restitution: 1.0, contact_time: 0.0 }.rival().step(&mut elastic, DT);
    assert!((elastic.velocity[3].x - 8.0).abs() < 1e-14, "{:?}", elastic.velocity);
    // All later collisions come within the time of contact of the first one.
    let mut lasting = discs(0.0, &row);
    Algorithm::Events { restitution: 0.5, contact_time: 1.0 }.rival().step(&mut lasting, DT);
    let left = lasting.kinetic_energy() / energy;
    // The first collision leaves 8 m/s as 2 and 6: (4 + 36)/64.
    assert!((left - 0.625).abs() < 1e-14, "{left}");
}
