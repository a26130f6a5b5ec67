//! The Taylor-Green vortex: viscosity.

use std::f64::consts::PI;

use amalgam_solver_fluid::sph::{Sph, section};
use glam::DVec3;

use super::fluid::Fluid;
use crate::command::validate::alone::{faults, parse};
use crate::command::validate::case::CaseError;
use crate::command::validate::case::{Case, CaseOutcome, Check};
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/vortex/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "vortex",
    about: "decay of a vortex between frictionless walls by viscosity: Taylor and Green",
    quick: true,
    compute,
};

/// Settings, and the kinematic viscosity [m^2/s] that they should give.
const SETTINGS: [(&str, &[&str], f64); 5] = [
    ("SPH, nu = 0.05", &["viscosity=50.0"], 0.05),
    ("SPH, nu = 0.2", &["viscosity=200.0"], 0.2),
    ("SPH, nu = 0.1, longer kernel", &["viscosity=100.0", "smoothing_ratio=1.3"], 0.1),
    // 2/15 of the product of epsilon, the speed of sound and the smoothing length.
    ("SPH, nu = 0.1, XSPH", &["xsph=5.0"], 0.1),
    ("SPH, nu = 0.1, Mueller's kernels", &["viscosity=100.0", "kernels=\"mueller\""], 0.1),
];

/// The box is filled a little too densely, so that pressure stays positive. If it were filled more densely,
/// the lattice would resist shear like a solid.
const EDGE: f64 = 0.999;
/// Largest speed at the start [m/s].
const SPEED: f64 = 0.1;
/// Time at which the measurement of the decay begins [s].
const EARLY: f64 = 0.05;

fn compute() -> Result<CaseOutcome, CaseError> {
    let (mut checks, mut sketch) = (Vec::new(), Sketch::default());
    let k = PI / EDGE;
    for (name, keys, nu) in SETTINGS {
        let set: Vec<String> = keys.iter().map(|key| format!("participants.water.settings.{key}")).collect();
        let curve = decay(&set)?;
        let (first, last) = (curve[0], curve[curve.len() - 1]);
        let measured = (first.1 / last.1).ln() / (last.0 - first.0) / (4.0 * k * k);
        checks.push(Check::relative(format!("{name}: kinematic viscosity [m^2/s]"), nu, measured, 0.03));
        let chart = |t: f64, energy: f64| DVec3::new(4.0 * t, 0.0, energy / first.1);
        sketch = sketch.measured(curve.iter().step_by(5).map(|&(t, energy)| chart(t, energy)));
        let exact = |t: f64| first.1 * (-4.0 * nu * k * k * (t - first.0)).exp();
        sketch = sketch.reference(curve.iter().map(|&(t, _)| chart(t, exact(t))));
    }
    Ok(CaseOutcome { checks, picture: sketch })
}

/// Kinetic energy [J] over time [s] of the vortex u = U (sin kx cos kz, 0, -cos kx sin kz) with k = pi / L.
/// In an incompressible fluid it decays as exp(-4 nu k^2 t).
fn decay(set: &[String]) -> Result<Vec<(f64, f64)>, CaseError> {
    let (scene, world) = parse(CASE.name, SCENE, set)?;
    let (mut parameters, mut particles) =
        section::read(&scene.participants[0].section, &world).map_err(faults)?;
    let walls = parameters.walls.as_mut();
    walls.ok_or_else(|| CaseError::Failed("the scene has walls".into()))?.max *= EDGE;
    let k = PI / EDGE;
    for (x, v) in particles.position.iter_mut().zip(&mut particles.velocity) {
        *x *= EDGE;
        *v = SPEED * DVec3::new((k * x.x).sin() * (k * x.z).cos(), 0.0, -(k * x.x).cos() * (k * x.z).sin());
    }
    let solver = Box::new(Sph::new(parameters, particles));
    let mut fluid = Fluid { solver, world, duration: scene.time.duration, dt_max: scene.time.dt_max };
    let mut curve = Vec::new();
    fluid.run(|fluid, time, _| {
        if time > EARLY {
            curve.push((time, fluid.kinetic_energy()));
        }
        Ok(())
    })?;
    Ok(curve)
}
