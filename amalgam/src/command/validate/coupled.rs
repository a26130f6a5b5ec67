//! Cases of fluid and solid together, through the coordinator: SPH under the contact law, FLIP merged.

pub(super) mod column;
pub(super) mod cube;
pub(super) mod jet;
pub(super) mod log;
pub(super) mod plate;
pub(super) mod wall;

use amalgam_coordinator::ParticipantFrame;
use glam::DVec3;

const GRAVITY: f64 = 9.81;
/// Density of water [kg/m^3].
const WATER: f64 = 1000.0;

/// Methods with their arguments of `--set`. FLIP is merged, without bounce, so that rigid bodies cannot turn.
const METHODS: [(&str, &[&str]); 2] = [
    ("SPH", &["coupling.method=\"contact-law\""]),
    ("FLIP", &["coupling.alpha=0.0", "participants.water.settings.method=\"flip\""]),
];

/// The same as owned text, for a case to add to.
fn owned(keys: &[&str]) -> Vec<String> {
    keys.iter().map(|key| key.to_string()).collect()
}

fn mean(of: &[DVec3]) -> DVec3 {
    of.iter().sum::<DVec3>() / of.len() as f64
}

/// Particles in the slice of this thickness around y [m], moved into the plane y = 0 and by `shift`.
fn slice(frame: &ParticipantFrame, y: f64, thickness: f64, shift: DVec3) -> Vec<DVec3> {
    let inside = frame.positions.iter().filter(|x| (x.y - y).abs() < 0.5 * thickness);
    inside.map(|x| x.with_y(0.0) + shift).collect()
}
