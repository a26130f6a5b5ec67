//! Search for pairs of spheres that intersect (rule 1, Eq. 21 [Truong2021]).

mod vicinity;

use std::ops::Range;

use glam::DVec3;
use rayon::prelude::*;

use crate::grid::CellGrid;
use crate::reduce::{self, CHUNK};
use vicinity::Vicinity;

/// Spheres, a column per field.
#[derive(Clone, Copy, Debug)]
pub struct Spheres<'a> {
    /// Centres [m].
    pub position: &'a [DVec3],
    /// Radii [m], positive.
    pub radius: &'a [f64],
    /// Spheres of one class are not compared with each other; without classes, all are compared.
    pub class: Option<&'a [u16]>,
}

/// Finds intersecting spheres. It keeps only memory between searches, no state.
///
/// Spheres are dealt into *cohorts*: those of one class whose radii lie within a factor of two. Each two
/// cohorts that may intersect are searched once: the finer one looks into the coarser one's cell grid, whose
/// cells are as wide as the sum of their largest radii. So a huge sphere costs one look for each small one,
/// and never a wide search. At equal fineness, the cohort with more members looks into the other one's grid:
/// one bit (`Vicinity`) turns most of its members away. Only the other cohort and the members near it are
/// sorted.
#[derive(Debug, Default)]
pub struct PairFinder {
    runs: Vec<Vec<Run>>,
    cohorts: Vec<Cohort>,
    searches: Vec<Search>,
    tasks: Vec<(usize, usize)>,
    /// Seekers near the target, one list per task.
    near: Vec<Vec<u32>>,
    /// Pairs, one list per task.
    found: Vec<Found>,
    pairs: Vec<(u32, u32)>,
    distances: u64,
}

/// The pairs that one task found.
#[derive(Debug, Default)]
struct Found {
    pairs: Vec<(u32, u32)>,
    distances: u64,
}

/// Consecutive spheres of one cohort.
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
    /// Indices of spheres, ascending.
    members: Vec<u32>,
    /// Largest distance at which a sphere can intersect one of this cohort [m]; 0 if no search looks into it.
    /// It is then not sorted.
    reach: f64,
    sorted: Sorted,
    vicinity: Vicinity,
}

/// Some spheres in the order of a cell grid: neighbours in space are neighbours in memory.
#[derive(Debug, Default)]
struct Sorted {
    grid: CellGrid,
    position: Vec<DVec3>,
    /// Centre and radius: the one packed record, for the innermost loop.
    sphere: Vec<[f64; 4]>,
    /// Indices of spheres.
    index: Vec<u32>,
}

/// Class in the high bits, level of fineness in the low [`LEVEL_BITS`].
type CohortKey = u32;

/// Exponents of doubles differ by less than 2^12.
const LEVEL_BITS: u32 = 12;

/// Search of one cohort in another one's grid, or in its own.
#[derive(Debug, Default)]
struct Search {
    seeker: usize,
    target: usize,
    /// The seekers that may be near the target, nearly in the target's order: neighbours of consecutive
    /// seekers are then in cache. In the order of ids, which in a mixed fluid does not follow positions, the
    /// search took twice as long.
    near: Sorted,
    members: Vec<u32>,
}

/// Cells are wider than spheres can reach by this part, so that rounding of x / cell cannot carry a neighbour
/// beyond the next cell. Up to 2^31 cells from the origin, the rounding is below 2.4e-7 of a cell.
const CELL_SLACK: f64 = 1e-6;

impl PairFinder {
    /// A finder without memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// All pairs `(i, j)`, `i < j`, of spheres that intersect and that `keep` accepts, sorted.
    ///
    /// # Panics
    /// If columns differ in length, or a radius is not positive.
    pub fn find(&mut self, spheres: Spheres<'_>, keep: impl Fn(u32, u32) -> bool + Sync) -> &[(u32, u32)] {
        let Spheres { position, radius, class } = spheres;
        assert!(position.len() == radius.len() && class.is_none_or(|class| class.len() == radius.len()));
        self.deal(spheres);
        self.plan_searches(class.is_none());
        self.cohorts
            .par_iter_mut()
            .filter(|cohort| cohort.reach > 0.0)
            .for_each(|cohort| cohort.build(spheres));
        self.gather_seekers(spheres);
        self.search(&keep);
        self.collect();
        &self.pairs
    }

    /// Number of distances computed in the last search: a measure of its cost that is the same on every
    /// machine.
    pub fn distances(&self) -> u64 {
        self.distances
    }

    /// Deals the spheres into cohorts, sorted by key.
    fn deal(&mut self, Spheres { radius, class, .. }: Spheres<'_>) {
        let count = radius.len();
        let largest = reduce::max(count, 0.0, |i| radius[i]);
        let key = |i: usize| {
            let class = class.map_or(0, |class| u32::from(class[i]));
            class << LEVEL_BITS | level(largest / radius[i])
        };
        let chunks = count.div_ceil(CHUNK);
        if self.runs.len() < chunks {
            self.runs.resize_with(chunks, Vec::new);
        }
        self.runs[..chunks].par_iter_mut().enumerate().for_each(|(chunk, runs)| {
            runs.clear();
            let mut run = Run { key: 0, start: 0, end: 0, largest_radius: 0.0 };
            for i in chunk * CHUNK..((chunk + 1) * CHUNK).min(count) {
                let (key, radius) = (key(i), radius[i]);
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

    /// Decides which cohort looks into which grid.
    fn plan_searches(&mut self, one_class: bool) {
        let Self { cohorts, searches, .. } = self;
        let mut count = 0;
        for b in 0..cohorts.len() {
            for a in 0..=b {
                if !one_class && cohorts[a].class() == cohorts[b].class() {
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
    fn gather_seekers(&mut self, spheres: Spheres<'_>) {
        let Self { cohorts, searches, tasks, near, .. } = self;
        cut(tasks, searches, |search| if search.is_own() { 0 } else { cohorts[search.seeker].members.len() });
        if near.len() < tasks.len() {
            near.resize_with(tasks.len(), Vec::new);
        }
        tasks.par_iter().zip(near.par_iter_mut()).for_each(|(&(search, start), near)| {
            let members = &cohorts[searches[search].seeker].members;
            let vicinity = &cohorts[searches[search].target].vicinity;
            let members = &members[start..(start + CHUNK).min(members.len())];
            // Every member is written, and only near ones advance the count: a branch could not be predicted.
            near.resize(members.len(), 0);
            let mut count = 0;
            for &i in members {
                near[count] = i;
                count += usize::from(vicinity.contains(spheres.position[i as usize]));
            }
            near.truncate(count);
        });
        searches.iter_mut().for_each(|search| search.members.clear());
        for (&(search, _), near) in tasks.iter().zip(near.iter()) {
            searches[search].members.extend_from_slice(near);
        }
        searches.par_iter_mut().filter(|search| !search.is_own()).for_each(|search| {
            search.near.build(spheres, &search.members, cohorts[search.target].cell_size());
        });
    }

    fn search(&mut self, keep: &(impl Fn(u32, u32) -> bool + Sync)) {
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
                found.look::<true>((seekers, range), &target.sorted, keep);
            } else {
                found.look::<false>((seekers, range), &target.sorted, keep);
            }
        });
    }

    /// Sorts the pairs of all tasks. Every pair was found once, so the list does not depend on which task
    /// found it.
    fn collect(&mut self) {
        self.pairs.clear();
        self.distances = 0;
        for found in &self.found[..self.tasks.len()] {
            self.pairs.extend_from_slice(&found.pairs);
            self.distances += found.distances;
        }
        self.pairs.par_sort_unstable_by_key(|&(i, j)| u64::from(i) << 32 | u64::from(j));
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

    fn build(&mut self, spheres: Spheres<'_>) {
        let cell_size = self.cell_size();
        self.sorted.build(spheres, &self.members, cell_size);
        self.vicinity.rebuild(&self.sorted.sphere, cell_size);
    }
}

impl Sorted {
    fn build(&mut self, spheres: Spheres<'_>, members: &[u32], cell_size: f64) {
        let Self { grid, position, sphere, index } = self;
        position.clear();
        position
            .par_extend(members.par_iter().with_min_len(4 * CHUNK).map(|&i| spheres.position[i as usize]));
        grid.rebuild(position, cell_size);
        index.clear();
        index.par_extend(grid.order().par_iter().with_min_len(4 * CHUNK).map(|&k| members[k as usize]));
        sphere.clear();
        sphere.par_extend(grid.order().par_iter().zip(&*index).with_min_len(4 * CHUNK).map(|(&k, &i)| {
            let x = position[k as usize];
            [x.x, x.y, x.z, spheres.radius[i as usize]]
        }));
    }
}

/// Number of times that a radius can be doubled before it exceeds the largest one: the exponent of `ratio >=
/// 1`.
#[inline]
fn level(ratio: f64) -> u32 {
    (ratio.to_bits() >> 52) as u32 - 1023
}

impl Found {
    /// Looks for what intersects with a range of seekers. Among their own cohort (`OWN`) each looks only at
    /// what is sorted before it, so that each pair is found once.
    fn look<const OWN: bool>(
        &mut self,
        (seekers, range): (&Sorted, Range<usize>),
        target: &Sorted,
        keep: &impl Fn(u32, u32) -> bool,
    ) {
        self.pairs.clear();
        self.distances = 0;
        for place in range {
            let [x0, x1, x2, r] = seekers.sphere[place];
            let (x, i) = (DVec3::new(x0, x1, x2), seekers.index[place]);
            for &(start, end) in target.grid.runs(x).as_slice() {
                let end = if OWN { (end as usize).min(place) } else { end as usize };
                let run = (start as usize).min(end)..end;
                self.distances += run.len() as u64;
                for (&[y0, y1, y2, radius], &j) in target.sphere[run.clone()].iter().zip(&target.index[run]) {
                    let n = DVec3::new(y0, y1, y2) - x;
                    if n.length_squared() < (r + radius) * (r + radius) {
                        let (i, j) = (i.min(j), i.max(j));
                        if keep(i, j) {
                            self.pairs.push((i, j));
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random;

    proptest! {
        #![proptest_config(ProptestConfig { max_shrink_iters: 200, ..ProptestConfig::default() })]

        #[test]
        fn finds_every_pair_once(
            seed: u64,
            count in 0usize..400,
            spread in prop::sample::select(vec![1.0f64, 3.0, 100.0, 1e4]),
            scale in prop::sample::select(vec![1.0, 1e-6, 1e5]),
            classes in 0u16..4,
        ) {
            let noise = |i: usize, purpose: u64| random::uniform_f64(&[seed, i as u64, purpose]);
            let edge = 2.0 * (count as f64).cbrt();
            let position: Vec<DVec3> = (0..count)
                .map(|i| DVec3::from_array([0, 1, 2].map(|axis| scale * edge * (noise(i, axis) - 0.5))))
                .collect();
            let radius: Vec<f64> = (0..count).map(|i| scale * spread.powf(noise(i, 4) - 1.0)).collect();
            let class: Vec<u16> = (0..count).map(|i| (noise(i, 5) * f64::from(classes)) as u16).collect();
            let class = (classes > 0).then_some(&class[..]);
            let spheres = Spheres { position: &position, radius: &radius, class };
            let keep = |i: u32, j: u32| !(i + j).is_multiple_of(5);
            let mut expected = Vec::new();
            for i in 0..count {
                for j in i + 1..count {
                    let reach = radius[i] + radius[j];
                    if position[i].distance_squared(position[j]) < reach * reach
                        && class.is_none_or(|class| class[i] != class[j])
                        && keep(i as u32, j as u32)
                    {
                        expected.push((i as u32, j as u32));
                    }
                }
            }
            let mut finder = PairFinder::new();
            // Leftovers of another search must not show.
            finder.find(Spheres { position: &position[count / 2..], radius: &radius[count / 2..], class: None }, |_, _| true);
            prop_assert_eq!(finder.find(spheres, keep), &expected[..]);
        }
    }
}
