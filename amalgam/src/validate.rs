//! `amalgam validate`: computes validation cases and compares them with their references.
//!
//! A case is a folder `validation/CASE` (scene, reference data, where they are from, a picture) and a function here
//! that computes the scene and says what was measured. Both are part of the program, so that the command works
//! anywhere. A new case is a folder, a file, and a line in `CASES`.

mod alone;
mod bar_wave;
mod branching;
mod brittle_wall;
mod cantilever;
mod catenary;
mod crack_energy;
mod experiment;
mod fluids;
mod free_body;
mod grains;
mod hanging_bar;
mod implicit_euler;
mod kalthoff;
mod sketch;
mod small_disc;

use std::{fs, path::Path};

use serde::Serialize;

use crate::{
    cli::ValidateArgs,
    command::CommandError,
    console::say,
    scene::{SceneError, suggest},
};
use amalgam_coordinator::CoordinatorError;
use sketch::Sketch;

/// All cases, in the order in which they are computed.
static CASES: [Case; 21] = [
    implicit_euler::CASE,
    free_body::ROTATION,
    free_body::FREE,
    hanging_bar::CASE,
    catenary::CASE,
    cantilever::TIP,
    cantilever::HEAVY,
    bar_wave::CASE,
    crack_energy::CASE,
    small_disc::CASE,
    branching::CASE,
    kalthoff::CASE,
    brittle_wall::CASE,
    grains::KEPLER,
    grains::PLANET,
    fluids::HYDROSTATIC,
    fluids::DAM_BREAK,
    fluids::VORTEX,
    fluids::DROPPED_BALL,
    fluids::CLOSED_BOX,
    fluids::COLUMN,
];

/// A validation case.
struct Case {
    /// Its name, and that of its folder.
    name: &'static str,
    /// What is compared with what, in a line.
    about: &'static str,
    /// Whether it takes at most a few seconds; such cases are part of the tests.
    quick: bool,
    compute: fn() -> Result<Outcome, CaseError>,
}

/// What came of a case.
struct Outcome {
    checks: Vec<Check>,
    picture: Sketch,
}

/// Why a case could not be computed.
#[derive(Debug, thiserror::Error)]
enum CaseError {
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
    /// What is compared, with its unit.
    pub quantity: String,
    /// What it should be.
    pub reference: f64,
    /// What it is.
    pub measured: f64,
    /// Largest |measured - reference|, in the same unit.
    pub tolerance: f64,
    /// Whether it is met.
    pub pass: bool,
}

impl Check {
    /// `measured` may differ from `reference` by `tolerance`, both in the quantity's unit.
    fn within(quantity: impl Into<String>, reference: f64, measured: f64, tolerance: f64) -> Self {
        // Written so that NaN fails.
        let pass = (measured - reference).abs() <= tolerance;
        Self { case: "", quantity: quantity.into(), reference, measured, tolerance, pass }
    }

    /// `measured` may differ from `reference` by the part `tolerance` of it.
    fn relative(quantity: impl Into<String>, reference: f64, measured: f64, tolerance: f64) -> Self {
        Self::within(quantity, reference, measured, tolerance * reference.abs())
    }
}

/// Computes the cases that the command line names, prints a table and writes what was asked for.
///
/// # Errors
/// A case that is unknown, cannot be computed or misses its reference; or results that cannot be written.
pub fn validate(args: &ValidateArgs) -> Result<(), CommandError> {
    let cases = chosen(&args.cases, args.quick)?;
    if args.list {
        for case in cases {
            let length = if case.quick { "" } else { " (not quick)" };
            say(format_args!("{:<22} {}{length}", case.name, case.about))?;
        }
        return Ok(());
    }
    args.threads.apply()?;
    let io = |path: &Path, error| CommandError::Failed(format!("cannot write {}: {error}", path.display()));
    if let Some(folder) = &args.out {
        fs::create_dir_all(folder).map_err(|error| io(folder, error))?;
    }
    say(columns(["case", "quantity", "reference", "measured", "tolerance", "pass"]))?;
    let mut checks = Vec::new();
    for case in cases {
        let (of_case, picture) = compute(case)?;
        of_case.iter().try_for_each(|check| say(row(check)))?;
        if let Some(folder) = &args.out {
            let path = folder.join(format!("{}.png", case.name));
            picture.write(&path).map_err(|error| CommandError::Failed(error.to_string()))?;
        }
        checks.extend(of_case);
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&checks);
        let text = text.map_err(|error| CommandError::Failed(error.to_string()))?;
        fs::write(path, text + "\n").map_err(|error| io(path, error))?;
    }
    let failed = checks.iter().filter(|check| !check.pass).count();
    if failed > 0 {
        let message = format!("{failed} of {} are outside of their tolerance", checks.len());
        return Err(CommandError::Failed(message));
    }
    say(format_args!("all {} are within their tolerance", checks.len()))
}

/// Computes the quick cases, for the tests.
///
/// # Errors
/// A case that cannot be computed.
pub fn quick() -> Result<Vec<Check>, CommandError> {
    let computed = chosen(&[], true)?.into_iter().map(|case| Ok(compute(case)?.0));
    Ok(computed.collect::<Result<Vec<_>, CommandError>>()?.concat())
}

fn compute(case: &Case) -> Result<(Vec<Check>, Sketch), CommandError> {
    let failed = |error| CommandError::Failed(format!("{}: {error}", case.name));
    let Outcome { mut checks, picture } = (case.compute)().map_err(failed)?;
    checks.iter_mut().for_each(|check| check.case = case.name);
    Ok((checks, picture))
}

fn chosen(names: &[String], quick: bool) -> Result<Vec<&'static Case>, CommandError> {
    let known: Vec<String> = CASES.iter().map(|case| case.name.to_string()).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        let help = suggest(unknown, &known, "cases");
        return Err(CommandError::Usage(format!("there is no case `{unknown}`; {help}")));
    }
    let wanted = |case: &&Case| {
        (names.is_empty() || names.iter().any(|name| name == case.name)) && (case.quick || !quick)
    };
    Ok(CASES.iter().filter(wanted).collect())
}

fn row(check: &Check) -> String {
    let Check { case, quantity, reference, measured, tolerance, pass } = check;
    let pass = if *pass { "yes" } else { "NO" };
    columns([case, quantity, &short(*reference), &short(*measured), &short(*tolerance), pass])
}

fn columns([case, quantity, reference, measured, tolerance, pass]: [&str; 6]) -> String {
    format!("{case:<18} {quantity:<56} {reference:>12} {measured:>12} {tolerance:>12}  {pass}")
}

/// A number for the eye: six digits.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_string(),
        1e-3..1e4 => {
            let digits = 5 - value.abs().log10().floor() as i32;
            format!("{value:.*}", digits.clamp(0, 9) as usize)
        }
        _ => format!("{value:.4e}"),
    }
}

/// A table of reference data: lines that begin with `#` are comments, the first other line names the columns.
struct Reference {
    columns: Vec<String>,
    rows: Vec<Vec<f64>>,
}

impl Reference {
    /// Reads a table that is part of the program.
    ///
    /// # Panics
    /// If it is no such table.
    fn parse(text: &str) -> Self {
        let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        let columns = lines.next().unwrap_or_default().split(',').map(|name| name.trim().to_string());
        let number = |cell: &str| cell.trim().parse::<f64>().expect("reference data are numbers");
        let columns: Vec<String> = columns.collect();
        let rows: Vec<Vec<f64>> = lines.map(|line| line.split(',').map(number).collect()).collect();
        assert!(rows.iter().all(|row| row.len() == columns.len()), "rows are as long as the header");
        Self { columns, rows }
    }

    /// What column `of` holds in the row where column `at` holds `value`.
    ///
    /// # Panics
    /// If there is no such column or row.
    fn look_up(&self, at: &str, value: f64, of: &str) -> f64 {
        let column = |name: &str| self.columns.iter().position(|one| one == name).expect("a column");
        let (at, of) = (column(at), column(of));
        let row = self.rows.iter().find(|row| row[at] == value);
        row.expect("a row of reference data")[of]
    }
}
