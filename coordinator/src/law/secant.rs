//! The response of an implicit participant to the impulses of contacts, learned from its answers within a step.
//!
//! A solver that integrates implicitly answers an impulse with less than the impulse over the mass, and at other
//! particles too. Its true response A, from impulses to velocities, is symmetric and does not change within a step
//! of a linear system, and what it lacks to B0 = 1/m is negative semidefinite: stiffness and damping only resist.
//! Two answers give a pair s (change of impulses), y (change of velocities), y = A s, so that e = y - B0 s is a
//! direction in which A - B0 is known. With all pairs as columns, the model
//!
//! ```text
//! B = B0 + E (S^T E)^+ E^T
//! ```
//!
//! is symmetric and repeats every answer, B s = y. In exact arithmetic S^T E = S^T (A - B0) S is symmetric and
//! negative semidefinite. Answers are solved for to a tolerance, so it is made symmetric here, and only its negative
//! eigenvalues are kept: the model then never answers more than B0, and the iteration of the contacts stays stable
//! (symmetric rank-one updates in the field's words, [NocedalWright2006], section 6.2, with the sign enforced).

use amalgam_particles::{DVec3, reduce};
use nalgebra::{DMatrix, SymmetricEigen};

use super::response::{LowRank, Term};

/// Eigenvalues of S^T E below this part of the largest are noise.
const NOISE: f64 = 1e-8;

/// What a participant has answered in this step.
#[derive(Clone, Debug)]
pub struct Secant {
    /// B0: 1/m of each particle in contact [1/kg].
    inverse_mass: Vec<f64>,
    /// The last impulses [kg m/s] and the velocities [m/s] that they led to.
    last: (Vec<DVec3>, Vec<DVec3>),
    /// Columns of S: changes of impulses [kg m/s].
    impulses: Vec<Vec<DVec3>>,
    /// Columns of E: changes of velocities that B0 does not explain [m/s].
    errors: Vec<Vec<DVec3>>,
}

impl Secant {
    /// The first answer: `impulse` [kg m/s] led to `velocity` [m/s].
    pub fn new(inverse_mass: Vec<f64>, impulse: Vec<DVec3>, velocity: Vec<DVec3>) -> Self {
        Self { inverse_mass, last: (impulse, velocity), impulses: Vec::new(), errors: Vec::new() }
    }

    /// Another answer of the same step.
    pub fn learn(&mut self, impulse: Vec<DVec3>, velocity: Vec<DVec3>) {
        let change = |new: &[DVec3], old: &[DVec3]| -> Vec<DVec3> {
            new.iter().zip(old).map(|(new, old)| *new - *old).collect()
        };
        let given = change(&impulse, &self.last.0);
        let mut error = change(&velocity, &self.last.1);
        for ((error, given), inverse_mass) in error.iter_mut().zip(&given).zip(&self.inverse_mass) {
            *error -= *given * *inverse_mass;
        }
        self.last = (impulse, velocity);
        self.impulses.push(given);
        self.errors.push(error);
    }

    /// The model B - B0 over `bodies`, one for each particle.
    pub fn model(&self, bodies: Vec<u32>) -> LowRank {
        let count = self.errors.len();
        if count == 0 {
            return LowRank { bodies, terms: Vec::new() };
        }
        let dot = |a: &[DVec3], b: &[DVec3]| reduce::sum(a.len(), 0.0, |k| a[k].dot(b[k]));
        let mut gram = DMatrix::zeros(count, count);
        for i in 0..count {
            for j in 0..count {
                gram[(i, j)] = dot(&self.impulses[i], &self.errors[j]);
            }
        }
        let symmetric = (&gram + gram.transpose()) * 0.5;
        let SymmetricEigen { eigenvalues, eigenvectors } = SymmetricEigen::new(symmetric);
        let largest = eigenvalues.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
        let mut terms = Vec::new();
        for (value, vector) in eigenvalues.iter().zip(eigenvectors.column_iter()) {
            if *value < -NOISE * largest {
                let mut direction = vec![DVec3::ZERO; bodies.len()];
                for (&part, error) in vector.iter().zip(&self.errors) {
                    direction.iter_mut().zip(error).for_each(|(sum, error)| *sum += *error * part);
                }
                terms.push(Term { weight: 1.0 / value, direction });
            }
        }
        LowRank { bodies, terms }
    }

    /// The velocities [m/s] that the participant would have without impulses, as far as the model knows.
    pub fn free(&self, model: &LowRank) -> Vec<DVec3> {
        let (impulse, velocity) = &self.last;
        let mut change: Vec<DVec3> =
            impulse.iter().zip(&self.inverse_mass).map(|(impulse, inverse)| *impulse * *inverse).collect();
        model.add(impulse, &mut change);
        velocity.iter().zip(&change).map(|(velocity, change)| *velocity - *change).collect()
    }

    /// The velocities of the last answer [m/s].
    pub fn velocity(&self) -> &[DVec3] {
        &self.last.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two unit masses joined by a spring: (1 + k) v1 - k v2 = p1, and the other way round.
    fn answer(stiffness: f64, p: [DVec3; 2]) -> Vec<DVec3> {
        let determinant = 1.0 + 2.0 * stiffness;
        let own = (1.0 + stiffness) / determinant;
        let other = stiffness / determinant;
        vec![p[0] * own + p[1] * other, p[1] * own + p[0] * other]
    }

    #[test]
    fn a_linear_response_is_learned_whole() {
        let impulses = [
            [DVec3::ZERO; 2],
            [DVec3::X, DVec3::ZERO],
            [DVec3::X, DVec3::new(0.3, 1.0, 0.0)],
            [DVec3::Y, DVec3::new(0.0, 0.5, 2.0)],
            [DVec3::Z, DVec3::NEG_Z],
        ];
        let mut secant = Secant::new(vec![1.0; 2], impulses[0].to_vec(), answer(7.0, impulses[0]));
        for p in &impulses[1..] {
            secant.learn(p.to_vec(), answer(7.0, *p));
        }
        let model = secant.model(vec![0, 1]);
        assert!(model.is_negative());
        for free in secant.free(&model) {
            assert!(free.length() < 1e-12, "{free}");
        }
        // An impulse that was never given.
        let p = [DVec3::new(0.2, -1.0, 0.4), DVec3::new(-0.6, 0.1, 0.9)];
        let mut change = p.to_vec();
        model.add(&p, &mut change);
        for (change, expected) in change.iter().zip(answer(7.0, p)) {
            assert!((*change - expected).length() < 1e-10, "{change} {expected}");
        }
    }

    #[test]
    fn an_answer_beyond_the_mass_adds_nothing() {
        let mut secant = Secant::new(vec![1.0], vec![DVec3::ZERO], vec![DVec3::ZERO]);
        secant.learn(vec![DVec3::X], vec![DVec3::X * 2.0]);
        assert!(secant.model(vec![0]).terms.is_empty());
    }
}
