//! Execution of a command: from the command line to an exit code.

pub mod bench;
pub mod certs;
pub mod check;
pub mod conform;
pub mod manual;
pub mod plan;
pub mod report;
pub mod reproduce;
pub mod resume;
pub mod serve;
pub mod validate;

use std::{io::IsTerminal, process::ExitCode};

use crate::{
    at::at,
    cli::{Cli, Command},
    console,
    error::{
        CommandError,
        ending::{EXIT_FAILED, EXIT_INTERRUPTED, EXIT_WRONG, Ending},
    },
    run::{export::export, launch, run},
    viewer::watch,
};
use amalgam_solver_kit::log::log_to_standard_error;
use bench::bench;
use certs::certs;
use check::check;
use conform::conform;
use manual::manual;
use plan::plan;
use report::report;
use reproduce::reproduce;
use resume::resume;
use serve::serve;
use validate::validate;

/// Executes the command line, and reports errors on standard error.
pub fn execute(cli: &Cli) -> ExitCode {
    log_to_standard_error(cli.log_format());
    let result = match &cli.command {
        Command::Run(args) => run(args).map(exit_code),
        Command::Launch(args) => launch(args).map(exit_code),
        Command::Certs(args) => certs(args).map(|()| ExitCode::SUCCESS),
        Command::Resume(args) => resume(args).map(exit_code),
        Command::Check(args) => check(args).map(|()| ExitCode::SUCCESS),
        Command::Plan(args) => plan(args).map(|()| ExitCode::SUCCESS),
        Command::Serve(args) => serve(args).map(|()| ExitCode::SUCCESS),
        Command::Export(args) => export(args).map(|()| ExitCode::SUCCESS),
        Command::Watch(args) => watch(args).map(|()| ExitCode::SUCCESS),
        Command::Report(args) => report(args).map(|()| ExitCode::SUCCESS),
        Command::Manual(args) => manual(args).map(|()| ExitCode::SUCCESS),
        Command::At(args) => at(args).map(exit_code),
        Command::Validate(args) => validate(args).map(|()| ExitCode::SUCCESS),
        Command::Bench(args) => bench(args).map(|()| ExitCode::SUCCESS),
        Command::Conform(args) => conform(args),
        Command::Reproduce(args) => reproduce(args).map(exit_code),
    };
    result.unwrap_or_else(|error| {
        let code = match &error {
            CommandError::Scene(_) | CommandError::Usage(_) => EXIT_WRONG,
            CommandError::Failed(_) => EXIT_FAILED,
        };
        match error {
            CommandError::Scene(error) => {
                let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
                console::note(console::render(&error, colour).trim_end());
            }
            other => console::note(format_args!("error: {other}")),
        }
        ExitCode::from(code)
    })
}

fn exit_code(ending: Ending) -> ExitCode {
    match ending {
        Ending::Finished => ExitCode::SUCCESS,
        Ending::Interrupted => ExitCode::from(EXIT_INTERRUPTED),
    }
}
