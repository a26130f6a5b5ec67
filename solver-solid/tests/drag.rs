//! Drag: velocities go to the wind's, the account of energy closes, and waves die in a layer.

mod support;

use amalgam_particles::DVec3;
use amalgam_solver_kit::Solver;
use support::{faults, solid, step};

/// Two free points and a held one, a wind of 2 m/s: u + (v - u) exp(-3 t) for any length of the step, and
/// what the wind gives is what the points have.
#[test]
fn velocities_go_to_the_wind_and_its_work_is_theirs() {
    for method in [
        "'mass-spring'\nintegrator = 'implicit-euler'",
        "'mass-spring'\nintegrator = 'hht-alpha'",
        "'mass-spring'\nintegrator = 'velocity-verlet'",
    ] {
        let section = format!(
            "method = {method}\n[[drag]]\nrate = 3.0\nvelocity = [2, 0, 0]\n[[bodies]]\ntype = 'points'\n\
             positions = [[0, 0, 0], [1, 0, 0], [2, 0, 0]]\nvelocities = [[0, 1, 0], [0, 0, -2], [0, 0, 0]]\nmass = 2.0\n\
             radius = 0.1\npinned = [2]"
        );
        let mut solid = solid(&section, DVec3::ZERO);
        let kinetic = |solid: &dyn Solver| -> f64 {
            solid.particles().velocity.iter().map(|v| v.length_squared()).sum::<f64>()
        };
        let start = solid.particles().velocity.clone();
        let (before, mut given, mut time) = (kinetic(&solid), 0.0, 0.0);
        for dt in [0.01, 0.05, 0.3, 0.02] {
            given += step(&mut solid, dt).given;
            time += dt;
        }
        let wind = 2.0 * DVec3::X;
        for (velocity, start) in solid.particles().velocity.iter().zip(&start).take(2) {
            let expected = wind + (*start - wind) * (-3.0 * time).exp();
            assert!(velocity.distance(expected) < 1e-12, "{method}");
        }
        assert_eq!(solid.particles().velocity[2], DVec3::ZERO);
        assert!((kinetic(&solid) - before - given).abs() < 1e-12, "{method}: {given}");
    }
}

/// Grains know drag, too.
#[test]
fn grains_fall_at_their_limit_in_a_drag() {
    let section = "method = 'grains'\n[[drag]]\nrate = 10.0\n[[bodies]]\ntype = 'points'\npositions = [[0, 0, 0]]\nmass = 2.0\n\
                   radius = 0.1";
    let world = support::world(DVec3::new(0.0, 0.0, -9.81));
    let mut grains =
        amalgam_solver_solid::GrainSolver::from_section(section, &world).expect("a good section");
    let dt = 1e-3;
    for _ in 0..3000 {
        amalgam_solver_kit::Alone::default().step_free(&mut grains, dt).expect("a step");
    }
    // Gravity and drag are added one after the other: g dt / (1 - exp(-k dt)) in place of g / k.
    let limit = 9.81 * dt / (1.0 - (-10.0 * dt).exp());
    assert!((grains.particles().velocity[0].z + limit).abs() < 1e-9, "{}", grains.particles().velocity[0]);
}

/// A pulse 0.3 m long that runs along a chain of springs at 1 m/s into a layer of 1.5 m whose rate rises with
/// the square of the depth: of its velocity 1 % comes back, and without the layer all of it. Waves longer
/// than the layer are sent back.
#[test]
fn a_wave_dies_in_a_layer_whose_rate_rises() {
    let (count, spacing, dt) = (400, 0.01, 5e-3);
    let (middle, width, height) = (1.0, 0.05, 1e-4f64);
    let pulse = |x: f64| height * (-0.5 * ((x - middle) / width).powi(2)).exp();
    let (mut positions, mut velocities, mut springs) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..count {
        let x = spacing * f64::from(i);
        positions.push(format!("[{}, 0, 0]", x + pulse(x)));
        // Velocities are those half a step before.
        let before = x + 0.5 * dt;
        velocities.push(format!("[{}, 0, 0]", pulse(before) * (before - middle) / (width * width)));
        if i > 0 {
            springs.push(format!("{{ a = {}, b = {i}, stiffness = 1e4, rest_length = {spacing} }}", i - 1));
        }
    }
    let layer: String = (0..30)
        .map(|n| {
            // To 16/s at the end.
            let (begin, rate) = (2.5 + 0.05 * f64::from(n), 16.0 * f64::from(2 * n + 1) / 900.0);
            format!("[[drag]]\nrate = {rate}\nshape = {{ type = 'box', min = [{begin}, -1, -1], max = [9, 1, 1] }}\n")
        })
        .collect();
    let returned = |layer: &str| {
        let section = format!(
            "method = 'mass-spring'\nintegrator = 'velocity-verlet'\nself_collision = false\n{layer}[[bodies]]\ntype = 'points'\n\
             positions = [{}]\nvelocities = [{}]\nmass = 1.0\nradius = 0.001\nsprings = [{}]",
            positions.join(", "),
            velocities.join(", "),
            springs.join(", ")
        );
        let mut chain = solid(&section, DVec3::ZERO);
        let fastest = |chain: &dyn Solver| {
            chain.particles().velocity[..230].iter().map(|v| v.x.abs()).fold(0.0, f64::max)
        };
        let sent = fastest(&chain);
        let mut returned = 0.0f64;
        for n in 0..1300 {
            step(&mut chain, dt);
            // The pulse has left the first 2.3 m, and its echo from the end comes back there after 5.7 s.
            if n > 400 {
                returned = returned.max(fastest(&chain));
            }
        }
        returned / sent
    };
    let (with, without) = (returned(&layer), returned(""));
    assert!(with < 0.02 && without > 0.8, "{with} {without}");
}

#[test]
fn faults_of_drags_are_named() {
    let points = "[[bodies]]\ntype = 'points'\npositions = [[0, 0, 0]]\nmass = 1.0\nradius = 0.1";
    let keys = |drag: &str| -> Vec<String> {
        let faults = faults(&format!("method = 'mass-spring'\n[[drag]]\n{drag}\n{points}"));
        faults.into_iter().map(|fault| fault.key).collect()
    };
    assert_eq!(keys("rate = -1.0"), ["drag[0].rate"]);
    assert_eq!(keys("rate = 1.0\nuntil = 0.0"), ["drag[0].until"]);
    assert_eq!(keys("rate = 1.0\nspeed = 3.0").len(), 1);
    assert_eq!(
        keys("rate = 1.0\nshape = { type = 'sphere', center = [0, 0, 0], radius = 0.0 }"),
        ["drag[0].shape.radius"]
    );
}
