//! Transfers between a level of the multigrid and the next coarser one: restriction and prolongation.

use amalgam_particles::lanes::{LANES, Lanes, Task};
use rayon::prelude::*;
use rayon::slice::ChunksMut;

use super::super::arithmetic::kept;
use super::super::grid::Grid;
use super::columns::Split;
use super::system::{window, window_mut};

/// Number of the first entry of a pair of layers. The first pair begins behind the layer of walls.
fn begin_of_pair(grid: &Grid, pair: usize) -> usize {
    grid.first() + (2 * pair + 1) * grid.layer()
}

/// The layers of a column between the walls in pairs, which have as many red entries as black ones.
pub(super) fn pairs_of_layers<'a>(grid: &Grid, column: &'a mut Split<f32>) -> [ChunksMut<'a, f32>; 2] {
    let begin = begin_of_pair(grid, 0);
    let [red, black] = column;
    [&mut red[begin.div_ceil(2)..], &mut black[begin / 2..]].map(|column| {
        let len = grid.layer() * grid.cells[2].div_ceil(2);
        column[..len].par_chunks_mut(grid.layer())
    })
}

/// Weights of a cell's own aggregate and of the next aggregate along an axis, in linear interpolation.
const SHARE: [f32; 2] = [0.75, 0.25];

/// The value interpolated between two aggregates.
#[inline(always)]
fn mixed<L: Lanes>(own: L, next: L) -> L {
    L::splat(SHARE[0]) * own + L::splat(SHARE[1]) * next
}

/// The row of aggregates, of `count` rows, that holds a row, and the next one. A row behind a wall mirrors
/// the row before it.
#[inline(always)]
fn near(row: usize, count: usize) -> [usize; 2] {
    let own = row / 2;
    [own, if row.is_multiple_of(2) { own.saturating_sub(1) } else { (own + 1).min(count - 1) }]
}

/// The rows, of `fine` rows, that a row of aggregates, of `count` rows, contributes to, and their weights.
/// The weight is zero if there is no such row.
#[inline(always)]
fn around(aggregate: usize, fine: usize, count: usize) -> [(usize, f32); 4] {
    let mut rows = [(0, 0.0); 4];
    let first = (2 * aggregate).saturating_sub(1);
    for (row, of) in (first..(2 * aggregate + 3).min(fine)).zip(&mut rows) {
        for (near, part) in near(row, count).into_iter().zip(SHARE) {
            of.0 = row;
            of.1 += if near == aggregate { part } else { 0.0 };
        }
    }
    rows
}

/// Restriction to two layers of the coarse grid `grid`.
pub(super) struct Restrict<'a> {
    pub(super) fine: Grid,
    pub(super) grid: Grid,
    pub(super) pair: usize,
    pub(super) residual: &'a [f32],
    /// By colour.
    pub(super) to: [&'a mut [f32]; 2],
}

impl Task for Restrict<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { fine, grid, pair, residual, to: [red, black] } = self;
        let [n, rows, layers] = grid.cells;
        let begin = begin_of_pair(&grid, pair);
        // Sums of red cells that are the lower ones along x in their aggregates, and of upper ones, with an
        // entry for the wall at both ends.
        let len = n.next_multiple_of(LANES);
        let mut sides = [vec![0.0; len + 2], vec![0.0; len + 2]];
        let mut sums = vec![0.0; len];
        for k in 2 * pair..(2 * pair + 2).min(layers) {
            let in_layers = around(k, fine.cells[2], layers);
            for j in 0..rows {
                let in_rows = around(j, fine.cells[1], rows);
                for i in (0..n).step_by(LANES) {
                    let mut sum = [L::splat(0.0); 2];
                    for (z, of_layer) in in_layers {
                        for (y, of_row) in in_rows {
                            let first = fine.index([0, y, z]);
                            let of_side = &mut sum[first % 2];
                            let part = L::splat(of_layer * of_row);
                            *of_side = *of_side + part * L::load(window(residual, first.div_ceil(2) + i));
                        }
                    }
                    for (side, sum) in sides.iter_mut().zip(sum) {
                        sum.store(window_mut(side, i + 1));
                    }
                }
                // The values behind a wall mirror those before it.
                let [low, high] = &mut sides;
                (high[0], low[n + 1]) = (low[1], high[n]);
                for i in (0..n).step_by(LANES) {
                    let own = L::load(window(low, i + 1)) + L::load(window(high, i + 1));
                    let next = L::load(window(low, i + 2)) + L::load(window(high, i));
                    mixed(own, next).store(window_mut(&mut sums, i));
                }
                // The last cell of an odd number is paired with a wall.
                sums[n..].fill(0.0);
                // The first entry of a pair of layers is black.
                let at = grid.index([0, j, k]) - begin;
                let [even, odd] =
                    if at.is_multiple_of(2) { [&mut *black, &mut *red] } else { [&mut *red, &mut *black] };
                let (even, odd) = (&mut even[at / 2..], &mut odd[at.div_ceil(2)..]);
                let pairs = sums[..n.next_multiple_of(2)].as_chunks().0.iter();
                for (&[first, second], (even, odd)) in pairs.zip(even.iter_mut().zip(odd)) {
                    (*even, *odd) = (first, second);
                }
            }
        }
    }
}

/// Interpolation to the red cells of two layers of the fine grid `fine`.
pub(super) struct Prolong<'a> {
    pub(super) fine: Grid,
    pub(super) grid: Grid,
    pub(super) pair: usize,
    /// The coarse solution.
    pub(super) from: &'a Split<f32>,
    pub(super) factor: f32,
    pub(super) inverse: &'a [f32],
    pub(super) to: &'a mut [f32],
}

impl Task for Prolong<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { fine, grid, pair, from, factor, inverse, to } = self;
        let share = SHARE.map(|share| factor * share);
        let [n, rows, layers] = grid.cells;
        let begin = begin_of_pair(&fine, pair).div_ceil(2);
        // A row of values interpolated between four rows of aggregates.
        let mut row = vec![0.0; n.next_multiple_of(2 * LANES) + 2];
        for z in 2 * pair..(2 * pair + 2).min(fine.cells[2]) {
            for y in 0..fine.cells[1] {
                let four = near(z, layers).map(|k| near(y, rows).map(|j| grid.index([0, j, k])));
                for i in (0..n).step_by(2 * LANES) {
                    // Corrections of even places along x, and of odd ones.
                    let mut halves = [[0.0; LANES]; 2];
                    for (odd, half) in halves.iter_mut().enumerate() {
                        let mut two = [L::splat(0.0); 2];
                        for (two, [own, next]) in two.iter_mut().zip(four) {
                            let [own, next] = [own + i + odd, next + i + odd];
                            let own = L::load(window(&from[own % 2], own / 2));
                            *two = mixed(own, L::load(window(&from[next % 2], next / 2)));
                        }
                        mixed(two[0], two[1]).store(half);
                    }
                    for (l, pair) in row[i + 1..][..2 * LANES].as_chunks_mut().0.iter_mut().enumerate() {
                        *pair = [halves[0][l], halves[1][l]];
                    }
                }
                (row[0], row[n + 1]) = (row[1], row[n]);
                let first = fine.index([0, y, z]);
                let at = first.div_ceil(2);
                let (to, inverse) = (&mut to[at - begin..][..n], &inverse[at..][..n]);
                // Along x the red cells of a row are all lower ones in their aggregates, or all upper ones.
                let (own, next) = (&row[1..][..n], &row[2 * (first % 2)..][..n]);
                for i in (0..n).step_by(LANES) {
                    if i + LANES <= n {
                        let (own, next, inverse) = (window(own, i), window(next, i), window(inverse, i));
                        add_corrections(share, own, next, inverse, window_mut(to, i));
                    } else {
                        add_corrections(share, &own[i..], &next[i..], &inverse[i..], &mut to[i..]);
                    }
                }
            }
        }
    }
}

/// Adds weighted values of `own` and `next` to cells that are unknowns.
#[inline(always)]
fn add_corrections(share: [f32; 2], own: &[f32], next: &[f32], inverse: &[f32], to: &mut [f32]) {
    for i in 0..to.len() {
        let value = share[0] * own[i] + share[1] * next[i];
        to[i] += kept(value, inverse[i] != 0.0);
    }
}
