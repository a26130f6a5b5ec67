//! The state as bytes: little endian, 8 bytes of magic with the version; as u64 the number of particles, of entries of the
//! grid and of committed steps; ids (u64), positions, velocities (three f64 each), and the pressure of each cell, where
//! the next solve starts (f64), by colour.

use amalgam_particles::{DVec3, ParticleId, Particles};
use amalgam_solver_kit::SolverError;

use super::multigrid::Split;

const MAGIC: &[u8; 8] = b"AMFLP002";
const BYTES_PER_PARTICLE: usize = 56;

pub(super) fn save(particles: &Particles, steps: u64, pressure: &Split<f64>) -> Vec<u8> {
    let entries = pressure[0].len() + pressure[1].len();
    let mut bytes = Vec::with_capacity(32 + BYTES_PER_PARTICLE * particles.len() + 8 * entries);
    bytes.extend_from_slice(MAGIC);
    for count in [particles.len() as u64, entries as u64, steps] {
        bytes.extend_from_slice(&count.to_le_bytes());
    }
    particles.id.iter().for_each(|id| bytes.extend_from_slice(&id.0.to_le_bytes()));
    let columns = particles.position.iter().chain(&particles.velocity).flat_map(DVec3::to_array);
    let pressure = pressure.iter().flatten().copied();
    columns.chain(pressure).for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
    bytes
}

/// Takes the state back, or leaves it as it is; the number of committed steps.
pub(super) fn restore(
    particles: &mut Particles,
    pressure: &mut Split<f64>,
    bytes: &[u8],
) -> Result<u64, SolverError> {
    let refuse = |reason: &str| Err(SolverError(format!("this snapshot cannot be restored: {reason}")));
    let entries = pressure[0].len() + pressure[1].len();
    let head = [MAGIC.as_slice(), &(particles.len() as u64).to_le_bytes(), &(entries as u64).to_le_bytes()];
    let Some(rest) = bytes.strip_prefix(head.concat().as_slice()) else {
        return refuse("it is not one of a FLIP fluid of this version with as many particles and cells");
    };
    let Some((steps, rest)) = rest.split_first_chunk() else {
        return refuse("it is cut off");
    };
    if rest.len() != BYTES_PER_PARTICLE * particles.len() + 8 * entries {
        return refuse("it is cut off");
    }
    let (ids, values) = rest.split_at(8 * particles.len());
    let values: Vec<f64> = values.as_chunks().0.iter().map(|&bytes| f64::from_le_bytes(bytes)).collect();
    if values.iter().any(|value| !value.is_finite()) {
        return refuse("it holds a number that is not finite");
    }
    for (id, &bytes) in particles.id.iter_mut().zip(ids.as_chunks().0) {
        *id = ParticleId(u64::from_le_bytes(bytes));
    }
    let (vectors, pressures) = values.split_at(6 * particles.len());
    let mut vectors = vectors.as_chunks().0.iter().map(|&v| DVec3::from_array(v));
    for (to, from) in particles.position.iter_mut().chain(&mut particles.velocity).zip(&mut vectors) {
        *to = from;
    }
    pressure.iter_mut().flatten().zip(pressures).for_each(|(to, &from)| *to = from);
    Ok(u64::from_le_bytes(*steps))
}
