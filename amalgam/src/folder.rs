//! Results of a run: a folder with frames, pictures, tables and `summary.json`.

pub(crate) mod lock;

use std::{
    fs,
    io::{self, Write},
    path::{Component, Path, PathBuf},
};

use amalgam_frames::{FramesError, PlyMesh, write_ply};
use serde::Serialize;

use crate::{error::CommandError, scene::Scene};
use amalgam_coordinator::Faces;
use amalgam_surfaces::SurfaceError;
use lock::{LOCK, Lock};

/// First line of the scene that is written beside the results. It marks a folder as one with results of this
/// program.
pub(crate) const SCENE_HEADER: &str =
    "# The scene of this run, with what --set changed. Written by `amalgam run`.\n";

/// Space kept for `summary.json` [bytes], so that it can say that the disk became full.
const SUMMARY_RESERVE: usize = 64 << 10;

pub(crate) const SUMMARY: &str = "summary.json";
/// The page about a run.
pub(crate) const REPORT: &str = "report.html";
/// The table of the work in a run.
pub(crate) const WORK: &str = "work.csv";
/// The folder of checkpoints.
pub(crate) const CHECKPOINTS: &str = "checkpoints";
/// Faces of all obstacles.
pub(crate) const OBSTACLES: &str = "obstacles.ply";
pub(crate) const SCENE: &str = "scene.toml";
pub(crate) const FOLDERS: [&str; 5] = ["frames", "pictures", "probes", "surfaces", CHECKPOINTS];

/// Longest path that a client may name [bytes].
pub(crate) const PATH_BYTES_MAX: usize = 255;

/// Reasons for which results could not be written.
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
    /// A thread that writes.
    #[error("cannot start a thread that writes frames: {0}")]
    Thread(String),
    /// A part of a frame that a solver has written elsewhere.
    #[error("{0}")]
    Part(String),
    /// A fluid's surface.
    #[error(transparent)]
    Surface(#[from] SurfaceError),
    /// An obstacle's file.
    #[error("{0}")]
    Obstacle(String),
    /// A file or folder.
    #[error("cannot {action} {}: {}", path.display(), reason(error))]
    Io {
        /// Action that failed.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
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
        // A run that was killed as it began leaves only its lock.
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
    /// Another run that was faster to begin, a failure of the file system, or an obstacle's file that has
    /// gone.
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
            let is_named = [SUMMARY, OBSTACLES, WORK, REPORT].into_iter().any(|name| entry.ends_with(name));
            if is_ours || is_named {
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

    /// Files among the results that a user may open.
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
            // The first error is the one to report.
            let _ = fs::remove_file(&unfinished);
            failed("write", &path)(error)
        })
    }
}

/// A relative path below a folder that a client names: plain names between slashes.
pub(crate) fn plain_path(path: &str) -> Option<PathBuf> {
    let harmless = |c: char| !c.is_control() && c != '\\';
    let short = !path.is_empty() && path.len() <= PATH_BYTES_MAX;
    let plain =
        short && path.chars().all(harmless) && path.split('/').all(|part| !part.is_empty() && part != ".");
    let path = Path::new(path);
    let normal = path.components().all(|part| matches!(part, Component::Normal(_)));
    (plain && normal).then(|| path.to_path_buf())
}

/// Faces of all obstacles of a scene.
pub(crate) fn obstacles(scene: &Scene) -> Result<Faces, OutputError> {
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

/// Creates a folder of the results unless it is there.
pub(crate) fn make(results: &Path, name: &str) -> Result<(), OutputError> {
    let folder = results.join(name);
    fs::create_dir_all(&folder).map_err(failed("create the folder", &folder))
}

/// Waits until the entries of a folder are on the disk.
pub(crate) fn sync(folder: &Path) -> Result<(), OutputError> {
    let sync = || fs::File::open(folder)?.sync_all();
    sync().map_err(failed("write", folder))
}

impl From<OutputError> for CommandError {
    fn from(error: OutputError) -> Self {
        match error {
            OutputError::NotOurs(_) | OutputError::InUse { .. } => Self::Usage(error.to_string()),
            other => Self::Failed(other.to_string()),
        }
    }
}
