//! Work that participants do on each other in a step, for the account of energy.

use std::ops::Range;

use amalgam_particles::DVec3;

use crate::contacts::Candidates;
use crate::instruments::energy::Works;
use crate::state::scratch::{Assignment, Scratch};

/// Movable members of a group in one participant, before and after the step.
#[derive(Default)]
struct Moved {
    /// Mass [kg].
    mass: f64,
    /// Momentum before and after [kg m/s].
    momentum: [DVec3; 2],
    /// Kinetic energy before and after [J].
    kinetic: [f64; 2],
}

impl Moved {
    fn include(&mut self, mass: f64, velocity: [DVec3; 2]) {
        self.mass += mass;
        for (at, velocity) in velocity.into_iter().enumerate() {
            self.momentum[at] += velocity * mass;
            self.kinetic[at] += 0.5 * mass * velocity.length_squared();
        }
    }

    /// Work by others on these members [J]: J . (u + u')/2 plus the change of the kinetic energy relative to
    /// the mean. J = m (u' - u) - p is the impulse by others, u and u' are the mean velocities before and
    /// after the step, and p = `gave` [kg m/s] is the momentum by the participant's own solver. Only merging
    /// and splitting change the motion of members relative to the mean, so this change is work by others,
    /// too.
    fn work(&self, gave: DVec3) -> f64 {
        if self.mass == 0.0 {
            return 0.0;
        }
        let mean = |at: usize| self.momentum[at] / self.mass;
        let relative = |at: usize| self.kinetic[at] - 0.5 * self.momentum[at].dot(mean(at));
        let impulse = self.momentum[1] - self.momentum[0] - gave;
        0.5 * impulse.dot(mean(0) + mean(1)) + relative(1) - relative(0)
    }
}

impl Scratch {
    /// Work of contacts on each participant in the step, and work of moving immovable particles. The second
    /// is the sum of `by_immovable` [J], which the contact law finds, and of the work on groups.
    pub(super) fn works(&self, candidates: &Candidates, by_immovable: f64) -> Works {
        let mut works =
            Works { by_contacts: Vec::with_capacity(self.shares.len()), by_scripts: by_immovable };
        // Sum of J = m (u' - u) - p over all participants, for each group.
        let mut taken = vec![DVec3::ZERO; self.forest.len()];
        for (k, (share, assignment)) in self.shares.iter().zip(&self.assignments).enumerate() {
            let mut by_contacts = 0.0;
            let mut at = 0;
            for (local, &group) in share.groups.iter().enumerate() {
                let size = assignment.size[local] as usize;
                let moved = self.moved(candidates, assignment, at..at + size);
                at += size;
                let gave = self.synchronised.momentum[k][local];
                let through = moved.momentum[1] - moved.momentum[0] - gave;
                taken[group as usize] += through;
                by_contacts += match share.mass[local].is_finite() {
                    true => moved.work(gave),
                    // This participant has the immovable member, and all change of its kinetic energy counts.
                    // The work of a script on other participants is counted below.
                    false => moved.kinetic[1] - moved.kinetic[0],
                };
            }
            works.by_contacts.push(by_contacts);
        }
        // A script that moves a group at V does the work V . sum J.
        for (group, taken) in
            taken.iter().enumerate().filter(|&(group, _)| !self.forest.mass()[group].is_finite())
        {
            works.by_scripts += taken.dot(self.synchronised.velocity[group]);
        }
        works
    }

    fn moved(&self, candidates: &Candidates, assignment: &Assignment, range: Range<usize>) -> Moved {
        let mut moved = Moved::default();
        for &place in &assignment.place[range] {
            let i = self.forest.all_members()[place as usize] as usize;
            if !candidates.is_immovable(i as u32) {
                let velocity = [candidates.velocity[i], self.member_velocity[place as usize]];
                moved.include(candidates.mass[i], velocity);
            }
        }
        moved
    }
}
