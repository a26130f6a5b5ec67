//! Separating walls: a wall of the domain, or an obstacle, does not hold fluid back that does not press against
//! it and moves away from it.
//!
//! A wall can only push. So the pressure p at the wall and the fluid's velocity u away from it satisfy
//! `p >= 0`, `u >= 0` and `p u = 0` [Batty2007]. The last pressure and the velocities before the projection
//! decide which of p and u is zero, as in [Chentanez2012], without iterations. Beside an obstacle this is
//! decided for a whole cell.

use std::ops::Range;

use crate::flip::cell::Cell;
use crate::flip::grid::{CutCells, Grid};
use crate::flip::particle_to_grid::ParticleToGrid;
use crate::flip::pressure::Split;
use crate::flip::slab::{Slab, depth};

/// A face of the domain's walls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WallFace {
    pub(crate) axis: usize,
    pub(crate) face: usize,
    /// The wall's cell behind the face.
    wall: usize,
    /// 1 if the way from the wall into the fluid leads upwards along the axis, else -1.
    away: f64,
}

/// The wall's faces, in some layers of cells, against which the fluid's cells did not press in the last
/// sub-step.
pub(crate) fn unpressed(
    grid: &Grid,
    layers: Range<usize>,
    cell: &[Cell],
    pressure: &Split<f64>,
) -> Vec<WallFace> {
    let mut faces = Vec::new();
    for axis in 0..3 {
        let [one, other] = [(axis + 1) % 3, (axis + 2) % 3];
        let stride = grid.strides()[axis];
        for (last, away) in [(0, 1.0), (grid.cells[axis] - 1, -1.0)] {
            for n in 0..grid.cells[one] * grid.cells[other] {
                let mut at = [last; 3];
                (at[one], at[other]) = (n % grid.cells[one], n / grid.cells[one]);
                if !layers.contains(&at[2]) {
                    continue;
                }
                let own = grid.index(at);
                if matches!(cell[own], Cell::Fluid | Cell::Spray) && pressure[own % 2][own / 2] <= 0.0 {
                    let (face, wall) =
                        if away > 0.0 { (own, own - stride) } else { (own + stride, own + stride) };
                    faces.push(WallFace { axis, face, wall, away });
                }
            }
        }
    }
    faces
}

/// The cells beside obstacles that this rank sees and that the fluid did not press against in the last sub-step.
/// There are none before the first sub-step, when no pressure is known. Collective.
pub(crate) fn unpressed_cells(
    slab: &Slab,
    cut: &CutCells,
    cell: &[Cell],
    pressure: &Split<f64>,
) -> Vec<usize> {
    let at = |cell: usize| pressure[cell % 2][cell / 2];
    if !slab.ranks.any(slab.entries(0).any(|cell| at(cell) != 0.0)) {
        return Vec::new();
    }
    let some = cut.cells(&slab.entries(depth::FORCES)).iter().copied();
    some.filter(|&n| matches!(cell[n], Cell::Fluid | Cell::Spray) && at(n) <= 0.0).collect()
}

/// True if the fluid in a cell beside an obstacle moves away from the obstacle. `fall` is the velocity that gravity
/// gives in the sub-step [m/s].
pub(crate) fn leaves(
    (grid, cut): (&Grid, &CutCells),
    transferred: &ParticleToGrid,
    fall: [f64; 3],
    cell: usize,
) -> bool {
    let (out, strides) = (cut.outwards(grid, cell).to_array(), grid.strides());
    let along = |axis: usize| {
        let faces = [cell, cell + strides[axis]].map(|face| transferred.at(axis, face).map(f64::from));
        let [weight, moved] = [0, 1].map(|n| faces[0][n] + faces[1][n]);
        if weight > 0.0 { out[axis] * (moved / weight + fall[axis]) } else { 0.0 }
    };
    along(0) + along(1) + along(2) > 0.0
}

impl WallFace {
    /// Turns the wall's cell into air if the fluid moves away from the wall. `fall` is the velocity that
    /// gravity gives in the sub-step [m/s].
    pub(crate) fn release(&self, transferred: &ParticleToGrid, fall: [f64; 3], cell: &mut [Cell]) {
        let [weight, moved] = transferred.at(self.axis, self.face).map(f64::from);
        if weight > 0.0 && self.away * (moved / weight + fall[self.axis]) > 0.0 {
            cell[self.wall] = Cell::Air;
        }
    }

    /// True if a velocity leads into the wall, which then stops the fluid.
    pub(crate) fn holds(&self, velocity: f64) -> bool {
        self.away * velocity < 0.0
    }
}
