//! A run: its connected participants, its time and its results.

pub(crate) mod joining;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use amalgam_particles::{DVec3, Lattice, MovingSurface, Obstacle, ParticleId, random};
use amalgam_proto::contract::{FrameFiles, GRIDS_MAX, Table};
use futures_util::future::join_all;

use crate::contacts::sieve::sieves;
use crate::error::CoordinatorError;
use crate::instruments::Instruments;
use crate::instruments::clocks::{Phase, Spans, Traffic};
use crate::instruments::energy::EnergyAccount;
use crate::instruments::probes::{Probe, ProbeSample};
use crate::instruments::summary::{ParticipantSummary, Profile, Summary, WireSummary};
use crate::participant::connection::Connection;
use crate::participant::{Part, Participant};
use crate::settings::ChosenMethod;
use crate::state::clock::{Clock, Limits};
use crate::state::memory::Memory;
use crate::state::order::Order;
use crate::state::progress::Progress;
use crate::state::scratch::Scratch;
use crate::state::setup::{Plan, Setup};

/// A flag that ends waiting for connections.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the flag, for all clones.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// True if the flag is set.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Largest number of participants of a run.
pub const PARTICIPANTS_MAX: usize = 1024;

/// A running scene.
///
/// | field | lives for | changed by |
/// | --- | --- | --- |
/// | `setup` | the run | nothing |
/// | `io`, `participants` | the run | calls and their answers: `begin`, `synchronise` or `contact`, `commit` |
/// | `progress` | the run | `commit`, `end_step` |
/// | `memory` | the run; a checkpoint holds only its guesses | see `state/memory.rs` |
/// | `scratch` | a step | see `state/scratch.rs` |
/// | `instruments` | the run | every phase, which counts its time and its calls |
pub struct Simulation {
    pub(crate) setup: Setup,
    /// The thread that waits for answers does the input and output.
    pub(crate) io: tokio::runtime::Runtime,
    pub(crate) participants: Vec<Participant>,
    pub(crate) progress: Progress,
    pub(crate) memory: Memory,
    pub(crate) scratch: Scratch,
    pub(crate) instruments: Instruments,
}

/// A participant's particles for output, ascending by id.
#[derive(Clone, Debug)]
pub struct ParticipantFrame {
    /// Name in the scene.
    pub name: String,
    /// Ids.
    pub id: Vec<u64>,
    /// Positions [m].
    pub positions: Vec<DVec3>,
    /// Velocities [m/s].
    pub velocities: Vec<DVec3>,
    /// Collision radii [m].
    pub radius: Vec<f64>,
    /// Meta-particle in the last step, or `u32::MAX`.
    pub group: Vec<u32>,
    /// The solver's own fields.
    pub fields: Vec<(String, FrameField)>,
    /// Triangles between particles, as indices into the columns.
    pub triangles: Vec<[u32; 3]>,
    /// The surface that the solver knows, if it was wanted.
    pub surface: Option<MovingSurface>,
    /// The number of files that the solver has written, if files were offered: then all columns are empty,
    /// and `fields` has only their names and kinds. 0 if the particles are here.
    pub parts: u32,
}

/// Wishes for a participant's frame.
#[derive(Clone, Debug, Default)]
pub struct FrameWish {
    /// True if the surface is wanted, if the solver knows one.
    pub surface: bool,
    /// Files that the solver may write instead of sending its particles. Nothing for a participant with triangles,
    /// which is always here.
    pub files: Option<FrameFiles>,
}

/// Values of a field in a frame.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum FrameField {
    Scalar(Vec<f32>),
    Vector(Vec<[f32; 3]>),
}

impl Simulation {
    /// A run of participants that are connected and initialised, in the run's order.
    pub(crate) fn new(
        io: tokio::runtime::Runtime,
        plan: Plan,
        chosen: ChosenMethod,
        order: Order,
        obstacles: &[Obstacle],
        (connections, tables): (Vec<Connection>, Vec<Table>),
    ) -> Result<Self, CoordinatorError> {
        let names: Vec<String> = connections.iter().map(|connection| connection.name.clone()).collect();
        let setup = Setup::new(plan, chosen, order, obstacles, (&connections, &tables))?;
        for sieve in sieves(&names, &tables, |k| setup.meshes[k].is_some()) {
            tracing::warn!("{sieve}");
        }
        let grids: Vec<Lattice> = tables.iter().filter_map(|table| table.occupancy).collect();
        if grids.len() > GRIDS_MAX {
            return Err(CoordinatorError::Scene(format!(
                "{} participants want to know occupied cells, but at most {GRIDS_MAX} can",
                grids.len()
            )));
        }
        let radii = tables.iter().flat_map(|table| table.radii().map(|(radius, _)| radius));
        let radius_min = radii.fold(f64::MAX, f64::min);
        let Plan { time, domain, probes, .. } = &setup.plan;
        let mut tracked = vec![Vec::new(); tables.len()];
        let probes = probes
            .iter()
            .map(|settings| Probe::new((settings, probes), &names, &tables, &mut tracked))
            .collect::<Result<Vec<Probe>, CoordinatorError>>()?;
        let is_brief: Vec<bool> = tables.iter().map(|table| table.brief.is_some()).collect();
        let asks_once = setup.chosen.method.properties().asks_once;
        let parts = connections.into_iter().zip(tables).zip(tracked);
        let mut participants: Vec<Participant> = parts
            .map(|((connection, table), tracked)| {
                Participant::new(connection, table, (&grids, asks_once), tracked)
            })
            .collect();
        setup.check(&participants)?;
        let brief = participants.iter_mut().zip(is_brief).filter(|&(_, is_brief)| is_brief);
        let asked = brief.map(|(participant, _)| participant.part.ask_for_cells(&grids));
        io.block_on(join_all(asked)).into_iter().collect::<Result<(), CoordinatorError>>()?;
        let energy = EnergyAccount::new(&participants, domain.gravity, time.duration);
        Ok(Self {
            progress: Progress::new(Clock::new(time.clone(), domain.gravity, radius_min)),
            setup,
            io,
            participants,
            memory: Memory::default(),
            scratch: Scratch::default(),
            instruments: Instruments::new(probes, energy),
        })
    }

    /// The participants' limits on the length of the next step.
    pub(crate) fn limits(&self) -> Limits {
        let parts = || self.participants.iter().map(|participant| &participant.part);
        let rates = parts().map(|part| part.committed.totals.radius_rate_max);
        Limits {
            stable_dt: parts().map(|part| part.stable_dt).fold(f64::INFINITY, f64::min),
            radius_rate: rates.fold(0.0, f64::max),
        }
    }

    /// Masses [kg] of particles of a participant, by its index in the scene; infinite for immovable
    /// particles.
    ///
    /// # Panics
    /// If there is no such participant, or an id is unknown.
    pub fn masses(&self, participant: usize, ids: &[u64]) -> Vec<f64> {
        let ids: Vec<ParticleId> = ids.iter().copied().map(ParticleId).collect();
        let mut masses = Vec::new();
        self.participants[self.setup.order.in_run(participant)].part.roster.masses(&ids, &mut masses);
        masses
    }

    /// Simulated time [s].
    pub fn time(&self) -> f64 {
        self.progress.clock.time()
    }

    /// Steps taken.
    pub fn steps(&self) -> u64 {
        self.progress.steps
    }

    /// Longest next step that participants and speeds allow now [s].
    pub fn next_dt(&self) -> f64 {
        self.progress.clock.next_dt(self.limits())
    }

    /// True if the scene's duration has passed.
    pub fn is_finished(&self) -> bool {
        self.progress.clock.is_finished()
    }

    /// Name of the method of contact, and a clause that says why the run has it.
    pub fn method(&self) -> (String, &str) {
        let chosen = &self.setup.chosen;
        (chosen.method.to_string(), &chosen.reason)
    }

    /// Names, programs and particle counts.
    pub fn participants(&self) -> Vec<ParticipantSummary> {
        let summary = |participant: &Participant| {
            let Part { connection, committed, solver_s, waited_s, .. } = &participant.part;
            ParticipantSummary {
                name: connection.name.clone(),
                solver: connection.description.name.clone(),
                version: connection.description.version.clone(),
                particles: committed.particles,
                solver_s: *solver_s,
                waited_s: *waited_s,
                bytes_out: connection.wire.out,
                bytes_in: connection.wire.received,
            }
        };
        self.setup.order.of_scene(&self.participants).map(summary).collect()
    }

    /// All particles with their fields, for output.
    ///
    /// # Errors
    /// If a participant is lost or breaks the contract.
    pub fn frames(&mut self) -> Result<Vec<ParticipantFrame>, CoordinatorError> {
        self.frames_as(&|_| FrameWish::default())
    }

    /// All particles with their fields, as they are wished for each participant by its name.
    ///
    /// # Errors
    /// As for [`Self::frames`].
    pub fn frames_as(
        &mut self,
        wished: &dyn Fn(&str) -> FrameWish,
    ) -> Result<Vec<ParticipantFrame>, CoordinatorError> {
        let start = Instant::now();
        let calls = self.participants.iter_mut().map(|participant| {
            let connection = &mut participant.part.connection;
            let FrameWish { surface, files } = wished(&connection.name);
            connection.frame(surface, files.filter(|_| participant.triangles.is_empty()))
        });
        let frames = self.io.block_on(join_all(calls)).into_iter().collect::<Result<Vec<_>, _>>()?;
        self.instruments.count_calls(&mut self.participants, start);
        let mut result = Vec::new();
        for (participant, frame) in self.participants.iter().zip(frames) {
            let index = |id: ParticleId| frame.id.binary_search(&id).map(|at| at as u32);
            // A triangle disappears with the first of its particles that dies.
            let triangles = participant.triangles.iter().filter_map(|t| {
                let [a, b, c] = t.map(index);
                Some([a.ok()?, b.ok()?, c.ok()?])
            });
            result.push(ParticipantFrame {
                name: participant.part.connection.name.clone(),
                triangles: triangles.collect(),
                surface: frame.surface,
                parts: frame.written.map_or(0, |written| written.parts),
                id: frame.id.iter().map(|id| id.0).collect(),
                positions: frame.position,
                velocities: frame.velocity,
                radius: frame.radius,
                group: frame.group,
                fields: frame
                    .fields
                    .into_iter()
                    .map(|(name, components, values)| match components {
                        3 => (
                            name,
                            FrameField::Vector(values.chunks_exact(3).map(|v| [v[0], v[1], v[2]]).collect()),
                        ),
                        _ => (name, FrameField::Scalar(values)),
                    })
                    .collect(),
            });
        }
        self.instruments.count(Phase::Frames, start, 0.0);
        Ok(self.setup.order.scene_order(result))
    }

    /// Counts the time since `start` for a phase outside of the coordinator, such as files.
    pub fn count(&mut self, phase: Phase, start: Instant) {
        self.instruments.count(phase, start, 0.0);
    }

    /// Subtracts `seconds`, in which the run was held, from its wall time.
    pub fn leave_out(&mut self, seconds: f64) {
        self.progress.leave_out(seconds);
    }

    /// Keeps phases and calls from now on, for [`Self::take_spans`].
    pub fn observe(&mut self) {
        self.instruments.observe();
    }

    /// The phases and calls since the last call of this function; none without [`Self::observe`].
    pub fn take_spans(&mut self) -> Spans {
        let mut spans = self.instruments.take_spans();
        spans
            .calls
            .iter_mut()
            .for_each(|call| call.participant = self.setup.order.in_scene(call.participant));
        spans
    }

    /// Wall time by phase [s].
    pub fn profile(&self) -> &Profile {
        &self.instruments.profile
    }

    /// Time and bytes of each participant, in the scene's order.
    pub fn traffic(&self) -> impl Iterator<Item = Traffic<'_>> {
        self.setup.order.of_scene(&self.participants).map(|participant| {
            let Part { connection, solver_s, waited_s, .. } = &participant.part;
            let (bytes_out, bytes_in) = (connection.wire.out, connection.wire.received);
            let (solver_s, waited_s) = (*solver_s, *waited_s);
            Traffic { name: &connection.name, waited_s, solver_s, bytes_out, bytes_in }
        })
    }

    /// Samples of the probes in the last step.
    pub fn probes(&self) -> &[ProbeSample] {
        self.instruments.samples()
    }

    /// The run so far, as `summary.json` has it.
    pub fn summary(&self) -> Summary {
        let statistics = &self.instruments.statistics;
        let wire = self.participants.iter().map(|participant| participant.part.connection.wire);
        let names = self.participants.iter().map(|participant| participant.part.connection.name.clone());
        let mut energy = self.instruments.energy.summary(names);
        energy.participants = self.setup.order.scene_order(energy.participants);
        Summary {
            scene: self.setup.plan.scene.clone(),
            steps: self.progress.steps,
            simulated_s: self.progress.clock.time(),
            wall_s: self.progress.wall_s(),
            participants: self.participants(),
            phases_s: self.instruments.profile.clone(),
            stages: statistics.stages(),
            contacts: statistics.contacts(),
            wire: WireSummary {
                bytes_out: wire.clone().map(|w| w.out).sum(),
                bytes_in: wire.clone().map(|w| w.received).sum(),
                occupancy_bytes_mean: wire.map(|w| w.occupancy).sum::<u64>() as f64
                    / self.progress.steps.max(1) as f64,
                round_trips_mean: statistics.round_trips_mean(),
            },
            coupling: statistics.coupling(&self.setup.chosen),
            energy,
            speed_max: statistics.speed_max(),
            probes: self.instruments.extremes(),
            state_hash: format!("{:016x}", self.progress.state_hash),
        }
    }

    /// Ends the run in all participants and closes the connections. A service that is about to end waits
    /// until they are closed.
    ///
    /// # Errors
    /// The error of the first participant that does not answer.
    pub fn finish(mut self) -> Result<(), CoordinatorError> {
        let calls = self.participants.iter_mut().map(|participant| participant.part.connection.shutdown());
        self.io.block_on(join_all(calls)).into_iter().collect()
    }
}

/// Joins the participants' hashes, in order, into one.
pub(crate) fn joint_hash(hashes: impl Iterator<Item = u64>) -> u64 {
    hashes.fold(0, |joint, hash| random::mix(joint ^ hash))
}
