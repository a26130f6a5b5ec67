//! Accelerated projected gradient with restart [Mazhar2015], [ODonoghueCandes2015].
//!
//! One iteration from impulses x, those before x_old, and a diagonal D:
//!
//! ```text
//! y     = x + beta (x - x_old)
//! x_new = Proj_K( y - D^-1 w(y) / L ),     w(y) = u(y) + (b + s) n,    s = mu |u_t| + mu_r |u_q|
//! ```
//!
//! The step is the minimum over K of the quadratic f(y) + w . (x - y) + L/2 |x - y|^2, lengths in the metric D. It lowers f if this
//! quadratic is nowhere below f on the way, that is if d . W d <= L d . D d for d = x_new - y: where it is not, L is raised and the
//! step taken again. Neither side holds the terms that are constant within the iteration, so de Saxce's term does not
//! disturb the test. beta follows Nesterov's sequence; it starts again at 0 when the last step points against the momentum,
//! (y - x_new) . D (x_new - x) > 0. The velocity u(y) needs no product: u is affine, so it is u(x) + beta (u(x) - u(x_old)).
//!
//! de Saxce's term is held while the convex problem that it leaves is further from its solution than the term is from its
//! own value, and then renewed. Renewed at every iteration it makes the problem's operator unsymmetric, and the
//! momentum, which pushes in no direction of descent then, can drive a packed heap in circles: columns of discs ran
//! into any limit of iterations. Held until the convex problem is solved well, it costs twice the iterations.
//!
//! D has one number each for the normal, the tangential and the rolling part of a contact. Without it a light grain under a
//! heavy one, or the large answer of a sphere's spin, would dictate a short step to all.

use rayon::prelude::*;

use super::bodies::{Bodies, Motion};
use super::problem::{CHUNK, Kind, Problem, Row, SERIAL, Unknown, work};
use super::response::Response;

/// When the iteration ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Largest error of a contact's velocity [m/s].
    pub velocity: f64,
    /// sum |p . w| over sum |p . u_free|: the duality gap. A tall stack needs it: while the news of a floor travels up, each
    /// velocity is right to a small part and their sum, the velocity of the top, is wrong altogether.
    pub duality_gap: f64,
    /// Rounding of a velocity [m/s]: no answer can be better; or what is small enough, if larger.
    pub rounding: f64,
    /// Iterations at most.
    pub iterations_max: u32,
}

/// How an iteration ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Products with W, those included that only raised L.
    pub iterations: u32,
    /// Whether both tolerances hold.
    pub converged: bool,
    /// Largest error of a contact's velocity [m/s]: of its natural map D (p - Proj_K(p - D^-1 w)), which is zero
    /// where the law holds.
    pub velocity_error: f64,
    /// sum |p . w| over sum |p . u_free|.
    pub duality_gap: f64,
    /// Change of kinetic energy by the impulses [J].
    pub energy: f64,
    /// Largest speed at which surfaces in contact still approach, or open ones would pass each other [m/s].
    pub overlap_rate: f64,
}

/// A contact during the iteration.
#[derive(Clone, Copy, Debug, Default)]
struct State<U> {
    impulse: U,
    impulse_before: U,
    velocity: U,
    velocity_before: U,
    /// Velocity of the trial impulse.
    velocity_trial: U,
    velocity_free: U,
    /// de Saxce's term, as it was last renewed [m/s].
    slip: f64,
}

/// The memory of an iteration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Descent<U> {
    /// Impulse of each contact: in, the first guess; out, the solution.
    pub(crate) impulses: Vec<U>,
    /// Motion of each body with these impulses.
    pub(crate) motion: Vec<Motion>,
    states: Vec<State<U>>,
}

/// Sums over contacts.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// d . W d.
    curvature: f64,
    /// d . D d.
    length: f64,
    /// x . D x.
    size: f64,
    /// (y - x_new) . D (x_new - x).
    uphill: f64,
    velocity_error: f64,
    /// The same with de Saxce's term as it was last renewed: the error of the convex problem that is being solved.
    convex_error: f64,
    /// sum |p . w|.
    gap: f64,
    /// sum |p . u_free|.
    scale: f64,
    /// p . (u + u_free) / 2: the change of kinetic energy.
    energy: f64,
    /// p . b n.
    bias: f64,
    /// sum |p|.
    amount: f64,
    overlap_rate: f64,
}

impl Sums {
    fn and(self, other: Self) -> Self {
        Self {
            curvature: self.curvature + other.curvature,
            length: self.length + other.length,
            size: self.size + other.size,
            uphill: self.uphill + other.uphill,
            velocity_error: self.velocity_error.max(other.velocity_error),
            convex_error: self.convex_error.max(other.convex_error),
            gap: self.gap + other.gap,
            scale: self.scale + other.scale,
            energy: self.energy + other.energy,
            bias: self.bias + other.bias,
            amount: self.amount + other.amount,
            overlap_rate: self.overlap_rate.max(other.overlap_rate),
        }
    }

    fn outcome(&self, iterations: u32, tolerance: &Tolerance) -> Outcome {
        let duality_gap = if self.gap > 0.0 { self.gap / self.scale } else { 0.0 };
        Outcome {
            iterations,
            converged: self.velocity_error <= tolerance.velocity.max(tolerance.rounding)
                && self.gap <= tolerance.duality_gap * self.scale + tolerance.rounding * self.amount,
            velocity_error: self.velocity_error,
            duality_gap,
            energy: self.energy,
            overlap_rate: self.overlap_rate,
        }
    }

    /// What an impulse and its velocity leave to be desired; returns the error of the velocity [m/s].
    #[inline]
    fn judge<U: Unknown>(&mut self, row: &Row, impulse: U, velocity: U, free: U) -> f64 {
        if row.kind == Kind::Idle {
            return 0.0;
        }
        let w = row.dual(velocity, row.slip(velocity));
        let error = row.error(impulse, w);
        self.velocity_error = self.velocity_error.max(error);
        self.gap += work(impulse, w).abs();
        let taken = work(impulse, free);
        self.scale += taken.abs();
        self.amount += impulse.linear().length();
        self.energy += 0.5 * (work(impulse, velocity) + taken);
        let p_n = impulse.linear().dot(row.normal);
        if row.kind != Kind::Glued {
            self.bias += p_n * row.bias;
            self.overlap_rate = self.overlap_rate.max(-velocity.linear().dot(row.normal) - row.bias);
        }
        error
    }
}

/// de Saxce's term is renewed as soon as the error without it is this part of the whole error.
const RENEWAL: f64 = 0.7;

/// Errors, which cost as much as a step, are looked at after each of the first steps and then after every so many.
const JUDGED: u32 = 4;

/// A displacement below this part of the impulses says nothing of L: rounding.
const ROUNDING: f64 = 1e-20;

impl<U: Unknown> Descent<U> {
    /// Starts at `impulses`, and returns the value of f = 1/2 p . W p + p . (u_free + b n) there.
    pub(crate) fn start(&mut self, problem: &mut Problem, bodies: &Bodies) -> f64 {
        problem.moved(bodies, &self.impulses, &mut self.motion);
        self.states.resize(self.impulses.len(), State::default());
        let (problem, motion) = (&*problem, &self.motion);
        let sums = in_chunks(&mut self.states, &mut self.impulses, |first, states, impulses| {
            let mut sums = Sums::default();
            for (k, (state, &mut impulse)) in states.iter_mut().zip(impulses).enumerate() {
                let row = &problem.rows[first + k];
                let velocity: U = problem.relative(first + k, motion);
                let free: U = problem.relative(first + k, &problem.free);
                *state = State {
                    impulse,
                    impulse_before: impulse,
                    velocity,
                    velocity_before: velocity,
                    velocity_trial: velocity,
                    velocity_free: free,
                    slip: row.slip(velocity),
                };
                sums.judge(row, impulse, velocity, free);
            }
            sums
        });
        sums.energy + sums.bias
    }

    /// Iterates from where [`Self::start`] was called last. At least one step is taken: an error below the tolerance
    /// that nobody works at would be a steady rate of sinking.
    pub(crate) fn run(
        &mut self,
        problem: &mut Problem,
        bodies: &Bodies,
        lipschitz: &mut f64,
        tolerance: &Tolerance,
    ) -> Outcome {
        let most = most_curved(problem, bodies);
        *lipschitz = lipschitz.min(most);
        let (mut momentum, mut beta, mut iterations) = (1.0f64, 0.0, 0);
        let (mut accepted, mut renews) = (false, false);
        loop {
            self.propose(problem, beta, *lipschitz, (accepted, renews));
            problem.moved(bodies, &self.impulses, &mut self.motion);
            iterations += 1;
            let is_last = iterations >= tolerance.iterations_max;
            let judges = iterations < JUDGED || iterations % JUDGED == 0 || is_last;
            let sums = self.assess(problem, beta, judges);
            let measurable = sums.length > ROUNDING * sums.size;
            if measurable && sums.curvature > *lipschitz * sums.length && *lipschitz < most && !is_last {
                // The ratio is what this direction needs; others may need a little more.
                *lipschitz = (1.05 * sums.curvature / sums.length).min(most);
                (accepted, renews) = (false, false);
                continue;
            }
            if judges {
                let outcome = sums.outcome(iterations, tolerance);
                if outcome.converged || is_last {
                    return outcome;
                }
            }
            accepted = true;
            renews = judges && sums.convex_error <= RENEWAL * sums.velocity_error;
            if sums.uphill > 0.0 {
                (momentum, beta) = (1.0, 0.0);
            } else {
                let next = 0.5 * (1.0 + (1.0 + 4.0 * momentum * momentum).sqrt());
                (momentum, beta) = (next, (momentum - 1.0) / next);
            }
        }
    }

    /// Writes x_new into `impulses`. If the last proposal was accepted, it becomes x first.
    fn propose(&mut self, problem: &Problem, beta: f64, lipschitz: f64, (accepted, renews): (bool, bool)) {
        let step = 1.0 / lipschitz;
        in_chunks(&mut self.states, &mut self.impulses, |first, states, impulses| {
            let rows = &problem.rows[first..];
            for ((state, impulse), row) in states.iter_mut().zip(impulses).zip(rows) {
                if accepted {
                    (state.impulse_before, state.impulse) = (state.impulse, *impulse);
                    (state.velocity_before, state.velocity) = (state.velocity, state.velocity_trial);
                }
                if renews {
                    state.slip = row.slip(state.velocity);
                }
                let (y, u) = state.extrapolated(beta);
                *impulse = row.project(y - row.unscale(row.dual(u, state.slip)) * step);
            }
            Sums::default()
        });
    }

    /// Velocities of the proposal, and what to decide by: whether it was a step, and if it `judges`, its errors.
    fn assess(&mut self, problem: &Problem, beta: f64, judges: bool) -> Sums {
        let motion = &self.motion;
        in_chunks(&mut self.states, &mut self.impulses, |first, states, impulses| {
            let mut sums = Sums::default();
            for (k, (state, &mut impulse)) in states.iter_mut().zip(impulses).enumerate() {
                let row = &problem.rows[first + k];
                let (y, u) = state.extrapolated(beta);
                let velocity: U = problem.relative(first + k, motion);
                state.velocity_trial = velocity;
                let step = impulse - y;
                sums.curvature += work(step, velocity - u);
                sums.length += row.inner(step, step);
                sums.size += row.inner(impulse, impulse);
                sums.uphill -= row.inner(step, impulse - state.impulse);
                if !judges {
                    continue;
                }
                let error = sums.judge(row, impulse, velocity, state.velocity_free);
                let convex = match row.is_smooth() {
                    true => error,
                    false => row.error(impulse, row.dual(velocity, state.slip)),
                };
                sums.convex_error = sums.convex_error.max(convex);
            }
            sums
        })
    }
}

impl<U: Unknown> State<U> {
    /// y and u(y).
    #[inline]
    fn extrapolated(&self, beta: f64) -> (U, U) {
        (
            self.impulse + (self.impulse - self.impulse_before) * beta,
            self.velocity + (self.velocity - self.velocity_before) * beta,
        )
    }
}

/// A bound on the eigenvalues of D^-1 W. By Cauchy's inequality a body that sums over k contacts answers at most k times the
/// sum of what each does alone. The parts of one contact, of which there are three, the tangential one with two
/// directions whose mean D holds, add a factor of at most 6. A model of the response adds its own factor.
fn most_curved(problem: &Problem, bodies: &Bodies) -> f64 {
    let growth = match &bodies.response {
        Response::Diagonal => 1.0,
        Response::LowRank(models) => models.iter().map(|model| model.growth(bodies)).fold(1.0, f64::max),
    };
    6.0 * problem.most_contacts(bodies).max(1) as f64 * growth
}

/// Works through two columns in chunks and adds up in order, the same to the bit on any number of threads.
fn in_chunks<A: Send, B: Send>(
    a: &mut [A],
    b: &mut [B],
    work: impl Fn(usize, &mut [A], &mut [B]) -> Sums + Sync,
) -> Sums {
    let add = |total: Sums, part: Sums| total.and(part);
    if a.len() <= SERIAL {
        let chunks = a.chunks_mut(CHUNK).zip(b.chunks_mut(CHUNK)).enumerate();
        return chunks.map(|(chunk, (a, b))| work(chunk * CHUNK, a, b)).fold(Sums::default(), add);
    }
    let chunks = a.par_chunks_mut(CHUNK).zip(b.par_chunks_mut(CHUNK)).enumerate();
    let parts: Vec<Sums> = chunks.map(|(chunk, (a, b))| work(chunk * CHUNK, a, b)).collect();
    parts.into_iter().fold(Sums::default(), add)
}
