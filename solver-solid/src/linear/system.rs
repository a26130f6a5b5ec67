//! The linear system of a stage, and when its solution is good enough.

use amalgam_particles::{DVec3, GroupMap};

use super::block::Factor;
use super::operator::Operator;
use super::product::Product;

/// Limits at which a solve stops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Residual, relative to the right-hand side, at which the answer is good enough.
    pub(crate) tolerance: f64,
    /// Part of the first residual that is good enough, too.
    pub(crate) forcing: f64,
    /// Squared norm of a residual that is rounding alone: nothing is reduced below it.
    pub(crate) floor: f64,
    /// Iterations after which the solve has failed.
    pub(crate) iterations_max: u32,
}

/// The system S^T (M + h C + h^2 K) S of one stage.
pub(crate) struct System<'a> {
    /// h C + h^2 K.
    pub(crate) operator: &'a mut dyn Operator,
    pub(crate) groups: &'a GroupMap,
    /// Inertia [kg]: of a group at its leader, of others their mass, 0 where there is no unknown of its own.
    pub(crate) inertia: &'a [f64],
    /// Factor of each unknown's diagonal block; zero where there is no unknown.
    pub(crate) factor: &'a [Factor],
    /// The operator's product with the solution.
    pub(crate) product: &'a mut Product,
}

/// S^T: the sum of a group's members at its leader, zero at the others.
pub(crate) fn sum_to_leaders(groups: &GroupMap, values: &mut [DVec3]) {
    for group in 0..groups.len() {
        if let [leader, others @ ..] = groups.members(group) {
            let sum: DVec3 = others.iter().map(|&i| std::mem::take(&mut values[i as usize])).sum();
            values[*leader as usize] += sum;
        }
    }
}
