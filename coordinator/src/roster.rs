//! What the coordinator remembers of a participant's particles: mass and radius by id.

use amalgam_particles::{ParticleId, Particles};
use amalgam_proto::contract::Committed;

/// Mass and radius of a participant's particles by id. Ids that count from 0 and equal values cost nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roster {
    ids: Ids,
    /// Mass [kg], infinite if immovable.
    mass: Column,
    radius: Column,
}

#[derive(Clone, Debug)]
enum Ids {
    /// 0, 1, ..., less than this.
    CountedTo(u64),
    /// Ascending.
    Listed(Vec<ParticleId>),
}

impl Default for Ids {
    fn default() -> Self {
        Self::CountedTo(0)
    }
}

#[derive(Clone, Debug)]
enum Column {
    Uniform(f64),
    Each(Vec<f64>),
}

impl Default for Column {
    fn default() -> Self {
        Self::Each(Vec::new())
    }
}

impl Column {
    fn new(values: Vec<f64>) -> Self {
        match values.first() {
            Some(&first) if values.iter().all(|&value| value == first) => Self::Uniform(first),
            _ => Self::Each(values),
        }
    }

    fn get(&self, at: usize) -> f64 {
        match self {
            Self::Uniform(value) => *value,
            Self::Each(values) => values[at],
        }
    }
}

impl Roster {
    pub(crate) fn new(particles: &Particles) -> Self {
        let mut rows: Vec<(ParticleId, f64, f64)> = (0..particles.len())
            .map(|i| {
                let mass = if particles.immovable[i] { f64::INFINITY } else { particles.mass[i] };
                (particles.id[i], mass, particles.radius[i])
            })
            .collect();
        rows.sort_unstable_by_key(|row| row.0);
        Self::from_rows(&rows)
    }

    fn from_rows(rows: &[(ParticleId, f64, f64)]) -> Self {
        let counted = rows.iter().enumerate().all(|(at, row)| row.0.0 == at as u64);
        let ids = if counted {
            Ids::CountedTo(rows.len() as u64)
        } else {
            Ids::Listed(rows.iter().map(|row| row.0).collect())
        };
        Self {
            ids,
            mass: Column::new(rows.iter().map(|row| row.1).collect()),
            radius: Column::new(rows.iter().map(|row| row.2).collect()),
        }
    }

    /// Mass (infinite if immovable) and radius of a particle, if it is known.
    #[inline]
    pub(crate) fn get(&self, id: ParticleId) -> Option<(f64, f64)> {
        let at = match &self.ids {
            Ids::CountedTo(end) => (id.0 < *end).then_some(id.0 as usize)?,
            Ids::Listed(ids) => ids.binary_search(&id).ok()?,
        };
        Some((self.mass.get(at), self.radius.get(at)))
    }

    fn len(&self) -> u64 {
        match &self.ids {
            Ids::CountedTo(end) => *end,
            Ids::Listed(ids) => ids.len() as u64,
        }
    }

    /// Takes over births and deaths.
    ///
    /// # Errors
    /// What is impossible about them.
    pub(crate) fn update(&mut self, committed: &Committed) -> Result<(), String> {
        if !(committed.born.is_empty() && committed.dead.is_empty()) {
            self.replace(committed)?;
        }
        let (known, told) = (self.len(), committed.particles);
        if known == told {
            Ok(())
        } else {
            Err(format!("it says it has {told} particles, but {known} are known"))
        }
    }

    fn replace(&mut self, committed: &Committed) -> Result<(), String> {
        let mut rows: Vec<(ParticleId, f64, f64)> = match &self.ids {
            Ids::CountedTo(end) => (0..*end).map(ParticleId).collect(),
            Ids::Listed(ids) => ids.clone(),
        }
        .into_iter()
        .enumerate()
        .map(|(at, id)| (id, self.mass.get(at), self.radius.get(at)))
        .collect();
        let mut dead = committed.dead.clone();
        dead.sort_unstable();
        if let Some(id) = dead.iter().find(|&&id| self.get(id).is_none()) {
            return Err(format!("particle {id} died, but was not alive"));
        }
        rows.retain(|row| dead.binary_search(&row.0).is_err());
        for &(id, mass, radius, immovable) in &committed.born {
            if self.get(id).is_some() {
                return Err(format!("particle {id} was born, but is known already"));
            }
            rows.push((id, if immovable { f64::INFINITY } else { mass }, radius));
        }
        rows.sort_unstable_by_key(|row| row.0);
        *self = Self::from_rows(&rows);
        Ok(())
    }
}
