//! The state as bytes: which particles there are, in which order they are stored, their positions and velocities;
//! everything else is in the section.
//!
//! Layout, little endian: 8 bytes of magic with the version; as u64 the number of particles, that of committed steps and
//! the next id; the time (f64); ids (u64), positions, velocities (three f64 each).

use amalgam_particles::{DVec3, ParticleId, Particles};
use amalgam_solver_kit::SolverError;

use super::Parameters;

const MAGIC: &[u8; 8] = b"AMSPH003";
const BYTES_PER_PARTICLE: usize = 56;

/// How far a fluid is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// Steps committed.
    pub(super) steps: u64,
    /// Time since the start [s].
    pub(super) time: f64,
    /// The id of the next particle.
    pub(super) next_id: u64,
}

/// The particles' state, exact.
pub(super) fn save(particles: &Particles, progress: Progress) -> Vec<u8> {
    let Progress { steps, time, next_id } = progress;
    let mut bytes = Vec::with_capacity(40 + BYTES_PER_PARTICLE * particles.len());
    bytes.extend_from_slice(MAGIC);
    for number in [particles.len() as u64, steps, next_id, time.to_bits()] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    particles.id.iter().for_each(|id| bytes.extend_from_slice(&id.0.to_le_bytes()));
    for column in [&particles.position, &particles.velocity] {
        for value in column.iter().flat_map(DVec3::to_array) {
            bytes.extend_from_slice(&value.to_le_bytes());
        }
    }
    bytes
}

/// Takes the state back, or leaves `particles` as they are.
pub(super) fn restore(
    particles: &mut Particles,
    parameters: &Parameters,
    bytes: &[u8],
) -> Result<Progress, SolverError> {
    let refuse = |reason: String| Err(SolverError(format!("this snapshot cannot be restored: {reason}")));
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return refuse("it is not one of an SPH fluid of this version".into());
    };
    let Some((header, values)) = rest.split_first_chunk::<32>() else {
        return refuse("it is cut off".into());
    };
    let mut numbers = header.as_chunks::<8>().0.iter().map(|&bytes| u64::from_le_bytes(bytes));
    let mut number = || numbers.next().expect("four numbers");
    let (count, steps, next_id, time) = (number(), number(), number(), f64::from_bits(number()));
    let expected = count.checked_mul(BYTES_PER_PARTICLE as u64);
    if expected != Some(values.len() as u64) {
        return refuse(format!("{} bytes of state for {count} particles", values.len()));
    }
    let (values, _) = values.as_chunks::<8>();
    let (ids, values) = values.split_at(count as usize);
    let ids: Vec<ParticleId> = ids.iter().map(|&bytes| ParticleId(u64::from_le_bytes(bytes))).collect();
    let vector = |v: &[[u8; 8]; 3]| DVec3::from_array(v.map(f64::from_le_bytes));
    let (vectors, _) = values.as_chunks::<3>();
    if let Some(bad) = vectors.iter().position(|v| !vector(v).is_finite()) {
        return refuse(format!("particle {} is not finite", ids[bad % ids.len()]));
    }
    let sorted = |ids: &[ParticleId]| {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids
    };
    let (restored, made) = (sorted(&ids), sorted(&particles.id));
    let unique = restored.is_sorted_by(|a, b| a < b) && restored.last().is_none_or(|last| last.0 < next_id);
    if !unique || !time.is_finite() || parameters.sources.is_empty() && restored != made {
        return refuse("its particles are not those of the scene".into());
    }
    let (positions, velocities) = vectors.split_at(ids.len());
    *particles = Particles {
        position: positions.iter().map(vector).collect(),
        velocity: velocities.iter().map(vector).collect(),
        mass: vec![parameters.mass; ids.len()],
        radius: vec![parameters.radius; ids.len()],
        immovable: vec![false; ids.len()],
        id: ids,
    };
    Ok(Progress { steps, time, next_id })
}
