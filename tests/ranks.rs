//! Participants that are cut among ranks: every result is to the byte that of one rank, and snapshots go on
//! with any number.

mod support;

use std::path::Path;
use std::process::Command;

use support::checkpointed::JET;
use support::process::{Folder, repository, stderr};
use support::ranks::{Results, assert_same, results};

fn run(scene: &Path, arguments: &[&str]) -> Results {
    let folder = Folder::new();
    let output = folder.run(scene, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    results(&folder)
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
