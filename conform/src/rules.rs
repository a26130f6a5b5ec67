//! The rules, by subject.

mod before;
mod bodies;
mod data;
mod groups;
mod motion;
mod order;
mod repeated;
mod reported;
pub(crate) mod rule;
mod snapshot;

use self::rule::Rule;

/// All rules; rules that others build on come first.
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
