//! A jet that strikes a plate: the force of its momentum.

use glam::DVec3;

use super::{METHODS, WATER, mean, owned, slice};
use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/jet-on-plate/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "jet-on-plate",
    about: "a steady jet strikes a plate on springs at a right angle: force by the change of momentum",
    quick: false,
    compute,
};

/// As in the scene: speed of the jet [m/s], spacing [m], stiffness of the spring under a particle of the
/// plate [N/m].
const SPEED: f64 = 2.0;
const SPACING: f64 = 0.01;
const STIFFNESS: f64 = 100.0;
/// Start of the means [s]: the water has reached the plate's rim.
const SETTLED: f64 = 0.3;

/// Forces today [N]: SPH, FLIP.
const TODAY: [f64; 2] = [8.86, 8.79];

fn compute() -> Result<CaseOutcome, CaseError> {
    let (mut checks, mut sketch) = (Vec::new(), Sketch::default());
    for (k, (name, keys)) in METHODS.into_iter().enumerate() {
        let (mut force, mut samples, mut next) = (0.0, 0.0, SETTLED);
        let (mut first, mut last) = (None, (0.0, 0));
        let frames = Experiment::start(CASE.name, SCENE, &owned(keys))?.run(|record, simulation| {
            if record.time >= next {
                let frames = simulation.frames()?;
                let plate = &frames[0].positions;
                force -= mean(plate).z * STIFFNESS * plate.len() as f64;
                samples += 1.0;
                next += 0.001;
                // Ids count the particles that were emitted.
                let emitted = frames[1].id.iter().max().map_or(0, |id| id + 1);
                first.get_or_insert((record.time, emitted));
                last = (record.time, emitted);
            }
            Ok(())
        })?;
        let (from, before) = first.unwrap_or_default();
        let flow = (last.1 - before) as f64 * WATER * SPACING.powi(3) / (last.0 - from);
        let name = |what: &str| format!("{name}: {what}");
        let exact = flow * SPEED;
        checks.push(Check::known_gap(
            name("force on the plate [N]"),
            (exact, TODAY[k]),
            force / samples,
            0.05 * exact,
        ));
        let behind =
            frames[1].positions.iter().filter(|x| x.z < -2.0 * SPACING && x.x.hypot(x.y) < 0.08).count();
        checks.push(Check::within(name("particles of water that went through"), 0.0, behind as f64, 0.0));
        let shift = DVec3::X * 0.35 * k as f64;
        let [plate, jet] = [0, 1].map(|n| slice(&frames[n], 0.0, 1.2 * SPACING, shift));
        sketch = sketch.measured(jet).reference(plate);
    }
    Ok(CaseOutcome { checks, picture: sketch })
}
