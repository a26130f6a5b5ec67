//! The state as bytes: what changes from step to step is position and velocity, everything else is in the section.
//!
//! Layout, little endian: 8 bytes of magic with the version, the number of particles as u64, positions, velocities
//! (three f64 each).

use amalgam_particles::{DVec3, Particles};
use amalgam_solver_kit::SolverError;

const MAGIC: &[u8; 8] = b"AMSPH001";
const BYTES_PER_PARTICLE: usize = 48;

/// The particles' state, exact.
pub(crate) fn save(particles: &Particles) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16 + BYTES_PER_PARTICLE * particles.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&(particles.len() as u64).to_le_bytes());
    for column in [&particles.position, &particles.velocity] {
        for value in column.iter().flat_map(DVec3::to_array) {
            bytes.extend_from_slice(&value.to_le_bytes());
        }
    }
    bytes
}

/// Takes the state back, or leaves `particles` as they are.
pub(crate) fn restore(particles: &mut Particles, bytes: &[u8]) -> Result<(), SolverError> {
    let refuse = |reason: String| Err(SolverError(format!("this snapshot cannot be restored: {reason}")));
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return refuse("it is not one of a fluid of this version".into());
    };
    let Some((count, values)) = rest.split_first_chunk::<8>() else {
        return refuse("it is cut off".into());
    };
    let count = u64::from_le_bytes(*count);
    if count != particles.len() as u64 {
        return refuse(format!("it holds {count} particles, the scene makes {}", particles.len()));
    }
    let expected = BYTES_PER_PARTICLE * particles.len();
    if values.len() != expected {
        return refuse(format!("{} bytes of state instead of {expected}", values.len()));
    }
    let (values, _) = values.as_chunks::<8>();
    let vector = |v: &[[u8; 8]; 3]| DVec3::from_array(v.map(f64::from_le_bytes));
    let (vectors, _) = values.as_chunks::<3>();
    let (positions, velocities) = vectors.split_at(particles.len());
    if let Some(bad) = vectors.iter().position(|v| !vector(v).is_finite()) {
        return refuse(format!("particle {} is not finite", particles.id[bad % particles.len()]));
    }
    particles.position.iter_mut().zip(positions).for_each(|(x, bytes)| *x = vector(bytes));
    particles.velocity.iter_mut().zip(velocities).for_each(|(v, bytes)| *v = vector(bytes));
    Ok(())
}
