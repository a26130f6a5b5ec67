//! The list of a participant's frames by time (`.pvd`), which ParaView opens as one animation.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::atomic;
use crate::error::FramesError;

/// A `.pvd` file that is rewritten whole after each frame, so that an interrupted run can be opened.
#[derive(Debug)]
pub struct PvdCollection {
    path: PathBuf,
    entries: Vec<(f64, String)>,
}

impl PvdCollection {
    /// Writes an empty list, over an old one of that name.
    ///
    /// # Errors
    /// A failure of the file system.
    pub fn create(path: impl Into<PathBuf>) -> Result<Self, FramesError> {
        let collection = Self { path: path.into(), entries: Vec::new() };
        collection.write()?;
        Ok(collection)
    }

    /// Continues the list of an interrupted run that had `count` frames when its checkpoint was taken: later
    /// ones are dropped from the list, since the run will write them again.
    ///
    /// # Errors
    /// If the file cannot be read or written, was not written by this type, or lists fewer frames.
    pub fn resume(path: impl Into<PathBuf>, count: usize) -> Result<Self, FramesError> {
        let path = path.into();
        let mut entries = Self::read(&path)?;
        if entries.len() < count {
            let held = entries.len();
            return Err(FramesError::data(
                &path,
                format!("the list to continue must have {count} frames, it has {held}"),
            ));
        }
        entries.truncate(count);
        let collection = Self { path, entries };
        collection.write()?;
        Ok(collection)
    }

    /// The frames that a list holds: the time [s] of each and its file, from the folder of the list.
    ///
    /// # Errors
    /// If the file cannot be read or was not written by this type.
    pub fn read(path: &Path) -> Result<Vec<(f64, String)>, FramesError> {
        let text = fs::read_to_string(path).map_err(|source| FramesError::io("read", path, source))?;
        let entry = |line: &str| {
            let time = attribute(line, "timestep").and_then(|time| time.parse::<f64>().ok());
            let entry = time.zip(attribute(line, "file").map(str::to_owned));
            entry.ok_or_else(|| {
                FramesError::data(path, format!("this line is not of a list of frames: {line}"))
            })
        };
        text.lines().filter(|line| line.starts_with("<DataSet ")).map(entry).collect()
    }

    /// The file of the last frame.
    pub fn last(&self) -> Option<&str> {
        self.entries.last().map(|(_, file)| file.as_str())
    }

    /// Number of frames in the list.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Adds a frame at `time` [s]. `file` is its path from the folder of the list, with `/` between folders.
    ///
    /// # Errors
    /// A failure of the file system, or a file name with one of `" < > &`.
    pub fn push(&mut self, time: f64, file: &str) -> Result<(), FramesError> {
        if file.contains(['"', '<', '>', '&']) {
            return Err(FramesError::data(
                &self.path,
                format!("file name {file} must not hold any of \" < > &"),
            ));
        }
        self.entries.push((time, file.to_owned()));
        self.write()
    }

    /// Path of the list.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write(&self) -> Result<(), FramesError> {
        atomic::write(&self.path, |out| {
            writeln!(out, r#"<?xml version="1.0"?>"#)?;
            writeln!(out, r#"<VTKFile type="Collection" version="1.0" byte_order="LittleEndian">"#)?;
            writeln!(out, "<Collection>")?;
            for (time, file) in &self.entries {
                writeln!(out, r#"<DataSet timestep="{time:?}" file="{file}"/>"#)?;
            }
            writeln!(out, "</Collection>\n</VTKFile>")
        })
    }
}

fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!(" {name}=\""))?;
    Some(rest.split_once('"')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resumed_list_is_the_uninterrupted_one() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let frames: Vec<(f64, String)> =
            (0..5).map(|i| (0.1 * f64::from(i), format!("water/{i}.vtu"))).collect();
        let write = |name: &str| {
            let mut list = PvdCollection::create(folder.path().join(name)).expect("creates");
            frames.iter().for_each(|(time, file)| list.push(*time, file).expect("adds"));
        };
        write("whole.pvd");
        write("broken.pvd");
        let mut list = PvdCollection::resume(folder.path().join("broken.pvd"), 3).expect("resumes");
        let text = |name: &str| fs::read_to_string(folder.path().join(name)).expect("reads");
        assert!(!text("broken.pvd").contains("3.vtu"));
        frames[3..].iter().for_each(|(time, file)| list.push(*time, file).expect("adds"));
        assert_eq!(text("whole.pvd"), text("broken.pvd"));
        assert!(PvdCollection::resume(folder.path().join("broken.pvd"), 6).is_err());
        assert_eq!(text("whole.pvd"), text("broken.pvd"));
        assert!(
            text("whole.pvd").contains(r#"<DataSet timestep="0.30000000000000004" file="water/3.vtu"/>"#)
        );
    }

    #[test]
    fn a_file_name_cannot_break_the_list() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let mut list = PvdCollection::create(folder.path().join("a.pvd")).expect("creates");
        assert!(list.push(0.0, "a\"b.vtu").is_err());
    }
}
