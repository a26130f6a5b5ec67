//! `amalgam reproduce`: the figures of the paper, every method of contact beside merging, in one report.
//!
//! A figure is a scene in `scenes/paper` and an entry in `scenes/paper/figures.toml`: the variants, the
//! measures, and the rules by which a verdict follows from the numbers. Both are part of the program, so that
//! the command works anywhere. A new figure is a scene, an entry, and a line in `SCENES`.

pub mod figures;
pub mod pile;
mod report;
mod rivals;
mod table1;
mod verdict;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    time::Instant,
};

use serde_json::Value;

use crate::{
    cli::{ReproduceArgs, Scale},
    console::{self, Console, note, say},
    error::{CommandError, ending::Ending},
    folder::Folder,
    run::{Options, Run, interrupt::Interrupt},
    scene::{Scene, suggest},
};
use figures::{Figure, Variant};
use report::Report;

/// All figures, in the order in which they are computed; after them the columns of Table 1.
///
/// # Errors
/// A fault in the file of figures.
pub fn figures() -> Result<Vec<Figure>, String> {
    let mut all = figures::read()?;
    let columns = all.iter().filter_map(|figure| Some(table1::figure(figure, figure.times.as_ref()?)));
    let columns: Vec<Figure> = columns.collect();
    all.extend(columns);
    all.iter().try_for_each(Figure::check)?;
    Ok(all)
}

/// Result of one run of a figure.
#[derive(Debug)]
struct RunOutcome {
    case: String,
    method: String,
    /// The summary; empty if the run left none.
    summary: Value,
    /// Error that ended the run early.
    error: Option<String>,
    folder: PathBuf,
    /// Time between pictures [s], where it is known.
    frame_interval: Option<f64>,
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
            say(format_args!("{:<12} {:>3} runs  {}", figure.name, figure.runs().count(), figure.title))?;
        }
        return Ok(Ending::Finished);
    }
    let interrupt = Interrupt::listen()?;
    let failed = |error| CommandError::Failed(format!("cannot create {}: {error}", args.out.display()));
    fs::create_dir_all(&args.out).map_err(failed)?;
    let runs = chosen.iter().enumerate().flat_map(|(at, figure)| figure.runs().map(move |run| (at, run)));
    let runs: Vec<_> = runs.collect();
    let (total, workers) = (runs.len(), Workers::new(args, runs.len())?);
    let mut report = Report::new(args.scale, &chosen);
    let (started, mut done, mut interrupted) = (Instant::now(), 0, false);
    let compute = |run: usize| {
        let (at, (case, method)) = runs[run];
        if interrupt.is_requested() {
            return Ok(None);
        }
        Ok(one_run(&chosen[at], case, method, args, workers.threads, &interrupt)?
            .map(|outcome| (at, outcome)))
    };
    workers.each(total, compute, |outcome| {
        let Some((at, outcome)) = outcome else {
            interrupted = true;
            return Ok(());
        };
        done += 1;
        let left = started.elapsed().as_secs_f64() / done as f64 * (total - done) as f64;
        note(progress(&chosen[at], &outcome, (done, total), left));
        if report.add(at, outcome) {
            report
                .verdicts(at)
                .try_for_each(|verdict| say(format_args!("{}: {verdict}", chosen[at].name)))?;
        }
        report.write(&args.out, (done < total).then_some("not finished"))
    })?;
    if interrupted {
        report.write(&args.out, Some("interrupted"))?;
        note(format_args!("interrupted; what was computed is in {}", report_path(&args.out).display()));
        return Ok(Ending::Interrupted);
    }
    if let Some(path) = &args.report {
        report.page(&args.figures).write(path)?;
    }
    say(format_args!("report in {}", report_path(&args.out).display()))?;
    Ok(Ending::Finished)
}

/// Pools of threads that compute runs side by side.
struct Workers {
    pools: Vec<rayon::ThreadPool>,
    /// Threads of each solver and of the coordinator.
    threads: usize,
}

impl Workers {
    /// Threads for this number of runs. Coarse scenes do not keep several cores busy, so as many runs go at a
    /// time as there are cores. Fine scenes do, and need the memory, and Table 1 measures their time: they
    /// run one after the other.
    fn new(args: &ReproduceArgs, runs: usize) -> Result<Self, CommandError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let side_by_side = cores / args.threads.count().unwrap_or(1);
        let at_a_time = if args.scale == Scale::Quick { side_by_side.clamp(1, runs.max(1)) } else { 1 };
        let threads = args.threads.count().unwrap_or(cores / at_a_time);
        let failed = |error| CommandError::Failed(format!("cannot start {threads} threads: {error}"));
        let pool = || rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(failed);
        Ok(Self { pools: (0..at_a_time).map(|_| pool()).collect::<Result<_, _>>()?, threads })
    }

    /// Computes the runs 0 to `runs` and passes on their outcomes, in the order in which they end. After an
    /// error no further run begins.
    fn each<T: Send>(
        &self,
        runs: usize,
        compute: impl Fn(usize) -> Result<T, CommandError> + Sync,
        mut take: impl FnMut(T) -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        let next = AtomicUsize::new(0);
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            for pool in &self.pools {
                let (sender, compute, next) = (sender.clone(), &compute, &next);
                let work = move || {
                    let left =
                        std::iter::repeat_with(|| next.fetch_add(1, Relaxed)).take_while(|&run| run < runs);
                    for run in left {
                        let outcome = compute(run);
                        if outcome.is_err() {
                            next.store(runs, Relaxed);
                        }
                        if sender.send(outcome).is_err() {
                            break;
                        }
                    }
                };
                scope.spawn(|| pool.install(work));
            }
            drop(sender);
            let result = receiver.iter().try_for_each(|outcome| take(outcome?));
            if result.is_err() {
                next.store(runs, Relaxed);
            }
            result
        })
    }
}

fn report_path(out: &Path) -> PathBuf {
    out.join(report::FILE)
}

fn progress(figure: &Figure, outcome: &RunOutcome, (done, total): (usize, usize), left: f64) -> String {
    let RunOutcome { case, method, wall_s, error, .. } = outcome;
    format!(
        "{done} of {total}, about {} left: {} {case}, {method}: {}{}",
        console::time(left),
        figure.name,
        console::time(*wall_s),
        error.as_ref().map(|error| format!(", ended early: {error}")).unwrap_or_default(),
    )
}

/// Computes one run of a figure. Returns `None` if it was interrupted.
fn one_run(
    figure: &Figure,
    case: &Variant,
    method: &Variant,
    args: &ReproduceArgs,
    threads: usize,
    interrupt: &Interrupt,
) -> Result<Option<RunOutcome>, CommandError> {
    let folder = args.out.join(&figure.name).join(slug(&case.name)).join(slug(&method.name));
    let scene = read(figure, case, method, args.scale)?;
    let options = Options { threads: Some(threads), ..Options::default() };
    let control = interrupt.control().clone();
    let run =
        Run { scene: &scene, options: &options, control, console: Console::new(true), watchers: Vec::new() };
    let started = Instant::now();
    let taken = Folder::look_at(folder.clone()).map_err(CommandError::from);
    let computed = taken.and_then(|folder| match method.rival {
        Some(algorithm) => rivals::run(&scene, algorithm, folder, &|| interrupt.is_requested()),
        None => run.compute(folder).map(|outcome| outcome.ending),
    });
    let error = match computed {
        Ok(Ending::Finished) => None,
        Ok(Ending::Interrupted) => return Ok(None),
        // A failure while a scene runs is a result. A scene that cannot be run is a fault of this program or
        // of the system.
        Err(CommandError::Failed(error)) => Some(error),
        Err(wrong) => return Err(wrong),
    };
    let wall_s = started.elapsed().as_secs_f64();
    let summary = fs::read_to_string(folder.join("summary.json")).ok();
    let summary = summary.and_then(|text| serde_json::from_str(&text).ok());
    let Some(mut summary): Option<Value> = summary else {
        let error = error.unwrap_or_else(|| "it left no summary".to_string());
        return Err(CommandError::Failed(format!("{} could not be run: {error}", folder.display())));
    };
    if figure.pile {
        let failed = |error| CommandError::Failed(format!("the pile cannot be measured: {error}"));
        let measured = pile::measure(&folder, &scene, &rivals::masses(&scene)?).map_err(failed)?;
        summary["probes"][pile::NAME] = serde_json::json!(measured);
    }
    let (case, method) = (case.name.clone(), method.name.clone());
    let frame_interval = Some(scene.time.frame_interval);
    Ok(Some(RunOutcome { case, method, summary, error, folder, frame_interval, wall_s }))
}

/// The scene of one run.
///
/// # Errors
/// A fault in the file.
pub fn read(figure: &Figure, case: &Variant, method: &Variant, scale: Scale) -> Result<Scene, CommandError> {
    let text = SCENES.iter().find(|(name, _)| *name == figure.scene).map(|(_, text)| *text);
    let text =
        text.ok_or_else(|| CommandError::Usage(format!("{} is not part of the program", figure.scene)))?;
    let set = [figure.at(scale), case.at(scale), method.at(scale)].concat();
    Ok(Scene::parse(&figure.scene, text, &set)?)
}

fn chosen(names: &[String]) -> Result<Vec<Figure>, CommandError> {
    let all = figures().map_err(CommandError::Failed)?;
    let known: Vec<String> = all.iter().map(|figure| figure.name.clone()).collect();
    if let Some(unknown) = names.iter().find(|name| !known.iter().any(|known| is_part(known, name))) {
        let help = suggest(unknown, &known, "figures");
        return Err(CommandError::Usage(format!("there is no figure `{unknown}`; {help}")));
    }
    // Table 1 needs the paper's numbers of particles, so it is computed only if it is asked for.
    let wanted = |figure: &Figure| match names {
        [] => !is_part(&figure.name, table1::NAME),
        names => names.iter().any(|name| is_part(&figure.name, name)),
    };
    Ok(all.into_iter().filter(wanted).collect())
}

/// True if a figure has this name, or the name before a hyphen: `fig8` names `fig8-top`.
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
    ("fig3.toml", include_str!("../../../scenes/paper/fig3.toml")),
    ("fig4.toml", include_str!("../../../scenes/paper/fig4.toml")),
    ("fig5.toml", include_str!("../../../scenes/paper/fig5.toml")),
    ("fig7.toml", include_str!("../../../scenes/paper/fig7.toml")),
    ("fig8-top.toml", include_str!("../../../scenes/paper/fig8-top.toml")),
    ("fig8-middle.toml", include_str!("../../../scenes/paper/fig8-middle.toml")),
    ("fig8-bottom.toml", include_str!("../../../scenes/paper/fig8-bottom.toml")),
    ("fig9-top.toml", include_str!("../../../scenes/paper/fig9-top.toml")),
    ("fig9-bottom.toml", include_str!("../../../scenes/paper/fig9-bottom.toml")),
    ("fig10.toml", include_str!("../../../scenes/paper/fig10.toml")),
    ("fig11.toml", include_str!("../../../scenes/paper/fig11.toml")),
    ("resting-water.toml", include_str!("../../../scenes/paper/resting-water.toml")),
    ("floating-block.toml", include_str!("../../../scenes/paper/floating-block.toml")),
    ("clamped-plate.toml", include_str!("../../../scenes/paper/clamped-plate.toml")),
    ("planet.toml", include_str!("../../../scenes/paper/planet.toml")),
    ("comet.toml", include_str!("../../../scenes/paper/comet.toml")),
    ("cradle.toml", include_str!("../../../scenes/paper/cradle.toml")),
    ("grain-pile.toml", include_str!("../../../scenes/paper/grain-pile.toml")),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(pools: usize) -> Workers {
        let pool = || rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("threads");
        Workers { pools: (0..pools).map(|_| pool()).collect(), threads: 1 }
    }

    #[test]
    fn every_run_is_computed_once_side_by_side() {
        // Two runs that wait for each other end only if they are computed at the same time.
        let meeting = std::sync::Barrier::new(2);
        let compute = |run| {
            meeting.wait();
            Ok(run)
        };
        let mut done = Vec::new();
        let taken = workers(2).each(8, compute, |run| {
            done.push(run);
            Ok(())
        });
        assert!(taken.is_ok());
        done.sort_unstable();
        assert_eq!(done, (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn no_run_begins_after_an_error() {
        let begun = AtomicUsize::new(0);
        let compute = |run| {
            begun.fetch_add(1, Relaxed);
            match run {
                0 => Err(CommandError::Failed("lost".into())),
                run => Ok(run),
            }
        };
        assert!(workers(1).each(1000, compute, |_| Ok(())).is_err());
        assert_eq!(begun.load(Relaxed), 1);
    }
}
