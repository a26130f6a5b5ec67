//! The density at which a fluid starts, measured by the kernel of SPH, and its check.

use amalgam_particles::{DVec3, Obstacle};
use amalgam_solver_kit::{Fields, SectionError};

use super::evaluation::Evaluation;
use super::pressure::equation_of_state::{EquationOfState, Law};
use super::walls::Walls;
use super::{Formulation, Morris, ObstacleDensity, Points, SphParameters};
use crate::sources::Sources;

/// Relative excess over the rest density from which on a warning tells it.
const TOLD: f64 = 0.02;
/// Relative excess over the rest density from which on a start is refused.
const REFUSED: f64 = 0.1;

/// Densities over rest density at `points` [m] by the kernel of SPH, for a fluid of another method, whose own
/// measure of density is coarser.
pub(crate) fn kernel_compressions(
    points: &[DVec3],
    spacing: f64,
    domain: (DVec3, DVec3),
    obstacles: &[Obstacle],
) -> Vec<f64> {
    let support_radius = 2.0 * spacing;
    let (count, (low, mut high)) = (points.len(), domain);
    let mut points = points.to_vec();
    // Between two walls that are near each other, SPH lacks some images of images. So a narrow domain is
    // joined to its mirror image until it is two support radii wide.
    for axis in 0..3 {
        while high[axis] - low[axis] < 2.0 * support_radius {
            let wall = high[axis];
            let image = |&x: &DVec3| {
                let mut x = x;
                x[axis] = 2.0 * wall - x[axis];
                x
            };
            let images: Vec<DVec3> = points.iter().map(image).collect();
            points.extend(images);
            high[axis] += wall - low[axis];
        }
    }
    let formulation = Formulation::Morris(Morris { viscosity: 0.0 });
    let [kernel, _] = formulation.kernels(support_radius);
    let walls = Some(Walls::new((low, high), support_radius));
    let parameters = SphParameters {
        spacing,
        support_radius,
        mass: spacing.powi(3),
        radius: 0.5 * spacing,
        state: EquationOfState { law: Law::Tait, rest_density: 1.0, sound_speed: 1.0 },
        formulation,
        cfl: 1.0,
        substeps_max: 1,
        gravity: DVec3::ZERO,
        walls,
        obstacles: ObstacleDensity::new(obstacles, walls, &kernel, spacing),
        sources: Sources::default(),
        fields: Fields::default(),
    };
    compressions(&parameters, &points).into_iter().take(count).collect()
}

/// Densities over rest density of particles at `points` [m].
pub(crate) fn compressions(parameters: &SphParameters, points: &[DVec3]) -> Vec<f64> {
    let mut evaluation = Evaluation::default();
    let velocities = vec![DVec3::ZERO; points.len()];
    let points = Points { ids: &[], positions: points, velocities: &velocities };
    evaluation.find_densities(parameters, points, Points::default());
    evaluation.compressions().collect()
}

/// Checks the density at which a fluid starts. Returns warnings of an excess over the rest density above
/// [`TOLD`]. An excess above [`REFUSED`] is a fault. `compressions` are densities over rest density, one per
/// point of the bodies in turn.
pub(crate) fn check_density(
    bodies: &[Vec<DVec3>],
    compressions: &[f64],
    rest_density: f64,
    faults: &mut Vec<SectionError>,
) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut rest = compressions;
    for (k, points) in bodies.iter().enumerate() {
        let (own, others) = rest.split_at(points.len());
        rest = others;
        let densest = own.iter().zip(points).max_by(|(a, _), (b, _)| a.total_cmp(b));
        let Some((&compression, place)) = densest.filter(|(compression, _)| **compression > 1.0 + TOLD)
        else {
            continue;
        };
        let message = format!(
            "starts {:.1} % above the rest density, with {:.0} kg/m^3 at {place}: particles must be half a spacing \
             from walls and obstacles and a spacing from each other; write faces that lie whole spacings from the walls, from \
             obstacles and from other shapes",
            100.0 * (compression - 1.0),
            compression * rest_density
        );
        if compression > 1.0 + REFUSED {
            faults.push(SectionError::new(format!("shapes[{k}]"), message));
        } else {
            warnings.push(format!("shapes[{k}] {message}"));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use amalgam_particles::shapes::Shape;

    use super::*;

    #[test]
    fn a_narrow_domain_is_measured_like_a_wide_one() {
        let lattice = |max| Shape::Box { min: DVec3::ZERO, max }.sample(0.1).expect("a good box");
        for width in [0.2, 1.0] {
            let edges = DVec3::new(width, 1.0, 1.0);
            let compressions = kernel_compressions(&lattice(edges), 0.1, (DVec3::ZERO, edges), &[]);
            assert!(compressions.iter().all(|compression| (compression - 1.0).abs() < 1e-4));
        }
    }

    #[test]
    fn density_at_the_start_is_passed_told_or_refused() {
        let bodies = vec![vec![DVec3::ZERO; 2], vec![DVec3::ONE], vec![DVec3::X]];
        let mut faults = Vec::new();
        let warnings = check_density(&bodies, &[1.01, 0.5, 1.05, 1.2], 1000.0, &mut faults);
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].starts_with("shapes[1] starts 5.0 % above the rest density, with 1050 kg/m^3"));
        assert_eq!(faults.len(), 1);
        assert_eq!(faults[0].key, "shapes[2]");
    }
}
