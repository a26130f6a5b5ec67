//! Columns of vectors, component by component and side by side in lanes, with the same bits on every processor.

use amalgam_particles::DVec3;
use amalgam_particles::lanes::{self, LANES, Lanes, Task};
use bytemuck::{cast_slice, cast_slice_mut};
use rayon::prelude::*;

use super::tasks::{CHUNK, SERIAL};

/// The product of two columns of equal length.
pub(super) fn dot(a: &[DVec3], b: &[DVec3]) -> f64 {
    lanes::run(Dot { a: cast_slice(a), b: cast_slice(b) })
}

/// Adds a column times a factor to a column of equal length.
pub(super) fn add_to(sum: &mut [DVec3], factor: f64, column: &[DVec3]) {
    lanes::run(AddTo { sum: cast_slice_mut(sum), factor, column: cast_slice(column) });
}

/// Finds a part of the answers to the next y from the answers at x, x_new and y, each impulses and motions. Returns
/// the work of d on the bodies.
pub(super) fn step_on(
    [at_x, at_trial, at_y]: [[&[DVec3]; 2]; 3],
    beta: f64,
    [given, motion]: [&mut [DVec3]; 2],
) -> f64 {
    let chunk = |first: usize, given: &mut [DVec3], motion: &mut [DVec3]| {
        let part = |column| part_of(column, first, given.len());
        let [at_x, at_trial, at_y] = [at_x, at_trial, at_y].map(|answers| answers.map(part));
        lanes::run(StepOn {
            at_x,
            at_trial,
            at_y,
            beta,
            next: [cast_slice_mut(given), cast_slice_mut(motion)],
        })
    };
    if given.len() <= SERIAL {
        let chunks = given.chunks_mut(CHUNK).zip(motion.chunks_mut(CHUNK)).enumerate();
        return chunks.fold(0.0, |sum, (k, (given, motion))| sum + chunk(k * CHUNK, given, motion));
    }
    let chunks = given.par_chunks_mut(CHUNK).zip(motion.par_chunks_mut(CHUNK)).enumerate();
    let parts: Vec<f64> = chunks.map(|(k, (given, motion))| chunk(k * CHUNK, given, motion)).collect();
    parts.into_iter().sum()
}

/// The components of `count` vectors from `first` on.
fn part_of(column: &[DVec3], first: usize, count: usize) -> &[f64] {
    cast_slice(&column[first..first + count])
}

/// The answers of a chunk of bodies to the next y, component by component: impulses, then motions.
struct StepOn<'a> {
    at_x: [&'a [f64]; 2],
    at_trial: [&'a [f64]; 2],
    at_y: [&'a [f64]; 2],
    beta: f64,
    next: [&'a mut [f64]; 2],
}

impl Task for StepOn<'_> {
    /// Work of d.
    type Output = f64;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f64 {
        let Self { at_x, at_trial, at_y, beta, next: [given, motion] } = self;
        let next = |trial: f64, x: f64| trial + (trial - x) * beta;
        let blocks = [at_x, at_trial, at_y].map(|answers| answers.map(|of| of.as_chunks::<LANES>()));
        let (given, given_rest) = given.as_chunks_mut::<LANES>();
        let (motion, motion_rest) = motion.as_chunks_mut::<LANES>();
        let mut works = [0.0; LANES];
        for (block, (given, motion)) in given.iter_mut().zip(motion).enumerate() {
            let [[push_x, moves_x], [push, moves], [push_y, moves_y]] =
                blocks.map(|answers| answers.map(|(blocks, _)| &blocks[block]));
            for l in 0..LANES {
                given[l] = next(push[l], push_x[l]);
                motion[l] = next(moves[l], moves_x[l]);
                works[l] += (push[l] - push_y[l]) * (moves[l] - moves_y[l]);
            }
        }
        for (l, (given, motion)) in given_rest.iter_mut().zip(motion_rest).enumerate() {
            let [[push_x, moves_x], [push, moves], [push_y, moves_y]] =
                blocks.map(|answers| answers.map(|(_, rest)| rest[l]));
            (*given, *motion) = (next(push, push_x), next(moves, moves_x));
            works[l] += (push - push_y) * (moves - moves_y);
        }
        works.iter().sum()
    }
}

/// See [`dot`]: a sum in each lane.
struct Dot<'a> {
    a: &'a [f64],
    b: &'a [f64],
}

impl Task for Dot<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f64 {
        let ((a, a_rest), (b, b_rest)) = (self.a.as_chunks::<LANES>(), self.b.as_chunks::<LANES>());
        let mut sums = [0.0; LANES];
        for (a, b) in a.iter().zip(b) {
            for l in 0..LANES {
                sums[l] += a[l] * b[l];
            }
        }
        for (sum, (a, b)) in sums.iter_mut().zip(a_rest.iter().zip(b_rest)) {
            *sum += a * b;
        }
        sums.iter().sum()
    }
}

/// See [`add_to`].
struct AddTo<'a> {
    sum: &'a mut [f64],
    factor: f64,
    column: &'a [f64],
}

impl Task for AddTo<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        for (sum, value) in self.sum.iter_mut().zip(self.column) {
            *sum += value * self.factor;
        }
    }
}
