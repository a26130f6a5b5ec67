//! Right-hand sides that are rounding alone: Newton's iterations end where rounding does, whatever
//! spins and however fast.

mod support;

use amalgam_particles::DVec3;
use amalgam_particles::random::uniform_f64;
use amalgam_solver_kit::Solver;
use amalgam_solver_solid::SolidSolver;
use support::{angular_momentum, solid, step};

/// A free box at `corner` that spins; its body keys are `more`.
fn spinning(corner: [f64; 3], size: [f64; 3], rate: f64, more: &str) -> SolidSolver {
    let max: Vec<f64> = corner.iter().zip(size).map(|(corner, size)| corner + size).collect();
    let section = format!(
        "newton_iterations = 5\n{more}\ndensity = 1000\nangular_velocity = [0, 0, {rate:?}]\n\
         shape = {{ type = \"box\", min = {corner:?}, max = {max:?} }}\n"
    );
    solid(&section, DVec3::ZERO)
}

const VOLUME: &str =
    "method = \"mass-spring\"\n[[bodies]]\ntype = \"volume\"\nyoung_modulus = 1e6\nspacing = ";
const BONDS: &str = "method = \"peridynamics\"\ntolerance = 1e-6\n[[bodies]]\ntype = \"peridynamic\"\n\
                     young_modulus = 1e6\nspacing = ";

#[test]
fn a_box_spins_at_any_whole_rate() {
    for rate in 0..=12 {
        let mut solid = spinning([-0.1; 3], [0.2; 3], f64::from(rate), &format!("{VOLUME}0.05"));
        for _ in 0..3 {
            step(&mut solid, 1e-3);
        }
    }
}

#[test]
fn boxes_of_any_size_spin_anywhere_at_any_rate() {
    for case in 0..60u64 {
        let random = |what: u64| uniform_f64(&[case, what]);
        let spacing = 10f64.powf(-3.0 + 3.0 * random(0));
        let size = [1, 2, 3].map(|axis| spacing * (1.0 + (3.0 * random(axis)).floor()));
        let corner = [4, 5, 6].map(|axis| 20.0 * random(axis) - 10.0);
        let rate = 10f64.powf(-6.0 + 8.0 * random(7));
        let dt = 10f64.powf(-5.0 + 3.0 * random(8)).min(0.1 / rate);
        let mut solid = spinning(corner, size, rate, &format!("{VOLUME}{spacing:?}"));
        let before = angular_momentum(&solid);
        for _ in 0..3 {
            step(&mut solid, dt);
        }
        let lost = (angular_momentum(&solid) - before).length() / before.length();
        assert!(lost < 0.1, "{case}: {lost}");
    }
}

#[test]
fn bonded_boxes_spin_at_any_rate() {
    for case in 0..20u64 {
        let random = |what: u64| uniform_f64(&[case, what, 1]);
        let spacing = 10f64.powf(-3.0 + 2.0 * random(0));
        let size = [1, 2, 3].map(|axis| spacing * (2.0 + (4.0 * random(axis)).floor()));
        let rate = 10f64.powf(-3.0 + 4.0 * random(7));
        let dt = 10f64.powf(-5.0 + 2.0 * random(8)).min(0.1 / rate);
        let mut solid = spinning([0.0; 3], size, rate, &format!("{BONDS}{spacing:?}"));
        for _ in 0..3 {
            step(&mut solid, dt);
        }
    }
}

/// At rest all that is left is rounding, too.
#[test]
fn a_box_far_away_rests() {
    let mut solid = spinning([90.0, -80.0, 70.0], [0.2; 3], 0.0, &format!("{VOLUME}0.05"));
    for _ in 0..3 {
        step(&mut solid, 1e-3);
    }
    let fastest = solid.particles().velocity.iter().fold(0.0, |most: f64, v| most.max(v.length()));
    assert!(fastest < 1e-9, "{fastest}");
}
