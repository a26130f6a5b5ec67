//! Motion without groups, against discrete and static solutions in closed form.

mod support;

use amalgam_particles::DVec3;
use amalgam_solver_kit::{FieldValues, Solver};
use support::{angular_momentum, momentum, solid, step};

/// A mass on a foundation spring. Implicit Euler of m x'' = -k x - c x' is linear and exact here, so the
/// solver must follow v' = (v - h k/m x) / (1 + h c/m + h^2 k/m), x' = x + h v' to the tolerance of the
/// solve.
#[test]
fn a_mass_on_a_spring_oscillates_as_implicit_euler_says() {
    let (mass, stiffness, damping, dt) = (0.3, 50.0, 0.1, 0.01);
    let mut solid = solid(
        &format!(
            "method = \"mass-spring\"\ntolerance = 1e-14\n[[bodies]]\ntype = \"points\"\npositions = [[1, 2, 3]]\nvelocities = [[0.5, 0, -0.25]]\n\
             mass = {mass}\nradius = 0.1\nfoundation = {{ stiffness = {stiffness}, damping = {damping} }}"
        ),
        DVec3::ZERO,
    );
    let (mut x, mut v) = (0.0, 0.5);
    let scale = 0.5 / f64::sqrt(stiffness / mass);
    for _ in 0..300 {
        step(&mut solid, dt);
        v = (v - dt * stiffness / mass * x) / (1.0 + dt * damping / mass + dt * dt * stiffness / mass);
        x += dt * v;
        let displacement = solid.particles().position[0] - DVec3::new(1.0, 2.0, 3.0);
        assert!((displacement - DVec3::new(x, 0.0, -0.5 * x)).length() < 1e-12 * scale);
    }
    // Without damping the amplitude falls by (1 + h^2 k/m)^(-1/2) a step; damping takes more.
    assert!(x.hypot(v / (stiffness / mass).sqrt()) < scale * (1.0 + dt * dt * stiffness / mass).powf(-150.0));
}

#[test]
fn a_mass_comes_to_rest_at_its_static_deflection() {
    let (mass, stiffness) = (2.0, 400.0);
    for dt in [1e-3, 1e-1] {
        let mut solid = solid(
            &format!(
                "method = \"mass-spring\"\n[[bodies]]\ntype = \"points\"\npositions = [[0, 0, 0]]\nmass = {mass}\n\
                 radius = 0.1\nfoundation = {{ stiffness = {stiffness}, damping = 30 }}"
            ),
            DVec3::new(0.0, 0.0, -9.81),
        );
        let mut report = Default::default();
        for _ in 0..((4.0 / dt) as usize) {
            report = step(&mut solid, dt);
        }
        let deflection = mass * 9.81 / stiffness;
        assert!((solid.particles().position[0].z + deflection).abs() < 1e-9 * deflection);
        let (name, energy) = report.energies[1];
        assert_eq!(name, "foundation");
        assert!((energy - 0.5 * stiffness * deflection * deflection).abs() < 1e-8 * energy);
    }
}

/// A hanging chain of n masses: the spring above mass i carries the weight of all masses from i on.
#[test]
fn a_hanging_chain_carries_the_weight_below() {
    let (count, stiffness, mass, gravity) = (8, 1e4, 0.1, 9.81);
    let positions: Vec<String> = (0..=count).map(|i| format!("[0, 0, {}]", -0.1 * f64::from(i))).collect();
    let springs: Vec<String> = (0..count)
        .map(|i| format!("{{ a = {i}, b = {}, stiffness = {stiffness}, damping = 5 }}", i + 1))
        .collect();
    let mut solid = solid(
        &format!(
            "method = \"mass-spring\"\n[[bodies]]\ntype = \"points\"\npositions = [{}]\nmass = {mass}\nradius = 0.01\n\
             pinned = [0]\nsprings = [{}]",
            positions.join(", "),
            springs.join(", ")
        ),
        DVec3::new(0.0, 0.0, -gravity),
    );
    for _ in 0..3000 {
        step(&mut solid, 0.01);
    }
    let x = &solid.particles().position;
    for i in 0..count as usize {
        let carried = mass * gravity * (count as usize - i) as f64;
        let force = stiffness * ((x[i] - x[i + 1]).length() - 0.1);
        assert!((force - carried).abs() < 1e-6 * carried, "spring {i}: {force} N for {carried} N");
    }
    let fields = solid.fields();
    let FieldValues::Scalar(stretch) = &fields[0].values else { panic!("stretch is a number") };
    assert_eq!(fields[0].name, "stretch");
    let largest = mass * gravity * f64::from(count) / stiffness / 0.1;
    assert!((f64::from(stretch[0]) - largest).abs() < 1e-5 * largest);
}

const FREE_SHEET: &str = "method = \"mass-spring\"\ntolerance = 1e-12\n[[bodies]]\ntype = \"sheet\"\ncorner = [0, 0, 0]\nedge_u = [0.5, 0, 0]\n\
    edge_v = [0, 0.4, 0]\nspacing = 0.05\narea_density = 0.3\nstructural_stiffness = 200\ndamping_ratio = 0.1\n\
    velocity = [1, 2, 3]";

/// Spins a free sheet about the normal through `center` on top of its velocity, as a snapshot would.
fn spin(solid: &mut amalgam_solver_solid::SolidSolver, rate: f64) {
    let particles = solid.particles().clone();
    let mut snapshot = solid.save().expect("a snapshot");
    // Behind the velocities follow their last changes and the clock.
    let velocities = snapshot.len() - 16 - 48 * particles.len();
    for (i, x) in particles.position.iter().enumerate() {
        let arm = *x - DVec3::new(0.25, 0.2, 0.0);
        let v = particles.velocity[i] + DVec3::new(0.0, 0.0, rate).cross(arm);
        for (axis, value) in v.to_array().into_iter().enumerate() {
            let at = velocities + 24 * i + 8 * axis;
            snapshot[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
    solid.restore(&snapshot).expect("the same solver");
}

#[test]
fn a_free_body_keeps_its_momentum() {
    let mut solid = solid(FREE_SHEET, DVec3::ZERO);
    spin(&mut solid, 3.0);
    let before = momentum(&solid);
    for _ in 0..200 {
        step(&mut solid, 1e-3);
    }
    assert!((momentum(&solid) - before).length() < 1e-11 * before.length());
}

/// Implicit Euler keeps angular momentum only up to its own error: forces act along the springs of the old
/// positions, so the loss is of first order in the step. It must shrink with the step.
#[test]
fn angular_momentum_is_kept_to_first_order() {
    let loss = |dt: f64| {
        let mut solid = solid(&FREE_SHEET.replace("[1, 2, 3]", "[0, 0, 0]"), DVec3::ZERO);
        spin(&mut solid, 3.0);
        let before = angular_momentum(&solid).z;
        for _ in 0..(0.2 / dt) as usize {
            step(&mut solid, dt);
        }
        ((angular_momentum(&solid).z - before) / before).abs()
    };
    let (coarse, fine) = (loss(2e-3), loss(5e-4));
    assert!(coarse < 0.02, "{coarse}");
    assert!(fine < 0.35 * coarse, "{fine} after {coarse}");
}

#[test]
fn a_rigid_translation_gives_no_force() {
    let mut solid = solid(FREE_SHEET, DVec3::ZERO);
    let start = solid.particles().clone();
    for _ in 0..10 {
        step(&mut solid, 1e-2);
    }
    for (x, x0) in solid.particles().position.iter().zip(&start.position) {
        assert!((*x - *x0 - DVec3::new(0.1, 0.2, 0.3)).length() < 1e-14);
    }
    assert!(solid.particles().velocity.iter().all(|v| (*v - DVec3::new(1.0, 2.0, 3.0)).length() < 1e-11));
}

#[test]
fn pinned_particles_stay_or_keep_their_prescribed_velocity() {
    let section = |velocity: &str| {
        format!(
            "method = \"mass-spring\"\n[[bodies]]\ntype = \"sheet\"\ncorner = [0, 0, 0]\nedge_u = [1, 0, 0]\nedge_v = [0, 1, 0]\n\
             spacing = 0.1\narea_density = 0.5\nstructural_stiffness = 300\npinned = [\"edge_u0\", \"edge_v1\"]\n\
             pinned_velocity = {velocity}"
        )
    };
    for (text, velocity) in [("[0, 0, 0]", DVec3::ZERO), ("[0, 0, 0.5]", DVec3::new(0.0, 0.0, 0.5))] {
        let mut solid = solid(&section(text), DVec3::new(0.0, 0.0, -9.81));
        let start = solid.particles().clone();
        for _ in 0..50 {
            step(&mut solid, 1e-3);
        }
        let end = solid.particles();
        let pinned: Vec<usize> = (0..end.len()).filter(|&i| end.immovable[i]).collect();
        assert_eq!(pinned.len(), 21);
        for i in pinned {
            assert_eq!(end.velocity[i], velocity);
            assert!((end.position[i] - start.position[i] - velocity * 0.05).length() < 1e-14);
        }
        assert!(end.position[60].z < start.position[60].z, "the rest falls");
    }
}

/// A rope between two fixed points with tension T sags by w L^2 / (8 T) in the middle for the weight w per
/// length, as long as the sag is small.
#[test]
fn a_stretched_rope_sags_as_a_cable() {
    // A rope of 41 points whose springs are 5 % stretched at the start.
    let (cells, length, stiffness, mass) = (40, 2.0, 2e4, 0.01);
    let rest = length / f64::from(cells) / 1.05;
    let positions: Vec<String> =
        (0..=cells).map(|i| format!("[{}, 0, 0]", length * f64::from(i) / f64::from(cells))).collect();
    let springs: Vec<String> = (0..cells)
        .map(|i| {
            format!(
                "{{ a = {i}, b = {}, stiffness = {stiffness}, damping = 2, rest_length = {rest} }}",
                i + 1
            )
        })
        .collect();
    let mut solid = solid(
        &format!(
            "method = \"mass-spring\"\n[[bodies]]\ntype = \"points\"\npositions = [{}]\nmass = {mass}\nradius = 0.01\n\
             pinned = [0, {cells}]\nsprings = [{}]",
            positions.join(", "),
            springs.join(", ")
        ),
        DVec3::new(0.0, 0.0, -9.81),
    );
    for _ in 0..1500 {
        step(&mut solid, 5e-3);
    }
    let tension = stiffness * 0.05 * rest;
    let weight = mass * 9.81 * f64::from(cells) / length;
    let sag = weight * length * length / (8.0 * tension);
    let found = -solid.particles().position[20].z;
    // The sag itself stretches the rope by 8/3 (sag/length)^2, which adds tension.
    let extra = 8.0 / 3.0 * (sag / length).powi(2) * 1.05 / 0.05;
    assert!(found < sag && found > sag * (1.0 - 1.2 * extra), "{found} m for {sag} m, at most {extra} less");
}

/// Springs a trillion times stiffer than their neighbours, in steps tens of thousands of their periods long:
/// the chain hangs at its static length.
#[test]
fn stiffness_ratios_of_a_trillion_are_solved() {
    let (soft, hard) = (10.0, 1e13);
    let mut solid = solid(
        &format!(
            "method = \"mass-spring\"\n[[bodies]]\ntype = \"points\"\n\
             positions = [[0, 0, 0], [0.01, 0, -0.1], [0, 0.01, -0.2], [0, 0, -0.3], [0, 0, -0.4]]\nmass = 0.01\nradius = 0.01\npinned = [0]\n\
             springs = [{{ a = 0, b = 1, stiffness = {hard}, damping = 1 }}, {{ a = 1, b = 2, stiffness = {soft}, damping = 1 }},\n\
             {{ a = 2, b = 3, stiffness = {hard} }}, {{ a = 3, b = 4, stiffness = {soft}, damping = 1 }}]"
        ),
        DVec3::new(0.0, 0.0, -9.81),
    );
    for _ in 0..4000 {
        step(&mut solid, 1e-2);
    }
    let x = &solid.particles().position;
    let length = |i: usize| x[i].distance(x[i + 1]);
    let rest = 0.1f64.hypot(0.01);
    let start = DVec3::new(0.01, -0.01, 0.1).length();
    let weight = 0.01 * 9.81;
    for (i, expected) in [(0, rest), (1, start + 3.0 * weight / soft), (2, rest), (3, 0.1 + weight / soft)] {
        assert!((length(i) - expected).abs() < 1e-6, "spring {i}: {} m for {expected} m", length(i));
    }
}

/// Puts every particle where `place` says, as a snapshot would.
fn deform(solid: &mut amalgam_solver_solid::SolidSolver, place: impl Fn(DVec3) -> DVec3) {
    let mut snapshot = solid.save().expect("a snapshot");
    let count = solid.particles().len();
    let positions = snapshot.len() - 16 - 72 * count;
    for (i, x) in solid.particles().position.iter().enumerate() {
        for (axis, value) in place(*x).to_array().into_iter().enumerate() {
            let at = positions + 24 * i + 8 * axis;
            snapshot[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
    solid.restore(&snapshot).expect("the same solver");
}

/// Elastic energy [J] after a step of no length to speak of.
fn energy(solid: &mut amalgam_solver_solid::SolidSolver) -> f64 {
    let report = step(solid, 1e-12);
    report.energies.iter().find(|(name, _)| *name == "elastic").expect("elastic energy").1
}

/// A small even strain `epsilon` has the energy of an isotropic solid with Lame's constants, whichever way it
/// points: for springs both are E/2.5 in three dimensions, and 3/8 E in plane stress.
#[test]
fn materials_have_the_energy_of_their_modulus() {
    let (modulus, scale) = (2e6, 1e-5);
    let volume = "type = \"volume\"\nshape = { type = \"sphere\", center = [1, 2, 3], radius = 0.3 }\nspacing = 0.08\n\
                  rotation = { axis = [1, 1, 0], degrees = 25 }\nyoung_modulus = 2e6\ndensity = 1000";
    // Cells of 0.1 x 0.0875.
    let sheet = "type = \"sheet\"\ncorner = [0, 0, 0]\nedge_u = [0, 0.6, 0]\nedge_v = [0.35, 0, 0]\nspacing = 0.09\n\
                 young_modulus = 2e6\nthickness = 0.01\ndensity = 1000";
    for (body, plane, lame) in [(volume, false, 0.4 * modulus), (sheet, true, 0.375 * modulus)] {
        let section = format!("method = \"mass-spring\"\nself_collision = false\n[[bodies]]\n{body}");
        for columns in [
            [DVec3::X, DVec3::ZERO, DVec3::ZERO],
            [DVec3::ZERO, DVec3::Y, DVec3::ZERO],
            [DVec3::Y, DVec3::X, DVec3::ZERO],
            [DVec3::new(0.5, 1.5, 0.0), DVec3::new(-0.5, -1.0, 0.0), DVec3::ZERO],
            [DVec3::Z, DVec3::ZERO, DVec3::X + 0.5 * DVec3::Z],
        ] {
            if plane && columns[2] != DVec3::ZERO {
                continue;
            }
            let mut body = solid(&section, DVec3::ZERO);
            let mass: f64 = body.particles().mass.iter().sum();
            let size = mass / 1000.0;
            deform(&mut body, |x| x + scale * (columns[0] * x.x + columns[1] * x.y + columns[2] * x.z));
            let entry = |i: usize, j: usize| 0.5 * scale * (columns[j][i] + columns[i][j]);
            let trace: f64 = (0..3).map(|i| entry(i, i)).sum();
            let square: f64 = (0..9).map(|ij| entry(ij / 3, ij % 3).powi(2)).sum();
            let expected = size * lame * (0.5 * trace * trace + square);
            let found = energy(&mut body);
            assert!((found / expected - 1.0).abs() < 1e-3, "{columns:?}: {found} J for {expected} J");
        }
    }
}

#[test]
fn scripted_particles_go_their_way_and_take_the_rest_along() {
    let section = "method = \"mass-spring\"\n[[bodies]]\ntype = \"volume\"\nshape = { type = \"box\", min = [0, 0, 0], max = [0.4, 0.1, 0.1] }\n\
                   spacing = 0.1\ndensity = 1000\nyoung_modulus = 1e6\ndamping_ratio = 0.5\n\
                   scripted = [{ part = { type = \"box\", min = [-0.1, -1, -1], max = [0.05, 1, 1] }, velocity = [0, 0, 0.5], from = 0.1, until = 0.5 }]";
    let mut body = solid(section, DVec3::ZERO);
    let start = body.particles().clone();
    assert_eq!(start.immovable.iter().filter(|&&held| held).count(), 4);
    for _ in 0..400 {
        step(&mut body, 0.01);
    }
    for (i, x) in body.particles().position.iter().enumerate() {
        let way = *x - start.position[i];
        if start.immovable[i] {
            assert!((way - DVec3::Z * 0.2).length() < 1e-13, "{way}");
        }
        assert!(body.particles().velocity[i].length() < 0.1, "all swings out");
    }
    assert!((body.particles().position.iter().map(|x| x.z).sum::<f64>() / 20.0 - 0.25).abs() < 0.05);
}

/// A restored run goes on to the same bits, scripts included.
#[test]
fn scripts_go_on_from_a_snapshot() {
    let section = "method = \"mass-spring\"\n[[bodies]]\ntype = \"sheet\"\ncorner = [0, 0, 0]\nedge_u = [0.4, 0, 0]\nedge_v = [0, 0.4, 0]\n\
                   spacing = 0.1\nyoung_modulus = 1e5\nthickness = 1e-3\ndensity = 300\n\
                   scripted = [{ part = \"edge_u0\", velocity = [0, 0, 1], angular_velocity = [2, 0, 0], center = [0, 0.2, 0], until = 0.055 }]";
    let mut first = solid(section, DVec3::ZERO);
    (0..4).for_each(|_| drop(step(&mut first, 0.01)));
    let mut second = solid(section, DVec3::ZERO);
    second.restore(&first.save().expect("a snapshot")).expect("the same solver");
    for _ in 0..4 {
        step(&mut first, 0.01);
        step(&mut second, 0.01);
    }
    assert_eq!(support::bits(&first), support::bits(&second));
}
