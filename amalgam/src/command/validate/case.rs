//! A validation case: its computation, its checks, its reference data.

use serde::Serialize;

use super::sketch::Sketch;
use crate::error::CommandError;
use crate::scene::SceneError;
use amalgam_coordinator::CoordinatorError;

/// A validation case.
pub(super) struct Case {
    /// Its name, and that of its folder.
    pub(super) name: &'static str,
    /// Quantities compared and their reference, in one line.
    pub(super) about: &'static str,
    /// True if the case takes at most a few seconds; such cases are part of the tests.
    pub(super) quick: bool,
    pub(super) compute: fn() -> Result<CaseOutcome, CaseError>,
}

/// Result of a case.
pub(super) struct CaseOutcome {
    pub(super) checks: Vec<Check>,
    pub(super) picture: Sketch,
}

/// Reasons for which a case could not be computed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CaseError {
    #[error("{}", crate::console::render(.0, false))]
    Scene(#[from] SceneError),
    #[error(transparent)]
    Run(#[from] CoordinatorError),
    #[error("{0}")]
    Failed(String),
}

impl From<CommandError> for CaseError {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Scene(error) => Self::Scene(error),
            CommandError::Usage(message) | CommandError::Failed(message) => Self::Failed(message),
        }
    }
}

/// A quantity of a case beside its reference.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// The case.
    pub case: &'static str,
    /// Quantity compared, with its unit.
    pub quantity: String,
    /// Reference value.
    pub reference: f64,
    /// Measured value.
    pub measured: f64,
    /// Largest |measured - reference|, in the same unit.
    pub tolerance: f64,
    /// True if the difference is within the tolerance.
    pub pass: bool,
}

impl Check {
    /// `measured` may differ from `reference` by `tolerance`, both in the quantity's unit.
    pub(super) fn within(quantity: impl Into<String>, reference: f64, measured: f64, tolerance: f64) -> Self {
        // Written so that NaN fails.
        let pass = (measured - reference).abs() <= tolerance;
        Self { case: "", quantity: quantity.into(), reference, measured, tolerance, pass }
    }

    /// Checks a quantity that is known to miss `truth`, which the table names. It may differ by `tolerance`
    /// from its value `today`, so that a change for the worse or for the better is seen. The case's README
    /// says what is missing.
    pub(super) fn known_gap(
        quantity: impl std::fmt::Display,
        (truth, today): (f64, f64),
        measured: f64,
        tolerance: f64,
    ) -> Self {
        Self::within(format!("{quantity}; GAP, should be {truth:.4}"), today, measured, tolerance)
    }

    /// `measured` may differ from `reference` by the part `tolerance` of it.
    pub(super) fn relative(
        quantity: impl Into<String>,
        reference: f64,
        measured: f64,
        tolerance: f64,
    ) -> Self {
        Self::within(quantity, reference, measured, tolerance * reference.abs())
    }
}

/// A table of reference data: lines that begin with `#` are comments, the first other line names the columns.
pub(super) struct Reference {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<f64>>,
}

impl Reference {
    /// Reads a table that is part of the program.
    ///
    /// # Panics
    /// If it is no such table.
    pub(super) fn parse(text: &str) -> Self {
        let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        let columns = lines.next().unwrap_or_default().split(',').map(|name| name.trim().to_string());
        let number = |cell: &str| cell.trim().parse::<f64>().expect("reference data are numbers");
        let columns: Vec<String> = columns.collect();
        let rows: Vec<Vec<f64>> = lines.map(|line| line.split(',').map(number).collect()).collect();
        assert!(rows.iter().all(|row| row.len() == columns.len()), "rows are as long as the header");
        Self { columns, rows }
    }

    /// Value of column `of` in the row where column `at` has `value`.
    ///
    /// # Panics
    /// If there is no such column or row.
    pub(super) fn look_up(&self, at: &str, value: f64, of: &str) -> f64 {
        let column = |name: &str| self.columns.iter().position(|one| one == name).expect("a column");
        let (at, of) = (column(at), column(of));
        let row = self.rows.iter().find(|row| row[at] == value);
        row.expect("a row of reference data")[of]
    }
}
