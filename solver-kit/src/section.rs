//! Reading a participant's section of the scene, with errors that name the key.

use serde::de::DeserializeOwned;

/// A fault in a participant's section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionError {
    /// Dotted path of the key in the section, for example `shapes[0].radius`; empty for the section itself.
    pub key: String,
    /// The fault, and what to write instead.
    pub message: String,
}

impl SectionError {
    /// A fault at `key`.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), message: message.into() }
    }
}

/// Reads a section into a settings type that derives `Deserialize` with `deny_unknown_fields`.
///
/// # Errors
/// One error, at the key where reading stopped.
pub fn parse<T: DeserializeOwned>(section: &str) -> Result<T, Vec<SectionError>> {
    let deserializer = toml::Deserializer::parse(section)
        .map_err(|error| vec![SectionError::new("", error.message().to_string())])?;
    serde_path_to_error::deserialize(deserializer).map_err(|error| vec![fault(error)])
}

fn fault(error: serde_path_to_error::Error<toml::de::Error>) -> SectionError {
    let path = error.path().to_string();
    let key = if path == "." { String::new() } else { path };
    SectionError::new(key, error.into_inner().message().to_string())
}

/// Faults of keys that have another name now, each with the new one. `renamed` holds old and new names of
/// keys of the section itself.
#[must_use]
pub fn renamed_keys(section: &str, renamed: &[(&str, &str)]) -> Vec<SectionError> {
    let table: toml::Table = section.parse().unwrap_or_default();
    let old = renamed.iter().filter(|(old, _)| table.contains_key(*old));
    old.map(|(old, new)| SectionError::new(*old, format!("is called `{new}`: write {new} = {}", table[*old])))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_old_is_told_its_new_name_with_its_value() {
        let renamed = [("max_steps", "steps_max"), ("share", "ratio")];
        let faults = renamed_keys("max_steps = 3\nratio = 0.5\n", &renamed);
        assert_eq!(faults, [SectionError::new("max_steps", "is called `steps_max`: write steps_max = 3")]);
        assert_eq!(renamed_keys("no toml", &renamed), []);
    }
}
