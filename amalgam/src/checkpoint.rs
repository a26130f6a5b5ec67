//! Checkpoints of a run on disk: a folder for each, beside the results, from which `amalgam resume` goes on.
//!
//! A checkpoint is written under another name, its manifest last, and renamed when the disk has all of it;
//! only then an older one is removed. If writing fails, the last whole checkpoint stays.

pub mod envelope;
pub mod every;
pub mod results;

use std::{
    fs::{self, File},
    io::{self, Read as _, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    folder::{CHECKPOINTS, OutputError, SCENE_HEADER, failed, sync},
    scene::Scene,
};
use amalgam_coordinator::{Checkpoint, ParticipantCheckpoint, SnapshotFiles};
use envelope::{Label, Unsound};
use every::Every;
use results::RecorderState;

/// Checkpoints that are kept unless the command line says otherwise.
pub const KEPT: u32 = 2;

const MANIFEST: &str = "manifest";
const COORDINATOR: &str = "coordinator";

/// A checkpoint that is being written, and one that is being replaced by another of the same step.
const UNFINISHED: &str = "tmp";
const REPLACED: &str = "old";

/// Reasons for which a run cannot go on from a checkpoint.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum CheckpointError {
    #[error("{}: {reason}", path.display())]
    Unsound { path: PathBuf, reason: Unsound },
    #[error("{}: {reason}", path.display())]
    Foreign { path: PathBuf, reason: String },
    #[error("{} has no manifest: it was not written to its end", .0.display())]
    Unfinished(PathBuf),
    #[error("cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error(
        "{} holds no checkpoint; `amalgam run` writes one with --checkpoint-every, and when Ctrl-C or SIGTERM ends it",
        .0.display()
    )]
    None(PathBuf),
    #[error("{} holds no checkpoint of step {step}; there are {}", path.display(), list(known))]
    NoSuchStep { path: PathBuf, step: u64, known: Vec<u64> },
    #[error("no checkpoint of {} can be gone on from:{}", path.display(), lines(reasons))]
    NoneSound { path: PathBuf, reasons: Vec<CheckpointError> },
}

fn list(steps: &[u64]) -> String {
    steps.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}

fn lines(reasons: &[CheckpointError]) -> String {
    reasons.iter().map(|reason| format!("\n  {reason}")).collect()
}

/// A checkpoint, and how far the results were.
#[derive(Clone, Debug)]
pub struct Saved {
    /// The state of the run.
    pub checkpoint: Checkpoint,
    /// Extent of the results.
    pub output: RecorderState,
    /// Interval between checkpoints.
    pub every: Option<Every>,
    /// Number of checkpoints kept.
    pub keep: u32,
}

/// The manifest of a checkpoint: its files, and how far the results are.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    steps: u64,
    every: Option<String>,
    keep: u32,
    output: RecorderState,
    participants: Vec<ParticipantEntry>,
}

/// A participant in a manifest.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ParticipantEntry {
    name: String,
    program: String,
    version: String,
    particles: u64,
    start_hash: u64,
    state_hash: u64,
    /// Files that ranks wrote, or 0.
    #[serde(default)]
    parts: u32,
}

/// The checkpoints of a run.
#[derive(Clone, Debug)]
pub struct Store {
    /// The folder of results.
    results: PathBuf,
    folder: PathBuf,
}

impl Store {
    /// The checkpoints of the run with this folder of results.
    pub fn new(results: &Path) -> Self {
        Self { results: results.to_path_buf(), folder: results.join(CHECKPOINTS) }
    }

    /// Steps of the checkpoints that are there, ascending.
    ///
    /// # Errors
    /// If the folder is there and cannot be read.
    pub fn steps(&self) -> io::Result<Vec<u64>> {
        let step = |path: &PathBuf| step_of(path.file_name()?.to_str()?);
        let mut steps: Vec<u64> = self.entries()?.iter().filter_map(step).collect();
        steps.sort_unstable();
        Ok(steps)
    }

    /// Entries of the folder of checkpoints; none if the folder does not exist.
    fn entries(&self) -> io::Result<Vec<PathBuf>> {
        match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            entries => entries?.map(|entry| Ok(entry?.path())).collect(),
        }
    }

    /// Removes the remains of a run that was killed while it wrote a checkpoint.
    ///
    /// # Errors
    /// A failure of the file system.
    pub fn tidy(&self) -> Result<(), OutputError> {
        for path in self.entries().map_err(failed("read the folder", &self.folder))? {
            let whole = path.with_extension("");
            match path.extension().and_then(|extension| extension.to_str()) {
                Some(REPLACED) if !whole.exists() => {
                    fs::rename(&path, &whole).map_err(failed("put back", &path))?;
                }
                Some(REPLACED | UNFINISHED) => {
                    fs::remove_dir_all(&path).map_err(failed("remove the unfinished", &path))?;
                }
                _ => (),
            }
        }
        Ok(())
    }

    /// Writes a checkpoint, in the folder that [`Self::begin`] has created if ranks have written there. Then it
    /// removes older ones beyond those to keep. Later ones are removed, too: an earlier course of the run wrote
    /// them, and the run is now computed anew from here.
    ///
    /// # Errors
    /// A failure of the file system; the earlier checkpoints are unchanged.
    pub fn write(&self, scene: &Scene, saved: &Saved) -> Result<(), OutputError> {
        let steps = saved.checkpoint.steps;
        let path = self.path(steps);
        let (unfinished, replaced) = (path.with_extension(UNFINISHED), path.with_extension(REPLACED));
        if !unfinished.exists() {
            drop(self.begin(steps)?);
        }
        let written = self.write_files(scene, saved, &unfinished).and_then(|()| {
            let is_there = path.exists();
            if is_there {
                fs::rename(&path, &replaced).map_err(failed("replace", &path))?;
            }
            fs::rename(&unfinished, &path).map_err(failed("write", &path))?;
            sync(&self.folder)?;
            sync(&self.results)?;
            if is_there {
                fs::remove_dir_all(&replaced).map_err(failed("remove the old", &replaced))
            } else {
                Ok(())
            }
        });
        if written.is_err() {
            // The error that matters is the first.
            let _ = self.tidy();
        }
        written?;
        let known = self.steps().map_err(failed("read the folder", &self.folder))?;
        let (older, later): (Vec<u64>, Vec<u64>) = known.into_iter().partition(|&step| step <= steps);
        let superfluous = older.len().saturating_sub(saved.keep as usize);
        for step in older.into_iter().take(superfluous).chain(later) {
            let path = self.path(step);
            fs::remove_dir_all(&path).map_err(failed("remove the old", &path))?;
        }
        Ok(())
    }

    /// Creates the folder of a checkpoint that is to be written, and tells where ranks may write parts of it, by
    /// the name of a participant.
    ///
    /// # Errors
    /// A failure of the file system.
    pub fn begin(&self, steps: u64) -> Result<impl Fn(&str) -> Option<SnapshotFiles> + use<>, OutputError> {
        let folder = self.path(steps).with_extension(UNFINISHED);
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(failed("remove the unfinished", &folder))?;
        }
        fs::create_dir_all(&folder).map_err(failed("create the folder", &folder))?;
        let folder = folder.canonicalize().map_err(failed("find the folder", &folder))?;
        Ok(move |participant: &str| files_of(&folder, participant))
    }

    fn write_files(&self, scene: &Scene, saved: &Saved, folder: &Path) -> Result<(), OutputError> {
        let Saved { checkpoint, output, every, keep } = saved;
        let write = |name: &str, program: String, digest: String, bytes: &[u8]| {
            let path = folder.join(name);
            let (steps, length) = (checkpoint.steps, bytes.len() as u64);
            let label = Label { what: name.into(), steps, program, digest, length };
            let write = || {
                let mut file = File::create(&path)?;
                for part in label.seal(bytes) {
                    file.write_all(&part)?;
                }
                file.sync_all()
            };
            write().map_err(failed("write", &path))
        };
        for saved in &checkpoint.participants {
            let program = format!("{} {}", saved.program, saved.version);
            write(&file_of(&saved.name), program, section_digest(scene, &saved.name), &saved.snapshot)?;
        }
        write(COORDINATOR, own_program(), scene_digest(scene), &checkpoint.coordinator)?;
        let entries = checkpoint.participants.iter().map(|saved| ParticipantEntry {
            name: saved.name.clone(),
            program: saved.program.clone(),
            version: saved.version.clone(),
            particles: saved.particles,
            start_hash: saved.start_hash,
            state_hash: saved.state_hash,
            parts: saved.files.as_ref().map_or(0, |(_, parts)| *parts),
        });
        let manifest = Manifest {
            steps: checkpoint.steps,
            every: every.as_ref().map(Every::to_string),
            keep: *keep,
            output: output.clone(),
            participants: entries.collect(),
        };
        let text = serde_json::to_vec_pretty(&manifest).map_err(io::Error::from);
        let text = text.map_err(failed("write", &folder.join(MANIFEST)))?;
        write(MANIFEST, own_program(), scene_digest(scene), &text)?;
        sync(folder)
    }

    /// Reads the checkpoint of a step and checks every byte of it, and that the results reach as far.
    ///
    /// # Errors
    /// Why it cannot be gone on from, with the file.
    pub fn read(&self, scene: &Scene, step: u64) -> Result<Saved, CheckpointError> {
        let known = self.known()?;
        if known.is_empty() {
            return Err(CheckpointError::None(self.folder.clone()));
        }
        if !known.contains(&step) {
            return Err(CheckpointError::NoSuchStep { path: self.folder.clone(), step, known });
        }
        let folder = self.path(step);
        if !folder.join(MANIFEST).exists() {
            return Err(CheckpointError::Unfinished(folder));
        }
        let foreign =
            |name: &str, reason: String| CheckpointError::Foreign { path: folder.join(name), reason };
        let read = |name: &str, digest: String, subject: &str| {
            let path = folder.join(name);
            let bytes =
                fs::read(&path).map_err(|error| CheckpointError::Read { path: path.clone(), error })?;
            let (label, body) = Label::open(bytes)
                .map_err(|reason| CheckpointError::Unsound { path: path.clone(), reason })?;
            if label.what != name || label.steps != step {
                let reason = format!("it is file {} of step {}", label.what, label.steps);
                return Err(CheckpointError::Foreign { path, reason });
            }
            if label.digest != digest {
                let reason = format!("it is of another {subject}: put back scene.toml as it was");
                return Err(CheckpointError::Foreign { path, reason });
            }
            Ok((label, body))
        };
        let (label, text) = read(MANIFEST, scene_digest(scene), "scene")?;
        if label.program != own_program() {
            let reason = format!("it was written by {}, and this is {}", label.program, own_program());
            return Err(foreign(MANIFEST, reason));
        }
        let manifest: Manifest =
            serde_json::from_slice(&text).map_err(|error| foreign(MANIFEST, error.to_string()))?;
        let (_, coordinator) = read(COORDINATOR, scene_digest(scene), "scene")?;
        let mut participants = Vec::new();
        for ParticipantEntry { name, program, version, particles, start_hash, state_hash, parts } in
            manifest.participants
        {
            let subject = format!("section of participant {name}, or another seed or domain");
            let (_, snapshot) = read(&file_of(&name), section_digest(scene, &name), &subject)?;
            let files = match parts {
                0 => None,
                _ => Some((parts_of(&folder, &name, parts)?, parts)),
            };
            participants.push(ParticipantCheckpoint {
                name,
                program,
                version,
                particles,
                start_hash,
                state_hash,
                snapshot,
                files,
            });
        }
        let there = manifest.output.check(&self.results);
        there.map_err(|(path, reason)| CheckpointError::Foreign { path, reason })?;
        let every = manifest.every.map(|text| text.parse::<Every>());
        Ok(Saved {
            checkpoint: Checkpoint { steps: manifest.steps, coordinator, participants },
            output: manifest.output,
            keep: manifest.keep,
            every: every.transpose().map_err(|reason| foreign(MANIFEST, reason))?,
        })
    }

    /// The newest checkpoint that can be gone on from, and why those after it cannot.
    ///
    /// # Errors
    /// If there is none.
    pub fn newest(&self, scene: &Scene) -> Result<(Saved, Vec<CheckpointError>), CheckpointError> {
        let mut reasons = Vec::new();
        for step in self.known()?.into_iter().rev() {
            match self.read(scene, step) {
                Ok(saved) => return Ok((saved, reasons)),
                Err(reason) => reasons.push(reason),
            }
        }
        let path = self.folder.clone();
        Err(if reasons.is_empty() {
            CheckpointError::None(path)
        } else {
            CheckpointError::NoneSound { path, reasons }
        })
    }

    fn known(&self) -> Result<Vec<u64>, CheckpointError> {
        self.steps().map_err(|error| CheckpointError::Read { path: self.folder.clone(), error })
    }

    fn path(&self, step: u64) -> PathBuf {
        self.folder.join(format!("step-{step:06}"))
    }
}

/// The step in the name of a checkpoint's folder.
fn step_of(name: &str) -> Option<u64> {
    name.strip_prefix("step-")?.parse().ok()
}

/// The file of a participant. Names of participants are file names.
fn file_of(participant: &str) -> String {
    format!("participant-{participant}")
}

/// The files of a participant that its ranks write. A path that is no text cannot be told to a solver.
fn files_of(folder: &Path, participant: &str) -> Option<SnapshotFiles> {
    Some(SnapshotFiles { folder: folder.to_str()?.to_string(), stem: file_of(participant) })
}

/// The files of a participant that its ranks have written, after every byte of them was checked.
fn parts_of(folder: &Path, participant: &str, parts: u32) -> Result<SnapshotFiles, CheckpointError> {
    let unreadable = |path: PathBuf| move |error: io::Error| CheckpointError::Read { path, error };
    let there = folder.canonicalize().map_err(unreadable(folder.into()))?;
    let no_text = || io::Error::other("its path is no UTF-8");
    let files = files_of(&there, participant).ok_or_else(no_text).map_err(unreadable(folder.into()))?;
    for part in 0..parts {
        let path = files.path_of(part);
        let is_sound = is_sealed(&path).map_err(unreadable(path.clone()))?;
        if !is_sound {
            return Err(CheckpointError::Unsound { path, reason: Unsound::Changed });
        }
    }
    Ok(files)
}

/// True if a file ends with the BLAKE3 hash of what is before it.
fn is_sealed(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    let Some(length) = file.metadata()?.len().checked_sub(blake3::OUT_LEN as u64) else { return Ok(false) };
    let mut hasher = blake3::Hasher::new();
    io::copy(&mut (&mut file).take(length), &mut hasher)?;
    let mut seal = Vec::new();
    file.read_to_end(&mut seal)?;
    Ok(seal == hasher.finalize().as_bytes())
}

fn own_program() -> String {
    concat!("amalgam ", env!("CARGO_PKG_VERSION")).to_string()
}

fn scene_digest(scene: &Scene) -> String {
    let text = scene.effective_text();
    blake3::hash(text.strip_prefix(SCENE_HEADER).unwrap_or(&text).as_bytes()).to_string()
}

/// A digest of the data with which a participant's solver is initialised.
fn section_digest(scene: &Scene, name: &str) -> String {
    let mut digest = blake3::Hasher::new();
    let section = scene.participants.iter().find(|participant| participant.name == name);
    let section = section.map_or("", |participant| participant.section.as_str());
    digest.update(&(section.len() as u64).to_le_bytes()).update(section.as_bytes());
    digest.update(name.as_bytes()).update(&scene.header.seed.to_le_bytes());
    for value in [scene.domain.min, scene.domain.max, scene.domain.gravity].iter().flat_map(|v| v.to_array())
    {
        digest.update(&value.to_le_bytes());
    }
    digest.finalize().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENE: &str = "
[scene]
name = 'two'
[domain]
min = [-1, -1, -1]
max = [1, 1, 1]
[time]
duration = 1.0
frame_interval = 0.5
dt_max = 0.01
[[participants]]
name = 'a'
solver = 'solid'
[participants.settings]
method = 'mass-spring'
[[participants]]
name = 'b'
solver = 'fluid'
[participants.settings]
method = 'sph'
";

    fn scene(text: &str) -> Scene {
        Scene::parse("two", text, &[]).unwrap_or_else(|error| panic!("{error:?}"))
    }

    /// A run of two participants in a temporary folder, with a table of 20 bytes and a list of one frame.
    fn folder() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(folder.path().join("frames")).expect("creates");
        fs::write(folder.path().join("frames/a_000000.vtu"), "frame").expect("writes");
        let mut list = amalgam_frames::PvdCollection::create(folder.path().join("a.pvd")).expect("creates");
        list.push(0.0, "frames/a_000000.vtu").expect("writes");
        fs::write(folder.path().join("p.csv"), [b'x'; 20]).expect("writes");
        let store = Store::new(folder.path());
        (folder, store)
    }

    fn saved(steps: u64, keep: u32) -> Saved {
        let part = |name: &str, program: &str| ParticipantCheckpoint {
            name: name.into(),
            program: program.into(),
            version: "0.1.0".into(),
            particles: 3,
            start_hash: u64::MAX,
            state_hash: steps,
            snapshot: (0..50).map(|byte| byte ^ steps as u8).collect(),
            files: None,
        };
        let participants = vec![part("a", "solid"), part("b", "fluid")];
        let lists = vec![("a.pvd".into(), 1)];
        Saved {
            checkpoint: Checkpoint { steps, coordinator: vec![7; 30], participants },
            output: RecorderState {
                frame: 1,
                lists,
                at_rest: vec![None],
                framed: Some([[0.1, -0.25, 1e-300], [1.0 / 3.0, 7.0, 8.5]]),
                tables: vec![("p.csv".into(), 20)],
                work: None,
            },
            every: Some("10m".parse().expect("an interval")),
            keep,
        }
    }

    fn refusal(store: &Store, text: &str, step: u64) -> String {
        store.read(&scene(text), step).expect_err("a refusal").to_string()
    }

    #[test]
    fn a_checkpoint_is_read_as_it_was_written_and_older_ones_go() {
        let (_folder, store) = folder();
        assert!(store.newest(&scene(SCENE)).expect_err("none").to_string().contains("holds no checkpoint"));
        for steps in [1, 5, 9] {
            store.write(&scene(SCENE), &saved(steps, 2)).expect("writes");
        }
        assert_eq!(store.steps().expect("reads"), [5, 9]);
        let (read, skipped) = store.newest(&scene(SCENE)).expect("reads");
        let whole = saved(9, 2);
        assert_eq!((read.checkpoint, read.output), (whole.checkpoint, whole.output));
        assert_eq!((read.every, read.keep, skipped.len()), (whole.every, 2, 0));
        // The run goes on anew from step 5: later checkpoints belong to the earlier course.
        store.write(&scene(SCENE), &saved(5, 2)).expect("writes");
        assert_eq!(store.steps().expect("reads"), [5]);
        assert!(refusal(&store, SCENE, 9).contains("no checkpoint of step 9; there are 5"));
    }

    #[test]
    fn what_is_flipped_cut_or_lost_is_refused_and_the_one_before_is_taken() {
        let (_folder, store) = folder();
        for steps in [4, 8] {
            store.write(&scene(SCENE), &saved(steps, 2)).expect("writes");
        }
        let last = store.path(8);
        let spoilt = |file: &str, bytes: &[u8], reason: &str| {
            let whole = fs::read(last.join(file)).expect("reads");
            fs::write(last.join(file), bytes).expect("writes");
            let error = refusal(&store, SCENE, 8);
            assert!(error.contains(file) && error.contains(reason), "{error}");
            let (taken, skipped) = store.newest(&scene(SCENE)).expect("the one before");
            assert_eq!((taken.checkpoint.steps, skipped.len()), (4, 1));
            fs::write(last.join(file), whole).expect("writes");
        };
        for file in [MANIFEST, COORDINATOR, "participant-a", "participant-b"] {
            let whole = fs::read(last.join(file)).expect("reads");
            for at in 0..whole.len() {
                let mut flipped = whole.clone();
                flipped[at] ^= 1 << (at % 8);
                spoilt(file, &flipped, ": it");
            }
            spoilt(file, &whole[..whole.len() - 1], "cut off");
            spoilt(file, &whole[..whole.len() - 40], "cut off");
            spoilt(file, &[], "no file of a checkpoint");
        }
        // The files are whole, but of another participant or step.
        let read = |step, file: &str| fs::read(store.path(step).join(file)).expect("reads");
        spoilt("participant-a", &read(8, "participant-b"), "it is file participant-b of step 8");
        spoilt("participant-a", &read(4, "participant-a"), "it is file participant-a of step 4");
        fs::remove_file(last.join("participant-b")).expect("removes");
        assert!(refusal(&store, SCENE, 8).contains("cannot read"));
        fs::remove_file(last.join(MANIFEST)).expect("removes");
        assert!(refusal(&store, SCENE, 8).contains("it was not written to its end"));
        fs::remove_file(store.path(4).join(MANIFEST)).expect("removes");
        let error = store.newest(&scene(SCENE)).expect_err("none is whole").to_string();
        assert!(error.contains("step-000008") && error.contains("step-000004"), "{error}");
    }

    #[test]
    fn a_checkpoint_of_another_scene_section_or_program_is_refused() {
        let (_folder, store) = folder();
        store.write(&scene(SCENE), &saved(4, 2)).expect("writes");
        let changes =
            [("'two'", "'two'\nseed = 2"), ("max = [1", "max = [2"), ("0.01", "0.02"), ("'sph'", "'flip'")];
        for (from, to) in changes {
            let error = refusal(&store, &SCENE.replace(from, to), 4);
            assert!(error.contains("manifest") && error.contains("it is of another scene"), "{error}");
        }
        // The snapshot alone tells, too, when it lies among the files of another scene.
        let other = scene(&SCENE.replace("'mass-spring'", "'grains'"));
        let (_second, elsewhere) = folder();
        elsewhere.write(&other, &saved(4, 2)).expect("writes");
        let snapshot = |store: &Store, name: &str| store.path(4).join(name);
        fs::copy(snapshot(&elsewhere, "participant-b"), snapshot(&store, "participant-b")).expect("copies");
        assert!(store.read(&scene(SCENE), 4).is_ok(), "the section of b is the same");
        fs::copy(snapshot(&elsewhere, "participant-a"), snapshot(&store, "participant-a")).expect("copies");
        let error = refusal(&store, SCENE, 4);
        assert!(error.contains("another section of participant a, or another seed or domain"), "{error}");
        // A manifest that another version of this program sealed.
        let path = snapshot(&store, MANIFEST);
        let (label, text) = Label::open(fs::read(&path).expect("reads")).expect("is whole");
        let label = Label { program: "amalgam 0.0.1".into(), ..label };
        fs::write(&path, label.seal(&text).concat()).expect("writes");
        let error = refusal(&store, SCENE, 4);
        assert!(error.contains("it was written by amalgam 0.0.1, and this is amalgam"), "{error}");
    }

    #[test]
    fn results_that_do_not_reach_as_far_are_refused() {
        let (folder, store) = folder();
        store.write(&scene(SCENE), &saved(4, 2)).expect("writes");
        fs::write(folder.path().join("p.csv"), [b'x'; 19]).expect("writes");
        let error = refusal(&store, SCENE, 4);
        assert!(
            error.contains("p.csv") && error.contains("taken at 20 bytes of it, 19 are there"),
            "{error}"
        );
        fs::write(folder.path().join("p.csv"), [b'x'; 21]).expect("writes");
        assert!(store.read(&scene(SCENE), 4).is_ok());
        fs::write(folder.path().join("frames/a_000000.vtu"), "").expect("writes");
        assert!(refusal(&store, SCENE, 4).contains("a_000000.vtu"));
        amalgam_frames::PvdCollection::create(folder.path().join("a.pvd")).expect("creates");
        assert!(refusal(&store, SCENE, 4).contains("the checkpoint has 1 frames, 0 are listed"));
    }

    #[test]
    fn a_write_that_fails_or_is_killed_leaves_the_last_one() {
        let (_folder, store) = folder();
        store.write(&scene(SCENE), &saved(4, 1)).expect("writes");
        let mut bad = saved(8, 1);
        bad.checkpoint.participants[1].name = "x".repeat(300);
        let error = store.write(&scene(SCENE), &bad).expect_err("no file has such a name");
        assert!(error.to_string().contains("cannot write"), "{error}");
        bad.checkpoint.steps = 4;
        store.write(&scene(SCENE), &bad).expect_err("the same for a checkpoint that is there");
        assert_eq!(store.entries().expect("reads"), [store.path(4)]);
        assert_eq!(store.read(&scene(SCENE), 4).expect("is whole").checkpoint, saved(4, 1).checkpoint);
        // The run was killed while it wrote, and between two renames.
        fs::create_dir(store.path(8).with_extension(UNFINISHED)).expect("creates");
        fs::rename(store.path(4), store.path(4).with_extension(REPLACED)).expect("renames");
        assert!(store.steps().expect("reads").is_empty());
        store.tidy().expect("tidies");
        assert_eq!(store.entries().expect("reads"), [store.path(4)]);
        // The run was killed before it removed the replaced checkpoint.
        fs::create_dir(store.path(4).with_extension(REPLACED)).expect("creates");
        store.tidy().expect("tidies");
        assert_eq!(store.newest(&scene(SCENE)).expect("is whole").0.checkpoint, saved(4, 1).checkpoint);
    }
}
