//! Work that participants do on each other in a step, and energy of velocities that do not move particles,
//! for the account of energy.

use std::ops::Range;

use amalgam_particles::DVec3;

use crate::contacts::Candidates;
use crate::instruments::energy::Works;
use crate::merging::merge::Forest;
use crate::state::scratch::{Assignment, Grouped, Velocities};

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

/// Work of contacts on each participant in the step, and work of moving immovable particles. The second
/// is the sum of `by_immovable` [J], which the contact law finds, and of the work on groups.
pub(super) fn works(
    candidates: &Candidates,
    grouped: &Grouped,
    velocities: &Velocities,
    by_immovable: f64,
) -> Works {
    let Grouped { forest, shares, assignments, .. } = grouped;
    let synchronised = &velocities.synchronised;
    let mut works = Works { by_contacts: Vec::with_capacity(shares.len()), by_scripts: by_immovable };
    // Sum of J = m (u' - u) - p over all participants, for each group.
    let mut taken = vec![DVec3::ZERO; forest.len()];
    for (k, (share, assignment)) in shares.iter().zip(assignments).enumerate() {
        let mut by_contacts = 0.0;
        let mut at = 0;
        for (local, &group) in share.groups.iter().enumerate() {
            let size = assignment.size[local] as usize;
            let moved = moved(candidates, forest, velocities, assignment, at..at + size);
            at += size;
            let gave = synchronised.momentum[k][local];
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
    for (group, taken) in taken.iter().enumerate().filter(|&(group, _)| !forest.mass()[group].is_finite()) {
        works.by_scripts += taken.dot(synchronised.velocity[group]);
    }
    works
}

/// The motion of the members of a group in one participant: the places `range` of its assignment.
fn moved(
    candidates: &Candidates,
    forest: &Forest,
    velocities: &Velocities,
    assignment: &Assignment,
    range: Range<usize>,
) -> Moved {
    let mut moved = Moved::default();
    for &place in &assignment.place[range] {
        let i = forest.all_members()[place as usize] as usize;
        if !candidates.is_immovable(i as u32) {
            let velocity = [candidates.velocity[i], velocities.members[place as usize]];
            moved.include(candidates.mass[i], velocity);
        }
    }
    moved
}

/// Kinetic energy [J] of the difference between the velocities v_i that members of groups report and the
/// velocity v' of the group, by which they move: the sum of m_i |v_i - v'|^2 / 2. Particles outside of groups
/// move by the velocities that they report.
pub(super) fn phantom(candidates: &Candidates, forest: &Forest, velocities: &Velocities) -> f64 {
    let reported = forest.all_members().iter().zip(&velocities.members);
    let movable = reported.filter(|&(&i, _)| !candidates.is_immovable(i));
    let energies = movable.map(|(&i, &reported)| {
        let moving = velocities.candidates[i as usize];
        0.5 * candidates.mass[i as usize] * (reported - moving).length_squared()
    });
    energies.sum()
}
