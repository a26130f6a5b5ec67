//! `amalgam at ADDRESS`: a client of the coordinator as a service.

pub(crate) mod transfer;

use std::{path::PathBuf, time::Duration};

use amalgam_coordinator::{Address, dial};
use amalgam_network::{Access, Calls, Role, SecurityOptions, innermost};
use amalgam_particles::text::{shorten, wall_time};
use amalgam_proto::{
    coordinator::{self as v1, coordinator_client::CoordinatorClient, follow_response::Event},
    message_limit,
};
use clap::{Args, Subcommand};
use tonic::{Code, Status};

use crate::{
    checkpoint::every::Every,
    console::{self, say},
    error::{CommandError, ending::Ending},
    scene::Scene,
};

/// Longest time to wait for a connection.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// Time between two lines about steps, of a run that is followed.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) type Client = CoordinatorClient<Calls>;

/// Arguments of `at`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct AtArgs {
    /// Address of the service: HOST:PORT or unix:PATH.
    #[arg(value_parser = Address::parse)]
    address: Address,
    #[command(flatten)]
    security: SecurityOptions,
    #[command(subcommand)]
    what: What,
}

/// Requests to the service.
#[derive(Debug, Subcommand)]
enum What {
    /// Send a scene, with the files that it names, to be computed there.
    Submit(SubmitArgs),
    /// List all runs.
    Runs,
    /// Follow a run to its end.
    Follow(RunOf),
    /// Hold a run after its current step.
    Pause(RunOf),
    /// Let a paused run go on, or one that was stopped from its last checkpoint.
    Continue(RunOf),
    /// Have a checkpoint written after the current step.
    Checkpoint(RunOf),
    /// End a run after its current step, with a checkpoint.
    Stop(RunOf),
    /// Forget a run that is over, and delete its results there.
    Remove(RunOf),
    /// List the files of a run's results.
    Files(RunOf),
    /// Copy files of a run's results here.
    Fetch(FetchArgs),
}

#[derive(Debug, Args)]
struct RunOf {
    /// The run, as `submit` and `runs` name it.
    run: String,
}

#[derive(Debug, Args)]
struct SubmitArgs {
    /// The scene, a TOML file.
    scene: PathBuf,
    /// Replace a value of the scene, KEY=VALUE; may be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// End after this many frames, if the scene is not over before.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    frames: Option<u32>,
    /// Write a checkpoint that often, in wall time or steps: 10m, 500steps.
    #[arg(long, value_name = "INTERVAL")]
    checkpoint_every: Option<Every>,
    /// Number of checkpoints kept, the newest ones.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep_checkpoints: Option<u32>,
    /// Wait that long for solvers at addresses that do not listen yet: 90s, 10m, 2h.
    #[arg(long, value_name = "TIME", value_parser = wall_time)]
    wait: Option<Duration>,
    /// Go back to the last checkpoint when a solver is lost, and wait that long for one at an address.
    #[arg(long, value_name = "TIME", value_parser = wall_time)]
    reconnect: Option<Duration>,
    /// Then follow the run to its end.
    #[arg(long)]
    follow: bool,
}

#[derive(Debug, Args)]
struct FetchArgs {
    /// The run, as `submit` and `runs` name it.
    run: String,
    /// Files, as `files` names them; all but checkpoints if none is named.
    files: Vec<String>,
    /// Folder for the files [default: out/RUN].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Makes the request of the command line to a service.
///
/// # Errors
/// A service that cannot be reached or refuses, and a followed run that fails.
pub fn at(args: &AtArgs) -> Result<Ending, CommandError> {
    // Faults of a scene are found before anything is sent.
    let scene = match &args.what {
        What::Submit(submit) => Some(Scene::read(&submit.scene, &submit.set)?.limited_to(submit.frames)?),
        _ => None,
    };
    let access = args.security.access(Role::Operator, Role::Coordinator);
    let access = access.map_err(|error| CommandError::Usage(format!("{error:#}")))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CommandError::Failed(error.to_string()))?;
    runtime.block_on(async {
        let mut client = connect(&args.address, &access).await?;
        ask(&mut client, &args.what, scene.as_ref()).await
    })
}

pub(crate) async fn connect(address: &Address, access: &Access) -> Result<Client, CommandError> {
    let unreachable = |reason: String| {
        CommandError::Failed(format!(
            "no service at {address}: {reason}; start one with `amalgam serve coordinator --listen {address}`"
        ))
    };
    let dialled = tokio::time::timeout(CONNECT_DEADLINE, dial(address, access)).await;
    let late = || unreachable(format!("no connection within {} s", CONNECT_DEADLINE.as_secs()));
    let channel = dialled.map_err(|_| late())?.map_err(|error| unreachable(innermost(&error)))?;
    let client = CoordinatorClient::new(channel);
    Ok(client.max_decoding_message_size(message_limit()).max_encoding_message_size(message_limit()))
}

/// A refusal, for people. Faults of a scene have several lines.
pub(crate) fn refused(status: &Status) -> CommandError {
    match status.code() {
        Code::InvalidArgument => CommandError::Usage(status.message().trim_end().to_string()),
        Code::NotFound | Code::FailedPrecondition | Code::ResourceExhausted => {
            CommandError::Failed(shorten(status.message()))
        }
        Code::Unimplemented => CommandError::Failed(
            "the service does not serve amalgam.coordinator.v1; is the address right?".to_string(),
        ),
        code => CommandError::Failed(format!("the service answered {code:?}: {}", shorten(status.message()))),
    }
}

async fn ask(client: &mut Client, what: &What, scene: Option<&Scene>) -> Result<Ending, CommandError> {
    let wrong = |status: Status| refused(&status);
    match what {
        What::Submit(args) => {
            let scene = scene.expect("it has been read");
            let id = submit(client, args, scene).await?;
            say(&id)?;
            if args.follow {
                return follow(client, &id).await;
            }
        }
        What::Runs => {
            let runs = client.list(v1::ListRequest {}).await.map_err(wrong)?.into_inner().runs;
            runs.iter().try_for_each(|run| say(line(run)))?;
        }
        What::Follow(of) => return follow(client, &of.run).await,
        What::Pause(of) => drop(client.pause(v1::PauseRequest { id: of.run.clone() }).await.map_err(wrong)?),
        What::Continue(of) => {
            client.r#continue(v1::ContinueRequest { id: of.run.clone() }).await.map_err(wrong)?;
        }
        What::Checkpoint(of) => {
            client.checkpoint(v1::CheckpointRequest { id: of.run.clone() }).await.map_err(wrong)?;
        }
        What::Stop(of) => drop(client.stop(v1::StopRequest { id: of.run.clone() }).await.map_err(wrong)?),
        What::Remove(of) => {
            drop(client.remove(v1::RemoveRequest { id: of.run.clone() }).await.map_err(wrong)?)
        }
        What::Files(of) => {
            let files = transfer::files(client, &of.run).await?;
            files.iter().try_for_each(|(path, bytes)| say(format_args!("{bytes:>12}  {path}")))?;
        }
        What::Fetch(args) => {
            let out = args.out.clone().unwrap_or_else(|| PathBuf::from("out").join(&args.run));
            transfer::fetch(client, &args.run, &args.files, &out).await?;
        }
    }
    Ok(Ending::Finished)
}

async fn submit(client: &mut Client, args: &SubmitArgs, scene: &Scene) -> Result<String, CommandError> {
    let options = v1::Options {
        checkpoint_every: args.checkpoint_every.as_ref().map(Every::to_string).unwrap_or_default(),
        keep_checkpoints: args.keep_checkpoints.unwrap_or_default(),
        wait: args.wait.unwrap_or_default().as_secs_f64(),
        reconnect: args.reconnect.unwrap_or_default().as_secs_f64(),
    };
    transfer::submit(client, options, scene).await
}

/// Shows a run to its end: its lines, changes of its state, and a line about steps at intervals.
async fn follow(client: &mut Client, id: &str) -> Result<Ending, CommandError> {
    let wrong = |status: Status| refused(&status);
    let request = v1::FollowRequest { id: id.into() };
    let mut events = client.follow(request).await.map_err(wrong)?.into_inner();
    let (mut shown, mut duration) = (None::<std::time::Instant>, 0.0);
    while let Some(response) = events.message().await.map_err(wrong)? {
        match response.event {
            Some(Event::Run(run)) => {
                say(line(&run))?;
                duration = run.duration;
                match run.state() {
                    v1::State::Finished => return Ok(Ending::Finished),
                    v1::State::Stopped => return Ok(Ending::Interrupted),
                    v1::State::Failed => return Err(CommandError::Failed(run.error)),
                    _ => {}
                }
            }
            Some(Event::Step(step)) if shown.is_none_or(|shown| shown.elapsed() >= LINE_INTERVAL) => {
                shown = Some(std::time::Instant::now());
                say(step_line(&step, duration))?;
            }
            Some(Event::Line(text)) => console::note(text),
            Some(Event::Step(_) | Event::LeftOut(_)) | None => {}
        }
    }
    Err(CommandError::Failed("the service ended before the run did".into()))
}

fn state(run: &v1::Run) -> &'static str {
    match run.state() {
        v1::State::Queued => "queued",
        v1::State::Running => "running",
        v1::State::Paused => "paused",
        v1::State::Finished => "finished",
        v1::State::Stopped => "stopped",
        v1::State::Failed => "failed",
        v1::State::Unspecified => "unknown",
    }
}

/// A run in a line.
fn line(run: &v1::Run) -> String {
    let v1::Run { id, steps, time, duration, error, state_hash, .. } = run;
    let mut line = format!("{id}  {}  {time:.4} of {duration} s, {steps} steps", state(run));
    if !state_hash.is_empty() {
        line += &format!(", hash {state_hash}");
    }
    if let Some(error) = error.lines().find(|line| !line.trim().is_empty()) {
        line += &format!(": {}", shorten(error));
    }
    line
}

fn step_line(step: &v1::Step, duration: f64) -> String {
    let v1::Step { step: number, time, dt, stages, contacts, groups, wall, probes, .. } = step;
    let milliseconds = 1e3 * wall;
    let mut line = format!(
        "step {number}  {time:.4} of {duration} s  dt {dt:.2e} s  {contacts} contacts  {groups} groups  {stages} stages  \
         {milliseconds:.1} ms"
    );
    for probe in probes {
        line += &format!("  {} {} {:.5e}", probe.probe, probe.column, probe.value);
    }
    line
}
