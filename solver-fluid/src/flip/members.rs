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
    /// Whether a member touches the face.
    pub(super) touched: bool,
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
}

/// What members add to the faces of each axis.
#[derive(Clone, Debug, Default)]
pub(super) struct Extras {
    /// Where members are, in the order of [`GroupMap::all_members`].
    pub(super) places: Vec<Places<1>>,
    of: [Vec<Extra>; 3],
    touched: [Vec<usize>; 3],
    /// What was touched the last time, and is no longer.
    left: [Vec<usize>; 3],
}

/// Mass of each group's members [kg].
pub(super) fn group_masses(groups: &GroupMap, particles: &Particles) -> Vec<f64> {
    let mass = |group| groups.members(group).iter().map(|&i| particles.mass[i as usize]).sum();
    (0..groups.len()).map(mass).collect()
}

/// The inertia that each group has here [kg].
pub(super) fn inertias(stage: &Stage<'_>, own: &[f64]) -> Vec<f64> {
    let inertia = |(&inertia, own): (&f64, f64)| if inertia.is_finite() { inertia } else { IMMOVABLE * own };
    stage.inertia.iter().zip(own.iter().copied()).map(inertia).collect()
}

impl Extras {
    /// What members add to a face.
    #[inline(always)]
    pub(super) fn at(&self, axis: usize, face: usize) -> Extra {
        self.of[axis].get(face).copied().unwrap_or_default()
    }

    /// Faces that members touch, or touched before the last [`Self::renew`].
    pub(super) fn renewed(&self, axis: usize) -> impl Iterator<Item = usize> + Clone {
        self.touched[axis].iter().chain(&self.left[axis]).copied()
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
        let place = |&member: &u32| grid.place(position[member as usize]);
        members.par_iter().with_min_len(MEMBERS).map(place).collect_into_vec(&mut self.places);
        let places = &self.places;
        let axes = self.of.par_iter_mut().zip(&mut self.touched).zip(&mut self.left).enumerate();
        axes.for_each(|(axis, ((extras, touched), left))| {
            std::mem::swap(touched, left);
            touched.clear();
            for &face in &*left {
                extras[face] = Extra::default();
            }
            if moving.groups.is_empty() {
                return;
            }
            extras.resize(grid.len(), Extra::default());
            let mut places = places.iter();
            for (group, &velocity) in moving.velocity.iter().enumerate() {
                for (&member, place) in moving.groups.members(group).iter().zip(&mut places) {
                    let member = member as usize;
                    let own = particles.mass[member];
                    let part = own / moving.own[group];
                    let inertia = part * moving.inertia[group];
                    let momentum = inertia * velocity[axis] - own * particles.velocity[member][axis];
                    let impulse = moving.impulse[group][axis] * part - fall[axis] * (inertia - own);
                    for (face, weight) in place.faces(grid, axis) {
                        if weight > 0.0 {
                            let extra = &mut extras[face];
                            if !extra.touched {
                                extra.touched = true;
                                touched.push(face);
                            }
                            extra.mass += weight * (inertia - own);
                            extra.momentum += weight * momentum;
                            extra.impulse += weight * impulse;
                        }
                    }
                }
            }
            left.retain(|&face| !extras[face].touched);
        });
    }
}
