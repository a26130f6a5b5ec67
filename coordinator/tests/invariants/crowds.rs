//! Detection of contacts and groups among many particles of any size, against brute force.

use amalgam_coordinator::{
    contacts::{Candidates, ContactFinder, Contacts, approaching},
    merging::merge::{Forest, GroupLimit},
    merging::split::SplitSettings,
};
use amalgam_particles::{DVec3, ParticleId, random};
use proptest::prelude::*;

use super::{TOLERANCE, UNLIMITED, cluster, noise, noise3, pair, random_tree};

fn in_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of threads").install(work)
}

/// Candidates of three participants with radii of very different size.
fn crowd(seed: u64, count: usize, spread: f64) -> Candidates {
    let mut keys: Vec<(u16, u64, usize)> = (0..count)
        .map(|i| {
            ((random::bits(&[seed, i as u64, 20]) % 3) as u16, random::bits(&[seed, i as u64, 21]) % 1000, i)
        })
        .collect();
    keys.sort_unstable();
    keys.dedup_by_key(|&mut (participant, id, _)| (participant, id));
    let mut candidates = Candidates::default();
    for (participant, id, i) in keys {
        let r = spread.powf(0.5 * (noise(seed, i, 22) - 1.0));
        candidates.participant.push(participant);
        candidates.id.push(ParticleId(id));
        candidates.position.push(noise3(seed, i, 23) * 3.0);
        candidates.velocity.push(noise3(seed, i, 24));
        candidates.mass.push(if i % 7 == 0 { f64::INFINITY } else { 1.0 });
        candidates.radius.push(r);
    }
    candidates
}

/// Pairs that intersect, of one participant or of different ones.
fn intersecting(candidates: &Candidates, own: bool) -> Vec<(u32, u32)> {
    let mut pairs = Vec::new();
    for i in 0..candidates.len() {
        for j in i + 1..candidates.len() {
            let reach = candidates.radius[i] + candidates.radius[j];
            if (candidates.participant[i] == candidates.participant[j]) == own
                && candidates.position[i].distance_squared(candidates.position[j]) < reach * reach
            {
                pairs.push((i as u32, j as u32));
            }
        }
    }
    pairs
}

/// Rules 1 and 2 for all pairs of different participants and for `own` ones.
fn brute_force(candidates: &Candidates, own: &[(u32, u32)]) -> Contacts {
    let mut contacts = Contacts::default();
    let mut pairs = [&intersecting(candidates, false), own].concat();
    pairs.sort_unstable();
    for (i, j) in pairs {
        if candidates.is_immovable(i) && candidates.is_immovable(j) {
            continue;
        }
        let (a, b) = (i as usize, j as usize);
        let n = candidates.position[b] - candidates.position[a];
        if n.dot(candidates.velocity[b] - candidates.velocity[a]) < 0.0 {
            contacts.active.push((i, j));
        } else {
            contacts.marked.push((i, j));
        }
    }
    contacts
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, ..ProptestConfig::default() })]

    /// A crowd of spheres of all sizes: each moves by less than the margin of its own radius, some die, and
    /// some that are near nobody come and go among the candidates.
    #[test]
    fn a_list_of_near_pairs_serves_until_someone_has_moved_too_far(
        seed: u64,
        count in 0usize..300,
        spread in prop::sample::select(vec![1.0, 3.0, 100.0]),
        margins in prop::array::uniform3(0.0f64..2.0),
    ) {
        let start = crowd(seed, count, spread);
        let mut finder = ContactFinder::new();
        let margin = |i: usize| margins[usize::from(start.participant[i])];
        finder.list(&start, &margins, &[]);
        for step in 0..4 {
            let mut now = Candidates::default();
            for i in (0..start.len()).filter(|&i| random::uniform_f64(&[seed, i as u64, step, 40]) > 0.1) {
                let away = 0.57 * margin(i) * start.radius[i] * noise3(seed, i, 50 + step);
                now.participant.push(start.participant[i]);
                now.id.push(start.id[i]);
                now.position.push(start.position[i] + away);
                now.velocity.push(start.velocity[i]);
                now.mass.push(start.mass[i]);
                now.radius.push(start.radius[i]);
            }
            let own = intersecting(&now, true);
            prop_assert_eq!(finder.touching(&now, &own), &brute_force(&now, &own));
        }
    }

    #[test]
    fn detection_equals_brute_force(
        seed: u64,
        count in 0usize..400,
        spread in prop::sample::select(vec![1.0, 3.0, 100.0, 1e4]),
        scale in prop::sample::select(vec![1.0, 1e-6, 1e5]),
        some_own: bool,
    ) {
        let mut candidates = crowd(seed, count, spread);
        candidates.position.iter_mut().for_each(|x| *x *= scale);
        candidates.radius.iter_mut().for_each(|r| *r *= scale);
        let own = if some_own { intersecting(&candidates, true) } else { Vec::new() };
        let expected = brute_force(&candidates, &own);
        let mut finder = ContactFinder::new();
        // What is left from other steps must not show.
        finder.detect(&crowd(seed ^ 1, 100, 50.0), &[(0, 1)]);
        let found = finder.detect(&candidates, &own);
        prop_assert_eq!(&found.active, &expected.active);
        prop_assert_eq!(&found.marked, &expected.marked);

        let (mut active, mut marked) = (Vec::new(), Vec::new());
        let mut all = [expected.active.clone(), expected.marked.clone()].concat();
        all.sort_unstable();
        approaching(&candidates, &all, |i| candidates.velocity[i as usize], &mut active, &mut marked);
        prop_assert_eq!((active, marked), (expected.active, expected.marked));
    }

    #[test]
    fn groups_keep_their_limit_and_the_velocity_of_what_is_immovable(
        seed: u64, count in 2usize..300, min in 2u32..6, more in 0u32..5, step: u64, keep_lone_contacts: bool,
    ) {
        let mut candidates = crowd(seed, count, 2.0);
        let count = candidates.len();
        for i in 0..count {
            if candidates.is_immovable(i as u32) {
                candidates.velocity[i] = DVec3::X * (i % 2) as f64;
            }
        }
        let mut pairs: Vec<(u32, u32)> = (0..2 * count as u64)
            .map(|k| [0, 1].map(|end| (random::bits(&[seed, k, end, 5]) % count as u64) as u32))
            .filter(|[i, j]| i != j)
            .map(|[i, j]| (i.min(j), i.max(j)))
            .collect();
        pairs.sort_unstable();
        pairs.dedup();
        let limit = GroupLimit { min, max: min + more, keep_lone_contacts, seed, step };
        let mut forest = Forest::new();
        forest.merge(&cluster(seed, 9, 1.0, 0), &random_tree(seed, 9), &UNLIMITED);
        forest.merge(&candidates, &pairs, &limit);

        let mut seen = 0;
        for group in 0..forest.len() {
            let members = forest.members(group);
            prop_assert!(members.len() >= 2);
            prop_assert!(members.is_sorted());
            prop_assert!(group == 0 || forest.members(group - 1)[0] < members[0]);
            prop_assert!(members.iter().all(|&i| forest.group_of(i) == Some(group as u32)));
            seen += members.len();
            let fixed: Vec<u32> = members.iter().copied().filter(|&i| candidates.is_immovable(i)).collect();
            prop_assert_eq!(forest.mass()[group].is_infinite(), !fixed.is_empty());
            prop_assert!(fixed.iter().all(|&i| candidates.velocity[i as usize] == forest.velocity()[group]));
        }
        prop_assert_eq!((0..count as u32).filter(|&i| forest.group_of(i).is_some()).count(), seen);
        for pair in &pairs {
            prop_assert_eq!(forest.same_group(pair.0, pair.1), !forest.refused().contains(pair), "{:?}", pair);
        }
        // Merged naively: within the limit first, then, unless they may be left alone, whoever is.
        let mut root: Vec<usize> = (0..count).collect();
        for adopting in [false, true].into_iter().take(1 + usize::from(keep_lone_contacts)) {
            for &(i, j) in &pairs {
                let (a, b) = (root[i as usize].min(root[j as usize]), root[i as usize].max(root[j as usize]));
                let members = |of: usize| (0..count).filter(|&k| root[k] == of).collect::<Vec<_>>();
                let (first, second) = (members(a), members(b));
                let fixed = |set: &[usize]| {
                    let fixed = set.iter().find(|&&k| candidates.is_immovable(k as u32));
                    fixed.map(|&k| candidates.velocity[k])
                };
                let torn = fixed(&first).zip(fixed(&second)).is_some_and(|(v, w)| v != w);
                let drawn = random::uniform_u32(min, min + more, &[seed, step, candidates.global_id(a as u32)]);
                let fits = match adopting {
                    false => first.len() + second.len() <= drawn as usize,
                    true => first.len() == 1 || second.len() == 1,
                };
                if a != b && fits && !torn {
                    second.iter().for_each(|&k| root[k] = a);
                }
            }
        }
        for (i, j) in (1..count).flat_map(|j| (0..j).map(move |i| (i, j))) {
            prop_assert_eq!(forest.same_group(i as u32, j as u32), root[i] == root[j]);
        }
    }

    /// Deals a set of self-colliding particles to one, two or three participants in the order of their ids.
    #[test]
    fn distribution_over_participants_does_not_matter(seed: u64, cuts in (0usize..=200, 0usize..=200)) {
        let mut candidates = crowd(seed, 200, 4.0);
        for (i, id) in candidates.id.iter_mut().enumerate() {
            *id = ParticleId(i as u64);
        }
        let run = |dealt: &Candidates| {
            let contacts = ContactFinder::new().detect(dealt, &intersecting(dealt, true)).clone();
            let forest = {
                let mut forest = Forest::new();
                forest.merge(dealt, &contacts.active, &GroupLimit { min: 20, max: 20, keep_lone_contacts: true, seed, step: 0 });
                forest
            };
            let mut velocity = Vec::new();
            forest.split(forest.velocity(), &vec![0.0; forest.len()], &SplitSettings::default(), &mut velocity);
            (contacts, forest.all_members().to_vec(), velocity)
        };
        candidates.participant.fill(0);
        let one = run(&candidates);
        for (i, participant) in candidates.participant.iter_mut().enumerate() {
            *participant = u16::from(i >= cuts.0) + u16::from(i >= cuts.1);
        }
        prop_assert_eq!(run(&candidates), one);
    }
}

#[test]
fn nothing_depends_on_the_number_of_threads() {
    let candidates = crowd_of(60_000);
    let run = || {
        let contacts = ContactFinder::new().detect(&candidates, &[]).clone();
        let mut forest = Forest::new();
        forest.merge(
            &candidates,
            &contacts.active,
            &GroupLimit { min: 8, max: 64, keep_lone_contacts: true, seed: 3, step: 4 },
        );
        let mut velocity = Vec::new();
        let energy = vec![0.0; forest.len()];
        let settings = SplitSettings::default();
        forest.split(forest.velocity(), &energy, &settings, &mut velocity);
        let errors = forest.split_errors(&candidates, forest.velocity(), &energy, &settings, &velocity);
        (contacts, forest.velocity().to_vec(), velocity, errors)
    };
    let one = in_threads(1, run);
    assert!(one.0.active.len() > 10_000 && one.0.marked.len() > 10_000 && one.1.len() > 1_000);
    assert!(one.3.momentum < TOLERANCE && one.3.energy < TOLERANCE);
    assert_eq!(in_threads(2, run), one);
    assert_eq!(in_threads(3, run), one);
}

/// Two participants, mixed in a box, about two contacts for each particle.
fn crowd_of(count: usize) -> Candidates {
    let edge = (count as f64).cbrt();
    let mut candidates = Candidates::default();
    for i in 0..count {
        candidates.participant.push(u16::from(i >= count / 2));
        candidates.id.push(ParticleId((i % (count / 2)) as u64));
        candidates.position.push(noise3(5, i, 1) * 0.5 * edge);
        candidates.velocity.push(noise3(5, i, 2));
        candidates.mass.push(if i % 100 == 0 { f64::INFINITY } else { 1.0 + noise(5, i, 3) * 0.9 });
        candidates.radius.push(0.5);
    }
    candidates
}

/// Giants among the small: the search must look at about as many pairs as without them.
#[test]
fn giants_do_not_widen_the_search() {
    let mut candidates = crowd_of(20_000);
    let mut finder = ContactFinder::new();
    finder.detect(&candidates, &[]);
    let alone = finder.distances();
    for (giant, radius) in [(0, 50.0), (1, 5e3)] {
        candidates.radius[giant] = radius;
        candidates.position[giant] = DVec3::Z * (radius + 10.0);
        candidates.mass[giant] = 1e9;
    }
    let expected = brute_force(&candidates, &[]);
    let found = finder.detect(&candidates, &[]);
    assert_eq!((&found.active, &found.marked), (&expected.active, &expected.marked));
    // Each small particle may look at each giant once, and no more.
    let distances = finder.distances();
    assert!(distances < alone + 3 * 20_000, "{distances} against {alone}");
}

/// The larger cohort looks into the smaller one's grid, although its own particles are larger.
#[test]
fn a_contact_reaches_as_far_as_both_radii() {
    let mut candidates = pair([1.0; 2], [DVec3::X * 0.99, DVec3::X * 2.34], [DVec3::X, DVec3::ZERO]);
    candidates.participant = vec![0, 0, 1];
    candidates.id = [0, 1, 0].map(ParticleId).to_vec();
    candidates.position.insert(0, DVec3::NEG_X * 9.0);
    candidates.velocity.insert(0, DVec3::ZERO);
    candidates.mass.push(1.0);
    candidates.radius = vec![0.9, 0.9, 0.5];
    assert_eq!(ContactFinder::new().detect(&candidates, &[]).active, [(1, 2)]);
}
