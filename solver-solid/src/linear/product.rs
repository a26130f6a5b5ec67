//! Products with an operator, kept so that the next product computes only the rows that differ.

use amalgam_particles::lanes::LANES;
use amalgam_particles::{DVec3, GroupMap};
use rayon::prelude::*;

use super::operator::{Operator, OperatorVersion};
use super::vectors::{Vector, copy};
use crate::chunks::{CHUNK, CHUNKS_PER_TASK};

/// The product of `h C + h^2 K` with a vector, before any sum over groups.
///
/// From stage to stage of a step, only the velocities of group members change. So only the rows of members
/// and of their neighbours are computed again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Product {
    u: Vec<DVec3>,
    image: Vec<DVec3>,
    /// The operator that `image` is a product with; `None` before the first product.
    operator: Option<OperatorVersion>,
    /// For each slice of sixteen rows, true if its rows must be computed again.
    stale: Vec<bool>,
    /// Bound of the product's error after rounded iterations.
    pub(crate) residual_bound: ResidualBound,
}

/// Bound of the difference between the residual that rounded iterations carry along and the exact residual,
/// in the norm of the diagonal blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResidualBound {
    /// The difference at the last exact residual; infinite before the first.
    pub(crate) error: f64,
    /// The difference at the last exact residual over the energy norm of the correction before it; infinite
    /// before the first.
    pub(crate) rate: f64,
    /// Sum of the bounds of all corrections since the last exact residual.
    pub(crate) sum: f64,
}

impl Default for ResidualBound {
    fn default() -> Self {
        Self { error: f64::INFINITY, rate: f64::INFINITY, sum: 0.0 }
    }
}

/// All rows are computed again if more than one in so many particles has another value.
const CHANGED_MAX: usize = 64;

impl Product {
    /// True if the product is one with this operator.
    pub(crate) fn is_with(&self, operator: &dyn Operator) -> bool {
        self.operator == Some(operator.version())
    }

    /// The product with `u` [kg m/s].
    pub(crate) fn of(&mut self, operator: &mut dyn Operator, u: &[DVec3]) -> &[DVec3] {
        if self.is_with(operator) {
            self.follow(operator, u);
        } else {
            self.operator = Some(operator.version());
            self.residual_bound = ResidualBound::default();
            self.image.resize(u.len(), DVec3::ZERO);
            self.u.resize(u.len(), DVec3::ZERO);
            copy(u, &mut self.u);
            self.stale.clear();
            self.stale.resize(u.len().div_ceil(LANES), true);
        }
        if operator.partition().ranks().any(self.stale.contains(&true)) {
            let Self { image, stale, .. } = self;
            operator.set_operand(Vector::Exact(u), Some(stale));
            let operator = &*operator;
            let slices = image.par_chunks_mut(LANES).zip(&*stale).enumerate();
            slices.with_min_len(CHUNK / LANES * CHUNKS_PER_TASK).for_each(|(slice, (image, &stale))| {
                if stale {
                    image.fill(DVec3::ZERO);
                    operator.add_rows(slice * LANES, u, image);
                }
            });
            self.stale.fill(false);
        }
        &self.image
    }

    /// Multiplies the vector, and so its product, by `factor`.
    pub(crate) fn scale(&mut self, factor: f64) {
        let both = self.u.par_iter_mut().zip(&mut self.image).with_min_len(CHUNK * CHUNKS_PER_TASK);
        both.for_each(|(u, image)| {
            *u *= factor;
            *image *= factor;
        });
    }

    /// Takes `row(i)` as row `i` of the product with `u`, except for members of groups: the next call of
    /// [`Self::of`] computes their rows.
    pub(crate) fn assume(&mut self, u: &[DVec3], row: impl Fn(usize) -> DVec3 + Sync, groups: &GroupMap) {
        let rows = self.image.par_iter_mut().zip(self.u.par_iter_mut().zip(u)).enumerate();
        rows.with_min_len(CHUNK * CHUNKS_PER_TASK).for_each(|(i, (image, (before, u)))| {
            (*image, *before) = (row(i), *u);
        });
        for group in 0..groups.len() {
            groups.members(group).iter().for_each(|&i| self.stale[i as usize / LANES] = true);
        }
    }

    /// Replaces the vector by `u`, and marks the rows that have changed by it.
    fn follow(&mut self, operator: &dyn Operator, u: &[DVec3]) {
        let Self { u: before, stale, residual_bound, .. } = self;
        let both = before.par_iter_mut().zip(u).enumerate().with_min_len(CHUNK * CHUNKS_PER_TASK);
        let changed = both.filter_map(|(i, (before, u))| {
            (*before != *u).then(|| {
                *before = *u;
                i as u32
            })
        });
        let changed: Vec<u32> = changed.collect();
        let partition = operator.partition();
        let mut count = [changed.len() as i64];
        partition.ranks().sum(&mut count);
        if count[0] as usize > partition.total() / CHANGED_MAX {
            stale.fill(true);
            residual_bound.sum = 0.0;
            return;
        }
        let mut places: Vec<usize> = changed.iter().map(|&i| partition.first_place() + i as usize).collect();
        let has_changed = |row: usize| u8::from(changed.binary_search(&(row as u32)).is_ok());
        places
            .extend(partition.ask(has_changed).filter(|&(_, changed)| changed != 0).map(|(place, _)| place));
        for place in places {
            let mut mark = |place: u32| {
                if let Some(row) = partition.row(place) {
                    stale[row / LANES] = true;
                }
            };
            mark(place as u32);
            operator.visit_neighbours(place, &mut mark);
        }
    }
}

#[cfg(test)]
mod tests {
    use amalgam_particles::random::uniform_f64;

    use super::*;
    use crate::materials::peridynamics::Bonds;
    use crate::materials::{Material as _, Positions};
    use crate::section;

    #[test]
    fn rows_that_change_are_those_of_a_whole_product() {
        for storage in ["automatic", "rows"] {
            let section = format!(
                "method = \"peridynamics\"\n[[bodies]]\ntype = \"peridynamic\"\nspacing = 1.0\ndensity = 1.0\n\
                 shape = {{ type = \"box\", min = [0, 0, 0], max = [20, 9, 20] }}\nyoung_modulus = 1.0\n\
                 storage = \"{storage}\"\n"
            );
            let solid = section::read(&section, 1).unwrap_or_else(|faults| panic!("{faults:?}"));
            let particles = solid.layout.particles;
            let bonds = Bonds::new(solid.layout.bonded, &particles, 1);
            let mut bonds = bonds.unwrap_or_else(|faults| panic!("{faults:?}"));
            bonds.linearise(Positions::tentative(&particles.position), true);
            bonds.prepare(0.0, 1.0);
            let random = |i: usize| DVec3::from_array([0, 1, 2].map(|a| uniform_f64(&[i as u64, a]) - 0.5));
            let mut u: Vec<DVec3> = (0..particles.len()).map(random).collect();
            let mut kept = Product::default();
            let before = kept.of(&mut bonds, &u).to_vec();
            // Far from all sides: it has all 122 neighbours.
            let (changed, reach) = ((10 * 9 + 4) * 20 + 10, 3.1);
            u[changed] = DVec3::new(0.1, -0.2, 0.3);
            let after = kept.of(&mut bonds, &u).to_vec();
            let mut fresh = Product::default();
            let whole = fresh.of(&mut bonds, &u);
            let scale = whole.iter().fold(0.0, |largest, row| f64::max(largest, row.length()));
            let mut differ = 0;
            for i in 0..u.len() {
                assert!(after[i].distance(whole[i]) < 1e-6 * scale, "{storage}, row {i}");
                let far = particles.position[i].distance(particles.position[changed]) > reach;
                assert!(!far || before[i].distance(whole[i]) < 1e-6 * scale, "{storage}, row {i}");
                differ += usize::from(after[i] != before[i]);
            }
            assert_eq!(differ, 123, "{storage}");
        }
    }
}
