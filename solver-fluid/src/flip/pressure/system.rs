//! The pressure's system on a level of the multigrid: a weighted graph of cells.
//!
//! Columns are split by colour ([`Split`]), since faces couple red cells with black cells only. Almost
//! everywhere all faces of a vector have the common coefficient of faces inside of the fluid, and their
//! coefficients need not be read.

use std::ops::Range;

use amalgam_particles::lanes::{LANES, Lanes, Task, Width};
use rayon::prelude::*;

use super::super::grid::Grid;
use super::columns::{BLOCK, RUN, Split, split_zeros};
use super::share::LevelShare;

/// The contents of a vector of one colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::flip) enum Kind {
    /// No unknown.
    Closed,
    /// Unknowns with faces to all neighbours that are unknowns. All these faces have the common coefficient.
    Uniform,
    /// Other unknowns.
    Mixed,
}

/// The coefficients of a level: `sum over faces of face (p - p') + ground p`. Entries that are no unknown
/// have zeros.
#[derive(Clone, Debug)]
pub(in crate::flip) struct System {
    pub(in crate::flip) grid: Grid,
    /// Common coefficient of faces inside of the fluid [m s/kg].
    pub(in crate::flip) common: f32,
    /// Coefficient of the lower face of each cell along each axis, in the order of cells.
    pub(in crate::flip) face: [Vec<f32>; 3],
    /// Sum of the coefficients of each cell's faces to air, in the order of cells.
    pub(in crate::flip) ground: Vec<f32>,
    /// The coefficients in `face`, by colour.
    pub(in crate::flip) face_of: [Split<f32>; 3],
    /// The coefficients in `ground`, by colour.
    pub(in crate::flip) ground_of: Split<f32>,
    /// Number of each cell's faces to other unknowns.
    pub(in crate::flip) links: Split<f32>,
    /// Sum of all coefficients of each cell.
    pub(in crate::flip) diagonal: Split<f32>,
    /// Inverse of the diagonal; zero for cells that are no unknown.
    pub(in crate::flip) inverse: Split<f32>,
    /// The kind of each vector.
    pub(in crate::flip) kind: [Vec<Kind>; 2],
}

/// Offsets, from the index m of an entry of one colour, of its neighbours' indices in the other colour: the
/// lower neighbours along each axis, then the upper ones.
pub(in crate::flip) fn neighbours(grid: &Grid, colour: usize) -> [[isize; 3]; 2] {
    let (half, colour) = (grid.strides().map(|stride| (stride / 2) as isize), colour as isize);
    [half.map(|half| colour - 1 - half), half.map(|half| colour + half)]
}

/// Sixteen entries from `at` on.
#[inline(always)]
pub(in crate::flip) fn window<T>(column: &[T], at: usize) -> &[T; LANES] {
    column[at..at + LANES].first_chunk().expect("sixteen entries")
}

/// Sixteen entries from `at` on, to be changed.
#[inline(always)]
pub(in crate::flip) fn window_mut<T>(column: &mut [T], at: usize) -> &mut [T; LANES] {
    column[at..at + LANES].first_chunk_mut().expect("sixteen entries")
}

/// The sum of the lanes by a fixed tree: halves are added until one lane is left.
#[inline(always)]
pub(in crate::flip) fn add_lanes(lanes: [f64; LANES]) -> f64 {
    let eight: [f64; 8] = halves(&lanes);
    let four: [f64; 4] = halves(&eight);
    let [a, b] = halves(&four);
    a + b
}

/// Sums of the first and the second half.
#[inline(always)]
fn halves<const N: usize>(lanes: &[f64]) -> [f64; N] {
    let mut sums = [0.0; N];
    for l in 0..N {
        sums[l] = lanes[l] + lanes[N + l];
    }
    sums
}

impl System {
    pub(in crate::flip) fn new(grid: Grid) -> Self {
        // A copy would write to all layers, those of other ranks too.
        let (zeros, split) = (|| vec![0.0; grid.len()], || split_zeros(&grid));
        Self {
            grid,
            common: 0.0,
            face: [0, 1, 2].map(|_| zeros()),
            ground: zeros(),
            face_of: [0, 1, 2].map(|_| split()),
            ground_of: split(),
            links: split(),
            diagonal: split(),
            inverse: split(),
            kind: [0, 1].map(|_| vec![Kind::Closed; grid.len() / RUN]),
        }
    }

    /// Finds all columns that follow from `face`, `ground` and `common`, in runs of cells that have changed.
    /// Brings the coefficients from the ranks that have set them. Collective.
    pub(in crate::flip) fn prepare(&mut self, width: Width, share: &LevelShare, changed: &[bool]) {
        let ([x, y, z], ground) = (&mut self.face, &mut self.ground);
        share.coefficients.exchange(share.ranks(), [x, y, z, ground]);
        for (face, of) in self.face.iter().zip(&mut self.face_of) {
            split_into(face, share, changed, of);
        }
        split_into(&self.ground, share, changed, &mut self.ground_of);
        let own = &share.prepared;
        let Self { grid, common, face_of, ground_of, links, diagonal, inverse, kind, .. } = self;
        for colour in 0..2 {
            let columns = [&mut links[colour], &mut diagonal[colour], &mut inverse[colour]];
            let [links, diagonal, inverse] = columns.map(|column| column.par_chunks_mut(BLOCK));
            let kinds = kind[colour].par_chunks_mut(BLOCK / LANES).zip(changed.par_chunks(BLOCK / LANES));
            let blocks = (links, diagonal, inverse, kinds).into_par_iter().enumerate();
            blocks.skip(own.start).take(own.len()).for_each(
                |(b, (links, diagonal, inverse, (kind, changed)))| {
                    width.run(Settle {
                        upper: neighbours(grid, colour)[1],
                        common: *common,
                        face: face_of.each_ref().map(|face| [&face[colour][..], &face[1 - colour]]),
                        ground: &ground_of[colour],
                        begin: b * BLOCK,
                        changed,
                        columns: [links, diagonal, inverse],
                        kind,
                    });
                },
            );
        }
        for colour in 0..2 {
            let kinds = kind[colour].par_chunks_mut(BLOCK / LANES).zip(changed.par_chunks(BLOCK / LANES));
            kinds.enumerate().skip(own.start).take(own.len()).for_each(|(b, (kind, changed))| {
                width.run(Part {
                    sides: neighbours(grid, colour),
                    face: face_of.each_ref().map(|face| [&face[colour][..], &face[1 - colour]]),
                    inverse: [&inverse[colour], &inverse[1 - colour]],
                    begin: b * BLOCK,
                    changed,
                    kind,
                });
            });
        }
    }

    /// Sets the coefficients of the next coarser level, in layers that cover a changed run of this level. A
    /// coefficient between two aggregates is half of the sum between their cells. Returns the runs of the
    /// coarser level that have changed. Collective.
    pub(in crate::flip) fn coarsen(
        &self,
        width: Width,
        changed: &[bool],
        (coarse, share): (&mut Self, &LevelShare),
    ) -> Vec<bool> {
        let (fine, grid) = (self.grid, coarse.grid);
        let layers: Vec<bool> = (0..grid.cells[2])
            .map(|k| changed[runs_of_layers(&fine, 2 * k, (2 * k + 2).min(fine.cells[2]))].contains(&true))
            .collect();
        let own: Vec<bool> =
            layers.iter().enumerate().map(|(k, &changed)| changed && share.coarsened.contains(&k)).collect();
        let [_, row, layer] = fine.strides();
        coarse.common = 2.0 * self.common;
        // Behind the last cell are walls, whose coefficients are zero.
        for (axis, [one, other]) in [[row, layer], [1, layer], [1, row]].into_iter().enumerate() {
            let face = &self.face[axis];
            for_each_row(&grid, &own, &mut coarse.face[axis], |j, k, coefficients| {
                let corner = fine.index([0, 2 * j, 2 * k]);
                let four = [0, one, other, one + other].map(|n| &face[corner + n..]);
                for (i, coefficient) in coefficients.iter_mut().enumerate() {
                    let [a, b, c, d] = four.map(|face| face[2 * i]);
                    *coefficient = 0.5 * (a + b + (c + d));
                }
            });
        }
        for_each_row(&grid, &own, &mut coarse.ground, |j, k, coefficients| {
            let corner = fine.index([0, 2 * j, 2 * k]);
            let rows = [0, row, layer, layer + row].map(|n| &self.ground[corner + n..]);
            for (i, coefficient) in coefficients.iter_mut().enumerate() {
                let [a, b, c, d] = rows.map(|row| row[2 * i] + row[2 * i + 1]);
                *coefficient = 0.5 * (a + b + (c + d));
            }
        });
        let mut changed = vec![false; grid.len() / RUN];
        for (k, _) in layers.iter().enumerate().filter(|(_, changed)| **changed) {
            changed[runs_of_layers(&grid, k, k + 1)].fill(true);
        }
        coarse.prepare(width, share, &changed);
        changed
    }

    /// True if no cell of some pairs of blocks touches air.
    pub(in crate::flip) fn is_closed(&self, blocks: &Range<usize>) -> bool {
        let end = (2 * BLOCK * blocks.end).min(self.ground.len());
        let ground = &self.ground[(2 * BLOCK * blocks.start).min(end)..end];
        ground.par_iter().with_min_len(BLOCK).all(|&ground| ground == 0.0)
    }
}

/// Copies changed runs of a column into the columns of its colours.
fn split_into(column: &[f32], share: &LevelShare, changed: &[bool], to: &mut Split<f32>) {
    let [red, black] = to.each_mut().map(|column| column.par_chunks_mut(BLOCK));
    let blocks = (red, black, column.par_chunks(2 * BLOCK), changed.par_chunks(BLOCK / LANES));
    let own = &share.copied;
    blocks.into_par_iter().skip(own.start).take(own.len()).for_each(|(red, black, column, changed)| {
        let vectors = red.chunks_mut(LANES).zip(black.chunks_mut(LANES)).zip(column.chunks(RUN));
        for (((red, black), column), _) in vectors.zip(changed).filter(|(_, changed)| **changed) {
            for ((red, black), &[even, odd]) in red.iter_mut().zip(black).zip(column.as_chunks().0) {
                (*red, *black) = (even, odd);
            }
        }
    });
}

/// The runs of cells that hold the layers from `from` to `to`, the last excluded.
fn runs_of_layers(grid: &Grid, from: usize, to: usize) -> Range<usize> {
    let first = grid.row(0, 0).start;
    (first + from * grid.layer()) / RUN..(first + to * grid.layer()).div_ceil(RUN)
}

/// Calls `visit` with j, k and the entries of each row of a column in the `wanted` layers.
fn for_each_row(
    grid: &Grid,
    wanted: &[bool],
    column: &mut [f32],
    visit: impl Fn(usize, usize, &mut [f32]) + Sync,
) {
    let (begin, layer) = (grid.row(0, 0).start, grid.layer());
    let layers = column[begin..].par_chunks_mut(layer).zip(wanted).enumerate();
    layers.filter(|(_, (_, wanted))| **wanted).for_each(|(k, (entries, _))| {
        for j in 0..grid.cells[1] {
            let row = grid.row(j, 0);
            visit(j, k, &mut entries[row.start - begin..row.end - begin]);
        }
    });
}

/// Finds links, diagonal, its inverse and the kinds of vectors from the coefficients of a block.
struct Settle<'a> {
    /// Offsets of upper neighbours, as in [`neighbours`].
    upper: [isize; 3],
    common: f32,
    /// Coefficients of faces of this colour and the other one, by axis.
    face: [[&'a [f32]; 2]; 3],
    ground: &'a [f32],
    begin: usize,
    changed: &'a [bool],
    /// Links, diagonal and its inverse.
    columns: [&'a mut [f32]; 3],
    kind: &'a mut [Kind],
}

impl Task for Settle<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { upper, common, face, ground, begin, changed, mut columns, kind } = self;
        for (n, kind) in kind.iter_mut().enumerate() {
            let at = begin + n * LANES;
            let last = at.wrapping_add_signed(upper[2]) + LANES;
            // There is no unknown in the margins of a column.
            if !changed[n] || last > ground.len() {
                continue;
            }
            let (mut links, mut diagonal, mut uniform) = ([0.0; LANES], *window(ground, at), true);
            for axis in 0..3 {
                let beyond = at.wrapping_add_signed(upper[axis]);
                let faces = [window(face[axis][0], at), window(face[axis][1], beyond)];
                for l in 0..LANES {
                    let [a, b] = faces.map(|face| face[l]);
                    diagonal[l] += a + b;
                    links[l] += f32::from(u8::from(a > 0.0)) + f32::from(u8::from(b > 0.0));
                    uniform &= (a == 0.0) | (a == common);
                    uniform &= (b == 0.0) | (b == common);
                }
            }
            let inverse = diagonal.map(|sum| if sum > 0.0 { 1.0 / sum } else { 0.0 });
            let open = diagonal.iter().fold(false, |open, &sum| open | (sum > 0.0));
            *kind = match (open, uniform) {
                (false, _) => Kind::Closed,
                (true, true) => Kind::Uniform,
                (true, false) => Kind::Mixed,
            };
            for (column, values) in columns.each_mut().into_iter().zip([links, diagonal, inverse]) {
                column[n * LANES..][..LANES].copy_from_slice(&values);
            }
        }
    }
}

/// Marks a uniform vector as mixed if one of its unknowns has a neighbour that is an unknown but no face to
/// it. On coarse levels two aggregates can be neighbours although their cells do not touch.
struct Part<'a> {
    /// Offsets of lower and upper neighbours, as in [`neighbours`].
    sides: [[isize; 3]; 2],
    /// Coefficients of faces of this colour and the other one, by axis.
    face: [[&'a [f32]; 2]; 3],
    inverse: [&'a [f32]; 2],
    begin: usize,
    changed: &'a [bool],
    kind: &'a mut [Kind],
}

impl Task for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { sides: [lower, upper], face, inverse, begin, changed, kind } = self;
        for (n, kind) in kind.iter_mut().enumerate() {
            if !changed[n] || *kind != Kind::Uniform {
                continue;
            }
            let at = begin + n * LANES;
            let (own, mut apart) = (window(inverse[0], at), false);
            for axis in 0..3 {
                let [below, beyond] = [lower, upper].map(|shift| at.wrapping_add_signed(shift[axis]));
                let faces = [window(face[axis][0], at), window(face[axis][1], beyond)];
                let others = [below, beyond].map(|at| window(inverse[1], at));
                for l in 0..LANES {
                    apart |= (own[l] > 0.0) & (faces[0][l] == 0.0) & (others[0][l] > 0.0);
                    apart |= (own[l] > 0.0) & (faces[1][l] == 0.0) & (others[1][l] > 0.0);
                }
            }
            if apart {
                *kind = Kind::Mixed;
            }
        }
    }
}
