//! Interface quasi-Newton with inverse least squares (IQN-ILS) [Degroote2009]: finds the fixed point x = H(x)
//! of a map that can only be evaluated.
//!
//! Let r = H(x) - x. The columns of V are differences of successive r, those of W are differences of
//! successive H(x). The next point is H(x) + W c, where c minimises |V c + r|.

/// The history of one fixed-point iteration.
#[derive(Clone, Debug, Default)]
pub struct QuasiNewton {
    /// r and H(x) of the last evaluation.
    last: Option<(Vec<f64>, Vec<f64>)>,
    /// Columns of V and of W, newest first.
    differences: Vec<(Vec<f64>, Vec<f64>)>,
}

/// A column of V that keeps less than this part of its length after orthogonalisation is left out as noise.
const DEPENDENT: f64 = 1e-8;

impl QuasiNewton {
    /// The next point H(x) + W c, given x in `point` and H(x) in `answer`.
    pub fn next(&mut self, point: &[f64], answer: &[f64]) -> Vec<f64> {
        let residual: Vec<f64> = answer.iter().zip(point).map(|(a, p)| a - p).collect();
        if let Some((last_residual, last_answer)) = self.last.take() {
            let difference = |new: &[f64], old: &[f64]| new.iter().zip(old).map(|(a, b)| a - b).collect();
            self.differences
                .insert(0, (difference(&residual, &last_residual), difference(answer, &last_answer)));
        }
        let coefficients = self.least_squares(&residual);
        let mut next = answer.to_vec();
        for (c, (_, answers)) in coefficients.iter().zip(&self.differences) {
            next.iter_mut().zip(answers).for_each(|(x, d)| *x += c * d);
        }
        self.last = Some((residual, answer.to_vec()));
        next
    }

    /// Coefficients c that minimise |V c + residual|, from V = Q R and R c = -Q^T residual by modified
    /// Gram-Schmidt. Columns that depend on newer ones get 0.
    fn least_squares(&self, residual: &[f64]) -> Vec<f64> {
        let count = self.differences.len();
        let mut basis: Vec<Option<Vec<f64>>> = Vec::with_capacity(count);
        let mut upper = vec![vec![0.0; count]; count];
        for (column, (difference, _)) in self.differences.iter().enumerate() {
            let mut v = difference.clone();
            let length = dot(&v, &v).sqrt();
            for (row, q) in basis.iter().enumerate() {
                if let Some(q) = q {
                    let projection = dot(q, &v);
                    upper[row][column] = projection;
                    v.iter_mut().zip(q).for_each(|(v, q)| *v -= projection * q);
                }
            }
            let rest = dot(&v, &v).sqrt();
            upper[column][column] = rest;
            basis.push((rest > DEPENDENT * length).then(|| v.iter().map(|v| v / rest).collect()));
        }
        let mut coefficients = vec![0.0; count];
        for row in (0..count).rev() {
            if let Some(q) = &basis[row] {
                let known: f64 =
                    (row + 1..count).map(|column| upper[row][column] * coefficients[column]).sum();
                coefficients[row] = (-dot(q, residual) - known) / upper[row][row];
            }
        }
        coefficients
    }
}

/// The Euclidean length of a vector.
pub fn norm(v: &[f64]) -> f64 {
    dot(v, v).sqrt()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diverging_linear_map_is_solved_in_as_many_evaluations_as_it_has_dimensions() {
        // H(x) = B x + b with eigenvalues far outside the unit circle: plain repetition blows up.
        let map =
            |x: &[f64]| vec![-5.0 * x[0] + 2.0 * x[1] + 1.0, 3.0 * x[0] - 7.0 * x[1] - 2.0, 0.5 * x[2] + 4.0];
        let mut newton = QuasiNewton::default();
        let mut x = vec![0.0; 3];
        for _ in 0..5 {
            let answer = map(&x);
            x = newton.next(&x, &answer);
        }
        let error: Vec<f64> = map(&x).iter().zip(&x).map(|(a, b)| a - b).collect();
        assert!(norm(&error) < 1e-9, "{error:?}");
    }
}
