//! The pressure projection: conjugate gradients preconditioned by a multigrid cycle.
//!
//! In each cell that is no air, the pressure p satisfies `sum over faces of c (p - p') = -divergence`, where
//! p' is the pressure of the cell behind the face. The coefficient of a face is
//! `c = dt / (density cell_size^2)`; it is zero at a wall. Air has the pressure zero. Coefficients are f32,
//! and so is the preconditioner (`flip/pressure/multigrid.rs`). All other numbers of the iteration are f64,
//! so that a solve reaches its tolerance.

use std::ops::Range;

use amalgam_particles::lanes::{LANES, Width};
use rayon::prelude::*;

use super::super::arithmetic::larger;
use super::super::grid::Grid;
use super::super::slab::{Halo, Slab};
use super::columns::{BLOCK, Split, split_zeros};
use super::multigrid::Multigrid;
use super::passes::{AdvanceSolution, Curvature, Products, Rescale, Residual, Unknowns, UpdateDirection};
use super::share;
use super::system::System;

/// Ratio of the first residual to the target above which the starting point is improved before iterating.
const START: f64 = 100.0;

/// Largest ratio of the residual to the target at which sweeps of the smoother are tried alone. A sweep takes
/// half the time of an iteration and reduces the errors of single cells, which the largest residual measures.
const FINISH: f64 = 2.0;

/// Limits at which a solve stops.
#[derive(Clone, Copy, Debug)]
pub(in crate::flip) struct Limits {
    /// Largest residual, relative to the largest divergence at the start of a cold solve.
    pub(in crate::flip) tolerance: f64,
    /// Largest residual of a solution, relative to the residual of the starting point. The looser of the two
    /// limits counts.
    pub(in crate::flip) forcing: f64,
    /// Iterations after which a solve fails.
    pub(in crate::flip) iterations_max: u32,
}

/// The solver and its memory. Its speed depends on whether the data of an iteration fit into the processor's
/// cache.
#[derive(Clone, Debug)]
pub(in crate::flip) struct PressureSolver {
    multigrid: Multigrid,
    /// Version of the coefficients of `multigrid`; `None` before the first.
    coefficients: Option<u64>,
    /// Kept from solve to solve: only the residuals of changed cells are computed again.
    residual: Split<f64>,
    direction: Split<f64>,
    /// The largest entries of the right-hand side and of the residual in each of [`blocks`].
    largest: Vec<[f64; 2]>,
    /// Brings the right-hand side and the pressure from rank to rank.
    given: Halo,
    found: Halo,
}

/// Error of a failed solve: the residual that was reached, relative to the right-hand side.
#[derive(Clone, Copy, Debug)]
pub(in crate::flip) struct NotConverged(pub(in crate::flip) f64);

impl PressureSolver {
    pub(in crate::flip) fn new(slab: &Slab, grid: Grid, width: Width) -> Self {
        Self {
            multigrid: Multigrid::new(slab, grid, width),
            given: share::right_hand_side(slab, grid),
            found: share::pressure(slab, grid),
            coefficients: None,
            residual: split_zeros(&grid),
            direction: split_zeros(&grid),
            largest: vec![[0.0; 2]; 2 * (grid.len() / 2).div_ceil(BLOCK)],
        }
    }

    /// Lets `set` set the coefficients for [`Self::solve`], unless they have this `version` already: see
    /// [`Multigrid::set`].
    pub(in crate::flip) fn set_coefficients(
        &mut self,
        version: u64,
        changed: &[bool],
        set: impl FnOnce(&mut System),
    ) {
        if self.coefficients.replace(version) != Some(version) {
            self.multigrid.set(changed, set);
        }
    }

    /// Solves for `pressure`, from the starting point that it holds; returns the number of iterations.
    /// `right_hand_side` must be zero at cells without an unknown. In runs of cells that have not `changed`,
    /// coefficients and right-hand side must be those of the last solve. Unless all runs have changed, all
    /// pressures must be those that the last solve found.
    ///
    /// Each rank gives the right-hand side in its slab. It gets the pressure in its slab and in the layers
    /// beside it. Collective.
    pub(in crate::flip) fn solve(
        &mut self,
        right_hand_side: &mut Split<f64>,
        changed: &[bool],
        pressure: &mut Split<f64>,
        limits: &Limits,
    ) -> Result<u32, NotConverged> {
        self.given.exchange_split(self.multigrid.share().ranks(), right_hand_side);
        let solved = self.iterate(right_hand_side, changed, pressure, limits);
        self.found.exchange_split(self.multigrid.share().ranks(), pressure);
        solved
    }

    /// Sets a starting point of [`Self::solve`] to zero.
    pub(in crate::flip) fn begin_at_zero(&self, pressure: &mut Split<f64>) {
        blocks_mut(pressure, &self.multigrid.share().blocks).for_each(|(_, block)| block.fill(0.0));
    }

    fn iterate(
        &mut self,
        right_hand_side: &mut Split<f64>,
        changed: &[bool],
        pressure: &mut Split<f64>,
        limits: &Limits,
    ) -> Result<u32, NotConverged> {
        let closed = self.make_consistent(right_hand_side);
        if closed || changed.iter().all(|&changed| changed) {
            self.clear(pressure);
            self.find_residual(right_hand_side, &vec![true; changed.len()], pressure);
        } else {
            self.find_residual(right_hand_side, changed, pressure);
        }
        if self.largest()[0] == 0.0 {
            // Without divergence the solution is zero, whatever the starting point.
            self.begin_at_zero(pressure);
            self.multigrid.share().see(pressure);
            self.find_residual(right_hand_side, &vec![true; changed.len()], pressure);
        }
        let [scale, mut worst] = self.largest();
        let target = f64::max(limits.tolerance * scale, limits.forcing * worst);
        if worst > START * target {
            worst = self.improve_guess(right_hand_side, (changed, target), pressure);
        }
        let all = vec![true; self.largest.len() / 2];
        let (mut iterations, mut square, mut finished) = (0, f64::INFINITY, false);
        while worst > target || worst.is_nan() {
            if iterations == limits.iterations_max || !worst.is_finite() {
                return Err(NotConverged(worst / scale));
            }
            // Only once, because later directions are not conjugate to the ones before.
            if !finished && iterations > 0 && worst < FINISH * target {
                self.multigrid.smooth(&all);
                self.update_direction(0.0);
                worst = self.advance(1.0, &all, pressure);
                (square, finished) = (f64::INFINITY, true);
                continue;
            }
            let next_square = self.multigrid.cycle();
            self.update_direction(next_square / square);
            square = next_square;
            let curvature = self.curvature();
            if curvature.is_nan() || curvature <= 0.0 {
                return Err(NotConverged(worst / scale));
            }
            worst = self.advance(square / curvature, &all, pressure);
            iterations += 1;
        }
        Ok(iterations)
    }

    /// Returns true if the fluid touches no air. Its pressure is then determined up to a constant, and exists
    /// only if the divergences add up to zero. Rounding leaves a rest, which is spread over all cells.
    fn make_consistent(&self, right_hand_side: &mut Split<f64>) -> bool {
        let (system, share) = (self.multigrid.finest(), self.multigrid.share());
        if share.any(!system.is_closed(&share.blocks)) {
            return false;
        }
        let inverse = blocks(&system.inverse, &share.blocks).map(|(_, block)| block);
        let unknowns = share.sum(inverse.flatten_iter().filter(|&&inverse| inverse != 0.0).count());
        let sums = blocks(right_hand_side, &share.blocks).map(|(_, block)| [block.iter().sum()]);
        let [sum] = share.in_order(sums.collect());
        let mean = sum / unknowns.max(1) as f64;
        let columns = blocks_mut(right_hand_side, &share.blocks).zip(blocks(&system.inverse, &share.blocks));
        columns.for_each(|((_, b), (_, inverse))| {
            for (b, &inverse) in b.iter_mut().zip(inverse) {
                *b = if inverse == 0.0 { 0.0 } else { *b - mean };
            }
        });
        // Where nothing changes until the next solve, the ranks give the same numbers again.
        self.found.exchange_split(share.ranks(), right_hand_side);
        true
    }

    /// Sets all columns to zero at cells without an unknown.
    fn clear(&mut self, pressure: &mut Split<f64>) {
        let own = self.multigrid.share().blocks.clone();
        let columns = blocks_mut(pressure, &own).zip(blocks(&self.multigrid.finest().inverse, &own));
        columns.for_each(|((_, pressure), (_, inverse))| {
            pressure
                .iter_mut()
                .zip(inverse)
                .for_each(|(p, &inverse)| *p = if inverse == 0.0 { 0.0 } else { *p });
        });
        self.multigrid.share().see(pressure);
        let Self { multigrid, residual, direction, .. } = self;
        for column in [residual, direction] {
            blocks_mut(column, &own).for_each(|(_, block)| block.fill(0.0));
        }
        blocks_mut(multigrid.right_hand_side(), &own).for_each(|(_, block)| block.fill(0.0));
    }

    /// The largest entries of the right-hand side and of the residual. Collective.
    fn largest(&self) -> [f64; 2] {
        let share = self.multigrid.share();
        let own = &self.largest[2 * share.blocks.start..2 * share.blocks.end];
        let own =
            own.iter().fold([0.0; 2], |[a, b], of_block| [larger(a, of_block[0]), larger(b, of_block[1])]);
        share.largest(own)
    }

    /// Computes the residual in all blocks with a run that has changed.
    fn find_residual(&mut self, right_hand_side: &Split<f64>, changed: &[bool], p: &Split<f64>) {
        let Self { multigrid, residual, largest, .. } = self;
        let (width, own) = (multigrid.width(), multigrid.share().blocks.clone());
        let (system, rounded) = multigrid.finest_and_right_hand_side();
        let largest = &mut largest[2 * own.start..2 * own.end];
        let tasks =
            (blocks_mut(residual, &own), blocks_mut(rounded, &own), blocks(right_hand_side, &own), largest);
        tasks.into_par_iter().for_each(|((n, r), (_, rounded), (_, right_hand_side), largest)| {
            let unknowns = Unknowns::of_block(system, n, r.len());
            if changed[unknowns.begin / LANES..][..r.len() / LANES].contains(&true) {
                *largest = width.run(Residual { unknowns, p, right_hand_side, r, rounded });
            }
        });
    }

    /// Improves the initial guess for less than the cost of one iteration: smooths where the residual exceeds
    /// the target and, if only some cells changed, rescales the previous pressure. Returns the largest
    /// residual.
    fn improve_guess(
        &mut self,
        right_hand_side: &Split<f64>,
        (changed, target): (&[bool], f64),
        pressure: &mut Split<f64>,
    ) -> f64 {
        let share = self.multigrid.share();
        let colours = self.largest.as_chunks::<2>().0[share.blocks.clone()].iter();
        let above = colours.map(|[[_, red], [_, black]]| larger(*red, *black) > target).collect();
        let above = share.flags(above);
        let near = self.beside(&above);
        self.multigrid.smooth(&near);
        if !changed.iter().all(|&changed| changed) {
            self.rescale(right_hand_side, pressure);
        }
        self.update_direction(0.0);
        self.advance(1.0, &self.beside(&near), pressure)
    }

    /// Marks these blocks and the blocks that hold their neighbours.
    fn beside(&self, blocks: &[bool]) -> Vec<bool> {
        let reach = (self.multigrid.finest().grid.layer() / 2 + 1).div_ceil(BLOCK);
        let around = |n: usize| &blocks[n.saturating_sub(reach)..blocks.len().min(n + reach + 1)];
        (0..blocks.len()).map(|n| around(n).contains(&true)).collect()
    }

    /// Scales the pressure so that the error after the smoother's step z has least energy. The pressure is
    /// near the smoothest mode, and the preconditioner overestimates this mode most.
    fn rescale(&mut self, right_hand_side: &Split<f64>, pressure: &mut Split<f64>) {
        let Self { multigrid, residual, largest, .. } = self;
        let (width, own) = (multigrid.width(), multigrid.share().blocks.clone());
        let tasks = (
            blocks(multigrid.solution(), &own),
            blocks(pressure, &own),
            blocks(right_hand_side, &own),
            blocks(residual, &own),
        );
        let products =
            tasks.into_par_iter().map(|((_, z), (_, p), (_, b), (_, r))| width.run(Products { z, p, b, r }));
        let [error, energy] = multigrid.share().in_order(products.collect());
        let part = if energy > 0.0 { error / energy } else { 0.0 };
        let (_, rounded) = multigrid.finest_and_right_hand_side();
        let tasks = (
            blocks_mut(pressure, &own),
            blocks_mut(residual, &own),
            blocks_mut(rounded, &own),
            blocks(right_hand_side, &own),
            &mut largest[2 * own.start..2 * own.end],
        );
        tasks.into_par_iter().for_each(|((_, x), (_, r), (_, rounded), (_, b), [_, worst])| {
            *worst = width.run(Rescale { part, b, x, r, rounded });
        });
    }

    /// Sets the next direction `p = z + beta p` with the preconditioned residual z. Collective.
    fn update_direction(&mut self, beta: f64) {
        let Self { multigrid, direction, .. } = self;
        let (system, width, share) = (multigrid.finest(), multigrid.width(), multigrid.share());
        let columns = blocks_mut(direction, &share.blocks).zip(blocks(multigrid.solution(), &share.blocks));
        columns.for_each(|((n, p), (_, z))| {
            let unknowns = Unknowns::of_block(system, n, p.len());
            width.run(UpdateDirection { unknowns, beta, z, p });
        });
        share.see(direction);
    }

    /// Computes `p A p` for the direction p. Collective.
    fn curvature(&self) -> f64 {
        let Self { multigrid, direction: p, .. } = self;
        let (system, width, share) = (multigrid.finest(), multigrid.width(), multigrid.share());
        let products = blocks(p, &share.blocks).map(|(n, own)| {
            let unknowns = Unknowns::of_block(system, n, own.len());
            width.run(Curvature { unknowns, p })
        });
        let [curvature] = share.in_order(products.collect());
        curvature
    }

    /// Advances the pressure by `length` along the direction in the blocks of each colour that `only` marks.
    /// In other blocks and beside them, the direction must be zero. Returns the largest residual of all
    /// blocks. Collective.
    fn advance(&mut self, length: f64, only: &[bool], pressure: &mut Split<f64>) -> f64 {
        let Self { multigrid, residual, direction: p, largest, .. } = self;
        let (width, own) = (multigrid.width(), multigrid.share().blocks.clone());
        let (system, rounded) = multigrid.finest_and_right_hand_side();
        let largest = &mut largest[2 * own.start..2 * own.end];
        let tasks =
            (blocks_mut(pressure, &own), blocks_mut(residual, &own), blocks_mut(rounded, &own), largest);
        let tasks = tasks.into_par_iter().filter(|((n, _), ..)| only[n / 2]);
        tasks.for_each(|((n, x), (_, r), (_, rounded), [_, worst])| {
            let unknowns = Unknowns::of_block(system, n, r.len());
            *worst = width.run(AdvanceSolution { unknowns, length, p, x, r, rounded });
        });
        self.largest()[1]
    }
}

/// The blocks of some pairs of a column with their numbers, red and black ones in alternation, so that each
/// thread keeps to a part of the grid.
fn blocks<'a, T: Sync>(
    column: &'a Split<T>,
    pairs: &Range<usize>,
) -> impl IndexedParallelIterator<Item = (usize, &'a [T])> {
    let [red, black] = column.each_ref().map(|column| column[entries(pairs, column.len())].par_chunks(BLOCK));
    let first = 2 * pairs.start;
    red.interleave(black).enumerate().map(move |(n, block)| (first + n, block))
}

/// The entries of one colour in some pairs of blocks of a column that has `len` of them.
fn entries(pairs: &Range<usize>, len: usize) -> Range<usize> {
    (BLOCK * pairs.start).min(len)..(BLOCK * pairs.end).min(len)
}

/// The blocks of a column, to be changed, in the order of [`blocks`].
fn blocks_mut<'a, T: Send>(
    column: &'a mut Split<T>,
    pairs: &Range<usize>,
) -> impl IndexedParallelIterator<Item = (usize, &'a mut [T])> {
    let [red, black] = column.each_mut().map(|column| {
        let entries = entries(pairs, column.len());
        column[entries].par_chunks_mut(BLOCK)
    });
    let first = 2 * pairs.start;
    red.interleave(black).enumerate().map(move |(n, block)| (first + n, block))
}
