//! The hot loops compiled for the widest vectors of the machine, chosen when the program runs.
//!
//! A [`Kernel`] is written once, as plain loops over sixteen lanes that the compiler turns into vectors. Additions keep
//! their order and fused multiply-adds are written out, square roots and divisions are exact, so that all widths give
//! the same bits. (Without fused multiply-add in hardware it is computed in software: slow, and the same.)
#![allow(unsafe_code)]

/// Lanes that a kernel works on at once.
pub(crate) const LANES: usize = 16;

/// A value a lane.
pub(crate) type Lanes = [f32; LANES];

/// A loop to be compiled for several machines. `run` must be `#[inline(always)]` and hold no closure: the body of a
/// closure would be compiled for the plain machine.
pub(crate) trait Kernel {
    type Output;
    fn run(self) -> Self::Output;
}

/// What vectors the machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Width {
    /// None known of.
    Plain,
    /// AVX2 with fused multiply-add.
    Avx2,
    /// AVX-512.
    Avx512,
}

impl Width {
    /// The widest of this machine; looking is cheap, as the standard library remembers.
    #[inline]
    pub(crate) fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("fma")
            {
                return Self::Avx512;
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return Self::Avx2;
            }
        }
        Self::Plain
    }
}

/// Runs a kernel on the widest vectors of this machine.
#[inline]
pub(crate) fn run<K: Kernel>(kernel: K) -> K::Output {
    run_at(Width::best(), kernel)
}

/// Runs a kernel on vectors of a given width, or of the widest there are if that is less.
#[inline]
pub(crate) fn run_at<K: Kernel>(width: Width, kernel: K) -> K::Output {
    match width.min(Width::best()) {
        Width::Plain => kernel.run(),
        // SAFETY: `best` has found these features on this machine, and `width` is no wider.
        #[cfg(target_arch = "x86_64")]
        Width::Avx2 => unsafe { run_avx2(kernel) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Width::Avx512 => unsafe { run_avx512(kernel) },
        #[cfg(not(target_arch = "x86_64"))]
        _ => kernel.run(),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

/// The sum over the lanes, as a tree.
#[inline(always)]
pub(crate) fn total(lanes: &Lanes) -> f32 {
    let mut sum = *lanes;
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            sum[lane] += sum[lane + half];
        }
        half /= 2;
    }
    sum[0]
}
