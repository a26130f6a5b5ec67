//! The hot loops compiled for the widest vectors of the machine, chosen when the program runs.
//!
//! A [`Kernel`] is written once, as plain loops over sixteen lanes that the compiler turns into vectors. Additions keep
//! their order and fused multiply-adds are written out, so that all widths give the same bits. (Without fused multiply-add in hardware it is computed in software: slow, and the same.)
#![allow(unsafe_code)]

/// Lanes that a kernel works on at once.
pub(crate) const LANES: usize = 16;

/// A value a lane.
pub(crate) type Lanes = [f32; LANES];

/// A loop to be compiled for several machines. `run` must be `#[inline(always)]` and hold no closure: the body of a
/// closure would be compiled for the plain machine.
pub(crate) trait Kernel {
    type Output;
    fn run<M: Machine>(self) -> Self::Output;
}

/// What compilers do not find by themselves.
pub(crate) trait Machine {
    /// The columns of sixteen records, `column[c][lane] = record[index[lane]][c]`.
    fn gather<const N: usize>(record: &[[i32; N]], index: &[u32; LANES]) -> [[i32; LANES]; N];
}

/// Any machine.
pub(crate) struct Plain;

impl Machine for Plain {
    #[inline(always)]
    fn gather<const N: usize>(record: &[[i32; N]], index: &[u32; LANES]) -> [[i32; LANES]; N] {
        let mut columns = [[0; LANES]; N];
        for lane in 0..LANES {
            let record = &record[index[lane] as usize];
            for column in 0..N {
                columns[column][lane] = record[column];
            }
        }
        columns
    }
}

/// A machine with AVX-512.
#[cfg(target_arch = "x86_64")]
struct Avx512;

#[cfg(target_arch = "x86_64")]
impl Machine for Avx512 {
    #[inline(always)]
    fn gather<const N: usize>(record: &[[i32; N]], index: &[u32; LANES]) -> [[i32; LANES]; N] {
        use std::arch::x86_64::{
            __m512i, _mm_loadu_si128, _mm512_castsi128_si512, _mm512_cmplt_epu32_mask, _mm512_inserti32x4,
            _mm512_loadu_si512, _mm512_set1_epi32, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64,
            _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
        };
        let count = record.len().min(u32::MAX as usize) as u32;
        // SAFETY: sixteen indices are 64 bytes; and this runs inside `run_avx512` alone, so that the machine has these
        // instructions.
        let inside = unsafe {
            let index = _mm512_loadu_si512(index.as_ptr().cast());
            _mm512_cmplt_epu32_mask(index, _mm512_set1_epi32(count as i32))
        };
        assert!(inside == u16::MAX, "an index is out of range");
        let mut columns = [[0; LANES]; N];
        let mut quarter = 0;
        while quarter + 4 <= N {
            // Four numbers of sixteen records: register r holds those of lanes r, 4 + r, 8 + r and 12 + r.
            let mut rows = [[0; LANES]; 4];
            for r in 0..4 {
                // SAFETY: all indices are below the number of records, as was seen above, and a record holds N numbers,
                // of which `quarter..quarter + 4` are read.
                rows[r] = unsafe {
                    let first: *const i32 = record.as_ptr().cast::<i32>().add(quarter);
                    let a = _mm_loadu_si128(first.add(N * index[r] as usize).cast());
                    let b = _mm_loadu_si128(first.add(N * index[4 + r] as usize).cast());
                    let c = _mm_loadu_si128(first.add(N * index[8 + r] as usize).cast());
                    let d = _mm_loadu_si128(first.add(N * index[12 + r] as usize).cast());
                    let row = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(a), b);
                    let row = _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(row, c), d);
                    std::mem::transmute::<__m512i, [i32; LANES]>(row)
                };
            }
            // SAFETY: as above; a register and sixteen i32 are the same 64 bytes.
            let transposed: [[i32; LANES]; 4] = unsafe {
                let [a, b, c, d] = std::mem::transmute::<[[i32; LANES]; 4], [__m512i; 4]>(rows);
                let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
                let (ab_high, cd_high) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
                std::mem::transmute::<[__m512i; 4], [[i32; LANES]; 4]>([
                    _mm512_unpacklo_epi64(ab, cd),
                    _mm512_unpackhi_epi64(ab, cd),
                    _mm512_unpacklo_epi64(ab_high, cd_high),
                    _mm512_unpackhi_epi64(ab_high, cd_high),
                ])
            };
            columns[quarter..quarter + 4].copy_from_slice(&transposed);
            quarter += 4;
        }
        for lane in 0..LANES {
            for column in quarter..N {
                columns[column][lane] = record[index[lane] as usize][column];
            }
        }
        columns
    }
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
        Width::Plain => kernel.run::<Plain>(),
        // SAFETY: `best` has found these features on this machine, and `width` is no wider.
        #[cfg(target_arch = "x86_64")]
        Width::Avx2 => unsafe { run_avx2(kernel) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Width::Avx512 => unsafe { run_avx512(kernel) },
        #[cfg(not(target_arch = "x86_64"))]
        _ => kernel.run::<Plain>(),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Plain>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Avx512>()
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

/// The least and the largest number in the lanes.
#[inline(always)]
pub(crate) fn range(low: &Lanes, high: &Lanes) -> (f32, f32) {
    let (mut low, mut high) = (*low, *high);
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            low[lane] = if low[lane + half] < low[lane] { low[lane + half] } else { low[lane] };
            high[lane] = if high[lane + half] > high[lane] { high[lane + half] } else { high[lane] };
        }
        half /= 2;
    }
    (low[0], high[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Gather<'a, const N: usize>(&'a [[i32; N]], &'a [u32; LANES]);

    impl<const N: usize> Kernel for Gather<'_, N> {
        type Output = [[i32; LANES]; N];

        #[inline(always)]
        fn run<M: Machine>(self) -> [[i32; LANES]; N] {
            M::gather(self.0, self.1)
        }
    }

    fn every_width_gathers_alike<const N: usize>() {
        let record: Vec<[i32; N]> = (0..100).map(|i| std::array::from_fn(|c| 10 * i + c as i32)).collect();
        let index = std::array::from_fn(|lane| (lane as u32 * 37) % 100);
        let plain = run_at(Width::Plain, Gather(&record, &index));
        for lane in 0..LANES {
            for column in 0..N {
                assert_eq!(plain[column][lane], record[index[lane] as usize][column]);
            }
        }
        for width in [Width::Avx2, Width::Avx512] {
            assert_eq!(run_at(width, Gather(&record, &index)), plain, "{width:?}");
        }
    }

    #[test]
    fn records_are_gathered() {
        every_width_gathers_alike::<3>();
        every_width_gathers_alike::<4>();
        every_width_gathers_alike::<8>();
    }

    #[test]
    #[should_panic = "out of"]
    fn an_index_out_of_range_is_refused() {
        let mut index = [0; LANES];
        index[11] = 4;
        run(Gather(&[[1; 4]; 4], &index));
    }

    #[test]
    fn sums_and_ranges_go_over_all_lanes() {
        let lanes = std::array::from_fn(|lane| lane as f32 - 3.0);
        assert_eq!(total(&lanes), 72.0);
        assert_eq!(range(&lanes, &lanes), (-3.0, 12.0));
    }
}
