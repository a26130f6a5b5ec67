//! Balls that touch each other and are struck without loss: cradles, and a break of two by one.

use glam::DVec3;

use super::{set, set_body, vectors};
use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/cradle/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "cradle",
    about: "touching balls pass a blow on, two onto three, a break of two by one: generalised reflections",
    quick: true,
    compute,
};

const RADIUS: f64 = 0.1;

/// State of the balls after their collisions.
struct Struck {
    position: Vec<DVec3>,
    velocity: Vec<DVec3>,
    /// Largest change of the kinetic energy, relative.
    energy: f64,
}

fn strike(position: &[DVec3], velocity: &[DVec3], duration: f64) -> Result<Struck, CaseError> {
    let settings = [
        set_body("positions", vectors(position)),
        set_body("velocities", vectors(velocity)),
        set("time.duration", format!("{duration:?}")),
    ];
    let mut frames = Experiment::start(CASE.name, SCENE, &settings)?.end()?;
    let frame = frames.swap_remove(0);
    let energy = |all: &[DVec3]| all.iter().map(|v| v.length_squared()).sum::<f64>();
    let change = (energy(&frame.velocities) / energy(velocity) - 1.0).abs();
    Ok(Struck { position: frame.positions, velocity: frame.velocities, energy: change })
}

/// Five balls in a row, `gap` apart [m].
fn row(gap: f64, speeds: [f64; 5], duration: f64) -> Result<Struck, CaseError> {
    let position: Vec<DVec3> = (0..5).map(|k| DVec3::X * (2.0 * RADIUS + gap) * f64::from(k)).collect();
    strike(&position, &speeds.map(|speed| DVec3::X * speed), duration)
}

fn compute() -> Result<CaseOutcome, CaseError> {
    let (mut checks, mut energy, mut rows) = (Vec::new(), 0.0f64, Vec::new());
    for (name, gap, before, after) in [
        ("one onto four", 0.0, [1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 1.0]),
        ("two onto three", 0.0, [1.0, 1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, 1.0]),
        ("one from each side", 0.0, [1.0, 0.0, 0.0, 0.0, -1.0], [-1.0, 0.0, 0.0, 0.0, 1.0]),
        ("three onto two", 0.0, [1.0, 1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0, 1.0]),
        ("one onto four, 1 mm apart", 1e-3, [1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 1.0]),
    ] {
        let struck = row(gap, before, 0.1)?;
        let off = struck.velocity.iter().zip(after).map(|(v, after)| v.distance(DVec3::X * after));
        checks.push(Check::within(
            format!("{name}: largest error of a velocity [m/s]"),
            0.0,
            off.fold(0.0, f64::max),
            1e-9,
        ));
        energy = energy.max(struck.energy);
        rows.push((struck, after));
    }
    // One ball strikes two that touch, in the middle. It gives the impulse p to each, along normals n at 30
    // degrees to x. The speeds of approach are reversed if p (1 + 2 cos^2 30) = 2 cos 30, so p = 2 sqrt(3)/5,
    // and the first ball is left with -1/5.
    let positions = [DVec3::X * (-3f64.sqrt() * RADIUS), DVec3::Y * RADIUS, DVec3::NEG_Y * RADIUS];
    let struck = strike(&positions, &[DVec3::X, DVec3::ZERO, DVec3::ZERO], 0.5)?;
    let [first, left, right] = [0, 1, 2].map(|k| struck.velocity[k]);
    let away = DVec3::new(0.6, 0.2 * 3f64.sqrt(), 0.0);
    checks.push(Check::within("break: velocity of the first, along [m/s]", -0.2, first.x, 1e-9));
    checks.push(Check::within("break: velocity of the first, across [m/s]", 0.0, first.y, 1e-9));
    checks.push(Check::within(
        "break: error of the left one's velocity [m/s]",
        0.0,
        left.distance(away),
        1e-9,
    ));
    let mirrored = right * DVec3::new(1.0, -1.0, 1.0);
    checks.push(Check::within("break: left against right [m/s]", 0.0, left.distance(mirrored), 1e-12));
    checks.push(Check::within("largest change of energy / energy", 0.0, energy.max(struck.energy), 1e-9));
    let mut picture = Sketch::default().measured(struck.position.iter().map(|x| DVec3::new(x.x, 0.0, x.y)));
    let expected = [DVec3::new(-0.2, 0.0, 0.0), away, away * DVec3::new(1.0, -1.0, 1.0)];
    let places = positions.iter().zip(expected).map(|(x, v)| *x + 0.5 * v);
    picture = picture.reference(places.map(|x| DVec3::new(x.x, 0.0, x.y)));
    for (k, (struck, after)) in rows.iter().enumerate() {
        let line = |speeds: Vec<f64>| {
            let place = move |(i, v): (usize, f64)| {
                DVec3::new(0.8 + 0.12 * i as f64, 0.0, 0.3 - 0.18 * k as f64 + 0.05 * v)
            };
            speeds.into_iter().enumerate().map(place).collect::<Vec<_>>()
        };
        picture = picture
            .measured(line(struck.velocity.iter().map(|v| v.x).collect()))
            .reference(line(after.to_vec()));
    }
    Ok(CaseOutcome { checks, picture })
}
