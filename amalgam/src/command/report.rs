//! `amalgam report`: one page about a run, with its verdict, pictures and curves.

use std::{
    fs,
    path::{Path, PathBuf},
};

use maud::{Markup, html};
use serde_json::Value;

use crate::{
    cli::ReportArgs,
    console::say,
    error::CommandError,
    folder::{REPORT, SCENE, SUMMARY, WORK},
    pages::html::{self as page, Curve, curves, document, picture, table, without_trailing_zeros},
    scene::Scene,
};

/// Pictures on the page, evenly over the run.
const PICTURES: usize = 12;

/// Number of parts of wall time whose curves are drawn: more could not be told apart.
const PARTS_MAX: usize = 6;

/// Writes the page.
///
/// # Errors
/// A folder that holds no run, or one that goes on, or a file that cannot be written.
pub fn report(args: &ReportArgs) -> Result<(), CommandError> {
    let folder = &args.folder;
    let shown = folder.display();
    let Ok(scene) = Scene::read(&folder.join(SCENE), &[]) else {
        return Err(CommandError::Usage(format!(
            "{shown} holds no results of a run: give the folder that `amalgam run` wrote to, out/NAME OF THE SCENE"
        )));
    };
    let Ok(text) = fs::read_to_string(folder.join(SUMMARY)) else {
        return Err(CommandError::Usage(format!(
            "the run in {shown} is not over, since there is no {SUMMARY}: wait for its end, or look at it with \
             amalgam watch {shown}"
        )));
    };
    let summary: Value = serde_json::from_str(&text)
        .map_err(|error| CommandError::Failed(format!("{shown}/{SUMMARY} is not one of ours: {error}")))?;
    let path = args.to.clone().unwrap_or_else(|| folder.join(REPORT));
    page::write(&path, &document(&scene.header.name, &body(&scene, &summary, folder)))?;
    say(format_args!("{}", path.display()))
}

fn body(scene: &Scene, summary: &Value, folder: &Path) -> Markup {
    html! {
        h1 { (scene.header.name) }
        p { (scene.header.description) }
        (verdict(summary))
        p { a href="#pictures" { "Pictures" } " · " a href="#curves" { "Curves" } " · " a href="#numbers" { "Numbers" } " · " a href="#scene" { "Scene" } }
        h2 id="pictures" { "Pictures" }
        (pictures(scene, folder))
        h2 id="curves" { "Curves" }
        (probes(folder))
        (work(folder))
        h2 id="numbers" { "Numbers" }
        (numbers(summary))
        h2 id="scene" { "Scene" }
        details { summary { "The scene as it ran" } pre class="wide" { (scene.effective_text()) } }
    }
}

/// Statement of how the run ended and whether to trust it.
fn verdict(summary: &Value) -> Markup {
    let number = |key: &str| summary[key].as_f64().map_or("?".to_string(), without_trailing_zeros);
    let cautions = summary["cautions"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let cautions: Vec<&str> = cautions.collect();
    let is_whole = summary["error"].is_null() && summary["interrupted"] == Value::Bool(false);
    html! {
        @if let Some(error) = summary["error"].as_str() {
            p { b class="no" { "The run failed: " } (error) }
        } @else if summary["interrupted"] == Value::Bool(true) {
            p { b class="no" { "The run was interrupted." } }
        } @else {
            p { b class="yes" { "The run came to its end." } }
        }
        @if cautions.is_empty() {
            @if is_whole { p { "Nothing speaks against the result." } }
        } @else {
            p { b class="bad" { "What speaks against the result:" } }
            ul { @for caution in cautions { li { (caution) } } }
        }
        p {
            (number("simulated_s")) " s in " (number("steps")) " steps and " (number("wall_s")) " s of wall time. State hash "
            code { (summary["state_hash"].as_str().unwrap_or("unknown")) } "."
        }
    }
}

fn pictures(scene: &Scene, folder: &Path) -> Markup {
    let entries = fs::read_dir(folder.join("pictures")).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "png"))
        .collect();
    files.sort();
    let shown = evenly(files.len()).filter_map(|place| {
        let file = &files[place];
        let frame: f64 = file.file_stem()?.to_str()?.parse().ok()?;
        let time = (frame * scene.time.frame_interval).min(scene.time.duration);
        picture(file, &format!("{} s", without_trailing_zeros(time)))
    });
    let shown: Vec<Markup> = shown.collect();
    html! {
        @if shown.is_empty() {
            p { "The run drew none: " code { "[output.pictures]" } " in the scene asks for them." }
        }
        div class="small" { @for picture in shown { (picture) } }
    }
}

/// At most [`PICTURES`] places out of `count`, the first and the last among them.
fn evenly(count: usize) -> impl Iterator<Item = usize> {
    let shown = count.min(PICTURES);
    (0..shown).map(move |k| if shown > 1 { k * (count - 1) / (shown - 1) } else { 0 })
}

fn probes(folder: &Path) -> Markup {
    let entries = fs::read_dir(folder.join("probes")).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.sort();
    html! {
        @if files.is_empty() { p { "The scene has no probes." } }
        @for file in &files {
            @let name = file.file_stem().unwrap_or_default().to_string_lossy();
            @for column in table(file).unwrap_or_default() {
                @let title = format!("{name}: {}", column.name);
                (curves(&title, &[column]))
            }
        }
    }
}

/// Contacts, and milliseconds of wall time per step between two frames: the largest parts.
fn work(folder: &Path) -> Markup {
    let columns = table(&folder.join(WORK)).unwrap_or_default();
    let (counts, times): (Vec<Curve>, Vec<Curve>) =
        columns.into_iter().partition(|column| !column.name.ends_with(" [s]"));
    let Some(steps) = counts.iter().find(|column| column.name == "steps") else { return html! {} };
    let per_step = |column: &Curve| {
        let sums = column.points.iter().zip(&steps.points);
        let mut before = (0.0, 0.0);
        let rate = |(&(time, seconds), &(_, steps)): (&(f64, f64), &(f64, f64))| {
            let (s, n) = std::mem::replace(&mut before, (seconds, steps));
            (time, 1e3 * (seconds - s) / (steps - n))
        };
        let name = column.name.trim_end_matches(" [s]").to_string();
        Curve { name, points: sums.map(rate).collect() }
    };
    let total = |column: &Curve| column.points.last().map_or(0.0, |point| point.1);
    let mut times: Vec<&Curve> = times.iter().filter(|column| column.name != "dt [s]").collect();
    times.sort_by(|a, b| total(b).total_cmp(&total(a)));
    let times: Vec<Curve> = times.into_iter().take(PARTS_MAX).map(per_step).collect();
    let counts: Vec<Curve> =
        counts.into_iter().filter(|column| !["steps", "stages"].contains(&column.name.as_str())).collect();
    html! { (curves("contacts", &counts)) (curves("wall time [ms per step]", &times)) }
}

fn numbers(summary: &Value) -> Markup {
    let participants: Vec<&Value> = summary["participants"].as_array().into_iter().flatten().collect();
    let cell = |value: &Value| {
        value.as_f64().map_or_else(|| value.as_str().unwrap_or("").to_string(), without_trailing_zeros)
    };
    let phases: Vec<(&String, f64)> = summary["phases_s"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some((name, value.as_f64()?)))
        .collect();
    let whole: f64 = phases.iter().map(|phase| phase.1).sum();
    html! {
        table {
            tr { th { "participant" } th { "solver" } th { "particles" } th { "computed [s]" } th { "waited for [s]" } }
            @for participant in participants {
                tr {
                    td { (cell(&participant["name"])) }
                    td { (cell(&participant["solver"])) }
                    td { (cell(&participant["particles"])) }
                    td { (cell(&participant["solver_s"])) }
                    td { (cell(&participant["waited_s"])) }
                }
            }
        }
        table {
            tr { th { "phase" } th { "wall time [s]" } th { "part" } }
            @for (name, seconds) in phases {
                tr { td { (name) } td { (without_trailing_zeros(seconds)) } td { (format!("{:.0} %", 100.0 * seconds / whole.max(f64::MIN_POSITIVE))) } }
            }
        }
        @for part in ["contacts", "coupling", "energy"] {
            details {
                summary { (part) }
                table {
                    @for (name, value) in summary[part].as_object().into_iter().flatten() {
                        tr { td { (name) } td { (cell(value)) } }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_the_first_the_last_and_those_between() {
        assert_eq!(evenly(0).count(), 0);
        assert_eq!(evenly(1).collect::<Vec<_>>(), [0]);
        assert_eq!(evenly(3).collect::<Vec<_>>(), [0, 1, 2]);
        let many: Vec<usize> = evenly(1000).collect();
        assert_eq!((many.len(), many[0], many[PICTURES - 1]), (PICTURES, 0, 999));
        assert!(many.is_sorted_by(|a, b| a < b));
    }
}
