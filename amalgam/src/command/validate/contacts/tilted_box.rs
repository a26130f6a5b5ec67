//! A box of discs that is tilted until they slide: the tilt at which they do, and the slope on which they
//! come to rest.

use amalgam_coordinator::ParticipantFrame;
use glam::{DQuat, DVec3};

use super::{set, vector, vectors};
use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/angle-of-rest/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "angle-of-rest",
    about: "a tilted box of discs slides and comes to rest: contact dynamics of Deboeuf and others",
    quick: false,
    compute: angle_of_rest,
};

/// Width of the box in mean diameters.
const WIDTH: f64 = 120.0;
/// First tilt, its steps and the last one [degrees].
const TILT: f64 = 8.0;
const STEP: f64 = 0.5;
const TILT_MAX: f64 = 35.0;
/// Discs lie still below this mean square speed, in units of gravity times diameter.
const STILL: f64 = 1e-6;
/// Shortest time of a step, in roots of diameter over gravity.
const SHORTEST: f64 = 5.0;
/// Discs have slid if they moved down by this mean distance in a step, in diameters.
const SLID: f64 = 0.3;

/// A box of discs at rest.
struct TiltedBox {
    frame: ParticipantFrame,
    unconverged: u32,
}

impl TiltedBox {
    /// Discs that fell into the box.
    fn fill() -> Result<Self, CaseError> {
        let frame = Experiment::start(CASE.name, SCENE, &[])?.end()?.swap_remove(0);
        Ok(Self { frame, unconverged: 0 })
    }

    /// Lets the discs come to rest at a tilt [degrees]. Returns how far they moved down the box in the mean.
    fn tilt(&mut self, degrees: f64) -> Result<f64, CaseError> {
        let (sin, cos) = degrees.to_radians().sin_cos();
        let before = &self.frame;
        let mass: Vec<f64> = before.radius.iter().map(|r| r * r).collect();
        let points = format!(
            "[{{ type = \"points\", positions = {}, mass = {mass:?}, radius = {:?} }}]",
            vectors(&before.positions),
            before.radius
        );
        let settings = [
            set("domain.gravity", vector(DVec3::new(sin, -cos, 0.0))),
            set("participants[0].settings.bodies", points),
        ];
        let unconverged = &mut self.unconverged;
        let frames = Experiment::start(CASE.name, SCENE, &settings)?.run_while(|record, simulation| {
            *unconverged += u32::from(record.unconverged);
            if record.time < SHORTEST || record.step % 25 != 0 {
                return Ok(true);
            }
            let velocities = &simulation.frames()?[0].velocities;
            let square = velocities.iter().map(|v| v.length_squared()).sum::<f64>();
            Ok(square > STILL * velocities.len() as f64)
        })?;
        let now = &frames[0];
        let moved = now.positions.iter().zip(&before.positions).map(|(x, y)| x.x - y.x).sum::<f64>();
        let moved = moved / now.positions.len() as f64;
        self.frame.positions.clone_from(&now.positions);
        Ok(moved)
    }

    /// Angle of the surface to the floor [degrees]: the straight line nearest to the highest disc of each two
    /// diameters, without a tenth of the box at each wall.
    fn surface(&self) -> f64 {
        let strips = (WIDTH / 2.0) as usize;
        let mut highest = vec![DVec3::ZERO; strips];
        for (x, r) in self.frame.positions.iter().zip(&self.frame.radius) {
            let strip = &mut highest[((x.x / 2.0) as usize).min(strips - 1)];
            if x.y + r > strip.y {
                *strip = DVec3::new(x.x, x.y + r, 0.0);
            }
        }
        let middle = strips / 10..strips - strips / 10;
        let points = &highest[middle];
        let mean = points.iter().sum::<DVec3>() / points.len() as f64;
        let arms = points.iter().map(|x| *x - mean);
        let (rise, run) = arms.fold((0.0, 0.0), |(a, b), d| (a + d.x * d.y, b + d.x * d.x));
        (rise / run).atan().to_degrees()
    }
}

fn angle_of_rest() -> Result<CaseOutcome, CaseError> {
    let mut discs = TiltedBox::fill()?;
    let (mut tilt, mut moved) = (TILT, 0.0);
    let (mut start, mut rest) = (0.0, 0.0);
    while moved < SLID && tilt < TILT_MAX {
        start = tilt - discs.surface();
        moved = discs.tilt(tilt)?;
        rest = tilt - discs.surface();
        tracing::debug!("tilt {tilt}: moved {moved:.3}, slope {rest:.2}, unconverged {}", discs.unconverged);
        tilt += STEP;
    }
    let checks = vec![
        Check::within("slope on which the discs slide [degrees]", 21.0, start, 2.0),
        Check::within("angle of rest [degrees]", 15.0, rest, 2.0),
        Check::within("steps that did not converge", 0.0, f64::from(discs.unconverged), 0.0),
    ];
    // Drawn with gravity down: the floor falls to the right by the tilt.
    let turn = DQuat::from_rotation_y((tilt - STEP).to_radians());
    let upright = |x: &DVec3| turn * DVec3::new(x.x, 0.0, x.y);
    let picture = Sketch::default().balls(discs.frame.positions.iter().map(upright), &discs.frame.radius);
    Ok(CaseOutcome { checks, picture })
}
