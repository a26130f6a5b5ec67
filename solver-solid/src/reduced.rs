//! The reduced system of a stage: one unknown velocity change a group and one a free particle
//! (`docs/method.md`, "Integrating a meta-particle inside a participant").

use amalgam_particles::{DVec3, NO_GROUP, Particles};
use amalgam_solver_kit::{SolverError, Stage};
use rayon::prelude::*;

use crate::block::{Block, Factor};
use crate::conjugate_gradients::{System, sum_to_leaders};
use crate::springs::Springs;
use crate::{CHUNK, CHUNKS_PER_TASK};

/// What a stage changes in the system. The springs' own part is the same in all stages of a step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reduced {
    /// Velocity of each particle at the start of the step, of members that of their group [m/s]: S v_reduced.
    pub(crate) velocity: Vec<DVec3>,
    /// Slope of the momentum given to each group [kg].
    pub(crate) slope: Vec<f64>,
    diagonal: Vec<f64>,
    factor: Vec<Factor>,
}

impl Reduced {
    /// Sets the unknowns of a stage.
    ///
    /// # Errors
    /// A group that holds an immovable particle and yet has a finite inertia.
    pub(crate) fn set(
        &mut self,
        particles: &Particles,
        springs: &Springs,
        stage: &Stage<'_>,
    ) -> Result<(), SolverError> {
        self.velocity.clone_from(&particles.velocity);
        self.factor.clear();
        self.factor.extend_from_slice(springs.free_factor());
        self.diagonal.clear();
        self.diagonal.extend(
            springs.grounding().iter().zip(&particles.mass).map(|(grounding, mass)| grounding + mass),
        );
        self.slope.clear();
        for group in 0..stage.groups.len() {
            let slope = self.set_group(group, particles, springs, stage)?;
            self.slope.push(slope);
        }
        Ok(())
    }

    /// Makes the members of a group one unknown; its slope.
    fn set_group(
        &mut self,
        group: usize,
        particles: &Particles,
        springs: &Springs,
        stage: &Stage<'_>,
    ) -> Result<f64, SolverError> {
        let (members, inertia) = (stage.groups.members(group), stage.inertia[group]);
        let group_of = stage.groups.group_of();
        let mut block = Block::default();
        for &member in members {
            let member = member as usize;
            if particles.immovable[member] && inertia.is_finite() {
                return Err(SolverError(format!(
                    "particle {} is immovable, but its group came with the finite inertia {inertia} kg",
                    particles.id[member]
                )));
            }
            self.velocity[member] = stage.velocity[group];
            self.diagonal[member] = springs.grounding()[member];
            self.factor[member] = Factor::default();
            springs.add_diagonal(
                member,
                |neighbour| group_of[neighbour as usize] == group as u32,
                &mut block,
            );
        }
        match members.first() {
            Some(&leader) if inertia.is_finite() => {
                self.diagonal[leader as usize] += inertia;
                self.factor[leader as usize] = Factor::new(inertia, &block);
                Ok(block.mean())
            }
            _ => Ok(0.0),
        }
    }

    /// S^T (h F + h^2 dF/dx v) + J_ext, summed at leaders.
    pub(crate) fn right_hand_side(
        &self,
        particles: &Particles,
        springs: &Springs,
        gravity: DVec3,
        stage: &Stage<'_>,
        sum: &mut [DVec3],
    ) {
        sum.par_iter_mut().enumerate().with_min_len(CHUNK * CHUNKS_PER_TASK).for_each(|(i, sum)| {
            *sum = springs.impulse(i, gravity * particles.mass[i], &self.velocity);
        });
        sum_to_leaders(stage.groups, sum);
        for (group, &impulse) in stage.impulse.iter().enumerate() {
            if let Some(&leader) = stage.groups.members(group).first() {
                sum[leader as usize] += impulse;
            }
        }
    }

    /// The velocity change to start iterating from: the one that leads to the velocities `expected`, of a group to
    /// their mean by mass; none for what is held.
    pub(crate) fn starting_point(
        &self,
        particles: &Particles,
        expected: &[DVec3],
        stage: &Stage<'_>,
        change: &mut [DVec3],
    ) {
        let group_of = stage.groups.group_of();
        for (i, change) in change.iter_mut().enumerate() {
            let held = group_of[i] != NO_GROUP || particles.immovable[i];
            *change = if held { DVec3::ZERO } else { expected[i] - self.velocity[i] };
        }
        for group in (0..stage.groups.len()).filter(|&group| stage.inertia[group].is_finite()) {
            let members = stage.groups.members(group);
            let mass: f64 = members.iter().map(|&i| particles.mass[i as usize]).sum();
            let momentum: DVec3 =
                members.iter().map(|&i| expected[i as usize] * particles.mass[i as usize]).sum();
            for &i in members {
                change[i as usize] = momentum / mass - stage.velocity[group];
            }
        }
    }

    /// The system as the iteration wants it.
    pub(crate) fn system<'a>(&'a self, springs: &'a Springs, stage: &Stage<'a>) -> System<'a> {
        System { springs, groups: stage.groups, diagonal: &self.diagonal, factor: &self.factor }
    }
}
