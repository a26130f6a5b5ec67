//! Logs that float: a square one turns to its corner, a flat one stays level.

use glam::DVec3;

use super::{METHODS, owned, slice};
use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/floating-log/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "floating-log",
    about: "a square log of half the water's density floats on its corner, a flat one level: metacentre",
    quick: false,
    compute,
};

/// As in the scene: length of the log [m], place of its axis along x [m], spacing [m].
const LENGTH: f64 = 0.06;
const MIDDLE: f64 = 0.24;
const SPACING: f64 = 0.015;
/// Start of the means [s].
const SETTLED: f64 = 3.0;

fn compute() -> Result<CaseOutcome, CaseError> {
    let (mut checks, mut sketch) = (Vec::new(), Sketch::default());
    for (k, (name, keys)) in METHODS.into_iter().take(1).enumerate() {
        for (n, (what, half, start, exact)) in [
            ("square, laid down at 10 degrees", DVec3::new(0.06, 0.0, 0.06), 10.0, 45.0f64),
            ("twice as wide as high, at 20 degrees", DVec3::new(0.09, 0.0, 0.045), 20.0, 0.0),
        ]
        .into_iter()
        .enumerate()
        {
            let mut set = owned(keys);
            let body = "participants.log.settings.bodies[0]";
            let middle = DVec3::new(MIDDLE, 0.0, 0.18);
            let (low, high) = (middle - half, middle + half);
            set.push(format!("{body}.shape.min=[{:?}, 0.0, {:?}]", low.x, low.z));
            set.push(format!("{body}.shape.max=[{:?}, {LENGTH:?}, {:?}]", high.x, high.z));
            set.push(format!("{body}.rotation.degrees={start:?}"));
            let mut experiment = Experiment::start(CASE.name, SCENE, &set)?;
            // From the first particle to the last: from corner to corner of the section.
            let heading = |x: &[DVec3]| {
                let arm = (x[x.len() - 1] - x[0]).with_y(0.0);
                arm.x.atan2(arm.z).to_degrees()
            };
            let level = heading(&experiment.frames()?[0].positions) - start;
            let (mut sum, mut samples, mut next) = (0.0, 0.0, SETTLED);
            let frames = experiment.run(|record, simulation| {
                if record.time >= next {
                    sum += heading(&simulation.frames()?[0].positions) - level;
                    samples += 1.0;
                    next += 0.02;
                }
                Ok(())
            })?;
            let quantity = format!("{name}, {what}: angle at rest [degrees]");
            checks.push(match n {
                0 => Check::known_gap(quantity, (exact, 31.8), sum / samples, 5.0),
                _ => Check::within(quantity, exact, sum / samples, 5.0),
            });
            let shift = DVec3::X * 0.5 * (2 * k + n) as f64;
            let [log, fluid] = [0, 1].map(|n| slice(&frames[n], 0.5 * LENGTH, 2.0 * SPACING, shift));
            let (sin, cos) = exact.to_radians().sin_cos();
            let line = (0..=60).map(|m| 0.15 * (f64::from(m) / 30.0 - 1.0));
            let line = line.map(|s| DVec3::new(MIDDLE + s * cos, 0.0, 0.18 - s * sin) + shift);
            sketch = sketch.measured(fluid).reference(log).reference(line);
        }
    }
    Ok(CaseOutcome { checks, picture: sketch })
}
