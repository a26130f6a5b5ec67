//! Whole runs of a small scene: their results, and their ends.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

fn scene() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenes/small/drop.toml")
}

/// `amalgam run` of the drop scene in a folder of its own, with its temporary files in `folder/tmp`.
fn command(folder: &Path, arguments: &[&str]) -> Command {
    let temporary = folder.join("tmp");
    fs::create_dir_all(&temporary).expect("creates");
    let mut command = Command::new(env!("CARGO_BIN_EXE_amalgam"));
    command.arg("run").arg(scene()).args(arguments).current_dir(folder).env("TMPDIR", temporary);
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

fn summary(folder: &Path) -> serde_json::Value {
    let text = fs::read_to_string(folder.join("out/drop/summary.json")).expect("there is a summary");
    serde_json::from_str(&text).expect("the summary is JSON")
}

fn files(folder: &Path) -> BTreeSet<String> {
    let names = fs::read_dir(folder).expect("the folder is there");
    names.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

fn strings(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

#[test]
fn a_run_leaves_frames_pictures_tables_and_a_summary() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("out/drop");
    let output = run(folder.path(), &["--frames", "2", "--json", "--set", "output.pictures.every=2"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!text(&output.stderr).contains("did not end"), "its solvers end: {}", text(&output.stderr));
    let expected = [
        ".lock",
        "cloth.pvd",
        "frames",
        "pictures",
        "probes",
        "scene.toml",
        "summary.json",
        "surfaces",
        "water.pvd",
        "work.csv",
    ];
    assert_eq!(files(&out), strings(&expected));
    assert_eq!(files(&out.join("frames")).len(), 6, "three frames of two participants");
    assert_eq!(files(&out.join("pictures")), strings(&["000000.png", "000002.png"]));
    assert_eq!(files(&out.join("probes")), strings(&["crossings.csv", "energy.csv", "momentum.csv"]));
    let printed: serde_json::Value = serde_json::from_str(text(&output.stdout)).expect("--json prints JSON");
    let summary = summary(folder.path());
    assert_eq!(printed, summary);
    assert_eq!(summary["error"], serde_json::Value::Null);
    assert_eq!(summary["interrupted"], false);
    let simulated = summary["simulated_s"].as_f64().expect("a number");
    assert!((simulated - 0.04).abs() < 1e-12, "two frames of 0.02 s, not {simulated} s");
    let rows = fs::read_to_string(out.join("probes/momentum.csv")).expect("reads").lines().count() as u64;
    assert_eq!(Some(rows - 1), summary["steps"].as_u64(), "a row per step below the header");
    assert_eq!(files(&folder.path().join("tmp")), BTreeSet::new(), "sockets are removed");
}

#[test]
fn the_scene_beside_the_results_repeats_the_run_and_replaces_its_results() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let set = ["--set", "coupling.method=merge-split", "--set", "coupling.alpha=0.25"];
    let first = run(folder.path(), &[&["--frames", "2", "--quiet"][..], &set].concat());
    assert!(first.status.success(), "{}", text(&first.stderr));
    assert_eq!(text(&first.stdout), "", "--quiet");
    let before = summary(folder.path());
    let out = folder.path().join("out/drop");
    fs::write(out.join("frames/cloth_000099.vtu"), "of an earlier, longer run").expect("writes");
    fs::write(out.join("notes.txt"), "mine").expect("writes");
    let mut again = Command::new(env!("CARGO_BIN_EXE_amalgam"));
    again.args(["run", "out/drop/scene.toml", "--quiet", "--transport", "in-process", "--threads", "1"]);
    let again = again.current_dir(folder.path()).output().expect("the program starts");
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert_eq!(before["state_hash"], summary(folder.path())["state_hash"]);
    assert!(!out.join("frames/cloth_000099.vtu").exists());
    assert_eq!(fs::read_to_string(out.join("notes.txt")).expect("reads"), "mine");
}

/// Files of a participant's frames, from its list.
fn listed(out: &Path, participant: &str) -> Vec<String> {
    let list = fs::read_to_string(out.join(format!("{participant}.pvd"))).expect("reads");
    list.split("file=\"").skip(1).map(|rest| rest.split('"').next().expect("a name").to_string()).collect()
}

#[test]
fn a_body_that_does_not_move_is_written_once_and_after_a_resume_too() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let scene = fs::read_to_string(scene()).expect("reads").replace("\"edges\"", "\"all\"");
    fs::write(folder.path().join("scene.toml"), scene).expect("writes");
    let amalgam = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_amalgam"));
        let output = command.args(arguments).current_dir(folder.path()).output().expect("the program starts");
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    amalgam(&["run", "scene.toml", "--quiet", "--checkpoint-every", "20steps", "--keep-checkpoints", "99"]);
    let out = folder.path().join("out/drop");
    let expect_once = || {
        assert_eq!(listed(&out, "cloth"), vec!["frames/cloth_000000.vtu"; 6]);
        assert_eq!(BTreeSet::from_iter(listed(&out, "water")).len(), 6, "the water falls");
        assert_eq!(files(&out.join("frames")).len(), 7);
    };
    expect_once();
    amalgam(&["resume", "out/drop", "--quiet", "--from", "20"]);
    expect_once();
}

/// Single light particles may become fast when stored energy is released. The total energy must not rise.
#[test]
fn the_total_energy_never_rises() {
    for (split, alpha) in [("paper", "0"), ("paper", "1"), ("symmetric", "1")] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let settings = [format!("--set=coupling.split={split}"), format!("--set=coupling.alpha={alpha}")];
        let merge = "--set=coupling.method=merge-split";
        let output = run(folder.path(), &["--quiet", merge, &settings[0], &settings[1]]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let table = fs::read_to_string(folder.path().join("out/drop/probes/energy.csv")).expect("reads");
        let total = |row: &str| row.rsplit(',').next().and_then(|cell| cell.parse::<f64>().ok());
        let totals: Vec<f64> = table.lines().skip(1).map(|row| total(row).expect("a number")).collect();
        let (first, last) = (totals[0], totals[totals.len() - 1]);
        assert!(totals.len() > 100 && last < 0.99 * first, "{} steps, {first} to {last} J", totals.len());
        let rise = totals.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
        assert!(rise <= 1e-12 * first, "{split}, alpha {alpha}: {rise:e} J in one step, of {first} J");
    }
}

/// Starts a run that would take minutes, and waits until its first frames are there. `hangup` is an option of
/// `env` that sets how the program handles SIGHUP.
fn start_long(folder: &Path, hangup: &str) -> Child {
    let arguments = ["--set", "time.duration=1000", "--set", "time.frame_interval=0.001"];
    let run = command(folder, &arguments);
    let mut command = Command::new("env");
    command.arg(hangup).arg(run.get_program()).args(run.get_args()).current_dir(folder);
    command.env("TMPDIR", folder.join("tmp")).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().expect("the program starts");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !folder.join("out/drop/frames/water_000002.vtu").exists() {
        assert!(Instant::now() < deadline, "the run writes its frames");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

fn signal(process: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status();
    assert!(status.expect("kill runs").success());
}

#[test]
fn an_interrupted_run_writes_its_summary() {
    for name in ["INT", "TERM", "HUP"] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut child = start_long(folder.path(), "--default-signal=HUP");
        signal(child.id(), name);
        assert_eq!(child.wait().expect("it ends").code(), Some(130), "SIG{name}");
        let summary = summary(folder.path());
        assert_eq!(summary["interrupted"], true);
        assert_eq!(summary["error"], serde_json::Value::Null);
        assert!(summary["steps"].as_u64().expect("a number") > 0);
        assert_eq!(files(&folder.path().join("tmp")), BTreeSet::new(), "sockets are removed");
    }
}

/// `nohup` makes its program ignore SIGHUP.
#[test]
fn a_run_that_ignores_hangups_goes_on() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut child = start_long(folder.path(), "--ignore-signal=HUP");
    signal(child.id(), "HUP");
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().expect("asks").is_none(), "the run goes on");
    signal(child.id(), "TERM");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
}

#[test]
fn a_second_run_in_a_folder_is_refused_until_the_first_is_gone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut first = start_long(folder.path(), "--default-signal=HUP");
    let mut resume = Command::new(env!("CARGO_BIN_EXE_amalgam"));
    resume.args(["resume", "out/drop"]).current_dir(folder.path());
    for mut second in [command(folder.path(), &["--frames", "1"]), resume] {
        let output = second.output().expect("the program starts");
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        let expected = format!("error: process {} is writing the results of a run to out/drop", first.id());
        assert!(error.starts_with(&expected) && error.contains("--out"), "{error}");
    }
    assert!(folder.path().join("out/drop/frames/water_000002.vtu").exists(), "its frames are untouched");
    signal(first.id(), "KILL");
    first.wait().expect("it ends");
    let output = run(folder.path(), &["--frames", "1", "--quiet"]);
    assert!(output.status.success(), "a killed run blocks nobody: {}", text(&output.stderr));
}

#[test]
fn a_disk_that_becomes_full_is_in_the_summary() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut child = start_long(folder.path(), "--default-signal=HUP");
    let frames = folder.path().join("out/drop/frames");
    std::os::unix::fs::symlink("/dev/full", frames.join(".water_000080.vtu.part")).expect("links");
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
    let summary = summary(folder.path());
    let error = summary["error"].as_str().expect("the summary has the error");
    assert!(error.contains("water_000080.vtu") && error.contains("the disk is full"), "{error}");
    assert!(frames.join("water_000079.vtu").exists(), "earlier frames stay");
}

#[test]
fn a_second_signal_does_not_wait_for_a_stopped_solver() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut child = start_long(folder.path(), "--default-signal=HUP");
    let solvers = children(child.id());
    assert_eq!(solvers.len(), 2, "a process per participant");
    signal(solvers[0], "STOP");
    // By then the run waits for the stopped solver.
    std::thread::sleep(Duration::from_millis(200));
    signal(child.id(), "INT");
    // Two signals at once, as `timeout` sends them, count as one.
    signal(child.id(), "INT");
    std::thread::sleep(Duration::from_millis(400));
    assert!(child.try_wait().expect("asks").is_none(), "the first signal lets the step finish");
    signal(child.id(), "INT");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    assert!(
        solvers.iter().all(|solver| !Path::new(&format!("/proc/{solver}")).exists()),
        "no process is left"
    );
    assert_eq!(files(&folder.path().join("tmp")), BTreeSet::new(), "sockets are removed");
}

#[test]
fn a_reader_who_has_gone_ends_nothing_and_a_full_disk_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (reader, gone) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut short = command(folder.path(), &["--set", "time.duration=0.05"]);
    let status = short.stdout(gone.try_clone().expect("another")).stderr(gone).status().expect("it starts");
    assert_eq!(status.code(), Some(0));
    assert_eq!(summary(folder.path())["interrupted"], false);

    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("a device without room");
    let mut list = Command::new(env!("CARGO_BIN_EXE_amalgam"));
    let output = list.args(["validate", "--list"]).stdout(full).output().expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.starts_with("error: cannot write to standard output: No space left on device"), "{error}");
}

/// Processes whose parent is `parent`.
fn children(parent: u32) -> Vec<u32> {
    let is_child = |process: &u32| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        status
            .lines()
            .any(|line| line.strip_prefix("PPid:").is_some_and(|id| id.trim() == parent.to_string()))
    };
    files(Path::new("/proc")).iter().filter_map(|name| name.parse().ok()).filter(is_child).collect()
}

/// A sheet strikes water at 10 m/s. Water takes its momentum and throws nothing back.
#[test]
fn water_does_not_throw_back_what_strikes_it() {
    const SCENE: &str = "[scene]
name = 'sheet'
[domain]
min = [-0.1, -0.1, 0.0]
max = [0.1, 0.1, 0.4]
[time]
duration = 0.02
frame_interval = 0.02
[[participants]]
name = 'sheet'
solver = 'solid'
[participants.settings]
method = 'mass-spring'
[[participants.settings.bodies]]
type = 'sheet'
corner = [-0.05, -0.05, 0.08]
edge_u = [0.1, 0.0, 0.0]
edge_v = [0.0, 0.1, 0.0]
spacing = 0.01
area_density = 2.0
structural_stiffness = 5000.0
velocity = [0.0, 0.0, -10.0]
[[participants]]
name = 'water'
solver = 'fluid'
[participants.settings]
method = 'sph'
spacing = 0.01
sound_speed = 100.0
[[participants.settings.shapes]]
type = 'box'
min = [-0.1, -0.1, 0.0]
max = [0.1, 0.1, 0.06]
[[probes]]
name = 'sheet'
quantity = 'momentum'
participant = 'sheet'
";
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("sheet.toml");
    fs::write(&file, SCENE).expect("writes");
    // The sheet's largest momentum upwards, as a part of the momentum with which it comes.
    let thrown_back = |set: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_amalgam"));
        command.arg("run").arg(&file).args(["--quiet", "--transport=in-process"]).args(set);
        let output = command.current_dir(folder.path()).output().expect("starts");
        assert!(output.status.success(), "{}", text(&output.stderr));
        let table = fs::read_to_string(folder.path().join("out/sheet/probes/sheet.csv")).expect("a table");
        let upwards = |row: &str| row.split(',').nth(3).expect("a column").parse::<f64>().expect("a number");
        let momenta: Vec<f64> = table.lines().skip(1).map(upwards).collect();
        momenta.iter().copied().fold(f64::NEG_INFINITY, f64::max) / -momenta[0]
    };
    const MERGE: &str = "--set=coupling.method=merge-split";
    let by_default = thrown_back(&[]).max(thrown_back(&[MERGE]));
    let as_in_the_paper = thrown_back(&[MERGE, "--set=coupling.alpha=1"]);
    println!("{by_default} and {as_in_the_paper} of the momentum");
    assert!(by_default < 0.05, "{by_default} of the momentum");
    assert!(as_in_the_paper > 0.2, "{as_in_the_paper}: the scene tells nothing apart");
}
