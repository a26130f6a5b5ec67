//! A tank of water at rest: pressure grows with the depth.

use glam::DVec3;

use super::fluid::{Fluid, Method};
use crate::command::validate::case::CaseError;
use crate::command::validate::case::{Case, CaseOutcome, Check};
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/hydrostatic/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "hydrostatic",
    about: "pressure, rest and volume of water in a tank: hydrostatics",
    quick: false,
    compute,
};

/// Viscosity [Pa s] above that of water brings SPH's tank to rest sooner.
const METHODS: [Method; 4] = [
    Method { name: "SPH", keys: &["viscosity=50.0"] },
    Method { name: "SPH, Mueller's state", keys: &["viscosity=50.0", "equation_of_state=\"mueller\""] },
    Method { name: "SPH, Mueller's kernels", keys: &["viscosity=50.0", "kernels=\"mueller\""] },
    Method { name: "FLIP", keys: &["method=\"flip\""] },
];

/// Values of the scene: depth of the water [m], particles in a layer.
const DEPTH: f64 = 0.2;
const IN_LAYER: usize = 64;
/// Bins of two layers: pressure alternates from layer to layer of an undisturbed lattice.
const BINS: usize = 10;
/// Start of averages [s]; by then the first shock has died away.
const SETTLED: f64 = 1.0;
/// Steps from one sample to the next.
const EVERY: u32 = 20;

fn compute() -> Result<CaseOutcome, CaseError> {
    let (mut checks, mut sketch) = (Vec::new(), Sketch::default());
    let scale = 1000.0 * 9.81 * DEPTH;
    for method in METHODS {
        let rest = at_rest(method)?;
        let name = method.name;
        let middle = |bin: usize| (bin as f64 + 0.5) * DEPTH / BINS as f64;
        let expected = |bin: usize| 1000.0 * 9.81 * (DEPTH - middle(bin));
        let worst = (0..BINS).map(|bin| (rest.pressure[bin] - expected(bin)).abs()).fold(0.0, f64::max);
        let bottom = format!("{name}: pressure in the lowest tenth [Pa]");
        checks.push(Check::relative(bottom, expected(0), rest.pressure[0], 0.02));
        checks.push(Check::within(
            format!("{name}: worst of ten heights / rho g H"),
            0.0,
            worst / scale,
            0.03,
        ));
        checks.push(Check::within(format!("{name}: kinetic energy / m g H"), 0.0, rest.energy, 1e-4));
        checks.push(Check::relative(format!("{name}: volume, by the mean height"), 1.0, rest.volume, 0.02));
        let chart = |bin: usize, pressure: f64| DVec3::new(pressure / scale, 0.0, middle(bin) / DEPTH);
        sketch = sketch.measured((0..BINS).map(|bin| chart(bin, rest.pressure[bin])));
    }
    let line = (0..=100).map(|k| f64::from(k) / 100.0).map(|s| DVec3::new(1.0 - s, 0.0, s));
    Ok(CaseOutcome { checks, picture: sketch.reference(line) })
}

/// Means over the time at rest.
struct WaterAtRest {
    /// Pressure in each bin of heights [Pa].
    pressure: [f64; BINS],
    /// Kinetic energy, the largest, over m g H.
    energy: f64,
    /// Mean height over half the depth.
    volume: f64,
}

fn at_rest(method: Method) -> Result<WaterAtRest, CaseError> {
    let mut tank = Fluid::start(CASE.name, SCENE, &method.set())?;
    let (mut rest, mut samples, mut step) =
        (WaterAtRest { pressure: [0.0; BINS], energy: 0.0, volume: 0.0 }, 0.0, 0);
    tank.run(|tank, time, _| {
        step += 1;
        if time < SETTLED {
            return Ok(());
        }
        rest.energy = rest.energy.max(tank.kinetic_energy() / (tank.mass() * 9.81 * DEPTH));
        if step % EVERY == 0 {
            // Ids ascend with the height at which particles start; the order of storage may change.
            let pressures = tank.field("pressure")?;
            for (id, pressure) in tank.particles().id.iter().zip(pressures) {
                rest.pressure[id.0 as usize / (2 * IN_LAYER)] += f64::from(pressure) / (2 * IN_LAYER) as f64;
            }
            rest.volume += tank.height() / (0.5 * DEPTH);
            samples += 1.0;
        }
        Ok(())
    })?;
    rest.pressure = rest.pressure.map(|sum| sum / samples);
    rest.volume /= samples;
    Ok(rest)
}
