//! Documents are true to the code: works cited have an entry, links lead somewhere, keys are described, and
//! scenes in documents are right.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use amalgam::scene::{OutputSettings, PictureSettings, Scene, Served, SurfaceOutput, UsdOutput};
use amalgam_coordinator::{
    CouplingSettings, DomainSettings, ParticipantSummary, Quantity, Summary, TimeSettings,
};
use amalgam_solver_fluid::FluidProgram;
use amalgam_solver_kit::{SolverProgram, World};
use amalgam_solver_solid::SolidProgram;
use glam::DVec3;
use serde::de::DeserializeOwned;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Sources and documents of the repository, by path from its root.
fn files(extensions: &[&str]) -> BTreeMap<String, String> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder of the repository") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') && !["target", "out"].contains(&name.as_str()) {
                walk(&path, found);
            } else if path.is_file() {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(), &mut found);
    let wanted = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extensions.iter().any(|one| extension == *one))
    };
    let named = |path: PathBuf| {
        let name = path.strip_prefix(root()).expect("below the root").display().to_string();
        (name, read(&path))
    };
    found.into_iter().filter(wanted).map(named).collect()
}

/// Keys in brackets such as Truong2021, perhaps with a place after a comma.
fn citations(text: &str) -> BTreeSet<String> {
    let inside = text.split('[').skip(1).filter_map(|rest| rest.split_once(']')).map(|(inside, _)| inside);
    let key = |inside: &str| inside.split(',').next().unwrap_or_default().to_string();
    inside.map(key).filter(|key| is_citation(key)).collect()
}

fn is_citation(key: &str) -> bool {
    let digits = key.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (name, _) = key.split_at(key.len() - digits);
    digits == 4
        && name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.chars().all(|c| c.is_ascii_alphabetic())
        // Documents write "Key" where any key may stand.
        && name != "Key"
}

#[test]
fn citations_are_found() {
    let text = "as [Truong2021], Eq. 4; [Ericson2005, 5.1.5]; [m/s], [0, 1], [`v1`], [Keys], [Key2021] and [A20215].";
    assert_eq!(citations(text), ["Ericson2005", "Truong2021"].map(String::from).into());
}

#[test]
fn every_work_cited_is_in_the_bibliography_and_every_entry_is_cited() {
    let bibliography = read(&root().join("docs/references.bib"));
    let key = |line: &str| Some(line.strip_prefix('@')?.split_once('{')?.1.trim_end_matches(',').to_string());
    let entries: BTreeSet<String> = bibliography.lines().filter_map(key).collect();
    let mut cited = BTreeSet::new();
    for (name, text) in files(&["rs", "md", "proto", "toml"]) {
        // This file holds made-up examples.
        let text = if name == "amalgam/tests/references.rs" { String::new() } else { text };
        for key in citations(&text) {
            assert!(entries.contains(&key), "{name} cites [{key}], which docs/references.bib does not have");
            cited.insert(key);
        }
    }
    assert_eq!(cited, entries, "works cited and entries of docs/references.bib");
}

#[test]
fn links_of_documents_lead_somewhere() {
    let mut checked = 0;
    for (name, text) in files(&["md"]) {
        let folder = root().join(&name).parent().expect("a folder").to_path_buf();
        for target in
            text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
        {
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            if path.contains("://") {
                continue;
            }
            let path = if path.is_empty() { root().join(&name) } else { folder.join(path) };
            assert!(path.exists(), "{name}: the link to {target} leads nowhere");
            assert!(
                heading.is_empty() || headings(&read(&path)).contains(heading),
                "{name}: no heading {target}"
            );
            checked += 1;
        }
    }
    assert!(checked > 30, "only {checked} links");
}

/// Names of headings as links write them.
fn headings(text: &str) -> BTreeSet<String> {
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .map(|line| line.trim_start_matches('#').trim());
    let kept = |c: char| c.is_alphanumeric() || " -_".contains(c);
    lines
        .map(|line| line.to_lowercase().chars().filter(|&c| kept(c)).collect::<String>().replace(' ', "-"))
        .collect()
}

#[test]
fn documents_that_sources_name_exist() {
    let mut checked = 0;
    for (name, text) in files(&["rs"]) {
        if name == "amalgam/tests/references.rs" {
            continue;
        }
        // Comments may break lines between a document and its section.
        let text: String =
            text.lines().map(|line| line.trim_start().trim_start_matches(['/', '!'])).collect();
        for rest in text.split("docs/").skip(1) {
            let end = rest.find(|c: char| !(c.is_alphanumeric() || "._-/".contains(c))).unwrap_or(rest.len());
            let document = rest[..end].trim_end_matches('.');
            let path = root().join("docs").join(document);
            assert!(path.exists(), "{name} names docs/{document}, which is not there");
            if let Some((section, _)) =
                rest[end..].strip_prefix("`, \"").and_then(|rest| rest.split_once('"'))
            {
                let text = read(&path);
                let mut headings = text.lines().filter(|line| line.starts_with("##"));
                let known = headings.any(|heading| heading.contains(section));
                assert!(known, "{name} names the section \"{section}\", which docs/{document} does not have");
                checked += 1;
            }
        }
    }
    assert!(checked > 5, "only {checked} sections");
}

/// Names that serde suggests in place of an unknown one.
fn offered(error: &str) -> Vec<String> {
    let (_, expected) = error.split_once("expected ").unwrap_or_else(|| panic!("no names in: {error}"));
    expected.split('`').skip(1).step_by(2).map(String::from).collect()
}

fn keys_of<T: DeserializeOwned>(text: &str) -> Vec<String> {
    match toml::from_str::<T>(text) {
        Ok(_) => panic!("the unknown key passes"),
        Err(error) => offered(error.message()),
    }
}

fn keys_of_section(program: &impl SolverProgram, section: &str) -> Vec<String> {
    let domain = (DVec3::ZERO, DVec3::ONE);
    let world = World {
        participant: "one".into(),
        domain,
        gravity: DVec3::NEG_Z,
        seed: 0,
        obstacles: Vec::new(),
        ranks: amalgam_solver_kit::Ranks::alone(),
    };
    let faults = program.create(section, &world).err().expect("the unknown key is refused");
    let fault =
        faults.iter().find(|fault| fault.message.contains("zzz")).expect("a fault of the unknown key");
    offered(&fault.message)
}

fn check_described(document: &str, keys: &[String]) {
    assert!(!keys.is_empty(), "no keys for {document}");
    let text = read(&root().join("docs").join(document));
    for key in keys {
        let in_code = text
            .split('`')
            .skip(1)
            .step_by(2)
            .any(|code| code.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == key));
        assert!(in_code, "docs/{document} does not describe the key `{key}`");
    }
}

#[test]
fn every_key_of_a_scene_is_described() {
    let unknown = "zzz = 1";
    check_described("reference/scene.md", &keys_of::<DomainSettings>(unknown));
    check_described("reference/scene.md", &keys_of::<TimeSettings>(unknown));
    check_described("reference/scene.md", &keys_of::<CouplingSettings>(unknown));
    check_described("reference/scene.md", &keys_of::<OutputSettings>(unknown));
    check_described("reference/scene.md", &keys_of::<PictureSettings>(unknown));
    check_described("reference/scene.md", &keys_of::<SurfaceOutput>(unknown));
    check_described("reference/scene.md", &keys_of::<UsdOutput>(unknown));
    check_described("reference/scene.md", &keys_of::<Quantity>("quantity = 'zzz'"));
    check_described("reference/scene.md", &keys_of::<amalgam::scene::Header>(unknown));
    check_described("reference/scene.md", &keys_of::<PictureSettings>("colours = { water = { zzz = 1 } }"));
    check_described(
        "reference/scene.md",
        &keys_of::<PictureSettings>("colours = { water = { ramp = 'zzz' } }"),
    );
    check_described("reference/fluid.md", &keys_of_section(&FluidProgram, "zzz = 1"));
    check_described("reference/fluid.md", &keys_of_section(&FluidProgram, "method = 'flip'\nzzz = 1"));
    check_described("reference/solid.md", &keys_of_section(&SolidProgram, "zzz = 1"));
    for kind in ["sheet", "volume", "points", "grains"] {
        let section = format!("method = 'mass-spring'\n[[bodies]]\ntype = '{kind}'\nzzz = 1");
        check_described("reference/solid.md", &keys_of_section(&SolidProgram, &section));
    }
    for kind in ["box", "sphere", "cylinder", "ellipsoid", "torus", "shell", "mesh", "difference", "points"] {
        let section = format!("spacing = 0.1\n[[shapes]]\ntype = '{kind}'\nzzz = 1");
        check_described("reference/scene.md", &keys_of_section(&FluidProgram, &section));
    }
}

#[test]
fn every_entry_of_the_summary_is_described() {
    let summary = Summary { participants: vec![ParticipantSummary::default()], ..Summary::default() };
    fn keys(value: &serde_json::Value, found: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(entries) => entries.iter().for_each(|(key, value)| {
                found.push(key.clone());
                keys(value, found);
            }),
            serde_json::Value::Array(values) => values.iter().for_each(|value| keys(value, found)),
            _ => {}
        }
    }
    let mut found = ["interrupted", "error", "last", "min", "max"].map(String::from).to_vec();
    keys(&serde_json::to_value(&summary).expect("a summary is JSON"), &mut found);
    check_described("reference/summary.md", &found);
}

#[test]
fn scenes_in_documents_are_right() {
    let mut checked = 0;
    for (name, text) in files(&["md"]) {
        for block in
            text.split("```toml\n").skip(1).filter_map(|rest| rest.split_once("```")).map(|(block, _)| block)
        {
            let parsed: Result<toml::Table, _> = toml::from_str(block);
            assert!(parsed.is_ok(), "{name}: this is not TOML:\n{block}");
            // Parts of scenes get the tables that they lack.
            let mut scene = block.to_string();
            for (table, rest) in [
                ("[scene]", "name = 'example'"),
                ("[domain]", "min = [-1, -1, 0]\nmax = [1, 1, 2]"),
                ("[time]", "duration = 1"),
            ] {
                if !scene.contains(table) {
                    scene += &format!("\n{table}\n{rest}\n");
                }
            }
            for (name, solver) in [("cloth", "solid"), ("water", "fluid")] {
                if !scene.contains(&format!("name = \"{name}\"")) {
                    scene += &format!("\n[[participants]]\nname = \"{name}\"\nsolver = \"{solver}\"\n");
                }
            }
            let scene =
                Scene::parse(&name, &scene, &[]).unwrap_or_else(|error| panic!("{name}: {error:?}\n{block}"));
            for participant in scene.participants.iter().filter(|one| !one.section.is_empty()) {
                let Served::Locally(kind) = participant.served else { continue };
                let domain = (scene.domain.min, scene.domain.max);
                let world = World {
                    participant: name.clone(),
                    domain,
                    gravity: scene.domain.gravity,
                    seed: 0,
                    obstacles: Vec::new(),
                    ranks: amalgam_solver_kit::Ranks::alone(),
                };
                let created = kind.program().create(&participant.section, &world);
                assert!(created.is_ok(), "{name}: {:?}\n{block}", created.err());
                checked += 1;
            }
        }
    }
    assert!(checked >= 4, "only {checked} sections");
}
