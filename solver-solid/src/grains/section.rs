//! The section of the scene that describes grains.

use amalgam_solver_kit::{DragSettings, Fields, ForceSettings, SectionError, parse_section};
use serde::Deserialize;

use crate::bodies::checks::Checks;
use crate::bodies::layout::Layout;
use crate::grains::gravity::Gravity;
use crate::section::{Method, lay_out, yes};

/// The section of the grain solver as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrainSection {
    /// `"grains"`.
    #[serde(rename = "method")]
    _method: Method,
    /// `true`: grains collide with each other.
    #[serde(default = "yes")]
    self_collision: bool,
    /// Constant of gravitation G [m^3/(kg s^2)]. Grains attract each other if it is not 0.
    #[serde(default)]
    gravitational_constant: f64,
    /// Length below which attraction is softened [m].
    #[serde(default)]
    softening: f64,
    /// Number of grains up to which each pair is summed. Above, a tree is used.
    #[serde(default = "default_direct_max")]
    direct_max: usize,
    /// Opening angle of the tree, 0 (exact) to 1. A cell counts as one if its edge over its distance is
    /// below.
    #[serde(default = "default_opening_angle")]
    opening_angle: f64,
    /// `true`: all grains keep one z, which they must have at the start. Grains are discs if a `density` is
    /// given.
    #[serde(default)]
    two_dimensional: bool,
    /// `true`: grains turn. Needs the contact law.
    #[serde(default)]
    spin: bool,
    /// `[[participants.settings.drag]]`: winds, and layers in which waves die.
    #[serde(default)]
    drag: Vec<DragSettings>,
    /// `[[participants.settings.force]]`: fields of force, and soft indenters.
    #[serde(default)]
    force: Vec<ForceSettings>,
    /// `[[participants.settings.bodies]]` of `type = "grains"`, `"scatter"` or `"points"`. Default:
    /// none, which is an error.
    #[serde(default)]
    bodies: Vec<toml::Table>,
}

fn default_direct_max() -> usize {
    4000
}

fn default_opening_angle() -> f64 {
    0.5
}

/// A checked section of the grain solver, laid out.
pub(crate) struct GrainSetup {
    pub(crate) layout: Layout,
    pub(crate) fields: Fields,
    pub(crate) self_collision: bool,
    pub(crate) gravity: Gravity,
    /// The z of all grains [m], if they keep it.
    pub(crate) plane: Option<f64>,
    /// True if the grains turn.
    pub(crate) spin: bool,
}

/// Reads a section of the grain solver. `seed` is the scene's.
///
/// # Errors
/// Every fault found, each with its key.
pub(crate) fn read(section: &str, seed: u64) -> Result<GrainSetup, Vec<SectionError>> {
    let section: GrainSection = parse_section(section)?;
    let mut checks = Checks { seed, flat: section.two_dimensional, ..Checks::default() };
    checks.not_negative("gravitational_constant", section.gravitational_constant);
    checks.not_negative("softening", section.softening);
    checks.that((0.0..=1.0).contains(&section.opening_angle), "opening_angle", || {
        "must be from 0 (exact) to 1: write e.g. opening_angle = 0.5".into()
    });
    let fields = checks.fields(section.drag, section.force);
    let layout = lay_out(section.bodies, Method::Grains, section.self_collision, &mut checks);
    let implicit = !layout.springs.is_empty()
        || layout.foundations.iter().any(|one| one.stiffness > 0.0 || one.damping > 0.0);
    checks.that(!implicit, "bodies", || {
        "have springs or foundations, which grains have not: write method = \"mass-spring\"".into()
    });
    let position = &layout.particles.position;
    let plane = position.first().map(|x| x.z).filter(|_| section.two_dimensional);
    if let Some((z, other)) = plane.and_then(|z| Some((z, position.iter().find(|x| x.z != z)?))) {
        checks.fault(
            "two_dimensional",
            format!("wants all grains at one z, but there is one at {z} and one at {}: move them", other.z),
        );
    }
    checks.result()?;
    let gravity = Gravity {
        constant: section.gravitational_constant,
        softening: section.softening,
        direct_max: section.direct_max,
        opening_angle: section.opening_angle,
    };
    Ok(GrainSetup {
        layout,
        fields,
        self_collision: section.self_collision,
        gravity,
        plane,
        spin: section.spin,
    })
}
