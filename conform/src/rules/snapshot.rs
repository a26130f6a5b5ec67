//! Save and Restore.

use amalgam_proto::contract::Committed;

use super::rule::{Rule, rule};
use crate::bench::{Bench, timeless};
use crate::verdict::{Check, Stop, broken, demand};

pub(super) const RULES: &[Rule] = &[
    rule("save", "The calls", "Save changes nothing and gives the hash of the state.", save),
    rule(
        "save-restore",
        "The calls",
        "A solver that is restored, in a new run of the same section, goes on to the same bits.",
        save_restore,
    ),
    rule("restore-back", "The calls", "Restore takes a run back to an earlier step.", restore_back),
    rule(
        "snapshot-faults",
        "The calls",
        "A snapshot that is cut, empty or none at all is refused, and the right one is still taken.",
        snapshot_faults,
    ),
];

/// Two steps, one with a group.
fn steps(bench: &mut Bench<'_>) -> Result<Vec<Committed>, Stop> {
    let plain = bench.step()?;
    bench.begin()?;
    let ask = bench.pair()?;
    let answer = bench.integrate(&ask)?;
    let end = bench.end(&ask, &answer);
    let grouped = bench.commit(&ask, &end)?;
    Ok(vec![timeless(&plain), timeless(&grouped)])
}

fn save(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    steps(bench)?;
    let first = bench.save()?;
    let saved = steps(bench)?;
    bench.start()?;
    let plain = steps(bench)?;
    demand(plain.last().map(|done| done.state_hash) == Some(first.state_hash), || {
        "Save gives another hash than the Commit before it".into()
    })?;
    demand(steps(bench)? == saved, || "after Save the run goes on otherwise".into())
}

fn save_restore(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    steps(bench)?;
    let saved = bench.save()?;
    let (step, known) = (bench.context.step, bench.known.clone());
    let on = steps(bench)?;
    bench.start()?;
    (bench.context.step, bench.known) = (step, known);
    let hash = bench.restore(saved.bytes)?;
    demand(hash == saved.state_hash, || {
        format!("Restore gives hash {hash:016x}, Save gave {:016x}", saved.state_hash)
    })?;
    let again = steps(bench)?;
    match on.iter().zip(&again).position(|(a, b)| a != b) {
        Some(step) => broken(format!("step {step} after Restore is answered otherwise than without it")),
        None => Ok(()),
    }
}

fn restore_back(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    steps(bench)?;
    let saved = bench.save()?;
    let (step, known) = (bench.context.step, bench.known.clone());
    let on = steps(bench)?;
    (bench.context.step, bench.known) = (step, known);
    bench.restore(saved.bytes)?;
    demand(steps(bench)? == on, || {
        "the steps after Restore are answered otherwise than the first time".into()
    })
}

fn snapshot_faults(bench: &mut Bench<'_>) -> Check {
    bench.start()?;
    steps(bench)?;
    let saved = bench.save()?;
    let bytes = &saved.bytes;
    let wrong: [(&str, Vec<u8>); 4] = [
        ("half of a snapshot", bytes[..bytes.len() / 2].to_vec()),
        ("an empty snapshot", Vec::new()),
        ("a snapshot with a byte more", [&bytes[..], &[0]].concat()),
        ("zeros in place of a snapshot", vec![0; bytes.len()]),
    ];
    for (what, wrong) in wrong.into_iter().filter(|(_, wrong)| wrong != bytes) {
        match bench.restore(wrong) {
            Ok(_) => return broken(format!("Restore takes {what}")),
            Err(no) if no.code().is_none() => return broken(format!("Restore of {what}: {no}")),
            Err(_) => {}
        }
    }
    let hash = bench.restore(saved.bytes)?;
    demand(hash == saved.state_hash, || "after faulty snapshots the right one is not taken".into())
}
