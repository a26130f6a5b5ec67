//! Velocities at faces in the air. Each is the mean of the known velocities at the faces around it, one layer
//! of faces after the other.

use std::ops::Range;

use amalgam_particles::lanes::{LANES, Lanes, Task, Width};
use rayon::prelude::*;

use crate::flip::arithmetic::{sixteen, sixteen_mut};
use crate::flip::cell::{Cell, OPEN, SPRAY, Sides, WALL};
use crate::flip::grid::Grid;
use crate::flip::pressure::BLOCK;

/// A face of unknown velocity that has neighbours of known velocity.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExtrapolatedFace {
    pub(super) face: usize,
    /// A bit for each neighbour of known velocity, in the order of [`neighbours`].
    pub(super) known: u8,
}

/// Offsets of the six faces around a face in a column.
pub(super) fn neighbours(grid: &Grid) -> [isize; 6] {
    let [one, row, layer] = grid.strides().map(usize::cast_signed);
    [-one, one, -row, row, -layer, layer]
}

impl ExtrapolatedFace {
    /// Mean of the values that `at` gives for the known neighbours. `around` are the offsets of the six
    /// neighbours.
    pub(super) fn mean(&self, around: [isize; 6], at: impl Fn(usize) -> [f64; 2]) -> [f64; 2] {
        let mut sums = [0.0; 2];
        for (_, shift) in around.into_iter().enumerate().filter(|(n, _)| self.known >> n & 1 != 0) {
            let values = at(self.face.wrapping_add_signed(shift));
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
        sums.map(|sum| sum / f64::from(self.known.count_ones()))
    }
}

/// The means of the values that `at` gives for the known neighbours of each face.
pub(super) fn means(
    grid: &Grid,
    at: impl Fn(usize) -> [f64; 2] + Sync,
    faces: &[ExtrapolatedFace],
) -> Vec<[f64; 2]> {
    let around = neighbours(grid);
    faces.par_iter().with_min_len(BLOCK).map(|beside| beside.mean(around, &at)).collect()
}

/// Faces of an axis, in a range, whose velocity is not known and that have neighbours of known velocity.
pub(super) fn faces_to_extrapolate(
    (grid, range): (&Grid, &Range<usize>),
    width: Width,
    axis: usize,
    cell: &[Cell],
    known: &[bool],
) -> Vec<ExtrapolatedFace> {
    let (first, last) = (grid.index([0, 0, 0]), grid.index(grid.cells.map(|n| n - 1)));
    let (around, stride) = (neighbours(grid), grid.strides()[axis]);
    let mark = |begin, marks: &mut [u8]| {
        width.run(MarkFacesToExtrapolate { begin, around, stride, cell, known, marks });
    };
    marked(first.max(range.start)..(last + 1).min(range.end), mark)
        .map(|(face, known)| ExtrapolatedFace { face, known })
        .collect()
}

/// The faces that get a mark other than zero, and their marks. `mark` sets the marks of a block of faces, of
/// which it gets the first.
pub(super) fn marked(
    faces: Range<usize>,
    mark: impl Fn(usize, &mut [u8]) + Sync + Send,
) -> impl ParallelIterator<Item = (usize, u8)> {
    let end = faces.end;
    faces.into_par_iter().step_by(BLOCK).flat_map_iter(move |begin| {
        let mut marks = [0; BLOCK];
        mark(begin, &mut marks[..BLOCK.min(end - begin)]);
        let mut some = Vec::new();
        // Few faces have a mark, so eight marks at once are compared with zero.
        for (n, eight) in marks.as_chunks::<8>().0.iter().enumerate().filter(|(_, eight)| **eight != [0; 8]) {
            for (l, &mark) in eight.iter().enumerate().filter(|(_, mark)| **mark != 0) {
                some.push((begin + 8 * n + l, mark));
            }
        }
        some
    })
}

/// Marks the faces of a block whose velocity is known after the pressure's gradient was subtracted.
pub(super) struct MarkKnown<'a> {
    /// The first face.
    pub(super) begin: usize,
    /// Stride from a cell to the one on the other side.
    pub(super) stride: usize,
    /// For each face, true if particles gave it a velocity.
    pub(super) brought: &'a [bool],
    pub(super) cell: &'a [Cell],
    pub(super) known: &'a mut [bool],
}

impl Task for MarkKnown<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { begin, stride, brought, cell, known } = self;
        for n in (0..known.len()).step_by(LANES) {
            let first = begin + n;
            let known: &mut [bool; LANES] = sixteen_mut(&mut known[n..]);
            if first < stride {
                *known = Default::default();
                continue;
            }
            let brought = sixteen(&brought[first..]);
            let (own, lower) = (sixteen(&cell[first..]), sixteen(&cell[first - stride..]));
            for l in 0..LANES {
                // A face between air and a wall is not known: extrapolated from there, the wall's velocity
                // would slow down fluid that flies past.
                let sides = Sides::new([own[l], lower[l]]);
                known[l] = sides.contain(OPEN) | (brought[l] & sides.contain(SPRAY));
            }
        }
    }
}

/// Marks the faces of a block that are not known and on which the pressure acts.
pub(super) struct MarkMissing<'a> {
    /// The first face.
    pub(super) begin: usize,
    /// Stride from a cell to the one on the other side.
    pub(super) stride: usize,
    pub(super) cell: &'a [Cell],
    pub(super) known: &'a [bool],
    pub(super) marks: &'a mut [u8],
}

impl Task for MarkMissing<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { begin, stride, cell, known, marks } = self;
        let (own, lower) = (&cell[begin..][..marks.len()], &cell[begin - stride..][..marks.len()]);
        let known = &known[begin..][..marks.len()];
        for l in 0..marks.len() {
            marks[l] = u8::from(!known[l] & Sides::new([own[l], lower[l]]).feel_pressure());
        }
    }
}

/// Marks the faces of a block that are not known, with a bit for each known neighbour. Faces of walls get no
/// mark.
pub(super) struct MarkFacesToExtrapolate<'a> {
    /// The first face.
    pub(super) begin: usize,
    /// Offsets of the faces around a face.
    pub(super) around: [isize; 6],
    /// Stride from a cell to the one on the other side.
    pub(super) stride: usize,
    pub(super) cell: &'a [Cell],
    pub(super) known: &'a [bool],
    /// Marks, which must be zero before.
    pub(super) marks: &'a mut [u8],
}

impl Task for MarkFacesToExtrapolate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { begin, around, stride, cell, known, marks } = self;
        for (n, shift) in around.into_iter().enumerate() {
            let near = &known[begin.wrapping_add_signed(shift)..][..marks.len()];
            for l in 0..marks.len() {
                marks[l] |= u8::from(near[l]) << n;
            }
        }
        let (own, lower) = (&cell[begin..][..marks.len()], &cell[begin - stride..][..marks.len()]);
        let known = &known[begin..][..marks.len()];
        for l in 0..marks.len() {
            let is_none = known[l] | Sides::new([own[l], lower[l]]).contain(WALL);
            marks[l] &= u8::from(is_none).wrapping_sub(1);
        }
    }
}
