//! The parts of the pressure's system, and of the levels of its multigrid, that ranks compute.
//!
//! The blocks of a level are dealt to the ranks in order, so that a rank's blocks lie near its slab. Passes
//! visit the own blocks, and halos bring what the passes read beside them. Sums over blocks are added in the
//! order of blocks on every rank. Every rank computes the whole of a level that has few blocks.

use std::ops::Range;

use amalgam_solver_kit::Ranks;
use bytemuck::Pod;

use crate::flip::grid::Grid;
use crate::flip::pressure::columns::{BLOCK, Split};
use crate::flip::slab::{Halo, Slab, depth, entries_of_layers, hull, layers_of_entries};

/// Number of pairs of blocks per rank below which every rank computes the whole level: messages would take
/// longer than the work.
const FEW: usize = 3;

/// Entries of a pair of blocks, a red one and a black one.
const PAIR: usize = 2 * BLOCK;

/// The part of a level that this rank computes.
#[derive(Clone, Debug)]
pub(in crate::flip) struct LevelShare {
    ranks: Ranks,
    /// True if ranks share the level.
    pub(in crate::flip) is_dealt: bool,
    /// Pairs of blocks of all ranks.
    pub(in crate::flip) count: usize,
    /// Pairs of blocks that this rank's passes visit.
    pub(in crate::flip) blocks: Range<usize>,
    /// Pairs of blocks in which this rank prepares coefficients, and those whose coefficients it copies by
    /// colour.
    pub(in crate::flip) prepared: Range<usize>,
    pub(in crate::flip) copied: Range<usize>,
    /// Layers that this rank sets the coefficients of, from the next finer level.
    pub(in crate::flip) coarsened: Range<usize>,
    /// Pairs of layers that this rank restricts to, from the next finer level.
    pub(in crate::flip) restricted: Range<usize>,
    /// Pairs of layers that this rank prolongs to.
    pub(in crate::flip) prolonged: Range<usize>,
    /// Brings the coefficients beside the own blocks.
    pub(in crate::flip) coefficients: Halo,
    /// Brings the solution beside the own blocks.
    pub(in crate::flip) beside: Halo,
    /// Brings the residual that the next coarser level is restricted from.
    pub(in crate::flip) residual: Halo,
    /// Brings the restricted residual to all ranks, if they do not share this level but share the next finer
    /// one.
    pub(in crate::flip) restriction: Halo,
}

/// The levels of a multigrid, as all ranks see them.
struct Levels<'a> {
    slab: &'a Slab,
    grids: &'a [Grid],
    /// The first pair of blocks of each rank, and the number of pairs, for levels that are shared.
    dealt: Vec<Option<Vec<usize>>>,
}

/// The shares of all levels.
pub(in crate::flip) fn shares(slab: &Slab, grids: &[Grid]) -> Vec<LevelShare> {
    let mut levels = Levels { slab, grids, dealt: Vec::new() };
    for level in 0..grids.len() {
        levels.dealt.push(levels.deal(level));
    }
    (0..grids.len()).map(|level| levels.share(level)).collect()
}

/// Brings the right-hand side from the ranks in whose slabs cells lie to the ranks that solve for them.
pub(in crate::flip) fn right_hand_side(slab: &Slab, grid: Grid) -> Halo {
    let levels = Levels::finest(slab, std::slice::from_ref(&grid));
    Halo::new(&slab.ranks, |rank| slab.entries_of(rank, 0), |rank| levels.entries(0, rank))
}

/// Brings the pressure beside the own blocks, and into the slab and the layers beside it.
pub(in crate::flip) fn pressure(slab: &Slab, grid: Grid) -> Halo {
    let levels = Levels::finest(slab, std::slice::from_ref(&grid));
    if levels.dealt[0].is_none() {
        return Halo::default();
    }
    Halo::new(&slab.ranks, |rank| levels.entries(0, rank), |rank| pressure_seen(slab, grid, rank))
}

/// The entries of the pressure that a rank reads or finds: its own blocks and those beside them, its slab and the
/// layers beside it.
pub(in crate::flip) fn pressure_seen(slab: &Slab, grid: Grid, rank: usize) -> Range<usize> {
    let levels = Levels::finest(slab, std::slice::from_ref(&grid));
    hull(levels.beside(0, rank), slab.entries_of(rank, depth::FORCES))
}

impl<'a> Levels<'a> {
    /// The finest level alone.
    fn finest(slab: &'a Slab, grids: &'a [Grid]) -> Self {
        let mut levels = Self { slab, grids, dealt: Vec::new() };
        levels.dealt.push(levels.deal(0));
        levels
    }

    fn count(&self, level: usize) -> usize {
        self.grids[level].len().div_ceil(PAIR)
    }

    /// Deals the pairs of blocks of a level to ranks, near their slabs.
    fn deal(&self, level: usize) -> Option<Vec<usize>> {
        let (count, size) = (self.count(level), self.slab.ranks.size());
        let finer_is_dealt = level == 0 || self.dealt[level - 1].is_some();
        if self.slab.is_whole() || !finer_is_dealt || count < FEW * size {
            return None;
        }
        let grid = &self.grids[level];
        let begin = |&first: &usize| {
            // In entries; the slab may begin in the middle of a layer of aggregates.
            let begin =
                grid.first() as f64 + (first as f64 / (1 << level) as f64 + 1.0) * grid.layer() as f64;
            ((begin / PAIR as f64).round() as usize).min(count)
        };
        let mut first: Vec<usize> = self.slab.first().iter().map(begin).collect();
        (first[0], first[size]) = (0, count);
        Some(first)
    }

    /// The pairs of blocks of a rank.
    fn blocks(&self, level: usize, rank: usize) -> Range<usize> {
        match &self.dealt[level] {
            Some(first) => first[rank]..first[rank + 1],
            None => 0..self.count(level),
        }
    }

    /// The entries of a rank's blocks.
    fn entries(&self, level: usize, rank: usize) -> Range<usize> {
        let (blocks, len) = (self.blocks(level, rank), self.grids[level].len());
        (PAIR * blocks.start).min(len)..(PAIR * blocks.end).min(len)
    }

    /// A rank's entries with a layer on both sides.
    fn with_layer(&self, level: usize, rank: usize) -> Range<usize> {
        let (entries, grid) = (self.entries(level, rank), &self.grids[level]);
        if entries.is_empty() {
            return entries;
        }
        let layer = grid.layer() + 2;
        entries.start.saturating_sub(layer)..(entries.end + layer).min(grid.len())
    }

    /// True if ranks do not share the level, but share the next finer one.
    fn is_gathered(&self, level: usize) -> bool {
        level > 0 && self.dealt[level].is_none() && self.dealt[level - 1].is_some()
    }

    /// The pairs of layers that a rank restricts to.
    fn restricted(&self, level: usize, rank: usize) -> Range<usize> {
        let (first, pairs) = (self.slab.first(), self.grids[level].cells[2].div_ceil(2));
        if self.is_gathered(level) {
            let end = if rank + 2 == first.len() { pairs } else { (first[rank + 1] >> level) / 2 };
            return (first[rank] >> level) / 2..end;
        }
        self.pairs(level, rank)
    }

    /// The pairs of layers in which a rank has entries.
    fn pairs(&self, level: usize, rank: usize) -> Range<usize> {
        let layers = layers_of_entries(&self.grids[level], &self.entries(level, rank));
        if layers.is_empty() { 0..0 } else { layers.start / 2..layers.end.div_ceil(2) }
    }

    /// The layers whose coefficients a rank finds from the next finer level.
    fn coarsened(&self, level: usize, rank: usize) -> Range<usize> {
        if self.is_gathered(level) {
            let Range { start, end } = self.restricted(level, rank);
            return 2 * start..(2 * end).min(self.grids[level].cells[2]).max(2 * start);
        }
        layers_of_entries(&self.grids[level], &self.entries(level, rank))
    }

    /// The pairs of blocks in which a rank prepares coefficients.
    fn prepared(&self, level: usize, rank: usize) -> Range<usize> {
        let Range { start, end } = self.with_layer(level, rank);
        start / PAIR..end.div_ceil(PAIR)
    }

    /// The entries of which a rank must know the coefficients.
    fn known(&self, level: usize, rank: usize) -> Range<usize> {
        let (grid, prepared) = (&self.grids[level], self.prepared(level, rank));
        let end = (PAIR * prepared.end + grid.layer() + 2).min(grid.len());
        let own = if prepared.is_empty() { 0..0 } else { PAIR * prepared.start..end };
        if level + 1 == self.grids.len() {
            return own;
        }
        let Range { start, end } = self.coarsened(level + 1, rank);
        hull(own, entries_of_layers(grid, 2 * start..(2 * end).min(grid.cells[2])))
    }

    /// The entries at which a rank reads the solution.
    fn beside(&self, level: usize, rank: usize) -> Range<usize> {
        let own = self.with_layer(level, rank);
        if level == 0 {
            return own;
        }
        let (grid, Range { start, end }) = (&self.grids[level], self.pairs(level - 1, rank));
        if start >= end {
            return own;
        }
        hull(own, entries_of_layers(grid, start.saturating_sub(1)..(end + 1).min(grid.cells[2])))
    }

    /// The entries from which a rank restricts to the next coarser level.
    fn restricts(&self, level: usize, rank: usize) -> Range<usize> {
        let (grid, Range { start, end }) = (&self.grids[level], self.restricted(level + 1, rank));
        if start >= end {
            return 0..0;
        }
        entries_of_layers(grid, (4 * start).saturating_sub(1)..(4 * end + 1).min(grid.cells[2]))
    }

    fn share(&self, level: usize) -> LevelShare {
        let (ranks, rank, len) = (&self.slab.ranks, self.slab.ranks.rank(), self.grids[level].len());
        let (is_dealt, is_last) = (self.dealt[level].is_some(), level + 1 == self.grids.len());
        let coarsened = |rank| entries_of_layers(&self.grids[level], self.coarsened(level, rank));
        let halo = |is_needed: bool, owned: &dyn Fn(usize) -> Range<usize>, wanted: &dyn Fn(usize) -> _| {
            if is_needed { Halo::new(ranks, owned, wanted) } else { Halo::default() }
        };
        let entries = |rank| self.entries(level, rank);
        let coefficients = match level {
            0 => halo(true, &|rank| self.slab.entries_of(rank, 0), &|rank| self.known(0, rank)),
            _ if is_dealt => halo(true, &entries, &|rank| self.known(level, rank)),
            _ => halo(self.is_gathered(level), &coarsened, &|_| 0..len),
        };
        let known = self.known(level, rank);
        LevelShare {
            ranks: ranks.clone(),
            is_dealt,
            count: self.count(level),
            blocks: self.blocks(level, rank),
            prepared: self.prepared(level, rank),
            copied: known.start / PAIR..known.end.div_ceil(PAIR),
            coarsened: self.coarsened(level, rank),
            restricted: self.restricted(level, rank),
            prolonged: self.pairs(level, rank),
            coefficients,
            beside: halo(is_dealt, &entries, &|rank| self.beside(level, rank)),
            residual: halo(is_dealt && !is_last, &entries, &|rank| self.restricts(level, rank)),
            restriction: halo(self.is_gathered(level), &coarsened, &|_| 0..len),
        }
    }
}

impl LevelShare {
    /// Values of the own blocks, followed by those of other ranks in the order of blocks. There are `width`
    /// values per pair of blocks. Collective.
    fn all<T: Pod>(&self, width: usize, own: Vec<T>) -> Vec<T> {
        if !self.is_dealt {
            return own;
        }
        let first = width * self.blocks.start;
        self.ranks
            .shared(width * self.count, own.into_iter().enumerate().map(|(n, value)| (first + n, value)))
    }

    /// The sums over the blocks of all ranks, added in the order of blocks, so that they depend neither on
    /// threads nor on ranks. Collective.
    pub(in crate::flip) fn in_order<const K: usize>(&self, of_blocks: Vec<[f64; K]>) -> [f64; K] {
        let mut sums = [0.0; K];
        let width = 2 * K;
        let all = self.all(width, of_blocks.into_flattened());
        for of_block in all.chunks_exact(K) {
            sums.iter_mut().zip(of_block).for_each(|(sum, of_block)| *sum += of_block);
        }
        sums
    }

    /// As [`Self::in_order`] for one colour after the other, with a number for each block of the colour.
    pub(in crate::flip) fn by_colour(&self, of_blocks: [Vec<[f64; 1]>; 2]) -> [f64; 2] {
        let [a, b] = &of_blocks;
        let pairs = a.iter().zip(b).map(|(&[a], &[b])| [a, b]).collect::<Vec<_>>();
        let all = self.all(2, pairs.into_flattened());
        let mut sums = [0.0; 2];
        for pair in all.as_chunks::<2>().0 {
            sums.iter_mut().zip(pair).for_each(|(sum, of_block)| *sum += of_block);
        }
        sums
    }

    /// Flags of all pairs of blocks. Collective.
    pub(in crate::flip) fn flags(&self, own: Vec<bool>) -> Vec<bool> {
        let own = own.into_iter().map(u8::from).collect();
        self.all(1, own).into_iter().map(|flag| flag != 0).collect()
    }

    /// The largest values over ranks; NaN if one is NaN. Collective.
    pub(in crate::flip) fn largest<const N: usize>(&self, mut values: [f64; N]) -> [f64; N] {
        if self.is_dealt {
            self.ranks.max(&mut values);
        }
        values
    }

    /// The sum over ranks. Collective.
    pub(in crate::flip) fn sum(&self, value: usize) -> usize {
        let mut sum = [value as i64];
        if self.is_dealt {
            self.ranks.sum(&mut sum);
        }
        sum[0] as usize
    }

    /// True if a rank says so. Collective.
    pub(in crate::flip) fn any(&self, flag: bool) -> bool {
        if self.is_dealt { self.ranks.any(flag) } else { flag }
    }

    /// Brings both colours of the solution beside the own blocks. Collective.
    pub(in crate::flip) fn see<T: Pod>(&self, column: &mut Split<T>) {
        self.beside.exchange_split(&self.ranks, column);
    }

    /// Brings one colour of the solution beside the own blocks. Collective.
    pub(in crate::flip) fn see_colour(&self, colour: usize, column: &mut [f32]) {
        self.beside.exchange_colour(&self.ranks, colour, column);
    }

    /// The ranks.
    pub(in crate::flip) fn ranks(&self) -> &Ranks {
        &self.ranks
    }
}
