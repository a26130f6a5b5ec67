//! The coordinator as a service: scenes are submitted, followed, held, ended and fetched, by clients of all
//! kinds.

mod support;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use amalgam_proto::coordinator::{
    self as v1, State, coordinator_client::CoordinatorClient, submit_request::Part,
};
use serde_json::Value;
use support::process::{Folder, repository, signal, stderr, wait_until};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

const DROP: &str = "scenes/small/drop.toml";

const LONGEST: Duration = Duration::from_secs(120);

/// `amalgam serve coordinator`, ended with the test.
struct Service {
    child: Child,
    address: String,
    runs: PathBuf,
}

impl Service {
    fn start(folder: &Folder, arguments: &[&str]) -> Self {
        let runs = folder.path().join("runs");
        let mut command = Command::new(env!("CARGO_BIN_EXE_amalgam"));
        command.args([
            "serve",
            "coordinator",
            "--threads=1",
            "--listen=127.0.0.1:0",
            "--exit-with-stdin",
            "--dir",
        ]);
        command.arg(&runs).args(arguments).env("TMPDIR", folder.path().join("tmp"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().expect("starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("reads");
        let address =
            line.trim().strip_prefix("listening ").unwrap_or_else(|| panic!("{line:?}")).to_string();
        Self { child, address, runs }
    }

    /// `amalgam at ADDRESS ...`, not yet started.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_amalgam"));
        command.args(["at", &self.address]).args(arguments);
        command
    }

    fn at(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("starts")
    }

    /// The same for what must succeed: standard output.
    fn ask(&self, arguments: &[&str]) -> String {
        let output = self.at(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).expect("UTF-8").trim().to_string()
    }

    fn submit(&self, scene: &Path, arguments: &[&str]) -> String {
        self.ask(&[&["submit", scene.to_str().expect("UTF-8")], arguments].concat())
    }

    fn run(&self, id: &str) -> v1::Run {
        let runs = block_on(async { client(&self.address).await.list(v1::ListRequest {}).await });
        let runs = runs.expect("lists").into_inner().runs;
        runs.into_iter().find(|run| run.id == id).unwrap_or_else(|| panic!("no run {id}"))
    }

    fn wait_for(&self, id: &str, state: State) -> v1::Run {
        let reached = wait_until(LONGEST, || self.run(id).state() == state);
        let run = self.run(id);
        assert!(reached, "{run:?} instead of {state:?}");
        run
    }

    fn wait_for_step(&self, id: &str, step: u64) {
        let reached = wait_until(LONGEST, || self.run(id).steps >= step);
        assert!(reached, "{:?}", self.run(id));
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Fails only for a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

async fn client(address: &str) -> CoordinatorClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    CoordinatorClient::new(endpoint.connect().await.expect("connects"))
}

/// The hash of a scene that `amalgam run` computes.
fn hash_of_run(scene: &Path, arguments: &[&str]) -> Value {
    let folder = Folder::new();
    let output = folder.run(scene, &[&["--quiet", "--threads=1"], arguments].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    folder.summary()["state_hash"].clone()
}

#[test]
fn a_submitted_scene_is_followed_to_its_end_and_fetched() {
    let folder = Folder::new();
    let service = Service::start(&folder, &[]);
    let scene = repository(DROP);
    let set = "participants.cloth.settings.tolerance=1e-7";
    let expected = hash_of_run(&scene, &["--frames=2", "--set", set]);
    let output =
        service.at(&["submit", scene.to_str().expect("UTF-8"), "--frames=2", "--set", set, "--follow"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "drop-1");
    let last = lines.last().expect("a line");
    assert!(last.starts_with("drop-1  finished  "), "{last}");
    assert!(last.ends_with(&format!("hash {}", expected.as_str().expect("text"))), "{last}, {expected}");
    assert!(lines.iter().any(|line| line.starts_with("step ") && line.contains(" contacts ")), "{text}");

    let files = service.ask(&["files", "drop-1"]);
    for file in ["summary.json", "scene.toml", "probes/crossings.csv"] {
        assert!(files.contains(file), "{file} is not in {files}");
    }
    let out = folder.path().join("fetched");
    service.ask(&["fetch", "drop-1", "--out", out.to_str().expect("UTF-8")]);
    for line in files.lines() {
        let (_, path) = line.trim().split_once("  ").expect("size and path");
        let there = std::fs::read(service.runs.join("drop-1/results").join(path)).expect("reads");
        assert!(there == std::fs::read(out.join(path)).expect("fetched"), "{path}");
    }
    // Whoever follows what is over sees its end at once.
    assert!(service.ask(&["follow", "drop-1"]).contains("finished"));
    assert!(stderr(&service.at(&["continue", "drop-1"])).contains("nothing to go on with"));
    service.ask(&["remove", "drop-1"]);
    assert_eq!(service.ask(&["runs"]), "");
    assert!(!service.runs.join("drop-1").exists());
}

#[test]
fn a_run_is_paused_stopped_and_continued_to_the_same_bits() {
    let folder = Folder::new();
    let service = Service::start(&folder, &[]);
    let scene = repository(DROP);
    let expected = hash_of_run(&scene, &[]);
    let id = service.submit(&scene, &[]);
    service.wait_for_step(&id, 20);
    service.ask(&["pause", &id]);
    let paused = service.wait_for(&id, State::Paused);
    // The step in which it was asked for ends first.
    let mut held = paused.steps;
    assert!(wait_until(LONGEST, || {
        std::thread::sleep(Duration::from_millis(500));
        std::mem::replace(&mut held, service.run(&id).steps) == service.run(&id).steps
    }));
    assert_eq!(service.run(&id).state(), State::Paused);
    service.ask(&["checkpoint", &id]);
    let checkpoints = service.runs.join(&id).join("results/checkpoints");
    assert!(wait_until(LONGEST, || checkpoints.join(format!("step-{held:06}")).exists()));
    assert_eq!(service.run(&id).state(), State::Paused);
    service.ask(&["continue", &id]);
    service.wait_for_step(&id, held + 20);
    service.ask(&["stop", &id]);
    let stopped = service.wait_for(&id, State::Stopped);
    assert!(stopped.steps < 600, "{stopped:?}");
    let refused = service.at(&["pause", &id]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains(&format!("run {id} is stopped")), "{}", stderr(&refused));

    // The results are those of any run: the command goes on with them in a copy, the service in place.
    let copy = folder.path().join("copy");
    let copied = Command::new("cp").arg("-r").arg(service.runs.join(&id).join("results")).arg(&copy).status();
    assert!(copied.expect("cp").success());
    let mut resume = Command::new(env!("CARGO_BIN_EXE_amalgam"));
    let resumed = resume.arg("resume").arg(&copy).arg("--quiet").output().expect("starts");
    assert!(resumed.status.success(), "{}", stderr(&resumed));
    let summary = std::fs::read_to_string(copy.join("summary.json")).expect("reads");
    let summary: Value = serde_json::from_str(&summary).expect("JSON");
    assert_eq!(summary["state_hash"], expected);
    service.ask(&["continue", &id]);
    let finished = service.wait_for(&id, State::Finished);
    assert_eq!(Value::from(finished.state_hash), expected);
}

#[test]
fn two_runs_at_once_do_not_disturb_each_other_and_clients_may_vanish() {
    let folder = Folder::new();
    let service = Service::start(&folder, &["--running=2"]);
    let scene = repository(DROP);
    let seeds = ["scene.seed=1", "scene.seed=2"];
    let expected = seeds.map(|seed| hash_of_run(&scene, &["--frames=4", "--set", seed]));
    let ids = seeds.map(|seed| service.submit(&scene, &["--frames=4", "--set", seed]));
    let third = service.submit(&scene, &["--frames=1"]);
    let mut follower = service.command(&["follow", &ids[0]]).stdout(Stdio::piped()).spawn().expect("starts");
    let mut line = String::new();
    BufReader::new(follower.stdout.take().expect("piped")).read_line(&mut line).expect("reads");
    assert!(line.starts_with(&ids[0]), "{line}");
    for id in &ids {
        service.wait_for_step(id, 1);
    }
    assert_eq!(service.run(&third).state(), State::Queued);
    follower.kill().expect("is there");
    follower.wait().expect("ends");
    for (id, expected) in ids.iter().zip(expected) {
        assert_eq!(Value::from(service.wait_for(id, State::Finished).state_hash), expected);
    }
    service.wait_for(&third, State::Finished);
}

#[test]
fn a_service_that_ends_stops_its_runs_and_the_next_one_goes_on_with_them() {
    let folder = Folder::new();
    let scene = repository(DROP);
    let mut service = Service::start(&folder, &[]);
    let id = service.submit(&scene, &["--frames=4"]);
    service.wait_for_step(&id, 10);
    let other = service.at(&["runs"]);
    assert!(other.status.success());
    // Two services would spoil each other's runs.
    let mut second = Command::new(env!("CARGO_BIN_EXE_amalgam"));
    second.args(["serve", "coordinator", "--listen=127.0.0.1:0", "--dir"]).arg(&service.runs);
    let second = second.output().expect("starts");
    assert_eq!(second.status.code(), Some(2));
    assert!(stderr(&second).contains("another service keeps its runs in "), "{}", stderr(&second));
    signal(service.child.id(), "TERM");
    assert!(wait_until(LONGEST, || service.child.try_wait().expect("waits").is_some()));
    drop(service);
    let service = Service::start(&folder, &[]);
    let stopped = service.run(&id);
    assert_eq!(stopped.state(), State::Stopped, "{stopped:?}");
    service.ask(&["continue", &id]);
    let finished = service.wait_for(&id, State::Finished);
    assert_eq!(Value::from(finished.state_hash), hash_of_run(&scene, &["--frames=4"]));
}

#[test]
fn files_that_a_scene_names_come_with_it_and_no_others_are_read() {
    let folder = Folder::new();
    let service = Service::start(&folder, &[]);
    let scene = repository("scenes/small/soft-bodies.toml");
    let how = ["--frames=1", "--set", "participants.cloth.settings.bodies[0].spacing=0.04"];
    let expected = hash_of_run(&scene, &how);
    let id = service.submit(&scene, &how);
    assert_eq!(Value::from(service.wait_for(&id, State::Finished).state_hash), expected);
    // On its way a file has another name; what a scene names on the service's own machine is refused.
    let text = std::fs::read_to_string(&scene).expect("reads");
    let own = repository("scenes/small/soft-octahedron.obj").canonicalize().expect("is there");
    for file in [own.to_str().expect("UTF-8"), "../../../scenes/small/soft-octahedron.obj", "/etc/passwd"] {
        let status = send(&service, &text.replace("soft-octahedron.obj", file), &[]).expect_err("is refused");
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert!(status.message().contains("which was not sent with it"), "{status:?}");
    }
}

#[test]
fn meshes_of_obstacles_come_with_the_scene() {
    let folder = Folder::new();
    let service = Service::start(&folder, &[]);
    let rock = repository("scenes/small/soft-octahedron.obj").canonicalize().expect("is there");
    let text = |file: &str| {
        format!(
            "[scene]\nname = \"rock\"\n[domain]\nmin = [-1, -1, 0]\nmax = [1, 1, 2]\n[[domain.obstacles]]\nname = \"rock\"\n\
             shape = {{ type = \"mesh\", file = \"{file}\" }}\n[time]\nduration = 0.1\ndt_max = 1e-2\n[coupling]\n\
             method = \"contact-law\"\n[[participants]]\nname = \"grain\"\nsolver = \"solid\"\n[participants.settings]\n\
             method = \"grains\"\n[[participants.settings.bodies]]\ntype = \"points\"\npositions = [[0, 0, 1]]\n\
             mass = 1.0\nradius = 0.1\n"
        )
    };
    let scene = folder.path().join("rock.toml");
    std::fs::write(&scene, text(rock.to_str().expect("UTF-8"))).expect("writes");
    let expected = hash_of_run(&scene, &[]);
    let id = service.submit(&scene, &[]);
    assert_eq!(Value::from(service.wait_for(&id, State::Finished).state_hash), expected);
    // The file is checked where it came, and one that did not come is not even looked at.
    let files = [("a/rock.obj", &b"v 0 0 0\n"[..])];
    let status = send(&service, &text("a/rock.obj"), &files).expect_err("is refused");
    assert!(status.message().contains("which holds no"), "{status:?}");
    for file in [rock.to_str().expect("UTF-8"), "/etc/passwd", "no.obj"] {
        let status = send(&service, &text(file), &[]).expect_err("is refused");
        assert!(status.message().contains("which was not sent with it"), "{status:?}");
    }
}

/// Sends a scene and files as a client of another make may.
fn send(service: &Service, scene: &str, files: &[(&str, &[u8])]) -> Result<v1::Run, Status> {
    let mut parts =
        vec![Part::Options(v1::Options::default()), Part::Scene(scene.as_bytes().to_vec().into())];
    parts.extend(
        files.iter().map(|(path, data)| {
            Part::File(v1::FilePiece { path: (*path).into(), data: data.to_vec().into() })
        }),
    );
    send_parts(service, parts)
}

fn send_parts(service: &Service, parts: Vec<Part>) -> Result<v1::Run, Status> {
    let messages: Vec<_> = parts.into_iter().map(|part| v1::SubmitRequest { part: Some(part) }).collect();
    block_on(async {
        let mut client = client(&service.address).await;
        let answer = client.submit(futures_util::stream::iter(messages)).await?;
        Ok(answer.into_inner().run.expect("a run"))
    })
}

#[test]
fn hostile_input_is_refused_with_the_reason() {
    let folder = Folder::new();
    let service = Service::start(&folder, &["--stored=2", "--queued=0"]);
    let scene = std::fs::read_to_string(repository(DROP)).expect("reads");
    let refused = |result: Result<v1::Run, Status>, code: Code, says: &str| {
        let status = result.expect_err(says);
        assert_eq!(status.code(), code, "{status:?}");
        assert!(status.message().contains(says), "{says:?} is not in {status:?}");
    };
    let invalid = |result, says: &str| refused(result, Code::InvalidArgument, says);
    let options = || Part::Options(v1::Options::default());
    invalid(send_parts(&service, vec![]), "nothing was sent");
    invalid(
        send_parts(&service, vec![Part::Scene(scene.clone().into_bytes().into())]),
        "the first message must hold",
    );
    invalid(send_parts(&service, vec![options(), options()]), "options came twice");
    let wrong = v1::Options { checkpoint_every: "often".into(), ..v1::Options::default() };
    invalid(send_parts(&service, vec![Part::Options(wrong)]), "is no interval");
    let wrong = v1::Options { wait: f64::NAN, ..v1::Options::default() };
    invalid(send_parts(&service, vec![Part::Options(wrong)]), "wait");
    invalid(send_parts(&service, vec![options(), Part::Scene(vec![0xff, 0xfe].into())]), "not UTF-8");
    invalid(send(&service, "this is no scene", &[]), "this is not TOML");
    invalid(send(&service, &scene.replace("name = \"drop\"", "name = \"../up\""), &[]), "a scene's name");
    for path in ["../x", "/tmp/x", "scene.toml", "", "a/../../x", "a\0b"] {
        invalid(send(&service, &scene, &[(path, b"x")]), "is no path of a file");
    }
    invalid(send(&service, &scene, &[("a", b"x")]), "was sent, but the scene does not name it");
    invalid(send(&service, &scene, &[("a", b"x"), ("b", b"x"), ("a", b"x")]), "came twice");
    let many: Vec<String> = (0..300).map(|i| i.to_string()).collect();
    let many: Vec<(&str, &[u8])> = many.iter().map(|name| (name.as_str(), &b""[..])).collect();
    refused(send(&service, &scene, &many), Code::ResourceExhausted, "at most 256 files");
    let huge = vec![options()].into_iter().chain((0..40).map(|_| Part::Scene(vec![b' '; 512 << 10].into())));
    refused(send_parts(&service, huge.collect()), Code::ResourceExhausted, "a scene has at most");
    // Nothing of it is left.
    let left = std::fs::read_dir(&service.runs).expect("reads").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).filter(|name| name != ".lock").collect();
    assert!(left.is_empty(), "{left:?}");

    let id = service.submit(&repository(DROP), &["--frames=1"]);
    refused(send(&service, &scene, &[]), Code::ResourceExhausted, "--queued");
    service.wait_for(&id, State::Finished);
    let fetch = |path: &str| {
        block_on(async {
            let request = v1::FetchRequest { id: id.clone(), path: path.into(), from: 0 };
            let mut pieces = client(&service.address).await.fetch(request).await?.into_inner();
            while pieces.message().await?.is_some() {}
            Ok::<(), Status>(())
        })
    };
    fetch("summary.json").expect("is there");
    for path in ["../run.json", "/etc/passwd", "frames/../../run.json", "", "frames", "nothing", "a\0b"] {
        assert_eq!(fetch(path).expect_err(path).code(), Code::NotFound, "{path}");
    }
    for arguments in [["follow", "../drop-1"], ["stop", "nobody"], ["remove", "."], ["files", ""]] {
        let output = service.at(&arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(stderr(&output).contains("there is no run"), "{}", stderr(&output));
    }
    let second = service.submit(&repository(DROP), &["--frames=1"]);
    service.wait_for(&second, State::Finished);
    refused(send(&service, &scene, &[]), Code::ResourceExhausted, "--stored");
}

#[test]
fn a_section_that_a_solver_refuses_fails_the_run_with_its_faults() {
    let folder = Folder::new();
    let service = Service::start(&folder, &[]);
    let id = service.submit(&repository(DROP), &["--set", "participants.cloth.settings.tolerance=-1"]);
    let run = service.wait_for(&id, State::Failed);
    assert!(run.error.contains("tolerance"), "{}", run.error);
    let followed = service.at(&["follow", &id]);
    assert_eq!(followed.status.code(), Some(1));
    assert!(stderr(&followed).contains("tolerance"), "{}", stderr(&followed));
}

#[test]
fn beyond_loopback_is_refused_unless_asked_for() {
    let folder = Folder::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_amalgam"));
    command.args(["serve", "coordinator", "--listen=0.0.0.0:0", "--dir"]).arg(folder.path().join("runs"));
    let output = command.output().expect("starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("say --insecure"), "{}", stderr(&output));
}
