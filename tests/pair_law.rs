//! `[[coupling.contact]]` with `law = "merge"`: members of a pair move as one while they are pressed, and part
//! as merged particles do.

mod support;

use amalgam_coordinator::Simulation;
use amalgam_coordinator::settings::{ContactMethod, ContactSettings, CouplingSettings, PairLaw};
use amalgam_particles::DVec3;
use amalgam_solver_fluid::FluidProgram;
use amalgam_solver_solid::SolidProgram;
use support::{GRAVITY, Scene, positions};

const RADIUS: f64 = 0.1;

fn with_laws(scene: Scene, laws: &[([&str; 2], PairLaw)]) -> Scene {
    scene.coupling(|coupling| {
        coupling.method = Some(ContactMethod::ContactLaw);
        let pair = |&(between, law): &([&str; 2], PairLaw)| ContactSettings {
            between: between.map(String::from),
            law,
            ..Default::default()
        };
        coupling.contact = laws.iter().map(pair).collect();
    })
}

fn ball(mass: f64, position: DVec3, velocity: DVec3, integrator: &str) -> String {
    format!(
        "method = 'mass-spring'\nintegrator = '{integrator}'\n[[bodies]]\ntype = 'points'\npositions = [{:?}]\n\
         velocities = [{:?}]\nmass = {mass:?}\nradius = {RADIUS:?}\n",
        position.to_array(),
        velocity.to_array()
    )
}

/// A pinned sphere of 9 m with its top in the origin.
const FLOOR: &str = "method = 'mass-spring'\n[[bodies]]\ntype = 'points'\npositions = [[0, 0, -9]]\nmass = 1.0\nradius = 9.0\n\
                     pinned = [0]\n";

fn velocity(simulation: &mut Simulation, participant: &str) -> DVec3 {
    let frames = simulation.frames().expect("frames");
    frames.iter().find(|frame| frame.name == participant).expect("a participant of this name").velocities[0]
}

/// Two balls on a slope of 30 degrees, thrown along it at 0.5 m/s: one merges with the floor and stays, the
/// other one is smooth and slides.
#[test]
fn two_pairs_of_a_scene_have_laws_of_their_own() {
    for integrator in ["velocity-verlet", "implicit-euler"] {
        let (sin, cos) = 30f64.to_radians().sin_cos();
        let mut scene = with_laws(Scene::new(0.3, 1e-3), &[(["floor", "sticky"], PairLaw::Merge)]);
        scene.plan.domain.gravity = DVec3::new(sin, 0.0, -cos) * GRAVITY;
        // On both sides of the top, in a plane across the slope.
        let on = |y: f64| DVec3::new(0.0, y, (9.1f64.powi(2) - y * y).sqrt() - 9.0);
        let thrown = |y: f64| ball(1.0, on(y), DVec3::X * 0.5, integrator);
        let mut simulation = scene
            .with("floor", SolidProgram, FLOOR)
            .with("smooth", SolidProgram, thrown(-0.2))
            .with("sticky", SolidProgram, thrown(0.2))
            .run_with(|_, record| {
                assert_eq!(record.phantom, 0.0);
                assert!(record.dissipated > -1e-6, "contacts gave {} J", -record.dissipated);
            });
        let stuck = positions(&mut simulation, "sticky")[0].distance(on(0.2));
        assert!(stuck < 1e-6, "{integrator}: went {stuck} m");
        assert!(velocity(&mut simulation, "sticky").length() < 1e-5);
        let way = positions(&mut simulation, "smooth")[0].x;
        let flat = 0.5 * 0.3 + 0.5 * GRAVITY * sin * 0.09;
        assert!(way > 0.98 * flat && way < 1.1 * flat, "{integrator}: slid {way} m of {flat}");
    }
}

/// Two balls that hit each other aslant go on at the velocity of their centre of mass, from apart or from an
/// overlap. Their momentum is kept to rounding and their energy never rises.
#[test]
fn a_pair_that_hits_goes_on_as_one() {
    let (masses, first, second) = ([1.0, 3.0], DVec3::new(2.0, 0.5, 0.0), DVec3::new(-1.0, 0.0, 0.3));
    let mean = (first * masses[0] + second * masses[1]) / 4.0;
    for integrators in [["velocity-verlet"; 2], ["velocity-verlet", "implicit-euler"], ["implicit-euler"; 2]]
    {
        for distance in [0.195, 0.21] {
            let mut scene = with_laws(Scene::new(0.02, 1e-3), &[(["one", "other"], PairLaw::Merge)]);
            scene.plan.domain.gravity = DVec3::ZERO;
            let at = DVec3::new(0.8, 0.6, 0.0) * distance;
            let scene = scene
                .with("one", SolidProgram, ball(masses[0], DVec3::ZERO, first, integrators[0]))
                .with("other", SolidProgram, ball(masses[1], at, second, integrators[1]));
            let mut simulation = scene.run_with(|_, record| {
                assert!(record.dissipated > -1e-5, "contacts gave {} J", -record.dissipated);
            });
            let ends = ["one", "other"].map(|name| velocity(&mut simulation, name));
            let momentum = ends[0] * masses[0] + ends[1] * masses[1];
            // The implicit solver computes in f32, to a tolerance.
            let rounding = if integrators.contains(&"implicit-euler") { 1e-7 } else { 1e-14 };
            let lost = momentum - mean * 4.0;
            assert!(lost.length() < rounding, "{integrators:?}: {lost}");
            for end in ends {
                assert!(end.distance(mean) < 3e-3 * mean.length(), "{integrators:?}: {end} of {mean}");
            }
        }
    }
}

/// Two balls overlap and approach while a force pulls one of them away. In the first step they move as one,
/// as merged ones do, and then they part. Under the cone they part at once.
#[test]
fn a_pair_is_held_for_the_step_in_which_it_approaches() {
    let velocities = |law: PairLaw| {
        let mut scene = with_laws(Scene::new(2e-3, 1e-3), &[(["left", "right"], law)]);
        scene.plan.domain.gravity = DVec3::ZERO;
        let pulled = ball(1.0, DVec3::X * 0.19, DVec3::X * -0.1, "velocity-verlet")
            + "[[force]]\ntype = 'uniform'\nacceleration = [300, 0, 0]\n";
        let mut simulation = scene
            .with("left", SolidProgram, ball(1.0, DVec3::ZERO, DVec3::ZERO, "velocity-verlet"))
            .with("right", SolidProgram, pulled)
            .connect()
            .expect("connects");
        let mut all = Vec::new();
        while !simulation.is_finished() {
            simulation.step().expect("steps");
            all.push(["left", "right"].map(|name| velocity(&mut simulation, name).x));
        }
        all
    };
    let near = |found: &[[f64; 2]], wanted: [[f64; 2]; 2]| {
        let errors = found.iter().flatten().zip(wanted.iter().flatten()).map(|(a, b)| (a - b).abs());
        assert!(found.len() == 2 && errors.fold(0.0, f64::max) < 1e-9, "{found:?}, not {wanted:?}");
    };
    near(&velocities(PairLaw::Cone), [[0.0, 0.2], [0.0, 0.5]]);
    near(&velocities(PairLaw::Merge), [[0.1, 0.1], [0.1, 0.4]]);
}

/// A ball that touches a pinned one from below falls: nothing holds what does not approach.
#[test]
fn a_pair_that_is_pulled_apart_parts() {
    let hangs = |distance: f64| {
        let scene = with_laws(Scene::new(0.1, 1e-3), &[(["ceiling", "ball"], PairLaw::Merge)]);
        let ceiling = FLOOR.replace("[[0, 0, -9]]", "[[0, 0, 9]]");
        let low = ball(1.0, DVec3::NEG_Z * distance, DVec3::Z * 0.2, "velocity-verlet");
        let mut simulation =
            scene.with("ceiling", SolidProgram, ceiling).with("ball", SolidProgram, low).run();
        positions(&mut simulation, "ball")[0].z + distance
    };
    // It is held for one step and falls for 0.099 s.
    for distance in [RADIUS, RADIUS - 0.01] {
        let way = hangs(distance);
        assert!((way + 0.5 * GRAVITY * 0.099f64.powi(2)).abs() < 1e-3, "{distance}: {way} m");
    }
}

/// Water that falls onto a slope of held particles sticks where it merges with them and runs down where it does
/// not.
#[test]
fn water_sticks_to_what_it_merges_with() {
    let ran = |law: PairLaw| {
        let mut scene = with_laws(Scene::new(0.25, 1e-3), &[(["slope", "water"], law)]);
        scene.plan.domain.gravity = DVec3::new(0.5, 0.0, -0.5 * 3f64.sqrt()) * GRAVITY;
        let slope = "method = 'mass-spring'\n[[bodies]]\ntype = 'sheet'\ncorner = [-0.3, -0.1, 0]\nedge_u = [0.9, 0, 0]\n\
                     edge_v = [0, 0.2, 0]\nspacing = 0.015\narea_density = 1.0\nstructural_stiffness = 100.0\npinned = 'all'\n";
        let water = "method = 'sph'\nspacing = 0.02\n[[shapes]]\ntype = 'box'\nmin = [-0.06, -0.04, 0.02]\nmax = [0.06, 0.04, 0.06]\n";
        let mut simulation = scene
            .with("slope", SolidProgram, slope)
            .with("water", FluidProgram, water)
            .run_with(|_, record| {
                assert!(record.dissipated > -1e-6, "contacts gave {} J", -record.dissipated);
            });
        assert!(simulation.summary().energy.unaccounted_relative_max < 1e-2);
        let water = positions(&mut simulation, "water");
        let lowest = water.iter().filter(|x| x.z < 0.03).map(|x| x.x);
        let count = lowest.clone().count() as f64;
        assert!(count > 5.0);
        lowest.sum::<f64>() / count
    };
    let (stuck, slid) = (ran(PairLaw::Merge), ran(PairLaw::Cone));
    assert!(stuck < 0.6 * slid, "the lowest water went {stuck} m where it sticks, {slid} m where it slides");
}

/// Coefficients of the cone beside `law = "merge"` are faults that say what to write.
#[test]
fn merging_has_no_friction() {
    let entry = |friction, rolling, restitution, law| ContactSettings {
        between: ["sand".into(), "cloth".into()],
        law,
        friction,
        rolling,
        restitution,
    };
    let faults = |entry| CouplingSettings { contact: vec![entry], ..Default::default() }.faults();
    assert!(faults(entry(0.3, 0.1, 0.5, PairLaw::Cone)).is_empty());
    assert!(faults(entry(0.0, 0.0, 0.0, PairLaw::Merge)).is_empty());
    let found = faults(entry(0.3, 0.1, 0.5, PairLaw::Merge));
    let keys: Vec<&str> = found.iter().map(|fault| fault.key.as_str()).collect();
    assert_eq!(keys, ["contact[0].friction", "contact[0].rolling", "contact[0].restitution"]);
    assert!(found.iter().all(|fault| fault.message.contains("write law = \"cone\"")), "{found:?}");
}
