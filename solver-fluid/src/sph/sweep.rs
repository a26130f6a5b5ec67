//! A sweep over all pairs of neighbours: chunk after chunk, packet after packet. The loops over densities and
//! forces are visitors of the sweep, and so are other sums over neighbours that another pressure solver needs.

use super::neighbours::{Chunk, NeighbourList, NeighbourSearch, Packet};

/// The parts of a column that belong to chunks.
pub(super) fn split<'a, T>(column: &'a mut [T], chunks: &[Chunk]) -> Vec<&'a mut [T]> {
    let mut rest = column;
    chunks
        .iter()
        .map(|chunk| rest.split_off_mut(..chunk.particles.len()).expect("chunks cover the column"))
        .collect()
}

/// A sweep over the packets of a chunk, in which each particle gets a value: a sum over its neighbours.
pub(super) struct ChunkSweep<'a, T> {
    pub(super) search: NeighbourSearch<'a>,
    pub(super) chunk: &'a Chunk,
    /// Neighbours of the packets of the chunk, which a first sweep writes and later ones read.
    pub(super) list: &'a mut NeighbourList,
    /// The sums, in cell order.
    pub(super) values: &'a mut [T],
    /// Number of own particles. Particles with higher indices are ghosts. Nothing is summed for a row that
    /// holds ghosts only.
    pub(super) own: usize,
}

impl<T> ChunkSweep<'_, T> {
    /// Visits the packets of the chunk. `sum` fills in the values of a packet, of at most `lanes` particles.
    #[inline(always)]
    pub(super) fn for_each_packet(
        self,
        lanes: usize,
        mut sum: impl FnMut(&Packet<'_>, &NeighbourSearch<'_>, &mut NeighbourList, &mut [T]),
    ) {
        let Self { search, chunk, list, values, own } = self;
        let (order, has_ghosts) = (search.order.order(), search.order.order().len() > own);
        let begin = chunk.particles.start;
        for row in search.order.rows(chunk) {
            if has_ghosts && order[row.particles.clone()].iter().all(|&i| i as usize >= own) {
                continue;
            }
            let mut first = row.particles.start;
            while first < row.particles.end {
                let packet = search.packet(&row, first, lanes);
                first = packet.particles.end;
                sum(&packet, &search, list, &mut values[packet.particles.start - begin..first - begin]);
            }
        }
    }
}
