//! Symmetric 3x3 blocks on the diagonal of the system, and their factors: the block-Jacobi preconditioner.

use amalgam_particles::lanes::{Lanes, Sixteen};
use amalgam_particles::{DMat3, DVec3};
use bytemuck::{Pod, Zeroable};

/// A symmetric 3x3 block [kg].
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Block {
    diagonal: DVec3,
    /// Entries yz, xz, xy.
    off_diagonal: DVec3,
}

impl Block {
    /// Adds `isotropic` I + `axis` `axis`^T.
    #[inline]
    pub(crate) fn add(&mut self, isotropic: f64, axis: DVec3) {
        self.diagonal += axis * axis + DVec3::splat(isotropic);
        self.off_diagonal += DVec3::new(axis.y * axis.z, axis.x * axis.z, axis.x * axis.y);
    }

    /// Adds the entries xx, yy, zz, yz, xz, xy.
    #[inline]
    pub(crate) fn add_entries(&mut self, [xx, yy, zz, yz, xz, xy]: [f64; 6]) {
        self.diagonal += DVec3::new(xx, yy, zz);
        self.off_diagonal += DVec3::new(yz, xz, xy);
    }

    /// The block as a matrix [kg].
    pub(crate) fn matrix(&self) -> DMat3 {
        let (d, o) = (self.diagonal, self.off_diagonal);
        DMat3::from_cols(DVec3::new(d.x, o.z, o.y), DVec3::new(o.z, d.y, o.x), DVec3::new(o.y, o.x, d.z))
    }
}

/// The factors L D L^T of a positive definite block, as `1/D` and the entries below L's diagonal.
///
/// All zero it maps everything to zero: the factor of an unknown that is held.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Factor {
    inverse_pivot: DVec3,
    /// Entries yx, zx, zy of L.
    lower: DVec3,
}

impl Factor {
    /// Factors `inertia` I + `block`, where `inertia` is positive and `block` positive semi-definite.
    ///
    /// Pivots are Schur complements, so in exact arithmetic each is at least `inertia`. Where stiffness
    /// exceeds inertia by more than f64 resolves, rounding can take a pivot below that bound: it is set to
    /// the bound, so that the factor stays positive definite whatever the ratio.
    #[inline]
    pub(crate) fn new(inertia: f64, block: &Block) -> Self {
        let d = block.diagonal + DVec3::splat(inertia);
        let (yz, xz, xy) = block.off_diagonal.into();
        let inverse_x = 1.0 / d.x;
        let (yx, zx) = (xy * inverse_x, xz * inverse_x);
        let inverse_y = 1.0 / (d.y - yx * xy).max(inertia);
        let schur_zy = yz - zx * xy;
        let zy = schur_zy * inverse_y;
        let inverse_z = 1.0 / (d.z - zx * xz - zy * schur_zy).max(inertia);
        Self { inverse_pivot: DVec3::new(inverse_x, inverse_y, inverse_z), lower: DVec3::new(yx, zx, zy) }
    }

    /// The entries xx, yy, zz, yz, xz, xy of L D L^T; 0 of the factor of a held unknown.
    pub(crate) fn entries(&self) -> [f64; 6] {
        if self.inverse_pivot.x == 0.0 {
            return [0.0; 6];
        }
        let (d, l) = (1.0 / self.inverse_pivot, self.lower);
        let (xy, xz) = (l.x * d.x, l.y * d.x);
        let (yy, yz) = (d.y + l.x * xy, l.z * d.y + l.y * xy);
        [d.x, yy, d.z + l.y * xz + l.z * l.z * d.y, yz, xz, xy]
    }

    /// Solves (L D L^T) z = `r`.
    #[inline]
    pub(crate) fn solve(&self, r: DVec3) -> DVec3 {
        let l = self.lower;
        let y = r.y - l.x * r.x;
        let z = (r.z - l.y * r.x - l.z * y) * self.inverse_pivot.z;
        let y = y * self.inverse_pivot.y - l.z * z;
        DVec3::new(r.x * self.inverse_pivot.x - l.x * y - l.y * z, y, z)
    }
}

/// The factors of sixteen blocks, rounded: `1/D`, then the entries yx, zx, zy of L.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundedFactor([Sixteen; 6]);

impl RoundedFactor {
    /// Sets the factor in a lane.
    #[inline]
    pub(crate) fn set(&mut self, lane: usize, factor: &Factor) {
        let entries = factor.inverse_pivot.to_array().into_iter().chain(factor.lower.to_array());
        for (column, entry) in self.0.iter_mut().zip(entries) {
            column[lane] = entry as f32;
        }
    }

    /// Solves (L D L^T) z = `r` in each lane.
    #[inline(always)]
    pub(crate) fn solve<L: Lanes>(&self, r: [L; 3]) -> [L; 3] {
        let [x, y, z, yx, zx, zy] = &self.0;
        let (yx, zx, zy) = (L::load(yx), L::load(zx), L::load(zy));
        let minus = L::splat(-1.0);
        let (nyx, nzx, nzy) = (yx * minus, zx * minus, zy * minus);
        let second = nyx.mul_add(r[0], r[1]);
        let third = nzy.mul_add(second, nzx.mul_add(r[0], r[2])) * L::load(z);
        let second = nzy.mul_add(third, second * L::load(y));
        [nzx.mul_add(third, nyx.mul_add(second, r[0] * L::load(x))), second, third]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_inverts_its_block() {
        let mut block = Block::default();
        let axes = [DVec3::new(1.0, -2.0, 0.5), DVec3::new(0.3, 0.1, -4.0), DVec3::new(2.0, 2.0, 2.0)];
        for axis in axes {
            block.add(0.25, axis);
        }
        let inertia = 0.1;
        let z = DVec3::new(3.0, -1.0, 7.0);
        let r = z * (inertia + 0.75) + axes.iter().map(|&axis| axis * axis.dot(z)).sum::<DVec3>();
        assert!((Factor::new(inertia, &block).solve(r) - z).length() < 1e-12);
        assert_eq!(Factor::default().solve(r), DVec3::ZERO);
    }

    #[test]
    fn a_stiffness_beyond_resolution_leaves_a_positive_factor() {
        let mut block = Block::default();
        block.add(0.0, DVec3::splat(1e12));
        let factor = Factor::new(1e-6, &block);
        for r in [DVec3::X, DVec3::Y, DVec3::Z, DVec3::new(1.0, -1.0, 0.0), DVec3::ONE] {
            assert!(factor.solve(r).dot(r) > 0.0 && factor.solve(r).is_finite(), "{r}");
        }
    }
}
