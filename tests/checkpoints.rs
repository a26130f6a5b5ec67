//! `amalgam run --checkpoint-every`, SIGTERM and `amalgam resume`, with real processes: the files after a
//! resume are to the byte those of an uninterrupted run.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use support::at_once::at_once;
use support::checkpointed::{CASES, Case, Source};
use support::process::{Folder, children, repository, signal, stderr, wait_until};

const LONGEST: Duration = Duration::from_secs(60);

/// The scene of a case as a file, and the arguments that change it.
fn scene(case: &Case, folder: &Folder) -> (PathBuf, Vec<String>) {
    let path = match case.source {
        Source::File(path) => repository(path),
        Source::Text(text) => folder.scene(text),
    };
    (path, case.set.iter().map(|set| format!("--set={set}")).collect())
}

/// `amalgam resume OUT ...`, not yet started.
fn resume(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_amalgam"));
    command.arg("resume").arg(folder.out()).args(arguments);
    command.current_dir(folder.path()).env("TMPDIR", folder.path().join("tmp"));
    command
}

fn assert_success(output: &Output, what: &str) {
    assert!(output.status.success(), "{what}: {}", stderr(output));
}

/// All files below a folder, by their path from it.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else {
                let name = entry.strip_prefix(folder).expect("inside").to_str().expect("UTF-8").to_string();
                found.insert(name, fs::read(&entry).expect("reads"));
            }
        }
    }
    found
}

/// The results of a run: frames, lists, pictures, tables, and of each checkpoint the participants' snapshots.
/// Manifests, the coordinator's state and the summary hold wall time, so they are not equal to the byte.
fn results(folder: &Folder, with_checkpoints: bool) -> BTreeMap<String, Vec<u8>> {
    let mut files = files(&folder.out());
    files.remove("summary.json");
    if let Some(work) = files.get_mut("work.csv") {
        *work = counts(work);
    }
    files.retain(|name, _| {
        !name.starts_with("checkpoints/") || with_checkpoints && name.contains("/participant-")
    });
    files
}

/// The columns of `work.csv` before those of wall time.
fn counts(work: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(work).expect("UTF-8");
    let columns = text.lines().next().expect("a head").split(',').position(|name| name == "begin [s]");
    let columns = columns.expect("a column of wall time");
    let row = |row: &str| row.split(',').take(columns).collect::<Vec<_>>().join(",");
    text.lines().map(row).collect::<Vec<_>>().join("\n").into_bytes()
}

fn assert_equal(expected: &BTreeMap<String, Vec<u8>>, seen: &BTreeMap<String, Vec<u8>>, what: &str) {
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(expected), names(seen), "{what}");
    for (name, bytes) in expected {
        assert!(bytes == &seen[name], "{what}: {name} differs");
    }
}

/// A summary without measurements.
fn exact(folder: &Folder) -> Value {
    let mut summary = folder.summary();
    let entries = summary.as_object_mut().expect("an object");
    entries.retain(|key, _| !["wall_s", "phases_s"].contains(&key.as_str()));
    for participant in entries["participants"].as_array_mut().expect("a list") {
        let participant = participant.as_object_mut().expect("an object");
        participant.retain(|key, _| !["solver_s", "waited_s"].contains(&key.as_str()));
    }
    summary
}

fn copy(from: &Path, to: &Path) {
    for (name, bytes) in files(from) {
        let path = to.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("creates");
        fs::write(path, bytes).expect("writes");
    }
}

/// Steps of the checkpoints that a folder of results holds.
fn steps(folder: &Folder) -> Vec<u64> {
    let Ok(entries) = fs::read_dir(folder.out().join("checkpoints")) else { return Vec::new() };
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
    let mut steps: Vec<u64> = names.filter_map(|name| name.strip_prefix("step-")?.parse().ok()).collect();
    steps.sort_unstable();
    steps
}

/// The number of the next frame, as the manifest of a checkpoint has it.
fn next_frame(folder: &Folder, step: u64) -> u64 {
    let manifest =
        fs::read(folder.out().join(format!("checkpoints/step-{step:06}/manifest"))).expect("reads");
    let text = String::from_utf8_lossy(&manifest);
    let (_, rest) = text.split_once("\"frame\": ").expect("a number of frames");
    rest.split(',').next().expect("a number").parse().expect("a number")
}

/// Spoils whatever a run wrote after a checkpoint: the run that goes on has to write it anew.
fn spoil_after(folder: &Folder, step: u64) {
    let frame = next_frame(folder, step);
    let mut spoilt = 0;
    for name in files(&folder.out()).into_keys() {
        let path = folder.out().join(&name);
        let stem = path.file_stem().expect("a name").to_str().expect("UTF-8");
        let number: Option<u64> = stem.rsplit('_').next().and_then(|digits| digits.parse().ok());
        let is_later = ["frames/", "pictures/", "surfaces/"].iter().any(|of| name.starts_with(of))
            && number.is_some_and(|number| number >= frame);
        if is_later {
            fs::write(&path, "a frame that is cut").expect("writes");
            spoilt += 1;
        } else if name.ends_with(".csv") {
            let mut table = fs::read(&path).expect("reads");
            table.truncate(table.len() - 3);
            fs::write(&path, table).expect("writes");
        }
    }
    assert!(spoilt > 0, "no frame is later than step {step}");
}

#[test]
fn what_is_resumed_is_equal_to_the_byte() {
    at_once(CASES, is_equal_to_the_byte);
}

/// Checks that a scene resumed in a fresh process is equal to the byte. `tests/resume.rs` resumes it at all
/// steps of the case, in this process.
fn is_equal_to_the_byte(case: &Case) {
    let name = case.name;
    let whole = Folder::new();
    let (path, set) = scene(case, &whole);
    let set: Vec<&str> = set.iter().map(String::as_str).collect();
    let output = whole.run(&path, &[&set[..], &["--quiet"]].concat());
    assert_success(&output, name);
    assert!(!whole.out().join("checkpoints").exists(), "{name}: nobody asked for checkpoints");

    let saving = Folder::new();
    let (path, _) = scene(case, &saving);
    // Every number of steps that checkpoints of this case are wanted at is a multiple of some number; all are
    // kept.
    let every = case.steps.iter().copied().reduce(divisor).expect("steps").to_string() + " steps";
    let how = ["--checkpoint-every", &every, "--keep-checkpoints=1000", "--quiet", "--transport=in-process"];
    assert_success(&saving.run(&path, &[&set[..], &how].concat()), name);
    assert_equal(&results(&whole, false), &results(&saving, false), &format!("{name}: with checkpoints"));
    let summary = exact(&saving);
    assert_eq!(summary["state_hash"], exact(&whole)["state_hash"], "{name}");

    let step = case.steps[1];
    assert!(steps(&saving).contains(&step), "{name}: {step} of {:?}", steps(&saving));
    let again = Folder::new();
    copy(&saving.out(), &again.out());
    spoil_after(&again, step);
    let from = step.to_string();
    assert_success(&resume(&again, &["--from", &from, "--quiet"]).output().expect("starts"), name);
    let what = format!("{name}: from step {step}");
    assert_equal(&results(&saving, true), &results(&again, true), &what);
    assert_eq!(summary, exact(&again), "{what}");
}

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

const DROP: &str = "scenes/small/drop.toml";

/// A run of `drop` without checkpoints, to compare with.
fn whole_drop() -> BTreeMap<String, Vec<u8>> {
    let folder = Folder::new();
    assert_success(&folder.run(&repository(DROP), &["--quiet"]), "drop");
    results(&folder, false)
}

/// Again and again: each resumed run is ended by a signal, and the next one goes on.
#[test]
fn a_signal_leaves_a_checkpoint_to_go_on_from() {
    let folder = Folder::new();
    let mut command = folder.command(&repository(DROP), &["--threads=1"]);
    let mut taken: Vec<u64> = Vec::new();
    for name in ["TERM", "INT", "TERM"] {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        let list = folder.out().join("probes/energy.csv");
        let rows = || fs::read_to_string(&list).map_or(0, |text| text.lines().count() as u64);
        let before = taken.last().copied().unwrap_or(0);
        assert!(wait_until(LONGEST, || (before + 20..600).contains(&rows())), "{} rows", rows());
        signal(child.id(), name);
        let output = child.wait_with_output().expect("ends");
        assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("to go on: amalgam resume ") && text.contains("(interrupted)"), "{text}");
        let summary = folder.summary();
        let said = summary["resume"].as_str().expect("a command");
        assert_eq!(said, format!("amalgam resume {}", folder.out().display()));
        taken = steps(&folder);
        assert_eq!(summary["steps"].as_u64(), taken.last().copied(), "{taken:?}");
        assert!(*taken.last().expect("a checkpoint") > before && taken.len() <= 2, "{taken:?}");
        command = resume(&folder, &["--threads=1"]);
    }
    let output = command.output().expect("starts");
    assert_success(&output, "the last one");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("to go on"));
    assert_eq!(folder.summary()["resume"], Value::Null);
    assert_equal(&whole_drop(), &results(&folder, false), "resumed three times");
}

/// A participant that is killed: the message names the last checkpoint and the command, and the command goes
/// on.
#[test]
fn a_lost_participant_is_told_with_the_way_to_go_on() {
    let folder = Folder::new();
    let every = ["--checkpoint-every=10steps", "--threads=1", "--quiet"];
    let child = folder.command(&repository(DROP), &every).stderr(Stdio::piped()).spawn().expect("starts");
    assert!(
        wait_until(LONGEST, || steps(&folder).last().is_some_and(|step| *step >= 30)),
        "{:?}",
        steps(&folder)
    );
    let solver = *children(child.id()).last().expect("a solver");
    signal(solver, "KILL");
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let last = *steps(&folder).last().expect("a checkpoint");
    let way = format!("to go on from step {last}: amalgam resume {}", folder.out().display());
    assert!(stderr(&output).contains(&way), "{} does not hold {way}", stderr(&output));
    assert_eq!(folder.summary()["resume"], format!("amalgam resume {}", folder.out().display()));
    assert_success(&resume(&folder, &["--quiet"]).output().expect("starts"), "resumed");
    assert_equal(&whole_drop(), &results(&folder, false), "after a killed solver");
}

/// With --reconnect the run goes on by itself, whichever solver is killed at whatever moment.
#[test]
fn a_run_that_loses_its_solvers_is_equal_to_the_byte() {
    let folder = Folder::new();
    let how = ["--reconnect=1m", "--checkpoint-every=10steps", "--threads=1", "--quiet"];
    let run = folder.command(&repository(DROP), &how).stderr(Stdio::piped()).spawn().expect("starts");
    for killed in 1..=4 {
        let is_on = || steps(&folder).last().is_some_and(|step| *step >= 40 * killed);
        assert!(wait_until(LONGEST, is_on), "{:?}", steps(&folder));
        let solvers = children(run.id());
        signal(solvers[killed as usize % solvers.len()], "KILL");
    }
    let output = run.wait_with_output().expect("ends");
    assert_success(&output, "it goes on");
    assert_eq!(folder.summary()["recoveries"], 4, "{}", stderr(&output));
    assert_equal(&whole_drop(), &results(&folder, false), "after four killed solvers");
}

/// The run itself is killed, whatever it is about: the next one goes on from what is whole.
#[test]
fn a_killed_run_goes_on_from_its_last_checkpoint() {
    let folder = Folder::new();
    let every = ["--checkpoint-every=1step", "--quiet"];
    let mut command = folder.command(&repository(DROP), &every);
    for killed in 1..=4 {
        let before = steps(&folder).last().copied().unwrap_or(0);
        let mut child = command.spawn().expect("starts");
        let is_on = || steps(&folder).last().is_some_and(|step| *step > before + 20 + killed);
        assert!(wait_until(LONGEST, is_on), "{:?}", steps(&folder));
        child.kill().expect("ends");
        child.wait().expect("ends");
        command = resume(&folder, &["--quiet", "--checkpoint-every=1step"]);
    }
    assert_success(
        &resume(&folder, &["--quiet", "--checkpoint-every=100steps"]).output().expect("starts"),
        "the last",
    );
    assert_equal(&whole_drop(), &results(&folder, false), "killed four times");
    assert!(files(&folder.out()).keys().all(|name| !name.contains(".tmp/") && !name.contains(".old/")));
}

/// The limit of the size of files stands for a full disk: the run goes on with a warning, the last whole one
/// stays.
#[test]
fn a_checkpoint_that_the_disk_does_not_take_costs_none() {
    let case = CASES.iter().find(|case| case.name == "jet and sink").expect("the scene that grows");
    let folder = Folder::new();
    let (scene, _) = scene(case, &folder);
    let set = "--set=participants.water.settings.spacing=0.013";
    let end = "--set=time.duration=0.12";
    // Blocks of 512 bytes: the summary's reserve of 64 KiB fits, the water's snapshot does not when there is
    // more of it.
    let limit = "trap '' XFSZ; ulimit -f 136; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command
        .args(["-c", limit, env!("CARGO_BIN_EXE_amalgam"), "run"])
        .arg(&scene)
        .arg("--out")
        .arg(folder.out());
    command.args([set, end, "--set=output.vtk=false", "--checkpoint-every=20steps"]);
    command.current_dir(folder.path()).env("TMPDIR", folder.path().join("tmp"));
    let output = command.output().expect("starts");
    assert_success(&output, "limited");
    let text = stderr(&output);
    let last = *steps(&folder).last().expect("a checkpoint");
    assert!(text.contains(&format!("the last whole checkpoint is that of step {last}")), "{text}");
    assert!(text.contains("participant-water") && last > 20, "{last}: {text}");
    assert!(files(&folder.out()).keys().all(|name| !name.contains(".tmp/")), "nothing unfinished is left");
    let limited = (results(&folder, false), exact(&folder));
    assert_success(&resume(&folder, &["--quiet"]).output().expect("starts"), "resumed");
    assert!(*steps(&folder).last().expect("a checkpoint") > last, "now there is room");
    assert_equal(&limited.0, &results(&folder, false), "resumed");
    assert_eq!(limited.1["state_hash"], exact(&folder)["state_hash"]);
}

/// Each fault of a user or of a disk is reported, and nothing is changed.
#[test]
fn what_cannot_be_resumed_is_told() {
    let folder = Folder::new();
    let how = ["--checkpoint-every=10steps", "--frames=2", "--quiet"];
    assert_success(&folder.run(&repository(DROP), &how), "drop");
    let known = steps(&folder);
    assert_eq!(known.len(), 2, "two are kept: {known:?}");
    let refused = |arguments: &[&str], code: i32, parts: &[&str]| {
        let before = files(&folder.out());
        let output = resume(&folder, arguments).output().expect("starts");
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{error}");
        parts.iter().for_each(|part| assert!(error.contains(part), "{error} does not hold {part}"));
        assert_equal(&before, &files(&folder.out()), "a refusal");
    };
    refused(&["--from=7"], 2, &["no checkpoint of step 7", &known[0].to_string()]);
    let path = |step: u64, file: &str| folder.out().join(format!("checkpoints/step-{step:06}/{file}"));
    let change = |path: &Path, at: usize| {
        let mut bytes = fs::read(path).expect("reads");
        let at = at.min(bytes.len() - 1);
        bytes[at] ^= 4;
        fs::write(path, bytes).expect("writes");
    };
    let water = path(known[1], "participant-water");
    change(&water, 5000);
    let from = known[1].to_string();
    refused(&["--from", &from], 1, &["participant-water", "the checksum differs"]);
    // Without --from the one before it is taken, and that is said.
    let (first, second) = (Folder::new(), Folder::new());
    copy(&folder.out(), &first.out());
    let output = resume(&first, &[]).output().expect("starts");
    assert_success(&output, "the one before");
    assert!(stderr(&output).contains("warning: a checkpoint is left out: "), "{}", stderr(&output));
    assert_equal(&results(&folder, false), &results(&first, false), "from the one before");
    change(&water, 5000);
    let scene = folder.out().join("scene.toml");
    let text = fs::read_to_string(&scene).expect("reads");
    fs::write(&scene, text.replace("seed = 1", "seed = 5")).expect("writes");
    refused(&["--from", &from], 1, &["manifest", "it is of another scene: put back scene.toml as it was"]);
    fs::write(&scene, text).expect("writes");
    fs::remove_file(folder.out().join("frames/water_000001.vtu")).expect("removes");
    refused(&[], 1, &["water_000001.vtu", "results from before the checkpoint"]);
    // Folders without checkpoints, without results, and with something else.
    fs::create_dir_all(second.out()).expect("creates");
    let told = |folder: &Folder| stderr(&resume(folder, &[]).output().expect("starts"));
    assert!(told(&second).contains("holds no results of a run"), "{}", told(&second));
    assert_success(&second.run(&repository(DROP), &["--frames=1", "--quiet"]), "drop");
    assert!(told(&second).contains("holds no checkpoint; `amalgam run` writes one with --checkpoint-every"));
}

/// Files that a section names are part of what is gone on from.
#[test]
fn another_mesh_is_refused() {
    let folder = Folder::new();
    let mesh = folder.path().join("soft-octahedron.obj");
    fs::copy(repository("scenes/small/soft-octahedron.obj"), &mesh).expect("copies");
    let scene =
        folder.scene(&fs::read_to_string(repository("scenes/small/soft-bodies.toml")).expect("reads"));
    let how = ["--set=time.duration=0.04", "--checkpoint-every=5steps", "--quiet"];
    assert_success(&folder.run(&scene, &how), "soft bodies");
    let text = fs::read_to_string(&mesh).expect("reads");
    let taller = text.replacen("v 0 0 1", "v 0 0 1.2", 1);
    assert_ne!(taller, text, "the mesh has a vertex at the top");
    fs::write(&mesh, taller).expect("writes");
    let output = resume(&folder, &["--quiet"]).output().expect("starts");
    let error = stderr(&output);
    assert!(
        !output.status.success() && error.contains("participant bodies begins with other particles"),
        "{error}"
    );
    fs::write(&mesh, text).expect("writes");
    assert_success(&resume(&folder, &["--quiet"]).output().expect("starts"), "the mesh as it was");
}
