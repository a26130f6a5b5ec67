//! Results of trying a rule.

use serde::Serialize;

use crate::wire::{Exchange, No};

/// Verdict on a service under a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The service keeps the rule.
    Passed,
    /// The service breaks the rule, with the reason in one sentence.
    Failed(String),
    /// The rule does not apply to this service or section, with the reason.
    Skipped(String),
}

/// A rule and whether it is kept.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Name of the rule.
    pub rule: &'static str,
    /// The rule in one sentence.
    pub says: &'static str,
    /// Place of the rule in the documents.
    pub see: &'static str,
    /// Verdict on the service.
    pub verdict: Verdict,
    /// The last calls before the fault was seen; the very last one is at fault.
    pub calls: Vec<Exchange>,
}

impl From<Check> for Verdict {
    fn from(checked: Check) -> Self {
        match checked {
            Ok(()) => Self::Passed,
            Err(Stop::Skip(reason)) => Self::Skipped(reason),
            Err(Stop::Broken(reason)) => Self::Failed(reason),
        }
    }
}

/// Reasons for which a rule was not tried to its end.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The rule does not apply to this service.
    Skip(String),
    /// The service breaks the rule.
    Broken(String),
}

/// Result of trying a rule.
pub(crate) type Check = Result<(), Stop>;

impl From<No> for Stop {
    /// A call that should have been answered.
    fn from(no: No) -> Self {
        Self::Broken(format!("{no}, but the call keeps the contract"))
    }
}

/// A broken rule.
pub(crate) fn broken<T>(reason: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Broken(reason.into()))
}

/// A rule that does not apply.
pub(crate) fn skip<T>(reason: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Skip(reason.into()))
}

/// Demands something; else the rule is broken for this reason.
pub(crate) fn demand(holds: bool, reason: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(Stop::Broken(reason())) }
}
