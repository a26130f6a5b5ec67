//! The cell grid for neighbour search.

use glam::{DVec3, IVec3};
use rayon::prelude::*;

use crate::cells::floor;

/// Positions must lie within this distance of the origin [m], and within 2^31 cells of it.
pub const POSITION_LIMIT: f64 = 1e12;

/// Points sorted into cubic cells, to search the neighbourhood of a place.
///
/// Cells are hashed so that a cell and its neighbours along x fall into consecutive slots. The 27 cells
/// around a point are then nine contiguous runs of the sorted order, in dense and in sparse scenes. Memory is
/// proportional to the number of points, never to the volume. Distinct cells may share a slot, so that a run
/// may hold points that are far away: callers test distances anyway.
///
/// Within a slot, points stay in the order they came in, so the result does not depend on the number of
/// threads.
#[derive(Clone, Debug, Default)]
pub struct CellGrid {
    inverse_cell_size: f64,
    mask: u32,
    slot_of: Vec<u32>,
    start: Vec<u32>,
    order: Vec<u32>,
}

impl CellGrid {
    /// A grid of cells of edge `cell_size` [m] over `positions`.
    pub fn new(positions: &[DVec3], cell_size: f64) -> Self {
        let mut grid = Self::default();
        grid.rebuild(positions, cell_size);
        grid
    }

    /// Builds the grid again for other points, reusing the memory of the last time.
    pub fn rebuild(&mut self, positions: &[DVec3], cell_size: f64) {
        assert!(cell_size > 0.0 && cell_size.is_finite(), "cell size {cell_size} is not positive");
        let count = u32::try_from(positions.len()).expect("fewer than 2^32 points");
        self.inverse_cell_size = 1.0 / cell_size;
        let slots = (2 * count as usize).next_power_of_two().max(64);
        self.mask = u32::try_from(slots - 1).expect("fewer than 2^32 slots");
        let (inverse, mask) = (self.inverse_cell_size, self.mask);
        self.slot_of.clear();
        self.slot_of
            .par_extend(positions.par_iter().with_min_len(1 << 14).map(|&x| slot(cell(x, inverse), mask)));
        counting_sort(&self.slot_of, slots, &mut self.start, &mut self.order);
    }

    /// Number of points.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// True if there is no point.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The points' indices, sorted by slot. Data copied into this order makes runs contiguous in memory.
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    /// The runs of [`Self::order`] that hold every point of the 27 cells around `position`, as `(start,
    /// end)`; at most 18 runs, empty ones among them. No point is in two runs.
    #[inline]
    pub fn runs(&self, position: DVec3) -> Runs {
        let home = cell(position, self.inverse_cell_size);
        let mut firsts = [0u32; 9];
        let mut count = 0;
        for dz in -1..=1 {
            for dy in -1..=1 {
                firsts[count] = slot(home + IVec3::new(-1, dy, dz), self.mask);
                count += 1;
            }
        }
        firsts.sort_unstable();
        let mut runs = Runs { run: [(0, 0); 18], count: 0 };
        // Runs of rows with overlapping slots would show a point twice. So each run begins where the last one
        // ended.
        let mut covered = 0u32;
        let last_end = u64::from(firsts[8]) + 3;
        let wrapped = last_end.saturating_sub(u64::from(self.mask) + 1) as u32;
        if wrapped > 0 {
            runs.push(self.start[0], self.start[wrapped as usize]);
            covered = wrapped;
        }
        for first in firsts {
            let end = (first + 3).min(self.mask + 1);
            let begin = first.max(covered);
            if begin < end {
                runs.push(self.start[begin as usize], self.start[end as usize]);
                covered = end;
            }
        }
        runs
    }

    /// Calls `visit` with the index of every point in the 27 cells around `position`, and perhaps with
    /// others.
    #[inline]
    pub fn for_each_near(&self, position: DVec3, mut visit: impl FnMut(u32)) {
        for &(start, end) in self.runs(position).as_slice() {
            for &index in &self.order[start as usize..end as usize] {
                visit(index);
            }
        }
    }
}

/// A stable counting sort of points into slots, whose numbers are below `slots`: `order` gets the points'
/// indices sorted by slot, and those of slot s begin at `start[s]`; there is one more start than slots. Each
/// task owns a range of slots and reads all slot numbers, which costs less than merging histograms and leaves
/// nothing to the order of threads.
pub fn counting_sort(slot_of: &[u32], slots: usize, start: &mut Vec<u32>, order: &mut Vec<u32>) {
    let tasks = if slot_of.len() < 1 << 15 { 1 } else { rayon::current_num_threads().clamp(1, 8) };
    let share = slots.div_ceil(tasks);
    start.clear();
    start.resize(slots + 1, 0);
    // Each entry is written below.
    order.resize(slot_of.len(), 0);

    let counts: Vec<u32> = start[1..]
        .par_chunks_mut(share)
        .enumerate()
        .map(|(task, counts)| {
            count_slots(slot_of, (task * share) as u32, counts);
            counts.iter().sum()
        })
        .collect();

    // Each task gets its own slots and its own part of the order, which begins at `base`.
    let mut jobs = Vec::with_capacity(tasks);
    let (mut ends, mut rest, mut base) = (&mut start[1..], order.as_mut_slice(), 0);
    for (task, &count) in counts.iter().enumerate() {
        let (own_ends, other_ends) = std::mem::take(&mut ends).split_at_mut(share.min(slots - task * share));
        let (own_order, other_order) = std::mem::take(&mut rest).split_at_mut(count as usize);
        jobs.push(((task * share) as u32, base, own_ends, own_order));
        (ends, rest) = (other_ends, other_order);
        base += count;
    }
    jobs.into_par_iter().for_each(|(low, base, ends, order)| {
        // After this loop `ends[s]` is the first place of slot s. Placing the points of the slot moves it to the
        // end of the slot.
        let mut next = 0;
        for end in ends.iter_mut() {
            next += std::mem::replace(end, next);
        }
        for (index, &s) in slot_of.iter().enumerate() {
            if let Some(end) = ends.get_mut(s.wrapping_sub(low) as usize) {
                order[*end as usize] = index as u32;
                *end += 1;
            }
        }
        for end in ends.iter_mut() {
            *end += base;
        }
    });
}

/// Counts the points in each slot: `counts[i]` is the count of slot `low + i`. Points in other slots are left
/// out.
///
/// Successive points are mostly in one slot, and an addition to a count waits until the one before is stored.
/// So the points are taken from four quarters in turns: these are mostly in different slots.
fn count_slots(slot_of: &[u32], low: u32, counts: &mut [u32]) {
    let mut count = |s: u32| {
        if let Some(count) = counts.get_mut(s.wrapping_sub(low) as usize) {
            *count += 1;
        }
    };
    let (a, rest) = slot_of.split_at(slot_of.len() / 4);
    let (b, rest) = rest.split_at(a.len());
    let (c, rest) = rest.split_at(a.len());
    let (d, rest) = rest.split_at(a.len());
    for ((a, b), (c, d)) in a.iter().zip(b).zip(c.iter().zip(d)) {
        [a, b, c, d].into_iter().for_each(|&s| count(s));
    }
    rest.iter().for_each(|&s| count(s));
}

/// The runs of sorted points around a place. See [`CellGrid::runs`].
#[derive(Clone, Copy, Debug)]
pub struct Runs {
    run: [(u32, u32); 18],
    count: usize,
}

impl Runs {
    /// The runs, each `(start, end)` into [`CellGrid::order`].
    #[inline]
    pub fn as_slice(&self) -> &[(u32, u32)] {
        &self.run[..self.count]
    }

    #[inline]
    fn push(&mut self, start: u32, end: u32) {
        if start < end {
            self.run[self.count] = (start, end);
            self.count += 1;
        }
    }
}

#[inline]
fn cell(position: DVec3, inverse_cell_size: f64) -> IVec3 {
    // Positions beyond 2^31 cells share the outermost cells, and are found there.
    const LIMIT: f64 = (i32::MAX - 2) as f64;
    floor((position * inverse_cell_size).clamp(DVec3::splat(-LIMIT), DVec3::splat(LIMIT)))
}

#[inline]
fn slot(cell: IVec3, mask: u32) -> u32 {
    // Rows are spread by odd multipliers (Knuth's and Weyl's constants); along x, slots are consecutive.
    let row = (cell.y as u32).wrapping_mul(0x9e37_79b1) ^ (cell.z as u32).wrapping_mul(0x85eb_ca77);
    (cell.x as u32).wrapping_add(row ^ (row >> 15)) & mask
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn near(grid: &CellGrid, points: &[DVec3], x: DVec3, reach: f64) -> Vec<u32> {
        let mut found = Vec::new();
        grid.for_each_near(x, |i| {
            if points[i as usize].distance(x) < reach {
                found.push(i);
            }
        });
        found.sort_unstable();
        found
    }

    proptest! {
        #[test]
        fn finds_each_near_point_once(
            raw in prop::collection::vec(prop::array::uniform3(-3.0f64..3.0), 1..400),
            reach in 0.01f64..2.0,
            scale in prop::sample::select(vec![1.0, 1e-6, 1e6]),
        ) {
            let points: Vec<DVec3> = raw.into_iter().map(|p| DVec3::from(p) * scale).collect();
            let reach = reach * scale;
            let grid = CellGrid::new(&points, reach);
            for &x in points.iter().take(30) {
                let all: Vec<u32> =
                    (0..points.len() as u32).filter(|&i| points[i as usize].distance(x) < reach).collect();
                prop_assert_eq!(near(&grid, &points, x, reach), all);
            }
        }
    }

    #[test]
    fn a_counting_sort_is_stable_for_any_number_of_slots_and_threads() {
        for (points, slots, threads) in
            [(0, 1, 1), (5, 1, 1), (100, 7, 1), (1 << 16, 3, 8), (1 << 16, 999, 3)]
        {
            let slot_of: Vec<u32> = (0..points).map(|i| (i * i % slots) as u32).collect();
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            let (mut start, mut order) = (Vec::new(), Vec::new());
            pool.install(|| counting_sort(&slot_of, slots, &mut start, &mut order));
            let mut expected: Vec<u32> = (0..points as u32).collect();
            expected.sort_by_key(|&i| slot_of[i as usize]);
            assert_eq!(order, expected);
            let before = |s: u32| slot_of.iter().filter(|&&slot| slot < s).count() as u32;
            assert!(start.iter().copied().eq((0..=slots as u32).map(before)), "{slots} slots");
        }
    }

    #[test]
    fn order_does_not_depend_on_threads() {
        let points: Vec<DVec3> = (0..100_000u64)
            .map(|i| DVec3::from_array([0, 1, 2].map(|axis| crate::random::uniform_f64(&[i, axis]))))
            .collect();
        let orders: Vec<Vec<u32>> = [1, 2, 3, 7]
            .iter()
            .map(|&threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("pool");
                pool.install(|| CellGrid::new(&points, 0.02).order().to_vec())
            })
            .collect();
        assert!(orders.iter().all(|order| *order == orders[0]));
        let mut sorted = orders[0].clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..100_000));
    }
}
