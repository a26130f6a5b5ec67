//! What a run leaves behind: a folder with frames, pictures, tables and `summary.json`.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use amalgam_frames::{
    CsvTable, FrameData, FrameField as VtkField, FrameValues, FramesError, PlyMesh, PvdCollection, write_ply,
    write_vtu,
};
use serde::Serialize;

use crate::checkpoint::{CHECKPOINTS, results::RecorderState};
use crate::error::CommandError;
use crate::{
    run::lock::{LOCK, Lock},
    run::picture::Painter,
    scene::{Compression, Scene, SurfaceOutput},
};
use amalgam_coordinator::{Faces, FrameField, ParticipantFrame, ProbeSample};
use amalgam_surfaces::{Surface, SurfaceError, SurfaceSettings, reconstruct};

/// First line of the scene that is written beside the results; by it a folder is known to hold results of ours.
pub(crate) const SCENE_HEADER: &str =
    "# The scene of this run, with what --set changed. Written by `amalgam run`.\n";

/// Space kept for `summary.json` [bytes], so that it can say that the disk became full.
const SUMMARY_RESERVE: usize = 64 << 10;

const SUMMARY: &str = "summary.json";
/// Faces of all obstacles.
pub(crate) const OBSTACLES: &str = "obstacles.ply";
/// The field of radii [m] in frames.
pub(crate) const RADIUS: &str = "radius";
pub(crate) const SCENE: &str = "scene.toml";
const FOLDERS: [&str; 5] = ["frames", "pictures", "probes", "surfaces", CHECKPOINTS];

/// Why results could not be written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The folder holds something else.
    #[error("{} is not empty and holds no results of an earlier run; choose another folder with --out", .0.display())]
    NotOurs(PathBuf),
    /// Another run writes there.
    #[error("{}", in_use(folder, *holder))]
    InUse {
        /// The folder.
        folder: PathBuf,
        /// The other run's process, if it is known.
        holder: Option<u32>,
    },
    /// A frame, picture or table.
    #[error(transparent)]
    Frames(#[from] FramesError),
    /// A fluid's surface.
    #[error(transparent)]
    Surface(#[from] SurfaceError),
    /// An obstacle's file.
    #[error("{0}")]
    Obstacle(String),
    /// A file or folder.
    #[error("cannot {action} {}: {}", path.display(), reason(error))]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
}

fn in_use(folder: &Path, holder: Option<u32>) -> String {
    let (who, end) = match holder {
        Some(id) => (format!("process {id}"), format!("end it with `kill {id}`")),
        None => ("another process".to_string(), "end it".to_string()),
    };
    let folder = folder.display();
    format!(
        "{who} is writing the results of a run to {folder}: wait for its end, {end}, or let this run write to another \
         folder with --out"
    )
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "the disk is full; free some space or choose \
             another folder with --out (what is there stays readable)"
                .to_string()
        }
        _ => error.to_string(),
    }
}

pub(crate) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OutputError {
    move |error| OutputError::Io { action, path: path.to_path_buf(), error }
}

/// A folder that may be written to.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Held from when the folder is known to be a run's, until the run is over.
    lock: Option<Lock>,
}

impl Folder {
    /// Looks at the folder, and takes the lock of a run's folder; changes nothing else.
    ///
    /// # Errors
    /// If it holds something that is not of an earlier run, another run writes to it, or it cannot be read.
    pub fn look_at(path: PathBuf) -> Result<Self, OutputError> {
        let entries = match fs::read_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self { path, lock: None }),
            other => other.map_err(failed("read the folder", &path))?,
        };
        let of_a_run = |scene: &str| scene.starts_with(SCENE_HEADER);
        let ours = fs::read_to_string(path.join(SCENE)).is_ok_and(|scene| of_a_run(&scene));
        // A run that was killed as it began leaves its lock alone.
        let others = entries.filter(|entry| !entry.as_ref().is_ok_and(|entry| entry.file_name() == LOCK));
        if others.count() > 0 && !ours {
            return Err(OutputError::NotOurs(path));
        }
        let lock = if ours { Some(Lock::take(&path)?) } else { None };
        Ok(Self { path, lock })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the results of an earlier run, and writes the scene and its obstacles.
    ///
    /// # Errors
    /// Another run that was faster to begin, a failure of the file system, or an obstacle's file that has gone.
    pub fn claim(&mut self, scene: &Scene) -> Result<(), OutputError> {
        fs::create_dir_all(&self.path).map_err(failed("create the folder", &self.path))?;
        if self.lock.is_none() {
            self.lock = Some(Lock::take(&self.path)?);
        }
        for name in FOLDERS {
            let folder = self.path.join(name);
            if folder.exists() {
                fs::remove_dir_all(&folder).map_err(failed("remove the old", &folder))?;
            }
        }
        let entries = fs::read_dir(&self.path).map_err(failed("read the folder", &self.path))?;
        for entry in entries.filter_map(Result::ok).map(|entry| entry.path()) {
            let is_ours =
                entry.extension().is_some_and(|extension| extension == "pvd" || extension == "usda");
            if is_ours || entry.ends_with(SUMMARY) || entry.ends_with(OBSTACLES) {
                fs::remove_file(&entry).map_err(failed("remove the old", &entry))?;
            }
        }
        let text = scene.effective_text();
        let text = format!("{SCENE_HEADER}{}", text.strip_prefix(SCENE_HEADER).unwrap_or(&text));
        self.write(SCENE, text.as_bytes())?;
        if scene.output.vtk && !scene.domain.obstacles.is_empty() {
            let (corners, triangles) = obstacles(scene)?;
            let mesh = PlyMesh { vertices: &corners, triangles: &triangles, ..PlyMesh::default() };
            write_ply(self.path.join(OBSTACLES), &mesh)?;
        }
        self.reserve()
    }

    /// Keeps space for the summary, also where a run goes on whose results are there.
    ///
    /// # Errors
    /// A failure of the file system.
    pub fn reserve(&self) -> Result<(), OutputError> {
        let reserve = self.unfinished(SUMMARY);
        fs::write(&reserve, vec![b' '; SUMMARY_RESERVE]).map_err(failed("write", &reserve))
    }

    /// Writes `summary.json`, whole or not at all.
    ///
    /// # Errors
    /// A failure of the file system.
    pub fn write_summary(&self, summary: &impl Serialize) -> Result<(), OutputError> {
        let text = serde_json::to_string_pretty(summary);
        let text = text.map_err(|error| failed("write", &self.path.join(SUMMARY))(error.into()))?;
        self.write(SUMMARY, (text + "\n").as_bytes())
    }

    /// What a user may open, of what was written.
    pub fn written(&self) -> Vec<&'static str> {
        let there = |name: &str| self.path.join(name).exists();
        let mut written = vec![SUMMARY];
        if there("frames") {
            written.push("*.pvd for ParaView");
        }
        if self.has_usd() {
            written.push("*.usda for Blender");
        }
        if there(OBSTACLES) {
            written.push(OBSTACLES);
        }
        written.extend(["surfaces", "pictures", "probes"].into_iter().filter(|name| there(name)));
        written
    }

    fn has_usd(&self) -> bool {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.path())
            .any(|path| path.extension().is_some_and(|extension| extension == "usda"))
    }

    fn unfinished(&self, name: &str) -> PathBuf {
        self.path.join(format!(".{name}.unfinished"))
    }

    /// Writes a file whole or not at all, over the space kept for it if there is any.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), OutputError> {
        let (path, unfinished) = (self.path.join(name), self.unfinished(name));
        let write = || {
            let mut file =
                fs::OpenOptions::new().write(true).create(true).truncate(false).open(&unfinished)?;
            file.write_all(bytes)?;
            file.set_len(bytes.len() as u64)?;
            fs::rename(&unfinished, &path)
        };
        write().map_err(|error| {
            // The error that matters is the first.
            let _ = fs::remove_file(&unfinished);
            failed("write", &path)(error)
        })
    }
}

/// Faces of all obstacles of a scene.
fn obstacles(scene: &Scene) -> Result<Faces, OutputError> {
    let (mut corners, mut triangles) = Faces::default();
    for obstacle in &scene.domain.obstacles {
        let (more, faces) =
            obstacle.faces((scene.domain.min, scene.domain.max)).map_err(OutputError::Obstacle)?;
        let first = corners.len() as u32;
        corners.extend(more);
        triangles.extend(faces.into_iter().map(|face| face.map(|corner| first + corner)));
    }
    Ok((corners, triangles))
}

/// Writes frames, pictures and tables while a run goes on.
pub struct Recorder {
    folder: PathBuf,
    vtk_every: Option<u64>,
    compression: Compression,
    painter: Option<Painter>,
    /// By participant.
    surfaces: BTreeMap<String, SurfaceOutput>,
    collections: Vec<PvdCollection>,
    /// What the last frame of each list shows, if nothing in it moves.
    at_rest: Vec<Option<String>>,
    tables: Vec<CsvTable>,
    row: Vec<f64>,
    frame: u64,
}

impl Recorder {
    /// For a run whose folder has been claimed.
    ///
    /// # Errors
    /// An obstacle's file that has gone.
    pub fn new(scene: &Scene, folder: &Folder) -> Result<Self, OutputError> {
        let painter = match &scene.output.pictures {
            Some(settings) => Some(Painter::new(scene, settings, &obstacles(scene)?)),
            None => None,
        };
        Ok(Self {
            folder: folder.path.clone(),
            vtk_every: scene.output.vtk.then_some(u64::from(scene.output.every)),
            painter,
            surfaces: scene.output.surfaces.clone(),
            compression: scene.output.compression,
            collections: Vec::new(),
            at_rest: Vec::new(),
            tables: Vec::new(),
            row: Vec::new(),
            frame: 0,
        })
    }

    /// How far the results are; they are on the disk when this returns.
    ///
    /// # Errors
    /// A failure of the file system.
    pub fn state(&self) -> Result<RecorderState, OutputError> {
        let name = |path: &Path| path.strip_prefix(&self.folder).unwrap_or(path).display().to_string();
        let list = |list: &PvdCollection| (name(list.path()), list.count());
        let table = |table: &CsvTable| Ok((name(table.path()), table.length()?));
        let state = RecorderState {
            frame: self.frame,
            lists: self.collections.iter().map(list).collect(),
            at_rest: self.at_rest.clone(),
            tables: self.tables.iter().map(table).collect::<Result<_, FramesError>>()?,
        };
        let folders = FOLDERS.iter().map(|name| self.folder.join(name)).filter(|folder| folder.exists());
        folders.chain([self.folder.clone()]).try_for_each(|folder| sync(&folder))?;
        Ok(state)
    }

    /// For a run that goes on in a folder whose results reach as far at least: what comes later is dropped.
    ///
    /// # Errors
    /// A failure of the file system, or results of another run.
    pub fn resume(
        scene: &Scene,
        folder: &Folder,
        state: &RecorderState,
        samples: &[ProbeSample],
    ) -> Result<Self, OutputError> {
        let mut this = Self::new(scene, folder)?;
        this.frame = state.frame;
        for (file, count) in &state.lists {
            this.collections.push(PvdCollection::resume(folder.path.join(file), *count)?);
        }
        // An older checkpoint does not have them: its bodies at rest are written once more.
        this.at_rest.clone_from(&state.at_rest);
        this.at_rest.resize(this.collections.len(), None);
        for ((file, length), sample) in state.tables.iter().zip(samples) {
            this.tables.push(CsvTable::resume(folder.path.join(file), &header(sample), *length)?);
        }
        Ok(this)
    }

    /// Whether anything is to be written for the next frame.
    pub fn wants_frame(&self) -> bool {
        self.wants_vtk()
            || self.painter.as_ref().is_some_and(|painter| painter.draws(self.frame))
            || self.surfaces.values().any(|surface| self.wants_surface(surface))
    }

    fn wants_vtk(&self) -> bool {
        self.vtk_every.is_some_and(|every| self.frame.is_multiple_of(every))
    }

    /// Whether the surface of this participant is to be written or drawn for the next frame.
    pub fn wants_surface_of(&self, participant: &str) -> bool {
        let is_drawn = self.painter.as_ref().is_some_and(|painter| painter.draws(self.frame));
        self.surfaces.get(participant).is_some_and(|surface| is_drawn || self.wants_surface(surface))
    }

    fn wants_surface(&self, surface: &SurfaceOutput) -> bool {
        self.frame.is_multiple_of(u64::from(surface.every))
    }

    /// Goes on to the next frame; `frames` is empty if [`Self::wants_frame`] said no.
    ///
    /// # Errors
    /// A failure of the file system; what was written before stays readable.
    pub fn frame(&mut self, time: f64, frames: &[ParticipantFrame]) -> Result<(), OutputError> {
        if self.wants_vtk() {
            self.make("frames")?;
            if self.collections.is_empty() {
                let create = |frame: &ParticipantFrame| {
                    PvdCollection::create(self.folder.join(format!("{}.pvd", frame.name)))
                };
                self.collections = frames.iter().map(create).collect::<Result<_, _>>()?;
                self.at_rest = vec![None; frames.len()];
            }
            for ((frame, collection), last) in frames.iter().zip(&mut self.collections).zip(&mut self.at_rest)
            {
                let at_rest = shown_at_rest(frame);
                // A body that does not move is written once.
                let same = collection.last().filter(|_| at_rest.is_some() && at_rest == *last);
                let file = match same {
                    Some(file) => file.to_owned(),
                    None => {
                        let file = format!("frames/{}_{:06}.vtu", frame.name, self.frame);
                        write_participant(&self.folder.join(&file), time, frame, self.compression)?;
                        file
                    }
                };
                collection.push(time, &file)?;
                *last = at_rest;
            }
        }
        let is_drawn = self.painter.as_ref().is_some_and(|painter| painter.draws(self.frame));
        let mut surfaces = BTreeMap::new();
        for frame in frames {
            let Some(&output) = self.surfaces.get(&frame.name) else { continue };
            if !is_drawn && !self.wants_surface(&output) {
                continue;
            }
            let surface = surface_of(frame, output)?;
            if self.wants_surface(&output) {
                self.make("surfaces")?;
                let file = self.folder.join(format!("surfaces/{}_{:06}.ply", frame.name, self.frame));
                let Surface { vertices, normals, velocities, triangles } = &surface;
                write_ply(file, &PlyMesh { vertices, normals, velocities, triangles })?;
            }
            surfaces.insert(frame.name.clone(), surface);
        }
        if let Some(painter) = self.painter.as_ref().filter(|_| is_drawn) {
            self.make("pictures")?;
            painter.draw(frames, &surfaces, &self.folder.join(format!("pictures/{:06}.png", self.frame)))?;
        }
        self.frame += 1;
        Ok(())
    }

    /// Appends a row to the table of each probe.
    ///
    /// # Errors
    /// A failure of the file system.
    pub fn probes(&mut self, time: f64, samples: &[ProbeSample]) -> Result<(), OutputError> {
        if self.tables.is_empty() && !samples.is_empty() {
            self.make("probes")?;
            for sample in samples {
                let path = self.folder.join(format!("probes/{}.csv", sample.name));
                self.tables.push(CsvTable::create(path, &header(sample))?);
            }
        }
        for (sample, table) in samples.iter().zip(&mut self.tables) {
            self.row.clear();
            self.row.push(time);
            self.row.extend_from_slice(&sample.values);
            table.append(&self.row)?;
        }
        Ok(())
    }

    fn make(&self, name: &str) -> Result<(), OutputError> {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder).map_err(failed("create the folder", &folder))
    }
}

/// The surface of a participant: its solver's own, which tears, or one around its particles.
fn surface_of(frame: &ParticipantFrame, output: SurfaceOutput) -> Result<Surface, SurfaceError> {
    if let Some((vertices, triangles)) = &frame.surface {
        let (vertices, triangles) = (vertices.clone(), triangles.clone());
        return Ok(Surface { vertices, triangles, ..Surface::default() });
    }
    // Particles of one fluid have one radius.
    let radius = frame.radius.first().copied().unwrap_or(1.0);
    let SurfaceOutput { cell, smoothing, .. } = output;
    let settings = SurfaceSettings { cell, smoothing, ..SurfaceSettings::new(radius) };
    reconstruct(&frame.positions, &frame.velocities, settings)
}

/// Waits until the disk knows the entries of a folder.
pub(crate) fn sync(folder: &Path) -> Result<(), OutputError> {
    let sync = || fs::File::open(folder)?.sync_all();
    sync().map_err(failed("write", folder))
}

/// Names of the columns of a probe's table.
fn header(sample: &ProbeSample) -> Vec<&str> {
    std::iter::once("time [s]").chain(sample.columns.iter().map(String::as_str)).collect()
}

/// A digest of what a frame shows of a participant none of whose particles moves; nothing if any does. Groups are left
/// out: they change where others press against a body that cannot move, and are those of the time of the file.
fn shown_at_rest(frame: &ParticipantFrame) -> Option<String> {
    if frame.velocities.iter().any(|velocity| velocity.to_array() != [0.0; 3]) {
        return None;
    }
    let mut hasher = blake3::Hasher::new();
    let mut column = |name: &str, bytes: &mut dyn Iterator<Item = [u8; 8]>| {
        hasher.update(name.as_bytes()).update(&[0]);
        for bytes in bytes {
            hasher.update(&bytes);
        }
    };
    column("id", &mut frame.id.iter().map(|id| id.to_le_bytes()));
    column("position", &mut frame.positions.iter().flat_map(|x| x.to_array()).map(f64::to_le_bytes));
    column("triangle", &mut frame.triangles.as_flattened().iter().map(|&i| u64::from(i).to_le_bytes()));
    let bits = |value: &f32| u64::from(value.to_bits()).to_le_bytes();
    for (name, values) in &frame.fields {
        match values {
            FrameField::Scalar(values) => column(name, &mut values.iter().map(bits)),
            FrameField::Vector(values) => column(name, &mut values.as_flattened().iter().map(bits)),
        }
    }
    Some(hasher.finalize().to_hex().to_string())
}

fn write_participant(
    path: &Path,
    time: f64,
    frame: &ParticipantFrame,
    compression: Compression,
) -> Result<(), FramesError> {
    let radius: Vec<f32> = frame.radius.iter().map(|&radius| radius as f32).collect();
    let mut fields: Vec<VtkField<'_>> = frame
        .fields
        .iter()
        .map(|(name, values)| VtkField {
            name,
            values: match values {
                FrameField::Scalar(values) => FrameValues::Scalar(values),
                FrameField::Vector(values) => FrameValues::Vector(values),
            },
        })
        .collect();
    if frame.fields.iter().all(|(name, _)| name != RADIUS) {
        fields.insert(0, VtkField { name: RADIUS, values: FrameValues::Scalar(&radius) });
    }
    let data = FrameData {
        time,
        positions: &frame.positions,
        ids: &frame.id,
        velocities: &frame.velocities,
        groups: &frame.group,
        triangles: &frame.triangles,
        fields: &fields,
    };
    let compression = match compression {
        Compression::None => amalgam_frames::Compression::None,
        Compression::Zlib => amalgam_frames::Compression::Zlib,
    };
    write_vtu(path, &data, compression)
}

impl From<OutputError> for CommandError {
    fn from(error: OutputError) -> Self {
        match error {
            OutputError::NotOurs(_) | OutputError::InUse { .. } => Self::Usage(error.to_string()),
            other => Self::Failed(other.to_string()),
        }
    }
}
