//! Faults of a scene, shown in its file.

use std::{io, path::PathBuf, sync::Arc};

use miette::{Diagnostic, NamedSource, SourceSpan};

/// Name shown in place of the file for a value from the command line.
pub(crate) const FROM_SET: &str = "--set";

/// Old and new names of keys of a scene's own tables. Solvers report renamed keys of their sections
/// themselves.
const RENAMED: [(&str, &str); 3] = [
    ("max_stages", "stages_max"),
    ("stage_cap", "converged_stages_max"),
    ("coupling_iterations", "repetitions_max"),
];

/// Keys of a scene's own tables that are gone: the key, a key beside it, and what to write.
const GONE: [(&str, &str, &str); 1] = [(
    "slip",
    "split",
    "leave it out, or write method = \"contact-law\" and friction = 0.3 in [[coupling.contact]]: merging has no friction",
)];

/// A fault of a scene, with its place and what to write instead.
#[derive(Clone, Debug, thiserror::Error, Diagnostic)]
#[error("{message}")]
pub struct Fault {
    /// Description of the fault.
    pub message: String,
    /// Advice on what to write instead.
    #[help]
    pub help: Option<String>,
    /// The scene's file, or the `--set` that gave the value.
    #[source_code]
    pub source_code: NamedSource<Arc<str>>,
    /// Place in the file.
    #[label("{label}")]
    pub span: SourceSpan,
    /// Description of the text at this place.
    pub label: String,
}

/// Reasons for which a scene cannot be used.
#[derive(Debug, thiserror::Error, Diagnostic)]
pub enum SceneError {
    /// The file cannot be read.
    #[error("cannot read the {what} {}: {error}", path.display())]
    Read {
        /// Kind of file that was expected.
        what: &'static str,
        /// The scene's file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
        /// Advice on what to do.
        #[help]
        help: Option<String>,
    },
    /// The file says something wrong.
    #[error("{} in {scene}", count(faults.len()))]
    Faults {
        /// The scene's file.
        scene: String,
        /// All faults that could be found in one go.
        faults: Vec<Fault>,
    },
}

impl SceneError {
    /// Faults of a scene, in the order of the file, those of `--set` last.
    pub(crate) fn faults(scene: &str, mut faults: Vec<Fault>) -> Self {
        faults.sort_by_key(|fault| (fault.source_code.name() == FROM_SET, fault.span.offset()));
        Self::Faults { scene: scene.to_string(), faults }
    }
}

fn count(faults: usize) -> String {
    if faults == 1 { "1 fault".to_string() } else { format!("{faults} faults") }
}

/// Turns serde's message about a fault into words for the author of a scene: the message, and what to write.
pub(crate) fn explain(message: &str, key: Option<&str>) -> (String, Option<String>) {
    let quoted = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_string).collect::<Vec<_>>();
    let of_key = key.map(|key| format!("{key}: ")).unwrap_or_default();
    if let Some(rest) = message.strip_prefix("unknown field ") {
        let mut names = quoted(rest);
        let unknown = if names.is_empty() { String::new() } else { names.remove(0) };
        let renamed =
            RENAMED.iter().find(|(old, new)| *old == unknown && names.iter().any(|name| name == new));
        if let Some((_, new)) = renamed {
            return (
                format!("unknown key `{unknown}`"),
                Some(format!("the key is called `{new}`: write {new} = ...")),
            );
        }
        let gone =
            GONE.iter().find(|(old, beside, _)| *old == unknown && names.iter().any(|name| name == beside));
        let help = gone.map(|(_, _, help)| help.to_string());
        let help = help.unwrap_or_else(|| suggest(&unknown, &names, "keys here"));
        return (format!("unknown key `{unknown}`"), Some(help));
    }
    if let Some(rest) = message.strip_prefix("unknown variant ") {
        let mut names = quoted(rest);
        let unknown = if names.is_empty() { String::new() } else { names.remove(0) };
        return (format!("{of_key}unknown choice \"{unknown}\""), Some(suggest(&unknown, &names, "choices")));
    }
    if let Some(rest) = message.strip_prefix("missing field ") {
        let name = rest.trim_matches('`');
        return (format!("missing key `{name}`"), Some(format!("add {name} = ... here")));
    }
    if let Some(rest) = message.strip_prefix("invalid type: ")
        && let Some((found, expected)) = rest.rsplit_once(", expected ")
    {
        let text = format!("{of_key}expected {}, found {}", plain(expected), plain_found(found));
        return (text, None);
    }
    if let Some(rest) = message.strip_prefix("invalid value: ")
        && let Some((found, expected)) = rest.rsplit_once(", expected ")
    {
        let text = format!("{of_key}expected {}, found {}", plain(expected), plain_found(found));
        return (text, None);
    }
    if let Some(rest) = message.strip_prefix("invalid length ")
        && let Some((found, expected)) = rest.split_once(", expected ")
    {
        return (format!("{of_key}expected {}, found {found} values", plain(expected)), None);
    }
    let (message, help) = match message.split_once(": write ") {
        Some((wrong, right)) => (wrong, Some(format!("write {right}"))),
        None => (message, None),
    };
    // A message that begins with one of these words continues a sentence that begins with the key.
    let goes_on = ["must ", "is ", "has ", "holds ", "hold ", "would ", "stands "];
    let message = match key {
        Some(key) if goes_on.iter().any(|verb| message.starts_with(verb)) => format!("{key} {message}"),
        Some(key) if !message.contains(key) => format!("{key}: {message}"),
        _ => message.to_string(),
    };
    (message, help)
}

/// Names the nearest of `names`, then all of them.
pub(crate) fn suggest(unknown: &str, names: &[String], what: &str) -> String {
    let mut known = names.to_vec();
    known.sort();
    let all = format!("{what}: {}", known.join(", "));
    let near = known.iter().map(|name| (strsim::damerau_levenshtein(unknown, name), name)).min();
    match near {
        Some((distance, name)) if distance <= 1 + unknown.len() / 3 => {
            format!("did you mean `{name}`? {all}")
        }
        _ if known.is_empty() => "remove it".to_string(),
        _ => all,
    }
}

fn plain(expected: &str) -> String {
    match expected {
        "f64" | "f32" => "a number".to_string(),
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number that is not negative".to_string(),
        "i8" | "i16" | "i32" | "i64" => "a whole number".to_string(),
        "a boolean" => "true or false".to_string(),
        "a string" => "text in quotes".to_string(),
        "a sequence" => "an array such as [1, 2]".to_string(),
        "a map" => "a table".to_string(),
        "a sequence of 3 f64 values" | "a sequence of 3 f64 components" | "struct DVec3" => {
            "three numbers such as [0.0, 0.0, 1.0]".to_string()
        }
        other => match other.strip_prefix("struct ") {
            Some(_) => "a table".to_string(),
            None => other.to_string(),
        },
    }
}

fn plain_found(found: &str) -> String {
    for (wire, words) in
        [("string ", "the text "), ("integer ", ""), ("floating point ", ""), ("boolean ", "")]
    {
        if let Some(value) = found.strip_prefix(wire) {
            return format!("{words}{}", value.trim_matches('`'));
        }
    }
    match found {
        "map" => "a table".to_string(),
        "sequence" => "an array".to_string(),
        other => other.to_string(),
    }
}
