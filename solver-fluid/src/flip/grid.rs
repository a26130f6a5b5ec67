//! The staggered grid: cells over the domain, velocities at their faces.

use amalgam_particles::{DVec3, Lattice};
use rayon::prelude::*;

/// Cubic cells over a box. Columns of cells and of faces share one numbering: entry (i, j, k) stands at
/// `i + sx (j + sy k)` with strides one larger than the number of cells, so that the faces at the far sides have a place
/// too. The face of axis d with the number of a cell is the cell's lower one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    /// Lower corner [m].
    pub(super) origin: DVec3,
    /// Edge of a cell [m].
    pub(super) cell_size: f64,
    /// Cells along each axis.
    pub(super) cells: [usize; 3],
}

/// A position among the faces: for each axis the lower one of two neighbouring faces and the part of the way to the upper
/// one, where faces lie on the walls of cells ([`ON_WALLS`]) and where they lie in their middles ([`IN_MIDDLES`]).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    low: [[u32; 2]; 3],
    part: [[f64; 2]; 3],
}

const ON_WALLS: usize = 0;
const IN_MIDDLES: usize = 1;

/// Whether the faces of `axis` lie on walls along `along`, or in middles.
#[inline(always)]
fn kind(axis: usize, along: usize) -> usize {
    if axis == along { ON_WALLS } else { IN_MIDDLES }
}

impl Grid {
    /// Entries of a layer, of equal k.
    pub(super) fn layer(&self) -> usize {
        (self.cells[0] + 1) * (self.cells[1] + 1)
    }

    /// Entries of a column.
    pub(super) fn len(&self) -> usize {
        self.layer() * (self.cells[2] + 1)
    }

    pub(super) fn index(&self, [i, j, k]: [usize; 3]) -> usize {
        (k * (self.cells[1] + 1) + j) * (self.cells[0] + 1) + i
    }

    /// Distance of neighbours along each axis in a column.
    pub(super) fn strides(&self) -> [usize; 3] {
        [1, self.cells[0] + 1, self.layer()]
    }

    /// The cell of a position, the nearest one for positions outside.
    pub(super) fn cell(&self, position: DVec3) -> [usize; 3] {
        let scaled = ((position - self.origin) / self.cell_size).to_array();
        std::array::from_fn(|axis| (scaled[axis].max(0.0) as usize).min(self.cells[axis] - 1))
    }

    /// The grid as others know it.
    pub(super) fn lattice(&self) -> Lattice {
        Lattice { origin: self.origin, cell_size: self.cell_size }
    }

    /// Whether an entry is a cell, not only a place for a face.
    pub(super) fn is_cell(&self, [i, j, k]: [usize; 3]) -> bool {
        i < self.cells[0] && j < self.cells[1] && k < self.cells[2]
    }

    /// Where a position is among the faces. What would lie beyond a wall counts as the nearest face inside, which keeps
    /// the sum of weights at one; faces that do not exist get a weight of zero.
    #[inline]
    pub(super) fn place(&self, position: DVec3) -> Place {
        let scaled = ((position - self.origin) * (1.0 / self.cell_size)).to_array();
        let mut place = Place::default();
        for (d, scaled) in scaled.into_iter().enumerate() {
            let last = self.cells[d] - 1;
            for (kind, shift, end) in [(ON_WALLS, 0.0, last as f64 + 1.0), (IN_MIDDLES, 0.5, last as f64)] {
                let x = (scaled - shift).clamp(0.0, end);
                let low = (x as u32).min(last as u32);
                (place.low[d][kind], place.part[d][kind]) = (low, x - f64::from(low));
            }
        }
        place
    }

    /// Calls `visit` for every cell, layer by layer, with its coordinates and number; in parallel over the layers of
    /// `columns`.
    pub(super) fn for_each_layer<T: Send>(
        &self,
        column: &mut [T],
        visit: impl Fn(usize, &mut [T]) + Sync + Send,
    ) {
        column.par_chunks_mut(self.layer()).enumerate().for_each(|(k, layer)| visit(k, layer));
    }
}

impl Place {
    /// The eight faces of `axis`, with their weights.
    #[inline(always)]
    pub(super) fn faces(&self, grid: &Grid, axis: usize) -> [(usize, f64); 8] {
        let [x, y, z] = [0, 1, 2].map(|d| self.part[d][kind(axis, d)]);
        let at = self.low_face(grid, axis);
        let [_, row, layer] = grid.strides();
        let (x0, y0, z0) = (1.0 - x, 1.0 - y, 1.0 - z);
        [
            (at, x0 * y0 * z0),
            (at + 1, x * y0 * z0),
            (at + row, x0 * y * z0),
            (at + row + 1, x * y * z0),
            (at + layer, x0 * y0 * z),
            (at + layer + 1, x * y0 * z),
            (at + layer + row, x0 * y * z),
            (at + layer + row + 1, x * y * z),
        ]
    }

    /// The four faces of `axis` in layer `k`, counted in the layer, with their weights; zero if the place does not reach
    /// there.
    #[inline(always)]
    pub(super) fn faces_in_layer(&self, grid: &Grid, axis: usize, k: usize) -> [(usize, f64); 4] {
        let [x, y, z] = [0, 1, 2].map(|d| self.part[d][kind(axis, d)]);
        let low = self.low[2][kind(axis, 2)] as usize;
        let z = if k == low { 1.0 - z } else { if k == low + 1 { z } else { 0.0 } };
        let at = self.low_face(grid, axis) - low * grid.layer();
        let row = grid.strides()[1];
        let (x0, x1) = ((1.0 - x) * z, x * z);
        [(at, x0 * (1.0 - y)), (at + 1, x1 * (1.0 - y)), (at + row, x0 * y), (at + row + 1, x1 * y)]
    }

    #[inline(always)]
    fn low_face(&self, grid: &Grid, axis: usize) -> usize {
        grid.index([0, 1, 2].map(|d| self.low[d][kind(axis, d)] as usize))
    }

    /// The value of a column of faces of `axis`.
    #[inline(always)]
    pub(super) fn interpolate(&self, grid: &Grid, axis: usize, column: &[f64]) -> f64 {
        // The last face of all may be named beyond the column's end, with no weight.
        let value = |(face, weight): (usize, f64)| weight * column.get(face).copied().unwrap_or(0.0);
        self.faces(grid, axis).into_iter().fold(0.0, |sum, face| sum + value(face))
    }

    /// The value of three columns of faces.
    #[inline(always)]
    pub(super) fn interpolate_all(&self, grid: &Grid, columns: &[Vec<f64>; 3]) -> DVec3 {
        DVec3::from_array([0, 1, 2].map(|axis| self.interpolate(grid, axis, &columns[axis])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_field_is_interpolated_exactly_and_weights_add_up_to_one() {
        let grid = Grid { origin: DVec3::new(-1.0, 2.0, 0.5), cell_size: 0.5, cells: [4, 5, 3] };
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
            assert!((grid.place(inside).interpolate(&grid, axis, &column) - field(inside)).abs() < 1e-12);
            for x in [grid.origin, grid.origin + DVec3::new(2.0, 2.5, 1.5), inside] {
                let place = grid.place(x);
                let existing = |&(face, weight): &(usize, f64)| {
                    assert!(weight == 0.0 || column.get(face).is_some_and(|v| !v.is_nan()), "{x}: {face}");
                    weight
                };
                let sum: f64 = place.faces(&grid, axis).iter().map(existing).sum();
                assert!((sum - 1.0).abs() < 1e-12, "{sum}");
                let layers: f64 = (0..=3)
                    .flat_map(|k| place.faces_in_layer(&grid, axis, k))
                    .map(|(_, weight)| weight)
                    .sum();
                assert!((layers - 1.0).abs() < 1e-12, "{layers}");
            }
        }
    }
}
