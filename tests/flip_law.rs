//! FLIP water beside solids under the contact law: it rests, it hits, and nothing depends on threads.

mod support;

use amalgam_coordinator::settings::{ContactMethod, ContactSettings, ObstacleSettings, ObstacleShape};
use amalgam_coordinator::{Quantity, Simulation, Summary};
use amalgam_particles::DVec3;
use amalgam_solver_fluid::FluidProgram;
use amalgam_solver_solid::SolidProgram;
use support::{GRAVITY, Scene, last, positions};

/// Spacing of the water [m], and half of the edge of its tank.
const SPACING: f64 = 0.025;
const HALF: f64 = 0.1;

/// Stiffness of a floor's foundation below each of its particles [N/m].
const FOUNDATION: f64 = 500.0;

/// A square sheet with a sphere below each column of the water's lattice. Nothing joins its particles but the
/// foundation, so that each carries what presses on it.
fn floor() -> String {
    let (edge, corner) = (2.0 * HALF - SPACING, 0.5 * SPACING - HALF);
    format!(
        "method = 'mass-spring'\nself_collision = false\n[[bodies]]\ntype = 'sheet'\ncorner = [{corner:?}, {corner:?}, 0]\n\
         edge_u = [{edge:?}, 0, 0]\nedge_v = [0, {edge:?}, 0]\nspacing = {SPACING:?}\narea_density = 2.0\n\
         structural_stiffness = 0.0\nradius = 0.019\nfoundation = {{ stiffness = {FOUNDATION:?}, damping = 5.0 }}\n"
    )
}

/// Water of this height that falls at this speed [m/s].
fn water(bottom: f64, height: f64, speed: f64) -> String {
    format!(
        "method = 'flip'\nspacing = {SPACING:?}\njitter = 0.0\n[[shapes]]\ntype = 'box'\nmin = [{0:?}, {0:?}, {bottom:?}]\n\
         max = [{HALF:?}, {HALF:?}, {1:?}]\nvelocity = [0.0, 0.0, {2:?}]\n",
        -HALF,
        bottom + height,
        -speed
    )
}

/// A tank of the water's width, from 0.1 m below the origin up.
fn tank(duration: f64) -> Scene {
    let mut scene =
        Scene::new(duration, 2e-3).coupling(|coupling| coupling.method = Some(ContactMethod::ContactLaw));
    scene.plan.domain.min = DVec3::new(-HALF, -HALF, -0.1);
    scene.plan.domain.max = DVec3::new(HALF, HALF, 0.5);
    scene.probe("overlap", Quantity::Overlap {})
}

/// Runs to the end. Returns the deepest overlap [smaller radius]. Every step is agreed on, and what is
/// reported moves.
fn run(scene: Scene) -> (Simulation, f64) {
    let mut deepest = 0.0f64;
    let simulation = scene.run_with(|simulation, record| {
        assert!(record.disagreement <= 1e-3 && !record.unconverged, "{record:?}");
        assert_eq!(record.phantom, 0.0);
        deepest = deepest.max(last(simulation, "overlap", 1));
    });
    (simulation, deepest)
}

fn check(summary: &Summary, deepest: f64) {
    assert!(deepest < 0.05, "overlap of {deepest} radii");
    let repetitions = summary.coupling.repetitions_mean;
    assert!(repetitions < 8.0, "{repetitions} round trips per step");
    assert!(summary.energy.unaccounted_relative_max < 1e-3, "{:?}", summary.energy);
}

fn mean_height(of: &[DVec3]) -> f64 {
    of.iter().map(|x| x.z).sum::<f64>() / of.len() as f64
}

/// Each spring of the floor has the deflection of the water above it and of its own weight, and the water keeps
/// its volume. The surface at the start is half a spacing above the highest particles.
#[test]
fn water_rests_on_springs_with_its_weight_and_its_volume() {
    const HEIGHT: f64 = 0.25;
    let scene = tank(0.8).with("floor", SolidProgram, floor()).with(
        "water",
        FluidProgram,
        water(SPACING, HEIGHT, 0.0),
    );
    let (mut simulation, deepest) = run(scene);
    check(&simulation.summary(), deepest);
    let deflection = -mean_height(&positions(&mut simulation, "floor"));
    let exact = (1000.0 * HEIGHT + 2.0) * SPACING * SPACING * GRAVITY / FOUNDATION;
    assert!((deflection / exact - 1.0).abs() < 0.1, "deflection {deflection} m of {exact} m");
    // Water particles rest 0.0315 m above the floor's, or between four of these up to 0.006 m lower.
    let middle = mean_height(&positions(&mut simulation, "water")) + deflection;
    let exact = 0.0315 - 0.5 * SPACING + 0.5 * HEIGHT;
    assert!((middle - exact).abs() < 0.012, "the middle of the water is at {middle} m, not at {exact} m");
}

/// Positions as bits after water hit the floor at 2 m/s.
fn hit(threads: usize) -> Vec<u64> {
    let mut scene = tank(0.2);
    scene.threads = threads;
    let crossings = Quantity::Crossings { sheet: "floor".into(), of: "water".into() };
    let scene = scene.probe("crossings", crossings);
    let scene = scene.with("floor", SolidProgram, floor()).with("water", FluidProgram, water(0.08, 0.1, 2.0));
    let (mut simulation, deepest) = run(scene);
    check(&simulation.summary(), deepest);
    assert_eq!(last(&simulation, "crossings", 0), 0.0);
    let ends = ["floor", "water"].map(|name| positions(&mut simulation, name)).concat();
    ends.iter().flat_map(|x| x.to_array().map(f64::to_bits)).collect()
}

#[test]
fn water_that_hits_a_floor_neither_crosses_it_nor_gains_energy() {
    let one = hit(1);
    assert!(hit(2) == one, "threads change bits");
}

/// FLIP keeps its water off obstacles by its pressure. So there is no contact, and none may have friction.
#[test]
fn water_meets_obstacles_without_contacts() {
    let slope = |friction: f64| {
        let mut scene = tank(0.4).with("water", FluidProgram, water(0.12, 0.1, 0.0));
        let shape = ObstacleShape::Plane { point: DVec3::ZERO, normal: DVec3::new(-0.5, 0.0, 1.0) };
        scene.plan.domain.obstacles =
            vec![ObstacleSettings { name: "slope".into(), shape, rotation: None, inside: false }];
        let between = ["slope", "water"].map(String::from);
        scene.coupling(|coupling| {
            coupling.contact = vec![ContactSettings { between, friction, ..Default::default() }];
        })
    };
    let (mut simulation, _) = run(slope(0.0));
    let water = positions(&mut simulation, "water");
    let lowest = water.iter().map(|x| x.z - 0.5 * x.x).fold(f64::INFINITY, f64::min);
    assert!(lowest > 0.0 && lowest < SPACING, "{lowest}");
    let contacts = simulation.summary().contacts;
    assert_eq!(contacts.active_mean, 0.0, "{contacts:?}");
    let error = slope(0.3).connect().err().expect("refuses").to_string();
    assert!(error.starts_with("coupling.contact[0] is for contacts of slope with water"), "{error}");
}
