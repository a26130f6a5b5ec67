//! Observation of a run: a trace, metrics, a log for machines, and the line about waiting. None of it changes
//! the run.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use support::process::{Folder, repository, signal, stderr, wait_until};

const DROP: &str = "scenes/small/drop.toml";

const LONGEST: Duration = Duration::from_secs(60);

/// The events of a trace, which is JSON.
fn events(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("reads");
    let events: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:.200}"));
    events.as_array().expect("an array").clone()
}

/// Start and end of a span [us].
fn span(event: &Value) -> (f64, f64) {
    let start = event["ts"].as_f64().expect("a time");
    (start, start + event["dur"].as_f64().expect("a length"))
}

/// Times are whole nanoseconds, as fractions of microseconds.
fn is_within(inner: (f64, f64), outer: (f64, f64)) -> bool {
    inner.0 >= outer.0 - 1e-4 && inner.1 <= outer.1 + 1e-4
}

#[test]
fn a_trace_has_phases_waits_and_bytes_of_every_step() {
    let folder = Folder::new();
    let trace = folder.path().join("trace.json");
    let scene = repository(DROP);
    // Merging has all phases.
    let how = ["--quiet", "--threads=1", "--frames=2", "--set=coupling.method=merge-split"];
    let plain = folder.run(&scene, &how);
    assert!(plain.status.success(), "{}", stderr(&plain));
    let hash = folder.summary()["state_hash"].clone();
    let argument = format!("--trace={}", trace.display());
    let traced = folder.run(&scene, &[&how[..], &[&argument]].concat());
    assert!(traced.status.success(), "{}", stderr(&traced));
    let summary = folder.summary();
    assert_eq!(summary["state_hash"], hash);

    let events = events(&trace);
    let of = |kind: &str| events.iter().filter(move |event| event["ph"] == *kind).collect::<Vec<_>>();
    let names: BTreeSet<&str> = of("M").iter().filter_map(|event| event["args"]["name"].as_str()).collect();
    assert_eq!(names, BTreeSet::from(["coordinator", "waiting for cloth", "waiting for water"]));
    let spans = of("X");
    let steps: Vec<_> =
        spans.iter().filter(|event| event["name"].as_str().expect("a name").starts_with("step ")).collect();
    assert_eq!(steps.len() as u64, summary["steps"].as_u64().expect("a number"));
    for step in &steps {
        let (start, end) = span(step);
        let number: u64 = step["name"].as_str().expect("a name")[5..].parse().expect("a number");
        let own: Vec<_> = spans.iter().filter(|event| event["args"]["step"] == number).collect();
        for phase in ["begin", "detect", "merge", "integrate", "synchronise", "split", "commit"] {
            let phase = own.iter().find(|event| event["name"] == phase).expect("each phase");
            assert_eq!(phase["tid"], 0);
            assert!(is_within(span(phase), (start, end)), "{phase} in {step}");
        }
        for participant in [1, 2] {
            for call in ["Integrate", "Commit"] {
                let found = own.iter().find(|event| event["name"] == call && event["tid"] == participant);
                let found = found.expect("each call");
                assert!(is_within(span(found), (start, end)), "{found} in {step}");
            }
        }
    }
    let mut bytes = BTreeMap::new();
    for call in spans.iter().filter(|event| event["tid"] != 0) {
        *bytes.entry(call["tid"].as_u64()).or_insert(0) += call["args"]["bytes_in"].as_u64().expect("bytes");
    }
    for (participant, tid) in summary["participants"].as_array().expect("a list").iter().zip(1..) {
        // All but the particles at the start, which come before the first step.
        let all = participant["bytes_in"].as_u64().expect("bytes");
        let seen = bytes[&Some(tid)];
        assert!(seen <= all && seen > all / 2, "{seen} of {all}");
    }
    assert_eq!(of("C").len(), 2 * steps.len());
}

#[test]
fn a_trace_is_json_after_a_run_that_was_killed() {
    let folder = Folder::new();
    let trace = folder.path().join("trace.json");
    let argument = format!("--trace={}", trace.display());
    let mut command = folder.command(&repository(DROP), &["--quiet", "--threads=1", &argument]);
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    let written = || std::fs::metadata(&trace).is_ok_and(|metadata| metadata.len() > 100_000);
    assert!(wait_until(LONGEST, written), "nothing was written");
    signal(run.id(), "KILL");
    run.wait().expect("ends");
    assert!(events(&trace).len() > 100);
}

/// The page of a server of metrics.
fn get(address: &str, path: &str) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some((head.lines().next()?.to_string(), body.to_string()))
}

#[test]
fn metrics_are_read_while_a_run_goes_on() {
    let folder = Folder::new();
    let mut command = folder
        .command(&repository(DROP), &["--threads=1", "--checkpoint-every=5steps", "--metrics=127.0.0.1:0"]);
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
    let mut line = String::new();
    BufReader::new(run.stderr.take().expect("piped")).read_line(&mut line).expect("reads");
    let address = line.trim().strip_prefix("metrics at http://").expect("an address");
    let address = address.strip_suffix("/metrics").expect("a page").to_string();
    let mut page = String::new();
    assert!(wait_until(LONGEST, || {
        let Some((status, body)) = get(&address, "/metrics") else { return false };
        assert_eq!(status, "HTTP/1.1 200 OK");
        page = body;
        let value = |name: &str| {
            let line = page.lines().find_map(|line| line.strip_prefix(name))?;
            line.rsplit_once(' ')?.1.parse::<f64>().ok()
        };
        value("amalgam_steps_total").is_some_and(|steps| steps >= 5.0)
            && value("amalgam_checkpoints_total").is_some_and(|count| count >= 1.0)
    }));
    for line in [
        "amalgam_simulated_seconds{run=\"drop\"}",
        "amalgam_phase_seconds_total{run=\"drop\",phase=\"integrate\"}",
        "amalgam_waited_seconds_total{run=\"drop\",participant=\"water\"}",
        "amalgam_solver_seconds_total{run=\"drop\",participant=\"cloth\"}",
        "amalgam_column_bytes_total{run=\"drop\",participant=\"water\",direction=\"in\"}",
        "amalgam_contacts{run=\"drop\"}",
        "amalgam_recoveries_total{run=\"drop\"} 0",
        "amalgam_step_seconds_bucket{",
    ] {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
    assert!(page.ends_with("# EOF\n"), "{page}");
    assert_eq!(get(&address, "/").expect("answers").0, "HTTP/1.1 404 Not Found");
    // Who says nothing keeps nobody from reading.
    let silent: Vec<_> = (0..4).map(|_| TcpStream::connect(&address).expect("connects")).collect();
    assert!(get(&address, "/metrics").is_some());
    drop(silent);
    signal(run.id(), "KILL");
    run.wait().expect("ends");
}

#[test]
fn a_log_for_machines_says_run_participant_step_and_stage() {
    let folder = Folder::new();
    let mut command = folder.command(
        &repository(DROP),
        &["--threads=1", "--frames=1", "--log-format=json", "--checkpoint-every=20steps"],
    );
    let output =
        command.env("AMALGAM_LOG", "warn,amalgam=info,amalgam_coordinator=trace,amalgam_solver_kit=debug");
    let output = output.output().expect("starts");
    let text = stderr(&output);
    assert!(output.status.success(), "{text}");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let has = |line: &Value, keys: &[&str]| keys.iter().all(|key| !line[key].is_null());
    let find = |message: &str, target: &str| {
        let is = |line: &&Value| {
            line["message"] == message && line["target"].as_str().unwrap_or("").starts_with(target)
        };
        lines.iter().find(is).unwrap_or_else(|| panic!("no {message:?} of {target} in {text}"))
    };
    assert!(has(find("step", "amalgam_coordinator"), &["run", "step", "stage", "time", "dt", "seconds"]));
    assert!(has(find("answered", "amalgam_coordinator"), &["run", "participant", "step", "stage", "call"]));
    assert!(has(find("computed", "amalgam_solver_kit"), &["run", "participant", "step", "stage", "call"]));
    let checkpoint = find("checkpoint", "amalgam::run");
    assert!(has(checkpoint, &["step"]) && has(&checkpoint["span"], &["run"]), "{checkpoint}");
    // One run has one name, wherever it is told of.
    let runs: BTreeSet<&str> = lines.iter().filter_map(|line| line["run"].as_str()).collect();
    assert_eq!(runs.len(), 1, "{runs:?}");
}

#[test]
fn an_error_is_in_a_log_for_machines_too() {
    let folder = Folder::new();
    std::fs::write(folder.path().join("machines.toml"), "").expect("a file");
    for command in ["run", "launch --deployment=machines.toml"] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_amalgam"));
        let program = program.current_dir(folder.path()).args(command.split(' '));
        let program = program.args(["nowhere.toml", "--log-format=json"]);
        let output = program.output().expect("starts");
        assert_eq!(output.status.code(), Some(2));
        let text = stderr(&output);
        assert!(text.contains("nowhere.toml"), "{command}: {text}");
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert!(line["message"].as_str().expect("a message").contains("nowhere.toml"), "{line}");
        }
    }
}

#[test]
fn a_run_ends_with_what_it_waited_for() {
    let folder = Folder::new();
    let output = folder.run(&repository(DROP), &["--threads=1", "--frames=2"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let line = text.lines().find(|line| line.trim().starts_with("waited ")).expect("a line");
    for part in [" % for cloth", " % for water", " % own computing", " % files", " round trips per step"] {
        assert!(line.contains(part), "{line}");
    }
    let summary = folder.summary();
    let participants = summary["participants"].as_array().expect("a list");
    let waited: f64 = participants.iter().map(|one| one["waited_s"].as_f64().expect("a time")).sum();
    assert!(waited > 0.0 && waited < summary["wall_s"].as_f64().expect("a time"), "{summary}");
    // Integrate and Commit at least; at most two turns in each stage, a survey and Begin besides.
    let round_trips = summary["wire"]["round_trips_mean"].as_f64().expect("a number");
    let stages = summary["stages"]["mean"].as_f64().expect("a number");
    assert!(round_trips >= 2.0 && round_trips <= 2.0 * stages + 3.0, "{round_trips} with {stages} stages");
}
