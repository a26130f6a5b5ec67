//! The problem of a step: one unknown per contact, and the matrix W = H B H^T, which is never formed.
//!
//! H takes velocities of bodies to relative velocities at contacts. Its transpose takes impulses p of
//! contacts to impulses and torques of bodies:
//!
//! ```text
//! u = v_j + omega_j x r_j - v_i - omega_i x r_i,     +p and r_j x p on j,     -p and -r_i x p on i.
//! ```
//!
//! W p is found in two passes. In the first every body sums over its own contacts, in their order. In the
//! second every contact reads its two bodies. Each value is written once, so that no atomics are needed and
//! the bits are the same on any number of threads. Points between bodies hand their impulses on to
//! these bodies in the first pass, and take their velocities from them.

use amalgam_particles::{DVec3, lanes::LANES, reduce};
use rayon::prelude::*;

use super::bodies::{Blend, Bodies, InverseInertia, Motions, VELOCITY_ROUNDING};
use super::cone::{Cone, Cones, Kind, Metric};
use super::contact::Contact;
use super::response::Response;
use super::tasks::SERIAL;
use super::unknown::Unknown;

/// Bodies that a contact joins, and its kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) bodies: [u32; 2],
    pub(crate) kind: Kind,
}

/// The contacts of a step and which of them each body has. It is set up anew for each solve; allocations are
/// kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problem {
    pub(crate) rows: Vec<Row>,
    /// Cone and b of each contact, [`LANES`] side by side. Surplus lanes of the last block are zero.
    pub(crate) cones: Vec<Cones>,
    /// Arms and lever of each contact; empty if no body rotates.
    levers: Vec<Levers>,
    /// Start of each body's part of `incident`, and the end of the last part.
    offsets: Vec<u32>,
    /// Contacts of each body, ascending: twice the index, plus 1 where the body is j.
    incident: Vec<u32>,
    cursor: Vec<u32>,
    /// Points between bodies.
    blends: Vec<Blend>,
    /// Start of each body's part of `shares`, and the end of the last part; empty without points between
    /// bodies.
    share_offsets: Vec<u32>,
    /// Points that each body has a share of, ascending, with its weight.
    shares: Vec<(u32, f64)>,
    /// Motion of each body without the impulses.
    pub(crate) free: Motions,
    /// Impulses for a model of the response, and the changes that it returns.
    coupled: [Vec<DVec3>; 2],
}

/// Impulses of contacts on bodies, and the motion that they lead to; a column per field.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    /// H^T p: impulse [kg m/s] and angular impulse [kg m^2/s] of each body, zero for an immovable one.
    pub(crate) given: Motions,
    /// v' of each body.
    pub(crate) motion: Motions,
}

impl Answers {
    /// Makes room for the bodies of `motion`.
    pub(crate) fn resize(&mut self, motion: &Motions) {
        let (bodies, turn) = (motion.len(), !motion.angular.is_empty());
        self.given.resize(bodies, turn);
        self.motion.resize(bodies, turn);
    }
}

#[derive(Clone, Copy, Debug)]
struct Levers {
    arms: [DVec3; 2],
    lever: f64,
}

impl Problem {
    /// Sets up the contacts `chosen` of a step of length `dt` [s].
    pub(crate) fn set(&mut self, bodies: &Bodies, contacts: &[Contact], chosen: &[u32], dt: f64) {
        self.set_rows(bodies, contacts, chosen, dt);
        // A body without spin and without an inertia takes no torque.
        let rotates = |body: usize| {
            bodies.inverse_inertia[body] != InverseInertia::None || bodies.spin[body] != DVec3::ZERO
        };
        self.levers.clear();
        if (0..bodies.len()).any(rotates) {
            let levers = |&c: &u32| {
                let contact = &contacts[c as usize];
                Levers { arms: contact.arms(), lever: contact.lever() }
            };
            chosen.par_iter().with_min_len(SERIAL).map(levers).collect_into_vec(&mut self.levers);
        }
        self.take_free(bodies);
        self.list_incident(bodies.len());
        self.list_shares(bodies);
    }

    /// Takes the motion of bodies without the impulses.
    pub(crate) fn take_free(&mut self, bodies: &Bodies) {
        self.free.linear.clone_from(&bodies.velocity);
        self.free.angular.clear();
        if !self.levers.is_empty() {
            self.free.angular.clone_from(&bodies.spin);
        }
    }

    fn set_rows(&mut self, bodies: &Bodies, contacts: &[Contact], chosen: &[u32], dt: f64) {
        let nobody = Row { bodies: [0; 2], kind: Kind::Idle };
        self.rows.resize(chosen.len(), nobody);
        self.cones.resize_with(chosen.len().div_ceil(LANES), Cones::default);
        let one = |chosen: &[u32], rows: &mut [Row], cones: &mut Cones| {
            *cones = Cones::default();
            for (lane, (&c, row)) in chosen.iter().zip(rows).enumerate() {
                let (cone, bias);
                (*row, cone, bias) = read(bodies, &contacts[c as usize], dt);
                cones.set(lane, &cone, bias);
            }
        };
        let blocks = chosen.par_chunks(LANES).zip(self.rows.par_chunks_mut(LANES)).zip(&mut self.cones);
        let blocks = blocks.with_min_len(SERIAL / LANES);
        blocks.for_each(|((chosen, rows), cones)| one(chosen, rows, cones));
    }

    /// Makes all contacts frictionless, with b = 0.
    pub(crate) fn make_smooth(&mut self) {
        for (k, row) in self.rows.iter_mut().enumerate() {
            if row.kind == Kind::Rough {
                row.kind = Kind::Cone;
            }
            let Cone { normal, metric, .. } = self.cones[k / LANES].get(k % LANES);
            self.cones[k / LANES].set(k % LANES, &Cone::new(row.kind, normal, [0.0; 2], metric), 0.0);
        }
    }

    /// A contact's set of impulses.
    #[inline(always)]
    pub(crate) fn cone(&self, contact: usize) -> Cone {
        self.cones[contact / LANES].get(contact % LANES)
    }

    /// The speed at which a contact may close, b [m/s].
    #[inline(always)]
    pub(crate) fn bias(&self, contact: usize) -> f64 {
        self.cones[contact / LANES].bias[contact % LANES]
    }

    /// The speed n . u + b [m/s], negative where the contact closes by more than its gap.
    #[inline(always)]
    pub(crate) fn opening<U: Unknown>(&self, contact: usize, u: U) -> f64 {
        u.linear().dot(self.cones[contact / LANES].normal.get(contact % LANES)) + self.bias(contact)
    }

    fn list_incident(&mut self, bodies: usize) {
        let Self { rows, offsets, incident, cursor, .. } = self;
        offsets.clear();
        offsets.resize(bodies + 1, 0);
        let sides = || rows.iter().enumerate().filter(|(_, row)| row.kind != Kind::Idle);
        for (_, row) in sides() {
            row.bodies.iter().for_each(|&body| offsets[body as usize + 1] += 1);
        }
        for body in 0..bodies {
            offsets[body + 1] += offsets[body];
        }
        cursor.clear();
        cursor.extend_from_slice(&offsets[..bodies]);
        incident.clear();
        incident.resize(offsets[bodies] as usize, 0);
        for (contact, row) in sides() {
            for (side, &body) in row.bodies.iter().enumerate() {
                let place = &mut cursor[body as usize];
                incident[*place as usize] = 2 * contact as u32 + side as u32;
                *place += 1;
            }
        }
    }

    fn list_shares(&mut self, bodies: &Bodies) {
        let Self { blends, share_offsets, shares, cursor, .. } = self;
        blends.clone_from(&bodies.blends);
        share_offsets.clear();
        shares.clear();
        if blends.is_empty() {
            return;
        }
        let first = bodies.first_blend();
        let parts = |k: usize| bodies.parts((first + k) as u32).into_iter().filter(|part| part.1 != 0.0);
        share_offsets.resize(first + 1, 0);
        (0..blends.len()).flat_map(parts).for_each(|(body, _)| share_offsets[body as usize + 1] += 1);
        for body in 0..first {
            share_offsets[body + 1] += share_offsets[body];
        }
        cursor.clear();
        cursor.extend_from_slice(&share_offsets[..first]);
        shares.resize(share_offsets[first] as usize, (0, 0.0));
        for k in 0..blends.len() {
            for (body, weight) in parts(k) {
                let place = &mut cursor[body as usize];
                shares[*place as usize] = ((first + k) as u32, weight);
                *place += 1;
            }
        }
    }

    /// Points between bodies that a body has a share of, with its weight.
    fn shares(&self, body: usize) -> &[(u32, f64)] {
        match self.share_offsets.get(body..body + 2) {
            Some(ends) => &self.shares[ends[0] as usize..ends[1] as usize],
            None => &[],
        }
    }

    /// Contacts of a body: twice the index, plus 1 where the body is j.
    pub(crate) fn incident(&self, body: usize) -> &[u32] {
        &self.incident[self.offsets[body] as usize..self.offsets[body + 1] as usize]
    }

    /// Largest number of contacts of a movable body.
    pub(crate) fn most_contacts(&self, bodies: &Bodies) -> usize {
        let movable = (0..self.free.len()).filter(|&body| !bodies.is_immovable(body as u32));
        let of_points = |body: usize| {
            self.shares(body).iter().map(|&(point, _)| self.incident(point as usize).len()).sum::<usize>()
        };
        movable.map(|body| self.incident(body).len() + of_points(body)).max().unwrap_or(0)
    }

    /// Rounding of a relative velocity [m/s]: some units in the last place of the fastest body's velocity.
    pub(crate) fn rounding(&self) -> f64 {
        let by_spin = |contact: usize| {
            let [i, j] = self.rows[contact].bodies.map(|body| self.free.angular[body as usize].length());
            let [first, second] = self.levers[contact].arms.map(|arm| arm.length());
            i * first + j * second
        };
        let fastest = reduce::max(self.free.len(), 0.0, |body| self.free.linear[body].length());
        VELOCITY_ROUNDING * (2.0 * fastest + reduce::max(self.levers.len(), 0.0, by_spin))
    }

    /// The first pass: H^T p, and v' = v* + B H^T p, for all bodies.
    pub(crate) fn answer<U: Unknown>(&mut self, bodies: &Bodies, impulses: &[U], answers: &mut Answers) {
        answers.resize(&self.free);
        let first = self.free.len() - self.blends.len();
        let (given, at_points) = answers.given.linear.split_at_mut(first);
        let (motion, of_points) = answers.motion.linear.split_at_mut(first);
        at_points.par_iter_mut().enumerate().with_min_len(SERIAL).for_each(|(k, given)| {
            *given = self.impulse_of(self.incident(first + k), impulses);
        });
        let one = |(body, (given, motion)): (usize, (&mut DVec3, &mut DVec3))| {
            (*given, *motion) = (DVec3::ZERO, self.free.linear[body]);
            let (incident, shares) = (self.incident(body), self.shares(body));
            if incident.is_empty() && shares.is_empty() || bodies.is_immovable(body as u32) {
                return;
            }
            let shared =
                |sum: DVec3, &(point, weight): &(u32, f64)| sum + at_points[point as usize - first] * weight;
            *given = shares.iter().fold(self.impulse_of(incident, impulses), shared);
            *motion += bodies.answer(body as u32, *given);
        };
        let both = given.par_iter_mut().zip(motion.par_iter_mut());
        both.enumerate().with_min_len(SERIAL).for_each(one);
        self.answer_by_models(bodies, given, motion);
        let between = |(k, (given, point)): (usize, (&mut DVec3, &mut DVec3))| {
            let Blend { bodies, weights } = self.blends[k];
            let [a, b, c] = bodies.map(|body| motion[body as usize]);
            *point = a * weights[0] + b * weights[1] + c * weights[2];
            // The bodies have got the impulse.
            *given = DVec3::ZERO;
        };
        let both = at_points.par_iter_mut().zip(of_points.par_iter_mut());
        both.enumerate().with_min_len(SERIAL).for_each(between);
        let turn = |(body, (given, motion)): (usize, (&mut DVec3, &mut DVec3))| {
            (*given, *motion) = (DVec3::ZERO, self.free.angular[body]);
            let incident = self.incident(body);
            // A point between bodies takes no torque.
            if !incident.is_empty() && body < first && !bodies.is_immovable(body as u32) {
                *given = self.torque_of(incident, impulses);
                *motion += bodies.inverse_inertia[body].apply(*given);
            }
        };
        let both = answers.given.angular.par_iter_mut().zip(answers.motion.angular.par_iter_mut());
        both.enumerate().with_min_len(SERIAL).for_each(turn);
    }

    /// Adds what the models of the response say.
    fn answer_by_models(&mut self, bodies: &Bodies, given: &[DVec3], motion: &mut [DVec3]) {
        let Response::LowRank(models) = &bodies.response else { return };
        let [mut pushes, mut change] = std::mem::take(&mut self.coupled);
        for model in models {
            pushes.clear();
            pushes.extend(model.bodies.iter().map(|&body| given[body as usize]));
            change.clear();
            change.resize(pushes.len(), DVec3::ZERO);
            model.add(&pushes, &mut change);
            for (&body, &change) in model.bodies.iter().zip(&change) {
                motion[body as usize] += change;
            }
        }
        self.coupled = [pushes, change];
    }

    fn impulse_of<U: Unknown>(&self, incident: &[u32], impulses: &[U]) -> DVec3 {
        incident.iter().fold(DVec3::ZERO, |sum, &of| {
            let p = impulses[of as usize / 2].linear();
            if of & 1 == 1 { sum + p } else { sum - p }
        })
    }

    fn torque_of<U: Unknown>(&self, incident: &[u32], impulses: &[U]) -> DVec3 {
        incident.iter().fold(DVec3::ZERO, |sum, &of| {
            let (contact, side) = (of as usize / 2, of as usize & 1);
            let (p, levers) = (impulses[contact], &self.levers[contact]);
            let mut torque = levers.arms[side].cross(p.linear());
            if U::ROLLING {
                torque += p.rolling() * levers.lever;
            }
            if side == 1 { sum + torque } else { sum - torque }
        })
    }

    /// The second pass: the relative velocity u at a contact.
    #[inline(always)]
    pub(crate) fn relative<U: Unknown>(&self, contact: usize, motion: &Motions) -> U {
        let bodies = self.rows[contact].bodies;
        if self.levers.is_empty() {
            let [i, j] = bodies.map(|body| motion.linear[body as usize]);
            return U::new(j - i, DVec3::ZERO);
        }
        let [i, j] = bodies.map(|body| motion.of(body));
        let Levers { arms, lever } = self.levers[contact];
        let u = j.at(arms[1]) - i.at(arms[0]);
        if !U::ROLLING {
            return U::new(u, DVec3::ZERO);
        }
        let normal = self.cones[contact / LANES].normal.get(contact % LANES);
        let rate = j.angular - i.angular;
        U::new(u, (rate - normal * rate.dot(normal)) * lever)
    }
}

/// Row, cone and b [m/s] of a contact.
fn read(bodies: &Bodies, contact: &Contact, dt: f64) -> (Row, Cone, f64) {
    let material = &contact.material;
    let metric = metric(bodies, contact);
    let kind = match material {
        _ if metric.normal == 0.0 => Kind::Idle,
        _ if material.glued => Kind::Glued,
        _ if material.friction.is_infinite() => Kind::Rough,
        _ => Kind::Cone,
    };
    let rolling = if metric.rolling > 0.0 { material.rolling } else { 0.0 };
    let bias = if matches!(kind, Kind::Cone | Kind::Rough) { contact.gap.max(0.0) / dt } else { 0.0 };
    let cone = Cone::new(kind, contact.normal, [material.friction, rolling], metric);
    (Row { bodies: contact.bodies, kind }, cone, bias)
}

/// The diagonal of W by parts of a contact: the sum over both bodies of e . B e + (r x e) . I^-1 (r x e), as
/// a mean over the directions e of each part. The rolling part has l^2 e . I^-1 e, with the lever l and
/// tangents e.
fn metric(bodies: &Bodies, contact: &Contact) -> Metric {
    let n = contact.normal;
    let tangents = n.any_orthonormal_pair();
    let mut sum = Metric::default();
    for (side, &body) in contact.bodies.iter().enumerate() {
        let by_impulse = |along: DVec3| along.dot(bodies.answer(body, along));
        let inverse = &bodies.inverse_inertia[body as usize];
        if *inverse == InverseInertia::None {
            sum.normal += by_impulse(n);
            sum.tangential += 0.5 * (by_impulse(tangents.0) + by_impulse(tangents.1));
            continue;
        }
        let (arm, lever) = (contact.arms()[side], contact.lever());
        let by_torque = |along: DVec3| {
            let torque = arm.cross(along);
            torque.dot(inverse.apply(torque))
        };
        sum.normal += by_impulse(n) + by_torque(n);
        sum.tangential += 0.5 * (by_impulse(tangents.0) + by_impulse(tangents.1));
        sum.tangential += 0.5 * (by_torque(tangents.0) + by_torque(tangents.1));
        let about = |axis: DVec3| axis.dot(inverse.apply(axis));
        sum.rolling += lever * lever * 0.5 * (about(tangents.0) + about(tangents.1));
    }
    sum
}
