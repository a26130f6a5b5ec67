//! Steps from a site of a lattice to its neighbours.

use super::super::cubic::Lattice;
use super::super::law::Law;
use super::super::table::QUANTA;
use super::coefficient::{AXIAL, TRANSVERSE};

/// A step from a site to a neighbour with a higher number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stencil {
    pub(super) shift: usize,
    /// Vector to the neighbour in the lattice, in quanta.
    pub(super) offset: [f32; 3],
    /// Twice that.
    pub(super) twice: [f32; 3],
    /// Square of its length, in quanta, and the inverse.
    pub(super) rest_square: f32,
    pub(super) inverse_square: f32,
    /// Stiffness, of the body's unit.
    pub(super) stiffness: f32,
    /// Stiffness per unit of a [`RelativeCoefficient`]: transverse, and axial for lengths in spacings.
    pub(super) transverse_part: f32,
    pub(super) axial_part: f32,
}

impl Stencil {
    /// The double strain l^2/L^2 - 1 for a difference of displacements.
    #[inline(always)]
    pub(super) fn double_strain(&self, eta: [i32; 3]) -> f32 {
        let [x, y, z] = [eta[0] as f32, eta[1] as f32, eta[2] as f32];
        let [two_x, two_y, two_z] = self.twice;
        let difference = z.mul_add(two_z + z, y.mul_add(two_y + y, x * (two_x + x)));
        difference * self.inverse_square
    }
}

/// Steps to neighbours of higher number, those along rows last: `BothEnds` says why. Margins and strides are
/// those of the axes as they are numbered.
pub(super) fn stencils(
    lattice: &Lattice,
    law: &Law,
    margin: [usize; 3],
    strides: [isize; 3],
) -> Vec<Stencil> {
    let reach = law.reach() / law.spacing;
    let [a, b, c] = margin.map(|m| m as isize);
    let mut stencils = Vec::new();
    for i in -a..=a {
        for k in -c..=c {
            for j in -b..=b {
                let length = ((i * i + j * j + k * k) as f64).sqrt();
                let shift = i * strides[0] + j * strides[1] + k * strides[2];
                if shift <= 0 || length > reach {
                    continue;
                }
                let along = |axis: usize, cells: isize| lattice.steps[lattice.numbered[axis]] * cells as f64;
                let vector = along(0, i) + along(1, j) + along(2, k);
                let rest = length * law.spacing;
                let stiffness = law.volume_share(rest) / length;
                stencils.push(Stencil {
                    shift: shift as usize,
                    offset: (vector * (QUANTA / law.spacing)).to_array().map(|x| x as f32),
                    twice: (vector * (2.0 * QUANTA / law.spacing)).to_array().map(|x| x as f32),
                    rest_square: (length * QUANTA).powi(2) as f32,
                    inverse_square: (length * QUANTA).powi(-2) as f32,
                    stiffness: stiffness as f32,
                    transverse_part: (stiffness / f64::from(TRANSVERSE)) as f32,
                    axial_part: (stiffness / (length * length) / f64::from(AXIAL)) as f32,
                });
            }
        }
    }
    stencils
}
