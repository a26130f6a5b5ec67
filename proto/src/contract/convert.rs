//! The checked conversion of each call to and from headers and columns: the only place where wire types
//! become ours.

use amalgam_particles::text::shorten;
use amalgam_particles::{
    ContactLookAhead, DVec3, MASS_RULE, MovingSurface, ParticleId, Particles, RADIUS_RULE, SPEED_LIMIT,
    is_mass, is_radius,
};

use super::values::{
    check_name, flags, lattice_from_wire, lattice_to_wire, margin_from_wire, positive_time, substeps_once,
    take_surface, tuples,
};
use super::{
    AskFrame, AskSave, Batch, Begin, Brief, Call, Context, Description, Frame, FrameFiles, Integration,
    Interest, Restore, Snapshot, SnapshotFiles, Survey, Surveyed, Table, Wanted, Written,
};
use crate::columns::room::{Known, Room};
use crate::columns::{Columns, POSITIONS, VELOCITIES, WireError, check, check_count, check_unique};
use crate::generated::{PROTOCOL_VERSION, v1};

impl Context {
    /// Converts to the wire type.
    pub fn to_wire(&self) -> v1::RunContext {
        v1::RunContext { run_id: self.run_id.clone(), epoch: self.epoch, step: self.step }
    }

    /// Converts from the wire type.
    ///
    /// # Errors
    /// If it is absent, or its run has too long a name.
    pub fn from_wire(context: Option<v1::RunContext>) -> Result<Self, WireError> {
        let v1::RunContext { run_id, epoch, step } = context.ok_or(WireError::Missing("context"))?;
        check_name("run_id", &run_id)?;
        Ok(Self { run_id, epoch, step })
    }
}

impl Integration {
    fn to_wire(self) -> v1::Integration {
        match self {
            Self::Explicit => v1::Integration::Explicit,
            Self::Implicit => v1::Integration::Implicit,
            Self::Projection => v1::Integration::Projection,
        }
    }

    /// Converts from the wire type; `None` if it is not given there.
    fn from_wire(integration: i32) -> Result<Option<Self>, WireError> {
        match v1::Integration::try_from(integration) {
            Ok(v1::Integration::Unspecified) => Ok(None),
            Ok(v1::Integration::Explicit) => Ok(Some(Self::Explicit)),
            Ok(v1::Integration::Implicit) => Ok(Some(Self::Implicit)),
            Ok(v1::Integration::Projection) => Ok(Some(Self::Projection)),
            Err(_) => Err(WireError::Rule(format!("integration {integration} is unknown"))),
        }
    }
}

impl Description {
    /// Converts to the wire type, in the version of the contract that this crate speaks.
    pub fn to_wire(&self) -> v1::DescribeResponse {
        v1::DescribeResponse {
            name: self.name.clone(),
            version: self.version.clone(),
            protocol_version: PROTOCOL_VERSION,
            integration: self.integration.to_wire().into(),
            obstacles: self.wants_obstacles,
        }
    }

    /// Converts from the wire type, in the version of the contract that this crate speaks.
    ///
    /// # Errors
    /// A name or version that is too long, or no integration.
    pub fn from_wire(answer: v1::DescribeResponse) -> Result<Self, WireError> {
        let integration = Integration::from_wire(answer.integration)?.ok_or_else(|| {
            WireError::Rule("it does not say how it integrates (explicit, implicit or projection)".into())
        })?;
        check_name("name", &answer.name)?;
        check_name("version", &answer.version)?;
        let wants_obstacles = answer.obstacles;
        Ok(Self { name: answer.name, version: answer.version, integration, wants_obstacles })
    }
}

impl Call for Table {
    type Packet = v1::InitializeResponse;

    fn room(header: &v1::InitializeHeader, _: &Known) -> Result<Room, WireError> {
        Room::table(header)
    }

    fn encode(self) -> (v1::InitializeHeader, Columns) {
        let header = v1::InitializeHeader {
            particles: self.count(),
            stable_dt: self.stable_dt,
            triangles: self.triangles.len() as u64,
            occupancy: self.occupancy.map(lattice_to_wire),
            integration: self.integration.map_or(v1::Integration::Unspecified, Integration::to_wire).into(),
            bodies: self.bodies.is_some(),
            keeps_off_obstacles: self.keeps_off_obstacles,
            substeps_once: self.substeps_once,
            brief: self.brief.as_ref().map(|brief| v1::Brief {
                mass: brief.mass,
                radius: brief.radius,
                speed_max: brief.speed_max,
                state_hash: brief.state_hash,
                nearest: brief.nearest.len() as u64,
            }),
        };
        let mut columns = Columns::default();
        if let Some(brief) = self.brief {
            let (ids, positions): (Vec<ParticleId>, Vec<DVec3>) = brief.nearest.into_iter().unzip();
            columns.put_ids("nearest", &ids);
            columns.put("nearest_position", positions);
            return (header, columns);
        }
        columns.put_ids("id", &self.particles.id);
        columns.put_ids("body", &self.bodies.unwrap_or_default());
        columns.put("position", self.particles.position);
        columns.put("velocity", self.particles.velocity);
        columns.put_uniform("mass", self.particles.mass);
        columns.put_uniform("radius", self.particles.radius);
        columns.put_uniform("immovable", self.particles.immovable.into_iter().map(u8::from).collect());
        columns.put_ids("triangles", self.triangles.as_flattened());
        (header, columns)
    }

    fn decode(header: v1::InitializeHeader, mut columns: Columns) -> Result<Self, WireError> {
        let table = Self {
            integration: Integration::from_wire(header.integration)?,
            stable_dt: positive_time("stable_dt", header.stable_dt)?,
            occupancy: header.occupancy.map(lattice_from_wire).transpose()?,
            keeps_off_obstacles: header.keeps_off_obstacles,
            substeps_once: substeps_once(header.substeps_once)?,
            ..Self::default()
        };
        if let Some(brief) = header.brief {
            let brief = Some(Brief::take(&header, brief, &mut columns)?);
            columns.finish()?;
            return Ok(Self { brief, bodies: header.bodies.then(Vec::new), ..table });
        }
        let count = check_count("particles", header.particles)?;
        let id = columns.take_ids("id", count)?;
        let particles = Particles {
            position: columns.take_vec3("position", count, POSITIONS)?,
            velocity: columns.take_vec3("velocity", count, VELOCITIES)?,
            mass: columns.take_uniform("mass", count)?,
            radius: columns.take_uniform("radius", count)?,
            immovable: flags(columns.take_uniform("immovable", count)?)?,
            id,
        };
        particles.validate().map_err(|error| WireError::Rule(error.to_string()))?;
        let table = Self {
            triangles: tuples("triangles", header.triangles, &mut columns)?,
            bodies: header.bodies.then(|| columns.take_ids("body", count)).transpose()?,
            particles,
            ..table
        };
        let known: std::collections::HashSet<ParticleId> = table.particles.id.iter().copied().collect();
        if let Some(&id) = table.triangles.as_flattened().iter().find(|id| !known.contains(id)) {
            return Err(WireError::UnknownId { column: "triangles", id, who: "the particle table" });
        }
        if let Some(&id) = table.bodies.iter().flatten().find(|id| !known.contains(id)) {
            return Err(WireError::UnknownId { column: "body", id, who: "the particle table" });
        }
        columns.finish()?;
        Ok(table)
    }
}

impl Brief {
    fn take(
        header: &v1::InitializeHeader,
        brief: v1::Brief,
        columns: &mut Columns,
    ) -> Result<Self, WireError> {
        let v1::Brief { mass, radius, speed_max, state_hash, nearest: named } = brief;
        let rule = |holds: bool, rule: &str| match holds {
            true => Ok(()),
            false => Err(WireError::Rule(format!("brief: {rule}"))),
        };
        let count = check_count("particles", header.particles)?;
        rule(count > 0, "there are no particles to be brief about")?;
        rule(header.triangles == 0, "particles of triangles are not alike")?;
        rule(is_mass(mass), &format!("the mass must be {MASS_RULE}"))?;
        rule(is_radius(radius), &format!("the radius must be {RADIUS_RULE}"))?;
        rule(
            (0.0..SPEED_LIMIT).contains(&speed_max),
            &format!("speed_max is {speed_max:e}, but must be from 0 to below {SPEED_LIMIT:e} m/s"),
        )?;
        let ids = columns.take_ids("nearest", named)?;
        let positions = columns.take_vec3("nearest_position", named, POSITIONS)?;
        if let Some(&id) = ids.iter().find(|id| id.0 >= count) {
            return Err(WireError::UnknownId { column: "nearest", id, who: "the participant" });
        }
        let nearest = ids.into_iter().zip(positions).collect();
        Ok(Self { count, mass, radius, speed_max, state_hash, nearest })
    }
}

impl Survey {
    /// Converts to the wire type.
    pub fn to_wire(&self) -> v1::SurveyRequest {
        let lattice = Some(lattice_to_wire(self.lattice));
        let (margin, centres) = (self.margin, self.centres);
        v1::SurveyRequest { context: Some(self.context.to_wire()), lattice, margin, centres }
    }

    /// Converts from the wire type.
    ///
    /// # Errors
    /// The first rule of the contract that the message breaks.
    pub fn from_wire(request: v1::SurveyRequest) -> Result<Self, WireError> {
        Ok(Self {
            context: Context::from_wire(request.context)?,
            lattice: lattice_from_wire(request.lattice.ok_or(WireError::Missing("lattice"))?)?,
            margin: margin_from_wire(request.margin)?,
            centres: request.centres,
        })
    }
}

impl Call for Surveyed {
    type Packet = v1::SurveyResponse;

    fn room(_: &v1::SurveyAnswer, known: &Known) -> Result<Room, WireError> {
        Ok(Room::cells(known))
    }

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

/// Longest time [s] and largest acceleration [m/s^2] of a look-ahead.
const TIME_LIMIT: f64 = 1e6;
const ACCELERATION_LIMIT: f64 = 1e12;

impl Interest {
    pub(super) fn put(self, columns: &mut Columns) -> v1::Interest {
        let mut header = v1::Interest {
            triangles: self.triangles,
            contact_time: self.look_ahead.time,
            contact_acceleration: self.look_ahead.acceleration,
            ..Default::default()
        };
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

    pub(super) fn take(header: v1::Interest, columns: &mut Columns) -> Result<Self, WireError> {
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
        let (time, acceleration) = (header.contact_time, header.contact_acceleration);
        if !(0.0..=TIME_LIMIT).contains(&time) || !(0.0..=ACCELERATION_LIMIT).contains(&acceleration) {
            return Err(WireError::Rule(format!(
                "contacts are wanted {time:e} s ahead with {acceleration:e} m/s^2, but must be from 0 to {TIME_LIMIT:e} s and \
                 to {ACCELERATION_LIMIT:e} m/s^2"
            )));
        }
        Ok(Self { wanted, triangles: header.triangles, look_ahead: ContactLookAhead { time, acceleration } })
    }
}

impl Call for Begin {
    type Packet = v1::BeginRequest;

    fn room(header: &v1::BeginHeader, known: &Known) -> Result<Room, WireError> {
        match &header.interest {
            Some(interest) => Room::default().interest(interest, known),
            None => Err(WireError::Missing("interest")),
        }
    }

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
    pub(super) fn put(self, columns: &mut Columns) -> v1::BeginAnswer {
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

    pub(super) fn take(header: v1::BeginAnswer, columns: &mut Columns) -> Result<Self, WireError> {
        let count = check_count("particles", header.particles)?;
        let id = match header.as_before {
            true => None,
            false => Some(columns.take_ids("id", count)?),
        };
        check_unique("id", id.as_deref().unwrap_or_default())?;
        let batch = Self {
            position: columns.take_vec3("position", count, POSITIONS)?,
            velocity: columns.take_vec3("velocity", count, VELOCITIES)?,
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

    fn room(header: &v1::BeginAnswer, known: &Known) -> Result<Room, WireError> {
        Room::default().batch(header, known)
    }

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

impl AskFrame {
    /// Converts to the wire type.
    pub fn to_wire(&self) -> v1::FrameRequest {
        let files = self.files.clone().map(|FrameFiles { folder, stem, time, compressed }| v1::FrameFiles {
            folder,
            stem,
            time,
            compressed,
        });
        v1::FrameRequest { context: Some(self.context.to_wire()), surface: self.surface, files }
    }

    /// Converts from the wire type.
    ///
    /// # Errors
    /// If the context is absent, or files could not be named in this way.
    pub fn from_wire(request: v1::FrameRequest) -> Result<Self, WireError> {
        let v1::FrameRequest { context, surface, files } = request;
        let files = files.map(|v1::FrameFiles { folder, stem, time, compressed }| {
            check_files(&folder, &stem)?;
            if !time.is_finite() {
                return Err(WireError::Rule("the time of a frame's files is not finite".into()));
            }
            Ok(FrameFiles { folder, stem, time, compressed })
        });
        Ok(Self { context: Context::from_wire(context)?, surface, files: files.transpose()? })
    }
}

/// Longest start of the names of files [bytes].
const STEM_BYTES_MAX: usize = 200;

/// Longest path of a folder of files [bytes].
const FOLDER_BYTES_MAX: usize = 4096;

/// Files of a frame or of a snapshot, at most.
const PARTS_MAX: u32 = 1 << 20;

/// Refuses a folder of files, or a start of their names, that could not be told on another machine.
fn check_files(folder: &str, stem: &str) -> Result<(), WireError> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
    let is_stem = (1..=STEM_BYTES_MAX).contains(&stem.len()) && !stem.starts_with('.');
    if !is_stem || !stem.bytes().all(is_plain) {
        return Err(WireError::Rule(format!("files cannot be named {:?}", shorten(stem))));
    }
    if !folder.starts_with('/') || folder.len() > FOLDER_BYTES_MAX || folder.contains('\0') {
        return Err(WireError::Rule(format!("{:?} is no absolute path of a folder", shorten(folder))));
    }
    Ok(())
}

impl SnapshotFiles {
    fn to_wire(&self) -> v1::SnapshotFiles {
        v1::SnapshotFiles { folder: self.folder.clone(), stem: self.stem.clone() }
    }

    fn from_wire(v1::SnapshotFiles { folder, stem }: v1::SnapshotFiles) -> Result<Self, WireError> {
        check_files(&folder, &stem)?;
        Ok(Self { folder, stem })
    }
}

impl AskSave {
    /// Converts to the wire type.
    pub fn to_wire(&self) -> v1::SaveRequest {
        let files = self.files.as_ref().map(SnapshotFiles::to_wire);
        v1::SaveRequest { context: Some(self.context.to_wire()), files }
    }

    /// Converts from the wire type.
    ///
    /// # Errors
    /// If the context is absent, or files could not be named in this way.
    pub fn from_wire(request: v1::SaveRequest) -> Result<Self, WireError> {
        let files = request.files.map(SnapshotFiles::from_wire).transpose()?;
        Ok(Self { context: Context::from_wire(request.context)?, files })
    }
}

impl Call for Frame {
    type Packet = v1::FrameResponse;

    fn room(header: &v1::FrameAnswer, known: &Known) -> Result<Room, WireError> {
        Room::frame(header, known)
    }

    fn encode(self) -> (v1::FrameAnswer, Columns) {
        let fields = self
            .fields
            .iter()
            .map(|(name, components, _)| v1::FieldInfo { name: name.clone(), components: *components });
        let surface = self.surface.as_ref().map(|surface| v1::SurfaceInfo {
            vertices: surface.vertices.len() as u64,
            triangles: surface.triangles.len() as u64,
            velocities: !surface.velocities.is_empty(),
        });
        let (particles, parts) =
            self.written.map_or((self.id.len() as u64, 0), |Written { parts, particles }| (particles, parts));
        let header = v1::FrameAnswer { particles, fields: fields.collect(), surface, parts };
        let mut columns = Columns::default();
        if parts > 0 {
            return (header, columns);
        }
        columns.put_ids("id", &self.id);
        columns.put("position", self.position);
        columns.put("velocity", self.velocity);
        columns.put_uniform("radius", self.radius);
        columns.put_uniform("group", self.group);
        for (at, (_, _, values)) in self.fields.into_iter().enumerate() {
            columns.put(format!("field_{at}"), values);
        }
        if let Some(MovingSurface { vertices, velocities, triangles }) = self.surface {
            columns.put("surface_vertices", vertices);
            if !velocities.is_empty() {
                columns.put("surface_velocity", velocities);
            }
            columns.put("surface_triangles", triangles);
        }
        (header, columns)
    }

    fn decode(header: v1::FrameAnswer, mut columns: Columns) -> Result<Self, WireError> {
        let count = check_count("particles", header.particles)?;
        if header.parts > PARTS_MAX || header.parts > 0 && header.surface.is_some() {
            let parts = header.parts;
            return Err(WireError::Rule(format!(
                "{parts} files of a frame: at most {PARTS_MAX}, and no surface beside them"
            )));
        }
        let written = (header.parts > 0).then_some(Written { parts: header.parts, particles: count });
        let count = if written.is_some() { 0 } else { count };
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
                    "field {:?} with {components} components: names are a-z, 0-9 and _, components 1 or 3",
                    shorten(&name)
                )));
            }
            let column = format!("field_{at}");
            let values = columns.take_floats(&column, &name, count * u64::from(components))?;
            fields.push((name, components, values));
        }
        let frame = Self {
            position: columns.take_vec3("position", count, POSITIONS)?,
            velocity: columns.take_vec3("velocity", count, VELOCITIES)?,
            radius: columns.take_uniform("radius", count)?,
            group: columns.take_uniform("group", count)?,
            id,
            fields,
            surface: header.surface.map(|surface| take_surface(&surface, &mut columns)).transpose()?,
            written,
        };
        check("radius", &frame.radius, Some(&frame.id), RADIUS_RULE, |&r| is_radius(r))?;
        columns.finish()?;
        Ok(frame)
    }
}

impl Call for Snapshot {
    type Packet = v1::SaveResponse;

    fn room(header: &v1::SaveAnswer, known: &Known) -> Result<Room, WireError> {
        if header.parts > PARTS_MAX {
            let parts = header.parts;
            return Err(WireError::Rule(format!("{parts} files of a snapshot: at most {PARTS_MAX}")));
        }
        Ok(if header.parts > 0 { Room::default() } else { Room::snapshot(known) })
    }

    fn encode(self) -> (v1::SaveAnswer, Columns) {
        let mut columns = Columns::default();
        if self.parts == 0 {
            columns.put("snapshot", self.bytes);
        }
        (v1::SaveAnswer { state_hash: self.state_hash, parts: self.parts }, columns)
    }

    fn decode(header: v1::SaveAnswer, mut columns: Columns) -> Result<Self, WireError> {
        let bytes = columns.take_bytes("snapshot");
        columns.finish()?;
        Ok(Self { state_hash: header.state_hash, bytes, parts: header.parts })
    }
}

impl Call for Restore {
    type Packet = v1::RestoreRequest;

    /// The header says how many particles the snapshot holds: a fluid that is poured in may have begun
    /// without any.
    fn room(header: &v1::RestoreHeader, known: &Known) -> Result<Room, WireError> {
        let particles = check_count("particles", header.particles)?.max(known.particles);
        if header.parts > PARTS_MAX || (header.parts > 0) != header.files.is_some() {
            return Err(WireError::Rule(format!(
                "{} files of a snapshot: at most {PARTS_MAX}, and their folder",
                header.parts
            )));
        }
        if header.parts > 0 {
            return Ok(Room::default());
        }
        Ok(Room::snapshot(&Known { particles, ..*known }))
    }

    fn encode(self) -> (v1::RestoreHeader, Columns) {
        let mut columns = Columns::default();
        if self.files.is_none() {
            columns.put("snapshot", self.bytes);
        }
        let (files, parts) = self.files.map(|(files, parts)| (files.to_wire(), parts)).unzip();
        let context = Some(self.context.to_wire());
        let parts = parts.unwrap_or(0);
        (v1::RestoreHeader { context, particles: self.particles, files, parts }, columns)
    }

    fn decode(header: v1::RestoreHeader, mut columns: Columns) -> Result<Self, WireError> {
        let bytes = columns.take_bytes("snapshot");
        columns.finish()?;
        let v1::RestoreHeader { context, particles, files, parts } = header;
        let files = files.map(SnapshotFiles::from_wire).transpose()?.map(|files| (files, parts));
        Ok(Self { context: Context::from_wire(context)?, particles, bytes, files })
    }
}
