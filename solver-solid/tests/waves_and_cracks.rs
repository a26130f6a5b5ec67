//! Peridynamics against theory: dispersion of waves, decay under implicit Euler, energy of a crack.

mod support;

use amalgam_particles::DVec3;
use amalgam_solver_kit::Solver;
use support::{Groups, integrate, set_state, solid, step};

/// Phase speed of plane waves over sqrt(E/rho) in a bar with c = 2E/(A d^2), volumes at the horizon counted
/// half: horizon in spacings, wave number times horizon over pi, discrete value.
const DISPERSION: [(f64, f64, f64); 9] = [
    (2.0, 0.1, 0.99743367),
    (2.0, 0.4, 0.95986234),
    (2.0, 0.8, 0.85086042),
    (3.0, 0.1, 0.99771849),
    (3.0, 0.4, 0.96423871),
    (3.0, 0.8, 0.86612921),
    (4.0, 0.1, 0.99781814),
    (4.0, 0.4, 0.96576077),
    (4.0, 0.8, 0.87134266),
];

/// A standing wave in the middle of a long bar, timed by its amplitude's fall to zero and below.
#[test]
fn waves_in_a_bar_travel_at_the_theoretical_speed() {
    let (spacing, modulus, density): (f64, f64, f64) = (0.01, 1e6, 1000.0);
    let speed = (modulus / density).sqrt();
    for (horizon, wave, expected) in DISPERSION {
        let number = wave * std::f64::consts::PI / (horizon * spacing);
        let period = 2.0 * std::f64::consts::PI / (number * speed * expected);
        // Long enough that its ends are not heard in the middle within a period.
        let count = 2 * (1.2 * speed * period / spacing) as usize + 41;
        let mut bar = solid(
            &format!(
                "method = \"peridynamics\"\nintegrator = \"velocity-verlet\"\n[[bodies]]\ntype = \"peridynamic\"\n\
                 shape = {{ type = \"box\", min = [0, 0, 0], max = [{}, {spacing}, {spacing}] }}\nspacing = {spacing}\n\
                 density = {density}\nyoung_modulus = {modulus}\nmodel = \"bar\"\nhorizon = {horizon}",
                count as f64 * spacing
            ),
            DVec3::ZERO,
        );
        assert_eq!(bar.particles().len(), count);
        let rest = bar.particles().position.clone();
        let middle = rest[count / 2].x;
        let amplitude = 1e-4 * spacing;
        let shape = |x: f64| amplitude * (number * (x - middle)).cos();
        let displaced = rest.iter().map(|x| *x + DVec3::X * shape(x.x)).collect();
        set_state(&mut bar, displaced, vec![DVec3::ZERO; count]);
        let dt = period / 2000.0;
        let (mut before, mut time) = (amplitude, 0.0);
        let crossing = loop {
            step(&mut bar, dt);
            time += dt;
            let now = bar.particles().position[count / 2].x - middle;
            if now <= 0.0 {
                break time - dt * now / (now - before);
            }
            before = now;
            assert!(time < period, "no crossing");
        };
        let measured = std::f64::consts::PI / 2.0 / crossing / (number * speed);
        assert!((measured / expected - 1.0).abs() < 0.02, "{horizon} {wave}: {measured}, not {expected}");
    }
}

/// The lowest longitudinal mode of a free block under implicit Euler: the amplitude of an oscillator of
/// frequency w falls by (1 + w^2 h^2)^(-1/2) a step.
#[test]
fn implicit_euler_damps_as_theory_says() {
    let mut solid = solid(
        "method = \"peridynamics\"\ntolerance = 1e-7\n[[bodies]]\ntype = \"peridynamic\"\n\
         shape = { type = \"points\", positions = [[0, 0, 0], [0.1, 0, 0]] }\nspacing = 0.1\ndensity = 1000\n\
         young_modulus = 1e6\nhorizon = 1.0\ncalibration = \"continuum\"",
        DVec3::ZERO,
    );
    // Two particles and one bond: stiffness from the constants of the material, with half of the volume
    // inside.
    let (volume, horizon): (f64, f64) = (1e-3, 0.1);
    let stiffness = 0.5 * 12.0 * 1e6 / (std::f64::consts::PI * horizon.powi(4)) * volume * volume / 0.1;
    let square = 2.0 * stiffness / (1000.0 * volume);
    let dt: f64 = 0.3 / square.sqrt();
    let stretched = vec![DVec3::new(-1e-4, 0.0, 0.0), DVec3::new(0.1001, 0.0, 0.0)];
    set_state(&mut solid, stretched, vec![DVec3::ZERO; 2]);
    let amplitude = |solid: &amalgam_solver_solid::SolidSolver| {
        let particles = solid.particles();
        let elongation = particles.position[1].x - particles.position[0].x - 0.1;
        let rate = particles.velocity[1].x - particles.velocity[0].x;
        // Conserved up to the decay by the discrete oscillator.
        elongation.hypot(rate / square.sqrt())
    };
    let before = amplitude(&solid);
    for _ in 0..20 {
        step(&mut solid, dt);
    }
    let decay = (1.0 + square * dt * dt).powf(-10.0);
    assert!(
        (amplitude(&solid) / before / decay - 1.0).abs() < 1e-3,
        "{}",
        amplitude(&solid) / before / decay
    );
}

/// A block is opened at its middle plane, its halves rigid, until every bond across is broken: the work done
/// by area is the fracture energy, but for the bonds that are missing at the sides.
#[test]
fn a_crack_takes_its_fracture_energy() {
    let (spacing, modulus, energy): (f64, f64, f64) = (0.1, 1e6, 5.0);
    for (model, layers) in [("solid", 30), ("plane-stress", 1), ("plane-strain", 1)] {
        let mut solid = solid(
            &format!(
                "method = \"peridynamics\"\n[[bodies]]\ntype = \"peridynamic\"\nshape = {{ type = \"box\", min = [0, 0, 0], \
                 max = [0.8, 6, {:?}] }}\nspacing = {spacing}\ndensity = 1000\nyoung_modulus = {modulus}\nmodel = \"{model}\"\n\
                 fracture_energy = {energy}",
                f64::from(layers) * spacing
            ),
            DVec3::ZERO,
        );
        let rest = solid.particles().position.clone();
        let still = vec![DVec3::ZERO; rest.len()];
        // Stretches are some 1e-2 at breaking, and the most oblique bonds need ten times that over a spacing.
        let (opening, mut work, mut broken, mut last) = (4e-5, 0.0, 0, 0.0);
        for k in 1.. {
            let open = |x: &DVec3| *x + DVec3::X * if x.x > 0.4 { opening * f64::from(k) } else { 0.0 };
            set_state(&mut solid, rest.iter().map(open).collect(), still.clone());
            let mut groups = Groups::each(solid.particles());
            groups.inertia.fill(f64::INFINITY);
            solid.begin().expect("begin");
            let force = |answer: &[DVec3]| -> f64 {
                rest.iter().zip(answer).filter(|(x, _)| x.x > 0.4).map(|(_, j)| -j.x / 1e-9).sum()
            };
            // Up to here with the bonds of the last opening, which break only now.
            let pull = force(&integrate(&mut solid, 1e-9, &groups).momentum);
            work += 0.5 * (last + pull) * opening;
            broken += step(&mut solid, 1e-9).broken.len();
            solid.begin().expect("begin");
            last = force(&integrate(&mut solid, 1e-9, &groups).momentum);
            if k > 5 && last == 0.0 {
                break;
            }
            assert!(k < 2000, "the halves still hold together");
        }
        let ratio = work / (6.0 * f64::from(layers) * spacing) / energy;
        println!("{model}: {ratio:.3} of the fracture energy, {broken} bonds");
        assert!((ratio - 1.0).abs() < 0.1, "{model}: {ratio}");
    }
}
