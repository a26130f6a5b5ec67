//! FLIP: what must not change a bit, and sub-steps.

mod common;

use amalgam_particles::{DVec3, GroupMap, StepEnd, lanes::Width};
use amalgam_solver_fluid::flip::{Flip, section};
use amalgam_solver_kit::Solver;
use common::{Groups, create, integrate, step, world};

const GRAVITY: f64 = 9.81;

fn column(keys: &str) -> String {
    format!(
        "method = 'flip'\nspacing = 0.025\n{keys}\n[[shapes]]\ntype = 'box'\nmin = [0, 0, 0.25]\nmax = [0.4, 0.4, 0.75]\n"
    )
}

fn bits(solver: &dyn Solver) -> Vec<u64> {
    let particles = solver.particles();
    let columns = particles.position.iter().chain(&particles.velocity);
    columns.flat_map(|v| v.to_array().map(f64::to_bits)).collect()
}

#[test]
fn the_width_of_vectors_does_not_change_a_bit() {
    let run = |width: Width| {
        let (parameters, particles) =
            section::read(&column(""), &world(DVec3::new(0.8, 0.4, 1.0), GRAVITY)).expect("a good section");
        let mut solver = Flip::with_width(parameters, particles, width);
        let groups = Groups::none(solver.particles().len());
        (0..40).for_each(|_| drop(step(&mut solver, &groups, 5e-3)));
        bits(&solver)
    };
    let widths = Width::supported();
    let plain = run(widths[0]);
    for width in widths {
        assert!(run(width) == plain, "{}", width.name());
    }
}

/// Mean velocity and centre after a time, in steps of the given number of sub-steps' length.
fn fallen(steps: usize, keys: &str) -> (DVec3, DVec3) {
    let mut solver = create(&column(keys), &world(DVec3::new(0.8, 0.4, 1.0), GRAVITY));
    let count = solver.particles().len() as f64;
    let groups = Groups::none(solver.particles().len());
    let time = 0.3;
    for _ in 0..steps {
        step(solver.as_mut(), &groups, time / steps as f64);
    }
    let particles = solver.particles();
    let mean = |values: &[DVec3]| values.iter().sum::<DVec3>() / count;
    (mean(&particles.velocity), mean(&particles.position))
}

/// A falling column that hits the floor and collapses: six steps of several sub-steps do as 60 short steps
/// do.
#[test]
fn long_steps_are_cut_into_substeps() {
    let (velocity, position) = fallen(6, "cfl = 0.1\nsubsteps_max = 100");
    let (fine_velocity, fine_position) = fallen(60, "");
    assert!((position - fine_position).length() < 0.01, "{position} and {fine_position}");
    assert!((velocity - fine_velocity).length() < 0.1, "{velocity} and {fine_velocity}");
}

/// A group that is held takes the weight above it, in steps of several sub-steps too.
#[test]
fn substeps_add_up_what_a_group_is_given() {
    let mut solver =
        create(&column("cfl = 0.05\nsubsteps_max = 20"), &world(DVec3::new(0.4, 0.4, 1.0), GRAVITY));
    let all = solver.particles();
    let weight = all.mass.iter().sum::<f64>() * GRAVITY;
    let members: Vec<u32> = (0..all.len() as u32).filter(|&i| all.position[i as usize].z < 0.3).collect();
    let mut map = GroupMap::default();
    map.set(all.len(), &[0, members.len() as u32], &members);
    let groups = Groups::new(map, vec![1e9], vec![DVec3::ZERO]);
    let dt = 0.02;
    let mut given = 0.0;
    for _ in 0..6 {
        solver.begin().expect("a good state");
        given = -integrate(solver.as_mut(), &groups, dt).momentum[0].z / dt;
    }
    assert!(dt > solver.stable_dt() / 20.0, "the step is cut");
    assert!((given / weight - 1.0).abs() < 0.02, "the group carries {given} of {weight} N");
}

/// Groups as heavy as their own particles, to which nobody gives anything, change nothing in free fall: they
/// gain what gravity gives them in all sub-steps together.
#[test]
fn groups_fall_freely_through_all_substeps() {
    let mut solver =
        create(&column("cfl = 0.05\nsubsteps_max = 20"), &world(DVec3::new(0.8, 0.4, 1.0), GRAVITY));
    let particles = solver.particles();
    let (count, mass) = (particles.len(), particles.mass[0]);
    let members: Vec<u32> = (0..count as u32).step_by(7).collect();
    let members = &members[..members.len() / 4 * 4];
    let mut map = GroupMap::default();
    map.set(count, &(0..=members.len() as u32).step_by(4).collect::<Vec<_>>(), members);
    let groups = map.len();
    let groups = Groups::new(map, vec![4.0 * mass; groups], vec![DVec3::ZERO; groups]);
    let dt = 0.06;
    solver.begin().expect("a good state");
    let answer = integrate(solver.as_mut(), &groups, dt);
    assert!(dt > 3.0 * solver.stable_dt() / 20.0, "the step is cut");
    for momentum in answer.momentum {
        let fall = momentum / (4.0 * mass) / dt;
        assert!((fall + DVec3::Z * GRAVITY).length() < 1e-4 * GRAVITY, "{fall} m/s^2");
    }
}

/// A few velocities asked for before the commit are those of the answer, and no particle travels farther than
/// the bound says.
#[test]
fn deferred_velocities_are_those_of_the_answer() {
    for keys in ["", "cfl = 0.05\nsubsteps_max = 20"] {
        let mut solver = create(&column(keys), &world(DVec3::new(0.8, 0.4, 1.0), GRAVITY));
        let groups = Groups::none(solver.particles().len());
        // A column that falls, hits the floor and spreads. The first step stores particles in another order.
        for _ in 0..30 {
            step(solver.as_mut(), &groups, 0.01);
        }
        let (count, radius) = (solver.particles().len() as u32, solver.particles().radius[0]);
        solver.begin().expect("a good state");
        let asked = integrate(solver.as_mut(), &groups, 0.01).velocity;
        let deferred = solver.deferred().expect("FLIP defers velocities");
        let bound = deferred.travel_bound(0.01);
        let few: Vec<u32> = (0..count).step_by(20).collect();
        let of_few: Vec<_> = few.iter().map(|&i| asked[i as usize]).collect();
        assert!(deferred.velocity(&few) == of_few, "{keys}: those of a few particles");
        let travel = asked.iter().map(|v| v.length() * 0.01 / radius).fold(0.0, f64::max);
        assert!((travel..3.0 * travel).contains(&bound), "{keys}: {travel} radii, at most {bound}");
    }
}

/// Velocities of an answer are those with which particles move, and not their own: the shorter the step, the
/// less the grid's velocity changes on the way. A column that begins to collapse is as dense as at rest, so
/// that the density projection moves nothing besides.
#[test]
fn answered_velocities_are_those_of_the_motion() {
    let differences = |dt: f64| {
        let column = "method = 'flip'\nspacing = 0.025\njitter = 0.0\n\
                      [[shapes]]\ntype = 'box'\nmin = [0, 0, 0]\nmax = [0.4, 0.4, 0.5]\n";
        let mut solver = create(column, &world(DVec3::new(0.8, 0.4, 1.0), GRAVITY));
        let groups = Groups::none(solver.particles().len());
        // The first step stores particles in another order.
        for _ in 0..8 {
            step(solver.as_mut(), &groups, 0.01);
        }
        let (ids, places) = (solver.particles().id.clone(), solver.particles().position.clone());
        solver.begin().expect("a good state");
        let asked = integrate(solver.as_mut(), &groups, dt).velocity;
        let end =
            StepEnd { dt, groups: &groups.map, group_velocity: &[], member_velocity: &[], group_spin: &[] };
        solver.commit(&end, &[]).expect("a good state");
        let particles = solver.particles();
        assert_eq!(particles.id, ids, "stored anew only every 16 steps");
        let largest = |velocities: &[DVec3]| {
            let ways = places.iter().zip(&particles.position).map(|(a, b)| (*b - *a) / dt);
            ways.zip(velocities).map(|(way, v)| way.distance(*v)).fold(0.0, f64::max)
        };
        [largest(&asked), largest(&particles.velocity)]
    };
    let [long, short, shortest] = [1e-2, 1e-3, 1e-4].map(differences);
    // A tenth of the time, a tenth of the difference; those from particles' own velocities stay.
    assert!(short[0] < 0.2 * long[0] && shortest[0] < 0.2 * short[0], "{long:?} {short:?} {shortest:?} m/s");
    assert!(shortest[0] < 1e-2 * shortest[1], "{shortest:?} m/s");
}

/// Every `every`-th particle from `first` on, in groups of four of thrice their mass that rise.
fn rising(solver: &dyn Solver, first: usize, every: usize) -> Groups {
    let particles = solver.particles();
    let members: Vec<u32> = (first as u32..particles.len() as u32).step_by(every).collect();
    let members = &members[..members.len() / 4 * 4];
    let mut map = GroupMap::default();
    map.set(particles.len(), &(0..=members.len() as u32).step_by(4).collect::<Vec<_>>(), members);
    let count = map.len();
    Groups::new(map, vec![12.0 * particles.mass[0]; count], vec![DVec3::Z * 0.3; count])
}

/// A later stage reuses what has not changed: it answers as if it were the first one.
#[test]
fn a_later_stage_answers_as_if_it_were_the_first() {
    let make = || {
        let mut solver = create(&column("tolerance = 1e-11"), &world(DVec3::new(0.8, 0.4, 1.0), GRAVITY));
        (0..10).for_each(|_| drop(step(solver.as_mut(), &Groups::none(5120), 5e-3)));
        solver.begin().expect("a good state");
        solver
    };
    // Groups before (first member, every which), groups after, length of the step before [s].
    for (before, after, dt) in [
        ((0, 500), (3, 500), 5e-3),
        ((0, 500), (3, 5), 5e-3),
        ((0, 5), (5119, 1), 5e-3),
        ((0, 500), (0, 500), 4e-3),
    ] {
        let (mut first, mut later) = (make(), make());
        let groups = rising(later.as_ref(), before.0, before.1);
        integrate(later.as_mut(), &groups, dt);
        let groups = rising(later.as_ref(), after.0, after.1);
        let answers = [integrate(first.as_mut(), &groups, 5e-3), integrate(later.as_mut(), &groups, 5e-3)];
        let [first, later] = &answers;
        for (a, b) in first.velocity.iter().zip(&later.velocity) {
            assert!((*a - *b).length() < 1e-6, "{before:?} {after:?}: {a} and {b} m/s");
        }
        for (a, b) in first.momentum.iter().zip(&later.momentum) {
            assert!((*a - *b).length() < 1e-6 * a.length(), "{before:?} {after:?}: {a} and {b} kg m/s");
        }
    }
}

/// A column that collapses around a wall of members that are held or very heavy, until faces as light as air
/// are beside them. Every solve must reach its tolerance, and nothing may get faster than it can fall.
#[test]
fn solves_with_members_much_heavier_than_their_surroundings_converge() {
    for ratio in [1e2, 1e4, f64::INFINITY] {
        let mut solver = create(&column("tolerance = 1e-8"), &world(DVec3::new(0.8, 0.4, 1.0), GRAVITY));
        let count = solver.particles().len();
        let position = &solver.particles().position;
        let wall = |x: DVec3| (x.x - 0.2).abs() < 0.04 && x.z < 0.5;
        let members: Vec<u32> = (0..count as u32).filter(|&i| wall(position[i as usize])).collect();
        let ids: Vec<_> = members.iter().map(|&i| solver.particles().id[i as usize]).collect();
        for _ in 0..100 {
            let particles = solver.particles();
            let is_member = |&i: &u32| ids.contains(&particles.id[i as usize]);
            let members: Vec<u32> = (0..count as u32).filter(is_member).collect();
            let mut map = GroupMap::default();
            map.set(count, &(0..=members.len() as u32).collect::<Vec<_>>(), &members);
            let held =
                |&i: &u32| if ratio.is_finite() { particles.velocity[i as usize] } else { DVec3::ZERO };
            let velocity = members.iter().map(held).collect();
            let groups = Groups::new(map, vec![ratio * particles.mass[0]; members.len()], velocity);
            step(solver.as_mut(), &groups, 5e-3);
        }
        let fastest = solver.particles().velocity.iter().map(|v| v.length()).fold(0.0, f64::max);
        let fall = (2.0 * GRAVITY * 0.75).sqrt();
        assert!(fastest < 2.0 * fall, "{ratio}: {fastest} m/s, a fall from the top {fall} m/s");
    }
}

/// Particles that are held two cells apart seal pockets of a few cells, each of another shape: hard to solve
/// for.
#[test]
fn a_bed_of_held_particles_two_cells_apart_holds_the_fluid() {
    let text = "method = 'flip'\nspacing = 0.0125\n[[shapes]]\ntype = 'box'\nmin = [0, 0, 0]\nmax = [0.4, 0.4, 0.4]\n";
    let mut solver = create(text, &world(DVec3::new(0.4, 0.4, 0.8), GRAVITY));
    let particles = solver.particles();
    let is_held = |i: &u32| {
        let cells = particles.position[*i as usize] / 0.05;
        (cells.fract() - 0.5).abs().max_element() < 0.125
    };
    let held: Vec<u32> = (0..particles.len() as u32).filter(is_held).collect();
    assert!(held.len() > 256, "{}", held.len());
    let (count, mut map) = (held.len(), GroupMap::default());
    map.set(particles.len(), &(0..=count as u32).collect::<Vec<_>>(), &held);
    let groups = Groups::new(map, vec![f64::INFINITY; count], vec![DVec3::ZERO; count]);
    step(solver.as_mut(), &groups, 2e-3);
    let fastest = solver.particles().velocity.iter().map(|v| v.length()).fold(0.0, f64::max);
    assert!(fastest < 0.5 * GRAVITY * 2e-3, "{fastest} m/s");
}

/// A jet fills a tank whose bottom drains into a sink; a restored fluid goes on to the same bits.
#[test]
fn particles_appear_disappear_and_are_restored() {
    let keys = "emitters = [{ center = [0.6, 0.2, 0.9], axis = [0, 0, -1], radius = 0.06, speed = 1.0, until = 0.2 }]\n\
                sinks = [{ min = [0, 0, 0], max = [0.2, 0.4, 0.3] }]";
    let make = || create(&column(keys), &world(DVec3::new(0.8, 0.4, 1.0), GRAVITY));
    let advance = |solver: &mut dyn Solver| {
        let mut changes = (0, 0);
        for _ in 0..20 {
            let groups = Groups::none(solver.particles().len());
            let report = step(solver, &groups, 4.8e-3);
            changes = (changes.0 + report.born.len(), changes.1 + report.dead.len());
        }
        changes
    };
    let mut whole = make();
    let count = whole.particles().len();
    let (born, dead) = advance(whole.as_mut());
    // Layers of 21 places, a spacing apart, for 0.096 s at 1 m/s.
    assert_eq!(born, 4 * 21);
    assert!(dead > 0 && whole.particles().len() == count + born - dead);
    let snapshot = whole.save().expect("keeps checkpoints");
    advance(whole.as_mut());
    let mut restored = make();
    restored.restore(&snapshot).expect("its own");
    advance(restored.as_mut());
    assert_eq!(bits(whole.as_ref()), bits(restored.as_ref()));
    assert!(whole.particles().id.iter().all(|id| id.0 < (count + 8 * 21) as u64));
}
