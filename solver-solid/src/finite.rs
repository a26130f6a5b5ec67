//! Detection of overflow, before a number that is not finite is reported.

use amalgam_particles::{DVec3, Particles};
use amalgam_solver_kit::SolverError;
use rayon::prelude::*;

use crate::chunks::{CHUNK, CHUNKS_PER_TASK};

pub(crate) fn check_finite(particles: &Particles, column: &[DVec3], what: &str) -> Result<(), SolverError> {
    let columns = column.par_iter().with_min_len(CHUNK * CHUNKS_PER_TASK);
    if columns.map(|value| value.is_finite()).reduce(|| true, |a, b| a & b) {
        return Ok(());
    }
    match column.iter().position(|value| !value.is_finite()) {
        Some(i) => Err(SolverError(format!("particle {}: {what} became {}", particles.id[i], column[i]))),
        None => Ok(()),
    }
}
