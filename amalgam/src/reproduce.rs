//! `amalgam reproduce`: the figures of the paper, every method of contact beside merging, in one report.
//!
//! A figure is a scene in `scenes/paper` and an entry in `scenes/paper/figures.toml`: what is varied, what is measured,
//! and the rules by which a verdict follows from the numbers. Both are part of the program, so that the command works
//! anywhere. A new figure is a scene, an entry, and a line in `SCENES`.

pub mod figures;
mod report;
mod table1;
mod verdict;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use serde_json::Value;

use crate::{
    cli::{ReproduceArgs, RunArgs, Scale},
    command::CommandError,
    console,
    interrupt::Interrupt,
    local::Transport,
    run::{Ending, compute},
    scene::{Scene, suggest},
};
use figures::{Figure, Variant};
use report::Report;

/// What came of one run of a figure.
#[derive(Debug)]
struct Outcome {
    case: String,
    method: String,
    /// The summary; empty if the run left none.
    summary: Value,
    /// Why it ended early.
    error: Option<String>,
    folder: PathBuf,
    /// Wall time, starting solvers included [s].
    wall_s: f64,
}

/// Computes the figures that the command line names and writes the report, anew after every run.
///
/// # Errors
/// A figure that is unknown or wrong, or a report that cannot be written. A run that fails is a result.
pub fn reproduce(args: &ReproduceArgs) -> Result<Ending, CommandError> {
    let chosen = chosen(&args.figures)?;
    let timed = chosen.iter().any(|figure| is_part(&figure.name, table1::NAME));
    if timed && !args.list && args.scale != Scale::Paper {
        return Err(CommandError::Usage(
            "Table 1 is about the paper's numbers of particles: write --scale paper".into(),
        ));
    }
    if args.list {
        for figure in &chosen {
            println!("{:<12} {:>3} runs  {}", figure.name, figure.runs().count(), figure.title);
        }
        return Ok(Ending::Finished);
    }
    args.threads.apply()?;
    let interrupt = Interrupt::listen()?;
    let failed = |error| CommandError::Failed(format!("cannot create {}: {error}", args.out.display()));
    fs::create_dir_all(&args.out).map_err(failed)?;
    let total: usize = chosen.iter().map(|figure| figure.runs().count()).sum();
    let mut report = Report::new(args.scale, &chosen);
    let (started, mut done) = (Instant::now(), 0);
    for (at, figure) in chosen.iter().enumerate() {
        for (case, method) in figure.runs() {
            let outcome = one_run(figure, case, method, args, &interrupt)?;
            let Some(outcome) = outcome else {
                report.write(&args.out, Some("interrupted"))?;
                eprintln!("interrupted; what was computed is in {}", report_path(&args.out).display());
                return Ok(Ending::Interrupted);
            };
            done += 1;
            let left = started.elapsed().as_secs_f64() / done as f64 * (total - done) as f64;
            eprintln!("{}", progress(figure, &outcome, (done, total), left));
            report.add(at, outcome);
            report.write(&args.out, (done < total).then_some("not finished"))?;
        }
        report.verdicts(at).for_each(|verdict| println!("{}: {verdict}", figure.name));
    }
    println!("report in {}", report_path(&args.out).display());
    Ok(Ending::Finished)
}

fn report_path(out: &Path) -> PathBuf {
    out.join(report::FILE)
}

fn progress(figure: &Figure, outcome: &Outcome, (done, total): (usize, usize), left: f64) -> String {
    let Outcome { case, method, wall_s, error, .. } = outcome;
    format!(
        "{done} of {total}, about {} left: {} {case}, {method}: {}{}",
        console::time(left),
        figure.name,
        console::time(*wall_s),
        error.as_ref().map(|error| format!(", ended early: {error}")).unwrap_or_default(),
    )
}

/// One run of a figure, or nothing if it was interrupted.
fn one_run(
    figure: &Figure,
    case: &Variant,
    method: &Variant,
    args: &ReproduceArgs,
    interrupt: &Interrupt,
) -> Result<Option<Outcome>, CommandError> {
    let folder = args.out.join(&figure.name).join(slug(&case.name)).join(slug(&method.name));
    let scene = read(figure, case, method, args.scale)?;
    let run = RunArgs {
        scene: PathBuf::from(scene.file()),
        set: Vec::new(),
        transport: Transport::Unix,
        threads: args.threads,
        out: Some(folder.clone()),
        frames: None,
        quiet: true,
        json: false,
    };
    let started = Instant::now();
    let error = match compute(&scene, &run, interrupt) {
        Ok(Ending::Finished) => None,
        Ok(Ending::Interrupted) => return Ok(None),
        // Whatever happens while a scene runs is a result; that it cannot be run is a fault of ours or of the system.
        Err(CommandError::Failed(error)) => Some(error),
        Err(wrong) => return Err(wrong),
    };
    let wall_s = started.elapsed().as_secs_f64();
    let summary = fs::read_to_string(folder.join("summary.json")).ok();
    let summary = summary.and_then(|text| serde_json::from_str(&text).ok());
    let Some(summary) = summary else {
        let error = error.unwrap_or_else(|| "it left no summary".to_string());
        return Err(CommandError::Failed(format!("{} could not be run: {error}", folder.display())));
    };
    let (case, method) = (case.name.clone(), method.name.clone());
    Ok(Some(Outcome { case, method, summary, error, folder, wall_s }))
}

/// The scene of one run.
///
/// # Errors
/// What is wrong with it.
pub fn read(figure: &Figure, case: &Variant, method: &Variant, scale: Scale) -> Result<Scene, CommandError> {
    let text = SCENES.iter().find(|(name, _)| *name == figure.scene).map(|(_, text)| *text);
    let text =
        text.ok_or_else(|| CommandError::Usage(format!("{} is not part of the program", figure.scene)))?;
    let set = [figure.at(scale), case.at(scale), method.at(scale)].concat();
    Ok(Scene::parse(&figure.scene, text, &set)?)
}

fn chosen(names: &[String]) -> Result<Vec<Figure>, CommandError> {
    let all = figures::all().map_err(CommandError::Failed)?;
    let known: Vec<String> = all.iter().map(|figure| figure.name.clone()).collect();
    if let Some(unknown) = names.iter().find(|name| !known.iter().any(|known| is_part(known, name))) {
        let help = suggest(unknown, &known, "figures");
        return Err(CommandError::Usage(format!("there is no figure `{unknown}`; {help}")));
    }
    // Table 1 is about the paper's numbers of particles: only who asks for it gets it.
    let wanted = |figure: &Figure| match names {
        [] => !is_part(&figure.name, table1::NAME),
        names => names.iter().any(|name| is_part(&figure.name, name)),
    };
    Ok(all.into_iter().filter(wanted).collect())
}

/// Whether a figure goes by this name: its own, or, of `fig8-top`, `fig8`.
fn is_part(figure: &str, name: &str) -> bool {
    figure.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// A name as part of a path.
fn slug(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_lowercase()
}

/// The scenes of all figures, by file.
static SCENES: [(&str, &str); 18] = [
    ("fig3.toml", include_str!("../../scenes/paper/fig3.toml")),
    ("fig4.toml", include_str!("../../scenes/paper/fig4.toml")),
    ("fig5.toml", include_str!("../../scenes/paper/fig5.toml")),
    ("fig7.toml", include_str!("../../scenes/paper/fig7.toml")),
    ("fig8-top.toml", include_str!("../../scenes/paper/fig8-top.toml")),
    ("fig8-middle.toml", include_str!("../../scenes/paper/fig8-middle.toml")),
    ("fig8-bottom.toml", include_str!("../../scenes/paper/fig8-bottom.toml")),
    ("fig9-top.toml", include_str!("../../scenes/paper/fig9-top.toml")),
    ("fig9-bottom.toml", include_str!("../../scenes/paper/fig9-bottom.toml")),
    ("fig10.toml", include_str!("../../scenes/paper/fig10.toml")),
    ("fig11.toml", include_str!("../../scenes/paper/fig11.toml")),
    ("resting-water.toml", include_str!("../../scenes/paper/resting-water.toml")),
    ("floating-block.toml", include_str!("../../scenes/paper/floating-block.toml")),
    ("clamped-plate.toml", include_str!("../../scenes/paper/clamped-plate.toml")),
    ("planet.toml", include_str!("../../scenes/paper/planet.toml")),
    ("comet.toml", include_str!("../../scenes/paper/comet.toml")),
    ("cradle.toml", include_str!("../../scenes/paper/cradle.toml")),
    ("grain-pile.toml", include_str!("../../scenes/paper/grain-pile.toml")),
];
