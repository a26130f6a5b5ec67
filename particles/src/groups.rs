//! The group map: the matrix S of `docs/theory/coupling.md`, "Integrating a meta-particle". Every solver uses
//! this one.

use glam::DVec3;
use rayon::prelude::*;

use crate::fields::Particles;
use crate::reduce;

/// The entry of [`GroupMap::group_of`] for a particle that moves on its own.
pub const NO_GROUP: u32 = u32::MAX;

/// Groups of a participant's particles that move as one in a stage.
///
/// Reduced unknowns are numbered groups first, then free particles in index order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMap {
    group_of: Vec<u32>,
    offsets: Vec<u32>,
    members: Vec<u32>,
}

impl GroupMap {
    /// No group among `particles` particles.
    pub fn none(particles: usize) -> Self {
        Self { group_of: vec![NO_GROUP; particles], offsets: vec![0], members: Vec::new() }
    }

    /// Sets the groups among `particles` particles. Members of group g are
    /// `members[offsets[g]..offsets[g+1]]`. Memory of the last time is reused.
    ///
    /// # Panics
    /// If offsets do not ascend from 0 to `members.len()`, or a member is out of range or in two groups.
    /// Callers check groups from outside first.
    pub fn set(&mut self, particles: usize, offsets: &[u32], members: &[u32]) {
        assert!(offsets.first() == Some(&0) && offsets.is_sorted(), "offsets of groups must ascend from 0");
        assert_eq!(offsets.last().map(|&o| o as usize), Some(members.len()), "last offset of groups");
        self.group_of.clear();
        self.group_of.resize(particles, NO_GROUP);
        for (group, range) in offsets.windows(2).enumerate() {
            for &member in &members[range[0] as usize..range[1] as usize] {
                let of = &mut self.group_of[member as usize];
                assert_eq!(*of, NO_GROUP, "particle {member} is in two groups");
                *of = group as u32;
            }
        }
        self.offsets.clear();
        self.offsets.extend_from_slice(offsets);
        self.members.clear();
        self.members.extend_from_slice(members);
    }

    /// Number of groups.
    pub fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// True if every particle is free.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The group of each particle, or [`NO_GROUP`].
    pub fn group_of(&self) -> &[u32] {
        &self.group_of
    }

    /// Index of each group's first member in [`Self::all_members`], and the number of members at the end: one
    /// entry more than there are groups.
    pub fn offsets(&self) -> &[u32] {
        &self.offsets
    }

    /// Members of all groups, group after group.
    pub fn all_members(&self) -> &[u32] {
        &self.members
    }

    /// The particles of group `group`.
    pub fn members(&self, group: usize) -> &[u32] {
        &self.members[self.offsets[group] as usize..self.offsets[group + 1] as usize]
    }

    /// S^T: adds up a per-particle quantity over each group's members, in member order.
    pub fn sum_into(&self, per_particle: &[DVec3], per_group: &mut Vec<DVec3>) {
        per_group.clear();
        per_group.extend(
            (0..self.len()).map(|g| self.members(g).iter().map(|&i| per_particle[i as usize]).sum::<DVec3>()),
        );
    }

    /// S: gives every member of a group the group's value; free particles keep theirs.
    pub fn expand_into(&self, per_group: &[DVec3], per_particle: &mut [DVec3]) {
        for (group, &value) in per_group.iter().enumerate() {
            for &member in self.members(group) {
                per_particle[member as usize] = value;
            }
        }
    }
}

/// The end of a step: what the coordinator decided for a participant's groups.
#[derive(Clone, Copy, Debug)]
pub struct StepEnd<'a> {
    /// Length of the step [s].
    pub dt: f64,
    /// The groups of the last stage.
    pub groups: &'a GroupMap,
    /// Synchronised velocity of each group [m/s]: it moves the members' positions (Eq. 6-7 [Truong2021]).
    pub group_velocity: &'a [DVec3],
    /// Velocity of each member after splitting [m/s], in the order of [`GroupMap::all_members`].
    pub member_velocity: &'a [DVec3],
    /// Angular velocity of each group [rad/s], where groups are bodies; else empty.
    pub group_spin: &'a [DVec3],
}

impl StepEnd<'_> {
    /// Advances particles by one step: free ones by their integrated velocity, members by their group's.
    /// Immovable particles must have their prescribed velocity in `integrated`, and keep it.
    ///
    /// This is for solvers without sub-steps. Other solvers move their free particles themselves and then
    /// call [`Self::place_members`].
    pub fn advance(&self, particles: &mut Particles, integrated: &[DVec3]) {
        let group_of = self.groups.group_of();
        let columns = particles.position.par_iter_mut().zip(&mut particles.velocity);
        let columns = columns.zip(integrated).zip(group_of).with_min_len(reduce::CHUNK);
        columns.for_each(|(((position, velocity), &integrated), &group)| {
            if group == NO_GROUP {
                *position += integrated * self.dt;
                *velocity = integrated;
            }
        });
        self.place_members(particles);
    }

    /// Advances the members of groups. A member moves by the group's velocity, and then has its own velocity
    /// after splitting.
    pub fn place_members(&self, particles: &mut Particles) {
        for (group, &velocity) in self.group_velocity.iter().enumerate() {
            let range = self.groups.offsets[group] as usize..self.groups.offsets[group + 1] as usize;
            for (&member, &split) in
                self.groups.members[range.clone()].iter().zip(&self.member_velocity[range])
            {
                let member = member as usize;
                particles.position[member] += velocity * self.dt;
                if !particles.immovable[member] {
                    particles.velocity[member] = split;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ParticleId;

    #[test]
    fn members_move_with_their_group_and_leave_with_their_own_velocity() {
        let mut particles = Particles::default();
        for i in 0..3 {
            particles.push(ParticleId(i), DVec3::X * i as f64, DVec3::ZERO, 1.0, 0.1, false);
        }
        let mut groups = GroupMap::default();
        groups.set(3, &[0, 2], &[2, 0]);
        let end = StepEnd {
            dt: 0.5,
            groups: &groups,
            group_velocity: &[DVec3::Y],
            member_velocity: &[DVec3::X, DVec3::NEG_X],
            group_spin: &[],
        };
        end.advance(&mut particles, &[DVec3::ZERO, DVec3::Z, DVec3::ZERO]);
        assert_eq!(particles.position[0], DVec3::Y * 0.5);
        assert_eq!(particles.position[1], DVec3::X + DVec3::Z * 0.5);
        assert_eq!(particles.position[2], DVec3::X * 2.0 + DVec3::Y * 0.5);
        assert_eq!(particles.velocity, [DVec3::NEG_X, DVec3::Z, DVec3::X]);
    }
}
