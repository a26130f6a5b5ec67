//! Fields of force: all solvers feel them, their work is accounted for, and they are what their formulas say.

mod support;

use amalgam_particles::DVec3;
use amalgam_solver_fluid::FluidProgram;
use amalgam_solver_solid::SolidProgram;
use support::{GRAVITY, Scene, positions};

/// Bodies that fall freely, by solver.
const FALLING: [(&str, &str); 6] = [
    (
        "fluid",
        "spacing = 0.1\nsound_speed = 20.0\n[[shapes]]\ntype = 'box'\nmin = [-0.2, -0.2, 1.0]\nmax = [0.2, 0.2, 1.4]\n",
    ),
    (
        "fluid",
        "method = 'flip'\nspacing = 0.1\n[[shapes]]\ntype = 'box'\nmin = [-0.2, -0.2, 1.0]\nmax = [0.2, 0.2, 1.4]\n",
    ),
    (
        "solid",
        "method = 'mass-spring'\n[[bodies]]\ntype = 'points'\npositions = [[0, 0, 1], [1, 0, 1]]\nmass = 2.0\nradius = 0.1\n",
    ),
    (
        "solid",
        "method = 'mass-spring'\nintegrator = 'hht-alpha'\n[[bodies]]\ntype = 'volume'\n\
         shape = { type = 'box', min = [0, 0, 1], max = [0.4, 0.4, 1.4] }\nspacing = 0.1\ndensity = 1000\nyoung_modulus = 1e5\n",
    ),
    (
        "solid",
        "method = 'mass-spring'\nintegrator = 'velocity-verlet'\n[[bodies]]\ntype = 'points'\npositions = [[0, 0, 1]]\nmass = 2.0\n\
         radius = 0.1\n",
    ),
    (
        "solid",
        "method = 'grains'\n[[bodies]]\ntype = 'grains'\nshape = { type = 'box', min = [0, 0, 1], max = [0.2, 0.2, 1.2] }\n\
         spacing = 0.2\ndensity = 1000\n",
    ),
];

fn falling(solver: &str, section: &str, gravity: f64) -> Scene {
    let mut scene = Scene::new(0.05, 1e-3);
    scene.plan.domain.gravity = DVec3::NEG_Z * gravity;
    match solver {
        "fluid" => scene.with("body", FluidProgram, section),
        _ => scene.with("body", SolidProgram, section),
    }
}

#[test]
fn a_uniform_force_is_as_much_gravity_in_every_solver() {
    for (solver, section) in FALLING {
        let twice = positions(&mut falling(solver, section, 2.0 * GRAVITY).run(), "body");
        let force = format!("force = [{{ type = 'uniform', acceleration = [0, 0, {}] }}]\n", -GRAVITY);
        let mut pushed = falling(solver, &[force.as_str(), section].concat(), GRAVITY).run();
        let (mut farthest, fallen) = (0.0f64, 0.5 * 2.0 * GRAVITY * 0.05 * 0.05);
        for (a, b) in twice.iter().zip(&positions(&mut pushed, "body")) {
            farthest = farthest.max(a.distance(*b));
        }
        assert!(farthest < 1e-6 * fallen, "{section}: {farthest} m apart after {fallen} m");
        let energy = pushed.summary().energy;
        assert!(energy.unaccounted_relative_max < 1e-3, "{section}: {energy:?}");
        assert!(energy.by_scripts_and_sources > 0.4 * energy.by_gravity, "{section}: {energy:?}");
    }
}

#[test]
fn a_grain_circles_a_center_in_its_period() {
    let (strength, softening) = (2.0f64, 0.3f64);
    let speed = (strength / (1.0 + softening * softening).powf(1.5)).sqrt();
    let period = std::f64::consts::TAU / speed;
    let section = format!(
        "method = 'grains'\nforce = [{{ type = 'center', center = [0, 0, 0], strength = {strength}, softening = {softening} }}]\n\
         [[bodies]]\ntype = 'points'\npositions = [[1, 0, 0]]\nradius = 0.1\nmass = 1.0\nvelocities = [[0, {speed}, 0]]\n"
    );
    let mut scene = Scene::new(period, period / 4000.0);
    scene.plan.domain.gravity = DVec3::ZERO;
    let end = positions(&mut scene.with("grain", SolidProgram, &section).run(), "grain")[0];
    // Its integrator is of first order.
    assert!(end.distance(DVec3::X) < 5e-3, "{end}");
}

#[test]
fn an_indenter_dents_until_a_spring_holds() {
    // A ball of 2 kg on a spring of 300 N/m is 0.2 m below the surface of an indenter that arrives: it gives
    // way by y, where 300 y = 2 x 5000 (0.2 - y)^2 / 0.5.
    let section = "method = 'mass-spring'\nforce = [{ type = 'indenter', center = [0, 0, 0.3], radius = 0.5, stiffness = 5000.0, from = 0.1 }]\n\
                   [[bodies]]\ntype = 'points'\npositions = [[0, 0, 0]]\nmass = 2.0\nradius = 0.1\n\
                   foundation = { stiffness = 300.0, damping = 20.0 }\n";
    let mut scene = Scene::new(3.0, 2e-3);
    scene.plan.domain.gravity = DVec3::ZERO;
    let mut simulation = scene.with("ball", SolidProgram, section).run();
    let end = -positions(&mut simulation, "ball")[0].z;
    let (stiff, soft) = (2.0 * 5000.0 / 0.5, 300.0f64);
    let root = ((0.4 * stiff + soft) * (0.4 * stiff + soft) - 4.0 * stiff * stiff * 0.04).sqrt();
    let expected = (0.4 * stiff + soft - root) / (2.0 * stiff);
    assert!((end - expected).abs() < 1e-4, "{end} in place of {expected}");
}
