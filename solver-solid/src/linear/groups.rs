//! The groups of a stage, and sums over their members, which may be on several ranks.
//!
//! The members of a group are one unknown: every member has the unknown's value, and the **leader**, the
//! first member, has the sum of the members' rows. A group is **split** if its members are on several ranks.
//! All ranks know the owner of each member of a split group. They bring the members' values together and add
//! them in the order of members, so a sum has the bits of one process.

use std::collections::HashMap;
use std::ops::{AddAssign, Range};
use std::sync::Arc;

use amalgam_particles::lanes::LANES;
use amalgam_particles::{DVec3, GroupMap, NO_GROUP};
use amalgam_solver_kit::Members;
use bytemuck::Pod;
use glam::Vec3;

use super::partition::Partition;
use super::vectors::{Columns, Slice};

/// No row: the leader is on another rank, or there is none.
const NONE: u32 = u32::MAX;

/// The groups of a stage, as a rank sees them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    partition: Arc<Partition>,
    /// The members that this rank has.
    map: GroupMap,
    /// The row of each group's leader.
    leader: Vec<u32>,
    /// Groups with all their members on this rank.
    whole: Vec<u32>,
    /// Groups among [`Self::whole`] with more than one member.
    shared: Vec<u32>,
    split: Vec<Split>,
    /// The owner of each member of all split groups, group after group.
    owner: Vec<u32>,
    /// Members of split groups that this rank has: the place of each among all of these, and its row.
    own: Vec<(u32, u32)>,
    /// Groups of ghosts, by place.
    ghosts: HashMap<u32, u32>,
}

/// A split group.
#[derive(Clone, Debug)]
struct Split {
    group: u32,
    /// Its members among those of all split groups.
    members: Range<usize>,
    /// The part of them that this rank has, in [`Groups::own`].
    own: Range<usize>,
}

/// A vector of one value per row.
pub(crate) trait RowValues {
    type Value: Pod + Default + AddAssign;

    fn get(&self, row: usize) -> Self::Value;

    fn set(&mut self, row: usize, value: Self::Value);
}

impl RowValues for [DVec3] {
    type Value = DVec3;

    fn get(&self, row: usize) -> DVec3 {
        self[row]
    }

    fn set(&mut self, row: usize, value: DVec3) {
        self[row] = value;
    }
}

impl RowValues for [Slice] {
    type Value = Vec3;

    fn get(&self, row: usize) -> Vec3 {
        let [x, y, z] = &self[row / LANES];
        let lane = row % LANES;
        Vec3::new(x[lane], y[lane], z[lane])
    }

    fn set(&mut self, row: usize, value: Vec3) {
        for (axis, value) in self[row / LANES].iter_mut().zip(value.to_array()) {
            axis[row % LANES] = value;
        }
    }
}

/// Columns of all places, and the place of the first row.
impl RowValues for (&mut Columns, usize) {
    type Value = Vec3;

    fn get(&self, row: usize) -> Vec3 {
        self.0.get(self.1 + row).into()
    }

    fn set(&mut self, row: usize, value: Vec3) {
        self.0.set(self.1 + row, value.to_array());
    }
}

impl Groups {
    /// Groups on the only rank.
    #[cfg(test)]
    pub(crate) fn alone(map: &GroupMap) -> Self {
        let partition = Arc::new(Partition::alone(map.group_of().len()));
        let mut this = Self { partition, map: map.clone(), ..Self::default() };
        this.find_whole(|group| map.members(group).len());
        this
    }

    /// Takes the groups of a stage. Collective.
    pub(crate) fn set(&mut self, partition: &Arc<Partition>, map: &GroupMap, members: &Members<'_>) {
        self.partition = partition.clone();
        self.map.clone_from(map);
        if partition.is_alone() {
            self.find_whole(|group| map.members(group).len());
            return;
        }
        self.find_whole(|group| (members.offsets[group + 1] - members.offsets[group]) as usize);
        self.find_split(members);
        let of = map.group_of();
        let ghosts = partition.ask(|row| of[row]).filter(|&(_, of)| of != NO_GROUP);
        self.ghosts = ghosts.map(|(place, of)| (place as u32, of)).collect();
    }

    /// Finds groups with all their members here; `size` is the number of members on all ranks.
    fn find_whole(&mut self, size: impl Fn(usize) -> usize) {
        let Self { map, whole, shared, leader, split, own, owner, ghosts, .. } = self;
        for list in [&mut *whole, shared, leader, owner] {
            list.clear();
        }
        split.clear();
        own.clear();
        ghosts.clear();
        for group in 0..map.len() {
            let members = map.members(group);
            let is_whole = !members.is_empty() && members.len() == size(group);
            leader.push(if is_whole { members[0] } else { NONE });
            if is_whole {
                whole.push(group as u32);
            }
            if is_whole && members.len() > 1 {
                shared.push(group as u32);
            }
        }
    }

    /// Finds the members of split groups, and who has them.
    fn find_split(&mut self, members: &Members<'_>) {
        let Self { partition, map, leader, split, own, owner, .. } = self;
        let ranks = partition.ranks();
        let parts = (0..map.len()).filter(|&group| leader[group] == NONE);
        let parts = parts.flat_map(|group| map.offsets()[group]..map.offsets()[group + 1]);
        let parts: Vec<u32> = parts.collect();
        let numbers: Vec<u32> = parts.iter().map(|&part| members.number[part as usize]).collect();
        let mut all: Vec<[u32; 2]> = Vec::new();
        for (rank, numbers) in ranks.all_to_all(vec![numbers; ranks.size()]).into_iter().enumerate() {
            all.extend(numbers.into_iter().map(|number| [number, rank as u32]));
        }
        all.sort_unstable();
        owner.extend(all.iter().map(|&[_, rank]| rank));
        let mut parts = parts.iter();
        let rank = ranks.rank() as u32;
        let mut start = 0;
        while start < all.len() {
            let number = all[start][0];
            let group = members.offsets.partition_point(|&offset| offset <= number) - 1;
            let count = (members.offsets[group + 1] - members.offsets[group]) as usize;
            let first = own.len();
            for place in (start..start + count).filter(|&place| owner[place] == rank) {
                if let Some(&part) = parts.next() {
                    own.push((place as u32, map.all_members()[part as usize]));
                }
            }
            if let Some(&(place, row)) = own.get(first)
                && place as usize == start
            {
                leader[group] = row;
            }
            split.push(Split { group: group as u32, members: start..start + count, own: first..own.len() });
            start += count;
        }
    }

    /// The members that this rank has.
    pub(crate) fn map(&self) -> &GroupMap {
        &self.map
    }

    /// True if this rank leads the group at this row.
    pub(crate) fn is_led_by(&self, group: usize, row: usize) -> bool {
        self.leader[group] as usize == row
    }

    /// The groups whose leaders this rank has, with the leaders' rows.
    pub(crate) fn led(&self) -> impl Iterator<Item = (usize, usize)> {
        let led = self.leader.iter().enumerate().filter(|&(_, &leader)| leader != NONE);
        led.map(|(group, &leader)| (group, leader as usize))
    }

    /// True if the particle at a place is a member of the group.
    pub(crate) fn is_member(&self, group: usize, place: u32) -> bool {
        let of = match self.partition.row(place) {
            Some(row) => self.map.group_of()[row],
            None => self.ghosts.get(&place).copied().unwrap_or(NO_GROUP),
        };
        of == group as u32
    }

    /// The values of all members of split groups, on all ranks. Collective if there are split groups.
    fn brought<T: Pod>(&self, value: impl Fn(usize) -> T) -> Vec<T> {
        if self.split.is_empty() {
            return Vec::new();
        }
        let own = self.own.iter().map(|&(place, row)| (place as usize, value(row as usize)));
        self.partition.ranks().shared(self.owner.len(), own)
    }

    /// Sums over the members of each group from the member `from` on, in order, wherever the group has
    /// members. Collective.
    pub(crate) fn sums<T>(&self, from: usize, value: impl Fn(usize) -> T) -> Vec<T>
    where
        T: Pod + Default + AddAssign,
    {
        let mut sums = vec![T::default(); self.map.len()];
        for &group in &self.whole {
            let members = &self.map.members(group as usize)[from..];
            members.iter().for_each(|&row| sums[group as usize] += value(row as usize));
        }
        let values = self.brought(value);
        for Split { group, members, .. } in &self.split {
            values[members.clone()][from..].iter().for_each(|&value| sums[*group as usize] += value);
        }
        sums
    }

    /// Applies S^T: the leader of each group gets the sum of the members' values, the other members get
    /// zero. Collective.
    pub(crate) fn sum_to_leaders<R: RowValues + ?Sized>(&self, values: &mut R) {
        let zero = R::Value::default;
        for &group in &self.shared {
            let mut sum = zero();
            for &row in &self.map.members(group as usize)[1..] {
                sum += values.get(row as usize);
                values.set(row as usize, zero());
            }
            add(values, self.leader[group as usize], sum);
        }
        let all = self.brought(|row| values.get(row));
        for Split { group, members, own } in &self.split {
            let leader = self.leader[*group as usize];
            for &(_, row) in self.own[own.clone()].iter().filter(|&&(_, row)| row != leader) {
                values.set(row as usize, zero());
            }
            if leader != NONE {
                let mut sum = zero();
                all[members.clone()][1..].iter().for_each(|&value| sum += value);
                add(values, leader, sum);
            }
        }
    }

    /// Applies S: every member of a group gets the leader's value. Collective.
    pub(crate) fn copy_from_leaders<R: RowValues + ?Sized>(&self, values: &mut R) {
        for &group in &self.shared {
            let value = values.get(self.leader[group as usize] as usize);
            let members = &self.map.members(group as usize)[1..];
            members.iter().for_each(|&row| values.set(row as usize, value));
        }
        if self.split.is_empty() {
            return;
        }
        let leaders = self.split.iter().map(|split| self.leader[split.group as usize]).enumerate();
        let own = leaders.filter(|&(_, leader)| leader != NONE).map(|(k, row)| (k, values.get(row as usize)));
        let all = self.partition.ranks().shared(self.split.len(), own.collect::<Vec<_>>());
        for (split, value) in self.split.iter().zip(all) {
            self.own[split.own.clone()].iter().for_each(|&(_, row)| values.set(row as usize, value));
        }
    }

    /// Builds a value of each group by `add`, called with each member's row in the order of members; known
    /// wherever the group has members. The value of a split group goes from rank to rank. Collective.
    pub(crate) fn built<T: Pod + Default>(&self, add: impl Fn(usize, usize, &mut T)) -> Vec<T> {
        let mut built = vec![T::default(); self.map.len()];
        for &group in &self.whole {
            let value = &mut built[group as usize];
            let members = self.map.members(group as usize);
            members.iter().for_each(|&row| add(group as usize, row as usize, value));
        }
        let (ranks, owner) = (self.partition.ranks(), &self.owner);
        // Consecutive members of one rank are a turn.
        let turns = |split: &Split| {
            let mut turns: Vec<Range<usize>> = Vec::new();
            for member in split.members.clone() {
                match turns.last_mut() {
                    Some(turn) if owner[turn.start] == owner[member] => turn.end = member + 1,
                    _ => turns.push(member..member + 1),
                }
            }
            turns
        };
        let turns: Vec<Vec<Range<usize>>> = self.split.iter().map(turns).collect();
        for turn in 0..turns.iter().map(Vec::len).max().unwrap_or(0) {
            let under_way =
                self.split.iter().zip(&turns).filter_map(|(split, turns)| Some((split, turns.get(turn)?)));
            let under_way: Vec<(&Split, &Range<usize>)> = under_way.collect();
            let mut own = Vec::new();
            for (k, (split, members)) in under_way.iter().enumerate() {
                if owner[members.start] as usize == ranks.rank() {
                    let value = &mut built[split.group as usize];
                    let members = self.own[split.own.clone()]
                        .iter()
                        .filter(|(at, _)| members.contains(&(*at as usize)));
                    members.for_each(|&(_, row)| add(split.group as usize, row as usize, value));
                    own.push((k, *value));
                }
            }
            for ((split, _), value) in under_way.iter().zip(ranks.shared(under_way.len(), own)) {
                built[split.group as usize] = value;
            }
        }
        built
    }
}

fn add<R: RowValues + ?Sized>(values: &mut R, row: u32, sum: R::Value) {
    let mut total = values.get(row as usize);
    total += sum;
    values.set(row as usize, total);
}
