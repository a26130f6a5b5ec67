//! The report: one HTML file that holds its pictures.

use std::path::Path;

use maud::{Markup, html};

use super::{
    RunOutcome,
    figures::{Figure, Test},
    verdict::{Verdict, decide, failures, read, to_four_digits},
};
use crate::{
    cli::Scale,
    error::CommandError,
    pages::{
        html::{self as page, Curve, curves, document, picture, table},
        markdown::Page,
    },
};

/// Name of the report in its folder.
pub(super) const FILE: &str = "report.html";

/// Figures computed so far.
pub(super) struct Report<'a> {
    scale: Scale,
    parts: Vec<FigurePart<'a>>,
}

/// A figure of the report.
struct FigurePart<'a> {
    figure: &'a Figure,
    /// Outcomes in the order of the figure's runs.
    outcomes: Vec<RunOutcome>,
    /// Section of the report about the figure. Its pictures are read once.
    html: Markup,
}

impl<'a> Report<'a> {
    /// A report of these figures, with nothing computed yet.
    pub(super) fn new(scale: Scale, figures: &'a [Figure]) -> Self {
        let parts = figures.iter().map(|figure| {
            let mut part = FigurePart { figure, outcomes: Vec::new(), html: html! {} };
            part.html = part.written();
            part
        });
        Self { scale, parts: parts.collect() }
    }

    /// Adds a run to the figure at this place, and says whether it was the last one of it.
    pub(super) fn add(&mut self, at: usize, outcome: RunOutcome) -> bool {
        let part = &mut self.parts[at];
        part.outcomes.push(outcome);
        let place = |run: &RunOutcome| {
            part.figure
                .runs()
                .position(|(case, method)| (&case.name, &method.name) == (&run.case, &run.method))
        };
        part.outcomes.sort_by_key(place);
        part.html = part.written();
        part.outcomes.len() == part.figure.runs().count()
    }

    /// The verdicts of the figure at this place.
    pub(super) fn verdicts(&self, at: usize) -> impl Iterator<Item = Verdict> {
        self.parts[at].verdicts()
    }

    /// Writes the file, whole or not at all.
    ///
    /// # Errors
    /// A failure of the file system.
    pub(super) fn write(&self, folder: &Path, unfinished: Option<&str>) -> Result<(), CommandError> {
        page::write(&folder.join(FILE), &self.html(unfinished))
    }

    /// The report without pictures, in Markdown, for a folder two levels below the root of the repository.
    /// `names` are those of the command line.
    pub(super) fn page(&self, names: &[String]) -> Page {
        let scale = format!("{:?}", self.scale).to_lowercase();
        let command = [&["amalgam reproduce --scale".to_string(), scale], names].concat().join(" ");
        let mut page = Page::new("The paper's figures", &command);
        page.paragraph(
            "A run fails if it ends early or if a measure is above the limit of the figure. A verdict is the rule, and the \
             numbers that it was decided by.",
        );
        self.parts.iter().for_each(|part| part.page(&mut page));
        page
    }

    fn html(&self, unfinished: Option<&str>) -> String {
        let scale = format!("{:?}", self.scale).to_lowercase();
        let body = html! {
            h1 { "Particle Merging-and-Splitting: the paper's figures, computed again" }
            p {
                "Amalgam " (env!("CARGO_PKG_VERSION")) ", scale " b { (scale) }
                @if let Some(why) = unfinished { ", " b class="bad" { (why) } }
                ". Each run went through the same coordinator and solvers as " code { "amalgam run" }
                "; its scene, tables and all pictures are in the folder beside this file. A run " i { "fails" }
                " if it ends early or a measure is above the limit given below its figure."
            }
            table {
                tr { th { "figure" } th class="left" { "verdict" } }
                @for part in &self.parts {
                    tr {
                        td { a href=(format!("#{}", part.figure.name)) { (part.figure.name) ": " (part.figure.title) } }
                        td class="left" { @for verdict in part.verdicts() { div { (told(&verdict)) } } }
                    }
                }
            }
            @for part in &self.parts { (part.html) }
        };
        document("Amalgam: the paper's figures", &body)
    }
}

/// A verdict as a word and a sentence.
fn told(Verdict { says, met, .. }: &Verdict) -> Markup {
    let (class, word) = match met {
        Some(true) => ("yes", "yes"),
        Some(false) => ("no", "no"),
        None => ("", "not decided yet"),
    };
    html! { b class=(class) { (word) } ": " (says) }
}

impl FigurePart<'_> {
    fn verdicts(&self) -> impl Iterator<Item = Verdict> {
        self.figure.rules.iter().map(|rule| decide(self.figure, rule, &self.outcomes))
    }

    fn page(&self, page: &mut Page) {
        let Self { figure, outcomes, .. } = self;
        let Figure { name, title, question, claim, remark, scene, measures, .. } = figure;
        page.heading(&format!("{name}: {title}"));
        page.paragraph(&format!("Scene: [{scene}](../../scenes/paper/{scene}). {question}"));
        page.paragraph(&format!("*Claim.* {claim}"));
        page.list(self.verdicts().map(|verdict| {
            let text = verdict.to_string();
            text.split_once(": ").map_or(text.clone(), |(met, says)| format!("**{met}**: {says}"))
        }));
        if !remark.is_empty() {
            page.paragraph(remark);
        }
        let mut head = vec!["case", "method"];
        head.extend(measures.iter().map(|measure| measure.name.as_str()));
        head.extend(["particles", "steps", "wall time [s]", "failure"]);
        let row = |outcome: &RunOutcome| {
            let mut cells = vec![outcome.case.clone(), outcome.method.clone()];
            cells.extend(measures.iter().map(|measure| to_four_digits(read(measure, outcome))));
            let (particles, steps) = size(outcome);
            cells.extend([particles.to_string(), steps.to_string(), format!("{:.1}", outcome.wall_s)]);
            cells.push(failures(figure, outcome).join("; "));
            cells
        };
        page.table(&head, outcomes.iter().map(row));
        page.paragraph(&limits(figure));
    }

    fn written(&self) -> Markup {
        let Self { figure, outcomes, .. } = self;
        let Figure { name, title, question, claim, remark, scene, .. } = figure;
        html! {
            h2 id=(name) { (name) ": " (title) }
            p { b { "Question. " } (question) }
            p { b { "Claim. " } (claim) }
            p { b { "Verdict." } }
            ul {
                @for verdict in self.verdicts() {
                    li { (told(&verdict)) " " small { "(" (verdict.because) ")" } }
                }
            }
            @if !remark.is_empty() { p { b { "Remark. " } (remark) } }
            div class="wide" { (numbers(figure, outcomes)) }
            (over_time(figure, outcomes))
            details {
                summary { "Pictures" }
                div class="wide" { (pictures(figure, outcomes)) }
            }
            p { small { "Scene: " (scene) ". " (limits(figure)) } }
        }
    }
}

/// Limits of a run that does not fail, and tests of the rules, in words.
fn limits(figure: &Figure) -> String {
    let failures = figure.failures.iter().map(|failure| {
        format!("{} above {}{}", failure.measure, to_four_digits(failure.above), of_case(&failure.case))
    });
    let failures: Vec<String> = failures.collect();
    let rules = figure.rules.iter().map(|rule| match &rule.test {
        Test::NoneFails(methods) => format!("no run with {} fails", methods.join(", ")),
        Test::OneFails(methods) => format!("a run with {} fails", methods.join(" or ")),
        Test::Ratio(ratio) => format!(
            "{} of {} over {}{} from {} to {}",
            ratio.measure,
            ratio.of.join(", "),
            ratio.over,
            of_case(&ratio.case),
            to_four_digits(ratio.from),
            to_four_digits(ratio.to)
        ),
        Test::Value(range) => format!(
            "{} of {}{} from {} to {}",
            range.measure,
            range.of.join(", "),
            of_case(&range.case),
            to_four_digits(range.from),
            to_four_digits(range.to)
        ),
    });
    let rules: Vec<String> = rules.collect();
    let failures = if failures.is_empty() { "an early end".to_string() } else { failures.join("; ") };
    format!("Failure: {failures}. Rules: {}.", rules.join("; "))
}

/// The case that a statement is limited to; empty if it holds for all.
fn of_case(case: &Option<String>) -> String {
    case.as_ref().map(|case| format!(" ({case})")).unwrap_or_default()
}

/// Curves of all methods, for each case and each quantity of a measure.
fn over_time(figure: &Figure, outcomes: &[RunOutcome]) -> Markup {
    let mut quantities: Vec<(&str, &str)> = Vec::new();
    for measure in &figure.measures {
        let quantity = match (&measure.settled, &measure.path[..]) {
            (Some([probe, column]), _) => (probe.as_str(), column.as_str()),
            (None, [first, probe, column, ..]) if first == "probes" => (probe.as_str(), column.as_str()),
            _ => continue,
        };
        if !quantities.contains(&quantity) {
            quantities.push(quantity);
        }
    }
    let curve = |run: &RunOutcome, probe: &str, column: &str| {
        let table = table(&run.folder.join(format!("probes/{probe}.csv"))).ok()?;
        let is_it = |name: &str| name == column || name.split(" [").next() == Some(column);
        let found = table.into_iter().find(|curve| is_it(&curve.name))?;
        Some(Curve { name: run.method.clone(), ..found })
    };
    html! {
        @for case in &figure.cases {
            @for &(probe, column) in &quantities {
                @let runs = outcomes.iter().filter(|run| run.case == case.name);
                (curves(&format!("{}: {probe}, {column}", case.name), &runs.filter_map(|run| curve(run, probe, column)).collect::<Vec<_>>()))
            }
        }
    }
}

/// A row for each case and time, a column for each method.
fn pictures(figure: &Figure, outcomes: &[RunOutcome]) -> Markup {
    let run = |case: &str, method: &str| outcomes.iter().find(|o| o.case == case && o.method == method);
    html! {
        table class="small" {
            tr { th {} @for method in &figure.methods { th class="left" { (method.name) } } }
            @for case in &figure.cases {
                @for &number in &figure.pictures {
                    tr {
                        td { (case.name) }
                        @for method in &figure.methods {
                            td class="left" { @if let Some(run) = run(&case.name, &method.name) { (shown(run, number)) } }
                        }
                    }
                }
            }
        }
    }
}

/// A picture of a run with its time, or the last one before the run ended.
fn shown(run: &RunOutcome, number: u32) -> Markup {
    let draw = |at: u32| {
        let time =
            run.frame_interval.map(|interval| format!("{} s", to_four_digits(f64::from(at) * interval)));
        let early = if at < number { "; the run ended before, and this is its last picture" } else { "" };
        let below = time.unwrap_or_else(|| format!("frame {at}")) + early;
        picture(&run.folder.join(format!("pictures/{at:06}.png")), &below)
    };
    (0..=number).rev().find_map(draw).unwrap_or_else(|| html! { small { "no picture" } })
}

fn numbers(figure: &Figure, outcomes: &[RunOutcome]) -> Markup {
    html! {
        table {
            tr {
                th { "case" } th class="left" { "method" }
                @for measure in &figure.measures {
                    th {
                        (measure.name)
                        @if let Some(paper) = measure.paper { br; small { "paper: " (to_four_digits(paper)) } }
                    }
                }
                th { "particles" } th { "steps" } th { "s of wall time" } th class="left" { "failure" }
            }
            @for outcome in outcomes {
                @let (particles, steps) = size(outcome);
                tr {
                    td { (outcome.case) } td class="left" { (outcome.method) }
                    @for measure in &figure.measures {
                        @let value = read(measure, outcome);
                        td {
                            (to_four_digits(value))
                            @if let Some(paper) = measure.paper { br; small { "x " (to_four_digits(value / paper)) } }
                        }
                    }
                    td { (particles) } td { (steps) } td { (format!("{:.1}", outcome.wall_s)) }
                    td class="left bad" { (failures(figure, outcome).join("; ")) }
                }
            }
        }
    }
}

/// Particles of all participants and steps of a run.
fn size(outcome: &RunOutcome) -> (u64, u64) {
    let steps = outcome.summary["steps"].as_u64().unwrap_or(0);
    let particles = outcome.summary["participants"].as_array().into_iter().flatten();
    (particles.filter_map(|participant| participant["particles"].as_u64()).sum(), steps)
}
