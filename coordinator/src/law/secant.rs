//! The response of an implicit participant to the impulses of contacts, learned from its answers within a
//! step.
//!
//! The true response A takes impulses to changes of velocity. It is symmetric and positive definite, and for
//! a linear system it does not change within a step. Two answers give a pair y = A s, where s is the change
//! of impulses and y the change of velocities. Let the pairs be the columns of S and Y, and let B0 be the 3 x
//! 3 blocks that the participant reports. The model is
//!
//! ```text
//! B = B0 - B0 S (S^T B0 S)^-1 S^T B0 + Y (S^T Y)^-1 Y^T,
//! ```
//!
//! the update of Broyden, Fletcher, Goldfarb and Shanno for several pairs at once ([NocedalWright2006],
//! section 6.1; [Schnabel1983]). It is symmetric and repeats every answer, B S = Y. It is positive
//! semidefinite for any pairs: the first two terms are B0 with the directions of S projected out, and the
//! third is a square where S^T Y is positive definite. Answers are exact to a tolerance only. So S^T Y is
//! made symmetric here, and directions in which it is not clearly positive are left out. The problem of the
//! contacts therefore stays convex.

use amalgam_particles::{DMat3, DVec3, reduce};
use nalgebra::{DMatrix, DVector, SymmetricEigen};

use super::response::{LowRank, Term};

/// Eigenvalues of S^T Y below this part of the largest are noise. Columns are scaled so that its diagonal is
/// 1.
const NOISE: f64 = 1e-8;

/// Answers of a participant in this step.
#[derive(Clone, Debug)]
pub struct Secant {
    /// B0 of each particle in contact [1/kg].
    mobility: Vec<DMat3>,
    /// The last impulses [kg m/s] and the velocities [m/s] that they led to.
    last: (Vec<DVec3>, Vec<DVec3>),
    /// Columns of S: changes of impulses [kg m/s].
    impulses: Vec<Vec<DVec3>>,
    /// Columns of Y: changes of velocities [m/s].
    velocities: Vec<Vec<DVec3>>,
}

impl Secant {
    /// Starts from the first answer: `impulse` [kg m/s] led to `velocity` [m/s]. `mobility` [1/kg] is B0,
    /// symmetric and positive definite.
    pub fn new(mobility: Vec<DMat3>, impulse: Vec<DVec3>, velocity: Vec<DVec3>) -> Self {
        Self { mobility, last: (impulse, velocity), impulses: Vec::new(), velocities: Vec::new() }
    }

    /// B0 of each particle in contact [1/kg].
    pub fn mobility(&self) -> &[DMat3] {
        &self.mobility
    }

    /// Adds another answer of the step, with s and y over sqrt(s . y). A pair with s . y <= 0 teaches
    /// nothing: the impulses did not change, or the participant moved against their change.
    pub fn learn(&mut self, impulse: Vec<DVec3>, velocity: Vec<DVec3>) {
        let (last_impulse, last_velocity) = &self.last;
        let work = reduce::sum(impulse.len(), 0.0, |k| {
            (impulse[k] - last_impulse[k]).dot(velocity[k] - last_velocity[k])
        });
        if work > 0.0 {
            let change = |new: &[DVec3], old: &[DVec3]| -> Vec<DVec3> {
                new.iter().zip(old).map(|(new, old)| (*new - *old) / work.sqrt()).collect()
            };
            self.impulses.push(change(&impulse, last_impulse));
            self.velocities.push(change(&velocity, last_velocity));
        }
        self.last = (impulse, velocity);
    }

    /// The model B - B0 over `bodies`, one body for each particle.
    pub fn model(&self, bodies: Vec<u32>) -> LowRank {
        let works = gram(&self.impulses, &self.velocities);
        let (values, vectors) = eigen(&works);
        let largest = values.iter().fold(0.0, |largest: f64, &value| largest.max(value));
        let clear: Vec<usize> = (0..values.len()).filter(|&k| values[k] > NOISE * largest).collect();
        // Eigenvectors over the roots of their eigenvalues form a basis in which S^T Y is the identity.
        let along = |columns: &[Vec<DVec3>]| -> Vec<Vec<DVec3>> {
            clear.iter().map(|&k| combine(columns, &(vectors.column(k) / values[k].sqrt()))).collect()
        };
        let (impulses, velocities) = (along(&self.impulses), along(&self.velocities));
        let free = |impulse: &Vec<DVec3>| -> Vec<DVec3> {
            impulse.iter().zip(&self.mobility).map(|(impulse, mobility)| *mobility * *impulse).collect()
        };
        let expected: Vec<Vec<DVec3>> = impulses.iter().map(free).collect();
        let (values, vectors) = eigen(&gram(&impulses, &expected));
        // Y Y^T, then -B0 S (S^T B0 S)^-1 S^T B0 by the eigenvectors of S^T B0 S.
        let corrected = velocities.into_iter().map(|direction| Term { weight: 1.0, direction });
        let forgotten = (0..values.len()).map(|k| Term {
            weight: -1.0 / values[k],
            direction: combine(&expected, &vectors.column(k).into_owned()),
        });
        LowRank { bodies, terms: corrected.chain(forgotten).collect() }
    }

    /// Velocities without impulses [m/s], as far as the model knows: v - B p for the last impulses p and
    /// velocities v.
    pub fn free(&self, model: &LowRank) -> Vec<DVec3> {
        let (impulse, velocity) = &self.last;
        let mut change: Vec<DVec3> =
            impulse.iter().zip(&self.mobility).map(|(impulse, mobility)| *mobility * *impulse).collect();
        model.add(impulse, &mut change);
        velocity.iter().zip(&change).map(|(velocity, change)| *velocity - *change).collect()
    }

    /// The velocities of the last answer [m/s].
    pub fn velocity(&self) -> &[DVec3] {
        &self.last.1
    }
}

/// The matrix of all products a_i . b_j.
fn gram(a: &[Vec<DVec3>], b: &[Vec<DVec3>]) -> DMatrix<f64> {
    DMatrix::from_fn(a.len(), b.len(), |i, j| reduce::sum(a[i].len(), 0.0, |k| a[i][k].dot(b[j][k])))
}

/// Eigenvalues and eigenvectors of the symmetric part of a matrix.
fn eigen(matrix: &DMatrix<f64>) -> (DVector<f64>, DMatrix<f64>) {
    if matrix.is_empty() {
        return (DVector::zeros(0), DMatrix::zeros(0, 0));
    }
    let SymmetricEigen { eigenvalues, eigenvectors } =
        SymmetricEigen::new((matrix + matrix.transpose()) * 0.5);
    (eigenvalues, eigenvectors)
}

/// The sum of columns, each times a coefficient.
fn combine(columns: &[Vec<DVec3>], coefficients: &DVector<f64>) -> Vec<DVec3> {
    let mut sum = vec![DVec3::ZERO; columns[0].len()];
    for (column, &coefficient) in columns.iter().zip(coefficients) {
        sum.iter_mut().zip(column).for_each(|(sum, value)| *sum += *value * coefficient);
    }
    sum
}

#[cfg(test)]
mod tests {
    use amalgam_particles::random::uniform_f64;

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
        // Six changes that span all impulses on two particles.
        let impulses = [
            [DVec3::ZERO; 2],
            [DVec3::X, DVec3::ZERO],
            [DVec3::X, DVec3::new(0.3, 1.0, 0.0)],
            [DVec3::Y, DVec3::new(0.0, 0.5, 2.0)],
            [DVec3::Z, DVec3::NEG_Z],
            [DVec3::new(2.0, 0.0, 1.0), DVec3::new(-1.0, 0.2, 0.0)],
            [DVec3::new(0.1, -0.7, 0.4), DVec3::ONE],
        ];
        let mut secant =
            Secant::new(vec![DMat3::IDENTITY; 2], impulses[0].to_vec(), answer(7.0, impulses[0]));
        for p in &impulses[1..] {
            secant.learn(p.to_vec(), answer(7.0, *p));
        }
        let model = secant.model(vec![0, 1]);
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
    fn answers_against_the_impulse_teach_nothing() {
        let mut secant = Secant::new(vec![DMat3::IDENTITY], vec![DVec3::ZERO], vec![DVec3::ZERO]);
        secant.learn(vec![DVec3::X], vec![-DVec3::X]);
        assert!(secant.model(vec![0]).terms.is_empty());
    }

    /// Answers with errors, in directions that are almost the same, too.
    #[test]
    fn the_model_never_answers_against_an_impulse() {
        let noise = |k: u64| DVec3::from_array([0, 1, 2].map(|axis| uniform_f64(&[k, axis]) - 0.5));
        let p = |k: u64| [noise(k) * 1e-3 + DVec3::X, noise(k + 100) * 1e-3];
        let noisy = |k: u64| {
            let mut v = answer(1e4, p(k));
            v.iter_mut().for_each(|v| *v += noise(k + 200) * 1e-4);
            v
        };
        let mobility = vec![DMat3::from_diagonal(DVec3::new(1e-4, 1e-4, 1.0)); 2];
        let mut secant = Secant::new(mobility.clone(), p(0).to_vec(), noisy(0));
        for k in 1..8 {
            secant.learn(p(k).to_vec(), noisy(k));
            let model = secant.model(vec![0, 1]);
            for trial in 300..400 {
                let given = [noise(trial), noise(trial + 100)];
                let mut change: Vec<DVec3> = given.iter().map(|p| mobility[0] * *p).collect();
                model.add(&given, &mut change);
                let work: f64 = change.iter().zip(&given).map(|(v, p)| v.dot(*p)).sum();
                assert!(work > -1e-12, "{k} {trial}: {work}");
            }
        }
    }
}
