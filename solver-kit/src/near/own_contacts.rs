//! Contacts of a body with itself. The solver's own service finds them, so that only particles in contact
//! travel to the coordinator.

use amalgam_particles::{ContactLookAhead, DVec3, PairFinder, ParticleId, Particles, Spheres, reduce};
use amalgam_ranks::{ExactSum, Ranks};
use rayon::prelude::*;

use crate::error::SolverError;
use crate::ids::IdIndex;
use crate::near::ghosts::{Beside, Ghosts};
use crate::solver::Solver;

/// Finds which of a body's particles intersect each other (rule 1, Eq. 21 [Truong2021]), or may within a
/// look-ahead time, joined ones excepted.
///
/// The search looks a little farther than needed and its result, a list of near pairs [Verlet1967], serves
/// until particles have moved too far for it. Contacts are then found exactly, in time proportional to the
/// list. For a cloth or a solid that is not folded, the list is almost empty.
///
/// If the body is cut among ranks, each lists the pairs that its own particles make with each other and with
/// its ghosts. All ranks make new lists at the same time. Contacts do not depend on lists, so they do not
/// depend on ranks.
pub(crate) struct OwnContacts {
    ranks: Ranks,
    finder: PairFinder,
    /// Least distance beyond contact that a list covers [m].
    skin: f64,
    /// Distance beyond contact that the list covers [m].
    listed_skin: f64,
    /// Pairs of places, ghosts behind own particles; the first one of a pair is always own.
    near: Vec<(u32, u32)>,
    /// Ids and positions of own particles for which the list was made.
    listed: (Vec<ParticleId>, Vec<DVec3>),
    ghosts: Ghosts,
    touching: Vec<(u32, u32)>,
    /// Speed that each particle may have within the look-ahead time [m/s].
    speed: Vec<f64>,
    /// True if pairs may collide that were joined across ranks when the list was made.
    is_outdated: bool,
}

/// A list covers gaps of up to this many times the reach of the fastest particle within the look-ahead time,
/// if this is more than the skin.
const RESERVE: f64 = 2.0;

impl OwnContacts {
    /// Contacts of a solver in its initial state, which every rank has whole.
    ///
    /// # Errors
    /// If two immovable particles of it intersect: no velocity can part them.
    pub(crate) fn new(ranks: &Ranks, solver: &dyn Solver) -> Result<Self, SolverError> {
        let Particles { id, position, radius, immovable, .. } = solver.particles();
        let mut largest = [radius.iter().fold(f64::NEG_INFINITY, |largest, radius| largest.max(-radius))];
        ranks.max(&mut largest);
        let mut this = Self {
            ranks: ranks.clone(),
            finder: PairFinder::new(),
            // The smallest radius: a thinner skin would make lists shorter and searches more frequent.
            skin: -largest[0],
            listed_skin: 0.0,
            near: Vec::new(),
            listed: (Vec::new(), Vec::new()),
            ghosts: Ghosts::default(),
            touching: Vec::new(),
            speed: Vec::new(),
            is_outdated: false,
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

    /// The pairs of places `(i, j)`, `i < j`, that may touch within the look-ahead time, sorted. On ranks, a
    /// pair has two own particles, or an own one and a ghost, which is behind all own ones. Collective.
    pub(crate) fn update(&mut self, solver: &dyn Solver, look_ahead: ContactLookAhead) -> &[(u32, u32)] {
        let particles = solver.particles();
        let velocity = &particles.velocity;
        let fastest = reduce::max(velocity.len(), 0.0, |i| velocity[i].length());
        let is_outdated = self.is_outdated || self.listed.0 != particles.id;
        let mut largest = [fastest, f64::from(u8::from(is_outdated))];
        self.ranks.max(&mut largest);
        let [fastest, outdated] = largest;
        let reach = 2.0 * look_ahead.reach(fastest + look_ahead.acceleration * look_ahead.time);
        if outdated == 0.0 && self.still_holds(particles, reach) {
            self.ghosts.follow(&self.ranks, particles);
        } else {
            self.list(solver, reach);
        }
        let Self { ranks, near, ghosts, speed, touching, .. } = self;
        let all = ghosts.beside(particles);
        if look_ahead.time > 0.0 {
            foresee(ranks, look_ahead, (near, ghosts), particles, speed);
        }
        touching.clear();
        touching.par_extend(near.par_iter().with_min_len(reduce::CHUNK).copied().filter(|&(i, j)| {
            let mut reach = all.radius(i) + all.radius(j);
            if look_ahead.time > 0.0 {
                reach += look_ahead.reach(speed[i as usize]) + look_ahead.reach(speed[j as usize]);
            }
            all.position(i).distance_squared(all.position(j)) < reach * reach
                && !(all.is_immovable(i) && all.is_immovable(j))
        }));
        touching
    }

    /// The pairs of the last update that this rank reports: those with a ghost are left to the rank that has
    /// the lower id.
    pub(crate) fn reported(&self, particles: &Particles) -> Vec<[ParticleId; 2]> {
        let all = self.ghosts.beside(particles);
        let pairs = self.touching.iter().map(|&(i, j)| (j, [all.id(i), all.id(j)]));
        pairs.filter(|&(j, [a, b])| all.is_own(j) || a < b).map(|(_, pair)| pair).collect()
    }

    /// Lets pairs collide whose bonds broke, before their particles are stored in another order.
    pub(crate) fn allow(&mut self, broken: &[(ParticleId, ParticleId)], ids: &IdIndex) {
        for &(a, b) in broken {
            match (ids.find(a), ids.find(b)) {
                (Some(i), Some(j)) => self.near.push((i.min(j), i.max(j))),
                _ => self.is_outdated = true,
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

    /// True if every pair that can intersect now is on the list of this rank or another; the ids are those of
    /// the list. The gap of a pair shrinks by at most the sum of the two displacements. These are measured
    /// from the mean displacement, so that motion as a whole does not count. Collective.
    fn still_holds(&self, particles: &Particles, reach: f64) -> bool {
        let old = &self.listed.1;
        let count = particles.len();
        let moved = |i: usize| particles.position[i] - old[i];
        let sum = reduce::sum(count, DVec3::ZERO, moved).to_array();
        let mean = DVec3::from_array(mean(&self.ranks, sum, count));
        let mut farthest = [reduce::max(count, 0.0, |i| (moved(i) - mean).length())];
        self.ranks.max(&mut farthest);
        // A little less than half: the sum and the distances of the search are rounded.
        farthest[0] < 0.499 * (self.listed_skin - reach)
    }

    /// Makes a new list. Collective.
    fn list(&mut self, solver: &dyn Solver, reach: f64) {
        let particles = solver.particles();
        let Particles { id, position, radius, .. } = particles;
        self.listed_skin = self.skin.max(RESERVE * reach);
        let wide = |radius: f64| radius + 0.5 * self.listed_skin;
        let mut wide_radius: Vec<f64> = radius.iter().map(|&radius| wide(radius)).collect();
        self.ghosts.find(&self.ranks, particles, &wide_radius);
        let all = self.ghosts.beside(particles);
        let (own, count) = (id.len() as u32, all.len() as u32);
        let mut with_ghosts = Vec::new();
        if count > own {
            wide_radius.extend((own..count).map(|i| wide(all.radius(i))));
            with_ghosts.extend((0..count).map(|i| all.position(i)));
        }
        let position_of_all = if count > own { &with_ghosts } else { position };
        let spheres = Spheres { position: position_of_all, radius: &wide_radius, class: None };
        // Pairs of two ghosts are found by the ranks that own them.
        let found = self.finder.find(spheres, |i, j| match (i < own, j < own) {
            (true, true) => !solver.joined(i, j),
            (true, false) => !solver.joined_across(i, all.id(j)),
            (false, true) => !solver.joined_across(j, all.id(i)),
            (false, false) => false,
        });
        self.near.clear();
        self.near.extend_from_slice(found);
        self.is_outdated = false;
        self.listed.0.clone_from(id);
        self.listed.1.clone_from(position);
    }
}

/// The mean of all ranks' terms, of which `sum` is this rank's sum. Collective.
fn mean(ranks: &Ranks, sum: [f64; 3], count: usize) -> [f64; 3] {
    let mut all = [count as i64];
    ranks.sum(&mut all);
    let sums = if ranks.is_alone() {
        sum.to_vec()
    } else {
        ranks.exact_sums(&sum.map(|term| ExactSum::from_iter([term])))
    };
    std::array::from_fn(|axis| sums[axis] / all[0].max(1) as f64)
}

/// The speed that each own particle and each ghost may have within the look-ahead time [m/s]. Collective.
fn foresee(
    ranks: &Ranks,
    look_ahead: ContactLookAhead,
    (near, ghosts): (&[(u32, u32)], &Ghosts),
    particles: &Particles,
    speed: &mut Vec<f64>,
) {
    let all: Beside<'_> = ghosts.beside(particles);
    let gap = |i: u32, j: u32| all.position(i).distance(all.position(j)) - (all.radius(i) + all.radius(j));
    let (velocity, own) = (&particles.velocity, particles.len());
    speed.clear();
    let speeds = velocity.par_iter().with_min_len(reduce::CHUNK).map(|&velocity| look_ahead.speed(velocity));
    speed.par_extend(speeds);
    speed.extend(ghosts.ask(ranks, |i| look_ahead.speed(velocity[i as usize])));
    look_ahead.foresee_with(near, gap, speed, |speed, raised| {
        let goes_on = ranks.any(raised);
        if goes_on && !ranks.is_alone() {
            let (own, of_ghosts) = speed.split_at_mut(own);
            of_ghosts.copy_from_slice(&ghosts.ask(ranks, |i| own[i as usize]));
        }
        goes_on
    });
}

#[cfg(test)]
mod tests {
    use amalgam_particles::{StepEnd, random};

    use super::*;
    use crate::solver::{Answer, Report, Request};

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

        fn integrate(&mut self, _: &Request<'_>, _: &mut Answer) -> Result<(), SolverError> {
            unreachable!("nothing moves but by the test's hand")
        }

        fn commit(&mut self, _: &StepEnd<'_>, _: &[DVec3]) -> Result<Report, SolverError> {
            unreachable!("nothing moves but by the test's hand")
        }
    }

    fn noise(i: u64, step: u64) -> DVec3 {
        DVec3::from_array([0, 1, 2].map(|axis| random::uniform_f64(&[i, step, axis]) - 0.5))
    }

    /// A crowd that flies away as a whole while its particles swarm, grow together, break apart and are
    /// sorted anew.
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
        let mut own = OwnContacts::new(&Ranks::alone(), &body).expect("nothing is immovable");
        body.0.immovable = immovable;
        let (mut searches, mut total) = (0, 0);
        for step in 0..60 {
            if step == 30 {
                body.0.id.swap(5, 17);
                body.0.position.swap(5, 17);
            }
            let before = own.listed.1.clone();
            let found = own.update(&body, ContactLookAhead::default()).to_vec();
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

    /// A swarm whose particles go from rank to rank, as one that is whole: contacts, and what may touch
    /// within a look-ahead time.
    #[test]
    fn ranks_find_the_contacts_of_one() {
        let look_ahead = |step: u64| ContactLookAhead {
            time: if step.is_multiple_of(3) { 0.0 } else { 0.01 },
            acceleration: 10.0,
        };
        let swarm = |ranks: &Ranks| -> Vec<Vec<[ParticleId; 2]>> {
            let mut all = Particles::default();
            for i in 0..400 {
                let radius = if i % 50 == 0 { 0.3 } else { 0.06 };
                all.push(ParticleId(3 * i), 2.0 * noise(i, 0), DVec3::ZERO, 1.0, radius, false);
            }
            let mut body = Body(all.clone(), Vec::new());
            let mut before = Vec::new();
            let mut own = OwnContacts::new(ranks, &body).expect("nothing is immovable");
            let step = |step: u64| {
                // Everyone moves all particles, and takes over those that it has.
                all.position.iter_mut().zip(0..).for_each(|(x, i)| *x += 0.02 * noise(i, step + 1));
                let hasty = |i: u64| if i.is_multiple_of(40) { 8.0 } else { 0.5 };
                all.velocity.iter_mut().zip(0..).for_each(|(v, i)| *v = hasty(i) * noise(i, step + 100));
                all.immovable
                    .iter_mut()
                    .zip(0u64..)
                    .for_each(|(held, i)| *held = (i + step / 10).is_multiple_of(9));
                // Lists hold for some steps.
                if step.is_multiple_of(5) {
                    before.clone_from(&all.position);
                }
                let owner = |i: usize| {
                    let strays = (i as u64 + step / 10).is_multiple_of(31);
                    let place = ((before[i].x + 1.0).max(0.0) * 0.5 * ranks.size() as f64) as usize;
                    if strays { i % ranks.size() } else { place.min(ranks.size() - 1) }
                };
                let mut mine: Vec<u32> = (0..400).filter(|&i| owner(i as usize) == ranks.rank()).collect();
                if step / 5 % 2 == 1 {
                    mine.reverse();
                }
                body.0 = all.clone();
                body.0.reorder(&mine);
                own.update(&body, look_ahead(step));
                let named = own.reported(&body.0).into_iter().map(|[a, b]| [a.min(b), a.max(b)]);
                let mut named = ranks.broadcast(ranks.gather(named.collect()).unwrap_or_default().concat());
                named.sort_unstable();
                named
            };
            (0..40).map(step).collect()
        };
        let alone = swarm(&Ranks::alone());
        assert!(alone.iter().all(|contacts| contacts.len() > 100), "too thin a swarm");
        for size in [2, 3, 5] {
            std::thread::scope(|scope| {
                let swarm = &swarm;
                let ranks: Vec<_> = Ranks::threads(size)
                    .into_iter()
                    .map(|ranks| scope.spawn(move || swarm(&ranks)))
                    .collect();
                for rank in ranks {
                    assert_eq!(rank.join().expect("a rank"), alone, "{size} ranks");
                }
            });
        }
    }
}
