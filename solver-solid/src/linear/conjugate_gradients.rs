//! Conjugate gradients with a block-Jacobi preconditioner. Most iterations run in f32 (`rounded.rs`), and
//! their preconditioner also corrects on coarse grids (`multilevel.rs`).
//!
//! Vectors have one value per particle. The members of a group are one unknown (`groups.rs`): every member
//! has the unknown's value, and the leader has the sum of the members' rows. The rows of the other members
//! are zero. Held unknowns have a zero factor, so their direction stays zero and their rows add nothing to
//! scalar products. One loop thus serves all particles, and no unknown is renumbered.
//!
//! Each rank holds its own rows of the vectors (`partition.rs`). Scalar products are sums over all ranks, so
//! all ranks take the same decisions.

use amalgam_particles::{DVec3, NO_GROUP};
use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;

use super::multilevel::Multilevel;
use super::partition::Partition;
use super::product::ResidualBound;
use super::rounded::RoundedIteration;
use super::system::{Limits, System};
use super::vectors::Vector;
use crate::chunks::{CHUNK, CHUNKS_PER_TASK};

/// Reason for which a solve failed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Failure {
    /// No iterations were left at this residual, relative to the right-hand side.
    Unconverged(f64),
    /// A number overflowed.
    NotFinite,
}

/// The cost of a solve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Solved {
    pub(crate) iterations: u32,
    /// Squared norm to which the tolerance was relative.
    pub(crate) scale: f64,
}

/// The vectors of the iteration, kept between solves.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConjugateGradients {
    /// S times the unknowns: before a solve its starting point, after a solve its answer.
    pub(crate) solution: Vec<DVec3>,
    /// The right-hand side: sums at leaders, zero at other members.
    pub(crate) right_hand_side: Vec<DVec3>,
    residual: Vec<DVec3>,
    preconditioned: Vec<DVec3>,
    direction: Vec<DVec3>,
    image: Vec<DVec3>,
    rounded: RoundedIteration,
    partial: Vec<f64>,
    partial_starts: Vec<Start>,
}

/// State of a solve after its first residual.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
struct Start {
    /// Squared norm of the exact residual.
    square: f64,
    /// Squared norm of the right-hand side.
    scale: f64,
    /// Squared norm of the difference between the residual carried along and the exact one.
    error: f64,
    /// Largest component of the preconditioned residual.
    largest: f64,
}

impl Start {
    fn and(self, other: &Self) -> Self {
        Self {
            square: self.square + other.square,
            scale: self.scale + other.scale,
            error: self.error + other.error,
            largest: self.largest.max(other.largest),
        }
    }
}

/// The rounded iteration reduces a squared residual by at most this factor, before the exact residual is
/// computed again.
const ROUNDED_REDUCTION: f64 = 1e-10;

/// Relative rounding error of the operator's coefficients in rounded iterations. The measured error over the
/// correction is taken to be at least this large: with few unknowns it can be smaller by chance.
const COEFFICIENTS: f64 = 1.0 / (1 << 18) as f64;

/// Safety factor on the measured error of the residual of rounded iterations.
const BOUND_SAFETY: f64 = 4.0;

/// Another refinement follows only if the last one left at most this part of the squared residual.
const REFINEMENT_MAX: f64 = 0.25;

impl ConjugateGradients {
    /// Vectors for the rows of a rank.
    pub(crate) fn new(partition: &Partition, coarse: Multilevel) -> Self {
        let zero = vec![DVec3::ZERO; partition.own().len()];
        Self {
            solution: zero.clone(),
            right_hand_side: zero.clone(),
            residual: zero.clone(),
            preconditioned: zero.clone(),
            direction: zero.clone(),
            image: zero,
            rounded: RoundedIteration::new(partition, coarse),
            partial: Vec::new(),
            partial_starts: Vec::new(),
        }
    }

    /// The grids of the preconditioner, which a new iteration may take over.
    pub(crate) fn take_grids(&mut self) -> Multilevel {
        self.rounded.take_grids()
    }

    /// Solves for [`Self::solution`]. The tolerance is relative to the norm of the right-hand side, or to the
    /// square root of `scale` if this is larger.
    ///
    /// The norm of a residual r is sqrt(r·D^-1 r) with the diagonal blocks D. Each unknown is weighed by its
    /// own block, so stiff or heavy unknowns do not hide the others. The iteration needs this product anyway.
    ///
    /// Iterative refinement: iterations in f32 (`rounded.rs`) converge to the solution of a system whose
    /// entries differ in the sixth digit. Then the residual is computed with the exact operator, and the
    /// iteration restarts from it if it is too large. If a refinement no longer reduces the residual enough,
    /// the remaining iterations run in f64.
    ///
    /// The residual carried along by the f32 iteration differs from the exact one by an error of the exact
    /// product ([`ResidualBound::error`]) and by one in proportion to the energy norm of the correction
    /// ([`ResidualBound::rate`]). The last exact residual measured both. If the residual plus this bound is
    /// within the tolerance, no exact residual is computed.
    pub(crate) fn solve(
        &mut self,
        system: &mut System<'_>,
        limits: &Limits,
        scale: Option<f64>,
    ) -> Result<Solved, Failure> {
        let (mut iterations, mut last) = (0, f64::INFINITY);
        let (mut energy, mut first) = (0.0, None);
        loop {
            let Start { square, scale: own_scale, error, largest } = self.start(system);
            if energy > 0.0 {
                let rate = (error / energy).sqrt().max(COEFFICIENTS);
                (system.product.residual_bound.error, system.product.residual_bound.rate) =
                    (error.sqrt(), rate);
            }
            let scale = scale.map_or(own_scale, |scale| scale.max(own_scale));
            let forced = limits.forcing * limits.forcing * *first.get_or_insert(square);
            let target = f64::max(limits.tolerance * limits.tolerance * scale, forced).max(limits.floor);
            if !square.is_finite() || !scale.is_finite() {
                return Err(Failure::NotFinite);
            }
            if square <= target {
                return Ok(Solved { iterations, scale });
            }
            let limit = limits.iterations_max - iterations;
            let failure = |square: f64| match square.is_finite() {
                true => Failure::Unconverged((square / scale).sqrt()),
                false => Failure::NotFinite,
            };
            if square > REFINEMENT_MAX * last {
                iterations += self.iterate(system, square, (target, limit)).map_err(failure)?;
                return Ok(Solved { iterations, scale });
            }
            let goal = (0.5 * target).max(ROUNDED_REDUCTION * square);
            let (residual, solution) = (&mut self.residual, &mut self.solution);
            let reached = self.rounded.reduce(system, (residual, largest), (goal, limit), solution);
            iterations += reached.iterations;
            energy = reached.energy;
            let ResidualBound { error, rate, sum } = system.product.residual_bound;
            let residual_bound = sum + BOUND_SAFETY * (error + rate * energy.sqrt());
            if reached.square.sqrt() + residual_bound <= target.sqrt() {
                system.product.residual_bound.sum = residual_bound;
                let (x, b, r) = (&self.solution, &self.right_hand_side, &self.residual);
                system.product.assume(x, |i| b[i] - r[i] - x[i] * system.inertia[i], system.groups.map());
                return Ok(Solved { iterations, scale });
            }
            // After an overflow of f32, all iterations run in f64.
            last = if reached.square.is_finite() { square } else { 0.0 };
            if reached.square > goal && iterations == limits.iterations_max {
                return Err(failure(reached.square));
            }
        }
    }

    /// Iterates in f64 from the residual, of squared norm `square`, until its squared norm is at most `goal`,
    /// at most `limit` times. Returns the number of iterations; fails with the squared norm reached, which
    /// may not be finite.
    fn iterate(
        &mut self,
        system: &mut System<'_>,
        mut square: f64,
        (goal, limit): (f64, u32),
    ) -> Result<u32, f64> {
        let mut iterations = 0;
        self.direction.copy_from_slice(&self.preconditioned);
        system.groups.copy_from_leaders(&mut self.direction[..]);
        while square > goal && iterations < limit {
            let curvature = apply(system, &self.direction, &mut self.image, &mut self.partial);
            if !(curvature > 0.0 && curvature.is_finite()) {
                return Err(f64::NAN);
            }
            let next_square = self.advance(system, square / curvature);
            self.update_direction(system, next_square / square);
            square = next_square;
            iterations += 1;
        }
        if square <= goal { Ok(iterations) } else { Err(square) }
    }

    /// Computes the exact residual. A solution x of another operator is scaled first: its multiple by
    /// x·b / x·A x has the least error in the energy norm, which is never above the error of zero.
    fn start(&mut self, system: &mut System<'_>) -> Start {
        let is_guess = !system.product.is_with(system.operator);
        let own = system.product.of(system.operator, &self.solution);
        let multiple = if is_guess {
            let chunks = self.solution.par_chunks(CHUNK).zip(self.right_hand_side.par_chunks(CHUNK));
            let chunks = chunks.zip(own.par_chunks(CHUNK).zip(system.inertia.par_chunks(CHUNK)));
            // Solution times right-hand side: a group counts once, at its leader.
            let sums = chunks.with_min_len(CHUNKS_PER_TASK).map(|((x, b), (own, inertia))| {
                let rows = x.iter().zip(b).zip(own.iter().zip(inertia));
                rows.fold([0.0; 2], |[curvature, projection], ((x, b), (own, inertia))| {
                    [curvature + x.dot(*x * *inertia + *own), projection + x.dot(*b)]
                })
            });
            let sums: Vec<[f64; 2]> = sums.collect();
            let partition = system.operator.partition();
            let [curvature, projection] =
                partition.fold(&sums, [0.0; 2], |[a, b], part| [a + part[0], b + part[1]]);
            if curvature > 0.0 { projection / curvature } else { 0.0 }
        } else {
            1.0
        };
        let groups = system.groups;
        let others: Vec<DVec3> = groups.sums(1, |row| own[row]);
        let chunks = (
            self.residual.par_chunks_mut(CHUNK),
            self.solution.par_chunks_mut(CHUNK),
            self.preconditioned.par_chunks_mut(CHUNK),
            self.right_hand_side.par_chunks(CHUNK),
            own.par_chunks(CHUNK),
            groups.map().group_of().par_chunks(CHUNK),
            system.inertia.par_chunks(CHUNK),
            system.factor.par_chunks(CHUNK),
        );
        chunks
            .into_par_iter()
            .enumerate()
            .with_min_len(CHUNKS_PER_TASK)
            .map(|(chunk, (r, x, z, b, own, group, inertia, factor))| {
                let n = r.len();
                let (x, z, b, own) = (&mut x[..n], &mut z[..n], &b[..n], &own[..n]);
                let (group, inertia, factor) = (&group[..n], &inertia[..n], &factor[..n]);
                let mut start = Start::default();
                for i in 0..n {
                    let mut image = x[i] * inertia[i] + own[i];
                    if group[i] != NO_GROUP {
                        // S^T: the sum of a group's members at its leader, zero at the others.
                        let is_leader = groups.is_led_by(group[i] as usize, chunk * CHUNK + i);
                        image = if is_leader { image + others[group[i] as usize] } else { DVec3::ZERO };
                    }
                    let difference = b[i] - image - r[i];
                    start.error += difference.dot(factor[i].solve(difference));
                    if is_guess {
                        x[i] *= multiple;
                    }
                    r[i] = b[i] - image * multiple;
                    z[i] = factor[i].solve(r[i]);
                    start.square += r[i].dot(z[i]);
                    start.scale += b[i].dot(factor[i].solve(b[i]));
                    start.largest = start.largest.max(z[i].abs().max_element());
                }
                start
            })
            .collect_into_vec(&mut self.partial_starts);
        if is_guess {
            system.product.scale(multiple);
        }
        system.operator.partition().fold(&self.partial_starts, Start::default(), Start::and)
    }

    /// Advances solution and residual by `length` along the direction; returns the new squared norm of the
    /// residual.
    fn advance(&mut self, system: &System<'_>, length: f64) -> f64 {
        let chunks = (
            self.residual.par_chunks_mut(CHUNK),
            self.solution.par_chunks_mut(CHUNK),
            self.preconditioned.par_chunks_mut(CHUNK),
            self.direction.par_chunks(CHUNK),
            self.image.par_chunks(CHUNK),
            system.factor.par_chunks(CHUNK),
        );
        chunks
            .into_par_iter()
            .with_min_len(CHUNKS_PER_TASK)
            .map(|(r, x, z, p, q, factor)| {
                // Slices of one length, known to the compiler, need no bounds checks in the loop.
                let n = r.len();
                let (x, z, p, q, factor) = (&mut x[..n], &mut z[..n], &p[..n], &q[..n], &factor[..n]);
                let mut square = 0.0;
                for i in 0..n {
                    x[i] += p[i] * length;
                    r[i] -= q[i] * length;
                    z[i] = factor[i].solve(r[i]);
                    square += r[i].dot(z[i]);
                }
                square
            })
            .collect_into_vec(&mut self.partial);
        system.operator.partition().sum(&self.partial)
    }

    /// Sets the next direction `p = z + beta p`, conjugate to the last one.
    fn update_direction(&mut self, system: &System<'_>, beta: f64) {
        let chunks = self.direction.par_chunks_mut(CHUNK).zip(self.preconditioned.par_chunks(CHUNK));
        chunks.with_min_len(CHUNKS_PER_TASK).for_each(|(p, z)| {
            for (p, z) in p.iter_mut().zip(z) {
                *p = *z + *p * beta;
            }
        });
        system.groups.copy_from_leaders(&mut self.direction[..]);
    }
}

/// Computes `image` = S^T A u, summed at leaders; returns u·image.
fn apply(system: &mut System<'_>, u: &[DVec3], image: &mut [DVec3], partial: &mut Vec<f64>) -> f64 {
    system.operator.set_operand(Vector::Exact(u), None);
    let operator = &*system.operator;
    image
        .par_chunks_mut(CHUNK)
        .enumerate()
        .with_min_len(CHUNKS_PER_TASK)
        .map(|(chunk, image)| {
            let first = chunk * CHUNK;
            let own = &u[first..first + image.len()];
            for ((image, u), inertia) in image.iter_mut().zip(own).zip(&system.inertia[first..]) {
                *image = *u * *inertia;
            }
            operator.add_rows(first, u, image);
            image.iter().zip(own).fold(0.0, |product, (image, u)| product + u.dot(*image))
        })
        .collect_into_vec(partial);
    // All members of a group have one u, so u times the sum of their rows is the sum computed above.
    system.groups.sum_to_leaders(image);
    system.operator.partition().sum(partial)
}

#[cfg(test)]
mod tests {
    use amalgam_particles::GroupMap;
    use amalgam_particles::random::uniform_f64;

    use super::super::block::Factor;
    use super::super::groups::Groups;
    use super::super::product::Product;
    use super::*;
    use crate::linear::block::Block;
    use crate::linear::operator::Operator as _;
    use crate::materials::peridynamics::Bonds;
    use crate::materials::{Material as _, Positions};
    use crate::section;

    #[test]
    fn residuals_that_are_not_taken_anew_are_within_the_tolerance() {
        let section = "method = \"peridynamics\"\n[[bodies]]\ntype = \"peridynamic\"\nspacing = 1.0\ndensity = 1.0\n\
             shape = { type = \"box\", min = [0, 0, 0], max = [20, 9, 20] }\nyoung_modulus = 1.0\n";
        let solid = section::read(section, 1).unwrap_or_else(|faults| panic!("{faults:?}"));
        let particles = solid.layout.particles;
        let bonds = Bonds::new(solid.layout.bonded, &particles, 1);
        let mut bonds = bonds.unwrap_or_else(|faults| panic!("{faults:?}"));
        let count = particles.len();
        let random = |i: usize, what| {
            DVec3::from_array([0, 1, 2].map(|axis| uniform_f64(&[i as u64, axis, what]) - 0.5))
        };
        // Strained, so that the operator's coefficients are not round.
        let position: Vec<DVec3> = (0..count).map(|i| particles.position[i] + random(i, 0) * 0.02).collect();
        bonds.linearise(Positions::tentative(&position), true);
        bonds.prepare(0.0, 100.0);
        let factor = |i| {
            let mut block = Block::default();
            bonds.add_diagonal(i, None, &mut block);
            Factor::new(particles.mass[i], &block)
        };
        let factor: Vec<Factor> = (0..count).map(factor).collect();
        let groups = Groups::alone(&GroupMap::none(count));
        let norm = |r: &[DVec3]| r.iter().zip(&factor).map(|(r, f)| r.dot(f.solve(*r))).sum::<f64>().sqrt();
        for tolerance in [1e-5, 1e-6, 1e-9, 1e-12] {
            let coarse = Multilevel::new(&position, &bonds.regions());
            let mut iteration = ConjugateGradients::new(&Partition::alone(count), coarse);
            let mut product = Product::default();
            let mut shortcuts = 0;
            for repetition in 0..8u64 {
                // Impulses from others change little from one repetition to the next.
                let change = 10f64.powi(-(repetition as i32));
                for (i, b) in iteration.right_hand_side.iter_mut().enumerate() {
                    *b += random(i, 1 + repetition) * change;
                }
                let limits = Limits { tolerance, forcing: 0.0, floor: 0.0, iterations_max: 10_000 };
                let mut system = System {
                    operator: &mut bonds,
                    groups: &groups,
                    number: 1,
                    inertia: &particles.mass,
                    factor: &factor,
                    product: &mut product,
                };
                let solved = iteration.solve(&mut system, &limits, None);
                assert!(solved.is_ok(), "{tolerance}, repetition {repetition}: {solved:?}");
                shortcuts += u32::from(product.residual_bound.sum > 0.0);
                let mut fresh = Product::default();
                let image = fresh.of(&mut bonds, &iteration.solution);
                let residual: Vec<DVec3> = (0..count)
                    .map(|i| {
                        iteration.right_hand_side[i] - iteration.solution[i] * particles.mass[i] - image[i]
                    })
                    .collect();
                let scale = norm(&iteration.right_hand_side);
                let relative = norm(&residual) / scale;
                // Rows of bonds are sums in f32: what these round away, no residual can tell.
                let floor = 1.0 / f64::from(1 << 22) * norm(image) / scale;
                assert!(floor < 1e-6, "{floor:e}");
                let limit = tolerance.max(floor);
                assert!(relative <= limit, "{tolerance}, repetition {repetition}: {relative:e}");
            }
            // Nearer to what rounding does, it is chance whether any is.
            assert!(tolerance < 1e-5 || shortcuts > 0, "no residual was left as it was");
        }
    }
}
