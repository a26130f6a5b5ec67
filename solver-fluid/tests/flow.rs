//! Flows with a known answer: the decay of a vortex, the collapse of a column of water.

mod common;

use amalgam_particles::DVec3;
use amalgam_solver_fluid::{section, sph::Sph};
use common::*;

/// The vortex of Taylor and Green in a box with frictionless walls, u = U (sin kx cos kz, 0, -cos kx sin kz) with
/// k = pi / L: its kinetic energy decays as exp(-4 nu k^2 t).
#[test]
fn a_vortex_decays_by_viscosity() {
    const DENSITY: f64 = 1000.0;
    // (keys, kinematic viscosity [m^2/s], tolerance of the rate of decay)
    for (keys, nu, tolerance) in [
        ("viscosity = 10", 0.01, 0.05),
        ("viscosity = 30", 0.03, 0.05),
        ("kernels = \"mueller\"\nviscosity = 20", 0.02, 0.1),
    ] {
        // Filled three percent too densely, so that pressure stays positive all over.
        let edge = 0.99;
        let section = format!(
            "spacing = 0.05\nrest_density = {DENSITY}\nsound_speed = 3\nwalls = true\n{keys}\n[[shapes]]\n\
             type = \"box\"\nmin = [0, 0, 0]\nmax = [1, 0.3, 1]"
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
        run(&mut solver, 1.2, |solver, time, _| {
            late = (time, kinetic_energy(solver));
            if time > 0.2 && early.is_none() {
                early = Some(late);
            }
        });
        let early = early.expect("steps");
        let rate = (early.1 / late.1).ln() / (late.0 - early.0);
        let relative = rate / (4.0 * nu * k * k);
        println!("{keys}: rate of decay over theory {relative:.4}");
        assert!((relative - 1.0).abs() < tolerance, "{keys}: {relative}");
    }
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
