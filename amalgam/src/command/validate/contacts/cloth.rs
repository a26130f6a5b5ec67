//! A cloth that slides off a smooth ball, beside a point that leaves it at two thirds of its height.

use glam::DVec3;

use super::{GRAVITY, set};
use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/sliding-cloth/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "sliding-cloth",
    about: "a cloth laid half off a smooth ball slides off and falls freely; a point leaves the ball where it must",
    quick: false,
    compute,
};

/// Radius of the ball and of the point [m].
const BALL: f64 = 0.3;
const POINT: f64 = 0.02;
/// Mass of the cloth [kg].
const MASS: f64 = 0.1;

/// A point starts at the top of the ball with this speed. Returns the angle from the top at which it leaves
/// the ball [degrees], and its path until then.
fn leaves(speed: f64) -> Result<(f64, Vec<DVec3>), CaseError> {
    let height = BALL + POINT;
    let body = format!(
        "[{{ type = \"points\", positions = [[0, 0, {height:?}]], velocities = [[{speed:?}, 0, 0]], mass = 1.0, radius = {POINT} }}]"
    );
    let settings = [
        set("participants[0].settings.bodies", body),
        set("time.duration", "1.0"),
        set("time.dt_max", "2e-4"),
    ];
    let mut way: Vec<DVec3> = Vec::new();
    let frames = Experiment::start(CASE.name, SCENE, &settings)?.run(|record, simulation| {
        if record.step % 10 == 0 {
            way.extend(simulation.frames()?[0].positions.first());
        }
        Ok(())
    })?;
    // Where the point leaves the ball, v^2 = g R cos. From then on v_x = v cos is kept, so that v_x^2 = g R
    // cos^3 gives the angle.
    let along = frames[0].velocities[0].x;
    let cos = (along * along / (GRAVITY * height)).cbrt();
    way.retain(|x| x.z > -BALL);
    Ok((cos.acos().to_degrees(), way))
}

fn compute() -> Result<CaseOutcome, CaseError> {
    let mut checks = Vec::new();
    let mut picture = Sketch::default();
    for speed in [0.2, 1.0] {
        let (angle, way) = leaves(speed)?;
        // Energy gives v^2 = v0^2 + 2 g R (1 - cos), and the point leaves at v^2 = g R cos.
        let exact = (2.0 + speed * speed / (GRAVITY * (BALL + POINT))) / 3.0;
        checks.push(Check::relative(
            format!("a point at {speed} m/s leaves at [degrees]"),
            exact.acos().to_degrees(),
            angle,
            1e-3,
        ));
        picture = picture.reference(way);
    }
    let mut speeds = Vec::new();
    let frame = Experiment::start(CASE.name, SCENE, &[])?
        .run(|record, simulation| {
            if record.time > 1.0 {
                speeds.push((record.time, simulation.probes()[0].values[2] / MASS));
            }
            Ok(())
        })?
        .swap_remove(0);
    let highest = frame.positions.iter().map(|x| x.z).fold(f64::NEG_INFINITY, f64::max);
    checks.push(Check::within(
        "cloth: particles above the ball's lower end",
        0.0,
        f64::from(u8::from(highest > -BALL)),
        0.0,
    ));
    let (first, last) = (speeds[0], speeds[speeds.len() - 1]);
    let acceleration = -(last.1 - first.1) / (last.0 - first.0);
    checks.push(Check::relative(
        "cloth: acceleration of its middle, 1.0 to 1.2 s [m/s^2]",
        GRAVITY,
        acceleration,
        1e-6,
    ));
    Ok(CaseOutcome { checks, picture: picture.measured(frame.positions) })
}
