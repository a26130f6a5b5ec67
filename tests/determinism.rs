//! The same scene gives the same bits: `state_hash` of `summary.json` for every number of threads, every
//! transport, with the interest mask and without, with and without probes, twice.

mod support;

use serde_json::Value;
use support::process::{Folder, repository, stderr};

/// Runs the scene with the real program and returns its summary.
fn summary(arguments: &[&str]) -> Value {
    let folder = Folder::new();
    let output = folder.run(&repository("tests/determinism.toml"), arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    folder.summary()
}

fn hash(summary: &Value) -> &str {
    summary["state_hash"].as_str().expect("a hash")
}

fn number(summary: &Value, pointer: &str) -> f64 {
    summary.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("no number at {pointer}"))
}

/// Checks that enough happens in the scene to make it worth comparing.
fn assert_eventful(summary: &Value) {
    assert!(number(summary, "/contacts/active_mean") > 1.0, "{summary:#}");
    assert!(number(summary, "/contacts/groups_mean") > 1.0, "{summary:#}");
    assert!(number(summary, "/contacts/group_size_max") > 2.0, "{summary:#}");
    assert_eq!(number(summary, "/stages/max"), 2.0, "{summary:#}");
    assert_ne!(hash(summary), "0000000000000000");
}

const IN_PROCESS: [&str; 3] = ["--transport", "in-process", "--quiet"];

#[test]
fn threads_transports_and_repetition_do_not_change_a_bit() {
    let reference = summary(&["--transport", "in-process", "--threads", "1"]);
    assert_eventful(&reference);
    let variants: [&[&str]; 6] = [
        &["--transport", "in-process", "--threads", "1"],
        &["--transport", "in-process", "--threads", "2", "--quiet"],
        &["--transport", "in-process", "--threads", "3"],
        &["--transport", "unix", "--threads", "2"],
        &["--transport", "unix", "--threads", "3", "--json"],
        &["--transport", "tcp", "--quiet"],
    ];
    for arguments in variants {
        let other = summary(arguments);
        assert_eq!(hash(&other), hash(&reference), "{arguments:?}");
        for pointer in
            ["/steps", "/contacts/active_mean", "/stages/mean", "/wire/bytes_in", "/wire/bytes_out"]
        {
            assert_eq!(number(&other, pointer), number(&reference, pointer), "{arguments:?}: {pointer}");
        }
    }
}

/// Finer, for few steps: every reduction then has several chunks, and more than one thread works at them.
#[test]
fn threads_do_not_change_a_bit_when_there_is_work_for_them() {
    let fine = |threads: &str| {
        summary(&[
            "--transport=in-process",
            "--quiet",
            "--threads",
            threads,
            "--set=time.duration=0.006",
            "--set=time.frame_interval=0.003",
            "--set=participants.water.settings.spacing=0.005",
            "--set=participants.water.settings.shapes[0].center=[0.0, 0.0, 0.1905]",
            "--set=participants.cloth.settings.bodies[0].spacing=0.0025",
            "--set=participants.cloth.settings.bodies[1].spacing=0.0025",
        ])
    };
    let reference = fine("1");
    assert!(number(&reference, "/participants/0/particles") > 8192.0);
    assert!(number(&reference, "/participants/1/particles") > 8192.0);
    assert!(number(&reference, "/contacts/active_mean") > 1.0, "{reference:#}");
    for threads in ["2", "3"] {
        assert_eq!(hash(&fine(threads)), hash(&reference), "{threads} threads");
    }
}

/// The contact law: every participant answers several times in a step, and its own pairs are looked for
/// ahead.
#[test]
fn the_contact_law_gives_the_same_bits_everywhere() {
    const LAW: &str = "--set=coupling.method=\"contact-law\"";
    let reference = summary(&["--transport", "in-process", "--threads", "1", LAW]);
    assert!(number(&reference, "/contacts/active_mean") > 10.0, "{reference:#}");
    assert!(number(&reference, "/coupling/repetitions_mean") > 1.0, "{reference:#}");
    let variants: [&[&str]; 4] = [
        &["--transport", "in-process", "--threads", "3"],
        &["--transport", "unix", "--threads", "2"],
        &["--transport", "tcp", "--quiet"],
        &["--transport", "in-process", "--set=coupling.interest_mask=false"],
    ];
    for arguments in variants {
        let other = summary(&[arguments, &[LAW]].concat());
        assert_eq!(hash(&other), hash(&reference), "{arguments:?}");
        assert_eq!(number(&other, "/steps"), number(&reference, "/steps"));
    }
}

#[test]
fn self_collision_matters_and_the_interest_mask_does_not() {
    let with = |arguments: &[&str]| summary(&[&IN_PROCESS[..], arguments].concat());
    let alone = "--set=participants.cloth.settings.self_collision=false";
    let unmasked = "--set=coupling.interest_mask=false";

    let colliding = with(&[]);
    let colliding_unmasked = with(&[unmasked]);
    assert_eventful(&colliding);
    assert_eq!(hash(&colliding), hash(&colliding_unmasked));

    // A cloth that collides with itself is wanted whole; one that does not is masked too.
    let masked = with(&[alone]);
    let whole = with(&[alone, unmasked]);
    assert_eventful(&masked);
    assert_ne!(hash(&masked), hash(&colliding), "no layer of the cloth touched the other");
    assert_eq!(hash(&masked), hash(&whole));
    for (less, more) in [(&colliding, &colliding_unmasked), (&masked, &whole), (&masked, &colliding)] {
        let (less, more) = (number(less, "/wire/bytes_in"), number(more, "/wire/bytes_in"));
        assert!(less < 0.95 * more, "the mask cuts nothing: {less} of {more} bytes");
    }
}

/// Probes look and do not touch, though they ask for whole sheets and track particles.
#[test]
fn probes_and_frames_do_not_change_a_bit() {
    let reference = summary(&IN_PROCESS);
    let folder = Folder::new();
    let text = std::fs::read_to_string(repository("tests/determinism.toml")).expect("reads");
    let probes = r#"
[[probes]]
name = "crossings"
quantity = "crossings"
sheet = "cloth"
of = "water"
[[probes]]
name = "sag"
quantity = "displacement"
participant = "cloth"
point = [0.0, 0.0, 0.1]
[[probes]]
name = "energy"
quantity = "energy"
[[probes]]
name = "overlap"
quantity = "overlap"
[[probes]]
name = "momentum"
quantity = "momentum"
participant = "water"
"#;
    let output = folder.run(&folder.scene(&(text + probes)), &IN_PROCESS);
    assert!(output.status.success(), "{}", stderr(&output));
    let probed = folder.summary();
    assert!(number(&probed, "/probes/overlap/depth_max [m]/max").is_finite(), "{probed:#}");
    assert_eq!(hash(&probed), hash(&reference));
    let without_frames = summary(&[&IN_PROCESS[..], &["--set=output.vtk=false"]].concat());
    assert_eq!(hash(&without_frames), hash(&reference));
}
