//! What both methods keep between the sub-steps of a step that is not committed.

use amalgam_particles::{DVec3, GroupMap, NO_GROUP, Particles, reduce};

/// Positions [m] and velocities [m/s].
pub(crate) type Columns = (Vec<DVec3>, Vec<DVec3>);

/// Positions and velocities before the last sub-step; empty if there is one, for then they are the committed ones.
#[derive(Default)]
pub(crate) struct BeforeLast(Columns);

impl BeforeLast {
    /// Begins at the committed state.
    pub(crate) fn clear(&mut self) {
        self.0.0.clear();
        self.0.1.clear();
    }

    /// Whether there is one sub-step.
    pub(crate) fn is_committed(&self) -> bool {
        self.0.0.is_empty()
    }

    /// Positions and velocities.
    pub(crate) fn of<'a>(&'a self, particles: &'a Particles) -> (&'a [DVec3], &'a [DVec3]) {
        if self.is_committed() { (&particles.position, &particles.velocity) } else { (&self.0.0, &self.0.1) }
    }

    /// Takes them out, to be advanced and [put back](Self::put).
    pub(crate) fn take(&mut self, particles: &Particles) -> Columns {
        if self.is_committed() {
            self.0.0.clone_from(&particles.position);
            self.0.1.clone_from(&particles.velocity);
        }
        std::mem::take(&mut self.0)
    }

    pub(crate) fn put(&mut self, columns: Columns) {
        self.0 = columns;
    }

    /// Takes the particles' own columns out, to be committed: those of free particles as before the last sub-step.
    pub(crate) fn take_committed(&self, groups: &GroupMap, particles: &mut Particles) -> Columns {
        let mut position = std::mem::take(&mut particles.position);
        let mut velocity = std::mem::take(&mut particles.velocity);
        if !self.is_committed() {
            for (i, &group) in groups.group_of().iter().enumerate() {
                if group == NO_GROUP {
                    (position[i], velocity[i]) = (self.0.0[i], self.0.1[i]);
                }
            }
        }
        (position, velocity)
    }
}

/// The largest speed [m/s].
pub(crate) fn fastest(velocity: &[DVec3]) -> f64 {
    reduce::max(velocity.len(), 0.0, |i| velocity[i].length_squared()).sqrt()
}
