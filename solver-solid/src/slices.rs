//! Couplings of springs in f32, laid out for vectors: what conjugate gradients multiply with most of the time.
//!
//! Sixteen consecutive particles are a slice; their rows lie beside each other, a lane each, padded to the longest. Both
//! ends of a spring hold the same rounded numbers, so that the rounded operator is symmetric as well.

use amalgam_particles::DVec3;
use amalgam_particles::lanes::{self, LANES, Lanes, Sixteen, Task};
use rayon::prelude::*;

use crate::fixed::{operand_scale, whole};

/// Slices that one task works on.
const CHUNK: usize = 16;

/// A spring's share of the operator, `transverse` I + `axis` `axis`^T, in each lane; and where its other end is.
#[derive(Clone, Copy, Debug)]
struct Entry {
    neighbour: [u32; LANES],
    /// The axis and the transverse part.
    coupling: [Sixteen; 4],
}

/// No spring.
const NONE: u32 = u32::MAX;

/// All springs of a solver, rounded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slices {
    /// First entry of each slice, and the end.
    start: Vec<u32>,
    entries: Vec<Entry>,
    /// Of each entry: the spring of each lane, `NONE` where the row is padded.
    springs: Vec<[u32; LANES]>,
    operand: Vec<[i32; 4]>,
    image: Vec<[Sixteen; 3]>,
    /// What a unit of the image is.
    unit: f64,
}

impl Slices {
    /// Slices of `particles` rows; `row(i)` lists the other end and the index of each spring of particle `i`.
    pub(crate) fn new<'a, R>(particles: usize, row: impl Fn(usize) -> R) -> Self
    where
        R: ExactSizeIterator<Item = (u32, u32)> + 'a,
    {
        let mut this = Self { start: vec![0], ..Self::default() };
        for first in (0..particles).step_by(LANES) {
            let lanes = LANES.min(particles - first);
            let length = (first..first + lanes).map(|i| row(i).len()).max().unwrap_or(0);
            let begin = this.entries.len();
            // Padding refers to the slice's own first particle, which is at hand.
            let empty = Entry { neighbour: [first as u32; LANES], coupling: [[0.0; LANES]; 4] };
            this.entries.resize(begin + length, empty);
            this.springs.resize(begin + length, [NONE; LANES]);
            for lane in 0..lanes {
                for (at, (neighbour, spring)) in (begin..).zip(row(first + lane)) {
                    this.entries[at].neighbour[lane] = neighbour;
                    this.springs[at][lane] = spring;
                }
            }
            this.start.push(this.entries.len() as u32);
        }
        this.operand = vec![[0; 4]; particles.next_multiple_of(LANES)];
        this
    }

    /// Takes over the couplings: `coupling(spring)` gives the axis and the transverse part.
    pub(crate) fn set(&mut self, coupling: impl Fn(u32) -> (DVec3, f64) + Sync) {
        self.entries.par_iter_mut().zip(&self.springs).with_min_len(256).for_each(|(entry, springs)| {
            for (lane, &spring) in springs.iter().enumerate().filter(|&(_, &spring)| spring != NONE) {
                let (axis, transverse) = coupling(spring);
                for (column, value) in entry.coupling.iter_mut().zip([axis.x, axis.y, axis.z, transverse]) {
                    column[lane] = value as f32;
                }
            }
        });
    }

    /// Multiplies with `u`.
    pub(crate) fn multiply(&mut self, u: &[DVec3]) {
        let largest = u.iter().fold(0.0, |largest: f64, u| largest.max(u.abs().max_element()));
        let scale = operand_scale(largest);
        self.unit = 1.0 / scale;
        for (operand, u) in self.operand.iter_mut().zip(u) {
            *operand = [whole(u.x * scale), whole(u.y * scale), whole(u.z * scale), 0];
        }
        let (start, entries, operand) = (&self.start, &self.entries, &self.operand);
        (0..start.len() - 1)
            .into_par_iter()
            .with_min_len(CHUNK)
            .map(|slice| {
                let entries = &entries[start[slice] as usize..start[slice + 1] as usize];
                lanes::run(RowKernel { first: slice * LANES, entries, operand })
            })
            .collect_into_vec(&mut self.image);
    }

    /// Adds the rows `first..` of the last product to `image`.
    pub(crate) fn add_product(&self, first: usize, image: &mut [DVec3]) {
        for (i, image) in (first..).zip(image) {
            let [x, y, z] = &self.image[i / LANES];
            let lane = i % LANES;
            *image += DVec3::new(f64::from(x[lane]), f64::from(y[lane]), f64::from(z[lane])) * self.unit;
        }
    }
}

struct RowKernel<'a> {
    first: usize,
    entries: &'a [Entry],
    operand: &'a [[i32; 4]],
}

impl Task for RowKernel<'_> {
    type Output = [Sixteen; 3];

    #[inline(always)]
    fn run<L: Lanes>(self) -> [Sixteen; 3] {
        let mut image = [[0.0f32; LANES]; 3];
        let mut own = [[0; LANES]; 4];
        for (lane, operand) in self.operand[self.first..self.first + LANES].iter().enumerate() {
            for axis in 0..3 {
                own[axis][lane] = operand[axis];
            }
        }
        for entry in self.entries {
            let other = L::gather(self.operand, &entry.neighbour);
            let [axis_x, axis_y, axis_z, transverse] = &entry.coupling;
            for lane in 0..LANES {
                let u = [
                    own[0][lane].wrapping_sub(other[0][lane]) as f32,
                    own[1][lane].wrapping_sub(other[1][lane]) as f32,
                    own[2][lane].wrapping_sub(other[2][lane]) as f32,
                ];
                let (x, y, z) = (axis_x[lane], axis_y[lane], axis_z[lane]);
                let along = z.mul_add(u[2], y.mul_add(u[1], x * u[0]));
                image[0][lane] = transverse[lane].mul_add(u[0], along.mul_add(x, image[0][lane]));
                image[1][lane] = transverse[lane].mul_add(u[1], along.mul_add(y, image[1][lane]));
                image[2][lane] = transverse[lane].mul_add(u[2], along.mul_add(z, image[2][lane]));
            }
        }
        image
    }
}
