//! The rows of the linear system cut among ranks, and the values that a rank reads of other ranks' rows.
//!
//! A rank owns whole chunks of consecutive rows. So sums over chunks are the numbers that one process
//! computes. All ranks know all of them and add them in order, and every sum has the bits of one process.
//!
//! A product with the matrix reads values of particles that other ranks own: the **ghosts** of this rank.
//! Ghosts are found once, from the springs and bonds as they are laid out, in whole slices of sixteen. A
//! vector to be multiplied holds own values and ghosts in the order of all particles. An index into it is a
//! **place**. An index into own values alone is a **row**.

use std::ops::Range;

use amalgam_particles::DVec3;
use amalgam_particles::lanes::LANES;
use amalgam_solver_kit::Ranks;
use bytemuck::Pod;

use super::vectors::{Columns, copy};
use crate::chunks::CHUNK;

/// The rows of a rank, and its ghosts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Partition {
    ranks: Ranks,
    /// Rows of all ranks.
    total: usize,
    /// Own rows among all.
    own: Range<usize>,
    /// The slices whose values this rank holds, by number among all, ascending; none if the rank is alone.
    slices: Vec<u32>,
    /// The number of slices before the first own one.
    before: usize,
    /// Ranks with which ghosts are exchanged.
    with: Vec<usize>,
    /// Own slices that are ghosts of each of them, counted from the first own one.
    seen: Vec<Vec<u32>>,
    /// Slices that come from each of them, by number among those held.
    ghosts: Vec<Vec<u32>>,
}

impl Partition {
    /// All rows, on the only rank.
    pub(crate) fn alone(total: usize) -> Self {
        Self { total, own: 0..total, ..Self::default() }
    }

    /// The rows of a rank, of `total` rows.
    pub(crate) fn rows_of(ranks: &Ranks, rank: usize, total: usize) -> Range<usize> {
        let chunks = total.div_ceil(CHUNK);
        let start = |rank: usize| total.min(rank * chunks / ranks.size() * CHUNK);
        start(rank)..start(rank + 1)
    }

    /// Cuts `total` rows among ranks. `read` says whether this rank reads values of each slice that other
    /// ranks own. Collective.
    pub(crate) fn new(ranks: &Ranks, total: usize, read: &[bool]) -> Self {
        let rows = Self { ranks: ranks.clone(), total, ..Self::default() }.rows_of_all();
        let own = rows[ranks.rank()].clone();
        let own_slices = own.start / LANES..own.end.div_ceil(LANES);
        let held = (0..read.len()).filter(|&slice| own_slices.contains(&slice) || read[slice]);
        let slices: Vec<u32> = held.map(|slice| slice as u32).collect();
        let before = slices.partition_point(|&slice| (slice as usize) < own_slices.start);
        let mut wanted = vec![Vec::new(); ranks.size()];
        for &slice in slices.iter().filter(|&&slice| !own_slices.contains(&(slice as usize))) {
            wanted[rows.partition_point(|rows| rows.end <= slice as usize * LANES)].push(slice);
        }
        let seen = ranks.all_to_all(wanted.clone());
        let mut this = Self { ranks: ranks.clone(), total, own, slices, before, ..Self::default() };
        for (rank, (wanted, seen)) in wanted.into_iter().zip(seen).enumerate() {
            if wanted.is_empty() && seen.is_empty() {
                continue;
            }
            let held = |slice: &u32| this.slices.partition_point(|held| held < slice) as u32;
            this.ghosts.push(wanted.iter().map(held).collect());
            this.seen.push(seen.iter().map(|slice| slice - own_slices.start as u32).collect());
            this.with.push(rank);
        }
        this
    }

    pub(crate) fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    pub(crate) fn is_alone(&self) -> bool {
        self.ranks.is_alone()
    }

    /// Rows of all ranks.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// The rows of each rank.
    pub(crate) fn rows_of_all(&self) -> Vec<Range<usize>> {
        (0..self.ranks.size()).map(|rank| Self::rows_of(&self.ranks, rank, self.total)).collect()
    }

    /// Own rows among all.
    pub(crate) fn own(&self) -> Range<usize> {
        self.own.clone()
    }

    /// The number of places.
    pub(crate) fn places(&self) -> usize {
        if self.is_alone() { self.total } else { self.slices.len() * LANES }
    }

    /// The number of ghosts.
    pub(crate) fn ghosts(&self) -> usize {
        self.ghosts.iter().map(|slices| slices.len() * LANES).sum()
    }

    /// The place of the first own row: a multiple of sixteen.
    pub(crate) fn first_place(&self) -> usize {
        self.before * LANES
    }

    /// The place of a particle, by its index among all, if this rank holds its value.
    pub(crate) fn place(&self, index: usize) -> Option<u32> {
        if self.is_alone() {
            return Some(index as u32);
        }
        let slice = self.slices.binary_search(&((index / LANES) as u32)).ok()?;
        Some((slice * LANES + index % LANES) as u32)
    }

    /// The index among all of the particle at a place.
    pub(crate) fn index(&self, place: u32) -> usize {
        match self.slices.get(place as usize / LANES) {
            Some(&slice) => slice as usize * LANES + place as usize % LANES,
            None => place as usize,
        }
    }

    /// The own row at a place; none at a ghost's.
    pub(crate) fn row(&self, place: u32) -> Option<usize> {
        (place as usize).checked_sub(self.first_place()).filter(|&row| row < self.own.len())
    }

    /// The ghosts' values from the ranks that own them, each with its place; `own` is the value of a row.
    /// Collective.
    pub(crate) fn ask<T: Pod>(&self, own: impl Fn(usize) -> T) -> impl Iterator<Item = (usize, T)> {
        let value = |row: usize| if row < self.own.len() { own(row) } else { T::zeroed() };
        let lanes = |slice: &u32| *slice as usize * LANES..(*slice as usize + 1) * LANES;
        let of = |seen: &Vec<u32>| seen.iter().flat_map(lanes).map(value).collect();
        let values = self.ranks.exchange(&self.with, self.seen.iter().map(of).collect());
        self.ghosts.iter().flatten().flat_map(lanes).zip(values.into_iter().flatten())
    }

    /// Brings own values and ghosts into the order of places. Collective.
    pub(crate) fn with_ghosts(&self, own: &[DVec3], all: &mut Vec<DVec3>) {
        all.resize(self.places(), DVec3::ZERO);
        copy(own, &mut all[self.first_place()..][..own.len()]);
        self.ask(|row| own[row]).for_each(|(place, value)| all[place] = value);
    }

    /// Brings ghosts into columns of all places, which hold own values. Collective.
    pub(crate) fn bring_ghosts(&self, columns: &mut Columns) {
        let first = self.first_place();
        let ghosts: Vec<(usize, [f32; 3])> = self.ask(|row| columns.get(first + row)).collect();
        ghosts.into_iter().for_each(|(place, value)| columns.set(place, value));
    }

    /// The values of the chunks of all ranks, in order. Collective.
    fn chunks<T: Pod>(&self, own: &[T]) -> Vec<T> {
        let first = self.own.start / CHUNK;
        self.ranks.shared(self.total.div_ceil(CHUNK), own.iter().enumerate().map(|(k, &v)| (first + k, v)))
    }

    /// The sum over the chunks of all ranks of what `own` holds for the chunks of this one. Collective.
    pub(crate) fn sum(&self, own: &[f64]) -> f64 {
        if self.is_alone() { own.iter().sum() } else { self.chunks(own).iter().sum() }
    }

    /// Combines what `own` holds for each chunk over the chunks of all ranks, in order. Collective.
    pub(crate) fn fold<T: Pod>(&self, own: &[T], none: T, and: impl Fn(T, &T) -> T) -> T {
        if self.is_alone() { own.iter().fold(none, and) } else { self.chunks(own).iter().fold(none, and) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ghosts_come_from_their_owners_and_sums_are_those_of_one() {
        let total = 7 * CHUNK + 100;
        let value = |i: usize| DVec3::new(i as f64, 0.1 * i as f64, -1.0 / (1 + i) as f64);
        let terms: Vec<f64> = (0..total).step_by(CHUNK).map(|i| 0.1 * (1 + i) as f64).collect();
        let part = |ranks: Ranks| {
            // Every rank reads a slice of its own and some of others, the last one among them.
            let slices = total.div_ceil(LANES);
            let read: Vec<bool> = (0..slices).map(|slice| slice % 31 < 3 || slice + 1 == slices).collect();
            let last = *read.last().expect("slices");
            let partition = Partition::new(&ranks, total, &read);
            let own = partition.own();
            let values: Vec<DVec3> = own.clone().map(value).collect();
            let mut all = Vec::new();
            partition.with_ghosts(&values, &mut all);
            for i in 0..total {
                let Some(place) = partition.place(i) else {
                    assert!(!own.contains(&i) && !read[i / LANES]);
                    continue;
                };
                assert_eq!(all[place as usize], value(i));
                assert_eq!(partition.index(place), i);
                assert_eq!(partition.row(place), own.contains(&i).then(|| i - own.start));
            }
            let own_terms = &terms[own.start / CHUNK..own.end.div_ceil(CHUNK)];
            assert_eq!(partition.sum(own_terms).to_bits(), terms.iter().sum::<f64>().to_bits());
            last
        };
        for size in [1, 2, 3, 5, 8, 11] {
            std::thread::scope(|scope| {
                let ranks: Vec<_> =
                    Ranks::threads(size).into_iter().map(|ranks| scope.spawn(|| part(ranks))).collect();
                assert!(ranks.into_iter().all(|rank| rank.join().expect("a rank")));
            });
        }
    }
}
