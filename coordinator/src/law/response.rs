//! Response of velocities to the impulses of contacts: B in v' = v* + B J.
//!
//! The first part of B is diagonal: inverse mass and inertia of each body. It is exact for explicit
//! participants, whose other forces do not depend on the contacts of the step. The second part is the model
//! of an implicit participant, in which an impulse on one body also moves others. It is symmetric, and learned
//! from the participant's answers.

pub mod neighbours;

use std::sync::Arc;

use amalgam_particles::DVec3;
use rayon::prelude::*;

use super::columns::{add_to, dot};
use super::tasks::{CHUNK, SERIAL};
use neighbours::Neighbours;

/// The part of B that is not diagonal.
#[derive(Clone, Debug, Default)]
pub enum Response {
    /// No further part: B is inverse masses and inertias.
    #[default]
    Diagonal,
    /// Symmetric matrices, each over its own bodies. Their sum with the diagonal must be positive
    /// semidefinite.
    Models(Vec<Model>),
}

/// The part of B over the linear motion of some bodies: that of neighbours, and sum_k w_k e_k e_k^T.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The bodies, ascending.
    pub bodies: Vec<u32>,
    /// The impulses that bodies pass on to their neighbours, if any.
    pub neighbours: Option<Arc<Neighbours>>,
    /// The terms.
    pub terms: Vec<Term>,
}

/// A term w e e^T.
#[derive(Clone, Debug)]
pub struct Term {
    /// w [1/kg], negative where bodies answer less than their inverse masses say.
    pub weight: f64,
    /// e, with a vector for each of [`Model::bodies`].
    pub direction: Arc<[DVec3]>,
    /// e . D^-1 e [kg], where D is the diagonal part. Only read where w > 0.
    pub size: f64,
}

impl Model {
    /// Adds the change of velocity [m/s] by the impulses [kg m/s], both in the order of [`Self::bodies`]. Sums are in
    /// fixed chunks: the bits are the same on any number of threads.
    pub fn add(&self, impulse: &[DVec3], change: &mut [DVec3]) {
        if let Some(neighbours) = &self.neighbours {
            neighbours.add(impulse, change);
        }
        let part = |(chunk, impulse): (usize, &[DVec3])| -> Vec<f64> {
            let first = chunk * CHUNK;
            let of = |term: &Term| dot(&term.direction[first..first + impulse.len()], impulse);
            self.terms.iter().map(of).collect()
        };
        let apart = impulse.par_chunks(CHUNK).enumerate().with_min_len(SERIAL / CHUNK);
        let parts: Vec<Vec<f64>> = apart.map(part).collect();
        let weigh = |(k, term): (usize, &Term)| term.weight * parts.iter().map(|part| part[k]).sum::<f64>();
        let along: Vec<f64> = self.terms.iter().enumerate().map(weigh).collect();
        let apart = change.par_chunks_mut(CHUNK).enumerate().with_min_len(SERIAL / CHUNK);
        apart.for_each(|(chunk, change)| {
            let first = chunk * CHUNK;
            for (term, &factor) in self.terms.iter().zip(&along) {
                add_to(change, factor, &term.direction[first..first + change.len()]);
            }
        });
    }

    /// Bound on the factor by which the model enlarges an answer of the diagonal part D: that of neighbours, and w_k
    /// e_k . D^-1 e_k for each term with w > 0.
    pub fn growth(&self) -> f64 {
        let grows = self.terms.iter().filter(|term| term.weight > 0.0);
        let base = self.neighbours.as_ref().map_or(1.0, |neighbours| neighbours.growth());
        base + grows.map(|term| term.weight * term.size).sum::<f64>()
    }
}
