//! From the command line to an exit code.

use std::{io::IsTerminal, process::ExitCode};

use crate::{
    bench::bench,
    check::check,
    cli::{Cli, Command},
    console,
    interrupt::EXIT_INTERRUPTED,
    local::StartError,
    output::OutputError,
    reproduce::reproduce,
    run::{Ending, run},
    scene::{Scene, SceneError},
    serve::serve,
    validate::validate,
};
use amalgam_coordinator::CoordinatorError;

/// Exit code when a run failed.
pub const EXIT_FAILED: u8 = 1;

/// Exit code when the scene or the command line is wrong.
pub const EXIT_WRONG: u8 = 2;

/// Why a command did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The scene is wrong.
    #[error(transparent)]
    Scene(#[from] SceneError),
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// It failed on the way.
    #[error("{0}")]
    Failed(String),
}

impl From<StartError> for CommandError {
    fn from(error: StartError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<OutputError> for CommandError {
    fn from(error: OutputError) -> Self {
        match error {
            OutputError::NotOurs(_) => Self::Usage(error.to_string()),
            other => Self::Failed(other.to_string()),
        }
    }
}

impl CommandError {
    /// Why a scene cannot start: shown in its file if it is the scene's fault.
    pub(crate) fn at_start(scene: &Scene, error: CoordinatorError) -> Self {
        match error {
            CoordinatorError::Section { participant, errors } => {
                let faults: Vec<_> = errors.into_iter().map(|fault| (fault.key, fault.message)).collect();
                scene.section_error(&participant, &faults).into()
            }
            CoordinatorError::Probe { probe, reason } => scene.probe_error(&probe, &reason).into(),
            CoordinatorError::Scene(_) | CoordinatorError::ImmovableOverlap { .. } => {
                Self::Usage(format!("{}: {error}", scene.file()))
            }
            other => Self::Failed(other.to_string()),
        }
    }
}

/// Does what the command line says, and reports errors on standard error.
pub fn execute(cli: &Cli) -> ExitCode {
    log_to_standard_error();
    let result = match &cli.command {
        Command::Run(args) => run(args).map(exit_code),
        Command::Check(args) => check(args).map(|()| ExitCode::SUCCESS),
        Command::Serve(args) => serve(args).map(|()| ExitCode::SUCCESS),
        Command::Validate(args) => validate(args).map(|()| ExitCode::SUCCESS),
        Command::Bench(args) => bench(args).map(|()| ExitCode::SUCCESS),
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

/// Warnings by default; RUST_LOG asks for more.
fn log_to_standard_error() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env();
    let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time();
    // Tests may have set one up before.
    let _ = log.with_target(false).try_init();
}
