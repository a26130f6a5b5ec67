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

/// The eight faces of one axis around a place, with their trilinear weights.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stencil {
    /// Lower entry along each axis, and the upper one.
    at: [[usize; 2]; 3],
    weight: [[f64; 2]; 3],
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

    /// The faces of `axis` around a position. What would lie beyond a wall counts as the nearest face inside, which keeps
    /// the sum of weights at one.
    pub(super) fn stencil(&self, axis: usize, position: DVec3) -> Stencil {
        let scaled = ((position - self.origin) / self.cell_size).to_array();
        let mut stencil = Stencil { at: [[0; 2]; 3], weight: [[0.0; 2]; 3] };
        for d in 0..3 {
            let (shift, last) = if d == axis { (0.0, self.cells[d]) } else { (0.5, self.cells[d] - 1) };
            let x = (scaled[d] - shift).clamp(0.0, last as f64);
            let low = (x as usize).min(last);
            stencil.at[d] = [low, (low + 1).min(last)];
            stencil.weight[d] = [1.0 - (x - low as f64), x - low as f64];
        }
        stencil
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

impl Stencil {
    /// Visits the faces with weight: entry and weight.
    pub(super) fn for_each(&self, grid: &Grid, mut visit: impl FnMut(usize, f64)) {
        for c in 0..2 {
            self.for_each_in_layer_part(grid, c, &mut visit);
        }
    }

    /// Visits the faces of layer `k`.
    pub(super) fn for_each_in_layer(&self, grid: &Grid, k: usize, mut visit: impl FnMut(usize, f64)) {
        for c in 0..2 {
            if self.at[2][c] == k {
                self.for_each_in_layer_part(grid, c, &mut visit);
            }
        }
    }

    fn for_each_in_layer_part(&self, grid: &Grid, c: usize, visit: &mut impl FnMut(usize, f64)) {
        for b in 0..2 {
            for a in 0..2 {
                let weight = self.weight[0][a] * self.weight[1][b] * self.weight[2][c];
                if weight > 0.0 {
                    visit(grid.index([self.at[0][a], self.at[1][b], self.at[2][c]]), weight);
                }
            }
        }
    }

    /// The value of a column of faces at the place.
    pub(super) fn interpolate(&self, grid: &Grid, column: &[f64]) -> f64 {
        let mut value = 0.0;
        self.for_each(grid, |face, weight| value += weight * column[face]);
        value
    }
}

/// The value of three columns of faces at a position.
pub(super) fn interpolate(grid: &Grid, columns: &[Vec<f64>; 3], position: DVec3) -> DVec3 {
    DVec3::from_array(std::array::from_fn(|axis| {
        grid.stencil(axis, position).interpolate(grid, &columns[axis])
    }))
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
                        column[grid.index([i, j, k])] = field(grid.origin + at * grid.cell_size);
                    }
                }
            }
            let inside = grid.origin + DVec3::new(0.61, 1.17, 0.7);
            let stencil = grid.stencil(axis, inside);
            assert!((stencil.interpolate(&grid, &column) - field(inside)).abs() < 1e-12);
            for x in [grid.origin, grid.origin + DVec3::new(2.0, 2.5, 1.5), inside] {
                let mut sum = 0.0;
                grid.stencil(axis, x).for_each(&grid, |_, weight| sum += weight);
                assert!((sum - 1.0).abs() < 1e-12, "{sum}");
            }
        }
    }
}
