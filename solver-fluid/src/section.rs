//! Keys that the sections of both methods share: the method itself, emitters, sinks, and checks of positions.

use amalgam_particles::DVec3;
use amalgam_solver_kit::{SectionError, parse_section};
use serde::Deserialize;

use crate::sources::{Emitter, Sink, Sources};

/// Most sub-steps of a step, whatever the section asks for.
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
/// If the section is no TOML, or there is no such method.
pub fn method(section: &str) -> Result<Method, Vec<SectionError>> {
    #[derive(Deserialize)]
    struct Only {
        #[serde(default)]
        method: Method,
    }
    parse_section(section).map(|Only { method }| method)
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

/// Faces of the domain, by axis, the lower one first.
pub(crate) type Faces = [[bool; 2]; 3];

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
    pub(crate) fn faces(&self) -> Faces {
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

/// All points must lie in a box; `advice` names the alternative to moving them.
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

/// The layers of an emitter must be inside of the domain; `advice` is what to write instead of moving it.
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
