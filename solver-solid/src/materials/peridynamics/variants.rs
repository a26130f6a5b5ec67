//! Variants of the kernels of bonds, chosen when the program is compiled. Each choice is a trait, and each
//! answer a type without data. A kernel has the types as parameters, so that the compiler makes a loop without
//! a branch for each variant.

/// The double strains of live bonds for which a kernel holds.
pub(super) trait StrainRange: Copy {
    /// True if there is no limit.
    const IS_UNLIMITED: bool;
}

/// Double strains within [`SERIES_MAX`](super::stretch::SERIES_MAX), where the series alone is computed.
#[derive(Clone, Copy)]
pub(super) struct SmallStrain;

/// Any double strain.
#[derive(Clone, Copy)]
pub(super) struct AnyStrain;

impl StrainRange for SmallStrain {
    const IS_UNLIMITED: bool = false;
}

impl StrainRange for AnyStrain {
    const IS_UNLIMITED: bool = true;
}

/// The factors by which bonds of particles at surfaces are strengthened.
pub(super) trait Corrections: Copy {
    /// True if a kernel reads the factors.
    const ARE_READ: bool;
}

/// A factor per particle.
#[derive(Clone, Copy)]
pub(super) struct Corrected;

/// All factors are 1, and none is read.
#[derive(Clone, Copy)]
pub(super) struct Uncorrected;

impl Corrections for Corrected {
    const ARE_READ: bool = true;
}

impl Corrections for Uncorrected {
    const ARE_READ: bool = false;
}

/// The least double strain of each particle's bonds, on which thresholds that rise depend.
pub(super) trait LeastStrain: Copy {
    /// True if a kernel records it.
    const IS_RECORDED: bool;
}

/// The least double strain is recorded.
#[derive(Clone, Copy)]
pub(super) struct LeastRecorded;

/// The least double strain is not recorded.
#[derive(Clone, Copy)]
pub(super) struct LeastIgnored;

impl LeastStrain for LeastRecorded {
    const IS_RECORDED: bool = true;
}

impl LeastStrain for LeastIgnored {
    const IS_RECORDED: bool = false;
}

/// Components of the vector that the linear operator multiplies, as they are stored in 32 bits.
pub(super) trait Components: Copy {
    /// True for f32, for which coefficients are rounded, too.
    const ARE_ROUNDED: bool;

    /// The difference of two components.
    fn difference(a: i32, b: i32) -> f32;
}

/// Whole numbers, with exact differences.
#[derive(Clone, Copy)]
pub(super) struct WholeNumbers;

/// The bits of f32.
#[derive(Clone, Copy)]
pub(super) struct FloatBits;

impl Components for WholeNumbers {
    const ARE_ROUNDED: bool = false;

    #[inline(always)]
    fn difference(a: i32, b: i32) -> f32 {
        a.wrapping_sub(b) as f32
    }
}

impl Components for FloatBits {
    const ARE_ROUNDED: bool = true;

    #[inline(always)]
    fn difference(a: i32, b: i32) -> f32 {
        f32::from_bits(a as u32) - f32::from_bits(b as u32)
    }
}
