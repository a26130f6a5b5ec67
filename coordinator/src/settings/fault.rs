//! Faults of settings: the key and what to write instead.

/// A fault in a section of the scene: the key's dotted path inside the section, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Dotted path of the key, for example `group_limit`.
    pub key: String,
    /// Description of the fault, and what to write.
    pub message: String,
}

impl Fault {
    /// A fault at `key`.
    pub(super) fn new(key: &str, message: impl Into<String>) -> Self {
        Self { key: key.to_string(), message: message.into() }
    }
}

/// A fault unless `value` is positive and finite.
pub(super) fn positive(key: &str, value: f64, example: &str) -> Option<Fault> {
    let right = value > 0.0 && value.is_finite();
    let message = || format!("{key} is {value}, but must be above 0, for example {example}");
    (!right).then(|| Fault { key: key.to_string(), message: message() })
}

/// A fault unless `value` is from 0 to `most` and finite.
pub(super) fn within(key: &str, value: f64, most: f64, what: &str) -> Option<Fault> {
    let right = (0.0..=most).contains(&value) && value.is_finite();
    (!right).then(|| Fault { key: key.to_string(), message: format!("{key} is {value}, but must be {what}") })
}
