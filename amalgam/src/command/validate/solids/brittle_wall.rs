//! The brittle wall of the paper, struck by a ball of particles twenty times heavier: stable, and in pieces.

use amalgam_coordinator::{FrameField, ParticipantFrame};
use glam::DMat3;

use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../scenes/brittle-wall.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "brittle-wall",
    about: "speed, energy and pieces of a wall that a heavy ball strikes: Fig. 5 and 6 of the paper",
    quick: false,
    compute,
};

/// Values of the scene: the ball's speed [m/s] and the spacing [m].
const SPEED: f64 = 10.0;
const SPACING: f64 = 0.02;

/// Least number of particles of a piece; smaller pieces are rubble.
const PIECE: usize = 100;

fn compute() -> Result<CaseOutcome, CaseError> {
    let set = ["time.duration=0.08".to_string(), "time.frame_interval=0.08".to_string()];
    let (mut speed, mut rise, mut before, mut entered) = (0.0, 0.0, f64::INFINITY, f64::NAN);
    let frames = Experiment::start(CASE.name, SCENE, &set)?.run(|_, simulation| {
        let value = |name: &str, column: usize| {
            let probe = simulation.probes().iter().find(|probe| probe.name == name);
            let value = probe.map(|probe| probe.values[column]).filter(|value| value.is_finite());
            value.ok_or_else(|| CaseError::Failed(format!("the probe `{name}` reads no number")))
        };
        let (kinetic, total) = (value("energy", 0)?, value("energy", 4)?);
        if entered.is_nan() {
            entered = kinetic;
        }
        rise = f64::max(rise, total - before);
        before = total;
        speed = value("wall-speed", 0)?.max(value("ball-speed", 0)?).max(speed);
        Ok(())
    })?;
    let wall = &frames[0];
    let (fragment, damage) = (scalar(wall, "fragment")?, scalar(wall, "damage")?);
    let count = fragment.iter().fold(0.0f32, |most, &f| most.max(f)) as usize + 1;
    let mut sizes = vec![0usize; count];
    fragment.iter().for_each(|&f| sizes[f as usize] += 1);
    let pieces: Vec<usize> = sizes.into_iter().filter(|&size| size >= PIECE).collect();
    let whole = pieces.iter().sum::<usize>() as f64 / fragment.len() as f64;
    let checks = vec![
        Check::within("largest speed / the ball's at the start", 1.0, speed / SPEED, 1.5),
        Check::within("largest rise of energy in a step / entered", 0.0, rise / entered, 1e-3),
        Check::within("part of the wall in pieces of 100 and more", 1.0, whole, 0.2),
        Check::within("number of these pieces", 6.0, pieces.len() as f64, 4.0),
    ];
    let turn = DMat3::from_rotation_x(0.35) * DMat3::from_rotation_z(-0.7);
    let seen = |frame: &ParticipantFrame| frame.positions.iter().map(|x| turn * *x).collect::<Vec<_>>();
    let ball = vec![0.5; frames[1].positions.len()];
    let picture = Sketch::default()
        .coloured(seen(wall), damage.to_vec(), [0.0, 1.0], 0.5 * SPACING)
        .coloured(seen(&frames[1]), ball, [0.0, 1.0], 0.5 * SPACING);
    Ok(CaseOutcome { checks, picture })
}

fn scalar<'a>(frame: &'a ParticipantFrame, name: &str) -> Result<&'a [f32], CaseError> {
    match frame.fields.iter().find(|(known, _)| known == name) {
        Some((_, FrameField::Scalar(values))) => Ok(values),
        _ => Err(CaseError::Failed(format!("{} has no field `{name}` of numbers", frame.name))),
    }
}
