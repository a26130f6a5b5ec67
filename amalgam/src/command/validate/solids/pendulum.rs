//! A pendulum that swings far: its period by the elliptic integral.

use glam::DVec3;

use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::oscillation::{TimeSeries, elliptic, period};
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/pendulum/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "pendulum",
    about: "period and height of a pendulum that swings by 30, 90 and 150 degrees: the elliptic integral",
    quick: true,
    compute,
};

const GRAVITY: f64 = 9.81;

fn compute() -> Result<CaseOutcome, CaseError> {
    let (mut checks, mut sketch) = (Vec::new(), Sketch::default());
    for degrees in [30.0f64, 90.0, 150.0] {
        let start = degrees.to_radians();
        let set = format!(
            "participants[0].settings.bodies[0].positions=[[0.0, 0.0, 0.0], [{:?}, 0.0, {:?}]]",
            -start.sin(),
            -start.cos()
        );
        let (mut curve, mut path) = (TimeSeries::new(), Vec::new());
        Experiment::start(CASE.name, SCENE, &[set])?.run(|record, simulation| {
            let bob = simulation.frames()?[0].positions[1];
            curve.push((record.time, bob.x));
            path.push(bob);
            Ok(())
        })?;
        // T = 4 sqrt(L/g) K(sin(start/2)).
        let exact = 4.0 / GRAVITY.sqrt() * elliptic((0.5 * start).sin()).0;
        checks.push(Check::relative(
            format!("{degrees} degrees: period [s]"),
            exact,
            period(&curve, 0.0),
            1e-3,
        ));
        let last = curve.iter().rev().take_while(|(t, _)| *t > 8.0 - 1.1 * exact);
        let widest = last.map(|(_, x)| *x).fold(0.0, f64::max);
        let farthest = start.sin().max(if degrees > 90.0 { 1.0 } else { 0.0 });
        checks.push(Check::relative(
            format!("{degrees} degrees: widest of the last swing [m]"),
            farthest,
            widest,
            1e-3,
        ));
        let circle =
            (-60..=60).map(|k| start * f64::from(k) / 60.0).map(|a| DVec3::new(a.sin(), 0.0, -a.cos()));
        let shift = DVec3::X * (2.2 * (degrees - 90.0) / 60.0);
        sketch =
            sketch.measured(path.iter().step_by(7).map(|x| *x + shift)).reference(circle.map(|x| x + shift));
    }
    Ok(CaseOutcome { checks, picture: sketch })
}
