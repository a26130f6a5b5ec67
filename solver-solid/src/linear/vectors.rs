//! Vectors of one value per particle as the solve holds them: exact, and rounded to f32 in columns for hot
//! loops.

use amalgam_particles::DVec3;
use amalgam_particles::lanes::LANES;
use rayon::prelude::*;

use crate::chunks::{CHUNK, CHUNKS_PER_TASK};

/// Three components of sixteen consecutive particles.
pub(crate) type Slice<T = f32> = [[T; LANES]; 3];

/// A vector, rounded if T is f32: a column a component, each as long as whole slices take; what pads them is
/// zero.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns<T = f32> {
    pub(crate) axes: [Vec<T>; 3],
}

impl<T: Copy + Default> Columns<T> {
    /// Zeros for so many particles.
    pub(crate) fn new(particles: usize) -> Self {
        let column = vec![T::default(); particles.next_multiple_of(LANES)];
        Self { axes: [column.clone(), column.clone(), column] }
    }

    /// The value of particle `i`.
    #[inline]
    pub(crate) fn get(&self, i: usize) -> [T; 3] {
        [self.axes[0][i], self.axes[1][i], self.axes[2][i]]
    }

    /// Sets the value of particle `i`.
    #[inline]
    pub(crate) fn set(&mut self, i: usize, value: [T; 3]) {
        for (axis, value) in self.axes.iter_mut().zip(value) {
            axis[i] = value;
        }
    }
}

/// Copies a vector on all threads: one alone does not reach the memory's bandwidth.
pub(crate) fn copy<T: Copy + Send + Sync>(from: &[T], to: &mut [T]) {
    let chunks = to.par_chunks_mut(CHUNK).zip(from.par_chunks(CHUNK)).with_min_len(CHUNKS_PER_TASK);
    chunks.for_each(|(to, from)| to.copy_from_slice(from));
}

/// The least of some values, none of them NaN; infinite without any.
pub(crate) fn least(values: &[f32]) -> f32 {
    let of = |values: &[f32]| {
        // Lane by lane: one after the other, each would wait for the last.
        let (slices, rest) = values.as_chunks::<LANES>();
        let mut least = [f32::INFINITY; LANES];
        for slice in slices {
            for lane in 0..LANES {
                least[lane] = if slice[lane] < least[lane] { slice[lane] } else { least[lane] };
            }
        }
        least.iter().chain(rest).copied().fold(f32::INFINITY, f32::min)
    };
    let chunks = values.par_chunks(CHUNK).with_min_len(CHUNKS_PER_TASK);
    chunks.map(of).reduce(|| f32::INFINITY, f32::min)
}

/// Sixteen values of a column from `at` on.
#[inline(always)]
pub(crate) fn sixteen<T>(column: &[T], at: usize) -> &[T; LANES] {
    window(column, at)
}

/// W values of a column from `at` on.
#[inline(always)]
pub(crate) fn window<T, const W: usize>(column: &[T], at: usize) -> &[T; W] {
    match column[at..].first_chunk() {
        Some(values) => values,
        None => panic!("a slice lies within its column"),
    }
}

/// The same, to be written.
#[inline(always)]
pub(crate) fn window_mut<T, const W: usize>(column: &mut [T], at: usize) -> &mut [T; W] {
    match column[at..].first_chunk_mut() {
        Some(values) => values,
        None => panic!("a slice lies within its column"),
    }
}

/// The values of a column at these places.
#[inline(always)]
pub(crate) fn picked<T: Copy + Default>(column: &[T], index: &[u32; LANES]) -> [T; LANES] {
    let mut values = [T::default(); LANES];
    for lane in 0..LANES {
        values[lane] = column[index[lane] as usize];
    }
    values
}

/// A vector to be multiplied.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Vector<'a> {
    /// The vector in full precision.
    Exact(&'a [DVec3]),
    /// Rounded.
    Rounded(&'a Columns),
}
