//! `amalgam`: see the library.

use std::process::ExitCode;

use clap::Parser;

/// Keeps memory that a step frees for the next one. Otherwise columns of megabytes would be mapped as new
/// pages in every step.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    amalgam::command::execute(&amalgam::cli::Cli::parse())
}
