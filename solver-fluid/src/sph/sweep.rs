//! A sweep over all pairs of neighbours: chunk after chunk, group after group. Densities and forces are
//! visitors of the sweep, and so are other sums over neighbours that another pressure solver needs.

use super::neighbours::{Chunk, Group, NeighbourList, Surroundings};

/// The parts of a column that belong to chunks.
pub(super) fn split<'a, T>(column: &'a mut [T], chunks: &[Chunk]) -> Vec<&'a mut [T]> {
    let mut rest = column;
    chunks
        .iter()
        .map(|chunk| rest.split_off_mut(..chunk.particles.len()).expect("chunks cover the column"))
        .collect()
}

/// Sums over neighbours of the particles of a chunk.
pub(super) struct Sums<'a, T> {
    pub(super) around: Surroundings<'a>,
    pub(super) chunk: &'a Chunk,
    pub(super) found: &'a mut NeighbourList,
    pub(super) values: &'a mut [T],
    /// Number of own particles. Particles with higher indices are ghosts. Nothing is summed for a row that
    /// holds ghosts only.
    pub(super) own: usize,
}

impl<T> Sums<'_, T> {
    /// Visits the groups of the chunk. `sum` fills in the values of a group, of at most `lanes` particles.
    #[inline(always)]
    pub(super) fn visit(
        self,
        lanes: usize,
        mut sum: impl FnMut(&Group<'_>, &Surroundings<'_>, &mut NeighbourList, &mut [T]),
    ) {
        let Self { around, chunk, found, values, own } = self;
        let (order, has_ghosts) = (around.order.order(), around.order.order().len() > own);
        let begin = chunk.particles.start;
        for row in around.order.rows(chunk) {
            if has_ghosts && order[row.particles.clone()].iter().all(|&i| i as usize >= own) {
                continue;
            }
            let mut first = row.particles.start;
            while first < row.particles.end {
                let group = around.group(&row, first, lanes);
                first = group.particles.end;
                sum(&group, &around, found, &mut values[group.particles.start - begin..first - begin]);
            }
        }
    }
}
