//! Couplings of springs laid out for vectors, exact and rounded to f32.
//!
//! Sixteen consecutive particles are a slice. An entry is a spring of each, in a lane each, or none. Where
//! most of a slice have a neighbour at the same distance in the numbering, as in a lattice, these springs are
//! one entry, whose other ends are sixteen consecutive particles too: a *run*, read as it lies. What is left
//! over is *scattered*, and gathered. Both ends of a spring hold the same rounded numbers, so that the
//! rounded operator is symmetric as well.

use std::collections::BTreeMap;
use std::ops::Range;

use amalgam_particles::DVec3;
use amalgam_particles::lanes::{self, LANES, Lanes, Sixteen, Task};
use rayon::prelude::*;

use crate::linear::partition::Partition;
use crate::linear::vectors::{Columns, Slice, picked, sixteen};

/// Lanes that a run must have springs in to be one.
const RUN_LEAST: usize = 6;

/// Springs' shares of the operator, `transverse` I + `axis` `axis`^T, in each lane: the axis and the
/// transverse part.
type Couplings<T> = [[T; LANES]; 4];

/// The other ends of an entry's springs.
#[derive(Clone, Copy, Debug)]
enum Other {
    /// Consecutive particles from this one on.
    Run(u32),
    /// Anywhere: an index into `Slices::neighbours`.
    Scattered(u32),
}

/// No spring.
const NONE: u32 = u32::MAX;

/// The springs of a rank's particles. Other ends are places (`partition.rs`), slices are of rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slices {
    /// The slices of places before the first row's.
    before: usize,
    /// First entry of each slice, and the end.
    start: Vec<u32>,
    /// The other ends of each entry.
    others: Vec<Other>,
    /// The spring of each lane of each entry, `NONE` where there is none.
    springs: Vec<[u32; LANES]>,
    exact: Vec<Couplings<f64>>,
    rounded: Vec<Couplings<f32>>,
    /// The other ends of each scattered entry.
    neighbours: Vec<[u32; LANES]>,
    /// The share of foundations in the diagonal.
    grounding: Vec<Sixteen>,
    /// The vector that the exact couplings multiply.
    operand: Columns<f64>,
}

impl Slices {
    /// Slices of `particles` rows; `row(i)` lists the other end and the index of each spring of particle `i`.
    pub(crate) fn new<'a, R>(particles: usize, row: impl Fn(usize) -> R) -> Self
    where
        R: Iterator<Item = (u32, u32)> + 'a,
    {
        let padded = particles.next_multiple_of(LANES);
        let mut this = Self {
            start: vec![0],
            grounding: vec![[0.0; LANES]; padded / LANES],
            operand: Columns::new(particles),
            ..Self::default()
        };
        for first in (0..particles).step_by(LANES) {
            // By distance in the numbering; of two springs between the same particles one is scattered.
            let mut runs: BTreeMap<i64, [u32; LANES]> = BTreeMap::new();
            let mut rest: [Vec<(u32, u32)>; LANES] = Default::default();
            for (lane, i) in (first..particles.min(first + LANES)).enumerate() {
                for (neighbour, spring) in row(i) {
                    let run = runs.entry(i64::from(neighbour) - i as i64).or_insert([NONE; LANES]);
                    if run[lane] == NONE {
                        run[lane] = spring;
                    } else {
                        rest[lane].push((neighbour, spring));
                    }
                }
            }
            for (distance, springs) in runs {
                let begin = first as i64 + distance;
                let count = springs.iter().filter(|&&spring| spring != NONE).count();
                if count >= RUN_LEAST && (0..=(padded - LANES) as i64).contains(&begin) {
                    this.push(Other::Run(begin as u32), springs);
                } else {
                    for lane in (0..LANES).filter(|&lane| springs[lane] != NONE) {
                        rest[lane].push(((begin + lane as i64) as u32, springs[lane]));
                    }
                }
            }
            for k in 0..rest.iter().map(Vec::len).max().unwrap_or(0) {
                // Padding of the entry refers to the slice's own first particle, which is at hand.
                let ends = std::array::from_fn(|lane| *rest[lane].get(k).unwrap_or(&(first as u32, NONE)));
                this.neighbours.push(ends.map(|(neighbour, _)| neighbour));
                this.push(Other::Scattered(this.neighbours.len() as u32 - 1), ends.map(|(_, spring)| spring));
            }
            this.start.push(this.others.len() as u32);
        }
        this.exact = vec![[[0.0; LANES]; 4]; this.others.len()];
        this.rounded = vec![[[0.0; LANES]; 4]; this.others.len()];
        this
    }

    /// The slices of this rank. `spring` is the new number of a spring.
    pub(crate) fn part(&self, partition: &Partition, spring: impl Fn(u32) -> u32) -> Self {
        let own = partition.own().start / LANES..partition.own().end.div_ceil(LANES);
        // The padding of an entry may be anywhere.
        let place = |index: u32| partition.place(index as usize).unwrap_or(partition.first_place() as u32);
        let mut this = Self {
            before: partition.first_place() / LANES,
            start: vec![0],
            grounding: vec![[0.0; LANES]; own.len()],
            operand: Columns::new(partition.places()),
            ..Self::default()
        };
        for slice in own {
            for entry in self.entries(slice) {
                let springs = self.springs[entry].map(|of| if of == NONE { NONE } else { spring(of) });
                let other = match self.others[entry] {
                    Other::Run(at) => Other::Run(place(at)),
                    Other::Scattered(index) => {
                        this.neighbours.push(self.neighbours[index as usize].map(place));
                        Other::Scattered(this.neighbours.len() as u32 - 1)
                    }
                };
                this.push(other, springs);
            }
            this.start.push(this.others.len() as u32);
        }
        this.exact = vec![[[0.0; LANES]; 4]; this.others.len()];
        this.rounded = vec![[[0.0; LANES]; 4]; this.others.len()];
        this
    }

    /// Marks the slices of particles that products with these slices of rows read.
    pub(crate) fn mark_read(&self, rows: Range<usize>, read: &mut [bool]) {
        for other in rows.flat_map(|slice| &self.others[self.entries(slice)]) {
            match *other {
                Other::Run(at) => {
                    // Two slices that follow each other, and stay so among those that a rank holds.
                    read[at as usize / LANES] = true;
                    read[(at as usize).div_ceil(LANES)] = true;
                }
                Other::Scattered(index) => {
                    self.neighbours[index as usize].iter().for_each(|&i| read[i as usize / LANES] = true);
                }
            }
        }
    }

    fn push(&mut self, other: Other, springs: [u32; LANES]) {
        self.others.push(other);
        self.springs.push(springs);
    }

    /// Takes over the couplings, `coupling(spring)` gives the axis and the transverse part, and what
    /// foundations add to each particle's diagonal.
    pub(crate) fn set(&mut self, coupling: impl Fn(u32) -> (DVec3, f64) + Sync, grounding: &[f64]) {
        let entries = self.exact.par_iter_mut().zip(&mut self.rounded).zip(&self.springs);
        entries.with_min_len(512).for_each(|((exact, rounded), springs)| {
            for (lane, &spring) in springs.iter().enumerate().filter(|&(_, &spring)| spring != NONE) {
                let (axis, transverse) = coupling(spring);
                for (column, value) in [axis.x, axis.y, axis.z, transverse].into_iter().enumerate() {
                    exact[column][lane] = value;
                    rounded[column][lane] = value as f32;
                }
            }
        });
        for (rounded, grounding) in self.grounding.iter_mut().flatten().zip(grounding) {
            *rounded = *grounding as f32;
        }
    }

    /// Takes the vector that [`Self::add_exact`] multiplies.
    pub(crate) fn load(&mut self, u: &[DVec3]) {
        for (i, u) in u.iter().enumerate() {
            self.operand.set(i, u.to_array());
        }
    }

    /// Adds the springs' product with the vector loaded last to the rows of `image`, which begin with slice
    /// `first`.
    pub(crate) fn add_exact(&self, first: usize, image: &mut [DVec3]) {
        lanes::run(AddExact { slices: self, first, image });
    }

    /// Adds the rounded product with `u`, of springs and foundations, to the slices from `first` on.
    pub(crate) fn add_rounded(&self, first: usize, u: &Columns, image: &mut [Slice]) {
        lanes::run(AddRounded { slices: self, first, u, image });
    }

    #[inline(always)]
    fn entries(&self, slice: usize) -> Range<usize> {
        self.start[slice] as usize..self.start[slice + 1] as usize
    }
}

struct AddRounded<'a> {
    slices: &'a Slices,
    first: usize,
    u: &'a Columns,
    image: &'a mut [Slice],
}

impl Task for AddRounded<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Slices { others, rounded, neighbours, grounding, .. } = self.slices;
        let [x, y, z] = &self.u.axes;
        for (slice, image) in (self.first..).zip(self.image) {
            let at = (self.slices.before + slice) * LANES;
            let own = [L::load(sixteen(x, at)), L::load(sixteen(y, at)), L::load(sixteen(z, at))];
            let ground = L::load(&grounding[slice]);
            let mut sum = [
                ground.mul_add(own[0], L::load(&image[0])),
                ground.mul_add(own[1], L::load(&image[1])),
                ground.mul_add(own[2], L::load(&image[2])),
            ];
            let entries = self.slices.entries(slice);
            for (other, coupling) in others[entries.clone()].iter().zip(&rounded[entries]) {
                let other = match *other {
                    Other::Run(at) => {
                        let at = at as usize;
                        [L::load(sixteen(x, at)), L::load(sixteen(y, at)), L::load(sixteen(z, at))]
                    }
                    Other::Scattered(index) => {
                        let index = &neighbours[index as usize];
                        [L::load(&picked(x, index)), L::load(&picked(y, index)), L::load(&picked(z, index))]
                    }
                };
                let u = [own[0] - other[0], own[1] - other[1], own[2] - other[2]];
                let [a, b, c, transverse] = coupling;
                let (a, b, c, transverse) = (L::load(a), L::load(b), L::load(c), L::load(transverse));
                let along = c.mul_add(u[2], b.mul_add(u[1], a * u[0]));
                sum[0] = transverse.mul_add(u[0], along.mul_add(a, sum[0]));
                sum[1] = transverse.mul_add(u[1], along.mul_add(b, sum[1]));
                sum[2] = transverse.mul_add(u[2], along.mul_add(c, sum[2]));
            }
            for axis in 0..3 {
                sum[axis].store(&mut image[axis]);
            }
        }
    }
}

struct AddExact<'a> {
    slices: &'a Slices,
    first: usize,
    image: &'a mut [DVec3],
}

impl Task for AddExact<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Slices { others, exact, neighbours, operand, .. } = self.slices;
        let [x, y, z] = &operand.axes;
        for (slice, image) in (self.first..).zip(self.image.chunks_mut(LANES)) {
            let at = (self.slices.before + slice) * LANES;
            let own = [sixteen(x, at), sixteen(y, at), sixteen(z, at)];
            let mut sum = Slice::<f64>::default();
            let entries = self.slices.entries(slice);
            for (other, [a, b, c, transverse]) in others[entries.clone()].iter().zip(&exact[entries]) {
                let other = match *other {
                    Other::Run(at) => {
                        let at = at as usize;
                        [*sixteen(x, at), *sixteen(y, at), *sixteen(z, at)]
                    }
                    Other::Scattered(index) => {
                        let index = &neighbours[index as usize];
                        [picked(x, index), picked(y, index), picked(z, index)]
                    }
                };
                for lane in 0..LANES {
                    let u = [
                        own[0][lane] - other[0][lane],
                        own[1][lane] - other[1][lane],
                        own[2][lane] - other[2][lane],
                    ];
                    let along = a[lane] * u[0] + b[lane] * u[1] + c[lane] * u[2];
                    sum[0][lane] += transverse[lane] * u[0] + along * a[lane];
                    sum[1][lane] += transverse[lane] * u[1] + along * b[lane];
                    sum[2][lane] += transverse[lane] * u[2] + along * c[lane];
                }
            }
            for (lane, image) in image.iter_mut().enumerate() {
                *image += DVec3::new(sum[0][lane], sum[1][lane], sum[2][lane]);
            }
        }
    }
}
