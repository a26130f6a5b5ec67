//! Pairs that are no contacts.

use amalgam_particles::ParticleId;

/// Pairs of one participant's particles that are never contacts: those joined by an unbroken spring or bond.
///
/// Every pair is kept with its lower id, as a row of sorted higher ones. Ids are replaced by their rank among the
/// ids that occur, which halves the memory: brittle solids have some 50 pairs for each particle.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExcludedPairs {
    ids: Vec<ParticleId>,
    start: Vec<u32>,
    /// Pairs left in each row.
    count: Vec<u32>,
    higher: Vec<u32>,
}

impl ExcludedPairs {
    /// The given pairs, in any order and orientation, repeated or not.
    pub(crate) fn new(pairs: &[(ParticleId, ParticleId)]) -> Self {
        let mut ids: Vec<ParticleId> = pairs.iter().flat_map(|&(a, b)| [a, b]).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut this =
            Self { count: vec![0; ids.len()], start: Vec::with_capacity(ids.len()), ids, higher: vec![] };
        let mut keys: Vec<(u32, u32)> = pairs.iter().filter_map(|&(a, b)| this.ranks(a, b)).collect();
        keys.sort_unstable();
        keys.dedup();
        assert!(u32::try_from(keys.len()).is_ok(), "more than 2^32 excluded pairs");
        for &(low, _) in &keys {
            this.count[low as usize] += 1;
        }
        let mut start = 0;
        for &count in &this.count {
            this.start.push(start);
            start += count;
        }
        this.higher = keys.into_iter().map(|(_, high)| high).collect();
        this
    }

    /// Whether the pair is excluded, in either orientation.
    #[inline]
    pub(crate) fn contains(&self, a: ParticleId, b: ParticleId) -> bool {
        self.ranks(a, b).is_some_and(|(low, high)| self.row(low).binary_search(&high).is_ok())
    }

    /// Takes the pair out: its bond is broken. Says whether it was in.
    pub(crate) fn remove(&mut self, a: ParticleId, b: ParticleId) -> bool {
        let Some((low, high)) = self.ranks(a, b) else { return false };
        let Ok(place) = self.row(low).binary_search(&high) else { return false };
        let (start, count) = (self.start[low as usize] as usize, &mut self.count[low as usize]);
        self.higher[start + place..start + *count as usize].rotate_left(1);
        *count -= 1;
        true
    }

    #[inline]
    fn row(&self, low: u32) -> &[u32] {
        let start = self.start[low as usize] as usize;
        &self.higher[start..start + self.count[low as usize] as usize]
    }

    /// The ranks of two different ids, the lower one first.
    #[inline]
    fn ranks(&self, a: ParticleId, b: ParticleId) -> Option<(u32, u32)> {
        match a.cmp(&b) {
            std::cmp::Ordering::Less => Some((self.rank(a)?, self.rank(b)?)),
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Greater => Some((self.rank(b)?, self.rank(a)?)),
        }
    }

    #[inline]
    fn rank(&self, id: ParticleId) -> Option<u32> {
        // Most bodies are numbered 0, 1, 2, ...: then the id is the rank.
        if usize::try_from(id.0).is_ok_and(|rank| self.ids.get(rank) == Some(&id)) {
            return Some(id.0 as u32);
        }
        self.ids.binary_search(&id).ok().map(|rank| rank as u32)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn holds_what_was_put_in_and_not_removed(
            pairs in prop::collection::vec((0u64..30, 0u64..30), 0..100),
            broken in prop::collection::vec((0u64..30, 0u64..30), 0..50),
            sparse in any::<bool>(),
        ) {
            let id = |i: u64| ParticleId(if sparse { i * i * 1_000_003 + 5 } else { i });
            let pair = |&(a, b): &(u64, u64)| (id(a), id(b));
            let ordered = |&(a, b): &(u64, u64)| (id(a.min(b)), id(a.max(b)));
            let mut excluded = ExcludedPairs::new(&pairs.iter().map(pair).collect::<Vec<_>>());
            let mut expected: BTreeSet<_> = pairs.iter().filter(|(a, b)| a != b).map(ordered).collect();
            for broken in &broken {
                let (a, b) = pair(broken);
                prop_assert_eq!(excluded.remove(a, b), expected.remove(&ordered(broken)));
            }
            for a in 0..30 {
                for b in 0..30 {
                    prop_assert_eq!(excluded.contains(id(a), id(b)), expected.contains(&ordered(&(a, b))));
                }
            }
        }
    }
}
