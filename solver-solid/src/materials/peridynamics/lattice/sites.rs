//! Sites of a lattice by number, the blocks and tasks that they are cut into, and the part of them that a
//! rank computes.

use std::ops::Range;

use amalgam_particles::lanes::LANES;
use rayon::prelude::*;

use super::super::cubic::Lattice;
use super::super::law::Law;
use super::super::table::BodyPart;
use super::columns::{Cut, SiteColumns};
use super::stencil::{Stencil, stencils};

/// Marks an empty site, block or shift.
pub(super) const VACANT: u32 = u32::MAX;

/// Sites that a task moves values to.
const SITES: usize = 64 * LANES;

/// See the module.
pub(super) struct Sites {
    pub(super) cut: Cut,
    pub(super) share: BodyPart,
    /// The site of the first particle whose row this rank computes.
    pub(super) from: usize,
    /// Particles whose values the blocks of this rank read.
    pub(super) local: Range<usize>,
    /// The place of each particle in sums.
    pub(super) place: Vec<u32>,
    /// First site of each block that holds any particle.
    pub(super) block_site: Vec<u32>,
    /// The block of each sixteen sites.
    block: Vec<u32>,
    /// First block of each task that this rank computes, and the end.
    pub(super) task: Vec<usize>,
    /// Particle at each site.
    pub(super) particle: Vec<u32>,
    pub(super) stencils: Vec<Stencil>,
    /// The stencil of each shift.
    by_shift: Vec<u32>,
}

impl Sites {
    /// The sites of a body that one rank computes. Points must be in the order of [`Lattice::key`].
    pub(super) fn new(lattice: &Lattice, law: &Law) -> Self {
        let reach = law.reach() / law.spacing;
        let extent = lattice.numbered.map(|axis| lattice.extent[axis]);
        let margin = extent.map(|cells| (reach.floor() as i32).min(cells - 1) as usize);
        let row = extent[0] as usize + margin[0];
        let layer = row * (extent[1] as usize + margin[1]);
        let site = |cell: &[i32; 3]| {
            let [a, b, c] = lattice.numbered.map(|axis| cell[axis] as usize);
            a + row * b + layer * c
        };
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
        let place = sites.iter().map(|&site| cut.place(site) as u32).collect();
        let (share, from, local, task) = (BodyPart::default(), 0, 0..0, Vec::new());
        let mut this =
            Self { cut, share, from, local, place, block_site, block, task, particle, stencils, by_shift };
        this.share(&BodyPart::whole(sites.len(), 0));
        this
    }

    /// Computes only the rows of this part from here on.
    pub(super) fn share(&mut self, share: &BodyPart) {
        let blocks = self.blocks_of(&share.own);
        let starts = self.cut.starts().map(|start| {
            self.block_site.partition_point(|&site| (site as usize) < start).clamp(blocks.start, blocks.end)
        });
        self.task = starts.collect();
        self.local = self.read_from(&blocks);
        self.from = if share.own.is_empty() { 0 } else { self.site(share.own.start) };
        self.share = share.clone();
    }

    /// The particles that the rows of these particles read.
    pub(super) fn read_by_rows(&self, own: &Range<usize>) -> Range<usize> {
        self.read_from(&self.blocks_of(own))
    }

    /// Largest step to a neighbour, in sites.
    fn reach(&self) -> usize {
        self.by_shift.len() - 1
    }

    /// The blocks that add to the rows of these particles. A sum at a site adds its terms in the order of
    /// blocks, so that other blocks do not matter.
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

    /// The site of a particle.
    pub(super) fn site(&self, i: usize) -> usize {
        self.cut.site(self.place[i] as usize)
    }

    /// The stencil of a shift, if there is one.
    pub(super) fn stencil(&self, shift: usize) -> Option<usize> {
        // Margins keep two sites apart that are no step from each other.
        self.by_shift.get(shift).filter(|&&stencil| stencil != VACANT).map(|&stencil| stencil as usize)
    }

    /// Words of a block: one per stencil.
    pub(super) fn words(&self, block: usize) -> Range<usize> {
        block * self.stencils.len()..(block + 1) * self.stencils.len()
    }

    /// The word of the bonds of a stencil that leave the block of a site, if it is a block.
    pub(super) fn word(&self, site: usize, stencil: usize) -> Option<usize> {
        let block = self.block[site / LANES];
        (block != VACANT).then(|| self.words(block as usize).start + stencil)
    }

    /// First site of each task, and its blocks.
    pub(super) fn tasks(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        self.cut.starts().zip(self.task.windows(2)).map(|(start, of)| (start, of[0]..of[1]))
    }

    /// Blocks that add to rows in slices of the solver's rows for which `wanted` is true.
    pub(super) fn adding(&self, wanted: &[bool]) -> Vec<bool> {
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
    pub(super) fn read_by(&self, adding: &[bool]) -> Vec<bool> {
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
    pub(super) fn scatter<T: Copy + Default + Send>(
        &self,
        columns: &mut SiteColumns<T, 3>,
        read: Option<&[bool]>,
        value: impl Fn(usize) -> [T; 3] + Sync,
    ) {
        let [x, y, z] = columns.all_mut();
        let [x, y, z] = [x, y, z].map(|column| column.par_chunks_mut(SITES));
        let chunks = (x, y, z, self.particle.par_chunks(SITES)).into_par_iter().enumerate();
        let local = match self.local.is_empty() {
            true => 0..0,
            false => self.site(self.local.start) / SITES..self.site(self.local.end - 1) / SITES + 1,
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

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        (self.particle.len() + self.block.len() + self.block_site.len() + self.place.len()) * 4
    }
}
