//! Limits on the size of a call. The receiver knows them from the header, before any column arrives.

use std::borrow::Cow;

use super::limits::{CALL_BYTES_MAX, COUNT_MAX, WireError, check_count};
use crate::generated::v1;

/// Grids on which one commit can ask for occupied cells.
pub const GRIDS_MAX: usize = 8;

/// Names of their columns in the answer.
pub const CELL_COLUMNS: [&str; GRIDS_MAX] =
    ["cells_0", "cells_1", "cells_2", "cells_3", "cells_4", "cells_5", "cells_6", "cells_7"];

/// Bytes of a cell set, where the receiver knows no smaller bound.
pub const CELL_SET_BYTES_MAX: u64 = 64 << 20;

/// Bytes of a cell in a cell set, at most: 63 bits, seven in each byte.
pub const CELL_BYTES_MAX: u64 = 9;

/// Contacts of a participant with itself per particle, at most.
pub const CONTACTS_PER_PARTICLE_MAX: u64 = 1024;

/// Particles that a brief answer to Initialize names, at most.
pub const NEAREST_MAX: u64 = 1 << 16;

/// Vertices, and triangles, per particle.
pub const SURFACE_PER_PARTICLE_MAX: u64 = 64;

/// Bytes of a snapshot per particle.
pub const SNAPSHOT_BYTES_PER_PARTICLE_MAX: u64 = 16 << 10;

/// Particles that are born in one step.
pub const BORN_MAX: u64 = 1 << 24;

// Bytes of an id, of a vector, and of a symmetric matrix.
const ID: u64 = 8;
const VEC3: u64 = 24;
const SYMMETRIC: u64 = 48;

/// Facts that the receiver of a call knows before the call arrives.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Particles of the participant.
    pub particles: u64,
    /// Bytes of a cell set that its particles can fill.
    pub cell_bytes: u64,
}

impl Default for Known {
    /// No particular bounds: the largest that the contract allows.
    fn default() -> Self {
        Self { particles: COUNT_MAX, cell_bytes: CELL_SET_BYTES_MAX }
    }
}

impl Known {
    /// A count from a header that cannot be larger than `each` per particle.
    fn count(&self, what: &'static str, count: u64, each: u64) -> Result<u64, WireError> {
        let count = check_count(what, count)?;
        let most = self.particles.saturating_mul(each);
        if count <= most { Ok(count) } else { Err(WireError::TooMany { what, count, most }) }
    }
}

/// The columns that a header calls for, each with the bytes that it may still hold and the bytes that it may
/// hold in total.
#[derive(Clone, Debug, Default)]
pub struct Room(Vec<(Cow<'static, str>, u64, u64)>);

impl Room {
    fn with(mut self, name: impl Into<Cow<'static, str>>, bytes: u64) -> Self {
        self.0.push((name.into(), bytes, bytes));
        self
    }

    /// Room for one column alone.
    #[cfg(test)]
    pub(crate) fn of(name: &'static str, bytes: u64) -> Self {
        Self::default().with(name, bytes)
    }

    /// Takes up room, and says how many bytes of the column are left.
    ///
    /// # Errors
    /// A column that the header does not call for, or one that holds more than was announced.
    pub(crate) fn take(&mut self, name: &str, bytes: u64) -> Result<u64, WireError> {
        let Some((_, left, all)) = self.0.iter_mut().find(|(known, ..)| known == name) else {
            return Err(WireError::UnknownColumn(amalgam_particles::text::shorten(name)));
        };
        match left.checked_sub(bytes) {
            Some(rest) => *left = rest,
            None => return Err(WireError::Beyond { column: name.into(), announced: *all }),
        }
        Ok(*left)
    }

    /// Refuses room for more than anybody has.
    fn check(self) -> Result<Self, WireError> {
        let all = self.0.iter().fold(0u64, |sum, (_, _, bytes)| sum.saturating_add(*bytes));
        if all <= CALL_BYTES_MAX { Ok(self) } else { Err(WireError::TooLarge) }
    }

    pub(crate) fn table(header: &v1::InitializeHeader) -> Result<Self, WireError> {
        let n = check_count("particles", header.particles)?;
        if let Some(brief) = &header.brief {
            if brief.nearest > NEAREST_MAX {
                return Err(WireError::Rule(format!(
                    "{} nearest particles, more than {NEAREST_MAX}",
                    brief.nearest
                )));
            }
            return Self::default()
                .with("nearest", brief.nearest * ID)
                .with("nearest_position", brief.nearest * VEC3)
                .check();
        }
        let known = Known { particles: n, ..Known::default() };
        let triangles = known.count("triangles", header.triangles, SURFACE_PER_PARTICLE_MAX)?;
        let room = Self::default().with("id", n * ID).with("position", n * VEC3).with("velocity", n * VEC3);
        let room = room.with("mass", n * 8).with("radius", n * 8).with("immovable", n);
        let room = room.with("triangles", triangles * 3 * ID);
        if header.bodies { room.with("body", n * ID).check() } else { room.check() }
    }

    pub(crate) fn cells(known: &Known) -> Self {
        Self::default().with("cells", known.cell_bytes)
    }

    pub(crate) fn interest(self, interest: &v1::Interest, known: &Known) -> Result<Self, WireError> {
        match v1::Wanted::try_from(interest.wanted) {
            Ok(v1::Wanted::Near) => Ok(self.with("interest", known.cell_bytes)),
            Ok(v1::Wanted::Listed) => {
                Ok(self.with("listed", known.count("listed", interest.listed, 1)? * ID))
            }
            _ => Ok(self),
        }
    }

    pub(crate) fn batch(self, header: &v1::BeginAnswer, known: &Known) -> Result<Self, WireError> {
        let n = known.count("particles", header.particles, 1)?;
        let contacts = known.count("contacts", header.contacts, CONTACTS_PER_PARTICLE_MAX)?;
        let room = if header.as_before { self } else { self.with("id", n * ID) };
        room.with("position", n * VEC3).with("velocity", n * VEC3).with("contacts", contacts * 8).check()
    }

    pub(crate) fn integrate(header: &v1::IntegrateHeader, known: &Known) -> Result<Self, WireError> {
        let groups = known.count("groups", header.groups.into(), 1)?;
        let room = Self::default().with("inertia", groups * 8).with("impulse", groups * VEC3);
        if header.repetition > 0 {
            return Ok(room);
        }
        let members = known.count("members", header.members, 1)?;
        let watched = known.count("watched", header.watched, 1)?;
        let room = room.with("group_size", groups * 4).with("member", members * ID);
        let room = room.with("velocity", groups * VEC3).with("watch", watched * ID);
        if header.has_occupied { room.with("occupied", known.cell_bytes).check() } else { room.check() }
    }

    pub(crate) fn integrated(header: &v1::IntegrateAnswer, groups: u64, watched: u64) -> Self {
        let room = Self::default().with("momentum", groups * VEC3).with("slope", groups * SYMMETRIC);
        let room = room.with("watch_velocity", watched * VEC3);
        if !header.bodies {
            return room;
        }
        let room = room.with("body_mass", groups * 8).with("body_inertia", groups * SYMMETRIC);
        let room = room.with("body_centre", groups * VEC3).with("body_velocity", groups * VEC3);
        room.with("body_spin", groups * VEC3)
    }

    pub(crate) fn commit(header: &v1::CommitHeader, known: &Known) -> Result<Self, WireError> {
        let groups = known.count("groups", header.groups.into(), 1)?;
        let members = known.count("members", header.members, 1)?;
        let tracked = known.count("tracked", header.tracked, 1)?;
        let room = Self::default().with("group_velocity", groups * VEC3).with("group_number", groups * 4);
        let room = room.with("member_velocity", members * VEC3).with("track", tracked * ID);
        let room = if header.bodies { room.with("group_spin", groups * VEC3) } else { room };
        match &header.next {
            Some(next) => room.interest(next, known)?.check(),
            None => room.check(),
        }
    }

    pub(crate) fn committed(
        header: &v1::CommitAnswer,
        known: &Known,
        grids: usize,
        tracked: u64,
    ) -> Result<Self, WireError> {
        if header.born > BORN_MAX {
            return Err(WireError::TooMany { what: "born", count: header.born, most: BORN_MAX });
        }
        let dead = known.count("dead", header.dead, 1)?;
        let after = Known { particles: known.particles.saturating_add(header.born), ..*known };
        let mut room = Self::default().with("born_id", header.born * ID).with("born_mass", header.born * 8);
        room = room.with("born_radius", header.born * 8).with("born_immovable", header.born);
        let released = known.count("released", header.released, 1)?;
        room = room.with("dead", dead * ID);
        room = room.with("released_id", released * ID).with("released_mass", released * 8);
        room = room.with("track_position", tracked * VEC3).with("track_velocity", tracked * VEC3);
        let cells = after.particles.saturating_mul(CELL_BYTES_MAX).min(CELL_SET_BYTES_MAX);
        for name in &CELL_COLUMNS[..grids.min(GRIDS_MAX)] {
            room = room.with(*name, cells);
        }
        match &header.next {
            Some(next) => room.batch(next, &after),
            None => room.check(),
        }
    }

    pub(crate) fn frame(header: &v1::FrameAnswer, known: &Known) -> Result<Self, WireError> {
        let n = known.count("particles", header.particles, 1)?;
        if header.parts > 0 {
            return Self::default().check();
        }
        let room = Self::default().with("id", n * ID).with("position", n * VEC3).with("velocity", n * VEC3);
        let mut room = room.with("radius", n * 8).with("group", n * 4);
        for (at, field) in header.fields.iter().enumerate() {
            room = room.with(format!("field_{at}"), (n * 4).saturating_mul(field.components.into()));
        }
        if let Some(surface) = &header.surface {
            let vertices = known.count("vertices", surface.vertices, SURFACE_PER_PARTICLE_MAX)?;
            let triangles = known.count("triangles", surface.triangles, SURFACE_PER_PARTICLE_MAX)?;
            room = room.with("surface_vertices", vertices * VEC3).with("surface_triangles", triangles * 12);
            if surface.velocities {
                room = room.with("surface_velocity", vertices * VEC3);
            }
        }
        room.check()
    }

    pub(crate) fn snapshot(known: &Known) -> Self {
        let bytes = known.particles.saturating_mul(SNAPSHOT_BYTES_PER_PARTICLE_MAX);
        Self::default().with("snapshot", bytes.saturating_add(1 << 20).min(CALL_BYTES_MAX))
    }
}
