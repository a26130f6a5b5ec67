//! Tables of probes over time (`.csv`).

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::FramesError;

/// A comma-separated table of numbers. Each value is written with the fewest digits that read back to the same bits,
/// each row with one call to the system, so that what has been appended can be read after an interruption.
#[derive(Debug)]
pub struct CsvTable {
    path: PathBuf,
    file: File,
    columns: usize,
    row: String,
}

impl CsvTable {
    /// Starts a table, over an old one of that name. `header` names the columns, with their units: `time [s]`.
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

    /// Continues the table of an interrupted run that was restored at `time` [s]. The first column must be the time:
    /// rows later than `time` are dropped, since the run will write them again, and so is a half-written last row.
    ///
    /// # Errors
    /// A failure of the file system, or another header than `header`, or a row that is not one of numbers.
    pub fn resume(path: impl Into<PathBuf>, header: &[&str], time: f64) -> Result<Self, FramesError> {
        let path = path.into();
        let header_row = header_row(&path, header)?;
        let text = fs::read_to_string(&path).map_err(|source| FramesError::io("read", &path, source))?;
        let Some(rows) = text.strip_prefix(&header_row) else {
            return Err(FramesError::data(
                &path,
                format!("the table to continue must begin with: {header_row}"),
            ));
        };
        let mut keep = header_row.len();
        for row in rows.split_inclusive('\n').filter(|row| row.ends_with('\n')) {
            let row_time: f64 = row.split([',', '\n']).next().unwrap_or_default().parse().map_err(|_| {
                FramesError::data(&path, format!("this row does not begin with a time: {}", row.trim_end()))
            })?;
            if row_time > time {
                break;
            }
            keep += row.len();
        }
        let file = File::options()
            .append(true)
            .open(&path)
            .map_err(|source| FramesError::io("open", &path, source))?;
        file.set_len(keep as u64).map_err(|source| FramesError::io("shorten", &path, source))?;
        Ok(Self { path, file, columns: header.len(), row: String::new() })
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

    /// Where the table is.
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
        // Read while the table is still open: nothing may wait in a buffer.
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
        for row in rows() {
            table.append(&row).expect("appends");
        }
        let whole = fs::read_to_string(&path).expect("reads");
        fs::write(&path, &whole[..whole.len() - 3]).expect("cuts the last row");
        let mut table = CsvTable::resume(&path, &HEADER, 1e-3).expect("resumes");
        for row in &rows()[2..] {
            table.append(row).expect("appends");
        }
        assert_eq!(fs::read_to_string(&path).expect("reads"), whole);
        assert!(CsvTable::resume(&path, &["time [s]"], 1.0).is_err());
    }
}
