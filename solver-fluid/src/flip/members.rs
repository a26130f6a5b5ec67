//! What members of groups bring to the grid beyond what they would bring as free particles.

use amalgam_particles::{DVec3, GroupMap, Particles};
use amalgam_solver_kit::Stage;
use rayon::prelude::*;

use super::grid::{Grid, Places};

/// Inertia of a group that holds an immovable particle, relative to its members' own mass: heavy enough that the grid
/// takes over the group's velocity.
const IMMOVABLE: f64 = 1e6;

/// Members of one task.
pub(super) const MEMBERS: usize = 256;

/// What members add to a face.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extra {
    /// [kg]
    pub(super) mass: f64,
    /// [kg m/s]
    pub(super) momentum: f64,
    /// Impulse besides gravity [kg m/s].
    pub(super) impulse: f64,
}

/// Groups in a sub-step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moving<'a> {
    pub(super) groups: &'a GroupMap,
    /// Velocity of each group [m/s].
    pub(super) velocity: &'a [DVec3],
    /// Impulse that others give each group in the sub-step [kg m/s].
    pub(super) impulse: &'a [DVec3],
    /// Inertia of each group [kg].
    pub(super) inertia: &'a [f64],
    /// Mass of each group's members [kg].
    pub(super) own: &'a [f64],
    /// Mass of each member [kg], group after group.
    pub(super) mass: &'a [f64],
}

/// A member of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) place: Places<1>,
    pub(super) group: u32,
    /// Its own velocity [m/s].
    velocity: DVec3,
}

/// What members add to the faces of each axis.
#[derive(Clone, Debug, Default)]
pub(super) struct Extras {
    /// In the order of [`GroupMap::all_members`]: side by side, since they are far apart among the particles.
    pub(super) members: Vec<Member>,
    axes: [Touched; 3],
}

/// The faces of an axis that members touch.
#[derive(Clone, Debug, Default)]
struct Touched {
    /// Of each face its place in `extra`, from 1 on; 0 if no member touches it.
    place: Vec<u32>,
    face: Vec<usize>,
    extra: Vec<Extra>,
    /// What was touched the last time.
    before: Vec<usize>,
    /// The lowest of eight faces with members between them, and for each what these add: mass, momentum, impulse and
    /// weight.
    corner: Vec<usize>,
    sums: Vec<[[f64; 4]; 8]>,
}

/// Mass of each member, and of each group's members [kg].
pub(super) fn masses(groups: &GroupMap, particles: &Particles) -> (Vec<f64>, Vec<f64>) {
    let members = groups.all_members().par_iter().with_min_len(MEMBERS);
    let mass: Vec<f64> = members.map(|&member| particles.mass[member as usize]).collect();
    let mut rest = &mass[..];
    let own = (0..groups.len()).map(|group| {
        let (of_group, others) = rest.split_at(groups.members(group).len());
        rest = others;
        of_group.iter().sum()
    });
    (own.collect(), mass)
}

/// The inertia that each group has here [kg].
pub(super) fn inertias(stage: &Stage<'_>, own: &[f64]) -> Vec<f64> {
    let inertia = |(&inertia, own): (&f64, f64)| if inertia.is_finite() { inertia } else { IMMOVABLE * own };
    stage.inertia.iter().zip(own.iter().copied()).map(inertia).collect()
}

impl Extras {
    /// What members add to a face, if one touches it.
    #[inline(always)]
    pub(super) fn at(&self, axis: usize, face: usize) -> Option<Extra> {
        let Touched { place, extra, .. } = &self.axes[axis];
        let place = *place.get(face)? as usize;
        extra.get(place.wrapping_sub(1)).copied()
    }

    /// Faces that members touch, and what they add.
    pub(super) fn touched(&self, axis: usize) -> impl Iterator<Item = (usize, Extra)> {
        let Touched { face, extra, .. } = &self.axes[axis];
        face.iter().copied().zip(extra.iter().copied())
    }

    /// Faces that members touched before the last [`Self::renew`], and touch no longer.
    pub(super) fn left(&self, axis: usize) -> impl Iterator<Item = usize> {
        let Touched { place, before, .. } = &self.axes[axis];
        before.iter().copied().filter(|&face| place[face] == 0)
    }

    /// Sums up what members add: their share of their group's inertia and its velocity in place of their own mass and
    /// velocity. The grid's gravity acts on a group's whole inertia, its true weight is that of its members alone: the
    /// impulse makes up for the difference; `fall` is the velocity that gravity gives in the sub-step [m/s].
    ///
    /// In f64, since a group can weigh a million times what its members do. In the order of members.
    pub(super) fn renew(
        &mut self,
        grid: &Grid,
        particles: (&[DVec3], &Particles),
        moving: &Moving<'_>,
        fall: DVec3,
    ) {
        let (position, particles) = particles;
        let members = moving.groups.all_members();
        let group_of = moving.groups.group_of();
        let found = |&member: &u32| {
            let member = member as usize;
            let (place, velocity) = (grid.place(position[member]), particles.velocity[member]);
            Member { place, group: group_of[member], velocity }
        };
        members.par_iter().with_min_len(MEMBERS).map(found).collect_into_vec(&mut self.members);
        let members = &self.members;
        self.axes.par_iter_mut().enumerate().for_each(|(axis, touched)| {
            let Touched { place: place_of, face: faces, extra, before, corner, sums } = touched;
            std::mem::swap(faces, before);
            faces.clear();
            extra.clear();
            before.iter().for_each(|&face| place_of[face] = 0);
            if moving.groups.is_empty() {
                return;
            }
            place_of.resize(grid.len(), 0);
            // Members between the same eight faces are summed up first: all these at once.
            corner.clear();
            sums.clear();
            for (member, &own) in members.iter().zip(moving.mass) {
                let group = member.group as usize;
                let part = own / moving.own[group];
                let inertia = part * moving.inertia[group];
                let momentum = inertia * moving.velocity[group][axis] - own * member.velocity[axis];
                let impulse = moving.impulse[group][axis] * part - fall[axis] * (inertia - own);
                let low = member.place.low[axis][0] as usize;
                if place_of[low] == 0 {
                    corner.push(low);
                    sums.push([[0.0; 4]; 8]);
                    place_of[low] = corner.len() as u32;
                }
                let sums = &mut sums[place_of[low] as usize - 1];
                for (sum, weight) in sums.iter_mut().zip(member.place.weights(axis)) {
                    for (sum, value) in sum.iter_mut().zip([inertia - own, momentum, impulse, 1.0]) {
                        *sum += weight * value;
                    }
                }
            }
            corner.iter().for_each(|&low| place_of[low] = 0);
            for (low, sums) in corner.iter().zip(sums) {
                for (shift, &mut [mass, momentum, impulse, weight]) in grid.corners().into_iter().zip(sums) {
                    let face = low + shift;
                    if weight == 0.0 {
                        continue;
                    }
                    if place_of[face] == 0 {
                        faces.push(face);
                        extra.push(Extra::default());
                        place_of[face] = extra.len() as u32;
                    }
                    let extra = &mut extra[place_of[face] as usize - 1];
                    extra.mass += mass;
                    extra.momentum += momentum;
                    extra.impulse += impulse;
                }
            }
        });
    }
}
