//! The real program, with processes, in a folder of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A folder for one run; the program's temporary files are in it too, so that whatever is left can be found.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("tmp")).expect("creates");
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Folder of the results.
    pub(crate) fn out(&self) -> PathBuf {
        self.path().join("out")
    }

    /// `amalgam run SCENE --out OUT ...`, not yet started.
    pub(crate) fn command(&self, scene: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_amalgam"));
        command.arg("run").arg(scene).arg("--out").arg(self.out()).args(arguments);
        command.current_dir(self.path()).env("TMPDIR", self.path().join("tmp"));
        command
    }

    pub(crate) fn run(&self, scene: &Path, arguments: &[&str]) -> Output {
        self.command(scene, arguments).output().expect("the program starts")
    }

    /// `summary.json`.
    pub(crate) fn summary(&self) -> Value {
        let text = std::fs::read_to_string(self.out().join("summary.json")).expect("there is a summary");
        serde_json::from_str(&text).expect("the summary is JSON")
    }

    /// A scene of this folder.
    pub(crate) fn scene(&self, text: &str) -> PathBuf {
        let path = self.path().join("scene.toml");
        std::fs::write(&path, text).expect("writes");
        path
    }

    /// Sockets and whatever else runs keep while they last.
    pub(crate) fn temporary(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.path().join("tmp")).expect("the folder is there");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    }

    /// Processes whose command line names this folder.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let own = self.path().to_str().expect("UTF-8").as_bytes();
        processes()
            .filter(|id| std::fs::read(format!("/proc/{id}/cmdline")).is_ok_and(|line| holds(&line, own)))
            .collect()
    }
}

/// A scene file of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

/// Processes whose parent is `parent`.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let of_parent = format!("PPid:\t{parent}\n");
    processes()
        .filter(|id| {
            std::fs::read_to_string(format!("/proc/{id}/status")).is_ok_and(|text| text.contains(&of_parent))
        })
        .collect()
}

pub(crate) fn is_alive(process: u32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

pub(crate) fn signal(process: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status();
    assert!(status.expect("kill runs").success());
}

/// Waits until `done`, at most `longest`; says whether it came true.
pub(crate) fn wait_until(longest: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + longest;
    loop {
        if done() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").expect("there is /proc");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn holds(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
