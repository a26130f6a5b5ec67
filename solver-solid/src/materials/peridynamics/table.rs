//! The parts that both layouts of bonds share.

use std::borrow::Cow;
use std::ops::Range;

use amalgam_particles::DVec3;
use amalgam_particles::lanes::LANES;
use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;

use crate::chunks::{CHUNK, CHUNKS_PER_TASK};
use crate::linear::partition::Partition;
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

/// The part of a body that a rank computes, and where it finds the values of particles. Particles are counted
/// from 0 in the body.
#[derive(Clone, Debug, Default)]
pub(crate) struct BodyPart {
    /// The particles that this rank has.
    pub(crate) own: Range<usize>,
    /// The row of the first of them.
    pub(crate) row: usize,
    /// Particles whose values this rank holds, in runs, each with the place of its first particle.
    pub(crate) held: Vec<(Range<usize>, usize)>,
}

impl BodyPart {
    /// A body of so many particles that is whole, from this row on.
    pub(crate) fn whole(count: usize, row: usize) -> Self {
        Self { own: 0..count, row, held: vec![(0..count, row)] }
    }

    /// This rank's part of the particles from `first` on.
    pub(crate) fn new(partition: &Partition, first: usize, count: usize) -> Self {
        let rows = partition.own();
        let inside = |i: usize| i.clamp(first, first + count);
        let own = inside(rows.start) - first..inside(rows.end) - first;
        let mut held: Vec<(Range<usize>, usize)> = Vec::new();
        for i in 0..count {
            let Some(place) = partition.place(first + i).map(|place| place as usize) else { continue };
            match held.last_mut() {
                Some((run, start)) if run.end == i && *start + run.len() == place => run.end += 1,
                _ => held.push((i..i + 1, place)),
            }
        }
        let row = inside(rows.start).saturating_sub(rows.start).min(rows.len());
        Self { own, row, held }
    }

    /// The place of a particle, if its value is held.
    pub(crate) fn place(&self, i: usize) -> Option<usize> {
        let run = self.held.partition_point(|(run, _)| run.end <= i);
        let (run, place) = self.held.get(run).filter(|(run, _)| run.contains(&i))?;
        Some(place + (i - run.start))
    }

    /// True if `wanted` is true for the slice of rows in which a particle of this rank is.
    pub(crate) fn is_wanted(&self, wanted: &[bool], i: usize) -> bool {
        self.own.contains(&i) && wanted[(self.row + i - self.own.start) / LANES]
    }
}

/// A bond that breaks.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Broken {
    /// Its ends, by index in the body, the lower one first.
    pub(crate) ends: [u32; 2],
    /// Its force on the first end, in unit stiffness x quanta.
    pub(crate) force: [f32; 3],
}

/// The bonds of one body. Particles are counted from 0 in the body; forces are in unit stiffness x quanta.
///
/// Rows store each bond at both of its ends, so that a particle only gathers, and both ends come to the same
/// numbers: a difference has the same magnitude from either side. Lattices compute each bond once for both.
///
/// All ranks have the layout of the whole body and know which bonds live. Each computes the rows of its own
/// particles only, and what is stored beside them is of use at these rows only.
pub(crate) trait BondTable: Send + Sync {
    /// Marks the particles whose values the rows of these particles read.
    fn mark_read(&self, own: Range<usize>, mark: &mut dyn FnMut(Range<usize>));

    /// Computes only the rows of this part from here on.
    fn share(&mut self, share: &BodyPart);

    /// Takes positions [m].
    fn load_positions(&mut self, position: &[DVec3]);

    /// Forces at the positions. `thresholds` holds the largest double strain (`stretch.rs`) that the bonds of
    /// each particle bear, and the smallest of these. A bond above the threshold of either end breaks first
    /// and has no force. Returns the bonds that broke at rows that are computed.
    fn forces(&mut self, thresholds: Option<(&[f32], f32)>) -> Vec<Broken>;

    /// Bonds that break at once stand in the order of this number of their first ends, and bonds of one first
    /// end as [`Self::forces`] returns them.
    fn breaking_order(&self, i: usize) -> u64;

    /// Breaks a bond, if it lives.
    fn break_bond(&mut self, ends: [u32; 2]);

    /// The particle against which rounded positions are measured.
    fn origin(&self) -> usize;

    /// Stores the positions given to [`Self::load_positions`] [m] relative to `origin`, the position of
    /// [`Self::origin`], for products with rounded vectors.
    fn round_positions(&mut self, position: &[DVec3], origin: DVec3);

    /// Diagonal blocks of the stiffness at the positions.
    fn update_diagonal(&mut self);

    /// Multiplies the stiffness at the positions with `u`, which has a value per place; an exact one is
    /// rounded to whole numbers after multiplication by `scale`. With a rounded `u` the stiffness is rounded
    /// too, to the sixth digit, and [`Self::round_positions`] and [`Self::update_diagonal`] come first. If
    /// `wanted` is given, only rows matter in slices of the solver's rows for which it is true.
    fn multiply(&mut self, u: Vector<'_>, scale: f64, wanted: Option<&[bool]>);

    /// Half of the energy of the bonds of particle `i`, or, on a lattice, the energy of its bonds to higher
    /// particles, in unit stiffness x quanta^2.
    fn energy(&self, i: usize) -> f64;

    /// Force on particle `i`, and the least double strain of its bonds, infinite without any; of use only if
    /// the law lets thresholds rise.
    fn force(&self, i: usize) -> ([f32; 3], f32);

    /// Forces on the particles from `first` on, times `unit`.
    fn set_forces(&self, first: usize, unit: f64, force: &mut [DVec3]) {
        force.par_iter_mut().enumerate().with_min_len(CHUNK * CHUNKS_PER_TASK).for_each(|(i, force)| {
            *force = vector(self.force(first + i).0) * unit;
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

/// The largest component of a vector, by magnitude.
pub(super) fn largest(u: &[DVec3]) -> f64 {
    u.par_iter().with_min_len(4096).map(|u| u.abs().max_element()).reduce(|| 0.0, f64::max)
}
