//! Bodies that contacts act on, and how they answer impulses.

use std::ops::{Add, Mul, Sub};

use amalgam_particles::DVec3;
use glam::DMat3;

use super::response::{Model, Response};

/// Bodies, a column per field. A body is a particle without spin, a grain with spin, or a rigid body of many
/// particles.
#[derive(Clone, Debug, Default)]
pub struct Bodies {
    /// 1/m of each body [1/kg]; 0 for an immovable one, whose velocity and spin no contact changes.
    pub inverse_mass: Vec<f64>,
    /// Inverse of each body's inertia about its centre of mass.
    pub inverse_inertia: Vec<InverseInertia>,
    /// Velocity of each centre of mass [m/s]: on input v*, without contacts; on output v'.
    pub velocity: Vec<DVec3>,
    /// Angular velocity of each body [1/s]: on input without contacts; on output with them.
    pub spin: Vec<DVec3>,
    /// Mobility of each body [1/kg], in place of the inverse mass where the response of a body depends on the
    /// direction. Symmetric and positive definite. Empty if the inverse masses suffice.
    pub mobility: Vec<DMat3>,
    /// Further response of velocities to impulses.
    pub response: Response,
    /// Points between bodies. They are bodies, too, from the number [`Self::first_blend`] on.
    pub blends: Vec<Blend>,
}

/// A point of a triangle whose corners are bodies: its velocity is the sum of w v over them, and each of them
/// gets the part w of its impulse. With weights of the point the torque of the impulse is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Blend {
    /// The bodies at the corners. None of them is a point between bodies.
    pub bodies: [u32; 3],
    /// The weight w of each, from 0 to 1, with the sum 1.
    pub weights: [f64; 3],
}

/// Inverse of an inertia about the centre of mass [1/(kg m^2)], in the world's axes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum InverseInertia {
    /// Zero: an immovable body, or a particle without spin.
    #[default]
    None,
    /// Equal about every axis: a sphere, or a disc that rotates about one axis only.
    Sphere(f64),
    /// Symmetric, positive definite.
    Tensor(DMat3),
}

impl InverseInertia {
    /// Change of angular velocity [1/s] by an angular impulse [kg m^2/s].
    #[inline]
    pub fn apply(&self, angular_impulse: DVec3) -> DVec3 {
        match self {
            Self::None => DVec3::ZERO,
            Self::Sphere(inverse) => angular_impulse * *inverse,
            Self::Tensor(inverse) => *inverse * angular_impulse,
        }
    }
}

impl InverseInertia {
    /// Product dw . I dw [J] for a change dw of angular velocity by an angular impulse.
    #[inline(always)]
    pub(crate) fn work(&self, change: DVec3) -> f64 {
        match self {
            _ if change == DVec3::ZERO => 0.0,
            Self::None => 0.0,
            Self::Sphere(inverse) => change.length_squared() / inverse,
            Self::Tensor(inverse) => change.dot(inverse.inverse() * change),
        }
    }
}

/// Rounding of a velocity, relative to the velocities that it is the sum of: some units in the last place.
pub(crate) const VELOCITY_ROUNDING: f64 = 8.0 * f64::EPSILON;

/// Velocity of a body, or its change: of the centre of mass [m/s] and about it [1/s].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Motion {
    /// Velocity of the centre of mass [m/s].
    pub linear: DVec3,
    /// Angular velocity about the centre [1/s].
    pub angular: DVec3,
}

impl Motion {
    /// Velocity [m/s] of the point `arm` [m] from the centre of mass.
    #[inline]
    pub fn at(&self, arm: DVec3) -> DVec3 {
        self.linear + self.angular.cross(arm)
    }
}

/// Motion of many bodies, or its change, a column per part.
#[derive(Clone, Debug, Default)]
pub(crate) struct Motions {
    /// Velocity of each centre of mass [m/s].
    pub(crate) linear: Vec<DVec3>,
    /// Angular velocity of each body [1/s]; empty if none turns.
    pub(crate) angular: Vec<DVec3>,
}

impl Motions {
    /// Makes room for a number of bodies, of which some turn or none does.
    pub(crate) fn resize(&mut self, bodies: usize, turn: bool) {
        self.linear.resize(bodies, DVec3::ZERO);
        self.angular.resize(if turn { bodies } else { 0 }, DVec3::ZERO);
    }

    pub(crate) fn len(&self) -> usize {
        self.linear.len()
    }

    #[inline(always)]
    pub(crate) fn of(&self, body: u32) -> Motion {
        let body = body as usize;
        Motion { linear: self.linear[body], angular: self.angular.get(body).copied().unwrap_or(DVec3::ZERO) }
    }
}

impl Add for Motion {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self { linear: self.linear + other.linear, angular: self.angular + other.angular }
    }
}

impl Sub for Motion {
    type Output = Self;

    #[inline]
    fn sub(self, other: Self) -> Self {
        Self { linear: self.linear - other.linear, angular: self.angular - other.angular }
    }
}

impl Mul<f64> for Motion {
    type Output = Self;

    #[inline]
    fn mul(self, factor: f64) -> Self {
        Self { linear: self.linear * factor, angular: self.angular * factor }
    }
}

impl Bodies {
    /// Forgets all bodies and keeps the memory.
    pub fn clear(&mut self) {
        self.inverse_mass.clear();
        self.inverse_inertia.clear();
        self.velocity.clear();
        self.spin.clear();
        self.mobility.clear();
        self.response = Response::Diagonal;
        self.blends.clear();
    }

    /// Number of bodies.
    pub fn len(&self) -> usize {
        self.inverse_mass.len()
    }

    /// True if there is no body.
    pub fn is_empty(&self) -> bool {
        self.inverse_mass.is_empty()
    }

    /// Adds a body and returns its index.
    pub fn push(
        &mut self,
        inverse_mass: f64,
        inverse_inertia: InverseInertia,
        velocity: DVec3,
        spin: DVec3,
    ) -> u32 {
        self.inverse_mass.push(inverse_mass);
        self.inverse_inertia.push(inverse_inertia);
        self.velocity.push(velocity);
        self.spin.push(spin);
        self.len() as u32 - 1
    }

    /// Number of the first point between bodies: the number of bodies that are none.
    pub fn first_blend(&self) -> usize {
        self.len() - self.blends.len()
    }

    /// Adds a point between bodies, once all bodies are there, and returns its index.
    pub fn push_blend(&mut self, blend: Blend) -> u32 {
        let body = self.push(0.0, InverseInertia::None, DVec3::ZERO, DVec3::ZERO);
        self.blends.push(blend);
        self.place_blend(body as usize, blend);
        body
    }

    /// Gives all points between bodies the motion and the mobility that follow from their bodies.
    pub fn place_blends(&mut self) {
        let first = self.first_blend();
        for k in 0..self.blends.len() {
            self.place_blend(first + k, self.blends[k]);
        }
    }

    fn place_blend(&mut self, body: usize, Blend { bodies, weights }: Blend) {
        let (mut velocity, mut inverse_mass, mut mobility) = (DVec3::ZERO, 0.0, DMat3::ZERO);
        for (corner, weight) in bodies.map(|body| body as usize).into_iter().zip(weights) {
            velocity += self.velocity[corner] * weight;
            inverse_mass += weight * weight * self.inverse_mass[corner];
            if let Some(own) = self.mobility.get(corner) {
                mobility += *own * (weight * weight);
            }
        }
        (self.velocity[body], self.inverse_mass[body]) = (velocity, inverse_mass);
        if let Some(own) = self.mobility.get_mut(body) {
            *own = mobility;
        }
    }

    /// The bodies that get a part of an impulse on a body, with their parts: the body itself, unless it is a
    /// point between bodies.
    pub fn parts(&self, body: u32) -> [(u32, f64); 3] {
        match (body as usize).checked_sub(self.first_blend()) {
            None => [(body, 1.0), (body, 0.0), (body, 0.0)],
            Some(at) => {
                let Blend { bodies, weights } = self.blends[at];
                [0, 1, 2].map(|corner| (bodies[corner], weights[corner]))
            }
        }
    }

    /// Sets the velocity and spin of all bodies.
    pub(crate) fn take(&mut self, motion: &Motions) {
        self.velocity.clone_from(&motion.linear);
        if !motion.angular.is_empty() {
            self.spin.clone_from(&motion.angular);
        }
    }

    /// Velocity and spin of a body.
    #[inline]
    pub fn motion(&self, body: u32) -> Motion {
        Motion { linear: self.velocity[body as usize], angular: self.spin[body as usize] }
    }

    /// Change of a body's velocity [m/s] by an impulse [kg m/s], without the further response.
    #[inline]
    pub fn answer(&self, body: u32, impulse: DVec3) -> DVec3 {
        match self.mobility.get(body as usize) {
            Some(mobility) => *mobility * impulse,
            None => impulse * self.inverse_mass[body as usize],
        }
    }

    /// The models of the response, if answers depend on more than inverse masses and inertias.
    pub(crate) fn response_models(&self) -> Option<&[Model]> {
        let models: &[Model] = match &self.response {
            Response::Diagonal => &[],
            Response::Models(models) => models,
        };
        (!models.is_empty() || !self.mobility.is_empty()).then_some(models)
    }

    /// True if no contact changes the body's motion.
    #[inline]
    pub fn is_immovable(&self, body: u32) -> bool {
        self.inverse_mass[body as usize] == 0.0
            && self.inverse_inertia[body as usize].apply(DVec3::ONE) == DVec3::ZERO
    }
}
