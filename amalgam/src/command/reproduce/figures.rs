//! Figures as data: `scenes/paper/figures.toml`.

use serde::Deserialize;

use super::rivals::Algorithm;
use crate::cli::Scale;

const FIGURES: &str = include_str!("../../../../scenes/paper/figures.toml");

/// The figures of the file, in the order in which they are computed.
///
/// # Errors
/// A fault in the file.
pub(super) fn read() -> Result<Vec<Figure>, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        figures: Vec<Figure>,
    }
    let file: File = toml::from_str(FIGURES).map_err(|error| format!("figures.toml: {error}"))?;
    Ok(file.figures)
}

/// A column of Table 1, as data of the figure whose scene is timed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Head of the column.
    pub(super) title: String,
    /// The paper's numbers of particles.
    pub(super) particles: String,
    /// Changes of the scene: contact from the start, and an early end.
    pub(super) set: Vec<String>,
    /// The paper's times [ms].
    pub(super) paper: Times,
    /// Part of the paper's total that is allowed.
    pub(super) within: f64,
}

/// Times of a step [ms].
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Times {
    pub(super) detection: f64,
    pub(super) merging: f64,
    pub(super) stage_1: f64,
    pub(super) stage_2: f64,
    pub(super) splitting: f64,
    pub(super) total: f64,
}

/// A figure: one scene, computed for every case with every method.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Its name on the command line.
    pub name: String,
    /// Title of the figure.
    pub title: String,
    /// Question that the figure answers.
    pub question: String,
    /// Statement of the paper, or of another source, in our words.
    pub claim: String,
    /// Findings beyond the rules, and differences from the figure; may be absent.
    #[serde(default)]
    pub remark: String,
    /// File of the scene, in `scenes/paper`.
    pub scene: String,
    /// True if the discs of its first participant are measured as a pile.
    #[serde(default)]
    pub pile: bool,
    /// Numbers of the pictures that are shown.
    pub pictures: Vec<u32>,
    /// Rows of the report: the events.
    pub cases: Vec<Variant>,
    /// Columns: how contacts are handled.
    pub methods: Vec<Variant>,
    /// Quantities read from each run.
    pub measures: Vec<Measure>,
    /// Limits beyond which a run is a failure, in addition to an error that ends it.
    #[serde(default)]
    pub failures: Vec<Failure>,
    /// Rules of the verdict.
    pub rules: Vec<Rule>,
    /// The column of Table 1 that times this scene.
    pub times: Option<Column>,
    /// Changes of the scene at a scale.
    #[serde(default)]
    pub half: Vec<String>,
    /// Changes of the scene at a scale.
    #[serde(default)]
    pub paper: Vec<String>,
}

/// Changes of a scene, as by `--set`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Its name in the report.
    pub name: String,
    /// Changes at every scale.
    #[serde(default)]
    pub set: Vec<String>,
    /// An algorithm that computes the scene in place of coordinator and solvers.
    pub(super) rival: Option<Algorithm>,
    /// Further changes at half of the paper's resolution.
    #[serde(default)]
    pub half: Vec<String>,
    /// Further changes at the paper's resolution.
    #[serde(default)]
    pub paper: Vec<String>,
}

/// A number in `summary.json`, or the mean of a column of a probe's table over the second half of the run, or
/// the mean time that a phase took in a step.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// Its name in the report.
    pub name: String,
    /// Keys that lead to it in the summary.
    #[serde(default)]
    pub path: Vec<String>,
    /// Probe and column, in place of a path.
    pub settled: Option<[String; 2]>,
    /// Keys below `phases_s`, in place of a path; all phases but `frames` if there is no key.
    pub phase: Option<Vec<String>>,
    /// Factor by which the number is multiplied.
    #[serde(default = "one")]
    pub times: f64,
    /// Value in the paper, for comparison.
    pub paper: Option<f64>,
}

impl Default for Measure {
    fn default() -> Self {
        Self { name: String::new(), path: Vec::new(), settled: None, phase: None, times: one(), paper: None }
    }
}

fn one() -> f64 {
    1.0
}

/// A measure that is too large.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// Name of the measure.
    pub measure: String,
    /// Largest value of a run that does not fail.
    pub above: f64,
    /// Case to which the limit applies; all if absent.
    pub case: Option<String>,
}

/// A part of a verdict.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Statement that holds if the rule is met.
    pub says: String,
    /// Test that decides the rule.
    #[serde(flatten)]
    pub test: Test,
}

/// Test that decides a rule. Methods are given by name.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Test {
    /// No run with any of these methods fails.
    NoneFails(Vec<String>),
    /// At least one run with one of these methods fails.
    OneFails(Vec<String>),
    /// A measure with one method over that with another is in a range.
    Ratio(Ratio),
    /// A measure with each of these methods is in a range.
    Value(Range),
}

/// See [`Test::Ratio`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ratio {
    /// Name of the measure.
    pub measure: String,
    /// Methods whose measures are divided.
    pub of: Vec<String>,
    /// Method by whose measure they are divided.
    pub over: String,
    /// Least ratio.
    pub from: f64,
    /// Largest ratio.
    pub to: f64,
    /// Case to which the limit applies; all if absent.
    pub case: Option<String>,
}

/// See [`Test::Value`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// Name of the measure.
    pub measure: String,
    /// Methods.
    pub of: Vec<String>,
    /// Least value.
    pub from: f64,
    /// Largest value.
    pub to: f64,
    /// Case to which the limit applies; all if absent.
    pub case: Option<String>,
}

impl Figure {
    /// Every case with every method.
    pub fn runs(&self) -> impl Iterator<Item = (&Variant, &Variant)> {
        self.cases.iter().flat_map(|case| self.methods.iter().map(move |method| (case, method)))
    }

    /// Changes of the scene at a scale, and no more pictures than it takes to have those that are shown.
    pub(super) fn at(&self, scale: Scale) -> Vec<String> {
        let every = self.pictures.iter().fold(0, |every, &number| greatest_common_divisor(every, number));
        at(scale, &[format!("output.pictures.every={}", every.max(1))], &self.half, &self.paper)
    }

    /// The measure of that name.
    pub(super) fn measure(&self, name: &str) -> Option<&Measure> {
        self.measures.iter().find(|measure| measure.name == name)
    }

    /// Names that are referred to exist.
    pub(super) fn check(&self) -> Result<(), String> {
        let measure = |name: &String| match self.measure(name) {
            Some(_) => Ok(()),
            None => Err(format!("figures.toml: {} has no measure `{name}`", self.name)),
        };
        let method = |name: &String| match self.methods.iter().any(|method| method.name == *name) {
            true => Ok(()),
            false => Err(format!("figures.toml: {} has no method `{name}`", self.name)),
        };
        let case = |name: &Option<String>| match name {
            Some(name) if self.cases.iter().all(|case| case.name != *name) => {
                Err(format!("figures.toml: {} has no case `{name}`", self.name))
            }
            _ => Ok(()),
        };
        for failure in &self.failures {
            measure(&failure.measure)?;
            case(&failure.case)?;
        }
        for rule in &self.rules {
            match &rule.test {
                Test::NoneFails(methods) | Test::OneFails(methods) => methods.iter().try_for_each(method)?,
                Test::Ratio(ratio) => {
                    measure(&ratio.measure)?;
                    case(&ratio.case)?;
                    ratio.of.iter().chain([&ratio.over]).try_for_each(method)?;
                }
                Test::Value(range) => {
                    measure(&range.measure)?;
                    case(&range.case)?;
                    range.of.iter().try_for_each(method)?;
                }
            }
        }
        Ok(())
    }
}

impl Variant {
    /// Changes of the scene at a scale.
    pub(super) fn at(&self, scale: Scale) -> Vec<String> {
        at(scale, &self.set, &self.half, &self.paper)
    }
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

fn at(scale: Scale, set: &[String], half: &[String], paper: &[String]) -> Vec<String> {
    let more = match scale {
        Scale::Quick => &[],
        Scale::Half => half,
        Scale::Paper => paper,
    };
    [set, more].concat()
}
