//! The parts that both layouts of bonds share.

use std::borrow::Cow;
use std::ops::Range;

use amalgam_particles::DVec3;
use rayon::prelude::*;

use crate::chunks::{CHUNK, CHUNKS_PER_TASK};
use crate::linear::fixed::operand_scale;
use crate::linear::vectors::{Slice, Vector};

/// Lengths are whole numbers of quanta in the hot loops: this many a spacing. The difference of two positions
/// is exact then, wherever the body is, up to 128 spacings; and forces are the same to the bit if a body
/// moves by whole quanta.
pub(crate) const QUANTA: f64 = (1 << 24) as f64;

/// A bond, seen from one end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bond {
    /// The other end, by index in the body.
    pub(crate) neighbour: u32,
    /// Length without force, in spacings.
    pub(crate) rest: f64,
    /// Stiffness, of the body's unit.
    pub(crate) stiffness: f64,
}

/// A bond that breaks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Broken {
    /// Its ends, by index in the body, the lower one first.
    pub(crate) ends: [u32; 2],
    /// Its force on the first end, in unit stiffness x quanta.
    pub(crate) force: [f32; 3],
}

/// The result of a pass over all bonds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pass {
    /// Energy, in unit stiffness x quanta^2.
    pub(crate) energy: f64,
    /// Bonds that broke.
    pub(crate) broken: Vec<Broken>,
}

/// The bonds of one body. Particles are counted from 0 in the body; forces are in unit stiffness x quanta.
///
/// Rows store each bond at both of its ends, so that a particle only gathers, and both ends come to the same
/// numbers: a difference has the same magnitude from either side. Lattices compute each bond once for both.
pub(crate) trait BondTable: Send + Sync {
    /// Takes positions [m].
    fn load_positions(&mut self, position: &[DVec3]);

    /// Forces at the positions. With `thresholds`, the largest double strain (`stretch.rs`) of each
    /// particle's bonds, a bond above that of either end breaks first and has no force; the number beside
    /// them is the least of them.
    fn forces(&mut self, thresholds: Option<(&[f32], f32)>) -> Pass;

    /// Takes the positions [m], those of [`Self::load_positions`], once more, as products with rounded
    /// vectors want them.
    fn round_positions(&mut self, _position: &[DVec3]) {}

    /// Diagonal blocks of the stiffness at the positions.
    fn update_diagonal(&mut self);

    /// Multiplies the stiffness at the positions with `u`, in which the body's particles begin at `first`;
    /// the unit of [`Self::product`] that comes out. With a rounded `u` the stiffness is rounded too, to the
    /// sixth digit, and [`Self::round_positions`] and [`Self::update_diagonal`] come first. If `wanted` is
    /// given, only rows matter in slices of the solver's particles for which it is true.
    fn multiply(&mut self, u: Vector<'_>, first: usize, wanted: Option<&[bool]>) -> f64;

    /// Force on particle `i`, and the least double strain of its bonds, infinite without any; of use only if
    /// the law lets thresholds rise.
    fn force(&self, i: usize) -> ([f32; 3], f32);

    /// Forces on all particles, times `unit`.
    fn set_forces(&self, unit: f64, force: &mut [DVec3]) {
        force.par_iter_mut().enumerate().with_min_len(CHUNK * CHUNKS_PER_TASK).for_each(|(i, force)| {
            *force = vector(self.force(i).0) * unit;
        });
    }

    /// Diagonal block of particle `i`: xx, yy, zz, yz, xz, xy.
    fn block(&self, i: usize) -> [f32; 6];

    /// Row `i` of the last product, in the unit it came with.
    fn product(&self, i: usize) -> [f32; 3];

    /// Adds the rows of the last product from `first` on times `unit` to `image`.
    fn add_exact_products(&self, first: usize, unit: f64, image: &mut [DVec3]) {
        for (i, image) in (first..).zip(image) {
            *image += vector(self.product(i)) * unit;
        }
    }

    /// Adds these rows of the last product times `unit` to `image`, where they begin at particle `at`.
    fn add_products(&self, rows: Range<usize>, unit: f32, image: &mut [Slice], at: usize);

    /// True if a live bond joins two particles.
    fn joined(&self, i: usize, j: usize) -> bool;

    /// Visits the live bonds of particle `i`.
    fn visit(&self, i: usize, visit: &mut dyn FnMut(Bond));

    /// Takes bonds of particle `i` out for which `cut` says so; asked from both ends.
    fn cut(&mut self, i: usize, cut: &dyn Fn(u32) -> bool);

    /// Sets the factors by which particles' bonds are strengthened; a bond takes the mean of its ends'.
    fn set_corrections(&mut self, corrections: &[f32]);

    /// A bit for each bond, set while it lives, in an order of the layout's own.
    fn live(&self) -> Cow<'_, [u16]>;

    /// Restores the bits of [`Self::live`].
    fn set_live(&mut self, live: &[u16]);

    /// Bytes held.
    fn bytes(&self) -> usize;
}

pub(super) fn vector(v: [f32; 3]) -> DVec3 {
    DVec3::from_array(v.map(f64::from))
}

/// The factor that brings the components of `u` into 30 bits.
pub(super) fn scale_of(u: &[DVec3]) -> f64 {
    let largest = u.par_iter().with_min_len(4096).map(|u| u.abs().max_element());
    operand_scale(largest.reduce(|| 0.0, f64::max))
}
