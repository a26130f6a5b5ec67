//! A column under a weight: it leans below the critical load, and bends far above it.

use std::f64::consts::{FRAC_PI_2, PI};

use glam::DVec3;

use super::cantilever::{CELLS_ALONG, bending_stiffness, middle_line};
use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::oscillation::elliptic;
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/buckling/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "buckling",
    about: "a column under a weight below and above Euler's critical load: beam-column, elastica",
    quick: true,
    compute,
};

/// As in the scene: gravity, and its part across the column.
const GRAVITY: f64 = 9.81;
const LEAN: f64 = 1e-3;
/// Angles of the tip after buckling [degrees].
const ANGLES: [f64; 3] = [60.0, 80.0, 120.0];

fn compute() -> Result<CaseOutcome, CaseError> {
    let (mut checks, mut sketch) = (Vec::new(), Sketch::default());
    // Below the critical load, the part LEAN of the weight, across the column, bends it by LEAN (tan u/u - 1)
    // of its length, with u = pi/2 sqrt(P/P_c).
    for load in [0.5f64, 0.8, 0.9] {
        let line = column(load)?;
        let u = FRAC_PI_2 * load.sqrt();
        let expected = LEAN * (u.tan() / u - 1.0);
        let name = format!("P/P_critical = {load}: leans by, over the length");
        checks.push(Check::relative(name, expected, line[CELLS_ALONG].x, 0.03 / (1.0 - load)));
        sketch = sketch.measured(line);
    }
    // The elastica [TimoshenkoGere1961] of a clamped column whose tip turns by a: P/P_c = (2 K/pi)^2, x/L = 2
    // k/K, z/L = 2 E/K - 1, k = sin a/2.
    for degrees in ANGLES {
        let k = (0.5 * degrees).to_radians().sin();
        let (first, second) = elliptic(k);
        let (across, along) = (2.0 * k / first, 2.0 * second / first - 1.0);
        let load = (2.0 * first / PI).powi(2);
        let line = column(load)?;
        let tip = line[CELLS_ALONG];
        let name = |what: &str| format!("P/P_critical = {load:.3}: {what} / length");
        checks.push(Check::within(name("tip across"), across, tip.x, 0.03));
        checks.push(Check::within(name("height of the tip"), along, tip.z, 0.03));
        sketch = sketch.measured(line).reference([DVec3::new(across, 0.0, along)]);
    }
    Ok(CaseOutcome { checks, picture: sketch })
}

/// The middle line of the column at rest under this part of the critical load, pi^2 E I/(4 L^2).
fn column(load: f64) -> Result<Vec<DVec3>, CaseError> {
    let mass = load * PI * PI / 4.0 * bending_stiffness() / GRAVITY;
    let set = format!("participants[0].settings.bodies[0].attached_mass[0].mass={mass:?}");
    let frames = Experiment::start(CASE.name, SCENE, &[set])?.end()?;
    Ok(middle_line(&frames[0].positions, DVec3::X))
}
