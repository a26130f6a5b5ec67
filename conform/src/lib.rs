//! Trial of a service against the contract `amalgam.solver.v1`: a table of rules ([`RULES`]), each tried by
//! calls.
//!
//! A rule has a name, one sentence and a place in `docs/reference/protocol.md`. [`examine`] tries rules on a
//! service that it is connected to, one after the other, each in a run of its own. A broken rule comes with
//! the calls that show the fault. The rules are in files by subject, below `rules/`. They are written with
//! `bench.rs`.

mod bench;
mod choose;
mod rules;
mod shown;
mod verdict;
mod wire;

use amalgam_network::Calls;

use bench::Bench;
pub use bench::Section;
pub use rules::{RULES, rule::Rule};
pub use verdict::{Finding, Verdict};
pub use wire::Exchange;
use wire::Wire;

/// Tries the rules that are `wanted` on a service and tells each finding as soon as it is there.
///
/// # Errors
/// If no runtime for the connection can be started, or `connect` fails.
pub fn examine(
    connect: impl Future<Output = Result<Calls, String>>,
    section: &Section,
    wanted: impl Fn(&Rule) -> bool,
    mut tell: impl FnMut(&Finding),
) -> Result<Vec<Finding>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
    let channel = runtime.block_on(connect)?;
    let mut wire = Wire::new(runtime, channel);
    let mut findings = Vec::new();
    for rule in RULES.iter().flat_map(|rules| rules.iter()).filter(|rule| wanted(rule)) {
        let mut bench = Bench::new(&mut wire, section);
        let checked = (rule.check)(&mut bench);
        let (verdict, calls) = (Verdict::from(checked), wire.take());
        let calls = if matches!(verdict, Verdict::Failed(_)) { calls } else { Vec::new() };
        let finding = Finding { rule: rule.name, says: rule.says, see: rule.see, verdict, calls };
        tell(&finding);
        findings.push(finding);
    }
    Ok(findings)
}
