//! The state of particles as columns, and its checks.

use std::collections::HashSet;

use glam::DVec3;
use rayon::prelude::*;

use crate::grid::POSITION_LIMIT;
use crate::id::ParticleId;
use crate::reduce;
use crate::text::{number, vector};

/// Every component of a velocity is smaller than this [m/s]: in a second, a particle of this speed covers the
/// distance [`POSITION_LIMIT`].
pub const SPEED_LIMIT: f64 = 1e12;

/// Smallest and largest mass of a particle [kg]: below an electron's and above a galaxy's. Within this range,
/// squares of momenta and their sums over all particles are finite in f64.
pub const MASS_RANGE: (f64, f64) = (1e-50, 1e50);

/// Smallest and largest radius of a particle [m]. The square of speed / radius is finite in f64, and no
/// radius exceeds the limit of positions.
pub const RADIUS_RANGE: (f64, f64) = (1e-30, POSITION_LIMIT);

/// Every component of a momentum or an impulse is smaller than this [kg m/s]: the largest mass at the largest
/// speed.
pub const MOMENTUM_LIMIT: f64 = MASS_RANGE.1 * SPEED_LIMIT;

/// True if a mass [kg] is within [`MASS_RANGE`].
pub fn is_mass(mass: f64) -> bool {
    (MASS_RANGE.0..=MASS_RANGE.1).contains(&mass)
}

/// True if a radius [m] is within [`RADIUS_RANGE`].
pub fn is_radius(radius: f64) -> bool {
    (RADIUS_RANGE.0..=RADIUS_RANGE.1).contains(&radius)
}

/// [`MASS_RANGE`] in words.
pub const MASS_RULE: &str = "positive, from 1e-50 to 1e50 kg";

/// [`RADIUS_RANGE`] in words.
pub const RADIUS_RULE: &str = "positive, from 1e-30 to 1e12 m";

/// The state of a participant's particles, a column per field, all of the same length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Particles {
    /// Stable id, unique inside the participant.
    pub id: Vec<ParticleId>,
    /// Position [m].
    pub position: Vec<DVec3>,
    /// Velocity [m/s].
    pub velocity: Vec<DVec3>,
    /// Mass [kg]. Immovable particles have one too; contacts treat it as infinite.
    pub mass: Vec<f64>,
    /// Collision radius [m].
    pub radius: Vec<f64>,
    /// Pinned or moved by a script: no contact and no force changes its velocity.
    pub immovable: Vec<bool>,
}

/// A fault of a table of particles.
#[derive(Debug, thiserror::Error, PartialEq)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ParticlesError {
    #[error("column {column} holds {got} values for {expected} particles")]
    Length { column: &'static str, got: usize, expected: usize },
    #[error("particle {id}: {what} is {value}, but must be {rule}")]
    Value { id: ParticleId, what: &'static str, value: String, rule: &'static str },
    #[error("particle id {0} stands twice")]
    Duplicate(ParticleId),
    #[error("particle id {0} is not below 2^48")]
    IdTooLarge(ParticleId),
}

impl Particles {
    /// Number of particles.
    pub fn len(&self) -> usize {
        self.id.len()
    }

    /// True if there is no particle.
    pub fn is_empty(&self) -> bool {
        self.id.is_empty()
    }

    /// Makes room for further particles.
    pub fn reserve(&mut self, count: usize) {
        let Self { id, position, velocity, mass, radius, immovable } = self;
        id.reserve_exact(count);
        position.reserve_exact(count);
        velocity.reserve_exact(count);
        mass.reserve_exact(count);
        radius.reserve_exact(count);
        immovable.reserve_exact(count);
    }

    /// Appends one particle.
    pub fn push(
        &mut self,
        id: ParticleId,
        position: DVec3,
        velocity: DVec3,
        mass: f64,
        radius: f64,
        immovable: bool,
    ) {
        self.id.push(id);
        self.position.push(position);
        self.velocity.push(velocity);
        self.mass.push(mass);
        self.radius.push(radius);
        self.immovable.push(immovable);
    }

    /// Appends particles, in their order.
    pub fn append(&mut self, mut others: Self) {
        self.id.append(&mut others.id);
        self.position.append(&mut others.position);
        self.velocity.append(&mut others.velocity);
        self.mass.append(&mut others.mass);
        self.radius.append(&mut others.radius);
        self.immovable.append(&mut others.immovable);
    }

    /// Puts particles into another order: the first one is then `order[0]`, and so on. None stands there twice.
    /// Particles that are not in the order are dropped.
    ///
    /// # Panics
    /// If an index is out of range.
    pub fn reorder(&mut self, order: &[u32]) {
        fn reorder<T: Copy + Send + Sync>(column: &mut Vec<T>, order: &[u32]) {
            *column = order.par_iter().with_min_len(reduce::CHUNK).map(|&i| column[i as usize]).collect();
        }
        // Axis after axis, since a copy of a whole column would be the largest part of a solver's memory that is
        // needed for a moment only.
        fn reorder_vectors(column: &mut Vec<DVec3>, order: &[u32]) {
            let mut ordered = Vec::new();
            for axis in 0..3 {
                let values = order.par_iter().with_min_len(reduce::CHUNK).map(|&i| column[i as usize][axis]);
                values.collect_into_vec(&mut ordered);
                let places = column.par_iter_mut().with_min_len(reduce::CHUNK).zip(&ordered);
                places.for_each(|(vector, &value)| vector[axis] = value);
            }
            column.truncate(order.len());
            column.shrink_to(2 * order.len());
        }
        let Self { id, position, velocity, mass, radius, immovable } = self;
        reorder(id, order);
        reorder_vectors(position, order);
        reorder_vectors(velocity, order);
        reorder(mass, order);
        reorder(radius, order);
        reorder(immovable, order);
    }

    /// Checks lengths, ids (unique, below 2^48) and values (positions within the limit of the cell grid,
    /// velocities within [`SPEED_LIMIT`], mass and radius within [`MASS_RANGE`] and [`RADIUS_RANGE`]).
    ///
    /// # Errors
    /// The first fault found, with the particle's id.
    pub fn validate(&self) -> Result<(), ParticlesError> {
        let expected = self.len();
        let lengths = [
            ("position", self.position.len()),
            ("velocity", self.velocity.len()),
            ("mass", self.mass.len()),
            ("radius", self.radius.len()),
            ("immovable", self.immovable.len()),
        ];
        for (column, got) in lengths {
            if got != expected {
                return Err(ParticlesError::Length { column, got, expected });
            }
        }
        let mut seen = HashSet::with_capacity(expected);
        for (i, &id) in self.id.iter().enumerate() {
            if id.0 >= ParticleId::LIMIT {
                return Err(ParticlesError::IdTooLarge(id));
            }
            if !seen.insert(id) {
                return Err(ParticlesError::Duplicate(id));
            }
            let fault = |what, value: String, rule| Err(ParticlesError::Value { id, what, value, rule });
            let (x, v) = (self.position[i], self.velocity[i]);
            if !x.is_finite() || x.abs().max_element() >= POSITION_LIMIT {
                return fault("position", vector(x), "finite and within 1e12 m of the origin");
            }
            if !v.abs().cmplt(DVec3::splat(SPEED_LIMIT)).all() {
                return fault("velocity", vector(v), "finite and below 1e12 m/s");
            }
            if !is_mass(self.mass[i]) {
                return fault("mass", number(self.mass[i]), MASS_RULE);
            }
            if !is_radius(self.radius[i]) {
                return fault("radius", number(self.radius[i]), RADIUS_RULE);
            }
        }
        Ok(())
    }
}
