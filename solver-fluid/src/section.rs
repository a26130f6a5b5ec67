//! A fluid participant's section of the scene.
//!
//! | key | unit | default | meaning |
//! | --- | --- | --- | --- |
//! | `method` | | `"sph"` | how the fluid is simulated |
//! | `spacing` | m | required | edge of the volume that a particle stands for |
//! | `rest_density` | kg/m^3 | 1000 | a particle's mass is `rest_density * spacing^3` |
//! | `kernels` | | `"wendland"` | `"wendland"`, or `"mueller"`: kernels, pressure force and viscosity of [Mueller2003] |
//! | `equation_of_state` | | that of the kernels | `"tait"` (default with Wendland's kernel) or `"mueller"` |
//! | `sound_speed` | m/s | 10 x the largest speed | sets the compressibility; see below |
//! | `viscosity` | Pa s | see below | dynamic viscosity |
//! | `artificial_viscosity` | | | alpha of [Monaghan1992], in place of `viscosity`; acts on approaching pairs only |
//! | `xsph` | | | epsilon of [Monaghan1989], in place of `viscosity`: velocities are drawn to their neighbours' mean |
//! | `radius` | m | `spacing / 2` | collision radius of a particle |
//! | `smoothing_ratio` | | 1 | smoothing length over spacing; the kernel reaches two smoothing lengths |
//! | `walls` | | true | whether the domain's faces hold the fluid |
//! | `cfl` | | 0.4 | Courant number of a sub-step |
//! | `max_substeps` | | 1 | sub-steps in the longest step asked for |
//! | `shapes` | | required | what is filled: [`Body`], a list |
//! | `emitters` | | none | discs that emit, a list: `center` [m], `axis`, `radius` [m], `speed` [m/s], `until` [s] |
//! | `sinks` | | none | boxes that swallow particles, a list: `min`, `max` [m] |
//!
//! The largest speed is taken as sqrt(v0^2 + 2 g H): v0 the largest initial speed, H the height of the fluid's highest
//! point above the domain's lowest one. With ten times that as speed of sound the density varies by about one percent.
//! What others lay or throw on the fluid is unknown at the start, and told when it happens.
//!
//! The default viscosity is `rest_density * sound_speed * smoothing_length * 0.05 / 10`: what the artificial viscosity
//! of [Monaghan1992] amounts to with alpha = 0.05 in three dimensions. It goes to zero with the spacing. With less
//! (water: 0.001), pressure waves of the size of a particle last long.
//!
//! `max_substeps` is 1 by default because then forces do not depend on groups, so that a second stage costs next to
//! nothing, while with n sub-steps each of S stages computes n - 1 of them again: raise it if the rest of a coupled
//! step costs more than a sub-step here. A group is a boundary in prescribed motion during a step; in a dam break with
//! groups of 1.1 times their fluid's mass, 4 sub-steps at the default `cfl` gave the same motion as 1, 6 were noisy and
//! 10 unstable (10 were stable with groups of 11 times the mass).
//!
//! The same dam break gained no energy at any `cfl` up to 1.

use amalgam_particles::{CellGrid, DVec3, ParticleId, Particles, shapes::Body};
use amalgam_solver_kit::{SectionError, World, parse_section};
use serde::Deserialize;

use crate::filling::{check_density, compressions, fill, volume_warnings};
use crate::sources::{Emitter, Sink, Sources};
use crate::sph::{
    Formulation, Parameters,
    guard::{SOUND_SPEED_RATIO, speed_warning},
    state::{EquationOfState, Law},
    walls::Walls,
};

/// Strength of the default viscosity, as alpha of [Monaghan1992].
const ARTIFICIAL_VISCOSITY: f64 = 0.05;
/// Sub-steps a step may have at most, whatever the section asks for.
pub const SUBSTEPS_MAX: u32 = 100;

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Method {
    Sph,
    /// Has a section of its own, and is told apart before.
    Flip,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kernels {
    Wendland,
    Mueller,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    #[serde(default = "default_method", rename = "method")]
    _method: Method,
    spacing: f64,
    #[serde(default = "default_rest_density")]
    rest_density: f64,
    #[serde(default = "default_kernels")]
    kernels: Kernels,
    equation_of_state: Option<Law>,
    sound_speed: Option<f64>,
    viscosity: Option<f64>,
    artificial_viscosity: Option<f64>,
    xsph: Option<f64>,
    radius: Option<f64>,
    #[serde(default = "default_smoothing_ratio")]
    smoothing_ratio: f64,
    #[serde(default = "default_walls")]
    walls: bool,
    #[serde(default = "default_cfl")]
    cfl: f64,
    #[serde(default = "default_max_substeps")]
    max_substeps: u32,
    shapes: Vec<Body>,
    #[serde(default)]
    emitters: Vec<EmitterSection>,
    #[serde(default)]
    sinks: Vec<SinkSection>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EmitterSection {
    center: DVec3,
    axis: DVec3,
    radius: f64,
    speed: f64,
    until: f64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SinkSection {
    min: DVec3,
    max: DVec3,
}

fn default_method() -> Method {
    Method::Sph
}

pub(crate) fn default_rest_density() -> f64 {
    1000.0
}

fn default_kernels() -> Kernels {
    Kernels::Wendland
}

fn default_smoothing_ratio() -> f64 {
    1.0
}

fn default_walls() -> bool {
    true
}

fn default_cfl() -> f64 {
    0.4
}

fn default_max_substeps() -> u32 {
    1
}

/// Reads and checks a section, and fills its shapes with particles.
///
/// # Errors
/// Every fault, with the path of its key.
pub fn read(section: &str, world: &World) -> Result<(Parameters, Particles), Vec<SectionError>> {
    let mut section: Section = parse_section(section)?;
    let mut faults = section.scalar_faults();
    faults.extend(source_faults(&section.emitters, &section.sinks));
    let held_by = section.walls.then_some(world.domain);
    let bodies = fill(&mut section.shapes, section.spacing, held_by, &mut faults);
    if !faults.is_empty() {
        return Err(faults);
    }
    let support_radius = 2.0 * section.smoothing_ratio * section.spacing;
    let walls = section.walls.then(|| Walls::new(world.domain, support_radius));
    if let Some(walls) = &walls {
        check_domain(walls, support_radius, &bodies, &mut faults);
        let sources = sources(&section.emitters, &section.sinks, 0, world.gravity);
        let domain = (walls.min, walls.max);
        check_emitters(&sources, section.spacing, domain, " or write walls = false", &mut faults);
    }
    let initial_speed = section.initial_speed(&bodies);
    let largest_speed = (initial_speed * initial_speed + 2.0 * section.fall(world, &bodies)).sqrt();
    let sound_speed = section.sound_speed(largest_speed, &mut faults);
    if faults.is_empty() {
        check_overlaps(&bodies, section.spacing, &mut faults);
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let radius = section.radius.unwrap_or(0.5 * section.spacing);
    let next_id = bodies.iter().map(Vec::len).sum::<usize>() as u64;
    let parameters = Parameters {
        radius,
        sources: sources(&section.emitters, &section.sinks, next_id, world.gravity),
        spacing: section.spacing,
        support_radius,
        mass: section.rest_density * section.spacing.powi(3),
        state: EquationOfState { law: section.law(), rest_density: section.rest_density, sound_speed },
        formulation: section.formulation(sound_speed, 0.5 * support_radius),
        cfl: section.cfl,
        max_substeps: section.max_substeps,
        gravity: world.gravity,
        walls,
    };
    let at_start = compressions(&parameters, &bodies.concat());
    let mut warnings = volume_warnings(&section.shapes, &bodies, section.spacing);
    warnings.extend(speed_warning(sound_speed, initial_speed));
    warnings.extend(check_density(&bodies, &at_start, section.rest_density, &mut faults));
    if !faults.is_empty() {
        return Err(faults);
    }
    warnings.iter().for_each(|warning| tracing::warn!("{}: {warning}", world.participant));
    let mut particles = Particles::default();
    for (points, body) in bodies.iter().zip(&section.shapes) {
        for &point in points {
            let id = ParticleId(particles.len() as u64);
            particles.push(id, point, body.velocity_at(point), parameters.mass, radius, false);
        }
    }
    Ok((parameters, particles))
}

impl Section {
    fn law(&self) -> Law {
        self.equation_of_state.unwrap_or(match self.kernels {
            Kernels::Wendland => Law::Tait,
            Kernels::Mueller => Law::Mueller,
        })
    }

    fn formulation(&self, sound_speed: f64, smoothing_length: f64) -> Formulation {
        if let Some(alpha) = self.artificial_viscosity {
            return Formulation::Artificial { alpha };
        }
        if let Some(epsilon) = self.xsph {
            return Formulation::Xsph { epsilon };
        }
        let default = self.rest_density * sound_speed * smoothing_length * ARTIFICIAL_VISCOSITY / 10.0;
        let viscosity = self.viscosity.unwrap_or(default);
        match self.kernels {
            Kernels::Wendland => Formulation::Laminar { viscosity },
            Kernels::Mueller => Formulation::Mueller { viscosity },
        }
    }

    fn scalar_faults(&self) -> Vec<SectionError> {
        let mut faults = Vec::new();
        let mut check = |ok: bool, key: &str, rule: &str| {
            if !ok {
                faults.push(SectionError::new(key, rule));
            }
        };
        let positive = |value: f64| value > 0.0 && value.is_finite();
        check(positive(self.spacing), "spacing", "must be positive: write e.g. spacing = 0.01");
        check(
            positive(self.rest_density),
            "rest_density",
            "must be positive: write e.g. rest_density = 1000.0",
        );
        check(
            self.sound_speed.is_none_or(positive),
            "sound_speed",
            "must be positive: write e.g. sound_speed = 40.0",
        );
        let viscosity_ok = self.viscosity.is_none_or(|v| v >= 0.0 && v.is_finite());
        check(viscosity_ok, "viscosity", "must not be negative: write e.g. viscosity = 0.1");
        let alpha_ok = self.artificial_viscosity.is_none_or(|alpha| alpha >= 0.0 && alpha.is_finite());
        check(
            alpha_ok,
            "artificial_viscosity",
            "must not be negative: write e.g. artificial_viscosity = 0.05",
        );
        let xsph_ok = self.xsph.is_none_or(|epsilon| epsilon >= 0.0 && epsilon.is_finite());
        check(xsph_ok, "xsph", "must not be negative: write e.g. xsph = 0.05");
        let others = [("artificial_viscosity", self.artificial_viscosity), ("xsph", self.xsph)];
        let given: Vec<&str> =
            others.iter().filter(|(_, value)| value.is_some()).map(|(key, _)| *key).collect();
        if let [key, rest @ ..] = given.as_slice() {
            let one = rest.is_empty() && self.viscosity.is_none() && self.kernels == Kernels::Wendland;
            let rule = "goes with no other viscosity, and not with kernels = \"mueller\", which has its own: leave all but \
                        one of them out";
            check(one, key, rule);
        }
        check(self.radius.is_none_or(positive), "radius", "must be positive: write e.g. radius = 0.005");
        let ratio_ok = (0.9..=2.0).contains(&self.smoothing_ratio);
        check(ratio_ok, "smoothing_ratio", "must be from 0.9 to 2: write e.g. smoothing_ratio = 1.0");
        check(
            self.cfl > 0.0 && self.cfl <= 1.0,
            "cfl",
            "must be above 0 and at most 1: write e.g. cfl = 0.4",
        );
        let substeps_ok = (1..=SUBSTEPS_MAX).contains(&self.max_substeps);
        check(
            substeps_ok,
            "max_substeps",
            &format!("must be from 1 to {SUBSTEPS_MAX}: write e.g. max_substeps = 1"),
        );
        faults
    }

    /// The largest speed at the start, emitters included [m/s].
    fn initial_speed(&self, bodies: &[Vec<DVec3>]) -> f64 {
        let emitted = self.emitters.iter().map(|emitter| emitter.speed);
        let moving = self.shapes.iter().zip(bodies);
        let moving = moving.flat_map(|(body, points)| points.iter().map(|&x| body.velocity_at(x).length()));
        moving.chain(emitted).fold(0.0, f64::max)
    }

    /// The energy that the fluid's highest point has above the domain's lowest one [J/kg].
    fn fall(&self, world: &World, bodies: &[Vec<DVec3>]) -> f64 {
        let lowest = DVec3::select(world.gravity.cmpgt(DVec3::ZERO), world.domain.1, world.domain.0);
        let above = |point: DVec3, edge: f64| {
            // Axes without gravity count for nothing, however large the domain is.
            let along = |axis: usize| match world.gravity[axis] {
                0.0 => 0.0,
                pull => pull * (lowest[axis] - point[axis]) + pull.abs() * edge,
            };
            along(0) + along(1) + along(2)
        };
        let filled = bodies.iter().flatten().map(|&point| above(point, 0.5 * self.spacing));
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

/// All points must lie in a box; `advice` is what else to do than to move them.
pub(crate) fn check_inside(
    (low, high): (DVec3, DVec3),
    bodies: &[Vec<DVec3>],
    advice: &str,
    faults: &mut Vec<SectionError>,
) {
    for (k, points) in bodies.iter().enumerate() {
        let outside = |p: &&DVec3| !(p.cmpge(low).all() && p.cmple(high).all());
        let count = points.iter().filter(outside).count();
        if let Some(first) = points.iter().find(outside) {
            let message = format!(
                "{count} of its {} points are outside of the domain, the first at {first}: move it inside{advice}",
                points.len()
            );
            faults.push(SectionError::new(format!("shapes[{k}]"), message));
        }
    }
}

/// The sources that a section asks for; `next_id` is that of the first particle emitted.
pub(crate) fn sources(
    emitters: &[EmitterSection],
    sinks: &[SinkSection],
    next_id: u64,
    gravity: DVec3,
) -> Sources {
    let emitter = |&EmitterSection { center, axis, radius, speed, until }: &EmitterSection| Emitter {
        center,
        axis: axis.normalize(),
        radius,
        speed,
        until,
    };
    Sources {
        emitters: emitters.iter().map(emitter).collect(),
        sinks: sinks.iter().map(|&SinkSection { min, max }| Sink { min, max }).collect(),
        time: 0.0,
        next_id,
        gravity,
        given: 0.0,
    }
}

/// Faults of emitters and sinks by themselves.
pub(crate) fn source_faults(emitters: &[EmitterSection], sinks: &[SinkSection]) -> Vec<SectionError> {
    let mut faults = Vec::new();
    let mut check = |ok: bool, key: String, rule: &str| {
        if !ok {
            faults.push(SectionError::new(key, rule));
        }
    };
    let positive = |value: f64| value > 0.0 && value.is_finite();
    for (k, emitter) in emitters.iter().enumerate() {
        let key = |name: &str| format!("emitters[{k}].{name}");
        check(emitter.center.is_finite(), key("center"), "must be finite");
        let axis_ok = positive(emitter.axis.length_squared());
        check(axis_ok, key("axis"), "must be a direction: write e.g. axis = [0, 0, -1]");
        check(positive(emitter.radius), key("radius"), "must be positive: write e.g. radius = 0.05");
        check(positive(emitter.speed), key("speed"), "must be positive: write e.g. speed = 1.0");
        check(positive(emitter.until), key("until"), "must be a positive time: write e.g. until = 2.0");
    }
    for (k, sink) in sinks.iter().enumerate() {
        let ok = sink.min.cmplt(sink.max).all() && sink.min.is_finite() && sink.max.is_finite();
        check(ok, format!("sinks[{k}].max"), "must be above min along each axis");
    }
    faults
}

/// What an emitter emits must be inside of the domain; `advice` is what to write instead of moving it.
pub(crate) fn check_emitters(
    sources: &Sources,
    spacing: f64,
    (low, high): (DVec3, DVec3),
    advice: &str,
    faults: &mut Vec<SectionError>,
) {
    for (k, emitter) in sources.emitters.iter().enumerate() {
        let inside = |place: &DVec3| {
            let x = emitter.center + place;
            x.cmpge(low).all() && x.cmple(high).all()
        };
        if !emitter.layer(spacing).iter().all(inside) {
            let message = format!("reaches out of the domain: move it inside{advice}");
            faults.push(SectionError::new(format!("emitters[{k}]"), message));
        }
    }
}

fn check_domain(walls: &Walls, support_radius: f64, bodies: &[Vec<DVec3>], faults: &mut Vec<SectionError>) {
    let extent = walls.max - walls.min;
    // Written so that NaN fails. Narrower than this, a particle would see the image of an image of itself.
    let wide = extent.cmpge(DVec3::splat(2.0 * support_radius)).all() && extent.is_finite();
    if !wide {
        let message = format!(
            "is too large for a domain of {extent} m: with walls, each edge must be finite and at least four \
             smoothing lengths, {} m",
            2.0 * support_radius
        );
        faults.push(SectionError::new("spacing", message));
        return;
    }
    check_inside((walls.min, walls.max), bodies, " or write walls = false", faults);
}

/// Two particles at less than half a spacing would be pushed apart with a force that no fluid has.
fn check_overlaps(bodies: &[Vec<DVec3>], spacing: f64, faults: &mut Vec<SectionError>) {
    let points = bodies.concat();
    let body_of = |index: usize| {
        let mut end = 0;
        bodies
            .iter()
            .take_while(|body| {
                end += body.len();
                end <= index
            })
            .count()
    };
    let reach = 0.5 * spacing * (1.0 - 1e-9);
    let grid = CellGrid::new(&points, reach);
    for (i, &x) in points.iter().enumerate() {
        let mut other = None;
        grid.for_each_near(x, |j| {
            if (j as usize) < i && points[j as usize].distance(x) < reach {
                other = Some(j as usize);
            }
        });
        if let Some(j) = other {
            let message = format!(
                "has a point at {x} within half a spacing of one of shapes[{}]: move them apart",
                body_of(j)
            );
            faults.push(SectionError::new(format!("shapes[{}]", body_of(i)), message));
            return;
        }
    }
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
            GOOD.replace("spacing = 0.1", "spacing = -0.1\ncfl = 0.0\nviscosity = -1\nmax_substeps = 0");
        assert_eq!(keys(&section), ["spacing", "viscosity", "cfl", "max_substeps"]);
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
