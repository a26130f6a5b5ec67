//! Start of a fluid: at rest density beside walls and other shapes, or with a warning.

mod common;

use amalgam_particles::DVec3;
use amalgam_solver_fluid::FluidProgram;
use amalgam_solver_kit::{SectionError, SolverProgram};
use common::*;

const TANK: DVec3 = DVec3::new(0.1, 0.1, 0.25);

fn water(method: &str, extra: &str) -> String {
    format!("method = \"{method}\"\nspacing = 0.01\n{extra}")
}

fn cuboid(min: [f64; 3], max: [f64; 3]) -> String {
    format!("\n[[shapes]]\ntype = \"box\"\nmin = {min:?}\nmax = {max:?}\n")
}

/// The largest speed in the first 20 ms [m/s].
fn fastest_start(section: &str, domain: DVec3) -> f64 {
    let mut solver = create(section, &world(domain, 9.81));
    let mut fastest = 0.0;
    run(&mut *solver, 0.02, |solver, _, _| {
        fastest = solver.particles().velocity.iter().map(|v| v.length()).fold(fastest, f64::max);
    });
    fastest
}

fn faults(section: &str, domain: DVec3) -> Vec<SectionError> {
    FluidProgram.create(section, &world(domain, 9.81)).err().expect("a fault")
}

/// The largest density at the start over the rest density.
fn densest(section: &str, domain: DVec3) -> f64 {
    let mut solver = create(section, &world(domain, 9.81));
    field(&mut *solver, "density").into_iter().map(f64::from).fold(0.0, f64::max) / 1000.0
}

/// Free fall for 20 ms gives 0.2 m/s.
#[test]
fn broken_layers_do_not_explode() {
    for (edges, domain) in [
        ([0.1, 0.1, 0.125], TANK),
        ([0.085, 0.1, 0.12], TANK.with_x(0.085)),
        ([0.085, 0.074, 0.125], TANK.with_x(0.085).with_y(0.074)),
        ([0.105, 0.105, 0.125], DVec3::new(0.105, 0.105, 0.125)),
    ] {
        let section = water("sph", "") + &cuboid([0.0; 3], edges);
        let fastest = fastest_start(&section, domain);
        assert!(fastest < 0.3, "{edges:?}: {fastest} m/s");
        assert!(densest(&section, domain) < 1.02, "{edges:?}");
    }
    let section = water("flip", "") + &cuboid([0.0; 3], [0.1, 0.1, 0.125]);
    let fastest = fastest_start(&section, TANK.with_z(0.26));
    assert!(fastest < 0.3, "FLIP: {fastest} m/s");
}

#[test]
fn a_shape_that_touches_a_wall_starts_half_a_spacing_from_it() {
    let cylinder = "\n[[shapes]]\ntype = \"cylinder\"\ncenter = [0.05, 0.05, 0.0625]\naxis = [0, 0, 2]\nradius = 0.03\n\
                    height = 0.125\n";
    let ball = "\n[[shapes]]\ntype = \"sphere\"\ncenter = [0.05, 0.05, 0.0425]\nradius = 0.0425\n";
    let hanging = cuboid([0.02, 0.02, 0.125], [0.08, 0.08, 0.25]);
    for (shape, low) in [(cylinder, true), (ball, true), (hanging.as_str(), false)] {
        let solver = create(&(water("sph", "") + shape), &world(TANK, 9.81));
        let heights = solver.particles().position.iter().map(|x| if low { x.z } else { TANK.z - x.z });
        let nearest = heights.fold(f64::INFINITY, f64::min);
        assert!((nearest - 0.005).abs() < 1e-12, "{shape}: {nearest} m");
    }
}

#[test]
fn shapes_that_meet_keep_a_spacing() {
    let stack = cuboid([0.0; 3], [0.1, 0.1, 0.125]) + &cuboid([0.0, 0.0, 0.125], [0.1, 0.1, 0.22]);
    let section = water("sph", "") + &stack;
    assert!(densest(&section, TANK) < 1.02, "{}", densest(&section, TANK));
    assert!(fastest_start(&section, TANK) < 0.3);
}

/// Volume per particle is kept where an axis is free: a basin 8.5 spacings wide holds as much as its volume
/// asks for.
#[test]
fn a_free_axis_makes_up_for_a_stretched_one() {
    let section = water("sph", "") + &cuboid([0.0; 3], [0.085, 0.1, 0.17]);
    let mut solver = create(&section, &world(DVec3::new(0.085, 0.1, 0.25), 9.81));
    let density = field(&mut *solver, "density");
    let inside = solver.particles().position.iter().zip(density).filter(|(x, _)| x.z < 0.14);
    for (x, density) in inside {
        assert!((density - 1000.0).abs() < 10.0, "{x}: {density}");
    }
    let highest = solver.particles().position.iter().map(|x| x.z).fold(0.0, f64::max);
    assert!((highest - 0.165).abs() < 0.007, "{highest}");
}

#[test]
fn whole_numbers_of_spacings_are_filled_as_ever() {
    let section = water("sph", "hydrostatic = false\n") + &cuboid([0.0; 3], [0.1, 0.1, 0.12]);
    let solver = create(&section, &world(TANK, 9.81));
    let sample = amalgam_particles::shapes::Shape::Box { min: DVec3::ZERO, max: DVec3::new(0.1, 0.1, 0.12) };
    assert_eq!(solver.particles().position, sample.sample(0.01).expect("a good box"));
}

#[test]
fn a_start_too_dense_is_an_error_at_its_shape() {
    // A ball and a box that do not overlap by half a spacing, but are nearer than they may be.
    for method in ["sph", "flip"] {
        let near = cuboid([0.0; 3], [0.1, 0.1, 0.1]) + &cuboid([0.0, 0.0, 0.097], [0.1, 0.1, 0.157]);
        let faults = faults(&(water(method, "") + &near), TANK.with_z(0.26));
        assert_eq!(faults[0].key, "shapes[0]", "{method}: {faults:?}");
        assert!(faults[0].message.contains("above the rest density"), "{method}: {faults:?}");
    }
}

/// Layers are spread between walls as if nothing were cut out, and what is in the cut is left out.
#[test]
fn water_with_a_hole_starts_as_the_whole_does() {
    let domain = DVec3::new(0.085, 0.1, 0.25);
    let whole = create(
        &(water("sph", "hydrostatic = false\n") + &cuboid([0.0; 3], [0.085, 0.1, 0.125])),
        &world(domain, 9.81),
    );
    let cut = "\n[[shapes]]\ntype = \"difference\"\nfrom = { type = \"box\", min = [0, 0, 0], max = [0.085, 0.1, 0.125] }\n\
               subtract = [{ type = \"sphere\", center = [0.04, 0.05, 0.06], radius = 0.03 }]\n";
    let cut = create(&(water("sph", "hydrostatic = false\n") + cut), &world(domain, 9.81));
    let is_left = |x: &&DVec3| x.distance(DVec3::new(0.04, 0.05, 0.06)) > 0.03;
    let left: Vec<DVec3> = whole.particles().position.iter().filter(is_left).copied().collect();
    assert!(left.len() < whole.particles().len() - 50);
    assert_eq!(cut.particles().position, left);
}
