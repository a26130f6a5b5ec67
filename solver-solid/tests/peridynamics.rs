//! Bonds that break: forces, momentum, waves, fracture, layouts, snapshots.

mod support;

use amalgam_particles::random::uniform_f64;
use amalgam_particles::{DVec3, ParticleId};
use amalgam_solver_kit::{Answer, FieldValues, Solver};
use amalgam_solver_solid::SolidSolver;
use support::{
    Groups, angular_momentum, bits, faults, integrate, integrate_to, momentum, set_state, solid, step,
};

const BLOCK: &str = "method = \"peridynamics\"\ntolerance = 1e-6\n[[bodies]]\ntype = \"peridynamic\"\n\
    shape = { type = \"box\", min = [0, 0, 0], max = [0.9, 0.6, 0.5] }\nspacing = 0.1\ndensity = 1000\n\
    young_modulus = 1e6\n";

fn block(more: &str) -> SolidSolver {
    solid(&format!("{BLOCK}{more}\n"), DVec3::ZERO)
}

/// Momentum that each particle gets in a step of an explicit solver: as if each were a group of its own.
fn forces(solid: &mut SolidSolver) -> Vec<DVec3> {
    let dt = 1e-9;
    let groups = Groups::each(solid.particles());
    solid.begin().expect("begin");
    integrate(solid, dt, &groups).momentum.into_iter().map(|j| j / dt).collect()
}

fn random_vectors(seed: u64, count: usize, size: f64) -> Vec<DVec3> {
    let number = |i: usize, axis: u64| size * (2.0 * uniform_f64(&[seed, i as u64, axis]) - 1.0);
    (0..count).map(|i| DVec3::new(number(i, 0), number(i, 1), number(i, 2))).collect()
}

fn field(solid: &mut SolidSolver, name: &str) -> Vec<f32> {
    let field = solid.fields().into_iter().find(|field| field.name == name).expect("the field is there");
    let FieldValues::Scalar(values) = field.values else { panic!("{name} is a number") };
    values
}

const EXPLICIT: &str = "integrator = \"velocity-verlet\"\n";

fn explicit(body: &str) -> SolidSolver {
    solid(&format!("{EXPLICIT}{body}"), DVec3::ZERO)
}

#[test]
fn a_rigid_motion_leaves_no_force() {
    for storage in ["automatic", "rows"] {
        let mut solid = explicit(&format!("{BLOCK}storage = \"{storage}\""));
        let start = solid.particles().position.clone();
        let scale = 1e6 * 0.1 * 0.1;
        let turn = glam::DMat3::from_axis_angle(DVec3::new(1.0, 2.0, -0.5).normalize(), 2.0);
        let moved = start.iter().map(|&x| turn * x + DVec3::new(37.0, -12.3, 4.567)).collect();
        set_state(&mut solid, moved, vec![DVec3::ZERO; start.len()]);
        let largest = forces(&mut solid).iter().map(|f| f.length()).fold(0.0, f64::max);
        // f32 resolves stretches of some 1e-7.
        assert!(largest < 1e-5 * scale, "{storage}: {largest} N");
        assert!(solid.fields().iter().find(|f| f.name == "damage").is_some());
        // At rest in a lattice that lies anywhere there is none at all.
        let shifted = start.iter().map(|&x| x + DVec3::new(64.0, -32.0, 8.0)).collect();
        set_state(&mut solid, shifted, vec![DVec3::ZERO; start.len()]);
        let largest = forces(&mut solid).iter().map(|f| f.length()).fold(0.0, f64::max);
        assert!(largest < 1e-6 * scale, "{storage}: {largest} N at rest");
    }
}

/// The sum over all pairs, in f64, from the constants of the material.
fn forces_by_pairs(solid: &SolidSolver, rest: &[DVec3]) -> Vec<DVec3> {
    let (spacing, horizon, modulus): (f64, f64, f64) = (0.1, 3.015 * 0.1, 1e6);
    let micromodulus = 18.0 * (modulus / 1.5) / (std::f64::consts::PI * horizon.powi(4));
    let x = &solid.particles().position;
    let mut force = vec![DVec3::ZERO; x.len()];
    for i in 0..x.len() {
        for j in (0..x.len()).filter(|&j| j != i) {
            let length = rest[i].distance(rest[j]);
            if length <= horizon {
                let share = ((horizon + 0.5 * spacing - length) / spacing).min(1.0);
                let stretch = x[i].distance(x[j]) / length - 1.0;
                let volume = spacing.powi(3);
                force[i] += (x[j] - x[i]).normalize() * (micromodulus * share * stretch * volume * volume);
            }
        }
    }
    force
}

#[test]
fn forces_are_those_of_the_pairs() {
    for storage in ["automatic", "rows"] {
        let mut solid = explicit(&format!("{BLOCK}storage = \"{storage}\"\ncalibration = \"continuum\""));
        let rest = solid.particles().position.clone();
        let shaken: Vec<DVec3> =
            rest.iter().zip(random_vectors(3, rest.len(), 1e-3)).map(|(x, d)| *x + d).collect();
        set_state(&mut solid, shaken, vec![DVec3::ZERO; rest.len()]);
        let expected = forces_by_pairs(&solid, &rest);
        let scale = expected.iter().map(|f| f.length()).fold(0.0, f64::max);
        for (i, (force, expected)) in forces(&mut solid).iter().zip(&expected).enumerate() {
            assert!(
                (*force - *expected).length() < 1e-5 * scale,
                "{storage}, particle {i}: {force} {expected}"
            );
        }
    }
}

/// With J = h f - h^2 K v for held groups, -K w is the derivative of the force along w.
#[test]
fn the_operator_is_the_derivative_of_the_force() {
    for storage in ["automatic", "rows"] {
        // Under tension, where nothing is left out of the derivative.
        let body = format!("{BLOCK}storage = \"{storage}\"\nsurface_correction = true");
        let mut solid = explicit(&body);
        let count = solid.particles().len();
        let rest = solid.particles().position.clone();
        let direction = random_vectors(5, count, 1.0);
        let at = |t: f64| -> Vec<DVec3> {
            let stretched = rest.iter().zip(random_vectors(4, count, 5e-4)).map(|(x, d)| *x * 1.05 + d);
            stretched.zip(&direction).map(|(x, w)| x + *w * t).collect()
        };
        let step = 2e-4;
        set_state(&mut solid, at(step), vec![DVec3::ZERO; count]);
        let ahead = forces(&mut solid);
        set_state(&mut solid, at(-step), vec![DVec3::ZERO; count]);
        let behind = forces(&mut solid);

        let mut implicit = support::solid(&body, DVec3::ZERO);
        set_state(&mut implicit, at(0.0), direction.clone());
        implicit.begin().expect("begin");
        let mut groups = Groups::each(implicit.particles());
        groups.inertia.fill(f64::INFINITY);
        groups.velocity = direction.clone();
        let dt = 1.0;
        let with = integrate(&mut implicit, dt, &groups).momentum;
        groups.velocity.fill(DVec3::ZERO);
        let without = integrate(&mut implicit, dt, &groups).momentum;
        let scale = with.iter().zip(&without).map(|(a, b)| (*a - *b).length()).fold(0.0, f64::max);
        for i in 0..count {
            let derivative = (ahead[i] - behind[i]) / (2.0 * step);
            let product = with[i] - without[i];
            assert!((derivative - product).length() < 2e-3 * scale, "{storage}: {derivative} {product}");
        }
    }
}

#[test]
fn a_free_body_keeps_its_momenta() {
    let mut solid = block("damping_time = 1e-3\nvelocity = [3, 1, -2]");
    let center = DVec3::new(0.45, 0.3, 0.25);
    let velocity = solid.particles().position.iter().zip(random_vectors(8, solid.particles().len(), 0.2));
    let velocity =
        velocity.map(|(x, d)| DVec3::new(3.0, 1.0, -2.0) + DVec3::Z.cross(*x - center) * 4.0 + d).collect();
    let position = solid.particles().position.clone();
    set_state(&mut solid, position, velocity);
    let (before, spin) = (momentum(&solid), angular_momentum(&solid));
    for _ in 0..50 {
        step(&mut solid, 1e-4);
    }
    assert!((momentum(&solid) - before).length() < 1e-6 * before.length());
    // Implicit Euler keeps angular momentum to first order in the step: (h w)^2 a step.
    assert!((angular_momentum(&solid) - spin).length() < 1e-4 * spin.length());

    let mut solid = explicit(&format!("{BLOCK}velocity = [3, 1, -2]"));
    let velocity: Vec<DVec3> = random_vectors(9, solid.particles().len(), 1.0);
    let position = solid.particles().position.clone();
    set_state(&mut solid, position, velocity);
    let (before, spin) = (momentum(&solid), angular_momentum(&solid));
    for _ in 0..200 {
        let dt = solid.stable_dt();
        step(&mut solid, dt);
    }
    let scale: f64 =
        solid.particles().velocity.iter().zip(&solid.particles().mass).map(|(v, m)| v.length() * m).sum();
    // Both ends of a bond come to the same force; what is left is the rounding of sums in f32.
    assert!((momentum(&solid) - before).length() < 1e-6 * scale);
    assert!((angular_momentum(&solid) - spin).length() < 1e-6 * scale);
}

#[test]
fn both_layouts_move_alike() {
    let run = |storage: &str| {
        let mut solid =
            block(&format!("storage = \"{storage}\"\nsurface_correction = true\nfracture_energy = 20"));
        let position = solid.particles().position.clone();
        // Pulled apart from the middle.
        let velocity = position.iter().map(|x| DVec3::new(3.0 * (x.x - 0.45), 0.0, 0.0)).collect();
        set_state(&mut solid, position, velocity);
        let broken: usize = (0..40).map(|_| step(&mut solid, 1e-3).broken.len()).sum();
        (solid, broken)
    };
    let ((lattice, broken), (rows, broken_rows)) = (run("automatic"), run("rows"));
    assert!(broken > 100, "{broken}");
    assert!(broken.abs_diff(broken_rows) * 50 < broken, "{broken} and {broken_rows}");
    let by_place = |solid: &SolidSolver| {
        let mut x = solid.particles().position.clone();
        x.sort_by(|a, b| a.to_array().partial_cmp(&b.to_array()).expect("numbers"));
        x
    };
    let mean = |solid: &SolidSolver| {
        solid.particles().position.iter().map(|x| x.x * x.x).sum::<f64>() / solid.particles().len() as f64
    };
    assert!((mean(&lattice) / mean(&rows) - 1.0).abs() < 1e-3);
    assert_eq!(by_place(&lattice).len(), by_place(&rows).len());
}

/// A lattice whose layers lie across its longest side, since rows along the next one are long.
#[test]
fn a_long_plate_has_the_forces_of_both_layouts() {
    let of = |storage: &str| {
        let mut solid = explicit(&format!(
            "method = \"peridynamics\"\n[[bodies]]\ntype = \"peridynamic\"\nspacing = 0.1\ndensity = 1000\n\
             shape = {{ type = \"box\", min = [0, 0, 0], max = [6.6, 0.3, 7.1] }}\nyoung_modulus = 1e6\n\
             storage = \"{storage}\"\nsurface_correction = true\n"
        ));
        let rest = solid.particles().position.clone();
        let bent = |x: &DVec3| *x + DVec3::new((3.0 * x.z).sin(), x.x * x.z, (2.0 * x.x + x.y).cos()) * 1e-3;
        let (position, still) = (rest.iter().map(bent).collect(), vec![DVec3::ZERO; rest.len()]);
        set_state(&mut solid, position, still);
        let mut forces: Vec<(DVec3, DVec3)> = rest.into_iter().zip(forces(&mut solid)).collect();
        forces.sort_by(|a, b| a.0.to_array().partial_cmp(&b.0.to_array()).expect("numbers"));
        forces
    };
    let (lattice, rows) = (of("automatic"), of("rows"));
    let scale = rows.iter().map(|(_, force)| force.length()).fold(0.0, f64::max);
    assert!(lattice.len() == rows.len() && lattice.len() > 10_000 && scale > 0.0);
    for ((place, force), (other_place, other)) in lattice.into_iter().zip(rows) {
        assert_eq!(place, other_place);
        assert!(force.distance(other) < 1e-4 * scale, "{place}: {force} {other}, of {scale}");
    }
}

#[test]
fn bonds_break_once_and_for_good() {
    let mut solid = block("critical_stretch = 0.02\nstrength_scatter = 0.2");
    let rest = solid.particles().position.clone();
    let all = solid.joined_pairs();
    let count = rest.len();
    let pulled = rest.iter().map(|&x| DVec3::new(x.x * 1.02, x.y, x.z)).collect();
    set_state(&mut solid, pulled, vec![DVec3::ZERO; count]);
    let mut broken = step(&mut solid, 1e-9).broken;
    assert!(broken.len() > 100 && broken.len() < all.len());
    // Back at rest nothing heals, and nothing breaks again.
    set_state(&mut solid, rest, vec![DVec3::ZERO; count]);
    assert!(step(&mut solid, 1e-9).broken.is_empty());
    let left = solid.joined_pairs();
    assert_eq!(left.len() + broken.len(), all.len());
    assert!(broken.iter().all(|pair| all.contains(pair) && !left.contains(pair)));
    let joined = |&(a, b): &(ParticleId, ParticleId)| solid.joined(a.0 as u32, b.0 as u32);
    assert!(left.iter().all(joined) && !broken.iter().any(joined));
    broken.sort_unstable();
    broken.dedup();
    assert_eq!(left.len() + broken.len(), all.len());
    // Damage counts each broken bond at both of its ends.
    let damage = field(&mut solid, "damage");
    let mut intact = vec![0.0; count];
    all.iter().for_each(|(a, b)| {
        intact[a.0 as usize] += 1.0;
        intact[b.0 as usize] += 1.0;
    });
    let lost: f64 = damage.iter().zip(&intact).map(|(d, n)| f64::from(*d) * n).sum();
    assert!((lost - 2.0 * broken.len() as f64).abs() < 1e-2, "{lost}");
}

#[test]
fn a_notch_cuts_a_body_in_two() {
    let mut solid = block("notches = [{ corner = [0.45, -1, -1], edge_u = [0, 3, 0], edge_v = [0, 0, 3] }]");
    let fragment = field(&mut solid, "fragment");
    let first = solid.particles().position[0].x < 0.45;
    for (x, fragment) in solid.particles().position.iter().zip(&fragment) {
        assert_eq!(*fragment, if (x.x < 0.45) == first { 0.0 } else { 1.0 });
    }
    let damage = field(&mut solid, "damage");
    assert!(damage.iter().any(|&d| d > 0.3) && damage.contains(&0.0));
    // The halves part without a force.
    let position = solid.particles().position.clone();
    let velocity = position.iter().map(|x| DVec3::X * if x.x < 0.45 { -1.0 } else { 1.0 }).collect();
    set_state(&mut solid, position, velocity);
    for _ in 0..10 {
        assert!(step(&mut solid, 1e-2).broken.is_empty());
    }
    assert!(field(&mut solid, "stretch").iter().all(|s| s.abs() < 1e-6));
}

#[test]
fn a_snapshot_keeps_broken_bonds() {
    for storage in ["automatic", "rows"] {
        let body = format!(
            "storage = \"{storage}\"\ncritical_stretch = 0.03\nthreshold_rise = 0.25\nstrength_scatter = 0.3"
        );
        let mut solid = block(&body);
        let position = solid.particles().position.clone();
        let velocity = position.iter().map(|x| DVec3::new(4.0 * (x.x - 0.45), 0.0, 0.0)).collect();
        set_state(&mut solid, position, velocity);
        let first: usize = (0..3).map(|_| step(&mut solid, 5e-3).broken.len()).sum();
        let snapshot = solid.save().expect("a snapshot");
        let mut second = block(&body);
        second.restore(&snapshot).expect("its own");
        assert_eq!(field(&mut solid, "damage"), field(&mut second, "damage"));
        let mut more = 0;
        for _ in 0..10 {
            let broken = step(&mut solid, 5e-3).broken;
            more += broken.len();
            assert_eq!(broken, step(&mut second, 5e-3).broken);
            assert_eq!(bits(&solid), bits(&second), "{storage}");
        }
        assert!(first > 50 && more > 0, "{first} {more}");
        assert!(second.restore(&snapshot[..snapshot.len() - 1]).is_err());
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    for storage in ["automatic", "rows"] {
        let runs: Vec<Vec<u64>> = [1, 2, 3]
            .into_iter()
            .map(|threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
                pool.install(|| {
                    let mut solid = solid(
                        &format!(
                            "method = \"peridynamics\"\n[[bodies]]\ntype = \"peridynamic\"\nspacing = 0.1\ndensity = 1000\n\
                             shape = {{ type = \"sphere\", center = [0, 0, 0], radius = 1.15 }}\nyoung_modulus = 1e6\n\
                             critical_stretch = 0.02\nstrength_scatter = 0.4\nstorage = \"{storage}\""
                        ),
                        DVec3::ZERO,
                    );
                    let position = solid.particles().position.clone();
                    let velocity = position.iter().map(|x| DVec3::new(4.0 * x.x, 0.0, -2.0 * x.z)).collect();
                    set_state(&mut solid, position, velocity);
                    let mut all = Vec::new();
                    for _ in 0..4 {
                        let report = step(&mut solid, 2e-3);
                        all.extend(report.broken.iter().flat_map(|(a, b)| [a.0, b.0]));
                        all.extend(report.energies.iter().map(|(_, energy)| energy.to_bits()));
                        all.extend(bits(&solid));
                    }
                    all
                })
            })
            .collect();
        assert!(runs.iter().all(|run| *run == runs[0]), "{storage}");
    }
}

#[test]
fn faults_name_their_keys() {
    let with = |key: &str| faults(&format!("{BLOCK}{key}\n"));
    for (line, key) in [
        ("horizon = 0.5", "bodies[0].horizon"),
        ("fracture_energy = 1\ncritical_stretch = 0.1", "bodies[0].critical_stretch"),
        ("thickness = 0.1", "bodies[0].thickness"),
        ("model = \"plane-stress\"", "bodies[0].model"),
        ("strength_scatter = 1.0", "bodies[0].strength_scatter"),
        ("damping_time = -1", "bodies[0].damping_time"),
        ("held = [{ min = [5, 5, 5], max = [6, 6, 6] }]", "bodies[0].held[0]"),
        (
            "notches = [{ corner = [0, 0, 0], edge_u = [1, 0, 0], edge_v = [2, 0, 0] }]",
            "bodies[0].notches[0].edge_v",
        ),
    ] {
        assert_eq!(with(line).iter().map(|fault| fault.key.as_str()).collect::<Vec<_>>(), [key], "{line}");
    }
    let springs = BLOCK.replace("peridynamics", "mass-spring");
    assert_eq!(faults(&springs)[0].key, "bodies[0].type");
}

/// Nothing that passes the checks gives a number that is not finite: it survives, or ends in an error with an
/// id.
#[test]
fn extreme_bodies_survive_or_name_a_particle() {
    // A particle of nearly no mass against a stiffness 1e12 times larger, by the implicit integrator.
    let mut stiff =
        solid(&BLOCK.replace("density = 1000", "density = 1e-6").replace("1e6", "1e9"), DVec3::Z * -10.0);
    for _ in 0..3 {
        step(&mut stiff, 1e-2);
    }
    assert!(stiff.particles().position.iter().all(|x| x.is_finite()));
    // Particles pressed onto one another, and turned inside out.
    for storage in ["automatic", "rows"] {
        for factor in [0.0, -1.0, 1e-9] {
            let mut solid = block(&format!("storage = \"{storage}\""));
            let position: Vec<DVec3> = solid.particles().position.iter().map(|x| *x * factor).collect();
            let count = position.len();
            set_state(&mut solid, position, vec![DVec3::ZERO; count]);
            let report = step(&mut solid, 1e-4);
            assert!(report.energies.iter().all(|(_, energy)| energy.is_finite()));
            assert!(solid.particles().velocity.iter().all(|v| v.is_finite()), "{storage} {factor}");
        }
    }
    // An explicit step far beyond the stable one tears the body apart.
    let mut unstable = explicit(BLOCK);
    let position = unstable.particles().position.clone();
    let velocity = random_vectors(2, position.len(), 1.0);
    set_state(&mut unstable, position, velocity);
    let dt = 50.0 * unstable.stable_dt();
    let mut failed = None;
    for _ in 0..200 {
        let groups = Groups::none(unstable.particles().len());
        unstable.begin().expect("begin");
        let answer = integrate(&mut unstable, dt, &groups);
        let end = amalgam_particles::StepEnd {
            dt,
            groups: &groups.map,
            group_velocity: &[],
            member_velocity: &[],
            group_spin: &[],
        };
        failed = unstable.commit(&end, &answer.velocity).err();
        if failed.is_some() {
            break;
        }
    }
    let message = failed.expect("the body is torn apart").to_string();
    assert!(message.starts_with("particle ") && message.contains("spacings away"), "{message}");
}

/// Groups as single unknowns: what a group of bonded particles answers agrees with their motion, and momentum
/// that a held group takes up is what the rest loses.
#[test]
fn groups_move_as_one() {
    let mut solid = block("velocity = [0, 0, -1]");
    let position = solid.particles().position.clone();
    let members: Vec<u32> = (0..position.len() as u32).filter(|&i| position[i as usize].z < 0.1).collect();
    let mass: f64 = members.iter().map(|&i| solid.particles().mass[i as usize]).sum();
    for (inertia, velocity) in [(f64::INFINITY, DVec3::ZERO), (3.0 * mass, DVec3::new(0.0, 0.0, -0.2))] {
        solid.begin().expect("begin");
        let groups = Groups::one(solid.particles().len(), &members, inertia, velocity, DVec3::ZERO);
        let answer = integrate(&mut solid, 1e-3, &groups);
        let end = answer.velocity[members[0] as usize];
        assert!(members.iter().all(|&i| answer.velocity[i as usize] == end));
        let rest: DVec3 = (0..position.len())
            .filter(|i| !members.contains(&(*i as u32)))
            .map(|i| (answer.velocity[i] - solid.particles().velocity[i]) * solid.particles().mass[i])
            .sum();
        let given = answer.momentum[0];
        assert!((given + rest).length() < 1e-4 * rest.length(), "{given} {rest}");
        if inertia.is_finite() {
            assert!(((end - velocity) * inertia - given).length() < 1e-9 * given.length());
            assert!(answer.slope[0].determinant() > 0.0);
        }
    }
}

#[test]
fn springs_and_bonds_stand_in_one_participant() {
    let both = format!(
        "{BLOCK}velocity = [0, 0, 1]\n[[bodies]]\ntype = \"points\"\npositions = [[5, 0, 0], [6, 0, 0]]\nmass = 1\nradius = 0.1\n\
         springs = [{{ a = 0, b = 1, stiffness = 100, rest_length = 0.9 }}]"
    );
    let mut together = solid(&both, DVec3::ZERO);
    let mut alone = block("velocity = [0, 0, 1]");
    let count = alone.particles().len();
    for _ in 0..5 {
        step(&mut together, 1e-2);
        step(&mut alone, 1e-2);
    }
    assert!(together.particles().position[count + 1].x < 5.9999);
    let largest = (0..count)
        .map(|i| together.particles().position[i].distance(alone.particles().position[i]))
        .fold(0.0, f64::max);
    assert!(largest < 1e-9, "{largest}");
    let fragments = field(&mut together, "fragment");
    assert_eq!((fragments[0], fragments[count]), (0.0, -1.0));
}

/// Iterations of a cube so many spacings wide, a corner of which is struck, in a step in which sound goes
/// from side to side.
fn iterations_of_cube(width: usize) -> u32 {
    let edge = 0.1 * width as f64;
    let section = format!(
        "method = \"peridynamics\"\ntolerance = 1e-6\n[[bodies]]\ntype = \"peridynamic\"\n\
         shape = {{ type = \"box\", min = [0, 0, 0], max = [{edge}, {edge}, {edge}] }}\nspacing = 0.1\n\
         density = 1000\nyoung_modulus = 1e6\n"
    );
    let mut cube = solid(&section, DVec3::ZERO);
    let position = cube.particles().position.clone();
    let struck = |x: &DVec3| if x.length() < 0.3 * edge { DVec3::new(1.0, 0.5, 0.0) } else { DVec3::ZERO };
    let velocity = position.iter().map(struck).collect();
    set_state(&mut cube, position, velocity);
    step(&mut cube, edge / 1000f64.sqrt());
    cube.iterations()
}

#[test]
fn iterations_hardly_grow_with_the_size_of_a_body() {
    let (small, large) = (iterations_of_cube(8), iterations_of_cube(24));
    // Without coarse grids they grow with it, nearly three times.
    assert!(4 * large < 7 * small, "{small} {large}");
}

#[test]
fn a_repetition_comes_to_the_answer_of_a_first_solve() {
    let begun = || {
        let mut solid = block("velocity = [0, 0, 1]\nheld = [{ min = [0.7, 0, 0], max = [1, 1, 1] }]");
        solid.begin().expect("begin");
        solid
    };
    let (mut solid, mut other) = (begun(), begun());
    let pushed = |impulse: DVec3| {
        Groups::one(begun().particles().len(), &[0, 1, 60], 5.0, DVec3::new(0.1, 0.0, 0.2), impulse)
    };
    let (dt, impulse) = (0.01, DVec3::new(3.0, -2.0, 1.0));
    let first = integrate(&mut solid, dt, &pushed(DVec3::ZERO));
    let apart = |a: &Answer, b: &Answer| {
        a.velocity.iter().zip(&b.velocity).map(|(a, b)| a.distance(*b)).fold(0.0, f64::max)
    };
    assert!(apart(&first, &integrate(&mut solid, dt, &pushed(DVec3::ZERO))) < 1e-12);
    assert_eq!(solid.iterations(), 0, "nothing is left to do");
    let again = integrate(&mut solid, dt, &pushed(impulse));
    let alone = integrate(&mut other, dt, &pushed(impulse));
    assert!(apart(&again, &alone) < 1e-4, "{} m/s", apart(&again, &alone));
    assert!(again.momentum[0].distance(alone.momentum[0]) < 1e-4 * impulse.length());
    assert!(again.momentum[0].distance(first.momentum[0]) > 0.1 * impulse.length());
}

#[test]
fn a_forced_answer_takes_fewer_iterations_and_the_next_one_the_rest() {
    let begun = || {
        let mut solid = block("velocity = [0, 0, 1]\nheld = [{ min = [0.7, 0, 0], max = [1, 1, 1] }]");
        solid.begin().expect("begin");
        solid
    };
    let (mut solid, mut other) = (begun(), begun());
    let groups = Groups::one(
        begun().particles().len(),
        &[0, 1, 60],
        5.0,
        DVec3::new(0.1, 0.0, 0.2),
        DVec3::new(3.0, -2.0, 1.0),
    );
    let dt = 0.01;
    let whole = integrate(&mut other, dt, &groups);
    let error = |answer: &Answer| {
        answer.velocity.iter().zip(&whole.velocity).map(|(a, b)| a.distance(*b)).fold(0.0, f64::max)
    };
    let rough = integrate_to(&mut solid, dt, 0.01, &groups).expect("the solve converges");
    let iterations = solid.iterations();
    let rest = integrate(&mut solid, dt, &groups);
    assert!(iterations > 0 && 2 * iterations < other.iterations(), "{iterations} of {}", other.iterations());
    assert!(solid.iterations() > 0 && solid.iterations() < other.iterations());
    assert!(error(&rough) > 100.0 * error(&rest), "{} and {} m/s", error(&rough), error(&rest));
    assert!(error(&rest) < 1e-4, "{} m/s", error(&rest));
}

/// Particles that can never collide with each other have spheres as large as their cubes, others spheres that
/// touch.
#[test]
fn spheres_of_a_solid_are_as_large_as_its_cubes_where_none_can_collide() {
    let alone = BLOCK.replace("tolerance", "self_collision = false\ntolerance");
    for (section, more, radius) in [
        (BLOCK, "", 0.05),
        (&alone, "fracture_energy = 10", 0.05),
        (&alone, "radius = 0.07", 0.07),
        (&alone, "", (0.75 / std::f64::consts::PI).cbrt() * 0.1),
    ] {
        let solver = solid(&format!("{section}{more}\n"), DVec3::ZERO);
        let particles = solver.particles();
        assert!(
            particles.radius.iter().all(|r| (r - radius).abs() < 1e-15),
            "{more}: {}",
            particles.radius[0]
        );
    }
    // Then the volume of the spheres is that of the body.
    let solver = solid(&alone, DVec3::ZERO);
    let volume: f64 =
        solver.particles().radius.iter().map(|r| 4.0 / 3.0 * std::f64::consts::PI * r.powi(3)).sum();
    assert!((volume / 0.27 - 1.0).abs() < 1e-12, "{volume}");
}
