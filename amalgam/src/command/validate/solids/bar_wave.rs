//! Phase speed of waves in a bar, against the dispersion relation of bond-based peridynamics.

use std::f64::consts::PI;

use glam::DVec3;

use crate::command::validate::alone::Alone;
use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check, Reference};
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/bar-wave/scene.toml");
const DISPERSION: &str = include_str!("../../../../../validation/bar-wave/dispersion.csv");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "bar-wave",
    about: "phase speed of waves in a bar: the dispersion relation",
    quick: true,
    compute,
};

/// Values of the scene: spacing [m] and sqrt(E / rho) [m/s].
const SPACING: f64 = 0.01;
const SPEED: f64 = 31.622_776_601_683_793;

/// Quarter periods that are timed.
const QUARTERS: usize = 9;

fn compute() -> Result<CaseOutcome, CaseError> {
    let reference = Reference::parse(DISPERSION);
    let mut checks = Vec::new();
    let (mut measured, mut expected) = (Vec::new(), Vec::new());
    for row in &reference.rows {
        let &[ratio, wave_number, discrete, _] = row.as_slice() else {
            return Err(CaseError::Failed("dispersion.csv has other columns".into()));
        };
        let speed = phase_speed(ratio, wave_number, discrete)?;
        let quantity = format!("speed / sqrt(E/rho), m = {ratio}, k delta/pi = {wave_number}");
        checks.push(Check::relative(quantity, discrete, speed, 0.02));
        measured.push(DVec3::new(wave_number, 0.0, speed));
        expected.push(DVec3::new(wave_number, 0.0, discrete));
    }
    Ok(CaseOutcome { checks, picture: Sketch::default().measured(measured).reference(expected) })
}

/// Phase speed, over sqrt(E / rho), of waves of `wave_number` pi / delta in a bar with `ratio` spacings to
/// the horizon.
///
/// The bar starts with the velocities of a standing wave. Its middle then moves as sin(omega t) until waves
/// from the ends arrive, which travel at most at sqrt(E / rho). With `expected`, the phase speed by theory,
/// the bar is made long enough for the quarter periods that are timed.
fn phase_speed(ratio: f64, wave_number: f64, expected: f64) -> Result<f64, CaseError> {
    let k = wave_number * PI / (ratio * SPACING);
    let time = (QUARTERS + 1) as f64 * PI / (2.0 * k * SPEED * expected);
    let half = SPEED * time + 4.0 * ratio * SPACING;
    let cells = (half / SPACING).ceil() + 0.5;
    let body = "participants[0].settings.bodies[0]";
    let set = [
        format!("{body}.horizon={ratio}"),
        format!("{body}.shape.min=[{}, -0.005, -0.005]", -cells * SPACING),
        format!("{body}.shape.max=[{}, 0.005, 0.005]", cells * SPACING),
    ];
    let mut bar = Alone::start(CASE.name, SCENE, &set)?;
    // Short enough to make the error of the integrator, (omega dt)^2 / 24, negligible.
    bar.dt = bar.dt.min(time / 500.0);
    let rest = bar.particles().position.clone();
    let middle = (0..rest.len()).min_by(|&a, &b| rest[a].x.abs().total_cmp(&rest[b].x.abs())).unwrap_or(0);
    let amplitude = 1e-3 * SPACING * k * SPEED;
    let velocity: Vec<DVec3> = rest.iter().map(|x| DVec3::X * (amplitude * (k * x.x).cos())).collect();
    bar.forces()?;
    bar.commit(&velocity)?;
    // Zeros of the displacement come every half period; the first is the start.
    let displacement = |bar: &Alone| bar.particles().position[middle].x - rest[middle].x;
    let (mut last, mut zeros) = (displacement(&bar), Vec::new());
    let mut step = 1u32;
    while 2 * zeros.len() < QUARTERS - 1 {
        bar.advance(|particles| vec![DVec3::ZERO; particles.len()])?;
        let now = displacement(&bar);
        if (last < 0.0) != (now < 0.0) {
            zeros.push((f64::from(step) + last / (last - now)) * bar.dt);
        }
        (last, step) = (now, step + 1);
        if f64::from(step) * bar.dt > time {
            return Err(CaseError::Failed(format!("only {} zeros of the displacement in time", zeros.len())));
        }
    }
    let half_period = (zeros[zeros.len() - 1] - zeros[0]) / (zeros.len() - 1) as f64;
    Ok(PI / half_period / (k * SPEED))
}
