//! Energy released by the area of a crack, against the fracture energy that the scene asks for.

use glam::DVec3;

use crate::command::validate::alone::Alone;
use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/crack-energy/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "crack-energy",
    about: "work to part a body along a plane, by area: the fracture energy G0",
    quick: true,
    compute,
};

/// Spacing of the scene [m].
const SPACING: f64 = 1e-3;
const FRACTURE_ENERGY: f64 = 135.0;

fn compute() -> Result<CaseOutcome, CaseError> {
    let mut checks = Vec::new();
    let mut curve = Vec::new();
    for (what, plane) in [("solid", false), ("plane stress", true)] {
        for horizon in [3.015, 4.015] {
            let (released, work) = part(plane, horizon)?;
            let quantity = format!("energy by area [J/m^2], {what}, horizon {horizon}");
            checks.push(Check::relative(quantity, FRACTURE_ENERGY, released, 0.1));
            if !plane && horizon < 4.0 {
                curve = work;
            }
        }
    }
    let end = curve.last().map_or(1.0, |&(opening, _)| opening);
    let chart = |opening: f64, work: f64| DVec3::new(1.6 * opening / end, 0.0, work / FRACTURE_ENERGY);
    let picture = Sketch::default()
        .measured(curve.iter().step_by(10).map(|&(opening, work)| chart(opening, work)))
        .reference(curve.iter().step_by(10).map(|&(opening, _)| chart(opening, FRACTURE_ENERGY)));
    Ok(CaseOutcome { checks, picture })
}

/// Pulls the upper half from the lower half. Returns the work per area [J/m^2] at the end, and over the
/// opening [m].
///
/// Only the middle of the upper half is counted: the particles whose bonds across the plane are all there, so
/// that the rim has no effect. The halves themselves are not strained, and every bond across the plane
/// breaks. So all work goes into the crack.
fn part(plane: bool, horizon: f64) -> Result<(f64, Vec<(f64, f64)>), CaseError> {
    let body = "participants[0].settings.bodies[0]";
    let mut set = vec![format!("{body}.horizon={horizon}")];
    if plane {
        set.push(format!("{body}.model=\"plane-stress\""));
        set.push(format!("{body}.shape.min=[-0.006, {}, -0.006]", -0.5 * SPACING));
        set.push(format!("{body}.shape.max=[0.006, {}, 0.006]", 0.5 * SPACING));
    }
    let mut block = Alone::start(CASE.name, SCENE, &set)?;
    let middle: Vec<usize> = (0..block.particles().len())
        .filter(|&i| {
            let x = block.particles().position[i];
            x.z > 0.0 && x.x.abs() < SPACING && x.y.abs() < SPACING
        })
        .collect();
    let columns = if plane { 2.0 } else { 4.0 };
    // The first bond breaks after some eighty steps. A bond is checked once per step, so it holds for up to a
    // step too long.
    let speed = 0.1;
    let velocity: Vec<DVec3> = block
        .particles()
        .position
        .iter()
        .map(|x| if x.z > 0.0 { DVec3::Z * speed } else { DVec3::ZERO })
        .collect();
    let pull = |forces: &[DVec3]| -middle.iter().map(|&i| forces[i].z).sum::<f64>();
    let (mut work, mut before) = (0.0, pull(&block.forces()?));
    let mut curve = vec![(0.0, 0.0)];
    while (curve.len() as f64) * block.dt < block.duration {
        block.commit(&velocity)?;
        let after = pull(&block.forces()?);
        work += 0.5 * (before + after) * speed * block.dt;
        before = after;
        curve.push((curve.len() as f64 * block.dt * speed, work / (columns * SPACING * SPACING)));
    }
    if before != 0.0 {
        return Err(CaseError::Failed(format!(
            "the halves still pull with {before} N: they were not parted"
        )));
    }
    Ok((work / (columns * SPACING * SPACING), curve))
}
