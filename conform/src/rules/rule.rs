//! A rule: its name, what it says, its place in the docs, and how it is tried.

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

/// A rule.
pub(super) const fn rule(
    name: &'static str,
    see: &'static str,
    says: &'static str,
    check: fn(&mut Bench<'_>) -> Check,
) -> Rule {
    Rule { name, says, see, check }
}
