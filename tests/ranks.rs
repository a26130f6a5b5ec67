//! Participants that are cut among ranks: every result is to the byte that of one rank, and snapshots go on
//! with any number.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use support::checkpointed::JET;
use support::process::{Folder, repository, stderr};

/// Frames and tables of probes, by name, and the hash of the last state. Frames stand as their bytes, unless they
/// are in parts, and as what is read of them.
fn results(folder: &Folder) -> (Value, BTreeMap<String, Vec<u8>>) {
    let mut files = BTreeMap::new();
    for part in ["frames", "probes"] {
        let Ok(entries) = fs::read_dir(folder.out().join(part)) else { continue };
        for path in entries.map(|entry| entry.expect("an entry").path()) {
            let name = path.file_name().expect("a name").to_str().expect("UTF-8").to_string();
            let is_frame = ["vtu", "pvtu"].iter().any(|kind| path.extension() == Some(kind.as_ref()));
            let is_part = is_frame && name.matches('_').count() > 1;
            if is_frame && !is_part {
                let (stem, _) = name.split_once('.').expect("an extension");
                let frame = amalgam_frames::Frame::read(&path).expect("reads");
                files.insert(format!("{stem} as read"), format!("{frame:?}").into_bytes());
            }
            if !is_part && !name.ends_with(".pvtu") {
                files.insert(name, fs::read(&path).expect("reads"));
            }
        }
    }
    (folder.summary()["state_hash"].clone(), files)
}

fn run(scene: &Path, arguments: &[&str]) -> (Value, BTreeMap<String, Vec<u8>>) {
    let folder = Folder::new();
    let output = folder.run(scene, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    results(&folder)
}

#[track_caller]
fn assert_same(
    one: &(Value, BTreeMap<String, Vec<u8>>),
    other: &(Value, BTreeMap<String, Vec<u8>>),
    what: &str,
) {
    for (name, bytes) in &one.1 {
        let is_in_parts = name.ends_with(".vtu") && !other.1.contains_key(name);
        assert!(is_in_parts || other.1.get(name) == Some(bytes), "{what}: {name} differs");
    }
    assert_eq!(one.0, other.0, "{what}");
}

#[test]
fn water_on_cloth_is_the_same_on_any_number_of_ranks() {
    let scene = repository("tests/determinism.toml");
    let one = run(&scene, &["--quiet"]);
    for (ranks, transport) in [("2", "in-process"), ("3", "unix"), ("5", "in-process"), ("8", "in-process")] {
        let ranks = format!("--ranks=water={ranks}");
        let other = run(&scene, &["--quiet", &ranks, "--transport", transport]);
        assert_same(&one, &other, &ranks);
    }
}

#[test]
fn the_contact_law_is_the_same_on_any_number_of_ranks() {
    let scene = repository("tests/determinism.toml");
    let law = ["--quiet", "--transport=in-process", "--set=coupling.method=contact-law"];
    let one = run(&scene, &law);
    let other = run(&scene, &[&law[..], &["--ranks=water=4"]].concat());
    assert_same(&one, &other, "4 ranks");
    // SPH counts what obstacles fill in its density.
    let ball = "--set=domain.obstacles=[{ name = 'ball', shape = { type = 'sphere', center = [0.105, 0.0, 0.18], radius = 0.03 } }]";
    let law = [&law[..], &[ball]].concat();
    let beside = run(&scene, &law);
    assert_ne!(one.0, beside.0);
    assert_same(&beside, &run(&scene, &[&law[..], &["--ranks=water=4"]].concat()), "4 ranks beside a ball");
}

/// Particles that appear, disappear and are watched by probes, and a checkpoint of four ranks that goes on
/// with others.
#[test]
fn a_checkpoint_of_four_ranks_goes_on_with_any_number() {
    let one = Folder::new();
    let scene = one.scene(JET);
    let output = one.run(&scene, &["--quiet"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let expected = results(&one);
    for ranks in ["1", "4", "7"] {
        let folder = Folder::new();
        let arguments =
            ["--quiet", "--ranks=water=4", "--checkpoint-every=25steps", "--keep-checkpoints=100"];
        let output = folder.run(&scene, &arguments);
        assert!(output.status.success(), "{}", stderr(&output));
        let mut command = Command::new(env!("CARGO_BIN_EXE_amalgam"));
        command.arg("resume").arg(folder.out()).args([
            "--quiet",
            "--from=75",
            &format!("--ranks=water={ranks}"),
        ]);
        let output = command.current_dir(folder.path()).output().expect("amalgam runs");
        assert!(output.status.success(), "{ranks} ranks: {}", stderr(&output));
        assert_same(&expected, &results(&folder), &format!("4 ranks, then {ranks}"));
    }
}

#[test]
fn a_wrong_choice_of_ranks_says_so() {
    let refused = |arguments: &[&str]| {
        let folder = Folder::new();
        let output = folder.run(&repository("tests/determinism.toml"), arguments);
        assert!(!output.status.success(), "{arguments:?}");
        stderr(&output)
    };
    let name = refused(&["--ranks=watr=2"]);
    assert!(name.contains("no participant `watr`") && name.contains("water"), "{name}");
    let number = refused(&["--ranks=water=0"]);
    assert!(number.contains("such as water=4"), "{number}");
}
