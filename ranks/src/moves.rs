//! Particles that change ranks, column by column.

use bytemuck::Pod;

use crate::ranks::Ranks;

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
            // The other rank sees both numbers, too, and takes or leaves the pair as this one does.
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

    /// Replaces the values of particles that leave by the values that arrived, in the order of ranks. Further
    /// arrivals are appended; gaps that are left over take the last values. So the time is proportional to
    /// the particles that move. Collective.
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
        let (arrived, counts) = (arrived.iter(), self.from.iter());
        let mut arrived = arrived.zip(counts).flat_map(|(values, &count)| {
            assert_eq!(values.len(), count, "ranks do not agree on a column");
            values.iter().copied()
        });
        let mut gaps = self.leaving.iter().map(|&gap| gap as usize);
        let mut left_over = Vec::new();
        for gap in gaps.by_ref() {
            match arrived.next() {
                Some(value) => column[gap] = value,
                None => {
                    left_over.push(gap);
                    break;
                }
            }
        }
        left_over.extend(gaps);
        column.extend(arrived);
        // From the end, so that the last value is never itself a gap.
        for gap in left_over.into_iter().rev() {
            column.swap_remove(gap);
        }
    }
}
