//! Solvers that ask who calls, that register themselves, and that a deployment file starts elsewhere.

mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use support::process::{Folder, repository, signal, stderr, wait_until};
use support::service::{Service, elsewhere};

const DROP: &str = "scenes/small/drop.toml";

const LONGEST: Duration = Duration::from_secs(60);

const TWO_FRAMES: [&str; 2] = ["--quiet", "--frames=2"];

/// The hash of the scene's first frames, computed by threads of one process.
fn undisturbed() -> serde_json::Value {
    let folder = Folder::new();
    let output = folder.run(&repository(DROP), &["--quiet", "--frames=2", "--transport=in-process"]);
    assert!(output.status.success(), "{}", stderr(&output));
    folder.summary()["state_hash"].clone()
}

/// `amalgam certs` in a folder.
fn certificates(folder: &Folder, name: &str) -> PathBuf {
    let path = folder.path().join(name);
    let output = Command::new(env!("CARGO_BIN_EXE_amalgam"))
        .arg("certs")
        .arg(&path)
        .arg("--hosts=node1,node7")
        .output()
        .expect("starts");
    assert!(output.status.success(), "{}", stderr(&output));
    path
}

fn run(folder: &Folder, scene: &Path, arguments: &[&str]) -> Output {
    folder.run(scene, &[&TWO_FRAMES, arguments].concat())
}

fn says(output: &Output, part: &str) {
    assert!(stderr(output).contains(part), "{part:?} is not in {:?}", stderr(output));
}

/// Resident memory of a process at its peak [bytes].
fn peak(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// Certificates on both sides: the same bits, a sentence for each mistake, and bounded memory beside hostile
/// callers.
#[test]
fn certificates_change_no_bit_and_keep_others_out() {
    let folder = Folder::new();
    let (ours, others) = (certificates(&folder, "ours"), certificates(&folder, "others"));
    let (tls, foreign) = (format!("--tls={}", ours.display()), format!("--tls={}", others.display()));
    let cloth = Service::start("solid", "localhost:0", &[&tls]);
    let water = Service::start("fluid", "127.0.0.1:0", &[&tls]);
    let scene = elsewhere(&folder, &[("solid", &cloth.address), ("fluid", &water.address)]);
    says(&run(&folder, &scene, &[]), "it speaks TLS: give the folder of its certificates with --tls DIR");
    says(&run(&folder, &scene, &[&foreign, "--wait=1m"]), "its certificate is of another authority");

    let before = peak(water.child.id());
    let attackers = attack(&water.address, Duration::from_secs(4));
    std::thread::sleep(Duration::from_millis(1500));
    // While all places are taken by callers who came less than a second ago, a connection is refused: the run
    // tries again.
    let output = run(&folder, &scene, &[&tls, "--wait=1m"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(folder.summary()["state_hash"], undisturbed());
    attackers.into_iter().for_each(|attacker| attacker.join().expect("no attacker fails"));
    let more = peak(water.child.id()) - before;
    println!("{more} bytes of memory more at most, for a run and 40 callers without certificates");
    assert!(more < 64 << 20, "{more} bytes");

    let plain = Service::start("fluid", "127.0.0.1:0", &[]);
    let scene = elsewhere(&folder, &[("solid", &cloth.address), ("fluid", &plain.address)]);
    says(&run(&folder, &scene, &[&tls]), "the other end speaks without TLS");
}

/// Callers without certificates: silent ones, noise, plain HTTP/2, and a handshake that stops in the middle.
fn attack(address: &str, time: Duration) -> Vec<std::thread::JoinHandle<()>> {
    const HELLO: [u8; 5] = [22, 3, 1, 0x3f, 0xff];
    let openings: [&[u8]; 4] = [b"", &[b'x'; 1 << 16], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &HELLO];
    let end = Instant::now() + time;
    let attacker = |opening: &'static [u8]| {
        let address = address.to_string();
        std::thread::spawn(move || {
            while Instant::now() < end {
                let Ok(mut stream) = TcpStream::connect(&address) else { continue };
                // The service may hang up at any time.
                let _ = stream.write_all(opening);
                std::thread::sleep(Duration::from_millis(1200));
            }
        })
    };
    let openings: Vec<&'static [u8]> =
        openings.into_iter().map(|opening| &*Box::leak(Box::from(opening))).collect();
    openings.iter().cycle().take(40).map(|opening| attacker(opening)).collect()
}

/// A word that callers must know, over TCP and Unix sockets.
#[test]
fn a_token_is_asked_for() {
    let folder = Folder::new();
    let file = |name: &str, text: &str, mode: u32| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("writes");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("sets");
        format!("--token-file={}", path.display())
    };
    let ours = file("ours", "0123456789abcdef0123\n", 0o600);
    let others = file("others", "0123456789abcdef0124\n", 0o600);
    let open = file("open", "0123456789abcdef0123\n", 0o644);
    let cloth = Service::start("solid", "127.0.0.1:0", &[&ours]);
    let socket = format!("unix:{}", folder.path().join("water.sock").display());
    let water = Service::start("fluid", &socket, &[&ours]);
    let scene = elsewhere(&folder, &[("solid", &cloth.address), ("fluid", &water.address)]);
    says(&run(&folder, &scene, &[]), "this service asks for a token: give --token-file FILE");
    says(&run(&folder, &scene, &[&others]), "the token is another one than this service's");
    says(&run(&folder, &scene, &[&open]), "can be read by others: chmod 600 it");
    let output = run(&folder, &scene, &[&ours]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(folder.summary()["state_hash"], undisturbed());
    // Solvers that a run starts over TCP are its own, though others of the host reach their ports.
    let output = run(&folder, &repository(DROP), &["--transport=tcp"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(folder.summary()["state_hash"], undisturbed());
}

/// A run that listens for its solvers, which start before and after it; one moves to another address in the
/// middle.
#[test]
fn solvers_register_themselves() {
    let folder = Folder::new();
    let tls = format!("--tls={}", certificates(&folder, "certs").display());
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("listens");
    let registry = free.local_addr().expect("an address").to_string();
    drop(free);
    let register = |solver, name: &str| {
        Service::start(
            solver,
            "127.0.0.1:0",
            &[&tls, &format!("--register={registry}"), &format!("--name={name}")],
        )
    };
    let _cloth = register("solid", "cloth");
    let at = format!("--registry={registry}");
    let mut command = folder.command(
        &repository(DROP),
        &[&TWO_FRAMES, &[&*at, &*tls, "--wait=1m", "--reconnect=1m", "--checkpoint-every=5steps"][..]]
            .concat(),
    );
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
    let lines = lines_of(&mut run);
    let wait_for = |part: &str| {
        let deadline = Instant::now() + LONGEST;
        loop {
            let line = lines.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            if line.unwrap_or_else(|_| panic!("{part:?} is not said")).contains(part) {
                return;
            }
        }
    };
    wait_for(&format!("solvers register at {registry}"));
    wait_for("waiting for participant water at an address that it registers");
    let mut wrong = register("solid", "water");
    let water = register("fluid", "water");
    let checkpoints = folder.out().join("checkpoints");
    let steps = || std::fs::read_dir(&checkpoints).map_or(0, Iterator::count);
    assert!(wait_until(LONGEST, || steps() >= 2), "it does not run");
    drop(water);
    let _water = register("fluid", "water");
    wait_for("back at step ");
    assert!(run.wait().expect("ends").success());
    assert_eq!(folder.summary()["state_hash"], undisturbed());
    assert_eq!(folder.summary()["recoveries"], 1);
    wrong.child.kill().expect("kills");
    let told = BufReader::new(wrong.child.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let told: Vec<String> = told.collect();
    assert!(
        told.iter().any(|line| line.contains("`water` wants solver \"fluid\", and not \"solid\"")),
        "{told:?}"
    );
}

fn lines_of(child: &mut Child) -> std::sync::mpsc::Receiver<String> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let stderr = BufReader::new(child.stderr.take().expect("piped"));
    std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    receiver
}

/// Programs that stand in for ssh and srun: they start on this machine what they are told to start elsewhere.
const SSH: &str =
    "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\necho \"host $2\" >> \"$HOSTS\"\nexec sh -c \"$3\"\n";
const SRUN: &str = "#!/bin/sh\nwhile [ \"${1#--}\" != \"$1\" ]; do shift; done\nexec \"$@\"\n";

fn launch(folder: &Folder, arguments: &[&str]) -> Command {
    let programs = folder.path().join("programs");
    std::fs::create_dir_all(&programs).expect("creates");
    for (name, text) in [("ssh", SSH), ("srun", SRUN)] {
        let path = programs.join(name);
        std::fs::write(&path, text).expect("writes");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("sets");
    }
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").expect("a path"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_amalgam"));
    command.arg("launch").arg(repository(DROP)).args(["--out", "out"]).args(arguments);
    command.current_dir(folder.path()).env("TMPDIR", folder.path().join("tmp"));
    command.env("PATH", path).env("HOSTS", folder.path().join("hosts"));
    command
}

fn deployment(folder: &Folder) -> PathBuf {
    let program = env!("CARGO_BIN_EXE_amalgam");
    let place = |listen: &str| format!("program = \"{program}\"\nlisten = \"{listen}\"\nthreads = 1\n");
    let text = format!(
        "tls = \"certs\"\n[participants.cloth]\nrun = \"slurm\"\n{}[participants.water]\nrun = \"ssh\"\nhost = \"ann@localhost\"\n{}",
        place("127.0.0.1:0"),
        place("[::1]:0"),
    );
    let path = folder.path().join("where.toml");
    std::fs::write(&path, text).expect("writes");
    path
}

#[test]
fn a_deployment_file_starts_solvers_elsewhere_and_they_end_with_the_run() {
    let folder = Folder::new();
    certificates(&folder, "certs");
    let file = deployment(&folder).display().to_string();
    let output =
        launch(&folder, &[&TWO_FRAMES, &["--deployment", &*file][..]].concat()).output().expect("starts");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(folder.summary()["state_hash"], undisturbed());
    let hosts = std::fs::read_to_string(folder.path().join("hosts")).expect("reads");
    assert_eq!(hosts, "host ann@localhost\n");
    assert_eq!(folder.processes(), Vec::<u32>::new(), "processes are left");

    let mut command = launch(&folder, &["--quiet", "--deployment", &file]);
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
    assert!(wait_until(LONGEST, || folder.out().join("frames").exists() && folder.processes().len() >= 2));
    std::thread::sleep(Duration::from_millis(300));
    signal(run.id(), "INT");
    assert_eq!(run.wait().expect("ends").code(), Some(130));
    assert!(wait_until(LONGEST, || folder.processes().is_empty()), "{:?}", folder.processes());
}

#[test]
fn faults_of_a_deployment_file_are_shown_in_it() {
    let folder = Folder::new();
    let file = folder.path().join("where.toml");
    std::fs::write(&file, "[participants.watr]\nrun = \"rsh\"\n").expect("writes");
    let output = launch(&folder, &["--deployment", &file.display().to_string()]).output().expect("starts");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    says(&output, "unknown choice \"rsh\"");
    says(&output, "where.toml:2");
    let output = launch(&folder, &[]).output().expect("starts");
    assert_eq!(output.status.code(), Some(2));
    says(&output, "with --deployment FILE");
}
