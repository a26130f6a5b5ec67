//! A scene on its way in: pieces from a client who may send anything.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

use amalgam_proto::coordinator::{Options, SubmitRequest, submit_request::Part};
use tempfile::TempDir;
use tonic::Status;

use super::record::{SUBMITTED, Wanted};
use crate::{
    console,
    folder::{SCENE, plain_path},
    scene::{Scene, SceneError},
};

/// Bytes of a scene's text. Reading it may take some hundred times as much memory.
const SCENE_BYTES_MAX: usize = 1 << 20;

/// Bytes of all files of a scene.
const FILES_BYTES_MAX: u64 = 1 << 30;

/// Files of a scene.
const FILES_MAX: usize = 256;

/// Longest list of faults that is sent back [bytes]: it travels in a header.
const FAULTS_BYTES_MAX: usize = 8 << 10;

/// A scene that is being received, in a folder that goes away if it does not become a run.
pub(super) struct Incoming {
    folder: TempDir,
    wanted: Option<Wanted>,
    scene: Vec<u8>,
    files: BTreeSet<String>,
    /// The file that pieces go to.
    open: Option<(String, File)>,
    bytes: u64,
}

/// A scene that can be run.
pub(super) struct Submission {
    pub(super) folder: PathBuf,
    pub(super) wanted: Wanted,
    pub(super) name: String,
    pub(super) duration: f64,
}

fn invalid(reason: impl Into<String>) -> Status {
    Status::invalid_argument(reason.into())
}

fn disk(error: &std::io::Error) -> Status {
    Status::internal(format!("the service cannot write to its folder: {error}"))
}

/// The faults of a scene, as people read them.
fn faults(error: &SceneError) -> Status {
    let mut text = console::render(error, false);
    if text.len() > FAULTS_BYTES_MAX {
        let end = (0..=FAULTS_BYTES_MAX).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        text.truncate(end);
        text.push_str("...");
    }
    invalid(text)
}

impl Incoming {
    /// Begins to receive below `folder`.
    pub(super) fn begin(folder: &Path) -> Result<Self, Status> {
        let made = tempfile::Builder::new().prefix(".incoming-").tempdir_in(folder);
        let folder = made.map_err(|error| disk(&error))?;
        fs::create_dir(folder.path().join(SUBMITTED)).map_err(|error| disk(&error))?;
        let files = BTreeSet::new();
        Ok(Self { folder, wanted: None, scene: Vec::new(), files, open: None, bytes: 0 })
    }

    /// Takes the next message.
    pub(super) fn take(&mut self, request: SubmitRequest) -> Result<(), Status> {
        match request.part.ok_or_else(|| invalid("a message is empty"))? {
            Part::Options(options) => self.take_options(&options),
            _ if self.wanted.is_none() => Err(invalid("the first message must hold the options")),
            Part::Scene(piece) => self.take_scene(&piece),
            Part::File(piece) => self.take_file(&piece.path, &piece.data),
        }
    }

    fn take_options(&mut self, options: &Options) -> Result<(), Status> {
        if self.wanted.is_some() {
            return Err(invalid("options came twice"));
        }
        self.wanted = Some(Wanted::from_wire(options).map_err(invalid)?);
        Ok(())
    }

    fn take_scene(&mut self, piece: &[u8]) -> Result<(), Status> {
        if !self.files.is_empty() {
            return Err(invalid("a piece of the scene came after a file"));
        }
        if self.scene.len() + piece.len() > SCENE_BYTES_MAX {
            return Err(Status::resource_exhausted(format!(
                "a scene has at most {SCENE_BYTES_MAX} bytes: large data belong into files"
            )));
        }
        self.scene.extend_from_slice(piece);
        Ok(())
    }

    fn take_file(&mut self, path: &str, data: &[u8]) -> Result<(), Status> {
        self.bytes += data.len() as u64;
        if self.bytes > FILES_BYTES_MAX {
            return Err(Status::resource_exhausted(format!(
                "the files of a scene have at most {FILES_BYTES_MAX} bytes"
            )));
        }
        if self.open.as_ref().is_none_or(|(open, _)| open != path) {
            self.open = Some((path.to_string(), self.create(path)?));
        }
        let (_, file) = self.open.as_mut().expect("it was opened");
        file.write_all(data).map_err(|error| disk(&error))
    }

    fn create(&mut self, path: &str) -> Result<File, Status> {
        let shown = amalgam_particles::text::shorten(path);
        let below = plain_path(path).filter(|path| path != Path::new(SCENE));
        let Some(below) = below else {
            return Err(invalid(format!(
                "{shown:?} is no path of a file: write a relative one without .., and not {SCENE}"
            )));
        };
        if self.files.len() >= FILES_MAX {
            return Err(Status::resource_exhausted(format!("a scene has at most {FILES_MAX} files")));
        }
        if !self.files.insert(path.to_string()) {
            return Err(invalid(format!("file {shown:?} came twice")));
        }
        let path = self.folder.path().join(SUBMITTED).join(below);
        let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| File::create_new(&path));
        made.map_err(|error| invalid(format!("file {shown:?}: {error}")))
    }

    /// Checks the scene, as far as it can be without its solvers.
    pub(super) fn finish(mut self) -> Result<Submission, Status> {
        self.open = None;
        let wanted = self.wanted.take().ok_or_else(|| invalid("nothing was sent"))?;
        let text = String::from_utf8(std::mem::take(&mut self.scene));
        let text = text.map_err(|error| invalid(format!("the scene is not UTF-8: {error}")))?;
        // First, the files that the scene names: only files that came with it are read.
        let named = Scene::files_named(SCENE, &text).map_err(|error| faults(&error))?;
        let named: BTreeSet<String> = named.into_iter().collect();
        if let Some(missing) = named.difference(&self.files).next() {
            return Err(invalid(format!(
                "the scene names the file {missing:?}, which was not sent with it: a submitted scene reads only what comes \
                 with it"
            )));
        }
        if let Some(superfluous) = self.files.difference(&named).next() {
            return Err(invalid(format!("file {superfluous:?} was sent, but the scene does not name it")));
        }
        let folder = self.folder.path().join(SUBMITTED);
        let scene = Scene::parse_within(&folder, SCENE, &text).map_err(|error| faults(&error))?;
        fs::write(folder.join(SCENE), text).map_err(|error| disk(&error))?;
        Ok(Submission {
            folder: self.folder.keep(),
            wanted,
            name: scene.header.name.clone(),
            duration: scene.time.duration,
        })
    }
}
