//! The calls of the contract as plain values.

use std::path::{Path, PathBuf};

use amalgam_particles::{
    Body, CellSet, ContactLookAhead, DMat3, DVec3, Lattice, MovingSurface, ParticleId, Particles,
};

use crate::columns::room::{Known, Room};
use crate::columns::{Columns, Packet, WireError};

mod convert;
mod convert_obstacle;
mod convert_step;
mod values;

pub use crate::columns::room::{CELL_COLUMNS, GRIDS_MAX};
pub use convert_obstacle::{obstacle_from_wire, obstacle_to_wire};
pub use values::{
    DT_RANGE, NAME_BYTES_MAX, SLOPE_LIMIT, SUM_LIMIT, check_name, vec3_from_wire, vec3_to_wire,
};

/// A call or an answer that travels as a stream of packets.
pub trait Call: Sized {
    /// Its message type.
    type Packet: Packet;

    /// Room for the columns that may follow a header.
    ///
    /// # Errors
    /// Counts that are impossible.
    fn room(header: &<Self::Packet as Packet>::Header, known: &Known) -> Result<Room, WireError>;

    /// Header and columns to send.
    fn encode(self) -> (<Self::Packet as Packet>::Header, Columns);

    /// Checks and reads what arrived.
    ///
    /// # Errors
    /// The first rule of the contract that the message breaks.
    fn decode(header: <Self::Packet as Packet>::Header, columns: Columns) -> Result<Self, WireError>;

    /// The messages to send.
    fn into_packets(self) -> Vec<Self::Packet> {
        let (header, columns) = self.encode();
        columns.into_packets(header)
    }
}

/// Run and step to which a call belongs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The run, as given at Initialize.
    pub run_id: String,
    /// Grows with each restart of the run.
    pub epoch: u64,
    /// Step, from 0.
    pub step: u64,
}

/// Dependence of a solver's answer on the impulses of others. It decides when in a stage the solver is asked
/// (`docs/theory/coupling.md`, "Synchronising").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integration {
    /// The momentum given to a group does not depend on the group's inertia or impulse (slope 0). Asked
    /// first.
    Explicit,
    /// Implicit, and reports the slope of its answer: implicit solids. Asked with the explicit impulses.
    Implicit,
    /// Implicit without a slope of its own: pressure projections. Asked last, against the others' linearised
    /// answer.
    Projection,
}

/// Description of a program: the answer to Describe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Name of the program, for example `solid`.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// Integration of the solver, unless a [`Table`] states another one.
    pub integration: Integration,
    /// True if the program wants to be told of the scene's obstacles.
    pub wants_obstacles: bool,
}

/// A participant at the start: the answer to Initialize.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The particles at the start; none if `brief` stands for them.
    pub particles: Particles,
    /// An account of the particles in place of a row for each.
    pub brief: Option<Brief>,
    /// Longest first step [s], perhaps infinite.
    pub stable_dt: f64,
    /// Grid for which the solver asks which cells particles of any participant occupy.
    pub occupancy: Option<Lattice>,
    /// Triangles between particles.
    pub triangles: Vec<[ParticleId; 3]>,
    /// Integration of this section, if it differs from the program's [`Description`].
    pub integration: Option<Integration>,
    /// The body that each particle belongs to, named by one of its particles; absent if particles do not
    /// turn. With `brief` it is empty if they do, each as a body of its own.
    pub bodies: Option<Vec<ParticleId>>,
    /// True if the solver keeps its particles off the scene's obstacles, without friction.
    pub keeps_off_obstacles: bool,
    /// Steps of `stable_dt` that a step may hold if the solver integrates once in it: it takes them as sub-steps.
    /// 0 and 1: none. For explicit participants.
    pub substeps_once: u32,
}

impl Table {
    /// The number of particles.
    pub fn count(&self) -> u64 {
        self.brief.as_ref().map_or(self.particles.len() as u64, |brief| brief.count)
    }

    /// Radii of particles [m], each with the number of particles that have it. A radius may stand there several
    /// times.
    pub fn radii(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let alike = self.brief.iter().map(|brief| (brief.radius, brief.count));
        alike.chain(self.particles.radius.iter().map(|&radius| (radius, 1)))
    }
}

/// Particles at the start that are alike: movable, with ids from 0 on, no corners of triangles, and in no bodies that
/// turn or each a body of its own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Brief {
    /// The number of particles; not 0.
    pub count: u64,
    /// Mass of each [kg].
    pub mass: f64,
    /// Collision radius of each [m].
    pub radius: f64,
    /// Largest speed [m/s].
    pub speed_max: f64,
    /// Hash of ids, positions and velocities.
    pub state_hash: u64,
    /// The nearest particle to each point that the coordinator named, and its position [m].
    pub nearest: Vec<(ParticleId, DVec3)>,
}

/// Asks where a participant's particles are; the answer is the set of cells.
#[derive(Clone, Debug)]
pub struct Survey {
    /// Run and step.
    pub context: Context,
    /// The cells.
    pub lattice: Lattice,
    /// Part of its radius by which a collision sphere counts as larger.
    pub margin: f64,
    /// True if the cells are wanted that hold centres, whatever the margin.
    pub centres: bool,
}

/// Cells that collision spheres touch: the answer to [`Survey`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surveyed(pub CellSet);

/// Selection of the particles wanted at the start of a step.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// All.
    All,
    /// Particles whose collision spheres may touch some cells.
    Near {
        /// The lattice of the cells.
        lattice: Lattice,
        /// The cells.
        cells: CellSet,
        /// Part of its radius by which a sphere counts as larger.
        margin: f64,
    },
    /// These particles, none twice.
    Listed(Vec<ParticleId>),
    /// Particles of the last list again, without any that died.
    Again,
}

/// Questions of the coordinator at the start of a step.
#[derive(Clone, Debug)]
pub struct Interest {
    /// Particles that are wanted.
    pub wanted: Wanted,
    /// True if all corners of triangles with a wanted corner are wanted too.
    pub triangles: bool,
    /// Time ahead for which pairs of own particles count as contacts.
    pub look_ahead: ContactLookAhead,
}

/// Starts a step.
#[derive(Clone, Debug)]
pub struct Begin {
    /// Run and step.
    pub context: Context,
    /// Particles and contacts that are wanted.
    pub interest: Interest,
}

/// The particles wanted and those in contact with their own kind, committed state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Ids, none twice; absent if they are those of the last batch, in its order.
    pub id: Option<Vec<ParticleId>>,
    /// Positions [m].
    pub position: Vec<DVec3>,
    /// Velocities [m/s].
    pub velocity: Vec<DVec3>,
    /// Pairs of these particles that intersect, or may within the look-ahead time, and may collide: places
    /// `[i, j]` in the columns, `i < j`, ascending.
    pub contacts: Vec<[u32; 2]>,
}

/// The groups of a stage, as far as they are a participant's own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Groups {
    /// Members of each group, at least one.
    pub size: Vec<u32>,
    /// Members, group after group, none twice.
    pub member: Vec<ParticleId>,
    /// Velocity of each group at the start of the step [m/s].
    pub velocity: Vec<DVec3>,
    /// Free particles whose velocities are wanted, none twice.
    pub watch: Vec<ParticleId>,
    /// Cells that particles of any participant occupy, on the solver's own grid.
    pub occupied: Option<CellSet>,
}

/// Asks for a tentative integration.
#[derive(Clone, Debug, PartialEq)]
pub struct Integrate {
    /// Run and step.
    pub context: Context,
    /// Stage, from 1.
    pub stage: u32,
    /// Repetition, from 0.
    pub repetition: u32,
    /// Length of the step [s].
    pub dt: f64,
    /// The part of their first residual that iterations may leave, 0 for an answer that may be committed.
    pub forcing: f64,
    /// The groups; absent in a repetition, where those of repetition 0 hold.
    pub groups: Option<Groups>,
    /// Inertia of each group [kg], infinite for a prescribed velocity; absent in a repetition, where those of
    /// the last call hold.
    pub inertia: Option<Vec<f64>>,
    /// External impulse of each group [kg m/s].
    pub impulse: Vec<DVec3>,
}

/// The answer to [`Integrate`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Integrated {
    /// Momentum given to each group [kg m/s].
    pub momentum: Vec<DVec3>,
    /// Slope of each group [kg]: symmetric, positive semidefinite. Empty if all are zero
    /// ([`Self::slope_of`]); absent in a repetition, where those of the last answer hold.
    pub slope: Option<Vec<DMat3>>,
    /// Velocities with which the watched particles move [m/s].
    pub watch_velocity: Vec<DVec3>,
    /// Largest |v| dt / radius over free particles, or a bound of that which is below 1.
    pub travel_max: f64,
    /// The groups as bodies, if they are.
    pub bodies: Option<Vec<Body>>,
}

/// Ends a step.
#[derive(Clone, Debug)]
pub struct Commit {
    /// Run and step.
    pub context: Context,
    /// The last stage.
    pub stage: u32,
    /// Its last repetition.
    pub repetition: u32,
    /// True if the answer must hold a hash of the state.
    pub want_state_hash: bool,
    /// Grids of which the cells that hold centres of particles are wanted.
    pub grids: Vec<Lattice>,
    /// Synchronised velocity of each group [m/s].
    pub group_velocity: Vec<DVec3>,
    /// Number of each group in the coordinator's step, for frames.
    pub group_number: Vec<u32>,
    /// Velocity of each member after splitting [m/s]; absent if every member has that of its group.
    pub member_velocity: Option<Vec<DVec3>>,
    /// Angular velocity of each group [rad/s], if groups are bodies.
    pub group_spin: Option<Vec<DVec3>>,
    /// Ids whose state at the end of the step is wanted.
    pub track: Vec<ParticleId>,
    /// Starts the next step in the same call.
    pub next: Option<Next>,
}

/// The start of the next step, asked for with [`Commit`].
#[derive(Clone, Debug)]
pub struct Next {
    /// Particles and contacts that are wanted.
    pub interest: Interest,
    /// The next step is not started if a particle was displaced by more than this since the last [`Survey`],
    /// relative to its radius, or was born since; perhaps infinite.
    pub within: f64,
}

/// Sums over a participant's particles, in an order that depends on nothing but the particles.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Momentum [kg m/s].
    pub momentum: DVec3,
    /// Angular momentum about the origin [kg m^2/s].
    pub angular_momentum: DVec3,
    /// Kinetic energy [J].
    pub kinetic_energy: f64,
    /// Sum of m x [kg m].
    pub mass_moment: DVec3,
    /// Largest speed [m/s].
    pub speed_max: f64,
    /// Largest |v| / radius [1/s].
    pub radius_rate_max: f64,
    /// Largest change of velocity in the step over its length [m/s^2].
    pub acceleration_max: f64,
}

/// The answer to [`Commit`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Committed {
    /// Number of particles now.
    pub particles: u64,
    /// Longest next step [s], perhaps infinite.
    pub stable_dt: f64,
    /// Sums.
    pub totals: Totals,
    /// Potential energies by name [J], gravity not among them.
    pub potential_energies: Vec<(String, f64)>,
    /// Hash of the state, if it was wanted.
    pub state_hash: u64,
    /// Bonds that broke in the step.
    pub broken: u64,
    /// Particles that appeared: id, mass [kg], radius [m], immovable.
    pub born: Vec<(ParticleId, f64, f64, bool)>,
    /// Particles that disappeared.
    pub dead: Vec<ParticleId>,
    /// Particles that were immovable and are so no longer: id, mass [kg].
    pub released: Vec<(ParticleId, f64)>,
    /// Occupied cells, one set a grid.
    pub cells: Vec<CellSet>,
    /// Positions of tracked particles [m].
    pub track_position: Vec<DVec3>,
    /// Velocities of tracked particles [m/s].
    pub track_velocity: Vec<DVec3>,
    /// Wall time that the solver itself computed since the last commit [s].
    pub solver_seconds: f64,
    /// Kinetic energy [J] that is missing because the members' velocities could not be taken as told.
    pub not_taken: f64,
    /// Energy [J] that came from outside, and not by gravity nor through groups.
    pub given: f64,
    /// The start of the next step, if it was wanted and no particle was displaced too far for it.
    pub next: Option<Batch>,
}

/// Everything about a participant's particles that people look at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frame {
    /// Ids, ascending.
    pub id: Vec<ParticleId>,
    /// Positions [m].
    pub position: Vec<DVec3>,
    /// Velocities [m/s].
    pub velocity: Vec<DVec3>,
    /// Collision radii [m].
    pub radius: Vec<f64>,
    /// Number of the group in the last step, or `u32::MAX`.
    pub group: Vec<u32>,
    /// The solver's own fields: name, components (1 or 3), values.
    pub fields: Vec<(String, u32, Vec<f32>)>,
    /// The surface, if wanted and known.
    pub surface: Option<MovingSurface>,
    /// The files that hold the particles, if the solver has written them: then all columns are empty.
    pub written: Option<Written>,
}

/// Asks for a frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AskFrame {
    /// Run and step.
    pub context: Context,
    /// True if the surface is wanted, if the solver knows one.
    pub surface: bool,
    /// Files that the solver may write instead of sending columns.
    pub files: Option<FrameFiles>,
}

/// Files of a frame that a solver may write itself, one per part: `STEM_0.vtu`, `STEM_1.vtu`, ...
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrameFiles {
    /// Absolute path of their folder.
    pub folder: String,
    /// Start of their names: 1 to 200 letters, digits, `_`, `-` and `.`, the first one no `.`.
    pub stem: String,
    /// Time of the frame [s].
    pub time: f64,
    /// True if values are to be compressed by zlib.
    pub compressed: bool,
}

impl FrameFiles {
    /// The name of a part.
    pub fn name_of(&self, part: u32) -> String {
        format!("{}_{part}.vtu", self.stem)
    }
}

/// Files that a solver has written as parts of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The number of files.
    pub parts: u32,
    /// The number of particles in them.
    pub particles: u64,
}

/// A solver's whole state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Hash of the state.
    pub state_hash: u64,
    /// The solver's own bytes.
    pub bytes: Vec<u8>,
    /// The number of files that hold the snapshot instead, or 0.
    pub parts: u32,
}

/// Asks for a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AskSave {
    /// Run and step.
    pub context: Context,
    /// Files that the solver may write instead of sending its snapshot.
    pub files: Option<SnapshotFiles>,
}

/// Files of a snapshot, one per part: `STEM.0`, `STEM.1`, ... Each holds the solver's own bytes and their BLAKE3
/// hash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotFiles {
    /// Absolute path of their folder.
    pub folder: String,
    /// Start of their names: 1 to 200 letters, digits, `_`, `-` and `.`, the first one no `.`.
    pub stem: String,
}

impl SnapshotFiles {
    /// The path of a part.
    pub fn path_of(&self, part: u32) -> PathBuf {
        Path::new(&self.folder).join(format!("{}.{part}", self.stem))
    }
}

/// Asks a solver to take back a snapshot.
#[derive(Clone, Debug)]
pub struct Restore {
    /// Run, and the step that comes next.
    pub context: Context,
    /// Particles that the snapshot holds.
    pub particles: u64,
    /// The solver's own bytes.
    pub bytes: Vec<u8>,
    /// The files that hold the snapshot instead, and their number.
    pub files: Option<(SnapshotFiles, u32)>,
}
