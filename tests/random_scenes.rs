//! Scenes made by chance: none explodes, leaks, gains energy or ends without a reason; what is refused,
//! `check` refuses.
//!
//! `cargo test --release --workspace --test random_scenes -- --ignored --nocapture` runs all of them.
//! `AMALGAM_SCENES=17,40..60` in its environment picks some, and `AMALGAM_SCENES_KEEP=DIR` keeps their files
//! there.

use std::process::Command;
use std::sync::Mutex;

#[allow(dead_code, reason = "each test file uses its part")]
mod support {
    pub(crate) mod at_once;
    pub(crate) mod process;
    pub(crate) mod random_scene;
}

use serde_json::Value;
use support::at_once::at_once;
use support::process::Folder;
use support::random_scene::{RandomScene, random_scene};

/// Scenes of the whole test.
const SCENES: u64 = 200;

/// Scenes of the short test.
const SHORT: u64 = 12;

/// End of a scene.
#[derive(Debug, PartialEq)]
enum Outcome {
    Right,
    /// By `check`, with its words.
    Refused(String),
    /// Ended, or warned of before, with words that say what to write.
    Told(String),
    Wrong(String),
}

#[test]
fn a_few_random_scenes_are_right_or_refused() {
    judge(&(0..SHORT).collect::<Vec<_>>());
}

#[test]
#[ignore = "takes some minutes"]
fn two_hundred_random_scenes_are_right_or_refused() {
    judge(&chosen());
}

/// The scenes that `AMALGAM_SCENES` names, or all.
fn chosen() -> Vec<u64> {
    let Ok(list) = std::env::var("AMALGAM_SCENES") else { return (0..SCENES).collect() };
    let number = |text: &str| text.trim().parse::<u64>().expect("a number of a scene");
    let range = |part: &str| match part.split_once("..") {
        Some((from, to)) => (number(from)..number(to)).collect(),
        None => vec![number(part)],
    };
    list.split(',').flat_map(range).collect()
}

fn judge(numbers: &[u64]) {
    let judged = Mutex::new(Vec::new());
    at_once(numbers, |&number| {
        let scene = random_scene(number);
        let outcome = outcome(number, &scene);
        println!("{number:3} {:45} {outcome:?}", scene.title);
        judged.lock().expect("no other thread panicked").push((number, scene.title, outcome));
    });
    let (mut right, mut refused, mut told) = (0, 0, 0);
    let mut wrong = Vec::new();
    for (number, title, outcome) in judged.into_inner().expect("no thread panicked") {
        match outcome {
            Outcome::Right => right += 1,
            Outcome::Refused(_) => refused += 1,
            Outcome::Told(_) => told += 1,
            Outcome::Wrong(reason) => wrong.push(format!("{number}: {title}: {reason}")),
        }
    }
    println!("{right} right, {refused} refused by check, {told} told what to write, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn outcome(number: u64, scene: &RandomScene) -> Outcome {
    let folder = Folder::new();
    let file = folder.scene(&scene.text);
    if let Ok(keep) = std::env::var("AMALGAM_SCENES_KEEP") {
        std::fs::copy(&file, format!("{keep}/{number}.toml")).expect("copies");
    }
    let check = Command::new(env!("CARGO_BIN_EXE_amalgam")).arg("check").arg(&file).output().expect("starts");
    if !check.status.success() {
        let words = String::from_utf8_lossy(&check.stderr).into_owned();
        return match check.status.code() {
            Some(2) => Outcome::Refused(words),
            code => Outcome::Wrong(format!("check ended with {code:?}: {words}")),
        };
    }
    let run = folder.run(&file, &["--transport", "in-process", "--threads", "2"]);
    let words = String::from_utf8_lossy(&run.stderr).into_owned();
    if !run.status.success() {
        let is_reason = run.status.code() == Some(1) && words.contains("write ");
        let ended = format!("the run ended with {:?}: {words}", run.status.code());
        return if is_reason { Outcome::Told(ended) } else { Outcome::Wrong(ended) };
    }
    // A surface that is warned of as a sieve may leak.
    let is_sieve = words.contains("fit through the surface");
    match faults(&folder.summary(), scene) {
        faults if faults.is_empty() => Outcome::Right,
        faults if is_sieve => Outcome::Told(faults.join("; ")),
        faults => Outcome::Wrong(faults.join("; ")),
    }
}

fn faults(summary: &Value, scene: &RandomScene) -> Vec<String> {
    let number = |path: &str| summary.pointer(path).and_then(Value::as_f64).expect("a number of the summary");
    let mut faults = Vec::new();
    let gained = number("/energy/unaccounted_relative_max");
    if gained.is_nan() || gained > 0.1 {
        faults.push(format!("gained {gained:.2} of the energy in play"));
    }
    let overlap = number("/contacts/overlap_relative_max");
    let depth = number("/probes/overlap/depth_max [m]/max") / scene.coarse_radius;
    // Beyond the larger radius a centre is on the wrong side of the other; a fine particle that is all inside
    // of a coarse one has gone through the surface that coarse ones make.
    if depth.is_nan() || depth > 1.0 || scene.fine_on_coarse && overlap > 2.0 {
        faults.push(format!("overlaps by {depth:.2} of the larger radius, {overlap:.2} of the smaller"));
    }
    if scene.sheet {
        let crossed = number("/probes/crossings/crossed [particles]/max");
        if crossed > 0.0 {
            faults.push(format!("{crossed} particles crossed the sheet"));
        }
    }
    faults
}
