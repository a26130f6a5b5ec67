//! Water against smooth obstacles and rigid bodies: a bowl, and a raft.

use amalgam_coordinator::ParticipantFrame;
use glam::DVec3;

use super::set;
use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const BOWL_SCENE: &str = include_str!("../../../../../validation/bowl/scene.toml");
const RAFT_SCENE: &str = include_str!("../../../../../validation/raft/scene.toml");

pub(in crate::command::validate) const BOWL: Case = Case {
    name: "bowl",
    about: "water in a round bowl after 2.5 s: its surface is flat, at the height of its volume, and nothing clings",
    quick: false,
    compute: bowl,
};

pub(in crate::command::validate) const RAFT: Case =
    Case { name: "raft", about: "a rigid raft in a tank: Archimedes' draft", quick: false, compute: raft };

/// Radius of the bowl and spacing of the water [m].
const RADIUS: f64 = 0.2;
const BOWL_SPACING: f64 = 0.0125;

/// Height of a cap of the bowl with this volume [m]: pi h^2 (R - h/3).
fn cap(volume: f64) -> f64 {
    let (mut low, mut high) = (0.0, RADIUS);
    for _ in 0..100 {
        let h = 0.5 * (low + high);
        if std::f64::consts::PI * h * h * (RADIUS - h / 3.0) < volume { low = h } else { high = h }
    }
    low
}

/// For each method its name and, for FLIP, a part of PIC that calms the water within the time, as SPH's viscosity
/// does.
const METHODS: [(&str, Option<&str>); 2] = [("sph", None), ("flip", Some("0.9"))];

fn bowl() -> Result<CaseOutcome, CaseError> {
    let (mut checks, mut picture) = (Vec::new(), Sketch::default());
    for (place, (method, flip_ratio)) in METHODS.into_iter().enumerate() {
        let mut settings = vec![set("participants[0].settings.method", format!("{method:?}"))];
        settings.extend(flip_ratio.map(|ratio| set("participants[0].settings.flip_ratio", ratio)));
        let frame = Experiment::start(BOWL.name, BOWL_SCENE, &settings)?.end()?.swap_remove(0);
        let shift = DVec3::X * 0.5 * place as f64;
        picture = water_in_bowl(method, &frame, shift, (&mut checks, picture));
    }
    Ok(CaseOutcome { checks, picture })
}

/// Compares the water of a method with a flat surface, and draws its slice at y = 0, moved by `shift`.
fn water_in_bowl(
    method: &str,
    frame: &ParticipantFrame,
    shift: DVec3,
    (checks, picture): (&mut Vec<Check>, Sketch),
) -> Sketch {
    let spacing = BOWL_SPACING;
    let height = cap(frame.positions.len() as f64 * spacing.powi(3));
    let rim = (height * (2.0 * RADIUS - height)).sqrt();
    // The highest particle in each ring where there is room for two layers. It lies half a spacing below the
    // surface.
    let rings = (0.75 * rim / (2.0 * spacing)) as usize;
    let mut tops = vec![0.0f64; rings];
    for x in &frame.positions {
        let ring = (x.x.hypot(x.y) / (2.0 * spacing)) as usize;
        if ring < rings {
            tops[ring] = tops[ring].max(x.z + 0.5 * spacing);
        }
    }
    let mean = tops.iter().sum::<f64>() / rings as f64;
    let uneven = tops.iter().map(|top| (top - mean).abs()).fold(0.0, f64::max);
    let clinging = frame.positions.iter().filter(|x| x.z > height + 0.5 * spacing).count();
    let fastest = frame.velocities.iter().map(|v| v.length()).fold(0.0, f64::max);
    let quantities = [
        ("height of the surface, mean of rings [spacings]", height / spacing, mean / spacing, 0.5),
        ("largest unevenness [spacings]", 0.0, uneven / spacing, 0.5),
        ("particles that cling above the surface", 0.0, clinging as f64, 0.0),
        ("largest speed [m/s]", 0.0, fastest, 0.05),
    ];
    for (quantity, reference, measured, tolerance) in quantities {
        let quantity = format!("{}: {quantity}", method.to_uppercase());
        checks.push(Check::within(quantity, reference, measured, tolerance));
    }
    let outline = (0..=60).map(|k| {
        let x = rim * (f64::from(k) / 30.0 - 1.0);
        DVec3::new(x, 0.0, RADIUS - (RADIUS * RADIUS - x * x).sqrt()) + shift
    });
    let line = (0..=60).map(|k| DVec3::new(rim * (f64::from(k) / 30.0 - 1.0), 0.0, height) + shift);
    let front = frame.positions.iter().filter(|x| x.y.abs() < spacing).map(|x| x.with_y(0.0) + shift);
    picture.measured(front).reference(line).reference(outline)
}

/// Values of the scene: spacing, edge of the tank, depth of the water, edge and height of the raft [m].
const RAFT_SPACING: f64 = 0.015;
const TANK: f64 = 0.3;
const DEPTH: f64 = 0.15;
const EDGE: f64 = 0.12;
const HEIGHT: f64 = 0.06;

fn raft() -> Result<CaseOutcome, CaseError> {
    let (mut bottom, mut tilt, mut samples) = (0.0, 0.0f64, 0.0);
    let mut next = 2.0;
    let frames = Experiment::start(RAFT.name, RAFT_SCENE, &[])?.run(|record, simulation| {
        if record.time >= next {
            let frames = simulation.frames()?;
            let raft = &frames[1].positions;
            let (middle, first, last) =
                (raft.iter().map(|x| x.z).sum::<f64>() / raft.len() as f64, raft[0], raft[raft.len() - 1]);
            bottom += middle - 0.5 * HEIGHT;
            // From its first to its last particle, a level raft rises by its height less a spacing.
            tilt = tilt.max(((last.z - first.z) - (HEIGHT - RAFT_SPACING)).abs() / EDGE);
            samples += 1.0;
            next += 0.02;
        }
        Ok(())
    })?;
    // The raft displaces water of its own mass, half of its height. The level rises by this volume over the
    // area of the tank.
    let level = DEPTH + 0.5 * HEIGHT * EDGE * EDGE / (TANK * TANK);
    let draft = level - bottom / samples;
    let checks = vec![
        Check::within("draft, 2 to 3 s [m]", 0.5 * HEIGHT, draft, 0.5 * RAFT_SPACING),
        Check::within("largest slope of the raft, 2 to 3 s", 0.0, tilt, 0.1),
    ];
    let front = |x: &&DVec3| (x.y - 0.5 * TANK).abs() < RAFT_SPACING;
    let line = (0..=60).map(|k| DVec3::new(TANK * f64::from(k) / 60.0, 0.0, level));
    let water = frames[0].positions.iter().filter(front).map(|x| x.with_y(0.0));
    let raft = frames[1].positions.iter().filter(front).map(|x| x.with_y(0.0));
    Ok(CaseOutcome { checks, picture: Sketch::default().measured(water).reference(raft).reference(line) })
}
