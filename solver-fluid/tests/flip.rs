//! FLIP alone: water at rest, a collapsing column, a thrown ball, groups.

mod common;

use amalgam_particles::{DVec3, GroupMap};
use amalgam_solver_kit::Solver;
use common::{Groups, create, field, integrate, kinetic_energy, momentum, run, step, world};

const GRAVITY: f64 = 9.81;

/// A tank of 16 x 8 cells, 20 high, with 10 layers of filled cells from `bottom` on [m].
fn tank(bottom: f64) -> Box<dyn Solver> {
    let section = format!(
        "method = 'flip'\nspacing = 0.025\n[[shapes]]\ntype = 'box'\nmin = [0, 0, {bottom}]\n\
         max = [0.8, 0.4, {}]\n",
        bottom + 0.5
    );
    create(&section, &world(DVec3::new(0.8, 0.4, 1.0), GRAVITY))
}

fn height(solver: &dyn Solver) -> f64 {
    let particles = solver.particles();
    particles.position.iter().map(|x| x.z).sum::<f64>() / particles.len() as f64
}

#[test]
fn water_at_rest_stays_at_rest_under_its_hydrostatic_pressure() {
    let mut solver = tank(0.0);
    let start = height(solver.as_ref());
    let mass: f64 = solver.particles().mass.iter().sum();
    let mut largest = 0.0f64;
    run(solver.as_mut(), 2.0, |solver, time, _| {
        if time > 1.0 {
            largest = largest.max(kinetic_energy(solver));
        }
    });
    let drift = height(solver.as_ref()) / start - 1.0;
    let scale = mass * GRAVITY * 0.5;
    assert!(drift.abs() < 0.02, "the centre of mass moved by {drift}");
    assert!(largest < 1e-4 * scale, "kinetic energy {:.2e} m g H", largest / scale);
    // Pressure in a cell is that of its centre; the surface's cells are full.
    let pressure = field(solver.as_ref(), "pressure");
    let (mut worst, mut bottom) = (0.0f64, 0.0f64);
    for (x, &pressure) in solver.particles().position.iter().zip(&pressure) {
        let z = (x.z / 0.05).floor() * 0.05 + 0.025;
        let expected = 1000.0 * GRAVITY * (0.5 - z);
        worst = worst.max((f64::from(pressure) - expected).abs());
        if z < 0.05 {
            bottom = bottom.max((f64::from(pressure) / expected - 1.0).abs());
        }
    }
    let profile = worst / (1000.0 * GRAVITY * 0.5);
    assert!(bottom < 0.02 && profile < 0.03, "bottom {bottom}, profile {profile}");
}

#[test]
fn a_ball_in_flight_keeps_momentum_and_shape() {
    let section = "method = 'flip'\nspacing = 0.025\n[[shapes]]\ntype = 'sphere'\ncenter = [0.5, 0.5, 0.5]\n\
                   radius = 0.2\nvelocity = [0.4, 0, 2.0]\n";
    let mut solver = create(section, &world(DVec3::splat(1.5), GRAVITY));
    let mass: f64 = solver.particles().mass.iter().sum();
    let before = momentum(solver.as_ref());
    let mut end = 0.0;
    run(solver.as_mut(), 0.2, |_, time, _| end = time);
    let expected = before + DVec3::NEG_Z * (mass * GRAVITY * end);
    let error = (momentum(solver.as_ref()) - expected).length() / before.length();
    // What particles bring and take is f32.
    assert!(error < 1e-7, "momentum is off by {error:.1e}");
    let particles = solver.particles();
    let middle = particles.position.iter().sum::<DVec3>() / particles.len() as f64;
    let radius = particles.position.iter().map(|x| x.distance(middle)).fold(0.0, f64::max);
    assert!((radius / 0.2 - 1.0).abs() < 0.1, "radius {radius}");
}

/// The lowest layer of water is held in the air as one heavy group: it must bear the weight of all above it.
#[test]
fn a_group_that_is_held_takes_the_weight_above_it() {
    let mut solver = tank(0.25);
    let all = solver.particles().position.iter().enumerate();
    let members: Vec<u32> = all.filter(|(_, x)| x.z < 0.3).map(|(i, _)| i as u32).collect();
    let above: f64 = solver.particles().mass.iter().sum();
    let mut map = GroupMap::default();
    map.set(solver.particles().len(), &[0, members.len() as u32], &members);
    let inertia = 1e9;
    let groups = Groups { map, inertia: vec![inertia], velocity: vec![DVec3::ZERO] };
    let dt = 2e-3;
    let mut given = DVec3::ZERO;
    for _ in 0..50 {
        solver.begin().expect("a good state");
        let answer = integrate(solver.as_mut(), &groups, dt, 1);
        given = answer.momentum[0] / dt;
        step(solver.as_mut(), &groups, dt);
    }
    let weight = above * GRAVITY;
    assert!((-given.z / weight - 1.0).abs() < 0.02, "the group carries {} of {weight} N", -given.z);
}

/// A column that collapses, in `threads`: positions and velocities as bits.
fn collapsed(threads: usize) -> Vec<u64> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
    pool.install(|| {
        let section = "method = 'flip'\nspacing = 0.025\n[[shapes]]\ntype = 'box'\nmin = [0, 0, 0]\nmax = [0.2, 0.4, 0.6]\n";
        let mut solver = create(section, &world(DVec3::new(0.8, 0.4, 1.0), GRAVITY));
        run(solver.as_mut(), 0.15, |_, _, _| ());
        bits(solver.as_ref())
    })
}

fn bits(solver: &dyn Solver) -> Vec<u64> {
    let particles = solver.particles();
    let columns = particles.position.iter().chain(&particles.velocity);
    columns.flat_map(|v| v.to_array().map(f64::to_bits)).collect()
}

#[test]
fn threads_do_not_change_a_bit() {
    let one = collapsed(1);
    assert_eq!(collapsed(2), one);
    assert_eq!(collapsed(3), one);
}

#[test]
fn a_restored_fluid_goes_on_to_the_same_bits() {
    let advance = |solver: &mut dyn Solver| {
        let groups = Groups::none(solver.particles().len());
        (0..20).for_each(|_| drop(step(solver, &groups, 2e-3)));
    };
    let mut whole = tank(0.2);
    advance(whole.as_mut());
    let snapshot = whole.save().expect("keeps checkpoints");
    advance(whole.as_mut());
    let mut restored = tank(0.2);
    restored.restore(&snapshot).expect("its own");
    advance(restored.as_mut());
    assert_eq!(bits(whole.as_ref()), bits(restored.as_ref()));
    assert!(tank(0.2).restore(&snapshot[..100]).is_err());
}
