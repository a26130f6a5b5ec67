//! Beams that bend far: the elastica, with a weight at the tip and under its own weight.

use std::f64::consts::FRAC_PI_2;

use glam::DVec3;

use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check, Reference};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const TIP_SCENE: &str = include_str!("../../../../../validation/cantilever/scene.toml");
const TIP_DATA: &str = include_str!("../../../../../validation/cantilever/elastica_cantilever_tip_load.csv");
const HEAVY_SCENE: &str = include_str!("../../../../../validation/heavy-cantilever/scene.toml");
const HEAVY_DATA: &str =
    include_str!("../../../../../validation/heavy-cantilever/elastica_cantilever_self_weight.csv");

pub(in crate::command::validate) const TIP: Case = Case {
    name: "cantilever",
    about: "tip of a beam under four weights, up to eight tenths of its length: the elastica",
    quick: true,
    compute: tip,
};

pub(in crate::command::validate) const HEAVY: Case = Case {
    name: "heavy-cantilever",
    about: "tip of a beam under its own weight, four densities: the heavy elastica",
    quick: true,
    compute: heavy,
};

/// Young's modulus of the scenes [Pa].
const YOUNG_MODULUS: f64 = 1e6;
const WIDTH: f64 = 0.05;
const DEPTH: f64 = 0.05;
pub(super) const CELLS_ALONG: usize = 40;
const CELLS_ACROSS: usize = 2;
const GRAVITY: f64 = 9.81;
const TOLERANCE: f64 = 0.03;

/// Bending stiffness E I [N m^2] that the springs have by theory; nothing is fitted.
///
/// In a cell of edge h that is bent with curvature c, the springs along its upper and lower edge (each shared
/// by two cells, k/2) are strained by c z at their heights z, and both diagonals (k/2 each) by the mean of
/// that, less what the cell loses in depth, e. The least energy over e, with the upright springs (k), is
/// h^2/2 (k/2 (c z_upper)^2 + k/2 (c z_lower)^2 + k/3 (c z_middle)^2). Over n cells of depth, with k = 3/4 Y,
/// the sum is the stiffness of a beam, Y depth^3/12, times 1 + 5/(4 n^2): the lattice's own, coarse as it is.
pub(super) fn bending_stiffness() -> f64 {
    let cells = CELLS_ACROSS as f64;
    YOUNG_MODULUS * WIDTH * DEPTH.powi(3) / 12.0 * (1.0 + 1.25 / (cells * cells))
}

fn tip() -> Result<CaseOutcome, CaseError> {
    let data = Reference::parse(TIP_DATA);
    let mut outcome = CaseOutcome { checks: Vec::new(), picture: Sketch::default() };
    for load in [1.0, 3.0, 5.0, 10.0] {
        let mass = load * bending_stiffness() / GRAVITY;
        let set = format!("participants.beam.settings.bodies[0].attached_mass[0].mass={mass:?}");
        let axis = bent(TIP.name, TIP_SCENE, set)?;
        let end = axis[CELLS_ALONG];
        let mut check = |what: &str, column: &str, measured: f64| {
            let expected = data.look_up("PL2_over_EI", load, column);
            let quantity = format!("{what} / length, P L^2/(E I) = {load}");
            outcome.checks.push(Check::relative(quantity, expected, measured, TOLERANCE));
        };
        check("deflection of the tip", "w_over_L_tip_deflection", -end.z);
        check("shortening", "u_over_L_shortening", 1.0 - end.x);
        // The moment at s is the load times the distance to the tip.
        let curve = elastica(|_, x| load * (end.x - x));
        outcome.picture = outcome.picture.measured(axis).reference(curve);
    }
    Ok(outcome)
}

fn heavy() -> Result<CaseOutcome, CaseError> {
    let data = Reference::parse(HEAVY_DATA);
    let mut outcome = CaseOutcome { checks: Vec::new(), picture: Sketch::default() };
    for load in [1.0, 4.0, 16.0, 64.0] {
        let density = load * bending_stiffness() / (GRAVITY * WIDTH * DEPTH);
        let set = format!("participants.beam.settings.bodies[0].density={density:?}");
        let axis = bent(HEAVY.name, HEAVY_SCENE, set)?;
        let end = axis[CELLS_ALONG];
        let mut check = |what: &str, column: &str, measured: f64| {
            let expected = data.look_up("Gamma=lambda*g*L3_over_EI", load, column);
            let quantity = format!("{what} / length, w L^3/(E I) = {load}");
            outcome.checks.push(Check::relative(quantity, expected, measured, TOLERANCE));
        };
        check("drop of the tip", "drop_over_L", -end.z);
        check("reach of the tip", "x_tip_over_L", end.x);
        let of = |column: &str| data.look_up("Gamma=lambda*g*L3_over_EI", load, column);
        let tip = DVec3::new(of("x_tip_over_L"), 0.0, -of("drop_over_L"));
        outcome.picture = outcome.picture.measured(axis).reference([tip]);
    }
    Ok(outcome)
}

/// Middle line of the beam at rest [m].
fn bent(name: &str, scene: &str, set: String) -> Result<Vec<DVec3>, CaseError> {
    let frames = Experiment::start(name, scene, &[set])?.end()?;
    Ok(middle_line(&frames[0].positions, DVec3::Z))
}

/// The middle line [m] of a beam of [`CELLS_ACROSS`] cells that is deep along `across`, from its particles.
pub(super) fn middle_line(positions: &[DVec3], across: DVec3) -> Vec<DVec3> {
    let first = (CELLS_ALONG + 1) * CELLS_ACROSS / 2;
    let line = &positions[first..=first + CELLS_ALONG];
    line.iter().map(|x| *x - across * 0.5 * DEPTH).collect()
}

/// The line whose curvature is the moment over the bending stiffness, for the picture.
fn elastica(moment: impl Fn(f64, f64) -> f64) -> Vec<DVec3> {
    let steps = 400;
    let (mut at, mut angle) = (DVec3::ZERO, 0.0f64);
    (0..steps)
        .map(|i| {
            let here = at;
            let ds = 1.0 / f64::from(steps);
            angle = (angle + ds * moment(f64::from(i) * ds, at.x)).min(FRAC_PI_2);
            at += DVec3::new(angle.cos(), 0.0, -angle.sin()) * ds;
            here
        })
        .collect()
}
