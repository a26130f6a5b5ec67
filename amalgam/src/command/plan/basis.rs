//! Work of a step on this machine: from some steps of a scene, or from the results of a run.

use std::{fmt, path::Path, time::Duration};

use serde::Deserialize;

use super::model::{Coordinator, Cut, Halo, Load};
use crate::{
    cli::Reach,
    command::check::start,
    console::Console,
    error::CommandError,
    folder::{SCENE, SUMMARY},
    scene::Scene,
};

/// Steps of a scene that are measured, at most.
const STEPS: u64 = 50;
/// Time after which no further step is begun.
const TRY: Duration = Duration::from_secs(10);

/// Memory per particle [bytes] of SPH, and about that of grains: what ranks hold that have some millions each.
/// `amalgam bench sph` has up to a third more, for a hundred thousand.
const FLUID: f64 = 310.0;
/// Memory per particle [bytes] of FLIP and of solids, as `amalgam bench flip` and `amalgam bench solids`
/// print it. Solids that keep a row of bonds per particle take twice as much.
const SOLID: f64 = 610.0;

/// Exchanges of SPH in a step: ghosts with place and velocity, then their pressure and volume. Ghosts reach
/// as far as a cell, two spacings by default.
pub(crate) const SPH: Halo = Halo {
    cut: Cut::Boxes,
    depth: 2.0,
    messages: 2.0,
    bytes: 56.0,
    collectives: 7.0,
    everywhere: 0.0,
    in_parts: true,
};
/// Exchanges of grains in a step, for contacts among them: ghosts with place and radius, then their speeds.
/// Ghosts reach as far as a list of contacts, a radius beyond touching.
const GRAINS: Halo = Halo { depth: 1.5, collectives: 6.0, ..SPH };
/// Bytes of a grain that attracts others, with its part of the tree, on every rank. One of the collectives
/// carries all places.
const ATTRACTING: f64 = 130.0;
/// Exchanges of FLIP in a pass of eight iterations of its pressure, with 8 particles per cell: four layers of
/// cells, in many messages. Every rank has arrays for the whole grid.
const FLIP: Halo = Halo {
    cut: Cut::Slabs(3, 4.0),
    depth: 8.0,
    messages: 220.0,
    bytes: 31.0,
    collectives: 50.0,
    everywhere: 25.0,
    in_parts: true,
};
/// Exchanges of springs in an iteration of a solve, one message. Collectives are of a number per chunk.
const SPRINGS: Halo = Halo {
    cut: Cut::Slabs(3, 1.0),
    depth: 1.0,
    messages: 1.1,
    bytes: 26.0,
    collectives: 2.2,
    everywhere: 0.0,
    in_parts: false,
};
/// The same of bonds, with a horizon of three spacings and their layout on every rank.
const BONDS: Halo = Halo { depth: 3.0, everywhere: 230.0, ..SPRINGS };
/// Core time per particle [s] of a pass of FLIP, and of an iteration of springs and of bonds, as the examples
/// `flip_ranks` and `sheet_ranks`, and `bond_speed`, print it. A step has as many passes as its time says.
const PASSES: [f64; 3] = [110e-9, 18e-9, 60e-9];

/// The entries of `summary.json` that the model starts from.
#[derive(Debug, Deserialize)]
struct Measured {
    steps: u64,
    participants: Vec<MeasuredParticipant>,
    phases_s: Phases,
    contacts: Contacts,
    wire: Wire,
}

#[derive(Debug, Deserialize)]
struct MeasuredParticipant {
    name: String,
    particles: u64,
    solver_s: f64,
    bytes_out: u64,
    bytes_in: u64,
}

#[derive(Debug, Deserialize)]
struct Phases {
    detect: f64,
    merge: f64,
    synchronise: f64,
    split: f64,
}

#[derive(Debug, Deserialize)]
struct Contacts {
    active_mean: f64,
    marked_mean: f64,
}

#[derive(Debug, Deserialize)]
struct Wire {
    round_trips_mean: f64,
}

/// Work of a step on this machine.
#[derive(Debug)]
pub(super) struct Basis {
    /// Scene or folder.
    source: String,
    /// Threads that the solvers shared.
    threads: usize,
    measured: Measured,
    /// Keys of each participant's section on which its cut depends.
    sections: Vec<Section>,
}

/// The keys of a participant's section on which its cut depends.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Section {
    method: String,
    gravitational_constant: f64,
    bodies: Vec<Kind>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Kind {
    r#type: String,
}

impl Section {
    /// The exchanges in a step that takes so much core time per particle [s]; none of a method that is not
    /// known.
    fn halo(&self, work: f64) -> Option<Halo> {
        let passes = |of: Halo, each: f64| {
            let count = (work / each).max(1.0);
            let Halo { messages, bytes, collectives, .. } = of;
            Halo { messages: count * messages, bytes: count * bytes, collectives: count * collectives, ..of }
        };
        let [flip, springs, bonds] = PASSES;
        let sheets = !self.bodies.is_empty() && self.bodies.iter().all(|body| body.r#type == "sheet");
        let cut = if sheets { Cut::Slabs(2, 1.0) } else { SPRINGS.cut };
        match self.method.as_str() {
            "sph" => Some(SPH),
            "grains" if self.gravitational_constant != 0.0 => Some(Halo { everywhere: ATTRACTING, ..GRAINS }),
            "grains" => Some(GRAINS),
            "rigid" => Some(Halo { in_parts: false, ..GRAINS }),
            "flip" => Some(passes(FLIP, flip)),
            "mass-spring" => Some(passes(Halo { cut, ..SPRINGS }, springs)),
            "peridynamics" => Some(passes(BONDS, bonds)),
            _ => None,
        }
    }

    /// Memory per particle [bytes].
    fn memory(&self) -> f64 {
        if matches!(self.method.as_str(), "sph" | "grains" | "rigid") { FLUID } else { SOLID }
    }
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Contacts { active_mean, marked_mean } = self.measured.contacts;
        let contacts = active_mean + marked_mean;
        write!(f, "{}: {} steps with {} threads, ", self.source, self.measured.steps, self.threads)?;
        if contacts < 1.0 {
            return write!(f, "in which nothing touches: plan the folder of a run for what contacts cost");
        }
        let Coordinator { work, bytes, .. } = self.coordinator(1.0);
        write!(
            f,
            "{contacts:.0} contacts per step, {:.2} us of the coordinator and {:.0} bytes for each",
            1e6 * work / contacts,
            bytes / contacts
        )
    }
}

impl Basis {
    /// From a scene, of which some steps are computed, or from a folder with results.
    ///
    /// # Errors
    /// A wrong scene, or a folder without results.
    pub(super) fn of(
        path: &Path,
        set: &[String],
        reach: &Reach,
        console: &Console,
    ) -> Result<Self, CommandError> {
        if path.is_dir() { Self::of_results(path, set) } else { Self::of_scene(path, set, reach, console) }
    }

    fn of_results(folder: &Path, set: &[String]) -> Result<Self, CommandError> {
        let wrong = |what: String| CommandError::Usage(format!("{}: {what}", folder.display()));
        if !set.is_empty() {
            return Err(wrong("this run is over: --set goes with a scene".into()));
        }
        let text = std::fs::read_to_string(folder.join(SUMMARY))
            .map_err(|error| wrong(format!("holds no results of a run: cannot read {SUMMARY}: {error}")))?;
        let measured: Measured = serde_json::from_str(&text)
            .map_err(|error| wrong(format!("{SUMMARY} is not that of a run: {error}")))?;
        if measured.steps == 0 {
            return Err(wrong("the run took no step".into()));
        }
        let scene = Scene::read(&folder.join(SCENE), &[])?;
        Ok(Self::new(folder.display().to_string(), &scene, measured))
    }

    fn of_scene(path: &Path, set: &[String], reach: &Reach, console: &Console) -> Result<Self, CommandError> {
        let scene = Scene::read(path, set)?;
        let (_locals, mut simulation) = start(&scene, reach, console)?;
        let start = std::time::Instant::now();
        while simulation.steps() < STEPS && !simulation.is_finished() && start.elapsed() < TRY {
            simulation.step().map_err(|error| CommandError::Failed(error.to_string()))?;
        }
        let summary = serde_json::to_value(simulation.summary()).and_then(serde_json::from_value);
        let measured = summary.map_err(|error| CommandError::Failed(error.to_string()))?;
        simulation.finish().map_err(|error| CommandError::Failed(error.to_string()))?;
        Ok(Self::new(scene.file().to_string(), &scene, measured))
    }

    fn new(source: String, scene: &Scene, measured: Measured) -> Self {
        let section = |name: &String| {
            let part = scene.participants.iter().find(|part| part.name == *name)?;
            let mut section: Section = toml::from_str(&part.section).ok()?;
            if section.method.is_empty() && part.solver == "fluid" {
                section.method = "sph".into();
            }
            Some(section)
        };
        let sections =
            measured.participants.iter().map(|part| section(&part.name).unwrap_or_default()).collect();
        Self { source, threads: rayon::current_num_threads(), measured, sections }
    }

    /// Number of particles of all participants.
    pub(super) fn particles(&self) -> f64 {
        self.measured.participants.iter().map(|part| part.particles as f64).sum()
    }

    /// Work of each participant in a step, of `factor` times as many particles.
    pub(super) fn loads(&self, factor: f64) -> Vec<Load> {
        let load = |(part, section): (&MeasuredParticipant, &Section)| {
            let work = part.solver_s * self.threads as f64 / self.measured.steps as f64;
            Load {
                name: part.name.clone(),
                particles: factor * part.particles as f64,
                work: factor * work,
                memory: section.memory(),
                halo: section.halo(work / part.particles as f64),
            }
        };
        self.measured.participants.iter().zip(&self.sections).map(load).collect()
    }

    /// The coordinator's part of a step, with `factor` times as many contacts.
    pub(super) fn coordinator(&self, factor: f64) -> Coordinator {
        let Measured {
            steps,
            participants,
            phases_s: Phases { detect, merge, synchronise, split },
            wire,
            ..
        } = &self.measured;
        let bytes: u64 = participants.iter().map(|part| part.bytes_out + part.bytes_in).sum();
        Coordinator {
            work: factor * (detect + merge + synchronise + split) / *steps as f64,
            bytes: factor * bytes as f64 / *steps as f64,
            round_trips: wire.round_trips_mean,
        }
    }
}
