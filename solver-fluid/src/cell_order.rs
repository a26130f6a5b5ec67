//! The order of particles inside of cells. It is by id, so that no sum over a cell depends on the order in
//! which particles are stored.

use std::ops::Range;

use amalgam_particles::ParticleId;
use rayon::prelude::*;

/// Cells of one task.
const CELLS: usize = 4096;

/// Largest number of particles of a cell that are sorted by insertion.
const FEW: usize = 32;

/// Sorts the particles of every cell by id. `order` holds indices of particles, cell after cell. The
/// particles of cell c begin at `start[c]` and end at `start[c + 1]`. Cells hold a few particles each.
pub(crate) fn sort_cells_by_id(start: &[u32], id: impl Fn(u32) -> ParticleId + Sync, order: &mut [u32]) {
    let cells = start.len() - 1;
    let mut rest = order;
    let mut tasks: Vec<(Range<usize>, &mut [u32])> = Vec::with_capacity(cells.div_ceil(CELLS));
    for first in (0..cells).step_by(CELLS) {
        let range = first..cells.min(first + CELLS);
        let count = (start[range.end] - start[range.start]) as usize;
        tasks.push((range, rest.split_off_mut(..count).expect("starts cover the order")));
    }
    tasks.into_par_iter().for_each(|(range, order)| {
        let begin = start[range.start];
        for cell in range {
            sort_by_id(&id, &mut order[(start[cell] - begin) as usize..(start[cell + 1] - begin) as usize]);
        }
    });
}

/// Sorts the particles of a cell by id. Most cells are nearly in order, and the ids of their particles are
/// far apart in memory. Sorting by insertion reads each id once.
fn sort_by_id(id: impl Fn(u32) -> ParticleId, own: &mut [u32]) {
    if own.len() > FEW {
        return own.sort_unstable_by_key(|&i| id(i));
    }
    let mut ids = [ParticleId(0); FEW];
    for n in 0..own.len() {
        let (index, key) = (own[n], id(own[n]));
        let mut at = n;
        while at > 0 && ids[at - 1] > key {
            (ids[at], own[at]) = (ids[at - 1], own[at - 1]);
            at -= 1;
        }
        (ids[at], own[at]) = (key, index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cell_is_sorted_and_stays_apart() {
        let ids = [5, 3, 9, 1, 7].map(ParticleId);
        let mut order = [0, 2, 1, 4, 3];
        sort_cells_by_id(&[0, 2, 2, 5], |i| ids[i as usize], &mut order);
        assert_eq!(order, [0, 2, 3, 1, 4]);
    }

    #[test]
    fn few_and_many_particles_are_sorted_alike() {
        for count in [0, 1, 2, FEW, FEW + 1] {
            let ids: Vec<ParticleId> = (0..count as u64).map(|n| ParticleId(n * 7919 % 1009)).collect();
            let mut order: Vec<u32> = (0..count as u32).collect();
            sort_cells_by_id(&[0, count as u32], |i| ids[i as usize], &mut order);
            assert!(order.is_sorted_by_key(|&i| ids[i as usize]), "{order:?}");
        }
    }
}
