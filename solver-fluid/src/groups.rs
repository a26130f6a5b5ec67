//! Groups of particles in the sub-steps of a fluid: either as boundaries or as unknowns.
//!
//! A group moves as one body of inertia M [kg]. At the start of a step it has the velocity v12 [m/s], and others
//! give it the impulse J_ext [kg m/s] in the step. A method that adds up forces sees the group as a **boundary**
//! in prescribed motion ([`BoundaryGroups`]). A method that solves for a pressure has the group as an
//! **unknown** of the solve ([`UnknownGroups`]).

use amalgam_particles::{DVec3, GroupMap};
use amalgam_solver_kit::{Integration, Ranks, Request};

use crate::substeps::Substep;

/// Inertia of a group that holds an immovable particle, relative to the mass of its members. It is so large
/// that the fluid takes over the group's velocity.
const IMMOVABLE: f64 = 1e6;

/// Motion of groups through the sub-steps of a step.
pub trait SubstepGroups: Sized {
    /// The kind of integration that the coordinator is told.
    const INTEGRATION: Integration;

    /// The groups at the start of a step of `substeps` sub-steps, with members of `mass` [kg].
    fn new(ranks: &Ranks, request: &Request<'_>, mass: f64, substeps: u32) -> Self;

    /// Moves the members to the end of a sub-step that is not the last, from positions [m] and velocities
    /// [m/s] before it.
    fn end_substep(&mut self, request: &Request<'_>, substep: Substep, columns: (&mut [DVec3], &mut [DVec3]));
}

/// Groups that are boundaries in prescribed motion, for methods that add up forces.
///
/// The impulse of others acts in proportion to time. At the end of sub-step k of n, counted from 0, a group has
/// the velocity `v12 + (J_ext / M) (k + 1) / n`. Its members move with this velocity, and free particles see
/// the members with this velocity in the next sub-step.
#[derive(Clone, Copy, Debug)]
pub struct BoundaryGroups;

impl SubstepGroups for BoundaryGroups {
    const INTEGRATION: Integration = Integration::Explicit;

    fn new(_: &Ranks, _: &Request<'_>, _: f64, _: u32) -> Self {
        Self
    }

    fn end_substep(
        &mut self,
        request: &Request<'_>,
        substep: Substep,
        (position, velocity): (&mut [DVec3], &mut [DVec3]),
    ) {
        let passed = f64::from(substep.number + 1) / f64::from(substep.count);
        for group in 0..request.groups.len() {
            let with_group =
                request.velocity[group] + request.impulse[group] / request.inertia[group] * passed;
            for &member in request.groups.members(group) {
                velocity[member as usize] = with_group;
                position[member as usize] += substep.dt * with_group;
            }
        }
    }
}

/// Groups that are unknowns of a pressure solve.
///
/// The method gives each member a part of the inertia M and of the impulse J_ext of its group, and the velocity
/// v12 of the group ([`Self::motion`]). It solves for the pressure and finds the new velocities of members. The
/// mean of these over the members, weighted with their masses, is v_new. The fluid has then given the group the
/// momentum `J = M (v_new - v12) - J_ext` ([`Self::react`]). In the next sub-step v_new stands for v12.
///
/// Members keep the velocities of the start of the step in the particles' columns. A method reads the
/// velocities of members from [`Self::motion`].
#[derive(Clone, Debug)]
pub struct UnknownGroups {
    /// Velocity of each group at the start of the sub-step, v12 [m/s].
    velocity: Vec<DVec3>,
    /// Impulse that others give each group in a sub-step, J_ext [kg m/s].
    impulse: Vec<DVec3>,
    /// Inertia of each group, M [kg].
    inertia: Vec<f64>,
    /// Mass of each group's members [kg].
    own: Vec<f64>,
    /// Number of each group's members on all ranks.
    size: Vec<usize>,
    /// Mass of a member [kg].
    mass: f64,
    /// Momentum that the fluid gives each group in the sub-step, J [kg m/s].
    given: Vec<DVec3>,
}

/// Groups in a sub-step, as loops over members read them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupMotion<'a> {
    pub(crate) groups: &'a GroupMap,
    /// Velocity of each group [m/s].
    pub(crate) velocity: &'a [DVec3],
    /// Impulse that others give each group in the sub-step [kg m/s].
    pub(crate) impulse: &'a [DVec3],
    /// Inertia of each group [kg].
    pub(crate) inertia: &'a [f64],
    /// Mass of each group's members [kg].
    pub(crate) own: &'a [f64],
    /// Mass of a member [kg].
    pub(crate) mass: f64,
}

impl UnknownGroups {
    /// The groups in the sub-step. `groups` names the members that the loops visit.
    pub(crate) fn motion<'a>(&'a self, groups: &'a GroupMap) -> GroupMotion<'a> {
        let Self { velocity, impulse, inertia, own, mass, .. } = self;
        GroupMotion { groups, velocity, impulse, inertia, own, mass: *mass }
    }

    /// Adds the momentum that the fluid gives each group in the sub-step, `J = M (v_new - v12) - J_ext`.
    /// `velocity` are the new velocities of all members at the first rank [m/s], in the order in which the
    /// coordinator named the members. Other ranks have none. Collective.
    pub(crate) fn react(&mut self, ranks: &Ranks, velocity: Option<Vec<DVec3>>, momentum: &mut [DVec3]) {
        let given = velocity.map(|velocity| {
            let mut members = velocity.into_iter();
            let given = |(group, &size): (usize, &usize)| {
                let sum: DVec3 = members.by_ref().take(size).map(|velocity| self.mass * velocity).sum();
                let change = sum / self.own[group] - self.velocity[group];
                self.inertia[group] * change - self.impulse[group]
            };
            self.size.iter().enumerate().map(given).collect()
        });
        self.given = ranks.broadcast(given.unwrap_or_default());
        momentum.iter_mut().zip(&self.given).for_each(|(momentum, &given)| *momentum += given);
    }
}

impl SubstepGroups for UnknownGroups {
    const INTEGRATION: Integration = Integration::Projection;

    fn new(ranks: &Ranks, request: &Request<'_>, mass: f64, substeps: u32) -> Self {
        let offsets = if ranks.is_alone() { request.groups.offsets() } else { request.members.offsets };
        let size: Vec<usize> = offsets.windows(2).map(|range| (range[1] - range[0]) as usize).collect();
        let own: Vec<f64> = size.iter().map(|&size| std::iter::repeat_n(mass, size).sum()).collect();
        let finite =
            |(&inertia, own): (&f64, f64)| if inertia.is_finite() { inertia } else { IMMOVABLE * own };
        Self {
            velocity: request.velocity.to_vec(),
            impulse: request.impulse.iter().map(|&impulse| impulse / f64::from(substeps)).collect(),
            inertia: request.inertia.iter().zip(own.iter().copied()).map(finite).collect(),
            own,
            size,
            mass,
            given: Vec::new(),
        }
    }

    fn end_substep(
        &mut self,
        request: &Request<'_>,
        substep: Substep,
        (position, _): (&mut [DVec3], &mut [DVec3]),
    ) {
        for (group, velocity) in self.velocity.iter_mut().enumerate() {
            for &member in request.groups.members(group) {
                position[member as usize] += substep.dt * *velocity;
            }
            *velocity += (self.given[group] + self.impulse[group]) / self.inertia[group];
        }
    }
}
