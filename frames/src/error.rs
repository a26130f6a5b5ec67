//! Errors of writing files and pictures.

use std::io;
use std::path::{Path, PathBuf};

/// Reasons for which output could not be written or drawn.
#[derive(Debug, thiserror::Error)]
pub enum FramesError {
    /// No space is left; the unfinished file has been removed and the file of that name, if any, is the old
    /// one.
    #[error("cannot write {path}: the disk is full; free some space or choose another output folder")]
    DiskFull {
        /// The file that was to be written.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Any other failure of reading or writing.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// Action that failed: create, write, read or rename.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The data does not fit together or the file's format. A sentence that says what to write.
    #[error("{path}: {what}")]
    Data {
        /// The file that was to be written or continued.
        path: PathBuf,
        /// Description of the fault.
        what: String,
    },
    /// A scene or camera that cannot be drawn. A sentence that says what is wrong.
    #[error("picture: {0}")]
    Scene(String),
}

impl FramesError {
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { path, source },
            _ => Self::Io { action, path, source },
        }
    }

    pub(crate) fn data(path: &Path, what: impl Into<String>) -> Self {
        Self::Data { path: path.to_path_buf(), what: what.into() }
    }
}
