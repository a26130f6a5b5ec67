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
use glam::DMat3;
use rayon::prelude::*;
use std::slice::ChunksMut;

use super::bodies::{Blend, Bodies, InverseInertia, Motions, VELOCITY_ROUNDING};
use super::columns::step_on;
use super::cone::{Cone, Cones, Kind, Metric};
use super::contact::Contact;
use super::response::Model;
use super::tasks::{CHUNK, SERIAL};
use super::unknown::Unknown;

/// The contacts of a step and which of them each body has. It is set up anew for each solve; allocations are
/// kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problem {
    /// Bodies that each contact joins.
    pub(crate) joined: Vec<[u32; 2]>,
    /// Kind of each contact.
    pub(crate) kinds: Vec<Kind>,
    /// Cone and b of each contact, [`LANES`] side by side. Surplus lanes of the last block are zero.
    pub(crate) cones: Vec<Cones>,
    /// Arms and lever of each contact; empty if no body rotates.
    levers: Vec<Levers>,
    /// Start of each body's part of `incident`, and the end of the last part.
    offsets: Vec<u32>,
    /// Contacts of each movable body, ascending: twice the index, plus 1 where the body is j.
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
    /// Impulse on each point between bodies [kg m/s].
    at_points: Vec<DVec3>,
    /// Impulses for a model of the response, and the changes that it returns.
    coupled: [Vec<DVec3>; 2],
}

/// The motion that impulses of contacts lead to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    /// v' of each body.
    pub(crate) motion: Motions,
    /// H^T p: impulse on each body [kg m/s]. Only with models of the response; empty without.
    pub(crate) given: Vec<DVec3>,
}

/// A look ahead to the next iteration, beside the answers to the impulses x_new of this one.
pub(crate) struct LookAhead<'a> {
    pub(crate) beta: f64,
    /// Answers to x and to y.
    pub(crate) at_x: &'a Answers,
    pub(crate) at_y: &'a Answers,
    /// Becomes the answers to x_new + beta (x_new - x).
    pub(crate) next: &'a mut Answers,
}

#[derive(Clone, Copy, Debug)]
struct Levers {
    arms: [DVec3; 2],
    lever: f64,
}

impl Problem {
    /// Sets up the contacts `chosen` of a step of length `dt` [s].
    pub(crate) fn set(&mut self, bodies: &Bodies, contacts: &[Contact], chosen: &[u32], dt: f64) {
        self.set_contacts(bodies, contacts, chosen, dt);
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
        self.list_incident(bodies);
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

    fn set_contacts(&mut self, bodies: &Bodies, contacts: &[Contact], chosen: &[u32], dt: f64) {
        let Self { joined, kinds, cones, .. } = self;
        joined.resize(chosen.len(), [0; 2]);
        kinds.resize(chosen.len(), Kind::Idle);
        cones.resize_with(chosen.len().div_ceil(LANES), Cones::default);
        let one = |(((chosen, joined), kinds), cones): (((&[u32], &mut [_]), &mut [_]), &mut Cones)| {
            *cones = Cones::default();
            for (lane, &c) in chosen.iter().enumerate() {
                let contact = &contacts[c as usize];
                let (kind, cone, bias) = read(bodies, contact, dt);
                (joined[lane], kinds[lane]) = (contact.bodies, kind);
                cones.set(lane, &cone, bias);
            }
        };
        let blocks = chosen.par_chunks(LANES).zip_eq(joined.par_chunks_mut(LANES));
        let blocks = blocks.zip_eq(kinds.par_chunks_mut(LANES)).zip_eq(cones);
        blocks.with_min_len(SERIAL / LANES).for_each(one);
    }

    /// Makes all contacts frictionless, with b = 0.
    pub(crate) fn make_smooth(&mut self) {
        for (k, kind) in self.kinds.iter_mut().enumerate() {
            if *kind == Kind::Rough {
                *kind = Kind::Cone;
            }
            let Cone { normal, metric, .. } = self.cones[k / LANES].get(k % LANES);
            self.cones[k / LANES].set(k % LANES, &Cone::new(*kind, normal, [0.0; 2], metric), 0.0);
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

    /// Lists the contacts of each body that contacts can move.
    fn list_incident(&mut self, of: &Bodies) {
        let bodies = of.len();
        let Self { joined, kinds, offsets, incident, cursor, .. } = self;
        offsets.clear();
        offsets.resize(bodies + 1, 0);
        let all = || joined.iter().zip(&*kinds).enumerate();
        let sides =
            || all().filter(|(_, (_, kind))| **kind != Kind::Idle).map(|(contact, (of, _))| (contact, of));
        for (_, joined) in sides() {
            let moved = joined.iter().filter(|&&body| !of.is_immovable(body));
            moved.for_each(|&body| offsets[body as usize + 1] += 1);
        }
        for body in 0..bodies {
            offsets[body + 1] += offsets[body];
        }
        cursor.clear();
        cursor.extend_from_slice(&offsets[..bodies]);
        incident.clear();
        incident.resize(offsets[bodies] as usize, 0);
        for (contact, joined) in sides() {
            for (side, &body) in joined.iter().enumerate().filter(|(_, body)| !of.is_immovable(**body)) {
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

    /// Contacts of a body: twice the index, plus 1 where the body is j. None of an immovable body.
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
            let [i, j] = self.joined[contact].map(|body| self.free.angular[body as usize].length());
            let [first, second] = self.levers[contact].arms.map(|arm| arm.length());
            i * first + j * second
        };
        let fastest = reduce::max(self.free.len(), 0.0, |body| self.free.linear[body].length());
        VELOCITY_ROUNDING * (2.0 * fastest + reduce::max(self.levers.len(), 0.0, by_spin))
    }

    /// The first pass: v' = v* + B H^T p for all bodies. With `ahead`, also the answers to the next y, and the work
    /// d . W d of the step d = p - y, which is returned: the sum of d v . B^-1 d v over bodies.
    pub(crate) fn answer<U: Unknown>(
        &mut self,
        bodies: &Bodies,
        impulses: &[U],
        answers: &mut Answers,
        mut ahead: Option<LookAhead<'_>>,
    ) -> f64 {
        let models = bodies.response_models();
        self.resize(answers, models.is_some());
        if let Some(LookAhead { next, .. }) = &mut ahead {
            self.resize(next, models.is_some());
        }
        let mut at_points = std::mem::take(&mut self.at_points);
        let first = self.free.len() - self.blends.len();
        let impulse_of_point = |k: usize| self.impulse_of(self.incident(first + k), impulses);
        let points = (0..self.blends.len()).into_par_iter().with_min_len(SERIAL);
        points.map(impulse_of_point).collect_into_vec(&mut at_points);
        let one = |mut part: AnswerPart<'_>| self.answer_part(bodies, impulses, &at_points, &mut part);
        let parts = parts(answers, ahead.as_mut(), first);
        let mut work: f64 = match first <= SERIAL {
            true => parts.into_iter().map(one).sum(),
            false => parts.into_par_iter().map(one).collect::<Vec<f64>>().into_iter().sum(),
        };
        self.at_points = at_points;
        if let Some(models) = models {
            self.answer_by_models(models, &answers.given, &mut answers.motion.linear);
            if let Some(LookAhead { beta, at_x, at_y, next }) = &mut ahead {
                let all = [*at_x, answers, *at_y];
                let all = all.map(|of| [&of.given[..first], &of.motion.linear[..first]]);
                work += step_on(all, *beta, [&mut next.given[..first], &mut next.motion.linear[..first]]);
            }
        }
        let (motion, of_points) = answers.motion.linear.split_at_mut(first);
        let between = |(point, blend): (&mut DVec3, &Blend)| {
            let [a, b, c] = blend.bodies.map(|body| motion[body as usize]);
            let [first, second, third] = blend.weights;
            *point = a * first + b * second + c * third;
        };
        of_points.par_iter_mut().zip(&self.blends).with_min_len(SERIAL).for_each(between);
        if let Some(LookAhead { beta, at_x, next, .. }) = &mut ahead {
            let points =
                next.motion.linear[first..].iter_mut().zip(of_points).zip(&at_x.motion.linear[first..]);
            points.for_each(|((next, point), x)| *next = *point + (*point - *x) * *beta);
        }
        work
    }

    /// Makes room for the answers of all bodies.
    fn resize(&self, answers: &mut Answers, given: bool) {
        let bodies = self.free.len();
        answers.motion.resize(bodies, !self.free.angular.is_empty());
        answers.given.resize(if given { bodies } else { 0 }, DVec3::ZERO);
    }

    /// The answers of some bodies, without models of the response. Returns their part of the work, of their spin
    /// alone if there are models.
    fn answer_part<U: Unknown>(
        &self,
        bodies: &Bodies,
        impulses: &[U],
        at_points: &[DVec3],
        part: &mut AnswerPart<'_>,
    ) -> f64 {
        let (points, turns) = (self.free.len() - self.blends.len(), !part.angular.is_empty());
        let shared =
            |sum: DVec3, &(point, weight): &(u32, f64)| sum + at_points[point as usize - points] * weight;
        let mut work = 0.0;
        for at in 0..part.linear.len() {
            let body = part.first + at;
            let (incident, shares) = (self.incident(body), self.shares(body));
            let free = self.free.linear[body];
            let given = shares.iter().fold(self.impulse_of(incident, impulses), shared);
            let linear = if incident.is_empty() && shares.is_empty() {
                free
            } else {
                free + bodies.answer(body as u32, given)
            };
            part.linear[at] = linear;
            if let Some(impulse) = part.given.get_mut(at) {
                *impulse = given;
            } else if let Some(AheadPart { beta, at_x, at_y, linear: next, .. }) = &mut part.ahead {
                next[at] = linear + (linear - at_x.linear[body]) * *beta;
                let change = (linear - at_y.linear[body]).length_squared();
                work += if change > 0.0 { change / bodies.inverse_mass[body] } else { 0.0 };
            }
            if !turns {
                continue;
            }
            let (free, inverse) = (self.free.angular[body], &bodies.inverse_inertia[body]);
            let angular = match inverse {
                InverseInertia::None => free,
                _ => free + inverse.apply(self.torque_of(incident, impulses)),
            };
            part.angular[at] = angular;
            if let Some(AheadPart { beta, at_x, at_y, angular: next, .. }) = &mut part.ahead {
                next[at] = angular + (angular - at_x.angular[body]) * *beta;
                work += inverse.work(angular - at_y.angular[body]);
            }
        }
        work
    }

    /// Adds what the models of the response say.
    fn answer_by_models(&mut self, models: &[Model], given: &[DVec3], motion: &mut [DVec3]) {
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
        let bodies = self.joined[contact];
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

/// Columns of the answers of some bodies.
struct AnswerPart<'a> {
    /// The first body.
    first: usize,
    linear: &'a mut [DVec3],
    /// Empty if no body turns.
    angular: &'a mut [DVec3],
    /// Empty without models of the response.
    given: &'a mut [DVec3],
    ahead: Option<AheadPart<'a>>,
}

/// The part of [`LookAhead`] for these bodies. Motions at x and y are those of all bodies.
struct AheadPart<'a> {
    beta: f64,
    at_x: &'a Motions,
    at_y: &'a Motions,
    linear: &'a mut [DVec3],
    angular: &'a mut [DVec3],
}

/// Cuts the columns of the first `bodies` bodies into parts.
fn parts<'a>(
    answers: &'a mut Answers,
    ahead: Option<&'a mut LookAhead<'_>>,
    bodies: usize,
) -> Vec<AnswerPart<'a>> {
    let mut columns = [&mut answers.motion.linear, &mut answers.motion.angular, &mut answers.given]
        .map(|column| column.chunks_mut(CHUNK));
    let mut ahead = ahead.map(|LookAhead { beta, at_x, at_y, next }| {
        let columns =
            [&mut next.motion.linear, &mut next.motion.angular].map(|column| column.chunks_mut(CHUNK));
        (*beta, &at_x.motion, &at_y.motion, columns)
    });
    let starts = (0..bodies).step_by(CHUNK);
    starts
        .map(|first| {
            let mut cut = |chunks: &mut ChunksMut<'a, DVec3>| -> &'a mut [DVec3] {
                let chunk = chunks.next().unwrap_or_default();
                let length = chunk.len().min(bodies - first);
                &mut chunk[..length]
            };
            let [linear, angular, given] = columns.each_mut().map(&mut cut);
            let ahead = ahead.as_mut().map(|(beta, at_x, at_y, columns)| {
                let [linear, angular] = columns.each_mut().map(&mut cut);
                AheadPart { beta: *beta, at_x, at_y, linear, angular }
            });
            AnswerPart { first, linear, angular, given, ahead }
        })
        .collect()
}

/// Kind, cone and b [m/s] of a contact.
fn read(bodies: &Bodies, contact: &Contact, dt: f64) -> (Kind, Cone, f64) {
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
    (kind, cone, bias)
}

/// The diagonal of W by parts of a contact: the sum over both bodies of e . B e + (r x e) . I^-1 (r x e), as
/// a mean over the directions e of each part. The rolling part has l^2 e . I^-1 e, with the lever l and
/// tangents e.
fn metric(bodies: &Bodies, contact: &Contact) -> Metric {
    let n = contact.normal;
    let [mut normal, mut tangential, mut rolling] = [0.0; 3];
    for (side, &body) in contact.bodies.iter().enumerate() {
        let at = body as usize;
        match bodies.mobility.get(at) {
            None => {
                normal += bodies.inverse_mass[at];
                tangential += bodies.inverse_mass[at];
            }
            Some(mobility) => {
                let along = n.dot(*mobility * n);
                normal += along;
                tangential += 0.5 * (trace(mobility) - along);
            }
        }
        let (arm, lever) = (|| contact.arms()[side], || contact.lever());
        match &bodies.inverse_inertia[at] {
            InverseInertia::None => {}
            InverseInertia::Sphere(inverse) => {
                // |r x e|^2 has the sum 2 |r|^2 over three directions e at right angles.
                let (arm, lever) = (arm(), lever());
                let about_normal = arm.cross(n).length_squared();
                normal += inverse * about_normal;
                tangential += inverse * (arm.length_squared() - 0.5 * about_normal);
                rolling += inverse * lever * lever;
            }
            InverseInertia::Tensor(inverse) => {
                let (arm, lever, tangents) = (arm(), lever(), n.any_orthonormal_pair());
                let about = |axis: DVec3| axis.dot(*inverse * axis);
                normal += about(arm.cross(n));
                tangential += 0.5 * (about(arm.cross(tangents.0)) + about(arm.cross(tangents.1)));
                rolling += lever * lever * 0.5 * (about(tangents.0) + about(tangents.1));
            }
        }
    }
    Metric::rounded_up([normal, tangential, rolling])
}

fn trace(matrix: &DMat3) -> f64 {
    matrix.x_axis.x + matrix.y_axis.y + matrix.z_axis.z
}
