//! Faults of a section, collected with their keys.

use amalgam_particles::DVec3;
use amalgam_particles::shapes::{Layers, Shape};
use amalgam_solver_kit::{DragSettings, Fields, ForceSettings, SectionError};

/// Particles that one participant may have, or each of its ranks if they lay out a part each.
pub(crate) const PARTICLES_MAX: usize = 1 << 24;

/// Collects faults, with the path of the table that is being checked.
#[derive(Default)]
pub(crate) struct Checks {
    pub(crate) path: String,
    pub(crate) faults: Vec<SectionError>,
    /// Seed of the scene.
    pub(crate) seed: u64,
    /// True if all particles have the same z.
    pub(crate) flat: bool,
    /// The part of the particles that is laid out here.
    pub(crate) part: Layers,
}

impl Checks {
    /// All faults so far.
    pub(crate) fn result(&mut self) -> Result<(), Vec<SectionError>> {
        if self.faults.is_empty() { Ok(()) } else { Err(std::mem::take(&mut self.faults)) }
    }

    /// Records a fault at `key` of the current table; an empty key is the table itself.
    pub(crate) fn fault(&mut self, key: &str, message: impl Into<String>) {
        let path = format!("{}{key}", self.path);
        self.faults.push(SectionError::new(path.trim_end_matches('.'), message));
    }

    /// Records a fault unless `condition` holds.
    pub(crate) fn that(&mut self, condition: bool, key: &str, message: impl FnOnce() -> String) {
        if !condition {
            self.fault(key, message());
        }
    }

    /// Reads the file that the body's shape names, if it names one.
    pub(crate) fn read_file(&mut self, shape: &mut Shape) {
        if let Err(error) = amalgam_meshes::read_into(shape) {
            self.fault(&format!("shape.{}", error.key), error.to_string());
        }
    }

    /// Checks that a lattice of this spacing [m] has no more than [`PARTICLES_MAX`] points per part, called `points`,
    /// in the body's shape. Returns false if it has.
    pub(crate) fn fits(&mut self, shape: &Shape, spacing: f64, points: &str) -> bool {
        let most = PARTICLES_MAX * self.part.parts;
        let exceeds = spacing > 0.0 && shape.volume() > most as f64 * spacing.powi(3);
        self.that(!exceeds, "spacing", || format!("makes more than {most} {points}: write a larger spacing"));
        !exceeds
    }

    /// The drags and fields of force of the section.
    pub(crate) fn fields(&mut self, drags: Vec<DragSettings>, forces: Vec<ForceSettings>) -> Fields {
        Fields::new(drags, forces).unwrap_or_else(|faults| {
            self.faults.extend(faults);
            Fields::default()
        })
    }

    /// A number above 0 and finite.
    pub(crate) fn positive(&mut self, key: &str, value: f64) {
        self.that(value > 0.0 && value.is_finite(), key, || {
            format!("must be positive and finite, not {value}")
        });
    }

    /// A number that is 0 or above, and finite.
    pub(crate) fn not_negative(&mut self, key: &str, value: f64) {
        self.that(value >= 0.0 && value.is_finite(), key, || {
            format!("must be 0 or positive, and finite, not {value}")
        });
    }

    /// A finite vector.
    pub(crate) fn finite(&mut self, key: &str, value: DVec3) {
        self.that(value.is_finite(), key, || format!("must be three finite numbers, not {value}"));
    }
}
