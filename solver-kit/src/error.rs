//! Errors of solvers.

/// Reason for which a solver cannot go on: a sentence for the user, with the particle's id where there is
/// one.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct SolverError(pub String);
