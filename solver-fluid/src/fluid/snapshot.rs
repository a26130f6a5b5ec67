//! A fluid's state as bytes: its particles in the order in which they are stored, and the memory of its
//! method.
//!
//! The layout begins with 8 bytes of magic, which hold the version. As u64 follow the count of particles, the
//! count of the method's numbers, the count of committed steps, and the next id. Then follow the time, ids,
//! positions, velocities and the method's numbers.

use std::io::Write;

use amalgam_particles::{ParticleId, Particles};
use amalgam_solver_kit::{SnapshotReader, SnapshotWriter, SolverError};

use super::Basics;

/// Progress of a fluid.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Steps committed.
    pub(crate) steps: u64,
    /// Time since the start [s].
    pub(crate) time: f64,
    /// The id of the next particle.
    pub(crate) next_id: u64,
}

/// The fluid that a snapshot must fit.
#[derive(Clone, Copy)]
pub(crate) struct Kept<'a> {
    /// Ids of the present particles. There are none on ranks other than the first, which does the comparison
    /// with the snapshot.
    pub(crate) ids: Option<&'a [ParticleId]>,
    /// True if particles appear and disappear.
    pub(crate) may_change: bool,
    pub(crate) basics: Basics<'a>,
    /// Count of the method's numbers.
    pub(crate) memory: usize,
}

/// Writes the exact state after the magic.
pub(crate) fn save<W: Write>(
    mut writer: SnapshotWriter<W>,
    particles: &Particles,
    progress: Progress,
    memory: &[f64],
) -> SnapshotWriter<W> {
    let Progress { steps, time, next_id } = progress;
    for number in [particles.len() as u64, memory.len() as u64, steps, next_id] {
        writer.integer(number);
    }
    writer.numbers([time]);
    particles.id.iter().for_each(|id| writer.integer(id.0));
    writer.vectors(&particles.position);
    writer.vectors(&particles.velocity);
    writer.numbers(memory.iter().copied());
    writer
}

/// The particles, the progress and the method's numbers in a snapshot.
pub(crate) fn restore(
    magic: &[u8; 8],
    kept: &Kept<'_>,
    bytes: &[u8],
) -> Result<(Particles, Progress, Vec<f64>), SolverError> {
    let mut reader = SnapshotReader::new(magic, "a fluid with this method", bytes)?;
    let count = reader.integer()?;
    reader.expect(kept.memory, "numbers of the method")?;
    let (steps, next_id) = (reader.integer()?, reader.integer()?);
    let [time] = reader.array()?;
    // Ids are read one by one, so that a count that is too large ends here before memory is taken for it.
    let mut id = Vec::new();
    for _ in 0..count {
        id.push(ParticleId(reader.integer()?));
    }
    let (position, velocity) = (reader.vectors(count)?, reader.vectors(count)?);
    let memory = reader.numbers(kept.memory as u64)?;
    let restored = sorted(&id);
    let is_unique =
        restored.is_sorted_by(|a, b| a < b) && restored.last().is_none_or(|last| last.0 < next_id);
    let is_other = |made: &[ParticleId]| !kept.may_change && restored != sorted(made);
    if !is_unique || kept.ids.is_some_and(is_other) {
        return Err(reader.refuse("its particles are not those of the scene"));
    }
    reader.finish()?;
    let count = id.len();
    let particles = Particles {
        position,
        velocity,
        mass: vec![kept.basics.particle_mass; count],
        radius: vec![kept.basics.radius; count],
        immovable: vec![false; count],
        id,
    };
    Ok((particles, Progress { steps, time, next_id }, memory))
}

fn sorted(ids: &[ParticleId]) -> Vec<ParticleId> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids
}
