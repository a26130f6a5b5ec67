//! The coordinator's memory of a participant's particles: mass and radius by id.

use amalgam_particles::text::number;
use amalgam_particles::{DVec3, Lattice, ParticleId, Particles, reduce};
use amalgam_proto::contract::{Committed, Table, Totals};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Mass and radius of a participant's particles by id. Ids that count from 0 and columns of equal values take
/// no memory.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(try_from = "RosterState", into = "RosterState")]
pub(crate) struct Roster {
    ids: Ids,
    /// Mass [kg], infinite if immovable.
    mass: Column,
    radius: Column,
    radius_range: (f64, f64),
    /// Pairs of a particle and the particle that names its body, ascending. Particles that name their own
    /// body are left out. Absent if particles do not rotate.
    bodies: Option<Vec<(ParticleId, ParticleId)>>,
}

/// Relative difference that is allowed between numbers that follow from the same velocities by different
/// operations.
const ROUNDING: f64 = 1e-6;

#[derive(Clone, Debug, Deserialize, Serialize)]
enum Ids {
    /// All ids from 0 to below this number.
    CountedTo(u64),
    /// Ascending.
    Listed(Vec<ParticleId>),
}

impl Default for Ids {
    fn default() -> Self {
        Self::CountedTo(0)
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
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

/// Part of a roster that births and deaths change, for a checkpoint. Bodies stay as at the start.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct RosterState {
    ids: Ids,
    mass: Column,
    radius: Column,
}

impl From<Roster> for RosterState {
    fn from(Roster { ids, mass, radius, .. }: Roster) -> Self {
        Self { ids, mass, radius }
    }
}

impl TryFrom<RosterState> for Roster {
    type Error = &'static str;

    fn try_from(RosterState { ids, mass, radius }: RosterState) -> Result<Self, Self::Error> {
        let radius_range = match &radius {
            Column::Uniform(radius) => (*radius, *radius),
            Column::Each(each) => range(each.iter().copied()),
        };
        let roster = Self { ids, mass, radius, radius_range, bodies: None };
        let fits = |column: &Column| match column {
            Column::Uniform(_) => true,
            Column::Each(each) => each.len() as u64 == roster.len(),
        };
        let ascends = match &roster.ids {
            Ids::CountedTo(_) => true,
            Ids::Listed(ids) => ids.is_sorted_by(|a, b| a < b),
        };
        if ascends && fits(&roster.mass) && fits(&roster.radius) {
            Ok(roster)
        } else {
            Err("a roster whose columns do not fit each other")
        }
    }
}

/// The smallest and the largest of some radii.
fn range(radii: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    (radii.clone().fold(f64::INFINITY, f64::min), radii.fold(0.0, f64::max))
}

impl Roster {
    pub(crate) fn new(table: &Table) -> Self {
        if let Some(brief) = &table.brief {
            return Self {
                ids: Ids::CountedTo(brief.count),
                mass: Column::Uniform(brief.mass),
                radius: Column::Uniform(brief.radius),
                radius_range: (brief.radius, brief.radius),
                bodies: None,
            };
        }
        let particles = &table.particles;
        let mut rows: Vec<(ParticleId, f64, f64)> = (0..particles.len())
            .map(|i| {
                let mass = if particles.immovable[i] { f64::INFINITY } else { particles.mass[i] };
                (particles.id[i], mass, particles.radius[i])
            })
            .collect();
        rows.sort_unstable_by_key(|row| row.0);
        Self::from_rows(&rows)
    }

    /// Adds the body of each particle, in the order of the table, if particles rotate.
    pub(crate) fn with_bodies(mut self, particles: &Particles, bodies: Option<Vec<ParticleId>>) -> Self {
        self.bodies = bodies.map(|bodies| {
            let named = particles.id.iter().copied().zip(bodies);
            let mut others: Vec<_> = named.filter(|(id, body)| id != body).collect();
            others.sort_unstable();
            others
        });
        self
    }

    /// Takes the bodies from another roster of the same participant, to restore a checkpoint.
    pub(crate) fn with_bodies_of(self, other: &mut Self) -> Self {
        Self { bodies: other.bodies.take(), ..self }
    }

    /// True if particles belong to bodies that rotate.
    pub(crate) fn has_bodies(&self) -> bool {
        self.bodies.is_some()
    }

    /// The particle that names the body of a known particle: itself, if it is a body of its own.
    pub(crate) fn body(&self, id: ParticleId) -> ParticleId {
        let bodies = self.bodies.as_deref().unwrap_or_default();
        bodies.binary_search_by_key(&id, |named| named.0).map_or(id, |at| bodies[at].1)
    }

    fn from_rows(rows: &[(ParticleId, f64, f64)]) -> Self {
        let counted = rows.iter().enumerate().all(|(at, row)| row.0.0 == at as u64);
        let ids = if counted {
            Ids::CountedTo(rows.len() as u64)
        } else {
            Ids::Listed(rows.iter().map(|row| row.0).collect())
        };
        let radius = rows.iter().map(|row| row.2);
        Self {
            ids,
            radius_range: range(radius),
            mass: Column::new(rows.iter().map(|row| row.1).collect()),
            radius: Column::new(rows.iter().map(|row| row.2).collect()),
            bodies: None,
        }
    }

    /// The sum over movable particles of a quantity of mass [kg] and radius [m].
    pub(crate) fn sum_movable(&self, of: impl Fn(f64, f64) -> f64) -> f64 {
        let one = |at: usize| (self.mass.get(at), self.radius.get(at));
        let movable = (0..self.len() as usize).map(one).filter(|(mass, _)| mass.is_finite());
        movable.map(|(mass, radius)| of(mass, radius)).sum()
    }

    /// The smallest and the largest radius [m]; infinite and 0 without particles.
    pub(crate) fn radius_range(&self) -> (f64, f64) {
        self.radius_range
    }

    /// True if a particle is known.
    pub(crate) fn contains(&self, id: ParticleId) -> bool {
        self.place(id).is_some()
    }

    fn place(&self, id: ParticleId) -> Option<usize> {
        match &self.ids {
            Ids::CountedTo(end) => (id.0 < *end).then_some(id.0 as usize),
            Ids::Listed(ids) => ids.binary_search(&id).ok(),
        }
    }

    /// Sets `order` to the places of `ids` in ascending order of id. No id may stand twice.
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
            // A bucket for each known id is faster, unless few ids are asked for.
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

    /// Upper bound of the number of cells of a lattice that the spheres touch, with radii larger by the part
    /// `margin`.
    pub(crate) fn cells_max(&self, lattice: &Lattice, margin: f64) -> u64 {
        let cells = |radius: f64| (2.0 * radius * (1.0 + margin) / lattice.cell_size).floor() + 2.0;
        let sum = match &self.radius {
            Column::Uniform(radius) => cells(*radius).powi(3) * self.len() as f64,
            Column::Each(each) => each.iter().map(|&radius| cells(radius).powi(3)).sum(),
        };
        sum as u64
    }

    /// Checks the speeds that a participant reports against its radii and the velocities that it sent.
    ///
    /// # Errors
    /// Numbers that cannot all be true.
    pub(crate) fn check_speeds(&self, totals: &Totals, told: &[DVec3]) -> Result<(), String> {
        let (speed, rate, (smallest, largest)) =
            (totals.speed_max, totals.radius_rate_max, self.radius_range);
        // Squares of much smaller numbers underflow.
        if self.len() > 0 && speed > 1e-100 {
            let (low, high) = (speed / largest, speed / smallest);
            if !(low * (1.0 - ROUNDING)..=high * (1.0 + ROUNDING)).contains(&rate) {
                return Err(format!(
                    "radius_rate_max is {} 1/s, but with speed_max {} m/s and radii from {} to {} m it must be from {} to {}",
                    number(rate),
                    number(speed),
                    number(smallest),
                    number(largest),
                    number(low),
                    number(high)
                ));
            }
        }
        let fastest = reduce::max(told.len(), 0.0, |i| told[i].length());
        if fastest > speed * (1.0 + ROUNDING) && fastest > 1e-100 {
            return Err(format!(
                "speed_max is {} m/s, but a particle moves at {} m/s",
                number(speed),
                number(fastest)
            ));
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> u64 {
        match &self.ids {
            Ids::CountedTo(end) => *end,
            Ids::Listed(ids) => ids.len() as u64,
        }
    }

    /// Takes over births, deaths and particles that are no longer immovable.
    ///
    /// # Errors
    /// A birth or death that is impossible.
    pub(crate) fn update(&mut self, committed: &Committed) -> Result<(), String> {
        if !(committed.born.is_empty() && committed.dead.is_empty()) {
            self.replace(committed)?;
        }
        self.release(committed)?;
        let (known, told) = (self.len(), committed.particles);
        if known == told {
            Ok(())
        } else {
            Err(format!("it says it has {told} particles, but {known} are known"))
        }
    }

    /// Gives particles that are no longer immovable their mass.
    fn release(&mut self, committed: &Committed) -> Result<(), String> {
        if committed.released.is_empty() {
            return Ok(());
        }
        let mut masses: Vec<f64> = (0..self.len() as usize).map(|at| self.mass.get(at)).collect();
        for &(id, mass) in &committed.released {
            let Some(at) = self.place(id) else {
                return Err(format!("particle {id} was released, but is unknown"));
            };
            if masses[at].is_finite() {
                return Err(format!("particle {id} was released, but was not immovable"));
            }
            masses[at] = mass;
        }
        self.mass = Column::new(masses);
        Ok(())
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
        *self = Self { bodies: self.bodies.take(), ..Self::from_rows(&rows) };
        Ok(())
    }
}
