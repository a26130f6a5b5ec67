//! Share of the coupling in all processor time of a run: that of the coordinator, and that of the services'
//! threads that only receive and send. `cargo bench -p amalgam --bench share [-- SCENE]`, on a machine that
//! does nothing else.
//!
//! It reads the kernel's counters of every thread (`/proc`, Linux only) while `amalgam run` is at work,
//! without frames.

#![allow(missing_docs, reason = "a benchmark")]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time that a line of the table covers.
const WINDOW: Duration = Duration::from_secs(30);

/// Between two looks at the counters; work of a thread after the last one is not counted.
const PERIOD: Duration = Duration::from_millis(100);

/// Processor time [ns] of each part, all threads together.
#[derive(Clone, Copy, Default)]
struct Parts {
    coordinator: u64,
    services: u64,
    physics: u64,
}

impl Parts {
    fn since(self, before: Self) -> Self {
        Self {
            coordinator: self.coordinator - before.coordinator,
            services: self.services - before.services,
            physics: self.physics - before.physics,
        }
    }

    fn print(self, label: &str) {
        let all = (self.coordinator + self.services + self.physics).max(1) as f64;
        let percent = |part: u64| 100.0 * part as f64 / all;
        println!(
            "{label:>8} {:8.1} s {:8.1} % = {:5.1} % coordinator + {:4.1} % services' I/O",
            all * 1e-9,
            percent(self.coordinator + self.services),
            percent(self.coordinator),
            percent(self.services)
        );
    }
}

/// The last counters of every thread that was ever seen, by the folder of its files.
#[derive(Default)]
struct Threads(HashMap<PathBuf, (Part, u64)>);

#[derive(Clone, Copy)]
enum Part {
    Coordinator,
    Service,
    Physics,
}

impl Threads {
    /// Looks at a process and its children. Threads that end while one looks are no error.
    fn look(&mut self, process: u32) {
        for (folder, _) in tasks(process) {
            self.note(folder.clone(), Part::Coordinator);
            let children = fs::read_to_string(folder.join("children")).unwrap_or_default();
            for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
                for (folder, name) in tasks(child) {
                    let physics = name.starts_with("physics") || name == "solver";
                    self.note(folder, if physics { Part::Physics } else { Part::Service });
                }
            }
        }
    }

    fn note(&mut self, folder: PathBuf, part: Part) {
        let counters = fs::read_to_string(folder.join("schedstat")).unwrap_or_default();
        if let Some(time) = counters.split_whitespace().next().and_then(|time| time.parse().ok()) {
            self.0.insert(folder, (part, time));
        }
    }

    fn parts(&self) -> Parts {
        let mut parts = Parts::default();
        for &(part, time) in self.0.values() {
            *match part {
                Part::Coordinator => &mut parts.coordinator,
                Part::Service => &mut parts.services,
                Part::Physics => &mut parts.physics,
            } += time;
        }
        parts
    }
}

/// Folders and names of a process's threads.
fn tasks(process: u32) -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    entries
        .map(|entry| {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            (entry.path(), name.trim().to_owned())
        })
        .collect()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if !arguments.iter().any(|argument| argument == "--bench") {
        // `cargo test --benches` has nothing to test here.
        return;
    }
    assert!(Path::new("/proc/self/schedstat").exists(), "this benchmark needs Linux's /proc/PID/schedstat");
    // A benchmark runs in its crate's folder; paths are meant from the workspace's.
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let scene = arguments.iter().find(|argument| !argument.starts_with("--"));
    let scene = workspace.join(scene.map_or("scenes/water-on-cloth.toml", String::as_str));
    let out = tempfile::tempdir().expect("a folder for the run");
    let mut run = Command::new(env!("CARGO_BIN_EXE_amalgam"))
        .args(["run", "--quiet", "--set", "output.vtk=false", "--set", "output.pictures.every=1000000"])
        .arg("--out")
        .arg(out.path().join("run"))
        .arg(&scene)
        .stdout(Stdio::null())
        .spawn()
        .expect("amalgam starts");
    println!("{:>8} {:>10} {:>10}", "until", "processor", "coupling");
    let (mut threads, mut before, start) = (Threads::default(), Parts::default(), Instant::now());
    let mut end = WINDOW;
    let status = loop {
        if let Some(status) = run.try_wait().expect("amalgam is our child") {
            break status;
        }
        threads.look(run.id());
        if start.elapsed() >= end {
            let now = threads.parts();
            now.since(before).print(&format!("{} s", end.as_secs()));
            (before, end) = (now, end + WINDOW);
        }
        std::thread::sleep(PERIOD);
    };
    assert!(status.success(), "the run ended with {status}");
    threads.parts().print("all");
}
