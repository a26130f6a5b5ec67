//! Boxes on a slope: one slides, one rests, one topples.

use glam::DVec3;

use super::{GRAVITY, downhill, set, set_body, vector};
use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/box-on-slope/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "box-on-slope",
    about: "rigid boxes on a slope of 20 degrees: sliding, rest, and toppling about an edge that rolls: exact solutions",
    quick: true,
    compute,
};

const DEGREES: f64 = 20.0;
/// Radius of the balls that a box touches with: half of the spacing [m].
const RADIUS: f64 = 0.025;
/// Largest displacement of a resting box [m]. The law is solved to a hundredth of g dt, 1e-4 m/s. If errors
/// of steps added up, this would be 4e-5 m in 0.4 s, but they do not.
const REST: f64 = 1e-7;

/// The particles before and after.
fn run(size: DVec3, friction: f64, duration: f64) -> Result<[Vec<DVec3>; 2], CaseError> {
    let shape = format!("{{ type = \"box\", min = [0.0, 0.0, 0.0], max = {} }}", vector(size));
    let settings = [
        set_body("shape", shape),
        set("domain.gravity", vector(downhill(DEGREES))),
        set("coupling.contact[0].friction", format!("{friction:?}")),
        set("time.duration", format!("{duration:?}")),
    ];
    let mut experiment = Experiment::start(CASE.name, SCENE, &settings)?;
    let before = experiment.frames()?.swap_remove(0).positions;
    Ok([before, experiment.end()?.swap_remove(0).positions])
}

fn middle(of: &[DVec3]) -> DVec3 {
    of.iter().sum::<DVec3>() / of.len() as f64
}

/// Angle by which a box turned forwards, about y [rad].
fn angle([before, after]: &[Vec<DVec3>; 2]) -> f64 {
    let arm = |of: &[DVec3]| of[of.len() - 1] - of[0];
    let heading = |v: DVec3| v.x.atan2(v.z);
    heading(arm(after)) - heading(arm(before))
}

/// The angle of a box that rolls on its lower row of balls without slipping [rad]. With the angle s, the
/// row's middle moves along the slope by RADIUS s. The centre of mass is at the distance d from it, under the
/// angle s + s0 to the normal. Then (k + |dc/ds|^2) s'' + (dc/ds . d2c/ds2) s'^2 = g . dc/ds, with the
/// inertia k = I/m and c the centre of mass.
fn toppled(size: DVec3, duration: f64) -> f64 {
    let gravity = downhill(DEGREES);
    let arm = DVec3::new(RADIUS - 0.5 * size.x, 0.0, 0.5 * size.z - RADIUS);
    let (distance, start) = (arm.length(), arm.x.atan2(arm.z));
    let inertia = (size.x * size.x + size.z * size.z) / 12.0;
    let rate = |s: f64, w: f64| {
        let (sin, cos) = (s + start).sin_cos();
        let slope = DVec3::new(RADIUS + distance * cos, 0.0, -distance * sin);
        let bend = DVec3::new(-distance * sin, 0.0, -distance * cos);
        (w, (gravity.dot(slope) - slope.dot(bend) * w * w) / (inertia + slope.length_squared()))
    };
    let (steps, mut s, mut w) = (10_000u32, 0.0, 0.0);
    let dt = duration / f64::from(steps);
    for _ in 0..steps {
        let (s1, w1) = rate(s, w);
        let (s2, w2) = rate(s + 0.5 * dt * s1, w + 0.5 * dt * w1);
        let (s3, w3) = rate(s + 0.5 * dt * s2, w + 0.5 * dt * w2);
        let (s4, w4) = rate(s + dt * s3, w + dt * w3);
        s += dt / 6.0 * (s1 + 2.0 * (s2 + s3) + s4);
        w += dt / 6.0 * (w1 + 2.0 * (w2 + w3) + w4);
    }
    s
}

fn compute() -> Result<CaseOutcome, CaseError> {
    let flat = DVec3::new(0.2, 0.2, 0.1);
    let (sin, cos) = DEGREES.to_radians().sin_cos();
    let slid = run(flat, 0.2, 0.4)?;
    let way = 0.5 * GRAVITY * (sin - 0.2 * cos) * 0.4 * 0.4;
    let moved = middle(&slid[1]) - middle(&slid[0]);
    let mut checks = vec![
        // Symplectic Euler is ahead by dt/t of the way.
        Check::relative("slides with mu 0.2: way [m]", way, moved.x, 3e-3),
        Check::within("slides with mu 0.2: change of height [m]", 0.0, moved.z, REST),
        Check::within("slides with mu 0.2: turns by [rad]", 0.0, angle(&slid), 1e-6),
    ];
    let moved = |[before, after]: &[Vec<DVec3>; 2]| middle(before).distance(middle(after));
    checks.push(Check::within("rests with mu 0.4: way [m]", 0.0, moved(&run(flat, 0.4, 0.4)?), REST));
    // The outer rows of balls are 0.05 m apart. On a slope of 20 degrees, the middle is beyond the lower row
    // if it is higher than 0.025/tan 20 = 0.0687 m.
    let low = DVec3::new(0.1, 0.1, 0.1);
    checks.push(Check::within("0.10 m tall, mu 2: way [m]", 0.0, moved(&run(low, 2.0, 0.4)?), REST));
    let mut fallen = Vec::new();
    for (height, duration) in [(0.15, 0.45), (0.3, 0.3)] {
        let size = DVec3::new(0.1, 0.1, height);
        let ends = run(size, 2.0, duration)?;
        let expected = toppled(size, duration);
        checks.push(Check::relative(
            format!("{height:.2} m tall, mu 2: has turned by [rad]"),
            expected,
            angle(&ends),
            0.01,
        ));
        fallen.push((ends, expected));
    }
    let mut picture = Sketch::default();
    for (k, ([before, after], expected)) in fallen.iter().enumerate() {
        let shift = DVec3::X * 0.5 * k as f64;
        let size = DVec3::new(0.1, 0.1, [0.15, 0.3][k]);
        let edge = DVec3::new(size.x - RADIUS, 0.0, RADIUS);
        let turn = glam::DQuat::from_rotation_y(*expected);
        let place = |x: &DVec3| turn * (*x - edge) + edge + DVec3::X * RADIUS * *expected + shift;
        picture = picture.measured(after.iter().map(|x| *x + shift)).reference(before.iter().map(place));
    }
    Ok(CaseOutcome { checks, picture })
}
