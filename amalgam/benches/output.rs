//! Cost of a run's output: `cargo bench --workspace --bench output` prints wall and processor time of
//! water-on-cloth for 0.16 s with nothing written, and with pictures, surfaces, USD and a page that somebody
//! looks at, each alone.
//!
//! After `--`: another scene and its duration [s], and how often. Kinds of output take turns, so that
//! whatever else the machine does falls on all of them.

#![allow(missing_docs, reason = "a benchmark")]

use std::{
    io::{BufRead, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use nix::sys::resource::{UsageWho, getrusage};

const PROGRAM: &str = env!("CARGO_BIN_EXE_amalgam");

/// Kinds of output: a name, and arguments of the command line.
const KINDS: [(&str, &[&str]); 6] = [
    ("nothing", &["--set", "output.vtk=false"]),
    ("frames", &[]),
    ("pictures", &["--set", "output.vtk=false", "--set", "output.pictures.every=1"]),
    ("surfaces", &["--set", "output.vtk=false", "--set", "output.surfaces.water.every=1"]),
    ("usd", &["--set", "output.usd={}"]),
    ("page", &["--watch"]),
];

/// A scene without its `[output]`.
fn bare(scene: &Path, to: &Path) -> PathBuf {
    let text = std::fs::read_to_string(scene).expect("a scene");
    let mut scene: toml::Table = text.parse().expect("TOML");
    scene.remove("output");
    let path = to.join("scene.toml");
    std::fs::write(&path, scene.to_string()).expect("writes");
    path
}

/// Processor time of all children that have ended [s].
fn processor() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("the system tells");
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + 1e-6 * time.tv_usec() as f64;
    seconds(usage.user_time()) + seconds(usage.system_time())
}

fn get(host: &str, page: &str) -> Vec<u8> {
    let ask = || {
        let mut stream = TcpStream::connect(host)?;
        write!(stream, "GET {page} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).map(|_| bytes)
    };
    let bytes: std::io::Result<Vec<u8>> = ask();
    // The run may be over.
    bytes.unwrap_or_default()
}

/// Looks at a run as the page does: what there is each second, and the last frame of all participants.
fn look(address: &str, over: &mpsc::Receiver<()>) {
    let (host, path) = address.trim_start_matches("http://").split_once('/').expect("an address");
    while over.recv_timeout(Duration::from_secs(1)).is_err() {
        let answer = get(host, &format!("/{path}run.json"));
        let body =
            answer.windows(4).position(|part| part == b"\r\n\r\n").map_or(&[][..], |at| &answer[at + 4..]);
        let Ok(run) = serde_json::from_slice::<serde_json::Value>(body) else { continue };
        let Some(last) = run["frames"].as_u64().and_then(|frames| frames.checked_sub(1)) else { continue };
        for participant in run["participants"].as_array().into_iter().flatten() {
            let name = participant["name"].as_str().expect("a name");
            get(host, &format!("/{path}particles/{name}/{last}?field=speed&have="));
        }
    }
}

/// Wall and processor time of a run [s].
fn run(scene: &Path, duration: &str, said: &[&str], to: &Path) -> [f64; 2] {
    let (start, before) = (Instant::now(), processor());
    let mut command = Command::new(PROGRAM);
    command.arg("run").arg(scene).args(["--set", &format!("time.duration={duration}")]).args(said);
    // At a terminal the page would stay after the run.
    command.arg("--out").arg(to).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    let (ended, over) = mpsc::channel();
    let lines = BufReader::new(child.stderr.take().expect("its errors")).lines();
    let looking = std::thread::spawn(move || {
        let mut looking = None;
        let mut over = Some(over);
        for line in lines.map_while(Result::ok) {
            if let Some((_, address)) = line.split_once("watch at ") {
                let (address, over) = (address.trim().to_string(), over.take().expect("one address"));
                looking = Some(std::thread::spawn(move || look(&address, &over)));
            }
        }
        looking
    });
    assert!(child.wait().expect("ends").success());
    let times = [start.elapsed().as_secs_f64(), processor() - before];
    // Nobody may look.
    let _ = ended.send(());
    if let Some(looking) = looking.join().expect("reads") {
        looking.join().expect("looks");
    }
    times
}

fn main() {
    let said: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let [scene, duration, often] = [0, 1, 2].map(|k| said.get(k).map(String::as_str));
    let scene = root.join(scene.unwrap_or("scenes/water-on-cloth.toml"));
    let (duration, often) =
        (duration.unwrap_or("0.16"), often.map_or(3, |often| often.parse().expect("a number")));
    let folder = tempfile::tempdir().expect("a folder");
    let scene = bare(&scene, folder.path());
    let mut times = KINDS.map(|_| Vec::new());
    for _ in 0..often {
        for ((_, said), times) in KINDS.iter().zip(&mut times) {
            times.push(run(&scene, duration, said, &folder.path().join("out")));
        }
    }
    let median = |times: &[[f64; 2]], k: usize| {
        let mut sorted: Vec<f64> = times.iter().map(|time| time[k]).collect();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    };
    let nothing = [0, 1].map(|k| median(&times[0], k));
    println!(
        "{duration} s of the scene, median of {often}: wall and processor time [s], and over that of a run that writes nothing"
    );
    for ((name, _), times) in KINDS.iter().zip(&times) {
        let [wall, processor] = [0, 1].map(|k| median(times, k));
        println!(
            "{name:10} {wall:8.2} {processor:8.2} {:7.3} {:7.3}",
            wall / nothing[0],
            processor / nothing[1]
        );
    }
}
