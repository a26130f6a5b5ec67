//! The published explicit test of peridynamics: a brittle disc that a rigid sphere strikes, against LAMMPS.

use amalgam_particles::CellGrid;
use glam::DVec3;
use rayon::prelude::*;

use crate::command::validate::alone::Alone;
use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check, Reference};
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/small-disc/scene.toml");
const DAMAGE: &str = include_str!("../../../../../validation/small-disc/damage.csv");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "small-disc",
    about: "mean damage of a brittle disc that a sphere strikes: LAMMPS's own example peri/pmb",
    quick: true,
    compute,
};

/// Spacing of the scene [m].
const SPACING: f64 = 5e-4;
const HORIZON: f64 = 0.0015001;
const MICROMODULUS: f64 = 1.6863e22;
const VOLUME: f64 = 1.25e-10;

/// The sphere: radius [m], stiffness of its force K (R - r)^2 [N/m^5 a particle's volume], first height of
/// its centre [m] and speed downwards [m/s].
const SPHERE_RADIUS: f64 = 1.5e-3;
const SPHERE_STIFFNESS: f64 = 1e17;
const SPHERE_HEIGHT: f64 = 1.55e-3;
const SPHERE_SPEED: f64 = 100.0;

fn compute() -> Result<CaseOutcome, CaseError> {
    let reference = Reference::parse(DAMAGE);
    let mut checks = Vec::new();
    let (mut measured, mut expected) = (Vec::new(), Vec::new());
    let chart = |step: f64, damage: f64| DVec3::new(step / 600.0, 0.0, 2.0 * damage);
    for (step, damage) in history(reference.rows.len())? {
        let published = reference.look_up("step", step, "damage");
        // Some twenty bonds are broken at step 100, too few for a comparison in percent.
        if step >= 200.0 {
            let tolerance = if step <= 400.0 { 0.1 } else { 0.2 };
            checks.push(Check::relative(format!("mean damage at step {step}"), published, damage, tolerance));
        }
        measured.push(chart(step, damage));
        expected.push(chart(step, published));
    }
    Ok(CaseOutcome { checks, picture: Sketch::default().measured(measured).reference(expected) })
}

/// Step and mean damage, every hundred steps.
fn history(length: usize) -> Result<Vec<(f64, f64)>, CaseError> {
    let mut disc = Alone::start(CASE.name, SCENE, &[])?;
    let rest = disc.particles().position.clone();
    let mut history = Vec::new();
    for step in 0..=100 * length {
        if step > 0 && step % 100 == 0 {
            let damage = disc.field("damage")?;
            let sum: f64 = damage.iter().map(|&d| f64::from(d)).sum();
            history.push((step as f64, sum / damage.len() as f64));
        }
        let sphere = DVec3::Y * (SPHERE_HEIGHT - SPHERE_SPEED * disc.dt * step as f64);
        disc.advance(|particles| contact(&rest, &particles.position, sphere))?;
    }
    Ok(history)
}

/// Force of the sphere, and of particles on each other [N]: any two repel below 1.35 spacings and 0.9 of
/// their first distance, with fifteen times the stiffness of a bond [Parks2008].
fn contact(rest: &[DVec3], x: &[DVec3], sphere: DVec3) -> Vec<DVec3> {
    let reach = 1.35 * SPACING;
    let grid = CellGrid::new(x, reach);
    let on = |i: usize| {
        let mut density = DVec3::ZERO;
        grid.for_each_near(x[i], |j| {
            let j = j as usize;
            let d = x[i] - x[j];
            let length = d.length();
            let limit = reach.min(0.9 * rest[i].distance(rest[j]));
            if j != i && length < limit {
                density += d / length * (15.0 * MICROMODULUS * VOLUME * (limit - length) / HORIZON);
            }
        });
        let out = x[i] - sphere;
        let depth = (SPHERE_RADIUS - out.length()).max(0.0);
        (density + out.normalize_or_zero() * (SPHERE_STIFFNESS * depth * depth)) * VOLUME
    };
    (0..x.len()).into_par_iter().map(on).collect()
}
