//! Elastic bars that strike each other end on: Saint-Venant's waves [Goldsmith1960].

use glam::DVec3;

use super::set;
use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/striking-bars/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "striking-bars",
    about: "an elastic bar strikes a longer one end on: speeds and duration of the blow by Saint-Venant's waves",
    quick: true,
    compute,
};

/// As in the scene: speed of the first bar [m/s], its length, the gap [m], and sqrt(E / rho) [m/s].
const SPEED: f64 = 0.2;
const LENGTH: f64 = 0.5;
const GAP: f64 = 1e-3;
const SOUND: f64 = 31.622_776_601_683_793;

fn compute() -> Result<CaseOutcome, CaseError> {
    let (mut checks, mut sketch) = (Vec::new(), Sketch::default());
    for (k, (integrator, ratio)) in
        [("velocity-verlet", 1.0), ("velocity-verlet", 2.0), ("hht-alpha", 1.0), ("hht-alpha", 2.0)]
            .into_iter()
            .enumerate()
    {
        let blow = strike(integrator, ratio)?;
        let name = |what: &str| format!("{integrator}, 1 : {ratio}: {what}");
        // The shorter bar gives all of its momentum away: a wave runs through it and back, and then it is at
        // rest.
        let [first, second] = blow.speeds;
        checks.push(Check::within(name("speed of the first / before"), 0.0, first / SPEED, 0.03));
        checks.push(Check::within(name("speed of the second / before"), 1.0 / ratio, second / SPEED, 0.03));
        // When the wave reaches the far end of the first bar, half of the momentum has passed to the other
        // bar; when it is back, all has.
        let exact = 2.0 * LENGTH / SOUND;
        checks.push(Check::relative(name("duration of the blow [s]"), exact, blow.duration, 0.05));
        let shift = DVec3::Z * 1.5 * k as f64;
        let chart = |(t, v): (f64, f64)| DVec3::new(2.0 * t / exact, 0.0, v / SPEED) + shift;
        sketch = sketch.measured(blow.curve.iter().map(|&point| chart(point)));
        let line = (0..=100).map(|n| 0.02 * exact * f64::from(n));
        sketch = sketch.reference(line.map(|t| chart((t, SPEED * (1.0 - t / exact).max(0.0)))));
    }
    Ok(CaseOutcome { checks, picture: sketch })
}

/// Result of a blow.
struct Blow {
    /// Speeds of both bars in the end [m/s].
    speeds: [f64; 2],
    /// Time for which momentum passed between the bars [s]. A quarter and three quarters of it have passed at
    /// two times that are half of the duration apart.
    duration: f64,
    /// Time since the blow [s] and speed of the first bar [m/s].
    curve: Vec<(f64, f64)>,
}

fn strike(integrator: &str, ratio: f64) -> Result<Blow, CaseError> {
    let settings = [
        set("participants[0].settings.integrator", format!("\"{integrator}\"")),
        format!("participants[0].settings.bodies[1].shape.max=[{:?}, 0.005, 0.005]", LENGTH * ratio + GAP),
    ];
    let start = GAP / SPEED;
    let count = (LENGTH / 0.01).round() as usize;
    let mut curve = Vec::new();
    let mean = |v: &[DVec3]| v.iter().map(|v| v.x).sum::<f64>() / v.len() as f64;
    let frames = Experiment::start(CASE.name, SCENE, &settings)?.run(|record, simulation| {
        let frame = simulation.frames()?.swap_remove(0);
        curve.push((record.time - start, mean(&frame.velocities[..count])));
        Ok(())
    })?;
    let (first, second) = frames[0].velocities.split_at(count);
    let below = |part: f64| curve.iter().find(|(_, v)| *v < part * SPEED).map_or(f64::NAN, |(t, _)| *t);
    let duration = 2.0 * (below(0.25) - below(0.75));
    Ok(Blow { speeds: [mean(first), mean(second)], duration, curve })
}
