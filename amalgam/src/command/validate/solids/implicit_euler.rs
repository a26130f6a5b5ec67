//! A mass on a spring: implicit Euler's own decay and frequency.

use glam::DVec3;

use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/implicit-euler/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "implicit-euler",
    about: "amplitude and phase of an oscillator after a step: implicit Euler in closed form",
    quick: true,
    compute,
};

/// Values of the scene: mass [kg], stiffness [N/m], damping [N s/m].
const MASS: f64 = 0.3;
const STIFFNESS: f64 = 50.0;
const DAMPING: f64 = 0.05;

/// Implicit Euler of m x'' = -k x - c x' is x_n = Re(A q^n) with (1 + h c/m + h^2 k/m) q^2 - (2 + h c/m) q +
/// 1 = 0. So
/// |q|^2 = 1 / (1 + h c/m + h^2 k/m) and 2 Re q = (2 + h c/m) |q|^2. Both are found from positions alone:
/// d_n = x_n x_(n+2) - x_(n+1)^2 falls by |q|^2 a step, and x_n + |q|^-2 x_(n+2) = 2 Re q |q|^-2 x_(n+1).
fn compute() -> Result<CaseOutcome, CaseError> {
    let mut checks = Vec::new();
    let mut sketch = Sketch::default();
    for dt in [0.002, 0.01, 0.05] {
        let set = [format!("time.dt_max={dt}"), format!("time.duration={}", 60.0 * dt)];
        let mut x = Vec::new();
        let mut times = Vec::new();
        Experiment::start(CASE.name, SCENE, &set)?.run(|record, simulation| {
            x.push(simulation.probes()[0].values[0]);
            times.push(record.time);
            Ok(())
        })?;
        let determinant = |n: usize| x[n] * x[n + 2] - x[n + 1] * x[n + 1];
        let last = x.len() - 3;
        let modulus = (determinant(last) / determinant(0)).powf(0.5 / last as f64);
        // Where the middle one of three is largest, so that the quotient is well conditioned.
        let n = (0..20).max_by(|&a, &b| x[a + 1].abs().total_cmp(&x[b + 1].abs())).unwrap_or(0);
        let cosine = 0.5 * modulus * (x[n] + x[n + 2] / (modulus * modulus)) / x[n + 1];
        let (damping, stiffness) = (dt * DAMPING / MASS, dt * dt * STIFFNESS / MASS);
        let expected = 1.0 / (1.0 + damping + stiffness).sqrt();
        let label = |what: &str| format!("{what}, h omega = {:.3}", stiffness.sqrt());
        checks.push(Check::relative(label("amplitude after a step"), expected, modulus, 1e-8));
        let expected_cosine = (1.0 + 0.5 * damping) * expected;
        checks.push(Check::relative(label("cosine of phase of a step"), expected_cosine, cosine, 1e-8));
        if dt == 0.01 {
            let amplitude = 1.0 / x.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
            let chart = |t: f64, x: f64| DVec3::new(3.0 * t, 0.0, 0.4 * x * amplitude);
            sketch = sketch.measured(times.iter().zip(&x).map(|(&t, &x)| chart(t, x)));
            let theory = (0..x.len()).scan((x[0], x[1]), |(a, b), _| {
                let x = *a;
                (*a, *b) = (*b, ((2.0 + damping) * *b - *a) / (1.0 + damping + stiffness));
                Some(x)
            });
            sketch = sketch.reference(theory.zip(&times).map(|(x, &t)| chart(t, x)));
        }
    }
    Ok(CaseOutcome { checks, picture: sketch })
}
