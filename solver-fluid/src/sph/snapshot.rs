//! The state as bytes: what changes from step to step is the order of storage, position and velocity, everything else
//! is in the section.
//!
//! Layout, little endian: 8 bytes of magic with the version, the number of particles and that of committed steps as
//! u64, ids (u64), positions, velocities (three f64 each).

use amalgam_particles::{DVec3, ParticleId, Particles};
use amalgam_solver_kit::SolverError;

const MAGIC: &[u8; 8] = b"AMSPH002";
const BYTES_PER_PARTICLE: usize = 56;

/// The particles' state, exact.
pub(crate) fn save(particles: &Particles, steps: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(24 + BYTES_PER_PARTICLE * particles.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&(particles.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&steps.to_le_bytes());
    particles.id.iter().for_each(|id| bytes.extend_from_slice(&id.0.to_le_bytes()));
    for column in [&particles.position, &particles.velocity] {
        for value in column.iter().flat_map(DVec3::to_array) {
            bytes.extend_from_slice(&value.to_le_bytes());
        }
    }
    bytes
}

/// Takes the state back and returns the number of committed steps, or leaves `particles` as they are.
pub(crate) fn restore(particles: &mut Particles, bytes: &[u8]) -> Result<u64, SolverError> {
    let refuse = |reason: String| Err(SolverError(format!("this snapshot cannot be restored: {reason}")));
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return refuse("it is not one of a fluid of this version".into());
    };
    let Some((header, values)) = rest.split_first_chunk::<16>() else {
        return refuse("it is cut off".into());
    };
    let [count, steps] = [&header[..8], &header[8..]]
        .map(|bytes| bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)));
    if count != particles.len() as u64 {
        return refuse(format!("it holds {count} particles, the scene makes {}", particles.len()));
    }
    let expected = BYTES_PER_PARTICLE * particles.len();
    if values.len() != expected {
        return refuse(format!("{} bytes of state instead of {expected}", values.len()));
    }
    let (ids, values) = values.split_at(8 * particles.len());
    let ids: Vec<ParticleId> =
        ids.as_chunks::<8>().0.iter().map(|&bytes| ParticleId(u64::from_le_bytes(bytes))).collect();
    let (values, _) = values.as_chunks::<8>();
    let vector = |v: &[[u8; 8]; 3]| DVec3::from_array(v.map(f64::from_le_bytes));
    let (vectors, _) = values.as_chunks::<3>();
    let (positions, velocities) = vectors.split_at(particles.len());
    if let Some(bad) = vectors.iter().position(|v| !vector(v).is_finite()) {
        return refuse(format!("particle {} is not finite", ids[bad % ids.len()]));
    }
    let sorted = |ids: &[ParticleId]| {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids
    };
    if sorted(&ids) != sorted(&particles.id) {
        return refuse("its particles are not those of the scene".into());
    }
    particles.id = ids;
    particles.position.iter_mut().zip(positions).for_each(|(x, bytes)| *x = vector(bytes));
    particles.velocity.iter_mut().zip(velocities).for_each(|(v, bytes)| *v = vector(bytes));
    Ok(steps)
}
