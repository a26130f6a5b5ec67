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
mod kernels;
mod stencil;

use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::Range;

use amalgam_particles::DVec3;
use amalgam_particles::lanes::{self, LANES};
use rayon::prelude::*;

use super::cubic::Lattice;
use super::law::Law;
use super::table::{BodyPart, Bond, BondTable, Broken, QUANTA, vector};
use super::variants::{AnyStrain, Corrected, LeastIgnored, LeastRecorded, SmallStrain, Uncorrected};
use crate::chunks::{CHUNK, CHUNKS_PER_TASK};
use crate::linear::fixed::{quantise, whole};
use crate::linear::vectors::{Slice, Vector};
use coefficient::Coefficient;
use columns::{Cut, SiteColumns, Sums};
use kernels::{
    BondTerm, BothEnds, DiagonalTerm, ForceTerm, ProductTerm, RoundedTerm, StencilGeometry, Thresholds,
};
use stencil::{Stencil, stencils};

/// Marks an empty site, block or shift.
const VACANT: u32 = u32::MAX;

/// See the module.
pub(crate) struct LatticeTable {
    /// Quanta in a metre.
    per_quantum: f64,
    /// Position of each particle in the unstrained lattice [m].
    ideal: Vec<DVec3>,
    cut: Cut,
    share: BodyPart,
    /// Particles whose values the blocks of this rank read.
    local: Range<usize>,
    /// The place of each particle in sums.
    place: Vec<u32>,
    /// First site of each block that holds any particle.
    block_site: Vec<u32>,
    /// The block of each sixteen sites.
    block: Vec<u32>,
    /// First block of each task that this rank computes, and the end.
    task: Vec<usize>,
    /// Particle at each site.
    particle: Vec<u32>,
    stencils: Vec<Stencil>,
    /// The stencil of each shift.
    by_shift: Vec<u32>,
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
    coefficient: Vec<[Coefficient; LANES]>,
    image: Sums<3>,
}

/// Sites that a task moves values to.
const SITES: usize = 64 * LANES;

/// Columns that are read in loops that add to others.
const READ: usize = 9;

impl LatticeTable {
    /// All bonds of a body. Points must be in the order of [`Lattice::key`].
    pub(crate) fn new(lattice: &Lattice, law: &Law) -> Self {
        let reach = law.reach() / law.spacing;
        let margin = lattice.extent.map(|cells| (reach.floor() as i32).min(cells - 1) as usize);
        let row = lattice.extent[0] as usize + margin[0];
        let layer = row * (lattice.extent[1] as usize + margin[1]);
        let site = |cell: &[i32; 3]| cell[0] as usize + row * cell[1] as usize + layer * cell[2] as usize;
        let sites: Vec<usize> = lattice.cells.iter().map(site).collect();
        let stencils = stencils(lattice, law, margin, [1, row as isize, layer as isize]);
        let largest = stencils.iter().map(|stencil| stencil.shift).max().unwrap_or_default();
        let mut by_shift = vec![VACANT; largest + 1];
        (0..).zip(&stencils).for_each(|(index, stencil)| by_shift[stencil.shift] = index);
        let reach = largest + LANES;
        let own = sites.last().map_or(0, |last| last + 1).next_multiple_of(LANES);
        let (total, cut) = (own + reach.next_multiple_of(LANES), Cut::new(own, reach));
        let mut particle = vec![VACANT; total];
        let mut block = vec![VACANT; total / LANES];
        let mut block_site = Vec::new();
        for (i, &site) in sites.iter().enumerate() {
            particle[site] = i as u32;
            if block[site / LANES] == VACANT {
                block[site / LANES] = block_site.len() as u32;
                block_site.push((site / LANES * LANES) as u32);
            }
        }
        let mut this = Self {
            per_quantum: QUANTA / law.spacing,
            ideal: ideal(lattice),
            place: sites.iter().map(|&site| cut.place(site) as u32).collect(),
            share: BodyPart::default(),
            local: 0..0,
            task: Vec::new(),
            live: vec![0; block_site.len() * stencils.len()],
            far: vec![false; block_site.len()],
            force: Sums::new(cut, READ),
            diagonal: None,
            coefficient: Vec::new(),
            image: Sums::new(cut, READ),
            cut,
            block_site,
            block,
            particle,
            stencils,
            by_shift,
            half_correction: Vec::new(),
            thresholds_rise: law.threshold_rise != 0.0,
            displacement: SiteColumns::new(total, 0),
            position: SiteColumns::new(total, 3),
            operand: SiteColumns::new(total, 6),
        };
        this.join_all();
        this.share(&BodyPart::whole(sites.len(), 0));
        this
    }

    /// Largest step to a neighbour, in sites.
    fn reach(&self) -> usize {
        self.by_shift.len() - 1
    }

    /// The blocks that add to the rows of these particles: a sum at a site is that of terms in the order of
    /// blocks, so it needs no others.
    fn blocks_of(&self, own: &Range<usize>) -> Range<usize> {
        if own.is_empty() {
            return 0..0;
        }
        let first = (self.site(own.start) / LANES * LANES).saturating_sub(self.reach() + LANES);
        let end = self.site(own.end - 1) + 1;
        let block = |site: usize| self.block_site.partition_point(|&first| (first as usize) < site);
        block(first)..block(end)
    }

    /// The particles that these blocks read.
    fn read_from(&self, blocks: &Range<usize>) -> Range<usize> {
        if blocks.is_empty() {
            return 0..0;
        }
        let end = self.block_site[blocks.end - 1] as usize + LANES + self.reach();
        let particle =
            |site: usize| self.place.partition_point(|&place| self.cut.site(place as usize) < site);
        particle(self.block_site[blocks.start] as usize)..particle(end)
    }

    /// Sets the bit of every bond whose ends both hold a particle.
    fn join_all(&mut self) {
        let (particle, stencils) = (&self.particle, &self.stencils);
        self.live.par_chunks_mut(stencils.len().max(1)).zip(&self.block_site).for_each(|(live, &site)| {
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

    fn site(&self, i: usize) -> usize {
        self.cut.site(self.place[i] as usize)
    }

    /// Stiffness of a bond from `site`, of the body's unit.
    fn stiffness(&self, stencil: &Stencil, site: usize) -> f32 {
        match self.half_correction.as_slice() {
            [] => stencil.stiffness,
            correction => stencil.stiffness * (correction[site] + correction[site + stencil.shift]),
        }
    }

    fn geometry(&self, block: usize) -> StencilGeometry<'_> {
        StencilGeometry {
            site: self.block_site[block] as usize,
            stencils: &self.stencils,
            displacement: self.displacement.all(),
            half_correction: &self.half_correction,
        }
    }

    /// Words of a block.
    fn words(&self, block: usize) -> Range<usize> {
        block * self.stencils.len()..(block + 1) * self.stencils.len()
    }

    /// Index of the live word of the bond that leaves this site for a neighbour of higher number, if it
    /// lives.
    fn live_word(&self, site: usize, stencil: usize) -> Option<usize> {
        let block = self.block[site / LANES];
        let word = (block != VACANT).then(|| self.words(block as usize).start + stencil)?;
        (self.live[word] >> (site % LANES) & 1 != 0).then_some(word)
    }

    /// First site of each task, and its blocks.
    fn tasks(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        self.cut.starts().zip(self.task.windows(2)).map(|(start, of)| (start, of[0]..of[1]))
    }

    /// Blocks that add to rows in slices of the solver's rows for which `wanted` is true.
    fn adding(&self, wanted: &[bool]) -> Vec<bool> {
        let is_wanted = |&(_, &site): &(usize, &u32)| {
            let mut particles = self.particle[site as usize..][..LANES].iter();
            particles.any(|&i| self.share.is_wanted(wanted, i as usize))
        };
        let blocks = self.block_site.par_iter().enumerate().with_min_len(64).filter(is_wanted);
        let mut adding = vec![false; self.block_site.len()];
        for (block, &site) in blocks.collect::<Vec<_>>() {
            let site = site as usize;
            adding[block] = true;
            for stencil in &self.stencils {
                for from in [site, site + LANES - 1] {
                    let from = from.checked_sub(stencil.shift).map_or(VACANT, |at| self.block[at / LANES]);
                    if from != VACANT {
                        adding[from as usize] = true;
                    }
                }
            }
        }
        adding
    }

    /// For each [`SITES`] sites, true if one of the marked blocks reads any of them.
    fn read_by(&self, adding: &[bool]) -> Vec<bool> {
        let mut read = vec![false; self.particle.len().div_ceil(SITES)];
        for (&site, _) in self.block_site.iter().zip(adding).filter(|(_, adding)| **adding) {
            read[site as usize / SITES] = true;
            for stencil in &self.stencils {
                let there = site as usize + stencil.shift;
                (read[there / SITES], read[(there + LANES - 1) / SITES]) = (true, true);
            }
        }
        read
    }

    /// Writes `value(i)` of every particle that this rank reads to its site, in parallel over chunks of
    /// [`SITES`], or over those that are `read`.
    fn scatter<T: Copy + Default + Send>(
        &self,
        columns: &mut SiteColumns<T, 3>,
        read: Option<&[bool]>,
        value: impl Fn(usize) -> [T; 3] + Sync,
    ) {
        let [x, y, z] = columns.all_mut();
        let [x, y, z] = [x, y, z].map(|column| column.par_chunks_mut(SITES));
        let chunks = (x, y, z, self.particle.par_chunks(SITES)).into_par_iter().enumerate();
        let site = |i: usize| self.cut.site(self.place[i] as usize);
        let local = match self.local.is_empty() {
            true => 0..0,
            false => site(self.local.start) / SITES..site(self.local.end - 1) / SITES + 1,
        };
        let chunks =
            chunks.filter(|&(chunk, _)| local.contains(&chunk) && read.is_none_or(|read| read[chunk]));
        chunks.for_each(|(_, (x, y, z, particle))| {
            for (at, &i) in particle.iter().enumerate() {
                if self.local.contains(&(i as usize)) {
                    [x[at], y[at], z[at]] = value(i as usize);
                }
            }
        });
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

/// Runs a term over a block, with sums that begin at the site `start`.
fn add_block<T: BondTerm<K>, const K: usize>(
    term: T,
    geometry: StencilGeometry<'_>,
    start: usize,
    sums: &mut [&mut [f32]; K],
) -> T {
    lanes::run(BothEnds { term, geometry, start, sums: sums.each_mut().map(|column| &mut **column) })
}

impl BondTable for LatticeTable {
    fn mark_read(&self, own: Range<usize>, mark: &mut dyn FnMut(Range<usize>)) {
        mark(self.read_from(&self.blocks_of(&own)));
    }

    fn share(&mut self, share: &BodyPart) {
        let blocks = self.blocks_of(&share.own);
        let starts = self.cut.starts().map(|start| {
            self.block_site.partition_point(|&site| (site as usize) < start).clamp(blocks.start, blocks.end)
        });
        self.task = starts.collect();
        self.local = self.read_from(&blocks);
        self.share = share.clone();
    }

    fn load_positions(&mut self, position: &[DVec3]) {
        let mut displacement = std::mem::take(&mut self.displacement);
        self.scatter(&mut displacement, None, |i| {
            (position[i] - self.ideal[i]).to_array().map(|length| quantise(length, self.per_quantum))
        });
        self.displacement = displacement;
    }

    fn origin(&self) -> usize {
        self.place.len() / 2
    }

    fn round_positions(&mut self, position: &[DVec3], origin: DVec3) {
        let per_spacing = self.per_quantum / QUANTA;
        let mut rounded = std::mem::take(&mut self.position);
        self.scatter(&mut rounded, None, |i| {
            ((position[i] - origin) * per_spacing).to_array().map(|length| length as f32)
        });
        self.position = rounded;
    }

    fn breaking_order(&self, i: usize) -> u64 {
        // Tasks one after the other, and in a task by the first end.
        (self.cut.task(self.site(i)) as u64) << 32 | i as u64
    }

    fn break_bond(&mut self, [i, j]: [u32; 2]) {
        let [lower, upper] = [i, j].map(|i| self.site(i as usize));
        if let Some(word) = self.live_word(lower, self.by_shift[upper - lower] as usize) {
            self.live[word] &= !(1 << (lower % LANES));
        }
    }

    fn energy(&self, i: usize) -> f64 {
        let [.., twice] = self.force.at(self.place[i] as usize);
        0.5 * f64::from(twice)
    }

    fn forces(&mut self, thresholds: Option<(&[f32], f32)>) -> Vec<Broken> {
        let (mut live, mut far) = (std::mem::take(&mut self.live), std::mem::take(&mut self.far));
        let mut force = std::mem::take(&mut self.force);
        let live_of = by_task(&self.task, self.stencils.len(), &mut live);
        let far_of = by_task(&self.task, 1, &mut far);
        let items = self.tasks().zip(live_of).zip(far_of);
        let items = items
            .map(|(((start, blocks), live), far)| (!blocks.is_empty()).then_some((start, blocks, live, far)));
        let items = items.collect();
        let thresholds = thresholds.map(|(of, least)| Thresholds { of, least, particle: &self.particle });
        type Item<'a> = (usize, Range<usize>, &'a mut [u16], &'a mut [bool]);
        let broken = force.collect(
            ForceTerm::<Corrected, LeastRecorded>::NONE,
            ForceTerm::<Corrected, LeastRecorded>::with,
            items,
            |(start, blocks, live, far): Item<'_>, mut sums| {
                let mut broken = Vec::new();
                let live = live.chunks_mut(self.stencils.len().max(1));
                for ((block, live), far) in blocks.zip(live).zip(far) {
                    let geometry = self.geometry(block);
                    let broken = &mut broken;
                    macro_rules! add {
                        ($corrections:ident, $least:ident) => {{
                            let (is_far, thresholds) = (false, thresholds);
                            let term = ForceTerm::<$corrections, $least> {
                                variant: PhantomData,
                                geometry,
                                live,
                                thresholds,
                                is_far,
                                broken,
                            };
                            add_block(term, geometry, start, &mut sums).is_far
                        }};
                    }
                    *far = match (!self.half_correction.is_empty(), self.thresholds_rise) {
                        (false, false) => add!(Uncorrected, LeastIgnored),
                        (false, true) => add!(Uncorrected, LeastRecorded),
                        (true, false) => add!(Corrected, LeastIgnored),
                        (true, true) => add!(Corrected, LeastRecorded),
                    };
                }
                broken.sort_unstable_by_key(|bond: &Broken| bond.ends);
                broken
            },
        );
        (self.live, self.far, self.force) = (live, far, force);
        broken.concat()
    }

    fn update_diagonal(&mut self) {
        let mut diagonal = self.diagonal.take().unwrap_or_else(|| Sums::new(self.cut, READ));
        let mut all = std::mem::take(&mut self.coefficient);
        if all.len() != self.live.len() {
            all = vec![[0; LANES]; self.live.len()];
        }
        let items = self.tasks().zip(by_task(&self.task, self.stencils.len(), &mut all));
        let items = items.map(|item| (!item.0.1.is_empty()).then_some(item));
        type Item<'a> = ((usize, Range<usize>), &'a mut [[Coefficient; LANES]]);
        diagonal.collect(
            DiagonalTerm::<Corrected, AnyStrain>::NONE,
            DiagonalTerm::<Corrected, AnyStrain>::with,
            items.collect(),
            |((start, blocks), coefficient): Item<'_>, mut sums| {
                let coefficient = coefficient.chunks_mut(self.stencils.len().max(1));
                for (block, coefficient) in blocks.zip(coefficient) {
                    let (geometry, live) = (self.geometry(block), &self.live[self.words(block)]);
                    macro_rules! add {
                        ($corrections:ident, $strains:ident) => {{
                            let term = DiagonalTerm::<$corrections, $strains> {
                                variant: PhantomData,
                                geometry,
                                live,
                                coefficient,
                            };
                            add_block(term, geometry, start, &mut sums);
                        }};
                    }
                    match (!self.half_correction.is_empty(), self.far[block]) {
                        (false, false) => add!(Uncorrected, SmallStrain),
                        (false, true) => add!(Uncorrected, AnyStrain),
                        (true, false) => add!(Corrected, SmallStrain),
                        (true, true) => add!(Corrected, AnyStrain),
                    }
                }
            },
        );
        (self.diagonal, self.coefficient) = (Some(diagonal), all);
    }

    fn multiply(&mut self, u: Vector<'_>, scale: f64, wanted: Option<&[bool]>) {
        let mut operand = std::mem::take(&mut self.operand);
        let adding = wanted.map(|wanted| self.adding(wanted));
        let read = adding.as_ref().map(|adding| self.read_by(adding));
        let read = read.as_deref();
        // The places of neighbours follow each other, like those of particles that are read.
        let at = self.local.start;
        let place = self.share.place(at).unwrap_or_default();
        let rounded = match u {
            Vector::Exact(u) => {
                self.scatter(&mut operand, read, |i| (u[place + (i - at)] * scale).to_array().map(whole));
                false
            }
            Vector::Rounded(u) => {
                self.scatter(&mut operand, read, |i| u.get(place + (i - at)).map(|u| u.to_bits() as i32));
                true
            }
        };
        self.operand = operand;
        let mut image = std::mem::take(&mut self.image);
        let is_adding = |block: usize| adding.as_ref().is_none_or(|adding| adding[block]);
        let items = self.tasks().map(|(start, blocks)| {
            let any = blocks.clone().any(is_adding);
            any.then_some((start, blocks))
        });
        let (with, none) =
            (ProductTerm::<Corrected, AnyStrain>::with, ProductTerm::<Corrected, AnyStrain>::NONE);
        image.collect(none, with, items.collect(), |(start, blocks): (usize, Range<usize>), mut sums| {
            for block in blocks.filter(|&block| is_adding(block)) {
                let (geometry, live) = (self.geometry(block), &self.live[self.words(block)]);
                let (operand, position) = (self.operand.all(), self.position.all());
                macro_rules! rounded {
                    ($corrections:ident, $strains:ident) => {{
                        let coefficient = &self.coefficient[self.words(block)];
                        let term = RoundedTerm::<$corrections, $strains> {
                            variant: PhantomData,
                            geometry,
                            live,
                            coefficient,
                            position,
                            operand,
                        };
                        add_block(term, geometry, start, &mut sums);
                    }};
                }
                macro_rules! exact {
                    ($corrections:ident, $strains:ident) => {{
                        let term = ProductTerm::<$corrections, $strains> {
                            variant: PhantomData,
                            geometry,
                            live,
                            operand,
                        };
                        add_block(term, geometry, start, &mut sums);
                    }};
                }
                match (rounded, !self.half_correction.is_empty(), self.far[block]) {
                    (true, false, false) => rounded!(Uncorrected, SmallStrain),
                    (true, false, true) => rounded!(Uncorrected, AnyStrain),
                    (true, true, false) => rounded!(Corrected, SmallStrain),
                    (true, true, true) => rounded!(Corrected, AnyStrain),
                    (false, false, false) => exact!(Uncorrected, SmallStrain),
                    (false, false, true) => exact!(Uncorrected, AnyStrain),
                    (false, true, false) => exact!(Corrected, SmallStrain),
                    (false, true, true) => exact!(Corrected, AnyStrain),
                }
            }
        });
        self.image = image;
    }

    fn force(&self, i: usize) -> ([f32; 3], f32) {
        let [x, y, z, least, _] = self.force.at(self.place[i] as usize);
        ([x, y, z], least)
    }

    fn set_forces(&self, first: usize, unit: f64, force: &mut [DVec3]) {
        let [x, y, z, ..] = self.force.all();
        let particles = force.par_iter_mut().zip(&self.place[first..]).with_min_len(CHUNK * CHUNKS_PER_TASK);
        particles.for_each(|(force, &place)| {
            let place = place as usize;
            *force = vector([x[place], y[place], z[place]]) * unit;
        });
    }

    fn block(&self, i: usize) -> [f32; 6] {
        self.diagonal.as_ref().map_or([0.0; 6], |diagonal| diagonal.at(self.place[i] as usize))
    }

    fn product(&self, i: usize) -> [f32; 3] {
        self.image.at(self.place[i] as usize)
    }

    fn add_exact_products(&self, first: usize, unit: f64, image: &mut [DVec3]) {
        let [x, y, z] = self.image.all();
        for (image, &place) in image.iter_mut().zip(&self.place[first..]) {
            let place = place as usize;
            *image += vector([x[place], y[place], z[place]]) * unit;
        }
    }

    fn add_products(&self, rows: Range<usize>, unit: f32, image: &mut [Slice], at: usize) {
        let product = self.image.all();
        for (i, at) in rows.zip(at..) {
            let place = self.place[i] as usize;
            for axis in 0..3 {
                image[at / LANES][axis][at % LANES] += product[axis][place] * unit;
            }
        }
    }

    fn joined(&self, i: usize, j: usize) -> bool {
        let (lower, upper) = (self.site(i.min(j)), self.site(i.max(j)));
        // Margins keep two sites apart that are no step from each other.
        let stencil = self.by_shift.get(upper - lower).filter(|&&stencil| stencil != VACANT);
        stencil.is_some_and(|&stencil| self.live_word(lower, stencil as usize).is_some())
    }

    fn visit(&self, i: usize, visit: &mut dyn FnMut(Bond)) {
        let site = self.site(i);
        for (index, stencil) in self.stencils.iter().enumerate() {
            let ends = [(site.checked_sub(stencil.shift), false), (Some(site), true)];
            for (lower, is_own) in ends {
                let Some(lower) = lower.filter(|&lower| self.live_word(lower, index).is_some()) else {
                    continue;
                };
                visit(Bond {
                    neighbour: self.particle[if is_own { lower + stencil.shift } else { lower }],
                    rest: f64::from(stencil.rest_square).sqrt() / QUANTA,
                    stiffness: f64::from(self.stiffness(stencil, lower)),
                });
            }
        }
    }

    fn cut(&mut self, i: usize, cut: &dyn Fn(u32) -> bool) {
        // From the lower end alone: the other is asked, too.
        let site = self.site(i);
        for index in 0..self.stencils.len() {
            if let Some(word) = self.live_word(site, index)
                && cut(self.particle[site + self.stencils[index].shift])
            {
                self.live[word] &= !(1 << (site % LANES));
            }
        }
    }

    fn set_corrections(&mut self, corrections: &[f32]) {
        self.half_correction = vec![0.5; self.particle.len()];
        for (i, correction) in corrections.iter().enumerate() {
            let site = self.site(i);
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
        let per_particle = 24 + 4;
        self.live.len() * 2
            + self.coefficient.len() * size_of::<[Coefficient; LANES]>()
            + (self.particle.len() + self.block.len() + self.block_site.len() + self.half_correction.len())
                * 4
            + self.displacement.bytes()
            + self.position.bytes()
            + self.operand.bytes()
            + self.force.bytes()
            + self.diagonal.as_ref().map_or(0, Sums::bytes)
            + self.image.bytes()
            + self.far.len()
            + self.place.len() * per_particle
    }
}

#[cfg(test)]
mod tests;
