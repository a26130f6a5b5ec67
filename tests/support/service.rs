//! Solvers as processes of their own, and scenes that give their addresses.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::process::{Folder, repository};

/// `amalgam serve`, a process that is ended with the test.
pub(crate) struct Service {
    pub(crate) child: Child,
    pub(crate) address: String,
}

impl Service {
    pub(crate) fn start(solver: &str, listen: &str, arguments: &[&str]) -> Self {
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

/// `scenes/small/drop.toml` with an address for each of these solvers, as a file of the folder.
pub(crate) fn elsewhere(folder: &Folder, addresses: &[(&str, &str)]) -> PathBuf {
    let text = std::fs::read_to_string(repository("scenes/small/drop.toml")).expect("reads");
    let text = addresses.iter().fold(text, |text, (solver, address)| {
        let line = format!("solver = \"{solver}\"\n");
        assert!(text.contains(&line));
        text.replace(&line, &format!("{line}address = \"{address}\"\n"))
    });
    folder.scene(&text)
}
