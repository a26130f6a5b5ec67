//! `amalgam`: see the library.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    amalgam::command::execute(&amalgam::cli::Cli::parse())
}
