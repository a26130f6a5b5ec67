//! Checkpoints: the state of a run between two steps, exact. A run that is restored goes on to the same bits.
//!
//! Every module names its state that outlives a step. The rest is working storage, or a survey finds it
//! again. The run from which a checkpoint is taken surveys before its next step, too, so that it and every
//! restored run make the same calls.

use std::time::Instant;

use amalgam_particles::{DVec3, ParticleId};
use amalgam_proto::contract::{Context, Restore, SnapshotFiles};
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};

use crate::error::CoordinatorError;
use crate::instruments::InstrumentsState;
use crate::instruments::clocks::Phase;
use crate::law::WarmStart;
use crate::participant::PartState;
use crate::simulation::Simulation;
use crate::state::clock::ClockState;

/// The state of a run between two steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Steps taken, which is the number of the next one.
    pub steps: u64,
    /// The coordinator's own state: a map of its fields in CBOR (RFC 8949).
    pub coordinator: Vec<u8>,
    /// States of the participants, in the run's order.
    pub participants: Vec<ParticipantCheckpoint>,
}

/// The state of a participant.
#[derive(Clone, Debug, PartialEq)]
pub struct ParticipantCheckpoint {
    /// Its name in the scene.
    pub name: String,
    /// Name of the program that computes it.
    pub program: String,
    /// The program's version.
    pub version: String,
    /// Particles in the snapshot.
    pub particles: u64,
    /// Hash of the table with which the participant began the run. It covers its section and the files that
    /// the section names.
    pub start_hash: u64,
    /// Hash of ids, positions and velocities.
    pub state_hash: u64,
    /// The solver's own bytes.
    pub snapshot: Vec<u8>,
    /// The files that hold the snapshot instead, if its ranks wrote it, and their number.
    pub files: Option<(SnapshotFiles, u32)>,
}

/// State of the coordinator between two steps.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct State {
    clock: ClockState,
    steps: u64,
    state_hash: u64,
    wall_s: f64,
    participants: Vec<PartState>,
    last_impulse: Vec<Vec<(ParticleId, DVec3)>>,
    law: WarmStart,
    instruments: InstrumentsState,
}

impl Simulation {
    /// The state of the run between two steps. The run goes on to the same bits as without this call. `files`
    /// gives a participant's files by its name, for solvers whose ranks write their parts for themselves.
    ///
    /// # Errors
    /// A participant that is lost, breaks the contract or keeps no checkpoints.
    pub fn checkpoint(
        &mut self,
        files: &dyn Fn(&str) -> Option<SnapshotFiles>,
    ) -> Result<Checkpoint, CoordinatorError> {
        let start = Instant::now();
        let calls = self.participants.iter_mut().map(|participant| {
            let connection = &mut participant.part.connection;
            let files = files(&connection.name);
            connection.save(files)
        });
        let snapshots = self.io.block_on(join_all(calls)).into_iter().collect::<Result<Vec<_>, _>>()?;
        self.instruments.count_calls(&mut self.participants, start);
        self.instruments.count(Phase::Checkpoints, start, 0.0);
        // Particles that the participants have named for the next step are not part of a checkpoint.
        self.participants.iter_mut().for_each(|participant| participant.part.committed.next = None);
        let state = State {
            clock: self.progress.clock.state(),
            steps: self.progress.steps,
            state_hash: self.progress.state_hash,
            wall_s: self.progress.wall_s(),
            participants: self.participants.iter().map(|participant| participant.part.state()).collect(),
            last_impulse: self.memory.last_impulse.clone(),
            law: self.memory.warm_start.clone(),
            instruments: self.instruments.state(),
        };
        let mut coordinator = Vec::new();
        ciborium::into_writer(&state, &mut coordinator).expect("memory takes all bytes");
        let participants = self.participants.iter().zip(snapshots).map(|(participant, snapshot)| {
            let (connection, roster) = (&participant.part.connection, &participant.part.roster);
            ParticipantCheckpoint {
                name: connection.name.clone(),
                program: connection.description.name.clone(),
                version: connection.description.version.clone(),
                particles: roster.len(),
                start_hash: participant.start_hash,
                state_hash: snapshot.state_hash,
                snapshot: snapshot.bytes,
                files: files(&connection.name)
                    .filter(|_| snapshot.parts > 0)
                    .map(|files| (files, snapshot.parts)),
            }
        });
        Ok(Checkpoint { steps: self.progress.steps, coordinator, participants: participants.collect() })
    }

    /// Restores a checkpoint, in a run that was connected with the same plan and has taken no step.
    ///
    /// # Errors
    /// A checkpoint of another run or program, or a participant that does not restore its part.
    pub fn restore(&mut self, checkpoint: &Checkpoint) -> Result<(), CoordinatorError> {
        let mut bytes = checkpoint.coordinator.as_slice();
        let read = ciborium::from_reader(&mut bytes);
        let state: State = read.map_err(|error| foreign(format!("the coordinator's state: {error}")))?;
        self.check_foreign(checkpoint, &state, bytes.len())?;
        let calls = self.participants.iter_mut().zip(&checkpoint.participants).map(|(participant, saved)| {
            let ParticipantCheckpoint { particles, state_hash, ref snapshot, ref files, .. } = *saved;
            let (context, bytes, files) = (Context::default(), snapshot.clone(), files.clone());
            let call = Restore { context, particles, bytes, files };
            participant.part.connection.restore(checkpoint.steps, call, state_hash)
        });
        self.io.block_on(join_all(calls)).into_iter().collect::<Result<(), _>>()?;
        let progress = &mut self.progress;
        progress.clock.go_on(state.clock);
        (progress.steps, progress.state_hash) = (state.steps, state.state_hash);
        progress.set_wall_before(state.wall_s);
        for (participant, state) in self.participants.iter_mut().zip(state.participants) {
            participant.part.go_on(state);
        }
        self.memory.last_impulse = state.last_impulse;
        self.memory.warm_start = state.law;
        self.instruments.go_on(state.instruments).map_err(foreign)
    }

    /// Refuses a checkpoint that does not fit this run, before anything is changed.
    fn check_foreign(
        &self,
        checkpoint: &Checkpoint,
        state: &State,
        bytes_left: usize,
    ) -> Result<(), CoordinatorError> {
        let names: Vec<&str> =
            self.participants.iter().map(|participant| participant.part.connection.name.as_str()).collect();
        let saved: Vec<&str> = checkpoint.participants.iter().map(|saved| saved.name.as_str()).collect();
        if names != saved {
            return Err(foreign(format!(
                "it is of participants {}, but this run has {}",
                saved.join(", "),
                names.join(", ")
            )));
        }
        for (participant, saved) in self.participants.iter().zip(&checkpoint.participants) {
            let description = &participant.part.connection.description;
            if (&saved.program, &saved.version) != (&description.name, &description.version) {
                return Err(foreign(format!(
                    "participant {} was computed by {} {}, but now {} {} serves it: start the program of then",
                    saved.name, saved.program, saved.version, description.name, description.version
                )));
            }
            if saved.start_hash != participant.start_hash {
                return Err(foreign(format!(
                    "participant {} begins with other particles than it did then: put back the files that its section \
                     names",
                    saved.name
                )));
            }
        }
        let counts = state.participants.iter().map(PartState::particles);
        let fits = state.steps == checkpoint.steps
            && counts.eq(checkpoint.participants.iter().map(|saved| saved.particles))
            && [0, names.len()].contains(&state.last_impulse.len())
            && bytes_left == 0;
        if fits { Ok(()) } else { Err(foreign("its parts are not of one run and one step".into())) }
    }
}

fn foreign(reason: String) -> CoordinatorError {
    CoordinatorError::Checkpoint(reason)
}
