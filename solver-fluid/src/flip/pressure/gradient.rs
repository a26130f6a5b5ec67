//! The pressure at faces: the coefficients of the pressure's system, and the change of a face's velocity by
//! the pressure gradient.

use amalgam_particles::lanes::{LANES, Lanes, Task};

use crate::flip::arithmetic::{kept, larger, sixteen, sixteen_mut};
use crate::flip::cell::{Cell, is_open};
use crate::flip::pressure::RUN;

/// Sets the coefficients of the pressure's system for a block of cells: those of lower faces, and those to
/// air.
pub(crate) struct SetCoefficients<'a> {
    /// The first cell.
    pub(crate) begin: usize,
    /// Strides from a cell to the next one along each axis.
    pub(crate) strides: [usize; 3],
    /// Kinds of all cells, and conductances of all faces of each axis.
    pub(crate) cell: &'a [Cell],
    pub(crate) conductance: [&'a [f32]; 3],
    /// Open parts of the areas of all faces; none without obstacles.
    pub(crate) area: Option<[&'a [f32]; 3]>,
    /// True for runs of the block's cells that have changed.
    pub(crate) changed: &'a [bool],
    pub(crate) face: [&'a mut [f32]; 3],
    pub(crate) ground: &'a mut [f32],
}

impl Task for SetCoefficients<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { begin, strides, cell, conductance, area, changed, face, ground } = self;
        for n in (0..ground.len()).step_by(LANES).filter(|n| changed[n / RUN]) {
            let first = begin + n;
            let mut to_air = [0.0; LANES];
            // Cells outside of this range are walls.
            let inside = first >= strides[2] && first + strides[2] + LANES <= cell.len();
            for axis in 0..3 {
                let face: &mut [f32; LANES] = sixteen_mut(&mut face[axis][n..]);
                if !inside {
                    *face = [0.0; LANES];
                    continue;
                }
                let (below, beyond) = (first - strides[axis], first + strides[axis]);
                let (own, lower, upper) =
                    (sixteen(&cell[first..]), sixteen(&cell[below..]), sixteen(&cell[beyond..]));
                let [to_lower, to_upper] = [first, beyond].map(|from| {
                    let mut open = *sixteen(&conductance[axis][from..]);
                    if let Some(area) = area {
                        open.iter_mut()
                            .zip(sixteen(&area[axis][from..]))
                            .for_each(|(open, area)| *open *= area);
                    }
                    open
                });
                for l in 0..LANES {
                    let [own, lower, upper] = [own[l], lower[l], upper[l]].map(is_open);
                    face[l] = kept(to_lower[l], own & lower);
                    // At a wall the conductance is zero. Other closed cells are air or spray.
                    to_air[l] += kept(to_lower[l], own & !lower);
                    to_air[l] += kept(to_upper[l], own & !upper);
                }
            }
            *sixteen_mut(&mut ground[n..]) = to_air;
        }
    }
}

/// The velocity that the pressure gradient takes from a face [m/s], `dt / rho (p_upper - p_lower) / h`, with
/// the conductance `dt / (rho h^2)` and the cell size h.
#[inline(always)]
pub(crate) fn pressure_change(conductance: f64, cell_size: f64, [upper, lower]: [f64; 2]) -> f64 {
    conductance * cell_size * (upper - lower)
}

/// Finds the largest change of velocity by the pressure on a block of faces [m/s].
pub(crate) struct LargestPressureChange<'a> {
    /// The first face.
    pub(crate) begin: usize,
    /// Stride from a cell to the one on the other side.
    pub(crate) stride: usize,
    pub(crate) cell_size: f64,
    /// Conductances of the block.
    pub(crate) conductance: &'a [f32],
    /// Pressure in all cells [Pa].
    pub(crate) pressure: &'a [f64],
}

impl Task for LargestPressureChange<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f64 {
        let Self { begin, stride, cell_size, conductance, pressure } = self;
        let mut largest = [0.0; LANES];
        for n in (0..conductance.len()).step_by(LANES).filter(|n| begin + n >= stride) {
            let first = begin + n;
            let conductance = sixteen(&conductance[n..]);
            let (upper, lower) = (sixteen(&pressure[first..]), sixteen(&pressure[first - stride..]));
            for l in 0..LANES {
                let push = pressure_change(f64::from(conductance[l]), cell_size, [upper[l], lower[l]]);
                largest[l] = larger(largest[l], push.abs());
            }
        }
        largest.into_iter().fold(0.0, larger)
    }
}
