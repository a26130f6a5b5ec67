//! The tables of keys in `docs/reference` are generated from the settings' own doc comments. A table stands
//! below a line such as `<!-- keys of solver-solid/src/section.rs: Section -->`. The tables are written by
//! `UPDATE_KEYS=1 cargo test --release -p amalgam --test keys`.
//!
//! A field's comment gives unit, meaning and, where the code has none, the default: `Collision radius [m].
//! Default: half the spacing.` Other defaults come from serde's attributes and from `Default`.

use std::{
    fs,
    path::{Path, PathBuf},
};

const PAGES: [&str; 3] = ["scene.md", "solid.md", "fluid.md"];
const HEAD: &str = "| key | unit | default | meaning |\n| --- | --- | --- | --- |\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A key of a table.
#[derive(Debug, PartialEq)]
struct Key {
    name: String,
    unit: String,
    default: String,
    meaning: String,
}

#[test]
fn tables_of_keys_are_those_of_the_sources() {
    let mut tables = 0;
    for page in PAGES {
        let path = format!("docs/reference/{page}");
        let text = read(&path);
        let (generated, count) = with_tables(&text);
        tables += count;
        if std::env::var_os("UPDATE_KEYS").is_some() {
            fs::write(root().join(&path), &generated).expect("the page can be written");
        } else {
            let differs = text.lines().zip(generated.lines()).find(|(there, ours)| there != ours);
            assert_eq!(
                text, generated,
                "{path} is not what UPDATE_KEYS=1 writes; the first line that differs: {differs:?}"
            );
        }
    }
    assert!(tables >= 15, "only {tables} tables of keys");
}

/// The page with all its tables generated anew, and their number.
fn with_tables(text: &str) -> (String, usize) {
    let (mut page, mut tables) = (String::new(), 0);
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        page += line;
        page.push('\n');
        let marker = line.strip_prefix("<!-- keys of ").and_then(|rest| rest.strip_suffix(" -->"));
        let Some((file, name)) = marker.and_then(|marker| marker.split_once(": ")) else { continue };
        while lines.next_if(|line| line.starts_with('|')).is_some() {}
        page += HEAD;
        for Key { name, unit, default, meaning } in keys(&sources(file), name) {
            page += &format!("| `{name}` | {unit} | {default} | {meaning} |\n");
        }
        tables += 1;
    }
    (page, tables)
}

/// The text of a file, followed by all files of its crate, which may hold the enums of its fields.
fn sources(file: &str) -> String {
    let (package, _) = file.split_once("/src/").expect("a source of a crate");
    let (mut text, mut folders) = (read(file), vec![root().join(package).join("src")]);
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(folder).expect("a folder of sources");
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.sort();
        for path in paths {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text += "\n\n";
                text += &fs::read_to_string(&path).expect("a source");
            }
        }
    }
    text
}

/// The keys of a struct, in its order.
fn keys(source: &str, name: &str) -> Vec<Key> {
    let start = source.find(&format!("struct {name} {{\n")).unwrap_or_else(|| panic!("no struct {name}"));
    let (attributes, body) = source.split_at(start);
    let attributes = attributes.rsplit("\n\n").next().unwrap_or_default();
    let body = body.split("\n}").next().unwrap_or_default();
    let whole = attributes.contains("deny_unknown_fields, default)");
    let (mut comment, mut serde, mut found) = (String::new(), String::new(), Vec::new());
    for line in body.lines().skip(1).map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            comment = format!("{comment} {}", text.trim()).trim().to_string();
        } else if let Some(text) = line.strip_prefix("#[serde(") {
            serde += text.trim_end_matches(")]");
        } else if let Some((field, kind)) = line.trim_end_matches(',').split_once(": ") {
            if serde != "skip" {
                let field = field.rsplit(' ').next().unwrap_or_default();
                let default =
                    if whole { of_default(source, name, field) } else { of_serde(source, &serde, kind) };
                found.push(key(&comment, &serde, field, default));
            }
            (comment, serde) = (String::new(), String::new());
        }
    }
    assert!(!found.is_empty(), "{name} has no keys");
    found
}

/// Makes a key from its comment, serde's attribute, the field and the default in the code.
fn key(comment: &str, serde: &str, field: &str, code: String) -> Key {
    assert!(!comment.is_empty(), "the field {field} has no comment");
    let renamed = serde.split("rename = \"").nth(1).and_then(|rest| rest.split('"').next());
    let (meaning, written) = match comment.split_once("Default: ") {
        Some((meaning, default)) => (meaning.trim_end(), Some(default.trim_end_matches('.').to_string())),
        None => (comment, None),
    };
    let unit = meaning.split('[').skip(1).find_map(|rest| {
        let unit = rest.split(']').next()?;
        is_unit(unit).then(|| unit.to_string())
    });
    // A single unit gets a column of its own; several units stay in the text.
    let meaning = match &unit {
        Some(unit) if !several(meaning) => meaning.replacen(&format!(" [{unit}]"), "", 1),
        _ => meaning.to_string(),
    };
    let unit = unit.filter(|unit| !meaning.contains(&format!("[{unit}]")));
    Key {
        name: renamed.unwrap_or(field).to_string(),
        unit: unit.unwrap_or_default(),
        default: written.unwrap_or(code),
        meaning: meaning.trim_end_matches('.').replace('|', "\\|"),
    }
}

/// True if a text in brackets is a unit: neither code, nor a list, nor a citation.
fn is_unit(text: &str) -> bool {
    let digits = text.bytes().rev().take_while(u8::is_ascii_digit).count();
    !text.is_empty() && digits < 4 && text.len() < 16 && !text.contains(['`', '"', ',', '.'])
}

/// True if a text holds several units.
fn several(text: &str) -> bool {
    text.split('[').skip(1).filter_map(|rest| rest.split(']').next()).filter(|unit| is_unit(unit)).count() > 1
}

/// The default of a field by serde's attribute and its type.
fn of_serde(source: &str, serde: &str, kind: &str) -> String {
    if let Some(function) = serde.split("default = \"").nth(1).and_then(|rest| rest.split('"').next()) {
        let body = read_function(source, function);
        return value(source, &body.unwrap_or_else(|| panic!("no function {function}")));
    }
    match kind {
        _ if kind.starts_with("Option<") => "none".to_string(),
        _ if !serde.contains("default") => "required".to_string(),
        "f64" | "u32" | "u64" | "usize" | "DVec3" => "0".to_string(),
        "bool" => "`false`".to_string(),
        "String" => "empty".to_string(),
        _ if kind.starts_with("Vec<") || kind.starts_with("BTreeMap<") => "none".to_string(),
        kind => first_choice(source, kind),
    }
}

/// The body of a function without arguments.
fn read_function(source: &str, name: &str) -> Option<String> {
    let rest = source.split(&format!("fn {name}() -> ")).nth(1)?;
    Some(rest.split_once("{\n")?.1.split("\n}").next()?.trim().to_string())
}

/// Value that `Default` gives a field.
fn of_default(source: &str, name: &str, field: &str) -> String {
    let body = source.split(&format!("impl Default for {name} {{")).nth(1).unwrap_or_default();
    let body = body.split("\n}").next().unwrap_or_default().replace("Self { ", "\n").replace(" }", ",\n");
    let fields = body.split([',', '\n']).map(str::trim);
    let own = fields.clone().find_map(|text| text.strip_prefix(&format!("{field}: ")));
    match own {
        // A list contains commas.
        Some(list) if list.starts_with('[') => {
            let rest = body.split(&format!("{field}: [")).nth(1).and_then(|rest| rest.split(']').next());
            format!("`[{}]`", rest.unwrap_or_default())
        }
        Some(text) => value(source, text),
        None => "none".to_string(),
    }
}

/// An expression of Rust as a scene writes its value.
fn value(source: &str, code: &str) -> String {
    match code {
        "true" | "false" => format!("`{code}`"),
        "None" | "Vec::new()" | "BTreeMap::new()" | "OneOrMany::Many(Vec::new())" => "none".to_string(),
        "1.0 / 30.0" => "1/30".to_string(),
        _ if code.starts_with("DVec3::new(") => {
            format!("`[{}]`", code.trim_start_matches("DVec3::new(").trim_end_matches(')'))
        }
        _ if code.ends_with("::default()") => "see below".to_string(),
        _ if code.starts_with('"') => format!("`{}`", code.trim_end_matches(".to_string()")),
        _ if code.starts_with(|c: char| c.is_ascii_digit()) => number(code),
        _ => match code.split_once("::") {
            Some((kind, variant)) => named(source, kind, variant.split('(').next().unwrap_or_default(), code),
            None => panic!("no way to write the default {code}"),
        },
    }
}

/// A number without what only the compiler wants.
fn number(code: &str) -> String {
    code.trim_end_matches(".0").replace('_', "")
}

/// A variant of an enum as a scene writes it.
fn named(source: &str, kind: &str, variant: &str, code: &str) -> String {
    if let Some(count) = code.strip_suffix(')').and_then(|code| code.split_once('(')) {
        return number(count.1);
    }
    let attributes = source.split(&format!("enum {kind} {{")).next().unwrap_or_default();
    let attributes = attributes.rsplit("\n\n").next().unwrap_or_default();
    let joint = if attributes.contains("kebab-case") { "-" } else { "_" };
    let mut written = String::new();
    for letter in variant.chars() {
        if letter.is_ascii_uppercase() && !written.is_empty() {
            written += joint;
        }
        written.push(letter.to_ascii_lowercase());
    }
    format!("`\"{written}\"`")
}

/// The variant of an enum that is its default.
fn first_choice(source: &str, kind: &str) -> String {
    let body = source.split(&format!("enum {kind} {{")).nth(1);
    let body = body.and_then(|body| body.split("\n}").next()).unwrap_or_else(|| panic!("no enum {kind}"));
    let variant = body.split("#[default]").nth(1).unwrap_or_else(|| panic!("{kind} has no default")).trim();
    let variant = variant.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    named(source, kind, variant, "")
}

#[test]
fn a_key_is_read_from_its_comment_and_its_default_from_the_code() {
    let source = r#"
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct One {
    /// Collision radius [m]. Default: half the spacing.
    radius: Option<f64>,
    /// Parts, as in `[1, 2]`.
    #[serde(default)]
    pub(crate) parts: Vec<u32>,
    /// Order.
    #[serde(default = "order", rename = "method")]
    _method: Order,
    /// Left out.
    #[serde(skip)]
    cells: u32,
    /// Time [s] or length [m].
    mixed: f64,
}

#[serde(rename_all = "kebab-case")]
enum Order {
    HhtAlpha,
}

fn order() -> Order {
    Order::HhtAlpha
}
"#;
    let key = |name: &str, unit: &str, default: &str, meaning: &str| Key {
        name: name.into(),
        unit: unit.into(),
        default: default.into(),
        meaning: meaning.into(),
    };
    let expected = [
        key("radius", "m", "half the spacing", "Collision radius"),
        key("parts", "", "none", "Parts, as in `[1, 2]`"),
        key("method", "", "`\"hht-alpha\"`", "Order"),
        key("mixed", "", "required", "Time [s] or length [m]"),
    ];
    assert_eq!(keys(source, "One"), expected);
}
