//! Reading the tables of a scene, with as many faults as can be found in one go.

use serde::de::DeserializeOwned;

use super::{
    document::{Document, Part},
    fault::{Fault, explain},
    path::{KeyPath, Segment},
};

/// Most faults reported for one table.
const FAULTS_PER_TABLE_MAX: usize = 20;

/// Collects faults while a scene is read.
pub(crate) struct Reader<'a> {
    pub(crate) document: &'a Document,
    pub(crate) faults: Vec<Fault>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(document: &'a Document) -> Self {
        Self { document, faults: Vec::new() }
    }

    /// A fault at a value, in our own words.
    pub(crate) fn fault(&mut self, path: &KeyPath, message: &str, help: Option<&str>) {
        self.faults.push(self.document.fault(path, Part::Value, message, help.map(str::to_string)));
    }

    /// Faults that a settings type found in its values; `key` is relative to `base`.
    pub(crate) fn values(&mut self, base: &KeyPath, faults: impl IntoIterator<Item = (String, String)>) {
        for (key, message) in faults {
            self.faults.push(key_fault(self.document, base, &key, &message));
        }
    }

    /// Reads a table. After a fault its key is left out and reading starts again, so that the next fault is
    /// found too. The returned value then has defaults in its place and only serves to look for more faults.
    pub(crate) fn table<T: DeserializeOwned>(&mut self, base: &KeyPath, mut value: toml::Value) -> Option<T> {
        let mut left_out: Vec<KeyPath> = Vec::new();
        for _ in 0..FAULTS_PER_TABLE_MAX {
            let error = match serde_path_to_error::deserialize::<_, T>(value.clone()) {
                Ok(settings) => return Some(settings),
                Err(error) => error,
            };
            let path = KeyPath::from(error.path());
            let message = error.inner().message();
            if let Some(missing) = missing_key(message)
                && left_out.contains(&path.key(missing))
            {
                return None;
            }
            let path = named(self.document, base, path, message);
            self.faults.push(serde_fault(self.document, &base.join(&path), message));
            if !leave_out(&mut value, &path.0) {
                return None;
            }
            left_out.push(path);
        }
        None
    }
}

/// A fault in serde's words at `path`.
fn serde_fault(document: &Document, path: &KeyPath, message: &str) -> Fault {
    let (message, help) = explain(message, path.last_key().as_deref());
    let part = if message.starts_with("unknown key") { Part::Key } else { Part::Value };
    document.fault(path, part, &message, help)
}

/// A fault at a key given as text relative to `base`, as solvers and settings report them.
pub(crate) fn key_fault(document: &Document, base: &KeyPath, key: &str, message: &str) -> Fault {
    // A key that cannot be read as a path, as a solver in another language may write it, is shown unchanged.
    let (path, message) = match KeyPath::parse(key) {
        Ok(path) => (path, message.to_string()),
        Err(_) if key.is_empty() => (KeyPath::default(), message.to_string()),
        Err(_) => (KeyPath::default(), format!("{key}: {message}")),
    };
    serde_fault(document, &base.join(&named(document, base, path, &message)), &message)
}

fn missing_key(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.strip_suffix('`')
}

/// Finds the key that the message names. Serde reads tagged tables in two passes and loses the path in the
/// second.
fn named(document: &Document, base: &KeyPath, path: KeyPath, message: &str) -> KeyPath {
    match message.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next()) {
        Some(name) if document.has(&base.join(&path).key(name)) => path.key(name),
        _ => path,
    }
}

fn leave_out(value: &mut toml::Value, path: &[Segment]) -> bool {
    match (value, path) {
        (toml::Value::Table(table), [Segment::Key(key)]) => table.remove(key).is_some(),
        // Removing one entry of an array would move later entries, so the whole array is left out.
        (toml::Value::Table(table), [Segment::Key(key), Segment::Index(_)]) => table.remove(key).is_some(),
        (toml::Value::Table(table), [Segment::Key(key), rest @ ..]) => {
            table.get_mut(key).is_some_and(|next| leave_out(next, rest))
        }
        (toml::Value::Array(array), [Segment::Index(index), rest @ ..]) => {
            array.get_mut(*index).is_some_and(|next| leave_out(next, rest))
        }
        _ => false,
    }
}
