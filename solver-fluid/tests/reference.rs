//! Densities and accelerations against the sums written out in f64 over all pairs and all mirror images.

mod common;

use amalgam_particles::{DVec3, random};
use amalgam_solver_fluid::sph::{
    Artificial, Formulation, Morris, Mueller, Points, SphParameters, Xsph, evaluation::Evaluation,
    kernel::Kernel, section,
};
use common::world;

/// A disordered fluid in a box: a lattice whose points are moved by up to 0.2 spacings, with random
/// velocities.
fn fluid(section: &str, domain: DVec3) -> (SphParameters, Vec<DVec3>, Vec<DVec3>) {
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
fn images(parameters: &SphParameters, position: DVec3, velocity: DVec3) -> Vec<(DVec3, DVec3)> {
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
    let points = Points { ids: &[], positions: &positions, velocities: &velocities };
    evaluation.find_densities(&parameters, points, Points::default());
    evaluation.find_accelerations(&parameters);

    let kernels = parameters.formulation.kernels(parameters.support_radius);
    let [value, slope] = kernels.map(|kernel| kernel.lattice_sums(parameters.spacing));
    let [kernel, pressure_kernel] = kernels;
    let state = parameters.state;
    let all: Vec<Vec<(DVec3, DVec3)>> =
        positions.iter().zip(&velocities).map(|(&x, &v)| images(&parameters, x, v)).collect();
    let mass = parameters.mass;
    let volume = mass / state.rest_density;
    let density: Vec<f64> = positions
        .iter()
        .map(|&x| {
            let sum: f64 = all.iter().flatten().map(|&(y, _)| volume * kernel.value(x.distance(y))).sum();
            // Exact on the lattice, and so is its change under a small compression.
            state.rest_density * (1.0 + (sum - value.value) / value.moment)
        })
        .collect();
    for (x, rho) in evaluation.compressions().zip(&density) {
        assert!((x * state.rest_density / rho - 1.0).abs() < 2e-6, "{x} {}", rho / state.rest_density);
    }
    let pressure = |i: usize| state.pressure(density[i] / state.rest_density);
    let mut compressed = 0;
    for (i, &x) in positions.iter().enumerate() {
        compressed += usize::from(pressure(i) > 0.0);
        let (mut expected, mut size, mut slack) = (DVec3::ZERO, 0.0, 0.0);
        for (j, of_j) in all.iter().enumerate() {
            let (rho_i, rho_j) = (density[i], density[j]);
            for &(y, v) in of_j.iter().filter(|&&(y, _)| y != x) {
                let gradient = pressure_kernel.gradient(x - y) / slope.moment;
                let slope = pressure_kernel.slope_over_distance(x.distance(y)) / slope.moment;
                let shear = velocities[i] - v;
                let pair = match parameters.formulation {
                    Formulation::Morris(Morris { viscosity }) => {
                        -mass * (pressure(i) / rho_i.powi(2) + pressure(j) / rho_j.powi(2)) * gradient
                            + 2.0 * viscosity * mass / (rho_i * rho_j) * slope * shear
                    }
                    Formulation::Artificial(Artificial { alpha }) => {
                        let h = 0.5 * parameters.support_radius;
                        let approach = h * shear.dot(x - y).min(0.0) / (x.distance_squared(y) + 0.01 * h * h);
                        let drag =
                            -alpha * state.sound_speed * approach * state.rest_density / (rho_i * rho_j);
                        let pressures = pressure(i) / rho_i.powi(2) + pressure(j) / rho_j.powi(2);
                        -mass * (pressures + drag) * gradient
                    }
                    Formulation::Xsph(Xsph { epsilon }) => {
                        let support = parameters.support_radius;
                        let rate = epsilon * state.sound_speed / (0.5 * support);
                        let moment = kernel.second_moment(parameters.spacing) / (0.2 * support * support);
                        let weight = kernel.value(x.distance(y)) / moment;
                        let pressures = pressure(i) / rho_i.powi(2) + pressure(j) / rho_j.powi(2);
                        -mass * pressures * gradient
                            - rate * mass * state.rest_density / (rho_i * rho_j) * weight * shear
                    }
                    Formulation::Mueller(Mueller { viscosity, .. }) => {
                        let support = parameters.support_radius;
                        let t = (1.0 - x.distance(y) / support).max(0.0);
                        let laplacian = 45.0 / (std::f64::consts::PI * support.powi(5)) * t
                            / Kernel::mueller_laplacian_moment(support, parameters.spacing);
                        mass / (rho_i * rho_j)
                            * (-(pressure(i) + pressure(j)) * gradient - viscosity * laplacian * shear)
                    }
                };
                expected += pair;
                size += pair.length();
                // A compression is within some 3e-7 of itself, whatever is left of it after 1 is taken off.
                let modulus =
                    rho_i.max(rho_j) * state.local_sound_speed(rho_i.max(rho_j) / state.rest_density).powi(2);
                slack += 6e-7 * mass * modulus / (rho_i * rho_j) * gradient.length();
            }
        }
        let found = evaluation.acceleration(i);
        assert!(
            found.distance(expected) <= 1e-5 * size + slack,
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
fn other_kernels_and_viscosities() {
    let section = "spacing = 0.1\nKEYS\n[[shapes]]\ntype = \"box\"\nmin = [0, 0, 0]\nmax = [0.5, 0.6, 0.8]";
    for keys in [
        "artificial_viscosity = 0.3",
        "xsph = 0.3",
        "kernels = \"mueller\"\nviscosity = 20",
        "kernels = \"mueller\"\nviscosity = 0",
    ] {
        check(&section.replace("KEYS", keys), DVec3::new(0.5, 0.6, 1.0));
    }
}

#[test]
fn free_fluid_far_from_the_origin() {
    let section = "spacing = 0.1\nwalls = false\nsmoothing_ratio = 1.3\n[[shapes]]\ntype = \"box\"\n\
                   min = [3e5, -4e5, 0]\nmax = [300000.8, -399999.2, 0.8]";
    check(section, DVec3::ONE);
}

/// Cells of the two bodies fall on each other, counted modulo a box and, as they are 1024 cells apart, as
/// they are stored.
#[test]
fn bodies_far_apart_do_not_see_each_other() {
    let section = "spacing = 0.1\nwalls = false\nsound_speed = 30\n[[shapes]]\ntype = \"box\"\nmin = [0, 0, 0]\n\
                   max = [0.5, 0.6, 0.4]\n[[shapes]]\ntype = \"box\"\nmin = [204.8, 0, 0]\nmax = [205.3, 0.6, 0.4]";
    check(section, DVec3::ONE);
}
