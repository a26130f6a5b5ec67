//! Verdicts on numbers by the rules of a figure.

use std::fs;

use serde_json::Value;

use super::{
    RunOutcome,
    figures::{Figure, Measure, Rule, Test},
};

/// Decision about a rule.
#[derive(Debug)]
pub(super) struct Verdict {
    /// Statement of the rule.
    pub(super) says: String,
    /// True if the rule is met; `None` while runs are missing.
    pub(super) met: Option<bool>,
    /// The numbers it was decided by.
    pub(super) because: String,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let met = match self.met {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "not decided",
        };
        write!(f, "{met}: {} ({})", self.says, self.because)
    }
}

/// Reads a measure of a run; NaN if the run does not have it.
pub(super) fn read(measure: &Measure, run: &RunOutcome) -> f64 {
    let value = match (&measure.settled, &measure.phase) {
        (Some([probe, column]), _) => settled(run, probe, column),
        (None, Some(phase)) => per_step(&run.summary, phase),
        (None, None) => {
            measure.path.iter().try_fold(&run.summary, |value, key| value.get(key)).and_then(Value::as_f64)
        }
    };
    value.map_or(f64::NAN, |value| value * measure.times)
}

/// Mean wall time of a phase in a step [s]; of all phases but the writing of frames if none is named.
fn per_step(summary: &Value, phase: &[String]) -> Option<f64> {
    let phases = summary.get("phases_s")?;
    let entry = |value: &Value, key: &String| match key.parse::<usize>() {
        // A stage that no step had took no time.
        Ok(stage) => Some(value.get(stage).cloned().unwrap_or_else(|| 0.0.into())),
        Err(_) => value.get(key).cloned(),
    };
    let seconds = if phase.is_empty() {
        let all = phases.as_object()?.iter().filter(|(name, _)| *name != "frames");
        all.filter_map(|(_, value)| value.as_f64()).sum()
    } else {
        phase.iter().try_fold(phases.clone(), |value, key| entry(&value, key))?.as_f64()?
    };
    Some(seconds / summary.get("steps")?.as_f64()?)
}

/// Mean of a column of a probe's table over the second half of the time that it covers.
fn settled(run: &RunOutcome, probe: &str, column: &str) -> Option<f64> {
    let text = fs::read_to_string(run.folder.join(format!("probes/{probe}.csv"))).ok()?;
    let mut lines = text.lines();
    let at = lines.next()?.split(',').position(|name| name == column)?;
    let number = |line: &str, at: usize| line.split(',').nth(at)?.parse::<f64>().ok();
    let rows: Vec<(f64, f64)> =
        lines.filter_map(|line| Some((number(line, 0)?, number(line, at)?))).collect();
    let half = 0.5 * rows.last()?.0;
    // Steps differ in length, so each value counts by the length of its step.
    let steps =
        rows.windows(2).filter(|pair| pair[1].0 > half).map(|pair| (pair[1].0 - pair[0].0, pair[1].1));
    let (time, sum) = steps.fold((0.0, 0.0), |(time, sum), (dt, value)| (time + dt, sum + dt * value));
    (time > 0.0).then(|| sum / time)
}

/// Reasons for which a run counts as failed.
pub(super) fn failures(figure: &Figure, outcome: &RunOutcome) -> Vec<String> {
    let error = outcome.error.iter().map(|error| format!("ended early: {error}"));
    let limits =
        figure.failures.iter().filter(|failure| applies(&failure.case, outcome)).filter_map(|failure| {
            let value = read(figure.measure(&failure.measure)?, outcome);
            // Written so that NaN fails.
            let within = value <= failure.above;
            (!within).then(|| {
                format!(
                    "{} {} is above {}",
                    failure.measure,
                    to_four_digits(value),
                    to_four_digits(failure.above)
                )
            })
        });
    error.chain(limits).collect()
}

/// True if a statement about a case, or about all cases, applies to this run.
fn applies(case: &Option<String>, outcome: &RunOutcome) -> bool {
    case.as_ref().is_none_or(|case| *case == outcome.case)
}

/// Decides a rule.
pub(super) fn decide(figure: &Figure, rule: &Rule, outcomes: &[RunOutcome]) -> Verdict {
    let complete = |methods: &[String]| {
        let there =
            |method: &String, case: &str| outcomes.iter().any(|o| o.method == *method && o.case == case);
        figure.cases.iter().all(|case| methods.iter().all(|method| there(method, &case.name)))
    };
    let (decided, met, because) = match &rule.test {
        Test::NoneFails(methods) => {
            let failed = failed(figure, methods, outcomes);
            (complete(methods), failed.is_empty(), list(&failed, "no failure"))
        }
        Test::OneFails(methods) => {
            let failed = failed(figure, methods, outcomes);
            (complete(methods), !failed.is_empty(), list(&failed, "no failure"))
        }
        Test::Ratio(ratio) => {
            let mut methods = ratio.of.clone();
            methods.push(ratio.over.clone());
            let below = |case: &str| {
                values(figure, &ratio.measure, &ratio.over, case, outcomes).next().map_or(f64::NAN, |b| b.1)
            };
            let ratios = of(figure, &ratio.of, &ratio.measure, outcomes)
                .filter(|(outcome, _)| applies(&ratio.case, outcome))
                .map(|(outcome, value)| (outcome, value / below(&outcome.case)));
            let (met, because) = in_range(ratios, ratio.from, ratio.to);
            (complete(&methods), met, because)
        }
        Test::Value(range) => {
            let values = of(figure, &range.of, &range.measure, outcomes)
                .filter(|(outcome, _)| applies(&range.case, outcome));
            let (met, because) = in_range(values, range.from, range.to);
            (complete(&range.of), met, because)
        }
    };
    Verdict { says: rule.says.clone(), met: decided.then_some(met), because }
}

/// The runs of these methods that failed, with reasons.
fn failed(figure: &Figure, methods: &[String], outcomes: &[RunOutcome]) -> Vec<String> {
    let of = outcomes.iter().filter(|outcome| methods.contains(&outcome.method));
    let failed = of.map(|outcome| (outcome, failures(figure, outcome))).filter(|(_, why)| !why.is_empty());
    failed.map(|(outcome, why)| format!("{}, {}: {}", outcome.case, outcome.method, why.join(", "))).collect()
}

fn of<'a>(
    figure: &'a Figure,
    methods: &'a [String],
    measure: &'a str,
    outcomes: &'a [RunOutcome],
) -> impl Iterator<Item = (&'a RunOutcome, f64)> {
    let pairs = figure.cases.iter().flat_map(move |case| methods.iter().map(move |method| (case, method)));
    pairs.flat_map(move |(case, method)| values(figure, measure, method, &case.name, outcomes))
}

fn values<'a>(
    figure: &'a Figure,
    measure: &'a str,
    method: &'a str,
    case: &'a str,
    outcomes: &'a [RunOutcome],
) -> impl Iterator<Item = (&'a RunOutcome, f64)> {
    let runs = outcomes.iter().filter(move |outcome| outcome.method == method && outcome.case == case);
    runs.map(move |outcome| {
        (outcome, figure.measure(measure).map_or(f64::NAN, |measure| read(measure, outcome)))
    })
}

fn in_range<'a>(values: impl Iterator<Item = (&'a RunOutcome, f64)>, from: f64, to: f64) -> (bool, String) {
    let values: Vec<(&RunOutcome, f64)> = values.collect();
    let met = !values.is_empty() && values.iter().all(|(_, value)| (from..=to).contains(value));
    let text: Vec<String> = values
        .iter()
        .map(|(outcome, value)| format!("{}, {}: {}", outcome.case, outcome.method, to_four_digits(*value)))
        .collect();
    (met, format!("{}; wanted {} to {}", text.join("; "), to_four_digits(from), to_four_digits(to)))
}

fn list(items: &[String], none: &str) -> String {
    if items.is_empty() { none.to_string() } else { items.join("; ") }
}

/// A number to about four digits; an infinite one is `any`, and NaN is `none`.
pub(super) fn to_four_digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_string(),
        1e-3..1e6 if value.fract() == 0.0 => format!("{value:.0}"),
        100.0..1e6 => format!("{value:.1}"),
        1.0..100.0 => format!("{value:.3}"),
        1e-3..1.0 => format!("{value:.4}"),
        f64::INFINITY => "any".to_string(),
        _ if value.is_nan() => "none".to_string(),
        _ => format!("{value:.2e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::reproduce::figures::Figure;

    fn figure(rules: &str) -> Figure {
        let text = format!(
            "name = \"f\"\ntitle = \"\"\nquestion = \"\"\nclaim = \"\"\nscene = \"\"\npictures = []\n\
             cases = [{{ name = \"slow\" }}, {{ name = \"fast\" }}]\n\
             methods = [{{ name = \"a\" }}, {{ name = \"b\" }}]\n\
             measures = [{{ name = \"x\", path = [\"p\", \"q\"], times = -1.0 }}]\n\
             failures = [{{ measure = \"x\", above = 2.0 }}, {{ measure = \"x\", above = 1.0, case = \"fast\" }}]\n{rules}"
        );
        toml::from_str(&text).expect("a figure")
    }

    fn outcome(case: &str, method: &str, x: f64, error: Option<&str>) -> RunOutcome {
        RunOutcome {
            case: case.to_string(),
            method: method.to_string(),
            summary: serde_json::json!({ "p": { "q": -x } }),
            error: error.map(String::from),
            folder: "".into(),
            frame_interval: None,
            wall_s: 0.0,
        }
    }

    fn met(rule: &str, outcomes: &[RunOutcome]) -> Option<bool> {
        let figure = figure(&format!("[[rules]]\nsays = \"\"\n{rule}"));
        decide(&figure, &figure.rules[0], outcomes).met
    }

    #[test]
    fn the_time_of_a_step_is_that_of_its_phases() {
        let phases = serde_json::json!({ "detect": 1.0, "split": 0.5, "frames": 9.0, "integrate": 3.0,
            "integrate_stages": [2.0, 1.0] });
        let summary = serde_json::json!({ "steps": 10, "phases_s": phases });
        let time =
            |keys: &[&str]| per_step(&summary, &keys.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(time(&["detect"]), Some(0.1));
        assert_eq!(time(&["integrate_stages", "1"]), Some(0.1));
        assert_eq!(time(&["integrate_stages", "2"]), Some(0.0));
        assert_eq!(time(&[]), Some(0.45));
        assert_eq!(time(&["splits"]), None);
    }

    #[test]
    fn rules_are_decided_by_the_numbers() {
        let runs = |fast_b: f64, error: Option<&str>| {
            vec![
                outcome("slow", "a", 1.0, None),
                outcome("slow", "b", 1.5, None),
                outcome("fast", "a", 0.5, None),
                outcome("fast", "b", fast_b, error),
            ]
        };
        let (none, one) = ("none_fails = [\"b\"]", "one_fails = [\"b\"]");
        assert_eq!((met(none, &runs(1.0, None)), met(one, &runs(1.0, None))), (Some(true), Some(false)));
        assert_eq!((met(none, &runs(1.1, None)), met(one, &runs(1.1, None))), (Some(false), Some(true)));
        assert_eq!(met(none, &runs(0.5, Some("lost"))), Some(false));
        assert_eq!(met(none, &runs(f64::NAN, None)), Some(false), "what is not a number fails");
        assert_eq!(met(none, &runs(1.0, None)[..3]), None, "a run is missing");
        let ratio = "ratio = { measure = \"x\", of = [\"b\"], over = \"a\", from = 1.5, to = 2.0 }";
        assert_eq!(met(ratio, &runs(1.0, None)), Some(true));
        assert_eq!(met(ratio, &runs(1.1, None)), Some(false));
        let value = "value = { measure = \"x\", of = [\"a\"], from = 0.5, to = 1.0 }";
        assert_eq!(met(value, &runs(0.0, None)), Some(true));
        assert_eq!(met(value, &runs(0.0, None)[2..]), None);
    }
}
