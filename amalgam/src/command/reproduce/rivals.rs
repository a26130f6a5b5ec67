//! Algorithms against contact that are no participants: they are whole simulations of the planet, with time
//! integration and attraction [Lisitsa2022].
//!
//! Each algorithm is a file below. It starts from the discs of the scene, takes steps of the scene's longest
//! length, and leaves the files of a run, so that the report reads its measures as those of any other run.

mod accretion;
mod discs;
mod events;
mod forces;
mod impulses;
mod positions;
mod recorded;

use serde::Deserialize;

use discs::{Attraction, Discs};

pub(super) use recorded::{MASS, masses, run};

/// An algorithm that moves discs and keeps them apart, or does not.
trait Rival {
    /// Advances all discs by a step of `dt` [s].
    fn step(&mut self, discs: &mut Discs, dt: f64);
}

/// An algorithm as it is written in `figures.toml`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(tag = "algorithm", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Algorithm {
    /// Attraction alone.
    Points {},
    /// Attraction that is bounded where discs overlap.
    BoundedForce {},
    /// Discs that overlap become one.
    Accretion {},
    /// A spring between discs that overlap.
    Springs {
        /// Force per depth of an overlap [N/m].
        stiffness: f64,
    },
    /// Impulses on discs that overlap.
    Impulses {
        /// Part of an overlap that is to close in a step, Baumgarte's term.
        beta: f64,
        restitution: f64,
        iterations: u32,
    },
    /// Position correction.
    Positions {
        /// Without it velocities are left alone.
        restitution: Option<f64>,
        iterations: u32,
    },
    /// Position correction in steps of Verlet.
    Verlet { iterations: u32 },
    /// Every collision at its own time.
    Events {
        restitution: f64,
        /// Time for which a disc that has collided takes no energy from others [s].
        contact_time: f64,
    },
}

impl Algorithm {
    fn rival(self) -> Box<dyn Rival> {
        let forces = |attraction, stiffness| Box::new(forces::Forces { attraction, stiffness });
        match self {
            Self::Points {} => forces(Attraction::Newton, 0.0),
            Self::BoundedForce {} => forces(Attraction::Bounded, 0.0),
            Self::Accretion {} => Box::new(accretion::Accretion),
            Self::Springs { stiffness } => forces(Attraction::Newton, stiffness),
            Self::Impulses { beta, restitution, iterations } => {
                Box::new(impulses::Impulses { beta, restitution, iterations })
            }
            Self::Positions { restitution, iterations } => {
                Box::new(positions::Positions { restitution, iterations })
            }
            Self::Verlet { iterations } => Box::new(positions::Verlet { iterations }),
            Self::Events { restitution, contact_time } => {
                Box::new(events::Events::new(restitution, contact_time))
            }
        }
    }
}

#[cfg(test)]
mod tests;
