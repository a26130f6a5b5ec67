//! The section of an SPH fluid. The comments of its fields are the table in `docs/reference/fluid.md`.
//!
//! The default speed of sound is ten times `sqrt(v0^2 + 2 g H)`, with the largest initial speed v0 and the
//! height H of the fluid's highest point above the domain's lowest point. The density then varies by about
//! one percent [Monaghan1994]. Loads of others on the fluid are unknown at the start and reported when they
//! appear (`sph/guard.rs`).
//!
//! The default viscosity is `rest_density * sound_speed * smoothing_length * 0.05 / 10`. It is equivalent to
//! the artificial viscosity of [Monaghan1992] with alpha = 0.05 in three dimensions, and goes to zero with
//! the spacing. With a lower viscosity, such as 0.001 Pa s for water, pressure waves of the size of a
//! particle last long.
//!
//! `substeps_max` is 1 by default where particles merge. Forces of the first sub-step do not depend on groups,
//! so that a second stage of a step with one sub-step costs next to nothing. With n sub-steps, each stage
//! computes n - 1 of them again, and particles overlap more. Where the fluid integrates once in a step, as
//! under the contact law, the default is three: each sub-step is computed once, and the other
//! participants take fewer steps. The sub-steps after the first feel the contacts of the step before.
//!
//! During a step a group is a boundary in prescribed motion, which limits the number of sub-steps. In a dam
//! break with groups of 1.1 times their fluid's mass, 4 sub-steps at the default `cfl` gave the same motion
//! as 1, 6 were noisy and 10 unstable. With groups of 11 times the mass, 10 were stable. The same dam break
//! gained no energy at any `cfl` up to 1.

use amalgam_particles::{DVec3, Particles, shapes::MovingShape};
use amalgam_solver_kit::{DragSettings, ForceSettings, Ranks, SectionError, World};
use serde::Deserialize;

use super::{
    Artificial, Formulation, Morris, Mueller, ObstacleDensity, SphParameters, Xsph,
    guard::{SOUND_SPEED_RATIO, speed_warning},
    initial_density::{Start, check_density},
    neighbours::FixedPointGrid,
    pressure::{
        equation_of_state::{EquationOfState, Law},
        hydrostatic::{Weight, press},
    },
    walls::Walls,
};
use crate::filling::{FilledShape, fill, total, volume_warnings};
use crate::section::{
    EmitterSection, FacesSection, Faults, Method, SinkSection, check_emitters, check_inside,
    default_rest_density, no_faces, parse, particles, source_faults, sources, take_fields,
};

/// Strength alpha of the artificial viscosity [Monaghan1992] that the default viscosity is equivalent to.
const ARTIFICIAL_VISCOSITY: f64 = 0.05;

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kernels {
    Wendland,
    Mueller,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SphSection {
    /// `"sph"`.
    #[serde(default, rename = "method")]
    _method: Method,
    /// Edge of the volume that a particle stands for [m].
    spacing: f64,
    /// Rest density [kg/m^3]. A particle weighs `rest_density` x `spacing`^3.
    #[serde(default = "default_rest_density")]
    rest_density: f64,
    /// `"wendland"`, or `"mueller"` for kernels, pressure force and viscosity of [Mueller2003].
    #[serde(default = "default_kernels")]
    kernels: Kernels,
    /// `"tait"` or `"mueller"`. Default: `"tait"` with Wendland's kernel, else `"mueller"`.
    equation_of_state: Option<Law>,
    /// Speed of sound, the stiffness of the fluid [m/s]. Default: 10 times the largest speed.
    sound_speed: Option<f64>,
    /// Dynamic viscosity [Pa s]. Default: 0.05 x rest density x speed of sound x smoothing length / 10.
    viscosity: Option<f64>,
    /// Coefficient alpha of [Monaghan1992], instead of `viscosity`. Acts on approaching pairs only.
    artificial_viscosity: Option<f64>,
    /// Coefficient epsilon of [Monaghan1989], instead of `viscosity`. 0.0375 damps as much as the
    /// default viscosity.
    xsph: Option<f64>,
    /// Collision radius [m]. Default: half the spacing.
    radius: Option<f64>,
    /// Smoothing length over spacing, 0.9 to 2.
    #[serde(default = "default_smoothing_ratio")]
    smoothing_ratio: f64,
    /// Faces of the domain that hold the fluid: `true`, `false`, or a list of `"x0"` (where x is
    /// lowest), `"x1"`, `"y0"`, `"y1"`, `"z0"`, `"z1"`. The fluid leaves through the others. Default: `true`.
    #[serde(default = "default_walls")]
    walls: FacesSection,
    /// Walls at which the fluid sticks, written as in `walls`. At the others it slides freely. Default:
    /// `false`.
    #[serde(default = "no_faces")]
    no_slip: FacesSection,
    /// True: fluid at rest starts under the pressure of its own weight, its layers pressed together; false:
    /// at rest density, without pressure. Default: `true` for pools that walls hold on all sides.
    hydrostatic: Option<bool>,
    /// Courant number of a sub-step, above 0 and at most 1.
    #[serde(default = "default_cfl")]
    cfl: f64,
    /// Sub-steps in the longest step, 1 to 100. Default: 3 under the contact law, 1 where particles merge.
    substeps_max: Option<u32>,
    /// `[[participants.settings.shapes]]`: the shapes to fill, one or more.
    shapes: Vec<MovingShape>,
    /// Discs that emit fluid, a list.
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

fn default_kernels() -> Kernels {
    Kernels::Wendland
}

fn default_smoothing_ratio() -> f64 {
    1.0
}

fn default_walls() -> FacesSection {
    FacesSection::All(true)
}

fn default_cfl() -> f64 {
    0.4
}

/// Default for the sub-steps of a step in which the fluid integrates once.
const SUBSTEPS_ONCE: u32 = 3;

/// Names of keys in earlier versions, and their names now.
const RENAMED: [(&str, &str); 1] = [("max_substeps", "substeps_max")];

/// Reads and checks a section, and fills this rank's part of its shapes with particles. Collective.
///
/// # Errors
/// Every fault, with the path of its key, on all ranks.
pub fn read(section: &str, world: &World) -> Result<(SphParameters, Particles), Vec<SectionError>> {
    let mut section: SphSection = parse(section, &RENAMED)?;
    let mut faults = section.scalar_faults();
    faults.extend(source_faults(&section.emitters, &section.sinks));
    let fields = take_fields((&mut section.drag, &mut section.force), &mut faults);
    let support_radius = 2.0 * section.smoothing_ratio * section.spacing;
    let walls = section.walls(world, support_radius);
    let held_by = walls.map(|walls| (walls.min, walls.max));
    let ranks = &world.ranks;
    let mut bodies = fill(ranks, &mut section.shapes, section.spacing, held_by, &mut faults);
    if !faults.is_empty() {
        return Err(faults);
    }
    if let Some(walls) = &walls {
        check_domain(ranks, walls, support_radius, &bodies, &mut faults);
        let sources = sources(&section.emitters, &section.sinks, 0, world.gravity);
        let domain = (walls.min, walls.max);
        check_emitters(&sources, section.spacing, domain, " or write walls = false", &mut faults);
    }
    let mut largest = [section.initial_speed(&bodies), section.fall(world, &bodies)];
    ranks.max(&mut largest);
    let [initial_speed, fall] = largest;
    let largest_speed = (initial_speed * initial_speed + 2.0 * fall).sqrt();
    let sound_speed = section.sound_speed(largest_speed, &mut faults);
    if !faults.is_empty() {
        return Err(faults);
    }
    let start = Start::new(ranks, &FixedPointGrid::new(support_radius, walls), &bodies);
    start.check_overlaps(&bodies, section.spacing, &mut faults);
    if !faults.is_empty() {
        return Err(faults);
    }
    let radius = section.radius.unwrap_or(0.5 * section.spacing);
    let formulation = section.formulation(sound_speed, support_radius);
    let [kernel, _] = formulation.kernels(support_radius);
    let parameters = SphParameters {
        radius,
        sources: sources(&section.emitters, &section.sinks, total(&bodies), world.gravity),
        fields,
        spacing: section.spacing,
        support_radius,
        mass: section.rest_density * section.spacing.powi(3),
        state: EquationOfState { law: section.law(), rest_density: section.rest_density, sound_speed },
        formulation,
        cfl: section.cfl,
        substeps_max: section.substeps_max.unwrap_or(1),
        substeps_once: if section.substeps_max.is_none() { SUBSTEPS_ONCE } else { 1 },
        gravity: world.gravity,
        walls,
        obstacles: ObstacleDensity::new(&world.obstacles, walls, &kernel, section.spacing),
    };
    let mut warnings = volume_warnings(&section.shapes, &bodies, section.spacing);
    warnings.extend(speed_warning(sound_speed, initial_speed));
    let densest = start.densest(&parameters, &bodies);
    warnings.extend(check_density(&densest, section.rest_density, &mut faults));
    drop(start);
    let SphParameters { spacing, gravity, state, .. } = parameters;
    let weight = Weight { spacing, gravity, state, walls: held_by };
    faults.extend(press(ranks, (&section.shapes, &mut bodies), section.hydrostatic, &weight).err());
    if !faults.is_empty() {
        return Err(faults);
    }
    warnings
        .iter()
        .filter(|_| ranks.is_first())
        .for_each(|warning| tracing::warn!("{}: {warning}", world.participant));
    let filled = (&section.shapes[..], &bodies[..]);
    let particles = particles(filled, (parameters.mass, radius), |_, _, point| point);
    Ok((parameters, particles))
}

impl SphSection {
    fn law(&self) -> Law {
        self.equation_of_state.unwrap_or(match self.kernels {
            Kernels::Wendland => Law::Tait,
            Kernels::Mueller => Law::Mueller,
        })
    }

    fn formulation(&self, sound_speed: f64, support_radius: f64) -> Formulation {
        if let Some(alpha) = self.artificial_viscosity {
            return Formulation::Artificial(Artificial { alpha });
        }
        if let Some(epsilon) = self.xsph {
            return Formulation::Xsph(Xsph { epsilon });
        }
        let smoothing_length = 0.5 * support_radius;
        let default = self.rest_density * sound_speed * smoothing_length * ARTIFICIAL_VISCOSITY / 10.0;
        let viscosity = self.viscosity.unwrap_or(default);
        match self.kernels {
            Kernels::Wendland => Formulation::Morris(Morris { viscosity }),
            Kernels::Mueller => Formulation::Mueller(Mueller::new(viscosity, self.spacing, support_radius)),
        }
    }

    /// The domain's faces that hold the fluid, if there are any.
    fn walls(&self, world: &World, support_radius: f64) -> Option<Walls> {
        let (faces, (min, max)) = (self.walls.faces(), world.domain);
        let place = |axis: usize, side: usize, face: f64| {
            let beyond = if side == 0 { f64::NEG_INFINITY } else { f64::INFINITY };
            if faces[axis][side] { face } else { beyond }
        };
        let low = DVec3::from_array([0, 1, 2].map(|axis| place(axis, 0, min[axis])));
        let high = DVec3::from_array([0, 1, 2].map(|axis| place(axis, 1, max[axis])));
        let no_slip = self.no_slip.faces();
        faces
            .as_flattened()
            .contains(&true)
            .then(|| Walls { no_slip, ..Walls::new((low, high), support_radius) })
    }

    fn no_slip_faults(&self) -> Option<SectionError> {
        let (walls, no_slip) = (self.walls.faces(), self.no_slip.faces());
        let mut faces = no_slip.as_flattened().iter().zip(walls.as_flattened());
        if faces.clone().all(|(no_slip, _)| !no_slip) {
            return None;
        }
        if self.artificial_viscosity.is_some() {
            let message = "needs a viscosity that acts on shear, which artificial_viscosity does not: write viscosity = \
                           1.0 instead, for example";
            return Some(SectionError::new("no_slip", message));
        }
        let message = "names a face that is no wall: write the same faces in walls, or leave it out";
        faces.any(|(no_slip, wall)| *no_slip && !wall).then(|| SectionError::new("no_slip", message))
    }

    fn scalar_faults(&self) -> Vec<SectionError> {
        let mut faults = Faults::default();
        faults.positive("spacing", self.spacing, "0.01");
        faults.positive("rest_density", self.rest_density, "1000.0");
        faults.positive("sound_speed", self.sound_speed, "40.0");
        faults.not_negative("viscosity", self.viscosity, "0.1");
        faults.not_negative("artificial_viscosity", self.artificial_viscosity, "0.05");
        faults.not_negative("xsph", self.xsph, "0.05");
        let others = [("artificial_viscosity", self.artificial_viscosity), ("xsph", self.xsph)];
        let given: Vec<&str> =
            others.iter().filter(|(_, value)| value.is_some()).map(|(key, _)| *key).collect();
        if let [key, rest @ ..] = given.as_slice() {
            let one = rest.is_empty() && self.viscosity.is_none() && self.kernels == Kernels::Wendland;
            let rule = "goes with no other viscosity, and not with kernels = \"mueller\", which has its own: leave all but \
                        one of them out";
            faults.check(one, key, rule);
        }
        faults.positive("radius", self.radius, "0.005");
        let ratio_ok = (0.9..=2.0).contains(&self.smoothing_ratio);
        faults.check(ratio_ok, "smoothing_ratio", "must be from 0.9 to 2: write e.g. smoothing_ratio = 1.0");
        let cfl_ok = self.cfl > 0.0 && self.cfl <= 1.0;
        faults.check(cfl_ok, "cfl", "must be above 0 and at most 1: write e.g. cfl = 0.4");
        faults.substeps_max(self.substeps_max.unwrap_or(1), 1);
        faults.0.extend(self.no_slip_faults());
        faults.0
    }

    /// The largest speed on this rank at the start, emitters included [m/s].
    fn initial_speed(&self, bodies: &[FilledShape]) -> f64 {
        let emitted = self.emitters.iter().map(|emitter| emitter.speed);
        let moving = self.shapes.iter().zip(bodies);
        let moving =
            moving.flat_map(|(body, filled)| filled.points.iter().map(|&x| body.velocity_at(x).length()));
        moving.chain(emitted).fold(0.0, f64::max)
    }

    /// The largest potential energy [J/kg] of a point of the fluid on this rank over the domain's lowest point.
    fn fall(&self, world: &World, bodies: &[FilledShape]) -> f64 {
        let lowest = DVec3::select(world.gravity.cmpgt(DVec3::ZERO), world.domain.1, world.domain.0);
        let above = |point: DVec3, edge: f64| {
            // An axis without gravity adds nothing; 0 times an infinite extent would be NaN.
            let along = |axis: usize| match world.gravity[axis] {
                0.0 => 0.0,
                gravity => gravity * (lowest[axis] - point[axis]) + gravity.abs() * edge,
            };
            along(0) + along(1) + along(2)
        };
        let filled =
            bodies.iter().flat_map(|filled| &filled.points).map(|&point| above(point, 0.5 * self.spacing));
        let emitted = self.emitters.iter().map(|emitter| above(emitter.center, emitter.radius));
        filled.chain(emitted).fold(0.0, f64::max)
    }

    fn sound_speed(&self, speed: f64, faults: &mut Vec<SectionError>) -> f64 {
        if let Some(speed) = self.sound_speed {
            return speed;
        }
        if speed > 0.0 && speed.is_finite() {
            return SOUND_SPEED_RATIO * speed;
        }
        let message = "has no default where nothing moves or falls in a finite domain: write about 10 times the \
                       largest speed that you expect, e.g. sound_speed = 20.0";
        faults.push(SectionError::new("sound_speed", message));
        1.0
    }
}

/// Adds faults of a domain that is too narrow, or of points outside of it. Collective.
fn check_domain(
    ranks: &Ranks,
    walls: &Walls,
    support_radius: f64,
    bodies: &[FilledShape],
    faults: &mut Vec<SectionError>,
) {
    let extent = walls.max - walls.min;
    // The comparison fails for NaN. In a narrower domain a particle would see the image of an image of
    // itself.
    let wide = extent.cmpge(DVec3::splat(2.0 * support_radius)).all();
    if !wide {
        let message = format!(
            "is too large for a domain of {extent} m: between two walls there must be at least four \
             smoothing lengths, {} m",
            2.0 * support_radius
        );
        faults.push(SectionError::new("spacing", message));
        return;
    }
    check_inside(ranks, (walls.min, walls.max), bodies, " or write walls = false", faults);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world() -> World {
        World {
            participant: "water".into(),
            domain: (DVec3::ZERO, DVec3::new(1.0, 1.0, 2.0)),
            gravity: DVec3::new(0.0, 0.0, -9.81),
            seed: 1,
            obstacles: Vec::new(),
            ranks: Ranks::alone(),
        }
    }

    const GOOD: &str = r#"
        spacing = 0.1
        [[shapes]]
        type = "box"
        min = [0, 0, 0]
        max = [1, 1, 0.5]
    "#;

    fn keys(section: &str) -> Vec<String> {
        read(section, &world()).expect_err("a fault").into_iter().map(|fault| fault.key).collect()
    }

    #[test]
    fn defaults_follow_from_the_scene() {
        let (parameters, particles) = read(GOOD, &world()).expect("a good section");
        assert_eq!(particles.len(), 500);
        particles.validate().expect("valid particles");
        assert!((parameters.state.sound_speed - 10.0 * (2.0f64 * 9.81 * 0.5).sqrt()).abs() < 1e-12);
        assert!((parameters.mass - 1.0).abs() < 1e-12);
        assert_eq!(particles.radius[0], 0.05);
    }

    #[test]
    fn a_shape_may_move_and_turn() {
        let section = "spacing = 0.1\nwalls = false\n[[shapes]]\ntype = \"sphere\"\ncenter = [0, 0, 0]\nradius = 0.3\n\
                       velocity = [0, 0, -1]\nrotation = { axis = [0, 0, 1], degrees = 30 }";
        let (parameters, particles) = read(section, &world()).expect("a good section");
        assert_eq!(particles.velocity[0], DVec3::NEG_Z);
        assert!(parameters.walls.is_none());
    }

    #[test]
    fn every_fault_is_named() {
        let section =
            GOOD.replace("spacing = 0.1", "spacing = -0.1\ncfl = 0.0\nviscosity = -1\nsubsteps_max = 0");
        assert_eq!(keys(&section), ["spacing", "viscosity", "cfl", "substeps_max"]);
        let both = GOOD.replace("spacing = 0.1", "spacing = 0.1\nviscosity = 1\nartificial_viscosity = 0.1");
        assert_eq!(keys(&both), ["artificial_viscosity"]);
        assert_eq!(keys(&both.replace("artificial_viscosity", "xsph")), ["xsph"]);
        assert_eq!(keys(&GOOD.replace("spacing = 0.1", "spacing = 0.1\nxsph = -1")), ["xsph"]);
        assert_eq!(keys("spacing = 0.1\nshapes = []"), ["shapes"]);
        assert_eq!(keys("spacing = 0.1"), [""]);
        assert_eq!(keys(&GOOD.replace("spacing = 0.1", "spacing = 0.3")), ["spacing"]);
        assert_eq!(keys(&GOOD.replace("max = [1, 1, 0.5]", "max = [1, 0, 0.5]")), ["shapes[0].max"]);
        assert_eq!(keys(&GOOD.replace("max = [1, 1, 0.5]", "max = [1, 1, 2.5]")), ["shapes[0]"]);
        assert_eq!(keys(&GOOD.replace("spacing = 0.1", "spacing = 0.1\nmethod = \"magic\"")), ["method"]);
        assert_eq!(keys(&GOOD.replace("spacing = 0.1", "spacing = 0.1\nspeed = 3")), ["speed"]);
        let old = GOOD.replace("spacing = 0.1", "spacing = 0.1\nmax_substeps = 3");
        let faults = read(&old, &world()).expect_err("an old key");
        assert_eq!(faults[0].message, "is called `substeps_max`: write substeps_max = 3");
        let ball = "[[shapes]]\ntype = \"sphere\"\ncenter = [0.5, 0.5, 0.5]\nradius = 0.3\n";
        assert_eq!(keys(&format!("{GOOD}\n{ball}")), ["shapes[1]"]);
        let still = World { gravity: DVec3::ZERO, ..world() };
        let errors = read(GOOD, &still).expect_err("no sound speed");
        assert_eq!(errors[0].key, "sound_speed");
    }

    #[test]
    fn faults_of_sources_are_named() {
        let emitter =
            "[[emitters]]\ncenter = [0.5, 0.5, 1.5]\naxis = [0, 0, -1]\nradius = 0.2\nspeed = 1\nuntil = 1\n";
        assert!(read(&format!("{GOOD}\n{emitter}"), &world()).is_ok());
        for (old, new, key) in [
            ("0, 0, -1]", "0, 0, 0]", "emitters[0].axis"),
            ("radius = 0.2", "radius = -0.2", "emitters[0].radius"),
            ("speed = 1", "speed = 0", "emitters[0].speed"),
            ("until = 1", "until = nan", "emitters[0].until"),
            ("radius = 0.2", "radius = 0.8", "emitters[0]"),
        ] {
            assert_eq!(keys(&format!("{GOOD}\n{}", emitter.replace(old, new))), [key]);
        }
        assert_eq!(keys(&format!("{GOOD}\n[[sinks]]\nmin = [0, 0, 0]\nmax = [1, 0, 1]")), ["sinks[0].max"]);
    }

    #[test]
    fn a_misspelt_key_of_a_shape_is_named() {
        let errors = read(&GOOD.replace("max =", "maximum ="), &world()).expect_err("a fault");
        assert!(errors[0].message.contains("maximum"), "{errors:?}");
        let errors = read(&format!("{GOOD}\ncolour = 3"), &world()).expect_err("a fault");
        assert!(errors[0].message.contains("colour"), "{errors:?}");
        let errors = read(&GOOD.replace("\"box\"", "\"teapot\""), &world()).expect_err("a fault");
        assert!(errors[0].message.contains("cylinder"), "{errors:?}");
    }
}
