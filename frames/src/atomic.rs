//! Files that appear whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::FramesError;

/// Writes `path` through a temporary file beside it, `.NAME.part`, which is renamed at the end and removed on
/// error. The name is fixed, so that the next run overwrites the file that a killed run left. Two processes
/// must not write the same file at once.
///
/// The data is handed to the disk before the rename: quotas and network file systems report a full disk only
/// then.
pub(crate) fn write(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), FramesError> {
    let part = part_name(path)?;
    let file = File::create(&part).map_err(|source| FramesError::io("create", &part, source))?;
    let mut out = BufWriter::with_capacity(1 << 18, file);
    let written = fill(&mut out).and_then(|()| out.flush()).and_then(|()| out.get_ref().sync_data());
    // A failed writer must not try again to write its buffer when it is dropped.
    let (file, _) = out.into_parts();
    drop(file);
    let result = written
        .map_err(|source| FramesError::io("write", path, source))
        .and_then(|()| fs::rename(&part, path).map_err(|source| FramesError::io("rename to", path, source)));
    if result.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&part);
    }
    result
}

fn part_name(path: &Path) -> Result<PathBuf, FramesError> {
    let Some(name) = path.file_name() else {
        return Err(FramesError::data(path, "this is not the name of a file"));
    };
    let mut part = std::ffi::OsString::from(".");
    part.push(name);
    part.push(".part");
    Ok(path.with_file_name(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_no_other() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("a.txt");
        write(&path, |out| out.write_all(b"old")).expect("writes");
        let failed = write(&path, |out| {
            out.write_all(b"new, but")?;
            Err(io::Error::other("it broke"))
        });
        assert!(failed.expect_err("must fail").to_string().contains("it broke"));
        assert_eq!(fs::read(&path).expect("still there"), b"old");
        assert_eq!(fs::read_dir(folder.path()).expect("folder").count(), 1);
    }

    /// `/dev/full` answers every write as a full disk does.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_named() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("a.txt");
        std::os::unix::fs::symlink("/dev/full", folder.path().join(".a.txt.part")).expect("link");
        let error = write(&path, |out| out.write_all(b"new")).expect_err("must fail");
        assert!(matches!(error, FramesError::DiskFull { .. }), "{error}");
        assert!(error.to_string().contains("the disk is full"));
        assert_eq!(fs::read_dir(folder.path()).expect("folder").count(), 0);
    }
}
