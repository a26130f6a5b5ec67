//! Solvers as services of their own: waited for, lost and come back, by name and by address.

mod support;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::process::{Folder, repository, stderr};

const DROP: &str = "scenes/small/drop.toml";

/// `amalgam serve`, ended with the test.
struct Service {
    child: Child,
    address: String,
}

impl Service {
    fn start(solver: &str, listen: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_amalgam"));
        command.args(["serve", solver, "--threads=1", "--listen", listen]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("reads");
        let address =
            line.trim().strip_prefix("listening ").unwrap_or_else(|| panic!("{line:?}")).to_string();
        Self { child, address }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Fails only for a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The small scene with services of its own.
fn scene(folder: &Folder, cloth: &str, water: &str) -> std::path::PathBuf {
    let text = std::fs::read_to_string(repository(DROP)).expect("reads");
    let place = |text: &str, solver: &str, address: &str| {
        let line = format!("solver = \"{solver}\"\n");
        assert!(text.contains(&line));
        text.replace(&line, &format!("{line}address = \"{address}\"\n"))
    };
    folder.scene(&place(&place(&text, "solid", cloth), "fluid", water))
}

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
    let scene = scene(&folder, &cloth.address, &water);
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
