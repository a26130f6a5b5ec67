//! The order of particles by cell, and inside of cells by id. So no sum over a cell depends on the order in which
//! particles are stored.

use std::ops::Range;

use amalgam_particles::lanes::{Lanes, Task, Width};
use amalgam_particles::reduce::CHUNK;
use amalgam_particles::{ParticleId, counting_sort_of};
use rayon::prelude::*;

/// Cells of one task.
const CELLS: usize = 4096;

/// The columns of an order of particles, in which they stay from step to step.
pub(crate) struct OrderColumns<'a> {
    /// Start of each cell in `order`, and the end of the last one.
    pub(crate) start: &'a mut Vec<u32>,
    /// Indices of particles, cell after cell.
    pub(crate) order: &'a mut Vec<u32>,
    /// Scratch.
    pub(crate) entries: &'a mut Vec<u64>,
}

/// Sorts particles by cell, and inside of cells by id. `cell_of` has the number of each particle's cell. Cells
/// hold a few particles each, and each id stands for one particle.
///
/// The counting sort reads ids in the order of storage, and writes them beside the indices. So the sorts inside
/// of cells read no memory far apart.
pub(crate) fn sort_by_cell_and_id<'a>(
    width: Width,
    (cell_of, cells): (&[u32], usize),
    id: impl Fn(u32) -> &'a ParticleId + Copy + Sync,
    columns: OrderColumns<'_>,
) {
    let OrderColumns { start, order, entries } = columns;
    let entry = |index: u32| id(index).0 << 32 | u64::from(index);
    counting_sort_of(cell_of, cells, entry, start, entries);
    order.resize(cell_of.len(), 0);
    let is_wide = is_wide(cell_of.len(), id);
    let mut rest = order.as_mut_slice();
    let mut tasks: Vec<(Range<usize>, &[u64], &mut [u32])> = Vec::with_capacity(cells.div_ceil(CELLS));
    for first in (0..cells).step_by(CELLS) {
        let range = first..cells.min(first + CELLS);
        let places = start[range.start] as usize..start[range.end] as usize;
        let order = rest.split_off_mut(..places.len()).expect("starts cover the order");
        tasks.push((range, &entries[places], order));
    }
    tasks.into_par_iter().for_each(|(range, entries, order)| {
        let start = &start[range.start..=range.end];
        if is_wide {
            order.iter_mut().zip(entries).for_each(|(index, &entry)| *index = entry as u32);
            for cell in start.windows(2) {
                let places = (cell[0] - start[0]) as usize..(cell[1] - start[0]) as usize;
                order[places].sort_unstable_by_key(|&index| id(index));
            }
        } else {
            width.run(SortCells { start, entries, order });
        }
    });
}

/// True if an id of the first `count` particles has more than 32 bits.
fn is_wide<'a>(count: usize, id: impl Fn(u32) -> &'a ParticleId + Sync) -> bool {
    let starts = (0..count as u32).into_par_iter().step_by(CHUNK);
    let bits = starts
        .map(|start| (start..(start + CHUNK as u32).min(count as u32)).fold(0, |bits, i| bits | id(i).0));
    bits.reduce(|| 0, |a, b| a | b) >> 32 != 0
}

/// Sorts the particles of some cells. `start` has the start of each cell and the end of the last one. An entry has
/// a particle's id above its index, 32 bits each.
struct SortCells<'a> {
    start: &'a [u32],
    entries: &'a [u64],
    order: &'a mut [u32],
}

impl Task for SortCells<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { start, entries, order } = self;
        for cell in start.windows(2) {
            let (first, count) = ((cell[0] - start[0]) as usize, (cell[1] - cell[0]) as usize);
            let (entries, order) = (&entries[first..], &mut order[first..]);
            let is_sorted = match count {
                0 => true,
                1..=8 => sort_first::<8>(entries, count, order),
                9..=16 => sort_first::<16>(entries, count, order),
                _ => false,
            };
            if !is_sorted {
                let mut sorted = entries[..count].to_vec();
                sorted.sort_unstable();
                order.iter_mut().zip(sorted).for_each(|(index, entry)| *index = entry as u32);
            }
        }
    }
}

/// Sorts the first `count` entries, of at most N, and returns false if there are not N. The place of an entry is
/// the number of lower ones. Counting them takes no branch, while a comparison sort would mispredict a branch for
/// each particle that has come into the cell.
///
/// The entries behind the first `count` are of later cells, and their places are written again with these.
#[inline(always)]
fn sort_first<const N: usize>(entries: &[u64], count: usize, order: &mut [u32]) -> bool {
    let (Some(entries), Some(order)) = (entries.first_chunk::<N>(), order.first_chunk_mut::<N>()) else {
        return false;
    };
    // No entry of the cell is as high: an index is less than the number of particles.
    let keys: [u64; N] =
        std::array::from_fn(|n| if n < count { entries[n] } else { u64::MAX - (N - n) as u64 });
    let mut lower = [0u64; N];
    for other in keys {
        for n in 0..N {
            lower[n] += u64::from(other < keys[n]);
        }
    }
    for n in 0..N {
        order[lower[n] as usize % N] = entries[n] as u32;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(width: Width, (cell_of, cells): (&[u32], usize), ids: &[u64]) -> (Vec<u32>, Vec<u32>) {
        let ids: Vec<ParticleId> = ids.iter().copied().map(ParticleId).collect();
        let (mut start, mut order, mut entries) = (Vec::new(), vec![7; 3], Vec::new());
        let columns = OrderColumns { start: &mut start, order: &mut order, entries: &mut entries };
        sort_by_cell_and_id(width, (cell_of, cells), |i| &ids[i as usize], columns);
        (start, order)
    }

    #[test]
    fn each_cell_is_sorted_and_stays_apart() {
        let ids = [5, 3, 9, 1, 7];
        let cell_of = [0, 2, 0, 2, 2];
        for above in [0, 1 << 40] {
            let ids = ids.map(|id| if id > 4 { id + above } else { id });
            let (start, order) = sorted(Width::of_machine(), (&cell_of, 3), &ids);
            assert_eq!(start, [0, 2, 2, 5]);
            assert_eq!(order, [0, 2, 3, 1, 4]);
        }
    }

    #[test]
    fn few_and_many_particles_are_sorted_alike() {
        let counts = |width| (0..20).map(move |count| (count, width));
        for (count, width) in Width::supported().into_iter().flat_map(counts) {
            // Three cells, so that some have others behind them and the last has none.
            let cell_of: Vec<u32> = (0..3 * count as u32).map(|n| n % 3).collect();
            let ids: Vec<u64> = (0..3 * count as u64).map(|n| n * 7919 % 10_009).collect();
            let (start, order) = sorted(width, (&cell_of, 3), &ids);
            for cell in 0..3 {
                let order = &order[start[cell] as usize..start[cell + 1] as usize];
                assert_eq!(order.len(), count);
                assert!(order.iter().all(|&i| cell_of[i as usize] == cell as u32), "{order:?}");
                assert!(order.is_sorted_by(|&a, &b| ids[a as usize] < ids[b as usize]), "{order:?}");
            }
        }
    }
}
