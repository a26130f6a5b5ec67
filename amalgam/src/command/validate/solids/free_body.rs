//! Bodies without external forces: rotations cause no force, and momentum is kept.

use glam::DVec3;

use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const ROTATION_SCENE: &str = include_str!("../../../../../validation/rigid-rotation/scene.toml");
const FREE_SCENE: &str = include_str!("../../../../../validation/free-body/scene.toml");
const PAIR_SCENE: &str = include_str!("../../../../../validation/free-body/pair.toml");

pub(in crate::command::validate) const ROTATION: Case = Case {
    name: "rigid-rotation",
    about: "energy and strain in a ring after a rigid rotation: none",
    quick: true,
    compute: rotation,
};

pub(in crate::command::validate) const FREE: Case = Case {
    name: "free-body",
    about: "momentum of a soft block in flight: kept; spin: lost to first order by implicit Euler, kept by HHT-alpha",
    quick: true,
    compute: free,
};

fn rotation() -> Result<CaseOutcome, CaseError> {
    let mut energy = f64::NAN;
    let experiment = Experiment::start(ROTATION.name, ROTATION_SCENE, &[])?;
    let mut before = Vec::new();
    let frames = experiment.run(|record, simulation| {
        if before.is_empty() && record.time > 0.095 {
            before = simulation.frames()?.swap_remove(0).positions;
        }
        energy = simulation.probes()[0].values[2];
        Ok(())
    })?;
    let after = &frames[0].positions;
    let spin = DVec3::new(1.0, 2.0, -0.5);
    // From 0.1 s to the end.
    let turn = glam::DQuat::from_scaled_axis(spin * 2.0);
    let error = before.iter().zip(after).map(|(x, y)| (turn * *x).distance(*y)).fold(0.0, f64::max);
    let volume = frames[0].positions.len() as f64 * 0.05f64.powi(3);
    let checks = vec![
        Check::within("elastic energy / (E volume)", 0.0, energy / (1e6 * volume), 1e-24),
        Check::within("distance from the turned place [m]", 0.0, error, 1e-12),
    ];
    let picture = Sketch::default().measured(after.iter().copied()).reference(before);
    Ok(CaseOutcome { checks, picture })
}

/// In a step of length h, implicit Euler turns the force on a particle by the angle h omega against the
/// particle's motion. So a pair on a spring that spins at omega loses the part (h omega)^2 of its angular
/// momentum per step, if steps are short against the spring's period. The torque is h times the virial of the
/// tension, I omega^2. This gives omega(t) = omega_0 / sqrt(1 + 2 h omega_0^2 t). A block loses more, but to
/// first order, too: compressed springs get no transverse stiffness (`solver-solid/src/materials/springs.rs`).
fn free() -> Result<CaseOutcome, CaseError> {
    let mut checks = Vec::new();
    let mut lost = Vec::new();
    for dt in [2e-4, 1e-4] {
        let rows = flight(FREE_SCENE, dt, &[])?;
        let ((_, momentum, spin), (_, momentum_end, spin_end)) = (rows[0], rows[rows.len() - 1]);
        let drift = (momentum_end - momentum).length() / momentum.length();
        let label = |what: &str| format!("{what}, h = {dt} s");
        checks.push(Check::within(label("momentum lost / momentum"), 0.0, drift, 1e-11));
        let across = spin_end.truncate().length() / spin.length();
        checks.push(Check::within(label("spin about other axes / spin"), 0.0, across, 1e-9));
        lost.push((spin.z - spin_end.z) / dt);
    }
    checks.push(Check::relative("spin lost / h: at 2e-4 over at 1e-4 s", 1.0, lost[0] / lost[1], 0.01));
    let dt = 2e-4;
    let hht = |name: &str| format!("participants.{name}.settings.integrator=\"hht-alpha\"");
    for (scene, name) in [(FREE_SCENE, "block"), (PAIR_SCENE, "pair")] {
        let rows = flight(scene, dt, &[hht(name)])?;
        let lost = 1.0 - rows[rows.len() - 1].2.length() / rows[0].2.length();
        checks.push(Check::within(format!("spin lost / spin, HHT-alpha, {name}"), 0.0, lost, 1e-6));
    }
    let rows = flight(PAIR_SCENE, dt, &[])?;
    let kept = |time: f64| 1.0 / (1.0 + 2.0 * dt * 25.0 * time).sqrt();
    let (first, last) = (rows[0], rows[rows.len() - 1]);
    let expected = 1.0 - kept(last.0) / kept(first.0);
    let lost = 1.0 - last.2.z / first.2.z;
    checks.push(Check::relative("spin lost / spin, pair, h = 0.0002 s", expected, lost, 0.01));
    let point = |time: f64, value: f64| DVec3::new(time, 0.0, 100.0 * (value - 1.0));
    let some = || rows.iter().step_by(50);
    let measured = some().map(|(time, _, spin)| point(*time, spin.z / first.2.z));
    let reference = some().map(|(time, ..)| point(*time, kept(*time) / kept(first.0)));
    let picture = Sketch::default().measured(measured).reference(reference);
    Ok(CaseOutcome { checks, picture })
}

/// Time [s], momentum [kg m/s] and angular momentum [kg m^2/s] after every step, with these values
/// of the scene changed.
fn flight(scene: &str, dt: f64, more: &[String]) -> Result<Vec<(f64, DVec3, DVec3)>, CaseError> {
    let mut rows = Vec::new();
    let set: Vec<String> = more.iter().cloned().chain([format!("time.dt_max={dt:?}")]).collect();
    Experiment::start(FREE.name, scene, &set)?.run(|record, simulation| {
        let vector = |n: usize| DVec3::from_slice(&simulation.probes()[n].values);
        rows.push((record.time, vector(0), vector(1)));
        Ok(())
    })?;
    Ok(rows)
}
