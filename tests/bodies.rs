//! Bodies that turn, and obstacles, under the contact law through real services.

mod support;

use amalgam_coordinator::settings::{ContactMethod, ContactSettings, ObstacleSettings, ObstacleShape};
use amalgam_coordinator::{Quantity, Simulation};
use amalgam_particles::DVec3;
use amalgam_solver_solid::SolidProgram;
use support::{GRAVITY, Scene, last, positions};

fn law(scene: Scene, contacts: &[([&str; 2], f64)]) -> Scene {
    scene.coupling(|coupling| {
        coupling.method = Some(ContactMethod::ContactLaw);
        let contact = |&(between, friction): &([&str; 2], f64)| ContactSettings {
            between: between.map(String::from),
            friction,
            ..Default::default()
        };
        coupling.contact = contacts.iter().map(contact).collect();
    })
}

/// A smooth floor through the origin, `degrees` down along x by the direction of gravity.
fn floor(mut scene: Scene, degrees: f64) -> Scene {
    let angle = degrees.to_radians();
    scene.plan.domain.gravity = DVec3::new(angle.sin(), 0.0, -angle.cos()) * GRAVITY;
    let shape = ObstacleShape::Plane { point: DVec3::ZERO, normal: DVec3::Z };
    scene.plan.domain.obstacles =
        vec![ObstacleSettings { name: "floor".into(), shape, rotation: None, inside: false }];
    scene
}

fn grain(velocity: f64) -> String {
    format!(
        "method = 'grains'\nspin = true\n[[bodies]]\ntype = 'points'\npositions = [[0, 0, 0.1]]\n\
         velocities = [[{velocity:?}, 0, 0]]\nmass = 2.0\nradius = 0.1\n"
    )
}

/// Position and velocity of the one particle of a participant.
fn state(simulation: &mut Simulation, participant: &str) -> (DVec3, DVec3) {
    let frames = simulation.frames().expect("frames");
    let frame = frames.iter().find(|frame| frame.name == participant).expect("a participant of this name");
    (frame.positions[0], frame.velocities[0])
}

/// A ball that is thrown along a floor slides until it rolls, at five sevenths of its speed whatever the
/// friction.
#[test]
fn a_thrown_ball_ends_up_rolling() {
    for friction in [0.1, 0.5] {
        let scene = law(floor(Scene::new(1.0, 1e-3), 0.0), &[(["floor", "ball"], friction)]);
        let mut simulation = scene.with("ball", SolidProgram, grain(1.0)).run();
        let (position, velocity) = state(&mut simulation, "ball");
        // It slides for 2 v / (7 mu g), at rates that Euler's method integrates exactly but for half of a
        // step.
        let slides = 2.0 / (7.0 * friction * GRAVITY);
        let way = slides - 0.5 * friction * GRAVITY * slides * slides + 5.0 / 7.0 * (1.0 - slides);
        assert!((velocity.x - 5.0 / 7.0).abs() < 1e-6, "{friction}: {velocity}");
        assert!((position.x - way).abs() < 2e-3 * way, "{friction}: {} of {way}", position.x);
        assert!((position.z - 0.1).abs() < 1e-7, "{friction}: {}", position.z);
    }
}

/// Down a slope a ball rolls with five sevenths of g sin, if friction is above two sevenths of the tangent,
/// else it slides with g (sin - mu cos).
#[test]
fn a_ball_rolls_or_slides_down_a_slope() {
    let (degrees, time): (f64, f64) = (30.0, 0.5);
    let (sin, cos) = degrees.to_radians().sin_cos();
    for (friction, acceleration) in [
        (0.0, GRAVITY * sin),
        (0.1, GRAVITY * (sin - 0.1 * cos)),
        (0.2, GRAVITY * sin * 5.0 / 7.0),
        (0.9, GRAVITY * sin * 5.0 / 7.0),
    ] {
        let scene = law(floor(Scene::new(time, 1e-3), degrees), &[(["floor", "ball"], friction)]);
        let mut simulation = scene.with("ball", SolidProgram, grain(0.0)).run();
        let (_, velocity) = state(&mut simulation, "ball");
        let speed = acceleration * time;
        assert!((velocity.x - speed).abs() < 1e-4 * speed, "{friction}: {} of {speed}", velocity.x);
    }
}

fn rigid(shape: &str, velocity: [f64; 3], spin: [f64; 3]) -> String {
    format!(
        "method = 'rigid'\n[[bodies]]\ntype = 'rigid'\nshape = {shape}\nspacing = 0.05\ndensity = 800.0\n\
         velocity = {velocity:?}\nangular_velocity = {spin:?}\n"
    )
}

/// A box on a slope slides with g (sin - mu cos), rests below the angle of friction, and topples if it is
/// tall.
#[test]
fn a_box_slides_rests_or_topples() {
    let (degrees, time): (f64, f64) = (20.0, 0.4);
    let (sin, cos) = degrees.to_radians().sin_cos();
    let flat = "{ type = 'box', min = [0.0, 0.0, 0.0], max = [0.2, 0.2, 0.1] }";
    // Where the middle of the box is in the end.
    let run = |shape: &str, friction: f64| {
        let scene = law(floor(Scene::new(time, 1e-3), degrees), &[(["floor", "box"], friction)]);
        let mut simulation = scene.with("box", SolidProgram, rigid(shape, [0.0; 3], [0.0; 3])).run();
        let ends = positions(&mut simulation, "box");
        ends.iter().sum::<DVec3>() / ends.len() as f64
    };
    let way = 0.5 * GRAVITY * (sin - 0.2 * cos) * time * time;
    let slid = run(flat, 0.2) - DVec3::new(0.1, 0.1, 0.05);
    assert!((slid.x - way).abs() < 5e-3 * way, "{slid} of {way}");
    assert!(slid.z.abs() < 1e-6, "{slid}");
    let rests = run(flat, 0.4).distance(DVec3::new(0.1, 0.1, 0.05));
    assert!(rests < 1e-6, "{rests}");
    // The box stands on balls, the outer ones 0.05 m from each other: its middle is beyond the lower ones if
    // it is higher than 0.025 / tan 20 degrees = 0.069 m.
    let tall = "{ type = 'box', min = [0.0, 0.0, 0.0], max = [0.1, 0.1, 0.3] }";
    let toppled = run(tall, 2.0);
    assert!(toppled.x > 0.1 && toppled.z < 0.12, "{toppled}");
    let stable = "{ type = 'box', min = [0.0, 0.0, 0.0], max = [0.1, 0.1, 0.1] }";
    let stands = run(stable, 2.0).distance(DVec3::splat(0.05));
    assert!(stands < 1e-6, "{stands}");
}

/// Spinning grains that hit each other off centre, with friction, and a box among them: angular momentum is
/// kept, and energy never rises.
#[test]
fn angular_momentum_is_kept_between_bodies_that_turn() {
    let mut scene = Scene::new(0.3, 1e-3);
    scene.plan.domain.gravity = DVec3::ZERO;
    let grains = "method = 'grains'\nspin = true\n[[bodies]]\ntype = 'grains'\nspacing = 0.1\ndensity = 500.0\n\
                  shape = { type = 'box', min = [-0.3, -0.15, -0.1], max = [0.0, 0.15, 0.1] }\n\
                  velocity = [2.0, 0.0, 0.0]\nangular_velocity = [0.0, 5.0, 9.0]\n";
    let block = rigid(
        "{ type = 'box', min = [0.05, 0.0, 0.0], max = [0.3, 0.2, 0.15] }",
        [-1.0, 0.0, 0.0],
        [1.0, 2.0, -4.0],
    );
    let pairs = [(["grains", "block"], 0.5), (["grains", "grains"], 0.5)];
    let scene = law(scene, &pairs)
        .with("grains", SolidProgram, grains)
        .with("block", SolidProgram, block)
        .probe("turn", Quantity::AngularMomentum { participant: None })
        .probe("speed", Quantity::Momentum { participant: None })
        .probe("energy", Quantity::Energy {});
    let (mut start, mut energy, mut dissipated, mut contacts) = (None, f64::INFINITY, 0.0, 0);
    scene.run_with(|simulation, record| {
        let value = |probe: &str| DVec3::from_array(std::array::from_fn(|k| last(simulation, probe, k)));
        let now = [value("turn"), value("speed")];
        let first = *start.get_or_insert(now);
        for (now, first) in now.iter().zip(first) {
            assert!(now.distance(first) < 1e-11 * first.length(), "{now} {first}");
        }
        let kinetic = last(simulation, "energy", 0);
        assert!(kinetic < energy * (1.0 + 1e-12), "{kinetic} J after {energy} J");
        energy = kinetic;
        dissipated += record.dissipated;
        contacts += record.active;
    });
    assert!(contacts > 100 && dissipated > 1.0, "{contacts} contacts took {dissipated} J");
}

/// A body that flies and tumbles keeps its energy and its angular momentum.
#[test]
fn a_tumbling_box_keeps_energy_and_angular_momentum() {
    let shape = "{ type = 'box', min = [0.0, 0.0, 0.0], max = [0.1, 0.2, 0.4] }";
    let mut scene = law(Scene::new(5.0, 2e-3), &[]);
    scene.plan.domain.gravity = DVec3::ZERO;
    let scene = scene
        .with("box", SolidProgram, rigid(shape, [0.1, 0.0, 0.0], [0.01, 10.0, 0.02]))
        .probe("turn", Quantity::AngularMomentum { participant: None })
        .probe("energy", Quantity::Energy {});
    let mut start = None;
    scene.run_with(|simulation, _| {
        let turn = DVec3::from_array(std::array::from_fn(|k| last(simulation, "turn", k)));
        let energy = last(simulation, "energy", 0);
        let (first, begun) = *start.get_or_insert((turn, energy));
        assert!(turn.distance(first) < 1e-11 * first.length(), "{turn} {first}");
        assert!((energy / begun - 1.0).abs() < 1e-6, "{energy} of {begun}");
    });
}

#[test]
fn what_turns_needs_the_contact_law() {
    let scene = Scene::new(0.1, 1e-3).with("ball", SolidProgram, grain(0.0));
    let error = scene.connect().err().expect("refuses").to_string();
    assert!(error.starts_with("participant ball has bodies that turn"), "{error}");
    let scene =
        floor(Scene::new(0.1, 1e-3), 0.0).with("ball", SolidProgram, grain(0.0).replace("spin = true", ""));
    let error = scene.connect().err().expect("refuses").to_string();
    assert!(error.starts_with("obstacle floor is for the contact law"), "{error}");
}
