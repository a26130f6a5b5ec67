//! The contributions of group members to the grid, beyond the contributions that they make as free particles.

use amalgam_particles::DVec3;
use amalgam_particles::lanes::{LANES, Lanes, Task, Width};
use rayon::prelude::*;

use super::grid::{Among, Grid, lay_out};
use crate::groups::GroupMotion;

/// Members of one task.
pub(super) const MEMBERS: usize = 256;

/// Number of faces in a block. Only blocks with a touched face are searched for touched faces.
const BLOCK: usize = 64;

/// The contribution of members to a face.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FaceContribution {
    /// Mass [kg].
    pub(super) mass: f64,
    /// Momentum [kg m/s].
    pub(super) momentum: f64,
    /// Impulse besides gravity [kg m/s].
    pub(super) impulse: f64,
}

/// Sixteen members or fewer, copied side by side, since they are far apart in the particles' columns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MemberLanes {
    group: [u32; LANES],
    axes: [AxisContribution; 3],
}

/// The contributions of sixteen members to the faces of an axis.
#[derive(Clone, Copy, Debug, Default)]
struct AxisContribution {
    among: Among<LANES>,
    /// Mass [kg], momentum [kg m/s] and impulse besides gravity [kg m/s] of each member.
    values: [[f64; LANES]; 3],
}

/// The contributions of members to the faces of each axis.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberContributions {
    /// Members in the order of [`all_members`](amalgam_particles::GroupMap::all_members).
    pub(super) members: Vec<MemberLanes>,
    axes: [Touched; 3],
}

/// The faces of an axis that members touch.
#[derive(Clone, Debug, Default)]
struct Touched {
    /// The place of each face in `contribution`, counted from 1; 0 if no member touches the face.
    place: Vec<u32>,
    /// The touched faces in ascending order, so that their entries lie near each other.
    face: Vec<usize>,
    /// For each block of [`BLOCK`] faces, true if it holds a touched face.
    block: Vec<bool>,
    /// Mass [kg], momentum [kg m/s], impulse [kg m/s], and a zero that fills a vector.
    contribution: Vec<[f64; 4]>,
    /// Velocities after the sub-step and before it [m/s] by `place`. Entry 0 serves faces that no member
    /// touches.
    sampled: Vec<[f64; 2]>,
    /// The faces that were touched before the last [`MemberContributions::add_up`].
    before: Vec<usize>,
}

impl MemberContributions {
    /// True if a member touches a face.
    #[inline(always)]
    pub(super) fn touch(&self, axis: usize, face: usize) -> bool {
        self.axes[axis].place.get(face).is_some_and(|&place| place != 0)
    }

    /// Faces that members touch, and the contributions there.
    pub(super) fn touched(&self, axis: usize) -> impl Iterator<Item = (usize, FaceContribution)> {
        let Touched { place, face, contribution, .. } = &self.axes[axis];
        face.iter().map(|&face| {
            let [mass, momentum, impulse, _] = contribution[place[face] as usize - 1];
            (face, FaceContribution { mass, momentum, impulse })
        })
    }

    /// Faces that members touched before the last [`Self::add_up`] and do not touch now.
    pub(super) fn left(&self, axis: usize) -> impl Iterator<Item = usize> {
        let Touched { place, before, .. } = &self.axes[axis];
        before.iter().copied().filter(|&face| place[face] == 0)
    }

    /// Stores the velocities after the sub-step and before it [m/s] at the touched faces.
    pub(super) fn sample(&mut self, velocities: impl Fn(usize, usize) -> [f64; 2] + Sync) {
        self.axes
            .par_iter_mut()
            .enumerate()
            .for_each(|(axis, touched)| touched.sample(|face| velocities(axis, face)));
    }

    /// Sums up the contributions of members, in their order. A member's part of its group's inertia, and the
    /// group's velocity, replace the member's own mass and velocity. The grid's gravity acts on the whole
    /// inertia of a group, but the true weight of the group is the weight of its members. The impulse makes
    /// up for the difference. `fall` is the velocity that gravity gives in the sub-step [m/s].
    ///
    /// The sums are f64, since the inertia of a group can be a million times the mass of its members.
    pub(super) fn add_up(
        &mut self,
        (grid, width): (&Grid, Width),
        (position, velocity): (&[DVec3], &[DVec3]),
        motion: &GroupMotion<'_>,
        fall: DVec3,
    ) {
        let all = motion.groups.all_members().par_chunks(LANES);
        self.members.resize(all.len(), MemberLanes::default());
        let all = all.zip(&mut self.members).with_min_len(MEMBERS / LANES);
        all.for_each(|(members, found)| {
            width.run(LocateMembers { grid, motion, fall, position, velocity, members, found });
        });
        let members = &self.members;
        self.axes.par_iter_mut().enumerate().rev().for_each(|(axis, kept)| {
            // The vertical axis comes first, since it has the most faces on a floor. The work is not done in
            // place: the axes lie side by side, and threads would wait for each other's cache lines.
            let mut touched = std::mem::take(kept);
            touched.clear(grid);
            width.run(AddContributions {
                grid,
                members,
                axis,
                count: motion.groups.all_members().len(),
                touched: &mut touched,
            });
            touched.list();
            *kept = touched;
        });
    }
}

impl Touched {
    /// Stores the velocities at touched faces. Other faces have a weight of zero for every member.
    fn sample(&mut self, velocities: impl Fn(usize) -> [f64; 2]) {
        self.sampled.resize(self.contribution.len() + 1, [0.0; 2]);
        for &face in &self.face {
            self.sampled[self.place[face] as usize] = velocities(face);
        }
    }

    /// Forgets the contributions, and keeps the touched faces in `before`.
    fn clear(&mut self, grid: &Grid) {
        let Self { place, face, contribution, before, block, .. } = self;
        std::mem::swap(face, before);
        before.iter().for_each(|&face| place[face] = 0);
        face.clear();
        contribution.clear();
        lay_out(grid, place);
        block.clear();
        block.resize(grid.len().div_ceil(BLOCK), false);
    }

    /// The contribution of members to a face.
    #[inline(always)]
    fn contribution(&mut self, face: usize) -> &mut [f64; 4] {
        if self.place[face] == 0 {
            self.touch(face);
        }
        &mut self.contribution[self.place[face] as usize - 1]
    }

    #[cold]
    fn touch(&mut self, face: usize) {
        self.block[face / BLOCK] = true;
        self.contribution.push([0.0; 4]);
        self.place[face] = self.contribution.len() as u32;
    }

    /// Lists the faces that are touched.
    fn list(&mut self) {
        let Self { place, face, block, .. } = self;
        for (block, _) in block.iter().enumerate().filter(|(_, touched)| **touched) {
            let begin = block * BLOCK;
            let places = place[begin..].iter().take(BLOCK).enumerate();
            face.extend(places.filter(|(_, place)| **place != 0).map(|(n, _)| begin + n));
        }
    }
}

impl GroupMotion<'_> {
    /// Part of FLIP in the velocity of a group's members. A group of this fluid's particles alone takes the grid's
    /// velocity, which is PIC: it moves by the velocity that it reports, and free particles move with the grid, too. A
    /// group that holds mass of others keeps its own velocity in part, as free particles do.
    #[inline(always)]
    fn flip_ratio(&self, group: usize, flip_ratio: f64) -> f64 {
        if self.inertia[group] == self.own[group] { 0.0 } else { flip_ratio }
    }
}

/// Finds places and contributions of sixteen members or fewer. Missing members are copies of the last member.
struct LocateMembers<'a> {
    grid: &'a Grid,
    motion: &'a GroupMotion<'a>,
    fall: DVec3,
    /// Positions of all particles [m].
    position: &'a [DVec3],
    velocity: &'a [DVec3],
    members: &'a [u32],
    found: &'a mut MemberLanes,
}

impl Task for LocateMembers<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { grid, motion, fall, position, velocity, members, found } = self;
        let mut positions = [[0.0; LANES]; 3];
        for &member in members {
            let member = member as usize;
            L::prefetch(&position[member], 0);
            L::prefetch(&velocity[member], 0);
            L::prefetch(&motion.groups.group_of()[member], 0);
        }
        for l in 0..LANES {
            let n = l.min(members.len() - 1);
            let member = members[n] as usize;
            let (at, velocity, own) = (position[member], velocity[member], motion.mass);
            (positions[0][l], positions[1][l], positions[2][l]) = (at.x, at.y, at.z);
            found.group[l] = motion.groups.group_of()[member];
            let of = found.group[l] as usize;
            let part = own / motion.own[of];
            let inertia = part * motion.inertia[of];
            let momentum = (inertia * motion.velocity[of] - own * velocity).to_array();
            let impulse = (motion.impulse[of] * part - fall * (inertia - own)).to_array();
            for (axis, brought) in found.axes.iter_mut().enumerate() {
                let values = &mut brought.values;
                (values[0][l], values[1][l], values[2][l]) = (inertia - own, momentum[axis], impulse[axis]);
            }
        }
        let places = grid.places(&positions);
        for (axis, brought) in found.axes.iter_mut().enumerate() {
            brought.among = places.among(axis);
        }
    }
}

/// Adds the contributions of members to the faces of an axis, in the order of members.
struct AddContributions<'a> {
    grid: &'a Grid,
    members: &'a [MemberLanes],
    axis: usize,
    /// Number of members.
    count: usize,
    touched: &'a mut Touched,
}

impl Task for AddContributions<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { grid, members, axis, count, touched } = self;
        let corners = grid.corners();
        for (n, some) in members.iter().enumerate() {
            let AxisContribution { among, values } = &some.axes[axis];
            let weights = among.weights();
            for l in 0..LANES.min(count - n * LANES) {
                let (low, values) = (among.low[l] as usize, [values[0][l], values[1][l], values[2][l], 0.0]);
                for corner in 0..8 {
                    let weight = weights[corner][l];
                    if weight != 0.0 {
                        let contribution = touched.contribution(low + corners[corner]);
                        for (sum, value) in contribution.iter_mut().zip(values) {
                            *sum += weight * value;
                        }
                    }
                }
            }
        }
    }
}

/// Interpolates the velocities that the grid alone would give to members [m/s].
pub(super) struct SampleMembers<'a> {
    pub(super) grid: &'a Grid,
    pub(super) motion: &'a GroupMotion<'a>,
    pub(super) flip_ratio: f64,
    pub(super) contributions: &'a MemberContributions,
    pub(super) members: &'a MemberLanes,
    /// Results, one per member.
    pub(super) result: &'a mut [DVec3],
}

impl Task for SampleMembers<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { grid, motion, flip_ratio, contributions, members, result } = self;
        let mut found = [[[0.0; 3]; 2]; LANES];
        for axis in 0..3 {
            let Touched { place, sampled, .. } = &contributions.axes[axis];
            for (l, found) in found.iter_mut().enumerate() {
                let among = &members.axes[axis].among;
                [found[0][axis], found[1][axis]] = among.interpolate(grid, l, (place, sampled));
            }
        }
        for (l, result) in result.iter_mut().enumerate() {
            let [new, old] = found[l].map(DVec3::from_array);
            let group = members.group[l] as usize;
            let flip = motion.flip_ratio(group, flip_ratio);
            *result = flip * (motion.velocity[group] + (new - old)) + (1.0 - flip) * new;
        }
    }
}
