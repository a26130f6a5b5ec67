//! Response of velocities to the impulses of contacts: B in v' = v* + B J.
//!
//! The first part of B is diagonal: inverse mass and inertia of each body. It is exact for explicit
//! participants, whose other forces do not depend on the contacts of the step. The second part is the model
//! of an implicit participant, in which an impulse on one body also moves others. It is symmetric and of low
//! rank, and learned from the participant's answers.

use std::sync::Arc;

use amalgam_particles::DVec3;
use amalgam_particles::lanes::{self, LANES, Lanes, Task};
use bytemuck::{cast_slice, cast_slice_mut};
use rayon::prelude::*;

use super::tasks::{CHUNK, SERIAL};

/// The part of B that is not diagonal.
#[derive(Clone, Debug, Default)]
pub enum Response {
    /// No further part: B is inverse masses and inertias.
    #[default]
    Diagonal,
    /// Symmetric matrices, each over its own bodies. Their sum with the diagonal must be positive
    /// semidefinite.
    LowRank(Vec<LowRank>),
}

/// The matrix sum_k w_k e_k e_k^T over the linear motion of some bodies.
#[derive(Clone, Debug, Default)]
pub struct LowRank {
    /// The bodies, ascending.
    pub bodies: Vec<u32>,
    /// The terms.
    pub terms: Vec<Term>,
}

/// A term w e e^T.
#[derive(Clone, Debug)]
pub struct Term {
    /// w [1/kg], negative where bodies answer less than their inverse masses say.
    pub weight: f64,
    /// e, with a vector for each of [`LowRank::bodies`].
    pub direction: Arc<[DVec3]>,
    /// e . B0^-1 e [kg], where B0 is the diagonal part. Only read where w > 0.
    pub size: f64,
}

impl LowRank {
    /// Adds the change of velocity sum_k w_k e_k (e_k . impulse) [m/s] by the impulses [kg m/s], both in the
    /// order of [`Self::bodies`]. Sums are in fixed chunks: the bits are the same on any number of threads.
    pub fn add(&self, impulse: &[DVec3], change: &mut [DVec3]) {
        let part = |(chunk, impulse): (usize, &[DVec3])| -> Vec<f64> {
            let first = chunk * CHUNK;
            let of = |term: &Term| {
                let direction = cast_slice(&term.direction[first..first + impulse.len()]);
                lanes::run(Dot { a: direction, b: cast_slice(impulse) })
            };
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
                let direction = cast_slice(&term.direction[first..first + change.len()]);
                lanes::run(AddTo { sum: cast_slice_mut(change), factor, direction });
            }
        });
    }

    /// Bound on the factor by which the terms with w > 0 enlarge an answer of the diagonal part: 1 + sum_k w_k
    /// e_k . B0^-1 e_k.
    pub fn growth(&self) -> f64 {
        let grows = self.terms.iter().filter(|term| term.weight > 0.0);
        1.0 + grows.map(|term| term.weight * term.size).sum::<f64>()
    }
}

/// The product of two columns, component by component, in sums of one lane each.
struct Dot<'a> {
    a: &'a [f64],
    b: &'a [f64],
}

impl Task for Dot<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f64 {
        let ((a, a_rest), (b, b_rest)) = (self.a.as_chunks::<LANES>(), self.b.as_chunks::<LANES>());
        let mut sums = [0.0; LANES];
        for (a, b) in a.iter().zip(b) {
            for l in 0..LANES {
                sums[l] += a[l] * b[l];
            }
        }
        for (sum, (a, b)) in sums.iter_mut().zip(a_rest.iter().zip(b_rest)) {
            *sum += a * b;
        }
        sums.iter().sum()
    }
}

/// Adds a column times a factor.
struct AddTo<'a> {
    sum: &'a mut [f64],
    factor: f64,
    direction: &'a [f64],
}

impl Task for AddTo<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        for (sum, direction) in self.sum.iter_mut().zip(self.direction) {
            *sum += direction * self.factor;
        }
    }
}
