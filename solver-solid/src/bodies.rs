//! What bodies have in common: how they become particles and springs.

use amalgam_particles::{DVec3, ParticleId, Particles};
use serde::Deserialize;

use crate::bonds::BondedBody;
use crate::section::Checks;
use crate::springs::{Foundation, Spring};

/// A body of the section.
pub(crate) trait Body {
    /// Records every fault of its settings.
    fn check(&self, self_collision: bool, checks: &mut Checks);

    /// Appends its particles and springs; asked only of faultless bodies.
    fn lay_out(&self, layout: &mut Layout);
}

/// Particles, springs and what is bonded of all bodies, in the order of the section. Ids are indices.
#[derive(Default)]
pub(crate) struct Layout {
    pub(crate) particles: Particles,
    pub(crate) springs: Vec<Spring>,
    /// One a particle.
    pub(crate) foundations: Vec<Foundation>,
    pub(crate) triangles: Vec<[ParticleId; 3]>,
    pub(crate) bonded: Vec<BondedBody>,
}

/// A particle as a body lays it out.
pub(crate) struct Node {
    pub(crate) position: DVec3,
    pub(crate) velocity: DVec3,
    pub(crate) mass: f64,
    pub(crate) radius: f64,
    pub(crate) pinned: bool,
}

impl Layout {
    /// Appends a particle, on a foundation if the body has one.
    pub(crate) fn push(&mut self, node: &Node, foundation: Option<&FoundationSettings>) {
        let id = ParticleId(self.particles.len() as u64);
        self.particles.push(id, node.position, node.velocity, node.mass, node.radius, node.pinned);
        // A pinned particle takes no force, so a foundation under it would only count energy that nobody gets.
        let foundation = foundation.filter(|_| !node.pinned).map_or_else(Foundation::default, |settings| {
            Foundation { anchor: node.position, stiffness: settings.stiffness, damping: settings.damping }
        });
        self.foundations.push(foundation);
    }
}

/// A spring under every particle of a body, from where the particle is at the start.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FoundationSettings {
    /// Stiffness in every direction [N/m].
    pub(crate) stiffness: f64,
    /// Damping in every direction [N s/m].
    #[serde(default)]
    pub(crate) damping: f64,
}

impl FoundationSettings {
    pub(crate) fn check(&self, checks: &mut Checks) {
        checks.not_negative("foundation.stiffness", self.stiffness);
        checks.not_negative("foundation.damping", self.damping);
    }
}

/// One value for all, or one for each.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a value or a list of values")]
pub(crate) enum OneOrMany<T> {
    /// The same for all.
    One(T),
    /// One for each.
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    /// All values there are.
    pub(crate) fn as_slice(&self) -> &[T] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
        }
    }

    /// The value for `index`.
    pub(crate) fn get(&self, index: usize) -> &T {
        match self {
            Self::One(value) => value,
            Self::Many(values) => &values[index],
        }
    }

    /// The number of values, where there must be one for each.
    pub(crate) fn count(&self) -> Option<usize> {
        match self {
            Self::One(_) => None,
            Self::Many(values) => Some(values.len()),
        }
    }
}
