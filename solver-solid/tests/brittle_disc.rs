//! The published explicit case: a small brittle disc struck by a rigid sphere, `examples/peri/in.peri.pmb` of
//! LAMMPS, against the damage that LAMMPS (22 July 2025) found.

mod support;

use amalgam_particles::{CellGrid, DVec3, StepEnd};
use amalgam_solver_kit::{FieldValues, Solver};
use amalgam_solver_solid::SolidSolver;
use support::{Groups, integrate, solid};

const SPACING: f64 = 5e-4;
const HORIZON: f64 = 0.0015001;
const MICROMODULUS: f64 = 1.6863e22;
const VOLUME: f64 = 1.25e-10;
const DT: f64 = 1e-7;

/// Steps and mean damage.
const REFERENCE: [(usize, f64); 10] = [
    (100, 0.00013765414),
    (200, 0.006606064),
    (300, 0.020551626),
    (400, 0.048233041),
    (500, 0.10073512),
    (600, 0.17781225),
    (700, 0.27775871),
    (800, 0.34202347),
    (900, 0.37599005),
    (1000, 0.40737479),
];

fn disc(storage: &str) -> SolidSolver {
    let mut positions = Vec::new();
    for k in -10i32..=10 {
        for j in -10..=0 {
            for i in -10i32..=10 {
                if i * i + k * k <= 100 {
                    let x = [i, j, k].map(|n| f64::from(n) * SPACING);
                    positions.push(format!("[{:?}, {:?}, {:?}]", x[0], x[1], x[2]));
                }
            }
        }
    }
    assert_eq!(positions.len(), 3487);
    let young_modulus = MICROMODULUS * std::f64::consts::PI * HORIZON.powi(4) / 12.0;
    solid(
        &format!(
            "method = \"peridynamics\"\nintegrator = \"velocity-verlet\"\n[[bodies]]\ntype = \"peridynamic\"\n\
             shape = {{ type = \"points\", positions = [{}] }}\nspacing = {SPACING}\ndensity = 2200\n\
             young_modulus = {young_modulus:?}\nhorizon = {:?}\ncritical_stretch = 5e-4\nthreshold_rise = 0.25\n\
             calibration = \"continuum\"\n\
             storage = \"{storage}\"",
            positions.join(", "),
            HORIZON / SPACING
        ),
        DVec3::ZERO,
    )
}

/// Force of the indenter and of short-range contact [N] on each particle: pairs repel below 0.9 of their
/// first distance and 1.35 spacings, with a stiffness 15 times that of a bond [Parks2008].
fn contact(first: &[DVec3], x: &[DVec3], indenter: DVec3) -> Vec<DVec3> {
    let reach = 1.35 * SPACING;
    let grid = CellGrid::new(x, reach);
    (0..x.len())
        .map(|i| {
            let mut density = DVec3::ZERO;
            grid.for_each_near(x[i], |j| {
                let (j, d) = (j as usize, x[i] - x[j as usize]);
                let length = d.length();
                if j != i && length < reach {
                    let limit = reach.min(0.9 * first[i].distance(first[j]));
                    if length < limit {
                        let push = 15.0 * MICROMODULUS * VOLUME * (limit - length) / HORIZON;
                        density += d / length * push;
                    }
                }
            });
            let out = x[i] - indenter;
            let depth = 1.5e-3 - out.length();
            if depth > 0.0 {
                density += out.normalize() * (1e17 * depth * depth);
            }
            density * VOLUME
        })
        .collect()
}

/// Mean damage every hundred steps.
fn history(storage: &str) -> Vec<f64> {
    let mut solid = disc(storage);
    let groups = Groups::each(solid.particles());
    let first = solid.particles().position.clone();
    let mass = solid.particles().mass[0];
    assert!((mass - 2200.0 * VOLUME).abs() < 1e-9 * mass);
    let mut history = Vec::new();
    for step in 0..=1000 {
        let indenter = DVec3::new(0.0, 0.00155 - 100.0 * DT * step as f64, 0.0);
        solid.begin().expect("begin");
        let answer = integrate(&mut solid, DT, &groups);
        let contact = contact(&first, &solid.particles().position, indenter);
        let velocity = &solid.particles().velocity;
        let velocity: Vec<DVec3> = velocity
            .iter()
            .zip(answer.momentum.iter().zip(&contact))
            .map(|(v, (own, contact))| *v + (*own + *contact * DT) / mass)
            .collect();
        if step > 0 && step % 100 == 0 {
            let fields = solid.fields();
            let damage = fields.iter().find(|field| field.name == "damage").expect("damage");
            let FieldValues::Scalar(values) = &damage.values else { panic!("damage is a number") };
            history.push(values.iter().map(|&d| f64::from(d)).sum::<f64>() / values.len() as f64);
        }
        let end = StepEnd {
            dt: DT,
            groups: &groups.map,
            group_velocity: &velocity,
            member_velocity: &velocity,
            group_spin: &[],
        };
        solid.commit(&end, &answer.velocity).expect("commit");
    }
    history
}

#[test]
fn the_disc_breaks_as_published() {
    for storage in ["automatic", "rows"] {
        let history = history(storage);
        for (&(step, expected), damage) in REFERENCE.iter().zip(&history) {
            println!(
                "{storage} {step}: {damage:.6}, LAMMPS {expected:.6}, {:+.1} %",
                100.0 * (damage / expected - 1.0)
            );
        }
        for (&(step, expected), damage) in
            REFERENCE.iter().zip(&history).filter(|((step, _), _)| *step >= 200)
        {
            let tolerance = if step <= 400 { 0.1 } else { 0.2 };
            assert!((damage / expected - 1.0).abs() < tolerance, "step {step}: {damage}, not {expected}");
        }
    }
}
