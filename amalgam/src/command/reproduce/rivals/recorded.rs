//! Runs a rival, and leaves the files that `amalgam run` leaves: frames, pictures, tables, a summary.

use std::collections::BTreeMap;

use amalgam_coordinator::summary::Extremes;
use amalgam_coordinator::{FrameField, ParticipantFrame, ProbeSample, Quantity};
use amalgam_particles::{NO_GROUP, POSITION_LIMIT, SPEED_LIMIT};
use amalgam_solver_kit::{SolverProgram, World};
use amalgam_solver_solid::SolidProgram;
use serde_json::json;

use super::Algorithm;
use super::discs::Discs;
use crate::{
    error::{CommandError, ending::Ending},
    folder::Folder,
    run::recorder::Recorder,
    scene::{Participant, Scene},
};

/// Computes the scene with an algorithm of its own in place of the coordinator and the solver. Steps are as
/// long as the scene's longest, and divide the time between frames.
///
/// # Errors
/// A scene without discs, results that cannot be written, or discs that have left all bounds: then the results
/// until there are in the folder.
pub(in crate::command::reproduce) fn run(
    scene: &Scene,
    algorithm: Algorithm,
    mut folder: Folder,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Ending, CommandError> {
    let mut discs = start(scene)?;
    let participant = &scene.participants[0].name;
    folder.claim(scene)?;
    let mut recorder = Recorder::new(scene, &folder)?;
    let mut probes = Probes::new(scene);
    let time = &scene.time;
    let steps_per_frame = (time.frame_interval / time.dt_max - 1e-9).ceil().max(1.0) as u32;
    let dt = time.frame_interval / f64::from(steps_per_frame);
    let (mut rival, mut steps, mut left_bounds) = (algorithm.rival(), 0u64, None);
    recorder.frame(0.0, vec![frame(participant, &discs)])?;
    'frames: for at in 0..time.frames() {
        for step in 1..=steps_per_frame {
            if is_interrupted() {
                return Ok(Ending::Interrupted);
            }
            rival.step(&mut discs, dt);
            steps += 1;
            let now = at as f64 * time.frame_interval + f64::from(step) * dt;
            if !discs.is_within(POSITION_LIMIT, SPEED_LIMIT) {
                left_bounds = Some(format!("the discs fly apart without bound after {now} s"));
                break 'frames;
            }
            recorder.probes(now, probes.sample(&mut discs))?;
        }
        recorder.frame((at + 1) as f64 * time.frame_interval, vec![frame(participant, &discs)])?;
    }
    recorder.finish()?;
    folder.write_summary(&json!({
        "scene": scene.header.name,
        "steps": steps,
        "participants": [{ "name": participant, "particles": discs.len() }],
        "probes": probes.extremes,
    }))?;
    left_bounds.map_or(Ok(Ending::Finished), |error| Err(CommandError::Failed(error)))
}

/// The discs with which the solver of the scene's first participant would begin.
pub(super) fn start(scene: &Scene) -> Result<Discs, CommandError> {
    let Participant { name, section, .. } = &scene.participants[0];
    let world = World {
        participant: name.clone(),
        domain: (scene.domain.min, scene.domain.max),
        gravity: scene.domain.gravity,
        seed: scene.header.seed,
        obstacles: Vec::new(),
        ranks: amalgam_solver_kit::Ranks::alone(),
    };
    let solver = SolidProgram.create(section, &world).map_err(|faults| {
        let faults: Vec<_> = faults.into_iter().map(|fault| (fault.key, fault.message)).collect();
        CommandError::from(scene.section_error(name, &faults))
    })?;
    let settings: toml::Table = section.parse().unwrap_or_default();
    let constant = settings.get("gravitational_constant").and_then(toml::Value::as_float);
    Ok(Discs::new(solver.particles(), constant.unwrap_or_default()))
}

/// Masses at the start, by id [kg].
///
/// # Errors
/// A scene without discs.
pub(in crate::command::reproduce) fn masses(scene: &Scene) -> Result<BTreeMap<u64, f64>, CommandError> {
    let discs = start(scene)?;
    Ok(discs.id.into_iter().zip(discs.mass).collect())
}

/// The discs as a frame of their participant. Masses are a field, since accretion changes them.
fn frame(participant: &str, discs: &Discs) -> ParticipantFrame {
    let mass = discs.mass.iter().map(|&mass| mass as f32).collect();
    ParticipantFrame {
        name: participant.to_string(),
        id: discs.id.clone(),
        positions: discs.position.clone(),
        velocities: discs.velocity.clone(),
        radius: discs.radius.clone(),
        group: vec![NO_GROUP; discs.len()],
        fields: vec![(MASS.to_string(), FrameField::Scalar(mass))],
        triangles: Vec::new(),
        surface: None,
        parts: 0,
    }
}

/// Name of the field of masses [kg].
pub(in crate::command::reproduce) const MASS: &str = "mass";

/// The scene's probes, as far as they make sense without a coordinator.
struct Probes {
    quantities: Vec<Quantity>,
    samples: Vec<ProbeSample>,
    extremes: BTreeMap<String, BTreeMap<String, Extremes>>,
}

impl Probes {
    fn new(scene: &Scene) -> Self {
        let (mut quantities, mut samples) = (Vec::new(), Vec::new());
        for probe in &scene.probes {
            let columns = columns(&probe.quantity);
            if !columns.is_empty() {
                quantities.push(probe.quantity.clone());
                let columns = columns.iter().map(ToString::to_string).collect();
                samples.push(ProbeSample { name: probe.name.clone(), columns, values: Vec::new() });
            }
        }
        Self { quantities, samples, extremes: BTreeMap::new() }
    }

    fn sample(&mut self, discs: &mut Discs) -> &[ProbeSample] {
        for (quantity, sample) in self.quantities.iter().zip(&mut self.samples) {
            sample.values = values(quantity, discs);
            let extremes = self.extremes.entry(sample.name.clone()).or_default();
            for (column, &value) in sample.columns.iter().zip(&sample.values) {
                let first = Extremes { last: value, min: value, max: value };
                let one = extremes.entry(column.clone()).or_insert(first);
                *one = Extremes { last: value, min: one.min.min(value), max: one.max.max(value) };
            }
        }
        &self.samples
    }
}

/// Columns of a probe, with the names that they have in any run.
fn columns(quantity: &Quantity) -> &'static [&'static str] {
    match quantity {
        Quantity::Momentum { .. } => &["momentum_x [kg m/s]", "momentum_y [kg m/s]", "momentum_z [kg m/s]"],
        Quantity::AngularMomentum { .. } => &[
            "angular_momentum_x [kg m^2/s]",
            "angular_momentum_y [kg m^2/s]",
            "angular_momentum_z [kg m^2/s]",
        ],
        Quantity::Energy {} => &["kinetic [J]"],
        Quantity::Speed { .. } => &["speed_max [m/s]"],
        Quantity::Overlap {} => &["depth_max [m]", "depth_max [smaller radius]"],
        _ => &[],
    }
}

fn values(quantity: &Quantity, discs: &mut Discs) -> Vec<f64> {
    match quantity {
        Quantity::Momentum { .. } => discs.momentum().to_array().to_vec(),
        Quantity::AngularMomentum { .. } => discs.angular_momentum().to_array().to_vec(),
        Quantity::Energy {} => vec![discs.kinetic_energy()],
        Quantity::Speed { .. } => vec![discs.speed_max()],
        Quantity::Overlap {} => discs.overlap_max().to_vec(),
        _ => Vec::new(),
    }
}
