//! A FLIP fluid cut among ranks: each rank computes a slab of whole layers of cells.
//!
//! Layers follow each other along z, the axis with the largest stride, so that a slab is a range of every
//! column. Each rank owns the particles in its slab. All ranks use one numbering of cells and faces. A loop
//! visits the entries of the own slab, and **halos** bring the entries around it from the ranks that own
//! them. Every entry is computed as on one rank, so that no bit depends on the cut.

mod halo;
pub(super) mod members;

use std::ops::Range;
use std::time::Duration;

use amalgam_particles::lanes::LANES;
use amalgam_particles::{DVec3, ParticleId};
use amalgam_solver_kit::{Ranks, SolverError};
use glam::Vec4;
use rayon::prelude::*;

use super::grid::Grid;
use crate::ranks::{self, UNBALANCED};

pub(super) use halo::Halo;

/// Layers that a slab has at least: then no more than two ranks add to a face.
pub(super) const LAYERS_MIN: usize = 2;

/// Depth of the halos beside a slab in layers. Each layer of the list below needs one more of the layer
/// above it: a face reads the cells on both sides, and an extrapolated velocity is found from others up to
/// two layers away.
pub(super) mod depth {
    /// Kinds of cells. Cells of others change the kinds of their neighbours.
    pub(in crate::flip) const CELLS: usize = 6;
    /// Sums over particles, velocities before the projection, and pressures.
    pub(in crate::flip) const FORCES: usize = 4;
    /// Velocities before the projection, with those of faces without particles.
    pub(in crate::flip) const FILLED: usize = 3;
    /// Velocities after the projection, extrapolated ones included. Own particles lie among these faces.
    pub(in crate::flip) const PROJECTED: usize = 1;
}

/// Work in all layers but that on particles, relative to it. A grid's loops visit empty cells, too.
const GRID_WORK: f64 = 0.25;

/// The work of each layer with these numbers of particles, in particles.
fn weights(particles: &[i64]) -> Vec<f64> {
    let all = particles.iter().sum::<i64>().max(1) as f64;
    let of_grid = GRID_WORK * all / particles.len() as f64;
    particles.iter().map(|&particles| particles as f64 + of_grid).collect()
}

/// The layers that this rank computes.
#[derive(Clone, Debug)]
pub(super) struct Slab {
    pub(super) ranks: Ranks,
    grid: Grid,
    /// The first layer of each rank, and the number of layers.
    first: Vec<usize>,
}

impl Slab {
    /// All layers.
    pub(super) fn whole(grid: Grid) -> Self {
        Self { ranks: Ranks::alone(), grid, first: vec![0, grid.cells[2]] }
    }

    /// The slab of this rank of a cut by which all slabs take about as much work. `particles` are the numbers of
    /// particles in layers.
    ///
    /// # Errors
    /// There are too few layers.
    pub(super) fn new(ranks: &Ranks, grid: Grid, particles: &[i64]) -> Result<Self, SolverError> {
        Self::of_weights(ranks, grid, &weights(particles))
    }

    /// As [`Self::new`], with the work of each layer.
    fn of_weights(ranks: &Ranks, grid: Grid, weights: &[f64]) -> Result<Self, SolverError> {
        let (layers, size) = (grid.cells[2], ranks.size());
        if layers < LAYERS_MIN * size {
            return Err(SolverError(format!(
                "a grid of {layers} layers of cells along z is cut among {} ranks at most, not {size}: write fewer \
                 ranks, or a smaller cell_size",
                (layers / LAYERS_MIN).max(1)
            )));
        }
        let total: f64 = weights.iter().sum();
        let (mut first, mut below, mut k) = (vec![0], 0.0, 0);
        for rank in 1..size {
            let wanted = total * rank as f64 / size as f64;
            let least = first[rank - 1] + LAYERS_MIN;
            let most = layers - LAYERS_MIN * (size - rank);
            while k < most && (k < least || below + 0.5 * weights[k] < wanted) {
                below += weights[k];
                k += 1;
            }
            first.push(k);
        }
        first.push(layers);
        Ok(Self { ranks: ranks.clone(), grid, first })
    }

    /// The numbers of particles in layers. `positions` are those of this rank [m]. Collective.
    pub(super) fn count(ranks: &Ranks, grid: &Grid, positions: impl Iterator<Item = DVec3>) -> Vec<i64> {
        let mut particles = vec![0; grid.cells[2]];
        positions.for_each(|x| particles[grid.cell(x)[2]] += 1);
        ranks.sum(&mut particles);
        particles
    }

    /// A cut for these numbers of particles in layers, if the busiest rank has worked more than [`UNBALANCED`] times
    /// the mean. This one was `busy` for some time. Collective.
    pub(super) fn balanced(&self, particles: &[i64], busy: Duration) -> Option<Self> {
        let size = self.ranks.size();
        // At least a nanosecond, so that no work is taken for none.
        let busy = (busy.as_nanos() as f64).max(1.0);
        let busy: Vec<f64> = self.ranks.shared(size, [(self.ranks.rank(), busy)]);
        let (mean, largest) =
            (busy.iter().sum::<f64>() / size as f64, busy.iter().copied().fold(0.0, f64::max));
        if largest <= UNBALANCED * mean {
            return None;
        }
        // A rank's time is spread over its layers as their weights say.
        let mut weights = weights(particles);
        for (range, busy) in self.first.windows(2).zip(busy) {
            let of_rank = &mut weights[range[0]..range[1]];
            let scale = busy / of_rank.iter().sum::<f64>();
            of_rank.iter_mut().for_each(|weight| *weight *= scale);
        }
        let cut = Self::of_weights(&self.ranks, self.grid, &weights).ok()?;
        (cut.first != self.first).then_some(cut)
    }

    pub(super) fn is_whole(&self) -> bool {
        self.first.len() == 2
    }

    /// A box [m] of positions that this rank owns: all of its slab but a thousandth of a cell beside its borders.
    fn within(&self) -> [DVec3; 2] {
        let face = |layer: usize, inwards: f64| match layer == 0 || layer == self.grid.cells[2] {
            true => -inwards * f64::INFINITY,
            false => self.grid.origin.z + (layer as f64 + 1e-3 * inwards) * self.grid.cell_size,
        };
        let Range { start, end } = self.layers();
        [DVec3::NEG_INFINITY.with_z(face(start, 1.0)), DVec3::INFINITY.with_z(face(end, -1.0))]
    }

    /// The rank that each of these positions [m] belongs to, most of them to this rank.
    pub(super) fn owners(&self, positions: &[DVec3]) -> Vec<u32> {
        ranks::owners(positions, (self.ranks.rank(), self.within()), |x| self.owner(x))
    }

    /// The rank that owns a position [m].
    fn owner(&self, position: DVec3) -> usize {
        let layer = self.grid.cell(position)[2];
        self.first[1..self.first.len() - 1].partition_point(|&first| first <= layer)
    }

    /// The first layer of each rank, and the number of layers.
    pub(super) fn first(&self) -> &[usize] {
        &self.first
    }

    /// The own layers.
    pub(super) fn layers(&self) -> Range<usize> {
        self.layers_of(self.ranks.rank(), 0)
    }

    /// The layers of a rank with `depth` layers on both sides.
    pub(super) fn layers_of(&self, rank: usize, depth: usize) -> Range<usize> {
        self.first[rank].saturating_sub(depth)..(self.first[rank + 1] + depth).min(self.grid.cells[2])
    }

    /// The entries of the own layers with `depth` layers on both sides. Those of the walls below the first
    /// layer and above the last one are among them.
    pub(super) fn entries(&self, depth: usize) -> Range<usize> {
        self.entries_of(self.ranks.rank(), depth)
    }

    pub(super) fn entries_of(&self, rank: usize, depth: usize) -> Range<usize> {
        entries_of_layers(&self.grid, self.layers_of(rank, depth))
    }

    /// As [`Self::entries`], in whole vectors: entries of a vector that is partly outside are left out.
    pub(super) fn vectors(&self, depth: usize) -> Range<usize> {
        let Range { start, end } = self.entries(depth);
        start.next_multiple_of(LANES)..end / LANES * LANES
    }

    /// As [`Self::entries`], in whole chunks of `chunk` entries: those that are partly outside are included.
    pub(super) fn chunks(&self, depth: usize, chunk: usize) -> Range<usize> {
        let Range { start, end } = self.entries(depth);
        start / chunk..end.div_ceil(chunk)
    }

    /// The exchange of columns by which this rank sees `depth` layers beside its own.
    pub(super) fn halo(&self, depth: usize) -> Halo {
        Halo::new(&self.ranks, |rank| self.entries_of(rank, 0), |rank| self.entries_of(rank, depth))
    }

    /// Sends the sums at faces beside the borders of the slab, after the layers of a third have been added. In
    /// the layers K - 1 and K of faces beside a border, below the layer K of cells, the layers K - 2 to K + 1 of
    /// cells add, one or two of them in each third. Collective.
    pub(super) fn join_sums(&self, third: usize, sums: &mut [Vec<Vec4>; 3]) {
        if self.is_whole() {
            return;
        }
        let (own, rank) = (self.layers(), self.ranks.rank());
        let borders = [(rank > 0).then(|| (rank - 1, own.start, false)), Some((rank + 1, own.end, true))];
        let borders: Vec<_> =
            borders.into_iter().flatten().filter(|&(other, ..)| other < self.ranks.size()).collect();
        // Layers of faces, from those of the lower rank and of the upper rank.
        let of = |border: usize| match (border + 3 - third) % 3 {
            0 => [border..border, border - 1..border + 1],
            1 => [border - 1..border + 1, border..border],
            _ => [border - 1..border, border..border + 1],
        };
        let entries = |layers: &Range<usize>| {
            self.grid.begin_of_layer(layers.start)..self.grid.begin_of_layer(layers.end)
        };
        let send = borders.iter().map(|&(_, border, is_lower)| {
            let [lower, upper] = of(border);
            let part = entries(if is_lower { &lower } else { &upper });
            sums.each_ref().map(|sums| &sums[part.clone()]).concat()
        });
        let with: Vec<usize> = borders.iter().map(|&(other, ..)| other).collect();
        let arrived = self.ranks.exchange(&with, send.collect());
        for (values, (_, border, is_lower)) in arrived.iter().zip(borders) {
            let [lower, upper] = of(border);
            let part = entries(if is_lower { &upper } else { &lower });
            if !part.is_empty() {
                for (sums, values) in sums.iter_mut().zip(values.chunks_exact(part.len())) {
                    sums[part.clone()].copy_from_slice(values);
                }
            }
        }
    }

    /// The largest number of layers by which a particle of some rank is outside of the rank's slab. Collective.
    pub(super) fn strayed(&self, positions: &[DVec3]) -> usize {
        if self.is_whole() {
            return 0;
        }
        let own = self.layers();
        let strayed = |x: DVec3| {
            let layer = self.grid.cell(x)[2];
            own.start.saturating_sub(layer).max((layer + 1).saturating_sub(own.end)) as u32
        };
        ranks::farthest(&self.ranks, (positions, self.within()), strayed) as usize
    }

    /// Own particles, and after them those of other ranks that are in this rank's slab. Collective.
    pub(super) fn with_guests(
        &self,
        ids: &[ParticleId],
        (positions, velocities): (&[DVec3], &[DVec3]),
    ) -> (Vec<ParticleId>, Vec<DVec3>, Vec<DVec3>) {
        let mut send = vec![Vec::new(); self.ranks.size()];
        let mut sent_ids = vec![Vec::new(); self.ranks.size()];
        for ((&id, &position), &velocity) in ids.iter().zip(positions).zip(velocities) {
            let owner = self.owner(position);
            if owner != self.ranks.rank() {
                send[owner].push([position, velocity]);
                sent_ids[owner].push(id.0);
            }
        }
        let (guests, guest_ids) = (self.ranks.all_to_all(send).concat(), self.ranks.all_to_all(sent_ids));
        let guest_ids = guest_ids.concat().into_iter().map(ParticleId);
        (
            ids.iter().copied().chain(guest_ids).collect(),
            positions.iter().copied().chain(guests.iter().map(|guest| guest[0])).collect(),
            velocities.iter().copied().chain(guests.iter().map(|guest| guest[1])).collect(),
        )
    }

    /// Brings the pairs of numbers at faces that own particles read: up to `strayed` layers outside of the slab
    /// they begin, and they travel for `time` [s] with the grid's velocity. Collective.
    pub(super) fn see_pairs(&self, time: f64, strayed: usize, pairs: &mut [Vec<[f32; 2]>; 3]) {
        if self.is_whole() {
            return;
        }
        let own = pairs[2][self.entries(0)].par_iter().with_min_len(1024);
        let [fastest] = self.largest([own.map(|pair| f64::from(pair[0].abs())).reduce(|| 0.0, f64::max)]);
        // A particle in the outermost cell reads faces up to a layer outside. On its way it crosses one more
        // border of cells than there are whole cells in its way. The margin is for rounding.
        let crossed = (1.001 * time * fastest / self.grid.cell_size).min(self.grid.cells[2] as f64);
        let seen = self.halo(strayed + crossed as usize + 2);
        seen.exchange(&self.ranks, pairs.each_mut().map(Vec::as_mut_slice));
    }

    /// The sum of a number of each layer, added in the order of layers on every rank. `own` are those of the own
    /// layers. Collective.
    pub(super) fn sum_of_layers(&self, own: Vec<f64>) -> f64 {
        if self.is_whole() {
            return own.iter().sum();
        }
        let first = self.layers().start;
        let own = own.into_iter().enumerate().map(|(n, value)| (first + n, value));
        self.ranks.shared(self.grid.cells[2], own).iter().sum()
    }

    /// Sets each flag that a rank has set, on all ranks. Collective.
    pub(super) fn unite(&self, flags: &mut [bool]) {
        if self.is_whole() {
            return;
        }
        // Each flag has the bits of a number that counts ranks.
        let word = |flags: &[bool]| flags.iter().rev().fold(0, |word, &flag| word << 16 | u64::from(flag));
        let mut words: Vec<u64> = flags.chunks(4).map(word).collect();
        self.ranks.wrapping_sum(&mut words);
        for (flags, word) in flags.chunks_mut(4).zip(words) {
            for (n, flag) in flags.iter_mut().enumerate() {
                *flag = word >> (16 * n) & 0xffff != 0;
            }
        }
    }

    /// The largest value over ranks; NaN if one is NaN. Collective.
    pub(super) fn largest<const N: usize>(&self, mut values: [f64; N]) -> [f64; N] {
        if !self.is_whole() {
            self.ranks.max(&mut values);
        }
        values
    }
}

/// The entries of layers of cells, with those of the walls below the first layer and above the last one.
pub(super) fn entries_of_layers(grid: &Grid, layers: Range<usize>) -> Range<usize> {
    if layers.is_empty() {
        return 0..0;
    }
    let start = if layers.start == 0 { 0 } else { grid.begin_of_layer(layers.start) };
    let end = if layers.end >= grid.cells[2] { grid.len() } else { grid.begin_of_layer(layers.end) };
    start..end.max(start)
}

/// The layers of cells that some entries lie in.
pub(super) fn layers_of_entries(grid: &Grid, entries: &Range<usize>) -> Range<usize> {
    let layer = |entries: usize| entries.saturating_sub(grid.first()).saturating_sub(grid.layer());
    let start = (layer(entries.start) / grid.layer()).min(grid.cells[2]);
    let end = layer(entries.end).div_ceil(grid.layer()).min(grid.cells[2]);
    if entries.is_empty() { start..start } else { start..end.max(start) }
}

/// The smallest range that holds both.
pub(super) fn hull(a: Range<usize>, b: Range<usize>) -> Range<usize> {
    match (a.is_empty(), b.is_empty()) {
        (true, _) => b,
        (_, true) => a,
        _ => a.start.min(b.start)..a.end.max(b.end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of four ranks works at half the speed of the others. Half of the layers are empty.
    #[test]
    fn a_slow_rank_gets_fewer_layers() {
        let grid = Grid::new(DVec3::ZERO, 0.1, [8, 8, 160]);
        let particles: Vec<i64> = (0..160).map(|layer| if layer < 80 { 512 } else { 0 }).collect();
        let speed = [1.0, 1.0, 0.5, 1.0];
        let busy = |slab: &Slab, rank: usize| {
            let work: f64 = weights(&particles)[slab.layers_of(rank, 0)].iter().sum();
            Duration::from_secs_f64(1e-6 * work / speed[rank])
        };
        let balance = |ranks: Ranks| {
            let mut slab = Slab::new(&ranks, grid, &particles).expect("layers enough");
            let mut cuts = 0;
            while let Some(cut) = slab.balanced(&particles, busy(&slab, ranks.rank())) {
                slab = cut;
                cuts += 1;
                assert!(cuts < 5, "it finds no balance");
            }
            slab
        };
        let slabs: Vec<Slab> = std::thread::scope(|scope| {
            let ranks = Ranks::threads(4).into_iter().map(|ranks| scope.spawn(|| balance(ranks)));
            Vec::from_iter(ranks).into_iter().map(|slab| slab.join().expect("a slab")).collect()
        });
        let slab = &slabs[0];
        assert!(slabs.iter().all(|other| other.first == slab.first));
        let busy = [0, 1, 2, 3].map(|rank| busy(slab, rank).as_secs_f64());
        let mean = busy.iter().sum::<f64>() / 4.0;
        assert!(busy.iter().all(|busy| *busy <= UNBALANCED * mean), "{busy:?} in {:?}", slab.first);
    }
}
