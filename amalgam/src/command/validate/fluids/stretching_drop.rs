//! A round drop in a plane that is stretched into an ellipse: Monaghan's solution.

use amalgam_solver_fluid::{flip, sph};
use amalgam_solver_kit::Solver;
use glam::DVec3;

use super::fluid::Fluid;
use crate::command::validate::alone::{faults, parse};
use crate::command::validate::case::CaseError;
use crate::command::validate::case::{Case, CaseOutcome, Check};
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/stretching-drop/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "stretching-drop",
    about: "a round drop flows into an ellipse without gravity: axes and area by Monaghan's equations",
    quick: true,
    compute,
};

/// As in the scene: radius [m] and half of the thickness [m]; rate of strain at the start [1/s].
const RADIUS: f64 = 0.2;
const RATE: f64 = 5.0;

/// Settings of a fluid.
const SETTINGS: [(&str, &[&str]); 3] = [
    ("SPH", &["sound_speed=10.0"]),
    ("SPH, longer kernel", &["sound_speed=10.0", "smoothing_ratio=1.3"]),
    ("FLIP", &["method=\"flip\""]),
];

/// Known gaps of SPH: settings, time [s], quantity and what it is today.
const GAPS: [(&str, f64, &str, f64); 7] = [
    ("SPH", 0.1, "shorter half axis [m]", 0.1475),
    ("SPH", 0.1, "area / at the start", 1.207),
    ("SPH", 0.2, "shorter half axis [m]", 0.1347),
    ("SPH", 0.2, "area / at the start", 1.574),
    ("SPH, longer kernel", 0.1, "area / at the start", 1.035),
    ("SPH, longer kernel", 0.2, "shorter half axis [m]", 0.1131),
    ("SPH, longer kernel", 0.2, "area / at the start", 1.3),
];

fn compute() -> Result<CaseOutcome, CaseError> {
    let (mut checks, mut sketch) = (Vec::new(), Sketch::default());
    for (k, (name, keys)) in SETTINGS.into_iter().enumerate() {
        let shift = DVec3::X * 0.5 * k as f64;
        for (duration, first) in [(0.1, true), (0.2, false)] {
            let mut set: Vec<String> =
                keys.iter().map(|key| format!("participants.water.settings.{key}")).collect();
            set.push(format!("time.duration={duration:?}"));
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
            for (what, exact, measured) in [
                ("shorter half axis [m]", a, wide),
                ("longer half axis [m]", b, tall),
                ("area / at the start", 1.0, wide * tall / (RADIUS * RADIUS)),
            ] {
                let quantity = format!("{name}, {duration} s: {what}");
                // In SPH, rows of the lattice are pulled apart and particles in a row are pushed together:
                // only the long axis is right.
                let gaps =
                    GAPS.iter().find(|(known, time, of, _)| (*known, *time, *of) == (name, duration, what));
                checks.push(match gaps {
                    Some((.., today)) => Check::known_gap(quantity, (exact, *today), measured, 0.1 * today),
                    None => Check::relative(quantity, exact, measured, 0.03),
                });
            }
            if !first {
                sketch = sketch.measured(drop.particles().position.iter().map(|x| x.with_y(0.0) + shift));
                let around = (0..=200).map(|n| f64::from(n) * std::f64::consts::TAU / 200.0);
                sketch = sketch.reference(around.map(|s| DVec3::new(a * s.cos(), 0.0, b * s.sin()) + shift));
            }
        }
    }
    Ok(CaseOutcome { checks, picture: sketch })
}

/// Half axes [m] of the ellipse after some time [s] [Monaghan1994]. Euler's equations for the velocity (-s x,
/// s z), with a pressure that vanishes at the rim, give a' = -s a, b' = s b and s' = s^2 (a^2 - b^2)/(a^2 +
/// b^2).
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
