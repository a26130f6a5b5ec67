//! A ball that rolls: it keeps 5/7 of its speed or of its acceleration.

use glam::DVec3;

use super::{GRAVITY, downhill, set, set_body, vector, vectors};
use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/rolling-ball/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "rolling-ball",
    about: "a thrown ball slides until it rolls at 5/7 of its speed; down a slope it rolls or slides: closed form",
    quick: true,
    compute,
};

const DT: f64 = 1e-3;

/// Distance and speed in the end [m, m/s].
fn roll(degrees: f64, friction: f64, speed: f64, duration: f64) -> Result<(f64, f64), CaseError> {
    let settings = [
        set("domain.gravity", vector(downhill(degrees))),
        set("coupling.contact[0].friction", format!("{friction:?}")),
        set("time.duration", format!("{duration:?}")),
        set_body("velocities", vectors(&[DVec3::X * speed])),
    ];
    let frames = Experiment::start(CASE.name, SCENE, &settings)?.end()?;
    Ok((frames[0].positions[0].x, frames[0].velocities[0].x))
}

fn compute() -> Result<CaseOutcome, CaseError> {
    let (mut checks, mut measured, mut reference) = (Vec::new(), Vec::new(), Vec::new());
    // Friction mu m g slows the ball and gives it the angular acceleration 5 mu g/(2 r). So v = v0 - mu g t
    // equals r omega after 2 v0/(7 mu g).
    for friction in [0.1, 0.5] {
        let (way, speed) = roll(0.0, friction, 1.0, 1.0)?;
        let slides = 2.0 / (7.0 * friction * GRAVITY);
        let exact = slides - 0.5 * friction * GRAVITY * slides * slides + 5.0 / 7.0 * (1.0 - slides);
        // The law is solved to a hundredth of g dt: 1e-4 m/s. The next step corrects the error of a step.
        checks.push(Check::within(
            format!("thrown at 1 m/s, mu {friction}: speed [m/s]"),
            5.0 / 7.0,
            speed,
            1e-6,
        ));
        // Symplectic Euler is half a step behind for a ball that slows down: by at most dt/2 times its whole
        // change of speed.
        let tolerance = 0.5 * DT * 2.0 / 7.0;
        checks.push(Check::within(
            format!("thrown at 1 m/s, mu {friction}: way [m]"),
            exact,
            way,
            1.1 * tolerance,
        ));
    }
    // Rolling takes the friction 2/7 m g sin, and the acceleration is 5/7 g sin. At 30 degrees this needs mu
    // = 2/7 tan 30 = 0.165.
    let (degrees, duration) = (30.0, 0.5);
    for friction in [0.0, 0.1, 0.16, 0.17, 0.9] {
        let (_, speed) = roll(degrees, friction, 0.0, duration)?;
        let gravity = downhill(degrees);
        let acceleration = f64::max(gravity.x + friction * gravity.z, 5.0 / 7.0 * gravity.x);
        let name = format!("30 degrees, mu {friction}: acceleration [m/s^2]");
        checks.push(Check::relative(name, acceleration, speed / duration, 1e-6));
        measured.push(DVec3::new(4.0 * friction, 0.0, speed / duration / GRAVITY));
    }
    for k in 0..=90 {
        let friction = 0.01 * f64::from(k);
        let gravity = downhill(degrees);
        let acceleration = f64::max(gravity.x + friction * gravity.z, 5.0 / 7.0 * gravity.x);
        reference.push(DVec3::new(4.0 * friction, 0.0, acceleration / GRAVITY));
    }
    Ok(CaseOutcome { checks, picture: Sketch::default().measured(measured).reference(reference) })
}
