//! Merging particles in contact into meta-particles (`docs/theory/coupling.md`, "Merging").
//!
//! A meta-particle is a *group*: the binary tree of its merges, each merge a *bond*. A cluster is a node of
//! the tree and is known by its smallest member. The clusters of a group are stored in one array with a place
//! for each member. Merging overwrites the first of two places with the merged cluster. Splitting walks the
//! bonds in reverse and writes both places. No pointers and no recursion are needed.

use amalgam_particles::{DVec3, NO_GROUP, random};
use rayon::prelude::*;

use crate::contacts::Candidates;
use crate::pairwise::PairResponse;

/// Largest number of particles of a group, drawn for each group uniformly from `min..=max`. The draw is the
/// same in every stage of a step, and different in the next step, so that no pair is ignored persistently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimit {
    /// Smallest limit, at most `max`.
    pub min: u32,
    /// Largest limit; `u32::MAX` for both means no limit.
    pub max: u32,
    /// True if a particle that the limit would leave in no group is taken beyond the limit.
    pub keep_lone_contacts: bool,
    /// Seed of the scene.
    pub seed: u64,
    /// The step that is being computed.
    pub step: u64,
}

impl GroupLimit {
    /// The limit of the group whose smallest member has the global id `smallest`. The index of a candidate
    /// would depend on which other particles are candidates, the id does not.
    #[inline]
    fn draw(&self, smallest: u64) -> u32 {
        random::uniform_u32(self.min, self.max, &[self.seed, self.step, smallest])
    }
}

/// The groups of a stage. Memory is kept between merges.
#[derive(Clone, Debug, Default)]
pub struct Forest {
    sets: Vec<Set>,
    /// An immovable member, valid at the roots of clusters that have one.
    anchor: Vec<u32>,
    /// Roots joined, the smaller first, in the order of the merges.
    unions: Vec<Union>,
    group_of: Vec<u32>,
    offsets: Vec<u32>,
    members: Vec<u32>,
    cursor: Vec<u32>,
    /// Clusters; each is stored at the place of its smallest member.
    clusters: Vec<Cluster>,
    /// Group after group, one fewer than members, each group's in the order of merging.
    bonds: Vec<Bond>,
    mass: Vec<f64>,
    velocity: Vec<DVec3>,
    impulse: Vec<DVec3>,
    refused: Vec<(u32, u32)>,
}

/// Union-find over candidates. A parent is never larger than its child: a root is its cluster's smallest
/// member.
#[derive(Clone, Copy, Debug)]
struct Set {
    parent: u32,
    /// Number of members, and [`ANCHORED`] if one of them is immovable; valid at roots.
    size: u32,
}

/// The bit of [`Set::size`] that says that a cluster holds an immovable particle.
const ANCHORED: u32 = 1 << 31;

/// A node of the tree. Its mass is infinite if it holds an immovable particle.
#[derive(Clone, Copy, Debug, Default)]
struct Cluster {
    mass: f64,
    position: DVec3,
    velocity: DVec3,
}

/// Two clusters that are joined, named by the candidates that are their roots.
#[derive(Clone, Copy, Debug)]
struct Union {
    first: u32,
    second: u32,
    /// Participants of the particles in contact.
    participants: [u16; 2],
}

/// Record of a merge of clusters 1 and 2 for the split: the paper's virtual bond. In place of the energy it
/// holds the relative velocity and the weights m2/m12 and m1/m12, which stay finite when a mass is infinite.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bond {
    /// Place of cluster 1 among the group's members. Its smallest member is smaller than any of cluster 2.
    pub(crate) first: u32,
    /// Place of cluster 2 among the group's members.
    pub(crate) second: u32,
    /// Unit vector along n = x2 - x1 (Eq. 5 [Truong2021]).
    pub(crate) normal: DVec3,
    /// Participants of the particles whose contact merged the clusters.
    pub(crate) participants: [u16; 2],
    /// v2 - v1 [m/s].
    pub(crate) relative_velocity: DVec3,
    /// v12 [m/s], Eq. 3 [Truong2021].
    pub(crate) velocity: DVec3,
    /// m2 / m12.
    pub(crate) first_weight: f64,
    /// m1 / m12.
    pub(crate) second_weight: f64,
    /// m1 m2 / m12 [kg]; infinite if both clusters are immovable.
    pub(crate) reduced_mass: f64,
}

/// Largest relative errors of conservation over all groups.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ConservationErrors {
    /// Change of momentum, relative to sqrt(2 m E), where m is the mass and E the kinetic energy of the
    /// members. The momentum of a group with an immovable member has no meaning. Its error is the deviation
    /// from the velocity of this member, relative to the fastest member.
    pub momentum: f64,
    /// Change of energy that is not prescribed, relative to the kinetic energy of the members. In a group
    /// with an immovable member, energies are those in the frame of this member.
    pub energy: f64,
}

impl Forest {
    /// A forest without memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Merges the given pairs, `i < j` and sorted, in that order.
    ///
    /// A pair is refused if its union would exceed the limit of the group (but see
    /// [`GroupLimit::keep_lone_contacts`]). It is also refused if it would join two immovable particles with
    /// different velocities, since no velocity of the group could be right for both.
    ///
    /// # Panics
    /// If `limit.min > limit.max`, or a pair names no candidate.
    pub fn merge(&mut self, candidates: &Candidates, pairs: &[(u32, u32)], limit: &GroupLimit) {
        debug_assert!(pairs.is_sorted() && pairs.iter().all(|(i, j)| i < j), "pairs must be sorted, i < j");
        self.unite(candidates, pairs, limit);
        self.number_groups();
        self.place_bonds();

        let Self { offsets, members, clusters, bonds, .. } = self;
        for_each_group(offsets, 0, clusters, bonds, &|group, clusters, bonds| {
            let members = &members[offsets[group] as usize..offsets[group + 1] as usize];
            for (cluster, &i) in clusters.iter_mut().zip(members) {
                let i = i as usize;
                let (mass, position, velocity) =
                    (candidates.mass[i], candidates.position[i], candidates.velocity[i]);
                *cluster = Cluster { mass, position, velocity };
            }
            for bond in bonds {
                // Bonds hold candidates so far, and now get their places in the group.
                let place = |i: u32| members.partition_point(|&member| member < i);
                let (first, second) = (place(bond.first), place(bond.second));
                let participants = bond.participants;
                (*bond, clusters[first]) = merge_two(&clusters[first], &clusters[second]);
                (bond.first, bond.second, bond.participants) = (first as u32, second as u32, participants);
            }
        });
        let whole = |group: &[u32]| &self.clusters[group[0] as usize];
        self.mass.clear();
        self.mass.extend(self.offsets.windows(2).map(|group| whole(group).mass));
        self.velocity.clear();
        self.velocity.extend(self.offsets.windows(2).map(|group| whole(group).velocity));
        self.impulse.clear();
        self.impulse.resize(self.len(), DVec3::ZERO);
    }

    /// Merges nothing: each particle on which a method of contact acts becomes a group of its own.
    pub fn keep_apart(&mut self, candidates: &Candidates, response: &PairResponse) {
        let PairResponse { members, velocity, impulse, .. } = response;
        self.group_of.clear();
        self.group_of.resize(candidates.len(), NO_GROUP);
        for (group, &i) in members.iter().enumerate() {
            self.group_of[i as usize] = group as u32;
        }
        self.offsets.clear();
        self.offsets.extend(0..=members.len() as u32);
        self.members.clone_from(members);
        self.bonds.clear();
        self.refused.clear();
        self.mass.clear();
        self.mass.extend(members.iter().map(|&i| candidates.mass[i as usize]));
        self.velocity.clone_from(velocity);
        self.impulse.clone_from(impulse);
    }

    /// Merges nothing: group g, the part of a body, has the candidates `members[offsets[g]..offsets[g + 1]]`.
    pub(crate) fn set(&mut self, candidates: &Candidates, offsets: &[u32], members: &[u32]) {
        self.group_of.clear();
        self.group_of.resize(candidates.len(), NO_GROUP);
        self.offsets.clear();
        self.offsets.extend_from_slice(offsets);
        self.members.clear();
        self.members.extend_from_slice(members);
        self.bonds.clear();
        self.refused.clear();
        self.mass.clear();
        self.velocity.clear();
        for (group, ends) in (0..).zip(offsets.windows(2)) {
            let members = &members[ends[0] as usize..ends[1] as usize];
            members.iter().for_each(|&i| self.group_of[i as usize] = group);
            let mass: f64 = members.iter().map(|&i| candidates.mass[i as usize]).sum();
            let velocity = match *members {
                [i] => candidates.velocity[i as usize],
                _ => {
                    let momentum = |&i: &u32| candidates.velocity[i as usize] * candidates.mass[i as usize];
                    members.iter().map(momentum).sum::<DVec3>() / mass
                }
            };
            self.mass.push(mass);
            self.velocity.push(velocity);
        }
        self.impulse.clear();
        self.impulse.resize(self.len(), DVec3::ZERO);
    }

    /// Number of groups.
    pub fn len(&self) -> usize {
        self.mass.len()
    }

    /// True if nothing was merged.
    pub fn is_empty(&self) -> bool {
        self.mass.is_empty()
    }

    /// Start of each group's members in [`Self::all_members`], and the end of the last group. Groups are
    /// ordered by their smallest member.
    pub fn offsets(&self) -> &[u32] {
        &self.offsets
    }

    /// Candidate indices of the members of all groups, group after group, ascending within each.
    pub fn all_members(&self) -> &[u32] {
        &self.members
    }

    /// The members of one group, at least two if they were merged.
    pub fn members(&self, group: usize) -> &[u32] {
        &self.members[self.offsets[group] as usize..self.offsets[group + 1] as usize]
    }

    /// Mass of each group [kg], infinite with an immovable member.
    pub fn mass(&self) -> &[f64] {
        &self.mass
    }

    /// Merged velocity v12 of each group [m/s]; exactly the immovable member's if there is one.
    pub fn velocity(&self) -> &[DVec3] {
        &self.velocity
    }

    /// External impulse on each group in the step [kg m/s]: none for merged ones.
    pub fn impulse(&self) -> &[DVec3] {
        &self.impulse
    }

    /// The group of a candidate, if it is in one.
    #[inline]
    pub fn group_of(&self, candidate: u32) -> Option<u32> {
        let group = self.group_of[candidate as usize];
        (group != NO_GROUP).then_some(group)
    }

    /// True if two candidates move as one.
    #[inline]
    pub fn same_group(&self, i: u32, j: u32) -> bool {
        let group = self.group_of[i as usize];
        group != NO_GROUP && group == self.group_of[j as usize]
    }

    /// Pairs that were refused and are not in one group through other pairs: contacts that this stage
    /// ignores.
    pub fn refused(&self) -> &[(u32, u32)] {
        &self.refused
    }

    /// Each group's bonds, one fewer than it has members, in the order of merging.
    pub(crate) fn bonds(&self) -> &[Bond] {
        &self.bonds
    }

    /// The bonds of one group.
    pub(crate) fn bonds_of(&self, group: usize) -> &[Bond] {
        &self.bonds[self.offsets[group] as usize - group..self.offsets[group + 1] as usize - group - 1]
    }

    /// Errors of conservation in merging: rounding, if all is well. The energy before must equal the energy
    /// of the groups and their bonds (Eq. 4 [Truong2021]).
    pub fn merge_errors(&self, candidates: &Candidates) -> ConservationErrors {
        let bonds =
            |group| self.bonds_of(group).iter().map(|b| b.energy(b.relative_velocity.length_squared())).sum();
        self.largest_errors(candidates, &self.velocity, bonds, |_, i| candidates.velocity[i as usize])
    }

    /// Compares the members with their groups. `member_velocity` gives the velocity of a member by its place
    /// among all members and its candidate index. A group moves at `group_velocity`, and its bonds hold
    /// `bond_energy`.
    pub(crate) fn largest_errors(
        &self,
        candidates: &Candidates,
        group_velocity: &[DVec3],
        bond_energy: impl Fn(usize) -> f64 + Sync,
        member_velocity: impl Fn(usize, u32) -> DVec3 + Sync,
    ) -> ConservationErrors {
        let errors = |group: usize| {
            let (mass, velocity) = (self.mass[group], group_velocity[group]);
            let frame = if mass.is_infinite() { velocity } else { DVec3::ZERO };
            let (mut momentum, mut sum_of_masses, mut deviation) = (DVec3::ZERO, 0.0, 0.0f64);
            let (mut energy, mut energy_scale, mut fastest) = (0.0, 0.0, velocity.length_squared());
            for (k, &i) in self.members(group).iter().enumerate() {
                let (m, v) =
                    (candidates.mass[i as usize], member_velocity(self.offsets[group] as usize + k, i));
                fastest = fastest.max(v.length_squared());
                if m.is_infinite() {
                    deviation = deviation.max((v - velocity).length());
                } else {
                    momentum += m * v;
                    sum_of_masses += m;
                    energy += 0.5 * m * (v - frame).length_squared();
                    energy_scale += 0.5 * m * v.length_squared();
                }
            }
            let mut expected = bond_energy(group);
            let momentum_scale;
            if mass.is_finite() {
                expected += 0.5 * mass * velocity.length_squared();
                deviation = (momentum - mass * velocity).length();
                momentum_scale = (2.0 * sum_of_masses * energy_scale).sqrt().max(mass * velocity.length());
            } else {
                momentum_scale = fastest.sqrt();
            }
            let relative = |error: f64, scale: f64| if error == 0.0 { 0.0 } else { error / scale };
            (
                relative(deviation, momentum_scale),
                relative((energy - expected).abs(), energy_scale.max(expected)),
            )
        };
        // NaN is the worst error of all, so that it must not get lost in a maximum.
        let worst = |x: f64| if x.is_nan() { f64::INFINITY } else { x };
        let groups = (0..self.len()).into_par_iter().with_min_len(4096).map(errors);
        let [momentum, energy] = groups
            .map(|(momentum, energy)| [worst(momentum), worst(energy)])
            .reduce(|| [0.0; 2], |a, b| [a[0].max(b[0]), a[1].max(b[1])]);
        ConservationErrors { momentum, energy }
    }

    /// Decides which clusters are joined, with integers only. The result depends on the order of the pairs,
    /// so that this part is serial.
    fn unite(&mut self, candidates: &Candidates, pairs: &[(u32, u32)], limit: &GroupLimit) {
        assert!(candidates.len() < ANCHORED as usize, "more than 2^31 candidates");
        self.sets.clear();
        self.sets.par_extend(candidates.mass.par_iter().enumerate().with_min_len(1 << 16).map(
            |(i, mass)| Set { parent: i as u32, size: if mass.is_infinite() { 1 | ANCHORED } else { 1 } },
        ));
        self.anchor.resize(candidates.len(), 0);
        self.unions.clear();
        self.refused.clear();
        // Sizes up to the smallest limit need no draw.
        let fits = |size, root| size <= limit.min || size <= limit.draw(candidates.global_id(root));
        for &(i, j) in pairs {
            if !self.join(candidates, (i, j), fits) {
                self.refused.push((i, j));
            }
        }
        if !limit.keep_lone_contacts {
            return;
        }
        // A particle in no group has no contact in this step, and the force that presses it would set it
        // free.
        let mut refused = std::mem::take(&mut self.refused);
        refused.retain(|&(i, j)| {
            let alone = [i, j].iter().any(|&i| {
                let set = self.sets[i as usize];
                set.parent == i && set.size & !ANCHORED == 1
            });
            !(alone && self.join(candidates, (i, j), |_, _| true))
        });
        self.refused = refused;
    }

    /// Joins the clusters of a pair if `fits` allows their common size and root, and if no two immovable
    /// members have different velocities. Returns true if the pair is in one cluster.
    fn join(&mut self, candidates: &Candidates, (i, j): (u32, u32), fits: impl Fn(u32, u32) -> bool) -> bool {
        let (a, b) = (find(&mut self.sets, i), find(&mut self.sets, j));
        if a == b {
            return true;
        }
        let (a, b) = (a.min(b), a.max(b));
        let (size_a, size_b) = (self.sets[a as usize].size, self.sets[b as usize].size);
        let size = (size_a & !ANCHORED) + (size_b & !ANCHORED);
        if !fits(size, a) || (size_a & size_b & ANCHORED != 0 && self.tears(candidates, a, b)) {
            return false;
        }
        if (size_a | size_b) & ANCHORED != 0 {
            self.anchor[a as usize] = self.anchor_of(if size_a & ANCHORED != 0 { a } else { b });
        }
        self.sets[a as usize].size = size | ((size_a | size_b) & ANCHORED);
        self.sets[b as usize].parent = a;
        let participants = [i, j].map(|k| candidates.participant[k as usize]);
        self.unions.push(Union { first: a, second: b, participants });
        true
    }

    /// True if the immovable members of two clusters move at different velocities.
    fn tears(&self, candidates: &Candidates, a: u32, b: u32) -> bool {
        let velocity = |root| candidates.velocity[self.anchor_of(root) as usize];
        velocity(a) != velocity(b)
    }

    /// An immovable member of a cluster that has one.
    fn anchor_of(&self, root: u32) -> u32 {
        if self.sets[root as usize].size == 1 | ANCHORED { root } else { self.anchor[root as usize] }
    }

    /// Numbers the groups by their smallest member and lists the members.
    fn number_groups(&mut self) {
        let Self { sets, group_of, offsets, members, cursor, refused, .. } = self;
        group_of.clear();
        group_of.resize(sets.len(), NO_GROUP);
        offsets.clear();
        cursor.clear();
        members.clear();
        members.resize(self.unions.len(), 0);
        let mut end = 0;
        for i in 0..sets.len() as u32 {
            // A root comes before its other members.
            let Set { parent, size } = sets[i as usize];
            let size = size & !ANCHORED;
            if parent == i && size == 1 {
                continue;
            }
            if parent == i {
                group_of[i as usize] = cursor.len() as u32;
                cursor.push(end);
                offsets.push(end);
                end += size;
                members.resize(self.unions.len() + cursor.len(), 0);
            }
            let group = group_of[find(sets, i) as usize];
            group_of[i as usize] = group;
            let place = &mut cursor[group as usize];
            members[*place as usize] = i;
            *place += 1;
        }
        offsets.push(end);
        refused.retain(|&(i, j)| {
            let group = group_of[i as usize];
            group == NO_GROUP || group != group_of[j as usize]
        });
    }

    /// Sorts the unions by group, keeping their order within each.
    fn place_bonds(&mut self) {
        let Self { unions, group_of, offsets, cursor, clusters, bonds, members, .. } = self;
        cursor.clear();
        cursor.extend(offsets.iter().enumerate().map(|(group, &offset)| offset - group as u32));
        bonds.resize(unions.len(), Bond::default());
        clusters.resize(members.len(), Cluster::default());
        for &Union { first, second, participants } in unions.iter() {
            let place = &mut cursor[group_of[first as usize] as usize];
            let bond = &mut bonds[*place as usize];
            (bond.first, bond.second, bond.participants) = (first, second, participants);
            *place += 1;
        }
    }
}

impl Bond {
    /// Energy of the bond [J] for a square of the relative velocity [m^2/s^2], Eq. 4 [Truong2021]. Two
    /// immovable clusters move at the same velocity and hold none.
    #[inline]
    pub(crate) fn energy(&self, square: f64) -> f64 {
        if self.reduced_mass.is_finite() { 0.5 * self.reduced_mass * square } else { 0.0 }
    }
}

/// The root of a candidate's cluster, halving the path to it.
#[inline]
fn find(sets: &mut [Set], mut i: u32) -> u32 {
    loop {
        let above = sets[i as usize].parent;
        if above == i {
            return i;
        }
        let next = sets[above as usize].parent;
        sets[i as usize].parent = next;
        i = next;
    }
}

/// Eq. 1-5 [Truong2021], in the form that has a limit for infinite masses.
fn merge_two(first: &Cluster, second: &Cluster) -> (Bond, Cluster) {
    let (m1, m2) = (first.mass, second.mass);
    let mass = m1 + m2;
    let (first_weight, second_weight, reduced_mass) = match (m1.is_infinite(), m2.is_infinite()) {
        (false, false) => (m2 / mass, m1 / mass, m1.min(m2) * (m1.max(m2) / mass)),
        (true, false) => (0.0, 1.0, m2),
        (false, true) => (1.0, 0.0, m1),
        (true, true) => (0.5, 0.5, f64::INFINITY),
    };
    let weights = (first_weight, second_weight);
    let velocity = mean(first.velocity, second.velocity, weights);
    let relative_velocity = second.velocity - first.velocity;
    let normal = unit(second.position - first.position)
        // If the centres coincide, the direction that takes them apart is where they came from. Without
        // relative motion any fixed direction will do.
        .or_else(|| unit(-relative_velocity))
        .unwrap_or(DVec3::X);
    let bond = Bond {
        first: 0,
        second: 0,
        participants: [0; 2],
        normal,
        relative_velocity,
        velocity,
        first_weight,
        second_weight,
        reduced_mass,
    };
    (bond, Cluster { mass, position: mean(first.position, second.position, weights), velocity })
}

/// The weighted mean w2 a + w1 b, computed from the heavier side. It is exact if the other side weighs
/// nothing, and swapping the two changes no bit.
#[inline]
fn mean(a: DVec3, b: DVec3, (w1, w2): (f64, f64)) -> DVec3 {
    if w1 < w2 {
        a + (b - a) * w1
    } else if w2 < w1 {
        b + (a - b) * w2
    } else {
        a * 0.5 + b * 0.5
    }
}

/// The direction of a vector of any length except zero.
fn unit(v: DVec3) -> Option<DVec3> {
    let largest = v.abs().max_element();
    (largest > 0.0).then(|| (v / largest).normalize())
}

/// Calls `visit` for every group, in parallel, with its number, its part of `per_member` and its part of
/// `per_bond` (which has one element fewer than members).
pub(crate) fn for_each_group<M: Send, B: Send>(
    offsets: &[u32],
    first: usize,
    per_member: &mut [M],
    per_bond: &mut [B],
    visit: &(impl Fn(usize, &mut [M], &mut [B]) + Sync),
) {
    /// Groups in a task. They take some hundred microseconds; for less work it does not pay to wake another
    /// thread.
    const TASK: usize = 8192;
    let groups = offsets.len() - 1;
    if groups <= TASK {
        let (mut members, mut bonds) = (per_member, per_bond);
        for (group, range) in offsets.windows(2).enumerate() {
            let count = (range[1] - range[0]) as usize;
            let (own_members, other_members) = members.split_at_mut(count);
            let (own_bonds, other_bonds) = bonds.split_at_mut(count - 1);
            visit(first + group, own_members, own_bonds);
            (members, bonds) = (other_members, other_bonds);
        }
        return;
    }
    let half = groups / 2;
    let members = (offsets[half] - offsets[0]) as usize;
    let (low_members, high_members) = per_member.split_at_mut(members);
    let (low_bonds, high_bonds) = per_bond.split_at_mut(members - half);
    rayon::join(
        || for_each_group(&offsets[..=half], first, low_members, low_bonds, visit),
        || for_each_group(&offsets[half..], first + half, high_members, high_bonds, visit),
    );
}
