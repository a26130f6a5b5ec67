//! `[[probes]]`: quantities sampled while the scene runs.

use amalgam_particles::DVec3;
use serde::{Deserialize, Serialize};

/// `[[probes]]`: a quantity sampled while the scene runs.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeSettings {
    /// Name of the CSV file and of the entry in `summary.json`.
    pub name: String,
    /// Quantity to sample. The keys of the quantity stand beside `name`.
    #[serde(flatten)]
    pub quantity: Quantity,
}

/// Quantity that a probe samples after every step.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "quantity", rename_all = "snake_case", deny_unknown_fields)]
pub enum Quantity {
    /// Momentum [kg m/s] of one participant, or of all.
    Momentum {
        /// Name of the participant; all together if absent.
        participant: Option<String>,
    },
    /// Angular momentum about the origin [kg m^2/s] of one participant, or of all.
    AngularMomentum {
        /// Name of the participant; all together if absent.
        participant: Option<String>,
    },
    /// Kinetic and potential energies [J] of all participants, gravity included, and the energy that coupling
    /// has dissipated so far.
    Energy {},
    /// Largest speed [m/s] of one participant, or of all.
    Speed {
        /// Name of the participant; all together if absent.
        participant: Option<String>,
    },
    /// Displacement [m] of the particle that was nearest to `point` at the start.
    Displacement {
        /// Name of the participant.
        participant: String,
        /// Point near which the particle is at the start [m].
        point: DVec3,
    },
    /// Particles of `of` that went through the sheet `sheet` and are on the wrong side of it.
    Crossings {
        /// Name of a participant with triangles.
        sheet: String,
        /// Name of the participant whose particles are counted.
        of: String,
    },
    /// Deepest overlap of two particles in contact [m], and relative to the smaller radius.
    Overlap {},
    /// Kinetic energy of the difference between velocities that are reported and velocities that move
    /// particles [J], and as a part of all kinetic energy.
    Phantom {},
    /// Pairs still approaching after the last stage, or refused by the group limit.
    Unresolved {},
}
