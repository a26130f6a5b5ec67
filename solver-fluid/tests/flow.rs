//! Flows with a known answer: the decay of a vortex, the collapse of a column of water.

mod common;

use amalgam_particles::DVec3;
use amalgam_solver_fluid::{section, sph::Sph};
use common::*;

/// The vortex of Taylor and Green in a box with frictionless walls, u = U (sin kx cos kz, 0, -cos kx sin kz) with
/// k = pi / L: its kinetic energy decays as exp(-4 nu k^2 t).
#[test]
fn a_vortex_decays_by_viscosity() {
    for (keys, nu) in [
        ("viscosity = 50", 0.05),
        ("viscosity = 200", 0.2),
        ("viscosity = 100\nsmoothing_ratio = 1.3", 0.1),
        ("kernels = \"mueller\"\nviscosity = 100", 0.1),
    ] {
        let relative = decay(keys) / nu;
        println!("{keys}: rate of decay over theory {relative:.4}");
        assert!((relative - 1.0).abs() < 0.03, "{keys}: {relative}");
    }
}

/// The kinematic viscosity [m^2/s] that the decay of a vortex shows. The box is filled a little too densely, so that
/// pressure stays positive all over; more than a little, and the lattice resists shear like a solid.
fn decay(keys: &str) -> f64 {
    let edge = 0.999;
    let section = format!(
        "spacing = 0.05\nsound_speed = 3\n{keys}\n[[shapes]]\ntype = \"box\"\nmin = [0, 0, 0]\nmax = [1, 0.3, 1]"
    );
    let (mut parameters, mut particles) =
        section::read(&section, &world(DVec3::new(1.0, 0.3, 1.0), 0.0)).expect("a good section");
    let walls = parameters.walls.as_mut().expect("walls");
    walls.max *= edge;
    let k = std::f64::consts::PI / edge;
    for (x, v) in particles.position.iter_mut().zip(&mut particles.velocity) {
        *x *= edge;
        *v = 0.1 * DVec3::new((k * x.x).sin() * (k * x.z).cos(), 0.0, -(k * x.x).cos() * (k * x.z).sin());
    }
    let mut solver = Sph::new(parameters, particles);
    let (mut early, mut late) = (None, (0.0, 0.0));
    run(&mut solver, 0.4, |solver, time, _| {
        late = (time, kinetic_energy(solver));
        if time > 0.05 && early.is_none() {
            early = Some(late);
        }
    });
    let early = early.expect("steps");
    (early.1 / late.1).ln() / (late.0 - early.0) / (4.0 * k * k)
}

/// Front over the column's width against T = t sqrt(2 g / a), table 2 of [MartinMoyce1952] for n^2 = 2.
const FRONT: [(f64, f64); 15] = [
    (0.41, 1.11),
    (0.84, 1.22),
    (1.19, 1.44),
    (1.43, 1.67),
    (1.63, 1.89),
    (1.83, 2.11),
    (1.98, 2.33),
    (2.2, 2.56),
    (2.32, 2.78),
    (2.51, 3.0),
    (2.65, 3.22),
    (2.83, 3.44),
    (2.98, 3.67),
    (3.11, 3.89),
    (3.33, 4.11),
];

/// Height at the wall over the initial one against t sqrt(g / a), table 6 of [MartinMoyce1952], as long as the
/// computed front has not reached the end of the tank.
const HEIGHT: [(f64, f64); 11] = [
    (0.56, 0.94),
    (0.77, 0.89),
    (0.93, 0.83),
    (1.08, 0.78),
    (1.28, 0.72),
    (1.46, 0.67),
    (1.66, 0.61),
    (1.84, 0.56),
    (2.0, 0.5),
    (2.21, 0.44),
    (2.45, 0.39),
];

/// The value of a table at `at`, linear in between.
fn interpolate(table: &[(f64, f64)], at: f64) -> f64 {
    let k = table.partition_point(|row| row.0 < at).clamp(1, table.len() - 1);
    let ((x0, y0), (x1, y1)) = (table[k - 1], table[k]);
    y0 + (y1 - y0) * (at - x0) / (x1 - x0)
}

/// The slope of the line fitted to points by least squares.
fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let (mx, my) = points.iter().fold((0.0, 0.0), |(x, y), p| (x + p.0 / n, y + p.1 / n));
    let products = points.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum::<f64>();
    products / points.iter().map(|p| (p.0 - mx).powi(2)).sum::<f64>()
}

/// Root mean square of a table's differences from a computed curve that is late by `shift`.
fn difference(table: &[(f64, f64)], curve: &[(f64, f64)], shift: f64) -> f64 {
    let squares = table.iter().map(|&(t, y)| (interpolate(curve, t - shift) - y).powi(2));
    (squares.sum::<f64>() / table.len() as f64).sqrt()
}

/// The shift that makes the difference least.
fn best_shift(table: &[(f64, f64)], curve: &[(f64, f64)]) -> f64 {
    let shifts = (-40..=60).map(|k| 0.01 * f64::from(k));
    shifts
        .min_by(|&a, &b| difference(table, curve, a).total_cmp(&difference(table, curve, b)))
        .expect("shifts")
}

#[test]
fn a_column_collapses_as_measured() {
    let a = 0.05715;
    let spacing = a / 20.0;
    for keys in ["", "kernels = \"mueller\""] {
        let section = format!(
            "spacing = {spacing}\n{keys}\n[[shapes]]\ntype = \"box\"\nmin = [0, 0, 0]\nmax = [{a}, {}, {}]",
            6.0 * spacing,
            2.0 * a
        );
        let mut solver = create(&section, &world(DVec3::new(5.0 * a, 6.0 * spacing, 2.5 * a), 9.81));
        let (mut front, mut height) = (Vec::new(), Vec::new());
        run(&mut *solver, 3.4 / (2.0 * 9.81 / a).sqrt(), |solver, time, _| {
            let positions = &solver.particles().position;
            let farthest = positions.iter().map(|x| x.x).fold(0.0, f64::max) + 0.5 * spacing;
            let at_wall = positions.iter().filter(|x| x.x < 2.0 * spacing);
            let highest = at_wall.map(|x| x.z).fold(0.0, f64::max) + 0.5 * spacing;
            front.push((time * (2.0 * 9.81 / a).sqrt(), farthest / a));
            height.push((time * (9.81 / a).sqrt(), highest / (2.0 * a)));
        });
        let shift = best_shift(&FRONT, &front);
        let moving: Vec<(f64, f64)> = FRONT.into_iter().filter(|row| row.1 > 1.4).collect();
        let computed: Vec<(f64, f64)> =
            moving.iter().map(|&(t, _)| (t, interpolate(&front, t - shift))).collect();
        let speed = slope(&computed) / slope(&moving);
        let height_shift = best_shift(&HEIGHT, &height);
        let rms = difference(&HEIGHT, &height, height_shift);
        println!(
            "{keys}: front {speed:.3} of measured speed, shift {shift:.2}; height rms {rms:.4}, shift {height_shift:.2}"
        );
        assert!((0.9..1.27).contains(&speed), "front at {speed} of the measured speed");
        assert!(rms < 0.05, "height off by {rms}");
    }
}

/// A disc fills a tank until a time; a sink empties it from the bottom. Nothing is counted twice, no id comes again,
/// and a restored fluid goes on to the same bits.
#[test]
fn emitters_and_sinks_keep_account() {
    let section = "spacing = 0.05\n[[shapes]]\ntype = \"box\"\nmin = [0, 0, 0]\nmax = [1, 1, 0.2]\n\
                   [[emitters]]\ncenter = [0.5, 0.5, 0.9]\naxis = [0, 0, -1]\nradius = 0.15\nspeed = 2\nuntil = 0.25\n\
                   [[sinks]]\nmin = [0, 0, 0]\nmax = [0.3, 0.3, 0.1]";
    let world = world(DVec3::ONE, 9.81);
    let mut solver = create(section, &world);
    let start = solver.particles().len();
    let (mut alive, mut born, mut dead) =
        (solver.particles().id.clone().into_iter().collect::<std::collections::BTreeSet<_>>(), 0, 0);
    let mut largest = *alive.last().expect("particles");
    let mut snapshot = None;
    let (mut time, mut dt) = (0.0, solver.stable_dt());
    while time < 0.5 {
        let groups = Groups::none(solver.particles().len());
        let report = step(&mut *solver, &groups, dt);
        (time, dt) = (time + dt, report.stable_dt);
        for id in &report.dead {
            assert!(alive.remove(id), "{id} died twice");
        }
        for id in &report.born {
            assert!(*id > largest && time < 0.26, "{id} was used before");
            largest = *id;
            alive.insert(*id);
        }
        (born, dead) = (born + report.born.len(), dead + report.dead.len());
        let now: std::collections::BTreeSet<_> = solver.particles().id.iter().copied().collect();
        assert_eq!(now, alive);
        solver.particles().validate().expect("valid particles");
        if snapshot.is_none() && time > 0.1 {
            snapshot = Some((solver.save().expect("checkpoints"), time, dt));
        }
    }
    // Ten layers of the 29 lattice points within three spacings.
    assert_eq!(born, 10 * 29);
    assert!(dead > 100, "{dead} swallowed of {start}");

    let (snapshot, mut time, mut dt) = snapshot.expect("a snapshot");
    let mut restored = create(section, &world);
    restored.restore(&snapshot).expect("own snapshot");
    while time < 0.5 {
        let groups = Groups::none(restored.particles().len());
        let report = step(&mut *restored, &groups, dt);
        (time, dt) = (time + dt, report.stable_dt);
    }
    assert_eq!(restored.particles(), solver.particles());
}
