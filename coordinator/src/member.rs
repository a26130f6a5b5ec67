//! The participants of a run, as the coordinator sees them.

pub(crate) mod connection;
pub(crate) mod roster;

use amalgam_particles::{CellSet, Lattice, ParticleId, Particles, Reach};
use amalgam_proto::contract::{Committed, Integration, Table, Totals};

use connection::Connection;
use roster::Roster;

/// A participant of the run.
pub(crate) struct Member {
    pub(crate) kind: Integration,
    /// Triangles between its particles, as they were at the start.
    pub(crate) triangles: Vec<[ParticleId; 3]>,
    /// The grid on which it wants to know what anyone occupies.
    pub(crate) occupancy: Option<Lattice>,
    pub(crate) part: Part,
}

/// The particles of a participant that one service computes, and the connection to it: all of them. A solver that runs
/// on several processes answers by one of these.
pub(crate) struct Part {
    pub(crate) connection: Connection,
    pub(crate) roster: Roster,
    /// The cells that its particles occupy, on each grid that some participant wants to know about.
    pub(crate) cells: Vec<CellSet>,
    /// Its answer at the end of the last step.
    pub(crate) committed: Committed,
    /// Particles whose position a probe wants, ascending.
    pub(crate) tracked: Vec<ParticleId>,
    /// Longest next step of its solver [s].
    pub(crate) stable_dt: f64,
    /// Wall time in which its solver has computed [s].
    pub(crate) solver_s: f64,
}

impl Member {
    /// A participant at the start of a run. `grids` are those on which some participant wants to know what anyone
    /// occupies.
    pub(crate) fn new(
        connection: Connection,
        table: Table,
        grids: &[Lattice],
        tracked: Vec<ParticleId>,
    ) -> Self {
        let Particles { position, velocity, radius, .. } = &table.particles;
        let occupied = |grid: &Lattice| grid.occupied(position, radius, Reach::Centre);
        let speed_max = velocity.iter().map(|v| v.length()).fold(0.0, f64::max);
        let radius_rate_max = velocity.iter().zip(radius).map(|(v, r)| v.length() / r).fold(0.0, f64::max);
        let committed = Committed {
            particles: table.particles.len() as u64,
            totals: Totals { speed_max, radius_rate_max, ..Totals::default() },
            ..Committed::default()
        };
        let kind = table.integration.unwrap_or(connection.description.integration);
        let roster = Roster::new(&table.particles).with_bodies(&table.particles, table.bodies);
        let cells = grids.iter().map(occupied).collect();
        let part =
            Part { connection, roster, cells, committed, tracked, stable_dt: table.stable_dt, solver_s: 0.0 };
        Self { kind, triangles: table.triangles, occupancy: table.occupancy, part }
    }
}
