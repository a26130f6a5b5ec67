//! The order of particles inside of cells: by id, so that no sum over a cell depends on the order in which particles are
//! stored.

use std::ops::Range;

use amalgam_particles::ParticleId;
use rayon::prelude::*;

/// Cells of one task.
const CELLS: usize = 4096;

/// Sorts the particles of every cell by id. `order` holds indices of particles, cell after cell; those of cell c begin at
/// `start[c]`, and there is one more start than cells. Cells hold a few particles each.
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
            let own = &mut order[(start[cell] - begin) as usize..(start[cell + 1] - begin) as usize];
            if !own.is_sorted_by_key(|&i| id(i)) {
                own.sort_unstable_by_key(|&i| id(i));
            }
        }
    });
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
}
