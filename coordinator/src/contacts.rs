//! Which particles touch, and which of those approach each other (`docs/method.md`, "Contacts").

mod excluded;
mod vicinity;

use std::ops::Range;

use amalgam_particles::{CellGrid, DVec3, ParticleId};
use rayon::prelude::*;

pub use excluded::ExcludedPairs;
use vicinity::Vicinity;

/// The particles that may take part in contacts in a step, a column per field, sorted by (participant, id).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Candidates {
    /// Index of the participant that the particle belongs to.
    pub participant: Vec<u16>,
    /// Id inside the participant.
    pub id: Vec<ParticleId>,
    /// Position [m].
    pub position: Vec<DVec3>,
    /// Velocity [m/s].
    pub velocity: Vec<DVec3>,
    /// Mass [kg]; infinite for an immovable particle.
    pub mass: Vec<f64>,
    /// Collision radius [m].
    pub radius: Vec<f64>,
}

impl Candidates {
    /// Number of candidates.
    pub fn len(&self) -> usize {
        self.id.len()
    }

    /// Whether there is no candidate.
    pub fn is_empty(&self) -> bool {
        self.id.is_empty()
    }

    /// Forgets all candidates and keeps the memory.
    pub fn clear(&mut self) {
        self.participant.clear();
        self.id.clear();
        self.position.clear();
        self.velocity.clear();
        self.mass.clear();
        self.radius.clear();
    }

    /// Whether no contact changes the candidate's velocity.
    #[inline]
    pub fn is_immovable(&self, index: u32) -> bool {
        self.mass[index as usize].is_infinite()
    }

    /// One number for (participant, id), in the same order.
    #[inline]
    pub fn global_id(&self, index: u32) -> u64 {
        u64::from(self.participant[index as usize]) << 48 | self.id[index as usize].0
    }
}

/// Which pairs may be contacts at all. Particles of different participants always may.
#[derive(Clone, Copy, Debug)]
pub struct ContactRules<'a> {
    /// For each participant, whether its own particles collide with each other.
    pub self_colliding: &'a [bool],
    /// For each participant, its own pairs that are no contacts: those joined by an unbroken spring or bond.
    pub never: &'a [ExcludedPairs],
    /// Whether to report pairs of two immovable particles. They can never be resolved, so a step does not want them;
    /// the check of a scene before it starts does.
    pub immovable_pairs: bool,
}

/// Pairs of candidate indices `(i, j)` with `i < j`, each list sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contacts {
    /// Pairs that intersect and approach (both rules, Eq. 21-22 [Truong2021]).
    pub active: Vec<(u32, u32)>,
    /// Pairs that intersect and do not approach.
    pub marked: Vec<(u32, u32)>,
    /// Distances computed to find them: what the search cost, the same on every machine.
    pub distances: u64,
}

impl Contacts {
    /// All pairs, in order.
    pub fn pairs(&self) -> impl Iterator<Item = (u32, u32)> {
        // Both lists are sorted and share no pair.
        let (mut active, mut marked) = (self.active.iter().peekable(), self.marked.iter().peekable());
        std::iter::from_fn(move || match (active.peek(), marked.peek()) {
            (Some(a), Some(m)) if m < a => marked.next().copied(),
            (Some(_), _) => active.next().copied(),
            (None, _) => marked.next().copied(),
        })
    }
}

/// Rule 2 (Eq. 22 [Truong2021]): whether two particles approach, given the position and the velocity of one relative
/// to the other. The rule says nothing when the centres coincide; any relative motion counts then, because the
/// splitting gives such a pair a direction that separates it (`split`).
#[inline]
pub fn approaches(relative_position: DVec3, relative_velocity: DVec3) -> bool {
    relative_position.dot(relative_velocity) < 0.0
        || (relative_position == DVec3::ZERO && relative_velocity != DVec3::ZERO)
}

/// Puts into `found` those of `pairs` that approach when each candidate has the velocity that `velocity` says
/// [m/s], in the same order: step 5 of `docs/method.md`, "One coupled step".
pub fn approaching(
    candidates: &Candidates,
    pairs: &[(u32, u32)],
    velocity: impl Fn(u32) -> DVec3 + Sync,
    found: &mut Vec<(u32, u32)>,
) {
    found.clear();
    found.par_extend(pairs.par_iter().with_min_len(2048).copied().filter(|&(i, j)| {
        let n = candidates.position[j as usize] - candidates.position[i as usize];
        approaches(n, velocity(j) - velocity(i))
    }));
}

/// Finds contacts. It keeps only memory between steps, no state.
///
/// Candidates are dealt into *cohorts*: those that may collide with each other (all self-colliding participants
/// together; any other participant by itself) and whose radii lie within a factor of two. Each two cohorts that may
/// collide are searched once: the finer one looks into the coarser one's cell grid, whose cells are as wide as the
/// sum of their largest radii, so that one huge particle costs one look for each small one and never a wide
/// search. At equal coarseness the larger cohort looks into the smaller one's grid: most of it is turned away by one
/// bit (`Vicinity`), and only the smaller one and those near it are sorted. A fluid that does not collide with
/// itself is never compared with itself.
#[derive(Debug, Default)]
pub struct ContactFinder {
    runs: Vec<Vec<Run>>,
    cohorts: Vec<Cohort>,
    searches: Vec<Search>,
    tasks: Vec<(usize, usize)>,
    /// One for each task.
    near: Vec<Vec<u32>>,
    /// One for each task.
    found: Vec<Found>,
    contacts: Contacts,
}

/// What one task found.
#[derive(Debug, Default)]
struct Found {
    /// Seeker, what it found, and the way from the one to the other [m].
    intersecting: Vec<(u32, u32, DVec3)>,
    active: Vec<(u32, u32)>,
    marked: Vec<(u32, u32)>,
    distances: u64,
}

/// Consecutive candidates of one cohort.
#[derive(Clone, Copy, Debug)]
struct Run {
    key: CohortKey,
    start: u32,
    end: u32,
    largest_radius: f64,
}

#[derive(Debug, Default)]
struct Cohort {
    key: CohortKey,
    largest_radius: f64,
    /// Candidate indices, ascending.
    members: Vec<u32>,
    /// How far a contact with this cohort reaches at most [m]; 0 if no search looks into it: then it is not sorted.
    reach: f64,
    sorted: Sorted,
    vicinity: Vicinity,
}

/// Some candidates in the order of a cell grid: neighbours in space are neighbours in memory.
#[derive(Debug, Default)]
struct Sorted {
    grid: CellGrid,
    position: Vec<DVec3>,
    /// Position and radius: the one packed record, for the innermost loop.
    sphere: Vec<[f64; 4]>,
    /// Candidate indices.
    index: Vec<u32>,
}

/// Who collides with whom and how fine: the class in the high bits, the level in the low [`LEVEL_BITS`].
type CohortKey = u32;

/// Exponents of doubles differ by less than 2^12.
const LEVEL_BITS: u32 = 12;

/// The class of all self-colliding participants.
const SELF_COLLIDING: u32 = 0;

/// One cohort looks into another one's grid, or into its own.
#[derive(Debug, Default)]
struct Search {
    seeker: usize,
    target: usize,
    /// The seekers that may be near the target. In the target's order, or nearly, they find what they look at in
    /// cache: in the order of ids, which for a mixed fluid says nothing of places, the search took twice as long.
    near: Sorted,
    members: Vec<u32>,
}

/// Candidates in a task.
const CHUNK: usize = 4096;

/// Cells are wider than a contact can reach by this much, so that rounding of x / cell cannot carry a neighbour
/// beyond the next cell: up to 2^31 cells from the origin that rounding is below 2.4e-7 of a cell.
const CELL_SLACK: f64 = 1e-6;

impl ContactFinder {
    /// A finder without memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// All contacts among the candidates.
    ///
    /// # Panics
    /// If `rules` has fewer entries than there are participants, or a radius is not positive.
    pub fn detect(&mut self, candidates: &Candidates, rules: &ContactRules<'_>) -> &Contacts {
        self.deal(candidates, rules);
        self.plan_searches();
        self.cohorts
            .par_iter_mut()
            .filter(|cohort| cohort.reach > 0.0)
            .for_each(|cohort| cohort.build(candidates));
        self.gather_seekers(candidates);
        self.search(candidates, rules);
        self.collect();
        &self.contacts
    }

    /// Deals the candidates into cohorts, sorted by key.
    fn deal(&mut self, candidates: &Candidates, rules: &ContactRules<'_>) {
        let largest = amalgam_particles::reduce::max(candidates.len(), 0.0, |i| candidates.radius[i]);
        let key = |i: usize| {
            let participant = candidates.participant[i];
            let class = match rules.self_colliding[usize::from(participant)] {
                true => SELF_COLLIDING,
                false => 1 + u32::from(participant),
            };
            class << LEVEL_BITS | level(largest / candidates.radius[i])
        };
        let chunks = candidates.len().div_ceil(CHUNK);
        if self.runs.len() < chunks {
            self.runs.resize_with(chunks, Vec::new);
        }
        self.runs[..chunks].par_iter_mut().enumerate().for_each(|(chunk, runs)| {
            runs.clear();
            let mut run = Run { key: 0, start: 0, end: 0, largest_radius: 0.0 };
            for i in chunk * CHUNK..((chunk + 1) * CHUNK).min(candidates.len()) {
                let (key, radius) = (key(i), candidates.radius[i]);
                if key != run.key || run.end == 0 {
                    runs.extend((run.end > 0).then_some(run));
                    run = Run { key, start: i as u32, end: 0, largest_radius: 0.0 };
                }
                (run.end, run.largest_radius) = (i as u32 + 1, radius.max(run.largest_radius));
            }
            runs.push(run);
        });
        let runs = self.runs[..chunks].iter().flatten();
        let mut keys: Vec<CohortKey> = Vec::new();
        for run in runs.clone() {
            if let Err(place) = keys.binary_search(&run.key) {
                keys.insert(place, run.key);
            }
        }
        self.cohorts.resize_with(keys.len(), Cohort::default);
        for (cohort, &key) in self.cohorts.iter_mut().zip(&keys) {
            (cohort.key, cohort.largest_radius, cohort.reach) = (key, 0.0, 0.0);
            cohort.members.clear();
        }
        for run in runs {
            let cohort = &mut self.cohorts[keys.partition_point(|&key| key < run.key)];
            cohort.largest_radius = cohort.largest_radius.max(run.largest_radius);
            cohort.members.extend(run.start..run.end);
        }
    }

    /// Decides who looks into whose grid.
    fn plan_searches(&mut self) {
        let Self { cohorts, searches, .. } = self;
        let mut count = 0;
        for b in 0..cohorts.len() {
            for a in 0..=b {
                if cohorts[a].class() == cohorts[b].class() && cohorts[a].class() != SELF_COLLIDING {
                    continue;
                }
                // Finer first; at equal fineness, more members first.
                let rank = |c: usize| (cohorts[c].level(), cohorts[c].members.len());
                let (seeker, target) = if rank(a) >= rank(b) { (a, b) } else { (b, a) };
                let reach = cohorts[seeker].largest_radius + cohorts[target].largest_radius;
                cohorts[target].reach = cohorts[target].reach.max(reach);
                if searches.len() == count {
                    searches.push(Search::default());
                }
                (searches[count].seeker, searches[count].target) = (seeker, target);
                count += 1;
            }
        }
        searches.truncate(count);
    }

    /// Finds for each search the seekers that may be near the target, and sorts them.
    fn gather_seekers(&mut self, candidates: &Candidates) {
        let Self { cohorts, searches, tasks, near, .. } = self;
        cut(tasks, searches, |search| if search.is_own() { 0 } else { cohorts[search.seeker].members.len() });
        if near.len() < tasks.len() {
            near.resize_with(tasks.len(), Vec::new);
        }
        tasks.par_iter().zip(near.par_iter_mut()).for_each(|(&(search, start), near)| {
            let members = &cohorts[searches[search].seeker].members;
            let vicinity = &cohorts[searches[search].target].vicinity;
            let members = &members[start..(start + CHUNK).min(members.len())];
            // Every member is written and only those near are kept: who is near cannot be predicted.
            near.resize(members.len(), 0);
            let mut count = 0;
            for &i in members {
                near[count] = i;
                count += usize::from(vicinity.contains(candidates.position[i as usize]));
            }
            near.truncate(count);
        });
        searches.iter_mut().for_each(|search| search.members.clear());
        for (&(search, _), near) in tasks.iter().zip(near.iter()) {
            searches[search].members.extend_from_slice(near);
        }
        searches.par_iter_mut().filter(|search| !search.is_own()).for_each(|search| {
            search.near.build(candidates, &search.members, cohorts[search.target].cell_size());
        });
    }

    fn search(&mut self, candidates: &Candidates, rules: &ContactRules<'_>) {
        let Self { cohorts, searches, tasks, found, .. } = self;
        cut(tasks, searches, |search| search.seekers(cohorts).index.len());
        if found.len() < tasks.len() {
            found.resize_with(tasks.len(), Found::default);
        }
        tasks.par_iter().zip(found.par_iter_mut()).for_each(|(&(search, start), found)| {
            let search = &searches[search];
            let (seekers, target) = (search.seekers(cohorts), &cohorts[search.target]);
            let range = start..(start + CHUNK).min(seekers.index.len());
            if search.is_own() {
                found.look::<true>((seekers, range), &target.sorted);
            } else {
                found.look::<false>((seekers, range), &target.sorted);
            }
            let one_class = cohorts[search.seeker].class() == target.class();
            found.judge(candidates, rules, one_class);
        });
    }

    /// Every pair was found once, so that the sorted lists do not depend on who found it.
    fn collect(&mut self) {
        self.contacts.active.clear();
        self.contacts.marked.clear();
        self.contacts.distances = 0;
        for found in &self.found[..self.tasks.len()] {
            self.contacts.active.extend_from_slice(&found.active);
            self.contacts.marked.extend_from_slice(&found.marked);
            self.contacts.distances += found.distances;
        }
        let key = |&(i, j): &(u32, u32)| u64::from(i) << 32 | u64::from(j);
        self.contacts.active.par_sort_unstable_by_key(key);
        self.contacts.marked.par_sort_unstable_by_key(key);
    }
}

/// Cuts searches into tasks: (index of the search, its first seeker).
fn cut(tasks: &mut Vec<(usize, usize)>, searches: &[Search], seekers: impl Fn(&Search) -> usize) {
    tasks.clear();
    for (index, search) in searches.iter().enumerate() {
        tasks.extend((0..seekers(search)).step_by(CHUNK).map(|start| (index, start)));
    }
}

impl Search {
    fn is_own(&self) -> bool {
        self.seeker == self.target
    }

    fn seekers<'a>(&'a self, cohorts: &'a [Cohort]) -> &'a Sorted {
        if self.is_own() { &cohorts[self.target].sorted } else { &self.near }
    }
}

impl Cohort {
    fn class(&self) -> u32 {
        self.key >> LEVEL_BITS
    }

    fn level(&self) -> u32 {
        self.key & ((1 << LEVEL_BITS) - 1)
    }

    fn cell_size(&self) -> f64 {
        self.reach * (1.0 + CELL_SLACK)
    }

    fn build(&mut self, candidates: &Candidates) {
        let cell_size = self.cell_size();
        self.sorted.build(candidates, &self.members, cell_size);
        self.vicinity.rebuild(&self.sorted.sphere, cell_size);
    }
}

impl Sorted {
    fn build(&mut self, candidates: &Candidates, members: &[u32], cell_size: f64) {
        let Self { grid, position, sphere, index } = self;
        position.clear();
        position.par_extend(members.par_iter().with_min_len(CHUNK).map(|&i| candidates.position[i as usize]));
        grid.rebuild(position, cell_size);
        index.clear();
        index.par_extend(grid.order().par_iter().with_min_len(CHUNK).map(|&k| members[k as usize]));
        sphere.clear();
        sphere.par_extend(grid.order().par_iter().zip(&*index).with_min_len(CHUNK).map(|(&k, &i)| {
            let x = position[k as usize];
            [x.x, x.y, x.z, candidates.radius[i as usize]]
        }));
    }
}

/// How many times a radius can be doubled before it exceeds the largest one: the exponent of `ratio >= 1`.
#[inline]
fn level(ratio: f64) -> u32 {
    (ratio.to_bits() >> 52) as u32 - 1023
}

impl Found {
    /// Looks for what intersects with a range of seekers. Among their own cohort (`OWN`) each looks only at what is
    /// sorted before it, so that each pair is found once.
    fn look<const OWN: bool>(&mut self, (seekers, range): (&Sorted, Range<usize>), target: &Sorted) {
        self.intersecting.clear();
        self.distances = 0;
        for place in range {
            let [x0, x1, x2, r] = seekers.sphere[place];
            let (x, i) = (DVec3::new(x0, x1, x2), seekers.index[place]);
            for &(start, end) in target.grid.runs(x).as_slice() {
                let end = if OWN { (end as usize).min(place) } else { end as usize };
                let run = (start as usize).min(end)..end;
                self.distances += run.len() as u64;
                for (&[y0, y1, y2, radius], &j) in target.sphere[run.clone()].iter().zip(&target.index[run]) {
                    // Rule 1, Eq. 21 [Truong2021].
                    let n = DVec3::new(y0, y1, y2) - x;
                    if n.length_squared() < (r + radius) * (r + radius) {
                        self.intersecting.push((i, j, n));
                    }
                }
            }
        }
    }

    /// Deals the intersecting pairs that may be contacts into active and marked ones. Only pairs of one class may
    /// belong to one participant.
    fn judge(&mut self, candidates: &Candidates, rules: &ContactRules<'_>, one_class: bool) {
        self.active.clear();
        self.marked.clear();
        for &(i, j, n) in &self.intersecting {
            if !rules.immovable_pairs && candidates.is_immovable(j) && candidates.is_immovable(i) {
                continue;
            }
            let (a, b) = (i as usize, j as usize);
            if one_class && candidates.participant[a] == candidates.participant[b] {
                let never = &rules.never[usize::from(candidates.participant[a])];
                if never.contains(candidates.id[a], candidates.id[b]) {
                    continue;
                }
            }
            let pair = (i.min(j), i.max(j));
            if approaches(n, candidates.velocity[b] - candidates.velocity[a]) {
                self.active.push(pair);
            } else {
                self.marked.push(pair);
            }
        }
    }
}
