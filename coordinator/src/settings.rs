//! Tables of a scene for the coordinator: `[domain]`, `[time]`, `[coupling]` and `[[probes]]`.
//!
//! Values are checked by `faults`, which names the key and what to write.

mod contact;
mod coupling;
mod default_method;
mod domain;
mod fault;
mod method;
mod obstacle;
mod pairwise;
mod probe;
mod time;

pub(crate) use contact::OWN_FRICTION;
pub use contact::{ContactSettings, PairLaw};
pub use coupling::{CouplingSettings, Inertia, SplitRule, StagesMax, Synchronise};
pub(crate) use default_method::ChosenMethod;
pub use domain::DomainSettings;
pub use fault::Fault;
pub use method::ContactMethod;
pub(crate) use method::MethodProperties;
pub use obstacle::{ObstacleSettings, ObstacleShape};
pub use pairwise::{PairwiseImpulseSettings, PenaltySettings, SphRepulsionSettings};
pub use probe::{ProbeSettings, Quantity};
pub use time::TimeSettings;
