//! A FLIP participant's section of the scene. The comments of its fields are the table in
//! `docs/reference/fluid.md`.

use amalgam_particles::shapes::{MovingShape, Shape};
use amalgam_particles::{Obstacle, ObstacleForm, Particles};
use amalgam_solver_kit::{DragSettings, ForceSettings, SectionError, World};
use serde::Deserialize;

use super::FlipParameters;
use crate::filling::{FilledShape, fill, total, volume_warnings};
use crate::section::{
    EmitterSection, FacesSection, Faults, Method, SinkSection, check_emitters, check_inside,
    default_rest_density, default_substeps_max, no_faces, parse, particles, source_faults, sources,
    take_fields,
};
use crate::sph::initial_density::{check_density, densest_by_kernel};

/// Cells that a grid may have.
pub const CELLS_MAX: f64 = (1u64 << 30) as f64;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlipSection {
    /// `"flip"`. Default: `"sph"`, see above.
    #[serde(default, rename = "method")]
    _method: Method,
    /// Edge of the volume that a particle stands for [m].
    spacing: f64,
    /// Edge of a cell [m]. The domain must be a whole number of cells long. Default: 2 spacings.
    cell_size: Option<f64>,
    /// Rest density [kg/m^3]. A particle weighs `rest_density` x `spacing`^3.
    #[serde(default = "default_rest_density")]
    rest_density: f64,
    /// Collision radius [m]. Default: half the spacing.
    radius: Option<f64>,
    /// Largest distance from the lattice at which particles begin, along each axis, in spacings: 0 to
    /// 0.5. A hash of the seed and the id; not for `points`.
    #[serde(default = "default_jitter")]
    jitter: f64,
    /// Part of FLIP in the new velocity, 0 to 1. The rest is PIC, which damps.
    #[serde(default = "default_flip_ratio")]
    flip_ratio: f64,
    /// Dynamic viscosity [Pa s].
    #[serde(default)]
    viscosity: f64,
    /// Walls at which the fluid sticks: `true`, `false`, or a list of `"x0"` (where x is lowest),
    /// `"x1"`, `"y0"`, `"y1"`, `"z0"`, `"z1"`. At the others it slides freely. Needs
    /// `viscosity`. Default: `false`.
    #[serde(default = "no_faces")]
    no_slip: FacesSection,
    /// Residual of the pressure, relative to the largest divergence before the solve.
    #[serde(default = "default_tolerance")]
    tolerance: f64,
    /// Iterations after which the solve is an error.
    #[serde(default = "default_iterations_max")]
    iterations_max: u32,
    /// Cells that a particle may cross in a sub-step.
    #[serde(default = "default_cfl")]
    cfl: f64,
    /// Sub-steps in the longest step, 1 to 100. They limit the coupled step.
    #[serde(default = "default_substeps_max")]
    substeps_max: u32,
    /// `true`: cells that hold particles of other participants are not air.
    #[serde(default = "default_occupancy")]
    occupancy: bool,
    /// `[[participants.settings.shapes]]`: the shapes to fill, one or more.
    shapes: Vec<MovingShape>,
    /// Discs that emit fluid, a list. They must be inside the domain.
    #[serde(default)]
    emitters: Vec<EmitterSection>,
    /// Boxes that swallow particles, a list.
    #[serde(default)]
    sinks: Vec<SinkSection>,
    /// `[[participants.settings.drag]]`: winds, and layers in which waves die.
    #[serde(default)]
    drag: Vec<DragSettings>,
    /// `[[participants.settings.force]]`: fields of force, and soft indenters.
    #[serde(default)]
    force: Vec<ForceSettings>,
}

fn default_jitter() -> f64 {
    0.5
}

fn default_flip_ratio() -> f64 {
    0.97
}

fn default_tolerance() -> f64 {
    1e-6
}

fn default_iterations_max() -> u32 {
    2000
}

fn default_cfl() -> f64 {
    1.0
}

fn default_occupancy() -> bool {
    true
}

/// Names of keys in earlier versions, and their names now.
const RENAMED: [(&str, &str); 3] =
    [("flip_share", "flip_ratio"), ("max_iterations", "iterations_max"), ("max_substeps", "substeps_max")];

/// Reads and checks a section, and fills this rank's part of its shapes with particles. Collective.
///
/// # Errors
/// Every fault, with the path of its key, on all ranks.
pub fn read(section: &str, world: &World) -> Result<(FlipParameters, Particles), Vec<SectionError>> {
    let mut section: FlipSection = parse(section, &RENAMED)?;
    let mut faults = section.scalar_faults();
    faults.extend(source_faults(&section.emitters, &section.sinks));
    let fields = take_fields((&mut section.drag, &mut section.force), &mut faults);
    let ranks = &world.ranks;
    let bodies = fill(ranks, &mut section.shapes, section.spacing, Some(world.domain), &mut faults);
    let mass = section.rest_density * section.spacing.powi(3);
    let parameters = FlipParameters {
        cell_size: section.cell_size.unwrap_or(2.0 * section.spacing),
        rest_density: section.rest_density,
        spacing: section.spacing,
        particle_mass: mass,
        radius: section.radius.unwrap_or(0.5 * section.spacing),
        sources: sources(&section.emitters, &section.sinks, total(&bodies), world.gravity),
        fields,
        jitter: section.jitter,
        seed: world.seed,
        flip_ratio: section.flip_ratio,
        viscosity: section.viscosity,
        no_slip: section.no_slip.faces(),
        tolerance: section.tolerance,
        iterations_max: section.iterations_max,
        cfl: section.cfl,
        substeps_max: section.substeps_max,
        occupancy: section.occupancy,
        obstacles: world.obstacles.clone(),
        gravity: world.gravity,
        domain: world.domain,
    };
    if faults.is_empty() {
        check_cells(&parameters, &mut faults);
        check_obstacles(&parameters, &mut faults);
        check_inside(ranks, world.domain, &bodies, "", &mut faults);
        check_emitters(&parameters.sources, section.spacing, world.domain, "", &mut faults);
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    // Densities are measured on the lattices, before the jitter. Single points stay where the scene has them.
    let lattice = |(filled, body): (&FilledShape, &MovingShape)| match body.shape {
        Shape::Points { .. } => FilledShape { points: Vec::new(), ..*filled },
        _ => filled.clone(),
    };
    let lattices: Vec<FilledShape> = bodies.iter().zip(&section.shapes).map(lattice).collect();
    let densest = densest_by_kernel(ranks, &lattices, section.spacing, world.domain, &world.obstacles);
    let mut warnings = volume_warnings(&section.shapes, &lattices, section.spacing);
    warnings.extend(check_density(&densest, section.rest_density, &mut faults));
    if !faults.is_empty() {
        return Err(faults);
    }
    warnings
        .iter()
        .filter(|_| ranks.is_first())
        .for_each(|warning| tracing::warn!("{}: {warning}", world.participant));
    let filled = (&section.shapes[..], &bodies[..]);
    let particles = particles(filled, (mass, parameters.radius), |body, id, point| {
        if matches!(body.shape, Shape::Points { .. }) { point } else { parameters.jittered(id, point) }
    });
    Ok((parameters, particles))
}

impl FlipSection {
    fn scalar_faults(&self) -> Vec<SectionError> {
        let mut faults = Faults::default();
        faults.positive("spacing", self.spacing, "0.01");
        let cell_size_ok = self.cell_size.is_none_or(|size| size > 0.0 && size.is_finite());
        faults.check(cell_size_ok, "cell_size", "must be positive: write e.g. twice the spacing");
        faults.positive("rest_density", self.rest_density, "1000.0");
        faults.positive("radius", self.radius, "0.005");
        let jitter_ok = (0.0..=0.5).contains(&self.jitter);
        faults.check(jitter_ok, "jitter", "must be from 0 to 0.5: write e.g. jitter = 0.5");
        let ratio_ok = (0.0..=1.0).contains(&self.flip_ratio);
        faults.check(ratio_ok, "flip_ratio", "must be from 0 to 1: write e.g. flip_ratio = 0.97");
        faults.not_negative("viscosity", self.viscosity, "0.1");
        let no_slip = self.no_slip.faces().as_flattened().contains(&true);
        faults.check(
            !no_slip || self.viscosity != 0.0,
            "no_slip",
            "needs viscosity, by which the fluid feels the wall: write e.g. viscosity = 0.1",
        );
        let tolerance_ok = self.tolerance > 0.0 && self.tolerance < 1.0;
        faults.check(tolerance_ok, "tolerance", "must be above 0 and below 1: write e.g. tolerance = 1e-6");
        faults.check(
            self.iterations_max > 0,
            "iterations_max",
            "must be at least 1: write e.g. iterations_max = 2000",
        );
        faults.check(
            self.cfl > 0.0 && self.cfl <= 5.0,
            "cfl",
            "must be above 0 and at most 5: write e.g. cfl = 1.0",
        );
        faults.substeps_max(self.substeps_max, 2);
        faults.0
    }
}

/// The domain's walls must lie on faces of cells.
fn check_cells(parameters: &FlipParameters, faults: &mut Vec<SectionError>) {
    let (low, high) = parameters.domain;
    let cells = (high - low) / parameters.cell_size;
    let size = parameters.cell_size;
    if !(cells.is_finite() && cells.element_product() <= CELLS_MAX) {
        let message = format!(
            "{size} m makes more than {CELLS_MAX:.0} cells in a domain of {} m: write larger cells",
            high - low
        );
        faults.push(SectionError::new("cell_size", message));
        return;
    }
    let whole = cells.round();
    if (cells - whole).abs().max_element() > 1e-6 * whole.max_element() || whole.min_element() < 1.0 {
        let message = format!(
            "{size} m does not divide the domain of {} m into whole cells ({cells}): change the domain or the cell size",
            high - low
        );
        faults.push(SectionError::new("cell_size", message));
    }
}

/// The grid must see every obstacle: one that is thinner than half a cell may lie between its nodes.
fn check_obstacles(parameters: &FlipParameters, faults: &mut Vec<SectionError>) {
    let thickness = |obstacle: &Obstacle| match obstacle.form {
        ObstacleForm::Box { min, max } => (max - min).min_element(),
        ObstacleForm::Ball { radius, .. } => 2.0 * radius,
        ObstacleForm::Cylinder { radius, height, .. } => height.min(2.0 * radius),
        ObstacleForm::Plane { .. } | ObstacleForm::Mesh(_) => f64::INFINITY,
    };
    for (n, obstacle) in parameters.obstacles.iter().enumerate().filter(|(_, obstacle)| !obstacle.is_hollow) {
        let (thickness, size) = (thickness(obstacle), parameters.cell_size);
        if thickness < 0.5 * size {
            let message = format!(
                "cells of {size} m do not see domain.obstacles[{n}], which is {thickness} m thick: write a cell_size of at \
                 most {:.3e}, or a thicker obstacle",
                2.0 * thickness
            );
            faults.push(SectionError::new("cell_size", message));
        }
    }
}

#[cfg(test)]
mod tests {
    use amalgam_particles::{DQuat, DVec3};

    use super::*;

    fn keys(section: &str) -> Vec<String> {
        keys_beside(section, &[])
    }

    fn keys_beside(section: &str, obstacles: &[ObstacleForm]) -> Vec<String> {
        let obstacle = |form: &ObstacleForm| Obstacle {
            form: form.clone(),
            rotation: DQuat::IDENTITY,
            is_hollow: false,
        };
        let world = World {
            participant: "water".into(),
            domain: (DVec3::ZERO, DVec3::new(1.0, 1.0, 2.0)),
            gravity: DVec3::new(0.0, 0.0, -9.81),
            seed: 1,
            obstacles: obstacles.iter().map(obstacle).collect(),
            ranks: amalgam_solver_kit::Ranks::alone(),
        };
        let faults = read(section, &world).err().unwrap_or_default();
        faults.into_iter().map(|fault| fault.key).collect()
    }

    #[test]
    fn every_fault_is_named() {
        let good = "method = \"flip\"\nspacing = 0.05\n[[shapes]]\ntype = \"box\"\nmin = [0, 0, 0]\nmax = [1, 1, 0.5]\n";
        assert_eq!(keys(good), [] as [&str; 0]);
        let with = |line: &str| keys(&good.replace("spacing = 0.05", &format!("spacing = 0.05\n{line}")));
        assert_eq!(with("cell_size = 0.3"), ["cell_size"]);
        assert_eq!(with("cell_size = 1e-9"), ["cell_size"]);
        assert_eq!(
            with(
                "jitter = 0.6\nflip_ratio = 1.5\ntolerance = 0.0\niterations_max = 0\ncfl = 9.0\nsubsteps_max = 0"
            ),
            ["jitter", "flip_ratio", "tolerance", "iterations_max", "cfl", "substeps_max"]
        );
        assert_eq!(with("viscosity = -1.0\nno_slip = true"), ["viscosity"]);
        assert_eq!(with("no_slip = [\"z0\"]"), ["no_slip"]);
        assert_eq!(with("viscosity = 1.0\nno_slip = [\"z0\", \"x1\"]"), [] as [&str; 0]);
        assert_eq!(with("viscosity = 1.0\nno_slip = [\"bottom\"]"), ["no_slip"]);
        assert_eq!(with("sound_speed = 3.0"), ["sound_speed"]);
        assert_eq!(with("flip_share = 0.9\nmax_iterations = 3"), ["flip_share", "max_iterations"]);
        assert_eq!(keys(&good.replace("0.5]", "2.5]")), ["shapes[0]"]);
        assert_eq!(keys(&good.replace("spacing = 0.05", "spacing = -1.0")), ["spacing"]);
    }

    #[test]
    fn obstacles_that_the_grid_does_not_see_and_water_inside_of_obstacles_are_refused() {
        let good = "method = \"flip\"\nspacing = 0.05\n[[shapes]]\ntype = \"box\"\nmin = [0, 0, 0.5]\nmax = [1, 1, 1]\n";
        let plate =
            |top: f64| ObstacleForm::Box { min: DVec3::new(0.1, 0.1, 0.3), max: DVec3::new(0.9, 0.9, top) };
        assert_eq!(keys_beside(good, &[plate(0.36)]), [] as [&str; 0]);
        assert_eq!(keys_beside(good, &[plate(0.34)]), ["cell_size"]);
        assert_eq!(keys_beside(good, &[plate(0.6)]), ["shapes[0]"]);
        let floor = |z: f64| ObstacleForm::Plane { point: DVec3::Z * z, normal: DVec3::Z };
        assert_eq!(keys_beside(good, &[floor(0.5)]), [] as [&str; 0]);
        assert_eq!(keys_beside(good, &[floor(0.55)]), ["shapes[0]"]);
    }
}
