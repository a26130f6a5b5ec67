//! Errors that can end a run.

use amalgam_particles::text::number;

use crate::settings::Fault;

/// Reasons for which a run could not start or go on. Messages are whole sentences for the user.
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
    #[error("participant {participant} at {address} cannot be used: {reason}")]
    Refused { participant: String, address: String, reason: String },
    #[error("participant {participant} is not what the scene says: {reason}")]
    Handshake { participant: String, reason: String },
    #[error("participant {participant} at {address} was lost in {phase} of step {step}: {loss}")]
    Lost { participant: String, address: String, step: u64, phase: &'static str, loss: Loss },
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
    #[error(
        "participant {participant} has {} J more energy after step {step} than anything gave, while {} J moved the scene: {}",
        number(*gained), number(*in_play), remedy(*others, *is_whole)
    )]
    Energy { participant: String, step: u64, gained: f64, in_play: f64, others: bool, is_whole: bool },
    #[error(
        "participants {participants} share meta-particles and do not agree on velocities in step {step}, even if it is only \
         {dt:.1e} s long: write a shorter time.dt_max, more damping, or integrator = \"implicit-euler\" where it is another"
    )]
    Disagree { participants: String, step: u64, dt: f64 },
    #[error("the checkpoint cannot be taken back: {0}")]
    Checkpoint(String),
    #[error("interrupted")]
    Cancelled,
    #[error("the coordinator's own threads could not be started: {0}")]
    Runtime(std::io::Error),
}

/// Ways in which a participant is lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Loss {
    #[error("it is dead: nothing listens there any more ({0}); see its log, and start it there again")]
    Dead(String),
    #[error("it is unreachable: {0}; check its machine and the network to it")]
    Unreachable(String),
    #[error(
        "it is slow: it did not answer within {0} s, though its service answers; give its solver more threads, or raise \
         coupling.step_deadline if steps may take as long"
    )]
    Slow(f64),
    #[error(
        "it did not answer within {0} s, nor does its service: the process is stopped, or its machine has no time for it \
         (coupling.step_deadline sets how long to wait)"
    )]
    Silent(f64),
    #[error("its service serves no run: it was started anew, or the run has ended there")]
    Restarted,
    #[error("the connection broke twice ({0}), though its service answers; see its log")]
    Broken(String),
}

impl CoordinatorError {
    /// The participant that does not answer any more, if this is the error. With another process or
    /// connection the run can go on from a checkpoint.
    pub fn lost(&self) -> Option<&str> {
        match self {
            Self::Connect { participant, .. } | Self::Lost { participant, .. } => Some(participant),
            _ => None,
        }
    }
}

fn remedy(others: bool, is_whole: bool) -> &'static str {
    match (others, is_whole) {
        (_, false) => {
            "the scene is unstable, write a shorter time.dt_max; or a solver does not report what energy it stores or is given: let it"
        }
        (true, true) => {
            "the scene is unstable; write a shorter time.dt_max or a smaller time.cfl, and let participants begin apart"
        }
        (false, true) => {
            "its solver is unstable; write a shorter time.dt_max, or give its material less stiffness or more damping"
        }
    }
}

fn list(errors: &[Fault]) -> String {
    errors.iter().map(|fault| format!("{}: {}", fault.key, fault.message)).collect::<Vec<_>>().join("; ")
}
