//! Progress of a run: its time, its steps and the hash of its particles.

use std::time::Instant;

use crate::state::clock::Clock;

/// Progress of a run. `commit` advances the clock and the hash, and `end_step` counts the step. A
/// checkpoint holds all of it.
pub(crate) struct Progress {
    /// Simulated time.
    pub(crate) clock: Clock,
    /// Steps taken, which is the number of the step that is being computed.
    pub(crate) steps: u64,
    /// Hash of ids, positions and velocities of all particles at the last frame.
    pub(crate) state_hash: u64,
    started: Instant,
    /// Wall time before this process took the run over [s].
    wall_before: f64,
}

impl Progress {
    /// A run that begins now.
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, steps: 0, state_hash: 0, started: Instant::now(), wall_before: 0.0 }
    }

    /// Wall time of the run [s].
    pub(crate) fn wall_s(&self) -> f64 {
        self.wall_before + self.started.elapsed().as_secs_f64()
    }

    /// Adds wall time that passed before this process took the run over [s].
    pub(crate) fn set_wall_before(&mut self, seconds: f64) {
        self.wall_before = seconds;
    }

    /// Subtracts `seconds`, in which the run was held, from its wall time.
    pub(crate) fn leave_out(&mut self, seconds: f64) {
        self.wall_before -= seconds;
    }
}
