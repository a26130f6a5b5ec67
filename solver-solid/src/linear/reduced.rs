//! The reduced system of a stage. Its unknowns are velocity changes: one of each group and one of each free
//! particle (`docs/theory/coupling.md`, "Integrating a meta-particle inside a participant").

use amalgam_particles::{DMat3, DVec3, NO_GROUP, Particles};
use amalgam_solver_kit::{Ranks, Request, SolverError, agreed};
use bytemuck::Pod;
use rayon::prelude::*;

use super::block::{Block, Factor};
use super::groups::Groups;
use super::operator::{Operator, OperatorVersion};
use super::partition::Partition;
use super::product::Product;
use super::system::System;
use super::vectors::Vector;
use crate::chunks::{CHUNK, CHUNKS_PER_TASK};

/// The system S^T (M + h C + h^2 K) S of a stage, except for h C + h^2 K, which all stages share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reduced {
    /// Velocity at the start of the step [m/s], S v_reduced: members have their group's velocity.
    pub(crate) velocity: Vec<DVec3>,
    /// Slope of the momentum given to each group that this rank leads [kg].
    slope: Vec<DMat3>,
    /// The operator that the factors were computed from; `None` before the first system.
    operator: Option<OperatorVersion>,
    /// Number of systems set so far.
    number: u64,
    inertia: Vec<f64>,
    factor: Vec<Factor>,
    /// The groups that are unknowns, with their inertias and velocities.
    groups: Groups,
    group_inertia: Vec<f64>,
    group_velocity: Vec<DVec3>,
    /// (h C + h^2 K) times the velocities.
    start: Product,
    /// (h C + h^2 K) times the velocity changes of the last iteration.
    change: Product,
    /// Velocities less the velocities of travel [m/s], with HHT-alpha.
    imposed: Vec<DVec3>,
    /// h C times the velocities of travel, with HHT-alpha.
    damped: Product,
    /// S^T (h F + h^2 dF/dx v) of each group that this rank leads: its right-hand side without J_ext, the
    /// impulse of other participants [kg m/s].
    load: Vec<DVec3>,
}

/// Changes of velocity in a step by what is outside of the materials [m/s]. `fall` is from gravity and equal
/// for all particles. `pushed` is from drags and fields of force, with one value per particle, and empty
/// without them.
#[derive(Clone, Copy)]
pub(crate) struct Outside<'a> {
    pub(crate) fall: DVec3,
    pub(crate) pushed: &'a [DVec3],
}

impl Outside<'_> {
    fn of(&self, i: usize) -> DVec3 {
        self.pushed.get(i).map_or(self.fall, |pushed| self.fall + *pushed)
    }
}

impl Reduced {
    /// True if unknowns and load are those of this stage. The stage is then a repetition of the last one:
    /// only J_ext differs. Collective.
    pub(crate) fn is_set_for(&self, operator: &dyn Operator, request: &Request<'_>) -> bool {
        let is_set = self.operator == Some(operator.version())
            && self.groups.map() == request.groups
            && self.group_inertia == request.inertia
            && self.group_velocity == request.velocity;
        !operator.partition().ranks().any(!is_set)
    }

    /// Sets the unknowns of a stage. Collective.
    ///
    /// # Errors
    /// A group that holds an immovable particle and yet has a finite inertia.
    pub(crate) fn set(
        &mut self,
        particles: &Particles,
        operator: &dyn Operator,
        request: &Request<'_>,
    ) -> Result<(), SolverError> {
        self.number += 1;
        let partition = operator.partition();
        agreed(partition.ranks(), check_held(particles, request))?;
        if self.operator == Some(operator.version()) {
            // Only members of the last stage's groups differ from free particles.
            let Self { velocity, inertia, factor, groups, .. } = self;
            for &i in groups.map().all_members() {
                let i = i as usize;
                (velocity[i], inertia[i]) = (particles.velocity[i], particles.mass[i]);
                factor[i] = free_factor(particles, operator, i);
            }
        } else {
            self.set_free(particles, operator);
        }
        self.groups.set(partition, request.groups, &request.members);
        self.group_inertia.clear();
        self.group_inertia.extend_from_slice(request.inertia);
        self.group_velocity.clear();
        self.group_velocity.extend_from_slice(request.velocity);
        self.set_groups(operator, request);
        Ok(())
    }

    /// Makes each particle an unknown of its own.
    fn set_free(&mut self, particles: &Particles, operator: &dyn Operator) {
        self.operator = Some(operator.version());
        let Self { velocity, inertia, factor, .. } = self;
        velocity.resize(particles.len(), DVec3::ZERO);
        inertia.resize(particles.len(), 0.0);
        factor.resize(particles.len(), Factor::default());
        let unknowns = velocity.par_iter_mut().zip(inertia).zip(factor).enumerate();
        unknowns.with_min_len(CHUNK * CHUNKS_PER_TASK).for_each(|(i, ((velocity, inertia), factor))| {
            (*velocity, *inertia) = (particles.velocity[i], particles.mass[i]);
            *factor = free_factor(particles, operator, i);
        });
    }

    /// Makes the members of each group one unknown.
    fn set_groups(&mut self, operator: &dyn Operator, request: &Request<'_>) {
        let Self { velocity, inertia, factor, groups, slope, .. } = self;
        for group in 0..request.groups.len() {
            for member in groups.map().members(group).iter().map(|&i| i as usize) {
                velocity[member] = request.velocity[group];
                inertia[member] = 0.0;
                factor[member] = Factor::default();
            }
        }
        let blocks = groups.built(|group, member, block: &mut Block| {
            let internal = |neighbour: u32| groups.is_member(group, neighbour);
            operator.add_diagonal(member, Some(&internal), block);
        });
        slope.clear();
        slope.resize(blocks.len(), DMat3::ZERO);
        for (group, leader) in groups.led().filter(|&(group, _)| request.inertia[group].is_finite()) {
            inertia[leader] = request.inertia[group];
            factor[leader] = Factor::new(request.inertia[group], &blocks[group]);
            slope[group] = blocks[group].matrix();
        }
    }

    /// Values of all groups at the first rank, each from the rank that leads the group; nothing at others.
    /// Collective.
    fn of_groups<T: Pod>(&self, ranks: &Ranks, value: impl Fn(usize, usize) -> T) -> Vec<T> {
        let (led, own): (Vec<u32>, Vec<T>) =
            self.groups.led().map(|(group, leader)| (group as u32, value(group, leader))).unzip();
        let gathered = ranks.gather(led).zip(ranks.gather(own));
        let Some((groups, values)) = gathered else { return Vec::new() };
        let mut all = vec![T::zeroed(); self.groups.map().len()];
        for (group, value) in groups.into_iter().flatten().zip(values.into_iter().flatten()) {
            all[group as usize] = value;
        }
        all
    }

    /// The slope of the momentum given to each group [kg], at the first rank. Collective.
    pub(crate) fn slopes(&self, ranks: &Ranks) -> Vec<DMat3> {
        self.of_groups(ranks, |group, _| self.slope[group])
    }

    /// The value that the leader of each group has in a vector, at the first rank. Collective.
    pub(crate) fn at_leaders(&self, ranks: &Ranks, values: &[DVec3]) -> Vec<DVec3> {
        self.of_groups(ranks, |_, leader| values[leader])
    }

    /// Finds S^T (h F + h^2 dF/dx v), summed at leaders: the right-hand side without the impulses of others.
    pub(crate) fn find_load(
        &mut self,
        particles: &Particles,
        operator: &mut dyn Operator,
        outside: Outside<'_>,
        request: &Request<'_>,
        sum: &mut [DVec3],
    ) {
        let product = self.start.of(operator, &self.velocity);
        let dt = request.dt;
        let rows = sum.par_iter_mut().zip(product).enumerate().with_min_len(CHUNK * CHUNKS_PER_TASK);
        rows.for_each(|(i, (sum, product))| {
            *sum = free_impulse(particles, operator, outside, dt, i) - *product;
        });
        self.sum_load(sum);
    }

    /// Finds the right-hand side of HHT-alpha without the impulses of others,
    /// S^T (h F - h C v - a h^2 K (v - t)) for the velocities t of `travel` [m/s]. `kick` is h [s], and
    /// `square` [s^2] stands for a h^2. The operator is prepared for both, before and after.
    pub(crate) fn find_hht_load(
        &mut self,
        (particles, operator, outside): (&Particles, &mut dyn Operator, Outside<'_>),
        (travel, (kick, square)): (&[DVec3], (f64, f64)),
        sum: &mut [DVec3],
    ) {
        let Self { velocity, imposed, start, damped, .. } = self;
        let change = velocity.par_iter().zip(travel).with_min_len(CHUNK * CHUNKS_PER_TASK);
        change.map(|(v, t)| *v - *t).collect_into_vec(imposed);
        // h C v + a h^2 K (v - t) = h C t + (h C + a h^2 K) (v - t). The last operator is the system's own,
        // and h C t is equal in all stages.
        operator.prepare(kick, 0.0);
        let damped = damped.of(operator, travel);
        operator.prepare(kick, square);
        let product = start.of(operator, imposed);
        let rows = sum.par_iter_mut().zip(product.par_iter().zip(damped)).enumerate();
        rows.with_min_len(CHUNK * CHUNKS_PER_TASK).for_each(|(i, (sum, (product, damped)))| {
            *sum = free_impulse(particles, operator, outside, kick, i) - *product - *damped;
        });
        self.sum_load(sum);
    }

    /// Applies S^T to a load, and keeps the groups' loads for repetitions.
    fn sum_load(&mut self, sum: &mut [DVec3]) {
        let Self { groups, load, .. } = self;
        groups.sum_to_leaders(sum);
        load.clear();
        load.resize(groups.map().len(), DVec3::ZERO);
        groups.led().for_each(|(group, leader)| load[group] = sum[leader]);
    }

    /// Largest squared norm that rounding alone can give a residual: the squared norm of the unknowns'
    /// momenta times the square of the machine epsilon.
    ///
    /// In free flight the right-hand side is zero except for rounding, so a tolerance relative to the
    /// right-hand side can never be met. The rounding errors are relative to the momenta instead. Collective.
    pub(crate) fn rounding(&self, partition: &Partition) -> f64 {
        let unknowns = self.velocity.par_chunks(CHUNK).zip(self.inertia.par_chunks(CHUNK));
        let unknowns = unknowns.zip(self.factor.par_chunks(CHUNK)).with_min_len(CHUNKS_PER_TASK);
        let squares = unknowns.map(|((velocity, inertia), factor)| {
            let rows = velocity.iter().zip(inertia).zip(factor);
            rows.fold(0.0, |sum, ((v, m), factor)| sum + (*v * *m).dot(factor.solve(*v * *m)))
        });
        let squares: Vec<f64> = squares.collect();
        let square = f64::EPSILON * f64::EPSILON * partition.sum(&squares);
        // Below the least normal number squares lose their digits.
        square.max(f64::MIN_POSITIVE)
    }

    /// Sets `sum` at leaders to the load of [`Self::find_load`] plus J_ext.
    pub(crate) fn set_impulses(&self, request: &Request<'_>, sum: &mut [DVec3]) {
        for (group, leader) in self.groups.led() {
            sum[leader] = self.load[group] + request.impulse[group];
        }
    }

    /// Computes the residual of the equation of implicit Euler, `h (f + M g) - h C v + J_ext - M dv`, summed
    /// at leaders, for velocity changes dv and velocities v. The operator must be linearised at the positions
    /// that v leads to, and prepared with the square 0.
    pub(crate) fn remainder(
        &self,
        (particles, operator, outside): (&Particles, &mut dyn Operator, Outside<'_>),
        request: &Request<'_>,
        (change, velocity): (&[DVec3], &[DVec3]),
        sum: &mut [DVec3],
    ) {
        impulses(particles, operator, outside, (request.dt, velocity), sum);
        self.groups.sum_to_leaders(sum);
        for (group, leader) in self.groups.led() {
            sum[leader] += request.impulse[group];
        }
        sum.iter_mut().zip(change.iter().zip(&self.inertia)).for_each(|(sum, (dv, m))| *sum -= *dv * *m);
    }

    /// Sets the velocity changes from which the iteration starts. A free particle's leads to its velocity in
    /// `expected`, a group's to the mean of its members' velocities by mass. Held unknowns have none.
    pub(crate) fn starting_point(
        &self,
        particles: &Particles,
        expected: &[DVec3],
        request: &Request<'_>,
        change: &mut [DVec3],
    ) {
        let group_of = request.groups.group_of();
        change.par_iter_mut().enumerate().with_min_len(CHUNK * CHUNKS_PER_TASK).for_each(|(i, change)| {
            if group_of[i] != NO_GROUP || particles.immovable[i] {
                *change = DVec3::ZERO;
            } else if self.velocity[i] + *change != expected[i] {
                // Otherwise the change keeps its bits, and its row of the kept product stays valid.
                *change = expected[i] - self.velocity[i];
            }
        });
        let masses = self.groups.sums(0, |i| particles.mass[i]);
        let momenta = self.groups.sums(0, |i| expected[i] * particles.mass[i]);
        for group in (0..request.groups.len()).filter(|&group| request.inertia[group].is_finite()) {
            for &i in request.groups.members(group) {
                change[i as usize] = momenta[group] / masses[group] - request.velocity[group];
            }
        }
    }

    /// The system, for the iteration.
    pub(crate) fn system<'a>(&'a mut self, operator: &'a mut dyn Operator) -> System<'a> {
        System {
            operator,
            groups: &self.groups,
            number: self.number,
            inertia: &self.inertia,
            factor: &self.factor,
            product: &mut self.change,
        }
    }
}

/// Refuses a finite inertia for a group with an immovable particle.
fn check_held(particles: &Particles, request: &Request<'_>) -> Result<(), SolverError> {
    for (group, inertia) in request.inertia.iter().enumerate().filter(|(_, inertia)| inertia.is_finite()) {
        let mut members = request.groups.members(group).iter().map(|&i| i as usize);
        if let Some(member) = members.find(|&i| particles.immovable[i]) {
            return Err(SolverError(format!(
                "particle {} is immovable, but its group came with the finite inertia {inertia} kg",
                particles.id[member]
            )));
        }
    }
    Ok(())
}

/// Factor of the diagonal block of a particle without a group; zero if the particle is immovable.
fn free_factor(particles: &Particles, operator: &dyn Operator, i: usize) -> Factor {
    if particles.immovable[i] {
        return Factor::default();
    }
    let mut block = Block::default();
    operator.add_diagonal(i, None, &mut block);
    Factor::new(particles.mass[i], &block)
}

/// Computes the impulse [kg m/s] of each particle in a step of length h = `dt` with the velocities v:
/// `h (f + m g) - (h C + h^2 K) v`. Drags and fields of force add to `h g`.
pub(crate) fn impulses(
    particles: &Particles,
    operator: &mut dyn Operator,
    outside: Outside<'_>,
    (dt, velocity): (f64, &[DVec3]),
    sum: &mut [DVec3],
) {
    operator.set_operand(Vector::Exact(velocity), None);
    sum.par_chunks_mut(CHUNK).enumerate().with_min_len(CHUNKS_PER_TASK).for_each(|(chunk, sum)| {
        let first = chunk * CHUNK;
        sum.fill(DVec3::ZERO);
        operator.add_rows(first, velocity, sum);
        for (i, sum) in (first..).zip(sum) {
            *sum = free_impulse(particles, operator, outside, dt, i) - *sum;
        }
    });
}

/// Subtracts the operator's product with `change` from `sum`.
pub(crate) fn subtract_product(operator: &mut dyn Operator, change: &[DVec3], sum: &mut [DVec3]) {
    operator.set_operand(Vector::Exact(change), None);
    sum.par_chunks_mut(CHUNK).enumerate().with_min_len(CHUNKS_PER_TASK).for_each(|(chunk, sum)| {
        let mut product = [DVec3::ZERO; CHUNK];
        let product = &mut product[..sum.len()];
        operator.add_rows(chunk * CHUNK, change, product);
        sum.iter_mut().zip(product).for_each(|(sum, product)| *sum -= *product);
    });
}

/// Impulse of the forces at the start of the step [kg m/s], `h (f + m g)`.
fn free_impulse(
    particles: &Particles,
    operator: &dyn Operator,
    outside: Outside<'_>,
    dt: f64,
    i: usize,
) -> DVec3 {
    operator.force(i) * dt + outside.of(i) * particles.mass[i]
}
