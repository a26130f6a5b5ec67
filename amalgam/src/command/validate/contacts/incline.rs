//! Coulomb's law on a slope: rest, sliding, and no floating.

use glam::DVec3;

use super::{downhill, set, set_body, vectors};
use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/incline/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "incline",
    about: "a ball that does not turn rests or slides on a slope, and is thrown along a plane: Coulomb's law",
    quick: true,
    compute,
};

/// Radius of the ball and longest step, as in the scene [m, s].
const RADIUS: f64 = 0.1;
const DT: f64 = 4e-4;

/// Degrees, friction, speed along the slope at the start [m/s] and duration [s].
type Slope = (f64, f64, f64, f64);

/// Distance that the ball covers, and its final height above the slope [m].
fn slide(method: &str, (degrees, friction, speed, duration): Slope) -> Result<(f64, f64), CaseError> {
    let settings = [
        set("participants[0].settings.method", format!("\"{method}\"")),
        set("domain.gravity", super::vector(downhill(degrees))),
        set("coupling.contact[0].friction", format!("{friction:?}")),
        set("time.duration", format!("{duration:?}")),
        set_body("velocities", vectors(&[DVec3::X * speed])),
    ];
    let end = Experiment::start(CASE.name, SCENE, &settings)?.end()?[0].positions[0];
    Ok((end.x, end.z - RADIUS))
}

/// Distance [m] that a point covers with the acceleration g (sin - mu cos), as long as it slides, and the
/// change of its speed [m/s].
fn exact((degrees, friction, speed, duration): Slope) -> (f64, f64) {
    let gravity = downhill(degrees);
    let acceleration = gravity.x + friction * gravity.z;
    let sliding = if acceleration < 0.0 { duration.min(-speed / acceleration) } else { duration };
    (speed * sliding + 0.5 * acceleration * sliding * sliding, acceleration.abs() * sliding)
}

fn compute() -> Result<CaseOutcome, CaseError> {
    let critical = 0.5f64.atan().to_degrees();
    let (mut checks, mut heights, mut ways) = (Vec::new(), [0.0f64; 2], Vec::new());
    for method in ["grains", "mass-spring"] {
        let mut run = |slope: Slope| {
            let (way, height) = slide(method, slope)?;
            heights = [heights[0].max(height), heights[1].max(-height)];
            ways.push((slope.0, way, exact(slope).0));
            Ok::<_, CaseError>(way)
        };
        let below = run((critical - 0.05, 0.5, 0.0, 1.0))?;
        let name = format!("{method}: way 0.05 degrees below the critical [m]");
        checks.push(Check::within(name, 0.0, below, 1e-9));
        // The implicit solver answers as the explicit one, so that half of the slopes are enough.
        let slopes = [
            (critical + 0.05, 0.5, 0.0, 1.0),
            (5.0, 0.0, 0.0, 0.5),
            (30.0, 0.0, 0.0, 0.5),
            (60.0, 0.0, 0.0, 0.5),
            (30.0, 0.3, 0.0, 0.5),
            (0.0, 0.0, 1.0, 0.5),
            (0.0, 0.2, 1.0, 1.0),
        ];
        for slope in slopes.into_iter().step_by(if method == "grains" { 1 } else { 2 }) {
            let (degrees, friction, speed, _) = slope;
            let (way, change) = exact(slope);
            let name = format!("{method}: {degrees:.3} degrees, mu {friction}, {speed} m/s: way [m]");
            // Symplectic Euler is half a step ahead: by dt/2 times the change of speed.
            checks.push(Check::within(name, way, run(slope)?, 0.51 * DT * change + 1e-6));
        }
    }
    checks.push(Check::within("largest float in the end [radii]", 0.0, heights[0] / RADIUS, 1e-9));
    // The law is solved to a hundredth of g dt, so that a gap may be wrong by a hundredth of g dt^2.
    let tolerance = 0.01 * super::GRAVITY * DT * DT / RADIUS;
    checks.push(Check::within("deepest sinking in the end [radii]", 0.0, heights[1] / RADIUS, tolerance));
    let chart = |degrees: f64, way: f64| DVec3::new(degrees / 60.0, 0.0, way);
    let picture = Sketch::default()
        .measured(ways.iter().map(|&(degrees, way, _)| chart(degrees, way)))
        .reference(ways.iter().map(|&(degrees, _, exact)| chart(degrees, exact)));
    Ok(CaseOutcome { checks, picture })
}
