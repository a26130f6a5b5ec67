//! Every fault at every call: the run ends with the hash of a run that met none, by itself or resumed.

mod support;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use support::process::{Folder, repository, signal, stderr};
use support::relay::{Harm, Planned, relay};
use support::service::{Service, elsewhere};

/// The step from which on harm is done; two checkpoints are then on the disk.
const STEP: u64 = 60;

const RUN: [&str; 5] =
    ["--quiet", "--threads=1", "--frames=1", "--checkpoint-every=20steps", "--set=coupling.step_deadline=1"];

/// Calls, and what each is for.
const CALLS: [(&str, &str); 4] =
    [("Begin", "begin"), ("Integrate", "integrate"), ("Commit", "commit"), ("Save", "checkpoint")];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// The solver is killed, and started again a moment later.
    Killed,
    /// The solver is stopped, and goes on after the deadline.
    Stopped,
    AnswerLost,
    CallRepeated,
    CoordinatorKilled,
    /// The newest checkpoint is cut, and the solver killed.
    CheckpointTorn,
    /// Another process is there in place of the solver, one that knows of no run.
    SolverStale,
}

const FAULTS: [Fault; 7] = [
    Fault::Killed,
    Fault::Stopped,
    Fault::AnswerLost,
    Fault::CallRepeated,
    Fault::CoordinatorKilled,
    Fault::CheckpointTorn,
    Fault::SolverStale,
];

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

/// Cuts a file of the newest checkpoint.
fn tear(results: &std::path::Path) {
    let entries = std::fs::read_dir(results.join("checkpoints")).expect("there are checkpoints");
    let whole =
        entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.extension().is_none());
    let file = whole.max().expect("a checkpoint").join("participant-water");
    let bytes = std::fs::read(&file).expect("reads");
    std::fs::write(&file, &bytes[..bytes.len() / 2]).expect("writes");
}

/// What a fault does to a call.
fn harm(fault: Fault, process: &Process, run: &Arc<AtomicU32>, results: PathBuf) -> Harm {
    let (process, run) = (Arc::clone(process), Arc::clone(run));
    let kill = move |process: Process| {
        let address = end(&process);
        later(Duration::from_millis(300), move || start(&process, &address));
    };
    match fault {
        Fault::AnswerLost => Harm::LosesAnswer,
        Fault::CallRepeated => Harm::Repeats,
        Fault::Killed => Harm::First(Box::new(move || kill(process))),
        Fault::CheckpointTorn => Harm::First(Box::new(move || {
            tear(&results);
            kill(process);
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
    let scene = elsewhere(&folder, &[("fluid", &relay(&address, Arc::clone(&planned)))]);
    let id = Arc::new(AtomicU32::new(0));
    *planned.lock().expect("whole") = Some((call, STEP, harm(fault, &process, &id, folder.out())));
    let mut command = folder.command(&scene, &RUN);
    let run = command.arg("--reconnect=20s").stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let run = run.expect("starts");
    id.store(run.id(), Ordering::Relaxed);
    let mut output = run.wait_with_output().expect("ends");
    let is_resumed = fault == Fault::CoordinatorKilled;
    if is_resumed {
        assert_eq!(output.status.code(), None, "{}", stderr(&output));
        let mut command = Command::new(env!("CARGO_BIN_EXE_amalgam"));
        output = command.arg("resume").arg(folder.out()).arg("--quiet").output().expect("starts");
    }
    assert!(output.status.success(), "{fault:?} at {call}: {}", stderr(&output));
    assert!(planned.lock().expect("whole").is_none(), "{fault:?} at {call}: no harm was done");
    let summary = folder.summary();
    let recoveries = summary["recoveries"].as_u64().expect("a number");
    let needs_none = matches!(fault, Fault::AnswerLost | Fault::CallRepeated | Fault::CoordinatorKilled);
    assert_eq!(
        recoveries == 0,
        needs_none,
        "{fault:?} at {call}: {recoveries} recoveries, {}",
        stderr(&output)
    );
    let torn = stderr(&output).contains("a checkpoint is left out");
    assert_eq!(torn, fault == Fault::CheckpointTorn, "{fault:?} at {call}: {}", stderr(&output));
    let way = match (is_resumed, recoveries) {
        (true, _) => "resumed",
        (false, 0) => "went on",
        (false, _) => "went back",
    };
    (summary["state_hash"].clone(), way.into())
}

/// At each of these calls the solver is replaced by one that knows of no run.
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

#[test]
fn every_fault_at_every_call_leaves_the_hash_as_it_is() {
    let folder = Folder::new();
    let output = folder.run(&repository("scenes/small/drop.toml"), &RUN);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(folder.summary()["steps"].as_u64().expect("a number") > STEP + 20, "the scene is too short");
    let undisturbed = folder.summary()["state_hash"].clone();
    let cells: Vec<_> = FAULTS.iter().flat_map(|&fault| CALLS.map(|(call, _)| (fault, call))).collect();
    let (next, ways) = (AtomicUsize::new(0), Mutex::new(vec![String::new(); cells.len()]));
    // Most of the time is spent on waiting.
    std::thread::scope(|scope| {
        for _ in 0..7 {
            scope.spawn(|| {
                while let Some(&(fault, call)) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (hash, way) = meet(fault, call);
                    assert_eq!(hash, undisturbed, "{fault:?} at {call}");
                    let at = cells.iter().position(|cell| *cell == (fault, call)).expect("one of them");
                    ways.lock().expect("whole")[at] = way;
                }
            });
        }
    });
    let header = CALLS.map(|(_, phase)| format!("{phase:>12}")).concat();
    println!("{:<18}{header}   (same hash in all: {undisturbed})", "");
    for (fault, ways) in FAULTS.iter().zip(ways.lock().expect("whole").chunks(CALLS.len())) {
        let row: String = ways.iter().map(|way| format!("{way:>12}")).collect();
        println!("{:<18}{row}", format!("{fault:?}"));
    }
}
