//! The rules, by subject.

mod before;
mod bodies;
mod data;
mod groups;
mod motion;
mod order;
mod repeated;
mod reported;
mod snapshot;

use crate::bench::Bench;
use crate::verdict::Check;

/// A rule of the contract.
pub struct Rule {
    /// Its name, for `--only`.
    pub name: &'static str,
    /// The rule in one sentence.
    pub says: &'static str,
    /// Its place in `docs/reference/protocol.md`: the heading.
    pub see: &'static str,
    pub(crate) check: fn(&mut Bench<'_>) -> Check,
}

/// All rules, those that others build on first.
pub static RULES: &[&[Rule]] = &[
    order::RULES,
    before::RULES,
    repeated::RULES,
    groups::RULES,
    motion::RULES,
    reported::RULES,
    bodies::RULES,
    data::RULES,
    snapshot::RULES,
];

/// A rule.
const fn rule(
    name: &'static str,
    see: &'static str,
    says: &'static str,
    check: fn(&mut Bench<'_>) -> Check,
) -> Rule {
    Rule { name, says, see, check }
}
