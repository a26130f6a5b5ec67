//! The problem of a step: one unknown a contact, and the matrix W = H B H^T, which is never formed.
//!
//! H takes velocities of bodies to relative velocities at contacts, u = v_j + omega_j x r_j - v_i - omega_i x r_i; its
//! transpose takes impulses p of contacts to impulses and torques of bodies, +p and r_j x p on j, -p and -r_i x p on i. W p
//! is found in two passes. In the first every body sums over its own contacts, in their order; in the second every contact
//! reads its two bodies. Nothing is written twice, so there are no atomics, and nothing depends on the number of threads.

use std::ops::{Add, Mul, Sub};

use amalgam_particles::{DVec3, reduce};
use rayon::prelude::*;

use super::bodies::{Bodies, Motion};
use super::cone::{Metric, nearest_normal, shrink};
use super::contact::Contact;
use super::response::Response;

/// Bodies or contacts that one task works through.
pub(crate) const CHUNK: usize = 1024;

/// Fewer contacts or bodies are not worth a second thread: what they cost is less than to wake it.
pub(crate) const SERIAL: usize = 8 * CHUNK;

/// An impulse of a contact [kg m/s], or a relative velocity [m/s]: a vector, and where bodies resist rolling the part of
/// rolling: a couple over the lever, or an angular velocity times the lever, orthogonal to the normal.
pub(crate) trait Unknown:
    Copy + Default + Send + Sync + Add<Output = Self> + Sub<Output = Self> + Mul<f64, Output = Self>
{
    /// Whether there is a part of rolling.
    const ROLLING: bool;

    /// Of both parts.
    fn new(linear: DVec3, rolling: DVec3) -> Self;

    /// The vector.
    fn linear(self) -> DVec3;

    /// The part of rolling.
    fn rolling(self) -> DVec3;
}

impl Unknown for DVec3 {
    const ROLLING: bool = false;

    #[inline]
    fn new(linear: DVec3, _: DVec3) -> Self {
        linear
    }

    #[inline]
    fn linear(self) -> DVec3 {
        self
    }

    #[inline]
    fn rolling(self) -> DVec3 {
        DVec3::ZERO
    }
}

/// The unknown of contacts that resist rolling.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rolling {
    linear: DVec3,
    rolling: DVec3,
}

impl Unknown for Rolling {
    const ROLLING: bool = true;

    #[inline]
    fn new(linear: DVec3, rolling: DVec3) -> Self {
        Self { linear, rolling }
    }

    #[inline]
    fn linear(self) -> DVec3 {
        self.linear
    }

    #[inline]
    fn rolling(self) -> DVec3 {
        self.rolling
    }
}

impl Add for Rolling {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self { linear: self.linear + other.linear, rolling: self.rolling + other.rolling }
    }
}

impl Sub for Rolling {
    type Output = Self;

    #[inline]
    fn sub(self, other: Self) -> Self {
        Self { linear: self.linear - other.linear, rolling: self.rolling - other.rolling }
    }
}

impl Mul<f64> for Rolling {
    type Output = Self;

    #[inline]
    fn mul(self, factor: f64) -> Self {
        Self { linear: self.linear * factor, rolling: self.rolling * factor }
    }
}

/// The set that a contact's impulse lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Coulomb's cone.
    Cone,
    /// The limit of infinite friction: p_n > 0, or nothing at all. The cones of ever larger friction tend to the half
    /// space p_n >= 0, but its boundary would hold pairs that part from sliding; it is left out.
    Rough,
    /// All of space: the pair moves as one.
    Glued,
    /// Nothing: no impulse moves either body.
    Idle,
}

/// A contact, as the iteration reads it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) bodies: [u32; 2],
    pub(crate) kind: Kind,
    pub(crate) normal: DVec3,
    /// b = max(gap, 0) / h [m/s]: the speed at which the pair may close.
    pub(crate) bias: f64,
    friction: f64,
    rolling: f64,
    pub(crate) metric: Metric,
    /// 1 over each part of the metric, 0 where that is 0.
    inverse: Metric,
}

impl Row {
    /// The point of the contact's set nearest to an impulse.
    #[inline]
    pub(crate) fn project<U: Unknown>(&self, impulse: U) -> U {
        match self.kind {
            Kind::Cone => {}
            Kind::Rough => {
                let presses = impulse.linear().dot(self.normal) > 0.0;
                return if presses { impulse } else { U::default() };
            }
            Kind::Glued => return impulse,
            Kind::Idle => return U::default(),
        }
        let normal = impulse.linear().dot(self.normal);
        if self.is_smooth() {
            return U::new(self.normal * normal.max(0.0), DVec3::ZERO);
        }
        let tangential = impulse.linear() - self.normal * normal;
        // Whether it is in the cone already is known without a root.
        let squares =
            [tangential.length_squared(), if U::ROLLING { impulse.rolling().length_squared() } else { 0.0 }];
        let (sliding, rolling) = (self.friction * normal, self.rolling * normal);
        if normal >= 0.0 && squares[0] <= sliding * sliding && squares[1] <= rolling * rolling {
            return impulse;
        }
        let [size, couple] = squares.map(f64::sqrt);
        let x = nearest_normal(self.friction, self.rolling, self.metric, normal, [size, couple]);
        let linear = self.normal * x + tangential * shrink(size, self.friction * x);
        if U::ROLLING {
            U::new(linear, impulse.rolling() * shrink(couple, self.rolling * x))
        } else {
            U::new(linear, DVec3::ZERO)
        }
    }

    /// Whether the contact only presses.
    #[inline]
    pub(crate) fn is_smooth(&self) -> bool {
        self.kind == Kind::Cone && self.friction == 0.0 && self.rolling == 0.0
    }

    /// w of a relative velocity u: what must lie in the dual cone, orthogonal to the impulse. It is
    /// u + (b + s) n: the gap that may close, and de Saxce's term, [`Self::slip`].
    #[inline]
    pub(crate) fn dual<U: Unknown>(&self, velocity: U, slip: f64) -> U {
        match self.kind {
            Kind::Cone | Kind::Rough => velocity + U::new(self.normal * (self.bias + slip), DVec3::ZERO),
            Kind::Glued | Kind::Idle => velocity,
        }
    }

    /// s = mu |u_t| + mu_r |u_q| [m/s].
    #[inline]
    pub(crate) fn slip<U: Unknown>(&self, velocity: U) -> f64 {
        if self.kind != Kind::Cone || self.is_smooth() {
            return 0.0;
        }
        let u = velocity.linear();
        let slip = self.friction * (u - self.normal * u.dot(self.normal)).length();
        if U::ROLLING { slip + self.rolling * velocity.rolling().length() } else { slip }
    }

    /// How far an impulse is from where the law wants it: the part of its natural map that is largest, as a velocity [m/s].
    #[inline]
    pub(crate) fn error<U: Unknown>(&self, impulse: U, w: U) -> f64 {
        self.largest_part(impulse - self.project(impulse - self.unscale(w)))
    }

    /// D^-1 of a velocity: the impulse that would make it, by the diagonal alone.
    #[inline]
    pub(crate) fn unscale<U: Unknown>(&self, velocity: U) -> U {
        let Metric { normal, tangential, rolling } = self.inverse;
        let u = velocity.linear();
        let along = u.dot(self.normal);
        let linear = u * tangential + self.normal * (along * (normal - tangential));
        if U::ROLLING { U::new(linear, velocity.rolling() * rolling) } else { U::new(linear, DVec3::ZERO) }
    }

    /// The largest part of D p, for an impulse p: a velocity [m/s].
    #[inline]
    fn largest_part<U: Unknown>(&self, impulse: U) -> f64 {
        let along = impulse.linear().dot(self.normal);
        let tangential = (impulse.linear() - self.normal * along).length();
        let linear = (self.metric.normal * along.abs()).max(self.metric.tangential * tangential);
        if U::ROLLING { linear.max(self.metric.rolling * impulse.rolling().length()) } else { linear }
    }

    /// a . D b.
    #[inline]
    pub(crate) fn inner<U: Unknown>(&self, a: U, b: U) -> f64 {
        let (a_n, b_n) = (a.linear().dot(self.normal), b.linear().dot(self.normal));
        let tangential = a.linear().dot(b.linear()) - a_n * b_n;
        let linear = self.metric.normal * (a_n * b_n) + self.metric.tangential * tangential;
        if U::ROLLING { linear + self.metric.rolling * a.rolling().dot(b.rolling()) } else { linear }
    }
}

/// a . b, of an impulse and a velocity [J].
#[inline]
pub(crate) fn work<U: Unknown>(a: U, b: U) -> f64 {
    let linear = a.linear().dot(b.linear());
    if U::ROLLING { linear + a.rolling().dot(b.rolling()) } else { linear }
}

/// The contacts of a step and which of them each body has. Memory is kept between steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problem {
    pub(crate) rows: Vec<Row>,
    /// Arms and lever of each contact; empty if no body turns.
    levers: Vec<Levers>,
    /// Where each body's part of `incident` begins; one more than there are bodies.
    offsets: Vec<u32>,
    /// Contacts of each body, ascending, times two, plus 1 where the body is j.
    incident: Vec<u32>,
    cursor: Vec<u32>,
    /// Motion of each body without the impulses.
    pub(crate) free: Vec<Motion>,
    /// Where a model of the response takes impulses and returns changes.
    coupled: [Vec<DVec3>; 2],
}

#[derive(Clone, Copy, Debug)]
struct Levers {
    arms: [DVec3; 2],
    lever: f64,
}

impl Problem {
    /// Sets up the contacts `chosen` of a step of length `dt` [s].
    pub(crate) fn set(&mut self, bodies: &Bodies, contacts: &[Contact], chosen: &[u32], dt: f64) {
        let turns = |contact: &Contact| {
            contact
                .bodies
                .iter()
                .any(|&b| bodies.inverse_inertia[b as usize].apply(DVec3::ONE) != DVec3::ZERO)
                || contact.bodies.iter().any(|&b| bodies.spin[b as usize] != DVec3::ZERO)
        };
        let chosen_contacts = || chosen.iter().map(|&c| &contacts[c as usize]);
        self.rows.clear();
        self.rows.extend(chosen_contacts().map(|contact| row(bodies, contact, dt)));
        self.levers.clear();
        if chosen_contacts().any(turns) {
            let levers = |contact: &Contact| Levers { arms: contact.arms(), lever: contact.lever() };
            self.levers.extend(chosen_contacts().map(levers));
        }
        self.free.clear();
        self.free.extend((0..bodies.len() as u32).map(|body| bodies.motion(body)));
        self.list_incident(bodies.len());
    }

    /// Makes all contacts frictionless and closed.
    pub(crate) fn make_smooth(&mut self) {
        for row in &mut self.rows {
            (row.friction, row.rolling, row.bias) = (0.0, 0.0, 0.0);
            if row.kind == Kind::Rough {
                row.kind = Kind::Cone;
            }
        }
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

    /// Contacts of a body, each times two, plus 1 where the body is j.
    pub(crate) fn incident(&self, body: usize) -> &[u32] {
        &self.incident[self.offsets[body] as usize..self.offsets[body + 1] as usize]
    }

    /// The largest number of contacts of a body that they move.
    pub(crate) fn most_contacts(&self, bodies: &Bodies) -> usize {
        let movable = (0..self.free.len()).filter(|&body| !bodies.is_immovable(body as u32));
        movable.map(|body| self.incident(body).len()).max().unwrap_or(0)
    }

    /// Rounding of a relative velocity [m/s]: some units in the last place of the fastest body's.
    pub(crate) fn rounding(&self) -> f64 {
        let size = |contact: usize| {
            let [i, j] = self.rows[contact].bodies.map(|body| self.free[body as usize]);
            let turning = self.levers.get(contact).map_or(0.0, |levers| {
                i.angular.length() * levers.arms[0].length() + j.angular.length() * levers.arms[1].length()
            });
            i.linear.length() + j.linear.length() + turning
        };
        8.0 * f64::EPSILON * reduce::max(self.rows.len(), 0.0, size)
    }

    /// The first pass: v' = v* + B H^T p for all bodies.
    pub(crate) fn moved<U: Unknown>(&mut self, bodies: &Bodies, impulses: &[U], motion: &mut Vec<Motion>) {
        motion.resize(self.free.len(), Motion::default());
        let one = |(body, motion): (usize, &mut Motion)| {
            *motion = self.free[body];
            let incident = self.incident(body);
            if incident.is_empty() || bodies.is_immovable(body as u32) {
                return;
            }
            motion.linear += bodies.answer(body as u32, self.impulse_of(incident, impulses));
            if !self.levers.is_empty() {
                let torque = self.torque_of(incident, impulses);
                motion.angular += bodies.inverse_inertia[body].apply(torque);
            }
        };
        motion.par_iter_mut().enumerate().with_min_len(SERIAL).for_each(one);
        let Response::LowRank(models) = &bodies.response else { return };
        let [mut given, mut change] = std::mem::take(&mut self.coupled);
        for model in models {
            given.clear();
            let of = |&body: &u32| self.impulse_of(self.incident(body as usize), impulses);
            given.extend(model.bodies.iter().map(of));
            change.clear();
            change.resize(given.len(), DVec3::ZERO);
            model.add(&given, &mut change);
            for (&body, &change) in model.bodies.iter().zip(&change) {
                motion[body as usize].linear += change;
            }
        }
        self.coupled = [given, change];
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
    #[inline]
    pub(crate) fn relative<U: Unknown>(&self, contact: usize, motion: &[Motion]) -> U {
        let row = &self.rows[contact];
        let [i, j] = row.bodies.map(|body| motion[body as usize]);
        if self.levers.is_empty() {
            return U::new(j.linear - i.linear, DVec3::ZERO);
        }
        let Levers { arms, lever } = self.levers[contact];
        let u = j.at(arms[1]) - i.at(arms[0]);
        if !U::ROLLING {
            return U::new(u, DVec3::ZERO);
        }
        let rate = j.angular - i.angular;
        U::new(u, (rate - row.normal * rate.dot(row.normal)) * lever)
    }
}

/// A contact as the iteration reads it.
fn row(bodies: &Bodies, contact: &Contact, dt: f64) -> Row {
    let material = &contact.material;
    let metric = metric(bodies, contact);
    let kind = match material {
        _ if metric.normal == 0.0 => Kind::Idle,
        _ if material.glued => Kind::Glued,
        _ if material.friction.is_infinite() => Kind::Rough,
        _ => Kind::Cone,
    };
    let rolling = if metric.rolling > 0.0 { material.rolling } else { 0.0 };
    Row {
        bodies: contact.bodies,
        kind,
        normal: contact.normal,
        bias: contact.gap.max(0.0) / dt,
        friction: material.friction,
        rolling,
        metric,
        inverse: metric.inverse(),
    }
}

/// The diagonal of W, by blocks: means over the directions of each.
fn metric(bodies: &Bodies, contact: &Contact) -> Metric {
    let n = contact.normal;
    let tangents = n.any_orthonormal_pair();
    let lever = contact.lever();
    let mut sum = Metric::default();
    for (&body, arm) in contact.bodies.iter().zip(contact.arms()) {
        let inverse = &bodies.inverse_inertia[body as usize];
        let turned = |along: DVec3| {
            let torque = arm.cross(along);
            torque.dot(inverse.apply(torque))
        };
        let pushed = |along: DVec3| along.dot(bodies.answer(body, along));
        sum.normal += pushed(n) + turned(n);
        sum.tangential += 0.5 * (pushed(tangents.0) + pushed(tangents.1));
        sum.tangential += 0.5 * (turned(tangents.0) + turned(tangents.1));
        let about = |axis: DVec3| axis.dot(inverse.apply(axis));
        sum.rolling += lever * lever * 0.5 * (about(tangents.0) + about(tangents.1));
    }
    sum
}
