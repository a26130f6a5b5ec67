//! Groups: the reduced system against a dense one, and the momentum and slope that are answered.

mod support;

use amalgam_particles::random::{bits, uniform_f64};
use amalgam_particles::{DMat3, DVec3, GroupMap, NO_GROUP};
use amalgam_solver_kit::Solver;
use amalgam_solver_solid::SolidSolver;
use proptest::prelude::*;
use support::{Groups, integrate, solid, try_integrate};

struct Spring {
    ends: [usize; 2],
    stiffness: f64,
    damping: f64,
    rest_length: f64,
}

/// A random network, as numbers and as a section.
struct Network {
    springs: Vec<Spring>,
    foundation: (f64, f64),
    solid: SolidSolver,
}

const GRAVITY: DVec3 = DVec3::new(0.3, -1.0, -9.0);

fn network(seed: u64, count: usize) -> Network {
    let mut counter = 0;
    let mut uniform = |low: f64, high: f64| {
        counter += 1;
        low + (high - low) * uniform_f64(&[seed, counter])
    };
    let mut vectors = |size: f64| -> Vec<String> {
        (0..count)
            .map(|_| {
                format!(
                    "[{:?}, {:?}, {:?}]",
                    uniform(-size, size),
                    uniform(-size, size),
                    uniform(-size, size)
                )
            })
            .collect()
    };
    let (positions, velocities) = (vectors(1.0), vectors(2.0));
    let masses: Vec<String> = (0..count).map(|_| format!("{:?}", 10f64.powf(uniform(-2.0, 1.0)))).collect();
    let springs: Vec<Spring> = (0..3 * count)
        .filter_map(|i| {
            let ends = [i % count, bits(&[seed, 77, i as u64]) as usize % count];
            (ends[0] != ends[1]).then(|| Spring {
                ends,
                stiffness: 10f64.powf(uniform(0.0, 4.0)),
                damping: uniform(0.0, 20.0),
                rest_length: uniform(0.2, 2.0),
            })
        })
        .collect();
    let foundation = (uniform(0.0, 50.0), uniform(0.0, 5.0));
    let text: Vec<String> = springs
        .iter()
        .map(|s| {
            format!(
                "{{ a = {}, b = {}, stiffness = {:?}, damping = {:?}, rest_length = {:?} }}",
                s.ends[0], s.ends[1], s.stiffness, s.damping, s.rest_length
            )
        })
        .collect();
    let section = format!(
        "method = \"mass-spring\"\ntolerance = 1e-13\n[[bodies]]\ntype = \"points\"\npositions = [{}]\nvelocities = [{}]\nmass = [{}]\n\
         radius = 0.01\npinned = [1]\nsprings = [{}]\nfoundation = {{ stiffness = {:?}, damping = {:?} }}",
        positions.join(", "),
        velocities.join(", "),
        masses.join(", "),
        text.join(", "),
        foundation.0,
        foundation.1
    );
    Network { springs, foundation, solid: solid(&section, GRAVITY) }
}

/// Random groups: the second has the pinned particle 1 and an infinite inertia, the third an infinite one
/// without.
fn random_groups(solid: &SolidSolver, seed: u64) -> Groups {
    let count = solid.particles().len() as u32;
    let mut lists: Vec<Vec<u32>> = vec![Vec::new(); 5];
    for i in (0..count).filter(|&i| i != 1) {
        if let Some(list) = lists.get_mut(bits(&[seed, 5, u64::from(i)]) as usize % 8) {
            list.push(i);
        }
    }
    lists[1].push(1);
    lists.retain(|list| !list.is_empty());
    let mut offsets = vec![0];
    offsets.extend(lists.iter().scan(0, |end, list| {
        *end += list.len() as u32;
        Some(*end)
    }));
    let mut map = GroupMap::default();
    map.set(count as usize, &offsets, &lists.concat());
    let vector = |key: u64, size: f64| {
        DVec3::from_array([0, 1, 2].map(|a| size * (uniform_f64(&[seed, key, a]) - 0.5)))
    };
    let held = |g: usize| lists[g].contains(&1) || g == 2;
    Groups {
        inertia: (0..lists.len())
            .map(|g| {
                if held(g) {
                    f64::INFINITY
                } else {
                    10f64.powf(4.0 * uniform_f64(&[seed, 8, g as u64]) - 2.0)
                }
            })
            .collect(),
        velocity: (0..lists.len() as u64).map(|g| vector(100 + g, 4.0)).collect(),
        impulse: (0..lists.len() as u64).map(|g| vector(200 + g, 3.0)).collect(),
        map,
    }
}

/// The dense system of a stage: `h C + h^2 K` and the right-hand side before reduction, over particles.
struct Dense {
    stiffness: Vec<Vec<f64>>,
    impulse: Vec<f64>,
    velocity: Vec<DVec3>,
}

fn dense(network: &Network, groups: &Groups, dt: f64) -> Dense {
    let particles = network.solid.particles();
    let count = particles.len();
    let velocity: Vec<DVec3> = (0..count)
        .map(|i| match groups.map.group_of()[i] {
            NO_GROUP => particles.velocity[i],
            group => groups.velocity[group as usize],
        })
        .collect();
    let mut matrix = vec![vec![0.0; 3 * count]; 3 * count];
    let mut impulse = vec![0.0; 3 * count];
    for i in 0..count {
        // Anchored where it is, a foundation has no elastic force in the first step.
        let (stiffness, damping) = if particles.immovable[i] { (0.0, 0.0) } else { network.foundation };
        let share = dt * dt * stiffness + dt * damping;
        for axis in 0..3 {
            matrix[3 * i + axis][3 * i + axis] += share;
            impulse[3 * i + axis] += dt * particles.mass[i] * GRAVITY[axis] - share * velocity[i][axis];
        }
    }
    for spring in &network.springs {
        let [a, b] = spring.ends;
        let d = particles.position[b] - particles.position[a];
        let (l, n) = (d.length(), d.normalize());
        let transverse = (1.0 - spring.rest_length / l).max(0.0);
        let force = n * (spring.stiffness * (l - spring.rest_length));
        for row in 0..3 {
            let mut share_of_velocity = 0.0;
            for column in 0..3 {
                let nn = n[row] * n[column];
                let identity = f64::from(row == column);
                let entry = dt * dt * spring.stiffness * (nn + transverse * (identity - nn))
                    + dt * spring.damping * nn;
                matrix[3 * a + row][3 * a + column] += entry;
                matrix[3 * b + row][3 * b + column] += entry;
                matrix[3 * a + row][3 * b + column] -= entry;
                matrix[3 * b + row][3 * a + column] -= entry;
                share_of_velocity += entry * (velocity[b][column] - velocity[a][column]);
            }
            impulse[3 * a + row] += dt * force[row] + share_of_velocity;
            impulse[3 * b + row] -= dt * force[row] + share_of_velocity;
        }
    }
    Dense { stiffness: matrix, impulse, velocity }
}

/// Gauss elimination with row pivoting.
fn solve(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Vec<f64> {
    let n = b.len();
    for k in 0..n {
        let pivot = (k..n).max_by(|&i, &j| a[i][k].abs().total_cmp(&a[j][k].abs())).expect("a row");
        a.swap(k, pivot);
        b.swap(k, pivot);
        for i in k + 1..n {
            let factor = a[i][k] / a[k][k];
            let (above, below) = a.split_at_mut(i);
            below[0].iter_mut().zip(&above[k]).skip(k).for_each(|(entry, pivot)| *entry -= factor * pivot);
            b[i] -= factor * b[k];
        }
    }
    for k in (0..n).rev() {
        b[k] = (b[k] - (k + 1..n).map(|j| a[k][j] * b[j]).sum::<f64>()) / a[k][k];
    }
    b
}

/// Unknown of each particle; nothing if it is held.
fn unknowns(solid: &SolidSolver, groups: &Groups) -> (Vec<Option<usize>>, usize) {
    let held_group = |g: u32| groups.inertia[g as usize].is_infinite();
    let mut next = groups.map.len();
    let unknown = (0..solid.particles().len())
        .map(|i| match groups.map.group_of()[i] {
            NO_GROUP if solid.particles().immovable[i] => None,
            NO_GROUP => {
                next += 1;
                Some(next - 1)
            }
            g if held_group(g) => None,
            g => Some(g as usize),
        })
        .collect();
    (unknown, next)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn groups_answer_as_the_dense_reduced_system_does(seed in any::<u64>(), count in 4usize..24) {
        let mut network = network(seed, count);
        let groups = random_groups(&network.solid, seed);
        let dt = 10f64.powf(-3.0 + 2.0 * uniform_f64(&[seed, 3]));
        let Dense { stiffness, impulse, velocity } = dense(&network, &groups, dt);
        let (unknown, unknown_count) = unknowns(&network.solid, &groups);

        // S^T A S with the groups' inertia; unused numbers (held groups) get a one on the diagonal.
        let mut matrix = vec![vec![0.0; 3 * unknown_count]; 3 * unknown_count];
        let mut right = vec![0.0; 3 * unknown_count];
        let rows = |i: usize| (0..3).map(move |axis| 3 * i + axis);
        for i in 0..count {
            let Some(u) = unknown[i] else { continue };
            for axis in 0..3 {
                right[3 * u + axis] += impulse[3 * i + axis];
                if groups.map.group_of()[i] == NO_GROUP {
                    matrix[3 * u + axis][3 * u + axis] += network.solid.particles().mass[i];
                }
                for j in 0..count {
                    let Some(w) = unknown[j] else { continue };
                    for column in 0..3 {
                        matrix[3 * u + axis][3 * w + column] += stiffness[3 * i + axis][3 * j + column];
                    }
                }
            }
        }
        for (g, &inertia) in groups.inertia.iter().enumerate() {
            for axis in 0..3 {
                matrix[3 * g + axis][3 * g + axis] += if inertia.is_finite() { inertia } else { 1.0 };
                right[3 * g + axis] += groups.impulse[g][axis];
            }
        }
        let slopes: Vec<DMat3> = (0..groups.map.len())
            .map(|g| {
                let inertia = groups.inertia[g];
                let block = DMat3::from_cols_array_2d(&[0, 1, 2].map(|column| {
                    [0, 1, 2].map(|row| {
                        matrix[3 * g + row][3 * g + column] - if row == column { inertia } else { 0.0 }
                    })
                }));
                if inertia.is_finite() { block } else { DMat3::ZERO }
            })
            .collect();
        let change = solve(matrix, right);
        let change_of = |i: usize| unknown[i].map_or(DVec3::ZERO, |u| DVec3::from_slice(&change[3 * u..3 * u + 3]));

        network.solid.begin().expect("begin");
        let answer = integrate(&mut network.solid, dt, &groups);
        let again = integrate(&mut network.solid, dt, &groups);

        let speed = velocity.iter().map(|v| v.length()).fold(0.0, f64::max);
        for (i, start) in velocity.iter().enumerate() {
            let expected = *start + change_of(i);
            prop_assert!((answer.velocity[i] - expected).length() < 1e-9 * speed, "particle {}: {} for {}", i, answer.velocity[i], expected);
            prop_assert!((again.velocity[i] - expected).length() < 1e-9 * speed);
        }
        for (g, &inertia) in groups.inertia.iter().enumerate() {
            // Row of the group without its inertia and impulse, from the dense matrix.
            let mut row = DVec3::ZERO;
            let mut scale = 0.0;
            for &i in groups.map.members(g) {
                for r in rows(i as usize) {
                    let moved: f64 = (0..count)
                        .map(|j| (0..3).map(|c| stiffness[r][3 * j + c] * change_of(j)[c]).sum::<f64>())
                        .sum();
                    row[r % 3] += impulse[r] - moved;
                    scale += impulse[r].abs() + moved.abs();
                }
            }
            prop_assert!((answer.momentum[g] - row).length() < 1e-8 * scale, "group {}: {} for {}", g, answer.momentum[g], row);
            let largest = |z: DMat3| z.to_cols_array().iter().fold(0.0, |largest: f64, z| largest.max(z.abs()));
            let error = largest(answer.slope[g] - slopes[g]);
            prop_assert!(error <= 1e-10 * (largest(slopes[g]) + inertia.min(1.0)), "slope of group {}: {}", g, error);
        }
    }
}

/// Two masses on one spring each, merged: the answer is that of a single mass on both springs.
#[test]
fn a_group_moves_as_one_particle_of_its_inertia() {
    let dt = 1e-2;
    let section = |masses: &str, stiffness: f64| {
        format!(
            "method = \"mass-spring\"\ntolerance = 1e-14\n[[bodies]]\ntype = \"points\"\npositions = [[0, 0, 0]{}\nmass = {masses}\nradius = 0.1\n\
             foundation = {{ stiffness = {stiffness}, damping = 1 }}",
            if masses.starts_with('[') { ", [0.1, 0, 0]]" } else { "]" }
        )
    };
    let gravity = DVec3::new(0.0, 0.0, -10.0);
    let mut pair = solid(&section("[1, 3]", 100.0), gravity);
    let (inertia, velocity, impulse) = (10.0, DVec3::new(1.0, 0.0, -2.0), DVec3::new(0.0, 0.5, 0.25));
    let groups = Groups::one(pair.particles().len(), &[1, 0], inertia, velocity, impulse);
    pair.begin().expect("begin");
    let answer = integrate(&mut pair, dt, &groups);
    // One particle by hand: (M + 2 (h^2 k + h c)) dv = h m g - 2 (h^2 k + h c) v + J_ext, with own mass 4 in
    // the weight.
    let share = 2.0 * (dt * dt * 100.0 + dt);
    let change = (gravity * 4.0 * dt - velocity * share + impulse) / (inertia + share);
    assert!((answer.velocity[0] - velocity - change).length() < 1e-13);
    assert_eq!(answer.velocity[0], answer.velocity[1]);
    assert!((answer.momentum[0] - (change * inertia - impulse)).length() < 1e-13);
    assert!(answer.slope[0].abs_diff_eq(DMat3::from_diagonal(DVec3::splat(share)), 1e-13));
}

/// The last row of the table in `docs/theory/coupling.md`, "Why not average": a light stiff piston, told of
/// the load on it, rests at (m1 + m2) g / k.
#[test]
fn a_piston_under_load_rests_at_its_static_deflection() {
    let (m1, m2, stiffness, dt, gravity) = (0.001, 0.01, 1e6, 1e-3, DVec3::new(0.0, 0.0, -9.81));
    let mut piston = solid(
        &format!(
            "method = \"mass-spring\"\n[[bodies]]\ntype = \"points\"\npositions = [[0, 0, 0]]\nmass = {m1}\nradius = 0.1\n\
             foundation = {{ stiffness = {stiffness}, damping = 10 }}"
        ),
        gravity,
    );
    for _ in 0..2000 {
        let velocity = piston.particles().velocity[0];
        let load = gravity * m2 * dt;
        let groups = Groups::one(piston.particles().len(), &[0], m1 + m2, velocity, load);
        piston.begin().expect("begin");
        let answer = integrate(&mut piston, dt, &groups);
        let velocity = velocity + (answer.momentum[0] + load) / (m1 + m2);
        let end = amalgam_particles::StepEnd {
            dt,
            groups: &groups.map,
            group_velocity: &[velocity],
            member_velocity: &[velocity],
            group_spin: &[],
        };
        piston.commit(&end, &answer.velocity).expect("commit");
    }
    let ratio = piston.particles().position[0].z / ((m1 + m2) * gravity.z / stiffness);
    assert!((ratio - 1.0).abs() < 1e-6, "{ratio}");
}

#[test]
fn an_immovable_member_wants_an_infinite_inertia() {
    let mut network = network(3, 6);
    let groups = Groups::one(network.solid.particles().len(), &[0, 1], 5.0, DVec3::ZERO, DVec3::ZERO);
    network.solid.begin().expect("begin");
    let error = try_integrate(&mut network.solid, 1e-3, &groups).expect_err("particle 1 is pinned");
    assert_eq!(error.to_string(), "particle 1 is immovable, but its group came with the finite inertia 5 kg");
}

#[test]
fn a_solve_that_does_not_converge_says_what_to_change() {
    let section = "method = \"mass-spring\"\niterations_max = 3\n[[bodies]]\ntype = \"sheet\"\ncorner = [0, 0, 0]\nedge_u = [1, 0, 0]\nedge_v = [0, 1, 0]\n\
        spacing = 0.05\narea_density = 0.1\nstructural_stiffness = 1e6\npinned = \"edges\"";
    let mut sheet = solid(section, DVec3::NEG_X);
    sheet.begin().expect("begin");
    let groups = Groups::none(sheet.particles().len());
    let error =
        try_integrate(&mut sheet, 1e-2, &groups).expect_err("three iterations are too few").to_string();
    assert!(error.contains("in 3 iterations") && error.contains("iterations_max"), "{error}");
}

#[test]
fn an_overflow_is_an_error_with_the_particle() {
    let section = "method = \"mass-spring\"\n[[bodies]]\ntype = \"points\"\npositions = [[0, 0, 0], [1, 0, 0]]\nvelocities = [[1, 0, 0], [0, 0, 0]]\n\
        mass = 1\nradius = 0.1\nsprings = [{ a = 0, b = 1, stiffness = 1e308, rest_length = 100 }]";
    let mut pair = solid(section, DVec3::ZERO);
    pair.begin().expect("begin");
    let groups = Groups::none(pair.particles().len());
    let error = try_integrate(&mut pair, 1.0, &groups).expect_err("the force overflows").to_string();
    assert!(error.starts_with("particle 0: "), "{error}");
}

#[test]
fn heavy_groups_that_come_in_a_later_stage_hold_up_no_solve() {
    // The grids of the preconditioner are those of the first stage, which knows nothing of them.
    let section = "method = \"peridynamics\"\ntolerance = 1e-6\n[[bodies]]\ntype = \"peridynamic\"\nspacing = 0.01\n\
         shape = { type = \"box\", min = [0, 0, 0], max = [0.16, 0.16, 0.16] }\ndensity = 1200\nyoung_modulus = 1e7\n\
         fracture_energy = 1e6\n";
    for heavier in [10.0, 1e3, 1e6] {
        let iterations = [false, true].map(|is_later| {
            let mut solid = solid(section, GRAVITY);
            solid.begin().expect("begin");
            let mut groups = Groups::none(solid.particles().len());
            if is_later {
                integrate(&mut solid, 1e-3, &groups);
            }
            let members: Vec<u32> = (0..solid.particles().len() as u32).step_by(61).collect();
            let count = members.len();
            let each: Vec<u32> = (0..=count as u32).collect();
            groups.map.set(solid.particles().len(), &each, &members);
            groups.inertia = vec![heavier * solid.particles().mass[0]; count];
            groups.velocity = vec![DVec3::new(0.0, 1.0, 0.5); count];
            groups.impulse = vec![DVec3::ZERO; count];
            integrate(&mut solid, 1e-3, &groups);
            solid.iterations()
        });
        assert!(iterations[1] <= 2 * iterations[0], "{heavier}: {iterations:?}");
    }
}
