//! `amalgam manual`: man pages and completions of the command line, for packages and for shells.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::CommandFactory as _;
use clap_complete::{Shell, generate_to};

use crate::{
    cli::{Cli, ManualArgs},
    console::say,
    error::CommandError,
};

/// Writes a page for each command, and completions for each shell.
///
/// # Errors
/// A failure of the file system.
pub fn manual(args: &ManualArgs) -> Result<(), CommandError> {
    let written = pages(&args.folder.join("man1")).and_then(|pages| {
        completions(&args.folder.join("completions"))?;
        Ok(pages)
    });
    let folder = args.folder.display();
    let pages =
        written.map_err(|error| CommandError::Failed(format!("cannot write to {folder}: {error}")))?;
    say(format_args!(
        "{folder}: {pages} man pages in man1, completions for bash, zsh and fish in completions"
    ))
}

fn pages(folder: &Path) -> io::Result<usize> {
    fs::create_dir_all(folder)?;
    let mut all = Cli::command();
    // Gives commands the names under which they are called.
    all.build();
    clap_mangen::generate_to(all, folder)?;
    Ok(fs::read_dir(folder)?.count())
}

fn completions(folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::create_dir_all(folder)?;
    let shells = [Shell::Bash, Shell::Zsh, Shell::Fish];
    shells.into_iter().map(|shell| generate_to(shell, &mut Cli::command(), "amalgam", folder)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page() {
        let folder = tempfile::tempdir().expect("a folder");
        manual(&ManualArgs { folder: folder.path().to_path_buf() }).expect("writes");
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let page = folder.path().join(format!("man1/amalgam-{}.1", command.get_name()));
            let page = fs::read_to_string(page).expect("a page");
            assert!(page.contains("SYNOPSIS"), "{}", command.get_name());
        }
        let bash = fs::read_to_string(folder.path().join("completions/amalgam.bash")).expect("completions");
        assert!(bash.contains("--checkpoint-every"));
    }
}
