//! The contact law through real services: contacts slide, hold and part, and reported velocities are those of
//! the motion.

mod support;

use amalgam_coordinator::settings::{ContactMethod, ContactSettings};
use amalgam_particles::DVec3;
use amalgam_solver_fluid::FluidProgram;
use amalgam_solver_solid::SolidProgram;
use support::balls::BallsProgram;
use support::{GRAVITY, Scene, positions};

fn law(scene: Scene, contacts: &[([&str; 2], f64)]) -> Scene {
    scene.coupling(|coupling| {
        coupling.method = Some(ContactMethod::ContactLaw);
        coupling.contact = contacts
            .iter()
            .map(|&(between, friction)| ContactSettings {
                between: between.map(String::from),
                friction,
                ..Default::default()
            })
            .collect();
    })
}

/// A point of 1 kg with a velocity.
fn ball(position: DVec3, velocity: DVec3, radius: f64, integrator: &str) -> String {
    let list = |v: DVec3| format!("[{:?}, {:?}, {:?}]", v.x, v.y, v.z);
    format!(
        "method = 'mass-spring'\nintegrator = '{integrator}'\n[[bodies]]\ntype = 'points'\npositions = [{}]\n\
         velocities = [{}]\nmass = 1.0\nradius = {radius:?}\n",
        list(position),
        list(velocity)
    )
}

/// A pinned sphere of 9 m with its top in the origin: a floor that is almost flat.
const FLOOR: &str = "method = 'mass-spring'\n[[bodies]]\ntype = 'points'\npositions = [[0, 0, -9]]\nmass = 1.0\nradius = 9.0\n\
                     pinned = [0]\n";

fn tilted(mut scene: Scene, degrees: f64) -> Scene {
    let angle = degrees.to_radians();
    scene.plan.domain.gravity = DVec3::new(angle.sin(), 0.0, -angle.cos()) * GRAVITY;
    scene
}

/// Way along the floor, from rest or thrown, and the largest height above it.
fn slide(degrees: f64, friction: f64, speed: f64, integrator: &str) -> (f64, f64) {
    const RADIUS: f64 = 0.1;
    let scene = law(tilted(Scene::new(0.3, 1e-3), degrees), &[(["floor", "ball"], friction)])
        .with("floor", SolidProgram, FLOOR)
        .with("ball", SolidProgram, ball(DVec3::Z * RADIUS, DVec3::X * speed, RADIUS, integrator));
    let mut highest = 0.0f64;
    let mut simulation = scene.run_with(|_, record| assert!(record.disagreement < 1e-3));
    let end = positions(&mut simulation, "ball")[0];
    highest = highest.max(end.distance(DVec3::NEG_Z * 9.0) - 9.0 - RADIUS);
    (end.x, highest)
}

/// The same by an integration of Coulomb's law along the arc, in ten thousand steps.
fn exact(degrees: f64, friction: f64, speed: f64) -> f64 {
    let (length, dt) = (9.1, 3e-5);
    let (mut way, mut speed) = (0.0, speed);
    for _ in 0..10_000 {
        let angle = degrees.to_radians() + way / length;
        let press: f64 = GRAVITY * angle.cos() - speed * speed / length;
        let (pull, brake) = (GRAVITY * angle.sin(), friction * press.max(0.0));
        speed = if speed > 0.0 || pull > brake { f64::max(speed + dt * (pull - brake), 0.0) } else { 0.0 };
        way += dt * speed;
    }
    length * (way / length).sin()
}

/// Coulomb's law on a slope: sliding, resting just below the angle of friction, sliding just above, and
/// thrown along it.
#[test]
fn a_ball_slides_or_rests_as_coulomb_says() {
    for integrator in ["velocity-verlet", "implicit-euler"] {
        for (degrees, friction, speed) in [
            (5.0, 0.0, 0.0),
            (30.0, 0.0, 0.0),
            (30.0, 0.3, 0.0),
            (27.5, 0.5, 0.0),
            (0.0, 0.0, 0.5),
            (0.0, 0.2, 0.5),
        ] {
            let (way, float) = slide(degrees, friction, speed, integrator);
            let exact = exact(degrees, friction, speed);
            // Symplectic Euler is ahead by half of a step.
            assert!(
                (way - exact).abs() < 0.005 * exact,
                "{integrator} {degrees} {friction} {speed}: {way} of {exact}"
            );
            // The chord of an arc is above it.
            assert!(float < 1e-6, "{integrator} {degrees} {friction}: floats by {float}");
        }
        let (way, _) = slide(26.0, 0.5, 0.0, integrator);
        assert!(way < 1e-9, "{integrator}: slides by {way} below the angle of friction");
    }
}

/// Water that falls onto a cloth in which a loose sheet lies, and a ball: fluids and implicit solids, own
/// contacts too.
fn splash() -> Scene {
    let sheet = |corner: &str, edge: f64, more: &str| {
        format!(
            "[[bodies]]\ntype = 'sheet'\ncorner = {corner}\nedge_u = [{edge}, 0, 0]\nedge_v = [0, {edge}, 0]\n\
             spacing = 0.02\narea_density = 0.4\nstructural_stiffness = 300.0\ndamping_ratio = 0.1\n{more}\n"
        )
    };
    let cloth = format!(
        "method = 'mass-spring'\nself_collision = true\n{}{}",
        sheet("[-0.1, -0.1, 0.1]", 0.2, "pinned = 'edges'"),
        sheet("[-0.045, -0.035, 0.125]", 0.08, "velocity = [0, 0, -1.0]")
    );
    // The velocity at the end of a step of several sub-steps is that of the last one.
    let water = "method = 'sph'\nspacing = 0.02\nsubsteps_max = 1\n[[shapes]]\ntype = 'sphere'\ncenter = [0, 0, 0.22]\nradius = 0.06\n\
                 velocity = [0, 0, -2.0]\n";
    law(Scene::new(0.06, 1e-3), &[(["cloth", "water"], 0.2)])
        .with("cloth", SolidProgram, cloth)
        .with("water", FluidProgram, water)
        .with(
            "ball",
            SolidProgram,
            ball(DVec3::new(0.03, 0.02, 0.33), DVec3::Z * -3.0, 0.02, "implicit-euler"),
        )
}

/// No participant reports a velocity with which it does not move, and contacts only take energy.
#[test]
fn what_is_reported_is_what_moves() {
    let mut before: Vec<Vec<DVec3>> = Vec::new();
    let mut scene = splash();
    scene.plan.time.frame_interval = 1e-4;
    let mut simulation = scene.connect().expect("connects");
    let (mut touched, mut dissipated) = (0, 0.0f64);
    let mut last_time = 0.0;
    while !simulation.is_finished() {
        let record = simulation.step().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(record.phantom, 0.0);
        assert!(!record.unconverged && record.iterations > 0);
        assert!(record.dissipated > -1e-9, "step {}: contacts gave {} J", record.step, -record.dissipated);
        touched += record.active;
        dissipated += record.dissipated;
        if !record.frame_due {
            continue;
        }
        let dt = record.time - last_time;
        last_time = record.time;
        let one_step = (dt - record.dt).abs() < 1e-12;
        let frames = simulation.frames().expect("frames");
        for (frame, before) in frames.iter().zip(&before).filter(|_| one_step) {
            for ((x, v), old) in frame.positions.iter().zip(&frame.velocities).zip(before) {
                let moved = (*x - *old) / record.dt;
                assert!((moved - *v).length() < 1e-9, "{}: reports {v}, moves {moved}", frame.name);
            }
        }
        before = frames.into_iter().map(|frame| frame.positions).collect();
    }
    assert!(touched > 1000 && dissipated > 1e-3, "{touched} contacts, {dissipated} J");
}

/// A fluid that integrates once in a step takes sub-steps, unless its section has their number.
#[test]
fn a_fluid_takes_sub_steps_under_the_law() {
    let steps = |method: ContactMethod, keys: &str| {
        let water = format!(
            "method = 'sph'\nspacing = 0.02\n{keys}\n[[shapes]]\ntype = 'sphere'\ncenter = [0, 0, 0.2]\nradius = 0.06\n"
        );
        let scene = Scene::new(0.01, 1.0).coupling(|coupling| coupling.method = Some(method));
        scene.with("water", FluidProgram, water).run().summary().steps
    };
    let long = steps(ContactMethod::ContactLaw, "");
    let short = steps(ContactMethod::ContactLaw, "substeps_max = 1");
    assert!(short.abs_diff(3 * long) < 3, "{short} steps, with sub-steps {long}");
    assert_eq!(steps(ContactMethod::MergeSplit, ""), short);
    assert_eq!(steps(ContactMethod::MergeSplit, "substeps_max = 3"), long);
}

/// With merging the same scene reports motion that is none.
#[test]
fn merging_reports_what_does_not_move() {
    let mut largest = 0.0f64;
    splash().coupling(|coupling| coupling.method = Some(ContactMethod::MergeSplit)).run_with(|_, record| {
        largest = largest.max(record.phantom);
    });
    assert!(largest > 1e-4, "{largest} J");
}

/// Soft balls that touch at rest without gravity: there is no speed to compare errors with, and nothing
/// moves.
#[test]
fn what_rests_without_gravity_stays_where_it_is() {
    let pair = |x: f64| {
        format!(
            "method = 'mass-spring'\n[[bodies]]\ntype = 'points'\nmass = 1.0\nradius = 0.1\npositions = [[{x:?}, 0, 0], \
             [{:?}, 0, 0]]\nsprings = [{{ a = 0, b = 1, stiffness = 1e4 }}]\n",
            x + 1.0
        )
    };
    let mut scene = law(Scene::new(0.02, 1e-3), &[(["left", "right"], 0.5)])
        .with("left", SolidProgram, pair(-1.19).as_str())
        .with("right", SolidProgram, pair(0.0).as_str());
    scene.plan.domain.gravity = DVec3::ZERO;
    let mut simulation = scene.run();
    assert!(positions(&mut simulation, "right")[0].length() < 1e-9);
}

/// A ball meets another program's ball. Returns method, reason and the hash of the end.
fn meet(method: Option<ContactMethod>, integrator: &str, is_first: bool) -> [String; 3] {
    let thrown = ball(DVec3::new(-0.11, 0.0, 0.03), DVec3::X * 2.0, 0.1, integrator);
    let target = "positions = [[0.1, 0, 0]]\nmass = 0.5\nradius = 0.1\n";
    let scene = Scene::new(0.02, 1e-3).coupling(|coupling| coupling.method = method);
    let scene = match is_first {
        true => scene.with("thrown", SolidProgram, thrown).with("target", BallsProgram, target),
        false => scene.with("target", BallsProgram, target).with("thrown", SolidProgram, thrown),
    };
    let summary = scene.run().summary();
    assert!(summary.contacts.active_mean > 0.0, "nothing touches");
    [summary.coupling.method, summary.coupling.method_reason, summary.state_hash]
}

/// A program of strangers that says that it is explicit counts as one of ours does.
#[test]
fn the_law_is_the_default_beside_at_most_one_implicit_participant() {
    let (law, merging) = (Some(ContactMethod::ContactLaw), Some(ContactMethod::MergeSplit));
    for (integrator, reason) in [
        ("velocity-verlet", "the default, since all participants are explicit"),
        ("implicit-euler", "the default, since only thrown is implicit"),
    ] {
        let [method, why, end] = meet(None, integrator, true);
        let [named, told, same] = meet(law, integrator, true);
        assert_eq!([method, why, end.clone()], [named, reason.to_string(), same]);
        assert_eq!(told, "the scene says so");
        assert_ne!(meet(merging, integrator, true)[2], end, "{integrator}: the method changes nothing");
    }
    let [first, last] = [true, false].map(|is_first| meet(None, "velocity-verlet", is_first));
    assert_eq!(first[1], last[1]);
}

#[test]
fn a_key_that_the_default_does_not_read_is_refused() {
    let connect = |names: &[&str], alpha: Option<f64>, contact: Vec<ContactSettings>| {
        let scene = Scene::new(0.02, 1e-3).coupling(|coupling| {
            (coupling.method, coupling.alpha, coupling.contact) = (None, alpha, contact);
        });
        let start = |k: usize| ball(DVec3::X * k as f64, DVec3::ZERO, 0.1, "implicit-euler");
        let named = names.iter().enumerate();
        let scene = named.fold(scene, |scene, (k, name)| scene.with(name, SolidProgram, start(k)));
        scene.connect().err().map(|error| error.to_string())
    };
    let own = || vec![ContactSettings { between: ["ball", "ball"].map(String::from), ..Default::default() }];
    let error = connect(&["ball"], Some(0.0), Vec::new()).expect("an error");
    let wanted = "write method = \"merge-split\" under [coupling], or leave alpha out";
    assert!(error.contains(wanted), "{error}");
    let both = ["ball", "net"];
    let error = connect(&both, None, own()).expect("an error");
    let wanted = "since ball and net are implicit: write method = \"contact-law\" under [coupling], or leave contact out";
    assert!(error.contains(wanted), "{error}");
    assert_eq!(connect(&["ball"], None, own()), None);
    assert_eq!(connect(&both, Some(0.0), Vec::new()), None);
}
