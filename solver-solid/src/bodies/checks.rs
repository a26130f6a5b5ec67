//! Faults of a section, collected with their keys.

use amalgam_particles::DVec3;
use amalgam_solver_kit::{Drag, DragSettings, SectionError};

/// Particles that one participant may have.
pub(crate) const PARTICLES_MAX: usize = 1 << 24;

/// Collects faults, with the path of the table that is being checked.
#[derive(Default)]
pub(crate) struct Checks {
    pub(crate) path: String,
    pub(crate) faults: Vec<SectionError>,
    /// The scene's, for what is random.
    pub(crate) seed: u64,
    /// Whether all particles have the same z.
    pub(crate) flat: bool,
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

    /// The drags of the section.
    pub(crate) fn drag(&mut self, entries: Vec<DragSettings>) -> Drag {
        Drag::new(entries).unwrap_or_else(|faults| {
            self.faults.extend(faults);
            Drag::default()
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
