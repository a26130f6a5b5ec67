//! `work.csv`: numbers of steps and contacts and wall time by phase, a row per frame.

use std::path::{Path, PathBuf};

use amalgam_coordinator::{Phase, Simulation, StepRecord};
use amalgam_frames::{CsvTable, FramesError};

use crate::folder::WORK;

/// Columns before those of wall time.
const COUNTS: [&str; 7] = ["time [s]", "steps", "dt [s]", "stages", "contacts", "groups", "unresolved"];

/// The table, which begins with the first row.
pub(super) struct WorkTable {
    path: PathBuf,
    table: Option<CsvTable>,
}

impl WorkTable {
    /// A table in a folder, to which nothing has been written.
    pub(super) fn new(folder: &Path) -> Self {
        Self { path: folder.join(WORK), table: None }
    }

    /// A table that goes on after `length` bytes, if there are any.
    ///
    /// # Errors
    /// A failure of the file system, or the table of another run.
    pub(super) fn resume(
        folder: &Path,
        simulation: &Simulation,
        length: Option<u64>,
    ) -> Result<Self, FramesError> {
        let mut this = Self::new(folder);
        if let Some(length) = length {
            let header = header(simulation);
            let header: Vec<&str> = header.iter().map(String::as_str).collect();
            this.table = Some(CsvTable::resume(&this.path, &header, length)?);
        }
        Ok(this)
    }

    /// Length of the table [bytes], if it has begun.
    ///
    /// # Errors
    /// A failure of the file system.
    pub(super) fn length(&self) -> Result<Option<u64>, FramesError> {
        self.table.as_ref().map(CsvTable::length).transpose()
    }

    /// Appends a row: dt, stages, contacts, groups and unresolved pairs of the last step, and sums from the
    /// start of the run.
    ///
    /// # Errors
    /// A failure of the file system.
    pub(super) fn append(&mut self, record: &StepRecord, simulation: &Simulation) -> Result<(), FramesError> {
        let table = match &mut self.table {
            Some(table) => table,
            None => {
                let header = header(simulation);
                let header: Vec<&str> = header.iter().map(String::as_str).collect();
                self.table.insert(CsvTable::create(&self.path, &header)?)
            }
        };
        let StepRecord { time, step, dt, stages, active, marked, groups, unresolved, .. } = *record;
        let counts = [
            time,
            (step + 1) as f64,
            dt,
            f64::from(stages),
            (active + marked) as f64,
            groups as f64,
            unresolved as f64,
        ];
        let phases = Phase::ALL.map(|phase| simulation.profile().seconds(phase));
        let waits = simulation.traffic().map(|traffic| traffic.waited_s);
        let row: Vec<f64> = counts.into_iter().chain(phases).chain(waits).collect();
        table.append(&row)
    }
}

fn header(simulation: &Simulation) -> Vec<String> {
    let counts = COUNTS.into_iter().map(String::from);
    let phases = Phase::ALL.into_iter().map(|phase| format!("{} [s]", phase.name()));
    let waits = simulation.traffic().map(|traffic| format!("wait for {} [s]", traffic.name));
    counts.chain(phases).chain(waits).collect()
}
