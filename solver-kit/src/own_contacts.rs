//! Contacts of a body with itself. They are found where the body is, so that no other particle of it has to travel.

use amalgam_particles::{DVec3, Horizon, PairFinder, ParticleId, Particles, Spheres, reduce};
use rayon::prelude::*;

use crate::ids::IdIndex;
use crate::solver::{Solver, SolverError};

/// Finds which of a body's particles intersect each other (rule 1, Eq. 21 [Truong2021]), or may within a horizon, joined
/// ones excepted.
///
/// The search looks a little farther than needed and its result, a list of near pairs [Verlet1967], serves
/// until particles have moved too far for it. Contacts are then found exactly, in time proportional to the
/// list. Of a cloth or a solid that is not folded the list is almost empty.
pub(crate) struct OwnContacts {
    finder: PairFinder,
    /// Least distance beyond contact that a list covers [m].
    skin: f64,
    /// Distance beyond contact that the list covers [m].
    listed_skin: f64,
    near: Vec<(u32, u32)>,
    /// Ids and positions for which the list was made.
    listed: (Vec<ParticleId>, Vec<DVec3>),
    touching: Vec<(u32, u32)>,
    /// Speed that each particle may have within the horizon [m/s].
    speed: Vec<f64>,
}

/// A list reaches this many times as far as what moves fastest does within the horizon, if that is more than the skin.
const RESERVE: f64 = 2.0;

impl OwnContacts {
    /// Contacts of a solver in its initial state.
    ///
    /// # Errors
    /// If two immovable particles of it intersect: no velocity can part them.
    pub(crate) fn new(solver: &dyn Solver) -> Result<Self, SolverError> {
        let Particles { id, position, radius, immovable, .. } = solver.particles();
        let mut this = Self {
            finder: PairFinder::new(),
            // Shorter lists for more searches: a pair within a radius of touching is on it.
            skin: radius.iter().copied().fold(f64::INFINITY, f64::min),
            listed_skin: 0.0,
            near: Vec::new(),
            listed: (Vec::new(), Vec::new()),
            touching: Vec::new(),
            speed: Vec::new(),
        };
        let fixed: Vec<usize> = (0..id.len()).filter(|&i| immovable[i]).collect();
        let spheres = Spheres {
            position: &fixed.iter().map(|&i| position[i]).collect::<Vec<_>>(),
            radius: &fixed.iter().map(|&i| radius[i]).collect::<Vec<_>>(),
            class: None,
        };
        let free_to_touch =
            |i: u32, j: u32| !solver.joined(fixed[i as usize] as u32, fixed[j as usize] as u32);
        if let Some(&(i, j)) = this.finder.find(spheres, free_to_touch).first() {
            let (a, b) = (id[fixed[i as usize]], id[fixed[j as usize]]);
            return Err(SolverError(format!(
                "{a} and {b} are immovable particles that overlap at the start; no velocity can part them: move one, \
                 make it smaller or make it movable"
            )));
        }
        Ok(this)
    }

    /// The pairs of places `(i, j)`, `i < j`, that may touch within the horizon, sorted.
    pub(crate) fn update(&mut self, solver: &dyn Solver, horizon: Horizon) -> &[(u32, u32)] {
        let particles = solver.particles();
        let Particles { position, velocity, radius, immovable, .. } = particles;
        let fastest = reduce::max(velocity.len(), 0.0, |i| velocity[i].length());
        let reach = 2.0 * horizon.reach(fastest + horizon.acceleration * horizon.time);
        if !self.still_holds(particles, reach) {
            self.list(solver, reach);
        }
        let Self { near, speed, touching, .. } = self;
        if horizon.time > 0.0 {
            let gap = |i: u32, j: u32| {
                let (i, j) = (i as usize, j as usize);
                position[i].distance(position[j]) - radius[i] - radius[j]
            };
            speed.clear();
            speed.par_extend(velocity.par_iter().with_min_len(4096).map(|&velocity| horizon.speed(velocity)));
            horizon.foresee(near, gap, speed);
        }
        touching.clear();
        touching.par_extend(near.par_iter().with_min_len(4096).copied().filter(|&(i, j)| {
            let (i, j) = (i as usize, j as usize);
            let mut reach = radius[i] + radius[j];
            if horizon.time > 0.0 {
                reach += horizon.reach(speed[i]) + horizon.reach(speed[j]);
            }
            position[i].distance_squared(position[j]) < reach * reach && !(immovable[i] && immovable[j])
        }));
        touching
    }

    /// Lets pairs collide whose bonds broke, before their particles are stored in another order.
    pub(crate) fn allow(&mut self, broken: &[(ParticleId, ParticleId)], ids: &IdIndex) {
        for &(a, b) in broken {
            if let (Some(i), Some(j)) = (ids.find(a), ids.find(b)) {
                self.near.push((i.min(j), i.max(j)));
            }
        }
        if !broken.is_empty() {
            // The list is sorted already, which this sort makes use of.
            self.near.par_sort();
            self.near.dedup();
        }
    }

    /// Forgets the list, for particles that are somewhere else and may be joined otherwise.
    pub(crate) fn forget(&mut self) {
        self.near.clear();
        self.listed_skin = 0.0;
    }

    /// True if every pair that can intersect now is on the list. Two particles come closer by no more than the sum
    /// of what each has moved, from whatever moving frame that is seen.
    fn still_holds(&self, particles: &Particles, reach: f64) -> bool {
        let (ids, old) = &self.listed;
        let count = particles.len();
        if *ids != particles.id {
            return false;
        }
        let moved = |i: usize| particles.position[i] - old[i];
        let mean = reduce::sum(count, DVec3::ZERO, moved) / count.max(1) as f64;
        // A little less than half, since this sum is rounded and the distances of the search are, too.
        reduce::max(count, 0.0, |i| (moved(i) - mean).length()) < 0.499 * (self.listed_skin - reach)
    }

    fn list(&mut self, solver: &dyn Solver, reach: f64) {
        let Particles { id, position, radius, .. } = solver.particles();
        self.listed_skin = self.skin.max(RESERVE * reach);
        let wide: Vec<f64> = radius.iter().map(|r| r + 0.5 * self.listed_skin).collect();
        let spheres = Spheres { position, radius: &wide, class: None };
        let found = self.finder.find(spheres, |i, j| !solver.joined(i, j));
        self.near.clear();
        self.near.extend_from_slice(found);
        self.listed.0.clone_from(id);
        self.listed.1.clone_from(position);
    }
}

#[cfg(test)]
mod tests {
    use amalgam_particles::{StepEnd, random};

    use super::*;
    use crate::solver::{Answer, Report, Stage};

    /// Particles with some pairs joined.
    struct Body(Particles, Vec<(ParticleId, ParticleId)>);

    impl Solver for Body {
        fn particles(&self) -> &Particles {
            &self.0
        }

        fn joined(&self, a: u32, b: u32) -> bool {
            let (a, b) = (self.0.id[a as usize], self.0.id[b as usize]);
            self.1.contains(&(a.max(b), a.min(b)))
        }

        fn integrate(&mut self, _: &Stage<'_>, _: &mut Answer) -> Result<(), SolverError> {
            unreachable!("nothing moves but by the test's hand")
        }

        fn commit(&mut self, _: &StepEnd<'_>, _: &[DVec3]) -> Result<Report, SolverError> {
            unreachable!("nothing moves but by the test's hand")
        }
    }

    fn noise(i: u64, step: u64) -> DVec3 {
        DVec3::from_array([0, 1, 2].map(|axis| random::uniform_f64(&[i, step, axis]) - 0.5))
    }

    /// A crowd that flies away as a whole while its particles swarm, grow together, break apart and are sorted anew.
    #[test]
    fn contacts_are_those_of_every_pair_in_every_step() {
        let mut particles = Particles::default();
        for i in 0..400 {
            let radius = if i % 50 == 0 { 0.5 } else { 0.1 };
            particles.push(ParticleId(3 * i), 2.0 * noise(i, 0), DVec3::ZERO, 1.0, radius, i % 9 == 0);
        }
        let joined = |i: u64, j: u64| i != j && (i + j).is_multiple_of(7);
        let mut pairs = Vec::new();
        for i in 0..400 {
            pairs.extend((0..i).filter(|&j| joined(i, j)).map(|j| (ParticleId(3 * i), ParticleId(3 * j))));
        }
        // So that nothing immovable overlaps at the start.
        let immovable = std::mem::replace(&mut particles.immovable, vec![false; 400]);
        let mut body = Body(particles, pairs);
        let mut own = OwnContacts::new(&body).expect("nothing is immovable");
        body.0.immovable = immovable;
        let (mut searches, mut total) = (0, 0);
        for step in 0..60 {
            if step == 30 {
                body.0.id.swap(5, 17);
                body.0.position.swap(5, 17);
            }
            let before = own.listed.1.clone();
            let found = own.update(&body, Horizon::default()).to_vec();
            let Particles { id, position, radius, immovable, .. } = &body.0;
            let mut expected = Vec::new();
            for i in 0..400usize {
                for j in i + 1..400 {
                    let (a, b) = (id[i].max(id[j]), id[i].min(id[j]));
                    if position[i].distance(position[j]) < radius[i] + radius[j]
                        && !(immovable[i] && immovable[j])
                        && !body.1.contains(&(a, b))
                    {
                        expected.push((i as u32, j as u32));
                    }
                }
            }
            assert_eq!(found, expected, "step {step}");
            searches += usize::from(own.listed.1 != before);
            total += found.len();
            let mut ids = IdIndex::default();
            ids.update(&body.0.id);
            let left = body.1.len() * 49 / 50;
            let broken: Vec<_> = body.1.drain(left..).collect();
            own.allow(&broken, &ids);
            let gust = DVec3::new(0.3, -0.2, 0.05);
            body.0.position.iter_mut().zip(0..).for_each(|(x, i)| *x += gust + 0.02 * noise(i, step + 1));
        }
        assert!(total > 1_000 && (2..30).contains(&searches), "{total} contacts, {searches} searches");
    }
}
