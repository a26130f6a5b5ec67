//! A run: its connected participants, its time and its results.

pub(crate) mod joining;
mod order;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use amalgam_particles::{DVec3, Lattice, MovingSurface, PairFinder, ParticleId, Spheres, random};
use amalgam_proto::contract::{GRIDS_MAX, Integration, Table};
use futures_util::future::join_all;

use crate::contacts::sieve::sieves;
use crate::error::CoordinatorError;
use crate::instruments::Instruments;
use crate::instruments::clocks::{Phase, Spans, Traffic};
use crate::instruments::energy::EnergyAccount;
use crate::instruments::probes::{Probe, ProbeSample};
use crate::instruments::summary::{ParticipantSummary, Profile, Summary, WireSummary};
use crate::member::connection::Connection;
use crate::member::{Member, Part};
use crate::obstacles::Obstacles;
use crate::settings::{CouplingSettings, DomainSettings, ProbeSettings, TimeSettings};
use crate::state::clock::{Clock, Limits};
use crate::state::problem::ContactProblem;
use crate::state::scratch::{Memory, Scratch};
use crate::state::surfaces::Surfaces;
use order::Order;

/// The part of a scene that the coordinator reads.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the scene.
    pub scene: String,
    /// Seed of everything random.
    pub seed: u64,
    /// `[domain]`.
    pub domain: DomainSettings,
    /// `[time]`.
    pub time: TimeSettings,
    /// `[coupling]`.
    pub coupling: CouplingSettings,
    /// `[[probes]]`.
    pub probes: Vec<ProbeSettings>,
}

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
pub struct Simulation {
    pub(crate) io: tokio::runtime::Runtime,
    pub(crate) plan: Plan,
    pub(crate) members: Vec<Member>,
    order: Order,
    /// The grid of surveys.
    pub(crate) lattice: Lattice,
    pub(crate) surfaces: Surfaces,
    pub(crate) obstacles: Obstacles,
    /// Factor of alpha for the contacts of each participant.
    pub(crate) elasticity: Vec<f64>,
    pub(crate) limits: Limits,
    pub(crate) clock: Clock,
    pub(crate) steps: u64,
    pub(crate) state_hash: u64,
    pub(crate) memory: Memory,
    pub(crate) scratch: Scratch,
    /// Contacts of the step under the contact law.
    pub(crate) problem: ContactProblem,
    pub(crate) instruments: Instruments,
    started: Instant,
    /// Wall time before this process took the run over [s].
    pub(crate) wall_before: f64,
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
}

/// Values of a field in a frame.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum FrameField {
    Scalar(Vec<f32>),
    Vector(Vec<[f32; 3]>),
}

/// Refuses rotating bodies without the contact law or of implicit participants, and several projections.
fn check_method(coupling: &CouplingSettings, members: &[Member]) -> Result<(), CoordinatorError> {
    let method = coupling.method.properties();
    let is_refused = |member: &&Member| {
        let is_carried = method.on_surfaces && member.kind == Integration::Explicit;
        member.part.roster.has_bodies() && !is_carried
    };
    if let Some(member) = members.iter().find(is_refused) {
        return Err(CoordinatorError::Scene(format!(
            "participant {} has bodies that turn, which need contacts with friction and an explicit solver: write \
             method = \"contact-law\" under [coupling]",
            member.part.connection.name
        )));
    }
    let projections = members.iter().filter(|member| member.kind == Integration::Projection);
    let projections: Vec<&str> = projections.map(|member| member.part.connection.name.as_str()).collect();
    if let [first, second, ..] = projections[..] {
        return Err(CoordinatorError::Scene(format!(
            "participants {first} and {second} are both pressure projections, whose pressures would make energy where they \
             touch: put both into one participant, or compute one of them by an explicit method"
        )));
    }
    Ok(())
}

/// Refuses obstacles without the contact law, and an obstacle that has the name of a participant.
fn check_obstacles(plan: &Plan, names: &[String]) -> Result<(), CoordinatorError> {
    let Some(first) = plan.domain.obstacles.first() else { return Ok(()) };
    if !plan.coupling.method.properties().on_surfaces {
        return Err(CoordinatorError::Scene(format!(
            "obstacle {} is for the contact law: write method = \"contact-law\" under [coupling]",
            first.name
        )));
    }
    match plan.domain.obstacles.iter().find(|obstacle| names.contains(&obstacle.name)) {
        Some(obstacle) => Err(CoordinatorError::Scene(format!(
            "an obstacle and a participant are both called {}: give each a name of its own",
            obstacle.name
        ))),
        None => Ok(()),
    }
}

impl Simulation {
    /// A run of participants that are connected and initialised, in the order of the members.
    pub(crate) fn new(
        io: tokio::runtime::Runtime,
        plan: Plan,
        order: Order,
        connections: Vec<Connection>,
        tables: Vec<Table>,
    ) -> Result<Self, CoordinatorError> {
        let names: Vec<String> = connections.iter().map(|connection| connection.name.clone()).collect();
        let elasticity =
            connections.iter().map(|connection| f64::from(u8::from(connection.elastic))).collect();
        check_immovable(&names, &tables)?;
        for sieve in sieves(&names, &tables) {
            tracing::warn!("{sieve}");
        }
        let grids: Vec<Lattice> = tables.iter().filter_map(|table| table.occupancy).collect();
        if grids.len() > GRIDS_MAX {
            return Err(CoordinatorError::Scene(format!(
                "{} participants want to know occupied cells, but at most {GRIDS_MAX} can",
                grids.len()
            )));
        }
        let obstacles = Obstacles::new(&plan.domain.obstacles).map_err(CoordinatorError::Scene)?;
        let surfaced = names.iter().chain(plan.domain.obstacles.iter().map(|obstacle| &obstacle.name));
        let surfaces = Surfaces::new(&plan.coupling, &surfaced.cloned().collect::<Vec<_>>(), names.len())?;
        let radii: Vec<f64> =
            tables.iter().flat_map(|table| table.particles.radius.iter().copied()).collect();
        let lattice = Lattice { origin: plan.domain.min, cell_size: cell_size(radii.clone()) };
        let radius_min = radii.into_iter().fold(f64::INFINITY, f64::min).min(f64::MAX);

        let mut tracked = vec![Vec::new(); tables.len()];
        let probes = plan
            .probes
            .iter()
            .map(|settings| Probe::new(settings, &names, &tables, &mut tracked))
            .collect::<Result<Vec<Probe>, CoordinatorError>>()?;
        let parts = connections.into_iter().zip(tables).zip(tracked);
        let members: Vec<Member> = parts
            .map(|((connection, table), tracked)| Member::new(connection, table, &grids, tracked))
            .collect();
        check_method(&plan.coupling, &members)?;
        check_obstacles(&plan, &names)?;
        let energy = EnergyAccount::new(&members, plan.domain.gravity, plan.time.duration);
        let mut this = Self {
            clock: Clock::new(plan.time.clone(), plan.domain.gravity, radius_min),
            io,
            plan,
            members,
            order,
            lattice,
            surfaces,
            obstacles,
            elasticity,
            limits: Limits { stable_dt: f64::INFINITY, radius_rate: 0.0 },
            steps: 0,
            state_hash: 0,
            memory: Memory::default(),
            scratch: Scratch::default(),
            problem: ContactProblem::default(),
            instruments: Instruments::new(probes, energy),
            started: Instant::now(),
            wall_before: 0.0,
        };
        this.learn_limits();
        Ok(this)
    }

    /// Takes over the participants' limits on the length of the next step.
    pub(crate) fn learn_limits(&mut self) {
        let parts = || self.members.iter().map(|member| &member.part);
        let rates = parts().map(|part| part.committed.totals.radius_rate_max);
        self.limits = Limits {
            stable_dt: parts().map(|part| part.stable_dt).fold(f64::INFINITY, f64::min),
            radius_rate: rates.fold(0.0, f64::max),
        };
    }

    /// Masses [kg] of particles of a participant, by its index in the scene; infinite for immovable
    /// particles.
    ///
    /// # Panics
    /// If there is no such participant, or an id is unknown.
    pub fn masses(&self, participant: usize, ids: &[u64]) -> Vec<f64> {
        let ids: Vec<ParticleId> = ids.iter().copied().map(ParticleId).collect();
        let mut masses = Vec::new();
        self.members[self.order.member(participant)].part.roster.masses(&ids, &mut masses);
        masses
    }

    /// Wall time of the run [s].
    pub(crate) fn wall_s(&self) -> f64 {
        self.wall_before + self.started.elapsed().as_secs_f64()
    }

    /// Simulated time [s].
    pub fn time(&self) -> f64 {
        self.clock.time()
    }

    /// Steps taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Longest next step that participants and speeds allow now [s].
    pub fn next_dt(&self) -> f64 {
        self.clock.next_dt(self.limits)
    }

    /// True if the scene's duration has passed.
    pub fn is_finished(&self) -> bool {
        self.clock.is_finished()
    }

    /// Names, programs and particle counts.
    pub fn participants(&self) -> Vec<ParticipantSummary> {
        let summary = |member: &Member| {
            let Part { connection, committed, solver_s, waited_s, .. } = &member.part;
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
        self.order.of_scene(&self.members).map(summary).collect()
    }

    /// All particles with their fields, for output.
    ///
    /// # Errors
    /// If a participant is lost or breaks the contract.
    pub fn frames(&mut self) -> Result<Vec<ParticipantFrame>, CoordinatorError> {
        self.frames_with_surfaces(&|_| false)
    }

    /// All particles with their fields, and the surfaces of the participants for whose names `wanted` is
    /// true, as far as their solvers know surfaces.
    ///
    /// # Errors
    /// As for [`Self::frames`].
    pub fn frames_with_surfaces(
        &mut self,
        wanted: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<ParticipantFrame>, CoordinatorError> {
        let start = Instant::now();
        let calls = self.members.iter_mut().map(|member| {
            let connection = &mut member.part.connection;
            let wanted = wanted(&connection.name);
            connection.frame(wanted)
        });
        let frames = self.io.block_on(join_all(calls)).into_iter().collect::<Result<Vec<_>, _>>()?;
        self.instruments.count_calls(&mut self.members, start);
        let mut result = Vec::new();
        for (member, frame) in self.members.iter().zip(frames) {
            let index = |id: ParticleId| frame.id.binary_search(&id).map(|at| at as u32);
            // A triangle disappears with the first of its particles that dies.
            let triangles = member.triangles.iter().filter_map(|t| {
                let [a, b, c] = t.map(index);
                Some([a.ok()?, b.ok()?, c.ok()?])
            });
            result.push(ParticipantFrame {
                name: member.part.connection.name.clone(),
                triangles: triangles.collect(),
                surface: frame.surface,
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
        Ok(self.order.scene_order(result))
    }

    /// Counts the time since `start` for a phase outside of the coordinator, such as files.
    pub fn count(&mut self, phase: Phase, start: Instant) {
        self.instruments.count(phase, start, 0.0);
    }

    /// Subtracts `seconds`, in which the run was held, from its wall time.
    pub fn leave_out(&mut self, seconds: f64) {
        self.wall_before -= seconds;
    }

    /// Keeps phases and calls from now on, for [`Self::take_spans`].
    pub fn observe(&mut self) {
        self.instruments.observe();
    }

    /// The phases and calls since the last call of this function; none without [`Self::observe`].
    pub fn take_spans(&mut self) -> Spans {
        let mut spans = self.instruments.take_spans();
        spans.calls.iter_mut().for_each(|call| call.participant = self.order.participant(call.participant));
        spans
    }

    /// Wall time by phase [s].
    pub fn profile(&self) -> &Profile {
        &self.instruments.profile
    }

    /// Time and bytes of each participant, in the scene's order.
    pub fn traffic(&self) -> impl Iterator<Item = Traffic<'_>> {
        self.order.of_scene(&self.members).map(|member| {
            let Part { connection, solver_s, waited_s, .. } = &member.part;
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
        let wire = self.members.iter().map(|member| member.part.connection.wire);
        let names = self.members.iter().map(|member| member.part.connection.name.clone());
        let mut energy = self.instruments.energy.summary(names);
        energy.participants = self.order.scene_order(energy.participants);
        Summary {
            scene: self.plan.scene.clone(),
            steps: self.steps,
            simulated_s: self.clock.time(),
            wall_s: self.wall_s(),
            participants: self.participants(),
            phases_s: self.instruments.profile.clone(),
            stages: statistics.stages(),
            contacts: statistics.contacts(),
            wire: WireSummary {
                bytes_out: wire.clone().map(|w| w.out).sum(),
                bytes_in: wire.clone().map(|w| w.received).sum(),
                occupancy_bytes_mean: wire.map(|w| w.occupancy).sum::<u64>() as f64
                    / self.steps.max(1) as f64,
                round_trips_mean: statistics.round_trips_mean(),
            },
            coupling: statistics.coupling(),
            energy,
            speed_max: statistics.speed_max(),
            probes: self.instruments.extremes(),
            state_hash: format!("{:016x}", self.state_hash),
        }
    }

    /// Ends the run in all participants and closes the connections. A service that is about to end waits
    /// until they are closed.
    ///
    /// # Errors
    /// The error of the first participant that does not answer.
    pub fn finish(mut self) -> Result<(), CoordinatorError> {
        let calls = self.members.iter_mut().map(|member| member.part.connection.shutdown());
        self.io.block_on(join_all(calls)).into_iter().collect()
    }
}

/// Joins the participants' hashes, in order, into one.
pub(crate) fn joint_hash(hashes: impl Iterator<Item = u64>) -> u64 {
    hashes.fold(0, |joint, hash| random::mix(joint ^ hash))
}

/// Edge of the cells of surveys [m]: four times the median radius, but so large that no particle spans more
/// than 17 cells.
fn cell_size(mut radii: Vec<f64>) -> f64 {
    if radii.is_empty() {
        return 1.0;
    }
    let middle = radii.len() / 2;
    let median = *radii.select_nth_unstable_by(middle, f64::total_cmp).1;
    let largest = radii.iter().copied().fold(0.0, f64::max);
    (4.0 * median).max(largest / 8.0)
}

/// Refuses immovable particles of different participants that overlap, since they can never be parted. Each
/// participant checks its own particles itself.
fn check_immovable(names: &[String], tables: &[Table]) -> Result<(), CoordinatorError> {
    let (mut class, mut place) = (Vec::new(), Vec::new());
    let (mut position, mut radius) = (Vec::new(), Vec::new());
    for (k, Table { particles, .. }) in tables.iter().enumerate() {
        for i in (0..particles.len()).filter(|&i| particles.immovable[i]) {
            class.push(k as u16);
            place.push(i);
            position.push(particles.position[i]);
            radius.push(particles.radius[i]);
        }
    }
    let spheres = Spheres { position: &position, radius: &radius, class: Some(&class) };
    match PairFinder::new().find(spheres, |_, _| true).first() {
        None => Ok(()),
        Some(&(i, j)) => {
            let (i, j) = (i as usize, j as usize);
            let name = |i: usize| names[usize::from(class[i])].clone();
            let id = |i: usize| tables[usize::from(class[i])].particles.id[place[i]].0;
            Err(CoordinatorError::ImmovableOverlap {
                participant_a: name(i),
                a: id(i),
                participant_b: name(j),
                b: id(j),
                distance: position[i].distance(position[j]),
                radius_a: radius[i],
                radius_b: radius[j],
            })
        }
    }
}
