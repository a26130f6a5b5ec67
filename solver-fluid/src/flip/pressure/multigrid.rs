//! A multigrid cycle in f32: the preconditioner of the pressure solve.
//!
//! A coarser level joins eight cells into one aggregate. The coarse coefficient is half of the sum of the
//! coefficients between two aggregates, since their centres are twice as far apart. So every shape of the
//! fluid and every jump of density is coarsened by the same rule (`flip/pressure/system.rs`). Corrections are
//! interpolated between the centres of aggregates (prolongation). Residuals are restricted by the transpose.
//! Red-black Gauss-Seidel smooths.
//!
//! Columns are split by colour ([`Split`]). A sweep over one colour reads the other colour only, in whole
//! vectors, so that its cells can be done in any order. After a sweep over the black cells their residual is
//! zero, so that only the residual of red cells is restricted. The first sweep after prolongation overwrites
//! the black cells, so that only red cells are prolonged.

use std::ops::Range;

use amalgam_particles::lanes::{LANES, Lanes, Task, Width};
use rayon::prelude::*;

use super::super::grid::Grid;
use super::super::slab::Slab;
use super::between_levels::{Prolong, Restrict, pairs_of_layers};
use super::columns::{BLOCK, Split, split_zeros};
use super::share::{LevelShare, shares};
use super::system::{Kind, System, add_lanes, neighbours, window};

/// Largest number of cells of the coarsest level along an axis.
const COARSEST: usize = 4;
/// Sweeps on the coarsest level.
const COARSEST_SWEEPS: usize = 20;
/// Sweeps before and after the correction by the coarser level.
const SWEEPS: usize = 2;
/// Factor of the correction of the finest level by the next level: without it aggregates are too stiff
/// [Braess1995]. The smallest eigenvalue of the preconditioned system is 0.69 without it and 0.75 with it. On
/// all levels the factor would lengthen the smoothest mode too much.
const OVERCORRECTION: f32 = 1.1;
/// Length of a column of one colour from which on threads share it. They share it even if this gains nothing
/// by itself, since a thread that waits longer falls asleep.
const SHARED: usize = 1 << 11;

/// A system with the work space of a cycle.
#[derive(Clone, Debug)]
struct Level {
    share: LevelShare,
    system: System,
    solution: Split<f32>,
    right_hand_side: Split<f32>,
    /// The residual of red cells.
    residual: Vec<f32>,
}

/// The hierarchy of levels, the finest first.
#[derive(Clone, Debug)]
pub(in crate::flip) struct Multigrid {
    levels: Vec<Level>,
    width: Width,
}

/// Kind of a pass over one colour, by its result.
#[derive(Clone, Copy)]
enum Yield {
    /// A sweep of Gauss-Seidel: the solution of each cell's equation with its neighbours' present values.
    Relaxed,
    /// A sweep of Gauss-Seidel in which all neighbours are zero.
    First,
    /// A sweep of Gauss-Seidel, and the product of its result and the right-hand side.
    Last,
    /// The residual of the present solution.
    Residual,
}

/// A block of a pass.
struct Pass<'a> {
    system: &'a System,
    yields: Yield,
    colour: usize,
    begin: usize,
    result: &'a mut [f32],
    right_hand_side: &'a [f32],
    /// The solution in this colour, for a residual.
    own: &'a [f32],
    other: &'a [f32],
}

impl Task for Pass<'_> {
    type Output = [f64; 1];

    #[inline(always)]
    fn run<L: Lanes>(self) -> [f64; 1] {
        let mut product = [0.0; LANES];
        let System { grid, common, face_of, diagonal, inverse, kind, .. } = self.system;
        let (colour, other, common) = (self.colour, self.other, L::splat(*common));
        let [lower, upper] = neighbours(grid, colour);
        let (chunks, _) = self.result.as_chunks_mut::<LANES>();
        for (n, result) in chunks.iter_mut().enumerate() {
            let at = self.begin + n * LANES;
            let kind = kind[colour][at / LANES];
            if kind == Kind::Closed {
                continue;
            }
            let mut sum = L::load(window(self.right_hand_side, at));
            if !matches!(self.yields, Yield::First) {
                if kind == Kind::Uniform {
                    // The solution of cells that are no unknown is zero.
                    let mut around = L::splat(0.0);
                    for axis in 0..3 {
                        let below = at.wrapping_add_signed(lower[axis]);
                        let beyond = at.wrapping_add_signed(upper[axis]);
                        around = around + (L::load(window(other, below)) + L::load(window(other, beyond)));
                    }
                    sum = sum + common * around;
                } else {
                    for axis in 0..3 {
                        let below = at.wrapping_add_signed(lower[axis]);
                        let beyond = at.wrapping_add_signed(upper[axis]);
                        sum = sum
                            + L::load(window(&face_of[axis][colour], at)) * L::load(window(other, below))
                            + L::load(window(&face_of[axis][1 - colour], beyond))
                                * L::load(window(other, beyond));
                    }
                }
            }
            let relaxed = sum * L::load(window(&inverse[colour], at));
            let value = match self.yields {
                Yield::Residual => {
                    (relaxed - L::load(window(self.own, at))) * L::load(window(&diagonal[colour], at))
                }
                _ => relaxed,
            };
            value.store(result);
            if matches!(self.yields, Yield::Last) {
                add_products(window(self.right_hand_side, at), result, &mut product);
            }
        }
        [add_lanes(product)]
    }
}

/// Adds products of two vectors, lane by lane.
#[inline(always)]
fn add_products(a: &[f32; LANES], b: &[f32; LANES], sums: &mut [f64; LANES]) {
    // All products come first: in one loop with the sums, compilers would take lane after lane.
    let mut products = [0.0; LANES];
    for l in 0..LANES {
        products[l] = f64::from(a[l]) * f64::from(b[l]);
    }
    for l in 0..LANES {
        sums[l] += products[l];
    }
}

impl Level {
    fn new(grid: Grid, share: LevelShare) -> Self {
        Self {
            share,
            system: System::new(grid),
            solution: split_zeros(&grid),
            right_hand_side: split_zeros(&grid),
            residual: vec![0.0; grid.len() / 2],
        }
    }

    /// A pass over one colour of the solution, in all blocks or `only` in some, which others then see.
    /// Collective.
    fn sweep(&mut self, width: Width, colour: usize, yields: Yield, only: Option<&[bool]>) {
        self.blocks(width, colour, yields, only).for_each(|_| ());
        self.share.see_colour(colour, &mut self.solution[colour]);
    }

    /// Finds the residual of the red cells, which others then see. Collective.
    fn find_residual(&mut self, width: Width) {
        self.blocks(width, 0, Yield::Residual, None).for_each(|_| ());
        self.share.residual.exchange_colour(self.share.ranks(), 0, &mut self.residual);
    }

    /// Sweeps that begin at zero, in all blocks or `only` in some. Collective.
    fn sweep_from_zero(&mut self, width: Width, sweeps: usize, only: Option<&[bool]>) {
        for sweep in 0..sweeps {
            let first = if sweep == 0 { Yield::First } else { Yield::Relaxed };
            self.sweep(width, 0, first, only);
            self.sweep(width, 1, Yield::Relaxed, only);
        }
    }

    /// Does a pass in the rank's blocks or `only` in some, and yields the product of each block.
    fn blocks(
        &mut self,
        width: Width,
        colour: usize,
        yields: Yield,
        only: Option<&[bool]>,
    ) -> impl IndexedParallelIterator<Item = [f64; 1]> {
        let Self { share, system, solution: [red, black], right_hand_side, residual } = self;
        let (own, other) = if colour == 0 { (red, black) } else { (black, red) };
        let (result, own): (_, &[f32]) = match yields {
            Yield::Residual => (residual, own),
            _ => (own, &[]),
        };
        let (system, right_hand_side, other) = (&*system, &right_hand_side[colour][..], &other[..]);
        let block = move |(b, result): (usize, &mut [f32])| {
            if only.is_some_and(|only| !only[b]) {
                return [0.0];
            }
            let begin = b * BLOCK;
            width.run(Pass { system, yields, colour, begin, result, right_hand_side, own, other })
        };
        let least = if result.len() < SHARED { usize::MAX } else { 1 };
        let own = result.par_chunks_mut(BLOCK).enumerate().skip(share.blocks.start).take(share.blocks.len());
        own.map(block).with_min_len(least)
    }

    /// Sets the next level's right-hand side from the residual of red cells: the transpose of
    /// [`Self::prolong`]. Collective.
    fn restrict(&self, width: Width, coarse: &mut Self) {
        let (fine, grid) = (self.system.grid, coarse.system.grid);
        let [red, black] = pairs_of_layers(&grid, &mut coarse.right_hand_side);
        let shared = fine.len() / 2 >= SHARED;
        let Range { start, end } = coarse.share.restricted;
        let pairs = red.zip(black).enumerate().skip(start).take(end - start);
        let pairs = pairs.with_min_len(if shared { 1 } else { usize::MAX });
        pairs.for_each(|(pair, (red, black))| {
            width.run(Restrict { fine, grid, pair, residual: &self.residual, to: [red, black] });
        });
        let Self { share, right_hand_side, .. } = coarse;
        share.restriction.exchange_split(share.ranks(), right_hand_side);
    }

    /// Adds the coarser level's solution times a factor to the red cells, interpolated between the centres of
    /// aggregates. Collective.
    fn prolong(&mut self, width: Width, coarse: &Self, factor: f32) {
        let (fine, grid) = (self.system.grid, coarse.system.grid);
        let [inverse, _] = &self.system.inverse;
        let [red, _] = pairs_of_layers(&fine, &mut self.solution);
        let shared = fine.len() / 2 >= SHARED;
        let Range { start, end } = self.share.prolonged;
        let pairs = red.enumerate().skip(start).take(end - start);
        pairs.with_min_len(if shared { 1 } else { usize::MAX }).for_each(|(pair, to)| {
            width.run(Prolong { fine, grid, pair, from: &coarse.solution, factor, inverse, to });
        });
        self.share.see_colour(0, &mut self.solution[0]);
    }
}

impl Multigrid {
    pub(in crate::flip) fn new(slab: &Slab, grid: Grid, width: Width) -> Self {
        let (mut grids, mut cells) = (vec![grid], grid.cells);
        while cells.iter().any(|&n| n > COARSEST) {
            cells = cells.map(|n| n.div_ceil(2));
            grids.push(Grid::new(grid.origin, grid.cell_size, cells));
        }
        let shares = shares(slab, &grids);
        let levels = grids.into_iter().zip(shares).map(|(grid, share)| Level::new(grid, share)).collect();
        Self { levels, width }
    }

    pub(in crate::flip) fn width(&self) -> Width {
        self.width
    }

    /// The part of the finest level that this rank computes.
    pub(in crate::flip) fn share(&self) -> &LevelShare {
        &self.levels[0].share
    }

    pub(in crate::flip) fn finest(&self) -> &System {
        &self.levels[0].system
    }

    /// Lets `set` set the finest coefficients `face`, `ground` and `common`, and builds the hierarchy from
    /// them. Only coefficients in `changed` runs of cells may differ from before. Collective.
    pub(in crate::flip) fn set(&mut self, changed: &[bool], set: impl FnOnce(&mut System)) {
        // Passes leave out vectors without an unknown, whose values must be zero. Cells become unknowns, or
        // cease to be, only if all runs have changed.
        if changed.iter().all(|&changed| changed) {
            for level in &mut self.levels {
                let own = &level.share.blocks;
                for column in level.solution.iter_mut().chain([&mut level.residual]) {
                    let blocks = column.par_chunks_mut(BLOCK).skip(own.start).take(own.len());
                    blocks.for_each(|block| block.fill(0.0));
                }
            }
        }
        let Level { system, share, .. } = &mut self.levels[0];
        set(system);
        system.prepare(self.width, share, changed);
        let mut changed = changed.to_vec();
        for level in 1..self.levels.len() {
            let (fine, coarse) = self.levels.split_at_mut(level);
            let Level { system, share, .. } = &mut coarse[0];
            changed = fine[level - 1].system.coarsen(self.width, &changed, (system, share));
        }
    }

    /// The finest system, and the right-hand side of the next [`Self::cycle`].
    pub(in crate::flip) fn finest_and_right_hand_side(&mut self) -> (&System, &mut Split<f32>) {
        let Level { system, right_hand_side, .. } = &mut self.levels[0];
        (system, right_hand_side)
    }

    /// The solution of the last [`Self::cycle`].
    pub(in crate::flip) fn solution(&self) -> &Split<f32> {
        &self.levels[0].solution
    }

    /// The right-hand side of the next [`Self::cycle`].
    pub(in crate::flip) fn right_hand_side(&mut self) -> &mut Split<f32> {
        &mut self.levels[0].right_hand_side
    }

    /// Runs a symmetric cycle from zero. Returns the product of its solution and the right-hand side.
    /// Collective.
    pub(in crate::flip) fn cycle(&mut self) -> f64 {
        self.cycle_from(0)
    }

    /// Sweeps from zero on the finest level, only in some blocks of each colour. The solution is zero in the
    /// other blocks. Collective.
    pub(in crate::flip) fn smooth(&mut self, only: &[bool]) {
        let Level { share, solution, .. } = &mut self.levels[0];
        for column in solution {
            let blocks = column.par_chunks_mut(BLOCK).zip(only);
            let blocks = blocks.skip(share.blocks.start).take(share.blocks.len());
            blocks.filter(|(_, wanted)| !**wanted).for_each(|(block, _)| block.fill(0.0));
        }
        self.levels[0].sweep_from_zero(self.width, SWEEPS, Some(only));
    }

    fn cycle_from(&mut self, level: usize) -> f64 {
        let width = self.width;
        let coarsest = level + 1 == self.levels.len();
        let sweeps = if coarsest { COARSEST_SWEEPS } else { SWEEPS };
        let this = &mut self.levels[level];
        this.sweep_from_zero(width, sweeps, None);
        if !coarsest {
            this.find_residual(width);
            let (fine, coarse) = self.levels.split_at_mut(level + 1);
            fine[level].restrict(width, &mut coarse[0]);
            self.cycle_from(level + 1);
            let (fine, coarse) = self.levels.split_at_mut(level + 1);
            fine[level].prolong(width, &coarse[0], if level == 0 { OVERCORRECTION } else { 1.0 });
        }
        let this = &mut self.levels[level];
        for _ in 1..sweeps {
            this.sweep(width, 1, Yield::Relaxed, None);
            this.sweep(width, 0, Yield::Relaxed, None);
        }
        if level > 0 {
            this.sweep(width, 1, Yield::Relaxed, None);
            this.sweep(width, 0, Yield::Relaxed, None);
            return 0.0;
        }
        let black: Vec<_> = this.blocks(width, 1, Yield::Last, None).collect();
        this.share.see_colour(1, &mut this.solution[1]);
        let red: Vec<_> = this.blocks(width, 0, Yield::Last, None).collect();
        this.share.by_colour([black, red]).iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amalgam_particles::{DVec3, random::uniform_f64};

    /// A pool, and lumps above it: some of their aggregates are neighbours without a face in common.
    #[test]
    fn a_cycle_is_symmetric_and_positive_among_lumps_that_do_not_touch() {
        for seed in 0..20 {
            let grid = Grid::new(DVec3::ZERO, 1.0, [10, 10, 20]);
            let random = |at: usize, purpose| uniform_f64(&[seed, at as u64, purpose]);
            let mut is_open = vec![false; grid.len()];
            for (n, at) in (0..20).flat_map(|k| (0..100).map(move |n| (n, [n % 10, n / 10, k]))) {
                is_open[grid.index(at)] = at[2] < 5 || random(100 * at[2] + n, 0) < 0.01 * seed as f64;
            }
            let mut multigrid = Multigrid::new(&Slab::whole(grid), grid, Width::supported()[0]);
            multigrid.set(&vec![true; grid.len() / (2 * LANES)], |system| {
                system.common = 1.0;
                for at in (0..grid.len()).filter(|&at| is_open[at]) {
                    for (face, stride) in system.face.iter_mut().zip(grid.strides()) {
                        face[at] = if is_open[at - stride] { 1.0 } else { 0.0 };
                        let air = [at - stride, at + stride].into_iter().filter(|&beside| !is_open[beside]);
                        system.ground[at] += (air.count() as f64 * random(at, 1)) as f32;
                    }
                }
            });
            let [(a, of_a), (b, of_b)] = &[2, 3].map(|purpose| {
                let mut asked = split_zeros::<f32>(&grid);
                for at in (0..grid.len()).filter(|&at| is_open[at]) {
                    asked[at % 2][at / 2] = random(at, purpose) as f32 - 0.5;
                }
                multigrid.right_hand_side().clone_from(&asked);
                multigrid.cycle();
                (asked, multigrid.solution().clone())
            });
            let product = |a: &Split<f32>, b: &Split<f32>| -> f64 {
                a.iter().flatten().zip(b.iter().flatten()).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
            };
            let scale = (product(a, of_a) * product(b, of_b)).sqrt();
            assert!(product(a, of_a) > 0.0 && product(b, of_b) > 0.0, "{seed}");
            let difference = product(a, of_b) - product(b, of_a);
            assert!(difference.abs() < 1e-4 * scale, "{seed}: {difference} of {scale}");
        }
    }
}
