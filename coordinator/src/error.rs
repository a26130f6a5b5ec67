//! Everything that can end a run.

use crate::settings::Fault;

/// Why a run could not start or go on. Messages are whole sentences for the user.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say it")]
pub enum CoordinatorError {
    #[error("the section of participant {participant} has {} fault(s): {}", errors.len(), list(errors))]
    Section { participant: String, errors: Vec<Fault> },
    #[error("probe {probe}: {reason}")]
    Probe { probe: String, reason: String },
    #[error("{0}")]
    Scene(String),
    #[error("participant {participant} cannot be reached at {address}: {reason}")]
    Connect { participant: String, address: String, reason: String },
    #[error("participant {participant} is not what the scene says: {reason}")]
    Handshake { participant: String, reason: String },
    #[error(
        "participant {participant} did not answer {phase} of step {step} within {seconds} s; it may be stopped, \
         overloaded or in an endless loop (coupling.step_deadline sets how long to wait)"
    )]
    Deadline { participant: String, step: u64, phase: &'static str, seconds: f64 },
    #[error("participant {participant} was lost in {phase} of step {step}: {reason}")]
    Lost { participant: String, step: u64, phase: &'static str, reason: String },
    #[error("participant {participant} cannot go on, in {phase} of step {step}: {reason}")]
    Solver { participant: String, step: u64, phase: &'static str, reason: String },
    #[error("participant {participant} broke the contract in {phase} of step {step}: {reason}")]
    Protocol { participant: String, step: u64, phase: &'static str, reason: String },
    #[error(
        "{participant_a} {a} and {participant_b} {b} are immovable particles that overlap at the start ({distance:.3e} m apart, radii {radius_a:.3e} m and {radius_b:.3e} m); no velocity can part them: move one, make it smaller or make it movable"
    )]
    ImmovableOverlap {
        participant_a: String,
        a: u64,
        participant_b: String,
        b: u64,
        distance: f64,
        radius_a: f64,
        radius_b: f64,
    },
    #[error(
        "step {step} may be only {dt:.1e} s long, so that the scene would never end: participant {participant} {reason}"
    )]
    Stuck { participant: String, step: u64, dt: f64, reason: String },
    #[error(
        "a particle would travel {travel:.1e} of its radius in step {step} even if it is only {dt:.1e} s long: the solver of \
         participant {participant}, which moves it there, is unstable"
    )]
    Runaway { participant: String, step: u64, dt: f64, travel: f64 },
    #[error("the checkpoint cannot be taken back: {0}")]
    Checkpoint(String),
    #[error("interrupted")]
    Cancelled,
    #[error("the coordinator's own threads could not be started: {0}")]
    Runtime(std::io::Error),
}

fn list(errors: &[Fault]) -> String {
    errors.iter().map(|fault| format!("{}: {}", fault.key, fault.message)).collect::<Vec<_>>().join("; ")
}
