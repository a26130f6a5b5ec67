//! Conjugate gradients in f32: the inner iteration of `conjugate_gradients.rs`.
//!
//! Residuals and directions are f32, sixteen particles side by side. Scalar products and the solution are
//! summed in f64. A rounded direction p is still a valid direction of search: the solution advances by
//! `alpha p`, and the residual falls by `alpha A p` with the same rounded p. So the iteration converges to
//! the solution for the rounded operator A, whose entries differ from the exact ones in the sixth digit.

use amalgam_particles::DVec3;
use amalgam_particles::lanes::{self, LANES, Lanes, Sixteen, Task};
use glam::Vec3;
use rayon::prelude::*;

use super::block::{Factor, RoundedFactor};
use super::fixed::operand_scale;
use super::multilevel::{Level, Multilevel};
use super::operator::OperatorVersion;
use super::partition::Partition;
use super::system::System;
use super::vectors::{Columns, Slice, Vector, sixteen, window_mut};
use crate::chunks::CHUNK;

/// Slices per chunk. The sum over a chunk is formed in the order of its slices.
const SLICES: usize = CHUNK / LANES;

/// A loop over fewer chunks runs on one thread, because waking a second thread would take longer.
const CHUNKS_PER_TASK: usize = 8;

/// The vectors of the iteration, kept between solves.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoundedIteration {
    inertia: Vec<Sixteen>,
    factor: Vec<RoundedFactor>,
    solution: Vec<Slice<f64>>,
    residual: Vec<Slice>,
    preconditioned: Vec<Slice>,
    image: Vec<Slice>,
    /// A value per place, of which the first row's is at `first`.
    direction: Columns,
    first: usize,
    /// 1 for a particle with an unknown of its own and for the leader of a group, 0 for held particles and
    /// other members.
    free: Vec<Sixteen>,
    diagonal: Vec<[f32; 8]>,
    coarse: Multilevel,
    /// Number of the system whose inertia and factors were rounded last.
    system: Option<u64>,
    /// The operator that factors and coarse grids, except for groups, were computed from.
    operator: Option<OperatorVersion>,
    /// Members of the groups of that system.
    members: Vec<u32>,
    partial: Vec<f64>,
}

/// Result of the iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reached {
    /// Iterations it took.
    pub(crate) iterations: u32,
    /// Squared norm of the residual; not finite if a number overflowed.
    pub(crate) square: f64,
    /// Squared energy norm of the correction.
    pub(crate) energy: f64,
}

impl RoundedIteration {
    /// Vectors for the rows of a rank.
    pub(crate) fn new(partition: &Partition, coarse: Multilevel) -> Self {
        let particles = partition.own().len();
        let slices = particles.div_ceil(LANES);
        let zero = vec![Slice::default(); slices];
        Self {
            inertia: vec![[0.0; LANES]; slices],
            factor: vec![RoundedFactor::default(); slices],
            solution: vec![Slice::default(); slices],
            residual: zero.clone(),
            preconditioned: zero.clone(),
            image: zero,
            direction: Columns::new(partition.places()),
            first: partition.first_place(),
            free: vec![[0.0; LANES]; slices],
            diagonal: vec![[0.0; 8]; particles],
            coarse,
            system: None,
            operator: None,
            members: Vec::new(),
            partial: Vec::new(),
        }
    }

    /// The grids of the preconditioner.
    pub(crate) fn take_grids(&mut self) -> Multilevel {
        std::mem::take(&mut self.coarse)
    }

    /// Iterates from `residual` until its squared norm is at most `goal`, at most `limit` times. Adds the
    /// correction to `solution`, and replaces `residual` by the final one. `largest` is a bound of the
    /// preconditioned residual's components.
    pub(crate) fn reduce(
        &mut self,
        system: &mut System<'_>,
        (residual, largest): (&mut [DVec3], f64),
        (goal, limit): (f64, u32),
        solution: &mut [DVec3],
    ) -> Reached {
        let scale = operand_scale(largest);
        let square = self.load(system, residual, scale);
        let mut reached = Reached { iterations: 0, square, energy: 0.0 };
        let mut product = self.update_direction(system, square, None);
        let goal = goal * scale * scale;
        while reached.square > goal && reached.iterations < limit {
            let curvature = self.apply(system);
            let length = (product / curvature) as f32;
            if !(curvature > 0.0 && length.is_finite()) {
                reached.square = f64::NAN;
                break;
            }
            reached.energy += f64::from(length) * product;
            let square = self.advance(system, length);
            product = self.update_direction(system, square, Some(product));
            reached = Reached { iterations: reached.iterations + 1, square, ..reached };
        }
        reached.square /= scale * scale;
        reached.energy /= scale * scale;
        if reached.square.is_finite() {
            let unit = 1.0 / scale;
            solution
                .par_chunks_mut(LANES)
                .zip(residual.par_chunks_mut(LANES))
                .zip(self.solution.par_iter().zip(&self.residual))
                .with_min_len(SLICES * CHUNKS_PER_TASK)
                .for_each(|((solution, residual), ([x, y, z], [u, v, w]))| {
                    for (lane, (solution, residual)) in solution.iter_mut().zip(residual).enumerate() {
                        *solution += DVec3::new(x[lane], y[lane], z[lane]) * unit;
                        *residual = Vec3::new(u[lane], v[lane], w[lane]).as_dvec3() * unit;
                    }
                });
        }
        reached
    }

    /// Rounds the system's inertia and factors, and the residual times `scale`; sets solution and direction
    /// to zero. Returns the squared norm of the residual.
    fn load(&mut self, system: &System<'_>, residual: &[DVec3], scale: f64) -> f64 {
        self.load_system(system);
        let [x, y, z] = own_chunks(&mut self.direction, self.first, self.residual.len());
        let chunks = (
            self.residual.par_chunks_mut(SLICES),
            residual.par_chunks(CHUNK),
            self.solution.par_chunks_mut(SLICES),
            (x, y, z),
            self.preconditioned.par_chunks_mut(SLICES),
            self.factor.par_chunks(SLICES),
        );
        chunks
            .into_par_iter()
            .with_min_len(CHUNKS_PER_TASK)
            .map(|(rounded, residual, solution, (x, y, z), preconditioned, factor)| {
                solution.fill(Slice::default());
                for axis in [x, y, z] {
                    axis.fill(0.0);
                }
                for (rounded, residual) in rounded.iter_mut().zip(residual.chunks(LANES)) {
                    for (lane, r) in residual.iter().enumerate() {
                        let r = (*r * scale).to_array();
                        (0..3).for_each(|axis| rounded[axis][lane] = r[axis] as f32);
                    }
                }
                lanes::run(Precondition { factor, residual: rounded, preconditioned })
            })
            .collect_into_vec(&mut self.partial);
        system.operator.partition().sum(&self.partial)
    }

    /// Rounds inertia and factors, of which two systems with one operator differ only at group members.
    fn load_system(&mut self, system: &System<'_>) {
        let is_known = self.operator.replace(system.operator.version()) == Some(system.operator.version());
        if self.system.replace(system.number) == Some(system.number) && is_known {
            return;
        }
        let members = system.groups.map().all_members();
        if is_known {
            for i in std::mem::take(&mut self.members).iter().chain(members).map(|&i| i as usize) {
                let (slice, lane) = (i / LANES, i % LANES);
                let row = (&mut self.inertia[slice], &mut self.factor[slice], &mut self.free[slice]);
                set_row(lane, (system.inertia[i], &system.factor[i]), row, &mut self.diagonal[i]);
            }
        } else {
            let slices = (
                self.inertia.par_iter_mut(),
                self.factor.par_iter_mut(),
                self.free.par_iter_mut(),
                self.diagonal.par_chunks_mut(LANES),
                system.inertia.par_chunks(LANES),
                system.factor.par_chunks(LANES),
            );
            slices.into_par_iter().with_min_len(SLICES * CHUNKS_PER_TASK).for_each(
                |(inertia, factor, free, diagonal, masses, factors)| {
                    for (lane, (diagonal, of)) in
                        diagonal.iter_mut().zip(masses.iter().zip(factors)).enumerate()
                    {
                        set_row(lane, (*of.0, of.1), (inertia, factor, free), diagonal);
                    }
                },
            );
        }
        self.members.clear();
        self.members.extend_from_slice(members);
        // Light groups change the grids little, so later stages keep the grids of the first.
        if !is_known || has_heavy_groups(system) {
            self.coarse.prepare(&self.diagonal);
        }
    }

    /// Multiplies the system's matrix A with the direction p; returns p·A p.
    fn apply(&mut self, system: &mut System<'_>) -> f64 {
        system.operator.partition().bring_ghosts(&mut self.direction);
        system.operator.set_operand(Vector::Rounded(&self.direction), None);
        let (operator, direction, shift) = (&*system.operator, &self.direction, self.first / LANES);
        let chunks = self.image.par_chunks_mut(SLICES).zip(self.inertia.par_chunks(SLICES)).enumerate();
        chunks
            .with_min_len(CHUNKS_PER_TASK)
            .map(|(chunk, (image, inertia))| {
                let first = chunk * SLICES;
                let at = shift + first;
                lanes::run(Inertial { at, inertia, direction, image });
                operator.add_rounded(first, direction, image);
                lanes::run(RoundedProduct { at, direction, image })
            })
            .collect_into_vec(&mut self.partial);
        system.groups.sum_to_leaders(&mut self.image[..]);
        system.operator.partition().sum(&self.partial)
    }

    /// Advances solution and residual by `length` along the direction; returns the new squared norm of the
    /// residual.
    fn advance(&mut self, system: &System<'_>, length: f32) -> f64 {
        let (direction, shift) = (&self.direction, self.first / LANES);
        let chunks = (
            self.residual.par_chunks_mut(SLICES),
            self.solution.par_chunks_mut(SLICES),
            self.preconditioned.par_chunks_mut(SLICES),
            self.image.par_chunks(SLICES),
            self.factor.par_chunks(SLICES),
        );
        chunks
            .into_par_iter()
            .enumerate()
            .with_min_len(CHUNKS_PER_TASK)
            .map(|(chunk, (residual, solution, preconditioned, image, factor))| {
                let at = shift + chunk * SLICES;
                lanes::run(Advance {
                    at,
                    length,
                    direction,
                    image,
                    factor,
                    residual,
                    solution,
                    preconditioned,
                })
            })
            .collect_into_vec(&mut self.partial);
        system.operator.partition().sum(&self.partial)
    }

    /// Sets the next direction `p = z + (r·z / last) p`, conjugate to the last one, for the residual r and
    /// the preconditioned residual z. `square` is the squared norm of r, and `last` is r·z of the iteration
    /// before, if there was one. Returns r·z.
    fn update_direction(&mut self, system: &System<'_>, square: f64, last: Option<f64>) -> f64 {
        let Self { residual, free, coarse, preconditioned, .. } = self;
        let product = square
            + coarse.correct(|i| {
                let (slice, lane) = (i / LANES, i % LANES);
                let [x, y, z] = &residual[slice];
                let free = free[slice][lane];
                [x[lane] * free, y[lane] * free, z[lane] * free]
            });
        let beta = last.map_or(0.0, |last| (product / last) as f32);
        let [x, y, z] = own_chunks(&mut self.direction, self.first, self.residual.len());
        let coarse = coarse.finest();
        (x, y, z, preconditioned.par_chunks(SLICES), free.par_chunks(SLICES))
            .into_par_iter()
            .enumerate()
            .with_min_len(CHUNKS_PER_TASK)
            .for_each(|(chunk, (x, y, z, preconditioned, free))| {
                let (first, direction) = (chunk * CHUNK, [x, y, z]);
                lanes::run(UpdateDirection { beta, first, direction, preconditioned, coarse, free });
            });
        system.groups.copy_from_leaders(&mut (&mut self.direction, self.first));
        product
    }
}

/// The chunks of a vector's own rows, of so many slices, the first of which is at `first`.
fn own_chunks(vector: &mut Columns, first: usize, slices: usize) -> [rayon::slice::ChunksMut<'_, f32>; 3] {
    vector.axes.each_mut().map(|axis| axis[first..first + slices * LANES].par_chunks_mut(CHUNK))
}

/// Rounds an unknown's inertia and the factor of its diagonal block into a lane, and the block itself into
/// the row for coarse grids.
fn set_row(
    lane: usize,
    (mass, own): (f64, &Factor),
    (inertia, factor, free): (&mut Sixteen, &mut RoundedFactor, &mut Sixteen),
    diagonal: &mut [f32; 8],
) {
    inertia[lane] = mass as f32;
    factor.set(lane, own);
    let [xx, yy, zz, yz, xz, xy] = own.entries();
    let is_free = xx > 0.0;
    free[lane] = if is_free { 1.0 } else { 0.0 };
    let mass = if is_free { mass } else { 0.0 };
    *diagonal = [mass, xx, yy, zz, yz, xz, xy, 0.0].map(|entry| entry as f32);
}

/// Coarse grids must take a group into account if its inertia is above the mean inertia per particle times
/// this. It is about the number of particles in a cell of the finest grid.
const HEAVY: f64 = 32.0;

/// True if any group has more than [`HEAVY`] times the mean inertia.
fn has_heavy_groups(system: &System<'_>) -> bool {
    let chunks = system.inertia.par_chunks(CHUNK).with_min_len(CHUNKS_PER_TASK);
    let sums: Vec<f64> = chunks.map(|chunk| chunk.iter().sum()).collect();
    let partition = system.operator.partition();
    let limit = HEAVY * partition.sum(&sums) / partition.total() as f64;
    partition.ranks().any(system.groups.led().any(|(_, leader)| system.inertia[leader] > limit))
}

/// Computes `image = M p` for the inertia M and the direction p.
struct Inertial<'a> {
    /// First slice of the direction.
    at: usize,
    inertia: &'a [Sixteen],
    direction: &'a Columns,
    image: &'a mut [Slice],
}

impl Task for Inertial<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        for (slice, (image, inertia)) in (self.at..).zip(self.image.iter_mut().zip(self.inertia)) {
            for (image, axis) in image.iter_mut().zip(&self.direction.axes) {
                (L::load(sixteen(axis, slice * LANES)) * L::load(inertia)).store(image);
            }
        }
    }
}

/// Computes p·q for the direction p and its image q.
struct RoundedProduct<'a> {
    /// First slice of the direction.
    at: usize,
    direction: &'a Columns,
    image: &'a [Slice],
}

impl Task for RoundedProduct<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f64 {
        let mut product = 0.0;
        for (slice, [x, y, z]) in (self.at..).zip(self.image) {
            let [u, v, w] = &self.direction.axes;
            let own = L::load(sixteen(w, slice * LANES)) * L::load(z);
            let own = L::load(sixteen(v, slice * LANES)).mul_add(L::load(y), own);
            let own = L::load(sixteen(u, slice * LANES)).mul_add(L::load(x), own);
            product += f64::from(own.sum());
        }
        product
    }
}

/// Advances the solution by `length` p and the residual r by `-length` q, and computes z = D^-1 r for the
/// diagonal blocks D; returns r·z.
struct Advance<'a> {
    /// First slice of the direction.
    at: usize,
    length: f32,
    direction: &'a Columns,
    image: &'a [Slice],
    factor: &'a [RoundedFactor],
    residual: &'a mut [Slice],
    solution: &'a mut [Slice<f64>],
    preconditioned: &'a mut [Slice],
}

impl Task for Advance<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f64 {
        let (length, back) = (f64::from(self.length), L::splat(-self.length));
        let mut square = 0.0;
        for slice in 0..self.residual.len() {
            let (solution, residual) = (&mut self.solution[slice], &mut self.residual[slice]);
            let mut r = [L::splat(0.0); 3];
            for axis in 0..3 {
                let direction = sixteen(&self.direction.axes[axis], (self.at + slice) * LANES);
                for (solution, &direction) in solution[axis].iter_mut().zip(direction) {
                    *solution += f64::from(direction) * length;
                }
                r[axis] = back.mul_add(L::load(&self.image[slice][axis]), L::load(&residual[axis]));
                r[axis].store(&mut residual[axis]);
            }
            square += precondition(r, &self.factor[slice], &mut self.preconditioned[slice]);
        }
        square
    }
}

/// Computes z = D^-1 r for the residual r and the diagonal blocks D; returns r·z.
struct Precondition<'a> {
    factor: &'a [RoundedFactor],
    residual: &'a [Slice],
    preconditioned: &'a mut [Slice],
}

impl Task for Precondition<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f64 {
        let mut square = 0.0;
        for ((residual, preconditioned), factor) in
            self.residual.iter().zip(self.preconditioned).zip(self.factor)
        {
            let [x, y, z] = residual;
            square += precondition([L::load(x), L::load(y), L::load(z)], factor, preconditioned);
        }
        square
    }
}

/// Computes z = D^-1 r for one slice, as [`Precondition`] does; returns r·z.
#[inline(always)]
fn precondition<L: Lanes>(r: [L; 3], factor: &RoundedFactor, preconditioned: &mut Slice) -> f64 {
    let z = factor.solve(r);
    for (z, preconditioned) in z.into_iter().zip(preconditioned) {
        z.store(preconditioned);
    }
    let own = r[0].mul_add(z[0], r[1].mul_add(z[1], r[2] * z[2]));
    f64::from(own.sum())
}

/// `p = beta p + z` for the direction p and the preconditioned residual z. At free particles, z includes the
/// correction of the coarse grids.
struct UpdateDirection<'a> {
    beta: f32,
    /// First particle.
    first: usize,
    direction: [&'a mut [f32]; 3],
    preconditioned: &'a [Slice],
    coarse: Option<&'a Level>,
    free: &'a [Sixteen],
}

impl Task for UpdateDirection<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let (beta, mut more) = (L::splat(self.beta), Slice::default());
        for (slice, (preconditioned, free)) in self.preconditioned.iter().zip(self.free).enumerate() {
            if let Some(coarse) = self.coarse {
                let first = self.first + slice * LANES;
                for (lane, i) in (first..coarse.points()).take(LANES).enumerate() {
                    let value = coarse.interpolate::<L>(i);
                    (0..3).for_each(|axis| more[axis][lane] = value[axis]);
                }
            }
            for axis in 0..3 {
                let direction = window_mut(self.direction[axis], slice * LANES);
                let own = L::load(free).mul_add(L::load(&more[axis]), L::load(&preconditioned[axis]));
                beta.mul_add(L::load(direction), own).store(direction);
            }
        }
    }
}
