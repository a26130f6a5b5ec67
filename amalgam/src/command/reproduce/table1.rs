//! Table 1 of the paper: wall time of a step, by phase, beside the paper's.
//!
//! A column of the table is a figure of its own, made from the figure whose scene it times. It has the same
//! scene and scales, cut to some steps, and measures times.

use super::figures::{Column, Figure, Measure, Range, Rule, Test, Times, Variant};

/// Prefix of the names of the table's figures.
pub(super) const NAME: &str = "table1";

/// Steps that a mean is taken over, at least.
const STEPS_MIN: f64 = 20.0;

/// Part of the time allowed that merging and splitting may take together.
const NEGLIGIBLE: f64 = 0.05;

/// The figure that measures a column.
pub(super) fn figure(timed: &Figure, column: &Column) -> Figure {
    let Times { detection, merging, stage_1, stage_2, splitting, total } = column.paper;
    let measures = vec![
        per_step("detection", &["detect"], Some(detection)),
        per_step("merging", &["merge"], Some(merging)),
        per_step("stage 1", &["integrate_stages", "0"], Some(stage_1)),
        per_step("stage 2", &["integrate_stages", "1"], Some(stage_2)),
        per_step("splitting", &["split"], Some(splitting)),
        per_step("begin", &["begin"], None),
        per_step("integration and synchronising", &["integrate"], None),
        per_step("commit", &["commit"], None),
        per_step("total", &[], Some(total)),
        Measure { name: "steps".into(), path: vec!["steps".into()], ..Measure::default() },
    ];
    let allowed = total * column.within;
    let method = "merge-split";
    let rule = |says: String, measure: &str, from: f64, to: f64| {
        let (measure, of) = (measure.to_string(), vec![method.to_string()]);
        Rule { says, test: Test::Value(Range { measure, of, from, to, case: None }) }
    };
    let rules = vec![
        rule(
            format!("a step takes at most {} of the paper's time", column.within),
            &ms("total"),
            0.0,
            allowed,
        ),
        rule("merging is negligible".into(), &ms("merging"), 0.0, NEGLIGIBLE * allowed),
        rule("splitting is negligible".into(), &ms("splitting"), 0.0, NEGLIGIBLE * allowed),
        rule(format!("{STEPS_MIN} steps or more"), "steps", STEPS_MIN, f64::INFINITY),
    ];
    Figure {
        name: format!("{NAME}-{}", timed.name),
        title: format!("Table 1, {}: time of a step", column.title),
        question: "How long does a step take, and what in it?".into(),
        claim: format!(
            "The paper's times are in the table's head, for {}; those at other scales cannot be compared with them.",
            column.particles
        ),
        remark: String::new(),
        pictures: vec![0],
        cases: vec![Variant {
            name: "from the first contact".into(),
            set: column.set.clone(),
            ..Variant::default()
        }],
        methods: vec![Variant { name: method.into(), ..Variant::default() }],
        measures,
        failures: Vec::new(),
        rules,
        times: None,
        ..timed.clone()
    }
}

fn ms(name: &str) -> String {
    format!("{name} [ms]")
}

/// Mean wall time of a phase [ms]; of all phases but the writing of frames if none is named.
fn per_step(name: &str, phase: &[&str], paper: Option<f64>) -> Measure {
    let phase = Some(phase.iter().map(ToString::to_string).collect());
    Measure { name: ms(name), phase, times: 1e3, paper, ..Measure::default() }
}
