//! Implicit participants that share groups agree on what one system of both says, in few repetitions.

use amalgam_coordinator::{
    CoordinatorError,
    contacts::Candidates,
    merging::merge::{Forest, GroupLimit},
    settings::CouplingSettings,
    synchronise::{Ask, Share, Stage, StageRequest, Synchronised},
};
use amalgam_particles::{DVec3, ParticleId};
use amalgam_proto::contract::{Integrated, Integration};
use glam::DMat3;

/// Systems A_k dv = b_k of up to three groups, in which each has a particle or none.
struct Systems {
    kinds: Vec<Integration>,
    sizes: Vec<u64>,
    /// Groups of each, ascending.
    groups: Vec<Vec<u32>>,
    stiffness: Vec<DMat3>,
    /// b of each group.
    load: Vec<[DVec3; 3]>,
    /// Number of requests to each participant.
    requests: Vec<u32>,
    /// Forcing with which each participant was asked last.
    forcing: Vec<f64>,
    /// Number of times that any were asked, all at once.
    rounds: u32,
    /// The last dv of each, if they take forcing at its word.
    iterates: Option<Vec<Vec<DVec3>>>,
}

impl Systems {
    fn new(participants: &[(Integration, u64, &[u32], DMat3)]) -> Self {
        let load = |k: f64| [DVec3::new(1.0, 0.3, k), DVec3::new(-k, 2.0, 0.1), DVec3::new(0.4, k, -1.5)];
        let groups: Vec<Vec<u32>> = participants.iter().map(|p| p.2.to_vec()).collect();
        let own =
            |k: usize, value: DVec3, group: u32| if groups[k].contains(&group) { value } else { DVec3::ZERO };
        Self {
            kinds: participants.iter().map(|p| p.0).collect(),
            sizes: participants.iter().map(|p| p.1).collect(),
            // Rows and columns of groups that are not its own are zero.
            stiffness: (0..participants.len())
                .map(|k| {
                    let mask = DVec3::from_array([0, 1, 2].map(|group| own(k, DVec3::ONE, group).x));
                    DMat3::from_diagonal(mask) * participants[k].3 * DMat3::from_diagonal(mask)
                })
                .collect(),
            load: (0..participants.len())
                .map(|k| {
                    let all = load(0.7 - 2.7 * k as f64);
                    [0, 1, 2].map(|group| own(k, all[group as usize], group))
                })
                .collect(),
            requests: vec![0; participants.len()],
            forcing: vec![0.0; participants.len()],
            rounds: 0,
            iterates: None,
            groups,
        }
    }

    /// Change of velocity of participant `k` under the others' impulses and inertias, of all three groups.
    fn solve(&self, k: usize, inertia: DVec3, impulse: &[DVec3]) -> Vec<DVec3> {
        let load: Vec<DVec3> = self.load[k].iter().zip(impulse).map(|(b, j)| *b + *j).collect();
        solve((DMat3::from_diagonal(inertia) + self.stiffness[k]).inverse(), &load)
    }

    fn answer(&mut self, request: &StageRequest) -> Integrated {
        let k = request.participant;
        let (mut inertia, mut impulse) = (DVec3::ONE, [DVec3::ZERO; 3]);
        for (local, &group) in self.groups[k].iter().enumerate() {
            inertia[group as usize] = request.inertia[local];
            impulse[group as usize] = request.impulse[local];
        }
        let mut change = self.solve(k, inertia, &impulse);
        if let Some(iterates) = &mut self.iterates {
            // What is left of the error has a sign that changes from one component to the next, as an
            // iteration's would.
            for (i, (change, last)) in change.iter_mut().zip(&iterates[k]).enumerate() {
                *change += (*last - *change) * request.forcing * [1.0, -0.6, 0.8][i];
            }
            iterates[k].clone_from(&change);
        }
        let own = self.groups[k].iter().map(|&group| group as usize);
        let slope =
            |i: usize| if self.kinds[k] == Integration::Implicit { self.stiffness[k].col(i)[i] } else { 0.0 };
        let slope = |i: usize| DMat3::from_diagonal(DVec3::splat(slope(i)));
        Integrated {
            momentum: own.clone().map(|i| change[i] * inertia[i] - impulse[i]).collect(),
            slope: Some(own.map(slope).collect()),
            watch_velocity: Vec::new(),
            travel_max: 0.0,
            bodies: None,
        }
    }

    /// Number of particles of each sharing participant in a group: two if no other participant has a part in
    /// it.
    fn copies(&self, group: u32) -> usize {
        if self.groups.iter().filter(|groups| groups.contains(&group)).count() == 1 { 2 } else { 1 }
    }

    /// Particles of 0.5 kg and their groups.
    fn forest(&self) -> Forest {
        let (mut candidates, mut pairs, mut last) = (Candidates::default(), Vec::new(), [None; 3]);
        for (k, groups) in self.groups.iter().enumerate() {
            for &group in groups.iter().flat_map(|group| std::iter::repeat_n(group, self.copies(*group))) {
                let i = candidates.len() as u32;
                candidates.participant.push(k as u16);
                candidates.id.push(ParticleId(u64::from(i)));
                candidates.position.push(DVec3::new(f64::from(group), k as f64, 0.0));
                candidates.velocity.push(DVec3::ZERO);
                candidates.mass.push(0.5);
                candidates.radius.push(0.6);
                pairs.extend(last[group as usize].replace(i).map(|before| (before, i)));
            }
        }
        pairs.sort_unstable();
        let mut forest = Forest::new();
        forest.merge(
            &candidates,
            &pairs,
            &GroupLimit { min: 4, max: 4, keep_lone_contacts: true, seed: 0, step: 0 },
        );
        forest
    }

    fn synchronise(&mut self, forest: &Forest) -> Synchronised {
        let settings = CouplingSettings { coupling_tolerance: 1e-10, ..CouplingSettings::default() };
        self.synchronise_with(forest, &settings)
    }

    fn synchronise_with(&mut self, forest: &Forest, settings: &CouplingSettings) -> Synchronised {
        let shares: Vec<Share> = self
            .groups
            .iter()
            .map(|groups| Share {
                groups: groups.clone(),
                mass: groups.iter().map(|&group| 0.5 * self.copies(group) as f64).collect(),
                guess: vec![DVec3::ZERO; groups.len()],
            })
            .collect();
        let (kinds, sizes) = (self.kinds.clone(), self.sizes.clone());
        let stage = Stage { kinds: &kinds, sizes: &sizes, forest, shares: &shares, gravity_dt: DVec3::ZERO };
        stage.synchronise(settings, self).expect("an answer")
    }

    /// The solution of all systems in one.
    fn exact(&self, forest: &Forest) -> Vec<DVec3> {
        let sum = |i: usize| self.load.iter().map(|load| load[i]).sum();
        let matrix = self
            .stiffness
            .iter()
            .fold(DMat3::from_diagonal(DVec3::from_slice(forest.mass())), |sum, stiffness| sum + *stiffness);
        solve(matrix.inverse(), &[sum(0), sum(1), sum(2)])
    }

    /// Synchronises and compares with one system of all.
    fn check(&mut self) -> Synchronised {
        let forest = self.forest();
        let exact = self.exact(&forest);
        let result = self.synchronise(&forest);
        for i in 0..3 {
            let error = (result.velocity[i] - exact[i]).length();
            assert!(error < 1e-8 * exact[i].length(), "{result:?}, {exact:?}");
        }
        result
    }
}

impl Ask for Systems {
    fn ask(&mut self, requests: Vec<StageRequest>) -> Result<Vec<Integrated>, CoordinatorError> {
        self.rounds += 1;
        for request in &requests {
            self.requests[request.participant] += 1;
            self.forcing[request.participant] = request.forcing;
        }
        Ok(requests.iter().map(|request| self.answer(request)).collect())
    }
}

/// The matrix, of groups, times a vector for each of them.
fn solve(inverse: DMat3, load: &[DVec3]) -> Vec<DVec3> {
    let axes = [0, 1, 2].map(|axis| inverse * DVec3::new(load[0][axis], load[1][axis], load[2][axis]));
    (0..3).map(|group| DVec3::from_array(axes.map(|axis| axis[group]))).collect()
}

/// A chain of three masses, each on a spring to the ground besides.
fn chain(spring: f64, ground: f64) -> DMat3 {
    let end = spring + ground;
    DMat3::from_cols_array(&[end, -spring, 0.0, -spring, end + spring, -spring, 0.0, -spring, end])
}

const ALL: &[u32] = &[0, 1, 2];

#[test]
fn two_implicit_participants_find_the_fixed_point_of_plain_repetition() {
    let both =
        [(Integration::Implicit, 1, ALL, chain(8.0, 0.5)), (Integration::Implicit, 2, ALL, chain(3.0, 0.2))];
    let mut systems = Systems::new(&both);
    let result = systems.check();

    // Each integrates against the other's last answer J + Z dv, without acceleration.
    let mut linear = [[DVec3::ZERO; 3]; 2];
    let (mut velocity, mut plain) = (vec![DVec3::ZERO; 3], 0);
    for repetition in 1..1000 {
        let before = velocity.clone();
        for k in 0..2 {
            let slope = |k: usize, i: usize| systems.stiffness[k].col(i)[i];
            let inertia = DVec3::from_array([0, 1, 2].map(|i| 1.0 + slope(1 - k, i)));
            velocity = systems.solve(k, inertia, &linear[1 - k]);
            for i in 0..3 {
                linear[k][i] = velocity[i] * (inertia[i] + slope(k, i)) - linear[1 - k][i];
            }
        }
        plain = repetition;
        if velocity.iter().zip(&before).all(|(v, b)| (*v - *b).length() <= 1e-10 * v.length()) {
            break;
        }
    }
    for i in 0..3 {
        let error = (velocity[i] - result.velocity[i]).length();
        assert!(error < 1e-8 * velocity[i].length(), "plain: {velocity:?}, {result:?}");
    }
    // Three groups are three unknowns, since the larger follows the other: three differences determine them.
    assert!(result.repetitions <= 5, "{} repetitions", result.repetitions);
    assert_eq!(
        systems.requests,
        [1 + result.repetitions, result.repetitions],
        "the larger is asked once less"
    );
    assert!(plain > 2 * result.repetitions, "plain repetition took only {plain}");
}

#[test]
fn of_a_row_of_three_those_at_the_ends_follow_the_one_between() {
    let soft = chain(3.0, 0.2);
    let row = [
        (Integration::Implicit, 9, &[0u32, 1][..], soft),
        (Integration::Implicit, 5, ALL, chain(8.0, 0.5)),
        (Integration::Projection, 1, &[2], soft),
    ];
    let mut systems = Systems::new(&row);
    let n = systems.check().repetitions;
    // Three groups are the unknowns, those of the one in the middle.
    assert!(n <= 5, "{n} repetitions");
    assert_eq!(systems.requests, [n, n + 1, n]);
}

#[test]
fn two_projections_that_share_groups_agree_with_a_solid() {
    let three = [
        (Integration::Projection, 1, ALL, chain(5.0, 0.1)),
        (Integration::Implicit, 2, ALL, chain(8.0, 0.5)),
        (Integration::Projection, 3, ALL, chain(2.0, 0.7)),
    ];
    let mut systems = Systems::new(&three);
    let n = systems.check().repetitions;
    assert_eq!(systems.requests, [n + 1, n + 1, n], "the larger projection follows");
    // Three groups of two that lead are six unknowns.
    assert!(n <= 8, "{n} repetitions");
}

#[test]
fn who_shares_no_group_is_asked_once() {
    let three = [
        (Integration::Implicit, 1, &[0u32, 1][..], chain(8.0, 0.5)),
        (Integration::Implicit, 1, &[0, 1], chain(3.0, 0.2)),
        (Integration::Projection, 9, &[2], chain(2.0, 0.7)),
    ];
    let mut systems = Systems::new(&three);
    systems.check();
    assert_eq!(systems.requests[2], 1);
}

#[test]
fn answers_that_are_repeated_may_be_rough_and_the_last_ones_are_whole() {
    let both =
        [(Integration::Implicit, 1, ALL, chain(8.0, 0.5)), (Integration::Implicit, 2, ALL, chain(3.0, 0.2))];
    let rough = || {
        let mut systems = Systems::new(&both);
        systems.iterates = Some(vec![vec![DVec3::ZERO; 3]; 2]);
        systems
    };
    let mut systems = rough();
    // Compared with the solution of all in one, to the same tolerance.
    systems.check();
    assert_eq!(systems.forcing, [0.0, 0.0]);
    let settings = CouplingSettings::default();
    let repetitions =
        |mut systems: Systems| systems.synchronise_with(&systems.forest(), &settings).repetitions;
    let (exact, rough) = (repetitions(Systems::new(&both)), repetitions(rough()));
    assert!(rough <= exact + 2, "{rough} repetitions in place of {exact}");
}

#[test]
fn who_is_not_asked_again_is_asked_for_a_whole_answer() {
    let three = [
        (Integration::Implicit, 1, &[0u32, 1][..], chain(8.0, 0.5)),
        (Integration::Implicit, 1, &[0, 1], chain(3.0, 0.2)),
        (Integration::Projection, 9, &[2], chain(2.0, 0.7)),
    ];
    let mut systems = Systems::new(&three);
    let forest = systems.forest();
    let exact = systems.exact(&forest);
    systems.iterates = Some(vec![vec![DVec3::ZERO; 3]; 3]);
    // Once is all there may be: then even the first repetition is for good.
    let settings = CouplingSettings { repetitions_max: 1, ..CouplingSettings::default() };
    let result = systems.synchronise_with(&forest, &settings);
    assert_eq!((result.repetitions, systems.requests[2]), (1, 1));
    assert_eq!(systems.forcing, [0.0; 3]);
    assert!((result.velocity[2] - exact[2]).length() < 1e-12, "{result:?}, {exact:?}");
}

#[test]
fn explicit_and_implicit_participants_that_share_no_group_are_asked_at_once() {
    let (soft, free) = (chain(3.0, 0.2), DMat3::ZERO);
    let systems = |explicit: &'static [u32], others: &[(Integration, u64, &'static [u32], DMat3)]| {
        let mut systems = Systems::new(&[&[(Integration::Explicit, 4, explicit, free)], others].concat());
        let repetitions = systems.check().repetitions;
        (systems.rounds, repetitions)
    };
    let alone = [(Integration::Implicit, 1, &[1u32, 2][..], soft)];
    assert_eq!(systems(&[0], &alone), (1, 0));
    assert_eq!(systems(&[0, 1], &alone), (2, 0));
    let two = [(Integration::Implicit, 1, &[1u32, 2][..], soft), (Integration::Implicit, 2, &[1, 2], soft)];
    // Each repetition asks the one that follows and the one that leads.
    let (rounds, repetitions) = systems(&[0], &two);
    assert_eq!(rounds, 1 + 2 * repetitions);
    let (rounds, repetitions) = systems(&[0, 1], &two);
    assert_eq!(rounds, 2 + 2 * repetitions);
}
