//! The same bits on any number of threads, in repeated stages and after restoring.

mod support;

use amalgam_particles::{DVec3, GroupMap, StepEnd};
use amalgam_solver_kit::Solver;
use amalgam_solver_solid::SolidSolver;
use support::{Groups, bits, integrate, solid, step};

/// Large enough that loops are split between threads.
const SHEET: &str = "method = \"mass-spring\"\n[[bodies]]\ntype = \"sheet\"\ncorner = [0, 0, 0]\nedge_u = [1, 0, 0]\nedge_v = [0, 1, 0.1]\n\
    spacing = 0.0125\narea_density = 0.2\nstructural_stiffness = 500\ndamping_ratio = 0.05\npinned = \"corners\"";

fn sheet() -> SolidSolver {
    solid(SHEET, DVec3::new(0.0, 0.0, -9.81))
}

/// Groups of three along a row, with the second stage's twice as large.
fn groups(solid: &SolidSolver, size: u32) -> Groups {
    let members: Vec<u32> = (100..100 + 30 * size).collect();
    let offsets: Vec<u32> = (0..=30).map(|g| g * size).collect();
    let mut map = GroupMap::default();
    map.set(solid.particles().len(), &offsets, &members);
    let count = map.len();
    Groups {
        map,
        inertia: (0..count).map(|g| if g == 7 { f64::INFINITY } else { 0.01 * (g + 1) as f64 }).collect(),
        velocity: vec![DVec3::new(0.1, 0.0, 0.3); count],
        impulse: (0..count).map(|g| DVec3::new(0.0, 0.0, -1e-4 * g as f64)).collect(),
    }
}

fn coupled_step(solid: &mut SolidSolver, dt: f64) -> Vec<u64> {
    solid.begin().expect("begin");
    integrate(solid, dt, &groups(solid, 3));
    let groups = groups(solid, 6);
    let answer = integrate(solid, dt, &groups);
    let velocity: Vec<DVec3> =
        (0..groups.map.len()).map(|g| answer.velocity[groups.map.members(g)[0] as usize]).collect();
    let split = vec![DVec3::new(0.0, 0.1, 0.2); groups.map.all_members().len()];
    let end = StepEnd {
        dt,
        groups: &groups.map,
        group_velocity: &velocity,
        member_velocity: &split,
        group_spin: &[],
    };
    solid.commit(&end, &answer.velocity).expect("commit");
    answer
        .momentum
        .iter()
        .flat_map(|j| j.to_array())
        .chain(answer.slope.iter().flat_map(|z| z.to_cols_array()))
        .map(f64::to_bits)
        .collect()
}

#[test]
fn threads_do_not_change_a_bit() {
    for integrator in ["implicit-euler", "hht-alpha"] {
        threads_do_not_change_a_bit_of(&format!("integrator = \"{integrator}\"\n{SHEET}"));
    }
}

fn threads_do_not_change_a_bit_of(section: &str) {
    let runs: Vec<Vec<u64>> = [1, 2, 3]
        .into_iter()
        .map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            pool.install(|| {
                let mut solid = solid(section, DVec3::new(0.0, 0.0, -9.81));
                let mut all = Vec::new();
                for _ in 0..3 {
                    all.extend(coupled_step(&mut solid, 2e-3));
                    let report = step(&mut solid, 2e-3);
                    all.extend(report.energies.iter().map(|(_, energy)| energy.to_bits()));
                }
                all.extend(bits(&solid));
                all
            })
        })
        .collect();
    assert_eq!(runs[0], runs[1]);
    assert_eq!(runs[0], runs[2]);
}

#[test]
fn a_restored_solver_continues_to_the_same_bits() {
    let mut solid = sheet();
    for _ in 0..3 {
        coupled_step(&mut solid, 2e-3);
    }
    let snapshot = solid.save().expect("a snapshot");
    let mut restored = sheet();
    restored.restore(&snapshot).expect("the same section");
    assert_eq!(restored.save().expect("a snapshot"), snapshot);
    for _ in 0..2 {
        coupled_step(&mut solid, 2e-3);
        coupled_step(&mut restored, 2e-3);
    }
    assert_eq!(bits(&solid), bits(&restored));
}

#[test]
fn a_foreign_snapshot_is_refused() {
    let mut solid = sheet();
    let snapshot = solid.save().expect("a snapshot");
    let before = bits(&solid);
    let mut other_count = snapshot.clone();
    other_count[16] ^= 1;
    for bad in [&snapshot[..snapshot.len() - 8], &[], b"something else entirely", &other_count] {
        let error = solid.restore(bad).expect_err("not a snapshot of this solver");
        assert!(error.to_string().contains("snapshot of the solid solver cannot be restored"), "{error}");
    }
    assert_eq!(bits(&solid), before);
}

/// A step of another length in a later stage must not use what was made for the first.
#[test]
fn another_step_length_makes_the_system_anew() {
    let (mut solid, mut fresh) = (sheet(), sheet());
    let none = Groups::none(solid.particles().len());
    solid.begin().expect("begin");
    integrate(&mut solid, 4e-3, &none);
    let second = integrate(&mut solid, 1e-3, &none);
    fresh.begin().expect("begin");
    let direct = integrate(&mut fresh, 1e-3, &none);
    let largest = direct.velocity.iter().map(|v| v.length()).fold(0.0, f64::max);
    for (a, b) in second.velocity.iter().zip(&direct.velocity) {
        assert!((*a - *b).length() < 1e-6 * largest);
    }
}
