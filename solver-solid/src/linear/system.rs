//! The linear system of a stage, and the accuracy of its solution.

use super::block::Factor;
use super::groups::Groups;
use super::operator::Operator;
use super::product::Product;

/// Limits at which a solve stops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Largest residual of a solution, relative to the right-hand side.
    pub(crate) tolerance: f64,
    /// Largest residual of a solution, relative to the first residual: the forcing term of an inexact
    /// Newton method. The looser of the two limits counts.
    pub(crate) forcing: f64,
    /// Squared norm of the rounding errors in a residual: no solve reduces its residual further.
    pub(crate) floor: f64,
    /// Iterations after which a solve fails.
    pub(crate) iterations_max: u32,
}

/// The system S^T (M + h C + h^2 K) S of one stage: the rows that this rank has.
pub(crate) struct System<'a> {
    /// h C + h^2 K.
    pub(crate) operator: &'a mut dyn Operator,
    pub(crate) groups: &'a Groups,
    /// Version of `groups`, `inertia` and `factor`: systems with one number and one operator are equal.
    pub(crate) number: u64,
    /// Inertia [kg]: of a group at its leader (0 if the group is held), 0 at other members, and the mass of
    /// each particle without a group.
    pub(crate) inertia: &'a [f64],
    /// Factor of each unknown's diagonal block; zero for a particle without an unknown of its own.
    pub(crate) factor: &'a [Factor],
    /// The operator's product with the solution.
    pub(crate) product: &'a mut Product,
}
