//! Particles of other ranks near own ones, for contacts between them.
//!
//! Each rank tells the others of a box around its particles. Where two boxes meet, either rank sends the
//! other its particles in the other's box: these are the other's **ghosts**. So no solver has to say how it
//! is cut, and a particle that strays is found wherever it is. Everything here is collective.

use amalgam_particles::{DVec3, ParticleId, Particles, reduce};
use amalgam_ranks::Ranks;
use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;

/// A box around spheres; the empty one meets no other.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Bounds {
    low: DVec3,
    high: DVec3,
}

impl Bounds {
    const EMPTY: Self = Self { low: DVec3::INFINITY, high: DVec3::NEG_INFINITY };

    fn of_sphere(centre: DVec3, radius: f64) -> Self {
        Self { low: centre - radius, high: centre + radius }
    }

    fn of_spheres(position: &[DVec3], radius: &[f64]) -> Self {
        let least = |axis: usize, sign: f64| {
            -reduce::max(position.len(), f64::NEG_INFINITY, |i| radius[i] - sign * position[i][axis])
        };
        if position.is_empty() {
            return Self::EMPTY;
        }
        Self {
            low: DVec3::new(least(0, 1.0), least(1, 1.0), least(2, 1.0)),
            high: -DVec3::new(least(0, -1.0), least(1, -1.0), least(2, -1.0)),
        }
    }

    fn meets(&self, other: &Self) -> bool {
        self.low.cmple(other.high).all() && other.low.cmple(self.high).all()
    }
}

/// A particle of another rank.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Ghost {
    id: u64,
    position: DVec3,
    radius: f64,
    is_immovable: u64,
}

impl Ghost {
    fn of(particles: &Particles, i: u32) -> Self {
        let i = i as usize;
        Self {
            id: particles.id[i].0,
            position: particles.position[i],
            radius: particles.radius[i],
            is_immovable: u64::from(particles.immovable[i]),
        }
    }
}

/// The ghosts of this rank, and the particles of this rank that are ghosts of others. Both lists name the
/// same particles until the next [`Self::find`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Ghosts {
    all: Vec<Ghost>,
    /// Ranks with which ghosts are exchanged.
    with: Vec<usize>,
    /// The own particles that are ghosts of each of them.
    seen: Vec<Vec<u32>>,
}

impl Ghosts {
    /// Finds the ghosts of all ranks. Two spheres with these values of `radius` [m] that intersect, one on
    /// this rank and one on another, are then among own particles and ghosts.
    pub(crate) fn find(&mut self, ranks: &Ranks, particles: &Particles, radius: &[f64]) {
        if ranks.is_alone() {
            return;
        }
        let position = &particles.position;
        let own = Bounds::of_spheres(position, radius);
        let boxes = ranks.broadcast(ranks.gather(vec![own]).map(|boxes| boxes.concat()).unwrap_or_default());
        let others = (0..ranks.size()).filter(|&other| other != ranks.rank());
        self.with = others.filter(|&other| own.meets(&boxes[other])).collect();
        let seen = |other: &usize| {
            let is_near =
                |&i: &u32| Bounds::of_sphere(position[i as usize], radius[i as usize]).meets(&boxes[*other]);
            (0..position.len() as u32).into_par_iter().with_min_len(reduce::CHUNK).filter(is_near).collect()
        };
        self.seen = self.with.iter().map(seen).collect();
        self.follow(ranks, particles);
    }

    /// Updates the state of the ghosts, which stay the same particles.
    pub(crate) fn follow(&mut self, ranks: &Ranks, particles: &Particles) {
        self.all = self.ask(ranks, |i| Ghost::of(particles, i));
    }

    /// The ghosts' values from the ranks that have them, in the order of the ghosts.
    pub(crate) fn ask<T: Pod>(&self, ranks: &Ranks, own: impl Fn(u32) -> T) -> Vec<T> {
        if ranks.is_alone() {
            return Vec::new();
        }
        let of = |seen: &Vec<u32>| seen.iter().map(|&i| own(i)).collect();
        ranks.exchange(&self.with, self.seen.iter().map(of).collect()).concat()
    }

    /// Own particles with the ghosts behind them.
    pub(crate) fn beside<'a>(&'a self, own: &'a Particles) -> Beside<'a> {
        Beside { own, ghosts: &self.all }
    }
}

/// Own particles with ghosts behind them, by place.
#[derive(Clone, Copy)]
pub(crate) struct Beside<'a> {
    own: &'a Particles,
    ghosts: &'a [Ghost],
}

impl Beside<'_> {
    pub(crate) fn len(&self) -> usize {
        self.own.len() + self.ghosts.len()
    }

    /// True if the particle is this rank's own.
    pub(crate) fn is_own(&self, i: u32) -> bool {
        (i as usize) < self.own.len()
    }

    fn ghost(&self, i: u32) -> &Ghost {
        &self.ghosts[i as usize - self.own.len()]
    }

    pub(crate) fn id(&self, i: u32) -> ParticleId {
        self.own.id.get(i as usize).copied().unwrap_or_else(|| ParticleId(self.ghost(i).id))
    }

    pub(crate) fn position(&self, i: u32) -> DVec3 {
        self.own.position.get(i as usize).copied().unwrap_or_else(|| self.ghost(i).position)
    }

    pub(crate) fn radius(&self, i: u32) -> f64 {
        self.own.radius.get(i as usize).copied().unwrap_or_else(|| self.ghost(i).radius)
    }

    pub(crate) fn is_immovable(&self, i: u32) -> bool {
        self.own.immovable.get(i as usize).copied().unwrap_or_else(|| self.ghost(i).is_immovable != 0)
    }
}

#[cfg(test)]
mod tests {
    use amalgam_particles::random;

    use super::*;

    fn crowd() -> Particles {
        let mut particles = Particles::default();
        for i in 0..400u64 {
            let x = DVec3::from_array([0, 1, 2].map(|axis| random::uniform_f64(&[i, axis])));
            particles.push(ParticleId(i), x, DVec3::ZERO, 1.0, 0.03, i % 7 == 0);
        }
        particles
    }

    #[test]
    fn every_pair_of_two_ranks_is_seen_by_both() {
        let all = crowd();
        let part = |ranks: Ranks| {
            let rank = ranks.rank() as u64;
            // The last rank has nothing; some particles are far from the others of their rank.
            let owner = |i: u64| {
                if i.is_multiple_of(50) { i / 50 % 3 } else { (all.position[i as usize].x * 3.0) as u64 }
            };
            let own: Vec<u32> = (0..400u32).filter(|&i| owner(u64::from(i)) == rank).collect();
            let mut particles = all.clone();
            particles.reorder(&own);
            let mut ghosts = Ghosts::default();
            ghosts.find(&ranks, &particles, &particles.radius);
            let beside = ghosts.beside(&particles);
            for i in own {
                for j in (0..400u32).filter(|&j| owner(u64::from(j)) != rank) {
                    let (a, b) = (i as usize, j as usize);
                    if all.position[a].distance(all.position[b]) < all.radius[a] + all.radius[b] {
                        let found = (0..beside.len() as u32).find(|&k| beside.id(k) == all.id[b]);
                        let found = found.expect("a ghost");
                        assert_eq!(beside.position(found), all.position[b]);
                        assert_eq!(beside.is_immovable(found), all.immovable[b]);
                        assert!(!beside.is_own(found));
                    }
                }
            }
            beside.len() - particles.len()
        };
        std::thread::scope(|scope| {
            let ranks: Vec<_> =
                Ranks::threads(4).into_iter().map(|ranks| scope.spawn(|| part(ranks))).collect();
            let ghosts: Vec<usize> = ranks.into_iter().map(|rank| rank.join().expect("a rank")).collect();
            assert!(ghosts[0] > 10 && ghosts[3] == 0, "{ghosts:?}");
        });
    }
}
