//! HHT-alpha: second order, stable in any step, and spin stays.

mod support;

use amalgam_particles::{DVec3, StepEnd};
use amalgam_solver_kit::Solver;
use amalgam_solver_solid::SolidSolver;
use support::{Groups, angular_momentum, bits, faults, integrate, momentum, set_state, solid, step};

/// Weights of the force at the next three positions and at the first of four, as in `section.rs`.
const WEIGHTS: [f64; 4] = [8.0 / 27.0, 12.0 / 27.0, 6.0 / 27.0, 1.0 / 27.0];

/// A free box of springs that spins at 10 rad/s about its axis, or with a damping ratio beside it.
fn spinning_box(integrator: &str, more: &str) -> SolidSolver {
    let section = format!(
        "method = \"mass-spring\"\nintegrator = \"{integrator}\"\ntolerance = 1e-12\n[[bodies]]\ntype = \"volume\"\n\
         young_modulus = 1e6\nspacing = 0.05\ndensity = 1000\nangular_velocity = [0, 0, 10]\n{more}\n\
         shape = {{ type = \"box\", min = [-0.1, -0.1, -0.1], max = [0.1, 0.1, 0.1] }}\n"
    );
    solid(&section, DVec3::ZERO)
}

#[test]
fn a_box_keeps_its_spin_where_implicit_euler_loses_a_sixth() {
    let kept = |integrator: &str, more: &str| {
        let mut solid = spinning_box(integrator, more);
        let before = angular_momentum(&solid).z;
        for _ in 0..2000 {
            step(&mut solid, 1e-3);
        }
        angular_momentum(&solid).z / before
    };
    let euler = kept("implicit-euler", "");
    assert!((0.75..0.9).contains(&euler), "{euler}");
    for more in ["", "damping_ratio = 0.05"] {
        let hht = kept("hht-alpha", more);
        assert!((hht - 1.0).abs() < 1e-4, "{more}: {hht}");
    }
}

const MASS: f64 = 0.2;
const STIFFNESS: f64 = 800.0;

/// Two masses on a spring along x, whose distance is 1 + 0.01 cos(w t), with velocities half a step
/// before positions.
fn oscillator(dt: f64) -> (SolidSolver, f64) {
    let section = format!(
        "method = \"mass-spring\"\nintegrator = \"hht-alpha\"\ntolerance = 1e-13\n[[bodies]]\ntype = \"points\"\n\
         positions = [[0, 0, 0], [1, 0, 0]]\nmass = {MASS}\nradius = 0.1\n\
         springs = [{{ a = 0, b = 1, stiffness = {STIFFNESS}, rest_length = 1.0 }}]"
    );
    let omega = (2.0 * STIFFNESS / MASS).sqrt();
    let mut solid = solid(&section, DVec3::ZERO);
    let speed = 0.005 * omega * (0.5 * omega * dt).sin();
    let position = vec![DVec3::new(-0.005, 0.0, 0.0), DVec3::new(1.005, 0.0, 0.0)];
    set_state(&mut solid, position, vec![DVec3::X * -speed, DVec3::X * speed]);
    (solid, omega)
}

/// The same without velocities.
fn at_rest(dt: f64) -> SolidSolver {
    let (mut solid, _) = oscillator(dt);
    let position = solid.particles().position.clone();
    set_state(&mut solid, position, vec![DVec3::ZERO; 2]);
    solid
}

fn elongation(solid: &SolidSolver) -> f64 {
    let x = &solid.particles().position;
    x[1].x - x[0].x - 1.0
}

#[test]
fn an_oscillation_is_of_second_order() {
    let error = |steps: u32| {
        let dt = 0.05 / f64::from(steps);
        let (mut solid, omega) = oscillator(dt);
        (0..steps).for_each(|_| drop(step(&mut solid, dt)));
        (elongation(&solid) - 0.01 * (omega * 0.05).cos()).abs() / 0.01
    };
    let errors = [50, 100, 200].map(error);
    assert!(errors[0] < 0.05, "{errors:?}");
    for pair in errors.windows(2) {
        assert!((3.7..4.3).contains(&(pair[0] / pair[1])), "{errors:?}");
    }
}

/// The difference equation of [HilberHughesTaylor1977] without velocities, and what its largest
/// root leaves of an amplitude.
#[test]
fn an_oscillation_decays_as_the_method_says() {
    for (h_omega, kept) in [(0.1, 0.999998), (1.0, 0.989313), (10.0, 0.682528), (1e4, 0.501683)] {
        let omega = (2.0 * STIFFNESS / MASS).sqrt();
        let dt = h_omega / omega;
        let mut solid = at_rest(dt);
        let q = h_omega * h_omega;
        let mut x = [elongation(&solid); 4];
        let mut areas = Vec::new();
        for n in 0..30 {
            step(&mut solid, dt);
            x = [elongation(&solid), x[0], x[1], x[2]];
            let inertia = x[0] - 2.0 * x[1] + x[2];
            let force: f64 = x.iter().zip(WEIGHTS).map(|(x, weight)| q * weight * x).sum();
            // Lengths near 1 are known to 1e-16.
            let scale = x.iter().fold(0.0, |most: f64, x| most.max(x.abs())) + 1e-4;
            assert!(
                (inertia + force).abs() < 1e-8 * (1.0 + q) * scale,
                "{h_omega}: {inertia} {force} at {n}"
            );
            areas.push((x[1] * x[1] - x[0] * x[2]).abs());
        }
        // x[n]^2 - x[n-1] x[n+1] falls by the square of the modulus per step, once the third root
        // has died out.
        if h_omega <= 1.0 {
            let modulus = (areas[28] / areas[18]).powf(0.05);
            assert!((modulus - kept).abs() < 2e-6, "{h_omega}: {modulus}");
        } else {
            assert!(x[0].abs() < 0.02 * 30f64.powi(2) * kept.powi(30), "{h_omega}: {}", x[0]);
        }
    }
}

const SHEET: &str = "method = \"mass-spring\"\nintegrator = \"hht-alpha\"\ntolerance = 1e-12\n[[bodies]]\ntype = \"sheet\"\ncorner = [0, 0, 0]\n\
    edge_u = [1, 0, 0]\nedge_v = [0, 1, 0.1]\nspacing = 0.1\narea_density = 0.2\nstructural_stiffness = 500\ndamping_ratio = 0.05";
const GRAVITY: DVec3 = DVec3::new(0.0, 0.0, -9.81);

/// A sheet that has come into motion.
fn sheet() -> SolidSolver {
    let mut solid = solid(SHEET, GRAVITY);
    let position = solid.particles().position.clone();
    let velocity =
        position.iter().map(|x| DVec3::new(x.y * x.y, -x.x * x.z, 2.0 * (7.0 * x.x).sin())).collect();
    set_state(&mut solid, position, velocity);
    (0..10).for_each(|_| drop(step(&mut solid, 2e-3)));
    solid
}

#[test]
fn groups_of_one_particle_are_no_groups() {
    let (mut solid, dt) = (sheet(), 2e-3);
    solid.begin().expect("begin");
    let none = Groups::none(solid.particles().len());
    let free = integrate(&mut solid, dt, &none);
    let each = Groups::each(solid.particles());
    let grouped = integrate(&mut solid, dt, &each);
    for (i, (a, b)) in free.velocity.iter().zip(&grouped.velocity).enumerate() {
        assert!((*a - *b).length() < 1e-9, "{a} {b}");
        let gained = (*b - each.velocity[i]) * each.inertia[i];
        assert!((grouped.momentum[i] - gained).length() < 1e-12, "{} {gained}", grouped.momentum[i]);
    }
}

/// All forces but gravity are internal: a held group and the others share what gravity gives.
#[test]
fn a_held_group_takes_what_the_others_lose() {
    let (mut solid, dt) = (sheet(), 2e-3);
    let held = Groups::one(
        solid.particles().len(),
        &[12, 13, 24],
        f64::INFINITY,
        DVec3::new(0.3, -0.2, 0.1),
        DVec3::ZERO,
    );
    solid.begin().expect("begin");
    let answer = integrate(&mut solid, dt, &held);
    let particles = solid.particles();
    let free = (0..particles.len()).filter(|i| ![12, 13, 24].contains(i));
    let gained: DVec3 = free.map(|i| (answer.velocity[i] - particles.velocity[i]) * particles.mass[i]).sum();
    let fall = GRAVITY * particles.mass.iter().sum::<f64>() * dt;
    let left = (gained + answer.momentum[0] - fall).length();
    assert!(left < 1e-9 * fall.length().max(gained.length()), "{left}");
    assert!(answer.momentum[0].length() > 1e-3 * gained.length());
}

/// A contact imposes a velocity on one end of a spring that is far too stiff for the step: the
/// spring takes no energy but what the velocity had.
#[test]
fn an_imposed_velocity_brings_no_energy_but_its_own() {
    for h_omega in [0.1, 1.0, 100.0, 1e4] {
        let dt = h_omega / (2.0 * STIFFNESS / MASS).sqrt();
        let mut solid = at_rest(dt);
        let groups = Groups::one(solid.particles().len(), &[1], MASS, DVec3::ZERO, DVec3::ZERO);
        solid.begin().expect("begin");
        let answer = integrate(&mut solid, dt, &groups);
        let (moved, imposed) = ([answer.velocity[1]], [DVec3::X * 3.0]);
        let end = StepEnd {
            dt,
            groups: &groups.map,
            group_velocity: &moved,
            member_velocity: &imposed,
            group_spin: &[],
        };
        solid.commit(&end, &answer.velocity).expect("commit");
        let given = 0.5 * MASS * 9.0 + 0.5 * STIFFNESS * elongation(&solid).powi(2) + 1e-3;
        let snapshot = solid.save().expect("a snapshot");
        let mut restored = at_rest(dt);
        restored.restore(&snapshot).expect("the same solver");
        let report = step(&mut solid, dt);
        assert!(report.energies[0].1 < given, "{h_omega}: {} of {given}", report.energies[0].1);
        let momentum = momentum(&solid).x;
        let expected = MASS * (3.0 + answer.velocity[0].x);
        assert!((momentum - expected).abs() < 1e-9 * expected.abs(), "{h_omega}: {momentum} {expected}");
        step(&mut restored, dt);
        assert_eq!(bits(&solid), bits(&restored), "{h_omega}");
    }
}

/// Twice the step that velocity Verlet could take: bonds break, pieces fly, energy is not made.
#[test]
fn a_block_that_bursts_makes_no_energy() {
    let section = |integrator: &str| {
        format!(
            "method = \"peridynamics\"\nintegrator = \"{integrator}\"\ntolerance = 1e-6\n[[bodies]]\ntype = \"peridynamic\"\n\
             young_modulus = 1e6\nspacing = 0.1\ndensity = 1000\ncritical_stretch = 0.02\nstrength_scatter = 0.3\n\
             shape = {{ type = \"box\", min = [0, 0, 0], max = [1, 1, 0.6] }}\n"
        )
    };
    let dt = 2.0 * solid(&section("velocity-verlet"), DVec3::ZERO).stable_dt();
    let mut solid = solid(&section("hht-alpha"), DVec3::ZERO);
    let position = solid.particles().position.clone();
    let velocity =
        position.iter().map(|x| DVec3::new((5.0 * x.x).sin(), -2.0 * x.x, 2.0 * x.y * x.z)).collect();
    set_state(&mut solid, position, velocity);
    let kinetic = |solid: &SolidSolver| {
        let particles = solid.particles();
        particles.velocity.iter().zip(&particles.mass).map(|(v, m)| 0.5 * m * v.length_squared()).sum::<f64>()
    };
    let (before, given) = (momentum(&solid), kinetic(&solid));
    let (mut broken, mut most) = (0, 0.0);
    for _ in 0..400 {
        let report = step(&mut solid, dt);
        broken += report.broken.len();
        let elastic: f64 = report.energies.iter().map(|(_, energy)| energy).sum();
        most = f64::max(most, kinetic(&solid) + elastic);
    }
    assert!(broken > 100, "{broken}");
    assert!(most < 1.1 * given, "{most} of {given}");
    assert!((momentum(&solid) - before).length() < 1e-5 * before.length());
}

#[test]
fn newtons_iterations_are_refused() {
    let faults = faults(&format!("newton_iterations = 5\n{SHEET}"));
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(format!("{faults:?}").contains("linearised once"), "{faults:?}");
}

/// In longer steps springs that turn under contacts gain energy.
#[test]
fn steps_are_at_most_ten_of_the_longest_explicit_ones() {
    let limit = |integrator: &str| solid(&SHEET.replace("hht-alpha", integrator), GRAVITY).stable_dt();
    assert_eq!(limit("implicit-euler"), f64::INFINITY);
    let ratio = limit("hht-alpha") / limit("velocity-verlet");
    assert!((ratio - 10.0 / 0.9).abs() < 1e-12, "{ratio}");
}
