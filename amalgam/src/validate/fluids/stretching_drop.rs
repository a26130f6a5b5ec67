//! A round drop in a plane that is stretched into an ellipse: Monaghan's solution.

use amalgam_solver_fluid::{flip, sph};
use amalgam_solver_kit::Solver;
use glam::DVec3;

use super::{Fluid, faults, parse};
use crate::validate::case::CaseError;
use crate::validate::case::{Case, Check, Outcome};
use crate::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../validation/stretching-drop/scene.toml");

pub(in crate::validate) const CASE: Case = Case {
    name: "stretching-drop",
    about: "a round drop flows into an ellipse without gravity: axes and area by Monaghan's equations",
    quick: true,
    compute,
};

/// As in the scene: radius [m] and half of the thickness [m]; rate of strain at the start [1/s].
const RADIUS: f64 = 0.2;
const RATE: f64 = 5.0;

fn compute() -> Result<Outcome, CaseError> {
    let (mut checks, mut sketch) = (Vec::new(), Sketch::default());
    for (k, (name, key)) in [("SPH", "sound_speed=10.0"), ("FLIP", "method=\"flip\"")].into_iter().enumerate()
    {
        let shift = DVec3::X * 0.5 * k as f64;
        for (duration, first) in [(0.1, true), (0.2, false)] {
            let set = [format!("participants.water.settings.{key}"), format!("time.duration={duration:?}")];
            let drop = stretched(&set)?;
            let (a, b) = ellipse(duration);
            let semi = |of: fn(&DVec3) -> f64| {
                // The mean of x^2 over an ellipse is a^2/4.
                let positions = &drop.particles().position;
                let mean = positions.iter().map(of).sum::<f64>() / positions.len() as f64;
                let squares = positions.iter().map(|x| (of(x) - mean).powi(2)).sum::<f64>();
                2.0 * (squares / positions.len() as f64).sqrt()
            };
            let (wide, tall) = (semi(|x| x.x), semi(|x| x.z));
            checks.push(Check::relative(
                format!("{name}, {duration} s: shorter half axis [m]"),
                a,
                wide,
                0.03,
            ));
            checks.push(Check::relative(
                format!("{name}, {duration} s: longer half axis [m]"),
                b,
                tall,
                0.03,
            ));
            checks.push(Check::relative(
                format!("{name}, {duration} s: area / at the start"),
                1.0,
                wide * tall / (RADIUS * RADIUS),
                0.03,
            ));
            if !first {
                sketch = sketch.measured(drop.particles().position.iter().map(|x| x.with_y(0.0) + shift));
                let around = (0..=200).map(|n| f64::from(n) * std::f64::consts::TAU / 200.0);
                sketch = sketch.reference(around.map(|s| DVec3::new(a * s.cos(), 0.0, b * s.sin()) + shift));
            }
        }
    }
    Ok(Outcome { checks, picture: sketch })
}

/// Half axes [m] of the ellipse after some time [s]: the velocity (-s x, s z) with a' = -s a, b' = s b and
/// s' = s^2 (a^2 - b^2)/(a^2 + b^2), from Euler's equations with a pressure that vanishes at the rim [Monaghan1994].
fn ellipse(duration: f64) -> (f64, f64) {
    let steps = 100_000u32;
    let dt = duration / f64::from(steps);
    let (mut a, mut b, mut s) = (RADIUS, RADIUS, RATE);
    for _ in 0..steps {
        let rate = |s: f64, a: f64, b: f64| s * s * (a * a - b * b) / (a * a + b * b);
        let half = s + 0.5 * dt * rate(s, a, b);
        (a, b) = (a * (-half * dt).exp(), b * (half * dt).exp());
        s = half + 0.5 * dt * rate(half, a, b);
    }
    (a, b)
}

/// The drop at the end.
fn stretched(set: &[String]) -> Result<Fluid, CaseError> {
    let (scene, world) = parse(CASE.name, SCENE, set)?;
    let section = &scene.participants[0].section;
    let flow = |position: &[DVec3], velocity: &mut [DVec3]| {
        for (x, v) in position.iter().zip(velocity) {
            *v = RATE * DVec3::new(-x.x, 0.0, x.z);
        }
    };
    let solver: Box<dyn Solver> = if section.contains("flip") {
        let (parameters, mut particles) = flip::section::read(section, &world).map_err(faults)?;
        flow(&particles.position, &mut particles.velocity);
        Box::new(flip::Flip::new(parameters, particles))
    } else {
        let (parameters, mut particles) = sph::section::read(section, &world).map_err(faults)?;
        flow(&particles.position, &mut particles.velocity);
        Box::new(sph::Sph::new(parameters, particles))
    };
    let mut drop = Fluid { solver, world, duration: scene.time.duration, dt_max: scene.time.dt_max };
    drop.run(|_, _, _| Ok(()))?;
    Ok(drop)
}
