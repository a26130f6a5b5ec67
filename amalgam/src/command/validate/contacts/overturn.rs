//! A heavy fluid above a light one: the instability of Rayleigh and Taylor.

use std::f64::consts::PI;

use glam::DVec3;

use super::{set, vectors};
use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/rayleigh-taylor/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "rayleigh-taylor",
    about: "a heavy fluid sinks into a light one: depth of the spike and height of the bubble by He and others",
    quick: false,
    compute: overturn,
};

/// Particles across the slice, which is 1 m wide, and through it.
const ACROSS: usize = 24;
const THROUGH: usize = 4;
/// Height of both fluids at rest, in widths.
const HEIGHT: usize = 4;
/// Amplitude of the interface, in widths.
const AMPLITUDE: f64 = 0.1;
/// Density [kg/m^3] and speed of sound [m/s] of the light and of the heavy fluid.
const FLUIDS: [[f64; 2]; 2] = [[1000.0, 40.0], [3000.0, 15.0]];
/// Particles whose mean height is that of the spike, and of the bubble.
const TIP: usize = 20;

/// Positions of both fluids' particles. A layer is as thick as it is under the weight above, by the
/// equation of state.
fn fill() -> [Vec<DVec3>; 2] {
    let spacing = 1.0 / ACROSS as f64;
    let layers = HEIGHT * ACROSS;
    let mut fluids = [Vec::new(), Vec::new()];
    for i in 0..ACROSS {
        let x = (i as f64 + 0.5) * spacing;
        let interface = 0.5 * HEIGHT as f64 + AMPLITUDE * (2.0 * PI * x).cos();
        let heavy = |layer: usize| (layer as f64 + 0.5) * spacing > interface;
        let thickness = |layer: usize| {
            let density = |layer: usize| FLUIDS[usize::from(heavy(layer))][0];
            let above: f64 = (layer + 1..layers).map(density).sum();
            let pressure = (above + 0.5 * density(layer)) * spacing;
            let [density, sound] = FLUIDS[usize::from(heavy(layer))];
            spacing / (1.0 + 7.0 * pressure / (density * sound * sound)).powf(1.0 / 7.0)
        };
        let mut bottom = 0.0;
        for layer in 0..layers {
            let thick = thickness(layer);
            let z = bottom + 0.5 * thick;
            bottom += thick;
            let row = (0..THROUGH).map(|k| DVec3::new(x, (k as f64 + 0.5) * spacing, z));
            fluids[usize::from(heavy(layer))].extend(row);
        }
    }
    fluids
}

fn overturn() -> Result<CaseOutcome, CaseError> {
    let shapes = |participant: usize, positions: &[DVec3]| {
        let value = format!("[{{ type = \"points\", positions = {} }}]", vectors(positions));
        set(&format!("participants[{participant}].settings.shapes"), value)
    };
    let [light, heavy] = fill();
    let frames = Experiment::start(CASE.name, SCENE, &[shapes(0, &light), shapes(1, &heavy)])?.end()?;
    let heights = |participant: usize| {
        let mut heights: Vec<f64> = frames[participant].positions.iter().map(|x| x.z).collect();
        heights.sort_by(f64::total_cmp);
        heights
    };
    let mean = |tip: &[f64]| tip.iter().sum::<f64>() / (tip.len() * HEIGHT) as f64;
    let (light, heavy) = (heights(0), heights(1));
    let (bubble, spike) = (mean(&light[light.len() - TIP..]), mean(&heavy[..TIP]));
    // A fifth of the way from the interface at rest.
    let check = |name: &str, reference: f64, measured: f64| {
        Check::within(name, reference, measured, 0.2 * (reference - 0.5).abs())
    };
    let checks = vec![
        check("height of the bubble at t* = 5, over that of both fluids", 0.735, bubble),
        check("height of the spike at t* = 5, over that of both fluids", 0.064, spike),
    ];
    let flat = |participant: usize| frames[participant].positions.iter().map(|x| x.with_y(0.0));
    Ok(CaseOutcome { checks, picture: Sketch::default().measured(flat(1)).reference(flat(0)) })
}
