//! An SPH fluid: it must rest, fall, keep momentum, stay in its box, give impulses to groups, repeat to the
//! bit.

mod common;

use amalgam_particles::{DMat3, DVec3, GroupMap, Particles, lanes::Width, random};
use amalgam_solver_fluid::sph::{Sph, section};
use amalgam_solver_kit::{Solver, World};
use common::*;

const DAM: &str = "spacing = 0.05\n[[shapes]]\ntype = \"box\"\nmin = [0, 0, 0]\nmax = [0.5, 0.5, 0.8]";

fn dam_world() -> World {
    world(DVec3::new(1.5, 0.5, 1.0), 9.81)
}

/// A ball of water that has been disturbed so that it is under pressure.
fn drop(extra: &str) -> Box<dyn Solver> {
    let section = format!(
        "spacing = 0.05\nsound_speed = 30\nwalls = false\n{extra}\n[[shapes]]\ntype = \"points\"\npositions = [{}]",
        disturbed_ball()
    );
    create(&section, &world(DVec3::ONE, 0.0))
}

fn disturbed_ball() -> String {
    let noise = |i: i32, axis| 0.15 * random::uniform_f64(&[i as u64, axis]);
    let mut text = String::new();
    for i in 0..1000 {
        let p = DVec3::new(f64::from(i % 10), f64::from(i / 10 % 10), f64::from(i / 100)) - 4.5;
        if p.length() < 5.0 {
            let p = 0.05 * (p + DVec3::new(noise(i, 0), noise(i, 1), noise(i, 2)));
            text += &format!("[{}, {}, {}],", p.x, p.y, p.z);
        }
    }
    text
}

fn bits(particles: &Particles) -> Vec<[u64; 6]> {
    let both = particles.position.iter().zip(&particles.velocity);
    both.map(|(x, v)| [x.x, x.y, x.z, v.x, v.y, v.z].map(f64::to_bits)).collect()
}

/// Positions in the order of ids, which are 0, 1, ...
fn by_id(particles: &Particles) -> Vec<DVec3> {
    let mut positions = vec![DVec3::ZERO; particles.len()];
    for (id, &x) in particles.id.iter().zip(&particles.position) {
        positions[id.0 as usize] = x;
    }
    positions
}

/// Every fifth particle in groups of up to eight.
fn some_groups(particles: &Particles, inertia: f64) -> Groups {
    let members: Vec<u32> = (0..particles.len() as u32).step_by(5).collect();
    let mut offsets: Vec<u32> = (0..members.len() as u32).step_by(8).collect();
    offsets.push(members.len() as u32);
    let mut map = GroupMap::default();
    map.set(particles.len(), &offsets, &members);
    let groups = map.len();
    Groups::new(map, vec![inertia; groups], vec![DVec3::new(0.1, 0.0, -0.2); groups])
}

#[test]
fn a_full_lattice_has_rest_density_up_to_the_walls() {
    let section = "spacing = 0.1\nsmoothing_ratio = 1.3\nhydrostatic = false\n[[shapes]]\ntype = \"box\"\nmin = [0, 0, 0]\nmax = [1, 1, 1]";
    let mut solver = create(section, &world(DVec3::ONE, 9.81));
    for density in field(&mut *solver, "density") {
        assert!((density - 1000.0).abs() < 1e-2, "{density}");
    }
    assert!(field(&mut *solver, "pressure").iter().all(|&p| p < 20.0));
}

/// A column in a box comes to rest with p = rho g h: 2 % at the bottom, 3 % of the bottom's pressure
/// anywhere, and kinetic energy below 1e-4 of m g H. On an undisturbed lattice pressure alternates from layer
/// to layer, starting from the surface layer that has none, which pairs of layers average out.
#[test]
fn a_column_rests_on_hydrostatic_pressure() {
    for extra in ["", "smoothing_ratio = 1.5", "equation_of_state = \"mueller\"", "kernels = \"mueller\""] {
        let section = format!(
            "spacing = 0.01\nviscosity = 100\n{extra}\n[[shapes]]\ntype = \"box\"\nmin = [0, 0, 0]\n\
             max = [0.06, 0.06, 0.1]"
        );
        let mut solver = create(&section, &world(DVec3::new(0.06, 0.06, 0.15), 9.81));
        let (mut fall, mut energy, mut count, mut layers) = (0.0f64, 0.0, 0.0, [0.0; 5]);
        run(&mut *solver, 0.7, |solver, time, _| {
            let heights = solver.particles().position.iter().map(|x| x.z);
            fall = fall.max(0.05 - heights.sum::<f64>() / solver.particles().len() as f64);
            if time > 0.5 {
                // Pairs of layers; ids are ordered by height, storage is not.
                let pressures = field(solver, "pressure");
                for (id, p) in solver.particles().id.iter().zip(pressures) {
                    layers[id.0 as usize / 72] += f64::from(p) / 72.0;
                }
                energy += kinetic_energy(solver);
                count += 1.0;
            }
        });
        for (k, pressure) in layers.iter().enumerate() {
            let expected = 9810.0 * (0.09 - 0.02 * k as f64);
            let error = (pressure / count - expected) / (9810.0 * 0.09);
            println!("{extra:30} layers {k}: {error:+.4}");
            assert!(error.abs() < if k == 0 { 0.02 } else { 0.03 }, "{extra}: pair of layers {k}: {error}");
        }
        println!("fall {fall:.2e} energy {:.2e}", energy / count / (0.36 * 9.81 * 0.1));
        assert!(fall < 5e-4, "the column sank by {fall} m");
        // Relative to the weight times the height.
        assert!(energy / count < 1e-5 * 0.36 * 9.81 * 0.1, "still moving: {} J", energy / count);
    }
}

/// A deep pool starts as it rests. At rest density its middle sinks by about g H^2 / (3 c^2), and swings about
/// that place, and the pressure at the bottom between zero and twice the weight.
#[test]
fn a_pool_starts_at_hydrostatic_pressure() {
    let moved = |extra: &str| {
        let section = format!(
            "spacing = 0.02\n{extra}\n[[shapes]]\ntype = \"box\"\nmin = [0, 0, 0]\nmax = [0.12, 0.12, 0.8]"
        );
        let mut solver = create(&section, &world(DVec3::new(0.12, 0.12, 1.2), 9.81));
        let middle = |solver: &dyn Solver| {
            solver.particles().position.iter().map(|x| x.z).sum::<f64>() / solver.particles().len() as f64
        };
        let start = middle(&*solver);
        let (mut way, mut energy, mut pressures) = (0.0f64, 0.0f64, (f64::INFINITY, 0.0f64));
        run(&mut *solver, 0.5, |solver, _, _| {
            way = way.max((middle(solver) - start).abs());
            energy = energy.max(kinetic_energy(solver));
            // The lowest two of 40 layers.
            let now = field(solver, "pressure");
            let lowest = solver.particles().id.iter().zip(now);
            let lowest = lowest.filter(|(id, _)| id.0 < 72).map(|(_, p)| f64::from(p) / 72.0).sum();
            pressures = (pressures.0.min(lowest), pressures.1.max(lowest));
        });
        println!("{extra:20} way {way:.2e} m, energy {energy:.2e} J, pressure {pressures:?} Pa");
        (way, energy, pressures)
    };
    let (plain, pressed) = (moved("hydrostatic = false"), moved(""));
    assert!(pressed.0 < 0.1 * plain.0 && pressed.1 < 0.05 * plain.1, "{pressed:?} {plain:?}");
    let weight = 9810.0 * 0.78;
    assert!(plain.2.1 > 1.3 * weight, "{plain:?}");
    assert!(pressed.2.0 > 0.95 * weight && pressed.2.1 < 1.05 * weight, "{pressed:?}");
}

#[test]
fn a_resting_drop_stays_and_a_falling_one_falls() {
    let section = "spacing = 0.1\nwalls = false\n[[shapes]]\ntype = \"sphere\"\ncenter = [0, 0, 0]\nradius = 0.5\n\
                   velocity = [0, 3, 0]";
    let mut solver = create(section, &world(DVec3::ONE, 9.81));
    let before = solver.particles().clone();
    let density = field(&mut *solver, "density");
    assert!(density.iter().any(|&d| (d - 1000.0).abs() < 0.1), "no full neighbourhood in the middle");
    let mut end = 0.0;
    run(&mut *solver, 0.5, |_, time, _| end = time);
    let after = solver.particles();
    for ((x, v), id) in after.position.iter().zip(&after.velocity).zip(&after.id) {
        assert!((v - DVec3::new(0.0, 3.0, -9.81 * end)).length() < 1e-3, "{v}");
        let shift = x - before.position[id.0 as usize] - DVec3::new(0.0, 3.0 * end, 0.0);
        // Symplectic Euler falls g dt t / 2 farther than the parabola.
        assert!(
            shift.truncate().length() < 1e-3 && (shift.z / (-4.905 * end * end) - 1.0).abs() < 0.02,
            "{shift}"
        );
    }
}

#[test]
fn a_disturbed_drop_keeps_its_momentum() {
    let mut solver = drop("");
    let mass: f64 = solver.particles().mass.iter().sum();
    let mut exchanged = 0.0;
    run(&mut *solver, 0.1, |solver, _, _| {
        exchanged = f64::max(exchanged, (2.0 * mass * kinetic_energy(solver)).sqrt())
    });
    assert!(exchanged > 0.01 * mass, "nothing moved: {exchanged}");
    let lost = momentum(&*solver).length() / exchanged;
    assert!(lost < 1e-6, "momentum lost, relative: {lost:e}");
}

#[test]
fn a_dam_break_stays_in_the_box_and_gains_no_energy() {
    let world = dam_world();
    let mut solver = create(DAM, &world);
    let potential = |s: &dyn Solver| {
        s.particles().position.iter().map(|x| s.particles().mass[0] * 9.81 * x.z).sum::<f64>()
    };
    let initial = potential(&*solver);
    let (low, high) = world.domain;
    let (mut fastest, mut last, mut farthest) = (0.0f64, initial, 0.0f64);
    run(&mut *solver, 1.0, |solver, _, report| {
        for x in &solver.particles().position {
            assert!(x.cmpge(low).all() && x.cmple(high).all(), "{x} is outside");
            farthest = farthest.max(x.x);
        }
        let energy = potential(solver) + kinetic_energy(solver) + report.energies[0].1;
        assert!(
            energy < 1.005 * initial && energy < last * 1.002,
            "{energy} J after {last} J of {initial} J"
        );
        last = energy;
        fastest = solver.particles().velocity.iter().map(|v| v.length()).fold(fastest, f64::max);
    });
    assert!(farthest > 1.45, "the wave reached {farthest} m only");
    assert!(fastest > 2.0 && fastest < 10.0, "{fastest} m/s");
    assert!(last < 0.9 * initial, "nothing dissipated");
}

#[test]
fn a_fast_drop_does_not_cross_a_wall() {
    let section = "spacing = 0.1\n[[shapes]]\ntype = \"sphere\"\ncenter = [0.4, 0.4, 0.4]\nradius = 0.3\n\
                   velocity = [-50, -30, -20]";
    let mut solver = create(section, &world(DVec3::ONE, 9.81));
    run(&mut *solver, 0.03, |solver, _, _| {
        for x in &solver.particles().position {
            assert!(x.min_element() > 0.0 && x.max_element() < 1.0, "{x} is outside");
        }
    });
}

#[test]
fn bits_do_not_depend_on_threads() {
    let ends: Vec<_> = [1, 2, 3]
        .iter()
        .map(|&threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            pool.install(|| {
                let section = DAM.replace("0.05\n", "0.025\n");
                let mut solver = create(&section, &dam_world());
                assert!(solver.particles().len() > 10_000);
                let groups = some_groups(solver.particles(), 1.0);
                let dt = 2.5 * solver.stable_dt();
                let reports: Vec<u64> =
                    (0..5).map(|_| step(&mut *solver, &groups, dt).energies[0].1.to_bits()).collect();
                (bits(solver.particles()), reports)
            })
        })
        .collect();
    assert!(ends.iter().all(|end| *end == ends[0]));
}

#[test]
fn bits_do_not_depend_on_vector_width() {
    let widths = Width::supported();
    println!("{widths:?}");
    for extra in ["", "artificial_viscosity = 0.1", "xsph = 0.1", "kernels = \"mueller\""] {
        let ends: Vec<_> = widths
            .iter()
            .map(|&width| {
                let section = DAM.replace("0.05\n", &format!("0.025\n{extra}\n"));
                let (parameters, particles) = section::read(&section, &dam_world()).expect("a good section");
                let mut solver = Sph::with_width(parameters, particles, width);
                let groups = some_groups(solver.particles(), 1.0);
                let dt = 2.5 * solver.stable_dt();
                let reports: Vec<u64> =
                    (0..5).map(|_| step(&mut solver, &groups, dt).energies[0].1.to_bits()).collect();
                (bits(solver.particles()), reports)
            })
            .collect();
        assert!(ends.iter().all(|end| *end == ends[0]));
    }
}

#[test]
fn integration_is_tentative_and_repeatable() {
    for substeps in [1.0, 3.0] {
        let mut solver = create(DAM, &dam_world());
        let none = Groups::none(solver.particles().len());
        run(&mut *solver, 0.05, |_, _, _| {});
        let dt = substeps * solver.stable_dt();
        let groups = some_groups(solver.particles(), 2.0);
        let before = bits(solver.particles());
        solver.begin().expect("a good state");
        let first = integrate(&mut *solver, &groups, dt);
        integrate(&mut *solver, &none, dt);
        let second = integrate(&mut *solver, &groups, dt);
        assert_eq!(before, bits(solver.particles()));
        assert_eq!(first.momentum, second.momentum);
        assert_eq!(first.velocity, second.velocity);
        assert!(first.slope.iter().all(|&z| z == DMat3::ZERO));
    }
}

/// Without walls and gravity, what groups receive is what free particles lose, whatever the groups' inertia.
#[test]
fn groups_and_free_particles_exchange_momentum() {
    for substeps in [1.0, 4.0] {
        for inertia in [0.5, 1e12, f64::INFINITY] {
            let mut solver = drop("");
            solver.begin().expect("a good state");
            let groups = some_groups(solver.particles(), inertia);
            let dt = substeps * solver.stable_dt();
            let answer = integrate(&mut *solver, &groups, dt);
            let (mut free, mut size) = (DVec3::ZERO, 0.0);
            for (i, &group) in groups.map.group_of().iter().enumerate() {
                if group == amalgam_particles::NO_GROUP {
                    let change =
                        solver.particles().mass[i] * (answer.velocity[i] - solver.particles().velocity[i]);
                    free += change;
                    size += change.length();
                }
            }
            let given: DVec3 = answer.momentum.iter().sum();
            assert!(given.length() > 1e-4 * size, "groups receive nothing: {given} of {size}");
            assert!((given + free).length() < 1e-6 * size, "{given} and {free} of {size}");
        }
    }
}

#[test]
fn a_group_of_infinite_inertia_moves_as_prescribed() {
    let mut solver = create(DAM, &dam_world());
    let groups = some_groups(solver.particles(), f64::INFINITY);
    let before = by_id(solver.particles());
    let dt = 3.0 * solver.stable_dt();
    step(&mut *solver, &groups, dt);
    let after = by_id(solver.particles());
    for &member in groups.map.all_members() {
        // Ids are indices before the first step.
        let moved = after[member as usize] - before[member as usize];
        assert!(moved.distance(dt * groups.velocity[0]) < 1e-15);
    }
}

#[test]
fn a_wall_stops_a_group_and_counts_the_impulse() {
    let section =
        "spacing = 0.1\n[[shapes]]\ntype = \"points\"\npositions = [[0.5, 0.5, 0.04], [0.5, 0.5, 0.14]]";
    let mut solver = create(section, &world(DVec3::ONE, 9.81));
    let mut map = GroupMap::default();
    map.set(2, &[0, 2], &[0, 1]);
    let groups = Groups::new(map, vec![50.0], vec![DVec3::new(1.0, 0.0, -20.0)]);
    let dt = solver.stable_dt();
    solver.begin().expect("a good state");
    let answer = integrate(&mut *solver, &groups, dt);
    // Nearer than the clearance of 0.025 m it may not come: 0.015 m are left.
    let velocity = groups.velocity[0] + answer.momentum[0] / 50.0;
    assert!((velocity.z * dt + 0.015).abs() < 1e-12, "{velocity}");
    assert!((velocity.x - 1.0).abs() < 1e-12);
}

#[test]
fn a_restored_fluid_goes_on_to_the_same_bits() {
    let mut solver = create(DAM, &dam_world());
    run(&mut *solver, 0.05, |_, _, _| {});
    let snapshot = solver.save().expect("checkpoints");
    let mut restored = create(DAM, &dam_world());
    restored.restore(&snapshot).expect("own snapshot");
    let groups = some_groups(solver.particles(), 3.0);
    let dt = 2.0 * solver.stable_dt();
    for _ in 0..5 {
        let (a, b) = (step(&mut *solver, &groups, dt), step(&mut *restored, &groups, dt));
        assert_eq!((a.stable_dt, a.energies), (b.stable_dt, b.energies));
    }
    assert_eq!(bits(solver.particles()), bits(restored.particles()));

    let other = create(&DAM.replace("0.8]", "0.7]"), &dam_world());
    assert!(restored.restore(&other.save().expect("checkpoints")).is_err());
    assert!(restored.restore(&snapshot[..snapshot.len() - 1]).is_err());
    assert!(restored.restore(b"something else").is_err());
}

#[test]
fn instability_is_reported_with_the_particle() {
    let mut solver = create(DAM, &dam_world());
    solver.begin().expect("a good state");
    let count = solver.particles().len();
    let mut map = GroupMap::default();
    map.set(count, &[0, 1], &[17]);
    let groups = Groups::new(map, vec![1.0], vec![DVec3::ZERO]);
    let dt = solver.stable_dt();
    integrate(&mut *solver, &groups, dt);
    let broken = [DVec3::new(0.0, f64::NAN, 0.0)];
    let end = amalgam_particles::StepEnd {
        dt,
        groups: &groups.map,
        group_velocity: &[DVec3::ZERO],
        member_velocity: &broken,
        group_spin: &[],
    };
    let error = solver.commit(&end, &[]).expect_err("a fault");
    assert!(error.to_string().contains("particle 17"), "{error}");
}
