//! Tables of probes over time (`.csv`).

use std::fmt::Write as _;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use crate::error::FramesError;

/// A comma-separated table of numbers. Each value is written with the fewest digits that read back to the
/// same bits. Each row is one call to the system, so that all rows can be read after an interruption.
#[derive(Debug)]
pub struct CsvTable {
    path: PathBuf,
    file: File,
    columns: usize,
    row: String,
}

impl CsvTable {
    /// Starts a table, over an old one of that name. `header` names the columns, with their units: `time
    /// [s]`.
    ///
    /// # Errors
    /// A failure of the file system, or names with commas, quotes or line breaks.
    pub fn create(path: impl Into<PathBuf>, header: &[&str]) -> Result<Self, FramesError> {
        let path = path.into();
        let header_row = header_row(&path, header)?;
        let mut file = File::create(&path).map_err(|source| FramesError::io("create", &path, source))?;
        file.write_all(header_row.as_bytes()).map_err(|source| FramesError::io("write", &path, source))?;
        Ok(Self { path, file, columns: header.len(), row: String::new() })
    }

    /// Continues the table of an interrupted run that was `length` bytes long when its checkpoint was taken.
    /// Later rows are dropped, since the run will write them again.
    ///
    /// # Errors
    /// A failure of the file system, another header than `header`, or a table that does not have a row that
    /// ends there.
    pub fn resume(path: impl Into<PathBuf>, header: &[&str], length: u64) -> Result<Self, FramesError> {
        let path = path.into();
        let header_row = header_row(&path, header)?;
        let io = |action: &'static str| {
            let path = path.clone();
            move |source| FramesError::io(action, &path, source)
        };
        let mut file = File::options().read(true).append(true).open(&path).map_err(io("open"))?;
        let mut start = vec![0; header_row.len()];
        let mut end = [0];
        let mut look = || {
            file.read_exact(&mut start)?;
            file.seek(SeekFrom::Start(length.saturating_sub(1)))?;
            file.read_exact(&mut end)
        };
        match look() {
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => return Err(io("read")(error)),
            looked if looked.is_err() || start != header_row.as_bytes() || end != *b"\n" => {
                let header = header_row.trim_end();
                let what =
                    format!("the table to continue must begin with {header} and have {length} bytes or more");
                return Err(FramesError::data(&path, what));
            }
            _ => file.set_len(length).map_err(io("shorten"))?,
        }
        Ok(Self { path, file, columns: header.len(), row: String::new() })
    }

    /// Length of the table [bytes]. All rows are on the disk when this returns.
    ///
    /// # Errors
    /// A failure of the file system.
    pub fn length(&self) -> Result<u64, FramesError> {
        let length = || {
            self.file.sync_data()?;
            self.file.metadata()
        };
        Ok(length().map_err(|source| FramesError::io("write", &self.path, source))?.len())
    }

    /// Appends a row, one value per column.
    ///
    /// # Errors
    /// A failure of the file system, or another number of values than columns.
    pub fn append(&mut self, values: &[f64]) -> Result<(), FramesError> {
        if values.len() != self.columns {
            let what = format!("a row of {} values for {} columns", values.len(), self.columns);
            return Err(FramesError::data(&self.path, what));
        }
        self.row.clear();
        for (i, value) in values.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(self.row, "{comma}{value:?}").expect("writing to a string cannot fail");
        }
        self.row.push('\n');
        self.file
            .write_all(self.row.as_bytes())
            .map_err(|source| FramesError::io("write", &self.path, source))
    }

    /// Path of the table.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn header_row(path: &Path, header: &[&str]) -> Result<String, FramesError> {
    match header.iter().find(|name| name.is_empty() || name.contains([',', '"', '\n', '\r'])) {
        Some(name) => Err(FramesError::data(
            path,
            format!("column name {name:?} must hold no comma, quote or line break"),
        )),
        None if header.is_empty() => Err(FramesError::data(path, "a table needs at least one column")),
        None => Ok(header.join(",") + "\n"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const HEADER: [&str; 3] = ["time [s]", "energy [J]", "speed_max [m/s]"];

    fn rows() -> Vec<[f64; 3]> {
        vec![
            [0.0, 0.1 + 0.2, -0.0],
            [1e-3, f64::MIN_POSITIVE / 8.0, 1.0 / 3.0],
            [2e-3, f64::MAX, f64::INFINITY],
            [3e-3, -1e22, std::f64::consts::PI],
        ]
    }

    #[test]
    fn values_read_back_to_the_same_bits() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("probes.csv");
        let mut table = CsvTable::create(&path, &HEADER).expect("creates");
        for row in rows() {
            table.append(&row).expect("appends");
        }
        // The table is still open: nothing may wait in a buffer.
        let text = fs::read_to_string(&path).expect("reads");
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("time [s],energy [J],speed_max [m/s]"));
        for row in rows() {
            let line = lines.next().expect("a row");
            let read: Vec<u64> =
                line.split(',').map(|v| v.parse::<f64>().expect("a number").to_bits()).collect();
            assert_eq!(read, row.map(f64::to_bits));
        }
        assert_eq!(lines.next(), None);
        assert!(table.append(&[1.0]).expect_err("too short").to_string().contains("1 values for 3 columns"));
    }

    #[test]
    fn a_resumed_table_is_the_uninterrupted_one() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("probes.csv");
        let mut table = CsvTable::create(&path, &HEADER).expect("creates");
        let mut lengths = Vec::new();
        for row in rows() {
            lengths.push(table.length().expect("is written"));
            table.append(&row).expect("appends");
        }
        let whole = fs::read_to_string(&path).expect("reads");
        fs::write(&path, &whole[..whole.len() - 3]).expect("cuts the last row");
        let mut table = CsvTable::resume(&path, &HEADER, lengths[2]).expect("resumes");
        for row in &rows()[2..] {
            table.append(row).expect("appends");
        }
        assert_eq!(fs::read_to_string(&path).expect("reads"), whole);
        let refused = [(&HEADER[..1], lengths[2]), (&HEADER, lengths[2] - 1), (&HEADER, 1 << 20)];
        for (header, length) in refused {
            assert!(CsvTable::resume(&path, header, length).is_err(), "{header:?}, {length}");
        }
        assert_eq!(fs::read_to_string(&path).expect("reads"), whole);
    }
}
