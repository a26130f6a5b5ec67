//! A soft bar under its own weight: Young's modulus and Poisson's ratio of a volume of springs.

use glam::DVec3;

use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/hanging-bar/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "hanging-bar",
    about: "length and width of a soft bar under its own weight: linear elasticity",
    quick: true,
    compute,
};

/// Values of the scene: rho g / E [1/m], particles across, layers, edge of a cell [m].
const WEIGHT: f64 = 1000.0 * 9.81 / 1e7;
const ACROSS: usize = 3;
const LAYERS: usize = 21;
const SPACING: f64 = 0.05;
/// A layer two thicknesses below the clamp, a fifth of the length: the clamp, which keeps the end wide, has
/// no effect there.
const CLEAR: usize = 16;

fn compute() -> Result<CaseOutcome, CaseError> {
    let frames = Experiment::start(CASE.name, SCENE, &[])?.run(|_, _| Ok(()))?;
    // Layers from below; in a layer, x is fastest.
    let at = |layer: usize, y: usize, x: usize| frames[0].positions[(layer * ACROSS + y) * ACROSS + x];
    let rest = |layer: usize| (layer as f64 - (LAYERS - 1) as f64) * SPACING;
    let sunk = |layer: usize| rest(layer) - at(layer, 1, 1).z;
    let middle = LAYERS / 2;
    let width = at(middle, 1, ACROSS - 1).x - at(middle, 1, 0).x;
    let thinning = 1.0 - width / (SPACING * (ACROSS - 1) as f64);
    let checks = vec![
        Check::relative(
            "elongation below a fifth of the length [m]",
            0.32 * WEIGHT,
            sunk(0) - sunk(CLEAR),
            0.01,
        ),
        Check::relative("transverse strain half way down", 0.25 * 0.5 * WEIGHT, thinning, 0.02),
    ];
    let chart = |s: f64, u: f64| DVec3::new(s, 0.0, u / WEIGHT);
    let measured = (0..LAYERS).map(|layer| chart(-rest(layer), sunk(layer)));
    let reference = (0..=100).map(|i| f64::from(i) / 100.0).map(|s| chart(s, WEIGHT * (s - 0.5 * s * s)));
    Ok(CaseOutcome { checks, picture: Sketch::default().measured(measured).reference(reference) })
}
