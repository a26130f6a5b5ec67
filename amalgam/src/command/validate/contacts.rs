//! Cases of the contact law, through the coordinator: bodies that slide, roll, strike, stand and fall.

pub(super) mod bars;
pub(super) mod boxes;
pub(super) mod cloth;
pub(super) mod column;
pub(super) mod cradle;
pub(super) mod incline;
pub(super) mod leaning_tower;
pub(super) mod overturn;
pub(super) mod planet;
pub(super) mod rolling;
pub(super) mod rope;
pub(super) mod tilted_box;
pub(super) mod top;
pub(super) mod tower;
pub(super) mod water;

use glam::DVec3;

const GRAVITY: f64 = 9.81;

/// A setting as `--set` takes it.
fn set(key: &str, value: impl std::fmt::Display) -> String {
    format!("{key}={value}")
}

/// The same for a key of the first body of the first participant.
fn set_body(key: &str, value: impl std::fmt::Display) -> String {
    format!("participants[0].settings.bodies[0].{key}={value}")
}

/// A vector as a scene writes it.
fn vector(v: DVec3) -> String {
    format!("[{:?}, {:?}, {:?}]", v.x, v.y, v.z)
}

/// Vectors as a scene writes them.
fn vectors(all: &[DVec3]) -> String {
    format!("[{}]", all.iter().map(|v| vector(*v)).collect::<Vec<_>>().join(", "))
}

/// Gravity seen from a slope: the plane is z = 0 and downhill is x.
fn downhill(degrees: f64) -> DVec3 {
    let (sin, cos) = degrees.to_radians().sin_cos();
    DVec3::new(sin, 0.0, -cos) * GRAVITY
}
