//! Stiffness of a weakly compressible fluid, by default and under load.

mod common;

use amalgam_particles::DVec3;
use amalgam_solver_kit::{Solver, SolverError};
use common::*;

/// A ball at the floor of a domain of this height [m].
fn ball(height: f64) -> Box<dyn Solver> {
    let section = "spacing = 0.01\n[[shapes]]\ntype = \"sphere\"\ncenter = [0.5, 0.5, 0.05]\nradius = 0.05";
    create(section, &world(DVec3::new(1.0, 1.0, height), 9.81))
}

/// Ten times the speed of a fall of 0.1 m is 14 m/s.
#[test]
fn air_above_a_fluid_does_not_shorten_its_step() {
    let (low, high) = (ball(0.5).stable_dt(), ball(2000.0).stable_dt());
    assert_eq!(low.to_bits(), high.to_bits());
    let courant = 0.4 * 0.01 / (10.0 * (2.0f64 * 9.81 * 0.1).sqrt());
    assert!((high / courant - 1.0).abs() < 0.05, "{high} s, not {courant} s");
}

/// Steps until an error, at most `count` of them.
fn first_error(solver: &mut dyn Solver, count: usize) -> Option<SolverError> {
    let groups = Groups::none(solver.particles().len());
    for _ in 0..count {
        if let Err(error) = solver.begin() {
            return Some(error);
        }
        let dt = solver.stable_dt();
        step(solver, &groups, dt);
    }
    None
}

/// Half a metre of water at 3 m/s, whose bottom bears half of `rest_density sound_speed^2`, is no water.
#[test]
fn a_fluid_too_soft_for_its_load_ends_the_run() {
    let tank = |sound_speed: f64| {
        let section = format!(
            "spacing = 0.025\nsound_speed = {sound_speed}\n[[shapes]]\ntype = \"box\"\nmin = [0, 0, 0]\nmax = [0.2, 0.2, 0.5]"
        );
        create(&section, &world(DVec3::new(0.2, 0.2, 0.6), 9.81))
    };
    let error = first_error(&mut *tank(3.0), 1000).expect("an error").to_string();
    let advice = error.rsplit("write sound_speed = ").next().expect("what to write");
    let advised: f64 = advice.split(',').next().expect("a number").parse().expect("a number");
    assert!(advised > 5.0 && advised < 40.0, "{error}");
    assert!(first_error(&mut *tank(advised), 1000).is_none());
}
