//! Grains that attract each other: an orbit, and a planet of discs at rest.

use glam::DVec3;

use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const KEPLER_SCENE: &str = include_str!("../../../../validation/kepler/scene.toml");
const PLANET_SCENE: &str = include_str!("../../../../scenes/planet-of-discs.toml");

pub(super) const KEPLER: Case = Case {
    name: "kepler",
    about: "two grains on an ellipse: place after a period, nearest distance, energy, angular momentum",
    quick: true,
    compute: kepler,
};

pub(super) const PLANET: Case = Case {
    name: "planet-of-discs",
    about: "500 discs fallen together: the pile rests, does not creep and does not spin",
    quick: false,
    compute: planet,
};

/// With G (m1 + m2) = 4 and semi-major axis 1, the period is pi, the nearest distance 1 - e = 0.4, and the
/// energy -G m1 m2/(2 a) = -0.75.
fn kepler() -> Result<CaseOutcome, CaseError> {
    let (mut orbit, mut energy_error, mut spins) = (Vec::new(), 0.0f64, Vec::new());
    Experiment::start(KEPLER.name, KEPLER_SCENE, &[])?.run(|_, simulation| {
        let values = |probe: usize| &simulation.probes()[probe].values;
        let [light, heavy] = [0, 1].map(|probe| DVec3::from_slice(values(probe)));
        orbit.push((light - 1.2 * DVec3::X) - (heavy + 0.4 * DVec3::X));
        energy_error = energy_error.max((values(2)[4] / -0.75 - 1.0).abs());
        spins.push(values(3)[2]);
        Ok(())
    })?;
    let nearest = orbit.iter().map(|x| x.length()).fold(f64::INFINITY, f64::min);
    let miss = orbit[orbit.len() - 1].distance(-1.6 * DVec3::X);
    let drift = spins.iter().map(|spin| (spin / spins[0] - 1.0).abs()).fold(0.0, f64::max);
    let checks = vec![
        // Symplectic Euler is of first order; a step is a 20,000th of a period.
        Check::within("distance from the start after a period [m]", 0.0, miss, 2e-3),
        Check::relative("nearest distance [m]", 0.4, nearest, 1e-3),
        Check::within("energy error / energy, at most", 0.0, energy_error, 2e-3),
        Check::within("change of angular momentum / itself", 0.0, drift, 1e-12),
    ];
    let upright = |x: DVec3| DVec3::new(x.x, 0.0, x.y);
    // The focus is at 0, the far end at -1.6.
    let ellipse = (0..360).map(|degree| {
        let angle = f64::from(degree).to_radians();
        upright(DVec3::new(angle.cos() - 0.6, 0.8 * angle.sin(), 0.0))
    });
    let picture =
        Sketch::default().measured(orbit.iter().step_by(250).map(|x| upright(*x))).reference(ellipse);
    Ok(CaseOutcome { checks, picture })
}

/// The pile is at rest after 3 s of the fall; from 10 s to the end, nothing may move.
fn planet() -> Result<CaseOutcome, CaseError> {
    let (mut before, mut dissipated, mut kinetic, mut spin) = (Vec::new(), 0.0, f64::NAN, [f64::NAN, 0.0]);
    let (mut overlaps, mut unresolved) = ([f64::NAN; 2], 0.0f64);
    let experiment = Experiment::start(PLANET.name, PLANET_SCENE, &[])?;
    let frames = experiment.run(|record, simulation| {
        let value = |probe: usize, column: usize| simulation.probes()[probe].values[column];
        (kinetic, dissipated) = (value(0, 0), value(0, 3));
        spin = [value(1, 2), f64::max(spin[1], value(1, 2).abs())];
        unresolved = unresolved.max(value(5, 0) + value(5, 1));
        overlaps[1] = value(3, 0);
        if before.is_empty() && record.time >= 10.0 {
            overlaps[0] = value(3, 0);
            before = simulation.frames()?.swap_remove(0).positions;
        }
        Ok(())
    })?;
    let after = &frames[0].positions;
    let creep = before.iter().zip(after).map(|(x, y)| x.distance(*y)).fold(0.0, f64::max);
    let checks = vec![
        Check::within("kinetic energy / dissipated energy", 0.0, kinetic / dissipated, 1e-20),
        Check::within("spin / largest spin on the way", 0.0, spin[0].abs() / spin[1], 1e-10),
        Check::within("largest way from 10 s to 30 s [m]", 0.0, creep, 1e-9),
        Check::within("growth of deepest overlap, 10 to 30 s [m]", 0.0, overlaps[1] - overlaps[0], 1e-9),
        Check::within("unresolved pairs in any step", 0.0, unresolved, 0.0),
    ];
    let upright = |x: &DVec3| DVec3::new(x.x, 0.0, x.y);
    let picture = Sketch::default().measured(after.iter().map(upright)).reference(before.iter().map(upright));
    Ok(CaseOutcome { checks, picture })
}
