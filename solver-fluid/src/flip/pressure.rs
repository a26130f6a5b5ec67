//! The pressure projection: conjugate gradients preconditioned by a multigrid cycle.
//!
//! The system is that of a weighted graph of cells: `sum over faces of c (p - p') = -divergence`, where a face between
//! two cells that are no air has the coefficient `c = dt / (density cell_size^2)`, a wall has none, and behind a face to
//! air the pressure is zero. Coefficients are f32; all else of the iteration is f64, so that a solve is as exact as its
//! tolerance says, while the preconditioner (`flip/multigrid.rs`) is f32 throughout.

use amalgam_particles::lanes::{LANES, Lanes, Task, Width};
use rayon::prelude::*;

use super::grid::Grid;
use super::multigrid::{BLOCK, Multigrid, Split, System, neighbours, split_zeros, window};

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Largest residual, relative to the largest divergence at the start of a cold solve.
    pub(super) tolerance: f64,
    /// Part of the starting point's residual that is small enough, too.
    pub(super) forcing: f64,
    /// Iterations after which the solve has failed.
    pub(super) max_iterations: u32,
}

/// The solver, with memory that is kept.
#[derive(Clone, Debug)]
pub(super) struct Pressure {
    multigrid: Multigrid,
    residual: Split<f64>,
    direction: Split<f64>,
    image: Split<f64>,
}

/// Why a solve failed: the residual that was reached, relative to the right-hand side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unconverged(pub(super) f64);

/// Sums of a block, lane by lane.
type LaneSums = [f64; LANES];

/// A fixed tree over the lanes.
fn add_lanes(mut lanes: LaneSums) -> f64 {
    for half in [8, 4, 2, 1] {
        for l in 0..half {
            lanes[l] += lanes[l + half];
        }
    }
    lanes[0]
}

/// A block of `A p`: its product with `p`.
struct Apply<'a> {
    system: &'a System,
    colour: usize,
    begin: usize,
    p: &'a Split<f64>,
    image: &'a mut [f64],
}

impl Task for Apply<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f64 {
        let System { grid, face_of, ground_of, active, .. } = self.system;
        let (colour, own, other) = (self.colour, &self.p[self.colour], &self.p[1 - self.colour]);
        let [lower, upper] = neighbours(grid, colour);
        let mut sums = [0.0; LANES];
        let (chunks, _) = self.image.as_chunks_mut::<LANES>();
        for (n, image) in chunks.iter_mut().enumerate() {
            let at = self.begin + n * LANES;
            if !active[colour][at / LANES] {
                continue;
            }
            let p = window(own, at);
            let ground = window(&ground_of[colour], at);
            let mut value: [f64; LANES] = std::array::from_fn(|l| f64::from(ground[l]) * p[l]);
            for axis in 0..3 {
                let below = at.wrapping_add_signed(lower[axis]);
                let beyond = at.wrapping_add_signed(upper[axis]);
                let (face, to) = (window(&face_of[axis][colour], at), window(other, below));
                let (next_face, next) = (window(&face_of[axis][1 - colour], beyond), window(other, beyond));
                for l in 0..LANES {
                    value[l] +=
                        f64::from(face[l]) * (p[l] - to[l]) + f64::from(next_face[l]) * (p[l] - next[l]);
                }
            }
            for l in 0..LANES {
                sums[l] += value[l] * p[l];
            }
            *image = value;
        }
        add_lanes(sums)
    }
}

/// A block of the product of two columns.
struct Dot<'a> {
    z: &'a [f32],
    r: &'a [f64],
}

impl Task for Dot<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f64 {
        let mut sums = [0.0; LANES];
        for (z, r) in self.z.as_chunks::<LANES>().0.iter().zip(self.r.as_chunks::<LANES>().0) {
            for l in 0..LANES {
                sums[l] += f64::from(z[l]) * r[l];
            }
        }
        add_lanes(sums)
    }
}

/// A block of `x += length p` and `r -= length q`; the largest entry of r.
struct Advance<'a> {
    length: f64,
    x: &'a mut [f64],
    r: &'a mut [f64],
    p: &'a [f64],
    q: &'a [f64],
}

impl Task for Advance<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f64 {
        let Self { length, x, r, p, q } = self;
        for (x, p) in x.iter_mut().zip(p) {
            *x += length * p;
        }
        for (r, q) in r.iter_mut().zip(q) {
            *r -= length * q;
        }
        largest(r)
    }
}

impl Pressure {
    pub(super) fn new(grid: Grid, width: Width) -> Self {
        Self {
            multigrid: Multigrid::new(grid, width),
            residual: split_zeros(&grid),
            direction: split_zeros(&grid),
            image: split_zeros(&grid),
        }
    }

    /// Lets `set` set the coefficients for [`Self::solve`], of each axis's lower faces and to air, and prepares the
    /// preconditioner.
    pub(super) fn set_coefficients(&mut self, set: impl FnOnce(&mut [Vec<f32>; 3], &mut [f32])) {
        let system = self.multigrid.finest_mut();
        set(&mut system.face, &mut system.ground);
        self.multigrid.prepare();
    }

    /// Solves for `pressure`, which goes in as the starting point; the number of iterations. `right_hand_side` must be
    /// zero where there is no unknown.
    pub(super) fn solve(
        &mut self,
        right_hand_side: &mut Split<f64>,
        pressure: &mut Split<f64>,
        limits: &Limits,
    ) -> Result<u32, Unconverged> {
        self.make_consistent(right_hand_side);
        let scale = blocks(&*right_hand_side, largest).into_iter().fold(0.0, f64::max);
        self.find_residual(right_hand_side, pressure);
        let mut worst = self.largest_residual();
        let target = f64::max(limits.tolerance * scale, limits.forcing * worst);
        let (mut iterations, mut square) = (0, 0.0);
        while worst > target || worst.is_nan() {
            if iterations == limits.max_iterations || !worst.is_finite() {
                return Err(Unconverged(worst / scale));
            }
            let next_square =
                self.precondition(|next_square| if iterations == 0 { 0.0 } else { next_square / square });
            square = next_square;
            let curvature = apply(&self.multigrid, &self.direction, &mut self.image);
            if curvature.is_nan() || curvature <= 0.0 {
                return Err(Unconverged(worst / scale));
            }
            worst = self.advance(square / curvature, pressure);
            iterations += 1;
        }
        Ok(iterations)
    }

    /// A fluid that touches no air has no unique pressure, and its divergence must add up to nothing: what rounding
    /// leaves is spread over its cells.
    fn make_consistent(&self, right_hand_side: &mut Split<f64>) {
        let system = self.multigrid.finest();
        if !system.is_closed() {
            return;
        }
        let unknowns: usize = system.inverse.iter().flatten().filter(|&&inverse| inverse != 0.0).count();
        let sum: f64 = blocks(&*right_hand_side, |block| block.iter().sum::<f64>()).into_iter().sum();
        let mean = sum / unknowns.max(1) as f64;
        for (column, inverse) in right_hand_side.iter_mut().zip(&system.inverse) {
            for (b, &inverse) in column.iter_mut().zip(inverse) {
                *b = if inverse == 0.0 { 0.0 } else { *b - mean };
            }
        }
    }

    /// The residual of the starting point, which is made zero where there is no unknown.
    fn find_residual(&mut self, right_hand_side: &Split<f64>, pressure: &mut Split<f64>) {
        for (pressure, inverse) in pressure.iter_mut().zip(&self.multigrid.finest().inverse) {
            let entries = pressure.par_iter_mut().zip(inverse).with_min_len(BLOCK);
            entries.for_each(|(p, &inverse)| *p = if inverse == 0.0 { 0.0 } else { *p });
        }
        self.image.iter_mut().for_each(|image| image.fill(0.0));
        apply(&self.multigrid, pressure, &mut self.image);
        for ((residual, right_hand_side), image) in
            self.residual.iter_mut().zip(right_hand_side).zip(&self.image)
        {
            let entries = residual.par_iter_mut().zip(right_hand_side).zip(image).with_min_len(BLOCK);
            entries.for_each(|((r, b), image)| *r = b - image);
        }
    }

    fn largest_residual(&self) -> f64 {
        blocks(&self.residual, largest).into_iter().fold(0.0, larger)
    }

    /// Preconditions the residual and turns the direction: `p = z + beta p`. `beta` is found from r z, which is
    /// returned.
    fn precondition(&mut self, beta: impl Fn(f64) -> f64) -> f64 {
        let Self { multigrid, residual, direction, .. } = self;
        let width = multigrid.width();
        for (to, from) in multigrid.right_hand_side().iter_mut().zip(&*residual) {
            to.par_iter_mut().zip(from).with_min_len(BLOCK).for_each(|(to, &from)| *to = from as f32);
        }
        let solution = multigrid.cycle();
        let mut square = 0.0;
        for (z, r) in solution.iter().zip(&*residual) {
            let block = |(z, r): (&[f32], &[f64])| width.run(Dot { z, r });
            let partial: Vec<f64> = z.par_chunks(BLOCK).zip(r.par_chunks(BLOCK)).map(block).collect();
            square += partial.into_iter().sum::<f64>();
        }
        let beta = beta(square);
        for (p, z) in direction.iter_mut().zip(solution) {
            let entries = p.par_iter_mut().zip(z).with_min_len(BLOCK);
            entries.for_each(|(p, &z)| *p = f64::from(z) + beta * *p);
        }
        square
    }

    /// Goes `length` along the direction; the largest residual there.
    fn advance(&mut self, length: f64, pressure: &mut Split<f64>) -> f64 {
        let Self { multigrid, residual, direction, image } = self;
        let width = multigrid.width();
        let mut worst = 0.0;
        for colour in 0..2 {
            let columns = pressure[colour].par_chunks_mut(BLOCK).zip(residual[colour].par_chunks_mut(BLOCK));
            let others = direction[colour].par_chunks(BLOCK).zip(image[colour].par_chunks(BLOCK));
            let blocks = columns.zip(others);
            worst = blocks
                .map(|((x, r), (p, q))| width.run(Advance { length, x, r, p, q }))
                .reduce(|| worst, larger);
        }
        worst
    }
}

/// The larger one; NaN if one is NaN.
#[inline(always)]
pub(super) fn larger(a: f64, b: f64) -> f64 {
    if a > b || a.is_nan() { a } else { b }
}

/// The largest magnitude; NaN if one is not a number.
#[inline(always)]
fn largest(values: &[f64]) -> f64 {
    let mut lanes = [0.0; LANES];
    for chunk in values.as_chunks::<LANES>().0 {
        for l in 0..LANES {
            lanes[l] = larger(lanes[l], chunk[l].abs());
        }
    }
    lanes.into_iter().fold(0.0, larger)
}

/// A value of each block of a column, red ones first.
fn blocks(column: &Split<f64>, of: impl Fn(&[f64]) -> f64 + Sync + Send) -> Vec<f64> {
    let [red, black] = column;
    red.par_chunks(BLOCK).chain(black.par_chunks(BLOCK)).map(of).collect()
}

/// `image = A p`; their product.
fn apply(multigrid: &Multigrid, p: &Split<f64>, image: &mut Split<f64>) -> f64 {
    let (system, width) = (multigrid.finest(), multigrid.width());
    let mut product = 0.0;
    for (colour, image) in image.iter_mut().enumerate() {
        let block =
            |(b, image): (usize, &mut [f64])| width.run(Apply { system, colour, begin: b * BLOCK, p, image });
        let partial: Vec<f64> = image.par_chunks_mut(BLOCK).enumerate().map(block).collect();
        product += partial.into_iter().sum::<f64>();
    }
    product
}
