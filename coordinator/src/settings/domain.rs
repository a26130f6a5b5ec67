//! `[domain]`: where the scene happens.

use amalgam_particles::{DVec3, Obstacle};
use serde::{Deserialize, Serialize};

use super::fault::Fault;
use super::obstacle::ObstacleSettings;

/// Largest number of obstacles. The distance of each particle from each of them is computed.
pub(super) const OBSTACLES_MAX: usize = 1024;

/// `[domain]`: where the scene happens.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DomainSettings {
    /// Lowest corner [m]. Fluids stay inside, and cameras look at the domain.
    pub min: DVec3,
    /// Highest corner [m].
    pub max: DVec3,
    /// Gravity [m/s^2].
    #[serde(default = "earth")]
    pub gravity: DVec3,
    /// `[[domain.obstacles]]`: smooth surfaces that nothing moves. Needs the contact law.
    #[serde(default)]
    pub obstacles: Vec<ObstacleSettings>,
}

fn earth() -> DVec3 {
    DVec3::new(0.0, 0.0, -9.81)
}

impl DomainSettings {
    /// All obstacles, with the surfaces from their files.
    ///
    /// # Errors
    /// A file that gives no closed surface.
    pub fn all_obstacles(&self) -> Result<Vec<Obstacle>, String> {
        self.obstacles.iter().map(ObstacleSettings::obstacle).collect()
    }

    /// Faults in the values.
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        if !(self.min.is_finite() && self.max.is_finite() && self.min.cmplt(self.max).all()) {
            faults.push(Fault::new(
                "max",
                "every coordinate of max must be finite and larger than that of min",
            ));
        }
        if !self.gravity.is_finite() {
            faults.push(Fault::new("gravity", "gravity must be finite, for example gravity = [0, 0, -9.81]"));
        }
        if self.obstacles.len() > OBSTACLES_MAX {
            let message = format!(
                "{} obstacles are more than {OBSTACLES_MAX}: join some in a mesh",
                self.obstacles.len()
            );
            faults.push(Fault::new("obstacles", message));
        }
        for (at, obstacle) in self.obstacles.iter().enumerate() {
            faults.extend(obstacle.faults(at));
            if self.obstacles[..at].iter().any(|other| other.name == obstacle.name) {
                let message =
                    format!("two obstacles are called {:?}: give each a name of its own", obstacle.name);
                faults.push(Fault::new(&format!("obstacles[{at}].name"), message));
            }
        }
        faults
    }
}
