//! A scene's text with the places of its keys, and the values that `--set` puts in their place.

use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use miette::NamedSource;
use toml_edit::{DocumentMut, InlineTable, Item, Table, Value};

use super::{
    fault::{FROM_SET, Fault, SceneError, suggest},
    path::{KeyPath, Segment},
};

/// Largest scene file [bytes].
pub const SCENE_BYTES_MAX: u64 = 16 << 20;

/// The tables of a scene.
pub(crate) const SECTIONS: [&str; 7] =
    ["scene", "domain", "time", "coupling", "participants", "probes", "output"];

/// A scene as written and as changed by `--set`.
#[derive(Debug)]
pub(crate) struct Document {
    name: String,
    /// Folder of the files that the scene names.
    folder: PathBuf,
    written: toml_edit::Document<Arc<str>>,
    effective: DocumentMut,
    overrides: Vec<Override>,
}

#[derive(Debug)]
struct Override {
    path: KeyPath,
    text: Arc<str>,
    value: Range<usize>,
}

/// Advice for text that is not TOML at this place: commas in numbers and backslashes in paths are common.
fn syntax_help(text: &str, at: usize) -> String {
    let start = text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1);
    let line = text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
    let value = line.split_once('=').map_or("", |(_, value)| value.trim());
    let is_number = |part: &str| {
        !part.is_empty() && part.trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit())
    };
    match value.split_once(',') {
        Some((whole, part)) if is_number(whole) && is_number(part.trim_end()) => {
            format!("numbers have a point: write {whole}.{}", part.trim_end())
        }
        _ if value.starts_with('"') && value.contains('\\') => {
            format!("a backslash begins a special character: write {}", value.replace('\\', "/"))
        }
        _ => "strings stand in quotes, tables in [brackets], lists of tables in [[double brackets]]".into(),
    }
}

/// Part of an entry that a fault is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Its key.
    Key,
    /// Its value, or the nearest parent if there is none.
    Value,
}

impl Document {
    pub(crate) fn read(path: &Path) -> Result<Self, SceneError> {
        let fail = |error: std::io::Error| SceneError::Read {
            what: "scene",
            path: path.to_path_buf(),
            help: (error.kind() == std::io::ErrorKind::NotFound)
                .then(|| "give the path of a scene file, for example scenes/water-on-cloth.toml".to_string()),
            error,
        };
        let bytes = std::fs::metadata(path).map_err(fail)?.len();
        if bytes > SCENE_BYTES_MAX {
            let what = format!("it holds {bytes} bytes, but a scene may hold {SCENE_BYTES_MAX}");
            return Err(fail(std::io::Error::other(what)));
        }
        let text = std::fs::read_to_string(path).map_err(fail)?;
        Self::parse(&path.display().to_string(), &text)
    }

    pub(crate) fn parse(name: &str, text: &str) -> Result<Self, SceneError> {
        let text: Arc<str> = text.into();
        let syntax = |error: toml_edit::TomlError| {
            let span = error.span().unwrap_or(0..0);
            let fault = Fault {
                message: "this is not TOML".into(),
                help: Some(syntax_help(&text, span.start)),
                source_code: NamedSource::new(name, Arc::clone(&text)),
                span: span.into(),
                label: error.message().replace('\n', ", "),
            };
            SceneError::faults(name, vec![fault])
        };
        let written = toml_edit::Document::parse(Arc::clone(&text)).map_err(syntax)?;
        let effective = written.clone().into_mut();
        let folder = Path::new(name).parent().unwrap_or(Path::new("")).to_path_buf();
        Ok(Self { name: name.to_string(), folder, written, effective, overrides: Vec::new() })
    }

    /// The same document, with the folder of the files that it names.
    pub(crate) fn within(self, folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), ..self }
    }

    /// The scene's file.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The scene as it will run, with comments.
    pub(crate) fn effective_text(&self) -> String {
        self.effective.to_string()
    }

    /// The scene as it will run, without places.
    pub(crate) fn effective(&self) -> Result<toml::Table, SceneError> {
        toml::from_str(&self.effective_text()).map_err(|error| {
            let fault = self.fault(&KeyPath::default(), Part::Value, error.message(), None);
            SceneError::faults(&self.name, vec![fault])
        })
    }

    /// Makes the paths of files absolute, from the folder of the scene: values of the key `file` in
    /// `[domain]` and in the settings of a participant without an address. Their solvers may run in another
    /// folder, and so may the scene that is written beside the results. A participant with an address finds
    /// files on its own machine.
    pub(crate) fn resolve_files(&mut self) {
        let folder = &self.folder;
        // A path that the system cannot make absolute is left to the reader of the file.
        let resolved = |file: &str| std::path::absolute(folder.join(file)).ok();
        each_file(&mut self.effective, &mut |file| resolved(file).map(|path| path.display().to_string()));
    }

    /// The files that obstacles and participants without an address name, as the scene that will run has
    /// them.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        each_file(&mut self.effective.clone(), &mut |file| {
            files.push(file.to_string());
            None
        });
        files
    }

    /// The scene as it will run, with other names for these files.
    pub(crate) fn with_files(&self, rename: &mut dyn FnMut(&str) -> String) -> String {
        let mut renamed = self.effective.clone();
        each_file(&mut renamed, &mut |file| Some(rename(file)));
        renamed.to_string()
    }

    /// True if the scene as it will run has this key.
    pub(crate) fn has(&self, path: &KeyPath) -> bool {
        let mut item = Some(self.effective.as_item());
        for segment in &path.0 {
            item = match segment {
                Segment::Key(key) => item.and_then(|item| item.get(key.as_str())),
                Segment::Index(index) => item.and_then(|item| item.get(*index)),
            };
        }
        item.is_some()
    }

    /// Puts a value in place: `time.duration=2`, `participants.cloth.settings.method="mass-spring"`.
    pub(crate) fn set(&mut self, argument: &str) -> Result<(), Box<Fault>> {
        let text: Arc<str> = argument.into();
        let fault = |message: String, span: Range<usize>, help: Option<String>| {
            let source_code = NamedSource::new(FROM_SET, Arc::clone(&text));
            Box::new(Fault { message, help, source_code, span: span.into(), label: "from --set".into() })
        };
        let Some((key, raw)) = argument.split_once('=') else {
            let help = "write --set KEY=VALUE, for example --set time.duration=2";
            return Err(fault("there is no `=`".into(), 0..argument.len(), Some(help.into())));
        };
        let value_span = key.len() + 1..argument.len();
        let key_span = 0..key.len();
        let path = KeyPath::parse(key.trim()).map_err(|message| fault(message, key_span.clone(), None))?;
        if let Some(Segment::Key(section)) = path.0.first()
            && !SECTIONS.contains(&section.as_str())
        {
            let names = SECTIONS.map(str::to_string);
            let help = suggest(section, &names, "a key begins with one of");
            return Err(fault(format!("a scene has no `{section}`"), key_span, Some(help)));
        }
        let path = self.by_index(path).map_err(|message| fault(message, key_span.clone(), None))?;
        let value = read_value(raw.trim()).map_err(|message| {
            let help = "values are written as in TOML: 2, 0.5, true, \"text\", [0, 0, -9.81]; plain words need no quotes";
            fault(message, value_span.clone(), Some(help.into()))
        })?;
        put(self.effective.as_item_mut(), &path.0, value)
            .map_err(|message| fault(format!("cannot set {path}: {message}"), key_span, None))?;
        self.overrides.push(Override { path, text, value: value_span });
        Ok(())
    }

    /// Turns `participants.NAME` into `participants[INDEX]`.
    fn by_index(&self, mut path: KeyPath) -> Result<KeyPath, String> {
        let is_participants = |segment: &Segment| *segment == Segment::Key("participants".into());
        if let [first, Segment::Key(name), ..] = path.0.as_slice()
            && is_participants(first)
        {
            let names = self.participant_names();
            let Some(index) = names.iter().position(|known| known == name) else {
                return Err(format!(
                    "no participant is called `{name}`; {}",
                    suggest(name, &names, "participants")
                ));
            };
            path.0[1] = Segment::Index(index);
        }
        Ok(path)
    }

    fn participant_names(&self) -> Vec<String> {
        let tables = self.effective.get("participants").and_then(Item::as_array_of_tables);
        let name = |table: &Table| table.get("name").and_then(Item::as_str).unwrap_or_default().to_string();
        tables.map(|tables| tables.iter().map(name).collect()).unwrap_or_default()
    }

    /// A fault at `path`: in the `--set` that gave the value if there is one, else in the file.
    pub(crate) fn fault(&self, path: &KeyPath, part: Part, message: &str, help: Option<String>) -> Fault {
        let overridden = self.overrides.iter().rev().find(|one| one.path.contains(path));
        let (source_code, span, label) = match overridden {
            Some(one) => {
                let key = 0..one.value.start - 1;
                let span = if part == Part::Key && one.path == *path { key } else { one.value.clone() };
                (NamedSource::new(FROM_SET, Arc::clone(&one.text)), span, "from --set".to_string())
            }
            None => {
                let text: Arc<str> = self.written.raw().into();
                (NamedSource::new(&self.name, text), self.span(path, part), path.to_string())
            }
        };
        Fault { message: message.to_string(), help, source_code, span: span.into(), label }
    }

    /// The place of a key or value in the file, or of its nearest parent.
    fn span(&self, path: &KeyPath, part: Part) -> Range<usize> {
        let mut item = self.written.as_item();
        let mut span = 0..0;
        for (depth, segment) in path.0.iter().enumerate() {
            let next = match segment {
                Segment::Key(key) => {
                    let Some((key, next)) = item.as_table_like().and_then(|table| table.get_key_value(key))
                    else {
                        break;
                    };
                    let last = depth + 1 == path.0.len();
                    let key_span = if last && part == Part::Key { key.span() } else { None };
                    // A dotted or implied table has no place of its own: the place of its key is taken.
                    span = key_span.or_else(|| next.span()).or_else(|| key.span()).unwrap_or(span);
                    next
                }
                Segment::Index(index) => {
                    if let Some(tables) = item.as_array_of_tables() {
                        let Some(table) = tables.get(*index) else { break };
                        span = table.span().unwrap_or(span);
                    }
                    let Some(next) = item.get(*index) else { break };
                    span = next.span().unwrap_or(span);
                    next
                }
            };
            item = next;
        }
        span
    }
}

/// Calls `replace` with the file of each key `file` in `[domain]` and in the settings of participants without
/// an address, and puts what it returns in its place.
fn each_file(scene: &mut DocumentMut, replace: &mut dyn FnMut(&str) -> Option<String>) {
    if let Some(domain) = scene.get_mut("domain") {
        each_file_in(domain, replace);
    }
    let Some(tables) = scene.get_mut("participants").and_then(Item::as_array_of_tables_mut) else { return };
    for participant in tables.iter_mut().filter(|participant| !participant.contains_key("address")) {
        if let Some(settings) = participant.get_mut("settings") {
            each_file_in(settings, replace);
        }
    }
}

/// Calls `replace` as [`each_file`] does, at any depth of a value.
fn each_file_in(item: &mut Item, replace: &mut dyn FnMut(&str) -> Option<String>) {
    if let Some(table) = item.as_table_like_mut() {
        for (key, item) in table.iter_mut() {
            match item.as_str().filter(|_| key == "file") {
                Some(file) => {
                    if let Some(new) = replace(file) {
                        *item = Item::Value(Value::from(new));
                    }
                }
                None => each_file_in(item, replace),
            }
        }
    } else if let Some(tables) = item.as_array_of_tables_mut() {
        for table in tables.iter_mut() {
            let mut inner = Item::Table(std::mem::take(table));
            each_file_in(&mut inner, replace);
            if let Ok(replaced) = inner.into_table() {
                *table = replaced;
            }
        }
    } else if let Some(array) = item.as_array_mut() {
        for value in array.iter_mut() {
            let mut inner = Item::Value(value.clone());
            each_file_in(&mut inner, replace);
            if let Ok(replaced) = inner.into_value() {
                *value = replaced;
            }
        }
    }
}

/// A value as in TOML. Text that does not begin like a value of TOML, and that has only harmless characters,
/// needs no quotes.
fn read_value(raw: &str) -> Result<Value, String> {
    let word = |c: char| c.is_alphanumeric() || "_-./:+ @".contains(c);
    match raw.parse::<Value>() {
        Ok(mut value) => {
            value.decor_mut().clear();
            Ok(value)
        }
        Err(_) if !raw.is_empty() && raw.chars().all(word) => Ok(Value::from(raw)),
        Err(_) if raw.is_empty() => Err("the value is missing".to_string()),
        Err(error) => Err(format!("`{raw}` is not a value: {}", error.message().replace('\n', ", "))),
    }
}

fn put(item: &mut Item, path: &[Segment], value: Value) -> Result<(), String> {
    let [first, rest @ ..] = path else {
        match item.as_value_mut() {
            Some(old) => {
                let decor = old.decor().clone();
                *old = value;
                *old.decor_mut() = decor;
            }
            None => *item = Item::Value(value),
        }
        return Ok(());
    };
    match first {
        Segment::Key(key) => {
            let inline = item.is_inline_table();
            let found = item.type_name();
            let table = item.as_table_like_mut().ok_or_else(|| match found {
                "array" | "array of tables" => {
                    format!(
                        "`{key}` names no element of an array: write [0], [1], ... behind the array's name"
                    )
                }
                _ => format!("`{key}` would stand in {found}, not in a table"),
            })?;
            if table.get(key).is_none() {
                let new = match rest.first() {
                    None => Item::Value(value.clone()),
                    Some(Segment::Index(_)) => return Err(format!("there is no `{key}` to index")),
                    Some(Segment::Key(_)) if inline => Item::Value(Value::InlineTable(InlineTable::new())),
                    Some(Segment::Key(_)) => Item::Table(Table::new()),
                };
                table.insert(key, new);
            }
            table.get_mut(key).map_or(Ok(()), |next| put(next, rest, value))
        }
        Segment::Index(index) => {
            let entries = match (&*item, item.as_array()) {
                (Item::ArrayOfTables(tables), _) => tables.len(),
                (_, Some(array)) => array.len(),
                _ => return Err(format!("[{index}] is given, but it is a {}", item.type_name())),
            };
            let next = item.get_mut(*index);
            let next = next.ok_or_else(|| {
                format!("[{index}] is given, but there are {entries} entries, counted from 0")
            })?;
            put(next, rest, value)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn help(line: &str) -> String {
        let text = format!("[domain]\n{line}\n[time]\n");
        let error = toml_edit::Document::parse(text.as_str()).expect_err("no TOML");
        syntax_help(&text, error.span().map_or(0, |span| span.start))
    }

    #[test]
    fn commas_and_backslashes_are_recognised() {
        assert_eq!(help("spacing = 0,01"), "numbers have a point: write 0.01");
        assert_eq!(help("x = -1,5 "), "numbers have a point: write -1.5");
        let path = help(r#"file = "C:\meshes\hull.obj""#);
        assert_eq!(path, r#"a backslash begins a special character: write "C:/meshes/hull.obj""#);
        assert!(help("name = water").starts_with("strings stand in quotes"));
    }
}
