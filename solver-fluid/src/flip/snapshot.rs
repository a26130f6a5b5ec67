//! The state as bytes: little endian, 8 bytes of magic with the version, the number of particles and of cells (u64),
//! positions, velocities (three f64 each), and the pressure of each cell, where the next solve starts (f64).

use amalgam_particles::{DVec3, Particles};
use amalgam_solver_kit::SolverError;

const MAGIC: &[u8; 8] = b"AMFLP001";

pub(super) fn save(particles: &Particles, pressure: &[f64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(24 + 48 * particles.len() + 8 * pressure.len());
    bytes.extend_from_slice(MAGIC);
    for count in [particles.len(), pressure.len()] {
        bytes.extend_from_slice(&(count as u64).to_le_bytes());
    }
    let columns = particles.position.iter().chain(&particles.velocity).flat_map(DVec3::to_array);
    columns.chain(pressure.iter().copied()).for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
    bytes
}

/// Takes the state back, or leaves it as it is.
pub(super) fn restore(
    particles: &mut Particles,
    pressure: &mut [f64],
    bytes: &[u8],
) -> Result<(), SolverError> {
    let refuse = |reason: &str| Err(SolverError(format!("this snapshot cannot be restored: {reason}")));
    let head =
        [MAGIC.as_slice(), &(particles.len() as u64).to_le_bytes(), &(pressure.len() as u64).to_le_bytes()];
    let Some(rest) = bytes.strip_prefix(head.concat().as_slice()) else {
        return refuse("it is not one of a FLIP fluid of this version with as many particles and cells");
    };
    if rest.len() != 48 * particles.len() + 8 * pressure.len() {
        return refuse("it is cut off");
    }
    let values: Vec<f64> = rest.as_chunks().0.iter().map(|&bytes| f64::from_le_bytes(bytes)).collect();
    if values.iter().any(|value| !value.is_finite()) {
        return refuse("it holds a number that is not finite");
    }
    let (vectors, pressures) = values.split_at(6 * particles.len());
    let mut vectors = vectors.as_chunks().0.iter().map(|&v| DVec3::from_array(v));
    for (to, from) in particles.position.iter_mut().chain(&mut particles.velocity).zip(&mut vectors) {
        *to = from;
    }
    pressure.copy_from_slice(pressures);
    Ok(())
}
