//! Implicit participants that share groups agree on what one system of both says, in few repetitions.

use amalgam_coordinator::{
    CoordinatorError,
    contacts::Candidates,
    merge::{Forest, GroupLimit},
    settings::CouplingSettings,
    synchronise::{Ask, Kind, Share, Stage, Turn},
};
use amalgam_particles::{DVec3, ParticleId};
use amalgam_proto::contract::Integrated;
use glam::DMat3;

/// Two systems A_k dv = b_k of three groups, each group with a particle of either.
struct Systems {
    stiffness: [DMat3; 2],
    /// b of each group.
    load: [[DVec3; 3]; 2],
    turns: usize,
}

impl Systems {
    fn answer(&self, turn: &Turn) -> Integrated {
        let k = turn.participant;
        let inertia = DVec3::from_slice(&turn.inertia);
        let inverse = (DMat3::from_diagonal(inertia) + self.stiffness[k]).inverse();
        let load: Vec<DVec3> = self.load[k].iter().zip(&turn.impulse).map(|(b, j)| *b + *j).collect();
        let momentum = solve(inverse, &load).into_iter().zip(&turn.inertia).zip(&turn.impulse);
        Integrated {
            momentum: momentum.map(|((dv, m), j)| dv * *m - *j).collect(),
            slope: (0..3).map(|i| self.stiffness[k].col(i)[i]).collect(),
            watch_velocity: Vec::new(),
            travel_max: 0.0,
        }
    }
}

impl Ask for Systems {
    fn ask(&mut self, turns: Vec<Turn>) -> Result<Vec<Integrated>, CoordinatorError> {
        self.turns += turns.len();
        Ok(turns.iter().map(|turn| self.answer(turn)).collect())
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

#[test]
fn two_implicit_participants_find_the_fixed_point_of_plain_repetition() {
    let load = |k: f64| [DVec3::new(1.0, 0.3, k), DVec3::new(-k, 2.0, 0.1), DVec3::new(0.4, k, -1.5)];
    let mut systems =
        Systems { stiffness: [chain(8.0, 0.5), chain(3.0, 0.2)], load: [load(0.7), load(-2.0)], turns: 0 };

    let mut candidates = Candidates::default();
    for i in 0..6 {
        candidates.participant.push(i / 3);
        candidates.id.push(ParticleId(u64::from(i)));
        candidates.position.push(DVec3::new(f64::from(i % 3), f64::from(i / 3), 0.0));
        candidates.velocity.push(DVec3::ZERO);
        candidates.mass.push(0.5);
        candidates.radius.push(0.6);
    }
    let mut forest = Forest::new();
    let limit = GroupLimit { min: 2, max: 2, seed: 0, step: 0 };
    forest.merge(&candidates, &[(0, 3), (1, 4), (2, 5)], &limit);
    let share = || Share { groups: vec![0, 1, 2], mass: vec![0.5; 3], guess: vec![DVec3::ZERO; 3] };
    let shares = [share(), share()];
    let kinds = [Kind::Implicit; 2];
    let stage = Stage { kinds: &kinds, forest: &forest, shares: &shares, gravity_dt: DVec3::ZERO };
    let settings = CouplingSettings { coupling_tolerance: 1e-10, ..CouplingSettings::default() };
    let result = stage.synchronise(&settings, &mut systems).expect("an answer");

    // Each against the other's last answer J + Z dv, with nothing that accelerates.
    let mut linear = [[DVec3::ZERO; 3]; 2];
    let (mut velocity, mut plain) = ([DVec3::ZERO; 3], 0);
    for repetition in 1..1000 {
        let before = velocity;
        for k in 0..2 {
            let slope = |k: usize, i: usize| systems.stiffness[k].col(i)[i];
            let inertia: Vec<f64> = (0..3).map(|i| 1.0 + slope(1 - k, i)).collect();
            let turn = Turn { participant: k, impulse: linear[1 - k].to_vec(), inertia };
            let momentum = systems.answer(&turn).momentum;
            for i in 0..3 {
                velocity[i] = (momentum[i] + turn.impulse[i]) / turn.inertia[i];
                linear[k][i] = momentum[i] + velocity[i] * slope(k, i);
            }
        }
        plain = repetition;
        if velocity.iter().zip(&before).all(|(v, b)| (*v - *b).length() <= 1e-10 * v.length()) {
            break;
        }
    }
    let both: Vec<DVec3> = (0..3).map(|i| systems.load[0][i] + systems.load[1][i]).collect();
    let exact = solve((DMat3::IDENTITY + systems.stiffness[0] + systems.stiffness[1]).inverse(), &both);
    for i in 0..3 {
        assert!(
            (velocity[i] - exact[i]).length() < 1e-8 * exact[i].length(),
            "plain: {velocity:?}, {exact:?}"
        );
        assert!((result.velocity[i] - exact[i]).length() < 1e-8 * exact[i].length(), "{result:?}, {exact:?}");
    }
    // Three groups are three unknowns, since the second participant follows the first: three differences determine them.
    assert!(result.repetitions <= 5, "{} repetitions", result.repetitions);
    assert_eq!(systems.turns, 1 + 2 * result.repetitions as usize, "the one that follows is asked once less");
    assert!(plain > 2 * result.repetitions, "plain repetition took only {plain}");
}
