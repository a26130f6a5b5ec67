//! Sub-steps of a step, and the state between them while the step is not committed yet.

use amalgam_particles::{DVec3, GroupMap, NO_GROUP, Particles, reduce};
use amalgam_solver_kit::Request;

/// Positions [m] and velocities [m/s].
pub(crate) type Columns = (Vec<DVec3>, Vec<DVec3>);

/// A sub-step.
#[derive(Clone, Copy, Debug)]
pub struct Substep {
    /// Number of earlier sub-steps in the step.
    pub number: u32,
    /// Number of sub-steps in the step.
    pub count: u32,
    /// Time at the start of the sub-step [s].
    pub time: f64,
    /// Length [s].
    pub dt: f64,
    /// Longest stable sub-step [s] at the start of the step.
    pub stable: f64,
}

impl Substep {
    /// True if it is the first sub-step of its step.
    pub fn is_first(&self) -> bool {
        self.number == 0
    }

    /// True if it is the last sub-step of its step.
    pub fn is_last(&self) -> bool {
        self.number + 1 == self.count
    }
}

/// A sub-step that a method is asked to compute, and the state before it.
#[derive(Clone, Copy)]
pub struct SubstepRequest<'a> {
    /// The sub-step, and its place in the step.
    pub substep: Substep,
    /// The groups, and what the coordinator asks for.
    pub request: &'a Request<'a>,
    /// Particles at the start of the step.
    pub particles: &'a Particles,
    /// Positions at the start of the sub-step [m].
    pub position: &'a [DVec3],
    /// Velocities at the start of the sub-step [m/s].
    pub velocity: &'a [DVec3],
    /// Bound of the speed of free particles at the start of the sub-step [m/s].
    pub speed_bound: f64,
}

/// Positions and velocities before the last sub-step of a tentative integration.
#[derive(Default)]
pub(crate) struct Tentative {
    /// Empty in the first sub-step, before which the committed state holds.
    columns: Columns,
    /// True if a sub-step has ended. The columns do not tell: a rank may have no particles.
    has_ended: bool,
    /// Bound of the speed of free particles after the last sub-step [m/s].
    pub(crate) speed_bound: f64,
}

impl Tentative {
    /// Begins at the committed state, whose largest speed is `speed_max` [m/s].
    pub(crate) fn clear(&mut self, speed_max: f64) {
        self.columns.0.clear();
        self.columns.1.clear();
        (self.has_ended, self.speed_bound) = (false, speed_max);
    }

    /// True if the last sub-step is the first of its step. The same on all ranks.
    pub(crate) fn is_committed(&self) -> bool {
        !self.has_ended
    }

    /// Positions and velocities before the last sub-step.
    pub(crate) fn before<'a>(&'a self, particles: &'a Particles) -> (&'a [DVec3], &'a [DVec3]) {
        if self.is_committed() {
            (&particles.position, &particles.velocity)
        } else {
            (&self.columns.0, &self.columns.1)
        }
    }

    /// Takes the columns out, to be advanced and [put back](Self::put).
    pub(crate) fn take(&mut self, particles: &Particles) -> Columns {
        if self.is_committed() {
            self.columns.0.clone_from(&particles.position);
            self.columns.1.clone_from(&particles.velocity);
        }
        std::mem::take(&mut self.columns)
    }

    /// Puts advanced columns back, with a bound of the speed of their particles [m/s].
    pub(crate) fn put(&mut self, columns: Columns, speed_bound: f64) {
        self.columns = columns;
        (self.has_ended, self.speed_bound) = (true, speed_bound);
    }

    /// Takes the particles' own columns out, to be committed. Free particles get their state before the last
    /// sub-step.
    pub(crate) fn take_committed(&self, groups: &GroupMap, particles: &mut Particles) -> Columns {
        let mut position = std::mem::take(&mut particles.position);
        let mut velocity = std::mem::take(&mut particles.velocity);
        if !self.is_committed() {
            for (i, &group) in groups.group_of().iter().enumerate() {
                if group == NO_GROUP {
                    (position[i], velocity[i]) = (self.columns.0[i], self.columns.1[i]);
                }
            }
        }
        (position, velocity)
    }
}

/// The largest speed of particles, and a flag for values that are not finite. Loops that move particles find
/// both in passing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extremes {
    /// The largest square of a speed [m^2/s^2].
    speed_squared: f64,
    /// The largest square of a change of velocity [m^2/s^2], as far as changes were included.
    change_squared: f64,
    /// True if a position or velocity is not finite.
    pub(crate) not_finite: bool,
}

impl Extremes {
    #[inline(always)]
    pub(crate) fn include(&mut self, position: DVec3, velocity: DVec3) {
        let square = velocity.length_squared();
        self.speed_squared = self.speed_squared.max(square);
        // The sum is infinite or NaN if a term is.
        self.not_finite |= !(position.element_sum() + square).is_finite();
    }

    /// Includes changes of velocities [m/s].
    pub(crate) fn include_changes(&mut self, before: &[DVec3], after: &[DVec3]) {
        let change = |(before, after): (&DVec3, &DVec3)| (*after - *before).length_squared();
        self.change_squared = before.iter().zip(after).map(change).fold(self.change_squared, f64::max);
    }

    pub(crate) fn joined(self, other: Self) -> Self {
        Self {
            speed_squared: self.speed_squared.max(other.speed_squared),
            change_squared: self.change_squared.max(other.change_squared),
            not_finite: self.not_finite | other.not_finite,
        }
    }

    /// The largest speed [m/s].
    pub(crate) fn speed(self) -> f64 {
        self.speed_squared.sqrt()
    }

    /// The largest change of velocity [m/s] that was included.
    pub(crate) fn change(self) -> f64 {
        self.change_squared.sqrt()
    }
}

/// The largest speed [m/s].
pub(crate) fn speed_max(velocity: &[DVec3]) -> f64 {
    reduce::max(velocity.len(), 0.0, |i| velocity[i].length_squared()).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_without_particles_knows_that_a_sub_step_has_ended() {
        let mut tentative = Tentative::default();
        tentative.clear(0.0);
        assert!(tentative.is_committed());
        let columns = tentative.take(&Particles::default());
        tentative.put(columns, 0.0);
        assert!(!tentative.is_committed());
    }
}
