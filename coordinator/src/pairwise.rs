//! Other methods of contact than merging and splitting, for comparison (`docs/theory/contact-methods.md`).
//!
//! These methods use the same contacts and calls as merging. Each particle on which a method acts is a group
//! of its own, with a velocity and an external impulse for the step. There is one stage, and participants
//! treat the impulse as any external force.

use std::f64::consts::PI;

use amalgam_particles::DVec3;

use crate::contacts::{Candidates, Contacts, approaches};
use crate::settings::{CouplingSettings, PairwiseImpulseSettings, PenaltySettings, SphRepulsionSettings};

/// A method that acts on all pairs in contact. The last argument is the length of the step [s].
pub type PairwiseMethod = fn(&mut PairResponse, &CouplingSettings, &Candidates, &Contacts, f64);

/// Effect of a method on the particles in contact. It is found anew in each step; allocations are kept.
#[derive(Clone, Debug, Default)]
pub struct PairResponse {
    /// Particles on which the method acts: candidate indices, ascending, without immovable particles.
    pub members: Vec<u32>,
    /// Velocity from which each of them starts the step [m/s].
    pub velocity: Vec<DVec3>,
    /// External impulse on each of them in the step [kg m/s].
    pub impulse: Vec<DVec3>,
    /// Kinetic energy that changing velocities took away [J].
    pub dissipated: f64,
    /// |sum of all momentum given| over the sum of the sizes: rounding.
    pub momentum_error: f64,
    /// Momentum given to each candidate [kg m/s].
    given: Vec<DVec3>,
    /// Working value of each candidate: a filling or a velocity.
    working: Vec<DVec3>,
    touched: Vec<bool>,
}

impl PairResponse {
    /// Applies a spring and a damper to each pair that overlaps by delta: the force is F = max(0, k delta - c
    /// u_n) along the line of centres. u_n is the relative velocity along this line, c = 2 zeta sqrt(k mu),
    /// and mu is the reduced mass. The force never pulls.
    pub fn penalty(
        &mut self,
        coupling: &CouplingSettings,
        candidates: &Candidates,
        contacts: &Contacts,
        dt: f64,
    ) {
        let PenaltySettings { stiffness, damping_ratio } = coupling.penalty;
        self.start(candidates);
        for (i, j) in contacts.pairs() {
            let pair = Pair::new(candidates, i, j);
            let damping = 2.0 * damping_ratio * (stiffness * pair.reduced_mass).sqrt();
            let approach =
                (candidates.velocity[j as usize] - candidates.velocity[i as usize]).dot(pair.normal);
            let force = stiffness * (pair.reach - pair.distance) - damping * approach;
            self.give(i, j, pair.normal * (force.max(0.0) * dt));
        }
        self.finish(candidates, false);
    }

    /// Applies a pressure between bodies as between the particles of a fluid. Particles j in contact with i
    /// have the volume V_j = 4/3 pi r_j^3 and give it the filling s_i = sum V_j W(d, r_i + r_j). W(d, h) =
    /// 15/(pi h^3) (1 - d/h)^3 is the spiky kernel [Mueller2003]. With the pressure p_i = `strength` x s_i,
    /// the force of a pair is V_i V_j (p_i + p_j)/2 |W'|, which conserves momentum.
    pub fn sph_repulsion(
        &mut self,
        coupling: &CouplingSettings,
        candidates: &Candidates,
        contacts: &Contacts,
        dt: f64,
    ) {
        let SphRepulsionSettings { strength } = coupling.sph_repulsion;
        self.start(candidates);
        let volume = |i: u32| 4.0 / 3.0 * PI * candidates.radius[i as usize].powi(3);
        // The filling of each candidate is the x component of its working value.
        for (i, j) in contacts.pairs() {
            let pair = Pair::new(candidates, i, j);
            let kernel = 15.0 / (PI * pair.reach.powi(3)) * (1.0 - pair.distance / pair.reach).powi(3);
            self.working[i as usize].x += volume(j) * kernel;
            self.working[j as usize].x += volume(i) * kernel;
        }
        for (i, j) in contacts.pairs() {
            let pair = Pair::new(candidates, i, j);
            let slope = 45.0 / (PI * pair.reach.powi(4)) * (1.0 - pair.distance / pair.reach).powi(2);
            let filling = 0.5 * (self.working[i as usize].x + self.working[j as usize].x);
            let force = volume(i) * volume(j) * strength * filling * slope;
            self.give(i, j, pair.normal * (force * dt));
        }
        self.finish(candidates, false);
    }

    /// Treats one pair after the other as if it were alone. A pair that approaches with its current
    /// velocities gets the impulse (1 + e) mu |u_n| at once, where mu is the reduced mass.
    pub fn pairwise_impulse(
        &mut self,
        coupling: &CouplingSettings,
        candidates: &Candidates,
        contacts: &Contacts,
        _dt: f64,
    ) {
        let PairwiseImpulseSettings { restitution, sweeps } = coupling.pairwise_impulse;
        self.start(candidates);
        self.working.clone_from(&candidates.velocity);
        for _ in 0..sweeps {
            let mut quiet = true;
            for (i, j) in contacts.pairs() {
                let (a, b) = (i as usize, j as usize);
                let u = self.working[b] - self.working[a];
                if !approaches(candidates.position[b] - candidates.position[a], u) {
                    continue;
                }
                let pair = Pair::new(candidates, i, j);
                // If the centres coincide, the pair parts against its motion.
                let normal = if pair.distance > 0.0 { pair.normal } else { -u.normalize() };
                let impulse = normal * (-(1.0 + restitution) * pair.reduced_mass * u.dot(normal));
                self.working[a] -= impulse / candidates.mass[a];
                self.working[b] += impulse / candidates.mass[b];
                self.give(i, j, impulse);
                quiet = false;
            }
            if quiet {
                break;
            }
        }
        self.finish(candidates, true);
    }

    fn start(&mut self, candidates: &Candidates) {
        for column in [&mut self.given, &mut self.working] {
            column.clear();
            column.resize(candidates.len(), DVec3::ZERO);
        }
        self.touched.clear();
        self.touched.resize(candidates.len(), false);
    }

    /// Gives an impulse to j and its opposite to i.
    fn give(&mut self, i: u32, j: u32, impulse: DVec3) {
        self.given[i as usize] -= impulse;
        self.given[j as usize] += impulse;
        (self.touched[i as usize], self.touched[j as usize]) = (true, true);
    }

    /// Lists the particles that got momentum: as a change of velocity if `at_once`, else as an external
    /// impulse.
    fn finish(&mut self, candidates: &Candidates, at_once: bool) {
        self.members.clear();
        self.velocity.clear();
        self.impulse.clear();
        let (mut sum, mut amount) = (DVec3::ZERO, 0.0);
        self.dissipated = 0.0;
        for i in (0..candidates.len()).filter(|&i| self.touched[i]) {
            sum += self.given[i];
            amount += self.given[i].length();
            if candidates.is_immovable(i as u32) {
                continue;
            }
            let before = candidates.velocity[i];
            let (velocity, impulse) =
                if at_once { (self.working[i], DVec3::ZERO) } else { (before, self.given[i]) };
            self.dissipated +=
                0.5 * candidates.mass[i] * (before.length_squared() - velocity.length_squared());
            self.members.push(i as u32);
            self.velocity.push(velocity);
            self.impulse.push(impulse);
        }
        self.momentum_error = if amount > 0.0 { sum.length() / amount } else { 0.0 };
    }
}

/// Two particles in contact.
struct Pair {
    /// Direction from the first to the second; a fixed axis if the centres coincide.
    normal: DVec3,
    /// Distance of the centres [m].
    distance: f64,
    /// Sum of the radii [m].
    reach: f64,
    /// Reduced mass m1 m2 / (m1 + m2) [kg].
    reduced_mass: f64,
}

impl Pair {
    fn new(candidates: &Candidates, i: u32, j: u32) -> Self {
        let (i, j) = (i as usize, j as usize);
        let n = candidates.position[j] - candidates.position[i];
        let (light, heavy) =
            (candidates.mass[i].min(candidates.mass[j]), candidates.mass[i].max(candidates.mass[j]));
        Self {
            normal: n.normalize_or(DVec3::X),
            distance: n.length(),
            reach: candidates.radius[i] + candidates.radius[j],
            reduced_mass: light / (1.0 + light / heavy),
        }
    }
}
