//! Particles that change ranks, column by column.

use bytemuck::Pod;

use crate::Ranks;

/// A plan by which particles change ranks: made once, applied to any number of columns.
#[derive(Clone, Debug)]
pub struct Moves {
    /// Particles of this rank before.
    count: usize,
    /// Indices of those that leave, in ascending order.
    leaving: Vec<u32>,
    /// Ranks that particles go to or come from.
    with: Vec<usize>,
    /// Indices of particles that go to each of these, in ascending order.
    to: Vec<Vec<u32>>,
    /// The number of particles that come from each of these.
    from: Vec<usize>,
    /// True if no rank's particles move.
    empty: bool,
}

impl Moves {
    /// `destination[i]` is the new rank of particle i of this rank. Collective.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn new(ranks: &Ranks, destination: &[u32]) -> Self {
        let own = ranks.rank() as u32;
        let mut to = vec![Vec::new(); ranks.size()];
        let mut leaving = Vec::new();
        for (i, &rank) in destination.iter().enumerate().filter(|&(_, &rank)| rank != own) {
            leaving.push(i as u32);
            to[rank as usize].push(i as u32);
        }
        let empty = !ranks.any(!leaving.is_empty());
        let mut moves = Self {
            count: destination.len(),
            leaving,
            with: Vec::new(),
            to: Vec::new(),
            from: Vec::new(),
            empty,
        };
        if empty {
            return moves;
        }
        let counts = to.iter().map(|to| if to.is_empty() { Vec::new() } else { vec![to.len() as u64] });
        let from = ranks.all_to_all(counts.collect());
        for (rank, (to, from)) in to.into_iter().zip(from).enumerate() {
            // The other rank sees the same two numbers, and also takes or leaves this pair.
            if !to.is_empty() || !from.is_empty() {
                moves.with.push(rank);
                moves.to.push(to);
                moves.from.push(from.iter().sum::<u64>() as usize);
            }
        }
        moves
    }

    /// True if no particle of any rank moves: columns then stay as they are.
    pub fn is_empty(&self) -> bool {
        self.empty
    }

    /// The number of particles that leave this rank.
    pub fn leaving(&self) -> usize {
        self.leaving.len()
    }

    /// The number of particles that come to this rank.
    pub fn arriving(&self) -> usize {
        self.from.iter().sum()
    }

    /// Replaces a column by the particles that stay, in their order, then those that arrived, by rank, in the order they
    /// had there. Collective.
    ///
    /// # Panics
    /// If the column has not one entry for each particle that the plan was made for.
    pub fn apply<T: Pod>(&self, ranks: &Ranks, column: &mut Vec<T>) {
        assert_eq!(column.len(), self.count, "entries of a column and particles");
        if self.empty {
            return;
        }
        let take = |indices: &Vec<u32>| indices.iter().map(|&i| column[i as usize]).collect();
        let send: Vec<Vec<T>> = self.to.iter().map(take).collect();
        let arrived = ranks.exchange(&self.with, send);
        self.close_gaps(column);
        column.reserve(self.arriving());
        for (values, &count) in arrived.iter().zip(&self.from) {
            assert_eq!(values.len(), count, "ranks do not agree on a column");
            column.extend_from_slice(values);
        }
    }

    /// Moves those that stay to the front, run by run, and drops the rest.
    fn close_gaps<T: Copy>(&self, column: &mut Vec<T>) {
        let mut filled = self.leaving.first().map_or(column.len(), |&first| first as usize);
        for (k, &gap) in self.leaving.iter().enumerate() {
            let end = self.leaving.get(k + 1).map_or(column.len(), |&next| next as usize);
            column.copy_within(gap as usize + 1..end, filled);
            filled += end - gap as usize - 1;
        }
        column.truncate(filled);
    }
}
