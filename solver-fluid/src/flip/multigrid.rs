//! One multigrid cycle in f32: the preconditioner of the pressure solve.
//!
//! Coarser levels join eight cells into one (aggregation); the sum of the coefficients between two aggregates, halved
//! because their centres are twice as far apart, is the coarse coefficient. So any shape of the fluid and any jump of
//! density is coarsened by the same rule. Red-black Gauss-Seidel smooths.
//!
//! Columns are split by colour ([`Split`]): a sweep over one colour reads the other one only, in whole vectors, and its
//! cells can be done in any order. Behind a sweep over the black cells these have no residual, so that only red ones
//! are restricted; the first sweep on the way up overwrites the black ones, so that only red ones are prolonged.

use amalgam_particles::lanes::{LANES, Lanes, Task, Width};
use rayon::prelude::*;

use super::grid::Grid;

/// Cells of the coarsest level, at most, along its longest axis.
const COARSEST: usize = 4;
/// Sweeps on the coarsest level.
const COARSEST_SWEEPS: usize = 20;
/// Sweeps before and after the coarser level is asked.
const SWEEPS: usize = 2;
/// Entries of one colour in a task.
pub(super) const BLOCK: usize = 1024;
/// Columns of one colour at least this long are shared among threads.
const SHARED: usize = 1 << 15;

/// A column by colour: entry n stands at `n / 2` of the column `n % 2`, red (even) and black (odd).
pub(super) type Split<T> = [Vec<T>; 2];

pub(super) fn split_zeros<T: Default + Clone>(grid: &Grid) -> Split<T> {
    [0, 1].map(|_| vec![T::default(); grid.len() / 2])
}

/// Copies a column into its colours.
pub(super) fn split_into<T: Copy + Send + Sync>(column: &[T], to: &mut Split<T>) {
    let [red, black] = to;
    let entries =
        red.par_chunks_mut(BLOCK).zip(black.par_chunks_mut(BLOCK)).zip(column.par_chunks(2 * BLOCK));
    entries.for_each(|((red, black), column)| {
        for ((red, black), &[even, odd]) in red.iter_mut().zip(black).zip(column.as_chunks().0) {
            (*red, *black) = (even, odd);
        }
    });
}

/// The coefficients of a level: `sum over faces of face (p - p') + ground p`. Entries that are no unknown have zeros.
#[derive(Clone, Debug)]
pub(super) struct System {
    pub(super) grid: Grid,
    /// Coefficient of the lower face of each cell along each axis, in cells' own order [m s/kg / m^2].
    pub(super) face: [Vec<f32>; 3],
    /// Coefficient to the outside: air.
    pub(super) ground: Vec<f32>,
    /// The same by colour.
    pub(super) face_of: [Split<f32>; 3],
    pub(super) ground_of: Split<f32>,
    diagonal: Split<f32>,
    /// One over the diagonal, zero where there is no unknown.
    pub(super) inverse: Split<f32>,
    /// Which vectors of each colour hold an unknown.
    pub(super) active: [Vec<bool>; 2],
}

/// A system with the work space of a cycle.
#[derive(Clone, Debug)]
struct Level {
    system: System,
    solution: Split<f32>,
    right_hand_side: Split<f32>,
    /// Of red cells.
    residual: Vec<f32>,
}

/// The hierarchy of levels, the finest first.
#[derive(Clone, Debug)]
pub(super) struct Multigrid {
    levels: Vec<Level>,
    width: Width,
}

/// Where the neighbours of a colour's entry m stand in the other colour: the lower ones along each axis, then the upper
/// ones, as distances to m.
pub(super) fn neighbours(grid: &Grid, colour: usize) -> [[isize; 3]; 2] {
    let (half, colour) = (grid.strides().map(|stride| (stride / 2) as isize), colour as isize);
    [half.map(|half| colour - 1 - half), half.map(|half| colour + half)]
}

/// Sixteen entries from `at` on.
#[inline(always)]
pub(super) fn window<T>(column: &[T], at: usize) -> &[T; LANES] {
    column[at..at + LANES].first_chunk().expect("sixteen entries")
}

impl System {
    fn new(grid: Grid) -> Self {
        let (zero, zeros) = (vec![0.0; grid.len()], split_zeros(&grid));
        Self {
            grid,
            face: [0, 1, 2].map(|_| zero.clone()),
            ground: zero.clone(),
            face_of: [0, 1, 2].map(|_| zeros.clone()),
            ground_of: zeros.clone(),
            diagonal: zeros.clone(),
            inverse: zeros.clone(),
            active: [0, 1].map(|_| vec![false; grid.len() / 2 / LANES]),
        }
    }

    /// Sorts the coefficients by colour and finds the diagonal.
    fn prepare(&mut self) {
        for (face, of) in self.face.iter().zip(&mut self.face_of) {
            split_into(face, of);
        }
        split_into(&self.ground, &mut self.ground_of);
        for colour in 0..2 {
            let [_, upper] = neighbours(&self.grid, colour);
            let (face, ground) = (&self.face_of, &self.ground_of[colour]);
            let chunks = self.diagonal[colour].par_chunks_exact_mut(LANES);
            let columns = chunks.zip(self.inverse[colour].par_chunks_exact_mut(LANES));
            let last = ground.len() / LANES;
            columns.zip(&mut self.active[colour]).enumerate().with_min_len(64).for_each(
                |(n, ((diagonal, inverse), active))| {
                    // The margins hold no unknown.
                    if n == 0 || n + 1 == last {
                        return;
                    }
                    let at = n * LANES;
                    *active = false;
                    for l in 0..LANES {
                        let m = at + l;
                        let sum = (0..3).fold(ground[m], |sum, axis| {
                            let beyond = m.wrapping_add_signed(upper[axis]);
                            sum + face[axis][colour][m]
                                + face[axis][1 - colour].get(beyond).copied().unwrap_or(0.0)
                        });
                        diagonal[l] = sum;
                        inverse[l] = if sum > 0.0 { 1.0 / sum } else { 0.0 };
                        *active |= sum > 0.0;
                    }
                },
            );
        }
    }

    /// Sets the coefficients of the next coarser level.
    fn coarsen(&self, coarse: &mut Self) {
        let (fine, grid) = (self.grid, coarse.grid);
        let [_, row, layer] = fine.strides();
        let corner = |at: usize| {
            let n = at - grid.first();
            let [_, r, l] = grid.strides();
            let (i, j, k) = (n % r, n / r % (l / r), n / l);
            let cell = [i, j, k].map(|n| n.wrapping_sub(1));
            grid.is_cell(cell).then(|| fine.index(cell.map(|c| 2 * c)))
        };
        // Beyond the last cell stand walls, without coefficients.
        for (axis, [one, other]) in [[row, layer], [1, layer], [1, row]].into_iter().enumerate() {
            let face = &self.face[axis];
            for_each_layer(&grid, &mut coarse.face[axis], |at, coefficient| {
                *coefficient = corner(at).map_or(0.0, |c| {
                    0.5 * (face[c] + face[c + one] + (face[c + other] + face[c + one + other]))
                });
            });
        }
        let ground = &self.ground;
        for_each_layer(&grid, &mut coarse.ground, |at, coefficient| {
            *coefficient = corner(at).map_or(0.0, |c| {
                let four = |c: usize| ground[c] + ground[c + 1] + (ground[c + row] + ground[c + row + 1]);
                0.5 * (four(c) + four(c + layer))
            });
        });
        coarse.prepare();
    }

    /// Whether the pressure is known up to a constant only.
    pub(super) fn is_closed(&self) -> bool {
        self.ground.par_iter().with_min_len(BLOCK).all(|&ground| ground == 0.0)
    }
}

/// Visits all entries of a column's layers with their numbers.
fn for_each_layer(grid: &Grid, column: &mut [f32], visit: impl Fn(usize, &mut f32) + Sync) {
    let (first, layer) = (grid.first(), grid.layer());
    let layers = column[first..first + layer * grid.layers()].par_chunks_mut(layer);
    layers.enumerate().for_each(|(k, entries)| {
        for (n, entry) in entries.iter_mut().enumerate() {
            visit(first + k * layer + n, entry);
        }
    });
}

/// What a pass over one colour yields.
#[derive(Clone, Copy)]
enum Yield {
    /// The solution where the other colour and all before stay as they are: a sweep of Gauss-Seidel.
    Relaxed,
    /// That, with zero in all other places.
    First,
    /// The residual of the solution so far.
    Residual,
}

/// One block of a pass.
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
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let System { grid, face_of, diagonal, inverse, active, .. } = self.system;
        let (colour, other) = (self.colour, self.other);
        let [lower, upper] = neighbours(grid, colour);
        let (chunks, _) = self.result.as_chunks_mut::<LANES>();
        for (n, result) in chunks.iter_mut().enumerate() {
            let at = self.begin + n * LANES;
            if !active[colour][at / LANES] {
                continue;
            }
            let mut sum = L::load(window(self.right_hand_side, at));
            if !matches!(self.yields, Yield::First) {
                for axis in 0..3 {
                    let below = at.wrapping_add_signed(lower[axis]);
                    let beyond = at.wrapping_add_signed(upper[axis]);
                    sum = sum
                        + L::load(window(&face_of[axis][colour], at)) * L::load(window(other, below))
                        + L::load(window(&face_of[axis][1 - colour], beyond))
                            * L::load(window(other, beyond));
                }
            }
            let value = match self.yields {
                Yield::Residual => {
                    sum - L::load(window(&diagonal[colour], at)) * L::load(window(self.own, at))
                }
                _ => sum * L::load(window(&inverse[colour], at)),
            };
            value.store(result);
        }
    }
}

impl Level {
    fn new(grid: Grid) -> Self {
        Self {
            system: System::new(grid),
            solution: split_zeros(&grid),
            right_hand_side: split_zeros(&grid),
            residual: vec![0.0; grid.len() / 2],
        }
    }

    /// A pass over one colour of the solution, or over the residual.
    fn pass(&mut self, width: Width, colour: usize, yields: Yield) {
        let Self { system, solution: [red, black], right_hand_side, residual } = self;
        let (own, other) = if colour == 0 { (red, black) } else { (black, red) };
        let (result, own): (_, &[f32]) = match yields {
            Yield::Residual => (residual, own),
            _ => (own, &[]),
        };
        let (system, right_hand_side, other) = (&*system, &right_hand_side[colour][..], &other[..]);
        let block = |(b, result): (usize, &mut [f32])| {
            let begin = b * BLOCK;
            width.run(Pass { system, yields, colour, begin, result, right_hand_side, own, other });
        };
        if result.len() < SHARED {
            result.chunks_mut(BLOCK).enumerate().for_each(block);
        } else {
            result.par_chunks_mut(BLOCK).enumerate().with_min_len(4).for_each(block);
        }
    }

    /// The residual of red cells as the next level's right-hand side: sums over aggregates.
    fn restrict(&self, coarse: &mut Self) {
        let (fine, grid) = (self.system.grid, coarse.system.grid);
        let mut sums = vec![0.0; grid.cells[0]];
        for_each_aggregate_row(&fine, &grid, |at, fine_rows| {
            sums.fill(0.0);
            for &red in fine_rows {
                sums.iter_mut().zip(&self.residual[red..]).for_each(|(sum, residual)| *sum += residual);
            }
            for (i, &sum) in sums.iter().enumerate() {
                coarse.right_hand_side[(at + i) % 2][(at + i) / 2] = sum;
            }
        });
    }

    /// Adds the coarser level's solution to the red cells.
    fn prolong(&mut self, coarse: &Self) {
        let (fine, grid) = (self.system.grid, coarse.system.grid);
        let mut values = vec![0.0; grid.cells[0]];
        for_each_aggregate_row(&fine, &grid, |at, fine_rows| {
            for (i, value) in values.iter_mut().enumerate() {
                *value = coarse.solution[(at + i) % 2][(at + i) / 2];
            }
            for &red in fine_rows {
                let entries = self.solution[0][red..].iter_mut().zip(&self.system.inverse[0][red..]);
                for ((solution, &inverse), &value) in entries.zip(&values) {
                    *solution += if inverse != 0.0 { value } else { 0.0 };
                }
            }
        });
    }
}

/// Visits the rows of aggregates: the number of the first one, and where the red cells of the fine rows begin, one for
/// each aggregate.
fn for_each_aggregate_row(fine: &Grid, coarse: &Grid, mut visit: impl FnMut(usize, &[usize])) {
    for k in 0..coarse.cells[2] {
        for j in 0..coarse.cells[1] {
            let rows = [0, 1, 2, 3].map(|n| (2 * j + n % 2, 2 * k + n / 2));
            let mut red = [0; 4];
            let mut count = 0;
            for (j, k) in rows.into_iter().filter(|&(j, k)| j < fine.cells[1] && k < fine.cells[2]) {
                red[count] = fine.index([0, j, k]).div_ceil(2);
                count += 1;
            }
            visit(coarse.index([0, j, k]), &red[..count]);
        }
    }
}

impl Multigrid {
    pub(super) fn new(grid: Grid, width: Width) -> Self {
        let mut levels = vec![Level::new(grid)];
        let mut cells = grid.cells;
        while cells.iter().any(|&n| n > COARSEST) {
            cells = cells.map(|n| n.div_ceil(2));
            levels.push(Level::new(Grid::new(grid.origin, grid.cell_size, cells)));
        }
        Self { levels, width }
    }

    pub(super) fn width(&self) -> Width {
        self.width
    }

    pub(super) fn finest(&self) -> &System {
        &self.levels[0].system
    }

    /// The system whose coefficients `face` and `ground` are to be set before [`Self::prepare`].
    pub(super) fn finest_mut(&mut self) -> &mut System {
        &mut self.levels[0].system
    }

    /// Builds the hierarchy from the finest coefficients.
    pub(super) fn prepare(&mut self) {
        for level in &mut self.levels {
            // Passes leave out vectors without an unknown.
            let columns = level.solution.iter_mut().chain([&mut level.residual]);
            columns.for_each(|column| column.fill(0.0));
        }
        self.levels[0].system.prepare();
        for level in 1..self.levels.len() {
            let (fine, coarse) = self.levels.split_at_mut(level);
            fine[level - 1].system.coarsen(&mut coarse[0].system);
        }
    }

    /// The right-hand side to set before [`Self::cycle`].
    pub(super) fn right_hand_side(&mut self) -> &mut Split<f32> {
        &mut self.levels[0].right_hand_side
    }

    /// One symmetric cycle from zero; its answer.
    pub(super) fn cycle(&mut self) -> &Split<f32> {
        self.cycle_from(0);
        &self.levels[0].solution
    }

    fn cycle_from(&mut self, level: usize) {
        let width = self.width;
        let coarsest = level + 1 == self.levels.len();
        let sweeps = if coarsest { COARSEST_SWEEPS } else { SWEEPS };
        let this = &mut self.levels[level];
        for sweep in 0..sweeps {
            this.pass(width, 0, if sweep == 0 { Yield::First } else { Yield::Relaxed });
            this.pass(width, 1, Yield::Relaxed);
        }
        if !coarsest {
            this.pass(width, 0, Yield::Residual);
            let (fine, coarse) = self.levels.split_at_mut(level + 1);
            fine[level].restrict(&mut coarse[0]);
            self.cycle_from(level + 1);
            let (fine, coarse) = self.levels.split_at_mut(level + 1);
            fine[level].prolong(&coarse[0]);
        }
        let this = &mut self.levels[level];
        for _ in 0..sweeps {
            this.pass(width, 1, Yield::Relaxed);
            this.pass(width, 0, Yield::Relaxed);
        }
    }
}
