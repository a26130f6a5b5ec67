//! The report: one HTML file that holds its pictures.

use std::{fmt::Write as _, fs, path::Path};

use super::{
    Outcome,
    figures::{Figure, Test},
    verdict::{Verdict, decide, failures, read, short},
};
use crate::{cli::Scale, error::CommandError, page::Page};

/// Name of the report in its folder.
pub(super) const FILE: &str = "report.html";

const STYLE: &str = "body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1500px; padding: 0 1em; \
    color: #222 } h2 { margin-top: 2.5em; border-top: 1px solid #ccc; padding-top: .8em } \
    .pictures { overflow-x: auto } table { border-collapse: collapse; margin: .8em 0 } \
    td, th { padding: .2em .7em; text-align: right; vertical-align: top } th { font-weight: 600 } \
    td:first-child, th:first-child, .left { text-align: left } tr { border-bottom: 1px solid #eee } \
    .pictures td, .pictures th { padding: 2px; text-align: center } img { width: 300px; display: block } \
    .yes { color: #176b2c } .no { color: #a3202a } .bad { color: #a3202a } small { color: #666 }";

/// What was computed so far.
pub(super) struct Report<'a> {
    scale: Scale,
    parts: Vec<Part<'a>>,
}

/// One figure.
struct Part<'a> {
    figure: &'a Figure,
    /// In the order of the figure's runs.
    outcomes: Vec<Outcome>,
    /// What the report says of it.
    html: String,
}

impl<'a> Report<'a> {
    /// A report of these figures, with nothing computed yet.
    pub(super) fn new(scale: Scale, figures: &'a [Figure]) -> Self {
        let parts = figures.iter().map(|figure| {
            let mut part = Part { figure, outcomes: Vec::new(), html: String::new() };
            part.html = part.written();
            part
        });
        Self { scale, parts: parts.collect() }
    }

    /// Adds a run to the figure at this place, and says whether it was the last one of it.
    pub(super) fn add(&mut self, at: usize, outcome: Outcome) -> bool {
        let part = &mut self.parts[at];
        part.outcomes.push(outcome);
        let place = |run: &Outcome| {
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
        let (path, new) = (folder.join(FILE), folder.join(".report.html.unfinished"));
        let written = fs::write(&new, self.html(unfinished)).and_then(|()| fs::rename(&new, &path));
        written.map_err(|error| CommandError::Failed(format!("cannot write {}: {error}", path.display())))
    }

    /// The same without pictures, in Markdown, for a folder two levels below the root of the repository. `names` are those
    /// of the command line.
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
        let mut html = format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Amalgam: the paper's figures</title>\
             <style>{STYLE}</style><h1>Particle Merging-and-Splitting: the paper's figures, computed again</h1>\
             <p>Amalgam {}, scale <b>{}</b>{}. Each run went through the same coordinator and solvers as <code>amalgam \
             run</code>; its scene, tables and all pictures are in the folder beside this file. A run <i>fails</i> if it \
             ends early or a measure is above the limit given below its figure.</p>",
            env!("CARGO_PKG_VERSION"),
            format!("{:?}", self.scale).to_lowercase(),
            unfinished.map(|why| format!(", <b class=\"bad\">{why}</b>")).unwrap_or_default(),
        );
        html.extend(self.parts.iter().map(|part| part.html.as_str()));
        html.push_str("</html>\n");
        html
    }
}

impl Part<'_> {
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
        let row = |outcome: &Outcome| {
            let mut cells = vec![outcome.case.clone(), outcome.method.clone()];
            cells.extend(measures.iter().map(|measure| short(read(measure, outcome))));
            let (particles, steps) = size(outcome);
            cells.extend([particles.to_string(), steps.to_string(), format!("{:.1}", outcome.wall_s)]);
            cells.push(failures(figure, outcome).join("; "));
            cells
        };
        page.table(&head, outcomes.iter().map(row));
        page.paragraph(&limits(figure));
    }

    fn written(&self) -> String {
        let Self { figure, outcomes, .. } = self;
        let Figure { name, title, question, claim, remark, scene, .. } = figure;
        let mut html = format!(
            "<h2 id=\"{name}\">{name}: {}</h2><p><b>Question.</b> {}</p><p><b>Claim.</b> {}</p>\
             <p><b>Verdict.</b></p><ul>",
            text(title),
            text(question),
            text(claim)
        );
        for Verdict { says, met, because } in self.verdicts() {
            let (class, word) = match met {
                Some(true) => ("yes", "yes"),
                Some(false) => ("no", "no"),
                None => ("", "not decided yet"),
            };
            let _ = write!(
                html,
                "<li><b class=\"{class}\">{word}</b>: {} <small>({})</small></li>",
                text(&says),
                text(&because)
            );
        }
        html.push_str("</ul>");
        if !remark.is_empty() {
            let _ = write!(html, "<p><b>Remark.</b> {}</p>", text(remark));
        }
        pictures(&mut html, figure, outcomes);
        numbers(&mut html, figure, outcomes);
        let _ = write!(html, "<p><small>Scene: {scene}. {}</small></p>", text(&limits(figure)));
        html
    }
}

/// What makes a run a failure, and how rules are decided.
fn limits(figure: &Figure) -> String {
    let failures = figure.failures.iter().map(|failure| {
        format!("{} above {}{}", failure.measure, short(failure.above), of_case(&failure.case))
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
            short(ratio.from),
            short(ratio.to)
        ),
        Test::Value(range) => format!(
            "{} of {}{} from {} to {}",
            range.measure,
            range.of.join(", "),
            of_case(&range.case),
            short(range.from),
            short(range.to)
        ),
    });
    let rules: Vec<String> = rules.collect();
    let failures = if failures.is_empty() { "an early end".to_string() } else { failures.join("; ") };
    format!("Failure: {failures}. Rules: {}.", rules.join("; "))
}

/// The case that something holds for, if not for all.
fn of_case(case: &Option<String>) -> String {
    case.as_ref().map(|case| format!(" ({case})")).unwrap_or_default()
}

/// A row for each case and time, a column for each method.
fn pictures(html: &mut String, figure: &Figure, outcomes: &[Outcome]) {
    html.push_str("<div class=\"pictures\"><table><tr><th></th>");
    for method in &figure.methods {
        let _ = write!(html, "<th>{}</th>", text(&method.name));
    }
    html.push_str("</tr>");
    for case in &figure.cases {
        for &number in &figure.pictures {
            let _ = write!(html, "<tr><td>{}</td>", text(&case.name));
            for method in &figure.methods {
                let run = outcomes.iter().find(|o| o.case == case.name && o.method == method.name);
                let _ = write!(html, "<td>{}</td>", run.map(|run| picture(run, number)).unwrap_or_default());
            }
            html.push_str("</tr>");
        }
    }
    html.push_str("</table></div>");
}

/// A picture of a run, or the last one before it ended.
fn picture(run: &Outcome, number: u32) -> String {
    let file = |number: u32| run.folder.join(format!("pictures/{number:06}.png"));
    let Some((at, bytes)) = (0..=number).rev().find_map(|at| Some((at, fs::read(file(at)).ok()?))) else {
        return "<small>no picture</small>".to_string();
    };
    let note = if at < number { "<small>ended before; its last picture</small>" } else { "" };
    format!("<img src=\"data:image/png;base64,{}\" alt=\"\">{note}", base64(&bytes))
}

fn numbers(html: &mut String, figure: &Figure, outcomes: &[Outcome]) {
    html.push_str("<table><tr><th>case</th><th class=\"left\">method</th>");
    for measure in &figure.measures {
        let paper = measure.paper.map(|paper| format!("<br><small>paper: {}</small>", short(paper)));
        let _ = write!(html, "<th>{}{}</th>", text(&measure.name), paper.unwrap_or_default());
    }
    html.push_str(
        "<th>particles</th><th>steps</th><th>s of wall time</th><th class=\"left\">failure</th></tr>",
    );
    for outcome in outcomes {
        let Outcome { case, method, wall_s, .. } = outcome;
        let _ = write!(html, "<tr><td>{}</td><td class=\"left\">{}</td>", text(case), text(method));
        for measure in &figure.measures {
            let value = read(measure, outcome);
            let ratio = measure.paper.map(|paper| format!("<br><small>x {}</small>", short(value / paper)));
            let _ = write!(html, "<td>{}{}</td>", short(value), ratio.unwrap_or_default());
        }
        let (particles, steps) = size(outcome);
        let why = failures(figure, outcome).join("; ");
        let _ = write!(
            html,
            "<td>{particles}</td><td>{steps}</td><td>{wall_s:.1}</td><td class=\"left bad\">{}</td></tr>",
            text(&why)
        );
    }
    html.push_str("</table>");
}

/// Particles of all participants and steps of a run.
fn size(outcome: &Outcome) -> (u64, u64) {
    let steps = outcome.summary["steps"].as_u64().unwrap_or(0);
    let particles = outcome.summary["participants"].as_array().into_iter().flatten();
    (particles.filter_map(|participant| participant["particles"].as_u64()).sum(), steps)
}

/// Text as HTML.
fn text(plain: &str) -> String {
    plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = (0..3).fold(0u32, |word, k| word << 8 | u32::from(chunk.get(k).copied().unwrap_or(0)));
        for k in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * k)) as usize & 63];
            text.push(if k <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn base64_is_that_of_the_standard() {
        let cases = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (plain, coded) in cases {
            assert_eq!(super::base64(plain.as_bytes()), coded);
        }
    }
}
