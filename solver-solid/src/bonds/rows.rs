//! Bonds of a body of particles anywhere: compressed rows.
//!
//! A particle's row is padded to whole groups of sixteen bonds. A bond is the index of its other end and the inverse
//! of its rest length, 8 bytes, and a live bit; its stiffness follows from the length. What is read of a neighbour lies in one
//! padded record.

use std::ops::Range;

use amalgam_particles::lanes::{self, LANES};
use amalgam_particles::{CellGrid, DVec3};
use rayon::prelude::*;

use super::law::Law;
use super::row_kernels::{
    DiagonalKernel, ForceKernel, ProductKernel, Row, RowForce, Share, difference, excess, square,
};
use super::stretch::elongation_share;
use super::table::{Bond, BondTable, Broken, Pass, QUANTA, scale_of};
use crate::fixed::{quantise, whole};
use crate::vectors::{Slice, Vector};

/// Rows that one task works on.
const CHUNK: usize = 256;

/// See the module.
pub(crate) struct RowTable {
    /// Quanta in a metre.
    per_quantum: f64,
    share: Share,
    /// First group of sixteen of each row, and the end.
    start: Vec<u32>,
    neighbour: Vec<u32>,
    /// Inverse of the rest length [1/quanta].
    inverse_rest: Vec<f32>,
    live: Vec<u16>,
    /// Position in quanta, and half of the gain (the bits of an f32).
    record: Vec<[i32; 4]>,
    /// The same with the vector to multiply.
    pair: Vec<[i32; 8]>,
    force: Vec<RowForce>,
    diagonal: Vec<[f32; 6]>,
    image: Vec<[f32; 3]>,
}

impl RowTable {
    /// All bonds of a body.
    pub(crate) fn new(position: &[DVec3], law: &Law) -> Self {
        let reach = law.reach();
        let grid = CellGrid::new(position, reach);
        let near = |i: usize, visit: &mut dyn FnMut(u32)| {
            grid.for_each_near(position[i], |j| {
                if j as usize != i && position[i].distance_squared(position[j as usize]) <= reach * reach {
                    visit(j);
                }
            });
        };
        let count = |i: usize| {
            let mut count = 0u32;
            near(i, &mut |_| count += 1);
            count.div_ceil(LANES as u32)
        };
        let groups: Vec<u32> = (0..position.len()).into_par_iter().with_min_len(CHUNK).map(count).collect();
        let mut start = vec![0];
        start.extend(groups.iter().scan(0u32, |total, groups| {
            *total += groups;
            Some(*total)
        }));
        let total = start.last().map_or(0, |&end| end as usize);
        let (constant, slope) = law.volume_line();
        let mut this = Self {
            per_quantum: QUANTA / law.spacing,
            share: Share { inner: (constant * QUANTA) as f32, slope: (slope * law.spacing) as f32 },
            neighbour: vec![0; total * LANES],
            inverse_rest: vec![1.0; total * LANES],
            live: vec![0; total],
            record: vec![[0, 0, 0, 0.5f32.to_bits() as i32]; position.len()],
            pair: Vec::new(),
            force: vec![RowForce::default(); position.len()],
            diagonal: Vec::new(),
            image: Vec::new(),
            start,
        };
        this.load_positions(position);
        let record = &this.record;
        let rows = split(&mut this.neighbour, &this.start, LANES);
        let rests = split(&mut this.inverse_rest, &this.start, LANES);
        let lives = split(&mut this.live, &this.start, 1);
        rows.into_par_iter().zip(rests).zip(lives).enumerate().with_min_len(CHUNK).for_each(
            |(i, ((row, rest), live))| {
                let mut at = 0;
                near(i, &mut |j| {
                    row[at] = j;
                    at += 1;
                });
                row[..at].sort_unstable();
                // What pads the row is the particle itself, which is at hand.
                row[at..].fill(i as u32);
                for k in 0..at {
                    let square = square(difference(&record[row[k] as usize], &record[i]));
                    rest[k] = (1.0 / f64::from(square).max(1.0).sqrt()) as f32;
                    live[k / LANES] |= 1 << (k % LANES);
                }
            },
        );
        this
    }

    fn row(&self, i: usize) -> (Range<usize>, Range<usize>) {
        let groups = self.start[i] as usize..self.start[i + 1] as usize;
        (groups.clone(), groups.start * LANES..groups.end * LANES)
    }

    fn gain(&self, i: usize) -> f32 {
        f32::from_bits(self.record[i][3] as u32)
    }
}

/// Cuts a column into a slice for each row.
fn split<'a, T>(mut column: &'a mut [T], start: &[u32], each: usize) -> Vec<&'a mut [T]> {
    start
        .windows(2)
        .map(|row| {
            let (own, rest) = std::mem::take(&mut column).split_at_mut((row[1] - row[0]) as usize * each);
            column = rest;
            own
        })
        .collect()
}

impl BondTable for RowTable {
    fn load_positions(&mut self, position: &[DVec3]) {
        let per_quantum = self.per_quantum;
        self.record.par_iter_mut().zip(position).with_min_len(4096).for_each(|(record, x)| {
            for axis in 0..3 {
                record[axis] = quantise(x[axis], per_quantum);
            }
        });
    }

    fn forces(&mut self, thresholds: Option<(&[f32], f32)>) -> Pass {
        let mut live = std::mem::take(&mut self.live);
        let mut force = std::mem::take(&mut self.force);
        let ends: Vec<u32> =
            self.start.iter().skip(CHUNK).step_by(CHUNK).chain(self.start.last()).copied().collect();
        let mut cuts = vec![0];
        cuts.extend(ends);
        cuts.truncate(force.len().div_ceil(CHUNK) + 1);
        if let (Some(last), Some(&end)) = (cuts.last_mut(), self.start.last()) {
            *last = end;
        }
        let chunks = split(&mut live, &cuts, 1);
        let passes: Vec<Pass> = force
            .par_chunks_mut(CHUNK)
            .zip(chunks)
            .enumerate()
            .map(|(chunk, (force, live))| {
                let mut pass = Pass::default();
                let first = self.start[chunk * CHUNK] as usize;
                for (i, force) in (chunk * CHUNK..).zip(force) {
                    let (groups, bonds) = self.row(i);
                    let live = &mut live[groups.start - first..groups.end - first];
                    *force = self.row_force(i, bonds.clone(), live);
                    if let Some((thresholds, limit)) = thresholds
                        && force.largest > limit
                        && self.break_bonds(i, live, thresholds, &mut pass.broken)
                    {
                        *force = self.row_force(i, bonds, live);
                    }
                    pass.energy += f64::from(force.energy);
                }
                pass
            })
            .collect();
        (self.live, self.force) = (live, force);
        passes.into_iter().fold(Pass::default(), |mut total, mut pass| {
            total.energy += pass.energy;
            total.broken.append(&mut pass.broken);
            total
        })
    }

    fn find_blocks(&mut self) {
        let mut diagonal = std::mem::take(&mut self.diagonal);
        (0..self.record.len())
            .into_par_iter()
            .with_min_len(CHUNK)
            .map(|i| {
                let (groups, bonds) = self.row(i);
                let row = self.row_of(i, bonds, &self.live[groups]);
                if self.force[i].is_far() {
                    lanes::run(DiagonalKernel::<true> { row, record: &self.record })
                } else {
                    lanes::run(DiagonalKernel::<false> { row, record: &self.record })
                }
            })
            .collect_into_vec(&mut diagonal);
        self.diagonal = diagonal;
    }

    fn multiply(&mut self, u: Vector<'_>, first: usize, wanted: Option<&[bool]>) -> f64 {
        let (scale, rounded) = match u {
            Vector::Exact(u) => {
                let own = &u[first..first + self.record.len()];
                let scale = scale_of(own);
                self.pair_up(|i| (own[i] * scale).to_array().map(whole));
                (scale, false)
            }
            Vector::Rounded(u) => {
                self.pair_up(|i| u.get(first + i).map(|u| u.to_bits() as i32));
                (1.0, true)
            }
        };
        let mut image = std::mem::take(&mut self.image);
        image.resize(self.record.len(), [0.0; 3]);
        image.par_iter_mut().enumerate().with_min_len(CHUNK).for_each(|(i, image)| {
            if !wanted.is_none_or(|wanted| wanted[(first + i) / LANES]) {
                return;
            }
            let (groups, bonds) = self.row(i);
            let row = self.row_of(i, bonds, &self.live[groups]);
            let (own, pair, force) = (self.pair[i], self.pair.as_slice(), &self.force[i]);
            *image = match (rounded, if rounded { force.is_far_for_rounded() } else { force.is_far() }) {
                (false, false) => lanes::run(ProductKernel::<false, false> { row, own, pair }),
                (false, true) => lanes::run(ProductKernel::<true, false> { row, own, pair }),
                (true, false) => lanes::run(ProductKernel::<false, true> { row, own, pair }),
                (true, true) => lanes::run(ProductKernel::<true, true> { row, own, pair }),
            };
        });
        self.image = image;
        1.0 / scale
    }

    fn force(&self, i: usize) -> ([f32; 3], f32) {
        (self.force[i].force, self.force[i].least)
    }

    fn block(&self, i: usize) -> [f32; 6] {
        self.diagonal[i]
    }

    fn product(&self, i: usize) -> [f32; 3] {
        self.image[i]
    }

    fn add_products(&self, rows: Range<usize>, unit: f32, image: &mut [Slice], at: usize) {
        for (product, at) in self.image[rows].iter().zip(at..) {
            for axis in 0..3 {
                image[at / LANES][axis][at % LANES] += product[axis] * unit;
            }
        }
    }

    fn joined(&self, i: usize, j: usize) -> bool {
        let (groups, bonds) = self.row(i);
        let other = |&k: &usize| self.live[groups.start + k / LANES] >> (k % LANES) & 1 != 0;
        (0..bonds.len()).filter(|k| self.neighbour[bonds.start + k] as usize == j).any(|k| other(&k))
    }

    fn visit(&self, i: usize, visit: &mut dyn FnMut(Bond)) {
        let (groups, bonds) = self.row(i);
        for k in bonds.clone() {
            if self.live[groups.start + (k - bonds.start) / LANES] >> (k % LANES) & 1 != 0 {
                let gain = self.gain(i) + self.gain(self.neighbour[k] as usize);
                visit(Bond {
                    neighbour: self.neighbour[k],
                    rest: 1.0 / (f64::from(self.inverse_rest[k]) * QUANTA),
                    stiffness: f64::from(gain * self.share.stiffness(self.inverse_rest[k])),
                });
            }
        }
    }

    fn cut(&mut self, i: usize, cut: &dyn Fn(u32) -> bool) {
        let (groups, bonds) = self.row(i);
        for k in bonds.clone() {
            let live = &mut self.live[groups.start + (k - bonds.start) / LANES];
            if *live >> (k % LANES) & 1 != 0 && cut(self.neighbour[k]) {
                *live &= !(1 << (k % LANES));
            }
        }
    }

    fn set_gains(&mut self, gains: &[f32]) {
        for (record, gain) in self.record.iter_mut().zip(gains) {
            record[3] = (0.5 * gain).to_bits() as i32;
        }
    }

    fn live(&self) -> &[u16] {
        &self.live
    }

    fn set_live(&mut self, live: &[u16]) {
        self.live.copy_from_slice(live);
    }

    fn bytes(&self) -> usize {
        let per_particle = 4 + 16 + 32 + size_of::<RowForce>() + 24 + 12;
        self.neighbour.len() * 8 + self.live.len() * 2 + self.record.len() * per_particle
    }
}

impl RowTable {
    /// Puts a vector beside the positions.
    fn pair_up(&mut self, u: impl Fn(usize) -> [i32; 3] + Sync) {
        let Self { record, pair, .. } = self;
        let records = record.par_iter().enumerate().with_min_len(4096);
        records
            .map(|(i, &[x, y, z, gain])| {
                let u = u(i);
                [x, y, z, gain, u[0], u[1], u[2], 0]
            })
            .collect_into_vec(pair);
    }

    fn row_of<'a>(&'a self, i: usize, bonds: Range<usize>, live: &'a [u16]) -> Row<'a> {
        Row {
            own: self.record[i],
            share: self.share,
            neighbour: &self.neighbour[bonds.clone()],
            inverse_rest: &self.inverse_rest[bonds],
            live,
        }
    }

    fn row_force(&self, i: usize, bonds: Range<usize>, live: &[u16]) -> RowForce {
        let row = self.row_of(i, bonds, live);
        let near = lanes::run(ForceKernel::<false> { row, record: &self.record });
        if near.is_far() { lanes::run(ForceKernel::<true> { row, record: &self.record }) } else { near }
    }

    /// Breaks bonds of a row whose excess is above the threshold of either end; whether there was any.
    fn break_bonds(&self, i: usize, live: &mut [u16], thresholds: &[f32], broken: &mut Vec<Broken>) -> bool {
        let mut any = false;
        let (_, bonds) = self.row(i);
        for (k, bond) in bonds.enumerate() {
            let j = self.neighbour[bond] as usize;
            if live[k / LANES] >> (k % LANES) & 1 == 0 {
                continue;
            }
            let (d, inverse_rest) = (difference(&self.record[j], &self.record[i]), self.inverse_rest[bond]);
            let excess = excess(square(d), inverse_rest);
            if excess > thresholds[i].min(thresholds[j]) {
                live[k / LANES] &= !(1 << (k % LANES));
                any = true;
                if i < j {
                    let stiffness = (self.gain(i) + self.gain(j)) * self.share.stiffness(inverse_rest);
                    let pull = stiffness * elongation_share::<true>(excess);
                    broken.push(Broken { ends: [i as u32, j as u32], pull: d.map(|d| pull * d) });
                }
            }
        }
        any
    }
}
