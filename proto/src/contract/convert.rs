//! The checked conversion of each call to and from headers and columns: the only place where wire types become ours.

use amalgam_particles::{ParticleId, Particles};

use super::values::{
    flags, lattice_from_wire, lattice_to_wire, margin_from_wire, not_negative, positive_time, take_surface,
    tuples, vec3_from_wire, vec3_to_wire,
};
use super::{
    Batch, Begin, Call, Commit, Committed, Context, Frame, Groups, Integrate, Integrated, Interest, Next,
    Restore, Snapshot, Survey, Surveyed, Table, Totals, Wanted,
};
use crate::columns::{Columns, WireError, check, check_count, check_unique};
use crate::v1;

impl Context {
    /// For the wire.
    pub fn to_wire(&self) -> v1::RunContext {
        v1::RunContext { run_id: self.run_id.clone(), epoch: self.epoch, step: self.step }
    }

    /// From the wire.
    ///
    /// # Errors
    /// If it is absent.
    pub fn from_wire(context: Option<v1::RunContext>) -> Result<Self, WireError> {
        let v1::RunContext { run_id, epoch, step } = context.ok_or(WireError::Missing("context"))?;
        Ok(Self { run_id, epoch, step })
    }
}

impl Call for Table {
    type Packet = v1::InitializeResponse;

    fn encode(self) -> (v1::InitializeHeader, Columns) {
        let header = v1::InitializeHeader {
            particles: self.particles.len() as u64,
            stable_dt: self.stable_dt,
            occupancy: self.occupancy.map(lattice_to_wire),
            integration: self.integration.unwrap_or(v1::Integration::Unspecified).into(),
        };
        let mut columns = Columns::default();
        columns.put_ids("id", &self.particles.id);
        columns.put("position", self.particles.position);
        columns.put("velocity", self.particles.velocity);
        columns.put_uniform("mass", self.particles.mass);
        columns.put_uniform("radius", self.particles.radius);
        columns.put_uniform("immovable", self.particles.immovable.into_iter().map(u8::from).collect());
        columns.put_ids("triangles", self.triangles.as_flattened());
        (header, columns)
    }

    fn decode(header: v1::InitializeHeader, mut columns: Columns) -> Result<Self, WireError> {
        let count = check_count("particles", header.particles)?;
        let id = columns.take_ids("id", count)?;
        let particles = Particles {
            position: columns.take_vec3("position", count)?,
            velocity: columns.take_vec3("velocity", count)?,
            mass: columns.take_uniform("mass", count)?,
            radius: columns.take_uniform("radius", count)?,
            immovable: flags(columns.take_uniform("immovable", count)?)?,
            id,
        };
        particles.validate().map_err(|error| WireError::Rule(error.to_string()))?;
        let integration = v1::Integration::try_from(header.integration)
            .map_err(|_| WireError::Rule(format!("integration {} is unknown", header.integration)))?;
        let table = Self {
            integration: Some(integration).filter(|&kind| kind != v1::Integration::Unspecified),
            stable_dt: positive_time("stable_dt", header.stable_dt)?,
            occupancy: header.occupancy.map(lattice_from_wire).transpose()?,
            triangles: tuples("triangles", &mut columns)?,
            particles,
        };
        let known: std::collections::HashSet<ParticleId> = table.particles.id.iter().copied().collect();
        if let Some(&id) = table.triangles.as_flattened().iter().find(|id| !known.contains(id)) {
            return Err(WireError::UnknownId { column: "triangles", id, who: "the particle table" });
        }
        columns.finish()?;
        Ok(table)
    }
}

impl Survey {
    /// For the wire.
    pub fn to_wire(&self) -> v1::SurveyRequest {
        let lattice = Some(lattice_to_wire(self.lattice));
        v1::SurveyRequest { context: Some(self.context.to_wire()), lattice, margin: self.margin }
    }

    /// From the wire.
    ///
    /// # Errors
    /// The first rule of the contract that the message breaks.
    pub fn from_wire(request: v1::SurveyRequest) -> Result<Self, WireError> {
        Ok(Self {
            context: Context::from_wire(request.context)?,
            lattice: lattice_from_wire(request.lattice.ok_or(WireError::Missing("lattice"))?)?,
            margin: margin_from_wire(request.margin)?,
        })
    }
}

impl Call for Surveyed {
    type Packet = v1::SurveyResponse;

    fn encode(self) -> (v1::SurveyAnswer, Columns) {
        let mut columns = Columns::default();
        columns.put("cells", self.0.to_bytes());
        (v1::SurveyAnswer {}, columns)
    }

    fn decode(_: v1::SurveyAnswer, mut columns: Columns) -> Result<Self, WireError> {
        let cells = columns.take_cells("cells")?;
        columns.finish()?;
        Ok(Self(cells))
    }
}

impl Interest {
    fn put(self, columns: &mut Columns) -> v1::Interest {
        let mut header = v1::Interest { triangles: self.triangles, ..Default::default() };
        match self.wanted {
            Wanted::All => header.set_wanted(v1::Wanted::All),
            Wanted::Near { lattice, cells, margin } => {
                header.set_wanted(v1::Wanted::Near);
                (header.lattice, header.margin) = (Some(lattice_to_wire(lattice)), margin);
                columns.put("interest", cells.to_bytes());
            }
            Wanted::Listed(ids) => {
                header.set_wanted(v1::Wanted::Listed);
                header.listed = ids.len() as u64;
                columns.put_ids("listed", &ids);
            }
            Wanted::Again => header.set_wanted(v1::Wanted::Again),
        }
        header
    }

    fn take(header: v1::Interest, columns: &mut Columns) -> Result<Self, WireError> {
        let unknown = |_| WireError::Rule(format!("wanted {} is unknown", header.wanted));
        let wanted = match v1::Wanted::try_from(header.wanted).map_err(unknown)? {
            v1::Wanted::All => Wanted::All,
            v1::Wanted::Near => Wanted::Near {
                lattice: lattice_from_wire(header.lattice.ok_or(WireError::Missing("lattice"))?)?,
                cells: columns.take_cells("interest")?,
                margin: margin_from_wire(header.margin)?,
            },
            v1::Wanted::Listed => {
                Wanted::Listed(columns.take_ids("listed", check_count("listed", header.listed)?)?)
            }
            v1::Wanted::Again => Wanted::Again,
        };
        Ok(Self { wanted, triangles: header.triangles })
    }
}

impl Call for Begin {
    type Packet = v1::BeginRequest;

    fn encode(self) -> (v1::BeginHeader, Columns) {
        let mut columns = Columns::default();
        let interest = Some(self.interest.put(&mut columns));
        (v1::BeginHeader { context: Some(self.context.to_wire()), interest }, columns)
    }

    fn decode(header: v1::BeginHeader, mut columns: Columns) -> Result<Self, WireError> {
        let interest = header.interest.ok_or(WireError::Missing("interest"))?;
        let interest = Interest::take(interest, &mut columns)?;
        columns.finish()?;
        Ok(Self { context: Context::from_wire(header.context)?, interest })
    }
}

impl Batch {
    fn put(self, columns: &mut Columns) -> v1::BeginAnswer {
        let header = v1::BeginAnswer {
            particles: self.position.len() as u64,
            contacts: self.contacts.len() as u64,
            as_before: self.id.is_none(),
        };
        columns.put_ids("id", &self.id.unwrap_or_default());
        columns.put("position", self.position);
        columns.put("velocity", self.velocity);
        columns.put("contacts", self.contacts);
        header
    }

    fn take(header: v1::BeginAnswer, columns: &mut Columns) -> Result<Self, WireError> {
        let count = check_count("particles", header.particles)?;
        let id = match header.as_before {
            true => None,
            false => Some(columns.take_ids("id", count)?),
        };
        check_unique("id", id.as_deref().unwrap_or_default())?;
        let batch = Self {
            position: columns.take_vec3("position", count)?,
            velocity: columns.take_vec3("velocity", count)?,
            contacts: columns.take("contacts", check_count("contacts", header.contacts)?)?,
            id,
        };
        check("contacts", &batch.contacts, None, "two places in this answer, the lower first", |&[i, j]| {
            i < j && u64::from(j) < count
        })?;
        if !batch.contacts.is_sorted_by(|a, b| a < b) {
            return Err(WireError::Rule("contacts must ascend, none twice".into()));
        }
        Ok(batch)
    }
}

impl Call for Batch {
    type Packet = v1::BeginResponse;

    fn encode(self) -> (v1::BeginAnswer, Columns) {
        let mut columns = Columns::default();
        (self.put(&mut columns), columns)
    }

    fn decode(header: v1::BeginAnswer, mut columns: Columns) -> Result<Self, WireError> {
        let batch = Self::take(header, &mut columns)?;
        columns.finish()?;
        Ok(batch)
    }
}

impl Call for Integrate {
    type Packet = v1::IntegrateRequest;

    fn encode(self) -> (v1::IntegrateHeader, Columns) {
        let mut header = v1::IntegrateHeader {
            context: Some(self.context.to_wire()),
            stage: self.stage,
            repetition: self.repetition,
            dt: self.dt,
            forcing: self.forcing,
            groups: self.inertia.len() as u32,
            ..Default::default()
        };
        let mut columns = Columns::default();
        if let Some(groups) = self.groups {
            header.members = groups.member.len() as u64;
            header.watched = groups.watch.len() as u64;
            header.has_occupied = groups.occupied.is_some();
            columns.put("group_size", groups.size);
            columns.put_ids("member", &groups.member);
            columns.put("velocity", groups.velocity);
            columns.put_ids("watch", &groups.watch);
            columns.put("occupied", groups.occupied.map(|cells| cells.to_bytes()).unwrap_or_default());
        }
        columns.put("inertia", self.inertia);
        columns.put_uniform("impulse", self.impulse);
        (header, columns)
    }

    fn decode(header: v1::IntegrateHeader, mut columns: Columns) -> Result<Self, WireError> {
        let count = u64::from(header.groups);
        let groups =
            if header.repetition == 0 { Some(groups_from_wire(&header, &mut columns)?) } else { None };
        if !(header.dt > 0.0 && header.dt.is_finite()) {
            return Err(WireError::Rule(format!("dt is {}, but must be positive and finite", header.dt)));
        }
        if header.stage == 0 {
            return Err(WireError::Rule("stages count from 1".into()));
        }
        if !(0.0..1.0).contains(&header.forcing) {
            return Err(WireError::Rule(format!(
                "forcing is {}, but must be from 0 to below 1",
                header.forcing
            )));
        }
        let inertia: Vec<f64> = columns.take("inertia", count)?;
        check("inertia", &inertia, None, "positive (or infinite)", |&m| m > 0.0)?;
        let call = Self {
            context: Context::from_wire(header.context)?,
            stage: header.stage,
            repetition: header.repetition,
            dt: header.dt,
            forcing: header.forcing,
            groups,
            inertia,
            impulse: columns.take_uniform_vec3("impulse", count)?,
        };
        columns.finish()?;
        Ok(call)
    }
}

fn groups_from_wire(header: &v1::IntegrateHeader, columns: &mut Columns) -> Result<Groups, WireError> {
    let count = u64::from(header.groups);
    let size: Vec<u32> = columns.take("group_size", count)?;
    check("group_size", &size, None, "at least 1", |&s| s >= 1)?;
    let members = check_count("members", header.members)?;
    if size.iter().map(|&s| u64::from(s)).sum::<u64>() != members {
        return Err(WireError::Rule(format!("group sizes do not add up to {members} members")));
    }
    let member = columns.take_ids("member", members)?;
    check_unique("member", &member)?;
    let watch = columns.take_ids("watch", check_count("watched", header.watched)?)?;
    check_unique("watch", &watch)?;
    let occupied = columns.take_cells("occupied")?;
    Ok(Groups {
        size,
        member,
        velocity: columns.take_vec3("velocity", count)?,
        watch,
        occupied: header.has_occupied.then_some(occupied),
    })
}

/// [`Integrated`] is read with the counts that were asked for, which its header does not repeat.
impl Integrated {
    /// Header and columns to send.
    pub fn encode(self) -> (v1::IntegrateAnswer, Columns) {
        let mut columns = Columns::default();
        columns.put("momentum", self.momentum);
        columns.put_uniform("slope", self.slope);
        columns.put("watch_velocity", self.watch_velocity);
        (v1::IntegrateAnswer { travel_max: self.travel_max }, columns)
    }

    /// Checks and reads an answer for `groups` groups and `watched` particles.
    ///
    /// # Errors
    /// The first rule of the contract that the message breaks.
    pub fn decode(
        header: v1::IntegrateAnswer,
        mut columns: Columns,
        groups: u64,
        watched: u64,
    ) -> Result<Self, WireError> {
        // What may be one value for all comes after what must hold one for each: nobody makes room for more than was sent.
        let momentum = columns.take_vec3("momentum", groups)?;
        let slope: Vec<f64> = columns.take_uniform("slope", groups)?;
        check("slope", &slope, None, "finite and not negative", |&z| z >= 0.0 && z.is_finite())?;
        let answer = Self {
            momentum,
            slope,
            watch_velocity: columns.take_vec3("watch_velocity", watched)?,
            travel_max: header.travel_max,
        };
        let travel = answer.travel_max;
        if !(travel >= 0.0 && travel.is_finite()) {
            return Err(WireError::Rule(format!(
                "travel_max is {travel}, but must be finite and not negative"
            )));
        }
        columns.finish()?;
        Ok(answer)
    }
}

impl Commit {
    /// Header and columns to send.
    pub fn encode(self) -> (v1::CommitHeader, Columns) {
        let mut columns = Columns::default();
        let within = self.next.as_ref().map_or(0.0, |next| next.within);
        let header = v1::CommitHeader {
            context: Some(self.context.to_wire()),
            stage: self.stage,
            repetition: self.repetition,
            want_state_hash: self.want_state_hash,
            grids: self.grids.into_iter().map(lattice_to_wire).collect(),
            tracked: self.track.len() as u64,
            next: self.next.map(|next| next.interest.put(&mut columns)),
            next_within: within,
        };
        columns.put("group_velocity", self.group_velocity);
        columns.put("group_number", self.group_number);
        columns.put("member_velocity", self.member_velocity);
        columns.put_ids("track", &self.track);
        (header, columns)
    }

    /// Checks and reads a commit for the `groups` groups and `members` members of the last stage.
    ///
    /// # Errors
    /// The first rule of the contract that the message breaks.
    pub fn decode(
        header: v1::CommitHeader,
        mut columns: Columns,
        groups: u64,
        members: u64,
    ) -> Result<Self, WireError> {
        if header.grids.len() > GRIDS_MAX {
            return Err(WireError::Rule(format!("more than {GRIDS_MAX} grids in one commit")));
        }
        let next_of = |interest| -> Result<Next, WireError> {
            let within = not_negative("next_within", header.next_within)?;
            Ok(Next { interest: Interest::take(interest, &mut columns)?, within })
        };
        let next = header.next.map(next_of).transpose()?;
        let commit = Self {
            next,
            context: Context::from_wire(header.context)?,
            stage: header.stage,
            repetition: header.repetition,
            want_state_hash: header.want_state_hash,
            grids: header.grids.into_iter().map(lattice_from_wire).collect::<Result<_, WireError>>()?,
            group_velocity: columns.take_vec3("group_velocity", groups)?,
            group_number: columns.take("group_number", groups)?,
            member_velocity: columns.take_vec3("member_velocity", members)?,
            track: columns.take_ids("track", check_count("tracked", header.tracked)?)?,
        };
        columns.finish()?;
        Ok(commit)
    }
}

/// Grids on which one commit can ask for occupied cells.
pub const GRIDS_MAX: usize = 8;

/// Names of their columns in the answer.
pub const CELL_COLUMNS: [&str; GRIDS_MAX] =
    ["cells_0", "cells_1", "cells_2", "cells_3", "cells_4", "cells_5", "cells_6", "cells_7"];

impl Committed {
    /// Header and columns to send.
    pub fn encode(self) -> (v1::CommitAnswer, Columns) {
        let mut columns = Columns::default();
        let Totals { momentum, angular_momentum, mass_moment, .. } = self.totals;
        let header = v1::CommitAnswer {
            particles: self.particles,
            stable_dt: self.stable_dt,
            speed_max: self.totals.speed_max,
            radius_rate_max: self.totals.radius_rate_max,
            acceleration_max: self.totals.acceleration_max,
            momentum: Some(vec3_to_wire(momentum)),
            angular_momentum: Some(vec3_to_wire(angular_momentum)),
            kinetic_energy: self.totals.kinetic_energy,
            potential_energies: self
                .potential_energies
                .into_iter()
                .map(|(name, joule)| v1::Energy { name, joule })
                .collect(),
            mass_moment: Some(vec3_to_wire(mass_moment)),
            state_hash: self.state_hash,
            broken: self.broken,
            born: self.born.len() as u64,
            dead: self.dead.len() as u64,
            solver_seconds: self.solver_seconds,
            next: self.next.map(|batch| batch.put(&mut columns)),
        };
        columns.put_ids("born_id", &self.born.iter().map(|b| b.0).collect::<Vec<_>>());
        columns.put_uniform("born_mass", self.born.iter().map(|b| b.1).collect());
        columns.put_uniform("born_radius", self.born.iter().map(|b| b.2).collect());
        columns.put_uniform("born_immovable", self.born.iter().map(|b| u8::from(b.3)).collect());
        columns.put_ids("dead", &self.dead);
        for (name, cells) in CELL_COLUMNS.into_iter().zip(&self.cells) {
            columns.put(name, cells.to_bytes());
        }
        columns.put("track_position", self.track_position);
        columns.put("track_velocity", self.track_velocity);
        (header, columns)
    }

    /// Checks and reads an answer for `grids` grids and `tracked` particles.
    ///
    /// # Errors
    /// The first rule of the contract that the message breaks.
    pub fn decode(
        header: v1::CommitAnswer,
        mut columns: Columns,
        grids: usize,
        tracked: u64,
    ) -> Result<Self, WireError> {
        let totals = Totals {
            momentum: vec3_from_wire("momentum", header.momentum)?,
            angular_momentum: vec3_from_wire("angular_momentum", header.angular_momentum)?,
            kinetic_energy: header.kinetic_energy,
            mass_moment: vec3_from_wire("mass_moment", header.mass_moment)?,
            speed_max: header.speed_max,
            radius_rate_max: header.radius_rate_max,
            acceleration_max: header.acceleration_max,
        };
        let scalars =
            [totals.kinetic_energy, totals.speed_max, totals.radius_rate_max, totals.acceleration_max];
        if !scalars.iter().all(|value| value.is_finite() && *value >= 0.0) {
            return Err(WireError::Rule(format!(
                "energy, speeds and acceleration are {scalars:?}, but must be finite"
            )));
        }
        let solver_seconds = header.solver_seconds;
        if !(solver_seconds >= 0.0 && solver_seconds.is_finite()) {
            return Err(WireError::Rule(format!(
                "solver_seconds is {solver_seconds}, but must be finite and not negative"
            )));
        }
        let energies = header.potential_energies.into_iter().map(|v1::Energy { name, joule }| (name, joule));
        let potential_energies: Vec<(String, f64)> = energies.collect();
        if potential_energies.len() > 16 || potential_energies.iter().any(|(_, joule)| !joule.is_finite()) {
            return Err(WireError::Rule("potential energies must be finite, and at most 16".into()));
        }
        let born = check_count("born", header.born)?;
        let (id, mass, radius, immovable): (_, Vec<f64>, Vec<f64>, _) = (
            columns.take_ids("born_id", born)?,
            columns.take_uniform("born_mass", born)?,
            columns.take_uniform("born_radius", born)?,
            flags(columns.take_uniform("born_immovable", born)?)?,
        );
        for (column, values) in [("born_mass", &mass), ("born_radius", &radius)] {
            check(column, values, Some(&id), "positive and finite", |&v| v > 0.0 && v.is_finite())?;
        }
        check_unique("born_id", &id)?;
        let committed = Self {
            particles: check_count("particles", header.particles)?,
            stable_dt: positive_time("stable_dt", header.stable_dt)?,
            totals,
            potential_energies,
            state_hash: header.state_hash,
            broken: header.broken,
            born: (0..id.len()).map(|i| (id[i], mass[i], radius[i], immovable[i])).collect(),
            dead: columns.take_ids("dead", check_count("dead", header.dead)?)?,
            cells: CELL_COLUMNS[..grids.min(GRIDS_MAX)]
                .iter()
                .map(|name| columns.take_cells(name))
                .collect::<Result<_, WireError>>()?,
            track_position: columns.take_vec3("track_position", tracked)?,
            track_velocity: columns.take_vec3("track_velocity", tracked)?,
            solver_seconds,
            next: header.next.map(|answer| Batch::take(answer, &mut columns)).transpose()?,
        };
        columns.finish()?;
        Ok(committed)
    }
}

impl Call for Frame {
    type Packet = v1::FrameResponse;

    fn encode(self) -> (v1::FrameAnswer, Columns) {
        let fields = self
            .fields
            .iter()
            .map(|(name, components, _)| v1::FieldInfo { name: name.clone(), components: *components });
        let surface = self.surface.as_ref().map(|(vertices, triangles)| v1::SurfaceInfo {
            vertices: vertices.len() as u64,
            triangles: triangles.len() as u64,
        });
        let header = v1::FrameAnswer { particles: self.id.len() as u64, fields: fields.collect(), surface };
        let mut columns = Columns::default();
        columns.put_ids("id", &self.id);
        columns.put("position", self.position);
        columns.put("velocity", self.velocity);
        columns.put_uniform("radius", self.radius);
        columns.put_uniform("group", self.group);
        for (at, (_, _, values)) in self.fields.into_iter().enumerate() {
            columns.put(format!("field_{at}"), values);
        }
        if let Some((vertices, triangles)) = self.surface {
            columns.put("surface_vertices", vertices);
            columns.put("surface_triangles", triangles);
        }
        (header, columns)
    }

    fn decode(header: v1::FrameAnswer, mut columns: Columns) -> Result<Self, WireError> {
        let count = check_count("particles", header.particles)?;
        if header.fields.len() > 32 {
            return Err(WireError::Rule("more than 32 fields in a frame".into()));
        }
        let id = columns.take_ids("id", count)?;
        if !id.is_sorted_by(|a, b| a < b) {
            return Err(WireError::Rule("ids of a frame must ascend".into()));
        }
        let mut fields = Vec::new();
        for (at, v1::FieldInfo { name, components }) in header.fields.into_iter().enumerate() {
            let fits = (1..=64).contains(&name.len())
                && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
            if !fits || !matches!(components, 1 | 3) {
                return Err(WireError::Rule(format!(
                    "field {name:?} with {components} components: names are a-z, 0-9 and _, components 1 or 3"
                )));
            }
            let values = columns.take_floats(&format!("field_{at}"), count * u64::from(components))?;
            fields.push((name, components, values));
        }
        let frame = Self {
            position: columns.take_vec3("position", count)?,
            velocity: columns.take_vec3("velocity", count)?,
            radius: columns.take_uniform("radius", count)?,
            group: columns.take_uniform("group", count)?,
            id,
            fields,
            surface: header.surface.map(|surface| take_surface(&surface, &mut columns)).transpose()?,
        };
        check("radius", &frame.radius, Some(&frame.id), "positive and finite", |&r| {
            r > 0.0 && r.is_finite()
        })?;
        columns.finish()?;
        Ok(frame)
    }
}

impl Call for Snapshot {
    type Packet = v1::SaveResponse;

    fn encode(self) -> (v1::SaveAnswer, Columns) {
        let mut columns = Columns::default();
        columns.put("snapshot", self.bytes);
        (v1::SaveAnswer { state_hash: self.state_hash }, columns)
    }

    fn decode(header: v1::SaveAnswer, mut columns: Columns) -> Result<Self, WireError> {
        let bytes = columns.take_bytes("snapshot");
        columns.finish()?;
        Ok(Self { state_hash: header.state_hash, bytes })
    }
}

impl Call for Restore {
    type Packet = v1::RestoreRequest;

    fn encode(self) -> (v1::RestoreHeader, Columns) {
        let mut columns = Columns::default();
        columns.put("snapshot", self.bytes);
        (v1::RestoreHeader { context: Some(self.context.to_wire()) }, columns)
    }

    fn decode(header: v1::RestoreHeader, mut columns: Columns) -> Result<Self, WireError> {
        let bytes = columns.take_bytes("snapshot");
        columns.finish()?;
        Ok(Self { context: Context::from_wire(header.context)?, bytes })
    }
}
