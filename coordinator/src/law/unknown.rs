//! Unknowns of a contact: a vector, and a second one where bodies resist rolling.

use std::marker::PhantomData;
use std::ops::{Add, Mul, Sub};

use amalgam_particles::{DVec3, lanes::LANES};

/// Impulse of a contact [kg m/s], or relative velocity [m/s]: a vector, and a second one where bodies resist
/// rolling. The second one is a couple over the lever, or an angular velocity times the lever. It is
/// orthogonal to the normal.
pub(crate) trait Unknown:
    Copy + Default + Send + Sync + Add<Output = Self> + Sub<Output = Self> + Mul<f64, Output = Self>
{
    /// True if the unknown has the second vector.
    const ROLLING: bool;

    /// The unknown with both vectors.
    fn new(linear: DVec3, rolling: DVec3) -> Self;

    /// The first vector.
    fn linear(self) -> DVec3;

    /// The second vector.
    fn rolling(self) -> DVec3;
}

impl Unknown for DVec3 {
    const ROLLING: bool = false;

    #[inline(always)]
    fn new(linear: DVec3, _: DVec3) -> Self {
        linear
    }

    #[inline(always)]
    fn linear(self) -> DVec3 {
        self
    }

    #[inline(always)]
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

    #[inline(always)]
    fn new(linear: DVec3, rolling: DVec3) -> Self {
        Self { linear, rolling }
    }

    #[inline(always)]
    fn linear(self) -> DVec3 {
        self.linear
    }

    #[inline(always)]
    fn rolling(self) -> DVec3 {
        self.rolling
    }
}

impl Add for Rolling {
    type Output = Self;

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self { linear: self.linear + other.linear, rolling: self.rolling + other.rolling }
    }
}

impl Sub for Rolling {
    type Output = Self;

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self { linear: self.linear - other.linear, rolling: self.rolling - other.rolling }
    }
}

impl Mul<f64> for Rolling {
    type Output = Self;

    #[inline(always)]
    fn mul(self, factor: f64) -> Self {
        Self { linear: self.linear * factor, rolling: self.rolling * factor }
    }
}

/// Work a . b of an impulse and a velocity [J].
#[inline(always)]
pub(crate) fn work<U: Unknown>(a: U, b: U) -> f64 {
    let linear = a.linear().dot(b.linear());
    if U::ROLLING { linear + a.rolling().dot(b.rolling()) } else { linear }
}

/// Vectors of [`LANES`] contacts side by side.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Vectors([[f64; LANES]; 3]);

impl Vectors {
    #[inline(always)]
    pub(crate) fn set(&mut self, lane: usize, vector: DVec3) {
        (self.0[0][lane], self.0[1][lane], self.0[2][lane]) = (vector.x, vector.y, vector.z);
    }

    #[inline(always)]
    pub(crate) fn get(&self, lane: usize) -> DVec3 {
        DVec3::new(self.0[0][lane], self.0[1][lane], self.0[2][lane])
    }
}

/// Unknowns of [`LANES`] contacts side by side.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unknowns<U> {
    linear: Vectors,
    rolling: Vectors,
    kind: PhantomData<U>,
}

impl<U: Unknown> Unknowns<U> {
    #[inline(always)]
    pub(crate) fn set(&mut self, lane: usize, unknown: U) {
        self.linear.set(lane, unknown.linear());
        if U::ROLLING {
            self.rolling.set(lane, unknown.rolling());
        }
    }

    #[inline(always)]
    pub(crate) fn get(&self, lane: usize) -> U {
        U::new(self.linear.get(lane), if U::ROLLING { self.rolling.get(lane) } else { DVec3::ZERO })
    }
}
