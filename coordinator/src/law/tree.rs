//! First guess for new stacks and chains: the impulses that would make every heap of bodies move as one.
//!
//! This is a merge, and along a tree it visits each contact once. Relative to the velocity V of its heap,
//! every body lacks the momentum m (V - v). Cut the tree at one contact: the part beyond has no other support
//! in the tree, so that this contact must bring all momentum that the part lacks. A heap that leans on an
//! immovable body takes the velocity of this body. A free heap keeps its mean velocity.
//!
//! Trees grow breadth first from immovable bodies, so that loads go to the ground by few contacts. Impulses
//! are clipped to their cones. Where contacts form loops, the guess is one of many and may be worse than
//! none: the caller compares.

use amalgam_particles::DVec3;

use super::bodies::{Bodies, Motions};
use super::cone::Kind;
use super::problem::Problem;
use super::unknown::Unknown;

/// Index of no contact or no heap.
const NONE: u32 = u32::MAX;

/// Working storage of the guess.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// Bodies of all heaps, each after its parent.
    order: Vec<u32>,
    /// The contact by which each body was reached, or [`NONE`].
    parent: Vec<u32>,
    /// The heap of each body, or [`NONE`].
    heap_of: Vec<u32>,
    /// Velocity of each heap [m/s].
    velocity: Vec<DVec3>,
    /// Momentum that each body and the bodies beyond it lack [kg m/s].
    lack: Vec<DVec3>,
}

impl Tree {
    /// Adds the impulses by which bodies that move as `motion` says come to move as one. Contacts join bodies
    /// if they would close by more than their gap within the step, or open slower than `slack` [m/s].
    pub(crate) fn add<U: Unknown>(
        &mut self,
        problem: &Problem,
        bodies: &Bodies,
        motion: &Motions,
        slack: f64,
        impulses: &mut [U],
    ) {
        let joins = |contact: usize| match problem.kinds[contact] {
            Kind::Glued => true,
            Kind::Idle => false,
            _ => problem.opening(contact, problem.relative::<U>(contact, motion)) <= slack,
        };
        self.grow(problem, bodies, motion, joins);
        self.lack.clear();
        self.lack.resize(bodies.len(), DVec3::ZERO);
        for &body in self.order.iter().rev() {
            let b = body as usize;
            let velocity = self.velocity[self.heap_of[b] as usize];
            self.lack[b] += (velocity - motion.linear[b]) / bodies.inverse_mass[b];
            if self.parent[b] == NONE {
                continue;
            }
            let contact = self.parent[b] as usize;
            let [i, j] = problem.joined[contact];
            let (sign, other) = if j == body { (1.0, i) } else { (-1.0, j) };
            impulses[contact] = impulses[contact] + U::new(self.lack[b] * sign, DVec3::ZERO);
            if bodies.inverse_mass[other as usize] > 0.0 {
                let lack = self.lack[b];
                self.lack[other as usize] += lack;
            }
        }
        for (contact, impulse) in impulses.iter_mut().enumerate() {
            *impulse = problem.cone(contact).project(*impulse);
        }
    }

    /// Grows the trees: first from all contacts with immovable bodies at once, then heap by heap among the
    /// remaining bodies.
    fn grow(&mut self, problem: &Problem, bodies: &Bodies, motion: &Motions, joins: impl Fn(usize) -> bool) {
        let count = bodies.len();
        self.order.clear();
        self.velocity.clear();
        self.parent.clear();
        self.parent.resize(count, NONE);
        self.heap_of.clear();
        self.heap_of.resize(count, NONE);
        let is_fixed = |body: u32| bodies.inverse_mass[body as usize] == 0.0;
        for (contact, &[i, j]) in problem.joined.iter().enumerate() {
            let (fixed, body) = if is_fixed(i) { (i, j) } else { (j, i) };
            if is_fixed(fixed) && !is_fixed(body) && self.heap_of[body as usize] == NONE && joins(contact) {
                self.parent[body as usize] = contact as u32;
                self.heap_of[body as usize] = self.velocity.len() as u32;
                self.order.push(body);
                self.velocity.push(motion.linear[fixed as usize]);
            }
        }
        self.spread(problem, 0, is_fixed, &joins);
        for body in 0..count as u32 {
            let alone = problem.incident(body as usize).is_empty();
            if self.heap_of[body as usize] != NONE || is_fixed(body) || alone {
                continue;
            }
            let start = self.order.len();
            self.heap_of[body as usize] = self.velocity.len() as u32;
            self.order.push(body);
            self.spread(problem, start, is_fixed, &joins);
            let (mut momentum, mut mass) = (DVec3::ZERO, 0.0);
            for &member in &self.order[start..] {
                let own = 1.0 / bodies.inverse_mass[member as usize];
                mass += own;
                momentum += motion.linear[member as usize] * own;
            }
            self.velocity.push(momentum / mass);
        }
    }

    /// Grows breadth first from the bodies `order[start..]`.
    fn spread(
        &mut self,
        problem: &Problem,
        start: usize,
        is_fixed: impl Fn(u32) -> bool,
        joins: &impl Fn(usize) -> bool,
    ) {
        let mut at = start;
        while let Some(&body) = self.order.get(at) {
            at += 1;
            for &of in problem.incident(body as usize) {
                let (contact, side) = (of as usize / 2, of as usize & 1);
                let other = problem.joined[contact][1 - side];
                if !is_fixed(other) && self.heap_of[other as usize] == NONE && joins(contact) {
                    self.parent[other as usize] = contact as u32;
                    self.heap_of[other as usize] = self.heap_of[body as usize];
                    self.order.push(other);
                }
            }
        }
    }
}
