//! Parts that are let go at a time: free fall from there, the velocity of their scripts, the same bits from a
//! snapshot.

mod support;

use amalgam_particles::DVec3;
use amalgam_solver_kit::Solver;
use amalgam_solver_solid::SolidSolver;
use support::{bits, faults, solid, step};

const FALL: DVec3 = DVec3::new(0.0, 0.0, -9.81);
const DT: f64 = 0.01;

fn run(solid: &mut SolidSolver, steps: usize) {
    (0..steps).for_each(|_| drop(step(solid, DT)));
}

/// Held for ten steps, then free for thirty: the position is that of symplectic Euler, g t (t + dt) / 2,
/// which all integrators have in a uniform field, and g t^2 / 2 to first order in the step.
#[test]
fn what_is_let_go_falls_freely() {
    let bodies = [
        "type = 'points'\npositions = [[0, 0, 0]]\nmass = 2.0\nradius = 0.1\npinned = [0]\nrelease = 0.1",
        "type = 'sheet'\ncorner = [0, 0, 0]\nedge_u = [0.4, 0, 0]\nedge_v = [0, 0.4, 0]\nspacing = 0.1\narea_density = 1.0\n\
         structural_stiffness = 100.0\npinned = 'all'\nrelease = 0.1",
        "type = 'volume'\nshape = { type = 'box', min = [0, 0, 0], max = [0.3, 0.2, 0.2] }\nspacing = 0.1\ndensity = 1000\n\
         young_modulus = 1e5\nscripted = [{ part = 'all', release = 0.1 }]",
        "type = 'peridynamic'\nshape = { type = 'box', min = [0, 0, 0], max = [0.4, 0.3, 0.3] }\nspacing = 0.1\ndensity = 1000\n\
         young_modulus = 1e5\nheld = [{ min = [0, 0, 0], max = [1, 1, 1], release = 0.1 }]",
    ];
    for integrator in ["implicit-euler", "hht-alpha", "velocity-verlet"] {
        for body in bodies {
            let dt = if integrator == "velocity-verlet" { 0.1 * DT } else { DT };
            let method = if body.contains("peridynamic") { "peridynamics" } else { "mass-spring" };
            let section = format!("method = '{method}'\nintegrator = '{integrator}'\n[[bodies]]\n{body}");
            let mut solid = solid(&section, FALL);
            let start = solid.particles().position.clone();
            let held = (0.1 / dt).round() as usize;
            let mut released = Vec::new();
            for _ in 0..held {
                assert!(released.is_empty() && solid.particles().immovable.iter().all(|&held| held));
                assert_eq!(solid.particles().position, start);
                released = step(&mut solid, dt).released;
            }
            assert_eq!(released, solid.particles().id);
            let steps = 3 * held;
            for _ in 0..steps {
                assert!(step(&mut solid, dt).released.is_empty());
            }
            let time = dt * steps as f64;
            for (x, start) in solid.particles().position.iter().zip(&start) {
                let way = *x - *start - 0.5 * FALL * time * (time + dt);
                assert!(way.length() < 1e-7, "{integrator} {body}: {way}");
            }
        }
    }
}

/// A bob on a stiff rod swings from the moment on at which it is let go, with the period 2 pi sqrt(L / g).
#[test]
fn a_pendulum_swings_from_its_release_on() {
    let (length, angle, release) = (1.0f64, 0.05f64, 0.2);
    let bob = length * DVec3::new(angle.sin(), 0.0, -angle.cos());
    // Under its weight the rod is longer by m g / k, a part of 1e-4.
    let section = format!(
        "method = 'mass-spring'\nintegrator = 'hht-alpha'\n[[bodies]]\ntype = 'points'\npositions = [[0, 0, 0], [{}, {}, {}]]\n\
         mass = 1.0\nradius = 0.01\npinned = [0, 1]\nrelease = [inf, {release}]\nsprings = [{{ a = 0, b = 1, stiffness = 1e5 }}]",
        bob.x, bob.y, bob.z
    );
    let dt = 1e-3;
    let mut solid = solid(&section, FALL);
    let mut crossings = Vec::new();
    let mut time = 0.0;
    while time < 5.0 {
        let before = solid.particles().position[1].x;
        step(&mut solid, dt);
        let after = solid.particles().position[1].x;
        if before > 0.0 && after <= 0.0 {
            crossings.push(time + dt * before / (before - after));
        }
        time += dt;
    }
    let period = std::f64::consts::TAU * (length / 9.81).sqrt() * (1.0 + angle * angle / 16.0);
    assert_eq!(crossings.len(), 3, "{crossings:?}");
    for (n, crossing) in crossings.iter().enumerate() {
        let expected = release + period * (0.25 + n as f64);
        assert!((crossing - expected).abs() < 2e-3 * period, "{crossing} s, not {expected} s");
    }
    assert!(solid.particles().immovable[0] && !solid.particles().immovable[1]);
}

/// A part that turns leaves with the velocity of the moment, w x r, not with the mean of its last step.
#[test]
fn what_a_script_lets_go_flies_with_the_scripts_velocity() {
    let part = |shape: &str| format!("{{ type = 'box', {shape} }}");
    let left = part("min = [-1, -1, -1], max = [0.05, 1, 1]");
    for end in ["", "until = 0.1, "] {
        let section = format!(
            "method = 'mass-spring'\n[[bodies]]\ntype = 'points'\npositions = [[0, 0.5, 0]]\nmass = 1.0\nradius = 0.01\n\
             [[bodies]]\ntype = 'sheet'\ncorner = [0, 0, 0]\nedge_u = [0.2, 0, 0]\nedge_v = [0, 0.2, 0]\nspacing = 0.1\n\
             area_density = 1.0\nstructural_stiffness = 1e-9\nscripted = [\
             {{ part = 'all', velocity = [0, 0, 1], angular_velocity = [0, 0, 3], center = [0, 0.5, 0], {end}release = 0.1 }},\
             {{ part = {left}, velocity = [1, 0, 0], release = 0.2 }}]"
        );
        let mut solid = solid(&section, DVec3::ZERO);
        run(&mut solid, 9);
        let moved = solid.particles().position.clone();
        let report = step(&mut solid, DT);
        // The point is free, the left column held by its other script.
        let particles = solid.particles();
        let column: Vec<bool> = [false].into_iter().chain((0..9).map(|i| i % 3 == 0)).collect();
        assert_eq!(particles.immovable, column);
        assert_eq!(report.released.len(), 6);
        for i in (1..10).filter(|&i| !column[i]) {
            assert_ne!(particles.position[i], moved[i]);
            let arm = particles.position[i] - DVec3::new(0.0, 0.5, 0.1);
            let expected = DVec3::Z + (3.0 * DVec3::Z).cross(arm);
            assert!(particles.velocity[i].distance(expected) < 1e-12, "{} {expected}", particles.velocity[i]);
        }
        // Alone, the other script takes the column on by its own velocity.
        for i in (1..10).filter(|&i| column[i]) {
            assert!(particles.velocity[i].distance(DVec3::X) < 1e-14);
        }
        run(&mut solid, 10);
        assert!(solid.particles().immovable.iter().all(|&held| !held));
    }
}

/// The energy given by scripts is the energy that is there: lifted, thrown and in free flight.
#[test]
fn the_work_of_a_script_that_lets_go_is_what_flies() {
    let section = "method = 'mass-spring'\n[[bodies]]\ntype = 'sheet'\ncorner = [0, 0, 0]\nedge_u = [0.2, 0, 0]\n\
                   edge_v = [0, 0.2, 0]\nspacing = 0.1\narea_density = 5.0\nstructural_stiffness = 100.0\npinned = 'all'\n\
                   pinned_velocity = [0.3, 0, 0.5]\nrelease = 0.1";
    let mut solid = solid(section, FALL);
    let owned = |solid: &SolidSolver| -> f64 {
        let particles = solid.particles();
        let of = |i: usize| 0.5 * particles.velocity[i].length_squared() - FALL.dot(particles.position[i]);
        (0..particles.len()).map(|i| particles.mass[i] * of(i)).sum()
    };
    let before = owned(&solid);
    let mut given = 0.0;
    (0..10).for_each(|_| given += step(&mut solid, DT).given);
    assert!((owned(&solid) - before - given).abs() < 1e-12);
    assert!((given - 0.2 * 9.81 * 0.05).abs() < 1e-12, "{given}");
    (0..10).for_each(|_| given += step(&mut solid, DT).given);
    assert!((given - 0.2 * 9.81 * 0.05).abs() < 1e-12, "{given}");
}

#[test]
fn a_run_goes_on_from_a_snapshot_on_either_side_of_a_release() {
    let section = "method = 'mass-spring'\nintegrator = 'hht-alpha'\n[[bodies]]\ntype = 'sheet'\ncorner = [0, 0, 0]\n\
                   edge_u = [0.4, 0, 0]\nedge_v = [0, 0.4, 0]\nspacing = 0.1\nyoung_modulus = 1e5\nthickness = 1e-3\n\
                   density = 300\npinned = 'corners'\nrelease = 0.055\n\
                   foundation = { stiffness = 2.0, damping = 0.01 }";
    for saved in [4, 6, 9] {
        let mut first = solid(section, FALL);
        run(&mut first, saved);
        let mut second = solid(section, FALL);
        // What the second one has done before must not matter.
        run(&mut second, 7);
        second.restore(&first.save().expect("a snapshot")).expect("the same solver");
        assert_eq!(first.particles().immovable, second.particles().immovable);
        run(&mut first, 8);
        run(&mut second, 8);
        assert_eq!(bits(&first), bits(&second));
        assert!(first.particles().immovable.iter().all(|&held| !held));
    }
}

#[test]
fn releases_that_mean_nothing_are_faults() {
    let keys = |body: &str| -> Vec<String> {
        let section = format!("method = 'mass-spring'\n[[bodies]]\n{body}");
        faults(&section).into_iter().map(|fault| fault.key).collect()
    };
    let sheet = "type = 'sheet'\ncorner = [0, 0, 0]\nedge_u = [0.2, 0, 0]\nedge_v = [0, 0.2, 0]\nspacing = 0.1\n\
                 area_density = 1.0\nstructural_stiffness = 1.0\n";
    assert_eq!(keys(&format!("{sheet}release = 0.5")), ["bodies[0].release"]);
    assert_eq!(keys(&format!("{sheet}pinned = 'all'\nrelease = 0.0")), ["bodies[0].release"]);
    assert_eq!(
        keys(&format!("{sheet}scripted = [{{ part = 'all', release = -1.0 }}]")),
        ["bodies[0].scripted[0].release"]
    );
    let points = "type = 'points'\npositions = [[0, 0, 0], [1, 0, 0]]\nmass = 1.0\nradius = 0.1\n";
    assert_eq!(keys(&format!("{points}release = 0.5")), ["bodies[0].release"]);
    assert_eq!(keys(&format!("{points}pinned = [0]\nrelease = [0.5, 0.6]")), ["bodies[0].release"]);
    assert_eq!(keys(&format!("{points}pinned = [0]\nrelease = nan")), ["bodies[0].release"]);
    let rigid = "method = 'rigid'\n[[bodies]]\ntype = 'rigid'\nshape = { type = 'sphere', center = [0, 0, 0], radius = 0.2 }\n\
                 spacing = 0.1\ndensity = 1000\nscripted = [{ part = 'all', release = 1.0 }]";
    let world = support::world(DVec3::ZERO);
    let faults = amalgam_solver_solid::RigidSolver::from_section(rigid, &world).err().expect("a fault");
    assert_eq!(faults[0].key, "bodies[0].scripted[0].release");
}
