//! Grains cut among ranks: which grains each rank has, and columns of all of them.
//!
//! Space is cut into boxes of whole cells, one per rank, so that each has about as many grains. Contacts
//! between grains are found by the kit wherever grains are, and attraction needs all of them everywhere. So
//! grains need not change ranks as soon as they leave their box.

use amalgam_particles::{DVec3, ParticleId, Particles};
use amalgam_solver_kit::{Decomposition, Moves, Ranks};

use crate::grains::gravity::Masses;

/// Edge of a cell, in largest diameters of grains.
const DIAMETERS: f64 = 4.0;
/// Steps after which space is cut anew. In between, a grain moves by a few diameters.
const PERIOD: u64 = 16;

/// The part of the grains that this rank has.
#[derive(Clone, Debug, Default)]
pub(super) struct Share {
    pub(super) ranks: Ranks,
    /// Edge of a cell [m].
    cell: f64,
    /// Grains of all ranks. Their ids are the numbers below.
    count: usize,
    /// Masses of the grains of all ranks [kg], by id, if there are several ranks and grains attract each other.
    mass: Vec<f64>,
    /// Steps committed since space was first cut.
    steps: u64,
}

impl Share {
    /// The grains of all ranks, of which this rank has laid out some. Collective.
    pub(super) fn new(ranks: &Ranks, particles: &Particles) -> Self {
        let mut radius = [particles.radius.iter().copied().fold(0.0, f64::max)];
        ranks.max(&mut radius);
        let mut count = [particles.len() as i64];
        ranks.sum(&mut count);
        let (cell, count) = (DIAMETERS * 2.0 * radius[0], count[0] as usize);
        Self { ranks: ranks.clone(), cell, count, ..Self::default() }
    }

    /// Counts a step. True if grains may change ranks after it.
    pub(super) fn is_due(&mut self) -> bool {
        self.steps += 1;
        !self.ranks.is_alone() && self.steps.is_multiple_of(PERIOD)
    }

    /// Cuts space anew, and says which grains thus change ranks. Collective.
    pub(super) fn moves(&self, particles: &Particles) -> Moves {
        let position = &particles.position;
        let cell = |i: usize| (position[i] / self.cell).floor().to_array().map(|place| place as i32);
        let cut = Decomposition::balanced(&self.ranks, cell, position.len(), 1);
        let owners: Vec<u32> = (0..position.len()).map(|i| cut.owner(cell(i)) as u32).collect();
        Moves::new(&self.ranks, &owners)
    }

    /// Moves grains to their new ranks, with their values in `others`. Collective.
    pub(super) fn apply<'a>(
        &self,
        moves: &Moves,
        particles: &'a mut Particles,
        others: impl IntoIterator<Item = &'a mut Vec<DVec3>>,
    ) {
        let Particles { id, position, velocity, mass, radius, immovable } = particles;
        moves.apply(&self.ranks, id);
        [position, velocity].into_iter().chain(others).for_each(|column| moves.apply(&self.ranks, column));
        [mass, radius].into_iter().for_each(|column| moves.apply(&self.ranks, column));
        let mut held: Vec<u8> = immovable.iter().map(|&held| u8::from(held)).collect();
        moves.apply(&self.ranks, &mut held);
        *immovable = held.into_iter().map(|held| held != 0).collect();
    }

    /// The number of grains of all ranks.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Keeps the masses of all ranks' grains for [`Self::with_all`]. Collective.
    pub(super) fn keep_masses(&mut self, own: &Particles) {
        if !self.ranks.is_alone() {
            let masses = own.id.iter().map(|id| id.0 as usize).zip(own.mass.iter().copied());
            self.mass = self.ranks.shared(self.count, masses);
        }
    }

    /// Calls `use_all` with the positions and masses of all ranks. Collective.
    pub(super) fn with_all<T>(&self, own: &Particles, use_all: impl FnOnce(Masses<'_>) -> T) -> T {
        if self.ranks.is_alone() {
            return use_all(Masses { position: &own.position, mass: &own.mass });
        }
        let positions = own.id.iter().map(|id| id.0 as usize).zip(own.position.iter().copied());
        let position = self.ranks.shared(self.count, positions);
        use_all(Masses { position: &position, mass: &self.mass })
    }

    /// A column of all ranks in the order of ids, at the first rank; nothing at others. Collective.
    pub(super) fn whole_column(&self, id: &[ParticleId], own: &[DVec3]) -> Vec<DVec3> {
        let gathered = self.ranks.gather(id.to_vec()).zip(self.ranks.gather(own.to_vec()));
        let Some((ids, values)) = gathered else { return Vec::new() };
        let mut whole = vec![DVec3::ZERO; self.count];
        for (id, value) in ids.iter().flatten().zip(values.into_iter().flatten()) {
            whole[id.0 as usize] = value;
        }
        whole
    }
}
