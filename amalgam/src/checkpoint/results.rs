//! Extent of a run's results when a checkpoint is taken. `amalgam resume` cuts them to it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use amalgam_frames::{PvdCollection, frame_parts};

use crate::folder::WORK;

/// Extent of the results of a run.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RecorderState {
    /// Number of the next frame.
    pub frame: u64,
    /// Lists of frames, and how many each of them has.
    pub lists: Vec<(String, usize)>,
    /// Content of the last frame of each list, if nothing in the frame moves.
    #[serde(default)]
    pub at_rest: Vec<Option<String>>,
    /// Corners of a box around the places where particles have been in pictures [m].
    #[serde(default)]
    pub framed: Option<[[f64; 3]; 2]>,
    /// Tables of probes, and how long they are [bytes].
    pub tables: Vec<(String, u64)>,
    /// Length of the table of counts and wall times [bytes], if it has begun.
    #[serde(default)]
    pub work: Option<u64>,
}

impl RecorderState {
    /// Looks whether the results are still there, without changing anything.
    ///
    /// # Errors
    /// The first file that is not there, or not as long, with its fault.
    pub fn check(&self, results: &Path) -> Result<(), (PathBuf, String)> {
        for (file, count) in &self.lists {
            let path = results.join(file);
            let entries = PvdCollection::read(&path).map_err(|error| (path.clone(), error.to_string()))?;
            if entries.len() < *count {
                let held = entries.len();
                return Err((path, format!("the checkpoint has {count} frames, {held} are listed")));
            }
            for (_, file) in &entries[..*count] {
                let frame = results.join(file);
                check_length(frame.clone(), 1)?;
                let parts = frame_parts(&frame).map_err(|error| (frame.clone(), error.to_string()))?;
                parts.iter().try_for_each(|part| check_length(frame.with_file_name(part), 1))?;
            }
        }
        let tables = self.tables.iter().map(|(file, length)| (file.as_str(), *length));
        let mut tables = tables.chain(self.work.map(|length| (WORK, length)));
        tables.try_for_each(|(file, length)| check_length(results.join(file), length))
    }
}

fn check_length(path: PathBuf, length: u64) -> Result<(), (PathBuf, String)> {
    match fs::metadata(&path).map(|metadata| metadata.len()) {
        Ok(held) if held >= length => Ok(()),
        Ok(held) => {
            Err((path, format!("the checkpoint was taken at {length} bytes of it, {held} are there")))
        }
        Err(error) => Err((path, format!("results from before the checkpoint: {error}"))),
    }
}
