//! The invariants of ARCHITECTURE.md that a test can see.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Text files below a folder of the repository, by path from its root, except for ignored folders.
fn files(folder: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of the repository") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(root()).expect("below the root").display().to_string();
            if ["out", ".git"].contains(&name.as_str()) || path.ends_with("target") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                found.insert(name, text);
            }
        }
    }
    found
}

fn manifest(package: &str) -> toml::Table {
    toml::from_str(&read(format!("{package}/Cargo.toml"))).expect("a manifest")
}

fn members() -> Vec<String> {
    let workspace: toml::Table = toml::from_str(&read("Cargo.toml")).expect("a manifest");
    let members = workspace["workspace"]["members"].as_array().expect("a list").iter();
    members.map(|member| member.as_str().expect("a name").to_string()).collect()
}

/// Names in tables of a manifest.
fn dependencies(package: &str, tables: &[&str]) -> BTreeSet<String> {
    let manifest = manifest(package);
    let names = tables.iter().filter_map(|table| manifest.get(*table)?.as_table());
    names.flat_map(|table| table.keys().cloned()).collect()
}

/// The dependencies that are crates of this workspace, by the names of their folders.
fn ours(dependencies: &BTreeSet<String>) -> BTreeSet<String> {
    dependencies.iter().filter_map(|name| name.strip_prefix("amalgam-")).map(String::from).collect()
}

fn all(package: &str) -> BTreeSet<String> {
    dependencies(package, &["dependencies", "dev-dependencies", "build-dependencies"])
}

#[test]
fn crates_depend_on_each_other_as_the_table_says() {
    let architecture = read("ARCHITECTURE.md");
    let members = members();
    let code =
        |cell: &str| -> BTreeSet<String> { cell.split('`').skip(1).step_by(2).map(String::from).collect() };
    let (_, crates) = architecture.split_once("## Crates").expect("a table of crates");
    let (crates, _) = crates.split_once("\n## ").expect("a section after it");
    let mut rows = BTreeMap::new();
    for cells in
        crates.lines().map(|line| line.split('|').collect::<Vec<_>>()).filter(|cells| cells.len() == 5)
    {
        if let Some(name) = code(cells[1]).into_iter().find(|name| members.contains(name)) {
            let every = cells[3].trim() == "all";
            let uses = if every {
                members.iter().filter(|m| **m != name).cloned().collect()
            } else {
                code(cells[3])
            };
            rows.insert(name, uses);
        }
    }
    assert_eq!(
        rows.keys().cloned().collect::<BTreeSet<_>>(),
        members.iter().cloned().collect(),
        "crates in the table"
    );
    for (name, uses) in rows {
        assert_eq!(
            ours(&dependencies(&name, &["dependencies", "build-dependencies"])),
            uses,
            "what {name} uses"
        );
    }
}

#[test]
fn physics_knows_no_network_and_no_async() {
    let network = ["tonic", "prost", "tokio", "hyper", "futures", "tower", "async-trait"];
    for package in ["particles", "solver-solid", "solver-fluid", "frames"] {
        for dependency in all(package) {
            let found =
                network.iter().any(|name| dependency == *name || dependency.starts_with(&format!("{name}-")));
            assert!(!found, "{package} depends on {dependency}");
        }
        for (name, text) in files(&format!("{package}/src")) {
            for word in words_of_code(&text) {
                let network = network.contains(&word) || ["async", "await"].contains(&word);
                assert!(!network, "{name} says {word}");
            }
        }
    }
}

/// Words outside of line comments.
fn words_of_code(text: &str) -> impl Iterator<Item = &str> {
    let code = text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    code.flat_map(|line| line.split(|c: char| !(c.is_alphanumeric() || c == '_')))
}

#[test]
fn words_of_comments_are_no_code() {
    let words: Vec<&str> =
        words_of_code("let a = b; // async\n/// async\nuse tokio::x;").filter(|w| !w.is_empty()).collect();
    assert_eq!(words, ["let", "a", "b", "use", "tokio", "x"]);
}

#[test]
fn the_coordinator_knows_no_solver_and_solvers_do_not_know_each_other() {
    let solvers: Vec<String> = members().into_iter().filter(|name| name.starts_with("solver-")).collect();
    assert!(solvers.len() >= 3, "the kit and two solvers");
    for solver in &solvers {
        let own = ours(&all("coordinator"));
        assert!(!own.contains(solver), "the coordinator depends on {solver}");
        for other in solvers.iter().filter(|other| *other != solver && *other != "solver-kit") {
            assert!(!ours(&all(solver)).contains(other), "{solver} depends on {other}");
        }
    }
    for (name, text) in files("coordinator/src") {
        for material in ["solid", "fluid", "sph", "flip", "spring", "cloth"] {
            // This method of contact is named after the method that its equations come from.
            let mut words = words_of_code(&text).filter(|word| *word != "sph_repulsion");
            let found = words.any(|word| word.to_lowercase().split('_').any(|part| part == material));
            assert!(!found, "{name} says {material}");
        }
    }
}

#[test]
fn no_file_holds_a_path_of_somebodys_machine() {
    // The paths are put together here, so that this file does not hold them.
    let folders = ["home", "root", "Users", "work", "mnt"].map(|folder| format!("/{folder}/"));
    for (name, text) in files("") {
        for folder in &folders {
            let path = |at: usize| {
                let before = text[..at].chars().next_back();
                // In a relative path or an address, a folder of this name is not the machine's.
                before.is_none_or(|c| !(c.is_alphanumeric() || "._-/:)}".contains(c)))
            };
            let found = text.match_indices(folder.as_str()).any(|(at, _)| path(at));
            assert!(!found, "{name} holds a path below {folder}");
        }
    }
}

/// Types that a text of code defines, and its names for other types. Associated types are left out: they are
/// indented.
fn types(text: &str) -> Vec<&str> {
    let words: Vec<&str> = words_of_code(text).filter(|word| !word.is_empty()).collect();
    let defined = words.windows(2).filter(|pair| ["struct", "enum", "trait"].contains(&pair[0]));
    let named = text.lines().filter(|line| line.starts_with("pub") || line.starts_with("type"));
    let named = named.filter_map(|line| {
        let (before, name) = line.split_once("type ")?;
        let visible = before.is_empty() || (before.starts_with("pub") && before.split(' ').count() == 2);
        visible.then(|| name.split(|c: char| !c.is_alphanumeric()).next())?
    });
    let defined = defined.map(|pair| pair[1]).filter(|name| name.starts_with(char::is_uppercase));
    defined.chain(named).collect()
}

#[test]
fn a_type_name_stands_for_one_thing_in_a_crate() {
    assert_eq!(types("struct A { a: B }\nenum C<T> {}\n// struct D\npub trait E {}"), ["A", "C", "E"]);
    assert_eq!(
        types("type F<T> = G<T>;\npub(crate) type H = I;\n    type J = K;\npub type L = M;"),
        ["F", "H", "L"]
    );
    for package in members() {
        let mut defined: BTreeMap<String, String> = BTreeMap::new();
        for (name, text) in files(&format!("{package}/src")).iter().filter(|(name, _)| name.ends_with(".rs"))
        {
            for found in types(text) {
                let other = defined.insert(found.to_string(), name.clone());
                assert!(other.is_none(), "{found} is a type in {name} and in {}", other.unwrap_or_default());
            }
        }
    }
}

/// The paths of a `use` declaration: `a::{b, c::{d, e}}` has a::b, a::c::d and a::c::e.
fn used_paths(declaration: &str) -> Vec<String> {
    let Some((before, group)) = declaration.split_once('{') else {
        return vec![declaration.trim().to_string()];
    };
    let group = group.trim_end().strip_suffix('}').expect("a closed group");
    let (mut depth, mut paths) = (0, Vec::new());
    let parts = group.split(|c: char| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    for part in parts.filter(|part| !part.trim().is_empty()) {
        paths.extend(used_paths(part.trim()).iter().map(|path| format!("{}{path}", before.trim_start())));
    }
    paths
}

/// The modules that a module of a crate uses, apart from those above it and below it.
fn uses(module: &[String], text: &str, modules: &BTreeSet<Vec<String>>) -> BTreeSet<Vec<String>> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines: Vec<&str> =
        text.lines().map(|line| line.split("//").next().unwrap_or_default().trim()).collect();
    let declarations = lines.iter().enumerate().filter_map(|(n, line)| {
        let public =
            line.trim_start_matches("pub").trim_start_matches("(crate)").trim_start_matches("(super)");
        let first = public.trim_start().strip_prefix("use ")?;
        let whole = [&[first], &lines[n + 1..]].concat().concat();
        whole.split(';').next().map(String::from)
    });
    let mut used = BTreeSet::new();
    for path in declarations.flat_map(|declaration| used_paths(&declaration)) {
        let mut names = path.split("::").map(str::trim).peekable();
        let mut found = module.to_vec();
        match names.peek() {
            Some(&"crate") => found.clear(),
            Some(&"super") => (),
            _ => continue,
        }
        for name in names {
            match name {
                "crate" => (),
                "super" => drop(found.pop()),
                _ if modules.contains(&[&found[..], &[name.to_string()]].concat()) => found.push(name.into()),
                _ => break,
            }
        }
        if !module.starts_with(&found) && !found.starts_with(module) {
            used.insert(found);
        }
    }
    used
}

#[test]
fn no_modules_use_each_other_in_a_circle() {
    assert_eq!(used_paths("a::{b, c::{d, e}}"), ["a::b", "a::c::d", "a::c::e"]);
    for package in members() {
        let folder = format!("{package}/src/");
        let sources = files(&folder).into_iter().filter(|(name, _)| name.ends_with(".rs"));
        let sources: BTreeMap<Vec<String>, String> = sources
            .map(|(name, text)| {
                let name = name[folder.len()..].trim_end_matches(".rs").trim_end_matches("/mod");
                let module = name.split('/').filter(|part| !["lib", "main"].contains(part));
                (module.map(String::from).collect(), text)
            })
            .collect();
        let modules: BTreeSet<Vec<String>> = sources.keys().cloned().collect();
        let used: BTreeMap<_, _> =
            sources.iter().map(|(module, text)| (module.clone(), uses(module, text, &modules))).collect();
        for module in &modules {
            let (mut reached, mut next) = (BTreeSet::new(), vec![module]);
            while let Some(from) = next.pop() {
                next.extend(used[from].iter().filter(|to| reached.insert(*to)));
            }
            assert!(!reached.contains(module), "{package}: {} is in a circle of modules", module.join("::"));
        }
    }
}

#[test]
fn a_folder_has_at_most_fifteen_rooms() {
    let mut rooms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in members() {
        for name in files(&format!("{package}/src")).into_keys() {
            let mut path = Path::new(&name);
            if ["lib", "main"].iter().any(|door| path.file_stem().is_some_and(|stem| stem == *door)) {
                continue;
            }
            // A file and the folder of its name are one room.
            while let (Some(folder), Some(room)) = (path.parent(), path.file_stem()) {
                let (folder, room) = (folder.display().to_string(), room.to_string_lossy().to_string());
                if !folder.contains("/src") {
                    break;
                }
                rooms.entry(folder).or_default().insert(room);
                path = path.parent().expect("a folder");
            }
        }
    }
    for (folder, rooms) in rooms {
        assert!(rooms.len() <= 15, "{folder} has {} rooms: {rooms:?}", rooms.len());
    }
}

#[test]
fn the_code_map_names_every_folder_and_files_say_what_is_in_them() {
    let architecture = read("ARCHITECTURE.md");
    let (_, map) = architecture.split_once("## Code map").expect("a code map");
    let (map, _) = map.split_once("\n## ").expect("a section after it");
    let mut named = BTreeSet::new();
    for part in map.split("\n### ").skip(1) {
        let package = part.split_whitespace().next().expect("a crate");
        let names = part.split('`').skip(1).step_by(2);
        let folders = names.filter(|name| name.starts_with("src") && !name.ends_with(".rs"));
        named.extend(folders.map(|name| format!("{package}/{name}")));
    }
    let sources: BTreeMap<String, String> =
        members().iter().flat_map(|package| files(&format!("{package}/src"))).collect();
    let folder = |name: &String| name.rsplit_once('/').expect("in a folder").0.to_string();
    let folders: BTreeSet<String> = sources.keys().map(folder).collect();
    let difference: Vec<&String> = named.symmetric_difference(&folders).collect();
    assert!(difference.is_empty(), "named in ARCHITECTURE.md or there, but not both: {difference:?}");
    for (name, text) in sources.iter().filter(|(name, _)| name.ends_with(".rs")) {
        assert!(text.starts_with("//!"), "{name} does not begin with a comment that says what is in it");
    }
}

#[test]
fn limits_stand_where_the_table_says() {
    let architecture = read("ARCHITECTURE.md");
    let (_, limits) = architecture.split_once("## Limits").expect("a table of limits");
    let (limits, _) = limits.split_once("\n## ").expect("a section after it");
    let mut checked = 0;
    for cells in
        limits.lines().map(|line| line.split('|').collect::<Vec<_>>()).filter(|cells| cells.len() == 5)
    {
        let code = |cell: &str| cell.split('`').skip(1).step_by(2).map(String::from).collect::<Vec<_>>();
        let [file] = &code(cells[2])[..] else { continue };
        let text = read(file);
        for name in code(cells[1]) {
            assert!(words_of_code(&text).any(|word| word == name), "{file} has no {name}");
            checked += 1;
        }
    }
    assert!(checked > 15, "only {checked} limits");
}
