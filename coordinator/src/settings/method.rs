//! Methods of contact, and their properties.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Method by which particles in contact affect each other. A new method is a variant with its properties, and
/// an arm in `Simulation::step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContactMethod {
    /// Coulomb's cone with Signorini's condition: contacts press, slide and part
    /// (`docs/theory/contact-law.md`).
    ContactLaw,
    /// Particle merging-and-splitting [Truong2021].
    MergeSplit,
    /// A spring and a damper between particles that overlap [MooreWilhelms1988], [CundallStrack1979].
    Penalty,
    /// Pressure from the density that foreign particles add [Mueller2004], [Solenthaler2007].
    SphRepulsion,
    /// An impulse for each pair that approaches, one pair after the other [Guendelman2003].
    PairwiseImpulse,
}

/// Properties of a method. Methods differ in their properties and in their way through a step, and nothing
/// else asks for a method by its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MethodProperties {
    /// Contacts are all pairs that may touch within the step. With `false`, contacts are the pairs that
    /// intersect at the start of the step.
    pub(crate) looks_ahead: bool,
    /// A contact joins places on two surfaces, with a normal and friction. Bodies turn about such places, and
    /// obstacles have surfaces but no particles. With `false`, a contact joins two particles.
    pub(crate) on_surfaces: bool,
    /// Particles in contact merge to groups, and each participant answers for its part of a group. With
    /// `false`, a group has one participant.
    pub(crate) merges: bool,
    /// Explicit participants integrate once in a step.
    pub(crate) asks_once: bool,
    /// Contacts give no energy, and store none that no participant reports.
    pub(crate) conserves_energy: bool,
    /// The order of participants in the scene changes no bit. With `false`, trees of merges and sequences of
    /// pairs follow this order.
    pub(crate) orders_by_name: bool,
}

impl ContactMethod {
    /// The method's properties.
    pub(crate) fn properties(self) -> MethodProperties {
        match self {
            Self::ContactLaw => MethodProperties {
                looks_ahead: true,
                on_surfaces: true,
                merges: false,
                asks_once: true,
                conserves_energy: true,
                orders_by_name: true,
            },
            Self::MergeSplit => MethodProperties {
                looks_ahead: false,
                on_surfaces: false,
                merges: true,
                asks_once: false,
                conserves_energy: true,
                orders_by_name: false,
            },
            Self::Penalty | Self::SphRepulsion | Self::PairwiseImpulse => MethodProperties {
                looks_ahead: false,
                on_surfaces: false,
                merges: false,
                asks_once: false,
                conserves_energy: false,
                orders_by_name: false,
            },
        }
    }
}

/// The method's name in a scene.
impl fmt::Display for ContactMethod {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(formatter)
    }
}
