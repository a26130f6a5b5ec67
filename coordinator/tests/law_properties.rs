//! Properties of any scene under the contact law: conservation, energy, equal bits, and an answer to any
//! input.

#[path = "law/cloud.rs"]
mod cloud;

use amalgam_coordinator::law::{
    ContactLaw, LawStatistics, Precision, Step, WarmStart,
    bodies::{Blend, Bodies, InverseInertia},
    contact::{Contact, ContactMaterial, Sphere},
    response::{Model, Response, Term},
};
use amalgam_coordinator::measure::world::{Spin, World};
use amalgam_particles::{DVec3, random};
use cloud::cloud;
use glam::DMat3;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// With spin: linear and angular momentum; energy never rises, with any friction, rolling resistance and
    /// restitution.
    #[test]
    fn momenta_are_kept_and_energy_never_rises(
        seed: u64, count in 2usize..60, friction in 0.0f64..2.0, rolling in 0.0f64..0.5,
        restitution in 0.0f64..=1.0, heavy: bool, gaps: bool,
    ) {
        let mut world = cloud(seed, count, if heavy { 1e3 } else { 1.0 }, Spin::Ball);
        world.material = ContactMaterial { friction, rolling, restitution, glued: false };
        let dt = if gaps { 0.2 } else { 1e-3 };
        for _ in 0..3 {
            let (p, l, e) = (world.momentum(), world.angular_momentum(), world.kinetic_energy());
            // Momentum of as much mass with as much energy.
            let scale = (2.0 * e * amalgam_coordinator::measure::world::masses(&world.bodies, count).iter().sum::<f64>()).sqrt();
            let statistics = world.step(dt);
            let after = world.kinetic_energy();
            prop_assert!((world.momentum() - p).length() < 1e-13 * scale);
            let size = 2.0 * (count as f64).cbrt() + 1.0;
            prop_assert!((world.angular_momentum() - l).length() < 1e-12 * scale * size);
            prop_assert!(after <= e * (1.0 + 1e-9), "{e} {after}");
            let told = statistics.solve.energy + statistics.impact_energy;
            prop_assert!((after - e - told).abs() < 1e-11 * e, "{} {told}", after - e);
        }
    }

    /// Masses from 1 to 1e6, one body immovable, some centres in one place.
    #[test]
    fn any_finite_input_has_a_finite_answer(seed: u64, count in 2usize..40, friction in 0usize..3) {
        let mut world = cloud(seed, count, 1e6, Spin::Ball);
        world.material.friction = [0.0, 0.5, f64::INFINITY][friction];
        world.push(DVec3::ZERO, DVec3::X, f64::INFINITY, 1.0, Spin::None);
        world.position[0] = world.position[1];
        if seed % 2 == 0 {
            world.bodies.velocity[0] = world.bodies.velocity[1];
        }
        let e = world.kinetic_energy();
        for _ in 0..3 {
            world.step(1e-2);
            prop_assert!(world.position.iter().chain(&world.bodies.velocity).all(|x| x.is_finite()));
        }
        prop_assert_eq!(world.bodies.velocity[count], DVec3::X);
        // The immovable body moves, and can do work on others, but no more than an elastic wall could.
        prop_assert!(world.kinetic_energy() <= 10.0 * e + 1e8);
    }
}

#[test]
fn balls_of_all_masses_rest_and_slide() {
    for mass in [1e-50, 1e-37, 1.0, 1e37, 1e50] {
        let mut world = World::new(DVec3::new(2.0, 0.0, -9.81), 0.1);
        world.push(DVec3::Z, DVec3::ZERO, mass, 1.0, Spin::None);
        world.push(DVec3::new(0.0, 5.0, 1.0), DVec3::ZERO, mass, 1.0, Spin::Ball);
        world.plane(DVec3::ZERO, DVec3::Z);
        let statistics = world.step(1e-2);
        assert!(statistics.solve.converged, "{mass}");
        let [slides, turns] = [world.bodies.velocity[0], world.bodies.velocity[1]];
        assert!((slides - DVec3::X * (2.0 - 0.981) * 1e-2).length() < 1e-6, "{mass}: {slides}");
        // With friction enough, a ball rolls at 5/7 of the acceleration.
        assert!((turns - DVec3::X * (2.0 * 5.0 / 7.0) * 1e-2).length() < 1e-6, "{mass}: {turns}");
    }
}

/// No theorem says that renewing de Saxce's term converges. With friction far above what matter has, few
/// solves do not.
#[test]
fn of_a_thousand_solves_all_but_three_converge() {
    let (mut solves, mut failed) = (0, 0);
    cloud::of_all_kinds(1000, |_, solve| {
        solves += 1;
        failed += u32::from(!solve.converged);
    });
    assert_eq!(solves, 3000);
    assert!(failed <= 9, "{failed} of {solves} solves did not converge");
}

#[test]
fn bits_are_equal_on_any_number_of_threads() {
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("pool");
        pool.install(|| {
            let mut world = cloud(5, 6000, 10.0, Spin::Ball);
            world.material.rolling = 0.1;
            world.material.restitution = 0.3;
            world.gravity = DVec3::NEG_Z;
            for _ in 0..2 {
                world.law.settings.precision.iterations_max = 100;
                world.step(1e-2);
            }
            assert!(world.contacts.len() > 4096, "{}", world.contacts.len());
            world.bits()
        })
    };
    let one = run(1);
    assert!(run(2) == one);
    assert!(run(3) == one);
}

/// The storage of bodies and the order of pairs do not matter: names decide.
#[test]
fn bits_do_not_depend_on_the_order_of_discovery() {
    let world = {
        let mut world = cloud(11, 200, 10.0, Spin::Ball);
        world.find_contacts(1e-2);
        world
    };
    let solve = |shuffle: u64| {
        let mut contacts = world.contacts.clone();
        contacts.sort_by_key(|c| random::bits(&[shuffle, c.pair.0, c.pair.1]));
        contacts.sort_by_key(|c| c.pair);
        let mut bodies = world.bodies.clone();
        let (mut law, mut warm_start) = (ContactLaw::default(), WarmStart::default());
        for _ in 0..3 {
            law.solve(
                &mut warm_start,
                &mut bodies,
                &contacts,
                Step { dt: 1e-2, acceleration: 0.0, enough: 0.0 },
            );
        }
        bodies.velocity.iter().flat_map(|v| v.to_array()).map(f64::to_bits).collect::<Vec<_>>()
    };
    assert!(!world.contacts.is_empty());
    assert_eq!(solve(1), solve(2));
}

/// A step without first guesses.
fn solve_cold(bodies: &mut Bodies, contacts: &[Contact], step: Step) -> LawStatistics {
    ContactLaw::default().solve(&mut WarmStart::default(), bodies, contacts, step)
}

/// All memory is in the warm start: a new solver in every step gives equal bits, a new warm start does not.
#[test]
fn a_new_solver_goes_on_from_the_warm_start() {
    let run = |renew: fn(&mut World)| {
        let mut world = cloud(7, 300, 10.0, Spin::Ball);
        world.material.restitution = 0.3;
        world.gravity = DVec3::NEG_Z;
        for step in 0..6 {
            // The solvers with and without rolling resistance take turns.
            world.material.rolling = if step % 2 == 0 { 0.1 } else { 0.0 };
            renew(&mut world);
            world.step(1e-2);
        }
        assert!(world.contacts.len() > 100, "{}", world.contacts.len());
        world.bits()
    };
    let kept = run(|_| ());
    assert!(run(|world| world.law = ContactLaw::default()) == kept);
    assert!(run(|world| world.warm_start = WarmStart::default()) != kept);
}

/// Contacts that are solved again for other velocities of the bodies have the solution of a first call, also
/// those that opened before and now close. Velocities are unique without friction.
#[test]
fn what_is_solved_again_is_what_a_first_call_solves() {
    let step = Step { dt: 1e-2, acceleration: G, enough: 0.0 };
    for seed in 0..8 {
        let mut world = cloud(seed, 300, 10.0, Spin::Ball);
        world.law.settings.precision =
            Precision { velocity: 1e-7, duality_gap: 1e-14, ..Precision::default() };
        world.find_contacts(step.dt);
        let mut turned = world.bodies.clone();
        turned.velocity.iter_mut().for_each(|v| *v = -*v);
        world.solve(step);
        let presses =
            |world: &World| -> Vec<bool> { world.law.impulses().iter().map(|p| *p != DVec3::ZERO).collect() };
        let before = presses(&world);
        world.bodies.clone_from(&turned);
        let World { law, warm_start, bodies, contacts, .. } = &mut world;
        let again = law.solve_again(warm_start, bodies, contacts, step);
        let (mut law, mut warm_start) = (ContactLaw::default(), WarmStart::default());
        law.settings = world.law.settings;
        let first = law.solve(&mut warm_start, &mut turned, &world.contacts, step);
        assert!(again.solve.converged && first.solve.converged, "{seed}");
        for (again, first) in world.bodies.velocity.iter().zip(&turned.velocity) {
            assert!(again.distance(*first) < 1e-6, "{seed}: {again} {first}");
        }
        let now = presses(&world);
        assert!(before.iter().zip(&now).any(|(before, now)| !before && *now), "{seed}: none closes");
        assert!(before.iter().zip(&now).any(|(before, now)| *before && !now), "{seed}: none opens");
    }
}

#[test]
fn no_contacts_change_nothing() {
    let mut world = cloud(3, 10, 1.0, Spin::Ball);
    let before = world.bits();
    let Bodies { velocity, .. } = world.bodies.clone();
    let statistics = world.solve(Step { dt: 1e-3, acceleration: G, enough: 0.0 });
    assert!(statistics.solve.converged && world.bodies.velocity == velocity && world.bits() == before);
    let nothing = solve_cold(&mut Bodies::default(), &[], Step { dt: 1e-3, acceleration: G, enough: 0.0 });
    assert_eq!(nothing.solve.energy, 0.0);
}

const G: f64 = 9.81;

/// Glued pairs are a merge: the velocity of mass-weighted means, whatever the mass ratio.
#[test]
fn glued_pairs_move_as_a_merged_particle() {
    for (ratio, count) in [(1.0, 2), (1e6, 2), (3.0, 7), (1e3, 12)] {
        let mut world = World::new(DVec3::ZERO, 0.0);
        world.material.glued = true;
        world.law.settings.precision.impact = 1e-12;
        let mut mean = (0.0, DVec3::ZERO);
        for k in 0..count {
            let (mass, v) = (if k % 2 == 0 { 1.0 } else { ratio }, DVec3::new(k as f64, -(k as f64), 1.0));
            world.push(DVec3::X * 1.9 * k as f64, v, mass, 1.0, Spin::None);
            mean = (mean.0 + mass, mean.1 + mass * v);
        }
        world.step(1e-3);
        for v in &world.bodies.velocity {
            assert!(v.distance(mean.1 / mean.0) < 1e-8, "{ratio} {count}: {v} {}", mean.1 / mean.0);
        }
    }
}

/// Infinite friction with release: a pair that approaches moves as one, a pair that parts is free.
#[test]
fn infinite_friction_holds_what_presses_and_releases_what_parts() {
    let pair = |u: DVec3| {
        let mut world = World::new(DVec3::ZERO, f64::INFINITY);
        world.push(DVec3::ZERO, DVec3::ZERO, 1.0, 1.0, Spin::None);
        world.push(DVec3::X * 1.99, u, 3.0, 1.0, Spin::None);
        world.step(1e-3);
        world.bodies.velocity[1] - world.bodies.velocity[0]
    };
    assert!(pair(DVec3::new(-1e-3, 5.0, 2.0)).length() < 1e-8);
    assert!((pair(DVec3::new(1e-3, 5.0, 2.0)) - DVec3::new(1e-3, 5.0, 2.0)).length() < 1e-12);
}

/// A rigid body of two balls on a bar, hit at one end: its tensor takes spin about the other axes alone.
#[test]
fn a_rigid_body_of_two_balls_turns_by_its_tensor() {
    let (m, half) = (1.0, 3.0);
    let inertia = 2.0 * m * half * half;
    let mut bodies = Bodies::default();
    // No inertia about its own axis, x: nothing turns it there.
    let tensor = DMat3::from_diagonal(DVec3::new(0.0, 1.0 / inertia, 1.0 / inertia));
    let bar = bodies.push(1.0 / (2.0 * m), InverseInertia::Tensor(tensor), DVec3::ZERO, DVec3::ZERO);
    let ball = bodies.push(1.0 / m, InverseInertia::None, DVec3::NEG_Z, DVec3::ZERO);
    let end = Sphere { name: 1, body: bar, centre: DVec3::X * half, offset: DVec3::X * half, radius: 0.5 };
    let hits = DVec3::new(half, 0.0, 0.9);
    let other = Sphere { name: 2, body: ball, centre: hits, offset: DVec3::ZERO, radius: 0.5 };
    let material = ContactMaterial { restitution: 1.0, ..ContactMaterial::default() };
    let contact = Contact::between_spheres(&end, &other, &bodies, material);
    solve_cold(&mut bodies, &[contact], Step { dt: 1e-3, acceleration: 0.0, enough: 0.0 });
    // The bar answers at its end like the mass of one ball: the two swap velocities.
    let at_end = bodies.motion(bar).at(DVec3::X * half);
    assert!((at_end - DVec3::NEG_Z).length() < 1e-12, "{at_end}");
    assert!(bodies.velocity[1].length() < 1e-12 && (bodies.velocity[0].z + 0.5).abs() < 1e-12);
}

/// A model of the response in place of inverse masses: the solution answers to it.
#[test]
fn contacts_answer_to_a_response_of_low_rank() {
    // Two bodies held together by a stiff bar answer as one: B = [1 1; 1 1]/2 in place of the identity.
    let direction = [DVec3::Z * 0.5f64.sqrt(), DVec3::NEG_Z * 0.5f64.sqrt()].into();
    let model = Model {
        neighbours: None,
        bodies: vec![0, 1],
        terms: vec![Term { weight: -1.0, direction, size: 1.0 }],
    };
    let mut bodies = Bodies::default();
    for z in [0.0, 0.0, -4.0] {
        bodies.push(1.0, InverseInertia::None, DVec3::Z * z, DVec3::ZERO);
    }
    bodies.response = Response::Models(vec![model]);
    let sphere = |name: u64, x: f64, z: f64| Sphere {
        name,
        body: name as u32,
        centre: DVec3::new(x, 0.0, z),
        offset: DVec3::ZERO,
        radius: 0.5,
    };
    let (held, ball) = (sphere(0, 0.0, 0.0), sphere(2, 0.0, 0.99));
    let contact = Contact::between_spheres(&held, &ball, &bodies, ContactMaterial::default());
    let statistics = solve_cold(&mut bodies, &[contact], Step { dt: 1e-3, acceleration: 0.0, enough: 0.0 });
    // Mass 1 at -4 against mass 2 at rest.
    for v in &bodies.velocity {
        assert!((v.z + 4.0 / 3.0).abs() < 1e-8, "{:?}", bodies.velocity);
    }
    let energy = 0.5 * 3.0 * (4.0f64 / 3.0).powi(2) - 8.0;
    assert!((statistics.solve.energy - energy).abs() < 1e-7, "{}", statistics.solve.energy);
}

/// Points of triangles, beside one that is a body of its own: momenta are kept, and energy is lost.
#[test]
fn a_point_of_a_triangle_shares_its_impulse_by_the_weights() {
    let corners = [DVec3::ZERO, DVec3::X, DVec3::Y];
    for (inverse, masses) in
        [([1.0, 0.5, 0.25], [1.0, 2.0, 4.0]), ([1.0, 0.0, 0.25], [1.0, f64::INFINITY, 4.0])]
    {
        let mut bodies = Bodies::default();
        for w in inverse {
            bodies.push(w, InverseInertia::None, DVec3::ZERO, DVec3::ZERO);
        }
        let fall = DVec3::new(0.3, -0.2, -2.0);
        let ball = bodies.push(0.2, InverseInertia::None, fall, DVec3::ZERO);
        let weights = [0.5, 0.3, 0.2];
        let foot: DVec3 = (0..3).map(|k| corners[k] * weights[k]).sum();
        let point = bodies.push_blend(Blend { bodies: [0, 1, 2], weights });
        let sphere = |name: u64, body: u32, centre: DVec3, radius: f64| Sphere {
            name,
            body,
            centre,
            offset: DVec3::ZERO,
            radius,
        };
        let (own, other) = (sphere(1, point, foot, 0.1), sphere(2, ball, foot + DVec3::Z * 0.3, 0.2));
        let contact = Contact::between_spheres(&own, &other, &bodies, ContactMaterial::default());
        solve_cold(&mut bodies, &[contact], Step { dt: 1e-3, acceleration: 0.0, enough: 0.0 });
        // One impulse stops the approach: p (1/m + sum w^2/m) = 2.
        let effective: f64 = 0.2 + (0..3).map(|k| weights[k] * weights[k] * inverse[k]).sum::<f64>();
        let impulse = 2.0 / effective;
        for k in 0..3 {
            let expected = DVec3::Z * -impulse * weights[k] * inverse[k];
            assert!((bodies.velocity[k] - expected).length() < 1e-9, "{:?} {expected}", bodies.velocity);
        }
        assert!((bodies.velocity[3] - fall - DVec3::Z * impulse * 0.2).length() < 1e-9);
        let at_point: DVec3 = (0..3).map(|k| bodies.velocity[k] * weights[k]).sum();
        assert!((bodies.velocity[4] - at_point).length() < 1e-12);
        if masses.iter().all(|mass| mass.is_finite()) {
            let turning: DVec3 = (0..3).map(|k| corners[k].cross(bodies.velocity[k] * masses[k])).sum();
            let of_ball = foot.cross((bodies.velocity[3] - fall) * 5.0);
            assert!((turning + of_ball).length() < 1e-12, "{turning} {of_ball}");
        }
    }
}
