//! Five hundred discs that fall together by their own gravity: one planet turns, others rest.

use amalgam_coordinator::ParticipantFrame;
use glam::DVec3;

use super::{set, set_body};
use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/spinning-planet/scene.toml");

pub(in crate::command::validate) const SPINNING: Case = Case {
    name: "spinning-planet",
    about: "500 discs that turn fall together: angular momentum is kept, and the pile turns as it reports",
    quick: false,
    compute: spinning,
};

pub(in crate::command::validate) const RESTING: Case = Case {
    name: "resting-planet",
    about: "500 discs fall together, smooth and rough: no holes, no overlap, no spin from nothing",
    quick: false,
    compute: resting,
};

/// Time from which the grains are taken as a pile [s], and number of steps between samples.
const FALLEN: f64 = 10.0;
const EVERY: u64 = 10;
/// Angular momentum of the planet that turns at 0.05 rad/s [kg m^2/s]: the scale for errors in the planet
/// that rests.
const TURN: f64 = 1.5e5;
/// Mean radius of a disc [m].
const RADIUS: f64 = 1.25;

/// Tolerance of contacts: the default where the planet turns, and one for a pile that rests for long, since
/// the errors of steps add up to overlap.
const TOLERANCE: [f64; 2] = [1e-2, 1e-3];

#[derive(Default)]
struct Planet {
    /// Angular momentum after the first step [kg m^2/s], and the largest change from it.
    momentum: f64,
    change: f64,
    /// Deepest overlap over the smaller radius: ever, when the pile had fallen, and in the end.
    deepest: f64,
    overlap: [f64; 2],
    /// Angle by which the pile turned since it had fallen, and the integral of the rate that it reported
    /// [rad].
    angle: f64,
    reported: f64,
    /// Steps since the pile had fallen that did not converge.
    unconverged: u32,
    steps: u64,
    frame: Option<ParticipantFrame>,
}

impl Planet {
    fn run(friction: f64, rate: f64, tolerance: f64) -> Result<Self, CaseError> {
        let settings = [
            set("coupling.contact[0].friction", format!("{friction:?}")),
            set("coupling.contact_tolerance", format!("{tolerance:?}")),
            set_body("angular_velocity", super::vector(DVec3::Z * rate)),
        ];
        let mut planet = Self::default();
        let (mut before, mut since): (Option<ParticipantFrame>, f64) = (None, 0.0);
        let mut frames = Experiment::start(SPINNING.name, SCENE, &settings)?.run(|record, simulation| {
            let value = |probe: usize, column: usize| simulation.probes()[probe].values[column];
            let (momentum, overlap) = (value(0, 2), value(1, 1));
            if planet.steps == 0 {
                planet.momentum = momentum;
            }
            planet.steps += 1;
            planet.change = planet.change.max((momentum - planet.momentum).abs());
            planet.deepest = planet.deepest.max(overlap);
            planet.overlap[1] = overlap;
            if record.time < FALLEN {
                return Ok(());
            }
            planet.unconverged += u32::from(record.unconverged);
            if record.step % EVERY != 0 {
                return Ok(());
            }
            let now = simulation.frames()?.swap_remove(0);
            match &before {
                None => planet.overlap[0] = overlap,
                Some(before) => {
                    planet.angle += turn(before, &now);
                    planet.reported += 0.5 * (rate_of(before) + rate_of(&now)) * (record.time - since);
                }
            }
            (before, since) = (Some(now), record.time);
            Ok(())
        })?;
        planet.frame = Some(frames.swap_remove(0));
        Ok(planet)
    }

    fn frame(&self) -> &ParticipantFrame {
        self.frame.as_ref().expect("is there after the run")
    }

    /// Radius of the largest hole [m], among points nearer to the middle than nine tenths of the discs.
    fn hole(&self) -> f64 {
        let frame = self.frame();
        let middle = middle(frame);
        let mut far: Vec<f64> = frame.positions.iter().map(|x| x.distance(middle)).collect();
        far.sort_by(f64::total_cmp);
        let inside = far[far.len() * 9 / 10] - RADIUS;
        let cells = (inside / 0.25) as i32;
        let points = (-cells..=cells).flat_map(|i| (-cells..=cells).map(move |j| (i, j)));
        let points = points.map(|(i, j)| DVec3::new(f64::from(i), f64::from(j), 0.0) * 0.25);
        let room = |point: DVec3| {
            let beside = frame.positions.iter().zip(&frame.radius).map(|(x, r)| x.distance(point) - r);
            beside.fold(f64::INFINITY, f64::min)
        };
        points.filter(|point| point.length() < inside).map(|point| room(point + middle)).fold(0.0, f64::max)
    }

    /// Checks of all planets.
    fn check(&self, name: &str, checks: &mut Vec<Check>) {
        let mut check = |quantity: &str, measured: f64, tolerance: f64| {
            checks.push(Check::within(format!("{name}: {quantity}"), 0.0, measured, tolerance));
        };
        let momentum = self.change / self.momentum.abs().max(TURN);
        check("change of angular momentum / that of the turning", momentum, 1e-10);
        check("deepest overlap [smaller radius]", self.deepest, 0.05);
        let growth = (self.overlap[1] - self.overlap[0]).max(0.0);
        check("growth of overlap, 10 to 30 s [smaller radius]", growth, 1e-3);
    }

    /// Checks of how the pile lies: it has no hole for a disc of mean radius, and every step since it
    /// had fallen was solved.
    fn check_pile(&self, name: &str, checks: &mut Vec<Check>) {
        let mut check = |quantity: &str, measured: f64, tolerance: f64| {
            checks.push(Check::within(format!("{name}: {quantity}"), 0.0, measured, tolerance));
        };
        check("largest hole [mean radius]", self.hole() / RADIUS, 1.0);
        check("steps from 10 s on that did not converge", f64::from(self.unconverged), 0.0);
    }
}

fn middle(frame: &ParticipantFrame) -> DVec3 {
    frame.positions.iter().sum::<DVec3>() / frame.positions.len() as f64
}

/// Angle from one state to another that fits best [rad].
fn turn(before: &ParticipantFrame, after: &ParticipantFrame) -> f64 {
    let (from, to) = (middle(before), middle(after));
    let arms = before.positions.iter().zip(&after.positions).map(|(x, y)| (*x - from, *y - to));
    let (sin, cos) = arms.fold((0.0, 0.0), |(s, c), (x, y)| (s + x.cross(y).z, c + x.dot(y)));
    sin.atan2(cos)
}

/// Rate of the rotation that fits the velocities best [rad/s].
fn rate_of(frame: &ParticipantFrame) -> f64 {
    let (from, velocity) =
        (middle(frame), frame.velocities.iter().sum::<DVec3>() / frame.velocities.len() as f64);
    let arms = frame.positions.iter().zip(&frame.velocities).map(|(x, v)| (*x - from, *v - velocity));
    let (turn, square) = arms.fold((0.0, 0.0), |(t, s), (x, v)| (t + x.cross(v).z, s + x.length_squared()));
    turn / square
}

fn upright(x: &DVec3) -> DVec3 {
    DVec3::new(x.x, 0.0, x.y)
}

fn spinning() -> Result<CaseOutcome, CaseError> {
    let planet = Planet::run(0.3, 0.05, TOLERANCE[0])?;
    let mut checks = Vec::new();
    planet.check("turning", &mut checks);
    checks.push(Check::relative(
        "angle turned, 10 to 30 s, against the reported rate [rad]",
        planet.reported,
        planet.angle,
        0.01,
    ));
    // The pile has shrunk to a third of its radius, so that it turns several times faster.
    let turns = planet.angle / 20.0 / 0.05;
    checks.push(Check::within("rate over that at the start, more than 2", 10.0, turns, 8.0));
    let frame = planet.frame();
    let picture = Sketch::default().balls(frame.positions.iter().map(upright), &frame.radius);
    Ok(CaseOutcome { checks, picture })
}

fn resting() -> Result<CaseOutcome, CaseError> {
    let (mut checks, mut picture) = (Vec::new(), Sketch::default());
    for (k, (name, friction)) in [("smooth", 0.0), ("mu 0.3", 0.3)].into_iter().enumerate() {
        let planet = Planet::run(friction, 0.0, TOLERANCE[1])?;
        planet.check(name, &mut checks);
        planet.check_pile(name, &mut checks);
        let shift = DVec3::X * 90.0 * k as f64;
        let frame = planet.frame();
        picture = picture.balls(frame.positions.iter().map(|x| upright(x) + shift), &frame.radius);
    }
    Ok(CaseOutcome { checks, picture })
}
