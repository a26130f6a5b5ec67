//! Map from ids on the wire to places in a solver's columns.

use amalgam_particles::ParticleId;
use amalgam_proto::columns::{WireError, check_unique};
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

    pub(crate) fn resolve(
        &self,
        column: &'static str,
        ids: &[ParticleId],
        indices: &mut Vec<u32>,
    ) -> Result<(), WireError> {
        check_unique(column, ids)?;
        indices.clear();
        for &id in ids {
            indices.push(self.find(id).ok_or(WireError::UnknownId { column, id, who: "this solver" })?);
        }
        Ok(())
    }

    pub(crate) fn find(&self, id: ParticleId) -> Option<u32> {
        if self.dense.is_empty() {
            self.sorted.binary_search_by_key(&id, |&(id, _)| id).ok().map(|at| self.sorted[at].1)
        } else {
            self.dense.get(id.0 as usize).copied().filter(|&index| index != u32::MAX)
        }
    }
}
