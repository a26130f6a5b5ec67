//! A column of water at rest on a floor of springs, through the coordinator: the weight that the floor feels.

use amalgam_coordinator::ParticipantFrame;
use glam::DVec3;

use super::fluid::Method;
use crate::command::validate::case::CaseError;
use crate::command::validate::case::{Case, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/fluid-column/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "fluid-column",
    about: "a column of water rests on a soft and on a stiff floor: deflection, volume",
    quick: false,
    compute,
};

const FLIP: Method = Method { name: "FLIP", keys: &["method=\"flip\""] };
/// The speed of sound [m/s] is ten times sqrt(g H). Viscosity [Pa s] above that of water lets the first shock
/// die away.
const SPH: Method = Method { name: "SPH", keys: &["sound_speed=31.0", "viscosity=50.0"] };
/// FLIP is merged, without bounce. SPH has the contact law, which is its default.
const MERGED: [&str; 1] = ["coupling.alpha=0.0"];

/// A floor: its name in tables, and stiffness [N/m] and damping [N s/m] of the spring under each of its
/// particles.
const FLOORS: [(&str, f64, f64); 2] = [("soft", 600.0, 20.0), ("stiff", 6e6, 2000.0)];

/// Values of the scene: height and width of the column, its lower end, an edge of FLIP's cells, spacing [m].
/// Values of the floor: height, distance of its first and last particle, radius [m], mass by area [kg/m^2].
const HEIGHT: f64 = 1.0;
const WIDTH: f64 = 0.2;
const BOTTOM: f64 = 0.05;
const CELL: f64 = 0.05;
const SPACING: f64 = 0.025;
const FLOOR: f64 = 0.031;
const FLOOR_EDGE: f64 = 0.175;
const FLOOR_RADIUS: f64 = 0.019;
const FLOOR_DENSITY: f64 = 12.5;
/// Start of averages [s], and interval between samples [s]. Sound runs up and down an SPH column for long.
const SETTLED: f64 = 4.0;
const EVERY: f64 = 5e-3;

fn compute() -> Result<CaseOutcome, CaseError> {
    let (mut checks, mut rests) = (Vec::new(), Vec::new());
    for (method, coupling) in [(FLIP, &MERGED[..]), (SPH, &[])] {
        for floor in FLOORS {
            let rest = at_rest(method, floor, coupling)?;
            let name = format!("{}, {} floor", method.name, floor.0);
            checks.push(Check::within(format!("{name}: deflection / static"), 1.0, rest.deflection, 0.05));
            checks.push(Check::within(format!("{name}: sunk [cells]"), 0.0, rest.sunk, 0.5));
            checks.push(Check::within(format!("{name}: volume, by the spread"), 1.0, rest.volume, 0.02));
            let through = rest.through as f64;
            checks.push(Check::within(format!("{name}: particles below the floor"), 0.0, through, 0.0));
            rests.push(rest);
        }
    }
    // For comparison, the paper's rule: the projection is told only which cells are occupied. It takes the
    // held layer for falling fluid, and the column sinks through the floor.
    for floor in FLOORS {
        let rest = at_rest(FLIP, floor, &[MERGED[0], "coupling.synchronise=\"average\""])?;
        let name = format!("FLIP, {} floor, average: sunk [cells], 1 to 20", floor.0);
        checks.push(Check::within(name, 10.5, rest.sunk, 9.5));
        rests.push(rest);
    }
    let picture = rests.iter().enumerate().fold(Sketch::default(), |sketch, (k, rest)| rest.draw(k, sketch));
    Ok(CaseOutcome { checks, picture })
}

/// Means over the time at rest.
#[derive(Default)]
struct ColumnAtRest {
    /// Mean deflection of the floor over that under the weight of column and floor.
    deflection: f64,
    /// Distance that the column's centre sank beyond the floor's deflection, in cells.
    sunk: f64,
    /// Height over that at the start, by the standard deviation of the particles' heights.
    volume: f64,
    /// Largest number of particles below the floor.
    through: usize,
    /// The floor and the water at the end.
    frames: Vec<ParticipantFrame>,
}

fn at_rest(
    method: Method,
    (_, stiffness, damping): (&str, f64, f64),
    coupling: &[&str],
) -> Result<ColumnAtRest, CaseError> {
    let foundation = "participants.floor.settings.bodies[0].foundation";
    let mut set = method.set();
    set.push(format!("{foundation}.stiffness={stiffness:?}"));
    set.push(format!("{foundation}.damping={damping:?}"));
    set.extend(coupling.iter().map(|key| key.to_string()));
    let (mut rest, mut samples) = (ColumnAtRest::default(), 0.0);
    let frames = Experiment::start(CASE.name, SCENE, &set)?.run(|record, simulation| {
        if record.time >= SETTLED + samples * EVERY {
            rest.add(&simulation.frames()?, stiffness);
            samples += 1.0;
        }
        Ok(())
    })?;
    for sum in [&mut rest.deflection, &mut rest.sunk, &mut rest.volume] {
        *sum /= samples;
    }
    Ok(ColumnAtRest { frames, ..rest })
}

impl ColumnAtRest {
    /// Adds a sample.
    fn add(&mut self, frames: &[ParticipantFrame], stiffness: f64) {
        let [floor, water] = [0, 1].map(|k| &frames[k].positions);
        let mean = |points: &[DVec3]| points.iter().map(|x| x.z).sum::<f64>() / points.len() as f64;
        let (deflection, centre) = (FLOOR - mean(floor), mean(water));
        let mass = 1000.0 * WIDTH * WIDTH * HEIGHT + FLOOR_DENSITY * FLOOR_EDGE * FLOOR_EDGE;
        self.deflection += deflection * stiffness * floor.len() as f64 / (mass * 9.81);
        self.sunk += (BOTTOM + 0.5 * HEIGHT - deflection - centre) / CELL;
        // N layers at a distance a have a variance of a^2 (N^2 - 1)/12.
        let variance = water.iter().map(|x| (x.z - centre).powi(2)).sum::<f64>() / water.len() as f64;
        self.volume += (12.0 * variance + SPACING * SPACING).sqrt() / HEIGHT;
        let below = |x: &&DVec3| x.z < FLOOR - deflection - FLOOR_RADIUS;
        self.through = self.through.max(water.iter().filter(below).count());
    }

    /// Draws the layers at the front wall, with the floor and the water's surface at the start, as column
    /// `number`.
    fn draw(&self, number: usize, sketch: Sketch) -> Sketch {
        let shift = DVec3::X * (1.2 * WIDTH * number as f64);
        let front = |frame: &ParticipantFrame| {
            frame.positions.iter().filter(|x| x.y < SPACING).map(|x| *x + shift).collect::<Vec<_>>()
        };
        let line = |z: f64| (0..=40).map(move |k| DVec3::new(WIDTH * f64::from(k) / 40.0, 0.0, z) + shift);
        let [floor, water] = [0, 1].map(|k| front(&self.frames[k]));
        sketch.measured(water).reference(floor).reference(line(BOTTOM + HEIGHT - 0.5 * SPACING))
    }
}
