//! Solvers as services of their own: waited for, lost and come back, by name and by address.

mod support;

use std::io::Read as _;
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use support::process::{Folder, children, repository, signal, stderr, wait_until};
use support::service::{Service, elsewhere};

const DROP: &str = "scenes/small/drop.toml";

const LONGEST: Duration = Duration::from_secs(60);

/// The hash of the scene's first frames, computed by processes of the run itself.
fn undisturbed() -> serde_json::Value {
    let folder = Folder::new();
    let output = folder.run(&repository(DROP), &["--quiet", "--frames=2"]);
    assert!(output.status.success(), "{}", stderr(&output));
    folder.summary()["state_hash"].clone()
}

fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").expect("listens");
    free.local_addr().expect("an address").port()
}

/// The run comes first; its services after it, one by name with a free port, one over IPv6.
#[test]
fn services_that_come_later_are_waited_for() {
    let folder = Folder::new();
    let cloth = Service::start("solid", "localhost:0", &[]);
    assert!(cloth.address.starts_with("localhost:") && cloth.address != "localhost:0", "{}", cloth.address);
    let water = format!("[::1]:{}", free_port());
    let scene = elsewhere(&folder, &[("solid", &cloth.address), ("fluid", &water)]);
    let refused = stderr(&folder.run(&scene, &["--quiet", "--frames=2"]));
    let says = |text: &str, part: &str| assert!(text.contains(part), "{part:?} is not in {text:?}");
    says(
        &refused,
        &format!("participant water cannot be reached at {water}: no connection: Connection refused"),
    );
    says(&refused, "start its solver there first, or let the run wait for it with --wait 10m");
    let late = stderr(&folder.run(&scene, &["--quiet", "--frames=2", "--wait=300ms"]));
    says(&late, "no wall time");
    let since = Instant::now();
    let late = stderr(&folder.run(&scene, &["--quiet", "--frames=2", "--wait=0.3s"]));
    assert!(since.elapsed() >= Duration::from_millis(300));
    says(&late, &format!("waiting for participant water at {water}, at most 0.3 s: no connection"));
    says(&late, &format!("participant water cannot be reached at {water}"));

    let run = folder.command(&scene, &["--quiet", "--frames=2", "--wait=1m"]);
    let run = { run }.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
    std::thread::sleep(Duration::from_millis(300));
    let service = Service::start("fluid", &water, &[]);
    assert_eq!(service.address, water);
    let output = run.wait_with_output().expect("ends");
    assert!(output.status.success(), "{}", stderr(&output));
    says(&stderr(&output), "waiting for participant water at ");
    assert!(!stderr(&output).contains("waiting for participant cloth"), "{}", stderr(&output));
    assert_eq!(folder.summary()["state_hash"], undisturbed());
}

/// Steps of the checkpoints that are there.
fn last_checkpoint(folder: &Folder) -> u64 {
    let entries = std::fs::read_dir(folder.out().join("checkpoints")).into_iter().flatten();
    let step = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.ok()?.file_name().to_str()?.strip_prefix("step-")?.parse::<u64>().ok()
    };
    entries.filter_map(step).max().unwrap_or(0)
}

fn wait_for_checkpoint(folder: &Folder, step: u64) {
    assert!(wait_until(LONGEST, || last_checkpoint(folder) >= step), "{}", last_checkpoint(folder));
}

fn spawn(mut command: Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts")
}

/// The results are those of a run that lost nobody.
fn assert_undisturbed(folder: &Folder, run: Child) -> String {
    let output = run.wait_with_output().expect("ends");
    let text = stderr(&output);
    assert!(output.status.success(), "{text}");
    assert_eq!(folder.summary()["state_hash"], undisturbed(), "{text}");
    text
}

/// A solver of the run's own is killed, then another one is stopped for good: both are started again.
#[test]
fn a_solver_of_the_run_is_started_again() {
    let folder = Folder::new();
    let arguments = [
        "--quiet",
        "--threads=1",
        "--frames=2",
        "--reconnect=1m",
        "--checkpoint-every=5steps",
        "--set=coupling.step_deadline=1",
    ];
    let run = spawn(folder.command(&repository(DROP), &arguments));
    wait_for_checkpoint(&folder, 10);
    signal(children(run.id())[0], "KILL");
    let started_again = || children(run.id()).len() == 2 && last_checkpoint(&folder) >= 40;
    assert!(wait_until(LONGEST, started_again), "{}", last_checkpoint(&folder));
    signal(children(run.id())[0], "STOP");
    let text = assert_undisturbed(&folder, run);
    for part in
        ["it is dead: nothing listens there", "back at step ", "was started again", "nor does its service"]
    {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    assert_eq!(folder.summary()["recoveries"], 2);
    assert_eq!(folder.processes(), Vec::<u32>::new(), "processes are left");
}

/// A service that the run did not start is killed, and started again by somebody else.
#[test]
fn a_service_that_comes_back_is_waited_for() {
    let folder = Folder::new();
    let cloth = Service::start("solid", "127.0.0.1:0", &[]);
    let water = Service::start("fluid", "127.0.0.1:0", &[]);
    let address = water.address.clone();
    let arguments = ["--quiet", "--frames=2", "--reconnect=1m", "--checkpoint-every=5steps"];
    let run = spawn(
        folder.command(&elsewhere(&folder, &[("solid", &cloth.address), ("fluid", &address)]), &arguments),
    );
    wait_for_checkpoint(&folder, 10);
    drop(water);
    std::thread::sleep(Duration::from_millis(300));
    let _water = Service::start("fluid", &address, &[]);
    let text = assert_undisturbed(&folder, run);
    for part in ["participant water at ", "it is dead", "waiting for participant water", "back at step "] {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    assert_eq!(folder.summary()["recoveries"], 1);
}

/// A solver that is lost wherever it is started again does not keep a run for ever.
#[test]
fn a_service_that_does_not_come_back_ends_the_run() {
    let folder = Folder::new();
    let cloth = Service::start("solid", "127.0.0.1:0", &[]);
    let water = Service::start("fluid", "127.0.0.1:0", &[]);
    let arguments = ["--quiet", "--frames=2", "--reconnect=0.5s", "--checkpoint-every=5steps"];
    let run =
        spawn(folder.command(
            &elsewhere(&folder, &[("solid", &cloth.address), ("fluid", &water.address)]),
            &arguments,
        ));
    wait_for_checkpoint(&folder, 10);
    drop(water);
    let output = run.wait_with_output().expect("ends");
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for part in
        ["it is dead", "the run cannot go back to a checkpoint", "cannot be reached", "to go on from step"]
    {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

/// The run is killed: its services take the next coordinator; what is left alone for too long ends.
#[test]
fn services_outlive_a_coordinator_for_a_while() {
    let folder = Folder::new();
    let start = |solver| Service::start(solver, "127.0.0.1:0", &["--orphan-timeout=2s"]);
    let (mut cloth, mut water) = (start("solid"), start("fluid"));
    let scene = elsewhere(&folder, &[("solid", &cloth.address), ("fluid", &water.address)]);
    let mut run = spawn(folder.command(&scene, &["--quiet", "--frames=2", "--checkpoint-every=5steps"]));
    wait_for_checkpoint(&folder, 10);
    run.kill().expect("kills");
    run.wait().expect("it ends");
    let resume = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_amalgam"));
        command.arg("resume").arg(folder.out()).args(["--quiet", "--checkpoint-every=5steps"]);
        command
    };
    let before = last_checkpoint(&folder);
    let mut run = spawn(resume());
    wait_for_checkpoint(&folder, before + 10);
    run.kill().expect("kills");
    run.wait().expect("it ends");
    let since = Instant::now();
    for service in [&mut cloth, &mut water] {
        assert!(
            wait_until(LONGEST, || service.child.try_wait().expect("is a child").is_some()),
            "it goes on"
        );
        assert!(since.elapsed() >= Duration::from_millis(1900), "{:?}", since.elapsed());
        let mut text = String::new();
        service.child.stderr.take().expect("piped").read_to_string(&mut text).expect("reads");
        assert!(text.contains("was left in the middle, and no coordinator came for 2 s"), "{text}");
        assert_eq!(service.child.wait().expect("ended").code(), Some(1));
    }
    // Others at the same addresses; after the end of a run they wait for the next.
    let again = |solver, address: &str| Service::start(solver, address, &["--orphan-timeout=0.2s"]);
    let (mut cloth, mut water) = (again("solid", &cloth.address), again("fluid", &water.address));
    assert_undisturbed(&folder, spawn(resume()));
    std::thread::sleep(Duration::from_millis(600));
    for service in [&mut cloth, &mut water] {
        assert!(service.child.try_wait().expect("is a child").is_none(), "it ended without a reason");
    }
}

/// A coordinator that was away while its services were given to another run does not get them back.
#[test]
fn a_stale_coordinator_is_refused() {
    let (first, second) = (Folder::new(), Folder::new());
    let cloth = Service::start("solid", "127.0.0.1:0", &[]);
    let water = Service::start("fluid", "127.0.0.1:0", &[]);
    let arguments = ["--quiet", "--frames=2", "--reconnect=1m", "--checkpoint-every=5steps"];
    let start = |folder| {
        spawn(Folder::command(
            folder,
            &elsewhere(folder, &[("solid", &cloth.address), ("fluid", &water.address)]),
            &arguments,
        ))
    };
    let stale = start(&first);
    wait_for_checkpoint(&first, 10);
    signal(stale.id(), "STOP");
    let next = start(&second);
    wait_for_checkpoint(&second, 10);
    signal(next.id(), "STOP");
    signal(stale.id(), "CONT");
    let output = stale.wait_with_output().expect("ends");
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("the call is for run ") && text.contains("but this solver serves "), "{text}");
    signal(next.id(), "CONT");
    assert_undisturbed(&second, next);
}

/// A run and its services in a network of their own, whose only link is cut in the middle of the run for some
/// seconds.
const CUT: &str = "
ip link set lo up || exit 77
for solver in solid:7401 fluid:7402; do
    \"$0\" serve ${solver%:*} --threads 1 --listen 127.0.0.1:${solver#*:} > /dev/null &
    services=\"$services $!\"
done
seconds=$1; shift
\"$0\" run \"$@\" &
run=$!
until ls \"$OUT/checkpoints\" 2> /dev/null | grep -q 'step-0000[1-9]'; do sleep 0.01; done
ip link set lo down
sleep $seconds
ip link set lo up
wait $run
code=$?
kill $services
exit $code
";

/// Runs [`CUT`]; nothing where a user may not make networks.
fn cut(seconds: f64, arguments: &[&str]) -> Option<(Folder, Output)> {
    let folder = Folder::new();
    let scene = elsewhere(&folder, &[("solid", "127.0.0.1:7401"), ("fluid", "127.0.0.1:7402")]);
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "sh", "-c", CUT, env!("CARGO_BIN_EXE_amalgam")]);
    command.arg(seconds.to_string()).arg(scene).args(["--quiet", "--frames=2", "--wait=20s", "--out"]);
    command.arg(folder.out()).args(["--checkpoint-every=5steps", "--set=coupling.step_deadline=2"]);
    let output = command.args(arguments).env("OUT", folder.out()).output();
    match output {
        Ok(output) if !folder.out().exists() && output.status.code() != Some(2) => {
            println!("skipped: no network of its own here: {}", stderr(&output));
            None
        }
        Ok(output) => Some((folder, output)),
        Err(error) => {
            println!("skipped: unshare cannot be run: {error}");
            None
        }
    }
}

#[test]
fn a_short_cut_costs_nothing() {
    let Some((folder, output)) = cut(0.2, &[]) else { return };
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(folder.summary()["state_hash"], undisturbed());
    assert_eq!(folder.summary()["recoveries"], 0);
}

#[test]
fn a_long_cut_is_told_as_such_and_waited_for() {
    let Some((folder, output)) = cut(5.0, &["--reconnect=1m"]) else { return };
    let text = stderr(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("it is unreachable") && text.contains("back at step "), "{text}");
    assert_eq!(folder.summary()["state_hash"], undisturbed());
    let Some((folder, output)) = cut(5.0, &[]) else { return };
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for part in ["it is unreachable", "check its machine and the network to it", "to go on from step "] {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    assert!(folder.summary()["resume"].is_string());
}
