//! FLIP water beside obstacles, alone: it keeps itself off them, rests on them and flows around them.

mod common;

use amalgam_particles::{DQuat, DVec3, Obstacle, ObstacleForm};
use amalgam_solver_kit::{Solver, World};
use common::{Groups, create, field, kinetic_energy, momentum, step, world};

const GRAVITY: f64 = 9.81;
const DENSITY: f64 = 1000.0;

fn obstacle(form: ObstacleForm) -> Obstacle {
    Obstacle { form, rotation: DQuat::IDENTITY, is_hollow: false }
}

fn section(spacing: f64, low: DVec3, high: DVec3) -> String {
    let [low, high] = [low, high].map(|corner| corner.to_array());
    format!(
        "method = \"flip\"\nspacing = {spacing:?}\n[[shapes]]\ntype = \"box\"\nmin = {low:?}\nmax = {high:?}\n"
    )
}

/// Runs free for `time` in steps of at most 10 ms, and calls `each` after every step with the time.
fn run(solver: &mut dyn Solver, time: f64, mut each: impl FnMut(&dyn Solver, f64)) {
    let groups = Groups::none(solver.particles().len());
    let mut now = 0.0;
    while now < time {
        let dt = solver.stable_dt().min(0.01);
        step(solver, &groups, dt);
        now += dt;
        each(solver, now);
    }
}

fn positions(solver: &dyn Solver) -> &[DVec3] {
    &solver.particles().position
}

#[test]
fn water_rests_level_on_an_oblique_plane_with_the_pressure_of_its_depth() {
    let (spacing, edges) = (0.05, DVec3::new(1.0, 0.5, 1.2));
    let (point, normal) = (DVec3::new(0.5, 0.25, 0.3), DVec3::new(-0.342, 0.0, 0.94).normalize());
    let plane = obstacle(ObstacleForm::Plane { point, normal });
    let world = World { obstacles: vec![plane], ..world(edges, GRAVITY) };
    // By PIC the water soon sways no more.
    let section = section(spacing, DVec3::Z * 0.5, edges.with_z(0.8)).replace("[[", "flip_ratio = 0.0\n[[");
    let mut water = create(&section, &world);
    let (mut mass, mut nearest) = (0.0, f64::INFINITY);
    run(&mut *water, 6.0, |water, _| {
        mass = water.particles().mass.iter().sum();
        for x in positions(water) {
            nearest = nearest.min((x - point).dot(normal));
        }
    });
    assert!(nearest > 0.0, "a particle was {nearest} m from the plane");
    // The plane rises by `rise` over the tank, and the surface covers all of it.
    let rise = edges.x * normal.x / normal.z;
    let level = point.z + mass / DENSITY / (edges.x * edges.y);
    let middle = 0.5 * (level.powi(2) - point.z.powi(2) - rise.powi(2) / 12.0) / (level - point.z);
    let count = water.particles().len() as f64;
    let mean = positions(&*water).iter().map(|x| x.z).sum::<f64>() / count;
    assert!((mean - middle).abs() < 0.25 * spacing, "{mean} for {middle}");
    let highest = positions(&*water).iter().map(|x| x.z).fold(0.0, f64::max);
    assert!((highest - level).abs() < 0.75 * spacing, "{highest} for {level}");
    let speed = (2.0 * kinetic_energy(&*water) / mass).sqrt();
    assert!(speed < 0.03, "{speed}");
    let pressure = field(&mut *water, "pressure");
    let deep = positions(&*water).iter().zip(&pressure).filter(|(x, _)| x.z < level - 2.0 * spacing);
    let excess = deep.clone().map(|(x, &p)| f64::from(p) - DENSITY * GRAVITY * (level - x.z));
    let error = excess.sum::<f64>() / deep.count() as f64 / (DENSITY * GRAVITY * (level - point.z));
    assert!(error.abs() < 0.05, "{error}");
}

#[test]
fn water_slides_down_a_slope_as_fast_as_a_smooth_block() {
    let (spacing, edges) = (0.025, DVec3::new(3.2, 0.2, 2.4));
    let normal = DVec3::new(0.5, 0.0, 0.75f64.sqrt());
    let point = DVec3::new(0.0, 0.0, 1.9);
    let plane = obstacle(ObstacleForm::Plane { point, normal });
    let world = World { obstacles: vec![plane], ..world(edges, GRAVITY) };
    // It falls a little, and then gains g sin(30 degrees) along the plane.
    let low = DVec3::new(0.4, 0.0, 1.75);
    let mut water = create(&section(spacing, low, low + DVec3::new(0.4, 0.2, 0.2)), &world);
    let mass: f64 = water.particles().mass.iter().sum();
    let mut samples = Vec::new();
    run(&mut *water, 0.65, |water, now| samples.push((now, momentum(water) / mass)));
    let along = DVec3::new(normal.z, 0.0, -normal.x);
    let at = |time: f64| *samples.iter().find(|(now, _)| *now >= time).expect("a sample");
    let ((from, before), (to, after)) = (at(0.35), at(0.6));
    let gained = (after - before).dot(along) / (to - from);
    assert!((gained / (0.5 * GRAVITY) - 1.0).abs() < 0.08, "{gained}");
    let into = after.dot(normal);
    assert!(into.abs() < 0.2, "{into}");
}

#[test]
fn a_ball_in_a_stream_lets_no_water_in_and_none_stays_behind() {
    let (spacing, edges) = (0.05, DVec3::new(1.0, 1.0, 2.0));
    let (center, radius) = (DVec3::new(0.5, 0.5, 0.8), 0.25);
    let ball = obstacle(ObstacleForm::Ball { center, radius });
    let world = World { obstacles: vec![ball], ..world(edges, GRAVITY) };
    let mut water = create(&section(spacing, DVec3::new(0.3, 0.3, 1.2), DVec3::new(0.7, 0.7, 1.8)), &world);
    let mut nearest = f64::INFINITY;
    run(&mut *water, 3.0, |water, _| {
        for x in positions(water) {
            nearest = nearest.min(x.distance(center) - radius);
        }
    });
    assert!(nearest > 0.0, "a particle was {nearest} m from the ball");
    let above = positions(&*water).iter().filter(|x| x.z > 0.5).count();
    assert_eq!(above, 0, "of {} particles some cling to the ball", water.particles().len());
}
