//! Water behind an upright wall of springs, whose pressure grows with depth.

use glam::DVec3;

use super::{GRAVITY, METHODS, WATER, owned, slice};
use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/water-on-wall/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "water-on-wall",
    about: "water leans on an upright wall of springs: force, and the height at which it acts, by hydrostatics",
    quick: false,
    compute,
};

/// As in the scene: width, depth of the water, spacing, place of the wall [m]; stiffness of the spring under
/// a particle of the wall [N/m].
const WIDTH: f64 = 0.08;
/// Water fills 0.28 m of length up to 0.24 m. It spreads to 0.294 m, where its spheres touch four of the
/// wall's and their centres are 0.016 m before the wall's.
const DEPTH: f64 = 0.24 * 0.28 / 0.294;
const SPACING: f64 = 0.02;
const WALL: f64 = 0.3;
const STIFFNESS: f64 = 2e3;
/// Start of the means [s].
const SETTLED: f64 = 1.0;

fn compute() -> Result<CaseOutcome, CaseError> {
    let (mut checks, mut sketch) = (Vec::new(), Sketch::default());
    for (k, (name, keys)) in METHODS.into_iter().enumerate() {
        let mut set = owned(keys);
        if k == 0 {
            // Viscosity [Pa s] above that of water lets the first shock die away.
            set.push("participants.water.settings.viscosity=50.0".into());
        }
        let (mut force, mut moment, mut depth, mut samples, mut next) = (0.0, 0.0, 0.0, 0.0, SETTLED);
        let frames = Experiment::start(CASE.name, SCENE, &set)?.run(|record, simulation| {
            if record.time >= next {
                let frames = simulation.frames()?;
                for x in &frames[0].positions {
                    force += (x.x - WALL) * STIFFNESS;
                    moment += (x.x - WALL) * STIFFNESS * x.z;
                }
                let water = &frames[1].positions;
                depth += 2.0 * water.iter().map(|x| x.z).sum::<f64>() / water.len() as f64;
                samples += 1.0;
                next += 0.002;
            }
            Ok(())
        })?;
        let name = |what: &str| format!("{name}: {what}");
        // The water fills up to where its spheres touch the wall's: by its own depth.
        let depth = depth / samples;
        let exact = 0.5 * WATER * GRAVITY * depth * depth * WIDTH;
        checks.push(Check::relative(name("force on the wall [N]"), exact, force / samples, 0.05));
        checks.push(Check::within(
            name("height of its line of action / depth"),
            1.0 / 3.0,
            moment / force / depth,
            0.02,
        ));
        checks.push(Check::relative(name("depth, by the mean height [m]"), DEPTH, depth, 0.03));
        let beyond = frames[1].positions.iter().filter(|x| x.x > WALL).count();
        checks.push(Check::within(name("particles of water beyond the wall"), 0.0, beyond as f64, 0.0));
        let shift = DVec3::X * 0.4 * k as f64;
        let [wall, fluid] = [0, 1].map(|n| slice(&frames[n], 0.5 * WIDTH, 1.2 * SPACING, shift));
        let line = (0..=60).map(|n| DVec3::new(0.0, 0.0, DEPTH * f64::from(n) / 60.0));
        let line = line
            .map(|x| DVec3::new(WALL + WATER * GRAVITY * (DEPTH - x.z) * 1e-4 / STIFFNESS, 0.0, x.z) + shift);
        sketch = sketch.measured(fluid).measured(wall).reference(line);
    }
    Ok(CaseOutcome { checks, picture: sketch })
}
