//! Bonds of a body of particles anywhere: compressed rows, four at a time.
//!
//! Four particles that lie together are a *cluster*. Its four rows are stored as one: the slot of each
//! particle that any of the four is bonded to, and a bit for each of the four that is. Then follow the bonds'
//! inverse rest lengths, negative once a bond is broken. A bond takes 4 bytes, 4 more for its stiffness in
//! implicit steps, and one and a half or two for the slots. Particles are kept in the order of clusters; a
//! particle's place in it is its *slot*.

mod coefficient;
mod kernels;

use std::borrow::Cow;
use std::ops::Range;

use amalgam_particles::lanes::{self, LANES};
use amalgam_particles::{CellGrid, DVec3};
use rayon::prelude::*;

use super::law::Law;
use super::stretch::{BondStiffness, SERIES_MAX, elongation_share};
use super::table::{BodyPart, Bond, BondTable, Broken, QUANTA, vector};
use super::variants::{
    AnyStrain, Corrected, FloatBits, LeastIgnored, LeastRecorded, SmallStrain, Uncorrected, WholeNumbers,
};
use crate::linear::fixed::{quantise, whole};
use crate::linear::vectors::{Slice, Vector};
use coefficient::{Coefficient, UNIT};
use kernels::{
    BLOCK, CLUSTER, ClusterValues, DiagonalKernel, ForceKernel, Forces, KernelTask, NeighbourBlock, OPERAND,
    Pair, ProductKernel, RoundedKernel, Rows, difference, double_strain, square,
};

/// Clusters that one task works on.
const CHUNK: usize = 64;

/// See the module. Forces, blocks and products are those of a cluster.
pub(crate) struct RowTable {
    /// Quanta in a metre.
    quanta_per_metre: f64,
    share: BondStiffness,
    /// True if the least double strain of bonds is asked for.
    thresholds_rise: bool,
    /// True if any correction is not 1.
    has_corrections: bool,
    /// The particle in each slot, and the slot of each particle.
    order: Vec<u32>,
    slot: Vec<u32>,
    part: BodyPart,
    /// The place of the particle in each slot, if its value is held.
    place: Vec<Option<u32>>,
    /// True for clusters that hold a particle of this rank.
    is_own: Vec<bool>,
    /// Start of each cluster's neighbours and bonds, and the ends. After the bonds of each cluster there is
    /// room for [`LANES`] more, as many as a loop may touch.
    start: Vec<[usize; 2]>,
    neighbours: Vec<NeighbourBlock>,
    /// Inverse of the rest length [1/quanta].
    inverse_rest: Vec<f32>,
    /// Coefficient of each bond. `is_near` is true for clusters whose bonds all have one.
    coefficient: Vec<Coefficient>,
    is_near: Vec<bool>,
    /// Position [quanta], and the correction times half a spacing [quanta] (the bits of an f32), in each slot
    /// of every cluster.
    record: Vec<[i32; 4]>,
    /// Position from the first slot, and the vector to multiply.
    pair: Vec<Pair>,
    force: Vec<Forces>,
    diagonal: Vec<[ClusterValues; 6]>,
    image: Vec<[ClusterValues; 3]>,
}

impl RowTable {
    /// All bonds of a body.
    pub(crate) fn new(position: &[DVec3], law: &Law) -> Self {
        let order = clustered(position);
        let mut slot = vec![0; order.len()];
        order.iter().zip(0..).for_each(|(&i, at)| slot[i as usize] = at);
        let in_order: Vec<DVec3> = order.iter().map(|&i| position[i as usize]).collect();
        let bonds = bonds_of_clusters(&in_order, law.reach());
        let mut start = vec![[0; 2]];
        start.extend(bonds.iter().scan([0; 2], |[neighbours, bonds], of| {
            *neighbours += of.len();
            *bonds += of.iter().map(|block| block.lanes.count_ones() as usize).sum::<usize>() + LANES;
            Some([*neighbours, *bonds])
        }));
        let (constant, slope) = law.volume_line();
        let slots = bonds.len() * CLUSTER;
        let mut this = Self {
            quanta_per_metre: QUANTA / law.spacing,
            share: BondStiffness { inner: constant as f32, slope: (slope * law.spacing / QUANTA) as f32 },
            thresholds_rise: law.threshold_rise != 0.0,
            has_corrections: false,
            neighbours: bonds.concat(),
            inverse_rest: vec![0.0; start[bonds.len()][1]],
            coefficient: Vec::new(),
            is_near: vec![false; bonds.len()],
            record: vec![[0, 0, 0, (0.5 * QUANTA as f32).to_bits() as i32]; slots],
            pair: vec![[0; 8]; slots],
            force: vec![Forces::default(); bonds.len()],
            diagonal: vec![Default::default(); bonds.len()],
            image: vec![Default::default(); bonds.len()],
            part: BodyPart::default(),
            place: Vec::new(),
            is_own: Vec::new(),
            order,
            slot,
            start,
        };
        drop(bonds);
        this.share(&BodyPart::whole(position.len(), 0));
        this.load_positions(position);
        let Self { neighbours, inverse_rest, record, start, .. } = &mut this;
        let clusters = split(inverse_rest, start, 1).into_par_iter().zip(start.par_windows(2)).enumerate();
        clusters.with_min_len(CHUNK).for_each(|(cluster, (inverse_rest, start))| {
            let mut at = 0;
            for (other, selected) in
                neighbours[start[0][0]..start[1][0]].iter().flat_map(NeighbourBlock::each)
            {
                for lane in (0..CLUSTER).filter(|lane| selected >> lane & 1 != 0) {
                    let square = square(difference(&record[other], &record[cluster * CLUSTER + lane]));
                    inverse_rest[at] = (1.0 / f64::from(square).max(1.0).sqrt()) as f32;
                    at += 1;
                }
            }
        });
        this
    }

    fn rows(&self, cluster: usize) -> Rows<'_> {
        Rows {
            first: cluster * CLUSTER,
            neighbours: &self.neighbours[self.start[cluster][0]..self.start[cluster + 1][0]],
            record: &self.record,
            share: self.share,
        }
    }

    fn bonds(&self, cluster: usize) -> Range<usize> {
        self.start[cluster][1]..self.start[cluster + 1][1]
    }

    /// The bonds of a slot, broken ones, too: the slot of the other end, and which of the cluster's bonds it
    /// is.
    fn row(&self, slot: usize) -> impl Iterator<Item = (usize, usize)> {
        let (cluster, lane) = (slot / CLUSTER, slot % CLUSTER);
        let mut next = 0;
        self.rows(cluster).neighbours.iter().flat_map(NeighbourBlock::each).filter_map(
            move |(other, selected)| {
                let at = next + (selected & ((1 << lane) - 1)).count_ones() as usize;
                next += selected.count_ones() as usize;
                (selected >> lane & 1 != 0).then_some((other, at))
            },
        )
    }

    /// The live bonds of a particle: the slot of the other end, and which of all bonds it is.
    fn live_row(&self, i: usize) -> impl Iterator<Item = (usize, usize)> {
        let slot = self.slot[i] as usize;
        let first = self.start[slot / CLUSTER][1];
        let bonds = self.row(slot).map(move |(other, at)| (other, first + at));
        bonds.filter(|&(_, at)| self.inverse_rest[at] > 0.0)
    }

    fn place_of(&self, i: usize) -> (usize, usize) {
        let slot = self.slot[i] as usize;
        (slot / CLUSTER, slot % CLUSTER)
    }

    fn correction(&self, slot: usize) -> f32 {
        f32::from_bits(self.record[slot][3] as u32)
    }

    /// Sets the vector to multiply, by place.
    fn set_operand(&mut self, u: impl Fn(usize) -> [i32; 3] + Sync) {
        let slots = self.pair.par_iter_mut().zip(&self.place).with_min_len(4096);
        slots.for_each(|(pair, place)| {
            if let Some(place) = *place {
                pair[OPERAND..][..3].copy_from_slice(&u(place as usize));
            }
        });
    }

    /// The particles in a cluster.
    fn particles(&self, cluster: usize) -> impl Iterator<Item = usize> + Clone {
        self.order[cluster * CLUSTER..].iter().take(CLUSTER).map(|&i| i as usize)
    }

    /// Forces on a cluster. Extremes are as they are if thresholds rise or any double strain is above
    /// `limit`.
    fn forces_of(&self, rows: Rows<'_>, inverse_rest: &[f32], limit: f32) -> Forces {
        if !self.thresholds_rise {
            let near = if self.has_corrections {
                lanes::run(KernelTask(ForceKernel::<SmallStrain, Corrected, LeastIgnored>::new(
                    rows,
                    inverse_rest,
                )))
            } else {
                lanes::run(KernelTask(ForceKernel::<SmallStrain, Uncorrected, LeastIgnored>::new(
                    rows,
                    inverse_rest,
                )))
            };
            let most = near.largest.into_iter().fold(0.0, f32::max);
            if most <= limit.min(SERIES_MAX) {
                return near;
            }
            if most > SERIES_MAX {
                return lanes::run(KernelTask(ForceKernel::<AnyStrain, Corrected, LeastRecorded>::new(
                    rows,
                    inverse_rest,
                )));
            }
        }
        forces(rows, inverse_rest)
    }

    /// Breaks bonds of a slot whose double strain is above the threshold of either end.
    fn break_bonds(
        &self,
        slot: usize,
        inverse_rest: &mut [f32],
        thresholds: &[f32],
        broken: &mut Vec<Broken>,
    ) {
        for (other, at) in self.row(slot) {
            let (i, j) = (self.order[slot] as usize, self.order[other] as usize);
            let d = difference(&self.record[other], &self.record[slot]);
            let double_strain = double_strain(square(d), inverse_rest[at]);
            if inverse_rest[at] > 0.0 && double_strain > thresholds[i].min(thresholds[j]) {
                if i < j {
                    let stiffness = (self.correction(slot) + self.correction(other))
                        * self.share.stiffness(inverse_rest[at]);
                    let force_per_length = stiffness * elongation_share::<AnyStrain>(double_strain);
                    broken
                        .push(Broken { ends: [i as u32, j as u32], force: d.map(|d| force_per_length * d) });
                }
                inverse_rest[at] = -inverse_rest[at];
            }
        }
    }
}

/// Forces on a cluster, with the extremes of its bonds as they are.
fn forces(rows: Rows<'_>, inverse_rest: &[f32]) -> Forces {
    let near =
        lanes::run(KernelTask(ForceKernel::<SmallStrain, Corrected, LeastRecorded>::new(rows, inverse_rest)));
    if near.is_far() {
        lanes::run(KernelTask(ForceKernel::<AnyStrain, Corrected, LeastRecorded>::new(rows, inverse_rest)))
    } else {
        near
    }
}

/// Cuts a column of bonds into a slice for each `clusters` of them.
fn split<'a, T>(mut column: &'a mut [T], start: &[[usize; 2]], clusters: usize) -> Vec<&'a mut [T]> {
    let ends = (0..start.len() - 1).step_by(clusters).map(|n| [n, (n + clusters).min(start.len() - 1)]);
    ends.map(|[from, to]| take(&mut column, start[to][1] - start[from][1])).collect()
}

/// The first entries of a column, which is left without them.
fn take<'a, T>(column: &mut &'a mut [T], length: usize) -> &'a mut [T] {
    column.split_off_mut(..length).expect("columns hold all bonds")
}

/// Particles in an order in which every four lie together, and so do every eight, sixteen and so on: halves
/// across the longest side, halved again.
fn clustered(position: &[DVec3]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..position.len() as u32).collect();
    halve(&mut order, position);
    order
}

fn halve(order: &mut [u32], position: &[DVec3]) {
    if order.len() <= CLUSTER {
        // Which four they are is certain, but not how a selection leaves them.
        order.sort_unstable();
        return;
    }
    let (mut low, mut high) = (DVec3::INFINITY, DVec3::NEG_INFINITY);
    for &i in &*order {
        (low, high) = (low.min(position[i as usize]), high.max(position[i as usize]));
    }
    let first = (high - low).max_position();
    // Planes of a lattice are cut along their own lattice lines.
    let key = |i: u32| [0, 1, 2].map(|axis| position[i as usize][(first + axis) % 3]);
    let middle = order.len().div_ceil(CLUSTER) / 2 * CLUSTER;
    order.select_nth_unstable_by(middle, |&a, &b| {
        let pairs = key(a).into_iter().zip(key(b));
        pairs.fold(std::cmp::Ordering::Equal, |order, (a, b)| order.then(a.total_cmp(&b))).then(a.cmp(&b))
    });
    let (lower, upper) = order.split_at_mut(middle);
    rayon::join(|| halve(lower, position), || halve(upper, position));
}

/// Neighbours to which the particles of each cluster are bonded, by slot.
fn bonds_of_clusters(position: &[DVec3], reach: f64) -> Vec<Vec<NeighbourBlock>> {
    let grid = CellGrid::new(position, reach);
    let of = |cluster: usize| {
        let first = cluster * CLUSTER;
        let mut words = Vec::new();
        for (lane, (i, x)) in (first..).zip(&position[first..]).take(CLUSTER).enumerate() {
            grid.for_each_near(*x, |j| {
                if j as usize != i && x.distance_squared(position[j as usize]) <= reach * reach {
                    words.push(j << CLUSTER | 1 << lane);
                }
            });
        }
        words.sort_unstable();
        // One word of those with the same slot.
        words.dedup_by(|next, kept| {
            let same = *next >> CLUSTER == *kept >> CLUSTER;
            *kept |= if same { *next } else { 0 };
            same
        });
        words.resize(words.len().next_multiple_of(BLOCK), (first as u32) << CLUSTER);
        let lanes = |word: u32| word as u16 & ((1 << CLUSTER) - 1);
        let of = |words: &[u32; BLOCK]| NeighbourBlock {
            slot: words.map(|word| word >> CLUSTER),
            lanes: words.iter().rev().fold(0, |all, &word| all << CLUSTER | lanes(word)),
        };
        words.as_chunks().0.iter().map(of).collect()
    };
    (0..position.len().div_ceil(CLUSTER)).into_par_iter().with_min_len(CHUNK).map(of).collect()
}

impl BondTable for RowTable {
    fn mark_read(&self, own: Range<usize>, mark: &mut dyn FnMut(Range<usize>)) {
        for cluster in 0..self.force.len() {
            if !self.particles(cluster).any(|i| own.contains(&i)) {
                continue;
            }
            let neighbours = self.rows(cluster).neighbours.iter().flat_map(|of| of.slot);
            for slot in (cluster * CLUSTER..).take(CLUSTER).chain(neighbours.map(|slot| slot as usize)) {
                if let Some(&i) = self.order.get(slot) {
                    mark(i as usize..i as usize + 1);
                }
            }
        }
    }

    fn share(&mut self, share: &BodyPart) {
        let place = |&i: &u32| share.place(i as usize).map(|place| place as u32);
        self.place = self.order.iter().map(place).collect();
        let is_own = |cluster: usize| self.particles(cluster).any(|i| share.own.contains(&i));
        self.is_own = (0..self.force.len()).map(is_own).collect();
        self.part = share.clone();
    }

    fn load_positions(&mut self, position: &[DVec3]) {
        let quanta_per_metre = self.quanta_per_metre;
        let slots = self.record.par_iter_mut().zip(self.order.par_iter().zip(&self.place));
        slots.with_min_len(4096).filter(|(_, (_, place))| place.is_some()).for_each(|(record, (&i, _))| {
            for axis in 0..3 {
                record[axis] = quantise(position[i as usize][axis], quanta_per_metre);
            }
        });
    }

    fn breaking_order(&self, i: usize) -> u64 {
        self.slot[i].into()
    }

    fn break_bond(&mut self, [i, j]: [u32; 2]) {
        for (i, j) in [(i, j), (j, i)] {
            self.cut(i as usize, &|other| other == j);
        }
    }

    fn energy(&self, i: usize) -> f64 {
        let (cluster, lane) = self.place_of(i);
        f64::from(self.force[cluster].energy[lane])
    }

    fn origin(&self) -> usize {
        self.order.first().map_or(0, |&i| i as usize)
    }

    fn round_positions(&mut self, _position: &[DVec3], origin: DVec3) {
        let own = origin.to_array().map(|length| quantise(length, self.quanta_per_metre));
        let origin = [own[0], own[1], own[2], 0];
        let unit = 1.0 / (UNIT * QUANTA as f32);
        let slots = self.pair.par_iter_mut().zip(self.record.par_iter().zip(&self.place)).with_min_len(4096);
        slots.filter(|(_, (_, place))| place.is_some()).for_each(|(pair, (record, _))| {
            let place = difference(record, &origin).map(|x| (x * unit).to_bits() as i32);
            pair[..3].copy_from_slice(&place);
        });
    }

    fn forces(&mut self, thresholds: Option<(&[f32], f32)>) -> Vec<Broken> {
        let mut inverse_rest = std::mem::take(&mut self.inverse_rest);
        let mut force = std::mem::take(&mut self.force);
        let bonds = split(&mut inverse_rest, &self.start, CHUNK);
        let limit = thresholds.map_or(f32::INFINITY, |(_, limit)| limit);
        let broken: Vec<Vec<Broken>> = force
            .par_chunks_mut(CHUNK)
            .zip(bonds)
            .enumerate()
            .map(|(chunk, (force, mut bonds))| {
                let mut broken = Vec::new();
                for (cluster, force) in (chunk * CHUNK..).zip(force) {
                    let (rows, inverse_rest) =
                        (self.rows(cluster), take(&mut bonds, self.bonds(cluster).len()));
                    if !self.is_own[cluster] {
                        continue;
                    }
                    *force = self.forces_of(rows, inverse_rest, limit);
                    if let Some((thresholds, _)) = thresholds
                        && force.largest.iter().any(|&largest| largest > limit)
                    {
                        for lane in (0..CLUSTER).filter(|&lane| force.largest[lane] > limit) {
                            let slot = cluster * CLUSTER + lane;
                            self.break_bonds(slot, inverse_rest, thresholds, &mut broken);
                        }
                        *force = forces(rows, inverse_rest);
                    }
                }
                broken
            })
            .collect();
        (self.inverse_rest, self.force) = (inverse_rest, force);
        broken.concat()
    }

    fn update_diagonal(&mut self) {
        let mut is_near = std::mem::take(&mut self.is_near);
        let (mut coefficient, mut diagonal) =
            (std::mem::take(&mut self.coefficient), std::mem::take(&mut self.diagonal));
        if coefficient.len() != self.inverse_rest.len() {
            coefficient = vec![0; self.inverse_rest.len()];
        }
        let clusters = diagonal.par_iter_mut().zip(split(&mut coefficient, &self.start, 1)).enumerate();
        clusters
            .with_min_len(CHUNK)
            .map(|(cluster, (diagonal, coefficient))| {
                if !self.is_own[cluster] {
                    return false;
                }
                let (rows, inverse_rest) = (self.rows(cluster), &self.inverse_rest[self.bonds(cluster)]);
                let (blocks, is_near) = if self.force[cluster].is_far() {
                    lanes::run(KernelTask(DiagonalKernel::<AnyStrain>::new(rows, inverse_rest, coefficient)))
                } else {
                    lanes::run(KernelTask(DiagonalKernel::<SmallStrain>::new(
                        rows,
                        inverse_rest,
                        coefficient,
                    )))
                };
                *diagonal = blocks;
                is_near
            })
            .collect_into_vec(&mut is_near);
        (self.coefficient, self.diagonal, self.is_near) = (coefficient, diagonal, is_near);
    }

    fn multiply(&mut self, u: Vector<'_>, scale: f64, wanted: Option<&[bool]>) {
        let rounded = match u {
            Vector::Exact(u) => {
                self.set_operand(|place| (u[place] * scale).to_array().map(whole));
                false
            }
            Vector::Rounded(u) => {
                self.set_operand(|place| u.get(place).map(|u| u.to_bits() as i32));
                true
            }
        };
        let mut image = std::mem::take(&mut self.image);
        image.par_iter_mut().enumerate().with_min_len(CHUNK).for_each(|(cluster, image)| {
            let is_wanted = |wanted: &[bool]| self.particles(cluster).any(|i| self.part.is_wanted(wanted, i));
            if !(self.is_own[cluster] && wanted.is_none_or(is_wanted)) {
                return;
            }
            let (rows, bonds) = (self.rows(cluster), self.bonds(cluster));
            let pair = self.pair.as_slice();
            let inverse_rest = &self.inverse_rest[bonds.clone()];
            *image =
                match (rounded, self.force[cluster].is_far()) {
                    (true, _) if self.is_near[cluster] => {
                        let coefficient = &self.coefficient[bonds];
                        lanes::run(KernelTask(RoundedKernel { rows, coefficient, pair }))
                    }
                    (true, _) => lanes::run(KernelTask(ProductKernel::<AnyStrain, FloatBits>::new(
                        rows,
                        inverse_rest,
                        pair,
                    ))),
                    (false, false) => lanes::run(KernelTask(
                        ProductKernel::<SmallStrain, WholeNumbers>::new(rows, inverse_rest, pair),
                    )),
                    (false, true) => lanes::run(KernelTask(ProductKernel::<AnyStrain, WholeNumbers>::new(
                        rows,
                        inverse_rest,
                        pair,
                    ))),
                };
        });
        self.image = image;
    }

    fn force(&self, i: usize) -> ([f32; 3], f32) {
        let (cluster, lane) = self.place_of(i);
        let of = &self.force[cluster];
        (of.force.map(|axis| axis[lane]), of.least[lane])
    }

    fn set_forces(&self, first: usize, unit: f64, force: &mut [DVec3]) {
        force.par_iter_mut().zip(&self.slot[first..]).with_min_len(4096).for_each(|(force, &slot)| {
            let of = &self.force[slot as usize / CLUSTER].force;
            *force = vector(of.map(|axis| axis[slot as usize % CLUSTER])) * unit;
        });
    }

    fn block(&self, i: usize) -> [f32; 6] {
        let (cluster, lane) = self.place_of(i);
        self.diagonal[cluster].map(|entry| entry[lane])
    }

    fn product(&self, i: usize) -> [f32; 3] {
        let (cluster, lane) = self.place_of(i);
        self.image[cluster].map(|axis| axis[lane])
    }

    fn add_products(&self, rows: Range<usize>, unit: f32, image: &mut [Slice], at: usize) {
        for (i, at) in rows.zip(at..) {
            let product = self.product(i);
            for axis in 0..3 {
                image[at / LANES][axis][at % LANES] += product[axis] * unit;
            }
        }
    }

    fn joined(&self, i: usize, j: usize) -> bool {
        self.live_row(i).any(|(other, _)| self.order[other] as usize == j)
    }

    fn visit(&self, i: usize, visit: &mut dyn FnMut(Bond)) {
        let own = self.correction(self.slot[i] as usize);
        for (other, at) in self.live_row(i) {
            let inverse_rest = self.inverse_rest[at];
            visit(Bond {
                neighbour: self.order[other],
                rest: 1.0 / (f64::from(inverse_rest) * QUANTA),
                stiffness: f64::from((own + self.correction(other)) * self.share.stiffness(inverse_rest)),
            });
        }
    }

    fn cut(&mut self, i: usize, cut: &dyn Fn(u32) -> bool) {
        let bonds: Vec<_> = self.live_row(i).collect();
        for (other, at) in bonds {
            if cut(self.order[other]) {
                self.inverse_rest[at] = -self.inverse_rest[at];
            }
        }
    }

    fn set_corrections(&mut self, corrections: &[f32]) {
        self.has_corrections = corrections.iter().any(|&correction| correction != 1.0);
        for (record, &i) in self.record.iter_mut().zip(&self.order) {
            record[3] = (0.5 * QUANTA as f32 * corrections[i as usize]).to_bits() as i32;
        }
    }

    fn live(&self) -> Cow<'_, [u16]> {
        let word = |bonds: &[f32]| {
            let bits =
                bonds.iter().enumerate().map(|(bit, &inverse_rest)| u16::from(inverse_rest > 0.0) << bit);
            bits.sum()
        };
        self.inverse_rest.chunks(LANES).map(word).collect()
    }

    fn set_live(&mut self, live: &[u16]) {
        for (bonds, live) in self.inverse_rest.chunks_mut(LANES).zip(live) {
            for (bit, inverse_rest) in bonds.iter_mut().enumerate() {
                let sign = if live >> bit & 1 != 0 { 1.0 } else { -1.0 };
                *inverse_rest = inverse_rest.abs() * sign;
            }
        }
    }

    fn bytes(&self) -> usize {
        let per_cluster =
            16 + 1 + size_of::<Forces>() + size_of::<[ClusterValues; 9]>() + CLUSTER * (3 * 16 + 2 * 4);
        size_of_val(self.neighbours.as_slice())
            + 4 * (self.inverse_rest.len() + self.coefficient.len())
            + self.force.len() * per_cluster
    }
}

#[cfg(test)]
mod tests;
