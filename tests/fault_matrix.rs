//! Every fault at every call: the run ends with the hash of a run that met none, by itself or resumed.

mod support;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use support::process::{Folder, repository, signal, stderr};
use support::relay::{Harm, Planned, link, relay};
use support::service::{Service, elsewhere};
use tokio::sync::watch;

/// The step from which on harm is done; two checkpoints are then on the disk.
const STEP: u64 = 60;

/// Steps of merging have several stages.
const RUN: [&str; 6] = [
    "--quiet",
    "--threads=1",
    "--frames=1",
    "--checkpoint-every=20steps",
    "--set=coupling.step_deadline=1",
    "--set=coupling.method=merge-split",
];

/// Calls, and what each is for.
const CALLS: [(&str, &str); 5] = [
    ("Begin", "begin"),
    ("Integrate", "integrate 1"),
    ("Integrate of stage 2", "integrate 2"),
    ("Commit", "commit"),
    ("Save", "checkpoint"),
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// The solver is killed, and started again a moment later.
    Killed,
    /// The solver is stopped, and goes on after the deadline.
    Stopped,
    /// Nothing comes over the link for 5 s.
    LinkDown,
    /// Nothing comes over the link until the run has ended.
    LinkGone,
    /// The solver has carried the call out, and its answer never comes.
    HalfOpen,
    AnswerLost,
    CallRepeated,
    /// The answer comes late, but before the deadline.
    Slow,
    CoordinatorKilled,
    /// No file may grow beyond a limit; the run then ends, and there is room again.
    DiskFull,
    /// The newest checkpoint is cut, and the solver killed.
    CheckpointTorn,
    /// A bit of the newest checkpoint is another, and the solver killed.
    CheckpointFlipped,
    /// Another process is there in place of the solver, one that knows of no run.
    SolverStale,
}

/// Faults, and how the issue of each is known.
const FAULTS: [(Fault, &str); 13] = [
    (Fault::Killed, "SIGKILL"),
    (Fault::Stopped, "SIGSTOP"),
    (Fault::LinkDown, "link down for 5 s"),
    (Fault::LinkGone, "link down for ever"),
    (Fault::HalfOpen, "half-open"),
    (Fault::AnswerLost, "lost reply"),
    (Fault::CallRepeated, "duplicated call"),
    (Fault::Slow, "slow peer"),
    (Fault::CoordinatorKilled, "coordinator killed"),
    (Fault::DiskFull, "disk full"),
    (Fault::CheckpointTorn, "torn checkpoint"),
    (Fault::CheckpointFlipped, "flipped checkpoint"),
    (Fault::SolverStale, "stale participant"),
];

/// Largest file while the disk is full [bytes]: less than a checkpoint or a frame of the water.
const DISK_BYTES: u64 = 16 << 10;

/// The solver's process, which faults replace.
type Process = Arc<Mutex<Option<Service>>>;

fn end(process: &Process) -> String {
    let ended = process.lock().unwrap_or_else(PoisonError::into_inner).take().expect("it runs");
    ended.address.clone()
}

fn start(process: &Process, address: &str) {
    let service = Service::start("fluid", address, &[]);
    *process.lock().unwrap_or_else(PoisonError::into_inner) = Some(service);
}

/// Does something a while later.
fn later(after: Duration, action: impl FnOnce() + Send + 'static) {
    std::thread::spawn(move || {
        std::thread::sleep(after);
        action();
    });
}

/// Spoils a file of the newest checkpoint.
fn spoil(results: &std::path::Path, fault: Fault) {
    let entries = std::fs::read_dir(results.join("checkpoints")).expect("there are checkpoints");
    let whole =
        entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.extension().is_none());
    let file = whole.max().expect("a checkpoint").join("participant-water");
    let mut bytes = std::fs::read(&file).expect("reads");
    let middle = bytes.len() / 2;
    match fault {
        Fault::CheckpointTorn => bytes.truncate(middle),
        _ => bytes[middle] ^= 1,
    }
    std::fs::write(&file, &bytes).expect("writes");
}

/// Effect of a fault on a call.
fn harm(
    fault: Fault,
    process: &Process,
    run: &Arc<AtomicU32>,
    link: &watch::Sender<bool>,
    results: PathBuf,
) -> Harm {
    let (process, run, link) = (Arc::clone(process), Arc::clone(run), link.clone());
    let kill = move |process: Process| {
        let address = end(&process);
        later(Duration::from_millis(300), move || start(&process, &address));
    };
    match fault {
        Fault::AnswerLost => Harm::LosesAnswer,
        Fault::CallRepeated => Harm::Repeats,
        Fault::Killed => Harm::First(Box::new(move || kill(process))),
        Fault::HalfOpen => Harm::HoldsAnswer,
        Fault::LinkDown | Fault::LinkGone => Harm::First(Box::new(move || {
            link.send_replace(false);
            if fault == Fault::LinkDown {
                later(Duration::from_secs(5), move || {
                    link.send_replace(true);
                });
            }
        })),
        Fault::Slow => Harm::Delays(Duration::from_millis(400)),
        Fault::CheckpointTorn | Fault::CheckpointFlipped => Harm::First(Box::new(move || {
            spoil(&results, fault);
            kill(process);
        })),
        Fault::DiskFull => Harm::First(Box::new(move || {
            let id = run.load(Ordering::Relaxed).to_string();
            let limit = format!("--fsize={DISK_BYTES}:{DISK_BYTES}");
            let limited = Command::new("prlimit").args(["--pid", &id, &limit]).status();
            assert!(limited.expect("prlimit runs").success());
        })),
        Fault::SolverStale => Harm::First(Box::new(move || {
            let address = end(&process);
            start(&process, &address);
        })),
        Fault::CoordinatorKilled => Harm::First(Box::new(move || {
            let id = run.load(Ordering::Relaxed);
            assert_ne!(id, 0, "the run has started");
            signal(id, "KILL");
        })),
        Fault::Stopped => Harm::First(Box::new(move || {
            let held = process.lock().unwrap_or_else(PoisonError::into_inner);
            let solver = held.as_ref().expect("it runs").child.id();
            signal(solver, "STOP");
            later(Duration::from_millis(2500), move || signal(solver, "CONT"));
        })),
    }
}

/// A run that meets a fault: its hash, and how it came to its end.
fn meet(fault: Fault, call: &'static str) -> (serde_json::Value, String) {
    let folder = Folder::new();
    let process = Process::default();
    start(&process, "127.0.0.1:0");
    let address = process.lock().expect("whole").as_ref().expect("it runs").address.clone();
    let planned = Planned::default();
    let (up, is_up) = watch::channel(true);
    let there = link(&relay(&address, Arc::clone(&planned)), is_up);
    let scene = elsewhere(&folder, &[("fluid", &there)]);
    let id = Arc::new(AtomicU32::new(0));
    *planned.lock().expect("whole") = Some((call, STEP, harm(fault, &process, &id, &up, folder.out())));
    let patience = if fault == Fault::LinkGone { "--reconnect=2s" } else { "--reconnect=20s" };
    // A file that grows too large is an error, as on a full disk, and no signal.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_amalgam"), "run"]);
    command.arg(&scene).arg("--out").arg(folder.out()).args(RUN).arg(patience);
    command.current_dir(folder.path()).env("TMPDIR", folder.path().join("tmp"));
    let run = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
    id.store(run.id(), Ordering::Relaxed);
    let mut output = run.wait_with_output().expect("ends");
    let is_resumed = matches!(fault, Fault::CoordinatorKilled | Fault::DiskFull | Fault::LinkGone);
    if is_resumed {
        let text = stderr(&output);
        let code = (fault != Fault::CoordinatorKilled).then_some(1);
        assert_eq!(output.status.code(), code, "{fault:?} at {call}: {text}");
        if fault == Fault::LinkGone {
            let whom = format!("participant water at {there}");
            assert!(text.contains(&whom), "{fault:?} at {call}: {text}");
            up.send_replace(true);
        }
        assert_eq!(text.contains("to go on from step "), code.is_some(), "{fault:?} at {call}: {text}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_amalgam"));
        output = command.arg("resume").arg(folder.out()).arg("--quiet").output().expect("starts");
    }
    assert!(output.status.success(), "{fault:?} at {call}: {}", stderr(&output));
    assert!(planned.lock().expect("whole").is_none(), "{fault:?} at {call}: no harm was done");
    let summary = folder.summary();
    let recoveries = summary["recoveries"].as_u64().expect("a number");
    let needs_none = is_resumed || matches!(fault, Fault::AnswerLost | Fault::CallRepeated | Fault::Slow);
    assert_eq!(
        recoveries == 0,
        needs_none,
        "{fault:?} at {call}: {recoveries} recoveries, {}",
        stderr(&output)
    );
    let left_out = stderr(&output).contains("a checkpoint is left out");
    let is_spoilt = matches!(fault, Fault::CheckpointTorn | Fault::CheckpointFlipped);
    assert_eq!(left_out, is_spoilt, "{fault:?} at {call}: {}", stderr(&output));
    let way = match (is_resumed, recoveries) {
        (true, _) => "resumed",
        (false, 0) => "went on",
        (false, _) => "went back",
    };
    (summary["state_hash"].clone(), way.into())
}

/// Replaces the solver at each of these calls by one that knows of no run.
fn always_stale(process: Process, planned: Planned) -> Harm {
    Harm::First(Box::new(move || {
        let address = end(&process);
        start(&process, &address);
        let again = always_stale(process, Arc::clone(&planned));
        *planned.lock().expect("whole") = Some(("Integrate", STEP, again));
    }))
}

#[test]
fn a_loss_that_comes_again_and_again_ends_the_run() {
    let folder = Folder::new();
    let process = Process::default();
    start(&process, "127.0.0.1:0");
    let address = process.lock().expect("whole").as_ref().expect("it runs").address.clone();
    let planned = Planned::default();
    let scene = elsewhere(&folder, &[("fluid", &relay(&address, Arc::clone(&planned)))]);
    let harm = always_stale(Arc::clone(&process), Arc::clone(&planned));
    *planned.lock().expect("whole") = Some(("Integrate", STEP, harm));
    let output = folder.command(&scene, &RUN).arg("--reconnect=20s").output().expect("ends");
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text.matches("back at step ").count(), 5, "{text}");
    assert!(text.contains("5 times in a row it came no step farther"), "{text}");
    // The plan for the next call holds the process, and would never let it go.
    drop(end(&process));
}

/// The results are whole by then.
#[test]
fn a_solver_that_is_lost_when_it_is_let_go_is_a_warning() {
    let folder = Folder::new();
    let process = Process::default();
    start(&process, "127.0.0.1:0");
    let address = process.lock().expect("whole").as_ref().expect("it runs").address.clone();
    let planned = Planned::default();
    let scene = elsewhere(&folder, &[("fluid", &relay(&address, Arc::clone(&planned)))]);
    *planned.lock().expect("whole") =
        Some(("Shutdown", 0, Harm::First(Box::new(move || drop(end(&process))))));
    let output = folder.run(&scene, &RUN);
    let text = stderr(&output);
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("written, but participant water at ") && text.contains("was lost in Shutdown"),
        "{text}"
    );
    assert_eq!(folder.summary()["error"], serde_json::Value::Null);
}

/// Meets each fault at each call that is chosen, and prints how the runs came to their ends.
fn matrix(is_chosen: impl Fn(usize, usize) -> bool) {
    let folder = Folder::new();
    let output = folder.run(&repository("scenes/small/drop.toml"), &RUN);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(folder.summary()["steps"].as_u64().expect("a number") > STEP + 20, "the scene is too short");
    let undisturbed = folder.summary()["state_hash"].clone();
    let all = (0..FAULTS.len()).flat_map(|fault| (0..CALLS.len()).map(move |call| (fault, call)));
    let cells: Vec<(usize, usize)> = all.filter(|&(fault, call)| is_chosen(fault, call)).collect();
    let next = AtomicUsize::new(0);
    let ways = Mutex::new([const { [const { String::new() }; CALLS.len()] }; FAULTS.len()]);
    // Most of the time is spent on waiting.
    std::thread::scope(|scope| {
        for _ in 0..7 {
            scope.spawn(|| {
                while let Some(&(fault, call)) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (hash, way) = meet(FAULTS[fault].0, CALLS[call].0);
                    assert_eq!(hash, undisturbed, "{} at {}", FAULTS[fault].1, CALLS[call].1);
                    ways.lock().expect("whole")[fault][call] = way;
                }
            });
        }
    });
    let header = CALLS.map(|(_, phase)| format!("{phase:>13}")).concat();
    println!("{:<20}{header}   (same hash in all: {undisturbed})", "");
    for ((_, name), ways) in FAULTS.iter().zip(ways.lock().expect("whole").iter()) {
        let row: String = ways.iter().map(|way| format!("{way:>13}")).collect();
        println!("{name:<20}{row}");
    }
}

/// Every fault, and every call, some of them together.
#[test]
fn faults_at_calls_leave_the_hash_as_it_is() {
    matrix(|fault, call| (fault + call) % 3 == 0);
}

/// Run by `cargo test --release --workspace --test fault_matrix -- --ignored --nocapture`.
#[test]
#[ignore = "minutes: every fault at every call"]
fn every_fault_at_every_call_leaves_the_hash_as_it_is() {
    matrix(|_, _| true);
}
