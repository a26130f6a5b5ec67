//! A rope that hangs from one end and swings: Bernoulli's frequencies.

use std::f64::consts::PI;

use glam::DVec3;

use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::oscillation::{TimeSeries, period};
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/hanging-rope/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "hanging-rope",
    about: "the three slowest swings of a rope that hangs from one end: Bernoulli's periods",
    quick: false,
    compute,
};

const GRAVITY: f64 = 9.81;
/// Pieces of the rope, which is 1 m long and weighs 0.1 kg, and the stiffness of a piece [N/m].
const PIECES: usize = 100;
const STIFFNESS: f64 = 1e5;
const MASS: f64 = 0.1;
/// Largest speed at the start [m/s]: small against sqrt(g L).
const SPEED: f64 = 0.02;

/// The first zeros of Bessel's function of order zero [AbramowitzStegun1964].
const ZEROS: [f64; 3] = [2.404_825_557_695_773, 5.520_078_110_286_311, 8.653_727_912_911_013];

/// Bessel's function of order zero, from its integral: (1/pi) int cos(x sin t) dt over 0 to pi.
fn bessel(x: f64) -> f64 {
    let parts = 200;
    (0..parts).map(|k| (x * (PI * (f64::from(k) + 0.5) / f64::from(parts)).sin()).cos()).sum::<f64>()
        / f64::from(parts)
}

fn compute() -> Result<CaseOutcome, CaseError> {
    let (mut checks, mut sketch) = (Vec::new(), Sketch::default());
    for (mode, zero) in ZEROS.into_iter().enumerate() {
        let exact = 4.0 * PI / (zero * GRAVITY.sqrt());
        let curve = swing(zero, 6.0 * exact)?;
        let name = format!("swing {}: period [s]", mode + 1);
        checks.push(Check::relative(name, exact, period(&curve, 0.0), 0.01));
        let amplitude = SPEED * exact / (2.0 * PI);
        let chart = |t: f64, x: f64| DVec3::new(t / exact, 0.0, x / amplitude + 2.5 * mode as f64);
        sketch = sketch.measured(curve.iter().step_by(curve.len() / 200).map(|&(t, x)| chart(t, x)));
        let wave = |t: f64| amplitude * (2.0 * PI * t / exact).sin();
        sketch = sketch.reference(curve.iter().map(|&(t, _)| chart(t, wave(t))));
    }
    Ok(CaseOutcome { checks, picture: sketch })
}

/// Place of the free end [m] of a rope that starts in a swing.
fn swing(zero: f64, duration: f64) -> Result<TimeSeries, CaseError> {
    let length = 1.0 / PIECES as f64;
    let node = MASS * length;
    // The end node weighs half, and each piece is stretched by the weight below it.
    let weight = |k: usize| if k == PIECES { 0.5 * node } else { node };
    let (mut height, mut hanging) = (0.0, MASS - 0.5 * node);
    let (mut positions, mut velocities, mut springs) = (vec![DVec3::ZERO], vec![DVec3::ZERO], Vec::new());
    for k in 1..=PIECES {
        height -= length + hanging * GRAVITY / STIFFNESS;
        hanging -= weight(k);
        let above = 1.0 - k as f64 * length;
        positions.push(DVec3::Z * height);
        velocities.push(DVec3::X * SPEED * bessel(zero * above.sqrt()));
        springs.push(format!(
            "{{ a = {}, b = {k}, stiffness = {STIFFNESS:?}, rest_length = {length:?} }}",
            k - 1
        ));
    }
    let list = |all: &[DVec3]| {
        let all: Vec<String> = all.iter().map(|v| format!("[{:?}, {:?}, {:?}]", v.x, v.y, v.z)).collect();
        format!("[{}]", all.join(", "))
    };
    let masses: Vec<String> = (0..=PIECES).map(|k| format!("{:?}", weight(k))).collect();
    let body = "participants[0].settings.bodies[0]";
    let set = [
        format!("{body}.positions={}", list(&positions)),
        format!("{body}.velocities={}", list(&velocities)),
        format!("{body}.mass=[{}]", masses.join(", ")),
        format!("{body}.springs=[{}]", springs.join(", ")),
        format!("time.duration={duration:?}"),
    ];
    let mut curve = vec![(0.0, 0.0)];
    Experiment::start(CASE.name, SCENE, &set)?.run(|record, simulation| {
        curve.push((record.time, simulation.frames()?[0].positions[PIECES].x));
        Ok(())
    })?;
    Ok(curve)
}
