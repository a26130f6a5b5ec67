//! Rules for the order of calls, and for the owner of a run.

use amalgam_proto::contract::Context;
use amalgam_proto::{PROTOCOL_VERSION, v1};
use tonic::Code;
use tonic_types::StatusExt as _;

use super::rule::{Rule, rule};
use crate::bench::{Ask, Bench, everyone, refused};
use crate::verdict::{Check, broken, demand, skip};
use crate::wire::No;

pub(super) const RULES: &[Rule] = &[
    rule("describe", "The calls", "Describe names the program, its version and how it integrates.", describe),
    rule(
        "describe-version",
        "The calls",
        "Describe refuses a caller of another version of the contract with FAILED_PRECONDITION.",
        describe_version,
    ),
    rule(
        "initialize",
        "The calls",
        "Initialize answers a table of particles that keeps the limits.",
        initialize,
    ),
    rule(
        "section-faults",
        "Errors",
        "A section that is no TOML is refused with INVALID_ARGUMENT and a field violation for each fault.",
        section_faults,
    ),
    rule(
        "begin-first",
        "The calls",
        "Integrate before Begin is refused with FAILED_PRECONDITION.",
        begin_first,
    ),
    rule(
        "integrate-first",
        "The calls",
        "Commit before Integrate is refused with FAILED_PRECONDITION.",
        integrate_first,
    ),
    rule(
        "not-after-integrate",
        "The calls",
        "Survey, Begin, Frame and Save after Integrate are refused with FAILED_PRECONDITION.",
        not_after_integrate,
    ),
    rule(
        "stage-order",
        "Integrate",
        "After stage s, repetition r may follow (s, r + 1), (s + 1, 0) or (1, 0), and nothing else.",
        stage_order,
    ),
    rule(
        "commit-last",
        "The calls",
        "Commit names the stage and repetition that were integrated last; another one is refused.",
        commit_last,
    ),
    rule(
        "step-number",
        "The calls",
        "A call for a step that is not due is refused with FAILED_PRECONDITION.",
        step_number,
    ),
    rule(
        "new-run",
        "The calls",
        "A new run takes the place of an old one, whose calls are refused with FAILED_PRECONDITION.",
        new_run,
    ),
    rule(
        "epoch",
        "The calls",
        "The same run begins anew with a larger epoch alone, and calls of the earlier epoch are refused.",
        epoch,
    ),
    rule(
        "epoch-of-others",
        "The calls",
        "An epoch above 1 of another run than the one that is served is refused with FAILED_PRECONDITION.",
        epoch_of_others,
    ),
    rule(
        "shutdown",
        "The calls",
        "Shutdown ends its own run alone, may be repeated, and then a new run may begin.",
        shutdown,
    ),
    rule("no-run", "Errors", "A call without a run is refused with NOT_FOUND.", no_run),
];

const EARLY: Code = Code::FailedPrecondition;

fn describe(bench: &mut Bench<'_>) -> Check {
    let description = bench.describe()?;
    demand(!description.name.is_empty(), || "the program has no name".into())
}

fn describe_version(bench: &mut Bench<'_>) -> Check {
    refused(bench.wire.describe(PROTOCOL_VERSION + 1), EARLY, "Describe of a later version")?;
    refused(bench.wire.describe(0), EARLY, "Describe of version 0")
}

fn initialize(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    demand(!bench.has_bodies() || bench.integration == amalgam_proto::contract::Integration::Explicit, || {
        "only explicit participants may have bodies".into()
    })
}

fn section_faults(bench: &mut Bench<'_>) -> Check {
    bench.context = bench.new_context();
    let request = v1::InitializeRequest { section: "= [".into(), ..bench.initialize_request() };
    let answer = bench.wire.initialize(request);
    if let Err(No::Refused { status, .. }) = &answer
        && status.code() == Code::InvalidArgument
    {
        let details = status.get_details_bad_request();
        let named = details.is_some_and(|details| !details.field_violations.is_empty());
        return demand(named, || "the refusal has no google.rpc.BadRequest with a field violation".into());
    }
    refused(answer, Code::InvalidArgument, "Initialize with a section that is no TOML")
}

fn begin_first(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    let ask = bench.nobody();
    refused(bench.integrate(&ask), EARLY, "Integrate before Begin")
}

fn integrate_first(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    let (ask, end) = (bench.nobody(), Default::default());
    refused(bench.try_commit(&ask, &end, |_| ()), EARLY, "Commit before Begin")?;
    bench.begin()?;
    refused(bench.try_commit(&ask, &end, |_| ()), EARLY, "Commit before Integrate")
}

fn not_after_integrate(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    bench.begin()?;
    let ask = bench.nobody();
    bench.integrate(&ask)?;
    let cell = cell_size(bench);
    refused(bench.survey(cell, 0.0), EARLY, "Survey after Integrate")?;
    refused(bench.begin_for(everyone()), EARLY, "Begin after Integrate")?;
    refused(bench.frame(), EARLY, "Frame after Integrate")?;
    let request = v1::SaveRequest { context: Some(bench.context.to_wire()), files: None };
    let room = bench.room();
    let saved = bench.wire.save(request, room);
    if saved.as_ref().err().and_then(No::code) != Some(Code::Aborted) {
        refused(saved, EARLY, "Save after Integrate")?;
    }
    let answer = bench.integrate(&ask)?;
    let end = bench.end(&ask, &answer);
    bench.commit(&ask, &end).map(drop)
}

/// A cell that holds the largest particle [m].
pub(super) fn cell_size(bench: &Bench<'_>) -> f64 {
    2.5 * bench.known.values().fold(1e-6, |largest: f64, known| largest.max(known.radius))
}

fn stage_order(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    bench.begin()?;
    let ask = |bench: &Bench<'_>, stage, repetition| Ask { stage, repetition, ..bench.nobody() };
    for (stage, repetition, may) in [
        (2, 0, false),
        (1, 1, false),
        (1, 0, true),
        (1, 2, false),
        (3, 0, false),
        (1, 1, true),
        (1, 2, true),
        (2, 0, true),
        (4, 0, false),
        (1, 0, true),
        (2, 1, false),
    ] {
        let ask = ask(bench, stage, repetition);
        let answer = bench.integrate(&ask);
        if may {
            answer?;
        } else {
            refused(answer, EARLY, &format!("Integrate of stage {stage}, repetition {repetition}"))?;
        }
    }
    Ok(())
}

fn commit_last(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    bench.begin()?;
    let first = bench.nobody();
    bench.integrate(&first)?;
    let last = Ask { repetition: 1, ..first.clone() };
    let answer = bench.integrate(&last)?;
    let end = bench.end(&last, &answer);
    refused(bench.try_commit(&first, &end, |_| ()), EARLY, "Commit of an earlier repetition")?;
    bench.commit(&last, &end).map(drop)
}

fn step_number(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    let due = bench.context.clone();
    bench.context.step = 1;
    refused(bench.begin_for(everyone()), EARLY, "Begin of step 1 before step 0")?;
    bench.context = due;
    bench.step()?;
    bench.context.step = 0;
    refused(bench.begin_for(everyone()), EARLY, "Begin of step 0 after its Commit")?;
    refused(bench.frame(), EARLY, "Frame of step 0 after its Commit")
}

fn new_run(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    let old = bench.context.clone();
    bench.start()?;
    let new = std::mem::replace(&mut bench.context, old);
    refused(bench.begin_for(everyone()), EARLY, "Begin of a run that another took the place of")?;
    bench.context = new;
    bench.step().map(drop)
}

fn epoch(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    refused(
        bench.wire.initialize(bench.initialize_request()),
        EARLY,
        "Initialize of the same run and epoch",
    )?;
    bench.begin()?;
    let old = bench.context.clone();
    bench.context = Context { epoch: 2, ..old.clone() };
    bench.wire.initialize(bench.initialize_request())?;
    let new = std::mem::replace(&mut bench.context, old);
    refused(bench.begin_for(everyone()), EARLY, "Begin of epoch 1 after epoch 2 began")?;
    refused(bench.shutdown(), EARLY, "Shutdown of epoch 1 after epoch 2 began")?;
    bench.context = new;
    bench.step().map(drop)
}

fn epoch_of_others(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    let served = bench.context.clone();
    bench.context = Context { epoch: 2, ..bench.new_context() };
    refused(
        bench.wire.initialize(bench.initialize_request()),
        EARLY,
        "Initialize of epoch 2 of another run",
    )?;
    bench.context = served;
    bench.step().map(drop)
}

fn shutdown(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    let served = bench.context.clone();
    bench.context = bench.new_context();
    refused(bench.shutdown(), EARLY, "Shutdown of a run that is not served")?;
    bench.context = served;
    bench.begin()?;
    bench.shutdown()?;
    bench.shutdown()?;
    bench.start()?;
    bench.step().map(drop)
}

fn no_run(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    bench.shutdown()?;
    refused(bench.begin_for(everyone()), Code::NotFound, "Begin after Shutdown")?;
    refused(bench.frame(), Code::NotFound, "Frame after Shutdown")?;
    let ask = bench.nobody();
    match bench.integrate(&ask) {
        Ok(_) => broken("Integrate after Shutdown is answered"),
        Err(no) if no.code().is_none() => skip(no.to_string()),
        answer => refused(answer, Code::NotFound, "Integrate after Shutdown"),
    }
}
