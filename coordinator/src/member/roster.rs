//! What the coordinator remembers of a participant's particles: mass and radius by id.

use amalgam_particles::{ParticleId, Particles};
use amalgam_proto::contract::Committed;
use rayon::prelude::*;

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

    /// Whether a particle is known.
    pub(crate) fn contains(&self, id: ParticleId) -> bool {
        self.place(id).is_some()
    }

    fn place(&self, id: ParticleId) -> Option<usize> {
        match &self.ids {
            Ids::CountedTo(end) => (id.0 < *end).then_some(id.0 as usize),
            Ids::Listed(ids) => ids.binary_search(&id).ok(),
        }
    }

    /// Puts into `order` the places of `ids` in ascending order of ids, of which none stands twice.
    ///
    /// # Errors
    /// An id that is unknown.
    pub(crate) fn sort(&self, ids: &[ParticleId], order: &mut Vec<u32>) -> Result<(), ParticleId> {
        if let Some(&unknown) = ids.iter().find(|&&id| !self.contains(id)) {
            return Err(unknown);
        }
        order.clear();
        match &self.ids {
            _ if ids.is_sorted() => order.extend(0..ids.len() as u32),
            // A bucket for each id that there is: worth it unless few of them are asked for.
            &Ids::CountedTo(end) if ids.len() as u64 > end / 16 => {
                let mut places = vec![u32::MAX; end as usize];
                (0..).zip(ids).for_each(|(place, id)| places[id.0 as usize] = place);
                order.extend(places.into_iter().filter(|&place| place != u32::MAX));
            }
            _ => {
                order.extend(0..ids.len() as u32);
                order.par_sort_unstable_by_key(|&place| ids[place as usize]);
            }
        }
        Ok(())
    }

    /// Appends the masses [kg] of known particles, infinite if immovable.
    pub(crate) fn masses(&self, ids: &[ParticleId], masses: &mut Vec<f64>) {
        self.values(&self.mass, ids, masses);
    }

    /// Appends the radii [m] of known particles.
    pub(crate) fn radii(&self, ids: &[ParticleId], radii: &mut Vec<f64>) {
        self.values(&self.radius, ids, radii);
    }

    fn values(&self, column: &Column, ids: &[ParticleId], values: &mut Vec<f64>) {
        match column {
            Column::Uniform(value) => values.resize(values.len() + ids.len(), *value),
            Column::Each(each) => values.extend(ids.iter().map(|&id| match &self.ids {
                Ids::CountedTo(_) => each[id.0 as usize],
                Ids::Listed(known) => each[known.partition_point(|&other| other < id)],
            })),
        }
    }

    pub(crate) fn len(&self) -> u64 {
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
        if let Some(id) = dead.iter().find(|&&id| !self.contains(id)) {
            return Err(format!("particle {id} died, but was not alive"));
        }
        rows.retain(|row| dead.binary_search(&row.0).is_err());
        for &(id, mass, radius, immovable) in &committed.born {
            if self.contains(id) {
                return Err(format!("particle {id} was born, but is known already"));
            }
            rows.push((id, if immovable { f64::INFINITY } else { mass }, radius));
        }
        rows.sort_unstable_by_key(|row| row.0);
        *self = Self::from_rows(&rows);
        Ok(())
    }
}
