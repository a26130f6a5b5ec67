//! The pressure projection: conjugate gradients preconditioned by a multigrid cycle.
//!
//! The system is that of a weighted graph of cells: `sum over faces of c (p - p') = -divergence`, where a face between
//! two cells that are no air has the coefficient `c = dt / (density cell_size^2)`, a wall has none, and behind a face to
//! air the pressure is zero. Coarser levels join eight cells into one (aggregation); the sum of the coefficients between
//! two aggregates, halved because their centres are twice as far apart, is the coarse coefficient. So any shape of the
//! fluid and any jump of density is coarsened by the same rule. One symmetric cycle with red-black Gauss-Seidel is the
//! preconditioner.

use rayon::prelude::*;

use super::grid::Grid;

/// Cells of the coarsest level, at most, along its longest axis.
const COARSEST: usize = 4;
/// Sweeps on the coarsest level.
const COARSEST_SWEEPS: usize = 20;
/// Sweeps before and after the coarser level is asked.
const SWEEPS: usize = 2;

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Largest residual, relative to the largest divergence at the start of a cold solve.
    pub(super) tolerance: f64,
    /// Iterations after which the solve has failed.
    pub(super) max_iterations: u32,
}

/// A level's coefficients. Entries that are no unknown have a diagonal of zero.
#[derive(Clone, Debug)]
struct Level {
    grid: Grid,
    /// Coefficient of the lower face of each cell along each axis [1/s].
    face: [Vec<f64>; 3],
    /// Coefficient to the outside: air.
    ground: Vec<f64>,
    diagonal: Vec<f64>,
    /// Work space of the cycle.
    solution: Vec<f64>,
    right_hand_side: Vec<f64>,
    residual: Vec<f64>,
}

/// The solver, with memory that is kept.
#[derive(Clone, Debug)]
pub(super) struct Pressure {
    levels: Vec<Level>,
    residual: Vec<f64>,
    direction: Vec<f64>,
    image: Vec<f64>,
    preconditioned: Vec<f64>,
}

/// Why a solve failed: the residual that was reached, relative to the right-hand side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unconverged(pub(super) f64);

impl Level {
    fn new(grid: Grid) -> Self {
        let zero = vec![0.0; grid.len()];
        Self {
            grid,
            face: [zero.clone(), zero.clone(), zero.clone()],
            ground: zero.clone(),
            diagonal: zero.clone(),
            solution: zero.clone(),
            right_hand_side: zero.clone(),
            residual: zero,
        }
    }

    /// The sum of a row without the diagonal: c p' over the neighbours.
    #[inline]
    fn neighbours(&self, p: &[f64], at: usize) -> f64 {
        let mut sum = 0.0;
        for (face, stride) in self.face.iter().zip(self.grid.strides()) {
            if face[at] != 0.0 {
                sum += face[at] * p[at - stride];
            }
            // A cell has an entry beyond it along every axis.
            if face[at + stride] != 0.0 {
                sum += face[at + stride] * p[at + stride];
            }
        }
        sum
    }

    fn find_diagonal(&mut self) {
        let (face, ground, grid) = (&self.face, &self.ground, self.grid);
        grid.for_each_layer(&mut self.diagonal, |k, layer| {
            for (n, diagonal) in layer.iter_mut().enumerate() {
                *diagonal = 0.0;
                let at = k * grid.layer() + n;
                if cell_of(&grid, k, n).is_some() {
                    *diagonal = ground[at];
                    for (face, stride) in face.iter().zip(grid.strides()) {
                        *diagonal += face[at] + face[at + stride];
                    }
                }
            }
        });
    }

    /// The next coarser level.
    fn coarsen(&self, coarse: &mut Self) {
        let (fine, cells) = (self.grid, self.grid.cells);
        let (face, ground) = (&self.face, &self.ground);
        let grid = coarse.grid;
        for axis in 0..3 {
            grid.for_each_layer(&mut coarse.face[axis], |k, layer| {
                for (n, coefficient) in layer.iter_mut().enumerate() {
                    *coefficient = 0.0;
                    let Some(corner) = cell_of(&grid, k, n) else { continue };
                    for_each_child(corner, cells, |child| {
                        // The four fine faces that lie on the coarse one.
                        if child[axis] == 2 * corner[axis] {
                            *coefficient += 0.5 * face[axis][fine.index(child)];
                        }
                    });
                }
            });
        }
        grid.for_each_layer(&mut coarse.ground, |k, layer| {
            for (n, sum) in layer.iter_mut().enumerate() {
                *sum = 0.0;
                if let Some(corner) = cell_of(&grid, k, n) {
                    for_each_child(corner, cells, |child| *sum += 0.5 * ground[fine.index(child)]);
                }
            }
        });
        coarse.find_diagonal();
    }

    /// One sweep of Gauss-Seidel over the cells of one colour: no two of them are neighbours, so that the order does
    /// not matter.
    fn sweep(&mut self, colour: usize) {
        let mut solution = std::mem::take(&mut self.solution);
        // Layers of one parity only read the other one's, and themselves at the other colour.
        for parity in 0..2 {
            let (own, others) = split_layers(&mut solution, self.grid.layer(), parity);
            let this = &*self;
            own.into_par_iter().for_each(|(k, layer)| this.sweep_layer(k, layer, &others, colour));
        }
        self.solution = solution;
    }

    fn sweep_layer(&self, k: usize, layer: &mut [f64], others: &[Option<&[f64]>], colour: usize) {
        let grid = self.grid;
        if k >= grid.cells[2] {
            return;
        }
        let ([_, stride, thickness], [fx, fy, fz]) = (grid.strides(), &self.face);
        let base = k * thickness;
        let below = if k > 0 { others[k - 1] } else { None };
        let above = others.get(k + 1).copied().flatten();
        for j in 0..grid.cells[1] {
            for i in ((j + k + colour) % 2..grid.cells[0]).step_by(2) {
                let n = j * stride + i;
                let at = base + n;
                let diagonal = self.diagonal[at];
                if diagonal == 0.0 {
                    continue;
                }
                let mut sum = self.right_hand_side[at];
                if i > 0 {
                    sum += fx[at] * layer[n - 1];
                }
                sum += fx[at + 1] * layer[n + 1];
                if j > 0 {
                    sum += fy[at] * layer[n - stride];
                }
                sum += fy[at + stride] * layer[n + stride];
                if let Some(below) = below {
                    sum += fz[at] * below[n];
                }
                if let Some(above) = above {
                    sum += fz[at + thickness] * above[n];
                }
                layer[n] = sum / diagonal;
            }
        }
    }
}

/// The layers of one parity to write to, and all others to read, by number.
type Layers<'a> = (Vec<(usize, &'a mut [f64])>, Vec<Option<&'a [f64]>>);

fn split_layers(column: &mut [f64], thickness: usize, parity: usize) -> Layers<'_> {
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for (k, layer) in column.chunks_mut(thickness).enumerate() {
        if k % 2 == parity {
            own.push((k, layer));
            others.push(None);
        } else {
            others.push(Some(&*layer));
        }
    }
    (own, others)
}

/// Coordinates of entry `n` of layer `k` if it is a cell.
fn cell_of(grid: &Grid, k: usize, n: usize) -> Option<[usize; 3]> {
    let row = grid.cells[0] + 1;
    let cell = [n % row, n / row, k];
    grid.is_cell(cell).then_some(cell)
}

/// Visits the fine cells of a coarse one.
fn for_each_child(coarse: [usize; 3], cells: [usize; 3], mut visit: impl FnMut([usize; 3])) {
    for octant in 0..8 {
        let child = std::array::from_fn(|axis| 2 * coarse[axis] + (octant >> axis & 1));
        if (0..3).all(|axis| child[axis] < cells[axis]) {
            visit(child);
        }
    }
}

impl Pressure {
    pub(super) fn new(grid: Grid) -> Self {
        let mut levels = vec![Level::new(grid)];
        let mut cells = grid.cells;
        while cells.iter().any(|&n| n > COARSEST) {
            cells = cells.map(|n| n.div_ceil(2));
            levels.push(Level::new(Grid { cells, ..grid }));
        }
        let zero = vec![0.0; grid.len()];
        Self {
            levels,
            residual: zero.clone(),
            direction: zero.clone(),
            image: zero.clone(),
            preconditioned: zero,
        }
    }

    /// The coefficients to set before [`Self::solve`]: of each axis's lower faces, and to air.
    pub(super) fn coefficients(&mut self) -> (&mut [Vec<f64>; 3], &mut Vec<f64>) {
        let finest = &mut self.levels[0];
        (&mut finest.face, &mut finest.ground)
    }

    /// Solves for `pressure`, which goes in as the starting point; the number of iterations. `scale` is the largest
    /// entry of the right-hand side that counts as one.
    pub(super) fn solve(
        &mut self,
        right_hand_side: &mut [f64],
        pressure: &mut [f64],
        scale: f64,
        limits: &Limits,
    ) -> Result<u32, Unconverged> {
        self.levels[0].find_diagonal();
        for level in 1..self.levels.len() {
            let (fine, coarse) = self.levels.split_at_mut(level);
            fine[level - 1].coarsen(&mut coarse[0]);
        }
        self.make_consistent(right_hand_side);
        let finest = &self.levels[0];
        pressure.par_iter_mut().zip(&finest.diagonal).with_min_len(4096).for_each(|(p, &d)| {
            if d == 0.0 {
                *p = 0.0;
            }
        });
        apply(finest, pressure, &mut self.residual);
        self.residual
            .par_iter_mut()
            .zip(&*right_hand_side)
            .zip(&finest.diagonal)
            .with_min_len(4096)
            .for_each(|((r, &b), &d)| *r = if d == 0.0 { 0.0 } else { b - *r });
        let target = limits.tolerance * scale;
        let mut iterations = 0;
        let mut square = 0.0;
        loop {
            let worst = largest(&self.residual);
            if worst <= target {
                return Ok(iterations);
            }
            if iterations == limits.max_iterations || !worst.is_finite() {
                return Err(Unconverged(worst / scale));
            }
            self.precondition();
            let next_square = dot(&self.residual, &self.preconditioned);
            let beta = if iterations == 0 { 0.0 } else { next_square / square };
            square = next_square;
            self.direction.par_iter_mut().zip(&self.preconditioned).with_min_len(4096).for_each(|(p, z)| {
                *p = z + beta * *p;
            });
            apply(&self.levels[0], &self.direction, &mut self.image);
            let curvature = dot(&self.direction, &self.image);
            if curvature.is_nan() || curvature <= 0.0 {
                return Err(Unconverged(worst / scale));
            }
            let length = square / curvature;
            pressure
                .par_iter_mut()
                .zip(&self.direction)
                .with_min_len(4096)
                .for_each(|(x, p)| *x += length * p);
            self.residual
                .par_iter_mut()
                .zip(&self.image)
                .with_min_len(4096)
                .for_each(|(r, q)| *r -= length * q);
            iterations += 1;
        }
    }

    /// A fluid that touches no air has no unique pressure, and its divergence must add up to nothing: what rounding
    /// leaves is spread over its cells.
    fn make_consistent(&self, right_hand_side: &mut [f64]) {
        let finest = &self.levels[0];
        if finest.ground.par_iter().any(|&ground| ground != 0.0) {
            return;
        }
        let unknowns = finest.diagonal.iter().filter(|&&d| d != 0.0).count();
        let sum = amalgam_particles::reduce::sum(right_hand_side.len(), 0.0, |i| right_hand_side[i]);
        let mean = sum / unknowns.max(1) as f64;
        for (b, &d) in right_hand_side.iter_mut().zip(&finest.diagonal) {
            *b = if d == 0.0 { 0.0 } else { *b - mean };
        }
    }

    /// One symmetric cycle on the residual.
    fn precondition(&mut self) {
        self.levels[0].right_hand_side.copy_from_slice(&self.residual);
        self.cycle(0);
        self.preconditioned.copy_from_slice(&self.levels[0].solution);
    }

    fn cycle(&mut self, level: usize) {
        let coarsest = level + 1 == self.levels.len();
        let this = &mut self.levels[level];
        this.solution.fill(0.0);
        let sweeps = if coarsest { COARSEST_SWEEPS } else { SWEEPS };
        for _ in 0..sweeps {
            this.sweep(0);
            this.sweep(1);
        }
        if !coarsest {
            self.restrict(level);
            self.cycle(level + 1);
            self.prolong(level);
        }
        let this = &mut self.levels[level];
        for _ in 0..sweeps {
            this.sweep(1);
            this.sweep(0);
        }
    }

    /// The residual of a level as the next one's right-hand side: sums over the aggregates.
    fn restrict(&mut self, level: usize) {
        let (fine, coarse) = self.levels.split_at_mut(level + 1);
        let (fine, coarse) = (&mut fine[level], &mut coarse[0]);
        let mut residual = std::mem::take(&mut fine.residual);
        apply(fine, &fine.solution, &mut residual);
        residual
            .par_iter_mut()
            .zip(&fine.right_hand_side)
            .zip(&fine.diagonal)
            .with_min_len(4096)
            .for_each(|((r, &b), &d)| *r = if d == 0.0 { 0.0 } else { b - *r });
        let (cells, fine_grid, grid) = (fine.grid.cells, fine.grid, coarse.grid);
        grid.for_each_layer(&mut coarse.right_hand_side, |k, layer| {
            for (n, sum) in layer.iter_mut().enumerate() {
                *sum = 0.0;
                if let Some(corner) = cell_of(&grid, k, n) {
                    for_each_child(corner, cells, |child| *sum += residual[fine_grid.index(child)]);
                }
            }
        });
        fine.residual = residual;
    }

    /// Adds the coarser level's solution.
    fn prolong(&mut self, level: usize) {
        let (fine, coarse) = self.levels.split_at_mut(level + 1);
        let (fine, coarse) = (&mut fine[level], &coarse[0]);
        let (grid, diagonal) = (fine.grid, &fine.diagonal);
        grid.for_each_layer(&mut fine.solution, |k, layer| {
            for (n, p) in layer.iter_mut().enumerate() {
                if let Some(cell) = cell_of(&grid, k, n)
                    && diagonal[k * grid.layer() + n] != 0.0
                {
                    *p += coarse.solution[coarse.grid.index(cell.map(|c| c / 2))];
                }
            }
        });
    }
}

fn apply(level: &Level, p: &[f64], image: &mut [f64]) {
    let grid = level.grid;
    grid.for_each_layer(image, |k, layer| {
        for (n, image) in layer.iter_mut().enumerate() {
            let at = k * grid.layer() + n;
            let diagonal = level.diagonal[at];
            *image = if diagonal == 0.0 { 0.0 } else { diagonal * p[at] - level.neighbours(p, at) };
        }
    });
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    amalgam_particles::reduce::sum(a.len(), 0.0, |i| a[i] * b[i])
}

/// The largest magnitude; infinite if one is not a number.
fn largest(values: &[f64]) -> f64 {
    amalgam_particles::reduce::max(values.len(), 0.0, |i| {
        if values[i].is_nan() { f64::INFINITY } else { values[i].abs() }
    })
}
