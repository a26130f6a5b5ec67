//! Contact of the participants' surfaces: `[[coupling.contact]]`, by pair of participants.

use crate::error::CoordinatorError;
use crate::law::contact::ContactMaterial;
use crate::settings::{ContactSettings, CouplingSettings, OWN_FRICTION, PairLaw};

/// Surfaces by pair of participants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surfaces {
    count: usize,
    materials: Vec<ContactMaterial>,
}

impl Surfaces {
    /// Reads `[[coupling.contact]]`. The first `participants` names belong to participants, the others to
    /// obstacles.
    ///
    /// # Errors
    /// An entry with an unknown name.
    pub(crate) fn new(
        settings: &CouplingSettings,
        names: &[String],
        participants: usize,
    ) -> Result<Self, CoordinatorError> {
        let count = names.len();
        let mut materials = vec![ContactMaterial::default(); count * count];
        for k in 0..participants {
            materials[k * count + k].friction = OWN_FRICTION;
        }
        for (at, entry) in settings.contact.iter().enumerate() {
            let find = |name: &String| {
                names.iter().position(|known| known == name).ok_or_else(|| {
                    CoordinatorError::Scene(format!(
                        "coupling.contact[{at}].between names {name:?}, but there are {}",
                        names.join(", ")
                    ))
                })
            };
            let (a, b) = (find(&entry.between[0])?, find(&entry.between[1])?);
            let material = material(entry);
            (materials[a * count + b], materials[b * count + a]) = (material, material);
        }
        Ok(Self { count, materials })
    }

    /// Surfaces of two participants, or of a participant and an obstacle. Whether a pair that merges is glued
    /// depends on its motion, too: [`ContactMaterial::merged`].
    pub(crate) fn between(&self, a: usize, b: usize) -> ContactMaterial {
        self.materials[a * self.count + b]
    }
}

/// Surfaces of a pair by an entry of `[[coupling.contact]]`.
fn material(entry: &ContactSettings) -> ContactMaterial {
    let ContactSettings { law, friction, rolling, restitution, .. } = *entry;
    match law {
        PairLaw::Cone => ContactMaterial { friction, rolling, restitution, glued: false },
        PairLaw::Merge => ContactMaterial { friction: f64::INFINITY, glued: true, ..Default::default() },
    }
}
