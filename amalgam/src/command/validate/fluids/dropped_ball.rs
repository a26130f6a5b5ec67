//! A ball of water that falls into an empty tank: its momentum in flight and its volume at rest.

use glam::DVec3;

use super::fluid::{Fluid, Method};
use crate::command::validate::case::CaseError;
use crate::command::validate::case::{Case, CaseOutcome, Check};
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/dropped-ball/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "dropped-ball",
    about: "a ball of water falls into a tank: momentum and shape in flight, volume at rest",
    quick: false,
    compute,
};

/// With more jitter some of FLIP's particles come within a cell of the walls, which take a little of their
/// momentum.
const METHODS: [Method; 2] = [
    Method { name: "SPH", keys: &["viscosity=5.0"] },
    Method { name: "FLIP", keys: &["method=\"flip\"", "jitter=0.25"] },
];

/// Values of the scene: radius of the ball and the square tank's edge [m], spacing [m], velocity at the start
/// [m/s].
const RADIUS: f64 = 0.08;
const EDGE: f64 = 0.2;
const SPACING: f64 = 0.01;
const VELOCITY: DVec3 = DVec3::new(0.02, 0.0, -0.5);
/// Time until which the ball is in flight [s].
const FLIGHT: f64 = 0.1;
/// Last part of the run in which the mean height is taken, since the water sloshes [1].
const LAST: f64 = 0.4;

fn compute() -> Result<CaseOutcome, CaseError> {
    let (mut checks, mut sketch) = (Vec::new(), Sketch::default());
    let depth = 4.0 / 3.0 * std::f64::consts::PI * RADIUS.powi(3) / (EDGE * EDGE);
    for (k, method) in METHODS.into_iter().enumerate() {
        let mut ball = Fluid::start(CASE.name, SCENE, &method.set())?;
        let (mass, gravity) = (ball.mass(), ball.world.gravity);
        let volume = mass / 1000.0;
        let extent = |ball: &Fluid| {
            let positions = &ball.particles().position;
            let middle = positions.iter().sum::<DVec3>() / positions.len() as f64;
            positions.iter().map(|x| x.distance(middle)).fold(0.0, f64::max)
        };
        let (start, mut lost, mut radius) = (extent(&ball), 0.0f64, 0.0);
        let (mut height, mut samples, mut hit) = (0.0, 0.0, 0.0f64);
        let duration = ball.duration;
        sketch = sketch.measured(section(&ball, 0.0));
        ball.run(|ball, time, _| {
            if time < FLIGHT {
                let expected = mass * (VELOCITY + gravity * time);
                lost = lost.max((ball.momentum() - expected).length() / expected.length());
                radius = extent(ball);
            }
            hit = hit.max(ball.momentum().z / mass);
            if time > (1.0 - LAST) * duration {
                height += ball.height();
                samples += 1.0;
            }
            Ok(())
        })?;
        let name = method.name;
        checks.push(Check::within(format!("{name}: momentum lost in flight / momentum"), 0.0, lost, 1e-6));
        checks.push(Check::relative(format!("{name}: radius in flight [m]"), start, radius, 0.01));
        let at_rest = 2.0 * height / samples * EDGE * EDGE;
        let quantity = format!("{name}: volume at rest, by the mean height [m^3]");
        checks.push(Check::relative(quantity, volume, at_rest, 0.03));
        if hit <= 0.0 {
            return Err(CaseError::Failed("the ball does not splash".into()));
        }
        let shift = 1.5 * EDGE * (k + 1) as f64;
        let surface = (0..=100).map(|n| shift + f64::from(n) / 100.0 * EDGE);
        let surface = surface.map(|x| DVec3::new(x, 0.0, depth - 0.5 * SPACING));
        sketch = sketch.measured(section(&ball, shift)).reference(surface);
    }
    let around = (0..=200).map(|k| f64::from(k) * std::f64::consts::TAU / 200.0);
    let circle = around.map(|a| DVec3::new(0.5 * EDGE + RADIUS * a.cos(), 0.0, 0.25 + RADIUS * a.sin()));
    Ok(CaseOutcome { checks, picture: sketch.reference(circle) })
}

/// The particles about the middle, in a plane, moved to the right by `shift` [m].
fn section(ball: &Fluid, shift: f64) -> Vec<DVec3> {
    let positions = ball.particles().position.iter();
    let about = positions.filter(|x| (x.y - 0.5 * EDGE).abs() < 0.6 * SPACING);
    about.map(|x| DVec3::new(x.x + shift, 0.0, x.z)).collect()
}
