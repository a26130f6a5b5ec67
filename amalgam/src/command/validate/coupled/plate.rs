//! An elastic plate that is the floor of a tank, and how far it bends under the water.

use glam::DVec3;

use super::{GRAVITY, METHODS, WATER, owned, slice};
use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/plate-under-water/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "plate-under-water",
    about: "an elastic plate, clamped at both ends, under a column of water: deflection of a beam under an even load",
    quick: false,
    compute,
};

/// As in the scene: length, depth of the plate and of the water, spacing [m]; Young's modulus [Pa], density
/// [kg/m^3].
const LENGTH: f64 = 1.0;
const THICKNESS: f64 = 0.1;
const DEPTH: f64 = 0.3;
const SPACING: f64 = 0.025;
const WIDTH: f64 = 0.1;
const YOUNG_MODULUS: f64 = 2.4e7;
const DENSITY: f64 = 500.0;
/// Poisson's ratio of a volume of springs.
const POISSON: f64 = 0.25;
/// Start of the means [s].
const SETTLED: f64 = 0.8;

/// Deflection of a clamped beam of unit width under an even load at the part s of its length. It has parts of
/// bending and of shear, with the shear coefficient 5/6.
fn deflection(s: f64) -> f64 {
    let load = GRAVITY * (WATER * DEPTH + DENSITY * THICKNESS);
    let bending = YOUNG_MODULUS * THICKNESS.powi(3) / 12.0;
    let shear = 5.0 / 6.0 * THICKNESS * YOUNG_MODULUS / (2.0 * (1.0 + POISSON));
    load * LENGTH.powi(4) * (s * (1.0 - s)).powi(2) / (24.0 * bending)
        + load * LENGTH * LENGTH * s * (1.0 - s) / (2.0 * shear)
}

fn compute() -> Result<CaseOutcome, CaseError> {
    let (mut checks, mut sketch) = (Vec::new(), Sketch::default());
    for (k, (name, keys)) in METHODS.into_iter().enumerate() {
        let mut set = owned(keys);
        if k == 0 {
            // Viscosity [Pa s] above that of water lets the first shock die away.
            set.push("participants.water.settings.viscosity=50.0".into());
        }
        let (mut sum, mut quarter, mut samples) = (0.0, 0.0, 0.0);
        let mut next = SETTLED;
        let mut experiment = Experiment::start(CASE.name, SCENE, &set)?;
        let rest = experiment.frames()?.swap_remove(0).positions;
        let at = |x: f64| {
            let near =
                |p: &DVec3| (p.x - x).abs() < 0.1 * SPACING && (p.z + 0.5 * THICKNESS).abs() < 0.1 * SPACING;
            (0..rest.len()).filter(|&i| near(&rest[i])).collect::<Vec<_>>()
        };
        let [middle, side] = [at(0.5 * LENGTH), at(0.25 * LENGTH)];
        let sunk = |now: &[DVec3], of: &[usize]| {
            of.iter().map(|&i| rest[i].z - now[i].z).sum::<f64>() / of.len() as f64
        };
        let frames = experiment.run(|record, simulation| {
            if record.time >= next {
                let now = &simulation.frames()?[0].positions;
                sum += sunk(now, &middle);
                quarter += sunk(now, &side);
                samples += 1.0;
                next += 0.002;
            }
            Ok(())
        })?;
        for (what, exact, measured, flip) in [
            ("deflection in the middle [m]", deflection(0.5), sum / samples, 0.00472),
            ("deflection at a quarter [m]", deflection(0.25), quarter / samples, 0.00272),
        ] {
            let quantity = format!("{name}: {what}");
            checks.push(match k {
                0 => Check::relative(quantity, exact, measured, 0.05),
                _ => Check::known_gap(quantity, (exact, flip), measured, 0.05 * exact),
            });
        }
        let below = frames[1].positions.iter().filter(|x| x.z < -THICKNESS).count();
        checks.push(Check::within(
            format!("{name}: particles of water below the plate"),
            0.0,
            below as f64,
            0.0,
        ));
        let shift = DVec3::X * 1.2 * k as f64;
        let [plate, fluid] = [0, 1].map(|n| slice(&frames[n], 0.5 * WIDTH, 1.2 * SPACING, shift));
        let top = (0..=100).map(|n| f64::from(n) / 100.0);
        let top = top.map(|s| DVec3::new(s * LENGTH, 0.0, 0.5 * SPACING - deflection(s)) + shift);
        sketch = sketch.measured(fluid).reference(plate).reference(top);
    }
    Ok(CaseOutcome { checks, picture: sketch })
}
