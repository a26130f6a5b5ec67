//! Members of groups in a fluid that is cut among ranks. A member adds to the faces around it, which lie in
//! the slabs of one rank or of two.

use std::borrow::Cow;

use amalgam_particles::{DVec3, GroupMap};
use amalgam_solver_kit::Request;
use bytemuck::{Pod, Zeroable};

use crate::flip::grid::Grid;
use crate::flip::slab::{Slab, depth};

/// The members that add to the faces which a rank computes, in the order in which the coordinator named them:
/// members in its slab and in the layers beside it.
pub(in crate::flip) struct SeenMembers<'a> {
    /// The groups, with the places of their seen members in the columns below.
    pub(in crate::flip) groups: Cow<'a, GroupMap>,
    /// Positions [m].
    pub(in crate::flip) position: Cow<'a, [DVec3]>,
    /// Velocities at the start of the step [m/s].
    pub(in crate::flip) velocity: Cow<'a, [DVec3]>,
    /// For each seen member, its number among all members if it lies in the slab.
    inside: Vec<Option<u32>>,
}

/// A member as ranks send it.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Sent {
    number: u32,
    group: u32,
    position: DVec3,
    velocity: DVec3,
}

impl<'a> SeenMembers<'a> {
    /// The members that this rank sees, from positions [m] and velocities [m/s] of own particles. Collective.
    pub(in crate::flip) fn new(
        slab: &Slab,
        grid: &Grid,
        request: &Request<'a>,
        (position, velocity): (&'a [DVec3], &'a [DVec3]),
    ) -> Self {
        if slab.is_whole() {
            let (groups, inside) = (Cow::Borrowed(request.groups), Vec::new());
            return Self { groups, position: position.into(), velocity: velocity.into(), inside };
        }
        let size = slab.ranks.size();
        // A member adds to the faces of its layer and of the layers on both sides.
        let layers: Vec<_> = (0..size).map(|rank| slab.layers_of(rank, depth::FORCES + 1)).collect();
        let mut send = vec![Vec::new(); size];
        for (&member, &number) in request.groups.all_members().iter().zip(request.members.number) {
            let member = member as usize;
            let group = request.groups.group_of()[member];
            let sent = Sent { number, group, position: position[member], velocity: velocity[member] };
            let layer = grid.cell(position[member])[2];
            let seers = send.iter_mut().zip(&layers).filter(|(_, layers)| layers.contains(&layer));
            seers.for_each(|(send, _)| send.push(sent));
        }
        let mut seen = slab.ranks.all_to_all(send).concat();
        seen.sort_unstable_by_key(|member| member.number);
        let mut offsets = vec![0];
        for group in 1..=request.groups.len() as u32 {
            offsets.push(seen.partition_point(|member| member.group < group) as u32);
        }
        let mut groups = GroupMap::none(seen.len());
        groups.set(seen.len(), &offsets, &(0..seen.len() as u32).collect::<Vec<_>>());
        let own = slab.layers();
        let inside = |member: &Sent| own.contains(&grid.cell(member.position)[2]).then_some(member.number);
        Self {
            groups: Cow::Owned(groups),
            position: seen.iter().map(|member| member.position).collect(),
            velocity: seen.iter().map(|member| member.velocity).collect(),
            inside: seen.iter().map(inside).collect(),
        }
    }

    /// The values of all members at the first rank, in the order in which the coordinator named the members;
    /// none at other ranks. Of the `seen` members' values, each rank sends those of members in its slab.
    /// Collective.
    pub(in crate::flip) fn all(&self, slab: &Slab, seen: Vec<DVec3>) -> Option<Vec<DVec3>> {
        if slab.is_whole() {
            return Some(seen);
        }
        let inside = self.inside.iter().zip(seen).filter_map(|(&number, value)| Some((number?, value)));
        let (numbers, values): (Vec<u32>, Vec<DVec3>) = inside.unzip();
        let (numbers, values) = (slab.ranks.gather(numbers), slab.ranks.gather(values));
        let (numbers, values) = numbers.zip(values)?;
        let (numbers, values) = (numbers.concat(), values.concat());
        let mut all = vec![DVec3::ZERO; numbers.len()];
        numbers.into_iter().zip(values).for_each(|(number, value)| all[number as usize] = value);
        Some(all)
    }
}
