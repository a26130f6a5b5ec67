//! The pressure of particles.
//!
//! There is one solver: the pressure follows from the density by an equation of state, so that the fluid is
//! weakly compressible. Another solver is a new file here. The density pass (`sph/density.rs`) asks it for
//! what `PressureByDensity` says; `docs/theory/sph.md` says what else it needs.

pub mod equation_of_state;
pub(super) mod hydrostatic;

/// Pressure and energy of a particle that follow from its compression x, the density over the rest density.
/// Both are computed in the density pass, so that a pass over the particles is saved.
///
/// A solver that iterates for the pressure gives a pressure of zero here and writes `ParticleRecord[PRESSURE]` later.
pub(super) trait PressureByDensity: Copy + Send + Sync {
    /// Pressure [Pa] at a compression.
    fn pressure(&self, x: f64) -> f64;

    /// Energy of compression [J/kg] at a compression.
    fn energy(&self, x: f64) -> f64;

    /// Energy [J/kg] in units of which sums over particles are rounded. Energies of a slightly compressed
    /// fluid should be far below it.
    fn energy_unit(&self) -> f64;

    /// Calls `pass` with this source. A source that has several laws branches here, outside of the pass's
    /// loops, so that the compiler makes a copy of `pass` for each law.
    #[inline(always)]
    fn choose<T>(self, pass: impl FnOnce(Self) -> T) -> T {
        pass(self)
    }
}
