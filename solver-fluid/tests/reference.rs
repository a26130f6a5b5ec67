//! Densities and accelerations against the sums written out in f64 over all pairs and all mirror images.

mod common;

use amalgam_particles::{DVec3, random};
use amalgam_solver_fluid::{
    section,
    sph::{Parameters, evaluation::Evaluation, kernel::Kernel},
};
use common::world;

/// A disordered fluid in a box: a lattice whose points are moved by up to 0.2 spacings, with random velocities.
fn fluid(section: &str, domain: DVec3) -> (Parameters, Vec<DVec3>, Vec<DVec3>) {
    let (parameters, particles) = section::read(section, &world(domain, 9.81)).expect("a good section");
    let noise = |i: usize, purpose: u64| {
        DVec3::from_array([0, 1, 2].map(|axis| 2.0 * random::uniform_f64(&[i as u64, axis, purpose]) - 1.0))
    };
    let positions = particles
        .position
        .iter()
        .enumerate()
        .map(|(i, &x)| x + 0.2 * parameters.spacing * noise(i, 1))
        .collect();
    let velocities = (0..particles.len()).map(|i| noise(i, 2)).collect();
    (parameters, positions, velocities)
}

/// Every image of a particle in the walls, itself included, as position and velocity.
fn images(parameters: &Parameters, position: DVec3, velocity: DVec3) -> Vec<(DVec3, DVec3)> {
    let mut images = vec![(position, velocity)];
    let Some(walls) = parameters.walls else { return images };
    for axis in 0..3 {
        for image in images.clone() {
            for plane in [walls.min[axis], walls.max[axis]] {
                let (mut x, mut v) = image;
                x[axis] = 2.0 * plane - x[axis];
                v[axis] = -v[axis];
                images.push((x, v));
            }
        }
    }
    images
}

fn check(section: &str, domain: DVec3) {
    let (parameters, positions, velocities) = fluid(section, domain);
    let mut evaluation = Evaluation::default();
    evaluation.find_densities(&parameters, &positions);
    evaluation.find_accelerations(&parameters, &velocities);

    let kernel = Kernel { support_radius: parameters.support_radius };
    let calibration =
        1.0 / (parameters.spacing.powi(3) * kernel.value(0.0) * kernel.lattice_sum(parameters.spacing));
    let rest_density = parameters.state.rest_density;
    let all: Vec<Vec<(DVec3, DVec3)>> =
        positions.iter().zip(&velocities).map(|(&x, &v)| images(&parameters, x, v)).collect();
    let mass = parameters.mass;
    let density: Vec<f64> = positions
        .iter()
        .map(|&x| all.iter().flatten().map(|&(y, _)| mass * calibration * kernel.value(x.distance(y))).sum())
        .collect();
    for (x, rho) in evaluation.compressions().zip(&density) {
        assert!((x * rest_density / rho - 1.0).abs() < 2e-6, "{x} {}", rho / rest_density);
    }
    let pressure =
        |i: usize| parameters.state.pressure(density[i] / rest_density) / (density[i] * density[i]);
    let mut compressed = 0;
    for (i, &x) in positions.iter().enumerate() {
        compressed += usize::from(pressure(i) > 0.0);
        let (mut expected, mut size) = (DVec3::ZERO, 0.0);
        for (j, of_j) in all.iter().enumerate() {
            for &(y, v) in of_j {
                let gradient = calibration * kernel.gradient(x - y);
                let mut pair = -mass * (pressure(i) + pressure(j)) * gradient;
                if x != y {
                    let slope = gradient.dot(x - y) / x.distance_squared(y);
                    let volumes = mass / density[i] * mass / density[j];
                    pair += 2.0 * parameters.viscosity * volumes * slope * (velocities[i] - v) / mass;
                }
                expected += pair;
                size += pair.length();
            }
        }
        let found = evaluation.accelerations()[i];
        assert!(
            found.distance(expected) <= 1e-5 * size,
            "particle {i}: {found} instead of {expected}, of {size}"
        );
    }
    assert!(compressed > positions.len() / 10, "only {compressed} of {} under pressure", positions.len());
}

#[test]
fn walls_edges_and_corners_are_mirrors() {
    let section =
        "spacing = 0.1\nviscosity = 20\n[[shapes]]\ntype = \"box\"\nmin = [0, 0, 0]\nmax = [0.5, 0.6, 1]";
    check(section, DVec3::new(0.5, 0.6, 1.0));
    check(
        &section.replace("spacing", "equation_of_state = \"mueller\"\nsmoothing_ratio = 1.2\nspacing"),
        DVec3::ONE,
    );
}

#[test]
fn free_fluid_far_from_the_origin() {
    let section = "spacing = 0.1\nwalls = false\nsmoothing_ratio = 1.3\n[[shapes]]\ntype = \"box\"\n\
                   min = [3e5, -4e5, 0]\nmax = [300000.8, -399999.2, 0.8]";
    check(section, DVec3::ONE);
}
