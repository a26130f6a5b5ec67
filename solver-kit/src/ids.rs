//! Map from ids on the wire to places in a solver's columns.

use amalgam_particles::ParticleId;
use amalgam_proto::columns::{WireError, check_unique};
use amalgam_ranks::Ranks;
use rayon::prelude::*;

/// Index from ids to places in storage.
#[derive(Default)]
pub(crate) struct IdIndex {
    pub(crate) ids: Vec<ParticleId>,
    /// Index by id, if ids are dense; else empty.
    dense: Vec<u32>,
    /// (id, index) ascending, if ids are not dense.
    sorted: Vec<(ParticleId, u32)>,
}

/// Particles of a list that a rank has.
#[derive(Default)]
pub(crate) struct Found {
    /// Their places in storage.
    pub(crate) index: Vec<u32>,
    /// Their numbers in the list, ascending.
    pub(crate) number: Vec<u32>,
}

impl IdIndex {
    pub(crate) fn update(&mut self, ids: &[ParticleId]) {
        if self.ids == ids {
            return;
        }
        self.ids.clear();
        self.ids.extend_from_slice(ids);
        self.dense.clear();
        self.sorted.clear();
        let largest = ids.iter().map(|id| id.0).max().unwrap_or(0);
        if largest < 4 * ids.len() as u64 + 1024 {
            self.dense.resize(largest as usize + 1, u32::MAX);
            for (index, id) in ids.iter().enumerate() {
                self.dense[id.0 as usize] = index as u32;
            }
        } else {
            self.sorted.extend(ids.iter().enumerate().map(|(index, &id)| (id, index as u32)));
            self.sorted.par_sort_unstable();
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
            self.sorted.binary_search_by_key(&id, |&(id, _)| id).ok().map(|at| self.sorted[at].1)
        } else {
            self.dense.get(id.0 as usize).copied().filter(|&index| index != u32::MAX)
        }
    }
}
