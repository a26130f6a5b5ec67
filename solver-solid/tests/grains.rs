//! Grains with gravity between them: orbits, momentum, the plane, random places.

mod support;

use amalgam_particles::DVec3;
use amalgam_solver_kit::{Alone, Report, Solver, SolverProgram};
use amalgam_solver_solid::{GrainSolver, SolidProgram};
use support::world;

fn grains(section: &str) -> GrainSolver {
    GrainSolver::from_section(&format!("method = \"grains\"\n{section}"), &world(DVec3::ZERO))
        .expect("is right")
}

fn step(grains: &mut GrainSolver, dt: f64) -> Report {
    Alone::default().step_free(grains, dt).expect("a good step")
}

/// Two grains on an ellipse of eccentricity 0.6, G (m1 + m2) = 4, semi-major axis 1: after a period of pi
/// they are back.
#[test]
fn two_grains_follow_kepler() {
    // At the far end: distance 1.6, relative speed sqrt(4 (2/1.6 - 1)) = 1.
    let mut pair = grains(
        "gravitational_constant = 2.0\n[[bodies]]\ntype = \"points\"\npositions = [[0.4, 0, 0], [-1.2, 0, 0]]\n\
         velocities = [[0, 0.25, 0], [0, -0.75, 0]]\nmass = [1.5, 0.5]\nradius = 0.01",
    );
    let spin = |pair: &GrainSolver| -> DVec3 {
        let p = pair.particles();
        (0..2).map(|i| p.position[i].cross(p.velocity[i]) * p.mass[i]).sum()
    };
    let (steps, start, spin_start) = (20_000, pair.particles().clone(), spin(&pair));
    let mut nearest = f64::INFINITY;
    for _ in 0..steps {
        let report = step(&mut pair, std::f64::consts::PI / f64::from(steps));
        let p = pair.particles();
        nearest = nearest.min(p.position[0].distance(p.position[1]));
        let kinetic: f64 = p.velocity.iter().zip(&p.mass).map(|(v, m)| 0.5 * m * v.length_squared()).sum();
        // -G m1 m2 / (2 a), to first order of the step.
        assert!((kinetic + report.energies[0].1 + 0.75).abs() < 1e-3);
    }
    assert!((nearest - 0.4).abs() < 1e-3, "{nearest}");
    for i in 0..2 {
        let miss = pair.particles().position[i].distance(start.position[i]);
        assert!(miss < 2e-3, "{miss} after a period");
    }
    // A central force at the old place, and a way along the new velocity: symplectic Euler keeps this
    // exactly.
    assert!((spin(&pair) - spin_start).length() < 1e-12 * spin_start.length());
}

const CLOUD: &str = "gravitational_constant = 10.0\n[[bodies]]\ntype = \"scatter\"\ncount = 300\nradius = [0.05, 0.2]\n\
                     density = 100.0\nshape = { type = \"sphere\", center = [1, 2, 3], radius = 5 }\n\
                     velocity = [1, 0, 0]\nangular_velocity = [0, 0, 0.1]";

#[test]
fn a_cloud_keeps_its_momentum() {
    let mut cloud = grains(CLOUD);
    let sums = |cloud: &GrainSolver| {
        let p = cloud.particles();
        let momentum = |i: usize| p.velocity[i] * p.mass[i];
        (0..p.len()).fold((DVec3::ZERO, DVec3::ZERO), |(linear, angular), i| {
            (linear + momentum(i), angular + p.position[i].cross(momentum(i)))
        })
    };
    let start = sums(&cloud);
    for _ in 0..100 {
        step(&mut cloud, 1e-3);
    }
    let end = sums(&cloud);
    assert!((end.0 - start.0).length() < 1e-12 * start.0.length());
    assert!((end.1 - start.1).length() < 1e-12 * start.1.length());
}

#[test]
fn scattered_grains_lie_apart_and_depend_on_the_seed() {
    let cloud = grains(CLOUD);
    let p = cloud.particles();
    assert_eq!(p.len(), 300);
    for i in 0..300 {
        assert!((p.position[i] - DVec3::new(1.0, 2.0, 3.0)).length() <= 5.0);
        assert!((0.05..=0.2).contains(&p.radius[i]));
        let volume = 4.0 / 3.0 * std::f64::consts::PI * p.radius[i].powi(3);
        assert!((p.mass[i] / volume - 100.0).abs() < 1e-10);
        for j in 0..i {
            assert!(p.position[i].distance(p.position[j]) >= p.radius[i] + p.radius[j]);
        }
    }
    let other = amalgam_solver_kit::World { seed: 2, ..world(DVec3::ZERO) };
    let other =
        GrainSolver::from_section(&format!("method = \"grains\"\n{CLOUD}"), &other).expect("is right");
    assert_ne!(other.particles().position, p.position);
}

#[test]
fn grains_of_a_plane_stay_in_it() {
    let disc = "two_dimensional = true\ngravitational_constant = 1\n[[bodies]]\ntype = \"scatter\"\ncount = 50\nradius = 0.1\n\
                mass = [1, 2]\nshape = { type = \"cylinder\", center = [0, 0, 0.5], axis = [0, 0, 1], radius = 3, height = 1 }\n\
                velocity = [0, 1, 1]";
    let mut disc = grains(disc);
    for _ in 0..10 {
        step(&mut disc, 0.01);
    }
    assert!(disc.particles().position.iter().all(|x| x.z == 0.5));
    let p = disc.particles();
    assert!(p.velocity.iter().all(|v| v.z == 0.0));
    let momentum: DVec3 = p.velocity.iter().zip(&p.mass).map(|(v, m)| *v * *m).sum();
    let mass: f64 = p.mass.iter().sum();
    assert!((momentum / mass - DVec3::Y).length() < 1e-12);
}

#[test]
fn a_snapshot_goes_on_to_the_same_bits() {
    let (mut first, mut second) = (grains(CLOUD), grains(CLOUD));
    (0..5).for_each(|_| drop(step(&mut first, 1e-3)));
    second.restore(&first.save().expect("a snapshot")).expect("the same solver");
    for _ in 0..5 {
        step(&mut first, 1e-3);
        step(&mut second, 1e-3);
    }
    assert_eq!(first.particles(), second.particles());
    let other = grains(&CLOUD.replace("count = 300", "count = 299"));
    assert!(second.restore(&other.save().expect("a snapshot")).is_err());
}

#[test]
fn faults_name_their_keys() {
    let keys = |section: &str| -> Vec<String> {
        let faults = SolidProgram.create(&format!("method = \"grains\"\n{section}"), &world(DVec3::ZERO));
        faults.err().expect("a fault").into_iter().map(|fault| fault.key).collect()
    };
    assert_eq!(keys(""), ["bodies"]);
    assert_eq!(keys(&CLOUD.replace("10.0", "-1")), ["gravitational_constant"]);
    assert_eq!(keys(&format!("opening_angle = 2\n{CLOUD}")), ["opening_angle"]);
    assert_eq!(keys(&CLOUD.replace("count = 300", "count = 30000")), ["bodies[0].count"]);
    assert_eq!(keys(&CLOUD.replace("[0.05, 0.2]", "[0.2, 0.05]")), ["bodies[0].radius"]);
    assert_eq!(keys(&CLOUD.replace("density = 100.0", "")), ["bodies[0].density"]);
    assert_eq!(keys(&CLOUD.replace("radius = 5", "radius = -5")), ["bodies[0].shape.radius"]);
    let two = "[[bodies]]\ntype = \"points\"\nmass = 1\nradius = 0.1\npositions = [[0, 0, 0], [1, 0, 1]]\n";
    assert_eq!(keys(&format!("two_dimensional = true\n{two}")), ["two_dimensional"]);
    assert_eq!(keys(&format!("{two}springs = [{{ a = 0, b = 1, stiffness = 1 }}]")), ["bodies"]);
    assert_eq!(keys(&format!("{two}foundation = {{ stiffness = 1 }}")), ["bodies"]);
    let together = two.replace("[1, 0, 1]", "[0, 0, 0]");
    let section = format!("method = \"grains\"\ngravitational_constant = 1\n{together}");
    let mut together = GrainSolver::from_section(&section, &world(DVec3::ZERO)).expect("is right");
    let error = together.begin().expect_err("an infinite force").to_string();
    assert!(error.contains("particle 0") && error.contains("softening"), "{error}");
}
