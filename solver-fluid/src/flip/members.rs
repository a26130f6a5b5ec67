//! What members of groups bring to the grid beyond what they would bring as free particles.

use amalgam_particles::lanes::{LANES, Lanes, Task, Width};
use amalgam_particles::{DVec3, GroupMap, Particles};
use amalgam_solver_kit::Stage;
use rayon::prelude::*;

use super::faces::AtFaces;
use super::grid::{Among, Grid};
use super::transfer::Deposit;

/// Inertia of a group that holds an immovable particle, relative to its members' own mass: heavy enough that the grid
/// takes over the group's velocity.
const IMMOVABLE: f64 = 1e6;

/// Members of one task.
pub(super) const MEMBERS: usize = 256;

/// Faces among which those that are touched are looked for, if any is.
const BLOCK: usize = 64;

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
    /// Whether a group carries nothing but one particle of this fluid: see [`is_lone`].
    pub(super) lone: &'a [bool],
    /// Mass of each member [kg], group after group.
    pub(super) mass: &'a [f64],
}

/// Sixteen members or fewer: side by side, since they are far apart among the particles.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sixteen {
    group: [u32; LANES],
    axes: [Brought; 3],
}

/// What sixteen members bring to the faces of an axis.
#[derive(Clone, Copy, Debug, Default)]
struct Brought {
    among: Among<LANES>,
    /// Mass [kg], momentum [kg m/s], impulse besides gravity [kg m/s], and the mass of those that carry nobody else [kg]; of
    /// those there are.
    values: [[f64; LANES]; 4],
}

/// What members add to the faces of each axis.
#[derive(Clone, Debug, Default)]
pub(super) struct Extras {
    /// In the order of [`GroupMap::all_members`].
    pub(super) members: Vec<Sixteen>,
    axes: [Touched; 3],
}

/// The faces of an axis that members touch.
#[derive(Clone, Debug, Default)]
struct Touched {
    /// Of each face its place in `extra`, from 1 on; 0 if no member touches it.
    place: Vec<u32>,
    /// Those that are touched, in order: what is read and written of them then lies side by side.
    face: Vec<usize>,
    /// Which blocks of [`BLOCK`] faces hold any of them.
    block: Vec<bool>,
    /// What members add: mass, momentum, impulse, and the mass that lone ones bring.
    extra: Vec<[f64; 4]>,
    /// Velocities after the sub-step and before it [m/s] by `place`, none of them at 0.
    flow: Vec<[f64; 2]>,
    /// Which part of a face's mass lone members bring, by `place`, and nothing; none at 0.
    share: Vec<[f64; 2]>,
    /// What was touched the last time.
    before: Vec<usize>,
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

/// Whether each group is one particle with the inertia of its own: free, but for what contacts give to it.
///
/// Such a particle moves with the grid, as every free one does, and that is what it answers. What its own velocity differs
/// by from the grid's is kept and does not move it. Contacts could not stop this part: their impulses act through the grid,
/// on all particles around, and would have to push these for what one of them carries.
pub(super) fn is_lone(stage: &Stage<'_>, own: &[f64]) -> Vec<bool> {
    let groups = stage.inertia.iter().zip(own).enumerate();
    groups.map(|(group, (inertia, own))| inertia == own && stage.groups.members(group).len() == 1).collect()
}

/// What a member takes from the grid in a sub-step [m/s].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taken {
    /// The grid's velocity where it is.
    pub(super) grid: DVec3,
    /// The velocity that it then has, its group's being that before the sub-step.
    pub(super) own: DVec3,
}

impl Extras {
    /// Whether a member touches a face.
    #[inline(always)]
    pub(super) fn touch(&self, axis: usize, face: usize) -> bool {
        self.axes[axis].place.get(face).is_some_and(|&place| place != 0)
    }

    /// Faces that members touch, and what they add.
    pub(super) fn touched(&self, axis: usize) -> impl Iterator<Item = (usize, Extra)> {
        let Touched { place, face, extra, .. } = &self.axes[axis];
        face.iter().map(|&face| {
            let [mass, momentum, impulse, _] = extra[place[face] as usize - 1];
            (face, Extra { mass, momentum, impulse })
        })
    }

    /// Faces that members touched before the last [`Self::renew`], and touch no longer.
    pub(super) fn left(&self, axis: usize) -> impl Iterator<Item = usize> {
        let Touched { place, before, .. } = &self.axes[axis];
        before.iter().copied().filter(|&face| place[face] == 0)
    }

    /// Takes the velocities after the sub-step and before it where members find them.
    pub(super) fn take(&mut self, flow: &AtFaces<'_>) {
        self.axes.par_iter_mut().enumerate().for_each(|(axis, touched)| touched.take(axis, flow));
    }

    /// The part of the mass around each member, along each axis, that lone members bring, in the order of members: how an
    /// impulse on a unit of mass of all of these at once changes its velocity, without the pressure.
    pub(super) fn shares(&mut self, grid: &Grid, deposit: &Deposit, particle_mass: f64) -> Vec<DVec3> {
        for (axis, touched) in self.axes.iter_mut().enumerate() {
            let Touched { place, face, extra, share, .. } = touched;
            share.resize(extra.len() + 1, [0.0; 2]);
            for &face in &*face {
                let place = place[face] as usize;
                let [mass, _, _, lone] = extra[place - 1];
                let total = particle_mass * f64::from(deposit.at(axis, face)[0]) + mass;
                share[place] = [if total > 0.0 { (lone / total).min(1.0) } else { 0.0 }, 0.0];
            }
        }
        let of_member = |members: &Sixteen, l: usize| {
            let along = |axis: usize| {
                let Touched { place, share, .. } = &self.axes[axis];
                members.axes[axis].among.interpolate(grid, l, (place, share))[0]
            };
            DVec3::new(along(0), along(1), along(2))
        };
        self.members.iter().flat_map(|members| (0..LANES).map(move |l| of_member(members, l))).collect()
    }

    /// Sums up what members add: their share of their group's inertia and its velocity in place of their own mass and
    /// velocity. The grid's gravity acts on a group's whole inertia, its true weight is that of its members alone: the
    /// impulse makes up for the difference; `fall` is the velocity that gravity gives in the sub-step [m/s].
    ///
    /// In f64, since a group can weigh a million times what its members do. In the order of members.
    pub(super) fn renew(
        &mut self,
        (grid, width): (&Grid, Width),
        particles: (&[DVec3], &Particles),
        moving: &Moving<'_>,
        fall: DVec3,
    ) {
        let (position, particles) = particles;
        let all = moving.groups.all_members().par_chunks(LANES).zip(moving.mass.par_chunks(LANES));
        self.members.resize(all.len(), Sixteen::default());
        let all = all.zip(&mut self.members).with_min_len(MEMBERS / LANES);
        all.for_each(|((members, mass), found)| {
            let velocity = &particles.velocity;
            width.run(Find { grid, moving, fall, position, velocity, members, mass, found });
        });
        let members = &self.members;
        self.axes.par_iter_mut().enumerate().rev().for_each(|(axis, kept)| {
            // The vertical axis first: on a floor it has most faces. Not in place: the axes stand side by side, and threads would
            // wait for each other's lines of memory.
            let mut touched = std::mem::take(kept);
            touched.clear(grid.len());
            width.run(Add { grid, members, axis, count: moving.mass.len(), touched: &mut touched });
            touched.list();
            *kept = touched;
        });
    }
}

impl Touched {
    /// Takes the velocities at faces that are touched; where no member adds, none counts.
    fn take(&mut self, axis: usize, flow: &AtFaces<'_>) {
        self.flow.resize(self.extra.len() + 1, [0.0; 2]);
        for &face in &self.face {
            self.flow[self.place[face] as usize] = flow.velocities(axis, face);
        }
    }

    /// Forgets what is touched, but for where; for columns of `len` faces.
    fn clear(&mut self, len: usize) {
        let Self { place, face, extra, before, block, .. } = self;
        std::mem::swap(face, before);
        before.iter().for_each(|&face| place[face] = 0);
        face.clear();
        extra.clear();
        place.resize(len, 0);
        block.clear();
        block.resize(len.div_ceil(BLOCK), false);
    }

    /// What members add to a face.
    #[inline(always)]
    fn extra(&mut self, face: usize) -> &mut [f64; 4] {
        if self.place[face] == 0 {
            self.touch(face);
        }
        &mut self.extra[self.place[face] as usize - 1]
    }

    #[cold]
    fn touch(&mut self, face: usize) {
        self.block[face / BLOCK] = true;
        self.extra.push([0.0; 4]);
        self.place[face] = self.extra.len() as u32;
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

/// Sixteen members or fewer, of which those that there are not stand where the last one does.
struct Find<'a> {
    grid: &'a Grid,
    moving: &'a Moving<'a>,
    fall: DVec3,
    /// Of all particles.
    position: &'a [DVec3],
    velocity: &'a [DVec3],
    members: &'a [u32],
    /// Of these.
    mass: &'a [f64],
    found: &'a mut Sixteen,
}

impl Task for Find<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { grid, moving, fall, position, velocity, members, mass, found } = self;
        let mut positions = [[0.0; LANES]; 3];
        for &member in members {
            let member = member as usize;
            L::prefetch(&position[member], 0);
            L::prefetch(&velocity[member], 0);
            L::prefetch(&moving.groups.group_of()[member], 0);
        }
        for l in 0..LANES {
            let n = l.min(members.len() - 1);
            let member = members[n] as usize;
            let (at, velocity, own) = (position[member], velocity[member], mass[n]);
            (positions[0][l], positions[1][l], positions[2][l]) = (at.x, at.y, at.z);
            found.group[l] = moving.groups.group_of()[member];
            let of = found.group[l] as usize;
            let part = own / moving.own[of];
            let inertia = part * moving.inertia[of];
            let momentum = (inertia * moving.velocity[of] - own * velocity).to_array();
            let impulse = (moving.impulse[of] * part - fall * (inertia - own)).to_array();
            for (axis, brought) in found.axes.iter_mut().enumerate() {
                let values = &mut brought.values;
                (values[0][l], values[1][l], values[2][l]) = (inertia - own, momentum[axis], impulse[axis]);
                values[3][l] = if moving.lone[of] { own } else { 0.0 };
            }
        }
        let places = grid.places(&positions);
        for (axis, brought) in found.axes.iter_mut().enumerate() {
            brought.among = places.among(axis);
        }
    }
}

/// Adds what members bring to the faces of an axis, in their order.
struct Add<'a> {
    grid: &'a Grid,
    members: &'a [Sixteen],
    axis: usize,
    /// Of members.
    count: usize,
    touched: &'a mut Touched,
}

impl Task for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { grid, members, axis, count, touched } = self;
        let corners = grid.corners();
        for (n, some) in members.iter().enumerate() {
            let Brought { among, values } = &some.axes[axis];
            let weights = among.weights();
            for l in 0..LANES.min(count - n * LANES) {
                let (low, values) = (among.low[l] as usize, values.map(|value| value[l]));
                for corner in 0..8 {
                    let weight = weights[corner][l];
                    if weight != 0.0 {
                        let extra = touched.extra(low + corners[corner]);
                        for (sum, value) in extra.iter_mut().zip(values) {
                            *sum += weight * value;
                        }
                    }
                }
            }
        }
    }
}

/// What members take from the grid.
pub(super) struct Take<'a> {
    pub(super) grid: &'a Grid,
    /// Of groups [m/s].
    pub(super) velocity: &'a [DVec3],
    pub(super) flip_share: f64,
    pub(super) extras: &'a Extras,
    pub(super) members: &'a Sixteen,
    /// As many as there are.
    pub(super) result: &'a mut [Taken],
}

impl Task for Take<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { grid, velocity, flip_share: flip, extras, members, result } = self;
        let mut found = [[[0.0; 3]; 2]; LANES];
        for axis in 0..3 {
            let Touched { place, flow, .. } = &extras.axes[axis];
            for (l, found) in found.iter_mut().enumerate() {
                let among = &members.axes[axis].among;
                [found[0][axis], found[1][axis]] = among.interpolate(grid, l, (place, flow));
            }
        }
        for (l, result) in result.iter_mut().enumerate() {
            let [new, old] = found[l].map(DVec3::from_array);
            let own = flip * (velocity[members.group[l] as usize] + (new - old)) + (1.0 - flip) * new;
            *result = Taken { grid: new, own };
        }
    }
}
