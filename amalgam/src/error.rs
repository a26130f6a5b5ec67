//! Errors of commands.

pub mod ending;

use crate::scene::{Scene, SceneError};
use amalgam_coordinator::CoordinatorError;

/// Errors of commands.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The scene is wrong.
    #[error(transparent)]
    Scene(#[from] SceneError),
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// The command failed on the way.
    #[error("{0}")]
    Failed(String),
}

impl CommandError {
    /// Error at the start of a scene, shown in its file if the scene is at fault.
    pub(crate) fn at_start(scene: &Scene, error: CoordinatorError) -> Self {
        match error {
            CoordinatorError::Section { participant, errors } => {
                let faults: Vec<_> = errors.into_iter().map(|fault| (fault.key, fault.message)).collect();
                scene.section_error(&participant, &faults).into()
            }
            CoordinatorError::Probe { probe, reason } => scene.probe_error(&probe, &reason).into(),
            CoordinatorError::Scene(_) | CoordinatorError::ImmovableOverlap { .. } => {
                Self::Usage(format!("{}: {error}", scene.file()))
            }
            CoordinatorError::Connect { .. } => Self::Failed(format!(
                "{error}; start its solver there first, or let the run wait for it with --wait 10m"
            )),
            other => Self::Failed(other.to_string()),
        }
    }
}
