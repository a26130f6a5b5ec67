//! Record of a run on disk: `run.json` in the run's folder, beside the submitted files and the results.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use amalgam_proto::coordinator as v1;
use serde::{Deserialize, Serialize};

use crate::{checkpoint::KEPT, cli::Reach, run::Options};

/// The file, and the folders beside it.
const FILE: &str = "run.json";
pub(super) const SUBMITTED: &str = "submitted";
pub(super) const RESULTS: &str = "results";

/// State of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    Queued,
    Running,
    Finished,
    Stopped,
    Failed,
}

impl State {
    /// True if nothing more happens to the run unless it is continued.
    pub(super) fn is_over(self) -> bool {
        matches!(self, Self::Finished | Self::Stopped | Self::Failed)
    }
}

/// Options that a client asks for.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    every: Option<String>,
    keep: Option<u32>,
    wait: Option<Duration>,
    reconnect: Option<Duration>,
}

impl Wanted {
    /// Reads the options that a client sent.
    pub(super) fn from_wire(options: &v1::Options) -> Result<Self, String> {
        let time = |name: &str, seconds: f64| {
            if seconds == 0.0 {
                return Ok(None);
            }
            let time = Duration::try_from_secs_f64(seconds).map_err(|error| format!("{name}: {error}"))?;
            Ok::<_, String>(Some(time))
        };
        let every = (!options.checkpoint_every.is_empty()).then(|| options.checkpoint_every.clone());
        if let Some(every) = &every {
            every.parse::<crate::checkpoint::every::Every>()?;
        }
        Ok(Self {
            every,
            keep: (options.keep_checkpoints > 0).then_some(options.keep_checkpoints),
            wait: time("wait", options.wait)?,
            reconnect: time("reconnect", options.reconnect)?,
        })
    }

    /// Options of the run, with the service's number of threads and its options for where solvers run.
    pub(super) fn options(&self, threads: Option<usize>, reach: Reach) -> Options {
        Options {
            threads,
            every: self.every.as_ref().and_then(|every| every.parse().ok()),
            keep: self.keep.unwrap_or(KEPT),
            wait: self.wait,
            reconnect: self.reconnect,
            reach,
            ..Options::default()
        }
    }
}

/// A run, as its folder has it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub(super) id: String,
    /// Its place in the order of submissions.
    pub(super) number: u64,
    pub(super) scene: String,
    pub(super) state: State,
    pub(super) steps: u64,
    pub(super) time: f64,
    pub(super) duration: f64,
    /// Seconds since 1970.
    pub(super) submitted: u64,
    pub(super) error: String,
    pub(super) state_hash: String,
    pub(super) wanted: Wanted,
}

impl Record {
    /// Reads the record of the run in a folder.
    pub(super) fn read(folder: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(folder.join(FILE))?)?)
    }

    /// Writes the record, whole or not at all.
    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        let unfinished: PathBuf = folder.join(format!(".{FILE}.unfinished"));
        fs::write(&unfinished, serde_json::to_vec_pretty(self)?)?;
        fs::rename(unfinished, folder.join(FILE))
    }

    /// The record as a message for clients.
    pub(super) fn to_wire(&self, is_paused: bool) -> v1::Run {
        let state = match self.state {
            State::Queued => v1::State::Queued,
            State::Running if is_paused => v1::State::Paused,
            State::Running => v1::State::Running,
            State::Finished => v1::State::Finished,
            State::Stopped => v1::State::Stopped,
            State::Failed => v1::State::Failed,
        };
        v1::Run {
            id: self.id.clone(),
            scene: self.scene.clone(),
            state: state.into(),
            steps: self.steps,
            time: self.time,
            duration: self.duration,
            submitted: self.submitted,
            error: self.error.clone(),
            state_hash: self.state_hash.clone(),
        }
    }
}
