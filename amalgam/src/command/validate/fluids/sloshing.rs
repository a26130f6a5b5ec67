//! Water that sways in a tank: the dispersion relation of gravity waves [Lamb1932].

use std::f64::consts::PI;

use glam::DVec3;

use super::fluid::{Fluid, Method};
use crate::command::validate::case::CaseError;
use crate::command::validate::case::{Case, CaseOutcome, Check};
use crate::command::validate::oscillation::{TimeSeries, period};
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/sloshing/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "sloshing",
    about: "period of water that sways in a tank, two depths: the dispersion relation of gravity waves",
    quick: false,
    compute,
};

/// A fluid, the height of its halves above or below the mean at the start [layers], and the known wrong
/// periods [s]. SPH at rest is a lattice, which resists small motions like a solid. A longer kernel makes it
/// do so less.
const SETTINGS: [(Method, f64, Option<[f64; 2]>); 4] = [
    (Method { name: "SPH, longer kernel, 1 layer", keys: &["smoothing_ratio=1.3"] }, 1.0, None),
    (Method { name: "FLIP, 3 layers", keys: &["method=\"flip\""] }, 3.0, None),
    (Method { name: "SPH, 3 layers", keys: &[] }, 3.0, Some([1.16, 1.043])),
    (Method { name: "SPH, 1 layer", keys: &[] }, 1.0, Some([1.05, 1.02])),
];

/// As in the scene: length of the tank and spacing [m].
const LENGTH: f64 = 1.0;
const SPACING: f64 = 0.025;

fn compute() -> Result<CaseOutcome, CaseError> {
    let (mut checks, mut sketch) = (Vec::new(), Sketch::default());
    for (method, layers, today) in SETTINGS {
        for (k, depth) in [0.4, 0.8].into_iter().enumerate() {
            let wave_number = PI / LENGTH;
            let exact = 2.0 * PI / (9.81 * wave_number * (wave_number * depth).tanh()).sqrt();
            let curve = sway(method, layers * SPACING, depth, 2.3 * exact)?;
            let name = format!("{}, {depth} m deep: period [s]", method.name);
            let measured = period(&curve, 0.5 * LENGTH);
            checks.push(match today {
                Some(today) => Check::known_gap(name, (exact, today[k]), measured, 0.05 * exact),
                None => Check::relative(name, exact, measured, 0.05),
            });
            let chart =
                |t: f64, x: f64| DVec3::new(t / exact, 0.0, 10.0 * (x - 0.5 * LENGTH) * depth + k as f64);
            sketch = sketch.measured(curve.iter().step_by(10).map(|&(t, x)| chart(t, x)));
            let start = curve[0].1 - 0.5 * LENGTH;
            let wave = |t: f64| 0.5 * LENGTH + start * (2.0 * PI * t / exact).cos();
            sketch = sketch
                .reference((0..=300).map(|n| exact * 2.0 * f64::from(n) / 300.0).map(|t| chart(t, wave(t))));
        }
    }
    Ok(CaseOutcome { checks, picture: sketch })
}

/// Position of the centre of mass along the tank [m] over time [s]. Half of the water starts higher than the
/// mean, half lower. Other waves move the centre by a 27th as much as the slowest one.
fn sway(method: Method, step: f64, depth: f64, duration: f64) -> Result<TimeSeries, CaseError> {
    let mut set = method.set();
    let width = 6.0 * SPACING;
    for (shape, [from, to], height) in
        [(0, [0.0, 0.5 * LENGTH], depth + step), (1, [0.5 * LENGTH, LENGTH], depth - step)]
    {
        let key = format!("participants.water.settings.shapes[{shape}]");
        set.push(format!("{key}.min=[{from:?}, 0.0, 0.0]"));
        set.push(format!("{key}.max=[{to:?}, {width:?}, {height:?}]"));
    }
    set.push(format!("time.duration={duration:?}"));
    let mut tank = Fluid::start(CASE.name, SCENE, &set)?;
    let mut curve = TimeSeries::new();
    tank.run(|tank, time, _| {
        let positions = &tank.particles().position;
        curve.push((time, positions.iter().map(|x| x.x).sum::<f64>() / positions.len() as f64));
        Ok(())
    })?;
    Ok(curve)
}
