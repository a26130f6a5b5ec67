//! The participants of a run, as the coordinator sees them.

pub(crate) mod address;
pub(crate) mod connection;
pub(crate) mod roster;

use amalgam_particles::{CellSet, DVec3, Lattice, ParticleId, Particles, Reach, random};
use amalgam_proto::contract::{Brief, Committed, Integration, Survey, Table, Totals};

use crate::error::CoordinatorError;
use connection::{Connection, WireBytes};
use roster::Roster;
use serde::{Deserialize, Serialize};

/// A participant of the run.
pub(crate) struct Participant {
    pub(crate) kind: Integration,
    /// Triangles between its particles, as they were at the start.
    pub(crate) triangles: Vec<[ParticleId; 3]>,
    /// Grid on which the participant wants to know the cells that particles of any participant occupy.
    pub(crate) occupancy: Option<Lattice>,
    /// Hash of the particle table at the start, which a checkpoint must have, too.
    pub(crate) start_hash: u64,
    pub(crate) part: Part,
}

/// Particles of a participant and the connection to its service. A solver that runs on several processes
/// answers through one service.
pub(crate) struct Part {
    pub(crate) connection: Connection,
    pub(crate) roster: Roster,
    /// Cells that its particles occupy, on each grid that some participant asks about.
    pub(crate) cells: Vec<CellSet>,
    /// Its answer to the last Commit.
    pub(crate) committed: Committed,
    /// Particles whose position a probe wants, ascending.
    pub(crate) tracked: Vec<ParticleId>,
    /// Longest next step of its solver [s].
    pub(crate) stable_dt: f64,
    /// The longest step as a multiple of the step that its answers name.
    pub(crate) substeps: f64,
    /// Wall time in which its solver has computed [s].
    pub(crate) solver_s: f64,
    /// Wall time that was spent on waiting for it [s].
    pub(crate) waited_s: f64,
}

/// State of a participant between two steps, for a checkpoint.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PartState {
    roster: Roster,
    cells: Vec<CellSet>,
    speed_max: f64,
    radius_rate_max: f64,
    tracked: Vec<ParticleId>,
    stable_dt: f64,
    solver_s: f64,
    /// Wall time spent on waiting [s]; absent from older checkpoints.
    #[serde(default)]
    waited_s: f64,
    wire: WireBytes,
}

impl PartState {
    /// Number of its particles.
    pub(crate) fn particles(&self) -> u64 {
        self.roster.len()
    }
}

impl Part {
    /// State for a checkpoint, in addition to the participant's own snapshot.
    pub(crate) fn state(&self) -> PartState {
        let Self { connection, roster, cells, committed, tracked, stable_dt, solver_s, waited_s, .. } = self;
        PartState {
            roster: roster.clone(),
            cells: cells.clone(),
            speed_max: committed.totals.speed_max,
            radius_rate_max: committed.totals.radius_rate_max,
            tracked: tracked.clone(),
            stable_dt: *stable_dt,
            solver_s: *solver_s,
            waited_s: *waited_s,
            wire: connection.wire,
        }
    }

    /// Goes on from a checkpoint.
    pub(crate) fn go_on(&mut self, state: PartState) {
        let PartState { roster, cells, speed_max, radius_rate_max, .. } = state;
        let PartState { tracked, stable_dt, solver_s, waited_s, wire, .. } = state;
        let totals = Totals { speed_max, radius_rate_max, ..Totals::default() };
        self.committed = Committed { particles: roster.len(), totals, ..Committed::default() };
        self.roster = roster.with_bodies_of(&mut self.roster);
        (self.cells, self.tracked) = (cells, tracked);
        (self.stable_dt, self.solver_s, self.waited_s) = (stable_dt, solver_s, waited_s);
        self.connection.go_on(wire);
    }
}

impl Part {
    /// Asks which cells of the grids hold centres of particles.
    pub(crate) async fn ask_for_cells(&mut self, grids: &[Lattice]) -> Result<(), CoordinatorError> {
        let Self { connection, roster, cells, .. } = self;
        cells.clear();
        for &lattice in grids {
            let call = Survey { context: connection.context(), lattice, margin: 0.0, centres: true };
            cells.push(connection.survey(&call, roster.len()).await?);
        }
        Ok(())
    }
}

impl Participant {
    /// A participant at the start of a run. `grids` are all grids that some participant asks about. Of a participant
    /// that was brief the coordinator must still ask which of their cells it occupies. `asks_once` is true if explicit
    /// participants integrate once in a step.
    pub(crate) fn new(
        connection: Connection,
        table: Table,
        (grids, asks_once): (&[Lattice], bool),
        tracked: Vec<ParticleId>,
    ) -> Self {
        let Particles { position, velocity, radius, .. } = &table.particles;
        let occupied = |grid: &Lattice| grid.occupied(position, radius, Reach::Centre);
        let (speed_max, radius_rate_max) = match &table.brief {
            Some(brief) => (brief.speed_max, brief.speed_max / brief.radius),
            None => (
                velocity.iter().map(|v| v.length()).fold(0.0, f64::max),
                velocity.iter().zip(radius).map(|(v, r)| v.length() / r).fold(0.0, f64::max),
            ),
        };
        let committed = Committed {
            particles: table.count(),
            totals: Totals { speed_max, radius_rate_max, ..Totals::default() },
            ..Committed::default()
        };
        let start_hash = hash(&table);
        let kind = table.integration.unwrap_or(connection.description.integration);
        let roster = Roster::new(&table).with_bodies(&table.particles, table.bodies);
        let cells = grids.iter().map(occupied).collect();
        let is_once = asks_once && kind == Integration::Explicit;
        let substeps = f64::from(if is_once { table.substeps_once.max(1) } else { 1 });
        let (stable_dt, solver_s, waited_s) = (substeps * table.stable_dt, 0.0, 0.0);
        let part =
            Part { connection, roster, cells, committed, tracked, stable_dt, substeps, solver_s, waited_s };
        Self { kind, triangles: table.triangles, occupancy: table.occupancy, start_hash, part }
    }
}

/// Hash of all values of a particle table, in their order, or of what stands for them.
fn hash(table: &Table) -> u64 {
    let Table { particles, triangles, bodies, brief, .. } = table;
    if let Some(Brief { count, mass, radius, state_hash, .. }) = brief {
        return [mass.to_bits(), radius.to_bits(), *state_hash]
            .iter()
            .fold(*count, |hash, word| random::mix(hash ^ word));
    }
    let Particles { id, position, velocity, mass, radius, immovable } = particles;
    let ids = [id, triangles.as_flattened(), bodies.as_deref().unwrap_or_default()];
    let vectors = [position, velocity].into_iter().flatten().flat_map(DVec3::to_array);
    let numbers = vectors.chain([mass, radius].into_iter().flatten().copied()).map(f64::to_bits);
    let words = ids.into_iter().flatten().map(|id| id.0).chain(numbers);
    words
        .chain(immovable.iter().copied().map(u64::from))
        .fold(id.len() as u64, |hash, word| random::mix(hash ^ word))
}
