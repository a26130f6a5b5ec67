//! Parts that the sections of both methods share: the key `method`, emitters, sinks, fields of force, faces
//! of the domain, and checks of values and positions.

use amalgam_particles::shapes::MovingShape;
use amalgam_particles::{DVec3, ParticleId, Particles};
use amalgam_solver_kit::{
    DragSettings, Fields, ForceSettings, Ranks, SectionError, parse_section, renamed_keys,
};
use serde::{Deserialize, de::DeserializeOwned};

use crate::filling::FilledShape;
use crate::sources::{Emitter, Sink, Sources};

/// The largest number of sub-steps in a step.
pub const SUBSTEPS_MAX: u32 = 100;

/// Method that computes a fluid: the key `method`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Smoothed particle hydrodynamics.
    #[default]
    Sph,
    /// FLIP.
    Flip,
}

/// The method that a section asks for.
///
/// # Errors
/// The section is no TOML, or there is no such method.
pub fn method(section: &str) -> Result<Method, Vec<SectionError>> {
    #[derive(Deserialize)]
    struct Only {
        #[serde(default)]
        method: Method,
    }
    parse_section(section).map(|Only { method }| method)
}

/// Parses the section of a method. `renamed` are pairs of an earlier name of a key and its name now. An
/// earlier name is a fault.
pub(crate) fn parse<T: DeserializeOwned>(
    section: &str,
    renamed: &[(&str, &str)],
) -> Result<T, Vec<SectionError>> {
    let faults = renamed_keys(section, renamed);
    if faults.is_empty() { parse_section(section) } else { Err(faults) }
}

/// Takes winds, layers that damp, and fields of force out of a section, and checks them.
pub(crate) fn take_fields(
    (drags, forces): (&mut Vec<DragSettings>, &mut Vec<ForceSettings>),
    faults: &mut Vec<SectionError>,
) -> Fields {
    Fields::new(std::mem::take(drags), std::mem::take(forces)).unwrap_or_else(|errors| {
        faults.extend(errors);
        Fields::default()
    })
}

/// Particles of equal mass [kg] and radius [m] at the points [m] of `bodies`, which fill `shapes`. `place`
/// gives the particle's position from its point.
pub(crate) fn particles(
    (shapes, bodies): (&[MovingShape], &[FilledShape]),
    (mass, radius): (f64, f64),
    place: impl Fn(&MovingShape, ParticleId, DVec3) -> DVec3,
) -> Particles {
    let mut particles = Particles::default();
    particles.reserve(bodies.iter().map(|filled| filled.points.len()).sum());
    for (filled, body) in bodies.iter().zip(shapes) {
        for (id, point) in filled.iter() {
            let point = place(body, id, point);
            particles.push(id, point, body.velocity_at(point), mass, radius, false);
        }
    }
    particles
}

/// Faults of a section's values.
#[derive(Default)]
pub(crate) struct Faults(pub(crate) Vec<SectionError>);

impl Faults {
    /// Adds a fault of `key` unless its value is `ok`.
    pub(crate) fn check(&mut self, ok: bool, key: &str, rule: &str) {
        if !ok {
            self.0.push(SectionError::new(key, rule));
        }
    }

    /// A value, if it is given, must be positive and finite.
    pub(crate) fn positive(&mut self, key: &str, value: impl Into<Option<f64>>, example: &str) {
        let ok = value.into().is_none_or(|value| value > 0.0 && value.is_finite());
        self.check(ok, key, &format!("must be positive: write e.g. {key} = {example}"));
    }

    /// A value, if it is given, must be finite and not negative.
    pub(crate) fn not_negative(&mut self, key: &str, value: impl Into<Option<f64>>, example: &str) {
        let ok = value.into().is_none_or(|value| value >= 0.0 && value.is_finite());
        self.check(ok, key, &format!("must not be negative: write e.g. {key} = {example}"));
    }

    /// A number of sub-steps must be from 1 to [`SUBSTEPS_MAX`].
    pub(crate) fn substeps_max(&mut self, value: u32, example: u32) {
        let rule = format!("must be from 1 to {SUBSTEPS_MAX}: write e.g. substeps_max = {example}");
        self.check((1..=SUBSTEPS_MAX).contains(&value), "substeps_max", &rule);
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EmitterSection {
    /// Middle of the disc [m].
    pub(crate) center: DVec3,
    /// Direction of the flow, of any length.
    pub(crate) axis: DVec3,
    /// Radius of the disc [m].
    pub(crate) radius: f64,
    /// Speed of the flow [m/s].
    pub(crate) speed: f64,
    /// Time at which it ends [s].
    pub(crate) until: f64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SinkSection {
    /// Lowest corner [m].
    min: DVec3,
    /// Highest corner [m].
    max: DVec3,
}

/// Faces of the domain as a scene names them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(
    untagged,
    expecting = "expected true for all faces of the domain, false for none, or a list such as [\"z0\", \"z1\"] of \
                 \"x0\", \"x1\", \"y0\", \"y1\", \"z0\" and \"z1\", where 0 is the lower face of the axis"
)]
pub(crate) enum FacesSection {
    All(bool),
    Some(Vec<Face>),
}

/// A face of the domain: an axis, and 0 at its lower end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Face {
    X0,
    X1,
    Y0,
    Y1,
    Z0,
    Z1,
}

impl FacesSection {
    /// The faces by axis, the lower one first.
    pub(crate) fn faces(&self) -> [[bool; 2]; 3] {
        match self {
            Self::All(all) => [[*all; 2]; 3],
            Self::Some(named) => {
                let has = |face: Face| named.contains(&face);
                [
                    [has(Face::X0), has(Face::X1)],
                    [has(Face::Y0), has(Face::Y1)],
                    [has(Face::Z0), has(Face::Z1)],
                ]
            }
        }
    }
}

pub(crate) fn no_faces() -> FacesSection {
    FacesSection::All(false)
}

pub(crate) fn default_rest_density() -> f64 {
    1000.0
}

pub(crate) fn default_substeps_max() -> u32 {
    1
}

/// Adds a fault for each body with points outside of a box. `advice` says what to write instead of moving
/// them. Collective.
pub(crate) fn check_inside(
    ranks: &Ranks,
    (low, high): (DVec3, DVec3),
    bodies: &[FilledShape],
    advice: &str,
    faults: &mut Vec<SectionError>,
) {
    // Of each body and rank the points outside: how many, and the first.
    let (size, rank) = (ranks.size(), ranks.rank());
    let own = bodies.iter().enumerate().map(|(k, filled)| {
        let outside = |p: &&DVec3| !(p.cmpge(low).all() && p.cmple(high).all());
        let count = filled.points.iter().filter(outside).count();
        let first = filled.points.iter().find(outside).copied().unwrap_or_default();
        (k * size + rank, (count as f64, first))
    });
    let outside = ranks.shared(bodies.len() * size, own.map(|(at, (count, x))| (at, [count, x.x, x.y, x.z])));
    for (k, of_ranks) in outside.chunks(size).enumerate() {
        if let Some(&[_, x, y, z]) = of_ranks.iter().find(|[count, ..]| *count > 0.0) {
            let (first, count) = (DVec3::new(x, y, z), of_ranks.iter().map(|[count, ..]| count).sum::<f64>());
            let message = format!(
                "{count} of its {} points are outside of the domain, the first at {first}: move it inside{advice}",
                bodies[k].whole
            );
            faults.push(SectionError::new(format!("shapes[{k}]"), message));
        }
    }
}

/// The sources that a section asks for. The first particle emitted has the id `next_id`.
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

/// Faults in the values of emitters and sinks. [`check_emitters`] compares them with the domain.
pub(crate) fn source_faults(emitters: &[EmitterSection], sinks: &[SinkSection]) -> Vec<SectionError> {
    let mut faults = Faults::default();
    let positive = |value: f64| value > 0.0 && value.is_finite();
    for (k, emitter) in emitters.iter().enumerate() {
        let key = |name: &str| format!("emitters[{k}].{name}");
        faults.check(emitter.center.is_finite(), &key("center"), "must be finite");
        let axis_ok = positive(emitter.axis.length_squared());
        faults.check(axis_ok, &key("axis"), "must be a direction: write e.g. axis = [0, 0, -1]");
        faults.check(positive(emitter.radius), &key("radius"), "must be positive: write e.g. radius = 0.05");
        faults.check(positive(emitter.speed), &key("speed"), "must be positive: write e.g. speed = 1.0");
        faults.check(
            positive(emitter.until),
            &key("until"),
            "must be a positive time: write e.g. until = 2.0",
        );
    }
    for (k, sink) in sinks.iter().enumerate() {
        let ok = sink.min.cmplt(sink.max).all() && sink.min.is_finite() && sink.max.is_finite();
        faults.check(ok, &format!("sinks[{k}].max"), "must be above min along each axis");
    }
    faults.0
}

/// Adds a fault for each emitter whose layer reaches out of the domain. `advice` says what to write instead
/// of moving it.
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
