//! Water that sloshes in a closed box: none of it leaves.

use glam::DVec3;

use super::fluid::{Fluid, Method};
use crate::command::validate::case::CaseError;
use crate::command::validate::case::{Case, CaseOutcome, Check};
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/closed-box/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "closed-box",
    about: "particles outside of the closed box that they slosh in: none",
    quick: false,
    compute,
};

/// The box is a whole number of FLIP's cells long.
const METHODS: [Method; 2] = [
    Method { name: "SPH", keys: &[] },
    Method { name: "FLIP", keys: &["method=\"flip\"", "cell_size=0.05"] },
];

fn compute() -> Result<CaseOutcome, CaseError> {
    let (mut checks, mut sketch) = (Vec::new(), Sketch::default());
    for (k, method) in METHODS.into_iter().enumerate() {
        let mut water = Fluid::start(CASE.name, SCENE, &method.set())?;
        let (low, high) = water.world.domain;
        let (count, mut steps, mut outside, mut fastest, mut farthest) =
            (water.particles().len(), 0u32, 0usize, 0.0f64, 0.0f64);
        water.run(|water, _, _| {
            steps += 1;
            let particles = water.particles();
            // Written so that NaN is outside.
            let inside = |x: &&DVec3| x.cmpge(low).all() && x.cmple(high).all();
            outside += count - particles.position.iter().filter(inside).count();
            fastest = particles.velocity.iter().map(|v| v.length()).fold(fastest, f64::max);
            farthest = particles.position.iter().map(|x| x.x).fold(farthest, f64::max);
            Ok(())
        })?;
        let name = method.name;
        checks.push(Check::within(
            format!("{name}: particles outside in {steps} steps"),
            0.0,
            outside as f64,
            0.0,
        ));
        checks.push(Check::relative(
            format!("{name}: particles left"),
            count as f64,
            water.particles().len() as f64,
            0.0,
        ));
        // Checks that the water sloshes: it reaches the other end, no faster than twice what free fall from
        // the ceiling allows.
        checks.push(Check::relative(format!("{name}: farthest place reached [m]"), high.x, farthest, 0.05));
        let fall = (2.0 * 9.81 * (high.z - low.z)).sqrt();
        checks.push(Check::within(
            format!("{name}: largest speed / that of a fall of the box's height"),
            1.0,
            fastest / fall,
            1.0,
        ));
        let positions = &water.particles().position;
        let shift = DVec3::X * (1.1 * high.x * k as f64);
        let front = positions.iter().filter(|x| x.y < 0.02).map(|x| *x + shift);
        sketch = sketch.measured(front);
    }
    Ok(CaseOutcome { checks, picture: sketch })
}
