//! The lock of a run on its folder: two runs in one folder would spoil each other's results.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    path::Path,
};

use super::{OutputError, failed};

/// Name of the lock's file. The file stays when the run is over: removing it while others wait would let two
/// runs hold locks on two files of that name.
pub(crate) const LOCK: &str = ".lock";

/// Holds the folder of a run. The system releases the lock when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Lock {
    /// Takes the lock of a folder that exists, and says in its file which process holds it.
    ///
    /// # Errors
    /// Another run holds it, or a failure of the file system.
    pub(crate) fn take(folder: &Path) -> Result<Self, OutputError> {
        let path = folder.join(LOCK);
        let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = open().map_err(failed("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OutputError::InUse { folder: folder.to_path_buf(), holder: holder(&mut file) });
            }
            Err(TryLockError::Error(error)) => return Err(failed("lock", &path)(error)),
        }
        write_holder(&mut file).map_err(failed("write", &path))?;
        Ok(Self(file))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // This is for readers of the file only: the lock itself ends with the process.
        let _ = self.0.set_len(0);
    }
}

fn write_holder(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.write_all(std::process::id().to_string().as_bytes())
}

/// The process that holds a lock. Another process may not have written its id yet.
fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_once_and_names_its_holder() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let lock = Lock::take(folder.path()).expect("nobody holds it");
        let error = Lock::take(folder.path()).expect_err("it is held").to_string();
        assert!(error.contains(&format!("kill {}", std::process::id())), "{error}");
        drop(lock);
        Lock::take(folder.path()).expect("it was let go");
    }

    #[test]
    fn what_a_killed_process_left_does_not_block() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join(LOCK), "4194304123").expect("writes");
        let _lock = Lock::take(folder.path()).expect("the file alone holds nothing");
        let text = std::fs::read_to_string(folder.path().join(LOCK)).expect("reads");
        assert_eq!(text, std::process::id().to_string());
    }
}
