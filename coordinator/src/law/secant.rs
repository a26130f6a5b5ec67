//! The response of an implicit participant to the impulses of contacts, learned from its answers within a
//! step.
//!
//! The true response A takes impulses to changes of velocity. It is symmetric and positive definite, and for
//! a linear system it does not change within a step. Two answers give a pair y = A s, where s is the change
//! of impulses and y the change of velocities. Let the pairs be the columns of S and Y, and let B0 be what is known
//! before (`response/neighbours.rs`). The model is
//!
//! ```text
//! B = B0 - B0 S (S^T B0 S)^-1 S^T B0 + Y (S^T Y)^-1 Y^T,
//! ```
//!
//! the update of Broyden, Fletcher, Goldfarb and Shanno for several pairs at once ([NocedalWright2006],
//! section 6.1; [Schnabel1983]). It is symmetric and repeats every answer, B S = Y.
//!
//! The pairs are kept in a form in which both inverses are the identity, so that a new answer adds two terms
//! and changes no other. From a new pair, the parts are taken out that the model knows: s loses the sum of c_j
//! s_j, and y the sum of c_j y_j. Here c_j is y_j . s, which is s_j . y since A is symmetric; answers are exact to
//! a tolerance only, and the mean of both is taken. Then y_j . s = 0 for the new s, and y = A s still. Scaled to
//! s . y = 1, the pair adds y y^T. With T = S R^-1 such that T^T B0 T = 1, by Gram and Schmidt in the metric
//! B0, the second term is -(B0 T)(B0 T)^T.
//!
//! B is positive semidefinite for any pairs: the first two terms are B0 with the directions of T projected out,
//! and the third is a sum of squares. A pair whose new part has no clearly positive s . y is left out. The
//! problem of the contacts therefore stays convex.

use std::sync::Arc;

use amalgam_particles::{DMat3, DVec3, reduce};

use super::response::neighbours::Neighbours;
use super::response::{Model, Term};

/// A pair teaches nothing if what the model does not know of it is below this part of s . y.
const NOISE: f64 = 1e-8;

/// Gram and Schmidt's process is done twice, since once leaves rounding in the directions of the largest terms.
const PASSES: usize = 2;

/// Answers of a participant in this step.
#[derive(Clone, Debug)]
pub struct Secant {
    /// The diagonal part D of B0, a block for each particle in contact [1/kg].
    mobility: Vec<DMat3>,
    /// The other part of B0.
    neighbours: Option<Arc<Neighbours>>,
    /// The last impulses [kg m/s] and the velocities [m/s] that they led to.
    last: (Vec<DVec3>, Vec<DVec3>),
    lessons: Vec<Lesson>,
}

/// The part of an answer that the answers before had not taught.
#[derive(Clone, Debug)]
struct Lesson {
    /// Column of S.
    impulse: Vec<DVec3>,
    /// Column of Y, and its size y . D^-1 y [kg].
    velocity: Arc<[DVec3]>,
    size: f64,
    /// Column of T.
    direction: Vec<DVec3>,
    /// Column of B0 T.
    expected: Arc<[DVec3]>,
}

impl Secant {
    /// Starts from the first answer: `impulse` [kg m/s] led to `velocity` [m/s]. `mobility` [1/kg] is the diagonal part
    /// of B0, symmetric and positive definite.
    pub fn new(
        mobility: Vec<DMat3>,
        neighbours: Option<Neighbours>,
        impulse: Vec<DVec3>,
        velocity: Vec<DVec3>,
    ) -> Self {
        let neighbours = neighbours.map(Arc::new);
        Self { mobility, neighbours, last: (impulse, velocity), lessons: Vec::new() }
    }

    /// The diagonal part of B0 of each particle in contact [1/kg].
    pub fn mobility(&self) -> &[DMat3] {
        &self.mobility
    }

    /// Adds another answer of the step. A pair with s . y <= 0 teaches nothing: the impulses did not change,
    /// or the participant moved against their change.
    pub fn learn(&mut self, impulse: Vec<DVec3>, velocity: Vec<DVec3>) {
        let change = |new: &[DVec3], old: &[DVec3]| -> Vec<DVec3> {
            new.iter().zip(old).map(|(new, old)| *new - *old).collect()
        };
        let (mut s, mut y) = (change(&impulse, &self.last.0), change(&velocity, &self.last.1));
        self.last = (impulse, velocity);
        let work = dot(&s, &y);
        if work <= 0.0 {
            return;
        }
        for _ in 0..PASSES {
            for lesson in &self.lessons {
                let known = 0.5 * (dot(&s, &lesson.velocity) + dot(&lesson.impulse, &y));
                add(&mut s, -known, &lesson.impulse);
                add(&mut y, -known, &lesson.velocity);
            }
        }
        let left = dot(&s, &y);
        if left <= NOISE * work {
            return;
        }
        let mut direction = s.clone();
        let whole = dot(&direction, &self.expected(&direction));
        for _ in 0..PASSES {
            for lesson in &self.lessons {
                let known = dot(&direction, &lesson.expected);
                add(&mut direction, -known, &lesson.direction);
            }
        }
        let mut expected = self.expected(&direction);
        let size = dot(&direction, &expected);
        if size <= NOISE * whole {
            return;
        }
        scale(&mut s, left);
        scale(&mut y, left);
        scale(&mut direction, size);
        scale(&mut expected, size);
        let needed = |k: usize| (self.mobility[k].inverse() * y[k]).dot(y[k]);
        let size = reduce::sum(y.len(), 0.0, needed);
        let expected = expected.into();
        self.lessons.push(Lesson { impulse: s, velocity: y.into(), size, direction, expected });
    }

    /// The model B - D over `bodies`, one body for each particle.
    pub fn model(&self, bodies: Vec<u32>) -> Model {
        let terms = self.lessons.iter().flat_map(|lesson| {
            let corrected = Term { weight: 1.0, direction: lesson.velocity.clone(), size: lesson.size };
            [corrected, Term { weight: -1.0, direction: lesson.expected.clone(), size: 1.0 }]
        });
        Model { bodies, neighbours: self.neighbours.clone(), terms: terms.collect() }
    }

    /// Velocities without impulses [m/s], as far as the model knows: v - B p for the last impulses p and
    /// velocities v.
    pub fn free(&self, model: &Model) -> Vec<DVec3> {
        let (impulse, velocity) = &self.last;
        let mut change = self.alone(impulse);
        model.add(impulse, &mut change);
        velocity.iter().zip(&change).map(|(velocity, change)| *velocity - *change).collect()
    }

    /// The velocities of the last answer [m/s].
    pub fn velocity(&self) -> &[DVec3] {
        &self.last.1
    }

    /// B0 times impulses.
    fn expected(&self, impulse: &[DVec3]) -> Vec<DVec3> {
        let mut change = self.alone(impulse);
        if let Some(neighbours) = &self.neighbours {
            neighbours.add(impulse, &mut change);
        }
        change
    }

    /// D times impulses.
    fn alone(&self, impulse: &[DVec3]) -> Vec<DVec3> {
        impulse.iter().zip(&self.mobility).map(|(impulse, mobility)| *mobility * *impulse).collect()
    }
}

fn dot(a: &[DVec3], b: &[DVec3]) -> f64 {
    reduce::sum(a.len(), 0.0, |k| a[k].dot(b[k]))
}

/// Adds a column times a factor.
fn add(sum: &mut [DVec3], factor: f64, column: &[DVec3]) {
    sum.iter_mut().zip(column).for_each(|(sum, value)| *sum += *value * factor);
}

/// Divides a column by the root of its square.
fn scale(column: &mut [DVec3], square: f64) {
    let factor = 1.0 / square.sqrt();
    column.iter_mut().for_each(|value| *value *= factor);
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
            Secant::new(vec![DMat3::IDENTITY; 2], None, impulses[0].to_vec(), answer(7.0, impulses[0]));
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
        let mut secant = Secant::new(vec![DMat3::IDENTITY], None, vec![DVec3::ZERO], vec![DVec3::ZERO]);
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
        let mut secant = Secant::new(mobility.clone(), None, p(0).to_vec(), noisy(0));
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
