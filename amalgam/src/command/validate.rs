//! `amalgam validate`: computes validation cases and compares them with their references.
//!
//! A case is a folder `validation/CASE` (scene, reference data and their source, a picture) and a function
//! here that computes the scene and returns the measurements. Both are part of the program, so that the
//! command works anywhere. A new case is a folder, a file, and a line in `CASES`.

mod alone;
mod case;
mod contacts;
mod coupled;
mod experiment;
mod fluids;
mod grains;
mod oscillation;
mod sketch;
mod solids;

use std::{fs, path::Path};

use crate::{cli::ValidateArgs, console::say, error::CommandError, pages::markdown::Page, scene::suggest};
pub use case::Check;
use case::{Case, CaseOutcome};
use sketch::Sketch;

/// All cases, in the order in which they are computed.
static CASES: [Case; 47] = [
    solids::implicit_euler::CASE,
    solids::free_body::ROTATION,
    solids::free_body::FREE,
    solids::hanging_bar::CASE,
    solids::catenary::CASE,
    solids::cantilever::TIP,
    solids::cantilever::HEAVY,
    solids::bent_beams::CASE,
    solids::buckling::CASE,
    solids::pendulum::CASE,
    solids::hanging_rope::CASE,
    solids::bar_wave::CASE,
    solids::crack_energy::CASE,
    solids::small_disc::CASE,
    solids::branching::CASE,
    solids::kalthoff::CASE,
    solids::brittle_wall::CASE,
    grains::KEPLER,
    grains::PLANET,
    contacts::incline::CASE,
    contacts::rolling::CASE,
    contacts::cradle::CASE,
    contacts::bars::CASE,
    contacts::top::CASE,
    contacts::boxes::CASE,
    contacts::tower::CASE,
    contacts::leaning_tower::CASE,
    contacts::planet::SPINNING,
    contacts::planet::RESTING,
    contacts::rope::CASE,
    contacts::cloth::CASE,
    contacts::water::BOWL,
    contacts::water::RAFT,
    fluids::HYDROSTATIC,
    fluids::DAM_BREAK,
    fluids::VORTEX,
    fluids::DROPPED_BALL,
    fluids::CLOSED_BOX,
    fluids::SLOSHING,
    fluids::STRETCHING_DROP,
    fluids::COLUMN,
    coupled::column::CASE,
    coupled::plate::CASE,
    coupled::wall::CASE,
    coupled::jet::CASE,
    coupled::cube::CASE,
    coupled::log::CASE,
];

/// Cases that are computed only when they are named, since they take long or miss their reference. The README of
/// each says which.
static NAMED: [Case; 5] = [
    contacts::column::DISCS,
    contacts::column::CHANNEL,
    contacts::column::SPHERES,
    contacts::tilted_box::CASE,
    contacts::overturn::CASE,
];

/// Computes the cases that the command line names, prints a table and writes the files that were asked for.
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
        for case in NAMED.iter().filter(|_| args.cases.is_empty() && !args.quick) {
            say(format_args!(
                "{:<22} {} (only when named: long, or not met, see its README)",
                case.name, case.about
            ))?;
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
    if let Some(path) = &args.report {
        page(&checks, args).write(path)?;
    }
    let failed = checks.iter().filter(|check| !check.pass).count();
    if failed > 0 {
        let message = format!("{failed} of {} are outside of their tolerance", checks.len());
        return Err(CommandError::Failed(message));
    }
    say(format_args!("all {} are within their tolerance", checks.len()))
}

/// Names of the quick cases.
pub fn quick() -> Vec<&'static str> {
    CASES.iter().filter(|case| case.quick).map(|case| case.name).collect()
}

/// Computes a case by its name.
///
/// # Errors
/// A name that no case has, or a case that cannot be computed.
pub fn checks(name: &str) -> Result<Vec<Check>, CommandError> {
    let computed = chosen(&[name.into()], false)?.into_iter().map(|case| Ok(compute(case)?.0));
    Ok(computed.collect::<Result<Vec<_>, CommandError>>()?.concat())
}

fn compute(case: &Case) -> Result<(Vec<Check>, Sketch), CommandError> {
    let failed = |error| CommandError::Failed(format!("{}: {error}", case.name));
    let CaseOutcome { mut checks, picture } = (case.compute)().map_err(failed)?;
    checks.iter_mut().for_each(|check| check.case = case.name);
    Ok((checks, picture))
}

fn chosen(names: &[String], quick: bool) -> Result<Vec<&'static Case>, CommandError> {
    let known: Vec<String> = CASES.iter().chain(&NAMED).map(|case| case.name.to_string()).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        let help = suggest(unknown, &known, "cases");
        return Err(CommandError::Usage(format!("there is no case `{unknown}`; {help}")));
    }
    let is_named = |case: &&Case| names.iter().any(|name| name == case.name);
    let wanted = |case: &&Case| (names.is_empty() || is_named(case)) && (case.quick || !quick);
    Ok(CASES.iter().filter(wanted).chain(NAMED.iter().filter(is_named)).collect())
}

/// The page of results that `--report` writes, for a folder two levels below the root of the repository.
fn page(checks: &[Check], args: &ValidateArgs) -> Page {
    let words = ["amalgam", "validate"].into_iter().chain(args.quick.then_some("--quick"));
    let command: Vec<&str> = words.chain(args.cases.iter().map(String::as_str)).collect();
    let mut page = Page::new("Validation", &command.join(" "));
    let passed = checks.iter().filter(|check| check.pass).count();
    page.paragraph(&format!(
        "{passed} of {} quantities are within their tolerance. A tolerance is the largest |measured - reference|, in the \
         unit of the quantity.",
        checks.len()
    ));
    let row = |check: &Check| {
        let Check { case, quantity, reference, measured, tolerance, pass } = check;
        let case = format!("[{case}](../../validation/{case}/README.md)");
        let pass = if *pass { "yes" } else { "**no**" };
        vec![
            case,
            quantity.clone(),
            to_six_digits(*reference),
            to_six_digits(*measured),
            to_six_digits(*tolerance),
            pass.to_string(),
        ]
    };
    page.table(&["case", "quantity", "reference", "measured", "tolerance", "within"], checks.iter().map(row));
    page
}

fn row(check: &Check) -> String {
    let Check { case, quantity, reference, measured, tolerance, pass } = check;
    let pass = if *pass { "yes" } else { "NO" };
    columns([
        case,
        quantity,
        &to_six_digits(*reference),
        &to_six_digits(*measured),
        &to_six_digits(*tolerance),
        pass,
    ])
}

fn columns([case, quantity, reference, measured, tolerance, pass]: [&str; 6]) -> String {
    format!("{case:<18} {quantity:<56} {reference:>12} {measured:>12} {tolerance:>12}  {pass}")
}

/// A number to six significant digits, with an exponent if it is very small or large.
fn to_six_digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_string(),
        1e-3..1e4 => {
            let digits = 5 - value.abs().log10().floor() as i32;
            format!("{value:.*}", digits.clamp(0, 9) as usize)
        }
        _ => format!("{value:.4e}"),
    }
}
