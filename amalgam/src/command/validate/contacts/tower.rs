//! Towers of balls that stand.

use glam::DVec3;

use super::{set, set_body, vectors};
use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/tower/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "tower",
    about: "a tower of 20 balls with 1000 times the mass on top, and one of ten for a minute: both stand",
    quick: true,
    compute,
};

const RADIUS: f64 = 0.1;

/// State of a tower at the end.
struct Stood {
    before: Vec<DVec3>,
    after: Vec<DVec3>,
    /// Iterations of the law per step.
    iterations: f64,
    unconverged: u32,
}

impl Stood {
    fn of(count: usize, heavy: f64, duration: f64, dt: f64) -> Result<Self, CaseError> {
        let before: Vec<DVec3> = (0..count).map(|k| DVec3::Z * RADIUS * (1 + 2 * k) as f64).collect();
        let mass: Vec<f64> = (0..count).map(|k| if k + 1 == count { heavy } else { 1.0 }).collect();
        let settings = [
            set_body("positions", vectors(&before)),
            set_body("mass", format!("{mass:?}")),
            set("time.duration", format!("{duration:?}")),
            set("time.dt_max", format!("{dt:?}")),
        ];
        let (mut iterations, mut steps, mut unconverged) = (0, 0, 0);
        let frames = Experiment::start(CASE.name, SCENE, &settings)?.run(|record, _| {
            iterations += record.iterations;
            steps += 1;
            unconverged += u32::from(record.unconverged);
            Ok(())
        })?;
        let after = frames[0].positions.clone();
        Ok(Self { before, after, iterations: iterations as f64 / f64::from(steps), unconverged })
    }

    /// Largest way of a ball, over the radius.
    fn moved(&self) -> f64 {
        self.before.iter().zip(&self.after).map(|(x, y)| x.distance(*y)).fold(0.0, f64::max) / RADIUS
    }
}

fn compute() -> Result<CaseOutcome, CaseError> {
    let heavy = Stood::of(20, 1000.0, 1.0, 1e-3)?;
    let long = Stood::of(10, 1.0, 60.0, 0.01)?;
    let checks = vec![
        Check::within(
            "20 balls, 1000 times the mass on top, 1000 steps: way [radii]",
            0.0,
            heavy.moved(),
            1e-3,
        ),
        Check::within("the same: iterations per step, at most 20", 0.0, heavy.iterations, 20.0),
        Check::within("the same: steps that did not converge", 0.0, f64::from(heavy.unconverged), 0.0),
        Check::within("ten balls, 60 s: way [radii]", 0.0, long.moved(), 1e-3),
        Check::within("the same: steps that did not converge", 0.0, f64::from(long.unconverged), 0.0),
    ];
    let shift = DVec3::X;
    let picture = Sketch::default()
        .measured(heavy.after.iter().copied().chain(long.after.iter().map(|x| *x + shift)))
        .reference(heavy.before.iter().copied().chain(long.before.iter().map(|x| *x + shift)));
    Ok(CaseOutcome { checks, picture })
}
