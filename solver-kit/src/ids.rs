//! Map from ids on the wire to places in a solver's columns.

use amalgam_particles::{ParticleId, reduce};
use amalgam_proto::columns::{WireError, check_unique};
use amalgam_ranks::Ranks;
use rayon::prelude::*;

/// Index from ids to places in storage.
#[derive(Default)]
pub(crate) struct IdIndex {
    pub(crate) ids: Vec<ParticleId>,
    /// Place by id, if ids are dense; else empty.
    dense: Vec<u32>,
    /// Places in ascending order of id, if ids are not dense.
    order: Vec<u32>,
}

/// Part of the particles above which an index is made anew where it could be changed.
const CHANGED_MAX: usize = 16;

/// Particles of a list that a rank has.
#[derive(Default)]
pub(crate) struct Found {
    /// Their places in storage.
    pub(crate) index: Vec<u32>,
    /// Their numbers in the list, ascending.
    pub(crate) number: Vec<u32>,
}

impl IdIndex {
    /// Takes the ids of all particles, in the order of storage. Few changes since the last call take little time.
    pub(crate) fn update(&mut self, ids: &[ParticleId]) {
        let changed: Vec<u32> = {
            let before = &self.ids[..];
            let differs = |&i: &u32| before.get(i as usize) != ids.get(i as usize);
            let all = 0..before.len().max(ids.len()) as u32;
            all.into_par_iter().with_min_len(reduce::CHUNK).filter(differs).collect()
        };
        if changed.is_empty() {
            return;
        }
        let largest = ids.iter().map(|id| id.0).max().unwrap_or(0);
        // An array over all ids of the participant is too large where other ranks have most of them.
        let is_dense = largest < 2 * ids.len() as u64 + 1024;
        let is_small = changed.len() <= ids.len() / CHANGED_MAX;
        match (is_dense, is_small) {
            (true, true) if !self.dense.is_empty() => self.change_dense(&changed, ids, largest),
            (true, _) => {
                self.order = Vec::new();
                self.dense.clear();
                self.dense.resize(largest as usize + 1, u32::MAX);
                ids.iter().zip(0..).for_each(|(id, place)| self.dense[id.0 as usize] = place);
            }
            (false, true) if self.dense.is_empty() => self.change_order(&changed, ids),
            (false, _) => {
                self.dense = Vec::new();
                self.order.clear();
                self.order.extend(0..ids.len() as u32);
                self.order.par_sort_unstable_by_key(|&place| ids[place as usize]);
            }
        }
        self.ids.truncate(ids.len());
        let kept = self.ids.len();
        changed.iter().map(|&i| i as usize).filter(|&i| i < kept).for_each(|i| self.ids[i] = ids[i]);
        self.ids.extend_from_slice(&ids[kept..]);
    }

    /// Changes the array by id, where the ids at some places differ from the last ones.
    fn change_dense(&mut self, changed: &[u32], ids: &[ParticleId], largest: u64) {
        for &place in changed {
            if let Some(id) = self.ids.get(place as usize) {
                self.dense[id.0 as usize] = u32::MAX;
            }
        }
        self.dense.resize(largest as usize + 1, u32::MAX);
        for &place in changed {
            if let Some(id) = ids.get(place as usize) {
                self.dense[id.0 as usize] = place;
            }
        }
    }

    /// Changes the order by id, where the ids at some places differ from the last ones.
    fn change_order(&mut self, changed: &[u32], ids: &[ParticleId]) {
        let mut is_changed = vec![false; self.ids.len().max(ids.len())];
        changed.iter().for_each(|&place| is_changed[place as usize] = true);
        self.order.retain(|&place| !is_changed[place as usize]);
        let mut new: Vec<u32> =
            changed.iter().copied().filter(|&place| (place as usize) < ids.len()).collect();
        new.sort_unstable_by_key(|&place| ids[place as usize]);
        // From the end, each new place goes behind the last one whose id is lower.
        let mut end = self.order.len();
        self.order.resize(end + new.len(), 0);
        for (k, &place) in new.iter().enumerate().rev() {
            let at = self.order[..end].partition_point(|&other| ids[other as usize] < ids[place as usize]);
            self.order.copy_within(at..end, at + k + 1);
            self.order[at + k] = place;
            end = at;
        }
    }

    /// The particles of a list that this rank has. Collective.
    ///
    /// # Errors
    /// An id that stands twice, or that no rank has.
    pub(crate) fn resolve(
        &self,
        ranks: &Ranks,
        column: &'static str,
        ids: &[ParticleId],
    ) -> Result<Found, WireError> {
        check_unique(column, ids)?;
        let mut found = Found::default();
        for (number, &id) in ids.iter().enumerate() {
            if let Some(index) = self.find(id) {
                found.index.push(index);
                found.number.push(number as u32);
            }
        }
        let mut count = [found.index.len() as i64];
        ranks.sum(&mut count);
        if count == [ids.len() as i64] {
            return Ok(found);
        }
        let mut is_found = vec![0; ids.len()];
        found.number.iter().for_each(|&number| is_found[number as usize] = 1);
        ranks.sum(&mut is_found);
        let unknown = is_found.iter().position(|&ranks| ranks == 0).expect("fewer were found than named");
        Err(WireError::UnknownId { column, id: ids[unknown], who: "this solver" })
    }

    pub(crate) fn find(&self, id: ParticleId) -> Option<u32> {
        if self.dense.is_empty() {
            let found = self.order.binary_search_by_key(&id, |&place| self.ids[place as usize]);
            found.ok().map(|at| self.order[at])
        } else {
            self.dense.get(id.0 as usize).copied().filter(|&place| place != u32::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use amalgam_particles::random;

    use super::*;

    /// Checks an index through changes of storage, with ids that are `spread` times as far apart as dense ones.
    fn check(spread: u64) {
        let mut index = IdIndex::default();
        let mut ids: Vec<ParticleId> = (0..5000).map(|id| ParticleId(id * spread)).collect();
        let mut next = ids.len() as u64;
        for round in 0..200u64 {
            let draw = |k: u64| random::mix(random::mix(round) ^ k);
            // Particles leave, others come in their places or at the end, and now and then all are stored anew.
            for k in 0..draw(0) % 30 {
                let at = draw(1 + k) as usize % ids.len();
                match draw(100 + k) % 3 {
                    0 => drop(ids.swap_remove(at)),
                    1 => ids[at] = ParticleId(next * spread),
                    _ => ids.push(ParticleId(next * spread)),
                }
                next += 1;
            }
            if round % 50 == 49 {
                ids.sort_unstable_by_key(|id| random::mix(id.0 ^ round));
            }
            index.update(&ids);
            assert_eq!(index.ids, ids);
            let places: HashMap<ParticleId, u32> = ids.iter().copied().zip(0..).collect();
            for id in (0..next + 3).map(|id| ParticleId(id * spread)) {
                assert_eq!(index.find(id), places.get(&id).copied(), "id {id} in round {round}");
            }
        }
        index.update(&[]);
        assert!(index.find(ParticleId(0)).is_none() && index.ids.is_empty());
    }

    #[test]
    fn ids_are_found_after_changes_of_storage() {
        check(1);
        check(3);
    }
}
