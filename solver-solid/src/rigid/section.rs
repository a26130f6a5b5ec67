//! The section of the scene that describes rigid bodies.

use amalgam_solver_kit::{SectionError, parse_section};
use serde::Deserialize;

use crate::bodies::checks::Checks;
use crate::bodies::layout::Layout;
use crate::section::{Method, lay_out, yes};

/// The section of the solver of rigid bodies as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RigidSection {
    /// `"rigid"`.
    #[serde(rename = "method")]
    _method: Method,
    /// `true`: the bodies collide with each other.
    #[serde(default = "yes")]
    self_collision: bool,
    /// `[[participants.settings.bodies]]` of `type = "rigid"`. Default: none, which is an error.
    #[serde(default)]
    bodies: Vec<toml::Table>,
}

/// A checked section of rigid bodies, laid out.
pub(crate) struct Rigid {
    pub(crate) layout: Layout,
    pub(crate) self_collision: bool,
}

/// Reads a section of rigid bodies. `seed` is the scene's.
///
/// # Errors
/// Every fault found, each with its key.
pub(crate) fn read(section: &str, seed: u64) -> Result<Rigid, Vec<SectionError>> {
    let section: RigidSection = parse_section(section)?;
    let mut checks = Checks { seed, ..Checks::default() };
    let layout = lay_out(section.bodies, Method::Rigid, section.self_collision, &mut checks);
    checks.result()?;
    Ok(Rigid { layout, self_collision: section.self_collision })
}
