//! Pairs of particles in contact, and those of them that approach each other (`docs/theory/coupling.md`,
//! "Contacts").

pub(crate) mod facets;
pub(crate) mod mesh;
pub(crate) mod sieve;

use amalgam_particles::{DVec3, PairFinder, ParticleId, Spheres};
use amalgam_proto::contract::Batch;
use rayon::prelude::*;

use crate::participant::roster::Roster;

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

/// Number of bits of an id.
const ID_BITS: u32 = 48;

impl Candidates {
    /// Number of candidates.
    pub fn len(&self) -> usize {
        self.id.len()
    }

    /// True if there is no candidate.
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

    /// Takes over a batch of particles of each participant, with the order of its particles by id.
    pub(crate) fn update(&mut self, batches: &[Batch], order: &[Vec<u32>], rosters: &[&Roster]) {
        if batches.iter().any(|batch| batch.id.is_some()) {
            self.name(batches, order, rosters);
        }
        self.position.clear();
        self.velocity.clear();
        for (batch, order) in batches.iter().zip(order) {
            let places = || order.iter().map(|&place| place as usize);
            self.position.extend(places().map(|i| batch.position[i]));
            self.velocity.extend(places().map(|i| batch.velocity[i]));
        }
    }

    /// Sets the columns that stay unchanged while the participants send the same particles.
    fn name(&mut self, batches: &[Batch], order: &[Vec<u32>], rosters: &[&Roster]) {
        let before = std::mem::take(&mut self.id);
        let firsts: Vec<usize> = (0..=batches.len()).map(|k| self.first(k as u16)).collect();
        self.participant.clear();
        self.mass.clear();
        self.radius.clear();
        for (k, (batch, order)) in batches.iter().zip(order).enumerate() {
            match &batch.id {
                Some(ids) => self.id.extend(order.iter().map(|&place| ids[place as usize])),
                None => self.id.extend(&before[firsts[k]..firsts[k + 1]]),
            }
            let ids = &self.id[self.mass.len()..];
            rosters[k].masses(ids, &mut self.mass);
            rosters[k].radii(ids, &mut self.radius);
            self.participant.resize(self.id.len(), k as u16);
        }
    }

    /// The first candidate of a participant.
    pub(crate) fn first(&self, participant: u16) -> usize {
        self.participant.partition_point(|&other| other < participant)
    }

    /// True if no contact changes the candidate's velocity.
    #[inline]
    pub fn is_immovable(&self, index: u32) -> bool {
        self.mass[index as usize].is_infinite()
    }

    /// Distance of two candidates' surfaces [m], negative where they intersect.
    pub fn gap(&self, i: u32, j: u32) -> f64 {
        let (i, j) = (i as usize, j as usize);
        self.position[i].distance(self.position[j]) - self.radius[i] - self.radius[j]
    }

    /// Participant and id as one number, with the same order.
    #[inline]
    pub fn global_id(&self, index: u32) -> u64 {
        u64::from(self.participant[index as usize]) << ID_BITS | self.id[index as usize].0
    }
}

/// Pairs of candidate indices `(i, j)` with `i < j`, each list sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contacts {
    /// Pairs that intersect and approach (both rules, Eq. 21-22 [Truong2021]).
    pub active: Vec<(u32, u32)>,
    /// Pairs that intersect and do not approach.
    pub marked: Vec<(u32, u32)>,
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

/// Pairs in a task. For fewer it does not pay to wake another thread.
const PAIRS_IN_TASK: usize = 1 << 15;

/// Rule 2 (Eq. 22 [Truong2021]): two particles approach if x . v < 0, with x and v the position and velocity
/// of one relative to the other. If the centres coincide, any relative motion counts, because the split then
/// parts the pair against its motion.
#[inline]
pub fn approaches(relative_position: DVec3, relative_velocity: DVec3) -> bool {
    let nowhere = (relative_position == DVec3::ZERO) & (relative_velocity != DVec3::ZERO);
    (relative_position.dot(relative_velocity) < 0.0) | nowhere
}

/// Parts `pairs` into those that approach when each candidate has the velocity that `velocity` says [m/s],
/// and the rest, both in the same order: step 6 of `docs/theory/coupling.md`, "One coupled step".
pub fn approaching(
    candidates: &Candidates,
    pairs: &[(u32, u32)],
    velocity: impl Fn(u32) -> DVec3 + Sync,
    found: &mut Vec<(u32, u32)>,
    rest: &mut Vec<(u32, u32)>,
) {
    let approach = |i, j| {
        let n = candidates.position[j as usize] - candidates.position[i as usize];
        approaches(n, velocity(j) - velocity(i))
    };
    partition(pairs, approach, found, rest);
}

/// Parts `pairs` into those for which `holds` is true, and the rest, both in the same order.
fn partition(
    pairs: &[(u32, u32)],
    holds: impl Fn(u32, u32) -> bool + Sync,
    found: &mut Vec<(u32, u32)>,
    rest: &mut Vec<(u32, u32)>,
) {
    // A processor could not predict a branch here. Each pair is written to both lists, and the next pair
    // overwrites the copy that must not stay.
    let part = |((pairs, found), rest): ((&[_], &mut [_]), &mut [_])| {
        let mut count = 0;
        for (at, &(i, j)) in pairs.iter().enumerate() {
            (found[count], rest[at - count]) = ((i, j), (i, j));
            count += usize::from(holds(i, j));
        }
        count
    };
    found.resize(pairs.len(), (0, 0));
    rest.resize(pairs.len(), (0, 0));
    if pairs.len() <= PAIRS_IN_TASK {
        let count = part(((pairs, found), rest));
        found.truncate(count);
        rest.truncate(pairs.len() - count);
        return;
    }
    let tasks = pairs.par_chunks(PAIRS_IN_TASK).zip(found.par_chunks_mut(PAIRS_IN_TASK));
    let counts: Vec<usize> = tasks.zip(rest.par_chunks_mut(PAIRS_IN_TASK)).map(part).collect();
    let (mut found_end, mut rest_end) = (0, 0);
    for (task, count) in counts.into_iter().enumerate() {
        let start = task * PAIRS_IN_TASK;
        let others = PAIRS_IN_TASK.min(pairs.len() - start) - count;
        found.copy_within(start..start + count, found_end);
        rest.copy_within(start..start + others, rest_end);
        (found_end, rest_end) = (found_end + count, rest_end + others);
    }
    found.truncate(found_end);
    rest.truncate(rest_end);
}

/// Finds contacts: first the pairs that are near [Verlet1967], then, as long as no particle has moved far,
/// the near pairs that touch.
#[derive(Debug, Default)]
pub struct ContactFinder {
    finder: PairFinder,
    grown: Vec<f64>,
    /// Global ids of the candidates in near pairs, ascending.
    listed: Vec<u64>,
    /// Near pairs, as places in `listed`, sorted.
    listed_pairs: Vec<(u32, u32)>,
    /// Near pairs, as candidates, sorted.
    near: Vec<(u32, u32)>,
    /// Candidate index of each listed particle at the last search; [`GONE`] if it was no candidate.
    place: Vec<u32>,
    bits: Ranked,
    /// Near pairs that touch, and those that do not.
    pairs: Vec<(u32, u32)>,
    apart: Vec<(u32, u32)>,
    contacts: Contacts,
}

/// A set of indices that can count the indices below each.
#[derive(Debug, Default)]
pub(crate) struct Ranked {
    words: Vec<u64>,
    /// Number of indices in all words before each.
    before: Vec<u32>,
}

impl Ranked {
    /// Forgets all and makes room for indices below `end`.
    pub(crate) fn clear(&mut self, end: usize) {
        self.words.clear();
        self.words.resize(end.div_ceil(64), 0);
    }

    #[inline]
    pub(crate) fn insert(&mut self, index: u32) {
        self.words[index as usize / 64] |= 1 << (index % 64);
    }

    /// Counts the inserted indices, for [`Self::rank`].
    fn count(&mut self) {
        let mut sum = 0;
        self.before.clear();
        self.before.extend(self.words.iter().map(|word| {
            sum += word.count_ones();
            sum - word.count_ones()
        }));
    }

    /// Number of indices below this one.
    #[inline]
    fn rank(&self, index: u32) -> u32 {
        let word = index as usize / 64;
        self.before[word] + (self.words[word] & ((1 << (index % 64)) - 1)).count_ones()
    }

    /// All indices, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.words).flat_map(|(at, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(64 * at + bit)
            })
        })
    }
}

/// Index of no candidate.
const GONE: u32 = u32::MAX;

impl ContactFinder {
    /// A finder that knows no pairs yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// All contacts among the candidates: the pairs of different participants that intersect, and `own`,
    /// pairs `(i, j)`, `i < j`, that participants found among their own particles. Two immovable particles
    /// are no contact: it could never be resolved.
    pub fn detect(&mut self, candidates: &Candidates, own: &[(u32, u32)]) -> &Contacts {
        self.list(candidates, &[], &[]);
        self.touching(candidates, own)
    }

    /// Finds the pairs of different participants that intersect if every sphere is larger by its
    /// participant's `margin`, a part of its radius, and by its `span` [m]. No other pairs can touch before a
    /// particle has moved farther than its margin.
    pub fn list(&mut self, candidates: &Candidates, margin: &[f64], span: &[f64]) {
        let Self { finder, grown, listed, listed_pairs, near, place, bits, .. } = self;
        grown.clear();
        let of = |column: &[f64], &k: &u16| column.get(usize::from(k)).copied().unwrap_or(0.0);
        let radii = candidates.radius.iter().zip(&candidates.participant);
        grown.extend(radii.map(|(radius, k)| radius * (1.0 + of(margin, k)) + of(span, k)));
        let spheres =
            Spheres { position: &candidates.position, radius: grown, class: Some(&candidates.participant) };
        let movable = |i, j| !(candidates.is_immovable(i) && candidates.is_immovable(j));
        let found = finder.find(spheres, movable);
        bits.clear(candidates.len());
        found.iter().for_each(|&(i, j)| {
            bits.insert(i);
            bits.insert(j);
        });
        bits.count();
        place.clear();
        place.extend(bits.iter());
        listed.clear();
        listed.extend(place.iter().map(|&i| candidates.global_id(i)));
        near.clear();
        near.extend_from_slice(found);
        listed_pairs.clear();
        listed_pairs.extend(found.iter().map(|&(i, j)| (bits.rank(i), bits.rank(j))));
    }

    /// The particles of a participant that were listed, ascending.
    pub(crate) fn listed(&self, participant: u16) -> Vec<ParticleId> {
        let start = |participant: u64| self.listed.partition_point(|&id| id < participant << ID_BITS);
        let participant = u64::from(participant);
        let ids = self.listed[start(participant)..start(participant + 1)].iter();
        ids.map(|id| ParticleId(id & ((1 << ID_BITS) - 1))).collect()
    }

    /// The contacts among listed particles that are candidates, and the contacts among `own` pairs, as in
    /// [`Self::detect`].
    pub fn touching(&mut self, candidates: &Candidates, own: &[(u32, u32)]) -> &Contacts {
        self.find_listed(candidates);
        let Candidates { position, radius, .. } = candidates;
        let touch = |i: u32, j: u32| {
            let (a, b) = (i as usize, j as usize);
            let reach = radius[a] + radius[b];
            position[a].distance_squared(position[b]) < reach * reach
        };
        let Self { near, pairs, apart, contacts, .. } = self;
        partition(near, touch, pairs, apart);
        if !own.is_empty() {
            let movable =
                |&&(i, j): &&(u32, u32)| !(candidates.is_immovable(i) && candidates.is_immovable(j));
            pairs.extend(own.iter().filter(movable));
            pairs.par_sort_unstable();
        }
        let velocity = |i| candidates.velocity[i as usize];
        approaching(candidates, pairs, velocity, &mut contacts.active, &mut contacts.marked);
        &self.contacts
    }

    /// The pairs of listed particles whose surfaces are nearer to each other than the sum of what `reach`
    /// says for both [m], and `own` pairs, sorted. Two immovable particles are no pair.
    pub(crate) fn within(
        &mut self,
        candidates: &Candidates,
        own: &[(u32, u32)],
        reach: impl Fn(u32) -> f64 + Sync,
    ) -> &[(u32, u32)] {
        self.find_listed(candidates);
        let Candidates { position, radius, .. } = candidates;
        let is_near = |i: u32, j: u32| {
            let (a, b) = (i as usize, j as usize);
            let distance = radius[a] + radius[b] + reach(i) + reach(j);
            position[a].distance_squared(position[b]) < distance * distance
        };
        let Self { near, pairs, apart, .. } = self;
        partition(near, is_near, pairs, apart);
        if !own.is_empty() {
            let movable =
                |&&(i, j): &&(u32, u32)| !(candidates.is_immovable(i) && candidates.is_immovable(j));
            pairs.extend(own.iter().filter(movable));
            pairs.par_sort_unstable();
        }
        pairs
    }

    /// The pairs that the last search found.
    pub(crate) fn found(&self) -> &[(u32, u32)] {
        &self.pairs
    }

    /// The listed pairs of candidates, sorted, once [`Self::within`] or [`Self::touching`] has found them.
    pub(crate) fn near(&self) -> &[(u32, u32)] {
        &self.near
    }

    /// Finds the candidates of the listed pairs. A pair with a particle that is no candidate is left out.
    fn find_listed(&mut self, candidates: &Candidates) {
        let Self { listed, listed_pairs, near, place, .. } = self;
        let (mut next, mut moved) = (0, false);
        for (&id, place) in listed.iter().zip(&mut *place) {
            let is_at = |i: u32| (i as usize) < candidates.len() && candidates.global_id(i) == id;
            // Most particles have the same index as at the last search.
            if !is_at(*place) {
                while (next as usize) < candidates.len() && candidates.global_id(next) < id {
                    next += 1;
                }
                let found = if is_at(next) { next } else { GONE };
                moved |= found != *place;
                *place = found;
            }
            next = if *place == GONE { next } else { *place + 1 };
        }
        if moved {
            near.clear();
            let placed = listed_pairs.iter().map(|&(i, j)| (place[i as usize], place[j as usize]));
            near.extend(placed.filter(|&(i, j)| i != GONE && j != GONE));
        }
    }

    /// Number of distances computed in the last search: a cost that is the same on every machine.
    pub fn distances(&self) -> u64 {
        self.finder.distances()
    }
}
