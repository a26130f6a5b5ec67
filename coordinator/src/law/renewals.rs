//! Renewals of de Saxce's term, which are damped where they run in a cycle.
//!
//! Renewals are a fixed-point iteration s -> mu |u_t(s)|, which can run in a cycle. In columns of discs that
//! collapse, one step in twenty did so until its limit of iterations. A renewal that goes only a part theta
//! of the way,
//!
//! ```text
//! s <- s + theta (mu |u_t| + mu_r |u_q| - s),
//! ```
//!
//! has the same fixed points, and damps a cycle. theta starts at 1 in every solve. It is halved each time
//! that many renewals in succession did not lower the least error so far.

/// Number of successive renewals without a new least error after which theta is halved. An error that falls
/// also rises between, so that a small number would damp renewals that run well.
const PATIENCE: u32 = 200;

/// Least theta. Without a limit, s could stop before it arrives.
const THETA_MIN: f64 = 0.05;

/// Renewals of de Saxce's term in a solve, and their damping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renewals {
    theta: f64,
    /// Least error at a renewal so far [m/s].
    least: f64,
    /// Number of renewals since the least error.
    since: u32,
}

impl Renewals {
    pub(crate) fn new() -> Self {
        Self { theta: 1.0, least: f64::INFINITY, since: 0 }
    }

    /// theta of a renewal at which the velocity error is `error` [m/s].
    pub(crate) fn next(&mut self, error: f64) -> f64 {
        if error < self.least {
            (self.least, self.since) = (error, 0);
        } else {
            self.since += 1;
        }
        if self.since >= PATIENCE {
            (self.theta, self.since) = ((0.5 * self.theta).max(THETA_MIN), 0);
        }
        self.theta
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewals_are_damped_only_where_the_least_error_stays() {
        let mut renewals = Renewals::new();
        assert!((1..1000).all(|k| renewals.next(1.0 / f64::from(k)) == 1.0));
        assert!((1..PATIENCE).all(|_| renewals.next(1.0) == 1.0));
        assert_eq!(renewals.next(1.0), 0.5);
        assert!((0..100 * PATIENCE).map(|_| renewals.next(1.0)).last() == Some(THETA_MIN));
    }
}
