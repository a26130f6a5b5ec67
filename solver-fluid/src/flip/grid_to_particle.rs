//! Transfer from the grid to particles: velocities interpolated at the particles' positions.
//!
//! A particle reads 24 rows of two faces, four numbers each, as one vector per row.

use std::ops::Range;

use amalgam_particles::DVec3;
use amalgam_particles::lanes::{LANES, Lanes, Task};
use glam::Vec4;

use super::arithmetic::sixteen;
use super::grid::{FacePlaces, Grid, Weights};
use super::pressure::gradient::pressure_change;

/// For each axis, two numbers at each face.
pub(super) type FacePairs = [Vec<[f32; 2]>; 3];

/// The numbers that are interpolated at a particle: two for each axis.
pub(super) type Interpolated = [[f32; 2]; 3];

/// The two numbers that particles read at a face, from its velocities after and before the sub-step [m/s].
/// The first is the new velocity. The second is the velocity that a particle takes beside `flip_ratio` times
/// its old velocity.
#[inline(always)]
pub(super) fn pair(flip_ratio: f64, [velocity, old]: [f64; 2]) -> [f32; 2] {
    [velocity as f32, (velocity - flip_ratio * old) as f32]
}

/// A source of the pairs of numbers that particles read at faces.
pub(super) trait FaceSource: Copy {
    /// The pairs of four rows of two faces each. `rows` are their faces, counted from `low`.
    fn four(self, axis: usize, low: usize, rows: &[Range<usize>; 4]) -> [Vec4; 4];
}

impl FaceSource for &FacePairs {
    #[inline(always)]
    fn four(self, axis: usize, low: usize, rows: &[Range<usize>; 4]) -> [Vec4; 4] {
        let pairs = &self[axis][low..][..rows[3].end];
        rows.each_ref().map(|row| {
            let two: &[[f32; 2]; 2] = pairs[row.clone()].first_chunk().expect("two pairs");
            let [[a, b], [c, d]] = *two;
            Vec4::new(a, b, c, d)
        })
    }
}

/// Transfer from the faces to particles.
pub(super) struct GridToParticle<'a, S> {
    pub(super) grid: &'a Grid,
    pub(super) pairs: S,
    /// Positions at which to interpolate [m].
    pub(super) position: &'a [DVec3],
    /// Results, one per position.
    pub(super) interpolated: &'a mut [Interpolated],
}

impl<S: FaceSource> Task for GridToParticle<'_, S> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { grid, pairs, position, interpolated } = self;
        let mut positions = [[0.0; LANES]; 3];
        for (position, interpolated) in position.chunks(LANES).zip(interpolated.chunks_mut(LANES)) {
            for (l, position) in position.iter().enumerate() {
                (positions[0][l], positions[1][l], positions[2][l]) = (position.x, position.y, position.z);
            }
            let places = grid.places(&positions);
            gather(grid, &places, 0, pairs, interpolated);
            gather(grid, &places, 1, pairs, interpolated);
            gather(grid, &places, 2, pairs, interpolated);
        }
    }
}

/// Interpolates both numbers of `axis` at the places of particles.
#[inline(always)]
fn gather(
    grid: &Grid,
    places: &FacePlaces<LANES>,
    axis: usize,
    pairs: impl FaceSource,
    interpolated: &mut [Interpolated],
) {
    let (weights, rows) = (Weights::new(places, axis), grid.rows().map(|row| row..row + 2));
    // The compiler then checks one bound per particle.
    assert!(
        rows.iter().all(|row| row.start <= row.end && row.end <= rows[3].end),
        "the last row is beyond the others"
    );
    for (interpolated, l) in interpolated.iter_mut().zip(0..LANES) {
        let four = pairs.four(axis, places.low[axis][l] as usize, &rows);
        let sum = (weights.row[0][l] * four[0] + weights.row[1][l] * four[1])
            + (weights.row[2][l] * four[2] + weights.row[3][l] * four[3]);
        let (x0, x1) = (weights.along[0][l], weights.along[1][l]);
        let sum = sum * Vec4::new(x0, x0, x1, x1);
        interpolated[axis] = [sum.x + sum.z, sum.y + sum.w];
    }
}

/// Sets the pairs of a block of faces.
pub(super) struct SetFacePairs<'a> {
    /// The first face.
    pub(super) begin: usize,
    /// Stride from a cell to the one on the other side.
    pub(super) stride: usize,
    pub(super) cell_size: f64,
    pub(super) flip_ratio: f64,
    /// Pressure in all cells [Pa], and conductance of all faces.
    pub(super) pressure: &'a [f64],
    pub(super) conductance: &'a [f32],
    /// Velocities of all faces before the pressure acts and before the sub-step [m/s], and pairs of the
    /// block.
    pub(super) columns: (&'a [f64], &'a [f64], &'a mut [[f32; 2]]),
}

impl Task for SetFacePairs<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self {
            begin,
            stride,
            cell_size,
            flip_ratio,
            pressure,
            conductance,
            columns: (before, old, pairs),
        } = self;
        let (chunks, _) = pairs.as_chunks_mut::<LANES>();
        for (n, pairs) in chunks.iter_mut().enumerate().filter(|(n, _)| begin + n * LANES >= stride) {
            let first = begin + n * LANES;
            let (upper, lower) = (sixteen(&pressure[first..]), sixteen(&pressure[first - stride..]));
            let (before, old) = (sixteen(&before[first..]), sixteen(&old[first..]));
            let conductance = sixteen(&conductance[first..]);
            for l in 0..LANES {
                let change = pressure_change(f64::from(conductance[l]), cell_size, [upper[l], lower[l]]);
                pairs[l] = pair(flip_ratio, [before[l] - change, old[l]]);
            }
        }
    }
}
