//! The staggered grid: cells over the domain, velocities at their faces.

mod cut_cells;

use amalgam_particles::{DVec3, Lattice};
use bytemuck::Zeroable;

use super::arithmetic::kept;
pub(super) use cut_cells::CutCells;

/// Number of entries before the first and behind the last layer of a column. A chunk of lanes that is shifted
/// to the place of a neighbour then stays inside of the column.
const MARGIN: usize = 32;

/// The last bit of a sum with this number stands for 1, so that the lowest 32 bits of the sum are the integer
/// that was added.
const UNIT: f64 = 1.5 * (1u64 << 52) as f64;

/// Columns of faces, one for each axis.
pub(super) type Faces<T> = [Vec<T>; 3];

/// Makes a column one of zeros for all cells, unless it has its entries already.
///
/// Every rank has whole columns, but its loops do not leave the layers that it sees. Where the system maps zeros,
/// the other layers take no memory. An allocator that writes zeros itself takes memory for all.
pub(super) fn lay_out<T: Zeroable>(grid: &Grid, column: &mut Vec<T>) {
    if column.len() != grid.len() {
        *column = bytemuck::zeroed_vec(grid.len());
    }
}

/// Cubic cells over a box, with one layer of walls around them.
///
/// Columns of cells and of faces share one numbering. The face of axis d with the number of a cell is the
/// cell's lower face along d. The faces at the far side of the domain have the numbers of the wall cells
/// there. A row and a layer have an odd number of entries. So the numbers of neighbours along every axis have
/// different parity, and the parity of a number is a cell's colour.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    /// Lower corner [m].
    pub(super) origin: DVec3,
    /// Edge of a cell [m].
    pub(super) cell_size: f64,
    /// Cells along each axis, walls not counted.
    pub(super) cells: [usize; 3],
    row: usize,
    layer: usize,
}

/// `N` positions among the faces of each axis.
///
/// For each axis it holds the number of the lowest of the eight faces around a position. For each direction
/// it holds the part of the way from there to the next face. This part has two values: one for faces that lie
/// on the walls of cells along the direction ([`ON_WALLS`]), one for faces in their middles ([`IN_MIDDLES`]).
#[derive(Clone, Copy, Debug)]
pub(super) struct FacePlaces<const N: usize> {
    /// By axis.
    pub(super) low: [[u32; N]; 3],
    /// By direction and kind of face.
    part: [[[f32; N]; 2]; 3],
}

const ON_WALLS: usize = 0;
const IN_MIDDLES: usize = 1;

/// Position of the faces of `axis` along `along`: on the walls of cells, or in their middles.
#[inline(always)]
const fn kind(axis: usize, along: usize) -> usize {
    if axis == along { ON_WALLS } else { IN_MIDDLES }
}

impl Grid {
    pub(super) fn new(origin: DVec3, cell_size: f64, cells: [usize; 3]) -> Self {
        let row = (cells[0] + 2) | 1;
        Self { origin, cell_size, cells, row, layer: row * ((cells[1] + 2) | 1) }
    }

    /// Number of entries of a layer, whose cells have equal k.
    pub(super) fn layer(&self) -> usize {
        self.layer
    }

    /// Index of the first layer in a column, a layer of walls.
    pub(super) fn first(&self) -> usize {
        MARGIN
    }

    /// Index of the first entry of a layer of cells, which belongs to a wall.
    pub(super) fn begin_of_layer(&self, k: usize) -> usize {
        MARGIN + (k + 1) * self.layer
    }

    /// Layers, those of walls included.
    pub(super) fn layers(&self) -> usize {
        self.cells[2] + 2
    }

    /// Entries of a column: a whole number of chunks of lanes for each colour.
    pub(super) fn len(&self) -> usize {
        (self.layer * self.layers() + 2 * MARGIN).next_multiple_of(32)
    }

    /// The number of a cell. The coordinates -1, as a wrapped integer, and `cells` of an axis are walls.
    #[inline(always)]
    pub(super) fn index(&self, [i, j, k]: [usize; 3]) -> usize {
        let next = |n: usize| n.wrapping_add(1);
        MARGIN + next(k) * self.layer + next(j) * self.row + next(i)
    }

    /// Distance of neighbours along each axis in a column.
    #[inline(always)]
    pub(super) fn strides(&self) -> [usize; 3] {
        [1, self.row, self.layer]
    }

    /// The cell of a position [m]; the nearest cell for a position outside.
    #[inline]
    pub(super) fn cell(&self, position: DVec3) -> [usize; 3] {
        let scaled = ((position - self.origin) * (1.0 / self.cell_size)).to_array();
        std::array::from_fn(|axis| (scaled[axis].max(0.0) as usize).min(self.cells[axis] - 1))
    }

    /// Origin and cell size of the grid, which other participants are told.
    pub(super) fn lattice(&self) -> Lattice {
        Lattice { origin: self.origin, cell_size: self.cell_size }
    }

    /// True if coordinates are those of a cell.
    pub(super) fn is_cell(&self, [i, j, k]: [usize; 3]) -> bool {
        i < self.cells[0] && j < self.cells[1] && k < self.cells[2]
    }

    /// The middle of a face [m].
    pub(super) fn middle(&self, axis: usize, face: usize) -> DVec3 {
        let n = face.saturating_sub(MARGIN);
        let [i, j, k] = [n % self.layer % self.row, n % self.layer / self.row, n / self.layer];
        // The first row, column and layer are walls, and a face is half a cell below the middle of its cell.
        let mut at = DVec3::new(i as f64, j as f64, k as f64) - 0.5;
        at[axis] -= 0.5;
        self.origin + self.cell_size * at
    }

    /// Offsets of the eight faces around a place from the lowest one.
    #[inline(always)]
    pub(super) fn corners(&self) -> [usize; 8] {
        let (row, layer) = (self.row, self.layer);
        [0, 1, row, row + 1, layer, layer + 1, layer + row, layer + row + 1]
    }

    /// Offsets of the four rows of two faces each.
    #[inline(always)]
    pub(super) fn rows(&self) -> [usize; 4] {
        [0, self.row, self.layer, self.layer + self.row]
    }

    /// Numbers of the cells of a row.
    #[inline(always)]
    pub(super) fn row(&self, j: usize, k: usize) -> std::ops::Range<usize> {
        let start = self.index([0, j, k]);
        start..start + self.cells[0]
    }

    /// The number of the cell of a position [m], as [`Self::cell`] finds it, by operations that compilers turn
    /// into vector instructions.
    #[inline(always)]
    pub(super) fn cell_number(&self, position: DVec3) -> u32 {
        let inverse = 1.0 / self.cell_size;
        let scaled = (position - self.origin) * inverse;
        let cells = self.cells.map(|cells| cells as f64);
        let mut number = self.index([0; 3]) as u32;
        for (scaled, cells, stride) in
            [(scaled.x, cells[0], 1), (scaled.y, cells[1], self.row), (scaled.z, cells[2], self.layer)]
        {
            let scaled = if scaled > 0.0 { scaled } else { 0.0 };
            let cell = scaled.floor();
            let cell = if cell < cells { cell } else { cells - 1.0 };
            number += (cell + UNIT).to_bits() as u32 * stride as u32;
        }
        number
    }

    /// Places of positions [m], one column per direction, among the faces. A face beyond a wall counts as the
    /// nearest face inside, so that the sum of weights is one. Faces that do not exist get a weight of zero.
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "columns side by side")]
    pub(super) fn places<const N: usize>(&self, positions: &[[f64; N]; 3]) -> FacePlaces<N> {
        let mut places = FacePlaces { low: [[0; N]; 3], part: [[[0.0; N]; 2]; 3] };
        let mut low = [[[0i32; N]; 2]; 3];
        let (inverse, origin) = (1.0 / self.cell_size, self.origin.to_array());
        for d in 0..3 {
            let (end, last) = (self.cells[d] as f64, self.cells[d] as i32 - 1);
            for l in 0..N {
                let (scaled, cell) = cell_along((positions[d][l] - origin[d]) * inverse, end);
                let part = (scaled - cell) as f32;
                let cell = (cell + UNIT).to_bits() as i32;
                (low[d][ON_WALLS][l], places.part[d][ON_WALLS][l]) = (cell, part);
                let below = part < 0.5;
                let middle = cell - i32::from(below);
                let inside = (middle >= 0) & (below | (cell < last));
                let part = part + if below { 0.5 } else { -0.5 };
                // Not less than zero.
                low[d][IN_MIDDLES][l] = middle & !(middle >> 31);
                places.part[d][IN_MIDDLES][l] = kept(part, inside);
            }
        }
        let (row, layer) = (self.row as u32, self.layer as u32);
        let corner = MARGIN as u32 + layer + row + 1;
        for l in 0..N {
            let number = |kinds: [usize; 3]| {
                let [i, j, k] = [low[0][kinds[0]][l], low[1][kinds[1]][l], low[2][kinds[2]][l]];
                corner + k as u32 * layer + j as u32 * row + i as u32
            };
            places.low[0][l] = number([ON_WALLS, IN_MIDDLES, IN_MIDDLES]);
            places.low[1][l] = number([IN_MIDDLES, ON_WALLS, IN_MIDDLES]);
            places.low[2][l] = number([IN_MIDDLES, IN_MIDDLES, ON_WALLS]);
        }
        places
    }

    /// Place of a single position.
    pub(super) fn place(&self, position: DVec3) -> FacePlaces<1> {
        self.places(&position.to_array().map(|x| [x]))
    }
}

/// A coordinate [cells], moved into the range from 0 to `end`, and the cell that it is in. NaN becomes 0.
#[inline(always)]
fn cell_along(scaled: f64, end: f64) -> (f64, f64) {
    let scaled = if scaled > 0.0 { scaled } else { 0.0 };
    let scaled = if scaled < end { scaled } else { end };
    // Rounds down without a conversion to an integer, which is slow in vectors. The sum rounds a half to
    // even, and the next line corrects the result.
    let cell = (scaled - 0.5 + UNIT) - UNIT;
    let cell = if scaled - cell < 1.0 { cell } else { cell + 1.0 };
    (scaled, if cell < end { cell } else { end - 1.0 })
}

impl<const N: usize> FacePlaces<N> {
    /// Parts of the way along x, y and z among the faces of `axis`.
    #[inline(always)]
    pub(super) fn parts(&self, axis: usize) -> [&[f32; N]; 3] {
        let part = |along: usize| &self.part[along][kind(axis, along)];
        [part(0), part(1), part(2)]
    }

    /// The places among the faces of `axis`.
    #[inline(always)]
    pub(super) fn among(&self, axis: usize) -> Among<N> {
        Among { low: self.low[axis], part: self.parts(axis).map(|part| *part) }
    }
}

/// `N` positions among the faces of one axis: see [`FacePlaces`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Among<const N: usize> {
    pub(super) low: [u32; N],
    part: [[f32; N]; 3],
}

impl<const N: usize> Default for Among<N> {
    fn default() -> Self {
        Self { low: [0; N], part: [[0.0; N]; 3] }
    }
}

impl<const N: usize> Among<N> {
    /// The weights of the eight faces, in the order of [`Grid::corners`].
    #[inline(always)]
    pub(super) fn weights(&self) -> [[f64; N]; 8] {
        let mut weights = [[0.0; N]; 8];
        for l in 0..N {
            let [x, y, z] = self.part.each_ref().map(|part| f64::from(part[l]));
            let (x0, y0, z0) = (1.0 - x, 1.0 - y, 1.0 - z);
            let four = [x0 * y0, x * y0, x0 * y, x * y];
            for n in 0..4 {
                (weights[n][l], weights[4 + n][l]) = (four[n] * z0, four[n] * z);
            }
        }
        weights
    }

    /// Interpolates both `values` at place `l`. `place` gives for each face the index of its values.
    #[inline(always)]
    pub(super) fn interpolate(
        &self,
        grid: &Grid,
        l: usize,
        (place, values): (&[u32], &[[f64; 2]]),
    ) -> [f64; 2] {
        let [x, y, z] = self.part.each_ref().map(|part| f64::from(part[l]));
        let of_rows = [(1.0 - y) * (1.0 - z), y * (1.0 - z), (1.0 - y) * z, y * z];
        let mut sums = [0.0; 4];
        for (row, weight) in grid.rows().into_iter().zip(of_rows) {
            let at = self.low[l] as usize + row;
            let place = &place[at..at + 2];
            let ([a, b], [c, d]) = (values[place[0] as usize], values[place[1] as usize]);
            for (sum, value) in sums.iter_mut().zip([a, c, b, d]) {
                *sum += weight * value;
            }
        }
        [(1.0 - x) * sums[0] + x * sums[1], (1.0 - x) * sums[2] + x * sums[3]]
    }
}

impl FacePlaces<1> {
    /// The eight faces of `axis`, with their weights.
    pub(super) fn faces(&self, grid: &Grid, axis: usize) -> [(usize, f64); 8] {
        let among = self.among(axis);
        let (at, corners, weights) = (among.low[0] as usize, grid.corners(), among.weights());
        std::array::from_fn(|n| (at + corners[n], weights[n][0]))
    }
}

/// Weights of places among the faces of an axis: along x, and of the four rows of two faces.
pub(super) struct Weights<const N: usize> {
    pub(super) along: [[f32; N]; 2],
    pub(super) row: [[f32; N]; 4],
}

impl<const N: usize> Weights<N> {
    #[inline(always)]
    pub(super) fn new(places: &FacePlaces<N>, axis: usize) -> Self {
        let [x, y, z] = places.parts(axis);
        let mut weights = Self { along: [[0.0; N]; 2], row: [[0.0; N]; 4] };
        for l in 0..N {
            weights.along[0][l] = 1.0 - x[l];
            weights.along[1][l] = x[l];
            weights.row[0][l] = (1.0 - y[l]) * (1.0 - z[l]);
            weights.row[1][l] = y[l] * (1.0 - z[l]);
            weights.row[2][l] = (1.0 - y[l]) * z[l];
            weights.row[3][l] = y[l] * z[l];
        }
        weights
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_cell_is_its_index() {
        let grid = Grid::new(DVec3::new(-0.3, 0.1, 0.0), 0.1, [7, 5, 9]);
        let edge = [f64::NEG_INFINITY, -0.0, 0.05, 0.1, 0.35, 0.4, 0.7, 0.9, 1e9, f64::NAN];
        for x in edge {
            for y in edge {
                let position = grid.origin + DVec3::new(x, y, 0.5 * (x + y));
                assert_eq!(
                    grid.cell_number(position) as usize,
                    grid.index(grid.cell(position)),
                    "{position}"
                );
            }
        }
    }

    #[test]
    fn a_linear_field_is_interpolated_exactly_and_weights_add_up_to_one() {
        let grid = Grid::new(DVec3::new(-1.0, 2.0, 0.5), 0.5, [4, 5, 3]);
        let field = |x: DVec3| 3.0 * x.x - 2.0 * x.y + 0.5 * x.z;
        for axis in 0..3 {
            let mut column = vec![f64::NAN; grid.len()];
            for k in 0..=3 {
                for j in 0..=5 {
                    for i in 0..=4 {
                        let mut at = DVec3::new(i as f64, j as f64, k as f64) + 0.5;
                        at[axis] -= 0.5;
                        let beyond = |d: usize, n: usize| d != axis && n == grid.cells[d];
                        if beyond(0, i) || beyond(1, j) || beyond(2, k) {
                            continue;
                        }
                        column[grid.index([i, j, k])] = field(grid.origin + at * grid.cell_size);
                    }
                }
            }
            let inside = grid.origin + DVec3::new(0.61, 1.17, 0.7);
            let place: Vec<u32> = (0..grid.len() as u32).collect();
            let values: Vec<[f64; 2]> = column.iter().map(|&value| [f64::NAN, value]).collect();
            let among = grid.place(inside).among(axis);
            let error = among.interpolate(&grid, 0, (&place, &values))[1] - field(inside);
            assert!(error.abs() < 1e-6, "{error}");
            for x in [grid.origin, grid.origin + DVec3::new(2.0, 2.5, 1.5), inside] {
                let existing = |&(face, weight): &(usize, f64)| {
                    assert!(weight == 0.0 || !column[face].is_nan(), "{x}: {face}");
                    weight
                };
                let sum: f64 = grid.place(x).faces(&grid, axis).iter().map(existing).sum();
                assert!((sum - 1.0).abs() < 1e-12, "{sum}");
            }
        }
    }

    #[test]
    fn neighbours_have_the_other_colour() {
        for cells in [[4, 5, 3], [7, 2, 1], [64, 64, 64]] {
            let grid = Grid::new(DVec3::ZERO, 1.0, cells);
            assert!(grid.strides().iter().all(|stride| stride % 2 == 1));
            assert!(grid.index(cells) + MARGIN <= grid.len() && grid.len().is_multiple_of(32));
        }
    }
}
