//! Participants that are cut among ranks: results of a scene, and comparisons of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use amalgam_frames::Frame;
use serde_json::Value;

use super::at_once::at_once;
use super::process::{Folder, stderr};

/// The hash of the last state with the account of contacts; frames with surfaces and tables of probes, by name.
/// Frames stand as what is read of them and, unless they are in parts, as their bytes.
pub(crate) type Results = ([Value; 2], BTreeMap<String, Vec<u8>>);

pub(crate) fn results(folder: &Folder) -> Results {
    let mut files = BTreeMap::new();
    for part in ["frames", "probes", "surfaces"] {
        let Ok(entries) = fs::read_dir(folder.out().join(part)) else { continue };
        for path in entries.map(|entry| entry.expect("an entry").path()) {
            let name = path.file_name().expect("a name").to_str().expect("UTF-8").to_string();
            let is_frame = part == "frames";
            let is_part = is_frame && name.matches('_').count() > 1;
            if is_frame && !is_part {
                let (stem, _) = name.split_once('.').expect("an extension");
                let frame = Frame::read(&path).expect("reads");
                files.insert(format!("{stem} as read"), format!("{frame:?}").into_bytes());
            }
            if !is_part && !name.ends_with(".pvtu") {
                files.insert(name, fs::read(&path).expect("reads"));
            }
        }
    }
    let summary = folder.summary();
    (["state_hash", "contacts"].map(|key| summary[key].clone()), files)
}

fn run_scene(folder: &Folder, scene: &Path, arguments: &[&str]) -> Results {
    let output = folder.run(scene, &[&["--quiet", "--transport=in-process"], arguments].concat());
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    results(folder)
}

#[track_caller]
pub(crate) fn assert_same(one: &Results, other: &Results, what: &str) {
    assert_eq!(one.0, other.0, "{what}");
    for (name, bytes) in &one.1 {
        let is_in_parts = name.ends_with(".vtu") && !other.1.contains_key(name);
        assert!(is_in_parts || other.1.get(name) == Some(bytes), "{what}: {name} differs");
    }
}

/// The same results of a scene file for these numbers of ranks of a participant.
#[track_caller]
pub(crate) fn assert_file_is_same_on_ranks(
    scene: &Path,
    arguments: &[&str],
    participant: &str,
    numbers: &[usize],
) -> Results {
    let cuts: Vec<[(&str, usize); 1]> = numbers.iter().map(|&number| [(participant, number)]).collect();
    assert_file_is_same_with_cuts(scene, arguments, &cuts)
}

/// The same results of a scene file for each of these cuts of several participants, each with its number of ranks.
#[track_caller]
pub(crate) fn assert_file_is_same_with_cuts<const N: usize>(
    scene: &Path,
    arguments: &[&str],
    cuts: &[[(&str, usize); N]],
) -> Results {
    let one = run_scene(&Folder::new(), scene, arguments);
    at_once(cuts, |cut| {
        let ranks = cut.map(|(participant, number)| format!("--ranks={participant}={number}"));
        let all = [arguments, &ranks.each_ref().map(String::as_str)].concat();
        let other = run_scene(&Folder::new(), scene, &all);
        assert_same(&one, &other, &format!("{ranks:?} {arguments:?}"));
    });
    one
}

/// The same results of a scene for these numbers of ranks of a participant.
#[track_caller]
pub(crate) fn assert_same_on_ranks(
    scene: &str,
    arguments: &[&str],
    participant: &str,
    numbers: &[usize],
) -> Results {
    let folder = Folder::new();
    assert_file_is_same_on_ranks(&folder.scene(scene), arguments, participant, numbers)
}

/// Four ranks stop at a checkpoint, and others go on.
pub(crate) fn assert_goes_on(scene: &str, participant: &str, step: u64) {
    let folder = Folder::new();
    let expected = run_scene(&folder, &folder.scene(scene), &[]);
    at_once(&[8, 1], |ranks| {
        let folder = Folder::new();
        let scene = folder.scene(scene);
        let four = format!("--ranks={participant}=4");
        let every = format!("--checkpoint-every={step}steps");
        let output = folder.run(&scene, &["--quiet", &four, &every, "--keep-checkpoints=100"]);
        assert!(output.status.success(), "{}", stderr(&output));
        let mut command = Command::new(env!("CARGO_BIN_EXE_amalgam"));
        let (from, ranks) = (format!("--from={step}"), format!("--ranks={participant}={ranks}"));
        command.arg("resume").arg(folder.out()).args(["--quiet", &from, &ranks]);
        let output = command.current_dir(folder.path()).output().expect("amalgam runs");
        assert!(output.status.success(), "{ranks}: {}", stderr(&output));
        assert_same(&expected, &results(&folder), &format!("4 ranks, then {ranks}"));
    });
}
