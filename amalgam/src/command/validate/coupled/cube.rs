//! A light cube that is released in deep water: its added mass.

use glam::DVec3;

use super::{GRAVITY, mean, slice};
use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/rising-cube/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "rising-cube",
    about: "first acceleration of a light cube that is let go in deep water: its added mass",
    quick: false,
    compute,
};

/// As in the scene: edge of the tank [m], spacing [m].
const TANK: f64 = 0.48;
const SPACING: f64 = 0.02;
/// Densities over the water's.
const DENSITIES: [f64; 2] = [0.3, 0.6];
/// Added mass of a cube that moves along an edge, over the mass of the water it displaces [DNV2011].
const ADDED: f64 = 0.68;
/// Time at which the cube's speed is taken [s]: it has risen by a sixth of its edge at most.
const UNTIL: f64 = 0.06;

/// Kernels of SPH: name, smoothing length in spacings, and acceleration today.
const KERNELS: [(&str, f64, [f64; 2]); 2] =
    [("SPH", 1.0, [0.372, 0.225]), ("SPH, longer kernel", 1.3, [0.294, 0.175])];

fn compute() -> Result<CaseOutcome, CaseError> {
    let (mut checks, mut sketch) = (Vec::new(), Sketch::default());
    for (k, (name, ratio, today)) in KERNELS.into_iter().enumerate() {
        for (n, density) in DENSITIES.into_iter().enumerate() {
            let mut set = vec![format!("participants.water.settings.smoothing_ratio={ratio:?}")];
            set.push(format!("participants.cube.settings.bodies[0].density={:?}", 1000.0 * density));
            let mut curve = Vec::new();
            let frames = Experiment::start(CASE.name, SCENE, &set)?.run(|record, simulation| {
                curve.push((record.time, mean(&simulation.frames()?[0].velocities).z));
                Ok(())
            })?;
            let exact = (1.0 - density) / (density + ADDED);
            // Least-squares slope of a line through the origin.
            let (above, below) = curve.iter().fold((0.0, 0.0), |(a, b), (t, v)| (a + t * v, b + t * t));
            checks.push(Check::known_gap(
                format!("{name}, density {density}: acceleration / g"),
                (exact, today[n]),
                above / below / GRAVITY,
                0.1 * today[n],
            ));
            let shift = DVec3::X * 0.6 * (2 * k + n) as f64;
            let [cube, fluid] =
                [0, 1].map(|n| slice(&frames[n], 0.5 * TANK - 0.5 * SPACING, 1.2 * SPACING, shift));
            let risen = 0.18 + 0.5 * exact * GRAVITY * UNTIL * UNTIL;
            let line = (0..=30).map(|m| DVec3::new(0.18 + 0.004 * f64::from(m), 0.0, risen) + shift);
            sketch = sketch.measured(fluid).reference(cube).reference(line);
        }
    }
    Ok(CaseOutcome { checks, picture: sketch })
}
