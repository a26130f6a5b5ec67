//! How velocities answer the impulses of contacts: B in v' = v* + B J.
//!
//! The first part of B is diagonal: inverse mass and inertia of each body, exact for explicit participants, whose other
//! forces do not depend on what contacts do within the step. The second part is the model of an implicit participant,
//! whose bodies answer for each other: symmetric and of low rank, learned from its answers.

use amalgam_particles::{DVec3, reduce};

/// The part of B that is not diagonal.
#[derive(Clone, Debug, Default)]
pub enum Response {
    /// None: inverse mass and inertia are all.
    #[default]
    Diagonal,
    /// Symmetric matrices, each over some bodies of its own. The sum with the diagonal must be positive semidefinite.
    LowRank(Vec<LowRank>),
}

/// sum over k of w_k e_k e_k^T, over the linear motion of some bodies.
#[derive(Clone, Debug, Default)]
pub struct LowRank {
    /// The bodies, ascending.
    pub bodies: Vec<u32>,
    /// The terms.
    pub terms: Vec<Term>,
}

/// One term w e e^T.
#[derive(Clone, Debug, Default)]
pub struct Term {
    /// w [1/kg], negative where bodies answer less than their inverse mass says.
    pub weight: f64,
    /// e, one for each of [`LowRank::bodies`].
    pub direction: Vec<DVec3>,
}

impl LowRank {
    /// Adds the change of velocity [m/s] by the impulses [kg m/s] of the same bodies, both in the order of
    /// [`Self::bodies`]. Sums are in fixed chunks: the same bits on any number of threads.
    pub fn add(&self, impulse: &[DVec3], change: &mut [DVec3]) {
        for Term { weight, direction } in &self.terms {
            let along = weight * reduce::sum(impulse.len(), 0.0, |k| direction[k].dot(impulse[k]));
            change.iter_mut().zip(direction).for_each(|(change, direction)| *change += *direction * along);
        }
    }

    /// Whether no term adds to the answer of any body.
    pub fn is_negative(&self) -> bool {
        self.terms.iter().all(|term| term.weight <= 0.0)
    }
}
