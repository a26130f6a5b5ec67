//! Files that ranks write and read for themselves, in a folder that a coordinator names and that the service
//! allows.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use amalgam_proto::contract::SnapshotFiles;
use amalgam_ranks::Ranks;

use crate::error::SolverError;
use crate::solver::Solver;

/// Permission to write and read the files that a coordinator names.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// The folder below which files may be, if there is one.
    allowed: Option<PathBuf>,
    /// Completed when a coordinator has asked for another folder.
    told: OnceLock<()>,
}

impl Files {
    /// Permission for files below a folder, if there is one.
    pub(crate) fn below(allowed: Option<PathBuf>) -> Self {
        Self { allowed, ..Self::default() }
    }

    /// True if ranks are to write their parts to a folder: there are several, and all of them may. Collective.
    pub(super) fn are_wanted(&self, ranks: &Ranks, folder: &str) -> bool {
        !ranks.is_alone() && !ranks.any(!self.may_be_in(folder))
    }

    /// True if files may be in a folder.
    fn may_be_in(&self, folder: &str) -> bool {
        let Some(allowed) = &self.allowed else { return false };
        // A folder that is not there has no such path.
        let is_below = || Ok(Path::new(folder).canonicalize()?.starts_with(allowed.canonicalize()?));
        let may = matches!(is_below(), Ok::<bool, io::Error>(true));
        if !may {
            let allowed = allowed.display();
            self.told.get_or_init(|| {
                tracing::warn!(
                    "frames and snapshots go to the coordinator: here {folder} is no folder below {allowed}, which --files gives"
                );
            });
        }
        may
    }
}

/// A file, and the hash of what was written to it.
struct Hashed<W> {
    file: W,
    hasher: blake3::Hasher,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes this rank's part of a snapshot, then its BLAKE3 hash. It is on the disk when this returns. Collective.
///
/// # Errors
/// The system's error, with the file.
pub(super) fn write_part(path: &Path, solver: &dyn Solver) -> Result<(), SolverError> {
    let write = || {
        let file = match File::create(path) {
            Ok(file) => file,
            Err(error) => {
                // Other ranks wait for what is collective in the solver.
                solver.save_part(&mut io::sink())?;
                return Err(error);
            }
        };
        let mut hashed = BufWriter::with_capacity(1 << 18, Hashed { file, hasher: blake3::Hasher::new() });
        solver.save_part(&mut hashed)?;
        let Hashed { mut file, hasher } = hashed.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.write_all(hasher.finalize().as_bytes())?;
        file.sync_all()
    };
    write().map_err(|error: io::Error| SolverError(format!("cannot write {}: {error}", path.display())))
}

/// Reads the parts of a snapshot that fall to this rank: each rank takes every part whose number leaves the
/// rank's when it is divided by the number of ranks.
///
/// # Errors
/// A folder that is not allowed, or a file that cannot be read or has other bytes than were written.
pub(super) fn read_parts(
    allowed: &Files,
    ranks: &Ranks,
    files: &SnapshotFiles,
    parts: u32,
) -> Result<Vec<Vec<u8>>, SolverError> {
    if !allowed.may_be_in(&files.folder) {
        let folder = &files.folder;
        return Err(SolverError(format!(
            "the snapshot is in files of {folder}, which this service may not read: serve with --files and a folder above \
             it that is the same on all machines"
        )));
    }
    let read = |part: u32| {
        let path = files.path_of(part);
        let fault = |reason: &dyn std::fmt::Display| {
            SolverError(format!("cannot read the snapshot {}: {reason}", path.display()))
        };
        let mut bytes = fs::read(&path).map_err(|error| fault(&error))?;
        let end = bytes.len().checked_sub(blake3::OUT_LEN).ok_or_else(|| fault(&"it is cut off"))?;
        if blake3::hash(&bytes[..end]).as_bytes()[..] != bytes[end..] {
            return Err(fault(&"its bytes are not those that were written"));
        }
        bytes.truncate(end);
        Ok(bytes)
    };
    (ranks.rank() as u32..parts).step_by(ranks.size()).map(read).collect()
}
