//! Endings of commands, and their exit codes.

/// Exit code when a run failed.
pub const EXIT_FAILED: u8 = 1;

/// Exit code when the scene or the command line is wrong.
pub const EXIT_WRONG: u8 = 2;

/// Exit code of an interrupted run: 128 + SIGINT.
pub const EXIT_INTERRUPTED: u8 = 130;

/// End of a run that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The run reached the end of the scene.
    Finished,
    /// Somebody asked the run to end.
    Interrupted,
}
