//! The order of particles inside of cells. It is by id, so that no sum over a cell depends on the order in
//! which particles are stored.

use std::ops::Range;

use amalgam_particles::ParticleId;
use amalgam_particles::lanes::{Lanes, Task, Width};
use rayon::prelude::*;

/// Cells of one task.
const CELLS: usize = 4096;

/// The bits by which most ids in a cell differ: 32, less four that tell up to sixteen particles apart.
const LOW_BITS: u64 = (1 << 28) - 1;

/// Sorts the particles of every cell by id. `order` holds indices of particles, cell after cell. The
/// particles of cell c begin at `start[c]` and end at `start[c + 1]`. Cells hold a few particles each, and
/// each id stands for one particle. Ids are prefetched `ahead` particles before they are read: where cells
/// hold many particles, this pays.
pub(crate) fn sort_cells_by_id<'a>(
    width: Width,
    start: &[u32],
    (id, ahead): (impl Fn(u32) -> &'a ParticleId + Copy + Sync, Option<usize>),
    order: &mut [u32],
) {
    let cells = start.len() - 1;
    let mut rest = order;
    let mut tasks: Vec<(Range<usize>, &mut [u32])> = Vec::with_capacity(cells.div_ceil(CELLS));
    for first in (0..cells).step_by(CELLS) {
        let range = first..cells.min(first + CELLS);
        let count = (start[range.end] - start[range.start]) as usize;
        tasks.push((range, rest.split_off_mut(..count).expect("starts cover the order")));
    }
    tasks.into_par_iter().for_each(|(range, order)| {
        width.run(SortCells { start: &start[range.start..=range.end], id, ahead, order });
    });
}

/// Sorts the particles of some cells. `start` has the start of each cell and the end of the last one.
struct SortCells<'a, I> {
    start: &'a [u32],
    id: I,
    ahead: Option<usize>,
    order: &'a mut [u32],
}

impl<'i, I: Fn(u32) -> &'i ParticleId> Task for SortCells<'_, I> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { start, id, ahead, order } = self;
        let mut first = 0;
        for cell in start.windows(2) {
            let count = (cell[1] - cell[0]) as usize;
            if let Some(ahead) = ahead {
                let later = order.get(first + ahead..first + ahead + count).unwrap_or_default();
                later.iter().for_each(|&i| L::prefetch(id(i), 0));
            }
            match count {
                0 | 1 => (),
                // Few particles are in order in most cells: the storage was sorted by cell and id some steps
                // ago, and slow particles have stayed in their cells.
                2..=4 if order[first..][..count].is_sorted_by_key(|&i| id(i)) => (),
                2..=4 => sort_first::<4>(&id, &mut order[first..], count),
                5..=8 => sort_first::<8>(&id, &mut order[first..], count),
                9..=16 => sort_first::<16>(&id, &mut order[first..], count),
                _ => order[first..][..count].sort_unstable_by_key(|&i| id(i)),
            }
            first += count;
        }
    }
}

/// Sorts the first `count` particles by id, of at most N. The place of a particle is the number of lower ids.
/// Counting them takes no branch, while a comparison sort would mispredict a branch for each particle that has
/// come into the cell.
#[inline(always)]
fn sort_first<'a, const N: usize>(id: impl Fn(u32) -> &'a ParticleId, order: &mut [u32], count: usize) {
    let Some(first) = order.first_chunk_mut::<N>() else {
        return order[..count].sort_unstable_by_key(|&i| id(i));
    };
    let particles = *first;
    // The low bits of an id, then the number of the particle, so that no two keys are equal. Particles behind
    // the first `count` keep their places, since each is above all before it.
    let high = id(particles[0]).0 & !LOW_BITS;
    let (mut keys, mut apart) = ([0u32; N], 0);
    for n in 0..N {
        let id = if n < count { id(particles[n]).0 } else { high | LOW_BITS };
        apart |= id ^ high;
        keys[n] = (id as u32) << 4 | n as u32;
    }
    if apart & !LOW_BITS != 0 {
        return order[..count].sort_unstable_by_key(|&i| id(i));
    }
    let mut lower = [0u32; N];
    for other in keys {
        for n in 0..N {
            lower[n] += u32::from(other < keys[n]);
        }
    }
    for n in 0..N {
        first[lower[n] as usize % N] = particles[n];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cell_is_sorted_and_stays_apart() {
        let ids = [5, 3, 9, 1, 7].map(ParticleId);
        let mut order = [0, 2, 1, 4, 3];
        sort_cells_by_id(Width::of_machine(), &[0, 2, 2, 5], (|i| &ids[i as usize], Some(1)), &mut order);
        assert_eq!(order, [0, 2, 3, 1, 4]);
    }

    #[test]
    fn ids_that_differ_in_high_bits_are_sorted() {
        for count in 2..20 {
            let ids: Vec<ParticleId> = (0..count).map(|n| ParticleId((count - n) << 27)).collect();
            let mut order: Vec<u32> = (0..count as u32).collect();
            sort_cells_by_id(
                Width::of_machine(),
                &[0, count as u32],
                (|i| &ids[i as usize], None),
                &mut order,
            );
            assert!(order.iter().copied().eq((0..count as u32).rev()), "{order:?}");
        }
    }

    #[test]
    fn few_and_many_particles_are_sorted_alike() {
        let counts = |width| (0..20).map(move |count| (count, width));
        for (count, width) in Width::supported().into_iter().flat_map(counts) {
            let ids: Vec<ParticleId> = (0..count as u64).map(|n| ParticleId(n * 7919 % 1009)).collect();
            let mut order: Vec<u32> = (0..count as u32).collect();
            sort_cells_by_id(width, &[0, count as u32], (|i| &ids[i as usize], Some(1)), &mut order);
            assert!(order.is_sorted_by_key(|&i| ids[i as usize]), "{order:?}");
            order.sort_unstable();
            assert!(order.iter().copied().eq(0..count as u32), "{order:?}");
        }
    }
}
