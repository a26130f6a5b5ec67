//! Bonds of a body whose particles lie on a simple cubic lattice.
//!
//! Sites are numbered along the lattice with margins as wide as the horizon, so that one *stencil*, a step
//! from a site to a neighbour of higher number, is one shift of the number for all sites. Sixteen consecutive
//! sites are a block; a block and a stencil share a word of sixteen live bits, and that is all that is
//! stored: rest length, direction and stiffness are the stencil's. Each bond is computed once, from its lower
//! end, and added to both (`columns.rs`). Positions are kept as displacements from a lattice without strain,
//! in whole quanta: a difference of displacements is exact, and the double strain follows from it without
//! cancellation, `l^2 - L^2 = eta·(2 xi + eta)` with the lattice's vector xi and the difference eta of
//! displacements.

mod coefficient;
mod columns;
mod forces;
mod kernels;
mod product;
mod sites;
mod stencil;
mod stiffness;

use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::Range;

use amalgam_particles::DVec3;
use amalgam_particles::lanes::LANES;
use rayon::prelude::*;

use super::cubic::Lattice;
use super::law::Law;
use super::table::{BodyPart, Bond, BondTable, Broken, QUANTA, vector};
use super::variants::{LeastIgnored, LeastRecorded, LeastStrain};
use crate::chunks::{CHUNK, CHUNKS_PER_TASK};
use crate::linear::fixed::{quantise, whole};
use crate::linear::vectors::{Slice, Vector};
use coefficient::RelativeCoefficient;
use columns::{SiteColumns, Sums};
use forces::{ForceTerm, Thresholds};
use kernels::{BondTerm as _, StencilGeometry, add_block};
use product::{ExactBonds, ProductTerm, RoundedBonds};
use sites::{Sites, VACANT};
use stencil::Stencil;
use stiffness::DiagonalTerm;

/// See the module.
pub(crate) struct LatticeTable {
    /// Quanta in a metre.
    quanta_per_metre: f64,
    /// Position of each particle in the unstrained lattice [m].
    ideal: Vec<DVec3>,
    sites: Sites,
    /// A word per stencil of each block.
    live: Vec<u16>,
    /// For each block, true if it has bonds for which the series does not hold (`stretch.rs`).
    far: Vec<bool>,
    /// Half of each site's correction; empty without corrections.
    half_correction: Vec<f32>,
    /// True if the least double strain of bonds is asked for.
    thresholds_rise: bool,
    displacement: SiteColumns<i32, 3>,
    /// Against the particle in the middle of the order, in spacings, for rounded products.
    position: SiteColumns<f32, 3>,
    operand: SiteColumns<i32, 3>,
    /// Force, least double strain, and twice the energy of the bonds to neighbours of higher number.
    force: Sums<5>,
    diagonal: Option<Sums<6>>,
    /// Coefficients beside each live word, computed when the operator is first needed.
    coefficient: Vec<[RelativeCoefficient; LANES]>,
    image: Sums<3>,
}

/// Columns that are read in loops that add to others.
const READ: usize = 9;

impl LatticeTable {
    /// All bonds of a body. Points must be in the order of [`Lattice::key`].
    pub(crate) fn new(lattice: &Lattice, law: &Law) -> Self {
        let sites = Sites::new(lattice, law);
        let (total, blocks, cut) = (sites.particle.len(), sites.block_site.len(), sites.cut);
        let mut this = Self {
            quanta_per_metre: QUANTA / law.spacing,
            ideal: ideal(lattice),
            live: vec![0; blocks * sites.stencils.len()],
            far: vec![false; blocks],
            force: Sums::new(cut, READ),
            diagonal: None,
            coefficient: Vec::new(),
            image: Sums::new(cut, READ),
            half_correction: Vec::new(),
            thresholds_rise: law.threshold_rise != 0.0,
            displacement: SiteColumns::new(total, 0),
            position: SiteColumns::new(total, 3),
            operand: SiteColumns::new(total, 6),
            sites,
        };
        this.join_all();
        this
    }

    /// Sets the bit of every bond whose ends both hold a particle.
    fn join_all(&mut self) {
        let Sites { particle, stencils, block_site, .. } = &self.sites;
        self.live.par_chunks_mut(stencils.len().max(1)).zip(block_site).for_each(|(live, &site)| {
            for (live, stencil) in live.iter_mut().zip(stencils) {
                for lane in 0..LANES {
                    let own = site as usize + lane;
                    if particle[own] != VACANT && particle[own + stencil.shift] != VACANT {
                        *live |= 1 << lane;
                    }
                }
            }
        });
    }

    /// Stiffness of a bond from `site`, of the body's unit.
    fn stiffness(&self, stencil: &Stencil, site: usize) -> f32 {
        match self.half_correction.as_slice() {
            [] => stencil.stiffness,
            correction => stencil.stiffness * (correction[site] + correction[site + stencil.shift]),
        }
    }

    /// The data around a block.
    fn geometry(&self, block: usize) -> StencilGeometry<'_> {
        StencilGeometry {
            site: self.sites.block_site[block] as usize,
            from: self.sites.from,
            stencils: &self.sites.stencils,
            displacement: self.displacement.all(),
            half_correction: &self.half_correction,
        }
    }

    /// Index of the live word of the bond that leaves this site for a neighbour of higher number, if it
    /// lives.
    fn live_word(&self, site: usize, stencil: usize) -> Option<usize> {
        self.sites.word(site, stencil).filter(|&word| self.live[word] >> (site % LANES) & 1 != 0)
    }

    /// Moves a vector to the sites that are `read`, as [`BondTable::multiply`] takes it: whole numbers of
    /// an exact one, the bits of a rounded one.
    fn load_operand(&mut self, u: Vector<'_>, scale: f64, read: Option<&[bool]>) {
        let Self { sites, operand, .. } = self;
        // The places of neighbours follow each other, like those of particles that are read.
        let at = sites.local.start;
        let place = sites.share.place(at).unwrap_or_default();
        match u {
            Vector::Exact(u) => {
                sites.scatter(operand, read, |i| (u[place + (i - at)] * scale).to_array().map(whole));
            }
            Vector::Rounded(u) => {
                sites.scatter(operand, read, |i| u.get(place + (i - at)).map(|u| u.to_bits() as i32));
            }
        }
    }

    /// Computes [`BondTable::forces`], with the least double strains or without.
    fn forces_with<M: LeastStrain>(&mut self, thresholds: Option<(&[f32], f32)>) -> Vec<Broken> {
        let (mut live, mut far) = (std::mem::take(&mut self.live), std::mem::take(&mut self.far));
        let mut force = std::mem::take(&mut self.force);
        let stencils = self.sites.stencils.len();
        let live_of = by_task(&self.sites.task, stencils, &mut live);
        let far_of = by_task(&self.sites.task, 1, &mut far);
        let items = self.sites.tasks().zip(live_of).zip(far_of);
        let items = items
            .map(|(((start, blocks), live), far)| (!blocks.is_empty()).then_some((start, blocks, live, far)));
        let thresholds =
            thresholds.map(|(of, least)| Thresholds { of, least, particle: &self.sites.particle });
        type Item<'a> = (usize, Range<usize>, &'a mut [u16], &'a mut [bool]);
        let add = |(start, blocks, live, far): Item<'_>, mut sums: [&mut [f32]; 5]| {
            let mut broken = Vec::new();
            for ((block, live), far) in blocks.zip(live.chunks_mut(stencils.max(1))).zip(far) {
                let geometry = self.geometry(block);
                let (is_far, broken) = (false, &mut broken);
                let term =
                    ForceTerm::<M> { variant: PhantomData, geometry, live, thresholds, is_far, broken };
                *far = add_block(term, geometry, false, start, &mut sums).is_far;
            }
            broken.sort_unstable_by_key(|bond: &Broken| bond.ends);
            broken
        };
        let broken = force.collect(ForceTerm::<M>::NONE, ForceTerm::<M>::with, items.collect(), add);
        (self.live, self.far, self.force) = (live, far, force);
        broken.concat()
    }
}

/// Cuts a column of `each` values per block into tasks.
fn by_task<'a, T>(task: &[usize], each: usize, values: &'a mut [T]) -> Vec<&'a mut [T]> {
    let mut values = &mut values[task[0] * each..];
    let cut = |of: &[usize]| {
        let (own, rest) = std::mem::take(&mut values).split_at_mut((of[1] - of[0]) * each);
        values = rest;
        own
    };
    task.windows(2).map(cut).collect()
}

/// Positions of the lattice's points [m].
fn ideal(lattice: &Lattice) -> Vec<DVec3> {
    let cells = lattice.cells.par_iter().with_min_len(4096);
    cells
        .map(|cell| (0..3).fold(lattice.origin, |at, axis| at + lattice.steps[axis] * f64::from(cell[axis])))
        .collect()
}

impl BondTable for LatticeTable {
    fn mark_read(&self, own: Range<usize>, mark: &mut dyn FnMut(Range<usize>)) {
        mark(self.sites.read_by_rows(&own));
    }

    fn share(&mut self, share: &BodyPart) {
        self.sites.share(share);
    }

    fn load_positions(&mut self, position: &[DVec3]) {
        let Self { sites, displacement, ideal, quanta_per_metre, .. } = self;
        sites.scatter(displacement, None, |i| {
            (position[i] - ideal[i]).to_array().map(|length| quantise(length, *quanta_per_metre))
        });
    }

    fn origin(&self) -> usize {
        self.sites.place.len() / 2
    }

    fn round_positions(&mut self, position: &[DVec3], origin: DVec3) {
        let per_spacing = self.quanta_per_metre / QUANTA;
        self.sites.scatter(&mut self.position, None, |i| {
            ((position[i] - origin) * per_spacing).to_array().map(|length| length as f32)
        });
    }

    fn breaking_order(&self, i: usize) -> u64 {
        // Tasks one after the other, and in a task by the first end.
        (self.sites.cut.task(self.sites.site(i)) as u64) << 32 | i as u64
    }

    fn break_bond(&mut self, [i, j]: [u32; 2]) {
        let [lower, upper] = [i, j].map(|i| self.sites.site(i as usize));
        let stencil = self.sites.stencil(upper - lower);
        if let Some(word) = stencil.and_then(|stencil| self.live_word(lower, stencil)) {
            self.live[word] &= !(1 << (lower % LANES));
        }
    }

    fn energy(&self, i: usize) -> f64 {
        let [.., twice] = self.force.at(self.sites.place[i] as usize);
        0.5 * f64::from(twice)
    }

    fn forces(&mut self, thresholds: Option<(&[f32], f32)>) -> Vec<Broken> {
        match self.thresholds_rise {
            true => self.forces_with::<LeastRecorded>(thresholds),
            false => self.forces_with::<LeastIgnored>(thresholds),
        }
    }

    fn update_diagonal(&mut self) {
        let mut diagonal = self.diagonal.take().unwrap_or_else(|| Sums::new(self.sites.cut, READ));
        let mut all = std::mem::take(&mut self.coefficient);
        if all.len() != self.live.len() {
            all = vec![[0; LANES]; self.live.len()];
        }
        let stencils = self.sites.stencils.len();
        let items = self.sites.tasks().zip(by_task(&self.sites.task, stencils, &mut all));
        let items = items.map(|item| (!item.0.1.is_empty()).then_some(item));
        type Item<'a> = ((usize, Range<usize>), &'a mut [[RelativeCoefficient; LANES]]);
        let add = |((start, blocks), coefficient): Item<'_>, mut sums: [&mut [f32]; 6]| {
            for (block, coefficient) in blocks.zip(coefficient.chunks_mut(stencils.max(1))) {
                let geometry = self.geometry(block);
                let live = &self.live[self.sites.words(block)];
                let term = DiagonalTerm { geometry, live, coefficient };
                add_block(term, geometry, self.far[block], start, &mut sums);
            }
        };
        diagonal.collect(DiagonalTerm::NONE, DiagonalTerm::with, items.collect(), add);
        (self.diagonal, self.coefficient) = (Some(diagonal), all);
    }

    /// [`ProductTerm`] has the mathematics of a bond, and [`add_block`] chooses its copy for each block.
    fn multiply(&mut self, u: Vector<'_>, scale: f64, wanted: Option<&[bool]>) {
        let is_rounded = matches!(u, Vector::Rounded(_));
        let adding = wanted.map(|wanted| self.sites.adding(wanted));
        let read = adding.as_ref().map(|adding| self.sites.read_by(adding));
        self.load_operand(u, scale, read.as_deref());
        let mut image = std::mem::take(&mut self.image);
        let is_adding = |block: usize| adding.as_ref().is_none_or(|adding| adding[block]);
        let items = self.sites.tasks().map(|(start, blocks)| {
            let any = blocks.clone().any(is_adding);
            any.then_some((start, blocks))
        });
        let (operand, position) = (self.operand.all(), self.position.all());
        let add = |(start, blocks): (usize, Range<usize>), mut sums: [&mut [f32]; 3]| {
            for block in blocks.filter(|&block| is_adding(block)) {
                let (geometry, words) = (self.geometry(block), self.sites.words(block));
                let any_strain = self.far[block];
                let live = &self.live[words.clone()];
                if is_rounded {
                    let coefficient = &self.coefficient[words];
                    let bonds = RoundedBonds { geometry, coefficient, position, operand };
                    add_block(ProductTerm { bonds, live }, geometry, any_strain, start, &mut sums);
                } else {
                    let bonds = ExactBonds { geometry, operand };
                    add_block(ProductTerm { bonds, live }, geometry, any_strain, start, &mut sums);
                }
            }
        };
        type Product<'a> = ProductTerm<'a, ExactBonds<'a>>;
        image.collect(Product::NONE, Product::with, items.collect(), add);
        self.image = image;
    }

    fn force(&self, i: usize) -> ([f32; 3], f32) {
        let [x, y, z, least, _] = self.force.at(self.sites.place[i] as usize);
        ([x, y, z], least)
    }

    fn set_forces(&self, first: usize, unit: f64, force: &mut [DVec3]) {
        let [x, y, z, ..] = self.force.all();
        let particles =
            force.par_iter_mut().zip(&self.sites.place[first..]).with_min_len(CHUNK * CHUNKS_PER_TASK);
        particles.for_each(|(force, &place)| {
            let place = place as usize;
            *force = vector([x[place], y[place], z[place]]) * unit;
        });
    }

    fn block(&self, i: usize) -> [f32; 6] {
        self.diagonal.as_ref().map_or([0.0; 6], |diagonal| diagonal.at(self.sites.place[i] as usize))
    }

    fn product(&self, i: usize) -> [f32; 3] {
        self.image.at(self.sites.place[i] as usize)
    }

    fn add_exact_products(&self, first: usize, unit: f64, image: &mut [DVec3]) {
        let [x, y, z] = self.image.all();
        for (image, &place) in image.iter_mut().zip(&self.sites.place[first..]) {
            let place = place as usize;
            *image += vector([x[place], y[place], z[place]]) * unit;
        }
    }

    fn add_products(&self, rows: Range<usize>, unit: f32, image: &mut [Slice], at: usize) {
        let product = self.image.all();
        for (i, at) in rows.zip(at..) {
            let place = self.sites.place[i] as usize;
            for axis in 0..3 {
                image[at / LANES][axis][at % LANES] += product[axis][place] * unit;
            }
        }
    }

    fn joined(&self, i: usize, j: usize) -> bool {
        let (lower, upper) = (self.sites.site(i.min(j)), self.sites.site(i.max(j)));
        let stencil = self.sites.stencil(upper - lower);
        stencil.is_some_and(|stencil| self.live_word(lower, stencil).is_some())
    }

    fn visit(&self, i: usize, visit: &mut dyn FnMut(Bond)) {
        let site = self.sites.site(i);
        for (index, stencil) in self.sites.stencils.iter().enumerate() {
            let ends = [(site.checked_sub(stencil.shift), false), (Some(site), true)];
            for (lower, is_own) in ends {
                let Some(lower) = lower.filter(|&lower| self.live_word(lower, index).is_some()) else {
                    continue;
                };
                visit(Bond {
                    neighbour: self.sites.particle[if is_own { lower + stencil.shift } else { lower }],
                    rest: f64::from(stencil.rest_square).sqrt() / QUANTA,
                    stiffness: f64::from(self.stiffness(stencil, lower)),
                });
            }
        }
    }

    fn cut(&mut self, i: usize, cut: &dyn Fn(u32) -> bool) {
        // From the lower end alone: the other is asked, too.
        let site = self.sites.site(i);
        for index in 0..self.sites.stencils.len() {
            if let Some(word) = self.live_word(site, index)
                && cut(self.sites.particle[site + self.sites.stencils[index].shift])
            {
                self.live[word] &= !(1 << (site % LANES));
            }
        }
    }

    fn set_corrections(&mut self, corrections: &[f32]) {
        self.half_correction = vec![0.5; self.sites.particle.len()];
        for (i, correction) in corrections.iter().enumerate() {
            let site = self.sites.site(i);
            self.half_correction[site] = 0.5 * correction;
        }
    }

    fn live(&self) -> Cow<'_, [u16]> {
        Cow::Borrowed(&self.live)
    }

    fn set_live(&mut self, live: &[u16]) {
        self.live.copy_from_slice(live);
    }

    fn bytes(&self) -> usize {
        self.live.len() * 2
            + self.coefficient.len() * size_of::<[RelativeCoefficient; LANES]>()
            + self.half_correction.len() * 4
            + self.displacement.bytes()
            + self.position.bytes()
            + self.operand.bytes()
            + self.force.bytes()
            + self.diagonal.as_ref().map_or(0, Sums::bytes)
            + self.image.bytes()
            + self.far.len()
            + self.ideal.len() * size_of::<DVec3>()
            + self.sites.bytes()
    }
}

#[cfg(test)]
mod tests;
