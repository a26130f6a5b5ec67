//! The one trait a solver implements.

use std::io::{self, Write};

use amalgam_particles::{
    Body, CellSet, DMat3, DVec3, GroupMap, Lattice, MovingSurface, Obstacle, ParticleId, Particles, StepEnd,
};

pub use amalgam_proto::contract::Integration;

use amalgam_ranks::{Moves, Ranks};

use crate::error::SolverError;
use crate::joined::Members;
use crate::section::SectionError;

/// A description of a solver, before it is given anything to do.
#[derive(Clone, Debug)]
pub struct Description {
    /// Name of the program, for example `solid`.
    pub name: &'static str,
    /// Version of the program.
    pub version: &'static str,
    /// Integration of the solver.
    pub integration: Integration,
}

/// The world that every participant of a scene is told of at the start.
#[derive(Clone, Debug)]
pub struct World {
    /// Name of the participant in the scene.
    pub participant: String,
    /// Corners of the domain [m].
    pub domain: (DVec3, DVec3),
    /// Gravity [m/s^2].
    pub gravity: DVec3,
    /// Seed of everything random in the scene.
    pub seed: u64,
    /// Obstacles of the scene, for a program that wants them ([`SolverProgram::wants_obstacles`]); else empty.
    /// The coordinator keeps particles out of them.
    pub obstacles: Vec<Obstacle>,
    /// The ranks that are to share the participant. A program may lay out this rank's part of the particles alone.
    pub ranks: Ranks,
}

/// A request to integrate, tentative: the state at the start of the step stays untouched.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Step, from 0.
    pub step: u64,
    /// Stage, from 1; groups change between stages, positions do not.
    pub stage: u32,
    /// Repetition inside a stage, from 0; only `inertia` and `impulse` change.
    pub repetition: u32,
    /// Length of the step [s].
    pub dt: f64,
    /// The part of its first residual that an iteration may leave [EisenstatWalker1996]. It is above 0 only
    /// where another repetition follows for certain, so that nothing of the answer is committed. Solvers may
    /// ignore it.
    pub forcing: f64,
    /// Own particles that must move as one.
    pub groups: &'a GroupMap,
    /// The members of all ranks, for a solver that is cut among several.
    pub members: Members<'a>,
    /// Inertia of each group [kg]; infinite for a group that holds an immovable particle.
    pub inertia: &'a [f64],
    /// Velocity of each group at the start of the step [m/s].
    pub velocity: &'a [DVec3],
    /// Impulse that others give each group in this step [kg m/s].
    pub impulse: &'a [DVec3],
    /// Cells that particles of any participant occupy, on the grid that this solver declared.
    pub occupied: Option<&'a CellSet>,
}

/// The answer of a solver to a [`Request`]. Momentum and velocity arrive with the right lengths, zeroed; the
/// rest is empty.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Momentum this solver gives each group in the step [kg m/s], external impulse not included.
    pub momentum: Vec<DVec3>,
    /// Decrease of that momentum per unit of extra velocity of the group [kg]: symmetric and positive
    /// semidefinite. For an implicit solver, it is the group's block on the diagonal of its system, without
    /// the inertia. Empty from all other solvers.
    pub slope: Vec<DMat3>,
    /// Integrated velocity of each particle [m/s]; entries of group members are not read. Empty for a solver
    /// that defers them ([`Solver::deferred`]).
    pub velocity: Vec<DVec3>,
    /// Each group as a body, from a solver whose particles belong to bodies ([`Solver::bodies`]); else empty.
    /// Momentum is then that of the whole body. On ranks they are answered as momenta are: all at the first
    /// rank, none at others.
    pub bodies: Vec<Body>,
}

/// Interface of solvers that compute the velocities of free particles only in `commit`. Stages and
/// repetitions then need only a bound on the distance travelled, and the velocities with which a few watched
/// particles move.
pub trait Deferred {
    /// Cheap upper bound of the distance that a free particle travels in the step of `dt` [s], relative to
    /// its radius.
    fn travel_bound(&self, dt: f64) -> f64;

    /// Velocities with which a commit would move these free particles [m/s]. They are the particles' new
    /// velocities, or the grid's velocities at their positions if a grid carries them.
    fn velocity(&self, wanted: &[u32]) -> Vec<DVec3>;
}

/// The events and energies of a committed step. Momentum, kinetic energy, speeds and occupied cells are taken
/// from [`Solver::particles`] by the kit.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Longest next step that the solver can take [s]; infinite if it sub-steps or has no limit.
    pub stable_dt: f64,
    /// Potential energies by name [J], for example `("elastic", 0.2)`. Gravity is not among them. A solver
    /// that stores none says `("stored", 0.0)`; with an empty list, stored energy may come back that is in no
    /// account.
    pub energies: Vec<(&'static str, f64)>,
    /// True if velocities differ from those passed to [`Solver::commit`], as they do in a rigid body. The kit
    /// then tells the coordinator how much kinetic energy is missing, and the coordinator counts it as
    /// dissipated in coupling. Not for solvers that defer velocities ([`Solver::deferred`]).
    pub adjusted: bool,
    /// Energy [J] that came from outside in the step, and not by gravity nor through groups. It is the work
    /// of drag ([`Drag::work`](crate::Drag::work)), the work of scripts on immovable particles that are in no
    /// group, and the change of kinetic energy of all immovable ones. A particle that is born adds its
    /// kinetic energy and its energy in gravity, -m g x; a particle that dies takes its own away. A run ends
    /// if energy appears that no participant reports.
    pub given: f64,
    /// Largest change of the velocity of a particle of this rank in the step [m/s], from a solver that finds it
    /// ([`Solver::finds_change_max`]).
    pub change_max: f64,
    /// Angular momentum [kg m^2/s] and kinetic energy [J] of the particles' own spin, which their positions
    /// and velocities do not tell.
    pub spin: (DVec3, f64),
    /// Bonds broken in this step: these pairs may now collide.
    pub broken: Vec<(ParticleId, ParticleId)>,
    /// Particles that appeared in this step.
    pub born: Vec<ParticleId>,
    /// Particles that disappeared in this step.
    pub dead: Vec<ParticleId>,
    /// Particles that were immovable in this step and are so no longer. They keep the velocity that they
    /// have.
    pub released: Vec<ParticleId>,
}

/// A field for frames: one value per particle, in the order of [`Solver::particles`].
#[derive(Clone, Debug)]
pub struct Field {
    /// Name, lower case with underscores, for example `density`.
    pub name: &'static str,
    /// Values with their SI unit in the solver's documentation.
    pub values: FieldValues,
}

/// Values of a [`Field`].
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum FieldValues {
    Scalar(Vec<f32>),
    Vector(Vec<[f32; 3]>),
}

/// A solver: one body of particles and its own physics. It never learns about foreign particles.
///
/// A step is one [`Self::begin`], any number of [`Self::integrate`] and one [`Self::commit`]. No method may
/// depend on how often `integrate` was called before, except through the starting point of an iteration.
pub trait Solver: Send + Sync + 'static {
    /// The committed state, in any order that suits the solver, the same until the next commit.
    fn particles(&self) -> &Particles;

    /// True if the particles at these places of [`Self::particles`] never count as a contact, for example two
    /// joined by a spring or an unbroken bond. Bonds that break are reported by [`Self::commit`]; no others
    /// may form. Both are own particles of a rank.
    fn joined(&self, _a: u32, _b: u32) -> bool {
        false
    }

    /// The same of an own particle and of one that another rank has. Only for a solver that is cut among
    /// ranks.
    fn joined_across(&self, _a: u32, _b: ParticleId) -> bool {
        false
    }

    /// True if own particles collide with each other.
    fn self_colliding(&self) -> bool {
        false
    }

    /// A triangulated sheet or surface between own particles, for pictures and for counting crossings. Asked
    /// once.
    fn triangles(&self) -> Vec<[ParticleId; 3]> {
        Vec::new()
    }

    /// The surface of the own particles now, if the solver knows a better one than positions tell. Asked for
    /// frames, where a scene wants it.
    fn surface(&self) -> Option<MovingSurface> {
        None
    }

    /// The body that each particle belongs to, named by one of its particles, if bodies turn: grains with
    /// spin, each a body of its own, or rigid bodies of many particles. Asked at the start. Groups are then bodies: a
    /// solver describes them in [`Answer::bodies`] and is told their angular velocities in
    /// [`StepEnd::group_spin`]. For explicit solvers. Contacts between particles of one body are for
    /// [`Self::joined`] to exclude.
    fn bodies(&self) -> Option<Vec<ParticleId>> {
        None
    }

    /// Integration of this solver, if it differs from the program's [`Description`].
    fn integration(&self) -> Option<Integration> {
        None
    }

    /// The longest first step [s].
    fn stable_dt(&self) -> f64 {
        f64::INFINITY
    }

    /// Steps of [`Self::stable_dt`] that a step may hold if the solver integrates once in it. The solver takes
    /// them as sub-steps. Asked once, of explicit solvers.
    fn substeps_once(&self) -> u32 {
        1
    }

    /// Grid for which this solver asks which cells particles of any participant occupy.
    fn occupancy_grid(&self) -> Option<Lattice> {
        None
    }

    /// True if this solver keeps its particles off the obstacles of the [`World`] itself, without friction, as it
    /// keeps them inside the domain. The particles have no contacts with obstacles then.
    fn keeps_off_obstacles(&self) -> bool {
        false
    }

    /// Work that does not depend on merging, done while the coordinator looks for contacts: neighbours,
    /// densities, forces, matrices.
    ///
    /// # Errors
    /// A state that makes the step impossible.
    fn begin(&mut self) -> Result<(), SolverError> {
        Ok(())
    }

    /// Integrates tentatively, each group as one particle.
    ///
    /// # Errors
    /// A fault that makes the integration impossible, with the particle's id.
    fn integrate(&mut self, request: &Request<'_>, answer: &mut Answer) -> Result<(), SolverError>;

    /// Access to velocities that are not part of the solver's answers. `None` if the answers hold all
    /// velocities.
    fn deferred(&self) -> Option<&dyn Deferred> {
        None
    }

    /// True if the next [`Self::commit`] reports the largest change of velocity ([`Report::change_max`]). The kit
    /// else keeps all velocities of the start of the step to find it.
    fn finds_change_max(&self) -> bool {
        false
    }

    /// Advances to the end of the step. `integrated` are the velocities of the last answer.
    ///
    /// # Errors
    /// A fault that makes the state unusable, with the particle's id.
    fn commit(&mut self, end: &StepEnd<'_>, integrated: &[DVec3]) -> Result<Report, SolverError>;

    /// Fields for frames beside position, velocity, id and group, between two steps. What is found for them may be
    /// kept; no result changes. Collective.
    fn fields(&mut self) -> Vec<Field> {
        Vec::new()
    }

    /// Takes the particles of this rank. Before, every rank has what its program has laid out: all particles, or
    /// a part of them of its own ([`World::ranks`]). From here on the solvers of all ranks together are the
    /// participant: each has a part of the particles and is called for all of them, in the same order. A solver answers for its part, except for
    /// - momenta and slopes of groups, which are the whole ones at the first rank and are not read at others
    ///   ([`Members::for_each`] brings members' values to the first rank);
    /// - [`Report::broken`], a pair of which one rank names that has either end;
    /// - [`Self::surface`], which is the whole one at the first rank;
    /// - groups as bodies, which only the first rank answers;
    /// - [`Report::stable_dt`], energies, spin and [`Report::given`], [`Self::stable_dt`] and
    ///   [`Deferred::travel_bound`], which are those of the participant, on all ranks.
    ///
    /// No result may depend on the ranks by a bit.
    ///
    /// # Errors
    /// A solver that cannot be cut.
    fn share(&mut self, _ranks: &Ranks) -> Result<(), SolverError> {
        Err(SolverError(
            "this solver cannot be cut among ranks: run it as one, with as many threads as there are cores"
                .into(),
        ))
    }

    /// Gives particles that have left this rank's part to others, after a commit, and says which. Collective.
    fn migrate(&mut self) -> Option<Moves> {
        None
    }

    /// The whole state, exact: restored, it continues to the same bits. A solver that is shared saves all
    /// ranks' particles at the first rank, in a form that any number of ranks restores.
    ///
    /// # Errors
    /// If the solver does not keep checkpoints.
    fn save(&self) -> Result<Vec<u8>, SolverError> {
        Err(SolverError("this solver keeps no checkpoints".into()))
    }

    /// True if each rank can save and restore a part, in place of [`Self::save`] and [`Self::restore`].
    fn saves_parts(&self) -> bool {
        false
    }

    /// Writes the state of this rank's particles, with what all ranks have in common. Collective.
    ///
    /// # Errors
    /// The failure of writing, after all that is collective.
    fn save_part(&self, _to: &mut dyn Write) -> io::Result<()> {
        Err(io::Error::other("this solver keeps no checkpoints in parts"))
    }

    /// Restores the parts that [`Self::save_part`] gave on any number of ranks. This rank has those whose
    /// numbers leave its own number when they are divided by the number of ranks, in ascending order.
    /// Collective.
    ///
    /// # Errors
    /// As [`Self::restore`].
    fn restore_parts(&mut self, _parts: &[Vec<u8>]) -> Result<(), SolverError> {
        Err(SolverError("this solver keeps no checkpoints in parts".into()))
    }

    /// Restores a snapshot of [`Self::save`] in a solver initialised from the same section.
    ///
    /// # Errors
    /// If the solver keeps no checkpoints or the snapshot is not its own.
    fn restore(&mut self, _snapshot: &[u8]) -> Result<(), SolverError> {
        Err(SolverError("this solver keeps no checkpoints".into()))
    }
}

/// Makes solvers from sections of scenes: the solver that a program serves.
pub trait SolverProgram: Send + Sync + 'static {
    /// The description of the program.
    fn describe(&self) -> Description;

    /// True if solvers are to be told of the scene's obstacles.
    fn wants_obstacles(&self) -> bool {
        false
    }

    /// Checks a participant's section (TOML, verbatim from the scene) and builds the solver from it.
    ///
    /// # Errors
    /// Every fault of the section, each with the path of its key.
    fn create(&self, section: &str, world: &World) -> Result<Box<dyn Solver>, Vec<SectionError>>;
}
