//! Choice of the particles that a trial merges and watches.

use std::collections::{HashMap, HashSet};

use amalgam_particles::{CellSet, DVec3, ParticleId, Reach};
use amalgam_proto::contract::{Groups, Integration};

use crate::bench::{Ask, Bench};
use crate::verdict::{Stop, skip};

/// Free particles whose velocities a trial asks for.
const WATCHED: usize = 8;

impl Bench<'_> {
    /// Ids in the order of the state.
    pub(crate) fn ids(&self) -> &[ParticleId] {
        self.state.id.as_deref().unwrap_or_default()
    }

    /// Place of each particle in the state.
    pub(crate) fn places(&self) -> HashMap<ParticleId, usize> {
        self.ids().iter().enumerate().map(|(place, &id)| (id, place)).collect()
    }

    /// Radii [m] in the order of the state.
    pub(crate) fn radii(&self) -> Vec<f64> {
        self.ids().iter().map(|id| self.known[id].radius).collect()
    }

    /// Places of all particles in the state, sorted by id: a service may answer the particles in any order.
    pub(crate) fn by_id(&self) -> Vec<usize> {
        let ids = self.ids();
        let mut places = Vec::from_iter(0..ids.len());
        places.sort_unstable_by_key(|&place| ids[place]);
        places
    }

    /// Places of movable particles in the state, sorted by id.
    pub(crate) fn movable(&self) -> Vec<usize> {
        let ids = self.ids();
        self.by_id().into_iter().filter(|&place| !self.known[&ids[place]].immovable).collect()
    }

    /// The cells that the own particles occupy, if the service asks for occupied cells.
    fn occupied(&self) -> Option<CellSet> {
        let lattice = self.table.occupancy?;
        Some(lattice.occupied(&self.state.position, &self.radii(), Reach::Centre))
    }

    /// Integrate without groups, with some particles watched.
    pub(crate) fn nobody(&self) -> Ask {
        self.ask(&[])
    }

    /// Integrate with groups of these places, each with its members' mass and momentum.
    pub(crate) fn ask(&self, groups: &[Vec<usize>]) -> Ask {
        let ids = self.ids();
        let mut chosen = Groups { occupied: self.occupied(), ..Groups::default() };
        let mut inertia = Vec::new();
        for members in groups {
            let known = |&place: &usize| self.known[&ids[place]];
            let mass: f64 = members.iter().map(|place| known(place).mass).sum();
            let momentum: DVec3 =
                members.iter().map(|place| self.state.velocity[*place] * known(place).mass).sum();
            let fixed = members.iter().find(|place| known(place).immovable);
            chosen.size.push(members.len() as u32);
            chosen.member.extend(members.iter().map(|&place| ids[place]));
            chosen.velocity.push(fixed.map_or(momentum / mass, |&place| self.state.velocity[place]));
            inertia.push(if fixed.is_some() { f64::INFINITY } else { mass });
        }
        let taken: HashSet<ParticleId> = chosen.member.iter().map(|id| self.known[id].body).collect();
        let free = self.movable().into_iter().map(|place| ids[place]);
        chosen.watch = free.filter(|id| !taken.contains(&self.known[id].body)).take(WATCHED).collect();
        let impulse = vec![DVec3::ZERO; inertia.len()];
        Ask { stage: 1, repetition: 0, dt: self.dt, groups: chosen, inertia, impulse }
    }

    /// A group of at most `size` particles near each other, of one body if there are bodies.
    pub(crate) fn group(&self, size: usize) -> Result<Vec<usize>, Stop> {
        let movable = self.movable();
        let Some(&first) = movable.get(movable.len() / 2) else {
            return skip("no particle of this section can move");
        };
        let (ids, position) = (self.ids(), &self.state.position);
        let body = |place: usize| self.known[&ids[place]].body;
        let distance = |place: usize| position[place].distance_squared(position[first]);
        let mut near: Vec<usize> =
            movable.into_iter().filter(|&i| !self.has_bodies() || body(i) == body(first)).collect();
        near.sort_by(|&a, &b| distance(a).total_cmp(&distance(b)).then(ids[a].cmp(&ids[b])));
        near.truncate(size);
        Ok(near)
    }

    /// A group of two particles, or of one where there is no other.
    pub(crate) fn pair(&self) -> Result<Ask, Stop> {
        Ok(self.ask(&[self.group(2)?]))
    }

    /// Relative difference of answers that is no fault: an iteration ends when its tolerance is reached.
    pub(crate) fn tolerance(&self) -> f64 {
        match self.integration {
            Integration::Explicit => 1e-9,
            Integration::Implicit | Integration::Projection => 1e-3,
        }
    }
}
