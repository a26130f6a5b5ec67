//! The state as bytes: which particles there are, in which order they are stored, their positions and velocities, and
//! where the next pressure solve starts; everything else is in the section.
//!
//! Layout, little endian: 8 bytes of magic with the version; as u64 the number of particles, of entries of the grid, of
//! committed steps and the next id; the time (f64); ids (u64), positions, velocities (three f64 each), and the pressure
//! of each cell by colour (f64).

use amalgam_particles::{DVec3, ParticleId, Particles};
use amalgam_solver_kit::SolverError;

use super::Parameters;
use super::pressure::Split;

const MAGIC: &[u8; 8] = b"AMFLP002";
const BYTES_PER_PARTICLE: u64 = 56;

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

pub(super) fn save(particles: &Particles, progress: Progress, pressure: &Split<f64>) -> Vec<u8> {
    let Progress { steps, time, next_id } = progress;
    let entries = pressure[0].len() + pressure[1].len();
    let mut bytes = Vec::with_capacity(48 + BYTES_PER_PARTICLE as usize * particles.len() + 8 * entries);
    bytes.extend_from_slice(MAGIC);
    for number in [particles.len() as u64, entries as u64, steps, next_id, time.to_bits()] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    particles.id.iter().for_each(|id| bytes.extend_from_slice(&id.0.to_le_bytes()));
    let columns = particles.position.iter().chain(&particles.velocity).flat_map(DVec3::to_array);
    let pressure = pressure.iter().flatten().copied();
    columns.chain(pressure).for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
    bytes
}

/// Takes the state back, or leaves it as it is.
pub(super) fn restore(
    particles: &mut Particles,
    parameters: &Parameters,
    pressure: &mut Split<f64>,
    bytes: &[u8],
) -> Result<Progress, SolverError> {
    let refuse = |reason: &str| Err(SolverError(format!("this snapshot cannot be restored: {reason}")));
    let entries = pressure[0].len() + pressure[1].len();
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return refuse("it is not one of a FLIP fluid of this version");
    };
    let Some((header, rest)) = rest.split_first_chunk::<40>() else {
        return refuse("it is cut off");
    };
    let mut numbers = header.as_chunks::<8>().0.iter().map(|&bytes| u64::from_le_bytes(bytes));
    let mut number = || numbers.next().expect("five numbers");
    let (count, cells, steps, next_id, time) =
        (number(), number(), number(), number(), f64::from_bits(number()));
    if cells != entries as u64 {
        return refuse("its grid is another one");
    }
    let expected = count.checked_mul(BYTES_PER_PARTICLE).and_then(|bytes| bytes.checked_add(8 * cells));
    if expected != Some(rest.len() as u64) {
        return refuse("it is cut off");
    }
    let count = count as usize;
    let (ids, values) = rest.split_at(8 * count);
    let values: Vec<f64> = values.as_chunks().0.iter().map(|&bytes| f64::from_le_bytes(bytes)).collect();
    if values.iter().any(|value| !value.is_finite()) || !time.is_finite() {
        return refuse("it holds a number that is not finite");
    }
    let mut ids: Vec<u64> = ids.as_chunks().0.iter().map(|&bytes| u64::from_le_bytes(bytes)).collect();
    let (vectors, pressures) = values.split_at(6 * count);
    let (positions, velocities) = vectors.split_at(3 * count);
    let mut restored = Particles::default();
    let columns = positions.as_chunks().0.iter().zip(velocities.as_chunks().0);
    for (&id, (&position, &velocity)) in ids.iter().zip(columns) {
        let (position, velocity) = (DVec3::from_array(position), DVec3::from_array(velocity));
        let Parameters { particle_mass, radius, .. } = *parameters;
        restored.push(ParticleId(id), position, velocity, particle_mass, radius, false);
    }
    ids.sort_unstable();
    let unique = ids.is_sorted_by(|a, b| a < b) && ids.last().is_none_or(|&last| last < next_id);
    if !unique || parameters.sources.is_empty() && count != particles.len() {
        return refuse("its particles are others");
    }
    *particles = restored;
    pressure.iter_mut().flatten().zip(pressures).for_each(|(to, &from)| *to = from);
    Ok(Progress { steps, time, next_id })
}
