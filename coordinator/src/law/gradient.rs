//! Accelerated projected gradient with restart [Mazhar2015], [ODonoghueCandes2015].
//!
//! One iteration starts from the impulses x and the impulses before, x_old, with a diagonal D:
//!
//! ```text
//! y     = x + beta (x - x_old)
//! x_new = C( y - D^-1 v(y) / L ),     v(y) = u(y) + b n
//! ```
//!
//! C cuts each impulse to Coulomb's law: the normal part may not pull, then the tangential part is at most mu
//! times the new normal part, and the couple at most mu_r times. A point x = C(x - D^-1 v(x) / L) obeys the law
//! [AlartCurnier1991]:
//!
//! - The normal part says p_n >= 0, u_n + b >= 0 and p_n (u_n + b) = 0.
//! - If the tangential part is not cut, u_t = 0. If it is cut, |p_t| = mu p_n, and p_t points against u_t.
//!
//! So the map needs no term of de Saxce, though the errors of the law are measured with it (`cone.rs`). With
//! the limits mu x_n held at their last values, x_new minimises the quadratic f(y) + v . (x - y) + L/2 |x - y|^2
//! over the impulses within the limits, with lengths in the metric D. The step lowers f if d . W d <= L d . D d
//! for d = x_new - y, since the quadratic is then not below f at x_new. Otherwise L is raised, and
//! the step is taken again from y = x.
//!
//! beta follows Nesterov's sequence. It restarts at 0 when the last step points against the momentum, (y -
//! x_new) . D (x_new - x) > 0. It also restarts when steps grow: limits that move with the normal impulses
//! make the map no gradient of a function, and then a large beta turns a slow decay into growth.
//!
//! The velocity u(y) needs no product with W, since velocities of bodies are affine in the impulses: v(y) =
//! v(x) + beta (v(x) - v(x_old)). Likewise d . W d = (H^T d) . B (H^T d) is a sum over bodies.
//!
//! Packed heaps with friction may have no fixed point that the map reaches: the errors then stay at some
//! multiple of the tolerance. The iteration ends once twice as many iterations lower them no further.
//!
//! D has one number each for the normal, the tangential and the rolling part of a contact. Without D, a light
//! grain under a heavy one, or the large answer of a sphere's spin, would force a short step on all contacts.

use amalgam_particles::lanes::{self, LANES, Lanes, Task};
use rayon::prelude::*;

use super::bodies::{Bodies, Motions, VELOCITY_ROUNDING};
use super::cone::larger;
use super::problem::{Answers, LookAhead, Problem};
use super::response::{Model, Response};
use super::tasks::{CHUNK, SERIAL};
use super::unknown::{Unknown, Unknowns, work};

/// Tolerances at which the iteration ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Largest error of a contact's velocity [m/s].
    pub velocity: f64,
    /// Largest duality gap, sum |p . w| over sum |p . u*|. A tall stack needs it: while impulses spread
    /// upwards from the floor, each velocity is right to a small part, but their sum, the velocity of the
    /// top, is wrong.
    pub duality_gap: f64,
    /// Rounding of a velocity [m/s], below which no error falls; or an error that is small enough, if it is
    /// larger.
    pub rounding: f64,
    /// Largest number of iterations.
    pub iterations_max: u32,
}

/// Errors of a rough solve, as a multiple of the tolerance.
const ROUGH: f64 = 100.0;

impl Tolerance {
    /// The tolerance of a solve that is not the last one.
    pub(crate) fn rough(self) -> Self {
        Self { velocity: ROUGH * self.velocity, duality_gap: ROUGH * self.duality_gap, ..self }
    }
}

/// Outcome of an iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Number of products with W, including those that only raised L.
    pub iterations: u32,
    /// True if both tolerances hold.
    pub converged: bool,
    /// Largest error of a contact's velocity [m/s]: the largest part of its natural map D (p - Proj_K(p -
    /// D^-1 w)), which is zero where the law holds.
    pub velocity_error: f64,
    /// Duality gap: sum |p . w| over sum |p . u*|.
    pub duality_gap: f64,
    /// Change of kinetic energy by the impulses [J].
    pub energy: f64,
    /// Largest -(u_n + b) [m/s]: the speed at which surfaces in contact still approach, or open ones would
    /// pass each other.
    pub overlap_rate: f64,
}

/// Working storage of the iteration. Contacts hold impulses only. Velocities are held by bodies, of which
/// there are fewer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Descent<U> {
    /// Impulse x of each contact: on input the first guess, on output the solution.
    pub(crate) impulses: Vec<U>,
    /// x_old, then x_new in its place: the iteration waits for memory, and a third column would be more of it.
    other: Vec<U>,
    /// Answers of the bodies to the impulses x.
    at_x: Answers,
    /// Answers of the bodies to the impulses x_new.
    at_trial: Answers,
    /// Answers of the bodies to the impulses y.
    at_y: Answers,
    /// Answers of the bodies to the impulses y of the next iteration.
    at_next_y: Answers,
}

/// Sums over contacts.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// d . D d, with d = x_new - y.
    length: f64,
    /// x_new . D x_new.
    size: f64,
    /// (y - x_new) . D (x_new - x).
    uphill: f64,
    velocity_error: f64,
    /// Sum of |p . w|.
    gap: f64,
    /// Sum of |p . u*|.
    scale: f64,
    /// Sum of p . (u + u*)/2: the change of kinetic energy.
    energy: f64,
    /// Sum of p . u*.
    taken: f64,
    /// Sum of p_n b.
    bias: f64,
    /// Sum of |p|.
    amount: f64,
    /// Largest D p [m/s]: the speed that the impulse of a contact changes.
    push: f64,
    overlap_rate: f64,
}

impl Sums {
    fn and(self, other: Self) -> Self {
        Self {
            length: self.length + other.length,
            size: self.size + other.size,
            uphill: self.uphill + other.uphill,
            velocity_error: self.velocity_error.max(other.velocity_error),
            gap: self.gap + other.gap,
            scale: self.scale + other.scale,
            energy: self.energy + other.energy,
            taken: self.taken + other.taken,
            bias: self.bias + other.bias,
            amount: self.amount + other.amount,
            push: self.push.max(other.push),
            overlap_rate: self.overlap_rate.max(other.overlap_rate),
        }
    }

    /// Tolerances of the velocity error and of the gap. A light body between heavy ones gets impulses whose
    /// sum is small beside each of them, so that its velocity has their rounding.
    fn allowed(&self, tolerance: &Tolerance) -> [f64; 2] {
        let rounding = tolerance.rounding.max(VELOCITY_ROUNDING * self.push);
        let gap = tolerance.duality_gap * self.scale + rounding * self.amount;
        [tolerance.velocity.max(rounding), gap]
    }

    /// The larger of both errors, as a multiple of its tolerance.
    fn excess(&self, tolerance: &Tolerance) -> f64 {
        let [velocity, gap] = self.allowed(tolerance);
        (self.velocity_error / velocity).max(self.gap / gap)
    }

    fn outcome(&self, iterations: u32, tolerance: &Tolerance) -> Outcome {
        let [velocity, gap] = self.allowed(tolerance);
        Outcome {
            iterations,
            converged: self.velocity_error <= velocity && self.gap <= gap,
            velocity_error: self.velocity_error,
            duality_gap: if self.gap > 0.0 { self.gap / self.scale } else { 0.0 },
            energy: self.energy,
            overlap_rate: self.overlap_rate,
        }
    }
}

/// The momentum restarts once the length of a step exceeds the least one since the last restart by this factor.
const GROWTH: f64 = 2.0;

/// The iteration ends without convergence if it does not lower its error to this part while the number of
/// iterations doubles, from [`FIRST_MARK`] on, and steps grew at least [`GROWTHS`] times meanwhile.
const PROGRESS: f64 = 0.7;
const GROWTHS: u32 = 3;
const FIRST_MARK: u32 = 512;

/// An iteration that ends without convergence ends at an error of at most this multiple of its least one.
const NEAR: f64 = 1.2;

/// Errors are computed after each of the first steps and then once in this many steps, since they cost as
/// much as a step.
const JUDGED: u32 = 4;

/// If d . D d is below this part of x_new . D x_new, it is rounding and says nothing of L.
const ROUNDING: f64 = 1e-20;

/// Course of the errors in an iteration.
#[derive(Clone, Copy, Debug)]
struct Course {
    /// Least length of a step times L since the last restart.
    shortest: f64,
    /// True if steps have grown since: the momentum then leads away from the solution.
    grows: bool,
    /// Times that steps have grown since the number of iterations was half of `mark`.
    growths: u32,
    /// Least error, as a multiple of the tolerance.
    least: f64,
    /// The least error at half of `mark`.
    before: f64,
    /// Number of iterations at which the progress is judged next.
    mark: u32,
    /// True if the iteration no longer lowers its error, and the error is near the least one.
    ends: bool,
}

impl Default for Course {
    fn default() -> Self {
        let far = f64::INFINITY;
        Self {
            shortest: far,
            grows: false,
            growths: 0,
            least: far,
            before: far,
            mark: FIRST_MARK,
            ends: false,
        }
    }
}

impl Course {
    /// Takes over the length of a step, times L.
    fn step(&mut self, length: f64) {
        self.shortest = self.shortest.min(length);
        self.grows = length > GROWTH * self.shortest;
        self.growths += u32::from(self.grows);
    }

    fn restart(&mut self) {
        (self.shortest, self.grows) = (f64::INFINITY, false);
    }

    /// Takes over the errors after a number of iterations.
    fn judge(&mut self, iterations: u32, sums: &Sums, tolerance: &Tolerance) {
        let error = sums.excess(tolerance);
        self.least = self.least.min(error);
        if iterations < self.mark {
            return;
        }
        if self.growths >= GROWTHS && self.least > PROGRESS * self.before {
            self.ends = error <= NEAR * self.least;
        } else {
            (self.before, self.mark, self.growths) = (self.least, 2 * self.mark, 0);
        }
    }
}

impl<U: Unknown> Descent<U> {
    /// Motion of each body with the impulses x.
    pub(crate) fn motion(&self) -> &Motions {
        &self.at_x.motion
    }

    /// Starts at x = `impulses`.
    pub(crate) fn start(&mut self, problem: &mut Problem, bodies: &Bodies) {
        problem.answer(bodies, &self.impulses, &mut self.at_x, None);
    }

    /// The value of f = 1/2 p . W p + p . (u* + b n) at the impulses [J].
    pub(crate) fn value(&mut self, problem: &Problem) -> f64 {
        let sums = self.judge(problem);
        sums.energy + sums.bias
    }

    /// Iterates from the impulses x, at which [`Self::start`] or this method ended last. At least one step is
    /// taken: an error below the tolerance that no step reduces would be a steady rate of sinking.
    pub(crate) fn run(
        &mut self,
        problem: &mut Problem,
        bodies: &Bodies,
        lipschitz: &mut f64,
        tolerance: &Tolerance,
    ) -> Outcome {
        let most = most_curved(problem, bodies);
        *lipschitz = lipschitz.min(most);
        self.at_y.clone_from(&self.at_x);
        self.other.clone_from(&self.impulses);
        let mut course = Course::default();
        let (mut momentum, mut beta, mut iterations) = (1.0f64, 0.0, 0);
        loop {
            let sums = self.propose(problem, beta, *lipschitz);
            iterations += 1;
            let restarts = sums.uphill > 0.0 || course.grows;
            let momentum_next =
                if restarts { 1.0 } else { 0.5 * (1.0 + (1.0 + 4.0 * momentum * momentum).sqrt()) };
            let beta_next = if restarts { 0.0 } else { (momentum - 1.0) / momentum_next };
            let Self { other, at_x, at_trial, at_y, at_next_y, .. } = self;
            let ahead = LookAhead { beta: beta_next, at_x, at_y, next: at_next_y };
            let curvature = problem.answer(bodies, other, at_trial, Some(ahead));
            let is_last = iterations >= tolerance.iterations_max;
            let measurable = sums.length > ROUNDING * sums.size;
            if measurable && curvature > *lipschitz * sums.length && *lipschitz < most && !is_last {
                // This direction needs L = d . W d / d . D d; others may need a little more.
                *lipschitz = (1.05 * curvature / sums.length).min(most);
                // x_new has taken the place of x_old: the step starts from y = x.
                self.other.clone_from(&self.impulses);
                self.at_y.clone_from(&self.at_x);
                (momentum, beta) = (1.0, 0.0);
                course.restart();
                continue;
            }
            course.step(*lipschitz * sums.length.sqrt());
            self.accept();
            (momentum, beta) = (momentum_next, beta_next);
            if restarts {
                course.restart();
            }
            if iterations < JUDGED || iterations % JUDGED == 0 || is_last {
                let sums = self.judge(problem);
                let outcome = sums.outcome(iterations, tolerance);
                if outcome.converged {
                    return outcome;
                }
                course.judge(iterations, &sums, tolerance);
                if course.ends || is_last {
                    return if sums.energy > 0.0 {
                        self.give_no_energy(problem, bodies, sums, iterations, tolerance)
                    } else {
                        outcome
                    };
                }
            }
        }
    }

    /// Scales impulses that do not solve the problem down until they give no energy. They stay in their
    /// cones, and momenta are kept.
    fn give_no_energy(
        &mut self,
        problem: &mut Problem,
        bodies: &Bodies,
        sums: Sums,
        iterations: u32,
        tolerance: &Tolerance,
    ) -> Outcome {
        // Impulses scaled by t give the energy t p . u* + t^2 p . W p / 2, which is 0 at t = -2 p . u* / (p .
        // W p).
        let part = (-sums.taken / (sums.energy - sums.taken)).clamp(0.0, 1.0);
        let part = if part.is_nan() { 0.0 } else { part };
        self.impulses.iter_mut().for_each(|impulse| *impulse = *impulse * part);
        problem.answer(bodies, &self.impulses, &mut self.at_x, None);
        self.judge(problem).outcome(iterations, tolerance)
    }

    /// Finds x_new and its sums.
    fn propose(&mut self, problem: &Problem, beta: f64, lipschitz: f64) -> Sums {
        let Self { impulses, other, at_y, .. } = self;
        let motion = &at_y.motion;
        in_chunks(other, |first, other| {
            let impulses = &impulses[first..first + other.len()];
            lanes::run(Proposal { problem, motion, first, impulses, beta, step: 1.0 / lipschitz, other })
        })
    }

    /// Accepts x_new as x.
    fn accept(&mut self) {
        std::mem::swap(&mut self.other, &mut self.impulses);
        std::mem::swap(&mut self.at_x, &mut self.at_trial);
        std::mem::swap(&mut self.at_y, &mut self.at_next_y);
    }

    /// Finds the errors of the impulses x.
    fn judge(&mut self, problem: &Problem) -> Sums {
        let Self { at_x, impulses, .. } = self;
        let motion = &at_x.motion;
        in_chunks(impulses, |first, impulses| lanes::run(Residuals { problem, motion, first, impulses }))
    }
}

/// The step to x_new of a chunk of contacts, which run side by side in lanes.
struct Proposal<'a, U> {
    problem: &'a Problem,
    /// Motion of the bodies with the impulses y.
    motion: &'a Motions,
    /// The chunk's first contact.
    first: usize,
    impulses: &'a [U],
    beta: f64,
    step: f64,
    /// x_old, which x_new takes the place of.
    other: &'a mut [U],
}

impl<U: Unknown> Task for Proposal<'_, U> {
    type Output = Sums;

    #[inline(always)]
    fn run<L: Lanes>(self) -> Sums {
        let Self { problem, motion, first, impulses, beta, step, other } = self;
        let (mut length, mut size, mut uphill) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
        let mut side = Side::<U>::default();
        for (block, other) in other.chunks_mut(LANES).enumerate() {
            let at = block * LANES;
            if other.len() < LANES {
                side = Side::default();
            }
            for (l, other) in other.iter().enumerate() {
                side.impulse.set(l, impulses[at + l]);
                side.other.set(l, *other);
                side.velocity.set(l, problem.relative(first + at + l, motion));
            }
            let cones = &problem.cones[(first + at) / LANES];
            cones.prefetch::<L>();
            for l in 0..LANES {
                let cone = cones.get(l);
                let (x, before): (U, U) = (side.impulse.get(l), side.other.get(l));
                let y = x + (x - before) * beta;
                let v = cone.dual(side.velocity.get(l), cones.bias[l]);
                let new = cone.limit(y - cone.unscale(v) * step);
                let way = new - y;
                length[l] += cone.inner(way, way);
                size[l] += cone.inner(new, new);
                uphill[l] -= cone.inner(way, new - x);
                side.impulse.set(l, new);
            }
            for (l, other) in other.iter_mut().enumerate() {
                *other = side.impulse.get(l);
            }
        }
        Sums { length: sum(&length), size: sum(&size), uphill: sum(&uphill), ..Sums::default() }
    }
}

/// Errors of a chunk of contacts, which run side by side in lanes.
struct Residuals<'a, U> {
    problem: &'a Problem,
    /// Motion of the bodies with the impulses x.
    motion: &'a Motions,
    /// The chunk's first contact.
    first: usize,
    impulses: &'a [U],
}

impl<U: Unknown> Task for Residuals<'_, U> {
    type Output = Sums;

    #[inline(always)]
    fn run<L: Lanes>(self) -> Sums {
        let Self { problem, motion, first, impulses } = self;
        let (mut gap, mut scale, mut energy) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
        let (mut bias, mut amount, mut all_taken) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
        let (mut error, mut rate, mut push) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
        let mut side = Side::<U>::default();
        for (block, impulses) in impulses.chunks(LANES).enumerate() {
            let at = block * LANES;
            if impulses.len() < LANES {
                side = Side::default();
            }
            for (l, &impulse) in impulses.iter().enumerate() {
                side.impulse.set(l, impulse);
                side.velocity.set(l, problem.relative(first + at + l, motion));
                side.other.set(l, problem.relative(first + at + l, &problem.free));
            }
            let cones = &problem.cones[(first + at) / LANES];
            cones.prefetch::<L>();
            for l in 0..LANES {
                let cone = cones.get(l);
                let (p, u, free): (U, U, U) = (side.impulse.get(l), side.velocity.get(l), side.other.get(l));
                let w = cone.dual(u, cones.bias[l] + cone.slip(u));
                error[l] = larger(cone.error(p, w), error[l]);
                gap[l] += work(p, w).abs();
                let taken = work(p, free);
                scale[l] += taken.abs();
                amount[l] += p.linear().length();
                push[l] = larger(cone.largest_part(p), push[l]);
                all_taken[l] += taken;
                energy[l] += 0.5 * (work(p, u) + taken);
                bias[l] += p.linear().dot(cone.normal) * cones.bias[l];
                let closes = -u.linear().dot(cone.normal) - cones.bias[l];
                rate[l] = larger(if cones.opens(l) { closes } else { 0.0 }, rate[l]);
            }
        }
        Sums {
            velocity_error: largest(&error),
            gap: sum(&gap),
            scale: sum(&scale),
            energy: sum(&energy),
            taken: sum(&all_taken),
            bias: sum(&bias),
            amount: sum(&amount),
            push: largest(&push),
            overlap_rate: largest(&rate),
            ..Sums::default()
        }
    }
}

/// Values of contacts side by side.
#[derive(Default)]
struct Side<U> {
    impulse: Unknowns<U>,
    /// The impulse x_old, or the velocity u*.
    other: Unknowns<U>,
    velocity: Unknowns<U>,
}

fn sum(lanes: &[f64; LANES]) -> f64 {
    lanes.iter().sum()
}

fn largest(lanes: &[f64; LANES]) -> f64 {
    lanes.iter().fold(0.0, |most, &lane| larger(lane, most))
}

/// Bound on the eigenvalues of D^-1 W. By Cauchy's inequality a body answers k contacts at most k times as
/// much as the sum of what each does alone. The parts of a contact add a factor of at most 6: there are
/// three, and the tangential one has two directions of which D holds the mean. A model of the response adds
/// its own factor.
fn most_curved(problem: &Problem, bodies: &Bodies) -> f64 {
    let growth = match &bodies.response {
        Response::Diagonal => 1.0,
        Response::Models(models) => models.iter().map(Model::growth).fold(1.0, f64::max),
    };
    6.0 * problem.most_contacts(bodies).max(1) as f64 * growth
}

/// Works through a column in chunks and adds their sums in order, with the same bits on any number of
/// threads.
fn in_chunks<A: Send>(column: &mut [A], work: impl Fn(usize, &mut [A]) -> Sums + Sync) -> Sums {
    let add = |total: Sums, part: Sums| total.and(part);
    if column.len() <= SERIAL {
        let chunks = column.chunks_mut(CHUNK).enumerate();
        return chunks.map(|(chunk, part)| work(chunk * CHUNK, part)).fold(Sums::default(), add);
    }
    let chunks = column.par_chunks_mut(CHUNK).enumerate();
    let parts: Vec<Sums> = chunks.map(|(chunk, part)| work(chunk * CHUNK, part)).collect();
    parts.into_iter().fold(Sums::default(), add)
}
